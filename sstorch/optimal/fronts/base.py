"""The protocol of an objective with two totals, and what it means that one tree is better than another."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Order = Literal["pareto", "balance"]

# Both parts of a point that no tree reaches; sums of eight of them still fit 64 bits.
UNREACHABLE = 2**58
# Absolute totals are below 2**55, so that sums with an unreachable point stay above this.
REACHED = 2**57


class FrontTask(Protocol):
    """An objective that is a function of two totals over leaves, both integers.

    A leaf has one or more candidate solutions: a decision, such as a class, and a point, the two amounts that
    the leaf adds to the totals under that decision. A point is a function of sums over the leaf's rows. The
    points of two subtrees are added; of the trees below a node only those stay that another does not beat:

    * ``"pareto"``: both totals are costs; (a, b) is beaten by points with neither cost larger.
    * ``"balance"``: the first total is a cost, the second is signed and has to end within ± `limit`; (a, b)
      is beaten by points with the same b and no larger a. Before the end nothing else can be said, since what
      is missing on one side can be made up for on the other.

    Addition keeps both orders, so what is beaten below a node is beaten at the root (Theorem 4.6 of the
    reference), and any score that never falls when a total improves is read off the front of whole trees.

    Attributes:
        n_rows: N.
        order: which of the two.
        linear: whether a leaf's point under a decision is the sum of its rows' points, so that a test with
            the same decision on both sides is as good as none.
        limit: with ``"balance"``, the largest absolute second total; otherwise not read.
        names: of the totals, in the user's units.
        unit: what 1 is in each total, in the user's units.
        offset: what the totals of every tree contain besides, in the user's units.

    References:
        van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS 36.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def order(self) -> Order: ...  # noqa: D102
    @property
    def linear(self) -> bool: ...  # noqa: D102
    @property
    def limit(self) -> int: ...  # noqa: D102
    @property
    def names(self) -> tuple[str, str]: ...  # noqa: D102
    @property
    def unit(self) -> tuple[float, float]: ...  # noqa: D102
    @property
    def offset(self) -> tuple[float, float]: ...  # noqa: D102

    def channels(self) -> IntArray:
        """(C, N), what each row adds to the sums of its leaf; sums of absolute values below 2^53."""
        ...

    def points(self, sums: Tensor) -> Tensor:
        """Candidate points (2, K, ...) of leaves from their sums (C, ...), all int64, for K decisions."""
        ...

    def totals(self, leaf: IntArray, decision: IntArray) -> IntArray:
        """The totals (2,) of a tree from its definition, row by row.

        Args:
            leaf: (N,), the leaf of each row.
            decision: (L,), the decision 0 .. K - 1 of each leaf.
        """
        ...

    def score(self, totals: IntArray) -> FloatArray:
        """(n,), how good totals (n, 2) are: larger is better, and never falls when a total improves.

        With ``"balance"`` to improve is: a smaller first total, a second one nearer to 0.
        """
        ...


def beats(order: Order, first: Tensor, second: Tensor) -> Tensor:
    """Whether points (2, ...) leave no reason to keep others, (...) bool, below the root; see `FrontTask`."""
    if order == "pareto":
        return (first <= second).all(0)
    return (first[0] <= second[0]) & (first[1] == second[1])
