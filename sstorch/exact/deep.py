"""Searches by tables of all sets of features, and branch and bound over the upper levels of deeper trees.

No tree costs less than its distinct rows as leaves of their own: a proved bound. The cost of rows by a
reference model is a tighter, assumed one: what it alone skips keeps its proved bound.

References:
    Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS (reference-model bounds,
    Section 3 and Appendix J).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from math import comb
from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import Form, Prices, costs_of
from sstorch.exact.compiled.curves import Curves, Leavers
from sstorch.exact.compiled.search import CompiledProblem, estimate
from sstorch.exact.rows import Patterns, quantise
from sstorch.exact.solution import INFINITY, MAX_EXACT_DEPTH, NEVER, Budget, Deadline, Found, Work, budget
from sstorch.exact.survival_tasks import IntegratedBrier
from sstorch.exact.task import Task
from sstorch.exact.tree import BinaryTree, Nested

# Depth of the small trees by which splits are put in order.
_SCOUT_DEPTH = 3
# Distinct rows whose curves are computed at once.
_ROWS_AT_ONCE = 512

# Searches by depth, nodes and deadline, and the depths to be searched one after the other.
Plan = tuple[Callable[[int, int, Deadline], Found], tuple[int, ...]]

Path = tuple[tuple[int, int], ...]


class _Part(NamedTuple):
    """Rows of a path of features with a sign each."""

    path: Path
    problem: CompiledProblem
    rows: IntArray  # (n,), numbers of these rows among all
    proved: float  # no tree on them costs less
    assumed: float  # assumed least cost of a tree on them, at least `proved`


class _Best(NamedTuple):
    """The best tree found on some rows: its cost, leaves' penalties included, and a bound of all of them."""

    cost: float
    bound: float
    tree: Callable[[], Nested]


