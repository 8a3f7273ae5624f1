"""Calibration in the moderate sense: predictions compared with a flexible regression of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_share
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import Estimate
from sstorch.metrics.horizon import HorizonRows, fit_cloglog, pseudo_values
from sstorch.metrics.weak_calibration import check_varies, fit_cox, log_log
from sstorch.metrics.weights import covariance_of

# Quantiles at which the knots are, as Harrell places three of them.
_KNOTS = (0.1, 0.5, 0.9)
_POINTS = 100
_ROUNDING = 1e-12  # of shares of weights
# Of limits: draws of curves, and how multiples of the deviation are searched.
_DRAWS, _HALVINGS, _LARGEST_MULTIPLE = 2000, 10, 2.0**12
_SUMMARIES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "ici": lambda distance: np.asarray(distance.mean(axis=-1)),
    "e50": lambda distance: np.asarray(np.quantile(distance, 0.5, axis=-1)),
    "e90": lambda distance: np.asarray(np.quantile(distance, 0.9, axis=-1)),
    "e_max": lambda distance: np.asarray(distance.max(axis=-1)),
}


class CalibrationErrors(NamedTuple):
    """Distances between predicted and smoothed observed survival, summarised over rows.

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


def calibration_errors(rows: HorizonRows, curve: _Curve | None = None) -> CalibrationErrors:
    """ICI, E50, E90 and Emax: distances of predictions from the calibration curve of a hazard regression.

    Observed survival is estimated by a Cox model of these rows, followed up to t, on a restricted cubic
    spline of log(-log S_i(t)) with three knots at its 10, 50 and 90 % quantiles. If quantiles coincide (few
    distinct predictions), log(-log S_i(t)) is linear. With left truncation rows are at risk from entry on.
    With competing causes the observed incidence is a regression of pseudo-values on the same spline, with a
    complementary log-log link. `integrated_calibration_index` smooths pseudo-observations; its values differ.

    Args:
        rows: outcomes and predictions at the horizon t.
        curve: the calibration curve, if already fitted.

    Returns:
        The four distances, in [0, 1], 0 is best.

    Raises:
        DataError: no event by t, predictions of 0 or 1 or that are all equal, late entry with competing
            causes, or a regression without a finite optimum.

    References:
        Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742; Austin, Putter,
        Giardiello and van Klaveren (2022), Diagnostic and Prognostic Research 6, 2, for competing causes.

    Examples:
        >>> y = [1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 0]
        >>> errors = calibration_errors(HorizonRows.of(y, [0.3, 0.6, 0.6, 0.6, 0.3, 0.6], 4))
        >>> [round(part, 2) for part in errors]
        [0.1, 0.08, 0.15, 0.15]
    """
    curve = _refit(rows) if curve is None else curve
    distance = np.abs(curve.observed(rows.survival) - rows.survival)
    e50, e90 = np.quantile(distance, [0.5, 0.9])
    if rows.weight is not None:
        order = np.argsort(distance, kind="stable")
        share = np.cumsum(rows.weight[order]) / rows.weight.sum()
        half, most = np.searchsorted(share, np.array([0.5, 0.9]) - _ROUNDING)
        e50, e90 = distance[order[half]], distance[order[most]]
    mean = float(np.average(distance, weights=rows.weight))
    return CalibrationErrors(mean, float(e50), float(e90), float(distance.max()))


def calibration_error_interval(
    rows: HorizonRows, level: float = 0.95, *, name: str = "ici"
) -> Estimate[float]:
    """ICI, E50, E90 or Emax of `calibration_errors`, with limits that reach 0 for calibrated predictions.

    Sampling error of the calibration curve increases every distance: estimates are biased upwards, and
    bootstrap percentiles even more. These limits invert a test. Under the hypothesis the deviation of the
    calibration curve from the diagonal is a multiple of the estimated deviation. For each multiple, the
    distribution of the estimate is simulated from the normal distribution of the d coefficients of the curve.
    Their variance is the estimated one; for a multiple of 0 (Cox models without weights) it is the variance
    under calibration. A multiple is accepted if its region of probability ``level`` contains the estimate.
    The region is the shortest interval of the estimate; for E50, which is near 0 wherever the curve crosses
    the diagonal, of the estimate to the power of d, the volume of coefficients at this distance. Coverage of
    95 % limits: ``experiments/validation``.

    Rows and errors are as in `calibration_errors`; `name` is "ici", "e50", "e90" or "e_max"; `level` is
    in (0, 1).

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> risk = rng.uniform(0.2, 0.8, 400)
        >>> time = rng.exponential(-1 / np.log(1 - risk))
        >>> estimate = calibration_error_interval(HorizonRows.of((time, np.ones(400)), 1 - risk, 1.0))
        >>> [round(part, 3) for part in estimate]
        [0.021, 0.0, 0.039]
    """
    check_choice(name, "name", CalibrationErrors._fields)
    check_share(level, "level")
    test = ErrorTest(rows, name, level)
    value = float(getattr(calibration_errors(rows, test.curve), name))
    lower, upper = test.limits()
    return Estimate(value, min(lower, value), max(upper, value))


