"""Exact trees as initial solutions, beside random, k-means and greedy ones: see README.md here."""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sstorch import OptimalSurvivalTree, SoftSurvivalTree, SurvivalData, load_dataset
from sstorch.data import Preprocessor, Schema, stratified_folds
from sstorch.estimators import train_batch
from sstorch.exceptions import DataWarning
from sstorch.optim import Annealing, Nodec, exact_tree

HERE = Path(__file__).parent
DATASETS = (
    "veterans",
    "unemployment",
    "whas500",
    "uissurv_no_los",
    "gbsg2",
    "maintenance",
    "credit",
    "aids",
    "churn",
    "aids2",
    "unempdur",
    "framingham",
    "dialysis",
    "flchain_no_chapter",
    "employee",
)
INITS = (
    "random",
    "kmeans",
    "greedy",
    "optimal",
    "random, annealed",
    "greedy, annealed",
    "optimal, annealed",
)
ALONE = "exact tree itself"
DEPTH, N_FOLDS = 2, 5


def main() -> None:
    """Train on every fold from every kind of start; write scores.csv, one row a start, and print means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--passes", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in given.datasets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # times of zero
            data = load_dataset(name)
        folds = stratified_folds(data.event, N_FOLDS, 0)
        for init in INITS:
            rows += _run(name, data, folds, init, given.starts, given.passes)
        rows += _alone(name, data, folds)
        print(_means(pd.DataFrame(rows).query("dataset == @name")).to_string(), flush=True)
    table = pd.DataFrame(rows)
    if set(given.datasets) == set(DATASETS):
        table.to_csv(HERE / "scores.csv", index=False, float_format="%.5f")
    print(_means(table).to_string())
    print(_ranks(table).to_string())


def _run(
    name: str, data: SurvivalData, folds: np.ndarray, init: str, n_starts: int, passes: int
) -> list[dict[str, object]]:
    kind, *annealed = init.split(", ")
    trainer = Nodec(macro_iterations=passes, annealing=Annealing() if annealed else None)
    estimator = SoftSurvivalTree(DEPTH, n_starts=n_starts, init=kind, trainer=trainer)
    splits = [data.subset(folds != fold) for fold in range(N_FOLDS)]
    schema = Schema.of(data.frame)
    search = 0.0
    if kind == "optimal":
        encoded = Preprocessor(schema).fit(splits[0].frame).transform(splits[0].frame)
        begin = time.process_time()
        exact_tree(encoded, splits[0].time, splits[0].event, DEPTH)
        search = time.process_time() - begin
    begin = time.process_time()
    batch = train_batch(splits, estimator.settings(), schema)
    seconds = time.process_time() - begin
    passes_made = batch.history.macro_iterations
    started = passes_made[passes_made["macro_iteration"] == 0].set_index("problem")["objective"]
    rows: list[dict[str, object]] = []
    for fold, train in enumerate(splits):
        test = data.subset(folds == fold)
        best = batch.best_start(fold)
        for start in range(n_starts):
            tree = estimator.adopt(batch, train, fold, start)
            rows.append(
                {
                    "dataset": name,
                    "init": init,
                    "fold": fold,
                    "start": start,
                    "chosen": start == best,
                    "objective_at_start": float(started[batch.position(fold, start)]),
                    "objective": tree.objective_,
                    "c_harrell": tree.score(test.frame, (test.time, test.event)),
                    "seconds": seconds,
                    "search_seconds": search,
                }
            )
    return rows


def _alone(name: str, data: SurvivalData, folds: np.ndarray) -> list[dict[str, object]]:
    """The exact tree, not softened, with Kaplan-Meier leaves."""
    rows: list[dict[str, object]] = []
    for fold in range(N_FOLDS):
        train, test = data.subset(folds != fold), data.subset(folds == fold)
        begin = time.process_time()
        tree = OptimalSurvivalTree(DEPTH).fit(train.frame, (train.time, train.event))
        seconds = time.process_time() - begin
        value = tree.score(test.frame, (test.time, test.event))
        about = {"dataset": name, "init": ALONE, "fold": fold, "start": 0, "chosen": True, "c_harrell": value}
        rows.append({**about, "seconds": seconds, "search_seconds": seconds})
    return rows


def _means(table: pd.DataFrame) -> pd.DataFrame:
    """Means over folds: first start alone, and the start with the lowest objective."""
    keys = ["dataset", "init"]
    first = table[table["start"] == 0].groupby(keys, sort=False)
    chosen = table[table["chosen"]].groupby(keys, sort=False)
    return pd.DataFrame(
        {
            "at start": first["objective_at_start"].mean(),
            "first: objective": first["objective"].mean(),
            "first: C": first["c_harrell"].mean(),
            "best: objective": chosen["objective"].mean(),
            "best: C": chosen["c_harrell"].mean(),
            "seconds": chosen["seconds"].mean(),
            "search": chosen["search_seconds"].mean(),
        }
    ).round(4)


def _ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Mean rank of each kind of start over the data sets, 1 = best; and in how many it is best."""
    means = _means(table)
    out = {}
    for column in ("first: objective", "first: C", "best: objective", "best: C"):
        wide = means[column].unstack("init")
        ranks = wide[list(INITS)].rank(axis=1, ascending="objective" in column)
        out[column] = ranks.mean().round(2)
        out[f"{column}, best in"] = (ranks == 1).sum()
    return pd.DataFrame(out).loc[list(INITS)]


if __name__ == "__main__":
    main()
