"""Brier score under censoring, at times and averaged over time, in named conventions.

Each row is weighted by the inverse probability of not being censored, G from the TRAINING rows:

    BS(t) = (1/n) sum_i [ S_i(t)^2 1(t_i <= t, event) / G_event + (1 - S_i(t))^2 1(t_i > t) / G(t) ].

With competing causes the event is that of one cause, S is one minus its cumulative incidence, and a row that
another cause has ended never has it: it adds (1 - S_i(t))^2 / G_event. Every cause ends observation in G.

Published values differ by convention: the weight, the window and the rule of the integral.

| name | G_event | value | window | rule |
|---|---|---|---|---|
| "graf" | G(t_i-), floored where G ends at 0 | IBS | 0 to the largest test time | exact, curves straight |
| "trapezoid" | the same | IBS | the given times | trapezoids |
| "sksurv" | G(t_i); terms with G = 0 are excluded | IBS | given times in the test follow-up | trapezoids |
| "surtree" | as "sksurv" | 1 - IBS / IBS_KM | 10 to 90 % quantile of test times | trapezoids |
| "osst" | as "sksurv", rows with an event at t are in G(t) | IBS | the given times | left rectangles |

Lower is better but for "surtree", where 1 is best and 0 is Kaplan-Meier. Sources, and the reading taken where
one leaves it open:

* "graf": the formula of Graf et al. with G(t-) at events. tmax is the largest test time, censored or not.
* "sksurv": `brier_score` and `integrated_brier_score` of sksurv.metrics; times at which these raise are cut:
  below the smallest test time, at or beyond the largest, beyond the last training time if G is positive.
* "surtree": Huisman, van der Linden and Demirovic (2024), "Optimal survival trees: a dynamic programming
  approach", equation 25, as the authors evaluate it: weights and trapezoids of scikit-survival between
  entries len // 10 and 9 len // 10 of the sorted DISTINCT test times, the upper one moved down by 1e-3 where
  it is the largest. Test rows beyond the training follow-up stay in, as in the paper; the authors drop them.
* "osst": Zhang, Xin, Seltzer and Rudin (2024), "Optimal sparse survival trees", as its package computes it
  (`osst.model.metrics`), from the first to the last of the given times; the paper's equation 1 integrates
  from 0 and divides by y_max. Left rectangles are exact for curves that step at those times only.

`sstorch.metrics.evaluation_times` gives the grids. Between grid times a curve is S = l + d u, u in [0, 1],
and int (1 - S)^2 / G dt = (1 - l)^2 M_0 - 2 (1 - l) d M_1 + d^2 M_2 with M_r = int u^r / G dt: the moments of
1 / G are all that is needed, O(n n_times) for all rows.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks, check_choice
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import censoring_distribution, floored
from sstorch.metrics.checks import (
    BLOCK_ELEMENTS,
    check_overlap,
    check_survival,
    check_times,
)
from sstorch.metrics.curves import CurvesInOrder
from sstorch.metrics.grids import surtree_window
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.incidence import aalen_johansen
from sstorch.metrics.outcome import Observed, Outcome, read_scored, training

_CONVENTIONS = ("graf", "trapezoid", "sksurv", "surtree", "osst")
_POWERS = np.arange(3)[:, None]


def brier_score(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    convention: str = "graf",
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute the Brier score BS(t) at each of the given times.

    Arguments are described in `sstorch.metrics`; `convention` is "graf", "trapezoid", "sksurv", "surtree" or
    "osst", see the module's description.

    Returns:
        BS at `times`, shape (n_times,), dimensionless, 0 is best.

    Raises:
        DataError: invalid arguments, or times in different units.
        ConfigError: an unknown convention.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545; Gerds and
        Schumacher (2006), Biometrical Journal 48, 1029-1040; Schoop, Beyersmann, Schumacher and Binder
        (2011), Biometrical Journal 53, 88-112, for competing risks.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1], [0.8, 0.5], [0.9, 0.7]]
        >>> brier_score(rows, survival, times=[1.0, 2.0], train=rows).round(6).tolist()
        [0.07, 0.116667]
    """
    check_choice(convention, "convention", _CONVENTIONS)
    others = {"sample_weight": sample_weight, "survival": survival}
    rows, which = read_scored(y, "the Brier score", cause, weight=True, **others)
    grid = check_times(times, rows.time)
    curves = check_survival(survival, rows.time.size, grid.size)
    known = training(train, causes=cause is not None)
    check_overlap(rows.time, grid)
    censoring = _censoring(known, convention)
    return _brier_curve(rows, curves, grid, censoring, convention, which)


