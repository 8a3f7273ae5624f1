"""Survival in the leaves of a hard tree, as step functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import isotonic_regression

from sstorch.exceptions import ConfigError
from sstorch.metrics import censoring_distribution
from sstorch.optimal.tasks.base import BoolArray, FloatArray, IntArray

Curve = Literal["kaplan_meier", "proportional_hazards", "ipcw"]

# A product of factors (1 - d / n) can miss a round number such as 1/2 by a few units in the last place.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class LeafCurves:
    """One survival curve and one cumulative hazard per leaf: right-continuous steps, S(0) = 1 and H(0) = 0.

    Beyond the last of the times both keep their last value.

    Attributes:
        times: distinct event times of the training rows, increasing, shape (T,).
        survival: S_l(t_k), shape (L, T), falling along k.
        cumulative_hazard: H_l(t_k), shape (L, T).
    """

    times: FloatArray
    survival: FloatArray
    cumulative_hazard: FloatArray

    def survival_at(self, grid: FloatArray) -> FloatArray:
        """S_l at any times, shape (L, n_times)."""
        return self._read(self.survival, 1.0, grid)

    def cumulative_hazard_at(self, grid: FloatArray) -> FloatArray:
        """H_l at any times, shape (L, n_times)."""
        return self._read(self.cumulative_hazard, 0.0, grid)

    def quantile(self, q: float) -> FloatArray:
        """First time at which S_l <= 1 - q, +inf where there is none, shape (L,).

        Raises:
            ConfigError: `q` is not in (0, 1).
        """
        if not 0.0 < q < 1.0:
            raise ConfigError(f"q must be in (0, 1), got {q!r}")
        reached = self.survival <= 1.0 - q + _ROUNDING
        return np.where(reached.any(axis=1), self.times[reached.argmax(axis=1)], math.inf)

    def restricted_mean(self, tau: float) -> FloatArray:
        """Area under S_l from 0 to `tau`, shape (L,); for an infinite `tau` +inf where S_l stays above 0.

        Raises:
            ConfigError: `tau` is not positive.
        """
        if not tau > 0.0:
            raise ConfigError(f"tau must be positive, got {tau!r}")
        edges = np.minimum(np.concatenate(([0.0], self.times)), tau)
        heights = np.column_stack([np.ones(len(self.survival)), self.survival])
        area: FloatArray = heights[:, :-1] @ np.diff(edges)
        last = self.survival[:, -1]
        if math.isinf(tau):
            return np.where(last > 0.0, math.inf, area)
        mean: FloatArray = area + last * (tau - edges[-1])
        return mean

    def _read(self, steps: FloatArray, before: float, grid: FloatArray) -> FloatArray:
        position = np.searchsorted(self.times, grid, side="right")
        read: FloatArray = np.column_stack([np.full(len(steps), before), steps])[:, position]
        return read


def leaf_curves(
    leaf: IntArray, n_leaves: int, time: FloatArray, event: BoolArray, curve: Curve
) -> LeafCurves:
    """Estimate the curves of all leaves.

    Args:
        leaf: leaf of each row, 0 .. L - 1, shape (N,).
        n_leaves: L.
        time: shape (N,).
        event: shape (N,), at least one True.
        curve: ``"kaplan_meier"``: Kaplan-Meier and Nelson-Aalen estimates of the leaf's rows.
            ``"proportional_hazards"``: H_l = theta_l Λ, with the Nelson-Aalen estimate Λ of all rows and the
            hazard ratio of `hazard_ratios`, and S_l = exp(-H_l).
            ``"ipcw"``: the falling steps with the smallest Brier score of the leaf's rows, weighted for
            censoring and integrated over the observed times; with it the leaf's Nelson-Aalen estimate.
    """
    times = np.unique(time[event])
    seen = np.searchsorted(times, time, side="right")  # event times that the row was at risk at
    shape = (n_leaves, len(times))
    leaving = np.zeros((n_leaves, len(times) + 1))
    np.add.at(leaving, (leaf, seen), 1.0)
    at_risk = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1][:, 1:]
    events = np.zeros(shape)
    np.add.at(events, (leaf[event], seen[event] - 1), 1.0)
    if curve == "proportional_hazards":
        baseline = np.cumsum(events.sum(axis=0) / at_risk.sum(axis=0))
        hazard = hazard_ratios(leaf, n_leaves, time, event)[:, None] * baseline
        return LeafCurves(times, np.exp(-hazard), hazard)
    rate = events / np.maximum(at_risk, 1.0)
    hazard = np.cumsum(rate, axis=1)
    if curve == "kaplan_meier":
        return LeafCurves(times, np.cumprod(1.0 - rate, axis=1, dtype=np.float64), hazard)
    return LeafCurves(times, _least_brier(leaf, n_leaves, time, event, times), hazard)


def hazard_ratios(leaf: IntArray, n_leaves: int, time: FloatArray, event: BoolArray) -> FloatArray:
    """Maximum likelihood hazard ratio of each leaf to the baseline of all rows, shape (L,).

    E / H, with E events and H the sum of Λ(t_i) in the leaf, Λ the Nelson-Aalen estimate of all rows, or
    1 / (N + 1) before the first event; half an event is counted in a leaf without any.

    References:
        LeBlanc and Crowley (1992), Biometrics 48, 411-425.
    """
    events = np.bincount(leaf, weights=event, minlength=n_leaves)
    hazard = np.bincount(leaf, weights=Baseline.of(time, event).at(time), minlength=n_leaves)
    return np.maximum(events, 0.5) / hazard


@dataclass(frozen=True)
class Baseline:
    """Nelson-Aalen estimate Λ of all rows, kept positive: 1 / (N + 1) before the first event.

    Attributes:
        times: distinct event times, shape (T,).
        values: what Λ is before them and from each of them on, shape (T + 1,).
    """

    times: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, time: FloatArray, event: BoolArray) -> Baseline:
        """Estimate it."""
        times, counts = np.unique(time[event], return_counts=True)
        at_risk = len(time) - np.searchsorted(np.sort(time), times, side="left")
        return cls(times, np.concatenate(([1.0 / (len(time) + 1)], np.cumsum(counts / at_risk))))

    def at(self, time: npt.ArrayLike) -> FloatArray:
        """Λ(t)."""
        read: FloatArray = self.values[np.searchsorted(self.times, time, side="right")]
        return read


def _least_brier(
    leaf: IntArray, n_leaves: int, time: FloatArray, event: BoolArray, times: FloatArray
) -> FloatArray:
    """Of each leaf the falling steps at `times` that minimise Σ_k (1 - S_k)² a_k + S_k² b_k, shape (L, T).

    a_k and b_k integrate, from one event time to the next, the weights of the rows that are observed longer
    and of those that had their event; without weight in a leaf the curve keeps its value.
    """
    grid, position = np.unique(time, return_inverse=True)
    width = np.append(np.diff(grid), 0.0)
    censoring = censoring_distribution(time, event, tied_events="at_risk").values
    inverse = np.divide(1.0, censoring, out=np.zeros_like(censoring), where=censoring > 0.0)
    begin = np.searchsorted(grid, times)
    curves = np.ones((n_leaves, len(times)))
    for number in range(n_leaves):
        rows = np.flatnonzero(leaf == number)
        counts = np.bincount(position[rows], minlength=len(grid))
        events = np.bincount(position[rows], weights=event[rows], minlength=len(grid))
        longer = len(rows) - np.cumsum(counts)
        a = np.add.reduceat(width * inverse * longer, begin)
        b = np.add.reduceat(width * np.cumsum(events * inverse), begin)
        known = a + b > 0.0
        if not known.any():
            continue
        best = isotonic_regression(
            a[known] / (a + b)[known], sample_weight=(a + b)[known], y_min=0.0, y_max=1.0, increasing=False
        )
        filled = np.concatenate(([1.0], best))
        curves[number] = filled[np.cumsum(known)]
    return curves
