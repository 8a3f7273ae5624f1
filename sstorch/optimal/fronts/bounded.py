"""Least cost under a limit on a signed total, at depth 3: roots in the order of their Lagrangian bounds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sstorch.optimal.fronts.balance import Subtrees, cheapest_pair
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.problem import OutOfTimeError, check_time
from sstorch.optimal.states import Budget, splits

_DUAL_STEPS = 10


class Root(NamedTuple):
    """A test at the root, and how the other nodes are shared.

    Attributes:
        feature: the test.
        split: number of the pair of budgets in `splits`.
        left: the point (2,) of the subtree where the literal is 0.
        point: that of the tree.
    """

    feature: int
    split: int
    left: Tensor
    point: Tensor


class Found(NamedTuple):
    """What a search found.

    Attributes:
        root: of the best tree, or None where none is better than what was known.
        lower_bound: no tree costs less; meant for searches that were cut short.
        complete: whether the search came to its end.
    """

    root: Root | None
    lower_bound: float
    complete: bool


def cheapest(
    problem: FrontProblem, target: Budget, known: Tensor | None, memory: int, deadline: float
) -> Found:
    """The cheapest tree within a budget of depth 3 whose balance is within the task's limit.

    For any rate r, min (cost + r balance) over the trees below a root, less |r| limit, is at most the cost of
    a tree within the limit (weak duality). The rate that makes the bound of all trees largest is sought; then
    roots are taken by their bounds, and of their subtrees those are summed that the bound of the other
    subtree leaves a chance to be cheaper than the best known tree.

    Args:
        problem: rows and task.
        target: the budget.
        known: point (2,) of a tree within the limit, or None.
        memory: bytes that the subtrees of all roots may take; beyond that they are made anew when needed.
        deadline: a time of `time.perf_counter`.
    """
    roots = _Roots(problem, target, memory)
    limit = problem.task.limit
    best: Root | None = None
    least = float("inf") if known is None else float(known[0])
    bounds = torch.full((len(roots),), -float("inf"), dtype=torch.float64)
    done = torch.zeros(len(roots), dtype=torch.bool)
    try:
        rate = _best_rate(roots, limit, known, bounds, deadline)
        lows, _ = roots.lows(rate, deadline)
        for number in torch.argsort(bounds).tolist():
            left, right = roots[number]
            slack = 1e-14 * sum(a + abs(rate) * b for a, b in (left.scale, right.scale)) + 1e-6
            if float(bounds[number]) <= least - 1.0 + slack:
                check_time(deadline)
                most = least - 1.0 + abs(rate) * limit + slack
                for first in left.within(rate, most - float(lows[number, 1])):
                    for second in right.within(rate, most - float(lows[number, 0])):
                        pair = cheapest_pair(first, second, limit)
                        if pair is not None and pair[0] < least:
                            least = float(pair[0])
                            best = Root(*roots.place(number), pair[1], pair[1] + pair[2])
            done[number] = True
    except OutOfTimeError:
        open_bound = float(bounds[~done].min()) if not done.all() else least
        return Found(best, min(least, open_bound), False)
    return Found(best, least, True)


class _Roots:
    """The two groups of subtrees below every root, for every way to share the nodes."""

    def __init__(self, problem: FrontProblem, target: Budget, memory: int) -> None:
        self._problem, self._halves = problem, splits(target)
        k, n = problem.leaf.shape[1], problem.n_features
        self._keep = 2 * n * (32 * n * (k * k * n + 2 * k)) <= memory
        self._kept: dict[int, tuple[Subtrees, Subtrees]] = {}
        self._last: tuple[int, FrontProblem, FrontProblem] | None = None

    def __len__(self) -> int:
        return self._problem.n_features * len(self._halves)

    def place(self, number: int) -> tuple[int, int]:
        """Feature and number of the pair of budgets."""
        return divmod(number, len(self._halves))

    def __getitem__(self, number: int) -> tuple[Subtrees, Subtrees]:
        if number in self._kept:
            return self._kept[number]
        feature, split = self.place(number)
        if self._last is None or self._last[0] != feature:
            self._last = feature, *self._problem.split(feature)
        _, absent, present = self._last
        first, second = self._halves[split]
        made = Subtrees(absent, first), Subtrees(present, second)
        if self._keep:
            self._kept[number] = made
        return made

    def lows(self, rate: float, deadline: float) -> tuple[Tensor, Tensor]:
        """Least cost + rate * balance of each root's two subtrees (n, 2), and their points (n, 2, 2)."""
        lows = torch.empty((len(self), 2), dtype=torch.float64)
        points = torch.empty((len(self), 2, 2), dtype=torch.int64)
        for number in range(len(self)):
            check_time(deadline)
            for side, subtrees in enumerate(self[number]):
                least, point = subtrees.least(rate)
                lows[number, side], points[number, side] = least, point
        return lows, points


def _best_rate(roots: _Roots, limit: int, known: Tensor | None, bounds: Tensor, deadline: float) -> float:
    """A rate that makes the least bound large; `bounds` is raised to the largest bound of each root met.

    The dual is the lower envelope of one line for each tree, value cost + rate (balance - limit) on the side
    of the sign of the cheapest tree's balance. Its top is sought between a rising and a falling line, at
    their crossing.
    """

    def evaluate(rate: float) -> tuple[float, Tensor]:
        lows, points = roots.lows(rate, deadline)
        values = lows.sum(1) - abs(rate) * limit
        torch.maximum(bounds, values, out=bounds)
        which = int(values.argmin())
        return float(values[which]), points[which].sum(0)

    top, point = evaluate(0.0)
    sign = 1.0 if int(point[1]) > 0 else -1.0
    if abs(int(point[1])) <= limit or known is None or top == float("inf"):
        return 0.0
    rising = float(point[0]), sign * float(point[1]) - limit
    falling = float(known[0]), sign * float(known[1]) - limit
    best = 0.0
    for _ in range(_DUAL_STEPS):
        if not (falling[1] < 0.0 < rising[1] and falling[0] > rising[0]):
            break
        rate = (falling[0] - rising[0]) / (rising[1] - falling[1])
        crossing = rising[0] + rate * rising[1]
        value, point = evaluate(sign * rate)
        if value > top:
            top, best = value, sign * rate
        slope = sign * float(point[1]) - limit
        if value >= crossing - 1e-9 * abs(crossing) - 1e-6 or slope == 0.0:
            break
        if slope > 0.0:
            rising = float(point[0]), slope
        else:
            falling = float(point[0]), slope
    return best
