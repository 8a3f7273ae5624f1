"""Brier score averaged over time, in named conventions.

On one stretch between grid times, with u in [0, 1] along it, a curve is S = l + d u. The two terms of the
score integrate to

    int (1 - S)^2 / G dt = (1 - l)^2 M_0 - 2 (1 - l) d M_1 + d^2 M_2,    M_r = int u^r / G dt,
    int S^2 dt           = l^2 H_0 + 2 l d H_1 + d^2 H_2,                H_r = int u^r dt,

so the moments of the step function 1 / G, known for each stretch and from its start to each test time, are
all that is needed: O(n n_times) for all rows, however many times G has.

| name | value | window | rule |
|---|---|---|---|
| "graf" | IBS | 0 to the largest test time | exact integral, curves straight between grid times |
| "sksurv" | IBS | the given times within the test follow-up | trapezoids |
| "surtree" | 1 - IBS / IBS_KM | those within the 10 and 90 % quantile of test times | trapezoids |
| "osst" | IBS | the given times | left rectangles |

Lower is better but for "surtree", where 1 is best and 0 is Kaplan-Meier. Where each comes from, and which
reading is taken where the source leaves one open:

* "graf": the formula of Graf et al. with G(t-) at events. tmax is the largest test time, censored or not.
* "sksurv": `sksurv.metrics.integrated_brier_score`; times at which that raises are cut off.
* "surtree": Huisman, van der Linden and Demirovic (2024), "Optimal survival trees: a dynamic programming
  approach", equation 25, as the authors evaluate it, since the paper leaves open the sample behind G and the
  rule: G and Kaplan-Meier from the training rows, weights and trapezoids of scikit-survival, quantiles of the
  DISTINCT test times (the entries len // 10 and 9 len // 10 of their sorted list, the upper one moved down by
  1e-3 where it is the largest). Test rows beyond the training follow-up stay in, as in the paper; the authors
  drop them. Their grid is `evaluation_times(time, train_time, "surtree")`.
* "osst": Zhang, Xin, Seltzer and Rudin (2024), "Optimal sparse survival trees", as its package computes it,
  where the paper's equation 1 integrates from 0 and divides by y_max: the window is from the first to the
  last of the given times, which with `evaluation_times(time, train_time, "osst")` are the distinct test
  times. Left rectangles are exact for curves that step at those times only, as on the training rows of a tree
  with Kaplan-Meier leaves.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import blocks
from sstorch.exceptions import DataError
from sstorch.metrics.brier import brier_curve, brier_weights, convention_censoring, kaplan_meier_curves
from sstorch.metrics.censoring import KaplanMeier
from sstorch.metrics.checks import (
    BLOCK_ELEMENTS,
    check_convention,
    check_grid_unit,
    check_survival,
    check_time,
    check_times,
)
from sstorch.metrics.curves import CurvesInOrder
from sstorch.metrics.outcome import Observed, Outcome, read_rows, training

_NAME = "the integrated Brier score"
# No gap of a "graf" grid is wider than this share of the follow-up.
_GRAF_STEPS = 200
_SURTREE_POINTS = 101
# Its authors' times are days and months: in seconds steps of one unit would fill the memory.
_SURTREE_STEPS = 10_000
# What the authors of "surtree" take from the largest test time, at which no row is at risk any more.
_SURTREE_STEP_BACK = 1e-3
_POWERS = np.arange(3)[:, None]


def evaluation_times(time: npt.ArrayLike, train_time: npt.ArrayLike, convention: str = "graf") -> FloatArray:
    """Default grid of times of a convention, without clipping of curves.

    "graf": the distinct positive test times, which include every event time (so that `concordance_harrell`
    can use the same curves), and 200 equal steps up to the largest test time tmax, for a precise integral
    with few test rows.

    "sksurv": the distinct test times strictly inside both the test and the training follow-up, the usual
    protocol. It excludes the ends; use another grid for concordance.

    "surtree": from the 10 to the 90 % quantile of the distinct test times: 101 points if the range is at most
    100 units of time, else steps of one unit, at most 10,000. "osst": the distinct test times.

    Args:
        time: observed times of the test rows, shape (n,).
        train_time: observed times of the training rows, shape (n_train,), in the unit of `time`.
        convention: "graf", "sksurv", "surtree" or "osst".

    Returns:
        The grid, strictly increasing, shape (n_times,), in the unit of `y`.

    Raises:
        DataError: times that are not finite and >= 0, or an empty grid: all test times are 0, or fewer than
            two are inside the range.
        ConfigError: an unknown convention.

    Examples:
        >>> evaluation_times([1, 2, 3, 4, 5], train_time=[2, 9], convention="sksurv")
        array([3., 4.])
    """
    check_convention(convention)
    row_time, other_time = check_time(time), check_time(train_time, "train_time")
    last = row_time.max()
    if convention == "graf":
        if last == 0.0:
            raise DataError("time: all test times are 0, there is no follow-up to integrate over.")
        return np.union1d(row_time[row_time > 0.0], np.linspace(0.0, last, _GRAF_STEPS + 1)[1:])
    if convention == "surtree":
        low, high = surtree_window(row_time)
        if high - low <= _SURTREE_POINTS - 1:
            return np.linspace(low, high, _SURTREE_POINTS)
        step = max(1.0, (high - low) / _SURTREE_STEPS)
        return np.union1d(np.arange(low, high, step), [high])
    if convention == "osst":
        grid = np.unique(row_time)
        if grid.size < 2:
            raise DataError(f"time: convention 'osst' needs two distinct test times; got only {grid[0]:g}.")
        return grid
    low, high = max(row_time.min(), other_time.min()), min(last, other_time.max())
    grid = np.unique(row_time[(row_time > low) & (row_time < high)])
    if grid.size < 2:
        raise DataError(
            f"time: convention 'sksurv' needs two distinct test times inside ({low:g}, {high:g}), the "
            f"follow-up shared by test and training rows; got {grid.size}. Use larger folds or 'graf'."
        )
    return grid


def surtree_window(time: FloatArray) -> tuple[float, float]:
    """The window of the convention "surtree": the 10 and the 90 % quantile of the distinct test times.

    Entries and step back are those of the module's description.
    """
    distinct = np.unique(time)
    low, high = float(distinct[distinct.size // 10]), float(distinct[9 * distinct.size // 10])
    if high == distinct[-1]:
        high -= _SURTREE_STEP_BACK
    if high <= low:
        raise DataError(
            f"time: convention 'surtree' needs test times with distinct 10 and 90 % quantiles; got "
            f"{low:g} and {high:g} from {distinct.size} distinct times. Use larger folds or 'graf'."
        )
    return low, high


@dataclass(frozen=True, eq=False)
class GrafIntegrals:
    """Sums over rows and integrals over time of curves, for the convention "graf".

    G is not in them, so that scores with several estimates of G share one pass over the curves.
    """

    rows: Observed  # the rows in the order of time, without those of weight 0, n of them
    # Times between which curves are straight, the last piece cut off at tmax, shape (K + 1,)
    nodes: FloatArray
    widths: FloatArray  # of the pieces, the last one whole, shape (K,)
    piece: IntArray  # that of each row's time, shape (n,)
    # Of the rows at risk throughout a piece the weighted sums of l^2, l r and r^2, l and r being 1 - S at
    # the ends of the piece, shape (3, K)
    risk: FloatArray
    low: FloatArray  # S of each row where its own piece starts, shape (n,)
    slope: FloatArray  # change of S in this piece, shape (n,)
    failure: FloatArray  # integral of S^2 from the time of each row to tmax, shape (n,)

    @classmethod
    def of(cls, rows: Observed, curves: FloatArray, times: FloatArray) -> Self:
        """Integrate curves (n, n_times) that passed `check_survival`."""
        order = np.argsort(rows.time, kind="stable")
        if rows.weight is not None:  # a row without weight must not widen the window
            order = order[rows.weight[order] > 0.0]
        rows = rows.take(order)
        check_grid_unit(rows.time, rows.event, times)
        last = float(rows.time[-1])
        if last == 0.0:
            raise DataError("time: all test times are 0, there is no follow-up to integrate over.")
        if times[-1] < last:
            raise DataError(
                f"times: convention 'graf' integrates up to the largest test time, {last:g}; the grid ends "
                f"at {times[-1]:g}. evaluation_times(time, train_time) gives a grid that reaches it, if both "
                "are in one unit."
            )
        n_before = int(times[0] > 0.0)  # columns to put before the first: S(0) = 1
        nodes = np.concatenate((np.zeros(n_before), times))
        n_pieces = int(np.searchsorted(nodes, last, side="left"))  # the last piece holds tmax
        nodes = nodes[: n_pieces + 1].copy()
        widths = np.diff(nodes)
        nodes[-1] = last
        piece = np.searchsorted(nodes[:-1], rows.time, side="right") - 1
        lengths = _lengths(np.diff(nodes) / widths, widths)
        start, middle, end = _of_ends(lengths)[:, :, None]
        gone = np.searchsorted(piece, np.arange(n_pieces), side="left")
        there = np.searchsorted(piece, np.arange(n_pieces), side="right")
        weight = rows.weights
        read = CurvesInOrder(curves, order)
        risk, failure = np.empty((3, n_pieces)), np.zeros(order.size)
        low, slope = np.empty(order.size), np.empty(order.size)
        for pieces in blocks(n_pieces, order.size, BLOCK_ELEMENTS):
            first, stop = pieces.start, min(pieces.stop, n_pieces)
            values = read[max(first - n_before, 0) : stop + 1 - n_before]
            if first < n_before:
                values = np.concatenate((np.ones((1, order.size)), values))
            # In the order of time some rows failed before all these pieces, some are at risk throughout all.
            early, late = slice(0, int(gone[first])), slice(int(there[stop - 1]), None)
            within = slice(early.stop, late.start)
            number = np.arange(within.start, within.stop)
            square, product = _products(values[:, early])
            failure[early] += start[pieces, 0] @ square[:-1] + middle[pieces, 0] @ product
            failure[early] += end[pieces, 0] @ square[1:]
            square, product = _products(values[:, within])
            integral = start[pieces] * square[:-1] + middle[pieces] * product + end[pieces] * square[1:]
            failure[within] += np.where(number < gone[pieces, None], integral, 0.0).sum(axis=0)
            square, product = _products(1.0 - values[:, late])
            risk[:, pieces] = [term @ weight[late] for term in (square[:-1], product, square[1:])]
            square, product = _products(1.0 - values[:, within])
            for k, term in enumerate((square[:-1], product, square[1:])):
                risk[k, pieces] += np.where(number >= there[pieces, None], term, 0.0) @ weight[within]
            own = piece[within] - first
            low[within] = values[own, number]
            slope[within] = values[own + 1, number] - low[within]
        share = (rows.time - nodes[piece]) / widths[piece]
        failure += _quadratic(low, slope, lengths[:, piece] - _lengths(share, widths[piece]))
        return cls(rows, nodes, widths, piece, risk, low, slope, failure)

    def score(self, train: Outcome) -> float:
        """The integrated Brier score with G from training rows, see `integrated_brier_score`."""
        (time, event, *_), weight = self.rows, self.rows.weight
        known = training(train, time)
        censoring = convention_censoring(known, "graf")
        # Between neighbouring knots nothing jumps and no piece ends.
        starts, last = self.nodes[:-1], self.nodes[-1]
        knots = np.unique(np.concatenate((self.nodes, time, censoring.times)))
        knots = knots[knots <= last]
        piece = np.searchsorted(starts, knots[:-1], side="right") - 1
        at_event, at_risk = brier_weights(censoring, time, event, knots[:-1], "graf")
        left, right = ((t - starts[piece]) / self.widths[piece] for t in (knots[:-1], knots[1:]))
        increments = at_risk * (_lengths(right, self.widths[piece]) - _lengths(left, self.widths[piece]))
        running = np.concatenate((np.zeros((3, 1)), np.cumsum(increments, axis=1)), axis=1)
        # Integrals of u^r / G over each piece, and from the start of the piece of each row to its time.
        to_nodes = running[:, np.searchsorted(knots, self.nodes)]
        moments = running[:, np.searchsorted(knots, time)] - to_nodes[:, self.piece]
        loss = at_event * self.failure + _quadratic(self.low - 1.0, self.slope, moments)
        total = float((_of_ends(np.diff(to_nodes)) * self.risk).sum())
        total += float(loss.sum() if weight is None else np.dot(weight, loss))
        return total / float((time.size if weight is None else weight.sum()) * last)


def _lengths(share: FloatArray, width: FloatArray) -> FloatArray:
    """Integral of u^r over a piece of some width up to u = share, shape (3, n)."""
    return share ** (_POWERS + 1) / (_POWERS + 1) * width


def _of_ends(moments: FloatArray) -> FloatArray:
    """Coefficients of l^2, l r and r^2 in the integral of (l + (r - l) u)^2 from the moments (3, n)."""
    return np.stack((moments[0] - 2.0 * moments[1] + moments[2], 2.0 * (moments[1] - moments[2]), moments[2]))


def _products(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Squares of values at nodes (K + 1, n), and products of those at neighbouring ones (K, n)."""
    return values * values, values[:-1] * values[1:]


