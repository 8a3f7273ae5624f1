"""Sampling weights (of rows that represent several), sums over subjects, and tests by a covariance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_weight

# Share of the rows at risk below which those without the event are a rounding error.
NONE_LEFT = 1e-12
# A standard error that is rounding only: all rows contribute alike, as where all pairs are concordant.
NO_ERROR = 1e-12
# Share of the largest eigenvalue of a correlation matrix below which a direction has no variance.
_SINGULAR = 1e-10


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
    """Check weights (n_rows,) >= 0, and which variance they need: equal ones, of any scale, that of none."""
    # Uneven ones are scaled to the effective sample size of Kish (1965), (sum w)^2 / sum w^2.
    given = check_weight(sample_weight, n_rows)
    if given is None:
        return Weighting(None, robust=False)
    positive = given > 0.0
    if (given[positive] == given.max()).all():
        return Weighting(None if positive.all() else positive.astype(np.float64), robust=False)
    scaled = given / given.max()
    return Weighting(scaled * (scaled.sum() / (scaled @ scaled)), robust=True)


def exposed_weight(leaving: FloatArray, at_risk: FloatArray, size: FloatArray) -> FloatArray:
    """Weight at risk, equal to that of the rows that leave if the rest is rounding of sums of `size`."""
    return np.where(at_risk - leaving > NONE_LEFT * size, at_risk, leaving)


def by_subject(influence: FloatArray, id: npt.NDArray[Any] | None) -> FloatArray:
    """Influences of rows, (n, ...), summed over the rows of each subject."""
    if id is None:
        return influence
    subjects, subject = np.unique(id, return_inverse=True)
    total = np.zeros((len(subjects), *influence.shape[1:]))
    np.add.at(total, subject, influence)
    return total


def covariance_of(influence: FloatArray, id: npt.NDArray[Any] | None) -> FloatArray:
    """Covariance, (k, k), of estimates from the weighted influences of rows, (n, k), summed by subject."""
    total = by_subject(influence, id)
    return total.T @ total


def rank_test(values: FloatArray, covariance: FloatArray) -> tuple[float, int, float]:
    """Chi squared, degrees of freedom and p of values (k,) = 0 in the range of their covariance (k, k)."""
    variance = covariance.diagonal()
    scale = np.sqrt(variance[variance > 0])
    correlation = covariance[variance > 0][:, variance > 0] / scale / scale[:, None]
    size, axes = np.linalg.eigh(correlation)
    varies = size > _SINGULAR * size.max(initial=0.0)
    along = axes[:, varies].T @ (values[variance > 0] / scale)
    statistic, rank = float(np.sum(along**2 / size[varies])), int(varies.sum())
    return statistic, rank, float(chi2.sf(statistic, rank)) if rank else 1.0
