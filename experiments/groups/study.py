"""Do the groups of the default tree cost accuracy, and do they separate? 15 data sets, beside the regression.

python experiments/groups/study.py train [--sets NAME ...]    # results.csv, a row for each fold and model
python experiments/groups/study.py report                     # the tables of the README
"""

from __future__ import annotations

import argparse
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import adjusted_rand_score

from sstorch import PrognosticTree, SurvivalRegression, load_dataset, metrics
from sstorch.bench.cross_validation import make_folds
from sstorch.data import SurvivalData
from sstorch.exceptions import DataWarning
from sstorch.reading import gate_coefficients

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
SEVEN = ["gbsg2", "veterans", "whas500", "uissurv", "credit", "churn", "unempdur"]
OTHERS = ["aids2", "maintenance", "aids", "aids_death", "framingham", "dialysis", "flchain", "employee"]
# All settings are the defaults: estimated penalties, and at most four groups by gates of one column.
MODELS = {
    "regression": SurvivalRegression(),
    "groups": PrognosticTree(),
}
SCORES = ["c", "ibs", "log_likelihood", "leaves", "smallest", "columns", "c_groups", "p", "ari"]


def about(
    tree: PrognosticTree | SurvivalRegression, train: SurvivalData, test: SurvivalData
) -> dict[str, float]:
    """Scores of the test rows, and what the groups are."""
    times = np.unique(test.time[test.event])
    grid = metrics.evaluation_times(test.time, train.time, "sksurv")
    curves = tree.falling_curves(test.frame, grid)
    reference = (train.time, train.event)
    found = {
        "c": metrics.concordance_harrell(
            (test.time, test.event), tree.falling_curves(test.frame, times), times
        ),
        "ibs": metrics.integrated_brier_score(
            (test.time, test.event), curves, grid, train=reference, convention="sksurv"
        ),
        "log_likelihood": tree.log_likelihood(test.frame, (test.time, test.event)),
    }
    if isinstance(tree, SurvivalRegression):
        return found
    shares = np.bincount(tree.apply(train.frame)) / len(train)
    table = gate_coefficients(tree).query("coefficient != 0")
    y = (test.time, test.event)
    found |= {
        "leaves": int((shares >= 0.05).sum()),
        "smallest": float(shares[shares > 0].min()),
        "columns": float(table.groupby("node")["column"].nunique().mean()),
        "c_groups": metrics.concordance_of_groups(
            y, tree.apply(test.frame), train=(reference, tree.apply(train.frame))
        ),
        "p": metrics.logrank_test(y, tree.apply(test.frame)).p_value,
    }
    return found


def train_set(name: str, seed: int) -> list[dict[str, object]]:
    """Every model on the five folds of a data set."""
    data = load_dataset(name)
    folds = make_folds(data, 5, seed)
    rows: list[dict[str, object]] = []
    for model, tree in MODELS.items():
        groups = []
        for fold in range(5):
            train, test = data.subset(folds != fold), data.subset(folds == fold)
            tree.fit(train.frame, (train.time, train.event))
            rows.append(
                {"data": name, "seed": seed, "fold": fold, "model": model, **about(tree, train, test)}
            )
            groups.append(tree.apply(data.frame))
        if isinstance(tree, PrognosticTree):
            pairs = [adjusted_rand_score(*pair) for pair in combinations(groups, 2)]
            for row in rows[-5:]:
                row["ari"] = float(np.mean(pairs))
    return rows


def report() -> None:
    """Means over folds, and over data sets."""
    results = pd.read_csv(RESULTS)
    for title, names, seed in (
        ("seven sets", SEVEN, 0),
        ("other sets", OTHERS, 0),
        ("gbsg2", ["gbsg2"], None),
    ):
        some = results[results["data"].isin(names) & (results["seed"] == seed if seed is not None else True)]
        keys = ["data", "model"] if seed is not None else ["seed", "model"]
        means = some.groupby(keys, sort=False)[SCORES].mean()
        means["p"] = some.groupby(keys, sort=False)["p"].median()
        print(f"\n{title}\n{means.round(4).to_string()}")
        print(means.groupby("model", sort=False).mean().round(4).to_string())
        wide = means.reset_index().pivot(index=keys[0], columns="model", values=["c", "ibs"])
        for score in ("c", "ibs"):
            difference = wide[score]["groups"] - wide[score]["regression"]
            print(
                f"{score}: groups less regression {difference.mean():+.4f}, from {difference.min():+.4f} "
                f"to {difference.max():+.4f}"
            )


def main() -> None:
    """See the head of the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "report"])
    parser.add_argument("--sets", nargs="*", default=[*SEVEN, *OTHERS])
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    arguments = parser.parse_args()
    if arguments.what == "report":
        report()
        return
    for name in arguments.sets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            found = pd.DataFrame(train_set(name, arguments.seed))
        if RESULTS.exists():
            before = pd.read_csv(RESULTS)
            kept = (before["data"] != name) | (before["seed"] != arguments.seed)
            found = pd.concat([before[kept], found])
        found.to_csv(RESULTS, index=False, float_format="%.6g")
        print(name, flush=True)


if __name__ == "__main__":
    main()
