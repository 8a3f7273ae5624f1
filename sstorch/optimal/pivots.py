"""Cells of tasks without steps: sums over rows by matrix products, each product of literals once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sstorch.optimal.cells import left_signs, one_right, two_right
from sstorch.optimal.moments import Moments

# Right-hand features are multiplied out this many at a time: fewer waste less, more need fewer products.
GRID = 8
# Rows of a matrix product at a time: its operands stay in the cache.
_ROWS = 2048


class PivotCells:
    """Cells of blocks of sets of features a > b > c > ..., by inclusion and exclusion from moments.

    The moments of all sets with the same middle feature, the pivot, are one matrix product over the rows in
    which it is 1: products of features above it times products of features below it. Pivots come in falling
    order, and what later ones need of the moments is kept.

    Args:
        moments: entries of a task with one step.
        depth: size of the largest sets, 2 to 5.
    """

    def __init__(self, moments: Moments, depth: int) -> None:
        self._x, self._values = moments.literals, moments.values
        self._depth, self._n = depth, moments.n_features
        self._channels = len(self._values)
        self._pairs = self._pair_moments()
        self._kept: dict[int, Tensor] = {}
        self._quints: tuple[int, list[Tensor]] = (-1, [])
        if depth >= 4:
            # [a or none (last), none (first) or c, none or d]
            size = self._n + 1
            self._triples = self._x.new_zeros(self._channels, size, size, size)
            self._triples[:, self._n, 1:] = self._pairs[:, : self._n]
            self._triples[:, self._n, 0] = self._pairs[:, self._n]
            self._multiply(self._n - 1)

    def pairs(self) -> Iterator[Tensor]:
        """All pairs in both orders: (C, s_a, s_c, F, F)."""
        yield one_right(left_signs([self._pairs]))

    def triples(self, b: int) -> Iterator[Tensor]:
        """Sets a > b > c: (C, s_a, s_b, s_c, A, b)."""
        free = self._pairs[:, b + 1 :, : b + 1]
        asked = self._triple_moments(b) if self._depth == 3 else self._triples[:, b + 1 :, b + 1, : b + 1]
        yield one_right(left_signs([free, asked]))

    def quads(self, b: int, c: slice) -> Iterator[Tensor]:
        """Sets a > b > c > d for some c: (C, s_a, s_b, s_c, s_d, A, n_c, c.stop)."""
        asked = self._pivot(b)
        yield self._block([self._triples[:, b + 1 :], asked], c)

    def quints(self, c: int, b: int, d: slice) -> Iterator[Tensor]:
        """Sets a > b > c > d > e for some d: (C, s_a, s_b, s_c, s_d, s_e, A, n_d, d.stop)."""
        free = self._triples[:, b + 1 :]
        yield self._block(
            [free, self._pivot(c)[:, b - c :], self._pivot(b), self._quint_moments(c)[b - c - 1]], d
        )

    def _block(self, parts: list[Tensor], first: slice) -> Tensor:
        """Cells from moments (C, A + 1, 1 + r, 1 + r), the last two axes known where the first is larger."""
        stop = first.stop + 1
        singles = left_signs([part[..., :stop, 0] for part in parts])
        rows = slice(first.start + 1, stop)
        return two_right(
            [part[..., rows, 1:stop] for part in parts],
            singles[..., rows].unsqueeze(-1),
            singles[..., 1:].unsqueeze(-2),
            singles[..., :1].unsqueeze(-1),
        )

    def _pair_moments(self) -> Tensor:
        """(C, F + 1, F + 1): a or none (last) with none (first) or c."""
        n = self._n
        sums = self._x.new_zeros(self._channels, n + 1, n + 1)
        for x, values in zip(self._x.split(_ROWS), self._values.split(_ROWS, dim=1), strict=True):
            for channel, value in enumerate(values):
                sums[channel].addmm_((x[:, 1:] * value[:, None]).T, x[:, : n + 1])
        return sums

    def _rows(self, pivot: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Literals (F + 2, n) and values (C, n) of rows in which the pivot is 1, some at a time."""
        index = (self._x[:, pivot + 1] > 0.0).nonzero()[:, 0]
        for part in index.split(_ROWS):
            yield self._x.index_select(0, part), self._values.index_select(1, part)

    def _triple_moments(self, b: int) -> Tensor:
        """(C, A + 1, 1 + b) of rows in which b is 1."""
        n_left = self._n - b
        sums = self._x.new_zeros(self._channels * n_left, b + 1)
        for x, values in self._rows(b):
            left = (values.unsqueeze(1) * x[:, b + 2 :].T).flatten(0, 1)
            sums.addmm_(left, x[:, : b + 1])
        return sums.view(self._channels, n_left, b + 1)

    def _pivot(self, b: int) -> Tensor:
        """(C, A + 1, 1 + b, 1 + b) of rows in which b is 1."""
        if b not in self._kept:
            if self._depth == 4:
                self._kept.clear()
            self._multiply(b)
        return self._kept[b]

    def _quint_moments(self, c: int) -> list[Tensor]:
        """For each b > c, (C, A + 1, 1 + c, 1 + c) of rows in which b and c are 1."""
        if self._quints[0] != c:
            self._multiply(c)
        return self._quints[1]

    def _multiply(self, pivot: int) -> None:
        """Moments of all sets with this middle feature."""
        n, channels, right = self._n, self._channels, pivot + 1
        sizes = [n - pivot]
        if self._depth == 5:
            sizes += [n - b for b in range(pivot + 1, n)]
        sums = self._x.new_zeros(channels * sum(sizes), right, right)
        for x, values in self._rows(pivot):
            literals = x.T.contiguous()
            above = literals[pivot + 2 :]
            left = [values.unsqueeze(1) * above]
            if self._depth == 5:
                left += [left[0][:, i : i + 1] * above[i + 1 :] for i in range(n - pivot - 1)]
            rows = torch.cat(left, dim=1).flatten(0, 1)
            for start in range(0, right, GRID):
                stop = min(right, start + GRID)
                products = (literals[start:stop].unsqueeze(1) * literals[:stop]).flatten(0, 1)
                sums[:, start:stop, :stop] += (rows @ products.T).view(-1, stop - start, stop)
        parts = sums.view(channels, -1, right, right).split(sizes, dim=1)
        self._kept[pivot] = parts[0]
        self._triples[:, pivot, :right, :right] = parts[0][:, -1]
        self._quints = (pivot, list(parts[1:]))
