"""Scores of models on the same rows, folds or resamples and their paired differences, with limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_integer, check_share
from sstorch.data import Surv
from sstorch.data.folds import folds_of
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.comparison import (
    corrected_resampled_t_test,
    resampler,
    subjects_of,
)
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.weights import NO_ERROR
from sstorch.validation.measures import MEASURES, NO_VARIANCE, Cohort, Measure, refitted

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
# Positions of training and of test rows.
Split = tuple[IntArray, IntArray]


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
    return Estimate(value, limits.lower, limits.upper, method=measure.method, reason=reason)


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
    return found if second is not None else found._replace(p_value=np.nan)


def bootstrap_difference(
    difference: Callable[[IntArray], float],
    n: int,
    n_resamples: int,
    level: float,
    random_state: int,
    subject: IntArray | None = None,
) -> Estimate:
    """Bootstrap a difference that is a function of row numbers, repetitions allowed.

    Each resample draws n rows with replacement, or with `subject`, 0 .. n_subjects - 1, shape (n,), subjects.
    The interval is that of the percentiles; the p-value doubles the smaller share of resamples on either side
    of 0, one added to both counts. Resamples where the difference raises a `DataError` or is not finite are
    excluded; most of them must remain.

    References:
        Davison and Hinkley (1997), Bootstrap Methods and their Application, chapters 4 and 5.
    """
    check_share(level, "level")
    check_integer("n_resamples", n_resamples, 20)
    value = difference(np.arange(n))
    if not np.isfinite(value):
        raise DataError(
            f"metric must have a finite difference on the rows, got {value:g}: it is "
            "infinite or NaN for one of the models."
        )
    rng, draw = np.random.default_rng(random_state), resampler(n, subject)
    drawn: list[float] = []
    why, cause = "", None
    for _ in range(n_resamples):
        try:
            one = difference(draw(rng))
        except DataError as error:  # counted and reported: a resample may hold no comparable pair
            why, cause = str(error), error
            continue
        if np.isfinite(one):
            drawn.append(one)
        else:
            why, cause = f"the difference is {one:g}", None
    n_undefined = n_resamples - len(drawn)
    if n_undefined > n_resamples // 2:
        raise DataError(
            f"{n_undefined} of {n_resamples} resamples leave the metric undefined, so that no interval can "
            f"be given; the last: {why}"
        ) from cause
    sample = np.array(drawn)
    tail = 0.5 - 0.5 * level
    lower, upper = np.quantile(sample, [tail, 1.0 - tail])
    smaller = min(np.count_nonzero(sample <= 0.0), np.count_nonzero(sample >= 0.0))
    p_value = min(1.0, 2.0 * float(smaller + 1) / (sample.size + 1))
    return Estimate(value, float(lower), float(upper), p_value, "bootstrap")


def fold_splits(y: Surv, n_folds: int, n_repeats: int, seed: int) -> Iterator[Split]:
    """Training and test rows of each fold, of each repetition."""
    for repeat in range(n_repeats):
        folds = folds_of(y, n_folds, seed + repeat)
        for number in range(n_folds):
            yield np.flatnonzero(folds != number), np.flatnonzero(folds == number)


def resample_splits(y: Surv, n_resamples: int, seed: int) -> Iterator[Split]:
    """Rows of resamples of subjects, and the rows outside of each."""
    rng, draw = np.random.default_rng(seed), resampler(len(y), subjects_of(y))
    for _ in range(n_resamples):
        train = draw(rng)
        yield train, np.setdiff1d(np.arange(len(y)), train)


def scores_of_splits(
    models: Mapping[str, Any],
    cohort: Cohort,
    splits: Iterator[Split],
    times: list[float],
    cause: int | str | None,
    names: list[str],
    level: float,
) -> Found:
    """Scores of estimators fitted to the first rows of each split of all rows and scored on the second."""
    values: dict[Cell, dict[str, list[float]]] = {}
    reasons: dict[tuple[Cell, str], str] = {}
    sizes = []
    for train, test in splits:
        sizes.append((np.unique(train).size, test.size))
        for name, model in models.items():
            fitted = refitted(model, cohort.drawn(train))
            inside = cohort._take(test)
            inside = Cohort.of(fitted, inside.X, inside.y, None, None)
            for t in times:
                for label, rows in inside.rows(fitted, t, cause).items():
                    for score in names:
                        cell, value = Cell(label, t, score), np.nan
                        try:
                            value = MEASURES[score].of(rows)
                        except DataError as error:  # a fold may hold no event by t: counted and reported
                            reasons[cell, name] = str(error)
                        values.setdefault(cell, {one: [] for one in models})[name].append(value)
    n_train, n_test = (max(1, round(float(size))) for size in np.mean(sizes, axis=0))
    test_of = partial(_over_splits, n_train=n_train, n_test=n_test, level=level, n_splits=len(sizes))
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


def _over_splits(
    first: FloatArray,
    second: FloatArray | None,
    *,
    why: str,
    n_train: int,
    n_test: int,
    n_splits: int,
    level: float,
) -> Estimate:
    other = np.zeros_like(first) if second is None else second
    known = np.isfinite(first) & np.isfinite(other)
    lost, method = n_splits - int(known.sum()), "corrected resampled t"
    reason = f"undefined in {lost} of {n_splits} splits, the last: {why}" if lost else ""
    if known.sum() < 2:
        return Estimate(np.nan, method=method, reason=reason)
    found = corrected_resampled_t_test(
        first[known], other[known], n_train=n_train, n_test=n_test, level=level
    )
    reason = reason or (NO_DIFFERENCE if np.isnan(found.lower) else "")
    p_value = np.nan if second is None else found.p_value
    return Estimate(found.difference, found.lower, found.upper, p_value, method, reason)
