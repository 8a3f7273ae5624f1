"""False negatives and false positives: every measure of a binary classification that is monotone in both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.optimal.fronts.base import FloatArray, IntArray
from sstorch.optimal.fronts.labels import two_values, whole_weights

Metric = Literal["accuracy", "balanced_accuracy", "f1", "mcc"]
# From false negatives, false positives, positives and negatives to a score.
Measure = Callable[[FloatArray, FloatArray, float, float], FloatArray]


class ConfusionFront:
    """The front of false negatives and false positives of trees that classify.

    A leaf of P positive and N negative rows adds (P, 0) as class 0, or (0, N) as class 1. Any measure that
    never rises with either number has its optimum on the front, and one search serves all of them. Labels
    of leaves are free: a leaf need not have the class of its majority.

    Args:
        y: 0 or 1, shape (N,).
        sample_weight: multiples of 2**-20 (whole numbers, say); None counts each once. Weights other
            than these would not be added exactly: round them first.
        metric: what is best: ``"accuracy"``, ``"balanced_accuracy"``, ``"f1"``, ``"mcc"`` (0 where it is
            negative or not defined), or a function of false negatives (n,), false positives (n,), and the
            weights of all positive and of all negative rows.

    Raises:
        DataError: labels other than 0 and 1, or all alike, or wrong weights.
        ConfigError: an unknown metric, or weights that are not exact.

    References:
        Demirović and Stuckey (2021), Optimal decision trees for nonlinear metrics, AAAI 35.
    """

    order: Literal["pareto"] = "pareto"
    linear = True
    limit = 0
    names = ("false negatives", "false positives")
    offset = (0.0, 0.0)

    def __init__(
        self, y: npt.ArrayLike, *, sample_weight: npt.ArrayLike | None = None, metric: Metric | Measure = "f1"
    ) -> None:
        self.y = two_values("y", y, "positive")
        self.weight, unit = whole_weights(sample_weight, len(self.y))
        self.n_rows, self.unit = len(self.y), (unit, unit)
        self.positives = unit * float(self.weight[self.y == 1].sum())
        self.negatives = unit * float(self.weight[self.y == 0].sum())
        if not (self.positives and self.negatives):
            raise ConfigError("sample_weight: all rows of one class have the weight 0")
        self.metric = metric
        self.score = self.by(metric)

    def channels(self) -> IntArray:
        """Weights of positive and of negative rows, (2, N)."""
        return np.stack([self.weight * self.y, self.weight * (1 - self.y)])

    def points(self, sums: Tensor) -> Tensor:
        """(P, 0) and (0, N)."""
        points = sums.new_zeros(2, 2, *sums.shape[1:])
        points[0, 0], points[1, 1] = sums
        return points

    def totals(self, leaf: IntArray, decision: IntArray) -> IntArray:
        """False negatives and false positives."""
        predicted = decision[leaf]
        missed, alarmed = (self.y == 1) & (predicted == 0), (self.y == 0) & (predicted == 1)
        return np.array([self.weight[missed].sum(), self.weight[alarmed].sum()], dtype=np.int64)

    def by(self, metric: Metric | Measure) -> Callable[[IntArray], FloatArray]:
        """A score for `FrontSolution.best` and `tree`.

        Raises:
            ConfigError: an unknown metric.
        """
        measure = metric if callable(metric) else _MEASURES.get(metric)
        if measure is None:
            raise ConfigError(f"metric={metric!r} does not exist; choose one of {get_args(Metric)}")
        return partial(self._score, measure)

    def _score(self, measure: Measure, totals: IntArray) -> FloatArray:
        missed, alarmed = (totals * np.array(self.unit)).T
        return measure(missed, alarmed, self.positives, self.negatives)


def f_beta(beta: float) -> Measure:
    """The F-beta score, in which recall counts beta times as much as precision; 0 without a hit.

    Raises:
        ConfigError: `beta` is not positive.
    """
    if not 0.0 < beta < float("inf"):
        raise ConfigError(f"beta={beta!r}: expected a positive number")

    def measure(missed: FloatArray, alarmed: FloatArray, positives: float, negatives: float) -> FloatArray:
        hits = (1.0 + beta**2) * (positives - missed)
        found: FloatArray = hits / (hits + beta**2 * missed + alarmed)
        return found

    return measure


def _accuracy(missed: FloatArray, alarmed: FloatArray, positives: float, negatives: float) -> FloatArray:
    found: FloatArray = 1.0 - (missed + alarmed) / (positives + negatives)
    return found


def _balanced(missed: FloatArray, alarmed: FloatArray, positives: float, negatives: float) -> FloatArray:
    found: FloatArray = 1.0 - (missed / positives + alarmed / negatives) / 2.0
    return found


def _mcc(missed: FloatArray, alarmed: FloatArray, positives: float, negatives: float) -> FloatArray:
    """(t - f) sqrt(PN) / sqrt(q (P + N - q)), q = tP + fN, for rates of true and false positives t > f.

    The logarithm's derivative by t is 1 / (t - f) - P / 2q + P / 2(P + N - q), and 2q / P >= 2t > t - f: it
    rises with t, and, with the classes exchanged, falls with f.
    """
    flagged = positives - missed + alarmed
    rest = positives + negatives - flagged
    rates = 1.0 - missed / positives - alarmed / negatives
    spread = flagged * rest
    found = rates * np.sqrt(positives * negatives / np.where(spread > 0.0, spread, 1.0))
    return np.where((spread > 0.0) & (rates > 0.0), found, 0.0)


_MEASURES: dict[str, Measure] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced,
    "f1": f_beta(1.0),
    "mcc": _mcc,
}
