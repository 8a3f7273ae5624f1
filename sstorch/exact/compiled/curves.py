"""Leaves with Kaplan-Meier curves: their integrated Brier scores.

With few blocks of the time axis they come from sums of each block. With many there is less to do if rows
are followed in the order of time, since a leaf's curve changes only at the events of its own rows. With A(t)
and B(t) what the grid points up to t weigh for rows alive and with an event, a row at risk up to t adds
∫ (1 - S)² dA = K + (1 - S)² A(t), and a row with an event at t, of weight g, adds g ∫ S² dB from t on, the
integral up to the end less L + S² B(t). K and L change where S does.
"""

from __future__ import annotations

from functools import cache
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exact.rows import Patterns
from sstorch.exact.survival_tasks import Blocks, IntegratedBrier
from sstorch.optim.compiled.jit import compiled, elementwise

# Of a leaf: rows at risk, S, K, L, the weight g of its events so far, and its loss.
_WIDTH = 6
# Measured on one core: of a row of a set, of a sum of a set, and of a sum of a distinct row.
SECONDS_PER_ROW = 7e-9
_SECONDS_PER_SUM, _SECONDS_PER_SUM_OF_ROW = 5e-9, 8e-8


class Leavers(NamedTuple):
    """Rows of an integrated Brier score that leave in a block of its time axis, by block and distinct row."""

    block: IntArray  # (E,), from 0
    pattern: IntArray  # (E,), the distinct row
    rows: FloatArray  # (E,), their weight, a whole number; how many they are where rows have no weights
    events: FloatArray  # (E,), the weight of those with an event
    part: FloatArray  # (E,), what the others have seen of the weights of the block, summed by weight

    @classmethod
    def of(cls, patterns: Patterns, task: IntegratedBrier) -> Leavers:
        """Those of a task."""
        n_patterns = len(patterns.literals)
        row, block, values = task.leaving()
        key, place = np.unique(block * n_patterns + patterns.of_row[row], return_inverse=True)
        sums: list[FloatArray] = [np.bincount(place, v).astype(np.float64) for v in values]
        return cls(*np.divmod(key, n_patterns), *sums)

    def at_risk(self, n_patterns: int) -> FloatArray:
        """Weight of each distinct row, (1, U)."""
        counts = np.bincount(self.pattern, self.rows, minlength=n_patterns)
        return counts.astype(np.float64)[None]

    def sums(self, n_blocks: int, begin: int, end: int) -> FloatArray:
        """Sums of the distinct rows begin .. end - 1, (3 M, end - begin), the three of a block together."""
        sums, here = np.zeros((n_blocks, 3, end - begin)), (begin <= self.pattern) & (self.pattern < end)
        values = np.stack([self.rows, self.events, self.part], axis=1)
        sums[self.block[here], :, self.pattern[here] - begin] = values[here]
        return sums.reshape(3 * n_blocks, end - begin)

    def followed(self, n_blocks: int, depth: int, n_patterns: int, n_features: int) -> bool:
        """Whether it takes less to follow each row than to sum up blocks, in all sets of `depth` features."""
        sets, sums = max(1, comb(n_features, depth)), 3 * n_blocks
        by_sums = sets * (sums << depth) * _SECONDS_PER_SUM + sums * n_patterns * _SECONDS_PER_SUM_OF_ROW
        return sets * len(self.block) * SECONDS_PER_ROW < by_sums


class Curves(NamedTuple):
    """Rows in the order in which they leave, events before censored rows; work space."""

    literals: npt.NDArray[np.uint8]  # (R, F + 1), the last one 0
    event: BoolArray  # (R,), whether they leave with an event
    weight: FloatArray  # (R,), how many rows each is, or what these weigh
    alive: FloatArray  # (R,), A at their time
    passed: FloatArray  # (R,), B at their time
    gain: FloatArray  # (R,), weight times g; 0 of censored rows
    end: float  # B at the end of the grid
    code: IntArray = np.empty(0, dtype=np.int64)  # (R,)
    group: IntArray = np.empty(0, dtype=np.int64)  # (R,)
    state: FloatArray = np.empty(0)  # (leaves at once * `_WIDTH`,)

    @classmethod
    def of(cls, leavers: Leavers, patterns: Patterns, blocks: Blocks) -> Curves:
        """The rows of a task; equal ones that leave in one block are one."""
        begin = np.concatenate([[0.0], np.cumsum(blocks.alive)])[leavers.block]
        passed = np.concatenate([[0.0], np.cumsum(blocks.passed)])
        censored = leavers.rows - leavers.events
        dead, left = np.flatnonzero(leavers.events > 0.0), np.flatnonzero(censored > 0.0)
        every, event = np.concatenate([dead, left]), np.arange(len(dead) + len(left)) < len(dead)
        order = np.lexsort((~event, leavers.block[every]))
        every, event = every[order], event[order]
        weight = np.where(event, leavers.events[every], censored[every])
        # Events are where blocks begin; censored rows have seen a part of theirs.
        alive = begin[every] + np.where(event, 0.0, leavers.part[every] / weight)
        gain = np.where(event, weight * blocks.event_weight[leavers.block[every]], 0.0)
        literals = np.zeros((len(every), patterns.literals.shape[1] + 1), dtype=np.uint8)
        literals[:, :-1] = patterns.literals[leavers.pattern[every]]
        at = passed[leavers.block[every]]
        return cls(literals, event, weight, alive, at, gain, float(passed[-1]))

    @classmethod
    @cache
    def none(cls, n_features: int) -> Curves:
        """Those of a task without curves."""
        literals, event = np.empty((0, n_features + 1), dtype=np.uint8), np.empty(0, dtype=np.bool_)
        return cls(literals, event, *(np.empty(0),) * 4, 0.0)

    def where(self, feature: int, present: bool) -> Curves:
        """The rows in which the literal of a feature is 1, or is 0."""
        if not len(self.event):
            return self
        kept = self.literals[:, feature] == present
        names = ("literals", "event", "weight", "alive", "passed", "gain")
        return self._replace(**{name: getattr(self, name)[kept] for name in names})

    def with_first(self, n: int) -> Curves:
        """The rows with so many of their features."""
        literals = np.zeros((len(self.literals), n + 1), dtype=np.uint8)
        literals[:, :n] = self.literals[:, :n]
        return self._replace(literals=literals)

    def at_work(self, depth: int) -> Curves:
        """The same rows, or none, with work space of their own, for sets of up to so many features."""
        n_rows, width = self.literals.shape
        return self._replace(
            code=np.zeros(n_rows, dtype=np.int64),
            group=np.zeros(n_rows, dtype=np.int64),
            state=np.empty(width * _WIDTH << depth),
        )

    def for_another(self) -> Curves:
        """The same rows with as much work space, for another thread."""
        return self._replace(code=self.code.copy(), group=self.group.copy(), state=np.empty_like(self.state))


