"""Calibration by one number: observed over expected, and the intercept and slope of a recalibration.

Predictions are S_i(t) at one time, and z_i = log(-log S_i(t)) is their place on the scale of a hazard ratio.
With competing causes S_i(t) is one minus the cumulative incidence of the cause of interest. The numbers are
1, 0 and 1 if predictions are right on average, and neither too extreme nor too alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray, IntArray
from sstorch.exceptions import DataError
from sstorch.metrics.calibration import pseudo_observations
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import Estimate
from sstorch.metrics.horizon import HorizonRows, fit_cloglog, incidence_of, pseudo_values
from sstorch.metrics.outcome import Observed
from sstorch.metrics.weights import NO_ERROR
from sstorch.newton import Gaussian, Hessian, Problem, newton

# Of intercepts: a factor of e^30 of the hazard.
_FURTHEST = 30.0
_ROUNDING = 1e-12  # of outcomes
# Of the gain of the last step, in nats per event.
_TOLERANCE = 1e-16
# Coefficients of standardised covariates, and their errors, that only a likelihood without a maximum has.
_LARGEST, _LARGEST_ERROR = 50.0, 100.0


def observed_expected_ratio(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Compute the ratio of observed risk (one minus Kaplan-Meier) and mean predicted risk by t.

    With competing causes the observed risk is the Aalen-Johansen estimate.

    Args:
        rows: outcomes and predictions at the horizon t, without late entry. The scale of the weights has no
            effect.
        level: level of the limits, in (0, 1).

    Returns:
        Ratio and limits, floats: above 1 if predicted risks are too low. The standard error of the logarithm
        is that of the observed risk (infinitesimal jackknife, Greenwood for equal weights) / risk. Limits are
        NaN if it is 0, for example if all rows have the event.

    Raises:
        DataError: late entry, no event by t, or predicted risks that are all 0.
        ConfigError: a level out of range.

    References:
        McLernon, Giardiello, Van Calster et al. (2023), Annals of Internal Medicine 176, 105-114; Debray et
        al. (2017), BMJ 356, i6460, for limits on the log scale, there with the error of a count; van Geloven
        et al. (2022), BMJ 377, e069249, for competing causes.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3], [1, 0, 1]), [0.5, 0.6, 0.8], 2.5)
        >>> [round(part, 3) for part in observed_expected_ratio(rows)]
        [0.909, 0.183, 4.504]
    """
    half = half_width(level)
    rows.check_from_zero("the observed over the mean predicted risk")
    rows.check_events()
    expected = float(1.0 - np.average(rows.survival, weights=rows.weight))
    if expected == 0.0:
        raise DataError("survival: every prediction is 1: no event is expected.")
    observed, moved = incidence_of(rows)
    error = rows.error_of(rows.weights * moved) / observed
    factor = float(np.exp(half * error)) if error > NO_ERROR else np.nan
    return Estimate(observed / expected, observed / expected / factor, observed / expected * factor)


