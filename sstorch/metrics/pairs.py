"""Comparable pairs of rows, and how many of them predictions put in the order of the events.

In the order of time, events before censorings, the partners of an event are everything from some position on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks, check_choice, check_horizon, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.checks import BLOCK_ELEMENTS, check_overlap, check_survival, check_times
from sstorch.metrics.curves import CurvesInOrder, survival_at
from sstorch.metrics.outcome import Observed

TiedTime = Literal["exclude", "censored_later", "all"]
# Weighted sums of the same pairs in another order agree to this share.
_ROUNDING = 1e-12
# Events that read the same column from which on ranks are faster than pairs.
_MANY = 64


@dataclass(frozen=True)
class ComparablePairs:
    """The pairs (i, j) with an event in i and the event of j known to be later."""

    order: IntArray  # rows in the order of time, events first among ties, shape (n,)
    events: IntArray  # rows with an event that counts, in that order, shape (m,)
    start: IntArray  # the partners of events[k] are order[start[k]:], never falling, shape (m,)
    event_weight: FloatArray | None  # the weight of a pair of events[k], shape (m,), or None for one each
    row_weight: FloatArray | None  # weights of the rows in the order `order`, (n,), or None for one each
    own: FloatArray | None = None  # weight of each event among its own partners, (m,), which does not count
    # Those of them that were never at risk together, which do not count; None if all were
    apart: Self | None = None

    @classmethod
    def of(
        cls,
        time: FloatArray,
        event: BoolArray,
        tied_time: str,
        tau: float | None = None,
        event_weight: FloatArray | None = None,
        row_weight: FloatArray | None = None,
        entry: FloatArray | None = None,
    ) -> Self:
        """Find the pairs; arrays are of the rows, shape (n,), and event weights are read at events only."""
        order = np.lexsort((~event, time))
        sorted_time, sorted_event = time[order], event[order]
        start = np.searchsorted(sorted_time, sorted_time, "left" if tied_time == "all" else "right")
        if tied_time == "censored_later":
            n_events, begin = np.append(0, np.cumsum(sorted_event)), np.searchsorted(sorted_time, sorted_time)
            start = begin + n_events[start] - n_events[begin]
        counts = sorted_event if tau is None else sorted_event & (sorted_time < tau)
        events = order[counts]
        weight, own = event_weight, np.ones(events.size)
        if row_weight is not None:
            weight, own = row_weight if weight is None else weight * row_weight, row_weight[events]
        pairs = cls(
            order,
            events,
            start[counts],
            None if weight is None else weight[events],
            None if row_weight is None else row_weight[order],
            own if tied_time == "all" else None,
        )
        if entry is None:
            return pairs
        # Who enters at an event or after it has a later time: in the order of entry they are a tail, too.
        by_entry = np.argsort(entry, kind="stable")
        apart = replace(
            pairs,
            order=by_entry,
            start=np.searchsorted(entry[by_entry], time[events]),
            row_weight=None if row_weight is None else row_weight[by_entry],
            own=None,
        )
        return replace(pairs, apart=apart)

    def weigh(self, counts: npt.NDArray[Any], event_weight: FloatArray | None = None) -> float:
        """Weight of pairs that are counted for the first of the events, (k,), with a further weight (n,)."""
        weight = None if self.event_weight is None else self.event_weight[: counts.size]
        if event_weight is not None:
            further = event_weight[self.events[: counts.size]]
            weight = further if weight is None else weight * further
        return float(counts.sum() if weight is None else np.dot(counts, weight))

    def partners(self) -> npt.NDArray[Any]:
        """Weight of the partners of each event, (m,)."""
        whole = self.order.size - self.start
        if self.row_weight is not None:
            whole = np.append(np.cumsum(self.row_weight[::-1])[::-1], 0.0)[self.start]
        rest = self._without(whole, None if self.apart is None else self.apart.partners())
        return rest if rest is whole else np.where(rest > _ROUNDING * whole, rest, 0.0)

    def _without(self, counts: npt.NDArray[Any], apart: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        """Counts of partners without the event itself and those that were never at risk together."""
        counts = counts if self.own is None else counts - self.own
        return counts if apart is None else counts - apart

    def compare_risk(self, risk: FloatArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Weight of the partners of each event with r_i > r_j, and with r_i = r_j, (m,) each; O(n log n)."""
        rank = np.unique(risk, return_inverse=True)[1].astype(np.int32)
        end = np.full_like(self.start, rank.size)
        lower, tied = rank_sums(rank[self.events], rank[self.order], self.start, end, self.row_weight)
        apart = (None, None) if self.apart is None else self.apart.compare_risk(risk)
        return lower if apart[0] is None else lower - apart[0], self._without(tied, apart[1])

    def compare_curves(self, curves: FloatArray, column: IntArray) -> tuple[FloatArray, FloatArray]:
        """Weight of the partners of each event with S_i < S_j at its time, and with S_i = S_j, each (m,)."""
        # Curves (n, n_times) are read in a `column` (m,), never falling, or -1 for S = 1; no `event_weight`.
        parts = [
            (self._count_column if alone else self._count_pairs)(curves, column, some)
            for some, alone in _runs(column)
        ]
        lower, tied = (np.concatenate([part[k] for part in parts] or [np.empty(0)]) for k in (0, 1))
        apart = (None, None) if self.apart is None else self.apart.compare_curves(curves, column)
        return lower if apart[0] is None else lower - apart[0], self._without(tied, apart[1])

    def _count_column(
        self, curves: FloatArray, column: IntArray, some: slice
    ) -> tuple[FloatArray, FloatArray]:
        """Counts of m events that read the same column, in O(n log m)."""
        # Partners of all events are put among the values of the events, the few others are compared by ranks.
        first, last = int(self.start[some.start]), int(self.start[some.stop - 1])
        at = int(column[some.start])
        survival = curves[:, at] if at >= 0 else np.ones(len(curves))
        of_events, head, tail = (
            survival[rows] for rows in (self.events[some], self.order[first:last], self.order[last:])
        )
        weight = None if self.row_weight is None else self.row_weight[first:]
        rank = np.unique(-np.concatenate((of_events, head)), return_inverse=True)[1].astype(np.int32)
        n_events, n_head = of_events.size, head.size
        lower, tied = rank_sums(
            rank[:n_events],
            rank[n_events:],
            self.start[some] - first,
            np.full(n_events, n_head),
            None if weight is None else weight[:n_head],
        )
        values, place = np.unique(of_events, return_inverse=True)
        of_tail = None if weight is None else weight[n_head:]
        at_tail = np.searchsorted(values, tail)
        same = values[np.minimum(at_tail, values.size - 1)] == tail
        # Rows above a value are those that come behind a later one; equal rows come before their value.
        behind = np.cumsum(np.bincount(at_tail, of_tail, values.size + 1)[::-1])[::-1]
        equal = np.bincount(at_tail[same], None if of_tail is None else of_tail[same], values.size)
        return lower + behind[place + 1], tied + equal[place]

    def _count_pairs(
        self, curves: FloatArray, column: IntArray, some: slice
    ) -> tuple[FloatArray, FloatArray]:
        """Counts of consecutive events, pair by pair."""
        lower, tied = (np.zeros(some.stop - some.start) for _ in range(2))
        read = CurvesInOrder(curves, self.order)
        n_rows, place = self.order.size, np.argsort(self.order)[self.events]
        for block in blocks(some.stop - some.start, n_rows, BLOCK_ELEMENTS):
            events = slice(some.start + block.start, min(some.start + block.stop, some.stop))
            columns, which = np.unique(column[events], return_inverse=True)
            values = read.each(np.maximum(columns, 0))
            if columns[0] < 0:
                values[0] = np.ones(n_rows)
            each = (each.tolist() for each in (which, self.start[events], place[events]))
            for k, (at, start, own) in enumerate(zip(*each, strict=True), block.start):
                partners, value = values[at][start:], values[at][own]
                if self.row_weight is None:
                    lower[k] = np.count_nonzero(partners > value)
                    tied[k] = np.count_nonzero(partners == value)
                else:
                    lower[k] = (partners > value) @ self.row_weight[start:]
                    tied[k] = (partners == value) @ self.row_weight[start:]
        return lower, tied


