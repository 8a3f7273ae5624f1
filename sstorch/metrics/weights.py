"""Sampling weights, and the effective sample size.

A weight of 2 is that of one observed row that represents two of the population. Counts of observed rows are
given by repeating the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_vector, check_weight


def effective_sample_size(sample_weight: npt.ArrayLike) -> float:
    """Compute the effective sample size of weighted rows: (sum w)^2 / sum w^2.

    It equals the number of rows for equal weights, and does not depend on the scale of the weights.

    Args:
        sample_weight: weights >= 0 with a positive sum, shape (n,).

    Raises:
        DataError: weights negative, not finite or all 0.

    References:
        Kish (1965), Survey Sampling, section 11.7.

    Examples:
        >>> effective_sample_size([1, 1, 2]), effective_sample_size([0.1, 0.1, 0.2])
        (2.6666666666666665, 2.6666666666666665)
    """
    given = check_vector(sample_weight, "sample_weight")
    check_weight(given, given.size)
    scaled = given / given.max()
    return float(scaled.sum() ** 2 / (scaled @ scaled))


class Weighting(NamedTuple):
    """Checked weights, with the variance that belongs to them."""

    # Weights with the effective sample size as their sum, or 0 and 1, shape (n,); None is one each
    values: FloatArray | None
    robust: bool  # whether variances are sums of w^2 times squared influences; else rows are alike

    def counts(self, group: IntArray, n_groups: int) -> FloatArray:
        """Rows in each group, (n_groups,): the effective sample size of uneven weights."""
        total = np.bincount(group, self.values, n_groups).astype(np.float64)
        if not self.robust or self.values is None:
            return total
        square = np.bincount(group, self.values**2, n_groups)
        return np.divide(total**2, square, out=np.zeros(n_groups), where=square > 0)


def check_weighting(sample_weight: npt.ArrayLike | None, n_rows: int) -> Weighting:
    """Check weights (n_rows,) >= 0 of a positive sum, or None for one each, and which variance they need.

    Equal weights are one each, whatever their scale: variances are then those of unweighted rows. Weights are
    inverse probabilities, survey or importance weights.
    """
    given = check_weight(sample_weight, n_rows)
    if given is None:
        return Weighting(None, robust=False)
    positive = given > 0.0
    if (given[positive] == given.max()).all():
        return Weighting(None if positive.all() else positive.astype(np.float64), robust=False)
    return Weighting(given * (effective_sample_size(given) / given.sum()), robust=True)
