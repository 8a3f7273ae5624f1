"""Scores of models that are fitted to training rows and scored on test rows, over many splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.data import Surv
from sstorch.data.folds import folds_of
from sstorch.exceptions import DataError
from sstorch.metrics.comparison import corrected_resampled_t_test, possible, resampler, subjects_of
from sstorch.validation.measures import MEASURES
from sstorch.validation.paired import NO_DIFFERENCE, Cell, Estimate, Estimates, Found
from sstorch.validation.predicting import Cohort, refitted

# Positions of training and of test rows.
Split = tuple[IntArray, IntArray]


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
            lower, upper = (possible(end, measure.ideal, measure.higher_is_better) for end in own[1:3])
            single[name,] = own._replace(lower=lower, upper=upper)
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
