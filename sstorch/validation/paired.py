"""Rows of a validation; scores of models on the same rows or folds and their paired differences."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.base import clone

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_weight, has_method
from sstorch.data import Surv
from sstorch.data.columns import to_pandas
from sstorch.data.surv import outcome_of
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics.checks import half_width
from sstorch.metrics.comparison import bootstrap, corrected_resampled_t_test, percentiles
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.measures import BOOTSTRAP, MEASURES, NO_VARIANCE, Measure
from sstorch.metrics.outcome import subjects_of
from sstorch.metrics.scored import predictor, some_rows
from sstorch.metrics.weights import NO_ERROR


class Cohort(NamedTuple):
    """Features and outcome of the rows of a validation."""

    X: Any  # features, n rows
    y: Surv  # outcome with its weights, n rows
    after: float | None = None  # landmark from which the times of `y` count; None for time zero

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        y: object,
        sample_weight: npt.ArrayLike | None,
        after: float | None,
    ) -> Self:
        """Read the rows, of the kind that the model was trained on."""
        # DataError: unusable outcome or weights, or subjects with several rows without a landmark.
        outcome = outcome_of(model, y)
        outcome.right_censored("a measure at a horizon")
        if not len(outcome):
            raise DataError("the data have no rows")
        weight = check_weight(outcome.weight if sample_weight is None else sample_weight, len(outcome))
        cohort = cls(X, outcome.weighted(weight))
        if weight is not None and not weight.all():
            cohort = cohort.take(np.flatnonzero(weight))
        if after is not None:
            rows, later = cohort.y.followed_from(after)
            return cohort.take(rows)._replace(y=later, after=after)
        several = getattr(model, "time_varying_", False)
        subject = subjects_of(cohort.y)
        if subject is not None and cohort.y.entry is not None:
            several = several or int(subject.max()) + 1 < len(subject)
        if several:
            raise DataError(
                "predictions of start-stop rows with time-varying covariates hold for each row only, and "
                "survival from time zero is not defined: give after=, a time from which the rows at risk are "
                "followed"
            )
        return cohort

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        return self._replace(X=some_rows(to_pandas(self.X), rows), y=self.y[rows])

    def rows(self, model: Any, t: float) -> dict[str, HorizonRows]:
        """Rows with their predictions at the horizon, by name of the cause; "" if there is one event."""
        y, names = self.y, self.y.causes or ("",)
        if y.causes is not None and not has_method(model, "predict_cumulative_incidence"):
            raise DataError(
                f"y has competing causes, and {type(model).__name__} predicts the survival of one event, for "
                "which competing events would count as censored: give a model with "
                "predict_cumulative_incidence(X, times), or Surv(time, cause == k) to validate the "
                "hazard of cause k"
            )
        time, after = y.right_censored("validate")[0], self.after or None  # a landmark of 0 is time zero
        if getattr(model, "time_varying_", False):
            after = self.after
        free = predictor(model, self.X, y.causes or (), len(y), after, time)(np.array([t]))[:, :, 0]
        return {
            name: HorizonRows.of(y, free[:, k - 1], t, cause=None if y.causes is None else k)
            for k, name in enumerate(names, 1)
        }


def refitted(model: Any, rows: Cohort) -> Any:
    """A clone of an estimator, fitted to some rows; a ConfigError if it cannot be."""
    if not hasattr(model, "get_params") or not hasattr(model, "fit"):
        raise ConfigError(
            "refits need an estimator of scikit-learn with fit(X, y) and get_params; got "
            f"{type(model).__name__}"
        )
    if type(model).__module__.split(".")[0] != "sksurv":
        with warnings.catch_warnings():  # a resample repeats rows, and a fold has the oddities of all rows
            warnings.simplefilter("ignore", DataWarning)
            return clone(model).fit(rows.X, rows.y)
    if rows.y.type != "right" or rows.y.weight is not None:
        raise ConfigError(
            f"{type(model).__name__} of scikit-survival is refitted to right-censored rows without weights "
            "only; leave it out"
        )
    return clone(model).fit(rows.X, rows.y.to_structured())


def check_model(model: object) -> None:
    """Check that a model is fitted and predicts curves."""
    if not any(
        has_method(model, f"predict_{what}") for what in ("survival_function", "cumulative_incidence")
    ):
        raise DataError(
            "model must be a fitted estimator with predict_survival_function(X, times), or "
            "predict_cumulative_incidence(X, times) for competing causes, got "
            f"{model if isinstance(model, type) else type(model).__name__}."
        )


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
    """Scores of fitted models on the rows of their cohorts, by name, and paired differences."""
    # Cohorts have the same rows; the bootstrap `resampling` is for measures without influences.
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
