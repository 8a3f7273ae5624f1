"""Objectives of two totals: confusion counts, fairness between two groups; their protocol and its check."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import floor
from numbers import Real
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_choice, check_same_order, is_number_of
from sstorch.exact.rows import check_weights, finite_vector
from sstorch.exceptions import ConfigError, DataError

_WEIGHT_BITS = 20

Metric = Literal["accuracy", "balanced_accuracy", "f1", "mcc"]
Parity = Literal["demographic_parity", "equal_opportunity"]


class FrontTask(Protocol):
    """An objective that is a function of two totals over leaves, integers.

    Each leaf takes one of K decisions, such as a class; a row then adds its point under this decision, two
    integers, to the totals. Of the trees below a node only those stay that another does not beat:

    * ``"pareto"``: both totals are costs; (a, b) is beaten by points with neither cost larger.
    * ``"balance"``: the first total is a cost, the other is signed, and has to end within ± `limit`; (a, b)
      is beaten by points with the same b and no larger a. Before the end nothing else can be said, since what
      is missing on one side can be made up for on the other.

    Addition preserves both orders: a solution dominated below a node is dominated at the root (Theorem 4.6 of
    the reference). Every score that does not decrease when a total improves is optimal on the front of whole
    trees.

    Attributes:
        n_rows: N.
        order: which of the two.
        limit: with ``"balance"``, the largest absolute value of the second total; otherwise not read.
        names: of the totals, in the user's units.
        unit: what 1 is in each total, in the user's units.

    References:
        van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS 36.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def order(self) -> Literal["pareto", "balance"]: ...  # noqa: D102
    @property
    def limit(self) -> int: ...  # noqa: D102
    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def unit(self) -> tuple[float, ...]: ...  # noqa: D102

    def row_points(self) -> IntArray:
        """The point of each row under each decision, (2, K, N) int64; sums of absolute values below 2^53."""
        ...

    def score(self, totals: IntArray) -> FloatArray:
        """(n,), how good totals (n, 2) are: larger is better, and never falls when a total improves.

        With ``"balance"`` to improve is: a smaller first total, another one nearer to 0.
        """
        ...


def two_values(name: str, values: npt.ArrayLike, meaning: str) -> IntArray:
    """A column (N,) of 0 and 1, of both, as integers; messages name it and the meaning of 1.

    Raises:
        DataError: not one-dimensional, another value, or only one of the two.
    """
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise DataError(f"{name} must be a column of 0 and 1, got the shape {array.shape}")
    if len(other := array[~np.isin(array, (0, 1))]):
        raise DataError(f"{name} must be 0 and 1 ({meaning}), got {other[0]!r}")
    whole = array.astype(np.int64)
    if whole.min() == whole.max():
        raise DataError(f"{name}: all rows are {whole[0]}, there are not two {name} values")
    return whole


def exact_weights(weight: npt.ArrayLike | None, n_rows: int) -> tuple[IntArray, float]:
    """Weights as integers, and what 1 of them is.

    Raises:
        DataError: see `check_weights`.
        ConfigError: weights that are not multiples of 2**-20.
    """
    array = check_weights(weight, n_rows)
    for bits in range(_WEIGHT_BITS + 1):
        scaled = array * 2.0**bits
        if (scaled == np.round(scaled)).all():
            return scaled.astype(np.int64), 2.0**-bits
    raise ConfigError(
        f"sample_weight: fronts are compared exactly and take multiples of 2**-{_WEIGHT_BITS} only; round "
        "them, such as np.round(sample_weight * 1024) / 1024"
    )


