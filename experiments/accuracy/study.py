"""How accurate are the regression, the groups and soft trees? Five folds of right-censored data sets.

python experiments/accuracy/study.py run [--sets named] [--models cox tree ...] [--folds 0 1] [--rows 4000]
python experiments/accuracy/study.py report [--sets named] [--models cox tree ...]    # tables

A run skips what scores.csv holds. ebm needs interpret-core, which is no dependency of this package.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")  # before NumPy and torch are loaded

import argparse
import multiprocessing
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sstorch import (
    Columns,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
    SurvivalRegression,
    load_dataset,
    metrics,
)
from sstorch.bench.baselines import make_baseline
from sstorch.data import stratified_folds
from sstorch.data.datasets import read_survset
from sstorch.data.folds import Fold, split
from sstorch.exceptions import DataError
from sstorch.metrics.groups import adjusted_rand_index

SCORES = Path(__file__).parent / "scores.csv"
UNIT = ["set", "rows", "model"]
LISTS = {
    # Right-censored, of load_dataset, one row a subject. Left out: flchain (its chapter, the
    # cause of death, is known only of the dead), uissurv (its length of stay bounds the time).
    "named": (
        "veterans unemployment whas500 uissurv_no_los gbsg2 maintenance credit aids aids_death "
        "trace churn aids2 rott2 unempdur nwtco framingham dialysis flchain_no_chapter "
        "support employee"
    ),
    # Of the published study, with the leaks of uissurv and flchain.
    "paper": (
        "veterans whas500 uissurv gbsg2 maintenance credit aids aids_death churn unempdur aids2 framingham "
        "dialysis flchain employee"
    ),
    # Further sets of SurvSet, which load_dataset does not know.
    "survset": (
        "Pbc3 burn cancer cost dataDIVAT2 divorce e1684 hdfail hepatoCellular LeukSurv mgus nki70 "
        "pharmacoSmoking phpl04K8a prostate prostateSurvival rdata scania smarto vlbw wpbc zinc"
    ),
}
# Intervals of the log-likelihood, and the smallest probability that is not rounded up.
N_INTERVALS, FLOOR = 20, 1e-4

Curves = Callable[[pd.DataFrame, np.ndarray], np.ndarray]


class Ebm:
    """Explainable boosting machine of log hazards, constant in ten intervals: one curve a column, no pairs.

    A row becomes one row for each interval it was at risk in, with Poisson deviance of the events per time at
    risk (Holford 1980, Biometrics 36, 299-305); the interval is a column.
    """

    def __init__(self, train: SurvivalData) -> None:
        from interpret.glassbox import ExplainableBoostingRegressor

        self._unit = train.time.mean()
        inner = np.unique(np.quantile(train.time[train.event], np.linspace(0, 1, 11)[1:-1]))
        self._edges = np.r_[0, inner[inner < train.time.max()], np.inf]
        at_risk = self._at_risk(train.time)
        row, piece = np.nonzero(at_risk)
        last = len(self._edges) - 2 - (at_risk[:, ::-1] > 0).argmax(axis=1)
        frame = train.frame.iloc[row].reset_index(drop=True).assign(interval=piece.astype(float))
        weight = at_risk[row, piece] / self._unit
        rate = (train.event[row] & (piece == last[row])) / weight
        model = ExplainableBoostingRegressor(
            objective="poisson_deviance", interactions=0, n_jobs=1, random_state=0
        )
        self._model = model.fit(frame, rate, sample_weight=weight)

    def _at_risk(self, times: np.ndarray) -> np.ndarray:
        """Time of each row in each interval, (n, intervals)."""
        return np.clip(times[:, None] - self._edges[:-1], 0, np.diff(self._edges))

    def falling_curves(self, frame: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Survival of rows, (n, n_times)."""
        pieces = range(len(self._edges) - 1)
        hazard = np.column_stack([self._model.predict(frame.assign(interval=float(k))) for k in pieces])
        return np.exp(-hazard @ self._at_risk(times).T / self._unit)


def baseline(name: str) -> Callable[[SurvivalData], Any]:
    return lambda train: make_baseline(name).fit(train.frame, train.y)


def ours(estimator: Callable[[], Any]) -> Callable[[SurvivalData], Any]:
    def fit(train: SurvivalData) -> Any:
        return estimator().fit(train.frame, train.y)

    return fit


MODELS: dict[str, Callable[[SurvivalData], Any]] = {
    "cox": baseline("cox"),  # ridge by cross-validated partial likelihood
    "forest": baseline("rsf"),
    "boosting": baseline("gradient_boosting"),
    "ebm": Ebm,
    "regression": ours(SurvivalRegression),
    "tree": ours(PrognosticTree),
    "tree_if_needed": ours(lambda: PrognosticTree(only_if_needed=True)),
    "pairs": ours(lambda: SurvivalRegression(columns=Columns(interactions="all"))),
    "soft": ours(SoftSurvivalTree),
    "soft_if_needed": ours(lambda: SoftSurvivalTree(only_if_needed=True)),
    "paper": ours(SoftSurvivalTree.paper),
}
SOFT = ("tree", "tree_if_needed", "soft", "soft_if_needed", "paper")


