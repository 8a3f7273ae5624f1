"""The integral of the Brier score over time, exact for curves that are straight between grid times.

On one stretch between grid times, with u in [0, 1] along it, a curve is S = l + d u. The two terms of the
score integrate to

    int (1 - S)^2 / G dt = (1 - l)^2 M_0 - 2 (1 - l) d M_1 + d^2 M_2,    M_r = int u^r / G dt,
    int S^2 dt           = l^2 H_0 + 2 l d H_1 + d^2 H_2,                H_r = int u^r dt,

so the moments of the step function 1 / G, known for each stretch and from its start to each test time, are
all that is needed: O(n n_times) for all rows, however many times G has.
"""

import numpy as np

from sstorch.exceptions import DataError
from sstorch.metrics.brier import brier_weights, row_blocks
from sstorch.metrics.checks import BoolArray, FloatArray, IntArray
from sstorch.metrics.ipcw import KaplanMeier

_POWERS = np.arange(3)[:, None]


def integrate_graf(
    time: FloatArray,
    event: BoolArray,
    curves: FloatArray,
    times: FloatArray,
    censoring: KaplanMeier,
    min_censoring_prob: float | None,
    weight: FloatArray | None,
    last: float,
) -> float:
    """(1/last) integral of BS over [0, last]; arguments as in `integrated_brier_score`, checked.

    `last` is the largest test time, or that of rows of which these are some.
    """
    if last == 0.0:
        raise DataError("time: all test times are 0, there is no follow-up to integrate over.")
    if times[-1] < last:
        raise DataError(
            f"times: convention 'graf' integrates up to the largest test time, {last:g}; the grid ends at "
            f"{times[-1]:g}. evaluation_times(time, train_time) gives a grid that reaches it, if both are in "
            "one unit."
        )
    n_before = int(times[0] > 0.0)  # columns to put before the first: S(0) = 1
    nodes = np.concatenate((np.zeros(n_before), times))
    n_pieces = int(np.searchsorted(nodes, last, side="left"))  # the last piece holds tmax
    nodes = nodes[: n_pieces + 1]
    starts, widths = nodes[:-1], np.diff(nodes)
    ends = np.minimum(nodes[1:], last)

    # Between neighbouring knots nothing jumps and no piece ends.
    knots = np.unique(np.concatenate((starts, [last], time, censoring.times)))
    knots = knots[knots <= last]
    piece = np.searchsorted(starts, knots[:-1], side="right") - 1
    at_event, at_risk = brier_weights(censoring, time, event, knots[:-1], "graf", min_censoring_prob)
    left, right = ((t - starts[piece]) / widths[piece] for t in (knots[:-1], knots[1:]))
    increments = (right ** (_POWERS + 1) - left ** (_POWERS + 1)) / (_POWERS + 1) * widths[piece] * at_risk
    running = np.concatenate((np.zeros((3, 1)), np.cumsum(increments, axis=1)), axis=1)

    def moments_to(t: FloatArray, pieces: IntArray) -> FloatArray:
        """Integral of u^r / G from the start of the piece to t, shape (3, t.size)."""
        moments: FloatArray = (
            running[:, np.searchsorted(knots, t)] - running[:, np.searchsorted(knots, starts[pieces])]
        )
        return moments

    def lengths_to(t: FloatArray, pieces: IntArray) -> FloatArray:
        """Integral of u^r from the start of the piece to t, shape (3, t.size)."""
        share = (t - starts[pieces]) / widths[pieces]
        lengths: FloatArray = share ** (_POWERS + 1) / (_POWERS + 1) * widths[pieces]
        return lengths

    all_pieces = np.arange(n_pieces)
    m, h = moments_to(ends, all_pieces), lengths_to(ends, all_pieces)
    own_piece = np.searchsorted(starts, time, side="right") - 1
    own_m = moments_to(time, own_piece)
    own_h = lengths_to(ends[own_piece], own_piece) - lengths_to(time, own_piece)

    total = 0.0
    for rows in row_blocks(time.size, n_pieces + 1):
        values = curves[rows, : n_pieces + 1 - n_before]
        if n_before:
            values = np.pad(values, ((0, 0), (1, 0)), constant_values=1.0)
        low, slope = values[:, :-1], np.diff(values, axis=1)
        before = all_pieces < own_piece[rows, None]
        after = all_pieces > own_piece[rows, None]
        risk = np.sum(_quadratic(low - 1.0, slope, m), axis=1, where=before)
        failure = np.sum(_quadratic(low, slope, h), axis=1, where=after)
        own = own_piece[rows, None]
        low, slope = (np.take_along_axis(a, own, axis=1)[:, 0] for a in (low, slope))
        risk += _quadratic(low - 1.0, slope, own_m[:, rows])
        failure += _quadratic(low, slope, own_h[:, rows])
        loss = risk + at_event[rows] * failure
        total += float(loss.sum() if weight is None else np.dot(weight[rows], loss))
    n = time.size if weight is None else weight.sum()
    return total / float(n * last)


def _quadratic(low: FloatArray, slope: FloatArray, moments: FloatArray) -> FloatArray:
    """Integral of (low + slope u)^2 from the moments of 1, u and u^2."""
    value: FloatArray = low * low * moments[0] + 2.0 * low * slope * moments[1] + slope * slope * moments[2]
    return value
