"""Regression: one mean per leaf."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch.optimal.tasks.base import Entries, FloatArray, IntArray
from sstorch.optimal.tasks.decision_costs import check_weights, finite_vector


class LeastSquares:
    """Weighted mean squared error around the mean of each leaf: Σ_i w_i (y_i - mean of the leaf)² / Σ_i w_i.

    A `leaf_penalty` of `solve` is then the `ccp_alpha` of scikit-learn's regression trees.

    Args:
        y: (N,).
        sample_weight: weights, (N,), >= 0; None is one each.

    Attributes:
        y: (N,).
        weight: (N,).
        rounding: what losses of the search can be off by, of which an outlier far from all others makes much.

    Raises:
        DataError: values or weights that cannot be used.

    Examples:
        >>> from sstorch.optimal import solve
        >>> found = solve([[0, 0], [0, 1], [1, 0], [1, 1]], LeastSquares([1.0, 3.0, 8.0, 8.0]), max_depth=2)
        >>> found.table().loss.round(3).tolist(), found.decisions(found.tree(nodes=1)).tolist()
        ([9.5, 0.5, 0.0, 0.0], [2.0, 8.0])
    """

    n_steps, constant = 1, 0.0

    def __init__(self, y: npt.ArrayLike, *, sample_weight: npt.ArrayLike | None = None) -> None:
        self.y = finite_vector(y, "y")
        self.n_rows = len(self.y)
        self.weight = check_weights(sample_weight, self.n_rows)
        # Distances from the mean, in units of their size: sums of squares then lose few digits.
        self._centre = float(np.average(self.y, weights=self.weight))
        self._scale = float(np.abs(self.y - self._centre).max()) or 1.0
        # The search rounds squares to 2^-46 of the largest one.
        self.rounding = 2.0**-44 * self._scale**2

    def entries(self) -> Entries:
        """One entry per row: its weight, with distance and squared distance from the mean of all."""
        rows = np.arange(self.n_rows, dtype=np.int64)
        distance = (self.y - self._centre) / self._scale
        values = self.weight * np.stack([np.ones(self.n_rows), distance, distance**2])
        return Entries(rows, np.zeros_like(rows), values)

    def accumulate(self, sums: Iterator[Tensor]) -> Iterator[Tensor]:
        """The sums themselves."""
        return sums

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """Σ w d² - (Σ w d)² / Σ w."""
        weight, first, second = next(cells)
        explained = first.square_().div_(weight.clamp_min_(1e-300))
        cost: Tensor = second.sub_(explained).clamp_min_(0.0)
        return cost.mul_(self._scale**2 / float(self.weight.sum()))

    def floor(self, cells: Iterator[Tensor]) -> Tensor:
        """The cost itself: a split never raises the loss."""
        return self.cost(cells)

    def loss(self, leaf: IntArray) -> float:
        """Weighted mean of squared distances from the leaf's mean, row by row."""
        mean = self.decisions(leaf, int(leaf.max()) + 1)
        return float(np.average((self.y - mean[leaf]) ** 2, weights=self.weight))

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Weighted mean of each leaf, that of all rows in leaves without weight, (n_leaves,)."""
        weight = np.bincount(leaf, self.weight, minlength=n_leaves)
        total = np.bincount(leaf, self.weight * (self.y - self._centre), minlength=n_leaves)
        mean: FloatArray = self._centre + np.divide(total, weight, out=np.zeros(n_leaves), where=weight > 0.0)
        return mean
