"""Nelson-Aalen estimate of all rows, and hazard ratios of leaves to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
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
