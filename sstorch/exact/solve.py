"""Solve a problem exactly: the engine, its solution and its certificate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.checks import check_device
from sstorch.exact.deadline import NEVER, Deadline
from sstorch.exact.moments import Patterns
from sstorch.exact.plan import MAX_DEEP_DEPTH, Rows, compiles, obstacle
from sstorch.exact.problem import INFINITY, MAX_EXACT_DEPTH, Found, check_limits, check_rows
from sstorch.exact.solution import Counters, Solution
from sstorch.exact.targets import finite_vector
from sstorch.exact.task import Entries, Task, has_branch_costs, has_events
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Engine
from sstorch.threads import torch_threads


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
    engine: Engine = "auto",
    n_threads: int | None = None,
    verbose: int = 0,
    guess: FloatArray | None = None,
) -> Solution:
    """Find trees with the smallest training loss over binary features, for all sizes in one search.

    The search is exhaustive. A leaf of a tree of depth D is a set of up to D signed features. The order of
    the tests has no effect: each set is evaluated once, and dynamic programming finds the smallest cost. A
    tree is optimal for this loss, these rows, these binary features and these limits.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.exact.Binarizer`.
        task: the objective, made from the same rows.
        max_depth: most tests on a path, 0 to 8; a stump has depth 1. Above 5 each split of the upper levels
            is searched by itself, by the compiled engine, for trees of any number of nodes.
        max_nodes: most branch nodes (leaves are one more); None is what the depth can hold. Where there are
            so many thresholds of columns that trees of all sizes cannot be compared, for memory or for more
            than a minute, None finds those of any number of nodes alone, up to depth 3, by branch and bound.
        leaf_penalty: loss that each leaf costs in the choice of `Solution.tree()`, in the unit of the task's
            loss. Trees for all other penalties are in the solution, too.
        min_leaf: least number of rows of a leaf.
        min_events: least number of events of a leaf, for tasks with events.
        time_limit: seconds, or None. If they do not suffice for `max_depth`, the solution holds the best
            trees found, and how far they can be from the optimum. Ctrl-C ends the time of a search of more
            than an instant; a second one raises.
        memory: bytes that the search may take.
        device: where to search.
        engine: what searches, ``"torch"``, on any device and for every task, or ``"compiled"``, on the CPU,
            for losses of this package, but for ``"ipcw"`` curves.
            ``"auto"`` is compiled where it can be and torch would need more than 20 seconds, by the estimate,
            or more than `memory`, or search below each root by itself. Both find the same losses; where
            several trees have the least one, they may choose different ones. The first compiled search on a
            machine compiles, for about twenty seconds; the machine code is kept on disk.
        n_threads: how many compute, None as many as torch does. The compiled search takes fewer where each
            one's tables would not fit `memory`. Losses do not depend on it.
        verbose: 1 reports progress on standard error, once a second.
        guess: (N,), an assumed least cost of each row, such as that by a reference model (see
            `sstorch.exact.reference_costs`). Above depth 3 the compiled engine skips splits that could beat
            the best tree only if rows cost less than assumed. This saves time, but the tree need not be
            optimal: `Solution.gap` uses proved bounds alone and is 0 only for a proved optimum.

    Returns:
        The solution.

    Warns:
        DataWarning: the search was interrupted.

    Raises:
        DataError: `features` is not binary, its number of rows differs from the task, or no leaf can satisfy
            `min_leaf` or `min_events`.
        ConfigError: an argument out of range, `min_events` for a task without events, an engine that does not
            support the search, too many features for the depth (the message estimates memory and time), or a
            cost that is not a number.

    Examples:
        >>> import numpy as np
        >>> from sstorch.exact import LogLikelihood, solve
        >>> features = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]])
        >>> task = LogLikelihood(time=[1.0, 2.0, 6.0, 8.0, 9.0], event=[1, 1, 1, 0, 1])
        >>> solution = solve(features, task, max_depth=2)
        >>> solution.certificate, round(solution.loss, 4), solution.tree(nodes=1).feature.tolist()
        ('optimal', 0.3641, [0, -1, -1])
    """
    priced = has_branch_costs(task)
    patterns = Patterns.of(features, merge_columns=not priced)
    limit = _check_settings(max_depth, max_nodes, leaf_penalty, time_limit)
    if guess is not None:
        guess = finite_vector(guess, "guess", task.n_rows)
        if max_nodes is not None or priced:
            raise ConfigError("guess does not go with max_nodes, nor with costs of tests")
    if n_threads is not None and n_threads < 1:
        raise ConfigError(f"n_threads must be at least 1, or None for as many as torch has, got {n_threads}")
    n_threads = n_threads or torch.get_num_threads()
    check_rows(patterns.n_rows, task.n_rows, min_leaf)
    _check_events(task, min_events)
    if device != "cpu":
        check_device(device)
    entries, place = task.entries(), torch.device(device)
    depth = min(max_depth, max(1, patterns.n_features))  # no path tests a feature twice
    # A test that separates no rows may still make later ones cheaper: leaves without rows are none.
    least: tuple[int, ...] = ()
    if min_leaf > 1 or min_events > 0 or priced:
        least = (min_leaf, min_events)[: 2 if min_events else 1]
    rows = Rows(patterns, task, entries, _size_entries(task, len(least)) if least else None, least)
    work = partial(rows.torch_work, min(depth, MAX_EXACT_DEPTH))
    if depth > MAX_EXACT_DEPTH:
        what = f"max_depth={max_depth}"
        reason = "it does not support costs of tests" if priced else obstacle(task, place)
        if reason is not None:
            raise ConfigError(f"{what} is for the compiled engine alone, and {reason}")
        engine = "compiled" if engine == "auto" else engine
        if not compiles(engine, task, place, work, memory):
            raise ConfigError(f"{what} is for the compiled engine alone, not for engine={engine!r}")
    if compiles(engine, task, place, work, memory):
        if depth > MAX_EXACT_DEPTH or (guess is not None and depth > 3):
            floor = _floor(task, patterns, entries, place)
            assumed = None if guess is None else np.bincount(patterns.of_row, guess).astype(np.float64)
            plan = rows.deep_plan(depth, leaf_penalty, floor, assumed, memory, n_threads)
        else:
            all_sizes = max_nodes is not None
            plan = rows.compiled_plan(depth, limit, all_sizes, leaf_penalty, memory, n_threads)
    else:
        plan = rows.torch_plan(depth, memory, place, n_threads)
    begin = time.perf_counter()
    searches: list[Found] = []
    depths = plan.depths
    if time_limit is not None and len(depths) == 1:
        # Shallower trees first: they are what remains if the time does not suffice.
        depths = tuple(range(min(1, depth), depth + 1))
    deadline = Deadline(time_limit, bool(verbose))
    with torch_threads(1), deadline.listening(plan.work.seconds):
        for d in depths:
            searches.append(plan.run(d, min(limit, 2**d - 1), deadline))
            if not all(cost > -INFINITY for cost in searches[-1].costs.values()):
                raise ConfigError(f"cost of {type(task).__name__} is NaN or -infinity, see check_task")
            if not searches[-1].complete:
                break
        if deadline.interrupted and len(depths) == 1 and depth > 2:
            # These take no time.
            searches.insert(0, plan.run(2, min(limit, 3), NEVER))
    seconds = time.perf_counter() - begin
    solution = Solution(
        patterns=patterns,
        task=task,
        searches=searches,
        floor=-INFINITY if searches[-1].complete else float(_floor(task, patterns, entries, place).sum()),
        depth=depth,
        # The bound does not apply to shallower trees.
        objective_bound=searches[-1].objective_bound if d == depth else -INFINITY,
        max_depth=max_depth,
        max_nodes=limit,
        leaf_penalty=leaf_penalty,
        counters=Counters(
            patterns.n_rows,
            len(patterns.literals),
            patterns.n_features,
            searches[-1].n_cells,
            seconds,
            plan.work,
        ),
    )
    deadline.warn(lambda: solution.certificate)
    return solution


def _check_settings(
    max_depth: int,
    max_nodes: int | None,
    leaf_penalty: float,
    time_limit: float | None,
) -> int:
    """Check what does not depend on the data; returns the largest number of branch nodes."""
    if not 0 <= max_depth <= MAX_DEEP_DEPTH:
        raise ConfigError(f"max_depth={max_depth}: exact trees are searched for depths 0 to {MAX_DEEP_DEPTH}")
    if max_depth > MAX_EXACT_DEPTH and max_nodes is not None:
        raise ConfigError(
            f"max_depth={max_depth}: depth and leaf_penalty alone bound trees deeper than {MAX_EXACT_DEPTH}, "
            f"not max_nodes={max_nodes}"
        )
    check_limits(max_nodes, time_limit)
    if not 0.0 <= leaf_penalty < INFINITY:
        raise ConfigError(f"leaf_penalty must be a number of at least 0, got {leaf_penalty}")
    most: int = 2**max_depth - 1
    return most if max_nodes is None else min(max_nodes, most)


def _check_events(task: Task, min_events: int) -> None:
    """Check the least number of events of a leaf against the rows."""
    if min_events < 0:
        raise ConfigError(f"min_events must be at least 0, got {min_events}")
    if min_events == 0:
        return
    if not has_events(task):
        raise ConfigError(f"min_events={min_events}: this task has no events")
    n_events = int(np.count_nonzero(task.event))
    if min_events > n_events:
        raise DataError(
            f"min_events={min_events}: not even a single leaf has that many events, there are {n_events}"
        )


def _size_entries(task: Task, n_channels: int) -> Entries:
    """Rows, and events where two channels are requested."""
    sizes = np.ones((n_channels, task.n_rows))
    if n_channels == 2 and has_events(task):
        sizes[1] = task.event
    return Entries.of_rows(sizes)


def _floor(task: Task, patterns: Patterns, entries: Entries, device: torch.device) -> FloatArray:
    """(U,), no tree costs less: every distinct row a leaf of its own, with the cheapest curve."""
    of_entry = torch.from_numpy(patterns.of_row[entries.row]).to(device)
    step = torch.from_numpy(entries.step).to(device)
    values = torch.from_numpy(entries.values).to(device)
    order = torch.argsort(step, stable=True)
    begin = torch.searchsorted(step[order], torch.arange(task.n_steps + 1, device=device)).tolist()

    def sums() -> Iterator[Tensor]:
        for first, last in pairwise(begin):
            part = order[first:last]
            empty = values.new_zeros(len(values), len(patterns.literals))
            yield empty.index_add_(1, of_entry[part], values[:, part])

    floor: FloatArray = task.floor(task.accumulate(sums())).cpu().numpy()
    return floor
