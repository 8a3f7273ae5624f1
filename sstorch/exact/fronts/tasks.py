"""Objectives of two totals: confusion counts, and errors under a limit on the disparity of two groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor
from numbers import Real
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, check_same_order, is_number_of
from sstorch.exact.rows import check_weights, finite_vector
from sstorch.exceptions import ConfigError, DataError

Metric = Literal["accuracy", "f1", "mcc"]
Parity = Literal["demographic_parity", "equal_opportunity"]


@dataclass(frozen=True)
class FrontTask:
    """An objective that is a function of two totals over leaves, integers.

    Each leaf takes one of K decisions, such as a class; a row then adds its point under this decision to the
    totals. Without a `limit` both totals are costs: (a, b) is beaten by points with neither cost larger. With
    one the second total is signed and has to end within ± `limit`: (a, b) is beaten by points with the same b
    and no larger a. Addition preserves both orders (Theorem 4.6 of the reference).

    Raises:
        ConfigError: points of another type or shape, or too large to be added exactly.

    References:
        van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS 36.
    """

    points: IntArray  #: (2, K, N) int64, of rows under each decision; sums of absolute values below 2^53
    #: Of totals (n, 2), (n,): larger is better; it never falls when the first total falls, or the second one,
    #: with a limit its absolute value.
    score: Callable[[IntArray], FloatArray]
    names: tuple[str, str]  #: of the totals
    unit: tuple[float, float] = (1, 1)  #: what 1 is in each total, in the user's units
    limit: int | None = None

    def __post_init__(self) -> None:
        points = self.points
        if points.dtype != np.int64 or points.ndim != 3 or len(points) != 2:
            raise ConfigError(
                f"points must be int64 of shape (2, K, N), got {points.dtype} of {points.shape}"
            )
        if np.abs(points).max(axis=1).sum(axis=1, dtype=np.float64).max() >= 2.0**53:
            raise ConfigError("points: totals of 2**53 and more are not exact; use smaller weights")


def two_values(name: str, values: npt.ArrayLike, meaning: str) -> IntArray:
    """A column (N,) of 0 and 1, of both, as integers. Raises DataError: it is not."""
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise DataError(f"{name} must be a column of 0 and 1, got the shape {array.shape}")
    if len(other := array[~np.isin(array, (0, 1))]):
        raise DataError(f"{name} must be 0 and 1 ({meaning}), got {other[0]!r}")
    whole = array.astype(np.int64)
    if whole.min() == whole.max():
        raise DataError(f"{name}: all rows are {whole[0]}, there are not two {name} values")
    return whole


def exact_weights(weight: npt.ArrayLike | None, n_rows: int) -> IntArray:
    """Weights as integers. Raises DataError: see `check_weights`; ConfigError: they are not whole."""
    array = check_weights(weight, n_rows)
    if (array != np.rint(array)).any():
        raise ConfigError(
            "sample_weight must be whole numbers for fronts and areas, which are compared exactly; round "
            "them, such as np.round(1024 * sample_weight)"
        )
    return array.astype(np.int64)


def confusion_front(
    y: npt.ArrayLike, metric: Metric = "f1", *, sample_weight: npt.ArrayLike | None = None
) -> FrontTask:
    """Task of false negatives and false positives of classification trees.

    A leaf with P positive and N negative rows adds (P, 0) as class 0, or (0, N) as class 1; the class can
    differ from its majority. Every metric that falls with both numbers has its optimum on the front.

    Args:
        y: 0 or 1, shape (N,).
        metric: ``"accuracy"``, ``"f1"``, or ``"mcc"`` (0 if negative or undefined).
        sample_weight: whole numbers, since other weights cannot be added exactly; None for 1.

    Raises:
        DataError: labels other than 0 and 1, a single label, or invalid weights.
        ConfigError: an unknown metric, or weights that are not whole.

    References:
        Demirović and Stuckey (2021), Optimal decision trees for nonlinear metrics, AAAI 35.
    """
    labels = two_values("y", y, "1 is positive")
    weight = exact_weights(sample_weight, len(labels))
    negatives, positives = np.bincount(labels, weight).tolist()
    if not (positives and negatives):
        raise ConfigError("sample_weight: all rows of one class have the weight 0")
    check_choice(metric, "metric", get_args(Metric))

    def score(totals: IntArray) -> FloatArray:
        # MCC is (t - f) sqrt(PN) / sqrt(q (P + N - q)), q = tP + fN, for rates of true and false positives
        # t > f. The logarithm's derivative by t is 1 / (t - f) - P / 2q + P / 2(P + N - q), and 2q / P >= 2t
        # > t - f: it rises with t, and, with the classes exchanged, falls with f.
        missed, alarmed = totals.astype(np.float64).T
        if metric == "f1":
            hits: FloatArray = 2.0 * (positives - missed)
            return np.asarray(hits / (hits + missed + alarmed))
        if metric == "accuracy":
            return np.asarray(1.0 - (missed + alarmed) / (positives + negatives))
        errors = missed / positives + alarmed / negatives
        flagged = positives - missed + alarmed
        spread = flagged * (positives + negatives - flagged)
        mcc = (1.0 - errors) * np.sqrt(positives * negatives / np.where(spread > 0.0, spread, 1.0))
        return np.where((spread > 0.0) & (mcc > 0.0), mcc, 0.0)

    points = np.zeros((2, 2, len(labels)), dtype=np.int64)
    points[0, 0], points[1, 1] = weight * labels, weight * (1 - labels)
    return FrontTask(points, score, ("false negatives", "false positives"))


def group_fairness(
    y: npt.ArrayLike,
    group: npt.ArrayLike,
    parity: Parity = "demographic_parity",
    *,
    max_disparity: float = 0.05,
    sample_weight: npt.ArrayLike | None = None,
) -> FrontTask:
    """Task of fewest errors of trees that give two groups class 1 about equally often; the score is accuracy.

    With n_g of N_g rows of group g, by weight, in the leaves of class 1, the disparity is n_0 / N_0 less
    n_1 / N_1. Times N_0 N_1 it is an integer and a sum over leaves, so its limit is met exactly.

    Args:
        y: 0 or 1, shape (N,).
        group: 0 or 1, the sensitive group of each row, (N,); leave it out of the features.
        parity: ``"demographic_parity"`` compares all rows of the groups, ``"equal_opportunity"`` those with
            y = 1.
        max_disparity: the limit, 0 to 1, taken as the decimal number it is written as.
        sample_weight: whole numbers; None counts each row once.

    Raises:
        DataError: labels or groups other than 0 and 1, either all alike, a group without rows to compare, or
            wrong weights.
        ConfigError: an unknown parity, a limit out of its range, or weights that are not whole.

    References:
        van der Linden, de Weerdt and Demirović (2022), Fair and optimal decision trees: a dynamic programming
        approach, NeurIPS 35.
    """
    check_choice(parity, "parity", get_args(Parity))
    if not is_number_of(max_disparity, Real) or not 0.0 <= max_disparity <= 1.0:
        raise ConfigError(f"max_disparity must be a number from 0 to 1, got {max_disparity!r}")
    check_same_order(y=y, group=group, sample_weight=sample_weight)
    labels = two_values("y", y, "1 is positive")
    finite_vector(group, "group", len(labels))
    groups = two_values("group", group, "of two groups; merge others")
    weight = exact_weights(sample_weight, len(labels))
    counted = np.where((labels == 1) | (parity == "demographic_parity"), weight, 0)
    sizes = [int(counted[groups == number].sum()) for number in range(2)]
    if 0 in sizes:
        raise DataError(f"group: no row of group {sizes.index(0)} is compared, so there is no share of it")
    scale = sizes[0] * sizes[1]
    if scale >= 2**52:
        raise ConfigError("too many rows, or too large weights, for exact sums: use smaller sample_weight")
    # Class 0: its errors, and no disparity. Class 1: its errors, and its part of N_1 n_0 - N_0 n_1.
    points, total = np.zeros((2, 2, len(labels)), dtype=np.int64), float(weight.sum())
    points[0, 0], points[0, 1] = weight * labels, weight * (1 - labels)
    points[1, 1] = counted * np.where(groups == 0, sizes[1], -sizes[0])
    limit = floor(Fraction(Decimal(repr(float(max_disparity)))) * scale)

    def score(totals: IntArray) -> FloatArray:
        accuracy: FloatArray = 1.0 - totals[:, 0] / total
        return accuracy

    return FrontTask(points, score, ("errors", "disparity"), (1, 1.0 / scale), limit)
