"""Calibration in the moderate sense: predictions beside those of a flexible Cox model of the same rows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_share
from sstorch.exceptions import DataError
from sstorch.metrics.calibration import rows_at_one_time
from sstorch.metrics.cox import CoxRegression, fit_cox
from sstorch.metrics.outcome import Outcome
from sstorch.metrics.weak_calibration import followed_up_to, log_log

# Quantiles at which the knots are, as Harrell places three of them.
_KNOTS = (0.1, 0.5, 0.9)
_POINTS = 100


class CalibrationErrors(NamedTuple):
    """Distances between predicted and smoothed observed survival over the rows.

    Attributes:
        ici: mean, the integrated calibration index.
        e50: median.
        e90: 90 % quantile.
        e_max: largest.
    """

    ici: float
    e50: float
    e90: float
    e_max: float


def calibration_errors(y: Outcome, survival: npt.ArrayLike, *, t: float) -> CalibrationErrors:
    """ICI, E50, E90 and Emax: distances of the predictions from the calibration curve of a hazard regression.

    Observed survival is that of a Cox model of these rows, followed up to t, on a restricted cubic spline of
    log(-log S_i(t)) with three knots, at its 10, 50 and 90 % quantiles; where these fall together, as with
    few distinct predictions, on log(-log S_i(t)) itself. `integrated_calibration_index` smooths
    pseudo-observations instead, and its numbers differ.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t), one probability per row, shape (n,).
        t: the time, in the unit of `y`.

    Returns:
        The four distances, in [0, 1], 0 is best.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, a time outside the observed ones, no event by t,
            predictions of 0 or 1 or that are all equal, or a Cox model without a finite maximum.
        ConfigError: t no time > 0.

    References:
        Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742.

    Examples:
        >>> rows = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> errors = calibration_errors(rows, [0.3, 0.6, 0.6, 0.6, 0.3, 0.6], t=4)
        >>> [round(part, 2) for part in errors]
        [0.1, 0.08, 0.15, 0.15]
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    fitted, knots = _refit(row_time, row_event, predicted, horizon)
    hazard, _ = fitted.cumulative_hazard(_basis(log_log(predicted), knots), horizon)
    distance = np.abs(np.exp(-hazard) - predicted)
    e50, e90 = np.quantile(distance, [0.5, 0.9])
    return CalibrationErrors(float(distance.mean()), float(e50), float(e90), float(distance.max()))


def hazard_calibration_curve(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The calibration curve that `calibration_errors` measures distances from, with a pointwise band.

    Arguments and errors are those of `calibration_errors`; `confidence` is that of the band, in (0, 1).

    Returns:
        Columns predicted (increasing, at most 100 quantiles of the predictions), observed, lower and upper,
        as of `calibration_curve`. Limits are those of log(-log S) by the variance of Tsiatis.
    """
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    fitted, knots = _refit(row_time, row_event, predicted, horizon)
    points = np.unique(np.quantile(predicted, np.linspace(0.0, 1.0, _POINTS), method="nearest"))
    hazard, error = fitted.cumulative_hazard(_basis(log_log(points), knots), horizon)
    factor = np.exp(norm.ppf(0.5 + 0.5 * confidence) * error / hazard)
    columns = {"observed": hazard, "lower": hazard * factor, "upper": hazard / factor}
    return pd.DataFrame({"predicted": points, **{name: np.exp(-part) for name, part in columns.items()}})


def _refit(
    time: FloatArray, event: BoolArray, predicted: FloatArray, t: float
) -> tuple[CoxRegression, FloatArray]:
    """The flexible Cox model, and the knots of its spline, none where they fall together."""
    z = log_log(predicted)
    cut_time, cut_event = followed_up_to(t, time, event)
    if not cut_event.any():
        raise DataError(f"event: no row has an event up to {t:g}, so that there is nothing to smooth.")
    knots = np.quantile(z, _KNOTS)
    if not (np.diff(knots) > 0.0).all() or np.unique(z).size < 3:
        knots = knots[:0]
    return fit_cox(cut_time, cut_event, _basis(z, knots)), knots


def _basis(z: FloatArray, knots: FloatArray) -> FloatArray:
    """z, and with knots the cubic term that is linear outside of them, in the unit of z, shape (n, 1 or 2).

    References:
        Harrell (2015), Regression Modeling Strategies, 2nd edition, section 2.4.5.
    """
    if knots.size == 0:
        return z[:, None]
    first, middle, last = knots
    cubes = np.clip(z[:, None] - knots, 0.0, None) ** 3
    weights = np.array([1.0, -(last - first) / (last - middle), (middle - first) / (last - middle)])
    return np.column_stack([z, cubes @ weights / (last - first) ** 2])
