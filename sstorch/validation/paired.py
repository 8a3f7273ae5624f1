"""Scores of fitted models on the same rows and their paired differences, with limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from sstorch._types import IntArray
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.comparison import bootstrap_difference
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.metrics.robust import NO_ERROR
from sstorch.validation.measures import MEASURES, NO_VARIANCE, Measure
from sstorch.validation.predicting import Cohort

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


# Of each cell the scores by model, and the differences by pair of models.
Estimates = dict[tuple[str, ...], Estimate]
Found = dict[Cell, Estimates]
_Resampling = Callable[..., Estimate]


def scores_of_rows(
    models: Mapping[str, Any],
    cohorts: Mapping[str, Cohort],
    times: list[float],
    cause: int | str | None,
    names: list[str],
    n_resamples: int,
    level: float,
    seed: int,
) -> Found:
    """Scores of fitted models on the rows of their cohorts, and paired differences.

    `cohorts` are the same rows with the predictions of each model, by name; `n_resamples` and `seed` are of
    the bootstrap of measures without influences.
    """
    found: Found = {}
    for t in times:
        parts = {name: cohorts[name].rows(model, t, cause) for name, model in models.items()}
        for label in next(iter(parts.values())):
            rows = {name: part[label] for name, part in parts.items()}
            for score in names:
                bootstrap = partial(_bootstrap, n_resamples=n_resamples, level=level, random_state=seed)
                measure = MEASURES[score]
                single: Estimates = {
                    (name,): _single(measure, part, level, bootstrap) for name, part in rows.items()
                }
                paired: Estimates = {
                    (one, two): _paired(measure, rows[one], rows[two], level, bootstrap)
                    for one, two in combinations(rows, 2)
                }
                found[Cell(label, t, score)] = single | paired
    return found


def _single(measure: Measure, rows: HorizonRows, level: float, bootstrap: _Resampling) -> Estimate:
    """A score with its limits on the rows; NaN with the reason where it is not defined."""
    try:
        value = measure.of(rows)
        if measure.interval is None:
            return bootstrap(measure.of, rows)
        limits = measure.interval(rows, level)
    except DataError as error:
        return Estimate(np.nan, reason=str(error))
    reason = NO_VARIANCE if np.isnan(limits.lower) and np.isnan(limits.upper) else ""
    return Estimate(value, limits.lower, limits.upper, method=measure.method_for(rows), reason=reason)


def _paired(
    measure: Measure, one: HorizonRows, two: HorizonRows, level: float, bootstrap: _Resampling
) -> Estimate:
    """The difference of a score of two models on the same rows."""
    try:
        if measure.influence is None:
            return bootstrap(measure.of, one, two)
        measure.of(one)  # start-stop rows without a landmark have no such score
        (first, of_first), (second, of_second) = measure.influence(one), measure.influence(two)
    except DataError as error:
        return Estimate(np.nan, reason=str(error))
    difference, method = first - second, "infinitesimal jackknife"
    if np.array_equal(one.survival, two.survival):
        return Estimate(0.0, 0.0, 0.0, 1.0, method)
    deviation = float(one.error_of(of_first - of_second))
    if not deviation > NO_ERROR:
        return Estimate(difference, method=method, reason=NO_DIFFERENCE)
    half = half_width(level) * deviation
    p_value = 2.0 * float(norm.sf(abs(difference) / deviation))
    return Estimate(difference, difference - half, difference + half, p_value, method)


def _bootstrap(
    score: Callable[[HorizonRows], float],
    first: HorizonRows,
    second: HorizonRows | None = None,
    **options: Any,
) -> Estimate:
    """A score, or its difference, with percentiles of resamples of subjects."""

    def statistic(rows: IntArray) -> float:
        value = score(first.take(rows))
        return value if second is None else value - score(second.take(rows))

    found = bootstrap_difference(statistic, len(first), subject=first.subject, **options)
    p_value = np.nan if second is None else found.p_value
    return Estimate(found.difference, found.lower, found.upper, p_value, "bootstrap")