@dataclass
class Deep:
    """A search for the tree of least cost of a depth, of however many nodes."""

    problem: CompiledProblem
    penalty: float  # cost of a leaf
    floor: FloatArray  # (U,), no tree costs less for these rows
    guess: FloatArray | None  # (U,), assumed least costs of rows
    base: int  # the depth of trees that are searched at once
    n_threads: int
    _known: dict[tuple[bytes, int], tuple[float, _Best]] = field(default_factory=dict)

    def search(self, depth: int, deadline: Deadline = NEVER) -> Found:
        """The best tree of a depth, and a bound of all of them."""
        everything = self._part((), self.problem, np.arange(len(self.floor)))
        # Depth by depth, so that a time limit ends with no worse a tree than that of a smaller depth.
        best = self._table(everything, min(depth, self.base), deadline)
        for deeper in range(self.base + 1, depth + 1):
            found = self._best(everything, deeper, best.cost, deadline)
            better = found.cost < best.cost - self._slack
            best = found if better else best._replace(bound=min(found.bound, best.cost))
        # No less than the best tree, but for rounding: proved.
        bound = best.cost if best.bound >= best.cost - 8.0 * self._slack else best.bound
        nested, penalty = best.tree(), self.penalty
        tree = BinaryTree.build(nested, ())

        def lower(target: Budget) -> float:
            return bound - penalty * (target.nodes + 1) if target.depth <= depth else -INFINITY

        costs = {budget(tree.depth, tree.n_nodes): best.cost - penalty * tree.n_leaves}
        return Found(costs, lambda target: nested, bound >= best.cost, bound, lower)

    @cached_property
    def _slack(self) -> float:
        """Costs that differ by less are equal."""
        leaf = self.problem.search(0, 0).costs[Budget(0, 0)]
        return 1e-12 * (abs(leaf) + float(np.abs(self.floor).sum()) + 8.0 * self.penalty)

    def _part(self, path: Path, problem: CompiledProblem, rows: IntArray) -> _Part:
        proved = float(self.floor[rows].sum()) + self.penalty
        assumed = proved if self.guess is None else max(proved, float(self.guess[rows].sum()) + self.penalty)
        return _Part(path, problem, rows, proved, assumed)

    def _half(self, part: _Part, feature: int, sign: int) -> _Part:
        here = part.rows[part.problem.literals[:, feature] == sign]
        return self._part((*part.path, (feature, sign)), part.problem.where(feature, bool(sign)), here)

    def _table(self, part: _Part, depth: int, deadline: Deadline) -> _Best:
        """The best tree of a depth that is searched at once."""
        found = part.problem.search(depth, 2**depth - 1, deadline, self.n_threads)
        cost, target = found.best(self.penalty)
        if not found.complete:
            return _Best(cost, part.proved, partial(found.tree, target))
        return _Best(cost, cost, partial(self._again, part.path, depth))

    def _again(self, path: Path, depth: int) -> Nested:
        """The best tree of a depth below a path, found once more: there is no room for all searches."""
        part = self._part((), self.problem, np.arange(len(self.floor)))
        for feature, sign in path:
            part = self._half(part, feature, sign)
        found = part.problem.search(depth, 2**depth - 1, n_threads=self.n_threads)
        return found.tree(found.best(self.penalty)[1])

    def _best(self, part: _Part, depth: int, cutoff: float, deadline: Deadline) -> _Best:
        """The best tree on some rows, unless bounds say that it costs at least a cutoff."""
        inside = np.zeros(len(self.floor), dtype=np.bool_)
        inside[part.rows] = True
        key = np.packbits(inside).tobytes(), depth
        known = self._known.get(key)
        if known is not None and (known[0] >= cutoff or known[1].cost < known[0]):
            return known[1]
        if depth <= self.base:
            cutoff, best = INFINITY, self._table(part, depth, deadline)
        else:
            best = self._split(part, depth, cutoff, deadline)
        self._known[key] = cutoff, best
        return best

    def _split(self, part: _Part, depth: int, cutoff: float, deadline: Deadline) -> _Best:
        """The same for a tree deeper than tables; small trees below each split put splits in order."""
        below = min(_SCOUT_DEPTH, self.base, depth - 1)
        best, slack = self._table(part, 0, NEVER), self._slack
        # Two leaves at least, or none of the trees is of use.
        if part.assumed + self.penalty >= min(best.cost, cutoff) - slack:
            return best._replace(bound=min(best.cost, part.proved + self.penalty))
        bound, splits = best.cost, list[tuple[float, int, tuple[_Part, _Part], tuple[_Best, _Best]]]()
        for feature in range(part.problem.literals.shape[1]):
            halves = self._half(part, feature, 0), self._half(part, feature, 1)
            if min(len(half.rows) for half in halves) == 0:
                continue
            if deadline.passed:
                bound = min(bound, halves[0].proved + halves[1].proved)
                continue
            first, second = (self._best(half, below, INFINITY, NEVER) for half in halves)
            splits.append((first.cost + second.cost, feature, halves, (first, second)))
        splits.sort(key=lambda split: split[:2])
        for cost, feature, halves, small in splits:
            if cost < best.cost - slack:
                best = self._joined(feature, small)
            # First the side of which least is known.
            order = sorted((0, 1), key=lambda side: halves[side].assumed - small[side].cost)
            sides = list(small)
            for side in order if depth - 1 > below else ():
                other = halves[1 - side].assumed if side == order[0] else sides[1 - side].cost
                most = min(best.cost, cutoff) - slack - other
                if halves[side].assumed >= most or deadline.passed:
                    sides[side] = sides[side]._replace(bound=halves[side].proved)
                    continue
                found = self._best(halves[side], depth - 1, most, deadline)
                sides[side] = min(found, small[side], key=lambda one: one.cost)._replace(bound=found.bound)
            bound = min(bound, sides[0].bound + sides[1].bound)
            if sides[0].cost + sides[1].cost < best.cost - slack:
                best = self._joined(feature, sides)
        return best._replace(bound=bound)

    def _joined(self, feature: int, sides: tuple[_Best, _Best] | list[_Best]) -> _Best:
        left, right = sides
        cost, bound = left.cost + right.cost, left.bound + right.bound
        return _Best(cost, bound, lambda: (feature, left.tree(), right.tree()))


