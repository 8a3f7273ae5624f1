"""Objectives of survival trees: deviance and integrated Brier score."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice
from sstorch.data import Surv
from sstorch.exact.rows import check_weights, weighted_rows, whole_weights
from sstorch.exact.task import LeafCost, log
from sstorch.exact.tree import BaselineHazard, hazard_ratios
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import censoring_distribution

_TINY = 1e-290

LeafCurve = Literal["kaplan_meier", "ipcw"]


class LogLikelihood:
    """Half the deviance of leaves with hazard θ Λ'(t), Λ the Nelson-Aalen estimate of all rows.

    With E events and H = Σ Λ(t_i) in a leaf, θ = E / H is the maximum likelihood estimate, and the loss of
    the leaf is -Σ_{events} log Λ(t_i) - E log(E / H) >= 0: half its deviance against the model with one θ per
    row. A leaf without events has loss 0 (its θ is reported as 0.5 / H). A split never increases the loss.

    With left truncation Λ is estimated from the rows at risk, entry < t <= time, and Λ(t_i) - Λ(entry_i)
    replaces Λ(t_i). Splitting a row in two at any time does not change trees, and changes all losses by the
    same constant.

    With weights Λ is the weighted estimate, and E, H and the loss are weighted sums. Integer weights are
    equivalent to repeated rows; scaling the weights scales the loss and does not change the tree. `min_leaf`
    and `min_events` of a search are unweighted counts.

    Args:
        time: observed times, shape (N,).
        event: True or 1 if the event was observed, shape (N,).
        time_tolerance: Λ is evaluated at t + time_tolerance. 0 is the definition; pystreed uses 1e-6.
        entry: entry times, shape (N,); None for time zero.
        sample_weight: weights, shape (N,), >= 0; None is one each.

    Attributes:
        event: (N,), whether the event was observed; False in rows of weight 0.
        weight: (N,).
        hazard: (N,), Λ(t_i), 1 / (N + 1) before the first event, with N the sum of the weights as multiples
            of the smallest; Λ(t_i) - Λ(entry_i) with late entry, 0 without an event in between.

    Raises:
        DataError: see :class:`~sstorch.Surv`; negative or infinite weights; or no event.
        ConfigError: a tolerance with left-truncated rows.

    References:
        LeBlanc and Crowley (1992), Biometrics 48, 411-425. Huisman, van der Linden and Demirović (2024),
        Optimal survival trees: a dynamic programming approach, AAAI 38.
    """

    def __init__(
        self,
        time: npt.ArrayLike,
        event: npt.ArrayLike,
        *,
        time_tolerance: float = 0.0,
        entry: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        rows = self._rows = weighted_rows(Surv(time, event, entry=entry), sample_weight)
        unit = whole_weights(check_weights(sample_weight, len(rows.time)))[1]
        self.time, self.event, self.weight = rows.time, rows.event, rows.weights * unit
        self.n_rows = len(self.time)
        if not self.event.any():
            raise DataError("event: no row has an event, so there is no hazard to estimate")
        if rows.entry is not None and time_tolerance:
            raise ConfigError(
                f"time_tolerance={time_tolerance!r}: some rows entered late, and Λ is read at exactly their "
                "times; leave it 0"
            )
        read = rows._replace(time=rows.time + time_tolerance) if time_tolerance else rows
        self.hazard = BaselineHazard.of(rows).exposure(read)
        self.constant = float(-(self.weight[self.event] * np.log(self.hazard[self.event])).sum())

    @staticmethod
    def leaf_cost(sums: FloatArray, i: int) -> float:
        """-E log(E / H), and 0 without events."""
        # Equal bounds: a leaf without rows has the ratio 1, one without events a product of nearly 0.
        events = max(sums[0, i], _TINY)
        cost: float = events * log(max(sums[1, i], _TINY) / events)
        return cost

    def row_values(self) -> FloatArray:
        """Weighted event indicator and hazard of each row, (2, N)."""
        values: FloatArray = self.weight * np.stack([self.event, self.hazard])
        return values

    def loss(self, leaf: IntArray) -> float:
        """Σ_i w_i (Λ_i θ - d_i log Λ_i - d_i log θ - d_i), θ of the leaf; 0 in leaves without events."""
        n_leaves = int(leaf.max()) + 1
        expected = self.hazard * self.decisions(leaf, n_leaves)[leaf]
        has_events = np.bincount(leaf, weights=self.event, minlength=n_leaves) > 0
        # As x - log(1 + x) with x = Λ θ - 1, no row with an event is below 0. Without one a row may have no
        # exposure, and its logarithm does not count.
        beyond = np.where(self.event, expected - 1.0, 0.0)
        rows = np.where(self.event, beyond - np.log1p(beyond), expected)
        return float((self.weight * rows)[has_events[leaf]].sum())

    def row_costs(self, rows: IntArray, times: FloatArray, curves: FloatArray) -> FloatArray:
        """Costs (n,) of some rows with given cumulative hazards, see `reference_costs`.

        The curves (n, 1 + T) are steps: before the first of the `times` (T,), then from each on.
        """
        every, event = np.arange(len(rows)), self.event[rows]
        hazard = curves[every, np.searchsorted(times, self.time[rows], side="right")]
        if self._rows.entry is not None:
            hazard = hazard - curves[every, np.searchsorted(times, self._rows.entry[rows], side="right")]
        hazard = np.maximum(hazard, 1.0 / (self.n_rows + 1))
        ratio = np.divide(hazard, self.hazard[rows], out=np.ones_like(hazard), where=event)
        costs: FloatArray = self.weight[rows] * (hazard - event * (1.0 + np.log(ratio)))
        return costs

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Hazard ratio θ of each leaf, 0.5 / H in leaves without events, (n_leaves,); see `hazard_ratios`."""
        return hazard_ratios(leaf, n_leaves, self._rows, self.hazard)


