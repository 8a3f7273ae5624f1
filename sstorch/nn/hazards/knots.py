"""The spline basis: knots, and the natural cubic splines between them as piecewise polynomials.

The derivative of a natural cubic spline in log time is a quadratic spline that is constant beyond the
boundary knots, with derivative zero there. Quadratic B-splines, the first two and the last two joined, span
exactly
these: m internal knots give m + 1 functions N_j >= 0 that sum to one. Their antiderivatives I_j and a
constant span the natural cubic splines of Royston and Parmar.

References:
    Royston and Parmar (2002), Statistics in Medicine 21, 2175-2197; Ramsay (1988), Statistical Science 3,
    425-441.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.interpolate import BSpline, PPoly
from torch import Tensor

FloatArray = npt.NDArray[np.float64]


def knots_at_quantiles(log_event_times: FloatArray, n_internal: int) -> FloatArray:
    """Boundary knots at the extreme event log times, internal ones at equally spaced percentiles.

    The percentiles are those of Royston and Parmar: 33 and 67 for two internal knots, else 100 j / (m + 1).

    Returns:
        distinct knots, increasing: m + 2 of them, or fewer where percentiles coincide.
    """
    percentiles = (
        [33, 67] if n_internal == 2 else [100 * j / (n_internal + 1) for j in range(1, n_internal + 1)]
    )
    knots = np.unique(np.percentile(log_event_times, [0, *percentiles, 100]))
    # Knots that only rounding tells apart would divide by it.
    distinct = np.r_[True, np.diff(knots) > 1e-4 * max(1.0, knots[-1] - knots[0])]
    return knots[distinct] if distinct.sum() > 1 else knots[:1] + np.array([-0.5, 0.5])


def piecewise_polynomials(knots: FloatArray, n_internal: int) -> FloatArray:
    """Coefficients of I_1 ... I_{m+1} between the knots, with I_j(0) = 0.

    Args:
        knots: K distinct knots, K <= m + 2, increasing.
        n_internal: m; functions that fewer knots do not have are zero.

    Returns:
        shape (m + 1 intervals, 1 + 4 (m + 1)): the left end of the interval, then for each function the
        coefficients of 1, u, u^2 and u^3 in u = y - left end. Intervals beyond the last knot are never looked
        up and repeat the last.
    """
    own = len(knots) - 2
    table = np.zeros((n_internal + 1, 1 + 4 * (n_internal + 1)))
    padded = np.r_[[knots[0]] * 2, knots, [knots[-1]] * 2]
    for j in range(own + 1):
        weights = np.zeros(own + 3)
        weights[j + 1] = 1.0
        if j == 0:
            weights[0] = 1.0
        if j == own:
            weights[-1] = 1.0
        slope = PPoly.from_spline(BSpline(padded, weights, 2))
        curve = slope.antiderivative()
        real = np.flatnonzero(np.diff(curve.x) > 0)
        inside = np.clip(0.0, knots[0], knots[-1])
        at_zero = float(curve(inside) + slope(inside) * (0.0 - inside))
        table[: own + 1, 0] = curve.x[real]
        columns = slice(1 + 4 * j, 5 + 4 * j)
        table[: own + 1, columns] = curve.c[::-1, real].T
        table[: own + 1, 1 + 4 * j] -= at_zero
    table[own + 1 :] = table[own]
    return table


def evaluate(
    table: Tensor, ends: Tensor, log_time: Tensor, n_batch: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The functions I_j and N_j at log times.

    Args:
        table: of :func:`piecewise_polynomials`, shape (*batch_shape, m + 1, 1 + 4 (m + 1)).
        ends: right ends of the intervals, shape (*batch_shape, m + 1).
        log_time: shape (*batch_shape, ...).
        n_batch: number of batch dimensions.

    Returns:
        I_j and N_j, lists of m + 1 tensors of the shape of ``log_time``.
    """
    lead = log_time.shape[:n_batch]
    y = log_time.reshape(*lead, -1)
    first, last = table[..., :1, 0], ends[..., -1:]
    clamped = torch.minimum(torch.maximum(y, first), last)
    # The interval of y is the number of right ends below it; the last one is never passed.
    interval = (clamped[..., None] > ends[..., None, :-1]).sum(-1)
    rows = table.gather(-2, interval[..., None].expand(*interval.shape, table.shape[-1]))
    rows = rows.movedim(-1, 0).contiguous()
    u, beyond = clamped - rows[0], y - clamped
    curves, slopes = [], []
    for j in range(table.shape[-2]):
        c0, c1, c2, c3 = rows[1 + 4 * j : 5 + 4 * j]
        slope = (3 * c3 * u + 2 * c2) * u + c1
        slopes.append(slope.reshape(log_time.shape))
        curves.append((((c3 * u + c2) * u + c1) * u + c0 + slope * beyond).reshape(log_time.shape))
    return curves, slopes