def _quadratic(low: FloatArray, slope: FloatArray, moments: FloatArray) -> FloatArray:
    """Integral of (low + slope u)^2 from the moments of 1, u and u^2."""
    value: FloatArray = low * low * moments[0] + 2.0 * low * slope * moments[1] + slope * slope * moments[2]
    return value


def integrated_brier_score(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    convention: str = "graf",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the Brier score averaged over time.

    "graf": (1/tmax) integral of BS(t) from 0 to tmax, the largest test time. Curves are interpolated linearly
    between the given times and from S(0) = 1; for these curves the integral is exact, including jumps of BS
    at test and training times. Linear interpolation is the only error: use a fine grid
    (`sstorch.metrics.evaluation_times`). Times beyond tmax are used only for interpolation.

    "sksurv": trapezoids over the given times, divided by (last - first). Times outside the range supported by
    scikit-survival are dropped instead of raising an error: times below the smallest test time, at or beyond
    the largest, and beyond the last training time if G is positive there.

    "surtree": the same between the 10 and 90 % quantiles of the distinct test times, relative to
    Kaplan-Meier: 1 - IBS / IBS_KM, higher is better. "osst": left rectangles over the given times, divided by
    (last - first). The description of the module lists sources and interpretations.

    Arguments are as in `brier_score`.

    Returns:
        IBS, dimensionless, 0 is best; for "surtree" 1 is best.

    Raises:
        DataError: as `brier_score`; for "graf" a grid that ends before tmax or tmax = 0; for the others fewer
            than two times in the range; for "surtree" a Kaplan-Meier curve with IBS 0.
        ConfigError: as `brier_score`.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> round(integrated_brier_score(rows, survival, times=[1.0, 2.0, 3.0], train=rows), 6)
        0.070741
    """
    rows = read_rows(y, _NAME, weight=True, sample_weight=sample_weight, survival=survival)
    check_convention(convention)
    grid = check_times(times)
    curves = check_survival(survival, rows.time.size, grid.size)
    if convention == "graf":
        return GrafIntegrals.of(rows, curves, grid).score(train)
    if rows.weight is not None:  # a row without weight must not widen the window
        counted = rows.weight > 0.0
        rows, curves = rows.take(counted), curves[counted]
    known = training(train, rows.time)
    check_grid_unit(rows.time, rows.event, grid)
    censoring = convention_censoring(known, convention)
    window = _window(rows.time, known.time, censoring, grid, convention)
    grid = grid[window]
    widths = np.diff(grid)

    def integral(values: FloatArray) -> float:
        score = brier_curve(rows, values, grid, censoring, convention)
        heights = score[:-1] if convention == "osst" else (score[1:] + score[:-1]) / 2.0
        return float(np.dot(widths, heights) / widths.sum())

    value = integral(curves[:, window])
    if convention == "surtree":
        reference = integral(kaplan_meier_curves(known, grid, rows.time.size))
        return relative_score(value, reference)
    return value


def scaled_integrated_brier_score(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    convention: str = "graf",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the scaled integrated Brier score 1 - IBS / IBS_KM, with Kaplan-Meier of the training rows.

    For "osst" it is the ratio reported by its authors; "surtree" already is such a ratio and is not changed.
    Arguments and errors are as in `integrated_brier_score`; a Kaplan-Meier curve with IBS 0 raises.

    Returns:
        1 is best, 0 equals Kaplan-Meier, below 0 is worse.

    References:
        Kattan and Gerds (2018), Diagnostic and Prognostic Research 2, 7.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> round(scaled_integrated_brier_score(rows, survival, times=[1.0, 2.0, 3.0], train=rows), 3)
        0.591
    """
    rows = read_rows(y, _NAME, weight=True, sample_weight=sample_weight, survival=survival)

    def score(curves: npt.ArrayLike) -> float:
        return integrated_brier_score(
            rows,
            curves,
            times,
            train=train,
            convention=convention,
        )

    value = score(survival)
    if convention == "surtree":
        return value
    return relative_score(value, score(kaplan_meier_curves(train, times, rows.time.size)))


def relative_score(score: float, reference: float, estimate: str = "Kaplan-Meier") -> float:
    """1 - score / reference."""
    if reference == 0.0:
        raise DataError(
            f"train: the integrated Brier score of {estimate} is 0: a scaled score is not defined."
        )
    return 1.0 - score / reference


def _window(
    time: FloatArray, train_time: FloatArray, censoring: KaplanMeier, grid: FloatArray, convention: str
) -> slice:
    """The part of the grid that the convention integrates over."""
    if convention == "osst":
        inside, low, high = np.ones(grid.size, dtype=bool), grid[0], grid[-1]
    elif convention == "surtree":
        low, high = surtree_window(time)
        inside = (grid >= low) & (grid <= high)
    else:
        low, high = time.min(), time.max()
        inside = (grid >= low) & (grid < high)
        if censoring.values[-1] > 0.0:
            inside &= grid <= train_time.max()
    kept = np.flatnonzero(inside)
    if kept.size < 2:
        raise DataError(
            f"times: convention {convention!r} needs two times in [{low:g}, {high:g}), the follow-up of the "
            f"test rows, and within that of the training rows, which ends at {train_time.max():g}; got "
            f"{kept.size}. evaluation_times(time, train_time, {convention!r}) gives such a grid."
        )
    return slice(int(kept[0]), int(kept[-1]) + 1)
