"""Optima of all budgets from one search, and their trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt
import pandas as pd

from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import Budget, Found, Work, budget, budgets, total_branch_cost
from sstorch.exact.task import Task, has_decisions
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, TrainingError


class Optimum(NamedTuple):
    """Best tree found within given limits.

    Attributes:
        depth: maximum number of tests on a path.
        nodes: maximum number of branch nodes (leaves minus one).
        loss: its training loss, without penalty.
        lower_bound: lower bound on the loss of all trees within the limits; equal to `loss` if optimality is
            proved.
    """

    depth: int
    nodes: int
    loss: float
    lower_bound: float

    @property
    def certified(self) -> bool:
        """True if it is proved that no tree within the limits has a smaller loss."""
        return self.lower_bound >= self.loss


class PathStep(NamedTuple):
    """A tree on the path over leaf penalties.

    Attributes:
        leaf_penalty: the smallest penalty per leaf for which this tree is optimal; it is optimal up to the
            penalty of the previous step (the first step is the smallest tree, optimal for all larger
            penalties).
        nodes: number of branch nodes.
        loss: its training loss, without penalty.
    """

    leaf_penalty: float
    nodes: int
    loss: float


@dataclass(frozen=True)
class Counters:
    """Size and time of a search.

    Attributes:
        n_rows: N.
        n_patterns: distinct rows of the binary matrix.
        n_features: distinct columns that are not constant.
        cells: number of evaluated leaves.
        seconds: time of the search, without preparation.
        estimate: estimate before the search.
    """

    n_rows: int
    n_patterns: int
    n_features: int
    cells: int
    seconds: float
    estimate: Work


class Solution:
    """Optimal trees for all depths and numbers of nodes up to given limits, from one search.

    `tree()`, `loss`, `certificate` and `gap` are for the `max_depth`, `max_nodes` and `leaf_penalty` passed
    to `solve`; `tree(depth=, nodes=, leaf_penalty=)`, `optima` and `path` are for all others.

    Attributes:
        task: the objective.
        max_depth: as given to `solve`.
        max_nodes: as given, or the maximum at this depth.
        leaf_penalty: as given.
        optima: an `Optimum` for every (depth, nodes), in increasing order.
        counters: size and time of the search.
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
        counters: Counters,
    ) -> None:
        self.task, self._patterns = task, patterns
        self.max_depth, self.max_nodes, self.leaf_penalty = max_depth, max_nodes, leaf_penalty
        self.counters = counters
        self._trees: dict[Optimum, tuple[BinaryTree, float]] = {}
        # Of each budget the least cost, the search that found it, and within which budget.
        self._best: dict[Budget, tuple[float, Found, Budget]] = {}
        for found in searches:
            for state, value in found.costs.items():
                if state not in self._best or value < self._best[state][0]:
                    self._best[state] = (value, found, state)
        if len(searches) > 1 or len(self._best) < len(budgets(max_depth, max_nodes)):
            self._spread()
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

    def _spread(self) -> None:
        """A budget that no search has finished can do what smaller ones can."""
        for state in budgets(self.max_depth, self.max_nodes):
            for other, known in list(self._best.items()):
                fits = other.depth <= state.depth and other.nodes <= state.nodes
                if fits and (state not in self._best or known[0] < self._best[state][0]):
                    self._best[state] = known

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
        fitting = self._fitting(self.max_depth, self.max_nodes)
        bounds = [
            o.lower_bound + self.leaf_penalty * (o.nodes + 1)
            if o.certified
            else o.lower_bound + self.leaf_penalty
            for o in fitting
        ]
        chosen = self.optimum()
        gap = chosen.loss + self.leaf_penalty * (chosen.nodes + 1) - max(min(bounds), self._objective_bound)
        gap = gap if gap > _slack(fitting) else 0.0
        # Error of the losses of the search, beyond the last digits.
        rounding = float(getattr(self.task, "rounding", 0.0))
        if not rounding:
            return gap
        # No loss is below zero, so that of the tree, which has last digits, too, bounds what rounding hides.
        hidden = min(2 * rounding, self.loss)
        return gap + hidden if hidden > max(1e-9 * self.loss, 2.0**-52 * rounding) else gap

    @property
    def certificate(self) -> str:
        """``"optimal"``, or for an interrupted search a bound on the possible improvement."""
        return "optimal" if self.gap == 0.0 else f"at most {self.gap:.6g} above the optimum"

    def optimum(
        self, *, depth: int | None = None, nodes: int | None = None, leaf_penalty: float | None = None
    ) -> Optimum:
        """Return loss and bounds of the best tree within limits.

        Args:
            depth: maximum number of tests on a path; None for `max_depth`.
            nodes: maximum number of branch nodes; None for `max_nodes`.
            leaf_penalty: penalty per leaf; None for the one passed to `solve`. The limit on nodes still
                applies. With a penalty the tree has the smallest number of nodes for its loss.

        Raises:
            ConfigError: limits larger than those of the search, or negative limits or penalty.
        """
        depth = self.max_depth if depth is None else depth
        nodes = self.max_nodes if nodes is None else nodes
        penalty = self.leaf_penalty if leaf_penalty is None else leaf_penalty
        if not 0 <= depth <= self.max_depth:
            raise ConfigError(f"depth={depth}: this search covers 0 to {self.max_depth}")
        if nodes < 0 or (nodes > self.max_nodes and depth == self.max_depth):
            raise ConfigError(f"nodes={nodes}: this search covers 0 to {self.max_nodes}")
        if not penalty >= 0.0:
            raise ConfigError(f"leaf_penalty must be a number of at least 0, got {penalty}")
        fitting = self._fitting(depth, nodes)
        # Equal up to rounding: the smaller tree.
        most = min(o.loss + penalty * (o.nodes + 1) for o in fitting) + _slack(fitting)
        return next(o for o in fitting if o.loss + penalty * (o.nodes + 1) <= most)

    def _fitting(self, depth: int, nodes: int) -> list[Optimum]:
        return [o for o in self.optima.values() if o.depth <= depth and o.nodes <= nodes]

    def tree(
        self, *, depth: int | None = None, nodes: int | None = None, leaf_penalty: float | None = None
    ) -> BinaryTree:
        """Return the best tree within limits; arguments and errors as in `optimum`.

        Raises:
            TrainingError: the loss of the tree, recomputed from the rows, differs from the loss of the
                search.
        """
        return self._found(self.optimum(depth=depth, nodes=nodes, leaf_penalty=leaf_penalty))[0]

    def _found(self, optimum: Optimum) -> tuple[BinaryTree, float]:
        """The tree of an optimum, and its loss from the definition."""
        known = self._trees.get(optimum)
        if known is not None:
            return known
        _, found, within = self._best[budget(optimum.depth, optimum.nodes)]
        nested = found.tree(within)
        tree = BinaryTree.build(self._patterns.in_columns(nested), self._patterns.names)
        leaf = self._patterns.leaves(tree)
        loss = self.task.loss(leaf) + total_branch_cost(self.task, tree, leaf)
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
        if not has_decisions(self.task):
            raise ConfigError(f"{type(self.task).__name__} has no `decisions`: its leaves hold none")
        tree = self.tree() if tree is None else tree
        return self.task.decisions(self._patterns.leaves(tree), tree.n_leaves)

    def path(self) -> list[PathStep]:
        """All trees that are optimal for some penalty per leaf, from smallest to largest."""
        losses: dict[int, float] = {}
        for o in self.optima.values():
            losses[o.nodes] = min(o.loss, losses.get(o.nodes, math.inf))
        hull = [0]
        steps = [PathStep(0.0, 0, losses[0])]
        while True:
            at = hull[-1]
            rates = {n: (losses[at] - losses[n]) / (n - at) for n in losses if n > at}
            slack = 1e-12 * abs(losses[0])
            rates = {n: rate for n, rate in rates.items() if rate * (n - at) > slack}
            if not rates:
                return steps
            best = max(rates.values())
            after = max(n for n, rate in rates.items() if rate == best)
            steps[-1] = steps[-1]._replace(leaf_penalty=best)
            steps.append(PathStep(0.0, after, losses[after]))
            hull.append(after)

    def table(self) -> pd.DataFrame:
        """`optima` as a DataFrame: depth, nodes, loss, lower_bound."""
        return pd.DataFrame(list(self.optima.values()), columns=list(Optimum._fields))


def _slack(optima: Sequence[Optimum]) -> float:
    """Largest difference of losses due to rounding."""
    return 1e-12 * max(abs(o.loss) for o in optima)
