"""Calibration by one number: observed over expected, and the intercept and slope of a recalibration.

Predictions are S_i(t) at one time, and z_i = log(-log S_i(t)) is their place on the scale of a hazard ratio.
The three are 1, 0 and 1 where predictions are right on average, and neither too extreme nor too alike.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import norm

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_share
from sstorch.exceptions import DataError
from sstorch.metrics.calibration import pseudo_observations, rows_at_one_time
from sstorch.metrics.censoring import KaplanMeier
from sstorch.metrics.cox import fit_cox
from sstorch.metrics.groups import Estimate
from sstorch.metrics.outcome import Outcome


def observed_expected_ratio(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    confidence: float = 0.95,
) -> Estimate[float]:
    """Observed over expected events by t: one minus Kaplan-Meier, over the mean predicted risk.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t), one probability per row, shape (n,).
        t: the time, in the unit of `y`.
        confidence: of the limits, in (0, 1).

    Returns:
        Ratio and limits, floats: above 1 where too little was predicted. The logarithm of the ratio is given
        the standard error of a count, one over the root of the number of events by t, which is too large
        where most rows have the event.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, a time outside the observed ones, no event by t,
            or no risk in any prediction.
        ConfigError: t no time > 0, or a confidence out of range.

    References:
        McLernon, Giardiello, Van Calster et al. (2023), Annals of Internal Medicine 176, 105-114; Debray et
        al. (2017), BMJ 356, i6460, for the limits.

    Examples:
        >>> ratio = observed_expected_ratio(([1, 2, 3], [1, 0, 1]), [0.5, 0.6, 0.8], t=2.5)
        >>> [round(part, 3) for part in ratio]
        [0.909, 0.128, 6.454]
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    half = _half(confidence)
    n_events = _count_events(row_time, row_event, horizon)
    expected = float(1.0 - predicted.mean())
    if expected == 0.0:
        raise DataError("survival: every prediction is 1, so that no event is expected.")
    ratio = float(1.0 - KaplanMeier.fit((row_time, row_event)).at(horizon)) / expected
    factor = float(np.exp(half / np.sqrt(n_events)))
    return Estimate(ratio, ratio / factor, ratio * factor)


def calibration_slope(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    confidence: float = 0.95,
) -> Estimate[float]:
    """Calibration slope: the coefficient of z in a Cox model of these rows, followed up to t.

    Of a Cox model's predictions it is the coefficient of its linear predictor. Other definitions regress
    pseudo-observations at t on z, or all of follow-up. Arguments and errors are those of
    `observed_expected_ratio`, and the following.

    Returns:
        Slope and limits of Wald, floats: below 1 where predictions are too extreme, as after overfitting.

    Raises:
        DataError: predictions of 0 or 1, which have no z, or that are all equal or order the events
            perfectly.

    References:
        van Houwelingen (2000), Statistics in Medicine 19, 3401-3415; McLernon et al. (2023), Annals of
        Internal Medicine 176, 105-114.

    Examples:
        >>> rows = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> round(calibration_slope(rows, [0.3, 0.6, 0.5, 0.8, 0.4, 0.7], t=5).value, 3)
        0.604
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    half = _half(confidence)
    z = log_log(predicted)
    _count_events(row_time, row_event, horizon)
    fitted = fit_cox(*followed_up_to(horizon, row_time, row_event), z[:, None])
    return _around(float(fitted.coefficients[0]), half * float(np.sqrt(fitted.covariance[0, 0])))


def calibration_intercept(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    confidence: float = 0.95,
) -> Estimate[float]:
    """Calibration intercept: the logarithm of a hazard ratio to be added to every z, whose slope stays 1.

    It solves sum_i (Y_i - F_i) dF_i/da = 0 with F_i = 1 - exp(-exp(z_i + a)) and Y_i one minus the
    pseudo-observation of survival beyond t, the estimating equation of pseudo-values with a complementary
    log-log link. Arguments and errors are those of `calibration_slope`, but that predictions may be equal.

    Returns:
        Intercept and limits by the sandwich, floats: above 0 where too little was predicted.

    References:
        Andersen, Klein and Rosthoj (2003), Biometrika 90, 15-27; van Geloven et al. (2022), BMJ 377, e069249.

    Examples:
        >>> rows = [1, 2, 3, 4], [1, 1, 1, 1]
        >>> round(calibration_intercept(rows, [0.5, 0.5, 0.5, 0.5], t=3.5).value, 3)  # log(log .25 / log .5)
        0.693
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    half = _half(confidence)
    z = log_log(predicted)
    _count_events(row_time, row_event, horizon)
    outcome = 1.0 - pseudo_observations((row_time, row_event), t=horizon)

    def equation(a: float) -> tuple[FloatArray, FloatArray]:
        """Residuals and derivatives of the risks."""
        hazard = np.exp(z + a)
        return outcome + np.expm1(-hazard), hazard * np.exp(-hazard)

    def mean(a: float) -> float:
        residual, derivative = equation(a)
        return float(residual @ derivative)

    low, high = -1.0, 1.0
    while mean(low) <= 0.0 and low > -_FURTHEST:
        low *= 2.0
    while mean(high) >= 0.0 and high < _FURTHEST:
        high *= 2.0
    if not mean(low) > 0.0 > mean(high):
        raise DataError("survival: no intercept brings the predictions to what was observed.")
    intercept = float(brentq(mean, low, high, xtol=1e-12))
    residual, derivative = equation(intercept)
    error = float(np.sqrt(((residual * derivative) ** 2).sum()) / (derivative**2).sum())
    return _around(intercept, half * error)


# Of intercepts: a factor of e^30 of the hazard.
_FURTHEST = 30.0


def log_log(survival: FloatArray) -> FloatArray:
    """log(-log S).

    Raises:
        DataError: probabilities of 0 or 1, or so close to them that the logarithm does not exist.
    """
    with np.errstate(divide="ignore"):
        z = np.log(-np.log(survival))
    if not np.isfinite(z).all():
        raise DataError(
            "survival: predictions of 0 or 1 have no place on the scale log(-log S) of a recalibration; cut "
            "them, for instance with np.clip(survival, 0.001, 0.999)."
        )
    return z


def followed_up_to(t: float, time: FloatArray, event: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Times and events as if follow-up had ended at t."""
    return np.minimum(time, t), event & (time <= t)


def _count_events(time: FloatArray, event: BoolArray, t: float) -> int:
    if not (n_events := int(np.count_nonzero(event & (time <= t)))):
        raise DataError(f"event: no row has an event up to {t:g}, so that there is nothing to compare with.")
    return n_events


def _half(confidence: float) -> float:
    """Half the width of an interval, in standard errors."""
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    return float(norm.ppf(0.5 + 0.5 * confidence))


def _around(value: float, half: float) -> Estimate[float]:
    return Estimate(value, value - half, value + half)
