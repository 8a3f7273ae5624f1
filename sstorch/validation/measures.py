"""Rows of a validation with predictions at one horizon, and measures of these by name, with limits."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sstorch._types import FloatArray, IntArray
from sstorch.checks import blocks, check_weight
from sstorch.data import Surv, outcome_of
from sstorch.data.causes import cause_number
from sstorch.data.columns import to_pandas
from sstorch.data.subjects import parse_subjects
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics import Estimate
from sstorch.metrics.calibration import (
    calibration_error_interval,
    calibration_errors,
    calibration_intercept,
    calibration_slope,
)
from sstorch.metrics.calibration_tables import observed_expected_hazard, observed_expected_ratio
from sstorch.metrics.censoring import NOT_FOLLOWED
from sstorch.metrics.checks import check_probability
from sstorch.metrics.comparison import resampler
from sstorch.metrics.curves import conditional_curves, conditional_incidences, predict_curves
from sstorch.metrics.decision_curve import net_benefits
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.intervals import (
    auc_influence,
    auc_interval,
    brier_influence,
    brier_interval,
    concordance_influence,
    concordance_interval,
    concordance_value,
    wolbers_value,
)
from sstorch.metrics.scored import predicts_incidence, predicts_survival, some_rows

_Interval = Callable[[HorizonRows, float], Estimate[float]]
# Rows whose hazards are predicted together, each at its own times.
_BLOCK = 256


@dataclass(frozen=True)
class Measure:
    """A measure of predictions at one horizon."""

    title: str  # in words
    ideal: float  # of perfect predictions
    # value and limits by a formula, from rows and level; None if the limits are those of a bootstrap
    interval: _Interval | None
    method: str  # of the limits
    # the value alone, where there is no interval or it costs less than its limits
    value: Callable[[HorizonRows], float] | None = None
    # whether it is of one event, of competing causes, or of both
    events: Literal["one", "competing", "both"] = "both"
    higher_is_better: bool | None = None  # direction; None where a difference is no judgement, as of O/E
    # value and influences of the rows, (n,), whose root sum of squares is its error; None if it has none
    influence: Callable[[HorizonRows], tuple[float, FloatArray]] | None = None

    def defined_for(self, rows: HorizonRows) -> bool:
        """Whether the measure belongs to the kind of outcome of some rows."""
        return self.events in ("both", "competing" if rows.competing else "one")

    def of(self, rows: HorizonRows) -> float:
        """The value; a DataError if it is not defined for these rows."""
        if self.value is not None:
            return self.value(rows)
        assert self.interval is not None
        return self.interval(rows, 0.95).value


def _calibration_error(name: str, title: str) -> Measure:
    def value(rows: HorizonRows) -> float:
        return float(getattr(calibration_errors(rows), name))

    return Measure(
        title,
        0.0,
        partial(calibration_error_interval, name=name),
        "inverted test",
        value,
        higher_is_better=False,
    )


NO_VARIANCE = "no limits: the variance cannot be estimated (a single event, or all pairs concordant)"
_BOOTSTRAP, _JACKKNIFE, _SANDWICH = "bootstrap", "infinitesimal jackknife", "sandwich"
_uno = partial(concordance_interval, weights="uno")
MEASURES = {
    "c_harrell_t": Measure(
        "concordance, Harrell",
        1.0,
        concordance_interval,
        _JACKKNIFE,
        concordance_value,
        "one",
        higher_is_better=True,
        influence=concordance_influence,
    ),
    "c_uno_t": Measure(
        "concordance, Uno",
        1.0,
        _uno,
        _JACKKNIFE,
        partial(concordance_value, weights="uno"),
        "one",
        higher_is_better=True,
        influence=partial(concordance_influence, weights="uno"),
    ),
    "c_cause_specific": Measure(
        "concordance, cause-specific",
        1.0,
        concordance_interval,
        _JACKKNIFE,
        concordance_value,
        "competing",
        higher_is_better=True,
        influence=concordance_influence,
    ),
    "c_wolbers": Measure(
        "concordance, Wolbers", 1.0, None, _BOOTSTRAP, wolbers_value, "competing", higher_is_better=True
    ),
    "auc": Measure(
        "AUC at the horizon", 1.0, auc_interval, _JACKKNIFE, higher_is_better=True, influence=auc_influence
    ),
    "oe_ratio": Measure("observed over expected risk", 1.0, observed_expected_ratio, _JACKKNIFE),
    "oe_hazard": Measure(
        "observed over expected events, by hazards", 1.0, observed_expected_hazard, _SANDWICH, events="one"
    ),
    "calibration_intercept": Measure("calibration intercept", 0.0, calibration_intercept, _SANDWICH),
    "calibration_slope": Measure("calibration slope", 1.0, calibration_slope, _SANDWICH),
    "ici": _calibration_error("ici", "integrated calibration index"),
    "e50": _calibration_error("e50", "median calibration error"),
    "e90": _calibration_error("e90", "90 % quantile of calibration errors"),
    "e_max": _calibration_error("e_max", "largest calibration error"),
    "brier": Measure(
        "Brier score", 0.0, brier_interval, _JACKKNIFE, higher_is_better=False, influence=brier_influence
    ),
    "scaled_brier": Measure(
        "scaled Brier score",
        1.0,
        partial(brier_interval, scaled=True),
        _JACKKNIFE,
        higher_is_better=True,
        influence=partial(brier_influence, scaled=True),
    ),
}


def name_of_net_benefit(threshold: float) -> str:
    """Name of the net benefit at a threshold in the table."""
    return f"net_benefit({threshold:g})"


def measure_table(
    rows: HorizonRows, thresholds: FloatArray, *, n_resamples: int, level: float, random_state: int
) -> pd.DataFrame:
    """All measures with their limits, as `ValidationReport.to_frame` describes them."""
    resampled = _resampled(rows, thresholds, n_resamples, level, random_state)
    table: list[tuple[object, ...]] = []
    for name, measure in MEASURES.items():
        if not measure.defined_for(rows):
            continue
        row: tuple[object, ...]
        if measure.interval is None:
            row = resampled.pop(name)
        else:
            try:
                estimate = measure.interval(rows, level)
                reason = NO_VARIANCE if np.isnan(estimate[1:]).all() else ""
                row = (*estimate, measure.ideal, measure.method, 0, reason)
            except DataError as error:
                row = (np.nan, np.nan, np.nan, measure.ideal, measure.method, 0, str(error))
        table.append((name, *row))
    table += [(name, *row) for name, row in resampled.items()]
    columns = ["measure", "value", "lower", "upper", "ideal", "method", "n_undefined", "reason"]
    return pd.DataFrame(table, columns=columns).set_index("measure")


def _resampled(
    rows: HorizonRows, thresholds: FloatArray, n_resamples: int, level: float, random_state: int
) -> dict[str, tuple[object, ...]]:
    """Rows of the table of measures without a formula for their limits, by resamples of subjects."""
    names = [*["c_wolbers"] * rows.competing, *map(name_of_net_benefit, thresholds)]
    values, why = _without_formula(rows, thresholds)
    unknown = f"of the rows with such a risk {NOT_FOLLOWED.format(rows.t)}"
    rng, draw = np.random.default_rng(random_state), resampler(len(rows), rows.subject)
    drawn = [_without_formula(rows.take(draw(rng)), thresholds)[0] for _ in range(n_resamples)]
    found: dict[str, tuple[object, ...]] = {}
    for name, value, each in zip(
        names, values.tolist(), np.array(drawn).reshape(n_resamples, len(names)).T, strict=True
    ):
        reason = why.get(name, unknown) if np.isnan(value) else ""
        known, lower, upper = each[~np.isnan(each)], np.nan, np.nan
        n_undefined = n_resamples - known.size
        if not reason and known.size >= max(1, n_resamples // 2):
            tail = 0.5 * (1.0 - level)
            lower, upper = map(float, np.quantile(known, [tail, 1.0 - tail]))
        elif not reason and n_resamples:
            reason = f"no limits: not defined in {n_undefined} of {n_resamples} resamples"
        ideal = MEASURES[name].ideal if name in MEASURES else np.nan
        found[name] = value, lower, upper, ideal, _BOOTSTRAP, n_undefined, reason
    return found


def _without_formula(rows: HorizonRows, thresholds: FloatArray) -> tuple[FloatArray, dict[str, str]]:
    """Values of these measures, NaN if they are not defined, and why those with a name are not."""
    concordance: list[float] = []
    why: dict[str, str] = {}
    # A resample may have no event, or order the events perfectly.
    if rows.competing:
        try:
            concordance = [wolbers_value(rows)]
        except DataError as error:
            concordance, why = [np.nan], {"c_wolbers": str(error)}
    benefit = net_benefits(rows, thresholds)[0] if thresholds.size else thresholds
    return np.concatenate([concordance, benefit]), why


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
        """Read the rows, of the kind that the model was trained on.

        Raises DataError for an outcome or weights that cannot be used, and for subjects with several rows
        without a landmark.
        """
        outcome = outcome_of(model, y)
        outcome.right_censored("a measure at a horizon")
        if not len(outcome):
            raise DataError("the data have no rows")
        weight = check_weight(outcome.weight if sample_weight is None else sample_weight, len(outcome))
        cohort = cls(X, outcome.weighted(weight))
        if weight is not None and not weight.all():
            cohort = cohort._take(np.flatnonzero(weight))
        if after is not None:
            rows, later = cohort.y.followed_from(after)
            return cohort._take(rows)._replace(y=later, after=after)
        several = getattr(model, "time_varying_", False)
        if cohort.y.id is not None and cohort.y.entry is not None:
            several = several or len(parse_subjects(cohort.y.id, len(cohort.y))[1]) < len(cohort.y)
        if several:
            raise DataError(
                "predictions of start-stop rows with time-varying covariates hold for each row only, and "
                "survival from time zero is not defined: give after=, a time from which the rows at risk are "
                "followed"
            )
        return cohort

    def _take(self, rows: IntArray) -> Self:
        return self._replace(X=some_rows(to_pandas(self.X), rows), y=self.y[rows])

    def drawn(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed; copies of a history are those of different subjects."""
        cohort = self._take(rows)
        if self.y.id is None:
            return cohort
        order, copy = np.argsort(rows, kind="stable"), np.empty_like(rows)
        copy[order] = np.arange(rows.size) - np.searchsorted(rows[order], rows[order])
        subject = parse_subjects(self.y.id, len(self.y))[0][rows]
        return cohort._replace(y=cohort.y._with(id=subject * (1 + copy.max()) + copy))

    def rows(self, model: Any, t: float, cause: int | str | None) -> dict[str, HorizonRows]:
        """Rows with their predictions at the horizon, by name of the cause; "" if there is one event."""
        y, names = self.y, self.y.causes or ("",)
        numbers = range(1, len(names) + 1) if cause is None else [cause_number(cause, names)]
        free = self._predicted(model, t)
        expected = self._expected(model, t) if y.causes is None else None
        return {
            names[k - 1]: HorizonRows.of(
                y, free[:, k - 1], t, expected=expected, cause=None if y.causes is None else k
            )
            for k in numbers
        }

    def _predicted(self, model: Any, t: float) -> FloatArray:
        """One minus the incidence of each cause at the horizon, (n, K), of rows alive at the landmark.

        With one event it is survival.
        """
        n, after, causes = len(self.y), self.after, self.y.causes
        if causes is not None and not predicts_incidence(model):
            raise DataError(
                f"y has competing causes, and {type(model).__name__} predicts the survival of one event, for "
                "which competing events would count as censored: give a model with "
                "predict_cumulative_incidence(X, times), or Surv(time, cause == k) to validate the "
                "hazard of cause k"
            )
        method: Any = getattr(
            model, "predict_survival_function" if causes is None else "predict_cumulative_incidence"
        )
        ask: Callable[[FloatArray], Any] = partial(method, self.X)
        if causes is None:
            ask = partial(predict_curves, model, self.X)
        if after is None:
            found = np.asarray(ask(np.array([t])))
        elif _knows_after(model, method):
            found = np.asarray(method(self.X, [t], after=after))
        elif causes is not None:
            found = conditional_incidences(np.asarray(ask(np.array([after, after + t]))), after)
        else:
            both = np.asarray(ask(np.array([after, after + t])))
            found = conditional_curves(both[:, 0], both[:, 1:], after) if after else both[:, 1:]
        expected = (n, 1) if causes is None else (n, len(causes), 1)
        if found.shape != expected:
            what = "survival at one time for each row" if causes is None else "incidences"
            raise DataError(f"model must predict {what}, shape {expected}, got {found.shape}.")
        if causes is None:
            return check_probability(found[:, 0], "survival", n)[:, None]
        return np.column_stack([1.0 - check_probability(each, "incidence", n) for each in found[:, :, 0].T])

    def _expected(self, model: Any, t: float) -> FloatArray | None:
        """Predicted cumulative hazard of each row while it was observed, up to t, (n,); None if unknown."""
        time, _, entry = self.y.right_censored("validate")
        start = self.after or 0.0
        begin, end = start + np.minimum(entry, t), start + np.minimum(time, t)
        expected, order = np.zeros(time.size), np.argsort(end, kind="stable")
        for block in blocks(time.size, 2 * _BLOCK, 4 * _BLOCK**2):
            rows = order[block]
            times = np.unique(np.concatenate([begin[rows], end[rows]]))
            times = times[times > 0.0]
            if not times.size:
                continue
            try:
                hazards = _cumulative_hazards(model, self._take(rows).X, times)
            except DataError:
                return None
            if hazards.shape != (rows.size, times.size):
                return None
            hazards = np.column_stack([np.zeros(rows.size), hazards])
            place = [np.searchsorted(times, at[rows], side="right") for at in (begin, end)]
            number = np.arange(rows.size)
            with np.errstate(invalid="ignore"):
                expected[rows] = hazards[number, place[1]] - hazards[number, place[0]]
        return expected if np.isfinite(expected).all() else None


def _cumulative_hazards(model: Any, X: Any, times: FloatArray) -> FloatArray:
    """H of rows from time zero, (n, n_times)."""
    if hasattr(model, "outcome_type_"):
        return np.asarray(model.predict_cumulative_hazard_function(X, times, after=0.0))
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(np.asarray(predict_curves(model, X, times), dtype=np.float64)))


def _knows_after(model: Any, method: Any) -> bool:
    """Whether a method predicts from a time at which rows are alive."""
    if hasattr(model, "outcome_type_"):
        return True
    try:
        return "after" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # compiled code need not have a signature
        return False


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
    if not (predicts_survival(model) or predicts_incidence(model)):
        raise DataError(
            "model must be a fitted estimator with predict_survival_function(X, times), or "
            "predict_cumulative_incidence(X, times) for competing causes, got "
            f"{model if isinstance(model, type) else type(model).__name__}."
        )
