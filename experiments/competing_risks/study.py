"""One readable tree for competing causes beside regressions, forests and boosting, on five folds.

python experiments/competing_risks/study.py train [--sets NAME ...]  # results.csv: folds, models, causes
python experiments/competing_risks/study.py coverage                 # of the truth, by intervals of groups
python experiments/competing_risks/study.py report                   # tables of the README
python experiments/competing_risks/study.py draw                     # mgus2.png
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from boosting import Boosting
from comprisk_forest import PYTHON, CompriskForest

from sstorch import (
    OptimalSurvivalTree,
    PrognosticTree,
    Surv,
    SurvivalData,
    load_dataset,
    metrics,
)
from sstorch.bench.baselines import make_baseline
from sstorch.bench.scores import RowsToScore
from sstorch.data import folds_of
from sstorch.data.folds import split
from sstorch.exceptions import DataWarning
from sstorch.metrics.grids import incidence_times
from sstorch.metrics.incidence import aalen_johansen_error
from tests.flat import soft_tree

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
SETS = ["mgus2", "pbc", "melanoma", "weibull"]
PEERS = {
    "aalen_johansen": make_baseline("kaplan_meier"),
    "cox": make_baseline("cox"),
    "forest": make_baseline("rsf", n_trees=200),
    "comprisk": CompriskForest(),
    "boosting": Boosting(),
}
# The tree as it comes, and the same leaves without gates; nothing is chosen.
TREES = {"regression": {"depth": 0}, "tree": {}}
EVERY = [*PEERS, "exact", *TREES]
# Of the simulated cohort: shapes and scales of the causes.
SHAPES, SCALES = (0.7, 1.8), (9.0, 12.0)


def simulated(n: int = 2000, seed: int = 0) -> SurvivalData:
    """Two Weibull hazards whose scales depend on thresholds and lines of four columns; uniform censoring."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 6)), columns=["a", "b", "c", "d", "noise", "noise2"])
    first, second = (
        scale * np.exp(-risk) * rng.weibull(shape, n)
        for scale, shape, risk in zip(SCALES, SHAPES, risks(frame), strict=True)
    )
    censored = rng.uniform(2, 25, n)
    # In fiftieths of a year: a forest holds a curve at every different time.
    time = np.ceil(50 * np.minimum(np.minimum(first, second), censored)) / 50
    cause = np.select([(first <= second) & (first <= censored), second <= censored], [1, 2], 0)
    return SurvivalData(frame, Surv(time, cause, causes={1: "first", 2: "second"}))


