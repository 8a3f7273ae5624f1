"""Leaves that decide: of several decisions, each with a cost for every row, a leaf takes the cheapest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch.exceptions import DataError
from sstorch.optimal.tasks.base import Entries, FloatArray, IntArray


class DecisionCosts:
    """Mean cost of rows whose leaf takes one of K decisions for all its rows: the cheapest in total.

    This is classification with a cost of its own for each row, and every task whose leaves choose among
    finitely many things: classes, treatments. A split never raises the loss.

    Args:
        costs: of each row under each decision, (N, K), any sign; lower is better.
        total: the mean's denominator; None is N.

    Raises:
        DataError: not a matrix of finite numbers with rows and columns.

    Examples:
        >>> from sstorch.optimal import solve
        >>> task = DecisionCosts([[0.0, 5.0], [1.0, 0.0], [4.0, 0.5]])
        >>> found = solve([[0], [1], [1]], task, max_depth=1)
        >>> round(found.loss, 4), found.decisions().tolist()
        (0.1667, [0, 1])
    """

    n_steps, constant = 1, 0.0

    def __init__(self, costs: npt.ArrayLike, total: float | None = None) -> None:
        self.costs = finite_matrix(costs, "costs")
        self.n_rows = len(self.costs)
        self.total = float(self.n_rows if total is None else total)

    def entries(self) -> Entries:
        """One entry per row: its cost under every decision."""
        rows = np.arange(self.n_rows, dtype=np.int64)
        return Entries(rows, np.zeros_like(rows), self.costs.T)

    def accumulate(self, sums: Iterator[Tensor]) -> Iterator[Tensor]:
        """The sums themselves."""
        return sums

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """The least of the K sums."""
        return next(cells).amin(0).div_(self.total)

    def floor(self, cells: Iterator[Tensor]) -> Tensor:
        """The cost itself: a split never raises the loss."""
        return self.cost(cells)

    def loss(self, leaf: IntArray) -> float:
        """Mean over rows of their cost under the decision of their leaf."""
        decision = self.decisions(leaf, int(leaf.max()) + 1)
        return float(self.costs[np.arange(self.n_rows), decision[leaf]].sum() / self.total)

    def decisions(self, leaf: IntArray, n_leaves: int) -> IntArray:
        """Of each leaf the cheapest decision, the first of equal ones, (n_leaves,)."""
        least: IntArray = self.leaf_costs(leaf, n_leaves).argmin(axis=1)
        return least

    def leaf_costs(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Summed cost of the rows of each leaf under every decision, (n_leaves, K)."""
        return np.column_stack([np.bincount(leaf, c, minlength=n_leaves) for c in self.costs.T])


def finite_matrix(values: npt.ArrayLike, name: str) -> FloatArray:
    """Read an (N, K) array.

    Raises:
        DataError: it is none, it is empty, or an entry is not finite; the message names the first one.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected a matrix of numbers: {error}") from error
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{name}: expected a matrix with rows and columns, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(
            f"{name}: row {row} holds {array[row, column]} in column {column}; give finite numbers"
        )
    return array


def finite_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """Read an (N,) array.

    Raises:
        DataError: it is none, has another length, or an entry is not finite.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected numbers: {error}") from error
    if array.ndim != 1 or len(array) == 0 or (n_rows is not None and len(array) != n_rows):
        wanted = "a list of numbers" if n_rows is None else f"{n_rows} numbers, one per row"
        raise DataError(f"{name}: expected {wanted}, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{name}: row {row} holds {array[row]}; give finite numbers")
    return array


def check_weights(sample_weight: npt.ArrayLike | None, n_rows: int) -> FloatArray:
    """Weights of rows, (N,), ones by default.

    Raises:
        DataError: no list of N finite numbers >= 0 of which one is positive.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    weight = finite_vector(sample_weight, "sample_weight", n_rows)
    if (weight < 0.0).any() or not (weight > 0.0).any():
        raise DataError("sample_weight: expected numbers >= 0, not all of them 0")
    return weight