def load(name: str, rows: int) -> SurvivalData:
    """A data set, or of more rows than so many a random sample; 0 takes all."""
    if name in LISTS["survset"].split():
        data = SurvivalData.from_frame(read_survset(name), drop=["pid"])
    else:
        data = load_dataset(name)
    if not 0 < rows < len(data):
        return data
    kept = np.zeros(len(data), dtype=bool)
    kept[np.random.default_rng(0).permutation(len(data))[:rows]] = True
    return data.subset(kept)


def scores(curves: Curves, fold: Fold) -> dict[str, float]:
    """Scores of the test rows."""
    train, test = fold.train, fold.test
    y, known = (test.time, test.event), (train.time, train.event)
    events = np.unique(test.time[test.event])
    grid = metrics.evaluation_times(test.time, train.time, "sksurv")
    cuts, horizon = intervals(train), np.quantile(train.time, 0.9)
    times = np.unique(np.r_[test.time, cuts, horizon])
    survival = curves(test.frame, times)

    def at(wanted: np.ndarray) -> np.ndarray:
        return survival[:, np.searchsorted(times, wanted)]

    return {
        "c": metrics.concordance_harrell(y, at(events), events),
        "ibs": metrics.integrated_brier_score(y, at(grid), grid, train=known, convention="sksurv"),
        "log_likelihood": interval_log_likelihood(test, at(cuts), survival, times, cuts),
        "oe": observed_expected(test, at(np.array([horizon]))[:, 0], horizon),
        "oe_train": observed_expected(train, curves(train.frame, np.array([horizon]))[:, 0], horizon),
    }


def intervals(train: SurvivalData) -> np.ndarray:
    """Ends of intervals with equal numbers of training events, of each event time where these are few."""
    events = train.time[train.event]
    shares = np.linspace(0, 1, N_INTERVALS + 1)[1:]
    return np.unique(np.quantile(events, shares, method="inverted_cdf"))


def interval_log_likelihood(
    test: SurvivalData, at_cuts: np.ndarray, survival: np.ndarray, times: np.ndarray, cuts: np.ndarray
) -> float:
    """Mean log probability of the interval of a row's event, or of survival to its censoring.

    It is defined for curves with and without a density alike. Intervals end at `cuts`, the last is open.
    """
    ends = np.column_stack([np.ones(len(test)), at_cuts, np.zeros(len(test))])
    row, place = np.arange(len(test)), np.searchsorted(cuts, test.time, side="left")
    own = survival[row, np.searchsorted(times, test.time)]
    found = np.where(test.event, ends[row, place] - ends[row, place + 1], own)
    return float(np.log(np.maximum(found, FLOOR)).mean())


def observed_expected(rows: SurvivalData, survival: np.ndarray, horizon: float) -> float:
    try:
        return metrics.measure(
            metrics.HorizonRows.of((rows.time, rows.event), survival, horizon), "oe_ratio"
        ).value
    except DataError:  # no event by then, or nobody followed so long
        return np.nan


def unit(name: str, rows: int, model: str, folds: list[int]) -> list[dict[str, object]]:
    """Rows of scores of a model on the folds of a data set."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    warm(model)
    data = load(name, rows)
    all_folds = split(data, stratified_folds(data.event, 5, seed=0))
    found: list[dict[str, object]] = []
    partitions = []
    for fold in (all_folds[k] for k in folds):
        begin = time.process_time()
        fitted = MODELS[model](fold.train)
        seconds = time.process_time() - begin
        found.append({"set": name, "rows": rows, "model": model, "fold": fold.number, "n": len(data)})
        found[-1] |= scores(fitted.falling_curves, fold) | {"seconds": seconds}
        if model in SOFT:
            partitions.append(np.unique(fitted.apply(data.frame), return_inverse=True)[1])
            found[-1] |= about_groups(fitted, partitions[-1], fold)
    if len(partitions) > 1:
        agreement = adjusted_rand_index(np.stack(partitions))
        for row, own in zip(found, (agreement.sum(axis=1) - 1) / (len(partitions) - 1), strict=True):
            row["ari"] = own  # with the trees of the other folds, on all rows
    return found


def about_groups(tree: Any, groups: np.ndarray, fold: Fold) -> dict[str, float]:
    """Number of groups, share of the smallest among all rows, and C of a model that knows the group alone."""
    shares = np.bincount(groups) / len(groups)
    test, train = ((rows.y, tree.apply(rows.frame)) for rows in (fold.test, fold.train))
    return {
        "groups": float(len(shares)),
        "smallest": float(shares.min()),
        "c_groups": metrics.concordance_of_groups(*test, train=train) if len(shares) > 1 else np.nan,
    }


@cache
def warm(model: str) -> None:
    """Fit once, so that imports and compilation do not count as time of a fit."""
    MODELS[model](load_dataset("gbsg2"))


def stored() -> pd.DataFrame:
    if not SCORES.exists():
        return pd.DataFrame(columns=[*UNIT, "fold"])
    return pd.read_csv(SCORES)


def missing(given: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Units that the file does not hold all folds of."""
    table = stored()
    done = {key: set(own) for key, own in table.groupby(UNIT)["fold"]}
    for name in given.sets:
        for model in given.models:
            if not set(given.folds) <= done.get((name, given.rows, model), set()):
                yield name, given.rows, model


