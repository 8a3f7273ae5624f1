"""Optima of all budgets from one search, and their trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
import pandas as pd

from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import Budget, Found, budget, budgets
from sstorch.exact.task import Task, loss_of
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, TrainingError


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
        task, max_depth, leaf_penalty: as given to `solve`.
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

        Args:
            depth: maximum number of tests on a path; None for `max_depth`.
            nodes: maximum number of branch nodes; None for `max_nodes`.
            leaf_penalty: penalty per leaf; None for the one passed to `solve`. The tree has the smallest
                number of nodes for its loss.

        Raises:
            ConfigError: limits larger than those of the search, or negative limits or penalty.
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
        """Return the best tree within limits; arguments and errors as in `optimum`.

        Raises:
            TrainingError: the loss, recomputed from the rows, differs from that of the search.
        """
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
        """Decisions in the leaves of `tree()`, or of another tree of the search, (n_leaves, ...).

        Raises:
            ConfigError: the task has no `decisions`.
        """
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
