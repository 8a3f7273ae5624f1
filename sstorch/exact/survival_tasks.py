"""Objectives of survival trees, deviance and integrated Brier score; costs of rows by a reference model."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing

from sstorch._types import FloatArray, IntArray
from sstorch.checks import blocks, check_integer
from sstorch.data import Surv
from sstorch.exact.leaf_curves import BaselineHazard, hazard_ratios
from sstorch.exact.rows import check_weights, weighted_rows, whole_weights
from sstorch.exact.task import LeafCost, Task, log
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import censoring_distribution

_TINY = 1e-290


@cache
def _deviance_of(n_causes: int) -> LeafCost:
    """Sum over causes of -E_k log(E_k / H_k), 0 without events."""

    def leaf_cost(sums: FloatArray, i: int) -> float:
        cost = 0.0
        for k in range(n_causes):
            # Equal bounds: a leaf without rows has the ratio 1, one without events a product of nearly 0.
            events = max(sums[2 * k, i], _TINY)
            cost += events * log(max(sums[2 * k + 1, i], _TINY) / events)
        return cost

    return leaf_cost


class LogLikelihood:
    """Half the deviance of leaves with hazard θ Λ'(t), Λ the Nelson-Aalen estimate of all rows.

    With E events and H = Σ Λ(t_i) in a leaf, θ = E / H is the maximum likelihood estimate, and the loss of
    the leaf is -Σ_{events} log Λ(t_i) - E log(E / H) >= 0: half its deviance against the model with one θ per
    row. A leaf without events has loss 0 (its θ is reported as 0.5 / H). A split never increases the loss.
    With competing causes the loss is the sum over causes, each with the other causes censored. With left
    truncation Λ is estimated from the rows at risk, entry < t <= time, and Λ(t_i) - Λ(entry_i) replaces
    Λ(t_i). With weights Λ, E, H and the loss are weighted; integer weights are equivalent to repeated rows.

    Args:
        time: observed times, shape (N,).
        event: True or 1 if the event was observed, shape (N,); with causes 1 .. K, 0 if censored.
        n_causes: K.
        entry: entry times, shape (N,); None for time zero.
        sample_weight: weights, shape (N,), >= 0; None is one each.

    Attributes:
        event: (N,), whether an event was observed; False in rows of weight 0.
        weight: (N,).
        hazards: (K, N), Λ(t_i) of each cause, 1 / (N + 1) before the first event, with N the sum of the
            weights as multiples of the smallest; Λ(t_i) - Λ(entry_i) with late entry.

    Raises:
        DataError: see :class:`~sstorch.Surv`; negative or infinite weights; or a cause without events.

    References:
        LeBlanc and Crowley (1992), Biometrics 48, 411-425. Huisman, van der Linden and Demirović (2024),
        Optimal survival trees: a dynamic programming approach, AAAI 38. Prentice, Kalbfleisch, Peterson,
        Flournoy, Farewell and Breslow (1978), Biometrics 34, 541-554 (causes).
    """

    def __init__(
        self,
        time: npt.ArrayLike,
        event: npt.ArrayLike,
        *,
        n_causes: int = 1,
        entry: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        n_causes = check_integer("n_causes", n_causes, 1)
        kind = {"causes": tuple(map(str, range(1, n_causes + 1)))} if n_causes > 1 else {}
        rows = self._rows = weighted_rows(Surv(time, event, entry=entry, **kind), sample_weight)
        unit = whole_weights(check_weights(sample_weight, len(rows.time)))[1]
        self.time, self.event, self.weight = rows.time, rows.event, rows.weights * unit
        self.n_rows, self.n_causes = len(self.time), n_causes
        self._of_cause = [rows.only(cause) for cause in range(1, n_causes + 1)]
        for cause, part in enumerate(self._of_cause, 1):
            if not part.event.any():
                what = "an event" if n_causes == 1 else f"cause {cause}"
                raise DataError(f"event: no row has {what}, so there is no hazard to estimate")
        self.hazards = np.stack([BaselineHazard.of(part).exposure(rows) for part in self._of_cause])
        self.constant = 0.0
        for part, hazard in zip(self._of_cause, self.hazards, strict=True):
            self.constant -= float((self.weight[part.event] * np.log(hazard[part.event])).sum())
        self.leaf_cost = _deviance_of(n_causes)

    def row_values(self) -> FloatArray:
        """For each cause the weighted event indicator and hazard of each row, (2 K, N)."""
        parts = zip(self._of_cause, self.hazards, strict=True)
        return np.concatenate([self.weight * np.stack([part.event, hazard]) for part, hazard in parts])

    def loss(self, leaf: IntArray) -> float:
        """Σ_i w_i (Λ_i θ - d_i log Λ_i - d_i log θ - d_i) over causes, 0 in leaves without events."""
        n_leaves, total = int(leaf.max()) + 1, 0.0
        for part, hazard in zip(self._of_cause, self.hazards, strict=True):
            expected = hazard * hazard_ratios(leaf, n_leaves, part, hazard)[leaf]
            has_events = np.bincount(leaf, weights=part.event, minlength=n_leaves) > 0
            # As x - log(1 + x) with x = Λ θ - 1, no row with an event is below 0. Without one a row may have
            # no exposure, and its logarithm does not count.
            beyond = np.where(part.event, expected - 1.0, 0.0)
            rows = np.where(part.event, beyond - np.log1p(beyond), expected)
            total += float((self.weight * rows)[has_events[leaf]].sum())
        return total

    def row_costs(self, rows: IntArray, times: FloatArray, curves: FloatArray) -> FloatArray:
        """Costs (n,) of rows with cumulative hazards (n, K, 1 + T) before `times` (T,) and from each on."""
        every = np.arange(len(rows))
        read = curves[every, :, np.searchsorted(times, self.time[rows], side="right")]
        if self._rows.entry is not None:
            read = read - curves[every, :, np.searchsorted(times, self._rows.entry[rows], side="right")]
        hazard = np.maximum(read.T, 1.0 / (self.n_rows + 1))
        event = np.stack([part.event[rows] for part in self._of_cause])
        ratio = np.divide(hazard, self.hazards[:, rows], out=np.ones_like(hazard), where=event)
        costs: FloatArray = self.weight[rows] * (hazard - event * (1.0 + np.log(ratio))).sum(axis=0)
        return costs

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Hazard ratio of each leaf, (n_leaves,), or of each cause too, (n_leaves, K); 0.5 / H if E = 0."""
        parts = zip(self._of_cause, self.hazards, strict=True)
        ratios = np.stack([hazard_ratios(leaf, n_leaves, *part) for part in parts], axis=1)
        return ratios[:, 0] if self.n_causes == 1 else ratios


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
    weights these are weighted: integer weights are equivalent to repeated rows, and the scale of the weights
    has no effect. S is the Kaplan-Meier curve of the leaf, as in OSST; a split can increase the loss. The
    bound of a search is the loss of the best step function, S_k = g_k n_k / (g_k n_k + e_k) between events.

    Entry times are not supported: under left truncation weights also need the probability of entry.

    Args:
        time: observed times, shape (N,).
        event: True or 1 if the event was observed, shape (N,).
        n_buckets: None for all times, or the number of buckets of equal width; times are replaced by the left
            end of their bucket (coarsening of OSST).
        sample_weight: weights, shape (N,), >= 0; None is one each.

    Attributes:
        event: (N,), whether the event was observed; False in rows of weight 0.
        weight: (N,), as integers, see `sstorch.exact.rows.whole_weights`.
        blocks: the time axis; its weights include w_k and N.

    Raises:
        DataError: as `sstorch.Surv`; invalid weights; no event, or equal times.
        ConfigError: `n_buckets` below 2.

    References:
        Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS.
    """

    leaf_cost: LeafCost  # in machine code alone, see `Form.of` of sstorch.exact.compiled.costs

    def __init__(
        self,
        time: npt.ArrayLike,
        event: npt.ArrayLike,
        *,
        n_buckets: int | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        rows = weighted_rows((time, event), sample_weight)
        self.time, self.event, self.weight = rows.time, rows.event, rows.weights
        if not self.event.any():
            raise DataError("event: no row has an event, so every tree has the loss 0")
        counted = self.weight > 0.0
        low, high = float(self.time[counted].min()), float(self.time[counted].max())
        if low == high:
            raise DataError(
                f"time: all rows have the time {low:g}, so there is no interval to integrate over"
            )
        if n_buckets is not None:
            width = (high - low) / check_integer("n_buckets", n_buckets, 2)
            self.time = low + np.floor((np.clip(self.time, low, high) - low) / width) * width
        self.n_rows, self.constant = len(self.time), 0.0
        time, weight = self.time[counted], self.weight[counted]
        self._grid = grid = np.unique(time)
        # Rows of weight 0 are in no sum, wherever they are.
        self._position = np.minimum(np.searchsorted(grid, self.time), len(grid) - 1)
        self._width = np.append(np.diff(grid), 0.0) / (grid[-1] - grid[0]) / weight.sum()
        censoring = censoring_distribution(
            (time, self.event[counted]), tied_events="at_risk", sample_weight=weight
        ).values
        self._inverse = np.divide(1.0, censoring, out=np.zeros_like(censoring), where=censoring > 0.0)
        # Curves are constant between event times: the grid shrinks to blocks that begin at these.
        begin = np.unique(self._position[self.event])
        end = np.append(begin[1:], len(grid))
        alive = np.concatenate(([0.0], np.cumsum(self._width * self._inverse)))
        passed = np.concatenate(([0.0], np.cumsum(self._width)))
        self.blocks = Blocks(alive[end] - alive[begin], passed[end] - passed[begin], self._inverse[begin])
        self._block = np.searchsorted(begin, self._position, side="right")
        inside = (self._block > 0) & counted
        self._inside = np.flatnonzero(inside)
        self._part = np.zeros(self.n_rows)
        self._part[inside] = alive[self._position[inside]] - alive[begin[self._block[inside] - 1]]

    def leaving(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows (E,) that leave in a block of time, the block (E,), and weight, event, part seen (3, E)."""
        rows = self._inside
        sums = self.weight[rows] * np.stack([np.ones(len(rows)), self.event[rows], self._part[rows]])
        return rows, self._block[rows] - 1, sums

    def row_values(self) -> FloatArray:
        """The sums of each row in all blocks, (3 M, N), the three of a block together."""
        rows, block, sums = self.leaving()
        values = np.zeros((len(self.blocks.alive), 3, self.n_rows))
        values[block, :, rows] = sums.T
        return values.reshape(-1, self.n_rows)

    def loss(self, leaf: IntArray) -> float:
        """Σ_i Σ_k w_k [(1 - S_k)^2 g_k 1(t_i > u_k) + S_k^2 g(t_i) d_i 1(t_i <= u_k)] / N, rows by weight."""
        parts = [np.flatnonzero(leaf == label) for label in np.unique(leaf)]
        return sum(float(self._costs(rows, self._curve(rows)[None]).sum()) for rows in parts)

    def row_costs(self, rows: IntArray, times: FloatArray, curves: FloatArray) -> FloatArray:
        """Costs (n,) of some rows with survival curves (n, 1 + T), see `LogLikelihood.row_costs`."""
        return self._costs(rows, curves[:, np.searchsorted(times, self._grid, side="right")])

    def _costs(self, rows: IntArray, survival: FloatArray) -> FloatArray:
        """Costs (n,) of some rows with curves at the distinct times, (n, T), or one (1, T)."""
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
        position, weight, size = self._position[rows], self.weight[rows], len(self._grid)
        counts = np.bincount(position, weight, size)
        events = np.bincount(position, weight * self.event[rows], size)
        at_risk = np.maximum(np.cumsum(counts[::-1])[::-1], 1.0)
        return np.cumprod(1.0 - events / at_risk, dtype=np.float64)


