"""Objectives of two totals: confusion counts, fairness between two groups."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import floor
from numbers import Real
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, check_same_order, is_number_of
from sstorch.exact.targets import check_weights, finite_vector
from sstorch.exceptions import ConfigError, DataError

_WEIGHT_BITS = 20

Metric = Literal["accuracy", "balanced_accuracy", "f1", "mcc"]
Parity = Literal["demographic_parity", "equal_opportunity"]


def two_values(name: str, values: npt.ArrayLike, meaning: str) -> IntArray:
    """A column (N,) of 0 and 1, of both, as integers; messages name it and the meaning of 1.

    Raises:
        DataError: not one-dimensional, another value, or only one of the two.
    """
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise DataError(f"{name} must be a column of 0 and 1, got the shape {array.shape}")
    if not np.isin(array, (0, 1)).all():
        other = array[~np.isin(array, (0, 1))][0]
        raise DataError(f"{name} must be 0 and 1 (1 is {meaning}), found {other!r}")
    whole = array.astype(np.int64)
    if whole.min() == whole.max():
        raise DataError(f"{name}: all rows are {whole[0]}, there are no two classes")
    return whole


def whole_weights(weight: npt.ArrayLike | None, n_rows: int) -> tuple[IntArray, float]:
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


def share(name: str, value: float) -> Fraction:
    """A number from 0 to 1 as the decimal number it is written as. Raises ConfigError: it is none."""
    if not is_number_of(value, Real) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} must be a number from 0 to 1, got {value!r}")
    return Fraction(Decimal(repr(float(value))))


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
        self.y = two_values("y", y, "positive")
        self.weight, unit = whole_weights(sample_weight, len(self.y))
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
        check_same_order(y=y, group=group, sample_weight=sample_weight)
        self.y = two_values("y", y, "positive")
        self.parity, self.max_disparity, self.n_rows = parity, max_disparity, len(self.y)
        self.group = group_numbers(group, self.n_rows)
        compared = np.ones(self.n_rows, dtype=np.bool_) if parity == "demographic_parity" else self.y == 1
        self.weight, unit = whole_weights(sample_weight, self.n_rows)
        self._balance, scale = group_balance(self.group, compared, self.weight)
        self.limit, self.unit = parity_limit(max_disparity, scale), (unit, 1.0 / scale)
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


def group_numbers(group: npt.ArrayLike, n_rows: int) -> IntArray:
    """Group of each row, (N,), 0 or 1. Raises DataError: other numbers, another length, or one group."""
    array = np.asarray(group)
    if array.shape != (n_rows,):
        raise DataError(f"group: {len(np.atleast_1d(array))} rows, but there are {n_rows}")
    if len(other := array[~np.isin(array, (0, 1))]):
        raise DataError(f"group must be 0 and 1, of two groups, got {other[0]!r}; merge others")
    codes = array.astype(np.int64)
    if codes.min() == codes.max():
        raise DataError(f"group: all rows are {codes[0]}, there are no two groups")
    return codes


def parity_limit(max_disparity: float, scale: int) -> int:
    """The largest absolute disparity in whole units. Raises ConfigError: no share."""
    return floor(share("max_disparity", max_disparity) * scale)


def group_balance(group: IntArray, compared: npt.NDArray[np.bool_], weight: IntArray) -> tuple[IntArray, int]:
    """The amount that each row, if it is counted, adds to N_1 n_0 - N_0 n_1, (N,), and N_0 N_1.

    Raises:
        DataError: a group has no row that is compared.
        ConfigError: whole weights are so fine that the numbers do not fit.
    """
    counted = np.where(compared, weight, 0)
    sizes = [int(counted[group == number].sum()) for number in range(2)]
    for number, size in enumerate(sizes):
        if not size:
            raise DataError(f"group: no row of group {number} is compared, so there is no share of it")
    scale = sizes[0] * sizes[1]
    if scale >= 2**52:
        raise ConfigError("too many rows, or too fine weights, for exact sums: use coarser sample_weight")
    return counted * ((group == 0) * sizes[1] - (group == 1) * sizes[0]), scale


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
    groups = group_numbers(finite_vector(group, "group", len(values)), len(values))
    compared = np.ones(len(groups), dtype=np.bool_) if y is None else finite_vector(y, "y", len(groups)) == 1
    weight = check_weights(sample_weight, len(groups), predicted=predicted, group=group, y=y)
    means = []
    for number in range(2):
        rows = compared & (groups == number)
        if not weight[rows].sum() > 0.0:
            raise DataError(f"group: no row of group {number} is compared, so there is no mean of it")
        means.append(float(np.average(values[rows], weights=weight[rows])))
    return means[0] - means[1]
