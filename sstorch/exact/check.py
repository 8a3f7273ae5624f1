"""A check, on random trees, that a task keeps what the search relies on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from sstorch._types import BoolArray, IntArray
from sstorch.exact.moments import check_binary
from sstorch.exact.task import BranchCostTask, Entries, Task, has_branch_costs, has_decisions
from sstorch.exceptions import ConfigError


def check_task(task: Task, features: object, *, n_trials: int = 30, seed: int = 0) -> None:
    """Test on random trees whether a task is separable, as required by `solve`.

    Checks: entries refer to existing rows and steps; costs depend only on the sums of a leaf, for any shape;
    `accumulate` is linear; a leaf without rows has cost 0; `loss` = `constant` + costs of the leaves (a
    cheaper subtree makes the whole tree cheaper); `floor` is at most the cost, and superadditive; there is
    one decision per leaf; costs of tests are finite, not negative, and independent of the order of the tests
    above. Passing is not a proof.

    Args:
        task: the objective.
        features: binary matrix (N, p) of the task's rows; random trees are grown on it.
        n_trials: number of random trees.
        seed: seed of the trees.

    Raises:
        ConfigError: a check failed; the message names it, with the numbers.
        DataError: `features` is not binary.
    """
    matrix, _ = check_binary(features)
    if len(matrix) != task.n_rows:
        raise ConfigError(f"n_rows: the task has {task.n_rows}, the features have {len(matrix)} rows")
    rng = np.random.default_rng(seed)
    entries = _check_entries(task)
    sums = _Sums(task, entries)
    nothing = sums.of(np.zeros(task.n_rows, dtype=np.bool_))
    _require_close("cost of a leaf without rows", float(sums.cost(nothing)), 0.0, 1.0)
    for _ in range(n_trials):
        leaf = _random_leaves(matrix, rng)
        _check_loss(task, sums, leaf)
        _check_floor(sums, leaf, rng)
        _check_linear(sums, leaf)
    if has_decisions(task):
        decisions = np.asarray(task.decisions(leaf, int(leaf.max()) + 1))
        _require(
            decisions.shape[:1] == (leaf.max() + 1,),
            f"decisions: shape {decisions.shape} for {leaf.max() + 1} leaves",
        )
    if has_branch_costs(task):
        _check_branch_cost(task, matrix.shape[1], rng)


class _Sums:
    """Statistics of groups of rows, through the task's own methods."""

    def __init__(self, task: Task, entries: Entries) -> None:
        self.task = task
        self._row, self._step = entries.row, entries.step
        self._values = torch.from_numpy(np.ascontiguousarray(entries.values, dtype=np.float64))

    def of(self, rows: BoolArray) -> list[Tensor]:
        """Sums (C,) of each step over the entries of some rows."""
        chosen = rows[self._row]
        return [
            self._values[:, torch.from_numpy(chosen & (self._step == step))].sum(1)
            for step in range(self.task.n_steps)
        ]

    def steps(self, sums: list[Tensor]) -> Iterator[Tensor]:
        """Statistics of each step as `cost` takes them, in memory that it may overwrite."""
        return (step.clone() for step in self.task.accumulate(s.clone() for s in sums))

    def cost(self, sums: list[Tensor]) -> Tensor:
        return self.task.cost(self.steps(sums))

    def floor(self, sums: list[Tensor]) -> float:
        return float(self.task.floor(self.steps(sums)))


def _check_entries(task: Task) -> Entries:
    entries = task.entries()
    n = len(entries.row)
    _require(
        entries.step.shape == (n,) and entries.values.ndim == 2 and entries.values.shape[1] == n,
        f"entries: row {entries.row.shape}, step {entries.step.shape} and values {entries.values.shape} do "
        "not belong together; expected (n,), (n,) and (C, n)",
    )
    _require(bool(np.isfinite(entries.values).all()), "entries: values that are not finite")
    for name, numbers, end in (("row", entries.row, task.n_rows), ("step", entries.step, task.n_steps)):
        inside = bool(((numbers >= 0) & (numbers < end)).all())
        _require(inside, f"entries: {name} outside 0 .. {end - 1}")
    return entries


