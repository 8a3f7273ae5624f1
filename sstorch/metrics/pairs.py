"""Counting pairs of rows, an event and a row that lasted longer: the arithmetic behind the concordances.

Rows are put in the order of time, events before censorings where times tie. Then the partners of an event,
the rows whose event came or is still to come later, are everything from some position on, and a count over
partners is a count over the tail of an array.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sstorch.metrics.checks import BoolArray, FloatArray, IntArray

# Elements of one (events x rows) block: 8 MB of float64.
_BLOCK = 2**20


@dataclass(frozen=True)
class ComparablePairs:
    """The pairs (i, j) with an event in i and the event of j known to be later.

    Attributes:
        order: rows in the order of time, events first among ties, shape (n,).
        events: rows with an event that counts, in that order, shape (m,).
        start: the partners of events[k] are order[start[k]:], never falling, shape (m,).
        event_weight: what a pair of events[k] counts, shape (m,), or None for one each.
        row_weight: weights of the rows in the order `order`, shape (n,), or None for one each.
    """

    order: IntArray
    events: IntArray
    start: IntArray
    event_weight: FloatArray | None
    row_weight: FloatArray | None

    @classmethod
    def of(
        cls,
        time: FloatArray,
        event: BoolArray,
        tied_time: str,
        tau: float | None = None,
        event_weight: FloatArray | None = None,
        row_weight: FloatArray | None = None,
    ) -> Self:
        """Find the pairs.

        Args:
            time: observed times, shape (n,).
            event: event indicators, shape (n,).
            tied_time: "exclude" or "censored_later".
            tau: events count at times below tau only; None counts all.
            event_weight: of the rows, read where there is an event, shape (n,), or None.
            row_weight: of the rows, shape (n,), or None.
        """
        order = np.lexsort((~event, time))
        sorted_time, sorted_event = time[order], event[order]
        group_end = np.searchsorted(sorted_time, sorted_time, side="right")
        if tied_time == "censored_later":
            n_events = np.concatenate(([0], np.cumsum(sorted_event)))
            group_begin = np.searchsorted(sorted_time, sorted_time, side="left")
            start = group_begin + n_events[group_end] - n_events[group_begin]
        else:
            start = group_end
        counts = sorted_event if tau is None else sorted_event & (sorted_time < tau)
        events = order[counts]
        weight = event_weight
        if row_weight is not None:
            weight = row_weight if weight is None else weight * row_weight
        return cls(
            order,
            events,
            start[counts],
            None if weight is None else weight[events],
            None if row_weight is None else row_weight[order],
        )

    def total(self) -> float:
        """Weight of all pairs."""
        n = self.order.size
        if self.row_weight is None:
            return float(_sum(n - self.start, self.event_weight))
        tail = np.concatenate((np.cumsum(self.row_weight[::-1])[::-1], [0.0]))
        return float(_sum(tail[self.start], self.event_weight))

    def count_risk(self, risk: FloatArray) -> tuple[float, float]:
        """Weight of the pairs with r_i > r_j, and of those with r_i = r_j, in O(n log n).

        The ranks of the risks are read bit by bit, from the highest: at each bit the rows are split, in
        stable order, into those with a 0 and those with a 1, so that a tail of rows stays one interval in
        each half. An event whose own bit is 1 then outranks all rows of its interval with a 0, a difference
        of two running counts, and goes on among those with a 1. After the last bit its interval holds its
        equals.

        Args:
            risk: a score per row, shape (n,).

        Returns:
            Two sums over pairs; exact integers where no weights are given.
        """
        rank = np.unique(risk, return_inverse=True)[1].astype(np.int32)
        own, rank = rank[self.events], rank[self.order]
        n, weight = rank.size, self.row_weight
        begin = self.start.astype(np.int32)
        end = np.full_like(begin, n)
        lower = np.zeros(begin.size, dtype=np.int64 if weight is None else np.float64)
        for bit in reversed(range(int(rank.max()).bit_length())):
            one = (rank >> bit) & 1 == 1
            zero = ~one
            zeros_before = np.zeros(n + 1, dtype=np.int32)
            np.cumsum(zero, out=zeros_before[1:])
            up = (own >> bit) & 1 == 1
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
            equal = end - begin
        else:
            mass = np.concatenate(([0.0], np.cumsum(weight)))
            equal = mass[end] - mass[begin]
        return float(_sum(lower, self.event_weight)), float(_sum(equal, self.event_weight))

    def count_curves(self, curves: FloatArray, column: IntArray) -> tuple[float, float]:
        """Weight of the pairs with S_i < S_j at the event of i, and of those with S_i = S_j.

        Args:
            curves: S of all rows on a grid, shape (n, n_times).
            column: for each of `events`, the grid position at which the curves are read, or -1 for S = 1;
                never falling, shape (m,).

        Returns:
            Two sums over pairs; exact integers where no weights are given.
        """
        lower = tied = 0.0
        per_block = max(1, _BLOCK // self.order.size)
        for k in range(0, self.events.size, per_block):
            block = slice(k, k + per_block)
            start = self.start[block]
            rows = self.order[start[0] :]
            if rows.size == 0:
                break  # nobody lasts longer than these events, nor than those after them
            columns, which = np.unique(column[block], return_inverse=True)
            at_columns = curves[:, np.maximum(columns, 0)]
            at_columns[:, columns < 0] = 1.0
            values = at_columns[rows].T[which]
            own = at_columns[self.events[block], which][:, None]
            above, not_below = values > own, values >= own
            head = int(start[-1] - start[0])  # rows that are partners of some events of the block only
            partner = np.arange(start[0], start[0] + head) >= start[:, None]
            above[:, :head] &= partner
            not_below[:, :head] &= partner
            n_above = self._weigh(above, block)
            lower += n_above
            tied += self._weigh(not_below, block) - n_above
        return lower, tied

    def _weigh(self, marked: BoolArray, block: slice) -> float:
        """Weight of the marked pairs of a block of events with the last rows of the order."""
        if self.event_weight is None and self.row_weight is None:
            return float(np.count_nonzero(marked))
        if self.row_weight is None:
            per_event = np.count_nonzero(marked, axis=1).astype(np.float64)
        else:
            per_event = marked @ self.row_weight[-marked.shape[1] :]
        return float(per_event.sum() if self.event_weight is None else per_event @ self.event_weight[block])


def _sum(values: npt.NDArray[Any], weight: FloatArray | None) -> float:
    return float(values.sum() if weight is None else np.dot(values, weight))
