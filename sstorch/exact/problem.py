"""Budgets of trees, deadline, result and estimated work of a search, and checks of its arguments."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sstorch.checks import check_horizon, check_integer
from sstorch.exact.tree import Nested
from sstorch.exceptions import ConfigError, DataError

INFINITY = float("inf")
# Depth of the largest tables, for which the arrays of kernels have room.
MAX_EXACT_DEPTH = 5


class Deadline:
    """The time at which a search has to stop, `seconds` from now on, or never."""

    def __init__(self, seconds: float | None = None) -> None:
        self._time = INFINITY if seconds is None else time.perf_counter() + seconds

    @property
    def passed(self) -> bool:
        """Whether the search has to stop."""
        return self._time < INFINITY and time.perf_counter() > self._time


NEVER = Deadline()


class Budget(NamedTuple):
    """The most that a subtree may use: tests on a path, and branch nodes, depth .. 2 ** depth - 1."""

    depth: int
    nodes: int


def budget(depth: int, nodes: int) -> Budget:
    """The smallest equivalent budget: n nodes are never deeper than n, nor more than the depth can hold."""
    nodes = min(nodes, 2**depth - 1)
    return Budget(min(depth, nodes), nodes)


@cache
def budgets(depth: int, max_nodes: int) -> tuple[Budget, ...]:
    """All different budgets up to a depth and a number of nodes, (0, 0) first, smaller ones before larger."""
    return tuple(Budget(d, n) for d in range(depth + 1) for n in range(d, 2**d) if n <= max_nodes)


@cache
def splits(target: Budget) -> tuple[tuple[Budget, Budget], ...]:
    """The budgets of the two subtrees below a root that uses one node of `target`."""
    most = 2 ** (target.depth - 1) - 1
    rest = target.nodes - 1
    return tuple(
        (budget(target.depth - 1, left), budget(target.depth - 1, rest - left))
        for left in range(max(0, rest - most), min(most, rest) + 1)
    )


def smallest(costs: dict[Budget, float], target: Budget) -> Budget:
    """The budget with the fewest nodes that reaches the cost of `target`, up to rounding."""
    depth, nodes = target
    goal = costs[target] + 1e-13 * max([abs(cost) for cost in costs.values() if cost != INFINITY])
    fitting = [(s.nodes, s.depth) for s, cost in costs.items() if cost <= goal and s.depth <= depth]
    return Budget(*min([size for size in fitting if size[0] <= nodes])[::-1])


@dataclass(frozen=True)
class Found:
    """Trees that a search has found, and bounds of all others; costs without the task's constant."""

    costs: dict[Budget, float]  # least cost of a tree on all rows for every budget, of larger ones no more
    tree: Callable[[Budget], Nested]  # one of least cost within a budget, of equal ones one with few nodes
    complete: bool  # no tree was left out
    # no tree of the depth searched costs less, with the penalties of its leaves; -inf if there is no bound
    objective_bound: float = -INFINITY
    bound: Callable[[Budget], float] | None = None  # below any tree within a budget; None: costs if complete

    def best(self, penalty: float) -> tuple[float, Budget]:
        """The least cost with a penalty of each leaf, and its budget."""
        return min((cost + penalty * (size.nodes + 1), size) for size, cost in self.costs.items())

    def lower_bound(self, target: Budget) -> float:
        """No tree within a budget costs less, without penalties; -inf if there is no bound."""
        if self.bound is not None:
            return self.bound(target)
        return self.costs.get(target, -INFINITY) if self.complete else -INFINITY


class Work(NamedTuple):
    """Size of a search: leaves to be evaluated, memory, and seconds on one core, within a factor of three."""

    cells: int
    bytes: int
    seconds: float

    def check(self, n_features: int, depth: int, memory: int) -> None:
        """Raise ConfigError, with the estimate, for a search without room in memory or of months."""
        if self.bytes <= memory and self.seconds <= 1e7:
            return
        raise ConfigError(
            f"{n_features} different binary features are too many for depth {depth}: "
            f"{self.cells:.2g} leaves, {self.bytes / 2**30:.1f} GiB and {self.seconds / 3600:.2g} hours "
            f"on one core (memory={memory / 2**30:.1f} GiB is allowed). Choose a smaller max_depth, fewer "
            "thresholds, as with binarize='quantiles', or a larger memory"
        )


def check_rows(n_rows: int, other_rows: int, min_leaf: int, other: str = "the task") -> None:
    """DataError: rows of matrix and task differ, or no leaf has as many; ConfigError: `min_leaf` < 1."""
    if n_rows != other_rows:
        raise DataError(f"features: {n_rows} rows, but {other} has {other_rows}")
    if check_integer("min_leaf", min_leaf, 1) > n_rows:
        raise DataError(f"min_leaf={min_leaf}: not even a single leaf has that many rows, there are {n_rows}")


def check_limits(max_nodes: int | None, time_limit: float | None) -> None:
    """ConfigError: a limit is out of range."""
    if max_nodes is not None:
        check_integer("max_nodes", max_nodes, 0)
    if time_limit is not None:
        check_horizon(time_limit, "time_limit")
