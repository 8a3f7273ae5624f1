"""Exact trees: the one entry point."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal.branching import branch_cost
from sstorch.optimal.estimate import check, estimate
from sstorch.optimal.levels import INFINITY
from sstorch.optimal.moments import Moments
from sstorch.optimal.patterns import Patterns, check_binary
from sstorch.optimal.problem import Problem
from sstorch.optimal.search import search
from sstorch.optimal.solution import Counters, Solution
from sstorch.optimal.tasks import BranchCostTask, Entries, SurvivalTask, Task

MAX_DEPTH = 5


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
    device: str | torch.device = "cpu",
) -> Solution:
    """Find trees of least training loss over binary features: all sizes in one search.

    The search is exhaustive. A leaf of a tree of depth D is a set of up to D features, each with a sign; the
    order of the tests does not matter, so each such set is evaluated once, and the least cost below ever
    smaller sets follows by dynamic programming. "Optimal" means: for this loss, on these rows, over these
    binary features, within the budget.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.optimal.Binarizer`.
        task: the objective, made from the same rows.
        max_depth: most tests on a path, 0 to 5; a stump has depth 1.
        max_nodes: most branch nodes (leaves are one more); None is what the depth can hold.
        leaf_penalty: loss that each leaf costs in the choice of `Solution.tree()`, in the unit of the task's
            loss. Trees for all other penalties are in the solution, too.
        min_leaf: least number of rows of a leaf.
        min_events: least number of events of a leaf, for tasks that know of events.
        time_limit: seconds, or None. If they do not suffice for `max_depth`, the solution holds the best
            trees found, and how far they can be from the optimum.
        memory: bytes that the search may take.
        device: where to search.

    Returns:
        The solution.

    Raises:
        DataError: `features` is not binary or has another number of rows than the task, or no leaf could meet
            `min_leaf` or `min_events`.
        ConfigError: an argument out of its range, `min_events` for a task without events, or too many
            features for the depth: the message gives the estimate of memory and time.

    Examples:
        >>> import numpy as np
        >>> from sstorch.optimal import LogLikelihood, solve
        >>> features = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]])
        >>> task = LogLikelihood(time=[1.0, 2.0, 6.0, 8.0, 9.0], event=[1, 1, 1, 0, 1])
        >>> found = solve(features, task, max_depth=2)
        >>> found.certificate, round(found.loss, 4), found.tree(nodes=1).feature.tolist()
        ('optimal', 0.3641, [0, -1, -1])
    """
    matrix, names = check_binary(features)
    limit = _check_settings(max_depth, max_nodes, leaf_penalty, time_limit)
    _check_rows(matrix.shape[0], task, min_leaf, min_events)
    priced = isinstance(task, BranchCostTask)
    patterns = Patterns.of(matrix, merge_columns=not priced)
    entries, place = task.entries(), torch.device(device)
    depth = min(max_depth, max(1, patterns.n_features)) if priced else max_depth
    n_entries = len(patterns.literals) if task.n_steps == 1 else len(entries.row)
    work = estimate(n_entries, patterns.n_features, task.n_steps, len(entries.values), depth, packed=priced)
    check(work, patterns.n_features, depth, memory)
    moments = Moments.of(patterns, entries, task.n_steps, place)
    sizes, least = None, (min_leaf, min_events)[: 2 if min_events else 1]
    # A test that tells no rows apart may still make later ones cheaper: leaves without rows are none.
    if min_leaf > 1 or min_events > 0 or priced:
        sizes = Moments.of(patterns, _size_entries(task, len(least)), 1, place)
    cost_of_test = branch_cost(task, patterns.columns)
    problem = Problem(task, moments, sizes, *least, branch_cost=cost_of_test)
    begin = time.perf_counter()
    searches = []
    # With a limit, shallower trees first: they are what remains if the time does not suffice.
    deadline = INFINITY if time_limit is None else begin + time_limit
    for d in range(depth if time_limit is None else min(1, depth), depth + 1):
        levels, complete = search(problem, d, min(limit, 2**d - 1), deadline)
        searches.append((levels, complete))
        if not complete:
            break
    seconds = time.perf_counter() - begin
    return Solution(
        features=matrix,
        names=names,
        patterns=patterns,
        problem=problem,
        searches=searches,
        floor=-INFINITY if searches[-1][1] else _floor(problem, patterns, entries, place),
        max_depth=max_depth,
        max_nodes=limit,
        leaf_penalty=leaf_penalty,
        counters=Counters(
            len(matrix), len(patterns.literals), patterns.n_features, problem.n_cells, seconds, work
        ),
    )


def _check_settings(
    max_depth: int, max_nodes: int | None, leaf_penalty: float, time_limit: float | None
) -> int:
    """Check what does not depend on the data; returns the largest number of branch nodes."""
    if not 0 <= max_depth <= MAX_DEPTH:
        raise ConfigError(f"max_depth={max_depth}: exact trees are searched for depths 0 to {MAX_DEPTH}")
    if max_nodes is not None and max_nodes < 0:
        raise ConfigError(f"max_nodes={max_nodes}: expected at least 0, or None for no limit")
    if not 0.0 <= leaf_penalty < INFINITY:
        raise ConfigError(f"leaf_penalty={leaf_penalty}: expected a number of at least 0")
    if time_limit is not None and not time_limit > 0.0:
        raise ConfigError(f"time_limit={time_limit}: expected seconds above 0, or None for no limit")
    most: int = 2**max_depth - 1
    return most if max_nodes is None else min(max_nodes, most)


def _check_rows(n_rows: int, task: Task, min_leaf: int, min_events: int) -> None:
    """Check sizes against the rows."""
    if n_rows != task.n_rows:
        raise DataError(f"features: {n_rows} rows, but the task has {task.n_rows}")
    if min_leaf < 1 or min_events < 0:
        raise ConfigError(
            f"min_leaf={min_leaf}, min_events={min_events}: expected at least 1 row and 0 events"
        )
    if min_leaf > n_rows:
        raise DataError(f"min_leaf={min_leaf}: not even a single leaf has that many rows, there are {n_rows}")
    if min_events == 0:
        return
    if not isinstance(task, SurvivalTask):
        raise ConfigError(f"min_events={min_events}: this task does not know which rows have events")
    n_events = int(np.count_nonzero(task.event))
    if min_events > n_events:
        raise DataError(
            f"min_events={min_events}: not even a single leaf has that many events, there are {n_events}"
        )


def _size_entries(task: Task, n_channels: int) -> Entries:
    """Rows, and events where two channels are asked for."""
    rows = np.arange(task.n_rows, dtype=np.int64)
    events = [task.event] if n_channels == 2 and isinstance(task, SurvivalTask) else []
    return Entries(rows, np.zeros_like(rows), np.stack([np.ones(task.n_rows), *events]))


def _floor(problem: Problem, patterns: Patterns, entries: Entries, device: torch.device) -> float:
    """No tree costs less: every distinct row a leaf of its own, with the cheapest curve."""
    of_entry = torch.from_numpy(patterns.of_row[entries.row]).to(device)
    step = torch.from_numpy(entries.step).to(device)
    values = torch.from_numpy(entries.values).to(device)
    order = torch.argsort(step, stable=True)
    begin = torch.searchsorted(step[order], torch.arange(problem.task.n_steps + 1, device=device)).tolist()

    def sums() -> Iterator[Tensor]:
        for first, last in pairwise(begin):
            part = order[first:last]
            empty = values.new_zeros(len(values), len(patterns.literals))
            yield empty.index_add_(1, of_entry[part], values[:, part])

    return float(problem.task.floor(problem.task.accumulate(sums())).sum())