def observed_expected_hazard(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Compute observed events / sum of predicted cumulative hazards: the standardised event ratio.

    It supports left truncation and start-stop rows of time-varying covariates, since every row contributes
    the hazard of its follow-up. Its logarithm is the calibration intercept of a Poisson regression with log
    cumulative hazards as offset.

    Args:
        rows: outcomes and predictions at the horizon t, with the `expected` hazards
            H_i(min(time_i, t)) - H_i(entry_i) >= 0.
        level: level of the limits, in (0, 1).

    Returns:
        Ratio and limits, floats: above 1 if predicted risks are too low. The standard error of the logarithm
        is that of a Poisson count; with weights it is the sandwich over subjects.

    Raises:
        DataError: no event by t, or an expected number of 0 or infinity.
        ConfigError: a level out of range.

    References:
        Berry (1983), Biometrics 39, 173-184; Crowson, Atkinson and Therneau (2016), Statistical Methods in
        Medical Research 25, 1692-1706.

    Examples:
        >>> from sstorch import Surv
        >>> y = Surv([2, 3, 4], [1, 0, 1], entry=[0, 1, 1])
        >>> rows = HorizonRows.of(y, np.ones(3), 4, expected=np.array([0.5, 0.4, 0.7]))
        >>> [round(part, 3) for part in observed_expected_hazard(rows)]
        [1.25, 0.313, 4.998]
    """
    half = half_width(level)
    if rows.expected is None:
        raise DataError("the model has no survival at each row's own times, which the expected hazards need.")
    rows.check_events()
    seen = rows.interest & (rows.time <= rows.t)
    if rows.entry is not None:
        seen &= rows.entry < rows.t
    expected, observed = float(rows.weights @ rows.expected), float(rows.weights @ seen)
    if not 0.0 < expected < np.inf:
        raise DataError(f"the predicted cumulative hazards add up to {expected:g}, and no ratio is defined.")
    error = 1.0 / np.sqrt(observed)
    if rows.robust:
        error = rows.error_of(rows.weights * (seen / observed - rows.expected / expected))
    ratio, factor = observed / expected, float(np.exp(half * error))
    return Estimate(ratio, ratio / factor, ratio * factor)


def calibration_slope(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Estimate the calibration slope: the coefficient of z in a Cox model of these rows, followed up to t.

    For predictions of a Cox model it is the coefficient of the linear predictor. Other definitions regress
    pseudo-observations at t on z, or use all follow-up. With left truncation and start-stop rows each row is
    at risk from its entry on. With competing causes it is the slope of pseudo-values of the incidence, with a
    complementary log-log link. Arguments are as in `observed_expected_ratio`.

    Returns:
        Slope and limits, floats: below 1 if predictions are too extreme, as after overfitting. Limits are
        Wald limits, with the sandwich over subjects for weights and competing causes.

    Raises:
        DataError: no event by t, late entry with competing causes, predictions of 0 or 1 (z is not finite),
            equal predictions, or predictions that rank the events perfectly.
        ConfigError: a level out of range.

    References:
        van Houwelingen (2000), Statistics in Medicine 19, 3401-3415; McLernon et al. (2023), Annals of
        Internal Medicine 176, 105-114; van Geloven et al. (2022), BMJ 377, e069249, for competing causes.

    Examples:
        >>> y = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> rows = HorizonRows.of(y, [0.3, 0.6, 0.5, 0.8, 0.4, 0.7], 5)
        >>> round(calibration_slope(rows).value, 3)
        0.604
    """
    half = half_width(level)
    z = log_log(rows.survival)
    rows.check_events()
    if rows.competing:
        rows.check_from_zero("the slope of pseudo-values")
        check_varies(z)
        design = np.column_stack([np.ones(len(rows)), z])
        regression = fit_cloglog(rows, pseudo_values(rows), design, np.array([0.0, 1.0]))
        return _around(float(regression.coefficients[1]), half * float(np.sqrt(regression.covariance[1, 1])))
    cut = rows.up_to_horizon()
    fitted = fit_cox(cut.y, log_log(cut.survival)[:, None])
    error = np.sqrt(fitted.covariance[0, 0])
    if cut.robust:
        error = cut.error_of(fitted.influence[:, 0])
    return _around(float(fitted.coefficients[0]), half * float(error))


def calibration_intercept(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Estimate the calibration intercept: the log hazard ratio to be added to every z, with slope 1.

    It solves sum_i w_i (Y_i - F_i) dF_i/da = 0 with F_i = 1 - exp(-exp(z_i + a)) and Y_i the pseudo-value of
    the event by t, the estimating equation of pseudo-values with a complementary log-log link. Pseudo-values
    are from the jackknife; with weights or competing causes from the infinitesimal jackknife. Arguments and
    errors are as in `observed_expected_ratio`, and predictions of 0 or 1 (z is not finite) raise a
    `DataError`.

    Returns:
        Intercept and limits by the sandwich, floats: above 0 if predicted risks are too low.

    References:
        Andersen, Klein and Rosthoj (2003), Biometrika 90, 15-27; van Geloven et al. (2022), BMJ 377, e069249.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3, 4], [1, 1, 1, 1]), [0.5, 0.5, 0.5, 0.5], 3.5)
        >>> round(calibration_intercept(rows).value, 3)  # log(log .25 / log .5)
        0.693
    """
    half = half_width(level)
    rows.check_from_zero("the intercept of pseudo-values")
    z, weight = log_log(rows.survival), rows.weights
    rows.check_events()
    if rows.competing or rows.weight is not None:
        outcome = pseudo_values(rows)
    else:
        outcome = 1.0 - pseudo_observations((rows.time, rows.event), t=rows.t)

    def equation(a: float) -> tuple[FloatArray, FloatArray]:
        """Residuals and derivatives of the risks."""
        hazard = np.exp(z + a)
        return outcome + np.expm1(-hazard), hazard * np.exp(-hazard)

    def mean(a: float) -> float:
        residual, derivative = equation(a)
        return float(residual @ (weight * derivative))

    low, high = -1.0, 1.0
    while mean(low) <= 0.0 and low > -_FURTHEST:
        low *= 2.0
    while mean(high) >= 0.0 and high < _FURTHEST:
        high *= 2.0
    intercept = np.inf
    if mean(low) > 0.0 > mean(high):
        intercept = float(brentq(mean, low, high, xtol=1e-12))
    # Where every risk is 1 a zero of the equation is rounding of the outcomes.
    if np.average(np.exp(-np.exp(z + intercept)), weights=weight) <= _ROUNDING:
        raise DataError("survival: no intercept brings the predictions to what was observed.")
    residual, derivative = equation(intercept)
    error = rows.error_of(weight * residual * derivative) / float((weight * derivative**2).sum())
    return _around(intercept, half * float(error))


def log_log(survival: FloatArray) -> FloatArray:
    """log(-log S)."""
    with np.errstate(divide="ignore"):
        z = np.log(-np.log(survival))
    if not np.isfinite(z).all():
        raise DataError(
            "survival: predictions of 0 or 1 have no place on the scale log(-log S) of a recalibration; cut "
            "them, for instance with np.clip(survival, 0.001, 0.999)."
        )
    return z


def check_varies(z: FloatArray) -> None:
    """Check that predictions differ; raises a DataError."""
    if np.std(z) <= 1e-12 * (1.0 + abs(float(z.mean()))):
        raise DataError("survival: all predictions are equal; a regression needs different predictions.")


def _around(value: float, half: float) -> Estimate[float]:
    return Estimate(value, value - half, value + half)


@dataclass(frozen=True, eq=False)
class CoxRegression:
    """A fitted proportional hazards model."""

    coefficients: FloatArray  # shape (p,)
    covariance: FloatArray  # inverse information, shape (p, p)
    times: FloatArray  # time of each event, never falling, shape (m,)
    centre: FloatArray  # mean covariates, which the hazard below belongs to, shape (p,)
    hazard: FloatArray  # steps of the cumulative hazard at the centre, an event each, shape (m,)
    mean: FloatArray  # covariates less the centre, weighted over those at risk of each event, shape (m, p)
    influence: FloatArray  # weighted influence of each row on the coefficients (dfbeta), shape (n, p)
    hazard_influence: FloatArray  # the same on the total cumulative hazard at the centre, shape (n,)

    def log_hazard(self) -> tuple[FloatArray, FloatArray]:
        """Log of the total cumulative hazard at the centre and coefficients, (1 + p,), and their covariance.

        The log hazard at x is linear in them, with design (1, x - centre).

        References:
            Tsiatis (1981), Annals of Statistics 9, 93-108, for the variance.
        """
        total = self.hazard.sum()
        mean = self.hazard @ self.mean / total
        moved = -self.covariance @ mean
        level = (self.hazard**2).sum() / total**2 + mean @ self.covariance @ mean
        covariance = np.block([[np.atleast_2d(level), moved[None]], [moved[:, None], self.covariance]])
        return np.append(np.log(total), self.coefficients), covariance

    def log_hazard_influence(self) -> FloatArray:
        """Weighted influence of each row on the estimates of :meth:`log_hazard`, (n, 1 + p)."""
        return np.column_stack([self.hazard_influence / self.hazard.sum(), self.influence])


@dataclass(frozen=True)
class _PartialLikelihood(Problem):
    """Minus a log partial likelihood, over the weight of the events, a batch of one."""

    parts: Callable[[FloatArray], Sequence[Any]]  # its logarithm, gradient and information, and more
    weight: float

    @override
    def value(self, theta: Tensor) -> Tensor:
        return theta.new_tensor([-self.parts(theta[0].numpy())[0] / self.weight])

    @override
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Hessian]:
        value, gradient, information, *_ = self.parts(theta[0].numpy())
        slope, matrix = (torch.as_tensor(each / self.weight)[None] for each in (-gradient, information))
        return theta.new_tensor([-value / self.weight]), slope, Hessian.of(matrix)

    @override
    def select(self, members: Tensor) -> Self:
        return self


def fit_cox(y: Observed, x: FloatArray, at: FloatArray | None = None) -> CoxRegression:
    """Fit a Cox model to n rows with weights > 0, some of them with an event, and covariates (n, p).

    By Newton's method. Tied events share their mean weight, as in R's ``coxph``. With coefficients ``at``
    (p,) nothing is fitted: information and hazard are those there.

    References:
        Efron (1977), Journal of the American Statistical Association 72, 557-565, for ties; Lin and Wei
        (1989), Journal of the American Statistical Association 84, 1074-1078, for influences.
    """
    order = np.argsort(y.time, kind="stable")
    time, event = y.time[order], y.event[order]
    entry = None if y.entry is None else y.entry[order]
    own = y.weights[order]
    centre = x.mean(axis=0)
    x = x[order] - centre
    scale = x.std(axis=0)
    if (scale <= 1e-12 * (1.0 + np.abs(centre))).any():
        raise DataError("survival: all predictions are equal; a regression needs different predictions.")
    x = x / scale
    times = time[event]
    first = np.searchsorted(time, times)  # of those at risk
    group = np.searchsorted(times, times)  # first event of the same time
    n_tied = np.searchsorted(times, times, side="right") - group
    share = (np.arange(times.size) - group) / n_tied  # of the tied ones that have left already
    starts, tie = np.unique(group, return_inverse=True)
    mass = (np.add.reduceat(own[event], starts) / n_tied[starts])[tie]  # mean weight of tied events
    by_entry = later = first
    if entry is not None:
        by_entry = np.argsort(entry, kind="stable")
        later = np.searchsorted(entry[by_entry], times)  # from there on rows enter at the event or later
    products = x[:, :, None] * x[:, None, :]
    observed = (own[event, None] * x[event]).sum(axis=0)

    def tail(values: FloatArray, start: IntArray) -> FloatArray:
        """Sums from some positions on."""
        sums: FloatArray = np.cumsum(values[::-1], axis=0)[::-1]
        return np.concatenate([sums, np.zeros((1, *values.shape[1:]))])[start]

    def at_risk(values: FloatArray) -> FloatArray:
        """Weighted sums over those at risk at each event, tied ones leaving one after the other."""
        whole = tail(values, first)
        if entry is not None:
            whole = whole - tail(values[by_entry], later)
        tied = np.add.reduceat(values[event], starts, axis=0)
        shape = (-1, *(1,) * (values.ndim - 1))
        sums: FloatArray = whole - share.reshape(shape) * tied[tie]
        return sums

    def likelihood(beta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Its logarithm, gradient and information, hazard steps and means.

        Minus infinity where weights of those at risk underflow: then ``beta`` is too far away.
        """
        score = x @ beta
        relative = own * np.exp(score - score.max())
        total = at_risk(relative)
        if not (total > 0.0).all():
            return -np.inf, np.full_like(beta, np.nan), np.full((beta.size, beta.size), np.nan), total, total
        mean = at_risk(relative[:, None] * x) / total[:, None]
        square = at_risk(relative[:, None, None] * products) / total[:, None, None]
        value = float(observed @ beta - (mass * (np.log(total) + score.max())).sum())
        information = (mass[:, None, None] * (square - mean[:, :, None] * mean[:, None, :])).sum(axis=0)
        gradient = observed - (mass[:, None] * mean).sum(axis=0)
        return value, gradient, information, mass * np.exp(-score.max()) / total, mean

    def influences(
        beta: FloatArray, inverse: FloatArray, hazard: FloatArray, mean: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Weighted influences of rows on the coefficients and on the total hazard at the centre."""
        relative = np.exp(x @ beta)
        steps = np.column_stack([hazard, hazard[:, None] * mean, hazard**2 / mass])
        passed = np.concatenate([np.zeros((1, steps.shape[1])), np.cumsum(steps, axis=0)])
        from_ = 0 if entry is None else np.searchsorted(times, entry, side="right")
        summed = passed[np.searchsorted(times, time, side="right")] - passed[from_]
        # A tied event is at risk in part only while those tied with it leave.
        spared = np.add.reduceat(share[:, None] * steps, starts, axis=0)
        summed[event] -= spared[tie]
        at_event = (
            np.add.reduceat(np.column_stack([mean, hazard / mass]), starts, axis=0) / n_tied[starts, None]
        )
        score = -relative[:, None] * (x * summed[:, :1] - summed[:, 1:-1])
        score[event] += x[event] - at_event[tie, :-1]
        moved = own[:, None] * score @ inverse
        total = -relative * summed[:, -1]
        total[event] += at_event[tie, -1]
        total = own * total - moved @ (hazard @ mean)
        back = np.argsort(order, kind="stable")
        return moved[back] / scale, total[back]

    beta = np.zeros(x.shape[1]) if at is None else at * scale
    if at is None:
        theta = torch.as_tensor(beta)[None]
        problem = _PartialLikelihood(likelihood, float(mass.sum()))
        beta = newton(problem, Gaussian.flat(theta), theta, _TOLERANCE).theta[0].numpy()
    _, _, information, hazard, mean = likelihood(beta)
    # Weights of another scale scale the information alike.
    least = np.linalg.eigvalsh(information / mass.mean())[0] if np.isfinite(information).all() else 0.0
    if np.abs(beta).max() <= _LARGEST and least >= 1.0 / _LARGEST_ERROR**2:
        inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
        moved, hazard_moved = influences(beta, inverse, hazard, mean)
        covariance: FloatArray = inverse / np.outer(scale, scale)
        return CoxRegression(
            beta / scale, covariance, times, centre, hazard, mean * scale, moved, hazard_moved
        )
    raise DataError(
        f"a Cox regression on the predictions of {time.size} rows with {times.size} events has no finite "
        "maximum: the predictions order the events perfectly, or there are too few events."
    )