@dataclass(frozen=True)
class Compared:
    """Predictions compared at every event: the longest part of a concordance, shared by all of them."""

    pairs: ComparablePairs  # the comparable pairs, without weights of events beyond those of the rows
    time: FloatArray  # of each event, not falling, shape (m,)
    lower: npt.NDArray[Any]  # weight of the partners of each event with a lower risk or a higher S, (m,)
    tied: npt.NDArray[Any]  # of those with the same, shape (m,)

    @classmethod
    def of(
        cls,
        rows: Observed,
        prediction: npt.ArrayLike,
        times: npt.ArrayLike | None,
        tied_time: TiedTime = "exclude",
        tau: float | None = None,
    ) -> Self:
        """Compare curves (n, n_times), or risks (n,) without times, see `concordance_harrell`."""
        if times is None:
            pairs, n_rows = comparable_pairs(rows, tied_time, tau), rows.time.size
            counts = pairs.compare_risk(check_vector(prediction, "risk", n_rows))
            return cls(pairs, rows.time[pairs.events], *counts)
        grid = check_times(times)
        curves = check_survival(prediction, rows.time.size, grid.size)
        return cls.of_curves(rows, curves, grid, tied_time, tau)

    @classmethod
    def of_curves(
        cls,
        rows: Observed,
        curves: FloatArray,
        grid: FloatArray,
        tied_time: TiedTime = "exclude",
        tau: float | None = None,
    ) -> Self:
        """Compare curves (n, n_times) that passed `check_survival`."""
        pairs = comparable_pairs(rows, tied_time, tau)
        if pairs.partners().any():  # else `concordance` says that there is no pair
            check_overlap(rows.time, grid)
        time = rows.time[pairs.events]
        column = np.searchsorted(grid, time, side="right") - 1
        return cls(pairs, time, *pairs.compare_curves(curves, column))

    def with_tied_times(self, rows: Observed, survival: FloatArray, times: FloatArray) -> Self:
        """These curves, compared by `tied_time="exclude"`, with the pairs of equal times of "all" too."""
        pairs = comparable_pairs(rows, "all", None)
        time, event = rows.survived[pairs.order], rows.event[pairs.order]
        own = survival_at(survival[pairs.order], times, time)
        rank = np.unique(-own, return_inverse=True)[1].astype(np.int32)
        end = np.searchsorted(time, self.time, side="right")
        lower, tied = rank_sums(rank[event], rank, pairs.start, end, pairs.row_weight)
        return type(self)(pairs, self.time, self.lower + lower, self.tied + tied - pairs.own)

    def concordance(self, tau: float | None = None, event_weight: FloatArray | None = None) -> float:
        """Share of concordant pairs of the events before tau, with a further weight (n,) at events."""
        m = self.time.size if tau is None else int(np.searchsorted(self.time, check_horizon(tau, "tau")))
        parts = (self.lower, self.tied, self.pairs.partners())
        concordant, tied, total = (self.pairs.weigh(counts[:m], event_weight) for counts in parts)
        if total == 0.0:
            raise DataError(
                f"no comparable pair among {self.pairs.order.size} rows with {m} events: concordance needs a "
                "row whose event comes before the time of another row, both at risk together. Use larger "
                "folds, or stratify them by event."
            )
        return share_of_pairs(concordant, tied, total)


