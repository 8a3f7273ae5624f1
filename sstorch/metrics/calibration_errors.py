"""Calibration in the moderate sense: predictions compared with a flexible regression of the same rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.cox import fit_cox
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.metrics.outcome import Outcome
from sstorch.metrics.pseudo_values import fit_cloglog, pseudo_values
from sstorch.metrics.weak_calibration import log_log

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


def calibration_errors(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> CalibrationErrors:
    """ICI, E50, E90 and Emax: distances of the predictions from the calibration curve of a hazard regression.

    Observed survival is that of a Cox model of these rows, followed up to t, on a restricted cubic spline of
    log(-log S_i(t)) with three knots, at its 10, 50 and 90 % quantiles; where these fall together, as with
    few distinct predictions, on log(-log S_i(t)) itself. With left truncation rows are at risk from their
    entry on. With competing causes the observed incidence is a regression of pseudo-values on the same
    spline, with a complementary log-log link. `integrated_calibration_index` smooths pseudo-observations
    instead, and its numbers differ.

    Args:
        y: a :class:`~sstorch.Surv`, or (time, event), n rows.
        survival: predicted S_i(t), one probability per row, shape (n,); with competing causes one minus the
            incidence of the cause.
        t: the time, in the unit of `y`.
        cause: number or name of the cause of interest, where there are competing causes.
        sample_weight: weights of the rows, shape (n,); None for those of `y`.

    Returns:
        The four distances, in [0, 1], 0 is best.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, a time outside the observed ones, no event by t,
            predictions of 0 or 1 or that are all equal, late entry with competing causes, or a regression
            without a finite optimum.
        ConfigError: t no time > 0, or an unknown cause.

    References:
        Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742; Austin, Putter,
        Giardiello and van Klaveren (2022), Diagnostic and Prognostic Research 6, 2, for competing causes.

    Examples:
        >>> y = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> errors = calibration_errors(y, [0.3, 0.6, 0.6, 0.6, 0.3, 0.6], t=4)
        >>> [round(part, 2) for part in errors]
        [0.1, 0.08, 0.15, 0.15]
    """
    return errors_of(HorizonRows.of(y, survival, t, sample_weight=sample_weight, cause=cause))


def errors_of(rows: HorizonRows) -> CalibrationErrors:
    """`calibration_errors` of checked rows."""
    distance = np.abs(_refit(rows)(rows.survival, 0.0)[0] - rows.survival)
    e50, e90 = np.quantile(distance, [0.5, 0.9])
    if rows.weight is not None:
        order = np.argsort(distance, kind="stable")
        share = np.cumsum(rows.weight[order]) / rows.weight.sum()
        e50, e90 = distance[order][np.minimum(np.searchsorted(share, [0.5, 0.9]), len(rows) - 1)]
    mean = float(np.average(distance, weights=rows.weight))
    return CalibrationErrors(mean, float(e50), float(e90), float(distance.max()))


def hazard_calibration_curve(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The calibration curve that `calibration_errors` measures distances from, with a pointwise band.

    Arguments and errors are those of `calibration_errors`; `confidence` is that of the band, in (0, 1).

    Returns:
        Columns predicted (increasing, at most 100 quantiles of the predictions), observed, lower and upper,
        as of `calibration_curve`. Limits are those of log(-log S) by the variance of Tsiatis; with weights or
        several events of a subject by the infinitesimal jackknife, with competing causes by the sandwich.
    """
    rows = HorizonRows.of(y, survival, t, sample_weight=sample_weight, cause=cause)
    return curve_of(rows, confidence)


def curve_of(rows: HorizonRows, confidence: float = 0.95) -> pd.DataFrame:
    """`hazard_calibration_curve` of checked rows."""
    points = np.unique(np.quantile(rows.survival, np.linspace(0.0, 1.0, _POINTS), method="nearest"))
    observed, lower, upper = _refit(rows)(points, half_width(confidence))
    return pd.DataFrame({"predicted": points, "observed": observed, "lower": lower, "upper": upper})


# Observed survival and its limits, (k,) each, at predictions (k,), with limits of so many standard errors.
_Curve = Callable[[FloatArray, float], tuple[FloatArray, FloatArray, FloatArray]]


def _refit(rows: HorizonRows) -> _Curve:
    """The calibration curve by a flexible regression."""
    z = log_log(rows.survival)
    if not (rows.interest & (rows.time <= rows.t)).any():
        raise DataError(f"event: no row has an event up to {rows.t:g}, so that there is nothing to smooth.")
    knots = np.quantile(z, _KNOTS)
    if not (np.diff(knots) > 0.0).all() or np.unique(z).size < 3:
        knots = knots[:0]
    return _of_pseudo_values(rows, z, knots) if rows.competing else _of_cox(rows, knots)


def _of_cox(rows: HorizonRows, knots: FloatArray) -> _Curve:
    cut = rows.up_to_horizon()
    fitted = fit_cox(cut.y, _basis(log_log(cut.survival), knots))

    def curve(survival: FloatArray, half: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        x = _basis(log_log(survival), knots)
        hazard, error = fitted.cumulative_hazard(x, rows.t)
        relative = error / hazard
        if cut.robust and half:
            relative = np.asarray(cut.error_of(fitted.log_hazard_influence(x)))
        factor = np.exp(half * relative)
        return np.exp(-hazard), np.exp(-hazard * factor), np.exp(-hazard / factor)

    return curve


def _of_pseudo_values(rows: HorizonRows, z: FloatArray, knots: FloatArray) -> _Curve:
    rows.check_from_zero("the calibration curve of pseudo-values")
    if np.std(z) <= 1e-12 * (1.0 + abs(float(z.mean()))):
        raise DataError("survival: all predictions are equal, and there is nothing to regress on.")
    # Coefficients of covariates of one size are found in fewer iterations.
    centre, scale = z.mean(), z.std()

    def design(values: FloatArray) -> FloatArray:
        basis = _basis((values - centre) / scale, (knots - centre) / scale)
        return np.column_stack([np.ones(values.size), basis])

    x = design(z)
    start = np.zeros(x.shape[1])
    start[:2] = centre, scale  # the identity
    fitted = fit_cloglog(rows, pseudo_values(rows), x, start)

    def curve(survival: FloatArray, half: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        at = design(log_log(survival))
        place = (at * fitted.coefficients).sum(axis=1)
        width = half * np.sqrt(np.einsum("kp,pq,kq->k", at, fitted.covariance, at))
        observed, lower, upper = (np.exp(-np.exp(place + shift)) for shift in (0.0, width, -width))
        return observed, lower, upper

    return curve


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