def _brier_curve(
    rows: Observed,
    curves: FloatArray,
    grid: FloatArray,
    censoring: KaplanMeier,
    convention: str,
    cause: int = 1,
) -> FloatArray:
    """BS at the grid times, for arguments that passed the checks of `brier_score`, shape (n_times,)."""
    time = rows.time
    at_event, at_risk = _weights(censoring, time, rows.event, grid, convention)
    row_weight = rows.weights
    # In the order of time the rows that failed by a time are the first, and those still at risk the others.
    order = np.argsort(time, kind="stable")
    first = np.searchsorted(time[order], grid, side="right")
    at_risk_weight, failed_weight = row_weight[order], (row_weight * at_event)[order]
    other = _of_other_causes(rows, cause, order)
    read = CurvesInOrder(curves, order)
    total: FloatArray = np.empty(grid.size)
    for some in blocks(grid.size, time.size, BLOCK_ELEMENTS):
        values, own = read[some], first[some]
        low, high = int(own[0]), int(own[-1])
        between, failed = values[:, low:high], np.arange(low, high) < own[:, None]
        ended = values[:, :high] if other is None else _ended(values[:, :high], other[:high])
        event_term = ended[:, :low] ** 2 @ failed_weight[:low]
        event_term += np.where(failed, ended[:, low:] ** 2, 0.0) @ failed_weight[low:high]
        risk_term = (1.0 - values[:, high:]) ** 2 @ at_risk_weight[high:]
        risk_term += np.where(failed, 0.0, (1.0 - between) ** 2) @ at_risk_weight[low:high]
        total[some] = event_term + at_risk[some] * risk_term
    total /= row_weight.sum()
    return total


def _of_other_causes(rows: Observed, cause: int, order: IntArray) -> BoolArray | None:
    """Marks the rows, in an order, that another cause than the scored one has ended; None if no row is."""
    if rows.n_causes == 1:
        return None
    other = (rows.cause > 0) & (rows.cause != cause)
    return other[order] if other.any() else None


def _ended(survival: FloatArray, other: BoolArray) -> FloatArray:
    """What the square of a row that has ended is of: S, and 1 - S where another cause has ended it."""
    return np.where(other, 1.0 - survival, survival)


def reference_curves(train: Outcome, times: FloatArray, n_rows: int, cause: int | None = None) -> FloatArray:
    """Kaplan-Meier of training rows, of a cause 1 - Aalen-Johansen, for every row, (n_rows, n_times)."""
    known = training(train, causes=cause is not None)
    if cause is None:
        curve = KaplanMeier.fit(known, level=None).at(times)
    else:
        curve = 1.0 - aalen_johansen(known, times, n_causes=cause)[cause - 1]
    return np.broadcast_to(curve, (n_rows, curve.size))


def _censoring(train: Observed, convention: str) -> KaplanMeier:
    """G as the convention estimates it."""
    return censoring_distribution(train, tied_events="at_risk" if convention == "osst" else "removed")


def _weights(
    censoring: KaplanMeier, time: FloatArray, event: BoolArray, grid: FloatArray, convention: str
) -> tuple[FloatArray, FloatArray]:
    """1 / G of the rows with an event (0 for the others), (n,), and of those still at risk, (n_grid,)."""
    if convention in ("graf", "trapezoid"):
        known = floored(censoring)
        at_event, at_risk = 1.0 / known.before(time), 1.0 / known.at(grid)
    else:
        at_event, at_risk = (
            np.divide(1.0, g, out=np.zeros_like(g), where=g > 0.0)
            for g in (censoring.at(time), censoring.at(grid))
        )
    return np.where(event, at_event, 0.0), at_risk


