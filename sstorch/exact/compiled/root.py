"""The root of a tree of depth 3: intervals of its thresholds, in the order of their bounds."""

from __future__ import annotations

import heapq
import itertools
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.two_levels import (
    NOTHING,
    Columns,
    Rows,
    Space,
    halves_of,
    merged,
    thresholds,
    two_levels,
)
from sstorch.exact.deadline import Deadline
from sstorch.exact.problem import INFINITY
from sstorch.threads import on_threads

_NUMBERS = itertools.count()


class _Interval(NamedTuple):
    """Thresholds of a column between two that were tried, or its ends."""

    bound: float  # no tree with one of them has a smaller excess
    number: int  # of the interval, unique
    column: int  # of the thresholds
    low: int  # number of the threshold below all of them
    high: int  # of that above all of them
    below: float  # bound of the excess of the rows below the former
    above: float  # of those above the latter
    lower: FloatArray  # bounds of the subtree below the former, see `two_levels`
    upper: FloatArray  # of that above the latter


@dataclass
class Root:
    """Intervals of thresholds of the root of a tree of depth 3, in the order of their bounds."""

    columns: Columns  # the rows by columns
    spaces: list[Space]  # work space of each thread
    slack: float  # costs that differ by less are equal
    order: Rows  # (p, U), all rows by column
    best: float  # excess of the best tree known
    # its root, column and threshold, and those of the tests below and above; None if it is not of here
    split: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None = None
    done: float = INFINITY  # least bound of the intervals that were left out
    # a heap of the others, but for those that threads are working on
    intervals: list[_Interval] = field(default_factory=list)
    _working: dict[int, float] = field(default_factory=dict)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def bound(self) -> float:
        """No tree has a smaller excess."""
        first = (interval.bound for interval in self.intervals[:1])
        return min(self.best, self.done, *first, *self._working.values())

    @cached_property
    def _cuts(self) -> list[IntArray]:
        """Of each column where thresholds are in its rows."""
        t, space = self.columns, self.spaces[0]
        counts = (thresholds(t, space, c, rows) for c, rows in enumerate(self.order))
        return [space.cuts[:m].copy() for m in counts]

    def run(self, deadline: Deadline) -> None:
        """Try thresholds until no interval can have a better one, or the time has passed."""
        self.intervals = [
            _Interval(0.0, next(_NUMBERS), c, -1, len(cuts), 0.0, 0.0, NOTHING, NOTHING)
            for c, cuts in enumerate(self._cuts)
        ]
        self.intervals = [interval for interval in self.intervals if interval.high > 0]
        heapq.heapify(self.intervals)
        on_threads(lambda space: self._work(space, deadline), self.spaces, len(self.spaces))

    def _work(self, space: Space, deadline: Deadline) -> None:
        """Take intervals as long as there are any."""
        while (interval := self._take(deadline)) is not None:
            parts: list[_Interval] = []
            try:
                parts = self._try(space, interval, deadline)
            finally:
                with self._news:
                    del self._working[interval.number]
                    for one in parts:
                        self._keep(one)
                    self._news.notify_all()
                    gap = self.best - self.bound
            deadline.say(f"the best tree is at most {gap:.4g} above the optimum")

    def _take(self, deadline: Deadline) -> _Interval | None:
        """The interval of the least bound, or None when all is done."""
        with self._news:
            while True:
                while not self.intervals and self._working:
                    self._news.wait()
                if deadline.passed or not self.intervals:
                    return None
                interval = heapq.heappop(self.intervals)
                if interval.bound < self.best - self.slack:
                    self._working[interval.number] = interval.bound
                    return interval
                # No other one has a smaller bound.
                self.done = min(self.done, interval.bound)
                self.intervals.clear()

    def _keep(self, interval: _Interval) -> None:
        if interval.bound >= self.best - self.slack:
            self.done = min(self.done, interval.bound)
        else:
            heapq.heappush(self.intervals, interval)

    def _try(self, space: Space, interval: _Interval, deadline: Deadline) -> list[_Interval]:
        """Try the threshold in the middle of an interval; returns what is left of it.

        The tree of least cost there is found if it is better than the best one; the threshold is then closed.
        """
        t, slack = self.columns, self.slack
        column, low, high, below, above = interval[2:7]
        middle = (low + high) // 2
        threshold = int(t.code[column, self.order[column, self._cuts[column][middle]]])
        lower, upper = halves_of(t, self.order, column, threshold)
        # Up to what excludes the other part of the interval, not this threshold alone.
        best = self.best
        left, under, *first = two_levels(t, space, lower, interval.lower, best - above, slack, deadline)
        of_lower = merged(space, interval.lower)
        right, over, *second = two_levels(t, space, upper, interval.upper, best - below, slack, deadline)
        of_upper = merged(space, interval.upper)
        with self._news:
            if left + right < self.best - slack:
                self.best = left + right
                self.split = (column, threshold), (first[0], first[1]), (second[0], second[1])
        if -INFINITY in (under, over):  # the time has passed: its middle is not done with
            return [interval]
        under, over = max(under, below), max(over, above)
        parts = (
            _Interval(
                below + over, next(_NUMBERS), column, low, middle, below, over, interval.lower, of_upper
            ),
            _Interval(
                under + above, next(_NUMBERS), column, middle, high, under, above, of_lower, interval.upper
            ),
        )
        return [one for one in parts if one.high - one.low > 1]
