"""Solve a problem exactly, and check that a task keeps what the search relies on."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import torch

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_integer, is_number_of
from sstorch.exact.rows import Patterns, check_binary, finite_vector
from sstorch.exact.solution import (
    INFINITY,
    MAX_EXACT_DEPTH,
    Deadline,
    Found,
    Solution,
    check_limits,
    check_rows,
)
from sstorch.exact.task import Task, loss_of
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, DataError

# Depth of branch and bound above tables.
MAX_DEEP_DEPTH = 9


def solve(
    features: object,
    task: Task,
    max_depth: int = 3,
    max_nodes: int | None = None,
    *,
    leaf_penalty: float = 0.0,
    min_leaf: int = 1,
    min_events: int = 0,
    time_limit: float | None = None,
    memory: int = 4 * 2**30,
    n_threads: int | None = None,
    guess: FloatArray | None = None,
) -> Solution:
    """Find trees with the smallest training loss over binary features, for all sizes in one search.

    The search is exhaustive: each set of up to D signed features, a leaf of a tree of depth D, is evaluated
    once, and dynamic programming finds the smallest cost. A tree is optimal for this loss, these rows, these
    features and these limits. The first search on a machine compiles for about fifteen seconds.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.exact.Binarizer`.
        task: the objective, made from the same rows.
        max_depth: most tests on a path, 0 to 9; a stump has depth 1. Above 5 each split of the upper levels
            is searched by itself, for trees of any number of nodes.
        max_nodes: most branch nodes (leaves are one more); None is what the depth can hold.
        leaf_penalty: loss that each leaf costs in the choice of `Solution.tree()`, in the unit of the task's
            loss. Trees for all other penalties are in the solution, too.
        min_leaf: least number of rows of a leaf.
        min_events: least number of events of a leaf, for tasks with events.
        time_limit: seconds, or None. If they do not suffice for `max_depth`, the solution holds the best
            trees found, and how far they can be from the optimum.
        memory: bytes that the search may take.
        n_threads: number of threads, None for that of torch; fewer where their tables would not fit
            `memory`. Losses do not depend on it.
        guess: (n,), an assumed least cost of each row, such as `sstorch.exact.reference_costs`. Above depth 3
            splits are skipped that could beat the best tree only if rows cost less. The tree need not be
            optimal; `Solution.gap` uses proved bounds alone.

    Returns:
        The solution.

    Raises:
        DataError: `features` is not binary, its number of rows differs from the task, or no leaf can satisfy
            `min_leaf` or `min_events`.
        ConfigError: an argument out of range, `min_events` for a task without events, too many features
            for the depth (the message estimates memory and time), a `leaf_cost` that cannot be compiled, or a
            cost that is not a number.

    Examples:
        >>> from sstorch.exact import LogLikelihood, solve
        >>> task = LogLikelihood(time=[1.0, 2.0, 6.0, 8.0, 9.0], event=[1, 1, 1, 0, 1])
        >>> solution = solve([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]], task, max_depth=2)
        >>> solution.certificate, round(solution.loss, 4), solution.tree(nodes=1).feature.tolist()
        ('optimal', 0.3641, [0, -1, -1])
    """
    patterns = Patterns.of(features, merge_columns=not hasattr(task, "feature_costs"))
    check_limits(max_nodes, time_limit)
    limit = _check_settings(task, max_depth, max_nodes, leaf_penalty, min_events, memory)
    check_rows(len(patterns.of_row), task.n_rows, min_leaf)
    depth = min(max_depth, max(1, patterns.n_features))  # no path tests a feature twice
    # A test that separates no rows may still make later ones cheaper: leaves without rows are none.
    least: tuple[int, ...] = ()
    if min_leaf > 1 or min_events > 0 or hasattr(task, "feature_costs"):
        least = (min_leaf, min_events)[: 2 if min_events else 1]
    n_threads = torch.get_num_threads() if n_threads is None else check_integer("n_threads", n_threads, 1)
    from sstorch.exact.deep import Rows  # numba takes a while to load, which only a search need wait for

    rows = Rows(patterns, task, least, memory, n_threads)
    assumed: FloatArray | None = None
    if guess is not None:
        if max_nodes is not None or hasattr(task, "feature_costs"):
            raise ConfigError("guess does not go with max_nodes, nor with costs of tests")
        assumed = np.bincount(patterns.of_row, finite_vector(guess, "guess", task.n_rows)).astype(np.float64)
    run, depths = rows.plan(depth, limit, leaf_penalty, assumed)
    searches = list[Found]()
    if time_limit is not None and len(depths) == 1:
        # Shallower trees first: they are what remains if the time does not suffice.
        depths = tuple(range(min(1, depth), depth + 1))
    deadline = Deadline(time_limit)
    for d in depths:
        searches.append(run(d, min(limit, 2**d - 1), deadline))
        if not all(cost > -INFINITY for cost in searches[-1].costs.values()):
            raise ConfigError(f"cost of {type(task).__name__} is NaN or -infinity, see check_task")
        if not searches[-1].complete:
            break
    return Solution(
        patterns=patterns,
        task=task,
        searches=searches,
        floor=-INFINITY if searches[-1].complete else float(rows.floor().sum()),
        depth=depth,
        # The bound does not apply to shallower trees.
        objective_bound=searches[-1].objective_bound if d == depth else -INFINITY,
        max_depth=max_depth,
        max_nodes=limit,
        leaf_penalty=leaf_penalty,
    )


def _check_settings(
    task: Any, max_depth: int, max_nodes: int | None, leaf_penalty: float, min_events: int, memory: int
) -> int:
    """Check settings against each other and the task; returns the largest number of branch nodes."""
    if check_integer("max_depth", max_depth, 0) > MAX_DEEP_DEPTH:
        raise ConfigError(f"max_depth must be 0 to {MAX_DEEP_DEPTH}, got {max_depth}")
    if max_depth > MAX_EXACT_DEPTH and max_nodes is not None:
        raise ConfigError(
            f"max_nodes must be None for trees deeper than {MAX_EXACT_DEPTH}, which depth and leaf_penalty "
            f"bound, got {max_nodes}"
        )
    if max_depth > MAX_EXACT_DEPTH and hasattr(task, "feature_costs"):
        raise ConfigError(f"max_depth must be at most {MAX_EXACT_DEPTH} with costs of tests, got {max_depth}")
    if not is_number_of(leaf_penalty, Real) or not 0.0 <= leaf_penalty < INFINITY:
        raise ConfigError(f"leaf_penalty must be a finite number of at least 0, got {leaf_penalty!r}")
    check_integer("memory", memory, 1)
    if check_integer("min_events", min_events, 0):
        if not hasattr(task, "event"):
            raise ConfigError(f"min_events={min_events}: this task has no events")
        if min_events > (n_events := int(np.count_nonzero(task.event))):
            raise DataError(
                f"min_events={min_events}: not even a single leaf has that many events, there are {n_events}"
            )
    most: int = 2**max_depth - 1
    return most if max_nodes is None else min(max_nodes, most)


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
