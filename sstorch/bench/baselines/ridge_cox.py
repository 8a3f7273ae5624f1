"""Cox regression by Newton's method, which needs no package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.bench.baselines.base import Baseline, BreslowBaseline, Encoder, check_range
from sstorch.data import Schema, Surv, SurvivalData, as_surv
from sstorch.exceptions import TrainingError
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed

_STEPS, _HALVINGS = 50, 30
# Newton's decrement, half the squared length of a step, at which it ends.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class RidgeCox(Baseline):
    """Cox regression with Breslow's ties and baseline hazard, and one ridge.

    Args:
        penalty: the partial log-likelihood, a sum over events, is reduced by half of it times the squared
            coefficients of the features on [0, 1]; above 0, or those of all categories of a column would not
            be determined.

    References:
        Breslow (1974), Biometrics 30, 89-99.
    """

    name: ClassVar[str] = "ridge_cox"
    knows: ClassVar = ("entry", "weights")

    penalty: float = 1.0

    def __post_init__(self) -> None:
        check_range("penalty", self.penalty, 1e-6)

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> ProportionalHazards:
        encoder = Encoder(schema, train)
        y = train.y.weighted(train.uneven_weight)
        beta = fit_ridge_cox(encoder.x, y, self.penalty)
        baseline = BreslowBaseline.of(encoder.x @ beta, y)
        return ProportionalHazards(encoder, beta, baseline)


@dataclass(frozen=True)
class ProportionalHazards:
    """Curves of a Cox model, at the times that are asked for alone: training rows may have many."""

    encoder: Encoder
    coefficients: FloatArray  # of the features that vary in the training rows, (p,)
    baseline: BreslowBaseline

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        return self.baseline.survival(self.encoder(X) @ self.coefficients, times)


def fit_ridge_cox(
    x: FloatArray, y: Surv | tuple[FloatArray, npt.NDArray[np.bool_]], penalty: float
) -> FloatArray:
    """Coefficients of least negative partial log-likelihood plus half the penalty times their squares.

    Args:
        x: features, (n, p).
        y: right-censored outcome of n rows, with entry times and weights where it has them.
        penalty: > 0.

    Raises:
        TrainingError: Newton's method ends without a minimum.
    """
    outcome = as_surv(y)
    (time, event, _), entry = outcome.right_censored("Cox regression"), outcome.entry
    order = np.argsort(time, kind="stable")
    x, at, event = (
        x[order] - x.mean(axis=0),
        risk_sets(Observed(time[order], event[order])).position,
        event[order],
    )
    first = np.searchsorted(at, at)  # of the rows with the same time
    each = np.ones(len(x)) if outcome.weight is None else outcome.weight[order]
    late = None if entry is None else _Late.of(time[order], entry[order])
    beta = np.zeros(x.shape[1])
    value, gradient, hessian = _derivatives(beta, x, event, at, first, penalty, each, late)
    for _ in range(_STEPS):
        step = -np.linalg.solve(hessian, gradient)
        decrement = float(-gradient @ step)
        if decrement < _TOLERANCE:
            return np.asarray(beta + step)
        for halving in range(_HALVINGS):
            tried = beta + 0.5**halving * step
            found = _derivatives(tried, x, event, at, first, penalty, each, late)
            if found[0] <= value - 1e-4 * 0.5**halving * decrement:
                break
        else:
            break
        beta, (value, gradient, hessian) = tried, found
    raise TrainingError("Cox regression does not converge; give a larger penalty")


@dataclass(frozen=True)
class _Late:
    """Which rows are not yet at risk; rows are sorted by time.

    Attributes:
        order: rows in the order of their entry, (n,).
        first: place in that order of the first row that enters at or after the time of each row, (n,).
        before: number of distinct times up to the entry of each row, (n,).
    """

    order: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]

    @classmethod
    def of(cls, time: FloatArray, entry: FloatArray) -> _Late:
        order = np.argsort(entry, kind="stable")
        first = np.searchsorted(entry[order], time, side="left")
        return cls(order, first, np.searchsorted(np.unique(time), entry, side="right"))

    def missing(self, values: FloatArray) -> FloatArray:
        """Sum of values over the rows that enter at or after the time of each row, (n, ...)."""
        sums = np.cumsum(values[self.order][::-1], axis=0)[::-1]
        return np.concatenate([sums, np.zeros_like(sums[:1])])[self.first]


def _derivatives(
    beta: FloatArray,
    x: FloatArray,
    event: npt.NDArray[np.bool_],
    at: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    penalty: float,
    weight: FloatArray,
    late: _Late | None,
) -> tuple[float, FloatArray, FloatArray]:
    """Value, gradient and Hessian of the penalised negative partial log-likelihood; rows sorted by time."""
    score = x @ beta
    largest = float(score.max())
    risk = weight * np.exp(score - largest)
    at_risk, sums = (np.cumsum(v[::-1], axis=0)[::-1][first] for v in (risk, risk[:, None] * x))
    if late is not None:
        # Who leaves at a time is at risk there, whatever rounding leaves of the difference.
        at_risk = np.maximum(at_risk - late.missing(risk), risk)
        sums = sums - late.missing(risk[:, None] * x)
    means = sums[event] / at_risk[event, None]
    hazard = np.cumsum(np.bincount(at, weights=event * weight / at_risk))  # of a risk of one
    steps = hazard[at]
    if late is not None:
        steps = steps - np.append(0.0, hazard)[late.before]
    own = weight[event]
    value = float(own @ (np.log(at_risk[event]) + largest - score[event]) + 0.5 * penalty * beta @ beta)
    gradient = x.T @ (risk * steps - weight * event) + penalty * beta
    hessian = x.T @ ((risk * steps)[:, None] * x) - (own[:, None] * means).T @ means
    return value, gradient, hessian + penalty * np.eye(len(beta))