@dataclass(frozen=True, eq=False)
class GrafIntegrals:
    """Sums over rows and integrals over time of curves, without G: scores with several G share one pass."""

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
    def of(cls, rows: Observed, curves: FloatArray, times: FloatArray, cause: int = 1) -> Self:
        """Integrate curves (n, n_times) that passed `check_survival`."""
        order = np.argsort(rows.time, kind="stable")
        if rows.weight is not None:  # a row without weight must not widen the window
            order = order[rows.weight[order] > 0.0]
        rows = rows.take(order)
        check_overlap(rows.time, times)
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
        weight, other = rows.weights, _of_other_causes(rows, cause, np.arange(order.size))
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
            ended = values[:, : late.start]
            if other is not None:
                ended = _ended(ended, other[: late.start])
            square, product = _products(ended[:, early])
            failure[early] += start[pieces, 0] @ square[:-1] + middle[pieces, 0] @ product
            failure[early] += end[pieces, 0] @ square[1:]
            square, product = _products(ended[:, within])
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
        left = lengths[:, piece] - _lengths(share, widths[piece])
        failure += _quadratic(low, slope, left)
        if other is not None:
            failure[other] += (_quadratic(1.0 - low, -slope, left) - _quadratic(low, slope, left))[other]
        return cls(rows, nodes, widths, piece, risk, low, slope, failure)

    def score(self, train: Outcome, causes: bool = False) -> float:
        """The integrated Brier score with G from training rows, see `integrated_brier_score`."""
        time, event, weight = self.rows.time, self.rows.event, self.rows.weight
        known = training(train, causes=causes)
        censoring = censoring_distribution(known)
        # Between neighbouring knots nothing jumps and no piece ends.
        starts, last = self.nodes[:-1], self.nodes[-1]
        knots = np.unique(np.concatenate((self.nodes, time, censoring.times)))
        knots = knots[knots <= last]
        piece = np.searchsorted(starts, knots[:-1], side="right") - 1
        at_event, at_risk = _weights(censoring, time, event, knots[:-1], "graf")
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
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the Brier score averaged over time; arguments are as in `brier_score`.

    "graf": (1/tmax) integral of BS(t) from 0 to tmax, the largest test time. Curves are interpolated linearly
    between the given times and from S(0) = 1; for these curves the integral is exact, including jumps of BS
    at test and training times: use a fine grid (`sstorch.metrics.evaluation_times`). Others: trapezoids
    ("osst": left rectangles) over the times in the window, divided by (last - first).

    Returns:
        IBS, dimensionless, 0 is best; for "surtree" 1 is best, 0 equals Kaplan-Meier, below 0 is worse.

    Raises:
        DataError: as `brier_score`; for "graf" a grid that ends before tmax or tmax = 0; for the others fewer
            than two times in the window; for "surtree" a Kaplan-Meier curve with IBS 0.
        ConfigError: an unknown convention.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> round(integrated_brier_score(rows, survival, times=[1.0, 2.0, 3.0], train=rows), 6)
        0.070741
    """
    check_choice(convention, "convention", _CONVENTIONS)
    others = {"sample_weight": sample_weight, "survival": survival}
    rows, which = read_scored(y, "the integrated Brier score", cause, weight=True, **others)
    grid = check_times(times)
    curves = check_survival(survival, rows.time.size, grid.size)
    causes = cause is not None
    if convention == "graf":
        return GrafIntegrals.of(rows, curves, grid, which).score(train, causes)
    if rows.weight is not None:  # a row without weight must not widen the window
        curves, rows = curves[rows.weight > 0.0], rows.counted()
    known = training(train, causes=causes)
    check_overlap(rows.time, grid)
    censoring = _censoring(known, convention)
    window = _window(rows.time, known.time, censoring, grid, convention)
    grid = grid[window]
    widths = np.diff(grid)

    def integral(values: FloatArray) -> float:
        score = _brier_curve(rows, values, grid, censoring, convention, which)
        heights = score[:-1] if convention == "osst" else (score[1:] + score[:-1]) / 2.0
        return float(np.dot(widths, heights) / widths.sum())

    value = integral(curves[:, window])
    if convention == "surtree":
        reference = reference_curves(known, grid, rows.time.size, which if causes else None)
        return relative_score(value, integral(reference))
    return value


def relative_score(score: float, reference: float) -> float:
    """1 - score / reference."""
    if reference == 0.0:
        raise DataError("train: the integrated Brier score of Kaplan-Meier is 0: no scaled score is defined.")
    return 1.0 - score / reference


def _window(
    time: FloatArray, train_time: FloatArray, censoring: KaplanMeier, grid: FloatArray, convention: str
) -> slice:
    """The part of the grid that the convention integrates over."""
    if convention in ("osst", "trapezoid"):
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
