"""The front that a search found, and the trees of its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.optimal.fronts.base import FloatArray, FrontTask, IntArray
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.fronts.trace import below, in_columns, locate
from sstorch.optimal.patterns import BoolArray, Patterns
from sstorch.optimal.states import Budget, budget, splits
from sstorch.optimal.tree import BinaryTree

Score = Callable[[IntArray], FloatArray]
# Feature of the root, number of the pair of budgets, point of the left subtree; None for small trees.
Origin = tuple[int, int, Tensor] | None


@dataclass(frozen=True)
class FrontCounters:
    """What a search did.

    Attributes:
        n_rows: N.
        n_patterns: distinct rows of the binary matrix.
        n_features: distinct columns that split anything.
        seconds: time of the search, without preparation.
    """

    n_rows: int
    n_patterns: int
    n_features: int
    seconds: float


@dataclass(frozen=True)
class DecidedTree:
    """A tree and the decisions of its leaves.

    Attributes:
        tree: the tests.
        decision: (L,), the decision of each leaf, 0 .. K - 1; for classes, the class.
        totals: (2,), the two totals on the rows of the search, integers.
        score: of the totals.
    """

    tree: BinaryTree
    decision: IntArray
    totals: IntArray
    score: float

    def predict(self, features: npt.ArrayLike) -> IntArray:
        """The decision for each row of a binary matrix (n, p), shape (n,).

        Raises:
            DataError: another number of columns than the tree was grown on.
        """
        return self.decision[self.tree.apply(features)]


class FrontSolution:
    """Trees that no other tree beats, from one search.

    Attributes:
        task: the objective.
        totals: (n, 2) int64, the totals of the front's trees by increasing first total.
        certified: whether no tree within the budget beats one of the front; False only where a time limit cut
            the search short.
        lower_bound: with the order ``"balance"`` at depth 3, the least first total (integer units) that a
            tree within the limit can have; equal to that of the best tree if certified.
        counters: what the search did.
    """

    def __init__(
        self,
        *,
        features: BoolArray,
        names: Sequence[str],
        patterns: Patterns,
        problem: FrontProblem,
        target: Budget,
        points: Tensor,
        origins: Sequence[Origin],
        certified: bool,
        lower_bound: float,
        counters: FrontCounters,
    ) -> None:
        if not points.shape[1]:
            raise DataError("no tree meets min_leaf and the limit of the task; loosen one of them")
        self._features, self._names, self._patterns = features, tuple(names), patterns
        self._problem, self._target = problem, target
        self._points, self._origins = points, origins
        self.task: FrontTask = problem.task
        self.totals: IntArray = points.T.cpu().numpy()
        self.certified, self.counters = certified, counters
        self.lower_bound = float(self.totals[:, 0].min()) if certified else lower_bound

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def values(self) -> FloatArray:
        """(n, 2), the totals in the user's units."""
        found: FloatArray = self.totals * np.array(self.task.unit) + np.array(self.task.offset)
        return found

    @property
    def certificate(self) -> str:
        """``"optimal"``, or that the time limit cut the search short."""
        return "optimal" if self.certified else "not proved: the time limit cut the search short"

    def table(self, score: Score | None = None) -> pd.DataFrame:
        """The front: both totals in the user's units, and the score."""
        table = pd.DataFrame(self.values, columns=list(self.task.names))
        for column, unit in zip(table.columns, self.task.unit, strict=True):
            if unit == 1.0:
                table[column] = table[column].astype(np.int64)
        return table.assign(score=self._scores(score))

    def best(self, score: Score | None = None) -> int:
        """Number of the point with the largest score, the first of equal ones.

        Args:
            score: from totals (n, 2) to (n,), larger is better; None is that of the task. It must not fall
                when a total improves: only then is the best point of the front the best of all trees.

        Raises:
            ConfigError: the score is not a number for some point.
        """
        return int(np.argmax(self._scores(score)))

    def tree(self, number: int | None = None, *, score: Score | None = None) -> DecidedTree:
        """The tree of a point of the front.

        Args:
            number: of the point; None is the best one.
            score: as in `best`.

        Raises:
            ConfigError: there is no such point.
            TrainingError: the tree's totals, recomputed from the rows, are not those of the search.
        """
        number = self.best(score) if number is None else number
        if not 0 <= number < len(self):
            raise ConfigError(f"number={number}: the front has the points 0 to {len(self) - 1}")
        point, origin, problem = self._points[:, number], self._origins[number], self._problem
        if origin is None:
            found = locate(problem, budget(min(2, self._target.depth), self._target.nodes), point)
        else:
            feature, split, left = origin
            found = below(problem, feature, splits(self._target)[split], left, point)
        nested, decisions = in_columns(found, self._patterns)
        tree, decision = BinaryTree.build(nested, self._names), np.array(decisions, dtype=np.int64)
        totals = self.task.totals(tree.apply(self._features), decision)
        if not np.array_equal(totals, self.totals[number]):
            raise TrainingError(
                f"the tree has the totals {totals.tolist()}, but the search reports "
                f"{self.totals[number].tolist()}; please report this"
            )
        return DecidedTree(tree, decision, totals, float(self._scores(score)[number]))

    def _scores(self, score: Score | None) -> FloatArray:
        scores = np.asarray((self.task.score if score is None else score)(self.totals), dtype=np.float64)
        if scores.shape != (len(self),) or np.isnan(scores).any():
            raise ConfigError(
                f"score: expected one number for each of the {len(self)} points, got {scores.shape}, "
                f"{int(np.isnan(scores).sum())} not a number"
            )
        return scores
