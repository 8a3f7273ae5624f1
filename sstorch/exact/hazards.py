"""Nelson-Aalen estimate of all rows, and hazard ratios of leaves to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed


def least_hazard(weight: FloatArray) -> float:
    """Hazard in place of none: 1 / (N + 1), N the sum of weights as multiples of the smallest one.

    It does not depend on the scale of weights, and is that of repeated rows where weights count these.
    """
    smallest = float(weight[weight > 0.0].min())
    return smallest / (float(weight.sum()) + smallest)


@dataclass(frozen=True)
class BaselineHazard:
    """Nelson-Aalen estimate Λ of all rows, kept positive: `least_hazard` before the first event.

    It is `values[0]` before the distinct event `times` (T,), and `values[k]` from the k-th of them on. Where
    rows entered late it is the plain estimate, 0 before the first event: a row that is split in two keeps its
    exposure, Λ(t) - Λ(entry).
    """

    times: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, rows: Observed) -> BaselineHazard:
        """Estimate it from weighted rows that are at risk where entry < t <= time."""
        sets = risk_sets(rows)
        had = sets.n_events > 0.0
        first = least_hazard(rows.weights) if rows.entry is None else 0.0
        rises = sets.n_events[had] / sets.at_risk[had]
        return cls(sets.times[had], np.concatenate(([first], np.cumsum(rises))))

    def exposure(self, rows: Observed) -> FloatArray:
        """Λ(t_i) - Λ(entry_i), or Λ(t_i) without left truncation, shape (N,)."""
        return self.at(rows.time) if rows.entry is None else self.at(rows.time) - self.at(rows.entry)

    def at(self, time: npt.ArrayLike) -> FloatArray:
        """Λ(t)."""
        read: FloatArray = self.values[np.searchsorted(self.times, time, side="right")]
        return read


def martingale_residuals(rows: Observed) -> FloatArray:
    """Events less expected ones by the Nelson-Aalen estimate of all rows, (N,): log-rank scores."""
    residuals: FloatArray = rows.event - BaselineHazard.of(rows).exposure(rows)
    return residuals


def hazard_ratios(leaf: IntArray, n_leaves: int, rows: Observed, exposure: FloatArray) -> FloatArray:
    """Maximum likelihood hazard ratio of each leaf to the baseline of all rows, shape (L,).

    E / H, with E events and H the sum of the exposures in the leaf, `BaselineHazard.exposure` of each row,
    both weighted; half an event of the smallest weight is counted in a leaf without any, and a leaf without
    exposure, whose rows entered late and left before any event, has the ratio 1. See LeBlanc and Crowley
    (1992), Biometrics 48, 411-425.
    """
    weight = rows.weights
    events = np.bincount(leaf, weights=weight * rows.event, minlength=n_leaves)
    hazard = np.bincount(leaf, weights=weight * exposure, minlength=n_leaves)
    least = 0.5 * float(weight[weight > 0.0].min())
    return np.divide(np.maximum(events, least), hazard, out=np.ones(n_leaves), where=hazard > 0.0)
