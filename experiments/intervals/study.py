"""GBSG2 as if subjects were seen at visits alone: trees of intervals, of middles and ends, of exact times.

python experiments/intervals/study.py

An event is known up to the visits around it: each 90 or 365 days from the beginning, or at random, 500 days
apart on average. Whoever had none is censored at the last visit, and left out if there was none. Five folds,
seeds 0 to 4. What is learned is judged on exact times of held-out rows (concordance, integrated Brier score),
and by the likelihood of their intervals.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import torch

from sstorch import PrognosticTree, Surv, SurvivalRegression, load_dataset, metrics
from sstorch._types import FloatArray
from sstorch.data import SurvivalData, stratified_folds
from sstorch.exceptions import DataWarning

TREES: dict[str, Callable[[], PrognosticTree | SurvivalRegression]] = {
    "tree": PrognosticTree,
    "tree, weibull": lambda: PrognosticTree(leaf="weibull"),
    "regression": lambda: SurvivalRegression(),
}
KEYS, SCORES = ["visits", "model", "trained on"], ["C", "IBS", "log-likelihood of intervals"]


def schedules(n: int) -> Iterator[tuple[str, FloatArray]]:
    """Times of visits of n subjects, (n, visits), by name."""
    for step in (90, 365):
        yield f"{step} days", np.tile(step * np.arange(0.0, 3000 / step), (n, 1))
    gaps = np.random.default_rng(0).exponential(500, (n, 40))
    yield "random", np.concatenate([np.zeros((n, 1)), gaps.cumsum(axis=1)], axis=1)


class Seen:
    """What visits tell of the rows of a data set."""

    def __init__(self, data: SurvivalData, visits: FloatArray) -> None:
        before = visits < data.time[:, None]
        self._data, self._lower = data, np.where(before, visits, 0).max(axis=1)
        self._upper = np.where(data.event, np.where(before, np.inf, visits).min(axis=1), np.inf)
        self._told = data.event | (self._lower > 0)

    def rows(self, part: np.ndarray) -> SurvivalData:
        """Those of some rows of which they tell anything."""
        told = part & self._told
        frame = self._data.frame[told].reset_index(drop=True)
        return SurvivalData(frame, Surv.interval(self._lower[told], self._upper[told]))


def at_ends(data: SurvivalData) -> SurvivalData:
    """The same with each event at the visit that found it."""
    assert data.intervals is not None
    time = np.where(data.event, data.intervals.upper, data.intervals.lower)
    return SurvivalData(data.frame, (time, data.event))


def main() -> None:
    """Fit, score and print."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)
    data = load_dataset("gbsg2")
    rows = []
    for visits, times in schedules(len(data)):
        seen = Seen(data, times)
        for seed in range(5):
            folds = stratified_folds(data.event, 5, seed)
            for fold in range(5):
                train, test = data.subset(folds != fold), data.subset(folds == fold)
                known, left_out = seen.rows(folds != fold), seen.rows(folds == fold)
                versions = {
                    "exact times": train,
                    "intervals": known,
                    "middles": known.at_middles(),
                    "ends": at_ends(known),
                }
                for name, make in TREES.items():
                    for version, part in versions.items():
                        tree = make().fit(part.frame, part.y)
                        table = metrics.evaluate(tree, train, test, metrics=["c_harrell", "ibs_graf"])
                        likelihood = tree.log_likelihood(left_out.frame, left_out.y)
                        rows.append((visits, name, version, *table["value"], likelihood))
    table = pd.DataFrame(rows, columns=[*KEYS, *SCORES]).set_index(KEYS).sort_index()
    print(table.groupby(KEYS).mean().round(4).to_string())
    for visits, name in table.index.droplevel(2).unique():
        own = table.loc[(visits, name, "intervals")].to_numpy()
        for other in ("exact times", "middles", "ends"):
            less = own - table.loc[(visits, name, other)].to_numpy()
            mean, better = ", ".join(f"{value:+.4f}" for value in less.mean(axis=0)), (less[:, 2] > 0).sum()
            print(f"{visits}, {name}: intervals less {other} {mean}; more likely in {better} of 25")


if __name__ == "__main__":
    main()
