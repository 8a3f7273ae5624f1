"""How accurate is one readable tree? Nested cross-validation of every candidate of a search, on 15 data sets.

python experiments/accuracy/study.py train [--sets NAME ...] [--repeats N] [--lever NAME]   # candidates/
python experiments/accuracy/study.py baselines [--sets NAME ...] [--repeats N]              # baselines.csv
python experiments/accuracy/study.py report                                                 # the tables of the README
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch import SoftSurvivalTree, load_dataset, metrics
from sstorch.data import Schema, SurvivalData, stratified_folds
from sstorch.estimators import train_batch
from sstorch.estimators.settings import Coefficients
from sstorch.evaluation import make_baseline, make_folds, score_predictor
from sstorch.estimators.held_out import SCORINGS, HeldOutRows

HERE = Path(__file__).parent
SETS = (
    "veterans whas500 uissurv gbsg2 maintenance credit aids aids_death churn unempdur aids2 framingham dialysis "
    "flchain employee"
).split()
LEAVES = ("log_logistic", "spline_ph", "spline_po")
RIDGES = (1e-4, 1e-3, 1e-2)
GATE_RIDGES = (1e-5, 1e-4, 1e-3)
MAX_DEPTH, N_FAMILIES = 3, 2
# What one lever changes, beside "search" itself; for the ablation.
LEVERS: dict[str, dict[str, object]] = {
    "search": {},
    "kmeans": {"init": "kmeans", "n_starts": 3},
    "greedy": {"init": "greedy"},
    "starts": {"n_starts": 3},
    "fused": {"fused": 0.1},
    "decomposition": {"trainer": "nodec"},
}
KEYS = ["depth", "leaf", "ridge", "gate_ridge"]
# A column counts as read if it has at least this share of the effects in the gates or in the leaves.
READ = 0.02
# Scores that improve by less are as good as before.
TOLERANCE = 1e-4
CURVES = tuple(SCORINGS)


def nested(name: str, repeat: int, fold: int, lever: str) -> pd.DataFrame:
    """Inner scores of every candidate, and those of the same candidate trained on all rows of the fold.

    Level by level, as ``search="growing"`` does.
    """
    data = load_dataset(name)
    outer, schema = make_folds(data, 5, repeat), Schema.of(data.frame)
    train, test = data.subset(outer != fold), data.subset(outer == fold)
    inner = stratified_folds(train.event, 5, 0)
    # The inner folds, and the outer one as a sixth split of the same batch.
    splits = [train.subset(inner != k) for k in range(5)] + [train]
    held_out = [train.subset(inner == k) for k in range(5)] + [test]
    about = {"data": name, "repeat": repeat, "fold": fold, "lever": lever}
    shared = {"init": "grown", "n_starts": 1, "fused": 0.0, "trainer": "joint"} | LEVERS[lever]
    table, best = pd.DataFrame(), -np.inf
    families, ridges = list(LEAVES), dict.fromkeys(LEAVES, RIDGES)
    for depth in range(MAX_DEPTH + 1):
        rows: list[dict[str, object]] = []
        for leaf in families:
            tuples = [(ridge, gate) for ridge in ridges[leaf] for gate in (GATE_RIDGES if depth else (0.0,))]
            rows += level(splits, held_out, schema, depth, leaf, tuples, shared)
        table = pd.concat([table, pd.DataFrame(rows).assign(**about)])
        means = table[(table["inner"] < 5) & (table["depth"] == depth)].groupby(KEYS)[list(CURVES)].mean()
        if depth == 0:
            chosen = means["log_likelihood"].groupby("leaf").idxmax()
            ridges = {leaf: (key[KEYS.index("ridge")],) for leaf, key in chosen.items()}
        if not means["log_likelihood"].max() > best + TOLERANCE:
            break
        best = means["log_likelihood"].max()
        order = means["log_likelihood"].groupby("leaf").max().sort_values(ascending=False)
        families = list(order.index[:N_FAMILIES])
    return table


def level(
    splits: list[SurvivalData],
    held_out: list[SurvivalData],
    schema: Schema,
    depth: int,
    leaf: str,
    penalties: list[tuple[float, float]],
    shared: dict[str, object],
) -> list[dict[str, object]]:
    """Scores of the candidates of a depth and leaf, on all splits."""
    begin, rows = time.process_time(), []
    estimator = SoftSurvivalTree(depth, leaf, **shared)
    coefficients = [Coefficients(ridge, gate, shared["fused"] if depth else 0.0) for ridge, gate in penalties]
    batch = train_batch(splits, estimator.settings(), schema, coefficients=coefficients)
    seconds = (time.process_time() - begin) / len(penalties)
    for k, (rest, train) in enumerate(zip(held_out, splits, strict=True)):
        scorers = {score: HeldOutRows(rest, train, batch.preprocessors[k], score, "hbp") for score in CURVES}
        for setting, (ridge, gate) in enumerate(penalties):
            start = batch.best_start(k, setting)
            tree = batch.tree.select(batch.position(k, start, setting))
            facts = {score: scorer.score(tree) for score, scorer in scorers.items()} | {"seconds": seconds}
            if k == 5:
                facts |= outer_facts(clone(estimator).adopt(batch, train, k, start, setting), rest, train)
            rows.append(
                {"inner": k, "depth": depth, "leaf": leaf, "ridge": ridge, "gate_ridge": gate, **facts}
            )
    return rows


def outer_facts(tree: SoftSurvivalTree, test: SurvivalData, train: SurvivalData) -> dict[str, float]:
    """The Brier score of the other convention on the test rows, and how much there is to read."""
    times = metrics.evaluation_times(test.time, train.time, "sksurv")
    curves = tree.falling_curves(test.frame, times)
    score = metrics.integrated_brier_score(
        test.time, test.event, curves, times, train=(train.time, train.event), convention="sksurv"
    )
    rules = tree.simplify(train.frame).table
    gates = [len(names) for names, left in zip(rules["features"], tree.gate_table()["left"]) if 0 < left < 1]
    read = int((tree.importance() >= READ).any(axis=1).sum())
    used = len(np.unique(tree.apply(train.frame)))
    return {
        "ibs_sksurv": -score,
        "leaves": used,
        "gates": len(gates),
        "gate_features": float(sum(gates)),
        "columns": read,
    }


def train(names: list[str], repeats: list[int], lever: str) -> None:
    folder = HERE / "candidates"
    folder.mkdir(exist_ok=True)
    for name in names:
        for repeat in repeats:
            for fold in range(5):
                path = folder / f"{name}_{lever}_{repeat}_{fold}.parquet"
                if path.exists():
                    continue
                begin = time.process_time()
                table = nested(name, repeat, fold, lever)
                table.to_parquet(path.with_suffix(".part"))
                path.with_suffix(".part").replace(path)
                print(
                    name,
                    lever,
                    repeat,
                    fold,
                    f"{time.process_time() - begin:.0f} s of the processor",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train"])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--repeats", nargs="*", type=int, default=[0])
    parser.add_argument("--lever", choices=LEVERS, default="search")
    given = parser.parse_args()
    torch.set_num_threads(1)
    train(given.sets, given.repeats, given.lever)
