"""Cox regression on one or two functions of a prediction, without a penalty, with Efron's ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.exceptions import DataError

_MOST_STEPS = 50
# Of the gain that Newton's step still promises, beside the partial likelihood.
_TOLERANCE = 1e-12
# Coefficients of standardised covariates, and their errors, that only a likelihood without a maximum has.
_LARGEST, _LARGEST_ERROR = 50.0, 100.0


@dataclass(frozen=True, eq=False)
class CoxRegression:
    """A fitted proportional hazards model.

    Attributes:
        coefficients: shape (p,).
        covariance: inverse information, shape (p, p).
        times: time of each event, never falling, shape (m,).
        centre: mean covariates, which the hazard below belongs to, shape (p,).
        hazard: steps of the cumulative hazard at the centre, an event each, shape (m,).
        mean: covariates less the centre, weighted over those at risk of each event, shape (m, p).
    """

    coefficients: FloatArray
    covariance: FloatArray
    times: FloatArray
    centre: FloatArray
    hazard: FloatArray
    mean: FloatArray

    def cumulative_hazard(self, x: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
        """Cumulative hazard by t at covariates x, (k, p), and its standard error, each (k,).

        References:
            Tsiatis (1981), Annals of Statistics 9, 93-108, for the variance.
        """
        before = self.times <= t
        step, offset = self.hazard[before], x - self.centre
        total = float(step.sum())
        # Row by row, where a matrix product would round equal rows differently, which then are no ties.
        relative = np.exp((offset * self.coefficients).sum(axis=1))
        slope = offset * total - step @ self.mean[before]
        variance = (step**2).sum() + np.einsum("kp,pq,kq->k", slope, self.covariance, slope)
        return relative * total, relative * np.sqrt(variance)


def fit_cox(time: FloatArray, event: BoolArray, x: FloatArray) -> CoxRegression:
    """Fit a Cox model by Newton's method; rows (n,), of which some have an event, covariates (n, p).

    Raises:
        DataError: a constant covariate, or no finite maximum of the partial likelihood.

    References:
        Efron (1977), Journal of the American Statistical Association 72, 557-565, for ties.
    """
    order = np.argsort(time, kind="stable")
    time, event = time[order], event[order]
    centre = x.mean(axis=0)
    x = x[order] - centre
    scale = x.std(axis=0)
    if (scale <= 1e-12 * (1.0 + np.abs(centre))).any():
        raise DataError("survival: all predictions are equal, and there is nothing to regress on.")
    x = x / scale
    times = time[event]
    first = np.searchsorted(time, times)  # of those at risk
    group = np.searchsorted(times, times)  # first event of the same time
    n_tied = np.searchsorted(times, times, side="right") - group
    share = (np.arange(times.size) - group) / n_tied  # of the tied ones that have left already
    products = x[:, :, None] * x[:, None, :]
    observed = x[event].sum(axis=0)

    def at_risk(values: FloatArray) -> FloatArray:
        """Weighted sums over those at risk at each event, tied ones leaving one after the other."""
        tail = np.cumsum(values[::-1], axis=0)[::-1][first]
        tied = np.add.reduceat(values[event], np.unique(group), axis=0)
        shape = (-1, *(1,) * (values.ndim - 1))
        sums: FloatArray = tail - share.reshape(shape) * tied[np.unique(group, return_inverse=True)[1]]
        return sums

    def likelihood(beta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Its logarithm, gradient and information, hazard steps and means.

        Minus infinity where weights of those at risk underflow: then ``beta`` is too far away.
        """
        score = x @ beta
        relative = np.exp(score - score.max())
        total = at_risk(relative)
        if not (total > 0.0).all():
            return -np.inf, np.full_like(beta, np.nan), np.full((beta.size, beta.size), np.nan), total, total
        mean = at_risk(relative[:, None] * x) / total[:, None]
        square = at_risk(relative[:, None, None] * products) / total[:, None, None]
        value = float(observed @ beta - (np.log(total) + score.max()).sum())
        information = (square - mean[:, :, None] * mean[:, None, :]).sum(axis=0)
        return value, observed - mean.sum(axis=0), information, np.exp(-score.max()) / total, mean

    beta = np.zeros(x.shape[1])
    value, gradient, information, hazard, mean = likelihood(beta)
    for _ in range(_MOST_STEPS):
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            break
        gain = float(gradient @ step)
        if not np.isfinite(gain) or np.abs(beta).max() > _LARGEST:
            break
        if gain <= _TOLERANCE * (1.0 + abs(value)):
            if np.linalg.eigvalsh(information)[0] < 1.0 / _LARGEST_ERROR**2:
                break
            covariance: FloatArray = np.linalg.inv(information) / np.outer(scale, scale)
            return CoxRegression(beta / scale, covariance, times, centre, hazard, mean * scale)
        length = 1.0
        while (trial := likelihood(beta + length * step))[0] < value and length > 1e-8:
            length *= 0.5
        beta = beta + length * step
        value, gradient, information, hazard, mean = trial
    raise DataError(
        f"a Cox regression on the predictions of {time.size} rows with {times.size} events has no finite "
        "maximum: the predictions order the events perfectly, or there are too few events."
    )
