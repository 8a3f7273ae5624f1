"""Tables of the dynamic programme: the least cost below every set of literals, for every budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import comb

import torch
from torch import Tensor

from sstorch.optimal.states import Budget, budgets, splits

INFINITY = float("inf")


class Levels:
    """Least cost of subtrees, by the set of literals above them and by budget.

    A set of k features x1 > x2 > ... with a sign each has one entry per budget of depth up to D - k, that of
    the leaf itself excepted. `tables[k]` is (n_budgets, 2, ..., 2, F, ..., F), indexed by signs and features
    in falling order, for k = 1 and 2. Of sets of 3, `triples` is (n_budgets, 2, 2, 2, C(F, 2), F): signs in
    falling order, the pair x2 > x3 in colexicographic order, x1; of sets of 4, `quads[x2]` is (n_budgets,
    2, 2, 2, 2, C(x2, 2), F - x2 - 1): the pair x3 > x4, x1.

    Where all sets of a size are in one array, `packed[k]` has the costs of all budgets, the leaf's included,
    (2, ..., 2, C(F, k)), and there are no other tables. There `paid[k]` has what rows pay for tests, as
    `Payments.at` gives it; it is empty where tests are free.

    Args:
        n_features: F.
        depth: D.
        max_nodes: budgets with more nodes are not kept.
    """

    def __init__(self, n_features: int, depth: int, max_nodes: int) -> None:
        self.depth, self.max_nodes, self.n_features = depth, max_nodes, n_features
        self.tables: dict[int, Tensor] = {}
        self.triples = torch.empty(0)
        self.quads: list[Tensor] = []
        self.packed: dict[int, dict[Budget, Tensor]] = {}
        self.paid: dict[int, Tensor] = {}

    def allocate(self, like: Tensor) -> None:
        """Tables of infinite cost, on the device of a tensor."""
        n = self.n_features

        def table(k: int, *shape: int) -> Tensor:
            return like.new_full((len(self.budgets(k)) - 1, *(2,) * k, *shape), INFINITY)

        self.tables = {k: table(k, *(n,) * k) for k in range(min(max(self.depth, 1), 3))}
        if self.depth >= 4:
            self.triples = table(3, comb(n, 2), n)
        if self.depth == 5:
            self.quads = [table(4, comb(x, 2), n - x - 1) for x in range(n)]

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

    def split(self, k: int, values: dict[Budget, Tensor], sign: int) -> list[Tensor]:
        """Cost of the sets without one of their literals, split by it, for every budget but the leaf's.

        Args:
            k: size of the sets in `values`.
            values: as `values` gives them.
            sign: axis of the literal's sign.
        """
        if k == self.depth:
            leaf = values[Budget(0, 0)]
            return [leaf.select(sign, 0) + leaf.select(sign, 1)]
        without = {state: value.select(sign, 0) for state, value in values.items()}
        with_it = {state: value.select(sign, 1) for state, value in values.items()}
        found = []
        for target in self.budgets(k - 1)[1:]:
            sums = [without[left] + with_it[right] for left, right in splits(target)]
            found.append(reduce(torch.minimum, sums))
        return found

    @staticmethod
    def absorb(views: Tensor, found: Sequence[Tensor]) -> None:
        """Keep the smaller of what a part of a table holds, (n_budgets, ...), and what was found."""
        for i, value in enumerate(found):
            view = views[i]
            torch.minimum(view, value, out=view)