def risks(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Log risks of the two causes in the simulated cohort."""
    first = 0.8 * (frame["a"] > 0.3) + 0.4 * frame["b"]
    second = 0.6 * frame["c"] * (frame["a"] > 0.3) + 0.5 * (frame["d"] > 0)
    return first.to_numpy(), second.to_numpy()


def truth(frame: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    """Incidences in the simulated cohort, (n, 2, n_times), by a fine trapezoid rule in log time."""
    fine = np.exp(np.linspace(np.log(1e-9), np.log(times[-1]), 4000))
    scale = np.stack([s * np.exp(-r) for s, r in zip(SCALES, risks(frame), strict=True)], 1)[..., None]
    shape = np.array(SHAPES)[:, None]
    hazard = (fine / scale) ** shape
    density = shape * hazard * np.exp(-hazard.sum(axis=1, keepdims=True))  # per unit of log time
    steps = np.diff(np.log(fine)) * (density[..., 1:] + density[..., :-1]) / 2
    curve = np.concatenate([hazard[..., :1], hazard[..., :1] + np.cumsum(steps, axis=-1)], axis=-1)
    return curve[..., np.searchsorted(fine, times * (1 - 1e-12))]


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def train_set(name: str, models: list[str]) -> list[dict[str, object]]:
    """Models on the five folds of a data set, which are stratified by cause."""
    data = simulated() if name == "weibull" else load_dataset(name)
    rows = []
    for fold, train, test in ((own.number, own.train, own.test) for own in split(data, folds_of(data, 5, 0))):
        for model in models:
            start = cpu_seconds()
            if model == "exact":
                fitted = OptimalSurvivalTree(2, min_leaf=len(train) // 10).fit(train.frame, train.y)
            elif model in TREES:
                fitted = soft_tree(**TREES[model]).fit(train.frame, train.y)
            else:
                fitted = PEERS[model].fit(train.frame, train.y)
            seconds = cpu_seconds() - start
            about = {"dataset": name, "fold": fold, "model": model, "seconds": round(seconds, 3)}
            if model == "tree":
                about["leaves"] = len(np.unique(fitted.apply(train.frame)))
            if name == "weibull":
                times = incidence_times((train.time, train.cause))
                error = fitted.predict_cumulative_incidence(test.frame, times) - truth(test.frame, times)
                about["error"] = float(np.abs(error).mean())
            scores = RowsToScore(test, train).scores(fitted)
            for k, cause in enumerate(test.cause_names, 1):
                own = {
                    name: scores[f"{name}:{cause}"].value for name in ("c_wolbers", "c_cause_specific", "ibs")
                }
                rows.append({**about, "cause": cause, "events": int((test.cause == k).sum()), **own})
    return rows


def coverage(n_cohorts: int = 100, horizon: float = 5.0) -> str:
    """How often intervals of Aalen and Johansen in a group hold its true incidence, on rows known and new."""
    kinds: dict[str, list[bool]] = {"rows of training": [], "other rows": []}
    for seed in range(1, 1 + n_cohorts):
        data, many = simulated(2000, seed), simulated(20_000, 1000 + seed)
        train, other = data.subset(range(1000)), data.subset(range(1000, 2000))
        tree = PrognosticTree().fit(train.frame, train.y)
        true, place = truth(many.frame, np.array([horizon]))[..., 0], tree.apply(many.frame)
        for kind, rows in zip(kinds, (train, other), strict=True):
            leaf = tree.apply(rows.frame)
            for group in np.unique(leaf):
                part = rows.subset(leaf == group)
                estimate = metrics.aalen_johansen((part.time, part.cause), [horizon], n_causes=2)[:, 0]
                error = aalen_johansen_error((part.time, part.cause), [horizon], n_causes=2)[:, 0]
                found = np.abs(estimate - true[place == group].mean(axis=0)) <= 1.96 * error
                kinds[kind] += found.tolist()
    lines = [f"{kind}: {np.mean(found):.3f} of {len(found)}" for kind, found in kinds.items()]
    return "95 % intervals that hold the true incidence of the group\n" + "\n".join(lines)


def markdown(table: pd.DataFrame) -> str:
    """A table with an index of two levels."""
    lines = [["data set", "cause", *table.columns], ["---"] * (2 + len(table.columns))]
    lines += [
        [*place, *(f"{value:.4f}" for value in row)]
        for place, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def report(table: pd.DataFrame) -> str:
    """Tables of the README."""
    order = [model for model in EVERY if (table["model"] == model).any()]
    by_cause = table.groupby(["dataset", "cause", "model"], sort=False)[["ibs", "c_wolbers"]].mean()
    parts = []
    for score in ("ibs", "c_wolbers"):
        wide = by_cause[score].unstack("model")[order]
        sets = wide.groupby("dataset", sort=False).mean()
        for name, row in sets.iterrows():
            wide.loc[(name, "mean of causes"), :] = row
        wide.loc[("mean of sets", ""), :] = sets.mean()
        parts.append(f"{score}\n\n{markdown(wide)}")
    tree = table[table["model"] == "tree"].groupby("dataset")
    parts.append("leaves " + tree["leaves"].mean().round(1).to_dict().__repr__())
    known = table.dropna(subset="error").groupby("model")["error"].mean().reindex(order)
    parts.append("mean absolute error against the truth, simulated cohort\n" + known.round(4).to_string())
    parts.append("CPU seconds a fit\n" + table.groupby("model")["seconds"].median()[order].to_string())
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=["train", "coverage", "report", "draw"])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    there = [model for model in EVERY if model != "comprisk" or PYTHON]
    parser.add_argument("--models", nargs="+", default=there, choices=EVERY)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.step == "train":
        warnings.filterwarnings("ignore", category=DataWarning)
        for name in options.sets:
            old = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame({"dataset": [], "model": []})
            anew = (old["dataset"] == name) & old["model"].isin(options.models)
            table = pd.concat([old[~anew], pd.DataFrame(train_set(name, options.models))])
            table.to_csv(RESULTS, index=False, float_format="%.6g")
            print(f"done: {name}")
    elif options.step == "coverage":
        warnings.filterwarnings("ignore", category=DataWarning)
        print(coverage())
    elif options.step == "report":
        print(report(pd.read_csv(RESULTS)))
    else:
        from sstorch.plots import plot_groups

        mpl.use("Agg")
        data = load_dataset("mgus2")
        tree = PrognosticTree().fit(data.frame, data.y)
        axes = plot_groups(tree, data.frame, data.y, time_unit="months")
        axes[0].figure.savefig(HERE / "mgus2.png", dpi=110)


if __name__ == "__main__":
    main()