class ConfusionFront:
    """Pareto front of false negatives and false positives of classification trees.

    A leaf with P positive and N negative rows adds (P, 0) as class 0, or (0, N) as class 1. Every metric that
    is non-increasing in both numbers has its optimum on the front; one search finds all optima. The class of
    a leaf can differ from its majority.

    Args:
        y: 0 or 1, shape (N,).
        sample_weight: multiples of 2**-20, such as integers, since other weights cannot be added exactly;
            None for 1.
        metric: ``"accuracy"``, ``"balanced_accuracy"``, ``"f1"``, ``"mcc"`` (0 if negative or undefined).

    Raises:
        DataError: labels other than 0 and 1, a single label, or invalid weights.
        ConfigError: an unknown metric, or weights that are not exact.

    References:
        Demirović and Stuckey (2021), Optimal decision trees for nonlinear metrics, AAAI 35.
    """

    order: Literal["pareto"] = "pareto"
    limit = 0
    names = ("false negatives", "false positives")

    def __init__(
        self, y: npt.ArrayLike, *, sample_weight: npt.ArrayLike | None = None, metric: Metric = "f1"
    ) -> None:
        self.y = two_values("y", y, "1 is positive")
        self.weight, unit = exact_weights(sample_weight, len(self.y))
        self.n_rows, self.unit = len(self.y), (unit, unit)
        self.positives = unit * float(self.weight[self.y == 1].sum())
        self.negatives = unit * float(self.weight[self.y == 0].sum())
        if not (self.positives and self.negatives):
            raise ConfigError("sample_weight: all rows of one class have the weight 0")
        check_choice(metric, "metric", get_args(Metric))
        self.metric = metric

    def row_points(self) -> IntArray:
        """As class 0 a positive row is a false negative, as class 1 a negative one a false positive."""
        points = np.zeros((2, 2, self.n_rows), dtype=np.int64)
        points[0, 0], points[1, 1] = self.weight * self.y, self.weight * (1 - self.y)
        return points

    def score(self, totals: IntArray) -> FloatArray:
        """The metric.

        MCC is (t - f) sqrt(PN) / sqrt(q (P + N - q)), q = tP + fN, for rates of true and false positives
        t > f. The logarithm's derivative by t is 1 / (t - f) - P / 2q + P / 2(P + N - q), and 2q / P >= 2t >
        t - f: it rises with t, and, with the classes exchanged, falls with f.
        """
        missed, alarmed = (totals * np.array(self.unit)).T
        positives, negatives = self.positives, self.negatives
        if self.metric == "f1":
            hits: FloatArray = 2.0 * (positives - missed)
            return np.asarray(hits / (hits + missed + alarmed))
        errors = missed / positives + alarmed / negatives
        if self.metric == "balanced_accuracy":
            return np.asarray(1.0 - errors / 2.0)
        if self.metric == "accuracy":
            return np.asarray(1.0 - (missed + alarmed) / (positives + negatives))
        flagged = positives - missed + alarmed
        rates = 1.0 - missed / positives - alarmed / negatives
        spread = flagged * (positives + negatives - flagged)
        score = rates * np.sqrt(positives * negatives / np.where(spread > 0.0, spread, 1.0))
        return np.where((spread > 0.0) & (rates > 0.0), score, 0.0)


class GroupFairness:
    """Fewest errors of trees that give two groups class 1 about equally often.

    With n_g of N_g rows of group g, by weight, in the leaves of class 1, the disparity is n_0 / N_0 less
    n_1 / N_1. Times N_0 N_1 it is an integer and a sum over leaves, so the limit on its absolute value is met
    exactly, without a tolerance. The tree may split on every column it is given: leave the sensitive one out
    of the features if it should not.

    Args:
        y: 0 or 1, shape (N,).
        group: 0 or 1, the sensitive group of each row.
        parity: ``"demographic_parity"`` compares all rows of the groups, ``"equal_opportunity"`` those with
            y = 1.
        sample_weight: multiples of 2**-20 (whole numbers, say); None counts each row once. Censoring weights
            have to be rounded first.
        max_disparity: the limit, 0 to 1, taken as the decimal number it is written as.

    Raises:
        DataError: labels or groups other than 0 and 1, either all alike, a group without rows to compare, or
            wrong weights.
        ConfigError: an unknown parity, a limit out of its range, or weights that are not exact.

    References:
        van der Linden, de Weerdt and Demirović (2022), Fair and optimal decision trees: a dynamic programming
        approach, NeurIPS 35.
    """

    order: Literal["balance"] = "balance"
    names = ("errors", "disparity")

    def __init__(
        self,
        y: npt.ArrayLike,
        group: npt.ArrayLike,
        parity: Parity = "demographic_parity",
        *,
        sample_weight: npt.ArrayLike | None = None,
        max_disparity: float = 0.05,
    ) -> None:
        check_choice(parity, "parity", get_args(Parity))
        if not is_number_of(max_disparity, Real) or not 0.0 <= max_disparity <= 1.0:
            raise ConfigError(f"max_disparity must be a number from 0 to 1, got {max_disparity!r}")
        check_same_order(y=y, group=group, sample_weight=sample_weight)
        self.y = two_values("y", y, "1 is positive")
        self.parity, self.max_disparity, self.n_rows = parity, max_disparity, len(self.y)
        self.group = _groups(group, self.n_rows)
        self.weight, unit = exact_weights(sample_weight, self.n_rows)
        counted = np.where(_compared(self.y, parity), self.weight, 0)
        sizes = [int(total) for total in _sizes(counted, self.group)]
        scale = sizes[0] * sizes[1]
        if scale >= 2**52:
            raise ConfigError("too many rows, or too fine weights, for exact sums: use coarser sample_weight")
        self._balance = counted * np.where(self.group == 0, sizes[1], -sizes[0])
        self.limit = floor(Fraction(Decimal(repr(float(max_disparity)))) * scale)
        self.unit = (unit, 1.0 / scale)
        self.total_weight = unit * float(self.weight.sum())

    def row_points(self) -> IntArray:
        """Class 0: its errors, and no disparity. Class 1: its errors, and its part of N_1 n_0 - N_0 n_1."""
        points = np.zeros((2, 2, self.n_rows), dtype=np.int64)
        points[0, 0], points[0, 1] = self.weight * self.y, self.weight * (1 - self.y)
        points[1, 1] = self._balance
        return points

    def score(self, totals: IntArray) -> FloatArray:
        """Accuracy."""
        scores: FloatArray = 1.0 - totals[:, 0] / (self.total_weight / self.unit[0])
        return scores