# Rows whose curves are held at once.
_ROWS_AT_ONCE = 1000


def reference_costs(task: Task, model: Any, X: Any) -> FloatArray:
    """Cost of each row by the prediction of a reference model, (N,), for the `guess` of `solve`.

    With the log-likelihood it is w (H - d - d log(H / Λ)), H the cumulative hazard predicted for the row's
    own time (less that for its entry), at least 1 / (N + 1), and Λ the estimate of all rows, summed over
    causes; with the Brier score the row's part of it; with other tasks the cost of the predicted decision or
    mean.

    Args:
        task: the objective.
        model: fitted. For one event an estimator of this package, or of scikit-survival with `unique_times_`,
            whose methods return curves at these times by `return_array=True`; for causes with
            `predict_cumulative_incidence(X, times)`, (n, K, T); else with `predict`.
        X: the task's rows, as `model` takes them.

    Raises:
        ConfigError: a model without these, or a task without `costs_of_predictions`.
        DataError: other than N rows.

    References:
        Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS (Section 3).
    """
    if len(X) != task.n_rows:
        raise DataError(f"X: {len(X)} rows, but the task has {task.n_rows}")
    needed = "predict"
    if isinstance(task, LogLikelihood | IntegratedBrier):
        needed = "event_times_" if hasattr(model, "event_times_") else "unique_times_"
        needed = "predict_cumulative_incidence" if getattr(task, "n_causes", 1) > 1 else needed
    if isinstance(model, type) or not hasattr(model, needed):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"reference must be a fitted model with {needed}, got {kind}")
    if not isinstance(task, LogLikelihood | IntegratedBrier):
        if not hasattr(task, "costs_of_predictions"):
            raise ConfigError(
                f"{type(task).__name__} has no costs_of_predictions; give the guess of each row"
            )
        costs: FloatArray = task.costs_of_predictions(model.predict(X))
        return costs
    parts = list[FloatArray]()
    for at in blocks(task.n_rows, 1, _ROWS_AT_ONCE):
        rows = np.arange(task.n_rows)[at]
        part = _safe_indexing(X, rows)
        if isinstance(task, IntegratedBrier):
            # Before the first of the times no event is predicted.
            times, curves = _curves(model, part, "predict_survival_function")
            parts.append(task.row_costs(rows, times, np.pad(curves, ((0, 0), (1, 0)), constant_values=1.0)))
            continue
        if task.n_causes > 1:
            times = np.unique(task.time[task.event])
            incidence = np.asarray(model.predict_cumulative_incidence(part, times), dtype=np.float64)
            before = np.pad(incidence, ((0, 0), (0, 0), (1, 0)))
            alive = np.maximum(1.0 - before[..., :-1].sum(axis=1, keepdims=True), 1e-12)
            hazards = np.cumsum(np.diff(before, axis=2) / alive, axis=2)
        else:
            times, curves = _curves(model, part, "predict_cumulative_hazard_function")
            hazards = curves[:, None]
        parts.append(task.row_costs(rows, times, np.pad(hazards, ((0, 0), (0, 0), (1, 0)))))
    return np.concatenate(parts)


def _curves(model: Any, part: Any, method: str) -> tuple[FloatArray, FloatArray]:
    """Times (T,), and the curves (n, T) of a model at these."""
    ours, predict = hasattr(model, "event_times_"), getattr(model, method)
    times = np.asarray(model.event_times_ if ours else model.unique_times_)
    return times, np.asarray(predict(part, times) if ours else predict(part, return_array=True), dtype=float)
