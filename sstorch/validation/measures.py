"""What a validation measures: from predictions at one horizon, by name, with limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exceptions import DataError
from sstorch.metrics import (
    CalibrationErrors,
    Estimate,
    auc_interval,
    brier_interval,
    calibration_errors,
    calibration_intercept,
    calibration_slope,
    concordance_harrell_risk,
    concordance_interval,
    concordance_uno_risk,
    observed_expected_ratio,
)
from sstorch.metrics.decision_curve import net_benefits
from sstorch.metrics.weak_calibration import followed_up_to


@dataclass(frozen=True, eq=False)
class Predictions:
    """Rows of a validation and what was predicted for them.

    Attributes:
        time: observed times, shape (n,).
        event: True where the event was observed, shape (n,).
        survival: predicted S_i at the horizon, shape (n,).
        horizon: a time, in the unit of `time`.
    """

    time: FloatArray
    event: BoolArray
    survival: FloatArray
    horizon: float

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        return replace(self, time=self.time[rows], event=self.event[rows], survival=self.survival[rows])


@dataclass(frozen=True)
class Measure:
    """A measure of predictions at one horizon.

    Attributes:
        title: in words.
        ideal: of perfect predictions.
        interval: value and limits by a formula: (y, survival, t=, confidence=) -> `Estimate`; None
            if the limits are those of a bootstrap.
        method: of the limits.
        value: the value alone, where that costs less than with its limits.
    """

    title: str
    ideal: float
    interval: Callable[..., Estimate[float]] | None
    method: str
    value: Callable[[Predictions], float] | None = None


def _harrell(rows: Predictions) -> float:
    cut = followed_up_to(rows.horizon, rows.time, rows.event)
    return concordance_harrell_risk(cut, -rows.survival, tied_time="censored_later")


def _uno(rows: Predictions) -> float:
    cut, known = followed_up_to(rows.horizon, rows.time, rows.event), (rows.time, rows.event)
    return concordance_uno_risk(cut, -rows.survival, train=known, tied_time="censored_later")


_BOOTSTRAP = "bootstrap"
_JACKKNIFE = "infinitesimal jackknife"
_UNO = partial(concordance_interval, weights="uno")
MEASURES = {
    "c_harrell": Measure("concordance, Harrell", 1.0, concordance_interval, _JACKKNIFE, _harrell),
    "c_uno": Measure("concordance, Uno", 1.0, _UNO, _JACKKNIFE, _uno),
    "auc": Measure("AUC at the horizon", 1.0, auc_interval, _JACKKNIFE),
    "oe_ratio": Measure("observed over expected events", 1.0, observed_expected_ratio, "count of events"),
    "calibration_intercept": Measure("calibration intercept", 0.0, calibration_intercept, "sandwich"),
    "calibration_slope": Measure("calibration slope", 1.0, calibration_slope, "Wald"),
    "ici": Measure("integrated calibration index", 0.0, None, _BOOTSTRAP),
    "e50": Measure("median calibration error", 0.0, None, _BOOTSTRAP),
    "e90": Measure("90 % quantile of calibration errors", 0.0, None, _BOOTSTRAP),
    "e_max": Measure("largest calibration error", 0.0, None, _BOOTSTRAP),
    "brier": Measure("Brier score", 0.0, brier_interval, _JACKKNIFE),
    "scaled_brier": Measure("scaled Brier score", 1.0, partial(brier_interval, scaled=True), _JACKKNIFE),
}


def name_of_net_benefit(threshold: float) -> str:
    """How the table calls the net benefit at a threshold."""
    return f"net_benefit({threshold:g})"


def measure_table(
    rows: Predictions, thresholds: FloatArray, *, n_resamples: int, confidence: float, random_state: int
) -> pd.DataFrame:
    """All measures with their limits, as `ValidationReport.to_frame` describes them."""
    resampled = _Resampled(rows, thresholds, n_resamples, confidence, random_state)
    table: list[tuple[object, ...]] = []
    for name, measure in MEASURES.items():
        row: tuple[object, ...]
        if measure.interval is None:
            row = resampled.row(name, measure.ideal)
        else:
            try:
                estimate = measure.interval(
                    (rows.time, rows.event), rows.survival, t=rows.horizon, confidence=confidence
                )
                row = (*estimate, measure.ideal, measure.method, 0, "")
            except DataError as error:
                row = (np.nan, np.nan, np.nan, measure.ideal, measure.method, 0, str(error))
        table.append((name, *row))
    for name in map(name_of_net_benefit, thresholds):
        table.append((name, *resampled.row(name, np.nan)))
    columns = ["measure", "value", "lower", "upper", "ideal", "method", "n_undefined", "reason"]
    return pd.DataFrame(table, columns=columns).set_index("measure")


def value_of(name: str, rows: Predictions) -> float:
    """One of `MEASURES`.

    Raises:
        DataError: it is not defined for these rows.
    """
    measure = MEASURES[name]
    interval = measure.interval
    if measure.value is not None:
        return measure.value(rows)
    if interval is None:
        return float(
            getattr(calibration_errors((rows.time, rows.event), rows.survival, t=rows.horizon), name)
        )
    return interval((rows.time, rows.event), rows.survival, t=rows.horizon).value


class _Resampled:
    """Measures without a formula for their limits, on the rows and on resamples of them with replacement."""

    def __init__(
        self,
        rows: Predictions,
        thresholds: FloatArray,
        n_resamples: int,
        confidence: float,
        random_state: int,
    ) -> None:
        self.names = [*CalibrationErrors._fields, *map(name_of_net_benefit, thresholds)]
        self.reasons = dict.fromkeys(self.names, "")
        self.thresholds, self.confidence = thresholds, confidence
        self.values, error = self._values(rows)
        for name, value in zip(self.names, self.values, strict=True):
            if np.isnan(value):
                self.reasons[name] = error if name in CalibrationErrors._fields else _UNKNOWN
        rng, n = np.random.default_rng(random_state), rows.time.size
        drawn = [self._values(rows.take(rng.integers(0, n, n)))[0] for _ in range(n_resamples)]
        self.drawn = np.array(drawn).reshape(n_resamples, len(self.names))

    def _values(self, rows: Predictions) -> tuple[FloatArray, str]:
        """All of them, NaN where they are not defined, and why errors of calibration are not."""
        errors: Sequence[float]
        try:
            errors, why = calibration_errors((rows.time, rows.event), rows.survival, t=rows.horizon), ""
        except DataError as error:  # a resample may have no event, or order them perfectly
            errors, why = (np.nan,) * len(CalibrationErrors._fields), str(error)
        benefit = net_benefits(rows.time, rows.event, 1.0 - rows.survival, rows.horizon, self.thresholds)[0]
        return np.concatenate([errors, benefit]), why

    def row(self, name: str, ideal: float) -> tuple[object, ...]:
        """Value, limits, ideal, method, how many resamples have none, and why there is none."""
        column = self.names.index(name)
        value, reason = float(self.values[column]), self.reasons[name]
        known = self.drawn[:, column][~np.isnan(self.drawn[:, column])]
        n_undefined = len(self.drawn) - known.size
        lower = upper = np.nan
        if not reason and known.size >= max(1, len(self.drawn) // 2):
            tail = 0.5 * (1.0 - self.confidence)
            lower, upper = map(float, np.quantile(known, [tail, 1.0 - tail]))
        elif not reason and len(self.drawn):
            reason = f"no limits: not defined in {n_undefined} of {len(self.drawn)} resamples"
        return value, lower, upper, ideal, _BOOTSTRAP, n_undefined, reason


_UNKNOWN = "no row with such a risk was observed up to the horizon, and not all had the event"
