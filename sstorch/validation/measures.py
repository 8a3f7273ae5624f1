"""Validation measures of predictions at one horizon, by name, with confidence limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.exceptions import DataError
from sstorch.metrics import Estimate
from sstorch.metrics.calibration_errors import calibration_error_interval, calibration_errors
from sstorch.metrics.censoring import NOT_FOLLOWED
from sstorch.metrics.comparison import resampler
from sstorch.metrics.decision_curve import net_benefits
from sstorch.metrics.horizon_rows import HorizonRows
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
from sstorch.metrics.weak_calibration import (
    calibration_intercept,
    calibration_slope,
    observed_expected_hazard,
    observed_expected_ratio,
)

_Interval = Callable[[HorizonRows, float], Estimate[float]]


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
    # method of the limits with uneven weights; "" for the same
    robust: str = ""
    competing: str = ""  # method of the limits with competing causes; "" for the same
    higher_is_better: bool | None = None  # direction; None where a difference is no judgement, as of O/E
    # value and influences of the rows, (n,), whose root sum of squares is its error; None if it has none
    influence: Callable[[HorizonRows], tuple[float, FloatArray]] | None = None

    def defined_for(self, rows: HorizonRows) -> bool:
        """Whether the measure belongs to the kind of outcome of some rows."""
        return self.events in ("both", "competing" if rows.competing else "one")

    def method_for(self, rows: HorizonRows) -> str:
        """Method of the limits."""
        return (rows.competing and self.competing) or (rows.robust and self.robust) or self.method

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
_COUNT = "count of events"
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
    "oe_ratio": Measure(
        "observed over expected risk",
        1.0,
        observed_expected_ratio,
        "Greenwood",
        robust=_JACKKNIFE,
        competing=_JACKKNIFE,
    ),
    "oe_hazard": Measure(
        "observed over expected events, by hazards",
        1.0,
        observed_expected_hazard,
        _COUNT,
        events="one",
        robust=_SANDWICH,
    ),
    "calibration_intercept": Measure("calibration intercept", 0.0, calibration_intercept, _SANDWICH),
    "calibration_slope": Measure(
        "calibration slope", 1.0, calibration_slope, "Wald", robust=_SANDWICH, competing=_SANDWICH
    ),
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
        method = measure.method_for(rows)
        row: tuple[object, ...]
        if measure.interval is None:
            row = resampled.pop(name)
        else:
            try:
                estimate = measure.interval(rows, level)
                reason = NO_VARIANCE if np.isnan(estimate[1:]).all() else ""
                row = (*estimate, measure.ideal, method, 0, reason)
            except DataError as error:
                row = (np.nan, np.nan, np.nan, measure.ideal, method, 0, str(error))
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
