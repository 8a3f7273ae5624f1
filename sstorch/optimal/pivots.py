"""Cells of tasks without steps: sums over rows by matrix products, each product of literals once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sstorch.optimal.cells import left_signs, one_right, two_right
from sstorch.optimal.products import RowSums

# Right-hand features are multiplied out this many at a time: fewer waste less, more need fewer products.
GRID = 8
# Rows of a matrix product at a time: its operands stay in the cache.
_ROWS = 8192


class PivotCells:
    """Cells of blocks of sets of features a > b > c > ..., by inclusion and exclusion from moments.

    The moments of all sets with the same middle feature, the pivot, are one matrix product over the rows in
    which it is 1: products of features above it times products of features below it. Pivots come in falling
    order, and what later ones need of the moments is kept.

    Args:
        sums: rows and their values.
        depth: size of the largest sets, 2 to 5.
    """

    def __init__(self, sums: RowSums, depth: int) -> None:
        self._sums, self._depth = sums, depth
        self._n, self._channels = len(sums.columns), len(sums.values)
        self._like = sums.values
        one = sums.columns.new_ones(1, sums.columns.shape[1])
        self._padded = torch.cat([one, sums.columns, one])
        self._pairs = self._pair_moments()
        self._kept: dict[int, Tensor] = {}
        self._quints: tuple[int, list[Tensor]] = (-1, [])
        if depth >= 4:
            # [a or none (last), none (first) or c, none or d]
            size = self._n + 1
            self._triples = self._like.new_zeros(self._channels, size, size, size)
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
        right = self._sums.weighted(self._padded[:-1].T)
        return self._sums.multiply(self._padded[1:], right)

    def _rows(self, pivot: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Literals between ones, (F + 2, n), and numbers (n,) of rows in which the pivot is 1, some at a time."""
        for index in self._padded[pivot + 1].nonzero()[:, 0].split(_ROWS):
            yield self._padded.index_select(1, index), index

    def _triple_moments(self, b: int) -> Tensor:
        """(C, A + 1, 1 + b) of rows in which b is 1."""
        found = self._like.new_zeros(self._channels, self._n - b, b + 1)
        for literals, rows in self._rows(b):
            found += self._sums.multiply(literals[b + 2 :], self._sums.weighted(literals[: b + 1].T, rows))
        return found

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
        n, right = self._n, pivot + 1
        sizes = [n - pivot]
        if self._depth == 5:
            sizes += [n - b for b in range(pivot + 1, n)]
        found = self._like.new_zeros(self._channels, sum(sizes), right, right)
        for literals, rows in self._rows(pivot):
            above = literals[pivot + 2 :]
            left = [above]
            if self._depth == 5:
                left += [above[i] * above[i + 1 :] for i in range(n - pivot - 1)]
            weighted = self._sums.weighted(torch.cat(left).T.contiguous(), rows)
            for start in range(0, right, GRID):
                stop = min(right, start + GRID)
                products = (literals[start:stop].unsqueeze(1) * literals[:stop]).flatten(0, 1)
                part = self._sums.multiply(products, weighted).transpose(1, 2)
                found[:, :, start:stop, :stop] += part.unflatten(2, (stop - start, stop))
        parts = found.split(sizes, dim=1)
        self._kept[pivot] = parts[0]
        self._triples[:, pivot, :right, :right] = parts[0][:, -1]
        self._quints = (pivot, list(parts[1:]))