def _groups(group: npt.ArrayLike, n_rows: int) -> IntArray:
    """Group of each row, (N,), 0 or 1. Raises DataError: other numbers, another length, or one group."""
    finite_vector(group, "group", n_rows)
    return two_values("group", group, "of two groups; merge others")


def _compared(y: npt.ArrayLike, parity: Parity) -> BoolArray:
    """The rows whose predictions are compared, (N,)."""
    compared: BoolArray = (np.asarray(y) == 1) | (parity == "demographic_parity")
    return compared


def _sizes(counted: FloatArray | IntArray, group: IntArray) -> FloatArray:
    """Weight of both groups. Raises DataError: one has none."""
    sizes = np.bincount(group, counted, 2).astype(np.float64)
    if not sizes.all():
        raise DataError(f"group: no row of group {sizes.argmin()} is compared, so there is no share of it")
    return sizes


def disparity(
    predicted: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    y: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Difference of the mean predictions of groups, on any rows: of all, or of those with y = 1.

    Args:
        predicted: of each row, shape (n,): classes 0 and 1, whose mean is the share that gets class 1, or
            predicted survival.
        group: group of each row, 0 or 1.
        y: None for all rows (demographic parity); the true classes for equal opportunity.
        sample_weight: weight of each row, or None.

    Returns:
        Mean of group 0 less that of group 1, with the sizes that the groups have in these rows.

    Raises:
        DataError: unequal lengths, predictions that are not finite, other groups, or one without rows.
    """
    values = finite_vector(predicted, "predicted")
    groups = _groups(group, len(values))
    weight = check_weights(sample_weight, len(groups), predicted=predicted, group=group, y=y)
    if y is not None:
        weight = weight * _compared(finite_vector(y, "y", len(groups)), "equal_opportunity")
    means = np.bincount(groups, weight * values, 2) / _sizes(weight, groups)
    return float(means[0] - means[1])


def check_front_task(task: FrontTask, *, n_trials: int = 50, seed: int = 0) -> None:
    """Test whether points of rows are integers small enough to be added exactly, and the score never falls.

    Args:
        task: the objective.
        n_trials: random trees whose totals are improved.
        seed: seed of the random choices.

    Raises:
        ConfigError: the first check that fails, with the numbers.
    """
    points = task.row_points()
    if points.dtype != np.int64 or points.ndim != 3 or points.shape[::2] != (2, task.n_rows):
        raise ConfigError(
            f"row_points must be int64 of shape (2, K, {task.n_rows}), got {points.dtype} of {points.shape}"
        )
    if np.abs(points).max(axis=1).sum(axis=1, dtype=np.float64).max() >= 2.0**53:
        raise ConfigError("row_points: totals of 2**53 and more are not exact; use coarser weights")
    rng = np.random.default_rng(seed)
    decision = rng.integers(0, points.shape[1], (n_trials, task.n_rows))
    totals = points[:, decision, np.arange(task.n_rows)].sum(axis=-1)
    # Between the least and largest totals met, a better total never has a smaller score.
    low, high = totals.min(axis=1), totals.max(axis=1)
    if task.order == "balance":
        low[1], high[1] = 0, min(task.limit, np.abs(totals[1]).max())
    worse, rows = rng.integers(low, high + 1, (400, 2)), np.arange(400)
    better, changed = worse.copy(), rng.integers(0, 2, 400)
    better[rows, changed] = rng.integers(low[changed], worse[rows, changed] + 1)
    fallen = np.flatnonzero(~(task.score(better) >= task.score(worse) - 1e-12))
    if len(fallen):
        i = fallen[0]
        raise ConfigError(
            f"score: totals {better[i].tolist()} are better than {worse[i].tolist()}, but score less: "
            f"{task.score(better[i : i + 1])[0]:.6g} < {task.score(worse[i : i + 1])[0]:.6g}"
        )
