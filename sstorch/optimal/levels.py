"""Tables of the dynamic programme: the least cost below every set of literals, for every budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from sstorch.optimal.states import Budget, budgets, splits

INFINITY = float("inf")


class Grid:
    """Ranges of features c, and of the features d that stand beside each: all up to the largest c.

    Blocks of sets with c and d from these ranges hold all sets c > d, few of them twice, and are rectangles.
    The features d that are not below c make no other sets than there are: c itself splits nothing.

    Args:
        n_features: F.
        depth: D.
    """

    def __init__(self, n_features: int, depth: int) -> None:
        step = 4 if depth == 5 and n_features > 40 else 8
        self._all = [
            (slice(start, min(n_features, start + step)), slice(0, min(n_features, start + step)))
            for start in range(0, n_features, step)
        ]

    def __getitem__(self, number: int) -> tuple[slice, slice]:
        return self._all[number]

    def ranges(self) -> list[tuple[slice, slice]]:
        """All ranges, of c and of d."""
        return self._all

    def below(self, feature: int) -> list[int]:
        """Numbers of the ranges with a feature c below this one, of which there has to be a d below, too."""
        return [number for number, (c, _) in enumerate(self._all) if c.start < feature]

    def find(self, feature: int) -> tuple[int, int]:
        """Number of the range of c that holds a feature, and its place there."""
        number = feature // (self._all[0][0].stop)
        return number, feature - self._all[number][0].start


class Levels:
    """Least cost of subtrees, by the set of literals above them and by budget.

    A set of k features x1 > x2 > ... with a sign each has one entry per budget of depth up to D - k, that of
    the leaf itself excepted. `tables[k]` is (n_budgets, 2, ..., 2, F, ..., F), indexed by signs and features
    in falling order, for k = 1 and 2. Of sets of 3, `triples[i]` is (n_budgets, 2, 2, 2, F, n_c, n_d) for the
    last two features in a range of the grid; of sets of 4, `quads[x2][i]` is (n_budgets, 2, 2, 2, 2,
    F - x2 - 1, n_c, n_d).

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
        self.grid = Grid(n_features, depth)
        self.tables: dict[int, Tensor] = {}
        self.triples: list[Tensor] = []
        self.quads: list[list[Tensor]] = []
        self.packed: dict[int, dict[Budget, Tensor]] = {}
        self.paid: dict[int, Tensor] = {}

    def allocate(self, like: Tensor) -> None:
        """Tables of infinite cost, on the device of a tensor."""
        n = self.n_features

        def table(k: int, *shape: int) -> Tensor:
            return like.new_full((len(self.budgets(k)) - 1, *(2,) * k, *shape), INFINITY)

        self.tables = {k: table(k, *(n,) * k) for k in range(min(max(self.depth, 1), 3))}
        sizes = [(c.stop - c.start, d.stop) for c, d in self.grid.ranges()]
        if self.depth >= 4:
            self.triples = [table(3, n, *size) for size in sizes]
        if self.depth == 5:
            self.quads = [[table(4, n - x - 1, *sizes[i]) for i in self.grid.below(x)] for x in range(n)]

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
        if k == self.depth:
            leaf = values[Budget(0, 0)]
            pair = leaf.select(sign, 0) + leaf.select(sign, 1)
            return [pair if dim is None else pair.amin(dim)]
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
        for i, value in enumerate(found):
            view = views[i]
            torch.minimum(view, value, out=view)
