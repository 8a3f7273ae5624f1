"""Calibration of the predicted risk of an event by one time, by pseudo-values of the observed risk.

Predictions are S_i(t), of a cause one minus its cumulative incidence, and z_i = log(-log S_i(t)). The risk F
= 1 - exp(-exp(x b)) is fitted to pseudo-values by weighted least squares. With x b = a + z its coefficient is
the calibration intercept, with x b = a + b z the slope; with a spline of z it is the calibration curve, whose
distances from the diagonal are ICI, E50, E90 and Emax.

References:
    Andersen, Klein and Rosthoj (2003), Biometrika 90, 15-27, for pseudo-values; Klein and Andersen (2005),
    Biometrics 61, 223-229, for the link; van Geloven, Giardiello, Bonneville et al. (2022), BMJ 377, e069249,
    and Austin, Putter, Giardiello and van Klaveren (2022), Diagnostic and Prognostic Research 6, 2, for
    calibration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import check_horizon
from sstorch.data.target import time_of_rows
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import Estimate
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import Outcome, read_scored
from sstorch.metrics.weights import covariance_of
from sstorch.newton import Gaussian, Problem, System, newton

# Gain of the last step of a regression, of a weighted mean of squares; and of its coefficients.
_TOLERANCE, _PRECISION = 1e-20, 1e-8
# Of coefficients: a factor of e^30 of the hazard.
_FURTHEST = 30.0
# Quantiles at which the knots are, as Harrell places three of them.
_KNOTS = (0.1, 0.5, 0.9)
_POINTS = 100
_LEAST = 1e-9  # observed risk of a group
_ROUNDING = 1e-12  # of shares of weights
# Of limits: draws of curves, and how multiples of the deviation are searched.
_DRAWS, _HALVINGS, _LARGEST_MULTIPLE = 2000, 10, 2.0**12
# The curve of rows, which their four errors share.
_CURVES: WeakKeyDictionary[HorizonRows, _Curve] = WeakKeyDictionary()
_SUMMARIES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "ici": lambda distance: np.asarray(distance.mean(axis=-1)),
    "e50": lambda distance: np.asarray(np.quantile(distance, 0.5, axis=-1)),
    "e90": lambda distance: np.asarray(np.quantile(distance, 0.9, axis=-1)),
    "e_max": lambda distance: np.asarray(distance.max(axis=-1)),
}


def pseudo_observations(y: Outcome, *, t: float, cause: int | str | None = None) -> FloatArray:
    """Compute pseudo-observations of survival beyond t, (n,), by the infinitesimal jackknife.

    S(t) plus n times its derivative by the weight of the row, as R's ``survival::pseudo``. Of a cause it is
    one minus the incidence. Without censoring it is 1 if survival exceeds t, else 0. Arguments are described
    in `sstorch.metrics`; `t` is in the unit of `y`.

    References:
        Andersen and Pohar Perme (2010), Statistical Methods in Medical Research 19, 71-99; Parner, Andersen
        and Overgaard (2023), Lifetime Data Analysis 29, 654-671, for this jackknife.

    Examples:
        >>> pseudo_observations(([1, 2, 3], [1, 0, 1]), t=2.5).round(3).tolist()
        [0.0, 1.0, 1.0]
    """
    rows, which = read_scored(y, "a pseudo-observation", cause)
    at = time_of_rows(check_horizon(t, "t"), rows.time)
    return 1.0 - _pseudo_values(HorizonRows(rows, np.ones(rows.time.size), at, which))


def _pseudo_values(rows: HorizonRows) -> FloatArray:
    """Pseudo-values of the incidence at the horizon, (n,); their weighted mean is the incidence."""
    value, moved = rows.incidence()
    return np.asarray(value + rows.y.weights.sum() * moved)


def calibration_slope(rows: HorizonRows) -> tuple[float, FloatArray]:
    """The coefficient of z in a regression of pseudo-values on (1, z), and its influences, (n,)."""
    # Below 1 predictions are too extreme. The slope of a Cox model of z is larger where effects wane.
    z = _places(rows, "the calibration slope")
    if not _varies(z):
        raise DataError("survival: all predictions are equal; a slope needs different predictions.")
    regression = _Cloglog.of(rows, np.column_stack([np.ones(len(rows)), z]))
    beta = regression.fitted(np.array([0.0, 1.0]))
    return float(beta[1]), regression.influence(beta)[:, 1]


def calibration_intercept(rows: HorizonRows) -> tuple[float, FloatArray]:
    """The log hazard ratio a to be added to every z, with slope 1, and its influences, (n,)."""
    # It solves sum_i w_i (Y_i - F_i) dF_i/da = 0, F_i = 1 - exp(-exp(z_i + a)); above 0 risks are too low.
    z = _places(rows, "the calibration intercept")
    regression = _Cloglog.of(rows, np.ones((len(rows), 1)), z)
    beta = regression.fitted(np.zeros(1))
    return float(beta[0]), regression.influence(beta)[:, 0]


def _places(rows: HorizonRows, measure: str) -> FloatArray:
    """log(-log S) of rows that have an event by the horizon, (n,)."""
    rows.check_from_zero(measure)
    z = _log_log(rows.survival)
    rows.check_events()
    return z


@dataclass(frozen=True)
class _Cloglog(Problem):
    """Least squares of F = 1 - exp(-exp(x b + offset)) to outcomes Y: sum_i w_i dF_i/db (Y_i - F_i) = 0."""

    x: Tensor  # (n, p)
    outcome: Tensor  # pseudo-values, (n,), as in R's geese(mean.link = "cloglog", jack = TRUE)
    weight: Tensor  # (n,), of sum 1
    offset: Tensor  # (n,)

    @classmethod
    def of(cls, rows: HorizonRows, x: FloatArray, offset: FloatArray | None = None) -> Self:
        """The regression of the pseudo-values of rows."""
        weight = rows.y.weights / rows.y.weights.sum()
        added = np.zeros(len(rows)) if offset is None else offset
        return cls(*(torch.as_tensor(part) for part in (x, _pseudo_values(rows), weight, added)))

    @override
    def value(self, theta: Tensor) -> Tensor:
        return self._risks(theta)[1].square() @ self.weight / 2

    @override
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hazard, distance, slope = self._risks(theta)
        first = self.weight * distance * slope
        second = self.weight * (slope.square() + distance * slope * (1 - hazard))
        matrix = self.x.mT @ (second[0, :, None] * self.x)
        return distance.square() @ self.weight / 2, first @ self.x, matrix[None]

    @override
    def select(self, members: Tensor) -> Self:
        return self

    def _risks(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hazards e^(x b), distances of risks to pseudo-values, slopes of risks in x b; (1, n) each."""
        place = theta @ self.x.mT + self.offset
        hazard = place.clamp(-_FURTHEST, _FURTHEST).exp()
        slope = torch.where(place.abs() <= _FURTHEST, hazard * torch.exp(-hazard), 0.0)
        return hazard, -torch.expm1(-hazard) - self.outcome, slope

    def _sandwich(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """At coefficients (p,) the bread, (p, p), the derivatives of risks, (n, p), and their distances."""
        _, distance, slope = (part[0] for part in self._risks(torch.as_tensor(beta)[None]))
        moved = slope[:, None] * self.x
        return (moved.mT @ (self.weight[:, None] * moved)).numpy(), moved.numpy(), distance.numpy()

    def fitted(self, start: FloatArray) -> FloatArray:
        """The coefficients, (p,); a DataError without a finite minimum."""
        theta = torch.as_tensor(start, dtype=torch.float64)[None]
        found = newton(self, Gaussian.flat(theta), theta, _TOLERANCE)
        system = System.of(found.hessian, torch.zeros_like(theta))
        left = system.solve(found.gradient[..., None]).abs().max()
        beta: FloatArray = found.theta[0].numpy()
        is_regular = np.linalg.cond(self._sandwich(beta)[0]) < 1 / np.finfo(np.float64).eps
        is_near = (found.theta @ self.x.mT + self.offset).abs().max() <= _FURTHEST
        if is_regular and is_near and left <= _PRECISION * (1 + np.abs(beta).max()):
            return beta
        raise DataError(
            f"a regression on the predictions of {len(self.outcome)} rows has no finite minimum: all "
            "predictions are equal, they order the events perfectly, or there are too few events."
        )

    def influence(self, beta: FloatArray) -> FloatArray:
        """Weighted influences of rows on the coefficients, (n, p); products sum to their covariance."""
        bread, moved, distance = self._sandwich(beta)
        return np.asarray((-self.weight.numpy() * distance)[:, None] * moved @ np.linalg.inv(bread))


def _log_log(survival: FloatArray) -> FloatArray:
    """log(-log S)."""
    with np.errstate(divide="ignore"):
        z = np.log(-np.log(survival))
    if not np.isfinite(z).all():
        raise DataError(
            "survival: predictions of 0 or 1 have no place on the scale log(-log S) of a recalibration; cut "
            "them, for instance with np.clip(survival, 0.001, 0.999)."
        )
    return z


def _varies(z: FloatArray) -> bool:
    return bool(np.std(z) > 1e-12 * (1.0 + abs(float(z.mean()))))


class CalibrationErrors(NamedTuple):
    """Distances of predicted from smoothed observed survival: mean, median, 90 % quantile, largest."""

    ici: float
    e50: float
    e90: float
    e_max: float


def calibration_errors(rows: HorizonRows, curve: _Curve | None = None) -> CalibrationErrors:
    """ICI, E50, E90 and Emax: distances of predictions from the calibration curve.

    The observed risk is a regression of pseudo-values on a restricted cubic spline of z = log(-log S_i(t))
    with three knots at its 10, 50 and 90 % quantiles. If quantiles coincide (few distinct predictions) it is
    linear in z. Two or three distinct predictions have the observed risks of their rows, equal ones that of
    all rows.

    Returns:
        The four distances of `rows`, in [0, 1], 0 is best; `curve` is theirs, if already fitted.

    Raises:
        DataError: no event by t, left truncation, predictions of 0 or 1, or a regression without a finite
            optimum.

    References:
        Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742, with a Cox model as
        the smoother; Austin, Putter, Giardiello and van Klaveren (2022), Diagnostic and Prognostic Research
        6, 2.

    Examples:
        >>> y = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> errors = calibration_errors(HorizonRows.of(y, [0.3, 0.6, 0.6, 0.6, 0.3, 0.6], 4))
        >>> [round(part, 2) for part in errors]
        [0.23, 0.21, 0.26, 0.26]
    """
    curve = _Curve.of(rows) if curve is None else curve
    distance = np.abs(curve.observed(rows.survival) - rows.survival)
    e50, e90 = np.quantile(distance, [0.5, 0.9])
    if rows.y.weight is not None:
        order = np.argsort(distance, kind="stable")
        share = np.cumsum(rows.y.weight[order]) / rows.y.weight.sum()
        half, most = np.searchsorted(share, np.array([0.5, 0.9]) - _ROUNDING)
        e50, e90 = distance[order[half]], distance[order[most]]
    mean = float(np.average(distance, weights=rows.y.weight))
    return CalibrationErrors(mean, float(e50), float(e90), float(distance.max()))


def error_limits(rows: HorizonRows, level: float, name: str) -> Estimate[float]:
    """ICI, E50, E90 or Emax of `calibration_errors`, with limits that reach 0 for calibrated predictions."""
    # Sampling error of the curve increases every distance, and bootstrap percentiles even more: these limits
    # invert the tests of `ErrorTest`. Coverage of 95 % limits: ``experiments/validation``.
    if (curve := _CURVES.get(rows)) is None:
        curve = _CURVES[rows] = _Curve.of(rows)
    value = float(getattr(calibration_errors(rows, curve), name))
    if np.isnan(curve.covariance).any():
        return Estimate(value, np.nan, np.nan)
    lower, upper = ErrorTest(rows, name, level, curve).limits()
    return Estimate(value, min(lower, value), max(upper, value))


class ErrorTest:
    """Tests of a true multiple of the deviation of the curve, whose inversion gives limits of its summary."""

    def __init__(
        self, rows: HorizonRows, name: str, level: float = 0.95, curve: _Curve | None = None
    ) -> None:
        curve = _Curve.of(rows) if curve is None else curve
        # Predictions that represent those of all rows, each for the same share.
        how: Literal["linear", "inverted_cdf"] = "linear" if rows.y.weight is None else "inverted_cdf"
        shares = np.linspace(0.0, 1.0, _POINTS)
        self._points: FloatArray = np.quantile(rows.survival, shares, weights=rows.y.weight, method=how)
        self._summary, self._level = _SUMMARIES[name], level
        x = curve.design(self._points)
        self._calibrated, self._deviation = x @ curve.identity, x @ (curve.coefficients - curve.identity)
        # In simulations it held limits of E50 to their level, and those of the others less well than length.
        self._power = x.shape[1] if name == "e50" else 1
        # Simulates the estimate from the normal distribution of the coefficients of the curve.
        draws = np.random.default_rng(0).normal(size=(_DRAWS, x.shape[1]))
        values, vectors = np.linalg.eigh(curve.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        self._noise = draws @ root.T @ x.T
        self.estimate = self.at(1.0)  # at predictions that represent those of all rows

    def at(self, multiple: float, noise: FloatArray | float = 0.0) -> FloatArray:
        """The summary where the curve deviates from the diagonal by a multiple of the estimated deviation."""
        with np.errstate(over="ignore"):  # survival of 0
            observed = np.exp(-np.exp(self._calibrated + multiple * self._deviation + noise))
        return self._summary(np.abs(observed - self._points))

    def accepted(self, multiple: float) -> tuple[float, float]:
        """The region that holds the estimate with the probability of the tests, at a true multiple."""
        # The shortest interval of the estimate; for E50, near 0 wherever the curve crosses the diagonal, that
        # of the estimate to the power of the number of coefficients.
        drawn = np.sort(self.at(multiple, self._noise))
        held = int(np.ceil(self._level * drawn.size))
        volume = drawn**self._power
        first = int((volume[held - 1 :] - volume[: drawn.size - held + 1]).argmin())
        return float(drawn[first]), float(drawn[first + held - 1])

    def limits(self) -> tuple[float, float]:
        """Summaries at the smallest and the largest accepted multiple."""
        lower, upper = self._first_above(1), self._first_above(0)
        # Without a deviation nothing is left but rounding.
        return float(self.at(lower)) if lower else 0.0, float(self.at(upper)) if upper else 0.0

    def _first_above(self, side: int) -> float:
        """The smallest multiple from which on that side of the region is not below the estimate."""
        if self.accepted(0.0)[side] >= self.estimate:
            return 0.0
        low, high = 0.0, 1.0
        while self.accepted(high)[side] < self.estimate and high < _LARGEST_MULTIPLE:
            low, high = high, 2.0 * high
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.accepted(middle)[side] >= self.estimate else (middle, high)
        return high


def calibration_curve(rows: HorizonRows, level: float = 0.95) -> pd.DataFrame:
    """Compute the calibration curve of `calibration_errors`, with a pointwise band.

    Rows and errors are as in `calibration_errors`; `level` is that of the band, in (0, 1).

    Returns:
        Columns predicted (increasing, at most 100 quantiles of the predictions), observed, lower and upper,
        all survival. Limits are on the scale of log(-log S), by the sandwich over subjects.

    Examples:
        >>> y = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> curve = calibration_curve(HorizonRows.of(y, [0.3, 0.6, 0.6, 0.6, 0.3, 0.6], 4))
        >>> curve["observed"].round(2).tolist()
        [0.56, 0.39]
    """
    points = np.unique(np.quantile(rows.survival, np.linspace(0.0, 1.0, _POINTS), method="nearest"))
    half, curve = half_width(level), _Curve.of(rows)
    x = curve.design(points)
    width = half * np.sqrt(np.einsum("kp,pq,kq->k", x, curve.covariance, x))
    shifts = {"observed": 0.0, "lower": width, "upper": -width}
    limits = {name: curve.observed(points, shift) for name, shift in shifts.items()}
    return pd.DataFrame({"predicted": points} | limits)


@dataclass(frozen=True, eq=False)
class _Curve:
    """Log cumulative hazard by the horizon as a linear function of a basis of log(-log S)."""

    design: Callable[[FloatArray], FloatArray]  # the basis at predicted survival, (k,) -> (k, d)
    coefficients: FloatArray  # shape (d,)
    covariance: FloatArray  # of the coefficients, shape (d, d)
    identity: FloatArray  # coefficients with which predictions are observed as they are, shape (d,)

    @classmethod
    def of(cls, rows: HorizonRows) -> _Curve:
        """Fit the curve to pseudo-values."""
        z = _places(rows, "the calibration curve")
        centre, scale, varies = z.mean(), z.std(), _varies(z)
        knots = np.quantile(z, _KNOTS)
        if not (np.diff(knots) > 0.0).all() or np.unique(z).size < 3:
            knots = knots[:0]

        def design(survival: FloatArray) -> FloatArray:
            columns = [np.ones((survival.size, 1))]
            if varies:  # coefficients of covariates of one size are found in fewer iterations
                columns.append(_basis((_log_log(survival) - centre) / scale, (knots - centre) / scale))
            return np.column_stack(columns)

        x = design(rows.survival)
        regression = _Cloglog.of(rows, x)
        identity = np.zeros(x.shape[1])
        identity[:2] = (centre, scale)[: x.shape[1]]
        distinct, group = np.unique(rows.survival, return_inverse=True)
        if distinct.size <= x.shape[1]:  # as the leaves of a small tree: each has its own observed risk
            weight = np.bincount(group, rows.y.weights)
            risk = np.bincount(group, rows.y.weights * regression.outcome.numpy()) / weight
            inside = np.clip(risk, _LEAST, 1.0 - _LEAST)
            beta: FloatArray = np.linalg.solve(design(distinct), _log_log(1.0 - inside)).astype(np.float64)
            if (inside != risk).any():  # no event in one of them, or nothing else: no variance
                unknown = np.full((beta.size, beta.size), np.nan)
                return cls(design, beta, unknown, identity)
        else:
            beta = regression.fitted(identity)
        return cls(design, beta, covariance_of(regression.influence(beta), rows.y.id), identity)

    def observed(self, survival: FloatArray, error: float | FloatArray = 0.0) -> FloatArray:
        """Observed survival at predictions, (k,), moved by an error on the scale of log(-log S)."""
        # Row by row, where a matrix product would round equal rows differently, which then are no ties.
        place = (self.design(survival) * self.coefficients).sum(axis=1)
        return np.asarray(np.exp(-np.exp(place + error)))


def _basis(z: FloatArray, knots: FloatArray) -> FloatArray:
    """z, and with knots the cubic term that is linear outside of them (Harrell 2015, 2.4.5), (n, 1 or 2)."""
    if knots.size == 0:
        return z[:, None]
    first, middle, last = knots
    cubes = np.clip(z[:, None] - knots, 0.0, None) ** 3
    weights = np.array([1.0, -(last - first) / (last - middle), (middle - first) / (last - middle)])
    return np.column_stack([z, cubes @ weights / (last - first) ** 2])
