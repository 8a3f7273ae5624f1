"""Pseudo-values of a cumulative incidence, and their regression with a complementary log-log link."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray
from sstorch.exceptions import DataError
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.metrics.incidence import incidence_and_influence
from sstorch.metrics.outcome import ObservedCauses
from sstorch.metrics.weights import covariance_of

_MOST_STEPS = 200
# Of the gain that a step still promises, relative to the loss, and of coefficients.
_TOLERANCE, _PRECISION = 1e-14, 1e-10
# Of coefficients: a factor of e^30 of the hazard.
_FURTHEST = 30.0


def incidence_of(rows: HorizonRows) -> tuple[float, FloatArray]:
    """Cumulative incidence of the event of interest at the horizon, and its derivatives by the weights, (n,).

    The estimate of Aalen and Johansen; without competing causes one minus that of Kaplan and Meier. Times the
    weights, the derivatives are influences: the root of their sum of squares is the error of the estimate.

    References:
        Aalen and Johansen (1978), Scandinavian Journal of Statistics 5, 141-150; Jaeckel (1972), "The
        infinitesimal jackknife", Bell Laboratories memorandum MM 72-1215-11.
    """
    codes = np.where(rows.interest, 1, 2 * rows.event)
    observed = ObservedCauses(rows.time, codes, 2, rows.entry, rows.weight, rows.subject)
    incidence, moved = incidence_and_influence(observed, rows.t)
    return float(incidence[0]), moved[0]


def pseudo_values(rows: HorizonRows) -> FloatArray:
    """Pseudo-values of the incidence at the horizon by the infinitesimal jackknife, (n,).

    The incidence plus the total weight times its derivative by the weight of the row, as R's
    ``survival::pseudo`` has it. Their weighted mean is the incidence, and their scale that of the incidence.

    References:
        Parner, Andersen and Overgaard (2023), Lifetime Data Analysis 29, 654-671.
    """
    value, moved = incidence_of(rows)
    pseudo: FloatArray = value + rows.weights.sum() * moved
    return pseudo


class CloglogFit(NamedTuple):
    """Coefficients (p,) and their sandwich covariance (p, p)."""

    coefficients: FloatArray
    covariance: FloatArray

    def incidence(self, x: FloatArray) -> FloatArray:
        """Incidence at covariates x, (k, p); (k,)."""
        values: FloatArray = -np.expm1(-np.exp((x * self.coefficients).sum(axis=1)))
        return values


def fit_cloglog(rows: HorizonRows, outcome: FloatArray, x: FloatArray, start: FloatArray) -> CloglogFit:
    """Fit F = 1 - exp(-exp(x b)) to pseudo-values Y (n,) by weighted least squares; x is (n, p).

    The estimating equations of independence with a constant variance, sum_i w_i dF_i/db (Y_i - F_i) = 0, as
    ``geese(mean.link = "cloglog", jack = TRUE)`` of R solves them, with the sandwich over subjects.

    References:
        Klein and Andersen (2005), Biometrics 61, 223-229.
    """
    weight = rows.weights / rows.weights.sum()

    def at(beta: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Residuals (n,), derivatives (n, p) and weighted sum of squares."""
        hazard = np.exp(np.clip(x @ beta, -_FURTHEST, _FURTHEST))
        residual = outcome + np.expm1(-hazard)
        return residual, (hazard * np.exp(-hazard))[:, None] * x, float(weight @ residual**2)

    beta, damping, stalled = start.astype(np.float64), 1e-3, False
    residual, slope, loss = at(beta)
    for _ in range(_MOST_STEPS):
        bread = slope.T @ (weight[:, None] * slope)
        gradient = slope.T @ (weight * residual)
        try:
            step = np.linalg.solve(bread + damping * np.diag(np.diag(bread)), gradient)
            newton = np.linalg.solve(bread, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(newton).all() or np.abs(x @ beta).max() > _FURTHEST:
            break
        promised = gradient @ newton <= _TOLERANCE * loss + np.finfo(np.float64).tiny
        if promised and (stalled or np.abs(newton).max() <= _PRECISION * (1.0 + np.abs(beta).max())):
            inverse = np.linalg.inv(bread)
            influence = (weight * residual)[:, None] * slope @ inverse
            return CloglogFit(beta, covariance_of(influence, rows.subject))
        trial = at(beta + step)
        stalled = trial[2] > loss
        if not stalled:
            beta, damping = beta + step, max(damping / 10.0, 1e-12)
            residual, slope, loss = trial
        else:
            damping *= 10.0
            if damping > 1e12:
                break
    raise DataError(
        f"a regression on the predictions of {len(rows)} rows has no finite minimum: all predictions are "
        "equal, they order the events perfectly, or there are too few events."
    )
