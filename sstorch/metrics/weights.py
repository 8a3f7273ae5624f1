"""Sampling and frequency weights, and the effective sample size.

Point estimates are the same for both kinds. Variances differ: a frequency weight of 2 represents two observed
rows, a sampling weight of 2 for one observed row that represents two of the population.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, check_vector, check_weight, rows_text
from sstorch.exceptions import DataError

WeightKind = Literal["sampling", "frequency"]


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

    # Weights as counts, or with the effective sample size as their sum, shape (n,); None is one each
    values: FloatArray | None
    robust: bool  # whether variances are sums of w^2 times squared influences; else weights are counts

    def counts(self, group: IntArray, n_groups: int) -> FloatArray:
        """Rows in each group, (n_groups,): frequency weights summed, or the effective sample size."""
        total = np.bincount(group, self.values, n_groups).astype(np.float64)
        if not self.robust or self.values is None:
            return total
        square = np.bincount(group, self.values**2, n_groups)
        return np.divide(total**2, square, out=np.zeros(n_groups), where=square > 0)


def check_weighting(
    sample_weight: npt.ArrayLike | None, n_rows: int, weights: WeightKind = "sampling"
) -> Weighting:
    """Check weights (n_rows,) >= 0 of a positive sum, or None for one each, and which variance they need.

    Equal sampling weights are one each, whatever their scale: variances are then those of unweighted rows.
    Sampling weights are inverse probabilities, survey or importance weights; frequency weights, integers, are
    how often each row was observed.
    """
    check_choice(weights, "weights", get_args(WeightKind))
    given = check_weight(sample_weight, n_rows)
    if given is None:
        return Weighting(None, robust=False)
    if weights == "frequency":
        wrong = given != np.round(given)
        if wrong.any():
            raise DataError(
                f"sample_weight: weights='frequency' needs integers; got {given[wrong][0]:g} in "
                f"{rows_text(wrong)}; use weights='sampling'."
            )
        return Weighting(given, robust=False)
    positive = given > 0.0
    if (given[positive] == given.max()).all():
        return Weighting(None if positive.all() else positive.astype(np.float64), robust=False)
    return Weighting(given * (effective_sample_size(given) / given.sum()), robust=True)