@cache
def _sum_over(n_causes: int) -> LeafCost:
    """Sum over causes of -E_k log(E_k / H_k)."""

    def leaf_cost(sums: FloatArray, i: int) -> float:
        total = 0.0
        for k in range(n_causes):
            events = max(sums[2 * k, i], _TINY)
            total += events * log(max(sums[2 * k + 1, i], _TINY) / events)
        return total

    return leaf_cost


class CompetingLogLikelihood:
    """Sum over causes of half the deviance of :class:`LogLikelihood`, with other causes censored.

    With cause-specific hazards θ_k Λ_k'(t) in a leaf, Λ_k the Nelson-Aalen estimate of cause k in all rows,
    the likelihood is a product over causes: losses and bounds are sums over causes. A split never increases
    the loss.

    Args:
        time: observed times, shape (N,).
        cause: 1 .. K, 0 if censored, shape (N,).
        n_causes: K; None for the largest cause.
        entry: entry times, shape (N,), as in :class:`LogLikelihood`.
        sample_weight: weights, shape (N,), >= 0, as in :class:`LogLikelihood`; None for 1.

    Attributes:
        event: (N,), True for an event of any cause; False for weight 0.

    Raises:
        DataError: as for :class:`LogLikelihood`; or a cause without rows of positive weight.

    References:
        Prentice, Kalbfleisch, Peterson, Flournoy, Farewell and Breslow (1978), Biometrics 34, 541-554.
    """

    def __init__(
        self,
        time: npt.ArrayLike,
        cause: npt.ArrayLike,
        n_causes: int | None = None,
        *,
        entry: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        codes = np.asarray(cause)
        counted = check_weights(sample_weight, len(codes), time=time, cause=cause) > 0.0
        count = int(codes.max(initial=0)) if n_causes is None else n_causes
        for number in range(1, count + 1):
            if not (codes == number)[counted].any():
                raise DataError(f"cause: no row has cause {number}, so there is no hazard to estimate")
        self.causes = tuple(
            LogLikelihood(time, codes == number, entry=entry, sample_weight=sample_weight)
            for number in range(1, count + 1)
        )
        if not self.causes:
            raise DataError("cause: no row has an event, so there is no hazard to estimate")
        self.event = (codes > 0) & counted
        self.n_rows = len(codes)
        self.constant = sum(task.constant for task in self.causes)
        self.leaf_cost = _sum_over(len(self.causes))

    def row_values(self) -> FloatArray:
        """For each cause the event indicator and the hazard of each row, (2 K, N)."""
        return np.concatenate([task.row_values() for task in self.causes])

    def loss(self, leaf: IntArray) -> float:
        """Sum over causes of their losses."""
        return sum(task.loss(leaf) for task in self.causes)

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Hazard ratio of each leaf and cause, (n_leaves, K)."""
        return np.stack([task.decisions(leaf, n_leaves) for task in self.causes], axis=1)


class Blocks(NamedTuple):
    """Time axis of :class:`IntegratedBrier`: blocks that begin at event times, curves constant on each."""

    alive: FloatArray  # (M,), Σ w_k g_k over the grid points of each
    passed: FloatArray  # (M,), Σ w_k
    event_weight: FloatArray  # (M,), g where each begins


class IntegratedBrier:
    """Brier score of the training rows, integrated over their times, with one survival curve per leaf.

    With u_0 < ... < u_{T-1} the distinct observed times, w_k = (u_{k+1} - u_k) / (u_{T-1} - u_0), and g_k = 1
    / G(u_k) (0 if G is 0), G the censoring distribution of all rows with tied events at risk, a leaf of N
    rows in all costs

        1/N Σ_{k < T-1} w_k [(1 - S_k)^2 g_k n_k + S_k^2 e_k],

    n_k the rows of the leaf observed longer than u_k and e_k the sum of g over its events up to u_k. With
    weights, N, n_k and e_k are sums of weights, and G and S are weighted estimates: integer weights are
    equivalent to repeated rows, and the scale of the weights has no effect.

    Entry times are not supported: under left truncation weights also need the probability of entry, which the
    censoring distribution does not determine.

    Args:
        time: observed times, shape (N,).
        event: True or 1 if the event was observed, shape (N,).
        leaf_curve: ``"kaplan_meier"``, S is the Kaplan-Meier curve of the leaf, as in OSST; a split can
            increase the loss. ``"ipcw"``, S_k = g_k n_k / (g_k n_k + e_k), averaged over the grid points
            between two events, which minimises the loss among step functions at event times; a split never
            increases the loss.
        n_buckets: None for all times, or the number of buckets of equal width; times are replaced by the left
            end of their bucket (coarsening of OSST).
        sample_weight: weights, shape (N,), >= 0; None is one each.

    Attributes:
        event: (N,), whether the event was observed; False in rows of weight 0.
        weight: (N,), as integers, see `sstorch.exact.rows.whole_weights`.
        blocks: the time axis; its weights include w_k and N.

    Raises:
        DataError: as `sstorch.data.as_surv`; invalid weights; no event, or equal times.
        ConfigError: an unknown `leaf_curve`, or `n_buckets` below 2.

    References:
        Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS.
    """

    def __init__(
        self,
        time: npt.ArrayLike,
        event: npt.ArrayLike,
        *,
        leaf_curve: LeafCurve = "kaplan_meier",
        n_buckets: int | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        check_choice(leaf_curve, "leaf_curve", get_args(LeafCurve))
        self.leaf_curve = leaf_curve
        rows = weighted_rows((time, event), sample_weight)
        self.time, self.event, self.weight = rows.time, rows.event, rows.weights
        if not self.event.any():
            raise DataError("event: no row has an event, so every tree has the loss 0")
        counted = self.time[self.weight > 0.0]
        low, high = float(counted.min()), float(counted.max())
        if low == high:
            raise DataError(
                f"time: all rows have the time {low:g}, so there is no interval to integrate over"
            )
        if n_buckets is not None:
            if n_buckets < 2:
                raise ConfigError(f"n_buckets must be at least 2 buckets, or None, got {n_buckets}")
            width = (high - low) / n_buckets
            self.time = low + np.floor((np.clip(self.time, low, high) - low) / width) * width
        self.n_rows, self.constant = len(self.time), 0.0
        self._prepare()

    def _prepare(self) -> None:
        counted = self.weight > 0.0
        time, weight = self.time[counted], self.weight[counted]
        self._grid = np.unique(time)
        # Rows of weight 0 are in no sum, wherever they are.
        self._position = np.minimum(np.searchsorted(self._grid, self.time), len(self._grid) - 1)
        width = np.append(np.diff(self._grid), 0.0) / (self._grid[-1] - self._grid[0]) / weight.sum()
        rows = time, self.event[counted]
        censoring = censoring_distribution(rows, tied_events="at_risk", sample_weight=weight).values
        self._inverse = np.divide(1.0, censoring, out=np.zeros_like(censoring), where=censoring > 0.0)
        self._width = width
        # Curves are constant between event times: the grid shrinks to blocks that begin at these.
        begin = np.unique(self._position[self.event])
        end = np.append(begin[1:], len(self._grid))
        alive = np.concatenate(([0.0], np.cumsum(width * self._inverse)))
        passed = np.concatenate(([0.0], np.cumsum(width)))
        self.blocks = Blocks(alive[end] - alive[begin], passed[end] - passed[begin], self._inverse[begin])
        self._block = np.searchsorted(begin, self._position, side="right")
        inside = (self._block > 0) & counted
        self._inside = np.flatnonzero(inside)
        self._part = np.zeros(self.n_rows)
        self._part[inside] = alive[self._position[inside]] - alive[begin[self._block[inside] - 1]]

    def leaving(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows (E,) that leave in a block of the time axis, the block of each (E,) and its three sums (3, E).

        These are its weight, that of its event, and what a censored row has seen of the block's weights. Rows
        censored before the first event, or with weight 0, are in none.
        """
        rows = self._inside
        sums = self.weight[rows] * np.stack([np.ones(len(rows)), self.event[rows], self._part[rows]])
        return rows, self._block[rows] - 1, sums

    def row_values(self) -> FloatArray:
        """The sums of each row in all blocks, (3 M, N), the three of a block together."""
        rows, block, sums = self.leaving()
        values = np.zeros((len(self.blocks.alive), 3, self.n_rows))
        values[block, :, rows] = sums.T
        return values.reshape(-1, self.n_rows)

    @property
    def leaf_cost(self) -> LeafCost:
        """Cost of a leaf from its sums; a search takes the kernel of `sstorch.exact.compiled.costs`."""
        blocks, best = np.stack(self.blocks, axis=1).tolist(), self.leaf_curve == "ipcw"

        def cost(sums: FloatArray, i: int) -> float:
            at_risk, survival, weight, total = float(sums[::3, i].sum()), 1.0, 0.0, 0.0
            for m, (alive, passed, gain) in enumerate(blocks):
                leaving, events, part = sums[3 * m : 3 * m + 3, i].tolist()
                weight += gain * events
                a, b = part + alive * (at_risk - leaving), passed * weight
                survival *= 1.0 - events / max(at_risk, 0.5)
                at_risk -= leaving
                s = a / max(a + b, 1e-300) if best else survival
                total += (1.0 - s) ** 2 * a + s**2 * b
            return total

        return cost

    def loss(self, leaf: IntArray) -> float:
        """Σ_i Σ_k w_k [(1 - S_k)^2 g_k 1(t_i > u_k) + S_k^2 g(t_i) d_i 1(t_i <= u_k)] / N, rows by weight.

        S is the curve of the leaf of the row.
        """
        total = 0.0
        for label in np.unique(leaf):
            rows = np.flatnonzero(leaf == label)
            total += float(self._costs(rows, self._curve(rows)[None]).sum())
        return total

    def row_costs(self, rows: IntArray, times: FloatArray, curves: FloatArray) -> FloatArray:
        """Costs (n,) of some rows with given survival curves, steps as in `LogLikelihood.row_costs`."""
        return self._costs(rows, curves[:, np.searchsorted(times, self._grid, side="right")])

    def _costs(self, rows: IntArray, survival: FloatArray) -> FloatArray:
        """Costs (n,) of some rows with curves at the distinct times of all rows, (n, T), or one (1, T)."""
        start, position = np.zeros((len(survival), 1)), self._position[rows]
        alive = np.hstack([start, np.cumsum(self._width * self._inverse * (1.0 - survival) ** 2, axis=1)])
        dead = np.hstack([start, np.cumsum(self._width * survival**2, axis=1)])
        curve = np.arange(len(rows)) if len(survival) > 1 else np.zeros_like(rows)
        after_event = self.event[rows] * self._inverse[position] * (dead[curve, -1] - dead[curve, position])
        costs: FloatArray = self.weight[rows] * (alive[curve, position] + after_event)
        return costs

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Curve of each leaf at the distinct times of all rows, (n_leaves, T)."""
        return np.stack([self._curve(np.flatnonzero(leaf == number)) for number in range(n_leaves)])

    def _curve(self, rows: IntArray) -> FloatArray:
        """The leaf's curve at every grid point, shape (T,)."""
        size = len(self._grid)
        position, weight = self._position[rows], self.weight[rows]
        counts = np.bincount(position, weights=weight, minlength=size)
        events = np.bincount(position, weights=weight * self.event[rows], minlength=size)
        at_risk = np.cumsum(counts[::-1])[::-1]
        if self.leaf_curve == "kaplan_meier":
            return np.cumprod(1.0 - events / np.maximum(at_risk, 1.0), dtype=np.float64)
        alive = self._width * self._inverse * (at_risk - counts)
        dead = self._width * np.cumsum(events * self._inverse)
        begin = np.unique(self._position[self.event])
        a = np.add.reduceat(alive, begin)
        b = np.add.reduceat(dead, begin)
        block: FloatArray = np.divide(a, a + b, out=np.ones_like(a), where=a + b > 0.0)
        lengths = np.diff(np.append(begin, size))
        return np.concatenate([np.ones(begin[0]), np.repeat(block, lengths)])
