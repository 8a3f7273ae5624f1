"""Sampling weights, the effective sample size, and variances by subject of Kaplan-Meier and log-rank scores.

A weight of 2 is that of one observed row that represents two of the population. Counts of observed rows are
given by repeating the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_vector, check_weight
from sstorch.exceptions import DataError
from sstorch.metrics.outcome import Observed

# Share of the rows at risk below which those without the event are a rounding error.
NONE_LEFT = 1e-12
# A standard error that is rounding only: no row differs from the others in its contribution, as where all
# pairs are concordant.
NO_ERROR = 1e-12
# Share of the largest eigenvalue of a correlation matrix below which a direction has no variance.
_SINGULAR = 1e-10


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


def exposed_weight(leaving: FloatArray, at_risk: FloatArray, size: FloatArray) -> FloatArray:
    """Weight at risk, at least that of the rows that leave, and equal to it if the rest is rounding.

    `size` is that of the sums whose difference is `at_risk`. With a rest of 1e-16 the curve does not fall to
    0, its limits are those of a survival of 1e-16, and weights 1 / G are near infinity.
    """
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
    """Test that values (k,), which vary only in the range of their covariance (k, k), are zero.

    Returns:
        Chi squared, its degrees of freedom, the rank of the covariance whatever the units, and p; 0, 0 and 1
        without variance.
    """
    variance = covariance.diagonal()
    scale = np.sqrt(variance[variance > 0])
    correlation = covariance[variance > 0][:, variance > 0] / scale / scale[:, None]
    size, axes = np.linalg.eigh(correlation)
    varies = size > _SINGULAR * size.max(initial=0.0)
    along = axes[:, varies].T @ (values[variance > 0] / scale)
    statistic, rank = float(np.sum(along**2 / size[varies])), int(varies.sum())
    return statistic, rank, float(chi2.sf(statistic, rank)) if rank else 1.0


def log_survival_variance(
    rows: Observed, group: IntArray, times: FloatArray, events: FloatArray, at_risk: FloatArray
) -> FloatArray:
    """Variance of log S, (n_groups, n_times), for the Kaplan-Meier estimate of each group.

    By the infinitesimal jackknife: the sum over subjects of the squared weighted derivatives of log S with
    respect to their weights. It is what R's ``survfit(robust=TRUE)`` gives, and equals Greenwood's formula
    for equal weights without left truncation. Values from the first time with S = 0 on mean nothing. Rows of
    a subject follow each other; groups, times, `events` and `at_risk` are those of `risk_table`.

    References:
        Therneau and Grambsch (2000), Modeling Survival Data, section 7.
    """
    time, event, entry, id, weight = rows.time, rows.event, rows.entry, rows.id, rows.weights
    n_groups, width = at_risk.shape
    left = at_risk - events
    goes_on = left > NONE_LEFT * at_risk
    fall = np.divide(events, at_risk * left, out=np.zeros_like(events), where=goes_on & (events > 0))
    fallen = np.pad(np.cumsum(fall, axis=1), ((0, 0), (1, 0)))  # after 0 .. n_times steps
    end = np.searchsorted(times, time, side="right")
    begin = np.zeros_like(end) if entry is None else np.searchsorted(times, entry, side="right")
    # A row that is at risk at no time of an event has no influence: its interval is empty.
    begin = np.minimum(begin, end)
    own = np.pad(np.divide(1.0, left, out=np.zeros_like(left), where=goes_on), ((0, 0), (1, 0)))
    gone = weight * (fallen[group, end] - fallen[group, begin] - event * own[group, end])
    before, until = np.zeros(time.size), np.full(time.size, width + 1)
    if id is not None:
        subject = np.unique(id, return_inverse=True)[1]
        before, until = _histories(group, subject, begin, end, gone, width)
    # While a row is observed its subject has the influence a + w fallen, and a constant after it.
    constant = before - weight * fallen[group, begin]
    cells = (
        (begin, end, np.stack([constant**2, 2 * constant * weight, weight**2])),
        (end, until, np.stack([(before + gone) ** 2, np.zeros(time.size), np.zeros(time.size)])),
    )
    square = np.zeros((3, n_groups * (width + 2)))
    for start, stop, values in cells:
        for total, value in zip(square, values, strict=True):
            total += np.bincount(group * (width + 2) + start, value, total.size)
            total -= np.bincount(group * (width + 2) + stop, value, total.size)
    still, slope, curve = square.reshape(3, n_groups, width + 2).cumsum(axis=2)[:, :, 1 : width + 1]
    level = fallen[:, 1:]
    return np.asarray(np.maximum(still + slope * level + curve * level**2, 0.0))


def _histories(
    group: IntArray, subject: IntArray, begin: IntArray, end: IntArray, gone: FloatArray, width: int
) -> tuple[FloatArray, IntArray]:
    """Of each row the influence of the subject's earlier rows in the group, and the step of the next one."""
    order = np.lexsort((end, begin, subject, group))
    same = (np.diff(group[order]) == 0) & (np.diff(subject[order]) == 0)
    if (same & (begin[order][1:] < end[order][:-1])).any():
        raise DataError("id: rows of a subject overlap; give the entry of each row.")
    first = np.flatnonzero(np.append(True, ~same))
    total = np.cumsum(gone[order]) - gone[order]
    before, until = np.empty(gone.size), np.empty(gone.size, dtype=np.int64)
    before[order] = total - np.repeat(total[first], np.diff(np.append(first, gone.size)))
    until[order] = np.append(np.where(same, begin[order][1:], width + 1), width + 1)
    return before, until


def logrank_residuals(
    rows: Observed, group: IntArray, times: FloatArray, events: FloatArray, at_risk: FloatArray
) -> FloatArray:
    """Score residuals of each row in a Cox model of the groups without effects, (n, n_groups).

    Their weighted sums are observed less expected events of the log-rank test; ties are Breslow's. Arguments
    are as in :func:`log_survival_variance`.

    References:
        Lin and Wei (1989), "The robust inference for the Cox proportional hazards model", Journal of the
        American Statistical Association 84, 1074-1078.
    """
    time, event, entry = rows.time, rows.event, rows.entry
    exposed = at_risk.sum(axis=0)
    risk = np.where(exposed > 0, exposed, 1.0)
    share, hazard = at_risk / risk, events.sum(axis=0) / risk
    member = (group[:, None] == np.arange(len(at_risk))).astype(np.float64)
    total = np.append(0.0, np.cumsum(hazard))
    shared = np.pad(np.cumsum(share * hazard, axis=1), ((0, 0), (1, 0)))
    end = np.searchsorted(times, time, side="right")
    begin = np.zeros_like(end) if entry is None else np.searchsorted(times, entry, side="right")
    expected = member * (total[end] - total[begin])[:, None] - (shared[:, end] - shared[:, begin]).T
    own = member - share[:, np.maximum(end - 1, 0)].T
    return np.asarray(event[:, None] * own - expected)
