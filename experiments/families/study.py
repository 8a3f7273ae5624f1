"""Regression, groups, or gates trained on outcomes? The default search, nested, on 15 data sets.

python experiments/families/study.py train [--sets NAME ...] [--engine compiled]   # results, candidates
python experiments/families/study.py report                    # the tables of the README
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import adjusted_rand_score

from sstorch import Grid, PrognosticTreeCV, SurvivalRegression, load_dataset, metrics
from sstorch.bench import make_folds, soft_tree
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import DataWarning
from sstorch.optim import Engine, Nodec, Race
from sstorch.soft.estimator import SoftEstimator
from sstorch.validation import concordance_of_groups

HERE = Path(__file__).parent
RESULTS, CANDIDATES = HERE / "results.csv", HERE / "candidates.csv"
SETS = ["veterans", "whas500", "uissurv", "gbsg2", "maintenance", "credit", "aids", "aids_death", "churn"]
SETS += ["unempdur", "aids2", "framingham", "dialysis", "flchain", "employee"]
SCORES = ["c", "ibs", "leaves", "c_groups", "ari"]
RULES = ["regression", "groups", "gates", "prefer groups", "prefer accuracy"]


def about(tree: SoftEstimator, train: SurvivalData, test: SurvivalData) -> dict[str, float]:
    """Scores of the test rows, and what the groups are."""
    times = np.unique(test.time[test.event])
    grid = metrics.evaluation_times(test.time, train.time, "sksurv")
    y, known = (test.time, test.event), (train.time, train.event)
    found = {
        "c": metrics.concordance_harrell(y, tree.falling_curves(test.frame, times), times),
        "ibs": metrics.integrated_brier_score(
            y, tree.falling_curves(test.frame, grid), grid, train=known, convention="sksurv"
        ),
        "log_likelihood": tree.log_likelihood(test.frame, y),
        "leaves": 1.0,
    }
    if not isinstance(tree, SurvivalRegression):
        shares = np.bincount(tree.apply(train.frame)) / len(train)
        found["leaves"] = float((shares >= 0.05).sum())
        found["smallest"] = float(shares[shares > 0].min())
        found["c_groups"] = concordance_of_groups(tree, test.frame, y, (train.frame, known))
        found["p"] = metrics.logrank_test(y, tree.apply(test.frame)).p_value
    return found


def nested(name: str, engine: Engine) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The search within each of five training sets, and the best of every family on its test rows."""
    data = load_dataset(name)
    outer, schema = make_folds(data, 5, 0), Schema.of(data.frame)
    rows, scored, groups = [], [], {}
    for fold in range(5):
        begin = time.process_time()
        train, test = data.subset(outer != fold), data.subset(outer == fold)
        trainer = Nodec(race=Race(), engine=engine)
        search = PrognosticTreeCV(grid=Grid(trainer=trainer))._fit_data(train, schema)
        seconds = time.process_time() - begin
        scored.append(search.cv_results_.assign(data=name, fold=fold))
        best = search.families_["mean_score"].idxmax()
        for family, line in search.families_.iterrows():
            candidate = search.cv_results_.loc[line["index"]]
            if line["chosen"]:
                tree = search.best_estimator_
            else:
                values = parameters(candidate)
                values["trainer"] = trainer if family == "gates" else None
                tree = soft_tree(**values)._fit_data(train, schema)
            groups[family, fold] = tree.apply(data.frame)
            chosen = {"prefer groups": bool(line["chosen"]), "prefer accuracy": family == best}
            inner = line.drop(["chosen", "index"]).add_prefix("inner_").to_dict()
            place = {"data": name, "fold": fold, "family": family, "depth": candidate["depth"]}
            rows.append(place | {"seconds": seconds} | chosen | inner | about(tree, train, test))
        print(name, fold, f"{seconds:.0f} s of the processor", flush=True)
    table = pd.DataFrame(rows)
    for rule in RULES:
        own = table[rule] if rule in table else table["family"] == rule
        trees = [groups[family, fold] for family, fold in table.loc[own, ["family", "fold"]].to_numpy()]
        pairs = [adjusted_rand_score(*pair) for pair in combinations(trees, 2)]
        table[f"ari {rule}"] = float(np.mean(pairs)) if pairs else np.nan
    return table, pd.concat(scored)


def parameters(candidate: pd.Series) -> dict[str, object]:
    """Of a row of ``cv_results_``, as flat settings."""
    names = ["depth", "leaf", "numeric", "init", "n_starts", "ridge", "gate_ridge", "fused", "roughness"]
    columns = candidate["gate_features"]
    return {name: candidate[name] for name in names} | {
        "gate_features": columns if isinstance(columns, int) else None
    }


def report() -> None:
    """Means over folds, and over data sets."""
    results = pd.read_csv(RESULTS)
    tables = {}
    for rule in RULES:
        own = results[results[rule]] if rule in results else results[results["family"] == rule]
        own = own.assign(ari=own[f"ari {rule}"], c_groups=own["c_groups"].fillna(0.5))
        tables[rule] = own.groupby("data", sort=False)[SCORES].mean().reindex(SETS).dropna(how="all")
    wide = pd.concat(tables, axis=1)
    for score in SCORES:
        some = wide.xs(score, axis=1, level=1)
        print(f"\n{score}\n{pd.concat([some, some.mean().to_frame('mean').T]).round(4).to_string()}")
    for rule in ("prefer groups", "prefer accuracy"):
        share = results[results[rule]].groupby("data", sort=False)["family"].value_counts().unstack()
        print(f"\nfolds, {rule}\n{share.fillna(0).astype(int).reindex(SETS).to_string()}")
    print(f"\nseconds a fold\n{results.groupby('data', sort=False)['seconds'].mean().round(1).to_string()}")


def replace(path: Path, name: str, found: pd.DataFrame) -> None:
    """Write the rows of a data set in place of those of an earlier run."""
    if path.exists():
        before = pd.read_csv(path)
        found = pd.concat([before[before["data"] != name], found])
    found.to_csv(path, index=False, float_format="%.6g")


def main() -> None:
    """See the head of the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "report"])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--engine", default="torch")
    arguments = parser.parse_args()
    if arguments.what == "report":
        report()
        return
    for name in arguments.sets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            results, scored = nested(name, arguments.engine)
        replace(RESULTS, name, results)
        replace(CANDIDATES, name, scored)


if __name__ == "__main__":
    main()