class ErrorTest:
    """Tests of what an error of calibration truly is, whose inversion gives its limits.

    Attributes:
        curve: the calibration curve of the rows.
        estimate: of the error, at predictions that represent those of all rows.
    """

    def __init__(self, rows: HorizonRows, name: str, level: float = 0.95) -> None:
        self.curve = curve = _refit(rows)
        self._points, self._summary, self._level = _representative(rows), _SUMMARIES[name], level
        x = curve.design(self._points)
        self._calibrated, self._deviation = x @ curve.identity, x @ (curve.coefficients - curve.identity)
        # In simulations it held limits of E50 to their level, and those of the others less well than length.
        self._power = x.shape[1] if name == "e50" else 1
        draws = np.random.default_rng(0).normal(size=(_DRAWS, x.shape[1]))
        self._noise = draws @ _root(curve.covariance).T @ x.T
        self._calibrated_noise = draws @ _root(curve.calibrated()).T @ x.T
        self.estimate = self.at(1.0)

    def at(self, multiple: float, noise: FloatArray | float = 0.0) -> FloatArray:
        """The summary where the curve deviates from the diagonal by a multiple of the estimated deviation."""
        with np.errstate(over="ignore"):  # survival of 0
            observed = np.exp(-np.exp(self._calibrated + multiple * self._deviation + noise))
        return self._summary(np.abs(observed - self._points))

    def accepted(self, multiple: float) -> tuple[float, float]:
        """The region that holds the estimate with the probability of the tests, at a true multiple."""
        drawn = np.sort(self.at(multiple, self._noise if multiple else self._calibrated_noise))
        kept = int(np.ceil(self._level * drawn.size))
        volume = drawn**self._power
        first = int((volume[kept - 1 :] - volume[: drawn.size - kept + 1]).argmin())
        return float(drawn[first]), float(drawn[first + kept - 1])

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


def _root(covariance: FloatArray) -> FloatArray:
    """A matrix whose product with its transpose is the covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _representative(rows: HorizonRows) -> FloatArray:
    """Predictions that represent those of all rows, each for the same share."""
    shares = np.linspace(0.0, 1.0, _POINTS)
    if rows.weight is None:
        return np.asarray(np.quantile(rows.survival, shares))
    return np.asarray(np.quantile(rows.survival, shares, weights=rows.weight, method="inverted_cdf"))


def hazard_calibration_curve(rows: HorizonRows, level: float = 0.95) -> pd.DataFrame:
    """Compute the calibration curve of `calibration_errors`, with a pointwise band.

    Rows and errors are as in `calibration_errors`; `level` is that of the band, in (0, 1).

    Returns:
        Columns predicted (increasing, at most 100 quantiles of the predictions), observed, lower and upper,
        as in `calibration_curve`. Limits are on the scale of log(-log S) with Tsiatis' variance; with weights
        with the infinitesimal jackknife, with competing causes with the
        sandwich.
    """
    points = np.unique(np.quantile(rows.survival, np.linspace(0.0, 1.0, _POINTS), method="nearest"))
    observed, lower, upper = _refit(rows).band(points, half_width(level))
    return pd.DataFrame({"predicted": points, "observed": observed, "lower": lower, "upper": upper})


@dataclass(frozen=True, eq=False)
class _Curve:
    """Log cumulative hazard by the horizon as a linear function of a basis of log(-log S)."""

    design: Callable[[FloatArray], FloatArray]  # the basis at predicted survival, (k,) -> (k, d)
    coefficients: FloatArray  # shape (d,)
    covariance: FloatArray  # of the coefficients, shape (d, d)
    # the same if predictions are calibrated, where it is known; limits of errors alone need it
    calibrated: Callable[[], FloatArray]
    identity: FloatArray  # coefficients with which predictions are observed as they are, shape (d,)

    def observed(self, survival: FloatArray) -> FloatArray:
        """Observed survival at predictions, (k,)."""
        return self._survival(self._place(survival))

    def band(self, survival: FloatArray, half: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Observed survival and its limits of so many standard errors, (k,) each."""
        place, x = self._place(survival), self.design(survival)
        width = half * np.sqrt(np.einsum("kp,pq,kq->k", x, self.covariance, x))
        observed, lower, upper = (self._survival(place + shift) for shift in (0.0, width, -width))
        return observed, lower, upper

    def _place(self, survival: FloatArray) -> FloatArray:
        # Row by row, where a matrix product would round equal rows differently, which then are no ties.
        return np.asarray((self.design(survival) * self.coefficients).sum(axis=1))

    @staticmethod
    def _survival(place: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-np.exp(place)))


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
    x = _basis(log_log(cut.survival), knots)
    fitted = fit_cox(cut.y, x)
    coefficients, covariance = fitted.log_hazard()
    identity = np.zeros(coefficients.size)
    identity[:2] = fitted.centre[0], 1.0
    if cut.robust:
        covariance = covariance_of(fitted.log_hazard_influence(), cut.subject)

    def calibrated() -> FloatArray:
        if cut.robust:
            return covariance
        total, of_observed = fit_cox(cut.y, x, at=identity[1:]).log_hazard()
        # The information of the expected number of events, not of the observed one.
        return np.asarray(of_observed * np.exp(total[0] - identity[0]))

    def design(survival: FloatArray) -> FloatArray:
        basis = _basis(log_log(survival), knots) - fitted.centre
        return np.column_stack([np.ones(survival.size), basis])

    return _Curve(design, coefficients, covariance, calibrated, identity)


def _of_pseudo_values(rows: HorizonRows, z: FloatArray, knots: FloatArray) -> _Curve:
    rows.check_from_zero("the calibration curve of pseudo-values")
    check_varies(z)
    # Coefficients of covariates of one size are found in fewer iterations.
    centre, scale = z.mean(), z.std()

    def design(survival: FloatArray) -> FloatArray:
        basis = _basis((log_log(survival) - centre) / scale, (knots - centre) / scale)
        return np.column_stack([np.ones(survival.size), basis])

    x = design(rows.survival)
    identity = np.zeros(x.shape[1])
    identity[:2] = centre, scale
    fitted = fit_cloglog(rows, pseudo_values(rows), x, identity)
    return _Curve(design, fitted.coefficients, fitted.covariance, lambda: fitted.covariance, identity)


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
