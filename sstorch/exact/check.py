"""A check that a task keeps what the search relies on: random trees, and all trees of depth 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from sstorch._types import BoolArray, IntArray
from sstorch.exact.patterns import check_binary
from sstorch.exact.solve import solve
from sstorch.exact.task import Task, loss_of
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError

# Columns of the search that is compared with all trees.
_COLUMNS = 4


def check_task(task: Task, features: object, *, n_trials: int = 30, seed: int = 0) -> None:
    """Test whether a task is separable, as required by `solve`.

    Checks on random partitions: `loss` = `constant` + costs of the leaves; a leaf without rows has cost 0;
    `floor_cost` is at most the cost, and superadditive; there is one decision per leaf. Then a search of
    depth 2 over some of the columns is compared with all trees, by `loss`. Passing is not a proof.

    Args:
        task: the objective.
        features: binary matrix (N, p) of the task's rows; random trees are grown on it.
        n_trials: number of random trees.
        seed: seed of the trees.

    Raises:
        ConfigError: a check failed; the message names it, with the numbers.
        DataError: `features` is not binary.
    """
    from sstorch.exact.compiled.costs import Form, costs_of

    matrix, _ = check_binary(features)
    if len(matrix) != task.n_rows:
        raise ConfigError(f"n_rows: the task has {task.n_rows}, the features have {len(matrix)} rows")
    rng = np.random.default_rng(seed)
    values = np.asarray(task.row_values(), dtype=np.float64)
    _require(
        values.ndim == 2 and values.shape[1] == task.n_rows and bool(np.isfinite(values).all()),
        f"row_values: shape {values.shape}; expected (C, {task.n_rows}) finite numbers",
    )
    cost, floor = Form.of(task), Form.of(task, floor=True)
    _require_close("cost of a leaf without rows", float(costs_of(cost, 0.0 * values[:, :1])[0]), 0.0, 1.0)
    for _ in range(n_trials):
        leaf = _random_leaves(matrix, rng)
        n_leaves = int(leaf.max()) + 1
        alone = costs_of(cost, values @ np.eye(n_leaves)[leaf])
        scale = max(abs(task.constant), float(np.abs(alone).max()))
        _require_close("loss of a partition", task.loss(leaf), task.constant + float(alone.sum()), scale)
        side = (rng.random(n_leaves) < 0.5)[leaf].astype(np.int64)
        parts = costs_of(floor, values @ np.eye(2)[side])
        whole, most = (float(costs_of(form, values.sum(axis=1, keepdims=True))[0]) for form in (floor, cost))
        slack = 1e-9 * max(1.0, abs(most), float(np.abs(parts).max()))
        _require(whole <= most + slack, f"floor_cost: {whole!r} is above the cost {most!r} of the same rows")
        _require(
            whole >= parts.sum() - slack,
            f"floor_cost: {whole!r} is below {parts.sum()!r}, the sum of its parts: not superadditive",
        )
    if hasattr(task, "decisions"):
        shape: Any = np.shape(task.decisions(leaf, n_leaves))
        _require(shape[:1] == (n_leaves,), f"decisions: shape {shape} for {n_leaves} leaves")
    columns = rng.permutation(matrix.shape[1])[:_COLUMNS]
    part = matrix.copy()
    part[:, np.setdiff1d(np.arange(matrix.shape[1]), columns)] = False
    found, least = solve(part, task, 2).optima[2, 3].loss, _least_loss(task, part, columns.tolist())
    _require_close("least loss of all trees of depth 2", found, least, abs(task.loss(np.zeros_like(leaf))))


def _least_loss(task: Task, matrix: BoolArray, columns: list[int]) -> float:
    """Least loss of all trees of depth 2, each evaluated by its definition."""
    stumps: list[Nested] = [None, *((column, None, None) for column in columns)]
    nested: list[Nested] = [None, *((root, a, b) for root in columns for a in stumps for b in stumps)]
    trees = [BinaryTree.build(each, list(map(str, range(matrix.shape[1])))) for each in nested]
    leaves = [tree.apply(matrix) for tree in trees]
    return min(
        loss_of(task, tree, leaf)
        for tree, leaf in zip(trees, leaves, strict=True)
        if np.bincount(leaf, minlength=tree.n_leaves).all()
    )


def _random_leaves(matrix: BoolArray, rng: np.random.Generator) -> IntArray:
    """The leaf of each row in a random tree, numbered without gaps."""
    leaf = np.zeros(len(matrix), dtype=np.int64)
    for _ in range(int(rng.integers(1, 6))):
        split = leaf == rng.integers(0, leaf.max() + 1)
        leaf[split & matrix[:, rng.integers(0, matrix.shape[1])]] = leaf.max() + 1
    return np.unique(leaf, return_inverse=True)[1].astype(np.int64)


def _require_close(what: str, value: float, expected: float, scale: float) -> None:
    close = abs(value - expected) <= 1e-8 * max(scale, abs(expected), 1e-300)
    _require(close, f"{what}: {value!r}, expected {expected!r}")


def _require(kept: bool, message: str) -> None:
    if not kept:
        raise ConfigError(f"the task is not separable, or its methods disagree: {message}")
