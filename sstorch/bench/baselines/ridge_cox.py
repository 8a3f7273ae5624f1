"""Cox regression by Newton's method, which needs no package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.bench.baselines.base import Baseline, BreslowBaseline, Encoder, check_range
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import TrainingError
from sstorch.metrics.censoring import risk_sets

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

    penalty: float = 1.0

    def __post_init__(self) -> None:
        check_range("penalty", self.penalty, 1e-6)

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> ProportionalHazards:
        encoder = Encoder(schema, train)
        beta = fit_ridge_cox(encoder.x, train.time, train.event, self.penalty)
        baseline = BreslowBaseline.of(encoder.x @ beta, train.time, train.event)
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
    x: FloatArray, time: FloatArray, event: npt.NDArray[np.bool_], penalty: float
) -> FloatArray:
    """Coefficients of least negative partial log-likelihood plus half the penalty times their squares.

    Args:
        x: features, (n, p).
        time: (n,).
        event: (n,).
        penalty: > 0.

    Raises:
        TrainingError: Newton's method ends without a minimum.
    """
    order = np.argsort(time, kind="stable")
    x, at, event = x[order] - x.mean(axis=0), risk_sets(time[order], event[order]).position, event[order]
    first = np.searchsorted(at, at)  # of the rows with the same time
    beta = np.zeros(x.shape[1])
    value, gradient, hessian = _derivatives(beta, x, event, at, first, penalty)
    for _ in range(_STEPS):
        step = -np.linalg.solve(hessian, gradient)
        decrement = float(-gradient @ step)
        if decrement < _TOLERANCE:
            return np.asarray(beta + step)
        for halving in range(_HALVINGS):
            tried = beta + 0.5**halving * step
            found = _derivatives(tried, x, event, at, first, penalty)
            if found[0] <= value - 1e-4 * 0.5**halving * decrement:
                break
        else:
            break
        beta, (value, gradient, hessian) = tried, found
    raise TrainingError("Cox regression does not converge; give a larger penalty")


def _derivatives(
    beta: FloatArray,
    x: FloatArray,
    event: npt.NDArray[np.bool_],
    at: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    penalty: float,
) -> tuple[float, FloatArray, FloatArray]:
    """Value, gradient and Hessian of the penalised negative partial log-likelihood; rows sorted by time."""
    score = x @ beta
    largest = float(score.max())
    risk = np.exp(score - largest)
    at_risk = np.cumsum(risk[::-1])[::-1][first]
    means = np.cumsum((risk[:, None] * x)[::-1], axis=0)[::-1][first][event] / at_risk[event, None]
    steps = np.cumsum(np.bincount(at, weights=event / at_risk))[at]  # cumulative hazard of a risk of one
    value = float(np.sum(np.log(at_risk[event]) + largest - score[event]) + 0.5 * penalty * beta @ beta)
    gradient = x.T @ (risk * steps - event) + penalty * beta
    hessian = x.T @ ((risk * steps)[:, None] * x) - means.T @ means + penalty * np.eye(len(beta))
    return value, gradient, hessian
