"""Classification under a limit on the difference between two groups."""

from __future__ import annotations

from math import floor
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal.fronts.base import FloatArray, IntArray
from sstorch.optimal.fronts.labels import share, two_values, whole_weights

Parity = Literal["demographic_parity", "equal_opportunity"]


class GroupFairness:
    """Fewest errors of trees that give two groups class 1 about equally often.

    With n_g of N_g rows of group g, by weight, in the leaves of class 1, the disparity of a tree is n_0 / N_0
    less n_1 / N_1. Times N_0 N_1 it is an integer and a sum over leaves, so the limit on its absolute value
    is met exactly, without a tolerance. The tree may split on every column it is given: leave the sensitive
    one out of the features if it should not.

    Args:
        y: 0 or 1, shape (N,).
        group: 0 or 1, the sensitive group of each row.
        parity: ``"demographic_parity"`` compares all rows of the groups, ``"equal_opportunity"`` those with
            y = 1.
        sample_weight: multiples of 2**-20 (whole numbers, say); None counts each row once. Censoring weights
            have to be rounded first.
        max_disparity: the limit, 0 to 1, taken as the decimal number it is written as.

    Raises:
        DataError: labels or groups other than 0 and 1, or all alike, a group without rows to compare, or
            wrong weights.
        ConfigError: an unknown parity, a limit out of its range, or weights that are not exact.

    References:
        van der Linden, de Weerdt and Demirović (2022), Fair and optimal decision trees: a dynamic programming
        approach, NeurIPS 35.
    """

    order: Literal["balance"] = "balance"
    linear = True
    names = ("errors", "disparity")
    offset = (0.0, 0.0)

    def __init__(
        self,
        y: npt.ArrayLike,
        group: npt.ArrayLike,
        parity: Parity = "demographic_parity",
        *,
        sample_weight: npt.ArrayLike | None = None,
        max_disparity: float = 0.05,
    ) -> None:
        if parity not in get_args(Parity):
            raise ConfigError(f"parity={parity!r} does not exist; choose one of {get_args(Parity)}")
        self.y, self.group = two_values("y", y, "positive"), two_values("group", group, "one of the groups")
        if len(self.group) != len(self.y):
            raise DataError(f"group: {len(self.group)} rows, but y has {len(self.y)}")
        self.parity, self.max_disparity, self.n_rows = parity, max_disparity, len(self.y)
        compared = np.ones(self.n_rows, dtype=np.bool_) if parity == "demographic_parity" else self.y == 1
        self.weight, unit = whole_weights(sample_weight, self.n_rows)
        self._balance, scale = group_balance(self.group, compared, self.weight)
        self.limit = floor(share("max_disparity", max_disparity) * scale)
        self.unit = (unit, 1.0 / scale)
        self.total_weight = unit * float(self.weight.sum())

    def channels(self) -> IntArray:
        """Positive and negative rows, and what class 1 adds to the disparity, (3, N)."""
        return np.stack([self.weight * self.y, self.weight * (1 - self.y), self._balance])

    def points(self, sums: Tensor) -> Tensor:
        """Class 0: its errors, and no disparity. Class 1: its errors and disparity."""
        points = sums.new_zeros(2, 2, *sums.shape[1:])
        points[0, 0], points[0, 1], points[1, 1] = sums
        return points

    def totals(self, leaf: IntArray, decision: IntArray) -> IntArray:
        """Errors, and N_1 n_0 - N_0 n_1."""
        predicted = decision[leaf]
        errors = self.weight[predicted != self.y].sum()
        return np.array([errors, self._balance[predicted == 1].sum()], dtype=np.int64)

    def score(self, totals: IntArray) -> FloatArray:
        """Accuracy."""
        scores: FloatArray = 1.0 - totals[:, 0] / (self.total_weight / self.unit[0])
        return scores


def group_balance(group: IntArray, compared: npt.NDArray[np.bool_], weight: IntArray) -> tuple[IntArray, int]:
    """What each row, if it is counted, adds to N_1 n_0 - N_0 n_1, (N,), and N_0 N_1.

    Args:
        group: 0 or 1, (N,).
        compared: the rows that are compared, (N,).
        weight: of the rows, (N,), whole numbers.

    Raises:
        DataError: a group has no row that is compared.
        ConfigError: weights are so fine that the numbers do not fit.
    """
    sizes = [int(weight[compared & (group == number)].sum()) for number in (0, 1)]
    for number, size in enumerate(sizes):
        if not size:
            raise DataError(f"group: no row of group {number} is compared, so there is no share of it")
    if sizes[0] * sizes[1] >= 2**52:
        raise ConfigError("too many rows, or too fine weights, for exact sums: use coarser sample_weight")
    balance = weight * np.where(compared, np.where(group == 0, sizes[1], -sizes[0]), 0)
    return balance.astype(np.int64), sizes[0] * sizes[1]


def disparity(
    predicted: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    y: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Difference of the mean predictions of two groups, on any rows: of all, or of those with y = 1.

    Args:
        predicted: of each row, shape (n,): classes 0 and 1, whose mean is the share that gets class 1, or
            predicted survival.
        group: group of each row, 0 or 1.
        y: None for all rows (demographic parity); the true classes for equal opportunity.
        sample_weight: of each row, or None.

    Returns:
        Mean of group 0 less that of group 1, with the sizes that the groups have in these rows.

    Raises:
        DataError: unequal lengths, predictions that are not finite, or a group without rows to compare.
    """
    values: FloatArray = np.asarray(predicted, dtype=np.float64)
    groups = np.asarray(group)
    compared = np.ones(len(groups), dtype=np.bool_) if y is None else np.asarray(y) == 1
    weight = np.ones(len(groups)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    shapes = [array.shape for array in (values, groups, compared, weight)]
    if groups.ndim != 1 or len(set(shapes)) > 1:
        raise DataError(f"predicted, group, y and sample_weight have the shapes {shapes}")
    if not np.isfinite(values).all():
        raise DataError("predicted: expected finite numbers")
    means = []
    for number in (0, 1):
        rows = compared & (groups == number)
        if not weight[rows].sum() > 0.0:
            raise DataError(f"group: no row of group {number} is compared, so there is no mean of it")
        means.append(float(np.average(values[rows], weights=weight[rows])))
    return means[0] - means[1]
