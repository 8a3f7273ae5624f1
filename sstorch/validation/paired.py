"""Scores of models on the same rows or folds and their paired differences, with limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from sstorch._types import FloatArray, IntArray
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.comparison import bootstrap, corrected_resampled_t_test, percentiles
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.measures import BOOTSTRAP, MEASURES, NO_VARIANCE, Measure
from sstorch.metrics.weights import NO_ERROR
from sstorch.validation.cohort import Cohort, refitted

NO_DIFFERENCE = "no limits: the variance of the difference cannot be estimated"


class Cell(NamedTuple):
    """A scored quantity: one measure of one cause at one time."""

    cause: str
    t: float
    score: str


class Estimate(NamedTuple):
    """A score or a difference with its limits; NaN with a reason if there is none."""

    value: float
    lower: float = np.nan
    upper: float = np.nan
    p_value: float = np.nan
    method: str = ""
    reason: str = ""


# Number of resamples, and their seed.
Resampling = tuple[int, int]
# Of each cell the scores by model, and the differences by pair of models.
Estimates = dict[tuple[str, ...], Estimate]
Found = dict[Cell, Estimates]


def scores_of_rows(
    models: Mapping[str, Any],
    cohorts: Mapping[str, Cohort],
    times: list[float],
    names: list[str],
    resampling: Resampling,
    level: float,
) -> Found:
    """Scores of fitted models on the rows of their cohorts, and paired differences.

    `cohorts` are the same rows with the predictions of each model, by name; `resampling` is the bootstrap of
    measures without influences.
    """
    found: Found = {}
    for t in times:
        parts = {name: cohorts[name].rows(model, t) for name, model in models.items()}
        for label in next(iter(parts.values())):
            rows = {name: part[label] for name, part in parts.items()}
            for score in names:
                of_score = partial(_estimate, MEASURES[score], level=level, resampling=resampling)
                single: Estimates = {(name,): of_score(part) for name, part in rows.items()}
                paired: Estimates = {
                    (one, two): of_score(rows[one], rows[two]) for one, two in combinations(rows, 2)
                }
                found[Cell(label, t, score)] = single | paired
    return found


def _estimate(
    measure: Measure,
    one: HorizonRows,
    two: HorizonRows | None = None,
    *,
    level: float,
    resampling: Resampling,
) -> Estimate:
    """A score, or the difference of two models on the same rows; NaN with the reason if not defined."""
    try:
        if two is None:
            limits = measure.interval(one, level)
            if limits is not None:
                reason = NO_VARIANCE if np.isnan([limits.lower, limits.upper]).all() else ""
                return Estimate(*limits, method=measure.method, reason=reason)
        # The influences of O/E take the predicted risks as known, and those of regressions pseudo-values.
        elif measure.scale is not None and measure.higher_is_better is not None:
            return _of_influences(measure, one, two, level)

        def statistic(rows: IntArray) -> float:
            value = measure.of(one.take(rows))
            return value if two is None else value - measure.of(two.take(rows))

        value = statistic(np.arange(len(one)))
    except DataError as error:
        return Estimate(np.nan, reason=str(error))
    n_resamples, seed = resampling
    found = percentiles(bootstrap(statistic, len(one), n_resamples, seed, one.y.id)[:, 0], level)
    p_value = np.nan if two is None else found.p_value
    return Estimate(value, found.lower, found.upper, p_value, BOOTSTRAP, found.reason)


def _of_influences(measure: Measure, one: HorizonRows, two: HorizonRows, level: float) -> Estimate:
    """The difference of a score of two models on the same rows, with Wald limits."""
    (first, of_first), (second, of_second) = measure.function(one), measure.function(two)
    if np.array_equal(one.survival, two.survival):
        return Estimate(0.0, 0.0, 0.0, 1.0, measure.method)
    difference, error = first - second, one.error_of(of_first - of_second)
    if not error > NO_ERROR:
        return Estimate(difference, method=measure.method, reason=NO_DIFFERENCE)
    half = half_width(level) * error
    p_value = 2.0 * float(norm.sf(abs(difference) / error))
    return Estimate(difference, difference - half, difference + half, p_value, measure.method)


def scores_of_folds(
    models: Mapping[str, Any],
    cohort: Cohort,
    folds: IntArray,
    times: list[float],
    names: list[str],
    level: float,
) -> Found:
    """Scores of estimators fitted to the rows outside of each fold, 0 .. K - 1, (n,), and scored inside."""
    values: dict[Cell, dict[str, list[float]]] = {}
    reasons: dict[tuple[Cell, str], str] = {}
    n_folds = int(folds.max()) + 1
    for fold in range(n_folds):
        train, left_out = (
            cohort.take(np.flatnonzero(folds != fold)),
            cohort.take(np.flatnonzero(folds == fold)),
        )
        for name, model in models.items():
            fitted = refitted(model, train)
            inside = Cohort.of(fitted, left_out.X, left_out.y, None, None)
            for t in times:
                for label, rows in inside.rows(fitted, t).items():
                    for score in names:
                        cell, value = Cell(label, t, score), np.nan
                        try:
                            value = MEASURES[score].of(rows)
                        except DataError as error:  # a fold may hold no event by t: counted and reported
                            reasons[cell, name] = str(error)
                        values.setdefault(cell, {one: [] for one in models})[name].append(value)
    n_test = max(1, round(len(folds) / n_folds))
    n_train = max(1, round(len(folds) - len(folds) / n_folds))
    test_of = partial(_over_folds, n_train=n_train, n_test=n_test, level=level, n_folds=n_folds)
    found: Found = {}
    for cell, lists in values.items():
        why = {name: reasons.get((cell, name), "") for name in lists}
        arrays = {name: np.array(each) for name, each in lists.items()}
        measure, single = MEASURES[cell.score], Estimates()
        for name, each in arrays.items():
            own = test_of(each, None, why=why[name])
            if measure.higher_is_better is not None:  # limits of t-tests can be better than perfect
                cut = np.minimum if measure.higher_is_better else np.maximum
                lower, upper = (float(cut(end, measure.ideal)) for end in (own.lower, own.upper))
                own = own._replace(lower=lower, upper=upper)
            single[name,] = own
        paired: Estimates = {
            (one, two): test_of(arrays[one], arrays[two], why=why[one] or why[two])
            for one, two in combinations(arrays, 2)
        }
        found[cell] = single | paired
    return found


def _over_folds(
    first: FloatArray,
    second: FloatArray | None,
    *,
    why: str,
    n_train: int,
    n_test: int,
    n_folds: int,
    level: float,
) -> Estimate:
    other = np.zeros_like(first) if second is None else second
    known = np.isfinite(first) & np.isfinite(other)
    lost, method = n_folds - int(known.sum()), "corrected resampled t"
    reason = f"undefined in {lost} of {n_folds} folds, the last: {why}" if lost else ""
    if known.sum() < 2:
        return Estimate(np.nan, method=method, reason=reason)
    found = corrected_resampled_t_test(
        first[known], other[known], n_train=n_train, n_test=n_test, level=level
    )
    reason = reason or (NO_DIFFERENCE if np.isnan(found.lower) else "")
    p_value = np.nan if second is None else found.p_value
    return Estimate(found.difference, found.lower, found.upper, p_value, method, reason)
