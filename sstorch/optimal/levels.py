"""Tables of the dynamic programme: the least cost below every set of literals, for every budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from sstorch.optimal.states import Budget, budgets, splits

INFINITY = float("inf")


class Levels:
    """Least cost of subtrees, by the set of literals above them and by budget.

    A set of k features x1 > x2 > ... with a sign each has one entry per budget of depth up to D - k, that of
    the leaf itself excepted. `tables[k]` is (n_budgets, 2, ..., 2, F, ..., F), indexed by signs and features
    in falling order, for k = 1, 2, 3; for k = 4 it is one tensor (n_budgets, 2, 2, 2, 2, F - x2 - 1, x2, x2)
    for each x2, since the dense form has 24 times as many entries as there are sets.

    Where all sets of a size are in one array, `packed[k]` has the costs of all budgets, the leaf's included,
    (2, ..., 2, C(F, k)), and there are no other tables.

    Args:
        n_features: F.
        depth: D.
        max_nodes: budgets with more nodes are not kept.
    """

    def __init__(self, n_features: int, depth: int, max_nodes: int) -> None:
        self.depth, self.max_nodes, self.n_features = depth, max_nodes, n_features
        self.tables: dict[int, Tensor] = {}
        self.by_second: list[Tensor] = []
        self.packed: dict[int, dict[Budget, Tensor]] = {}

    def allocate(self, like: Tensor) -> None:
        """Tables of infinite cost, on the device of a tensor."""
        depth, n_features = self.depth, self.n_features
        for k in range(min(max(depth, 1), 4)):
            shape = (len(self.budgets(k)) - 1,) + (2,) * k + (n_features,) * k
            self.tables[k] = like.new_full(shape, INFINITY)
        if depth == 5:
            states = len(self.budgets(4)) - 1
            self.by_second = [
                like.new_full((states, 2, 2, 2, 2, n_features - x - 1, x, x), INFINITY)
                for x in range(n_features)
            ]

    def budgets(self, k: int) -> tuple[Budget, ...]:
        """Budgets below a set of k literals, (0, 0) first."""
        return budgets(self.depth - k, self.max_nodes)

    def values(self, k: int, leaf: Tensor, table: Tensor) -> dict[Budget, Tensor]:
        """Least cost of every budget: that of the leaf, and the table's, larger budgets never worse."""
        found = {Budget(0, 0): leaf}
        for state, value in zip(self.budgets(k)[1:], table, strict=True):
            smaller = [s for s in found if s.depth <= state.depth and s.nodes <= state.nodes]
            best = max(smaller, key=lambda s: (s.nodes, s.depth))
            found[state] = torch.minimum(value, found[best])
        return found

    def split(self, k: int, values: dict[Budget, Tensor], sign: int, dim: int | None) -> list[Tensor]:
        """Least cost of the sets without one of their literals, split by it, for every budget but the leaf's.

        Args:
            k: size of the sets in `values`.
            values: as `values` gives them.
            sign: axis of the literal's sign.
            dim: axis of the literal's feature, counted after that of the sign is gone, or None where all sets
                of the block share it.
        """
        without = {state: value.select(sign, 0) for state, value in values.items()}
        with_it = {state: value.select(sign, 1) for state, value in values.items()}
        found = []
        for target in self.budgets(k - 1)[1:]:
            sums = [without[left] + with_it[right] for left, right in splits(target)]
            least = reduce(torch.minimum, sums)
            found.append(least if dim is None else least.amin(dim))
        return found

    @staticmethod
    def absorb(views: Tensor, found: Sequence[Tensor]) -> None:
        """Keep the smaller of what a part of a table holds, (n_budgets, ...), and what was found."""
        for view, value in zip(views, found, strict=True):
            torch.minimum(view, value, out=view)