@dataclass(frozen=True)
class Rows:
    """Rows, a task, and the rows, and events, that a leaf needs, `least`."""

    patterns: Patterns
    task: Task
    least: Sequence[int]
    memory: int
    n_threads: int

    def plan(self, depth: int, max_nodes: int, penalty: float, guess: FloatArray | None) -> Plan:
        """Tables, and where these have no room `Deep`. ConfigError: no memory, or a search of years."""
        is_deep = depth > MAX_EXACT_DEPTH or (guess is not None and depth > 3)
        base = min(depth - is_deep, MAX_EXACT_DEPTH)
        problem = self.problem(base)
        work, threads = self._room(problem, base, max_nodes)
        while is_deep and work.bytes > self.memory and base > 2:
            base -= 1
            work, threads = self._room(problem, base, max_nodes)
        # Without bounds each set of the features above is searched.
        n = self.patterns.n_features
        above = comb(n, depth - base) << (depth - base)
        Work(work.cells * above, work.bytes, work.seconds * above).check(n, depth, self.memory)
        if not is_deep:
            return partial(problem.search, n_threads=threads), (depth,)
        deep = Deep(problem, penalty, self.floor(), guess, base, threads)

        def run(d: int, nodes: int, deadline: Deadline) -> Found:
            return deep.search(d, deadline) if d == depth else problem.search(d, nodes, deadline, threads)

        return run, (*range(1, base), depth)

    def problem(self, depth: int) -> CompiledProblem:
        """The problem of searches up to a depth; ConfigError: no memory, or a cost numba cannot compile."""
        patterns, task = self.patterns, self.task
        n_patterns, n_features = patterns.literals.shape
        form, curves = Form.of(task), Curves.none(n_features)
        if isinstance(task, IntegratedBrier):
            leavers, n_blocks = Leavers.of(patterns, task), len(task.blocks.alive)
            too_large = 8 * n_patterns * 3 * n_blocks > self.memory
            if too_large or leavers.followed(n_blocks, depth, n_patterns, n_features):
                form, curves = form._replace(followed=True), Curves.of(leavers, patterns, task.blocks)
                values = leavers.at_risk(n_patterns)
            else:
                values = leavers.sums(n_blocks, 0, n_patterns)
        else:
            values = patterns.sums(task.row_values())
        values, _ = quantise(values)
        if self.least:
            needs = np.ones((len(self.least), task.n_rows))
            if len(needs) > 1:
                needs[1] = task.event  # type: ignore[attr-defined]
            values = np.concatenate([values, patterns.sums(needs)])
            form = form._replace(least=np.array(self.least, dtype=np.float64))
        prices = Prices.of(task, patterns.columns)
        return CompiledProblem(patterns.literals, patterns.chain, values, form, curves, prices)

    def floor(self) -> FloatArray:
        """(U,), no tree costs less: every distinct row a leaf of its own, with the cheapest curve."""
        task, form = self.task, Form.of(self.task, floor=True)
        if not isinstance(task, IntegratedBrier):
            return costs_of(form, self.patterns.sums(task.row_values()))
        leavers, n_blocks = Leavers.of(self.patterns, task), len(task.blocks.alive)
        ends = [*range(0, len(self.patterns.literals), _ROWS_AT_ONCE), len(self.patterns.literals)]
        return np.concatenate([costs_of(form, leavers.sums(n_blocks, *part)) for part in pairwise(ends)])

    def _room(self, problem: CompiledProblem, depth: int, max_nodes: int) -> tuple[Work, int]:
        """Memory of the tables of a search, and number of threads that fit."""
        n_patterns, n_features = problem.literals.shape
        size = n_patterns, len(problem.curves.literals), n_features, len(problem.values), depth, max_nodes
        for n_threads in range(self.n_threads, 0, -1):
            work = estimate(*size, n_threads)
            if work.bytes <= self.memory:
                break
        return work, n_threads
