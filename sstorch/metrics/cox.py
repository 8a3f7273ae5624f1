"""Cox regression on one or two functions of a prediction, without a penalty, with Efron's ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exceptions import DataError
from sstorch.metrics.outcome import Observed

_MOST_STEPS = 50
# Of the gain that Newton's step still promises, relative to the partial likelihood.
_TOLERANCE = 1e-12
# Coefficients of standardised covariates, and their errors, that only a likelihood without a maximum has.
_LARGEST, _LARGEST_ERROR = 50.0, 100.0


@dataclass(frozen=True, eq=False)
class CoxRegression:
    """A fitted proportional hazards model."""

    coefficients: FloatArray  # shape (p,)
    covariance: FloatArray  # inverse information, shape (p, p)
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
    value, gradient, information, hazard, mean = likelihood(beta)
    for _ in range(_MOST_STEPS):
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            break
        gain = float(gradient @ step)
        if not np.isfinite(gain) or np.abs(beta).max() > _LARGEST:
            break
        if at is not None or gain <= _TOLERANCE * (1.0 + abs(value)):
            # Weights of another scale scale the information alike.
            if np.linalg.eigvalsh(information / mass.mean())[0] < 1.0 / _LARGEST_ERROR**2:
                break
            inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
            moved, hazard_moved = influences(beta, inverse, hazard, mean)
            covariance: FloatArray = inverse / np.outer(scale, scale)
            return CoxRegression(beta / scale, covariance, centre, hazard, mean * scale, moved, hazard_moved)
        length = 1.0
        while (trial := likelihood(beta + length * step))[0] < value and length > 1e-8:
            length *= 0.5
        beta = beta + length * step
        value, gradient, information, hazard, mean = trial
    raise DataError(
        f"a Cox regression on the predictions of {time.size} rows with {times.size} events has no finite "
        "maximum: the predictions order the events perfectly, or there are too few events."
    )
