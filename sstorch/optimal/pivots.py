"""Cells of tasks without steps: sums over rows by matrix products, each product of literals once."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

import torch
from torch import Tensor

from sstorch.optimal.cells import fixed_signs, left_signs, one_right, two_right
from sstorch.optimal.levels import Grid
from sstorch.optimal.products import RowSums

# Rows of a matrix product at a time.
_ROWS = 8192


class PivotCells:
    """Cells of blocks of sets of features a > b > c > ..., by inclusion and exclusion from moments.

    The moments of all sets with the same middle feature, the pivot, are one matrix product over the rows in
    which it is 1: products of features above it times products of features below it. Pivots come in falling
    order, and what later ones need of the moments is kept. The last two features of sets of 4 or 5 are in
    the ranges of a grid, so that moments, cells and tables of a block are each one piece of memory.

    Args:
        sums: rows and their values.
        depth: size of the largest sets, 2 to 5.
        grid: ranges of features.
    """

    def __init__(self, sums: RowSums, depth: int, grid: Grid) -> None:
        self._sums, self._depth, self._grid = sums, depth, grid
        self._n, self._channels = len(sums.columns), len(sums.values)
        one = sums.columns.new_ones(1, sums.columns.shape[1])
        self._padded = torch.cat([one, sums.columns, one])
        # (C, F + 1, F + 1): a or none (last), none (first) or c
        self._pairs = sums.multiply(self._padded[1:], sums.weighted(self._padded[:-1].T))
        self._pairs = self._pairs.contiguous()
        self._singles: dict[int, Tensor] = {}
        self._kept: dict[int, list[Tensor]] = {}
        self._signed: tuple[tuple[int, ...], Tensor] = ((), self._pairs)
        self._quints: tuple[int, list[Tensor], list[list[Tensor]]] = (-1, [], [])
        self._triples: list[Tensor] = []
        if depth >= 4:
            # Of each range of c, (C, F + 1, n_c, n_d): a or none (last), c, d.
            for c, d in grid.ranges():
                moments = self._pairs.new_zeros(self._channels, self._n + 1, c.stop - c.start, d.stop)
                moments[:, self._n] = self._pairs[:, c, 1 : d.stop + 1]
                self._triples.append(moments)
            self._multiply(self._n - 1)

    def pairs(self) -> Iterator[Tensor]:
        """All pairs in both orders: (C, s_a, s_c, F, F)."""
        yield one_right(left_signs([self._pairs]))

    def triples(self, b: int) -> Iterator[Tensor]:
        """Sets a > b > c: (C, s_a, s_b, s_c, A, b)."""
        asked = self._singles[b] if b in self._singles else self._triple_moments(b)
        yield one_right(left_signs([self._pairs[:, b + 1 :, : b + 1], asked[..., : b + 1]]))

    def quads(self, b: int, number: int) -> Iterator[Tensor]:
        """Sets a > b > c > d, c and d in a range of the grid: (C, s_a, s_b, s_c, s_d, A, n_c, n_d)."""
        if b not in self._kept:
            self._multiply(b)
        if self._signed[0] != (b,):
            self._signed = ((b,), left_signs([self._pairs[:, b + 1 :], self._singles[b]]))
        parts = [self._triples[number][:, b + 1 :], self._kept[b][number]]
        yield self._block(parts, self._signed[1], number)

    def quints(self, c: int, b: int, number: int) -> Iterator[Tensor]:
        """Sets a > b > c > d > e, likewise for d and e: (C, s_a, ..., s_e, A, n_d, n_e)."""
        if b not in self._kept:
            self._multiply(b)
        if self._quints[0] != c:
            self._multiply(c)
        _, singles, ranges = self._quints
        above = slice(b - c, None)
        if self._signed[0] != (c,):
            self._signed = ((c,), self._signed_pairs(c, singles))
        ends = [comb(self._n - x, 2) for x in (c + 1, b, b + 1)]
        left = slice(ends[0] - ends[1], ends[0] - ends[2])
        yield self._block(
            [
                self._triples[number][:, b + 1 :],
                self._kept[c][number][:, above],
                self._kept[b][number],
                ranges[number][b - c - 1],
            ],
            self._signed[1][..., left, :],
            number,
        )

    def _signed_pairs(self, c: int, both: list[Tensor]) -> Tensor:
        """Cells of {a, b, c} and at most one feature more, for all a > b: (C, s_a, s_b, s_c, pairs, 1 + F).

        Args:
            c: the pivot.
            both: for each b, (C, A + 1, 1 + F) of rows in which b and c are 1.
        """
        n, asked = self._n, self._singles[c]
        b, a = torch.triu_indices(n - c - 1, n - c - 1, 1, device=asked.device)
        with_a = [
            self._pairs[:, a + c + 1],
            asked[:, a],
            torch.cat([self._singles[x][:, :-1] for x in range(c + 1, n - 1)], dim=1),
            torch.cat([part[:, :-1] for part in both[:-1]], dim=1),
        ]
        without = [
            self._pairs[:, n:].expand(-1, len(b), -1),
            asked[:, -1:].expand(-1, len(b), -1),
            self._pairs[:, b + c + 1],
            asked[:, b],
        ]
        out = asked.new_empty(self._channels, 2, 2, 2, len(b), n + 1)
        fixed_signs(with_a, out[:, 1])
        fixed_signs(without, out[:, 0])
        out[:, 0].sub_(out[:, 1])
        return out

    def _block(self, parts: list[Tensor], singles: Tensor, number: int) -> Tensor:
        """Cells from moments (C, A + 1, n_c, n_d) and signed singles (C, s ..., A, 1 + F)."""
        first, second = self._grid[number]
        return two_right(
            parts,
            singles[..., first.start + 1 : first.stop + 1].unsqueeze(-1),
            singles[..., 1 : second.stop + 1].unsqueeze(-2),
            singles[..., :1].unsqueeze(-1),
        )

    def _rows(self, pivot: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Literals between ones, (F + 2, n), and numbers (n,) of some rows in which the pivot is 1."""
        for index in self._padded[pivot + 1].nonzero()[:, 0].split(_ROWS):
            yield self._padded.index_select(1, index), index

    def _triple_moments(self, b: int) -> Tensor:
        """(C, A + 1, 1 + b) of rows in which b is 1."""
        found = self._pairs.new_zeros(self._channels, self._n - b, b + 1)
        for literals, rows in self._rows(b):
            found += self._sums.multiply(literals[b + 2 :], self._sums.weighted(literals[: b + 1].T, rows))
        return found

    def _multiply(self, pivot: int) -> None:
        """Moments of all sets with this middle feature."""
        n = self._n
        sizes = [n - pivot]
        if self._depth == 5:
            sizes += [n - b for b in range(pivot + 1, n)]
        else:
            self._kept.clear()
        ranges = self._grid.below(pivot)
        singles = self._pairs.new_zeros(self._channels, sum(sizes), n + 1)
        found = [
            self._pairs.new_zeros(self._channels, sum(sizes), c.stop - c.start, d.stop)
            for c, d in map(self._grid.__getitem__, ranges)
        ]
        for literals, rows in self._rows(pivot):
            above = literals[pivot + 2 :]
            left = [above]
            if self._depth == 5:
                left += [above[i] * above[i + 1 :] for i in range(n - pivot - 1)]
            weighted = self._sums.weighted(torch.cat(left).T.contiguous(), rows)
            singles += self._sums.multiply(literals[:-1], weighted).transpose(1, 2)
            for number, moments in zip(ranges, found, strict=True):
                c, d = self._grid[number]
                products = literals[c.start + 1 : c.stop + 1].unsqueeze(1) * literals[1 : d.stop + 1]
                part = self._sums.multiply(products.flatten(0, 1), weighted).transpose(1, 2)
                moments += part.unflatten(2, (-1, d.stop))
        by_left = singles.split(sizes, dim=1)
        self._singles[pivot] = by_left[0]
        split = [moments.split(sizes, dim=1) for moments in found]
        self._kept[pivot] = [parts[0] for parts in split]
        for number, parts in zip(ranges, split, strict=True):
            self._triples[number][:, pivot] = parts[0][:, -1]
        self._quints = (pivot, list(by_left[1:]), [list(parts[1:]) for parts in split])
