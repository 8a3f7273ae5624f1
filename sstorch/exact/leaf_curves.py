"""Hazard of all rows; survival curves, hazards and incidences of the leaves of a tree, of K causes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_share, check_truncation
from sstorch.data.target import steps_up_to
from sstorch.exceptions import ConfigError
from sstorch.memory import check_room
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed


def least_hazard(weight: FloatArray) -> float:
    """Hazard in place of none: 1 / (N + 1), N the sum of weights as multiples of the smallest one."""
    smallest = float(weight[weight > 0.0].min())
    return smallest / (float(weight.sum()) + smallest)


@dataclass(frozen=True)
class BaselineHazard:
    """Nelson-Aalen estimate Λ of all rows: before the first event `least_hazard`, 0 with left truncation."""

    times: FloatArray  # (T,), of events
    values: FloatArray  # (1 + T,), before the first of them, and from each on

    @classmethod
    def of(cls, rows: Observed) -> BaselineHazard:
        """From weighted rows at risk where entry < t <= time."""
        sets = risk_sets(rows)
        had = sets.n_events > 0.0
        first = least_hazard(rows.weights) if rows.entry is None else 0.0
        rises = sets.n_events[had] / sets.at_risk[had]
        return cls(sets.times[had], np.concatenate(([first], np.cumsum(rises))))

    def exposure(self, rows: Observed) -> FloatArray:
        """Λ(t_i) - Λ(entry_i), or Λ(t_i) without left truncation, (N,)."""
        return self.at(rows.time) if rows.entry is None else self.at(rows.time) - self.at(rows.entry)

    def at(self, time: npt.ArrayLike) -> FloatArray:
        """Λ(t)."""
        read: FloatArray = self.values[np.searchsorted(self.times, time, side="right")]
        return read


def hazard_ratios(leaf: IntArray, n_leaves: int, rows: Observed, exposure: FloatArray) -> FloatArray:
    """Hazard ratio of each leaf, (L,): weighted events, at least half of one, per exposure; or 1."""
    weight = rows.weights
    events = np.bincount(leaf, weights=weight * rows.event, minlength=n_leaves)
    hazard = np.bincount(leaf, weights=weight * exposure, minlength=n_leaves)
    least = 0.5 * float(weight[weight > 0.0].min())
    return np.divide(np.maximum(events, least), hazard, out=np.ones(n_leaves), where=hazard > 0.0)


# A product of factors (1 - d / n) can miss a round number such as 1/2 by a few units in the last place.
_ROUNDING = 1e-12
# Digits of the mean survival that order leaves by prognosis.
_PROGNOSIS_DIGITS = 9


@dataclass(frozen=True)
class LeafCurves:
    """Curves of L leaves as right-continuous steps, of K causes; beyond the last time they are constant.

    Methods of `leaf`, the leaf of each row (n,) or None for each leaf once, are those of `FittedModel`.
    """

    times: FloatArray  # distinct event times of the rows, increasing, (T,)
    survival: FloatArray  # without an event of any cause, (L, T), non-increasing
    hazards: FloatArray  # cumulative hazard of each cause, (L, K, T)
    competing: bool = False  # whether causes have names

    @property
    def cumulative_hazard(self) -> FloatArray:
        """Cumulative hazard of any event, (L, T)."""
        total: FloatArray = self.hazards.sum(axis=1)
        return total

    @cached_property
    def incidences(self) -> FloatArray:
        """Cumulative incidence of each cause by Aalen and Johansen, (L, K, T)."""
        rates = np.diff(self.hazards, axis=2, prepend=0.0)
        total = rates.sum(axis=1, keepdims=True)
        share = np.divide(rates, total, out=np.full_like(rates, 1.0 / rates.shape[1]), where=total > 0.0)
        return np.cumsum(share * -np.diff(self.survival, axis=1, prepend=1.0)[:, None], axis=2)

    def survival_at(self, grid: FloatArray, leaf: IntArray | None = None) -> FloatArray:
        """S at any times, (L, n_times); or of the leaf (n,) of each row at its own times (n, n_times)."""
        return self._read(self.survival, 1.0, grid, leaf)

    def cumulative_hazard_at(self, grid: FloatArray, leaf: IntArray | None = None) -> FloatArray:
        """H at any times, as :meth:`survival_at`."""
        return self._read(self.cumulative_hazard, 0.0, grid, leaf)

    def curves(self, leaf: IntArray, times: FloatArray, kind: str = "survival") -> FloatArray:
        """Curves of rows at times (n_times,), or each at its own (n, n_times), of shape (n, n_times)."""
        check_room(len(leaf), times.shape[-1])
        at = self.survival_at if kind == "survival" else self.cumulative_hazard_at
        return at(times)[leaf] if times.ndim == 1 else at(times, leaf)

    def incidence(self, leaf: IntArray, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Incidences of rows that are event-free `after`, from where times count, (n, K, n_times)."""
        check_room(len(leaf) * self.hazards.shape[1], len(times))
        found = self._read(self.incidences, 0.0, np.append(0.0, times) + after)[leaf]
        if not after:
            return np.asarray(found[..., 1:])
        return (found[..., 1:] - found[..., :1]) / self.survival_at(np.array([after]))[leaf, None]

    def risk(self, leaf: IntArray, times: FloatArray) -> FloatArray:
        """Sum of the cumulative hazard over the event times, (n,)."""
        total: FloatArray = self.cumulative_hazard.sum(axis=1)
        return total[leaf]

    def exposure(self, leaf: IntArray, time: FloatArray, entry: FloatArray) -> FloatArray:
        """H_k(time) - H_k(entry) of each cause in the leaf of each row, (n, K)."""
        ends = np.stack([entry, time], axis=1)
        every = [self._read(hazard, 0.0, ends, leaf) for hazard in self.hazards.swapaxes(0, 1)]
        return np.stack([at[:, 1] - at[:, 0] for at in every], axis=1)

    def scaled(self, factors: FloatArray) -> LeafCurves:
        """Curves with hazards times a factor of each cause, (K,), S falling in proportion: S^c."""
        rates = np.diff(self.hazards, axis=2, prepend=0.0)
        total, wanted = rates.sum(axis=1), factors @ rates
        power = np.divide(wanted, total, out=np.ones_like(total), where=total > 0.0)
        before = np.column_stack([np.ones(len(self.survival)), self.survival[:, :-1]])
        kept = np.divide(self.survival, before, out=np.ones_like(before), where=before > 0.0)
        survival = np.cumprod(kept**power, axis=1, dtype=np.float64)
        return LeafCurves(self.times, survival, factors[:, None] * self.hazards)

    @property
    def order(self) -> IntArray:
        """Place of each leaf by mean survival up to the last event time, (L,), 0 for the largest."""
        end = float(self.times[-1])
        level = (self.restricted_mean(None, end) / end).round(_PROGNOSIS_DIGITS)
        return np.argsort(np.argsort(-level, kind="stable"))

    def quantile(
        self, leaf: IntArray | None, q: float, after: FloatArray | None = None, extrapolate: bool = False
    ) -> FloatArray:
        """First time t with S(after + t) <= (1 - q) S(after), `after` (n,) with S > 0; +inf for none."""
        if extrapolate:
            raise ConfigError("extrapolate must be False for an exact tree, whose curves are steps, got True")
        leaf, after = self._from(leaf, after)
        level = (1.0 - check_share(q, "q")) * self.survival_at(after[:, None], leaf)[:, 0] + _ROUNDING
        times = np.append(self.times, math.inf)
        found = np.empty(len(leaf))
        for number in np.unique(leaf):
            rows = leaf == number
            found[rows] = times[np.searchsorted(-self.survival[number], -level[rows], side="left")]
        return found - after

    def restricted_mean(
        self, leaf: IntArray | None, tau: float, after: FloatArray | None = None
    ) -> FloatArray:
        """Area under S(after + t) / S(after) from 0 to `tau`, (n,); +inf for an infinite `tau` if S > 0."""
        leaf, after = self._from(leaf, after)
        until = after + check_truncation(tau)
        edges = np.concatenate(([0.0], self.times))
        heights = np.column_stack([np.ones(len(self.survival)), self.survival])
        area = np.zeros(heights.shape)
        area[:, 1:] = np.cumsum(heights[:, :-1] * np.diff(edges), axis=1)

        def below(time: FloatArray) -> FloatArray:
            place = np.searchsorted(self.times, time, side="right")
            height, width = heights[leaf, place], time - edges[place]
            # A curve that has ended at zero has a mean, however late.
            last = np.multiply(height, width, out=np.zeros_like(height), where=height > 0)
            return np.asarray(area[leaf, place] + last)

        return (below(until) - below(after)) / self.survival_at(after[:, None], leaf)[:, 0]

    def _from(self, leaf: IntArray | None, after: FloatArray | None) -> tuple[IntArray, FloatArray]:
        """Leaves, by default each once, and times, by default zero."""
        leaf = np.arange(len(self.survival)) if leaf is None else leaf
        return leaf, np.zeros(len(leaf)) if after is None else after

    def _read(
        self, steps: FloatArray, before: float, grid: FloatArray, leaf: IntArray | None = None
    ) -> FloatArray:
        """Steps (L, ..., T) at times of a grid, or of the leaf of each row at its own times."""
        position = steps_up_to(self.times, grid)
        table = np.concatenate([np.full((*steps.shape[:-1], 1), before), steps], axis=-1)
        read: FloatArray = table[..., position] if leaf is None else table[leaf[:, None], position]
        return read


def leaf_curves(leaf: IntArray, n_leaves: int, rows: Observed) -> LeafCurves:
    """Kaplan-Meier and Nelson-Aalen estimates of leaves (N,), from rows at risk where entry < t <= time."""
    event, weight = rows.event, rows.weights
    times = np.unique(rows.time[event])
    seen = np.searchsorted(times, rows.time, side="right")  # event times that the row was at risk at
    leaving = np.zeros((n_leaves, len(times) + 1))
    np.add.at(leaving, (leaf, seen), weight)
    if rows.entry is not None:
        np.subtract.at(leaving, (leaf, np.searchsorted(times, rows.entry, side="right")), weight)
    at_risk = np.maximum(np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1][:, 1:], 1.0)
    events = np.zeros((n_leaves, rows.n_causes, len(times)))
    cause = rows.cause.astype(np.int64)
    np.add.at(events, (leaf[event], cause[event] - 1, seen[event] - 1), weight[event])
    hazards = np.cumsum(events / at_risk[:, None], axis=2)
    return LeafCurves(times, np.cumprod(1.0 - events.sum(axis=1) / at_risk, axis=1), hazards)
