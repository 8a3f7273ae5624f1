"""Rows as packed bits: products of indicators by counting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from math import comb
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sstorch._types import IntArray
from sstorch.exact.moments import Moments, RowSums
from sstorch.threads import on_threads, torch_threads

Accumulate = Callable[[Iterator[Tensor]], Iterator[Tensor]]

# Doubles of one array of cells: several of them fit the second level cache.
CELLS_AT_ONCE = 1 << 15
# First features of triples that share a matrix product: fewer waste less, more need fewer products.
_FIRST_AT_ONCE = 12

# Rows by sets: up to so many, one matrix product of all is faster than many of parts.
_ROW_BY_ROW = 1 << 17
# From so many rows in a step on, moments and inclusion-exclusion are faster than their cells one by one.
FEW_ROWS = 4
# Rows for which it is held at once in which cells they lie.
_ROWS_AT_ONCE = 256


@lru_cache(maxsize=64)
def members(n: int, k: int) -> IntArray:
    """(k, C(n, k)), the k-sets of 0 .. n - 1 in colexicographic order, each in falling order.

    The sets below any feature come first: the first C(m, k) are those of 0 .. m - 1.
    """
    if k == 0:
        return np.zeros((0, 1), dtype=np.int64)
    smaller = members(n, k - 1)
    parts = [
        np.vstack([np.full(comb(top, k - 1), top), smaller[:, : comb(top, k - 1)]]) for top in range(k - 1, n)
    ]
    return np.concatenate(parts, axis=1) if parts else np.zeros((k, 0), dtype=np.int64)


@lru_cache(maxsize=16)
def _binomials(n: int, size: int) -> IntArray:
    """(n + 1, size + 1), C(x, k) up to sets of `size`: those of larger sets can exceed 64 bits."""
    return np.array([[comb(x, k) for k in range(size + 1)] for x in range(n + 1)], dtype=np.int64)


def _rank(sets: IntArray, n: int) -> IntArray:
    """Position of sets (k, ...) in falling order among those of the same size."""
    table, k = _binomials(n, len(sets)), len(sets)
    rank = np.zeros(sets.shape[1:], dtype=np.int64)
    for i, element in enumerate(sets):
        rank += table[element, k - i]
    return rank


def offset(n: int, k: int) -> int:
    """Number of sets smaller than k."""
    return sum(comb(n, j) for j in range(k))


@lru_cache(maxsize=32)
def subsets(n: int, k: int, device: torch.device) -> Tensor:
    """(2, ..., 2, C(n, k)) position of the subset of each k-set that has the elements with index 1.

    Positions count all sets of 0, 1, 2, ... elements.
    """
    sets, table = members(n, k), _binomials(n, k)
    index = np.empty((2,) * k + (sets.shape[1],), dtype=np.int64)
    # From the smallest element on: with one more element, chosen or not.
    ranks: dict[tuple[int, ...], IntArray] = {(): np.zeros(sets.shape[1], dtype=np.int64)}
    for element in sets[::-1]:
        ranks = {
            (chosen, *mask): rank + table[element, sum(mask) + 1] if chosen else rank
            for mask, rank in ranks.items()
            for chosen in (0, 1)
        }
    for mask, rank in ranks.items():
        np.add(rank, offset(n, sum(mask)), out=index[mask])
    return torch.from_numpy(index).to(device)


@lru_cache(maxsize=32)
def supersets(n: int, k: int, device: torch.device) -> Tensor:
    """(n - k + 1, C(n, k - 1)) for each smaller set, the k-sets it is split into.

    A position j C(n, k) + r represents the k-set of rank r without its j-th largest element.
    """
    sets = members(n, k)
    ranks = np.concatenate([_rank(np.delete(sets, j, axis=0), n) for j in range(k)])
    order = np.argsort(ranks, kind="stable")
    return torch.from_numpy(np.ascontiguousarray(order.reshape(-1, n - k + 1).T)).to(device)


class PackedCells:
    """Cells of all sets of up to `depth` features, for a task without steps."""

    def __init__(self, sums: RowSums, depth: int, n_threads: int) -> None:
        self._n, self._n_threads = len(sums.columns), n_threads
        # Of many features pairs alone would fill the memory.
        self._two = torch.from_numpy(members(self._n, min(depth, 2))).to(sums.values.device)
        if depth <= 2:
            with torch_threads(n_threads):  # one large product, which torch divides
                self._moments = self._pairs(sums, depth)
        elif len(sums.rows) * offset(self._n, depth + 1) <= _ROW_BY_ROW:
            self._moments = self._row_by_row(sums, depth)
        else:
            self._moments = self._by_first(sums) if depth == 3 else self._by_third(sums, depth)

    def cells(self, k: int, part: slice) -> Iterator[Tensor]:
        """Sets of k features: (C, s_1, ..., s_k, n_sets), in falling order of the features."""
        yield signed(self._moments, self._n, k, part)

    def _pairs(self, sums: RowSums, depth: int) -> Tensor:
        """Moments of up to 1 or 2 features."""
        rows = torch.cat([sums.rows.new_ones(len(sums.rows), 1), sums.rows], dim=1)
        table = sums.multiply(rows.T.contiguous(), sums.weighted(rows if depth > 1 else rows[:, :1]))
        if depth < 2:
            return table[..., 0]
        return torch.cat([table[..., 0], table[:, self._two[0] + 1, self._two[1] + 1]], dim=1)

    def _row_by_row(self, sums: RowSums, depth: int) -> Tensor:
        """Moments from what each row has of all sets."""
        products = [sums.values.new_ones(1, len(sums.rows))]
        for k in range(1, depth + 1):
            first, *others = torch.from_numpy(members(self._n, k)).to(sums.values.device)
            product = sums.columns.index_select(0, first)
            for feature in others:
                product.mul_(sums.columns.index_select(0, feature))
            products.append(product)
        return sums.values @ torch.cat(products).T

    def _products(self, columns: Tensor) -> Tensor:
        """(pairs, n_rows), products of the pairs of columns (F, n_rows), at most all features."""
        first, second = self._two[:, : comb(len(columns), 2)]
        return columns.index_select(0, first).mul_(columns.index_select(0, second))

    def _by_first(self, sums: RowSums) -> Tensor:
        """Moments of up to 3 features: some first features at a time, with the pairs below them."""
        n = self._n
        pairs = self._products(sums.columns)

        def below(start: int) -> list[Tensor]:
            stop = min(n, start + _FIRST_AT_ONCE)
            three = sums.multiply(pairs[: comb(stop - 1, 2)], sums.weighted(sums.rows[:, start:stop]))
            return [three[:, : comb(a, 2), a - start] for a in range(start, stop)]

        moments = [self._pairs(sums, 2)]
        moments += chain.from_iterable(on_threads(below, range(2, n, _FIRST_AT_ONCE), self._n_threads))
        return torch.cat(moments, dim=1)

    def _by_third(self, sums: RowSums, size: int) -> Tensor:
        """Moments of up to 4 or 5 features: for each third smallest, those above it with pairs below it."""
        n, device = self._n, sums.values.device
        smaller = self._by_first(sums) if size == 4 else self._by_third(sums, 4)
        moments = sums.values.new_empty(len(sums.values), offset(n, size + 1))
        moments[:, : smaller.shape[1]] = smaller

        def fill(third: int) -> None:
            rows = sums.columns[third].nonzero()[:, 0]
            literals = sums.columns.index_select(1, rows)
            pairs = self._products(literals[:third])
            above = literals[third + 1 :] if size == 4 else self._products(literals[third + 1 :])
            products = sums.multiply(pairs, sums.weighted(above.T.contiguous(), rows))
            sets = [*(members(n, size - 3)[:, : len(above)] + third + 1), np.full(len(above), third)]
            start = offset(n, size) + sum(_binomials(n, size)[x, size - i] for i, x in enumerate(sets))
            place = torch.from_numpy(start).to(device)[:, None] + torch.arange(len(pairs), device=device)
            moments.scatter_(1, place.view(1, -1).expand(len(moments), -1), products.mT.flatten(1))

        on_threads(fill, range(2, n - size + 3), self._n_threads)
        return moments


def ranges(size: int, step: int) -> Iterator[slice]:
    """0 .. size in parts of at most `step`."""
    for start in range(0, size, step):
        yield slice(start, min(size, start + step))


def signed(moments: Tensor, n: int, k: int, part: slice) -> Tensor:
    """Cells (C, 2, ..., 2, n_sets) of some k-sets from the moments (C, all sets) of their subsets."""
    index = subsets(n, k, moments.device)[..., part]
    # Faster than `index_select` along the last axis.
    cells = moments.gather(1, index.reshape(1, -1).expand(moments.shape[0], -1)).view(-1, *index.shape)
    for axis in range(1, k + 1):
        cells.select(axis, 0).sub_(cells.select(axis, 1))
    return cells


class FeaturePart(NamedTuple):
    """A range among all sets of `size` features in colexicographic order."""

    size: int
    sets: slice

    @property
    def cells(self) -> int:
        """Number of cells."""
        count: int = self.sets.stop - self.sets.start
        return count << self.size


def chunks(n: int, depth: int, most: int) -> Iterator[list[FeaturePart]]:
    """All sets of up to `depth` features, small sizes together; at most so many cells."""
    chunk: list[FeaturePart] = []
    cells = 0
    for size in range(depth + 1):
        for sets in ranges(comb(n, size), max(1, most >> size)):
            part = FeaturePart(size, sets)
            if chunk and cells + part.cells > most:
                yield chunk
                chunk, cells = [], 0
            chunk.append(part)
            cells += part.cells
    yield chunk


class IndicatorCells:
    """Cells of all sets of up to `depth` features, for each step of a task."""

    def __init__(self, moments: Moments, accumulate: Accumulate, depth: int, n_threads: int) -> None:
        self._accumulate, self._values = accumulate, moments.values
        self._steps = list(pairwise(moments.steps))
        self._many = {
            number: PackedCells(_row_sums(moments, begin, end), depth, n_threads)
            for number, (begin, end) in enumerate(self._steps)
            if end - begin >= FEW_ROWS
        }
        small = [step for number, step in enumerate(self._steps) if number not in self._many]
        self._ends = _ends([end - begin for begin, end in small])
        few = [torch.arange(*step) for step in small]
        rows = moments.literals[torch.cat(few).to(moments.values.device) if few else []][:, 1:-1]
        present = rows.to(torch.uint8)
        self._signs = torch.stack([1 - present, present], dim=1)  # (rows, 2, F)

    def cells(self, chunk: Sequence[FeaturePart]) -> Iterator[Tensor]:
        """(C, all cells) of each step: of each part signs in falling order of the features, then sets."""
        return self._accumulate(self._sums(chunk))

    def _sums(self, chunk: Sequence[FeaturePart]) -> Iterator[Tensor]:
        within, first, at, ends = None, 0, 0, iter(self._ends)
        for number, (begin, end) in enumerate(self._steps):
            many = self._many.get(number)
            if many is not None:
                cells = [next(many.cells(part.size, part.sets)).flatten(1) for part in chunk]
                yield torch.cat(cells, dim=1) if len(cells) > 1 else cells[0]
                continue
            if within is None or at + end - begin > first + len(within):
                first, last = at, next(ends)
                within = torch.cat([self._within(part, slice(first, last)) for part in chunk], dim=1)
            rows = within[at - first : at + end - begin - first].to(self._values.dtype)
            at += end - begin
            yield self._values[:, begin:end] @ rows

    def _within(self, part: FeaturePart, rows: slice) -> Tensor:
        """(rows, cells) uint8: which rows of small steps lie in which cell."""
        signs = self._signs[rows]
        shape = [len(signs), *(1,) * part.size, part.sets.stop - part.sets.start]
        out = signs.new_ones(shape)
        for axis, features in enumerate(members(signs.shape[2], part.size)[:, part.sets], start=1):
            shape[axis] = 2
            out = out & signs[:, :, torch.from_numpy(features)].view(shape)
            shape[axis] = 1
        return out.flatten(1)


def _row_sums(moments: Moments, begin: int, end: int) -> RowSums:
    return RowSums.of(moments.literals[begin:end, 1:-1], moments.values[:, begin:end], moments.unit)


def _ends(sizes: Sequence[int]) -> list[int]:
    """Where groups of whole steps of these sizes end, each of about `_ROWS_AT_ONCE` rows."""
    ends, begin, end = [], 0, 0
    for size in sizes:
        if end > begin and end + size - begin > _ROWS_AT_ONCE:
            ends.append(end)
            begin = end
        end += size
    return [*ends, end]
