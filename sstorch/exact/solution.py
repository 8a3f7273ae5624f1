"""Budgets and deadline of a search, what it finds, and the optima of all budgets with their trees."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy.typing as npt
import pandas as pd

from sstorch.checks import check_horizon, check_integer
from sstorch.exact.rows import Patterns
from sstorch.exact.task import Task, loss_of
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, DataError, TrainingError

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


class Optimum(NamedTuple):
    """Best tree found within given limits."""

    depth: int  # most tests on a path
    nodes: int  # most branch nodes, leaves minus one
    loss: float  # its training loss, without penalty
    lower_bound: float  # of the loss of all trees within the limits; equal to `loss` if optimality is proved

    @property
    def certified(self) -> bool:
        """True if it is proved that no tree within the limits has a smaller loss."""
        return self.lower_bound >= self.loss

    def objective(self, penalty: float) -> float:
        """Loss with a penalty of each leaf."""
        return self.loss + penalty * (self.nodes + 1)


class Solution:
    """Optimal trees for all depths and numbers of nodes up to given limits, from one search.

    `tree()`, `loss`, `certificate` and `gap` are for the `max_depth`, `max_nodes` and `leaf_penalty` passed
    to `solve`; `tree(depth=, nodes=, leaf_penalty=)` and `optima` are for all others.

    Attributes:
        max_nodes: as given, or the maximum at this depth.
        optima: depth, nodes, loss and lower bound by (depth, nodes), in increasing order.
    """

    def __init__(
        self,
        *,
        patterns: Patterns,
        task: Task,
        searches: Sequence[Found],
        floor: float,
        depth: int,
        objective_bound: float,
        max_depth: int,
        max_nodes: int,
        leaf_penalty: float,
    ) -> None:
        self.task, self._patterns = task, patterns
        self.max_depth, self.max_nodes, self.leaf_penalty = max_depth, max_nodes, leaf_penalty
        self._trees: dict[Optimum, tuple[BinaryTree, float]] = {}
        # Of each budget the least cost, the search that found it, and within which budget.
        self._best: dict[Budget, tuple[float, Found, Budget]] = {}
        for found in searches:
            for state, value in found.costs.items():
                if state not in self._best or value < self._best[state][0]:
                    self._best[state] = (value, found, state)
        every = budgets(max_depth, max_nodes)
        # A budget that no search has finished can do what smaller ones can.
        for state in every if len(searches) > 1 or len(self._best) < len(every) else ():
            for other, known in list(self._best.items()):
                fits = other.depth <= state.depth and other.nodes <= state.nodes
                if fits and (state not in self._best or known[0] < self._best[state][0]):
                    self._best[state] = known
        self.optima: dict[tuple[int, int], Optimum] = {}
        for state, (cost, *_) in sorted(self._best.items(), key=lambda item: (item[0].nodes, item[0].depth)):
            # There are no trees deeper than those that were searched.
            reached = state if state.depth <= depth else budget(depth, state.nodes)
            bound = min(cost, max([floor, *[found.lower_bound(reached) for found in searches]]))
            self.optima[state] = Optimum(*state, self._with_constant(cost), self._with_constant(bound))
        self._objective_bound = self.task.constant + objective_bound

    def _with_constant(self, cost: float) -> float:
        """Loss of a cost; 0 where the constant and the cost cancel but for rounding."""
        loss = self.task.constant + cost
        return loss if abs(loss) > 1e-12 * abs(self.task.constant) else 0.0

    @property
    def loss(self) -> float:
        """Training loss of `tree()`, without penalty, from its definition."""
        # The search rounds sums, and adds up numbers that cancel.
        return self._found(self.optimum())[1]

    @property
    def objective(self) -> float:
        """Training loss of `tree()` plus `leaf_penalty` times the number of leaves."""
        return self.loss + self.leaf_penalty * (self.optimum().nodes + 1)

    @property
    def gap(self) -> float:
        """Upper bound on the difference between `objective` and the optimum; 0 if optimality is proved."""
        fitting, penalty = self._fitting(self.max_depth, self.max_nodes), self.leaf_penalty
        bound = min(o.lower_bound + penalty * (o.nodes + 1 if o.certified else 1) for o in fitting)
        gap = self.optimum().objective(penalty) - max(bound, self._objective_bound)
        gap = gap if gap > _slack(fitting) else 0.0
        # Error of the losses of the search, beyond the last digits. No loss is below zero, so that of the
        # tree, which has last digits, too, bounds what rounding hides.
        rounding = float(getattr(self.task, "rounding", 0.0))
        hidden = min(2 * rounding, self.loss) if rounding else 0.0
        return gap + hidden if hidden and hidden > max(1e-9 * self.loss, 2.0**-52 * rounding) else gap

    @property
    def certificate(self) -> str:
        """``"optimal"``, or for a search that was cut short a bound on the possible improvement."""
        return "optimal" if self.gap == 0.0 else f"at most {self.gap:.6g} above the optimum"

    def optimum(
        self, *, depth: int | None = None, nodes: int | None = None, leaf_penalty: float | None = None
    ) -> Optimum:
        """Return depth, nodes, loss and lower bound of the best tree within limits.

        By default limits and the penalty per leaf are those passed to `solve`. The tree has the smallest
        number of nodes for its loss. ConfigError: limits larger than those of the search, or a negative limit
        or penalty.
        """
        depth = self.max_depth if depth is None else depth
        nodes = self.max_nodes if nodes is None else nodes
        penalty = self.leaf_penalty if leaf_penalty is None else leaf_penalty
        if not 0 <= depth <= self.max_depth:
            raise ConfigError(f"depth must be 0 to {self.max_depth} of this search, got {depth}")
        if nodes < 0 or (nodes > self.max_nodes and depth == self.max_depth):
            raise ConfigError(f"nodes must be 0 to {self.max_nodes} of this search, got {nodes}")
        if not penalty >= 0.0:
            raise ConfigError(f"leaf_penalty must be a number of at least 0, got {penalty}")
        fitting = self._fitting(depth, nodes)
        # Equal up to rounding: the smaller tree.
        most = min(o.objective(penalty) for o in fitting) + _slack(fitting)
        return next(o for o in fitting if o.objective(penalty) <= most)

    def _fitting(self, depth: int, nodes: int) -> list[Optimum]:
        return [o for o in self.optima.values() if o.depth <= depth and o.nodes <= nodes]

    def tree(
        self, *, depth: int | None = None, nodes: int | None = None, leaf_penalty: float | None = None
    ) -> BinaryTree:
        """Return the best tree within limits, as `optimum`; TrainingError if its recomputed loss differs."""
        return self._found(self.optimum(depth=depth, nodes=nodes, leaf_penalty=leaf_penalty))[0]

    def _found(self, optimum: Optimum) -> tuple[BinaryTree, float]:
        """The tree of an optimum, and its loss from the definition."""
        if (known := self._trees.get(optimum)) is not None:
            return known
        _, found, within = self._best[budget(optimum.depth, optimum.nodes)]
        tree = BinaryTree.build(self._patterns.in_columns(found.tree(within)), self._patterns.names)
        loss = loss_of(self.task, tree, self._patterns.leaves(tree))
        # Where leaves fit almost perfectly, losses are exact up to rounding of what a single leaf loses.
        rounding = max(1e-8, 1e-12 * abs(self.optima[0, 0].loss))
        if not math.isclose(loss, optimum.loss, rel_tol=1e-8, abs_tol=rounding):
            raise TrainingError(
                f"the tree has the loss {loss!r}, but the search reports {optimum.loss!r}; please report this"
            )
        self._trees[optimum] = tree, loss
        return tree, loss

    def decisions(self, tree: BinaryTree | None = None) -> npt.NDArray[Any]:
        """Decisions in leaves of `tree()`, or another, (n_leaves, ...); ConfigError: the task has none."""
        task: Any = self.task
        if not hasattr(task, "decisions"):
            raise ConfigError(f"{type(task).__name__} has no `decisions`: its leaves hold none")
        tree = self.tree() if tree is None else tree
        found: npt.NDArray[Any] = task.decisions(self._patterns.leaves(tree), tree.n_leaves)
        return found

    def table(self) -> pd.DataFrame:
        """`optima` as a DataFrame: depth, nodes, loss, lower_bound."""
        return pd.DataFrame(list(self.optima.values()), columns=list(Optimum._fields))


def _slack(optima: Sequence[Optimum]) -> float:
    """Largest difference of losses due to rounding."""
    return 1e-12 * max(abs(o.loss) for o in optima)