def run(given: argparse.Namespace) -> None:
    todo = list(missing(given))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.processes, mp_context=context) as pool:
        waiting = {pool.submit(unit, *key, given.folds): key for key in todo}
        for done, job in enumerate(as_completed(waiting), start=1):
            name, _, model = waiting[job]
            if error := job.exception():
                print(f"{name} {model}: {''.join(traceback.format_exception(error)).strip()}", flush=True)
                continue
            table = pd.concat([stored(), pd.DataFrame(job.result())], ignore_index=True)
            table = table.drop_duplicates([*UNIT, "fold"], keep="last").sort_values([*UNIT, "fold"])
            table.to_csv(SCORES.with_suffix(".part"), index=False, float_format="%.6g")
            SCORES.with_suffix(".part").replace(SCORES)
            print(f"{done} of {len(todo)}: {name} {model}", flush=True)


# Score: title, decimals, whether to show differences to Cox.
SHOWN = {"c": ("C", 4), "ibs": ("IBS", 4), "log_likelihood": ("log-likelihood a row", 3)}


def report(given: argparse.Namespace) -> None:
    """Means over folds by set, and differences to Cox with their standard error over sets."""
    table = stored()
    table = table[(table["rows"] == given.rows) & table["set"].isin(given.sets)]
    table = table[table["model"].isin(["cox", *given.models]) & table["fold"].isin(given.folds)]
    table = table.assign(error=np.abs(np.log(table["oe"])), error_train=np.abs(np.log(table["oe_train"])))
    by_set = table.drop(columns=["rows", "fold"]).groupby(["set", "model"]).mean().unstack()
    names = [name for name in MODELS if name in table["model"].unique()]
    by_set = by_set.reindex([name for name in given.sets if name in by_set.index])
    for score, (title, digits) in SHOWN.items():
        values = by_set[score][names]
        print(f"\n## {title}\n\n{markdown(values, digits)}")
    complete = by_set[[("c", name) for name in names]].notna().all(axis=1)
    whole = by_set[complete]
    print(
        f"\n## Means over the {len(whole)} sets that all models have, less Cox (standard error over sets)\n"
    )
    rows = {}
    for name in names:
        row = {}
        for score, (title, digits) in SHOWN.items():
            less = whole[score, name] - whole[score, "cox"]
            row[title] = f"{whole[score, name].mean():.{digits}f}"
            row[f"{title} less Cox"] = f"{less.mean():+.{digits}f} ({less.sem():.{digits}f})"
        row["worst C less Cox"] = f"{(whole['c', name] - whole['c', 'cox']).min():+.3f}"
        row["abs log O/E"] = f"{whole['error', name].mean():.3f}"
        row["of training rows"] = f"{whole['error_train', name].mean():.3f}"
        row["seconds, median"] = f"{whole['seconds', name].median():.2f}"
        row["largest"] = f"{whole['seconds', name].max():.1f}"
        rows[name] = row
    print(pd.DataFrame(rows).T.rename_axis("model").reset_index().pipe(pipes))
    trees = [name for name in names if name in SOFT]
    if trees:
        shown = {"groups": "groups", "smallest": "smallest share", "c_groups": "C of groups", "ari": "ARI"}
        found = pd.DataFrame({name: whole.xs(name, axis=1, level=1)[list(shown)].mean() for name in trees}).T
        print(f"\n## Groups, means over sets\n\n{markdown(found.rename(columns=shown), 3)}")


def markdown(table: pd.DataFrame, digits: int) -> str:
    text = table.map(lambda value: "" if pd.isna(value) else f"{value:.{digits}f}")
    return pipes(text.rename_axis(columns=None).rename_axis("").reset_index())


def pipes(table: pd.DataFrame) -> str:
    lines = [list(table.columns), ["---"] * table.shape[1], *table.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument(
        "--sets", nargs="*", default=["named"], help="data sets, or lists: " + ", ".join(LISTS)
    )
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--folds", nargs="*", type=int, default=list(range(5)))
    parser.add_argument("--rows", type=int, default=4000, help="largest number of rows of a set; 0: all")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    options.sets = list(
        dict.fromkeys(name for item in options.sets for name in LISTS.get(item, item).split())
    )
    run(options) if options.what == "run" else report(options)