def _runs(column: IntArray) -> Iterator[tuple[slice, bool]]:
    """Consecutive events of columns (m,): those that share one with many others, and those between them."""
    ends = np.concatenate((np.flatnonzero(np.diff(column)) + 1, [column.size]))
    first = begin = 0
    for end in ends.tolist():
        if end - begin >= _MANY:
            if first < begin:
                yield slice(first, begin), False
            yield slice(begin, end), True
            first = end
        begin = end
    if first < column.size:
        yield slice(first, column.size), False


def rank_sums(
    query: npt.NDArray[np.int32],
    rank: npt.NDArray[np.int32],
    begin: IntArray,
    end: IntArray,
    weight: FloatArray | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Weight of rows `begin` .. `end` - 1 that rank below each query, and of those that rank alike, (m,)."""
    # Ranks are read bit by bit, from the highest: rows are split, in stable order, into those with a 0
    # and with a 1, so that an interval stays one in each half. A query with a 1 outranks its rows with a 0.
    n = rank.size
    begin, end = begin.astype(np.int32), end.astype(np.int32)
    highest = int(max(query.max(initial=0), rank.max(initial=0)))
    lower = np.zeros(begin.size, dtype=np.int64 if weight is None else np.float64)
    for bit in reversed(range(highest.bit_length())):
        one = (rank >> bit) & 1 == 1
        zero = ~one
        zeros_before = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(zero, out=zeros_before[1:])
        up = (query >> bit) & 1 == 1
        zero_begin, zero_end = zeros_before[begin], zeros_before[end]
        if weight is None:
            lower += np.where(up, zero_end - zero_begin, 0)
        else:
            mass = np.concatenate(([0.0], np.cumsum(np.where(zero, weight, 0.0))))
            lower += np.where(up, mass[end] - mass[begin], 0.0)
            weight = np.concatenate((weight[zero], weight[one]))
        n_zeros = zeros_before[-1]
        begin = np.where(up, n_zeros + begin - zero_begin, zero_begin)
        end = np.where(up, n_zeros + end - zero_end, zero_end)
        rank = np.concatenate((rank[zero], rank[one]))
    if weight is None:
        return lower, end - begin
    mass = np.concatenate(([0.0], np.cumsum(weight)))
    return lower, mass[end] - mass[begin]


def comparable_pairs(rows: Observed, tied_time: str = "exclude", tau: float | None = None) -> ComparablePairs:
    """The comparable pairs of rows, see `concordance_harrell`."""
    check_choice(tied_time, "tied_time", get_args(TiedTime))
    horizon = None if tau is None else check_horizon(tau, "tau")
    options = {"row_weight": rows.weight, "entry": rows.entry}
    return ComparablePairs.of(rows.survived, rows.event, tied_time, horizon, **options)


def share_of_pairs(concordant: float, tied: float, total: float) -> float:
    """Share of concordant pairs of a total weight; tied ones count one half."""
    concordant += 0.5 * tied
    return min(1.0, max(0.0, float(concordant / total)))  # weighted sums may round past the ends
