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

from sstorch import SoftSurvivalTree, load_dataset
from sstorch.data import Schema, stratified_folds
from sstorch.estimators import train_batch
from sstorch.estimators.grid import candidates
from sstorch.evaluation import make_baseline, make_folds, score_predictor
from sstorch.estimators.held_out import SCORINGS, HeldOutRows

HERE = Path(__file__).parent
SETS = (
    "veterans whas500 uissurv gbsg2 maintenance credit aids aids_death churn unempdur aids2 framingham dialysis "
    "flchain employee"
).split()
SINGLE = {"depth": 0, "leaf": ("log_logistic", "weibull", "spline_ph", "spline_po"), "ridge": (1e-4, 1e-3, 1e-2)}
GROWN = {
    "depth": (1, 2, 3),
    "leaf": ("log_logistic", "spline_ph"),
    "ridge": 1e-3,
    "gate_ridge": (1e-5, 1e-4, 1e-3),
    "init": "grown",
    "n_starts": 1,
}
COMMON = {"init": "kmeans", "n_starts": 1, "ridge": 1e-3, "gate_ridge": 1e-4, "fused": 0.0}
# Beside the candidates of the search, what one lever changes; for the ablation.
LEVERS = {
    "search": (SINGLE, GROWN),
    "kmeans": ({**GROWN, "init": "kmeans", "n_starts": 3},),
    "greedy": ({**GROWN, "init": "greedy"},),
    "starts": ({**GROWN, "n_starts": 3},),
    "ridge": ({**GROWN, "ridge": (1e-4, 1e-2)},),
    "fused": ({**GROWN, "fused": (0.03, 0.3)},),
    "decomposition": (GROWN,),
}
KEYS = ["lever", "depth", "leaf", "init", "n_starts", "ridge", "gate_ridge", "fused"]
# Gates with less than this share of the largest weight of their tree's gates count as asleep.
CURVES = tuple(SCORINGS)


def nested(name: str, repeat: int, fold: int, lever: str) -> pd.DataFrame:
    """Inner scores of every candidate, and those of the same candidate trained on all rows of the fold."""
    data = load_dataset(name)
    outer, schema, rows = make_folds(data, 5, repeat), Schema.of(data.frame), []
    trainer = "nodec" if lever == "decomposition" else "joint"
    train, test = data.subset(outer != fold), data.subset(outer == fold)
    inner = stratified_folds(train.event, 5, 0)
    # The inner folds, and the outer one as a sixth split of the same batch.
    splits = [train.subset(inner != k) for k in range(5)] + [train]
    held_out = [train.subset(inner == k) for k in range(5)] + [test]
    for lists in LEVERS[lever]:
        found = candidates(COMMON | lists)
        for key in dict.fromkeys(own.batch for own in found):
            begin = time.process_time()
            own = [candidate for candidate in found if candidate.batch == key]
            coefficients = list(dict.fromkeys(candidate.coefficients for candidate in own))
            settings = SoftSurvivalTree(**own[0].parameters, trainer=trainer).settings()
            batch = train_batch(splits, settings, schema, coefficients=coefficients)
            seconds = (time.process_time() - begin) / len(own)
            for k in range(6):
                parts = held_out[k], splits[k], batch.preprocessors[k]
                scorers = {score: HeldOutRows(*parts, score, "hbp") for score in CURVES}
                x = torch.as_tensor(batch.preprocessors[k].transform(splits[k].frame))
                for candidate in own:
                    setting = batch.coefficients.index(candidate.coefficients)
                    start = batch.best_start(k, setting, candidate.n_starts)
                    tree = batch.tree.select(batch.position(k, start, setting))
                    used = len(torch.unique(tree.apply_leaf(x)))
                    scores = {score: scorer.score(tree) for score, scorer in scorers.items()}
                    about = {"data": name, "repeat": repeat, "fold": fold, "inner": k, "lever": lever}
                    rows.append({**about, **candidate.row(), **scores, "leaves": used, "seconds": seconds})
    return pd.DataFrame(rows)


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
                print(name, lever, repeat, fold, f"{time.process_time() - begin:.0f} s of the processor", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train"])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--repeats", nargs="*", type=int, default=[0])
    parser.add_argument("--lever", choices=LEVERS, default="search")
    given = parser.parse_args()
    torch.set_num_threads(1)
    train(given.sets, given.repeats, given.lever)