def _check_loss(task: Task, sums: _Sums, leaf: IntArray) -> None:
    """The loss is that of the leaves, and the shape of the cells does not matter."""
    parts = [sums.of(leaf == number) for number in range(leaf.max() + 1)]
    alone = [float(sums.cost(part)) for part in parts]
    together = [torch.stack(step, dim=1).unsqueeze(1) for step in zip(*parts, strict=True)]
    cells = sums.cost(together)
    _require(cells.shape == (1, len(parts)), f"cost: shape {tuple(cells.shape)} of cells (1, {len(parts)})")
    scale = max(map(abs, [task.constant, *alone]))
    for one, in_batch in zip(alone, cells[0].tolist(), strict=True):
        _require_close("cost of a leaf among others", in_batch, one, scale)
    _require_close("loss of a partition", task.loss(leaf), task.constant + sum(alone), scale)


def _check_floor(sums: _Sums, leaf: IntArray, rng: np.random.Generator) -> None:
    """At most the cost; that of a union at least the sum of the parts."""
    chosen = rng.random(leaf.max() + 1) < 0.5
    one, other = chosen[leaf], ~chosen[leaf]
    parts = [sums.floor(sums.of(rows)) for rows in (one, other)]
    whole, cost = sums.of(one | other), float(sums.cost(sums.of(one | other)))
    slack = 1e-9 * max(1.0, abs(cost), *map(abs, parts))
    floor = sums.floor(whole)
    _require(floor <= cost + slack, f"floor: {floor!r} is above the cost {cost!r} of the same rows")
    _require(
        floor >= sum(parts) - slack,
        f"floor: {floor!r} of all rows is below {sum(parts)!r}, the sum of its parts: not superadditive",
    )


def _check_linear(sums: _Sums, leaf: IntArray) -> None:
    """The statistics of a union are the sums of those of its parts."""
    one, other, both = (list(sums.steps(sums.of(rows))) for rows in (leaf == 0, leaf > 0, leaf >= 0))
    for a, b, c in zip(one, other, both, strict=True):
        scale = max(1e-300, float(c.abs().max()), float(a.abs().max()))
        _require(
            bool(((a + b - c).abs() <= 1e-9 * scale).all()),
            f"accumulate: {c.tolist()} of all rows is not the sum of {a.tolist()} and {b.tolist()}",
        )


def _check_branch_cost(task: BranchCostTask, n_columns: int, rng: np.random.Generator) -> None:
    for size in range(min(4, n_columns)):
        sets = np.stack([rng.permutation(n_columns)[: size + 1] for _ in range(20)], axis=1)
        cost = np.asarray(task.branch_cost(sets[:size], sets[size]))
        fair = cost.shape == (20,) and bool(np.isfinite(cost).all()) and bool((cost >= 0.0).all())
        _require(fair, f"branch_cost: {cost!r} of 20 tests; expected 20 finite costs >= 0")
        again = np.asarray(task.branch_cost(sets[:size][::-1], sets[size]))
        _require(
            bool(np.allclose(cost, again, rtol=1e-12)), "branch_cost: depends on the order of the tests above"
        )


def _random_leaves(matrix: BoolArray, rng: np.random.Generator) -> IntArray:
    """The leaf of each row in a random tree, numbered without gaps."""
    leaf = np.zeros(len(matrix), dtype=np.int64)
    for _ in range(int(rng.integers(1, 6))):
        split = leaf == rng.integers(0, leaf.max() + 1)
        leaf[split & matrix[:, rng.integers(0, matrix.shape[1])]] = leaf.max() + 1
    return np.unique(leaf, return_inverse=True)[1].astype(np.int64)


def _require_close(what: str, value: float, expected: float, scale: float) -> None:
    _require(
        abs(value - expected) <= 1e-8 * max(scale, abs(expected), 1e-300),
        f"{what}: {value!r}, expected {expected!r}",
    )


def _require(kept: bool, message: str) -> None:
    if not kept:
        raise ConfigError(f"the task is not separable, or its methods disagree: {message}")
