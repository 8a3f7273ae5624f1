"""One candidate of a search on all folds: trained outside each as one batch, scored inside."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from sklearn.base import clone

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.data import Fold, Schema, Surv, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.folds import defined, scoring_of, split, train_outside_score_inside
from sstorch.exceptions import DataError, DataWarning, TrainingError
from sstorch.groups.validation import concordance_of_rows
from sstorch.metrics.registry import kind_of
from sstorch.monitoring import ProgressBar
from sstorch.soft.batch import train_encoded
from sstorch.soft.estimator import SoftEstimator

Scoring = Literal["auto", "log_likelihood", "c_harrell", "ibs"]
SCORINGS: tuple[str, ...] = get_args(Scoring)
Scorer = Callable[[Any, Any, Any], float]
# Events at no more than so many distinct times, such as whole years, at which at least this share of those
# censored before the last event are censored, too.
_MAX_TIMES, _SHARE = 12, 0.8
_IBS = {"event": "ibs_graf", "competing": "ibs"}


@dataclass(frozen=True)
class FoldScores:
    """Scores of a candidate on the test rows of K folds."""

    score: FloatArray  # greater is better, shape (K,); -inf where no start has a finite objective
    # concordance of its curves, shape (K,); nan if no two rows are comparable, and of intervals
    c_harrell: FloatArray
    c_groups: FloatArray  # that of its groups alone, likewise; nan without gates, too
    groups: IntArray  # group of each row in the tree of each fold, shape (K, n)
    seconds: float  # of training and scoring


def score_on_folds(
    estimator: SoftEstimator,
    data: SurvivalData,
    place: IntArray,
    schema: Schema,
    scoring: str | Scorer,
    verbose: bool,
) -> FoldScores:
    """Train a candidate outside every fold, `place` (n,), as one batch, and score it inside, or DataError."""
    settings = estimator._batch_settings()

    def train(splits: list[SurvivalData]) -> Iterator[tuple[int, SoftEstimator | None]]:
        callbacks = [ProgressBar()] if verbose else []
        batch, x = train_encoded(splits, settings, schema, callbacks)
        for fold, rows in enumerate(splits):
            try:
                start = batch.best_start(fold)
            except TrainingError:
                yield fold, None
            else:
                yield fold, clone(estimator)._adopt(batch, rows, fold, start, x=x.of_split(fold)[: len(rows)])

    def score(fold: Fold, model: SoftEstimator | None) -> tuple[float, float, float, IntArray]:
        if model is None:
            return -np.inf, np.nan, np.nan, np.ones(len(data), dtype=np.int64)
        x, test = model.tree_.encode(data.frame), fold.test
        with scoring_of(fold.number, int(place.max()) + 1):
            value = defined(held_out_score(model, fold, scoring, x[np.flatnonzero(fold.inside)]))
        group, concordance, alone = model.tree_.apply(x), np.nan, np.nan
        if test.intervals is None:
            with suppress(DataError):  # no two test rows are comparable; they need not be for the score
                concordance = value if scoring == "c_harrell" else model.score(test.frame, test.weighted_y)
                if model.tree_.module.topology.depth:
                    alone = concordance_of_rows(group[fold.inside], test, group[~fold.inside], fold.train)
        return value, concordance, alone, group

    begin = time.perf_counter()
    with warnings.catch_warnings():
        # That predictions are extrapolated is for users to know who predict, not of folds.
        warnings.filterwarnings("ignore", "column .* far outside its training range", DataWarning)
        found = list(train_outside_score_inside(split(data, place), train, score))
    values, concordances, alone, groups = zip(*found, strict=True)
    seconds = time.perf_counter() - begin
    return FoldScores(np.array(values), np.array(concordances), np.array(alone), np.stack(groups), seconds)


def held_out_score(model: SoftEstimator, fold: Fold, scoring: str | Scorer, x: RowFeatures) -> float:
    """Score of a model trained outside a fold on its encoded test rows x (m, p); greater is better.

    ``"log_likelihood"`` is the mean per row; ``"c_harrell"`` the concordance of the curves, of competing
    causes the mean of that of their incidences; ``"ibs"`` the integrated Brier score with its sign turned, of
    competing causes the mean; else it is a scorer of scikit-learn. -inf is possible. Raises DataError: the
    score is not defined for these rows.
    """
    test = fold.test
    if not isinstance(scoring, str):
        return float(scoring(model, test.frame, test.given_y))
    if scoring == "log_likelihood":
        return model.tree_.log_likelihood(x, test)
    if scoring == "c_harrell":
        return model.score(test.frame, test.weighted_y)
    table = metrics.evaluate(model, fold.train, test, metrics=[_IBS[kind_of(test.y)]])
    return -float(table["value"].mean())


def is_grouped(y: Surv) -> bool:
    """Whether events and most censored rows are at few distinct times, as where whole years were recorded."""
    if y.time is None or y.event is None or y.causes is not None or y.entry is not None:
        return False
    times = np.unique(y.time[y.event])
    if len(times) > min(_MAX_TIMES, y.event.sum() / 2):
        return False
    lost = y.time[~y.event & (y.time < times[-1])]
    return len(lost) == 0 or float(np.isin(lost, times).mean()) >= _SHARE


def settled(scoring: str | Scorer, y: Surv) -> str | Scorer:
    """Score used for ``"auto"``.

    At times that many rows share a density can be as high as its family allows, and it is not a probability,
    as that of a discrete family is: likelihoods of different families cannot be compared, Brier scores can.
    """
    if scoring != "auto":
        return scoring
    return "ibs" if is_grouped(y) else "log_likelihood"