@elementwise
def _leave_with_event(state, first, step, literals, n, weight, alive, passed, gain):
    for e in range(n):
        at = first + literals[e] * step + e * _WIDTH
        survival = state[at + 1]
        dead, living = (1.0 - survival) * (1.0 - survival), survival * survival
        state[at + 5] += weight * (state[at + 2] + dead * alive) - gain * (state[at + 3] + living * passed)
        state[at + 4] += gain
        survival *= 1.0 - weight / state[at]
        state[at] -= weight
        state[at + 1] = survival
        state[at + 2] += (dead - (1.0 - survival) * (1.0 - survival)) * alive
        state[at + 3] += (living - survival * survival) * passed


@elementwise
def _leave(state, first, step, literals, n, weight, alive):
    for e in range(n):
        at = first + literals[e] * step + e * _WIDTH
        dead = 1.0 - state[at + 1]
        state[at + 5] += weight * (state[at + 2] + dead * dead * alive)
        state[at] -= weight


@compiled
def _follow(c, n_groups, n):
    """Follow leaves to losses; that of group g and answer a to e of n is at ((2 g + a) n + e) `_WIDTH`."""
    state = c.state
    for i in range(2 * n_groups * n):
        at = i * _WIDTH
        state[at + 1] = 1.0
        for k in range(2, _WIDTH):
            state[at + k] = 0.0
    step = n * _WIDTH
    for r in range(len(c.group)):
        group = c.group[r]
        if group < 0:
            continue
        first = 2 * group * step
        if c.event[r]:
            _leave_with_event(
                state, first, step, c.literals[r], n, c.weight[r], c.alive[r], c.passed[r], c.gain[r]
            )
        else:
            _leave(state, first, step, c.literals[r], n, c.weight[r], c.alive[r])
    for i in range(2 * n_groups * n):
        at = i * _WIDTH
        survival = state[at + 1]
        state[at + 5] += state[at + 4] * (state[at + 3] + survival * survival * c.end)


@compiled
def sign_rows(c, prefix, size):
    """The signs of the features of a prefix in each row, as bits of a number, in `code`."""
    for r in range(len(c.code)):
        code = 0
        for i in range(size):
            code = 2 * code + c.literals[r, prefix[i]]
        c.code[r] = code


@compiled
def add_curves_of_pairs(c, size, d, at_risk, first, n, cost):
    """Add the losses of the cells of a prefix, d and each smaller feature, from `first` on, n each sign."""
    for r in range(len(c.code)):
        c.group[r] = 2 * c.code[r] + c.literals[r, d]
    for s in range(4 << size):
        for e in range(d):
            c.state[(s * d + e) * _WIDTH] = at_risk[s * n + first + e]
    _follow(c, 2 << size, d)
    for s in range(4 << size):
        for e in range(d):
            cost[s * n + first + e] += c.state[(s * d + e) * _WIDTH + 5]


@compiled
def add_curves_of_singles(c, feature, sign, at_risk, cost):
    """Add the losses of leaves without and with each feature, and of all, where `feature` has the sign."""
    n = c.literals.shape[1]
    for r in range(len(c.group)):
        c.group[r] = 0 if feature < 0 or c.literals[r, feature] == sign else -1
    # The feature that no row has follows all rows.
    c.state[(n - 1) * _WIDTH] = at_risk[2 * n - 2]
    c.state[(2 * n - 1) * _WIDTH] = 0.0
    for a in range(2):
        for e in range(n - 1):
            c.state[(a * n + e) * _WIDTH] = at_risk[a * (n - 1) + e]
    _follow(c, 1, n)
    for a in range(2):
        for e in range(n - 1):
            cost[a * (n - 1) + e] += c.state[(a * n + e) * _WIDTH + 5]
    cost[2 * n - 2] += c.state[(n - 1) * _WIDTH + 5]
