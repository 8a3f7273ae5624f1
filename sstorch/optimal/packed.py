"""All sets of k features in one array: index tables for moments, cells and the sets one feature smaller."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import comb

import numpy as np
import torch
from torch import Tensor

from sstorch.optimal.patterns import IntArray
from sstorch.optimal.products import MANY_ROWS, RowSums

# Doubles of one array of cells: several of them fit the second level cache.
CELLS_AT_ONCE = 1 << 15
# First features of triples that share a matrix product: fewer waste less, more need fewer products.
_FIRST_AT_ONCE = 12


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
def _binomials(n: int) -> IntArray:
    return np.array([[comb(x, k) for k in range(7)] for x in range(n + 1)], dtype=np.int64)


def _rank(sets: IntArray, n: int) -> IntArray:
    """Position of sets (k, ...) in falling order among those of the same size."""
    table, k = _binomials(n), len(sets)
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
    sets, table = members(n, k), _binomials(n)
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

    A position j C(n, k) + r stands for the k-set of rank r without its j-th largest element.
    """
    sets = members(n, k)
    ranks = np.concatenate([_rank(np.delete(sets, j, axis=0), n) for j in range(k)])
    order = np.argsort(ranks, kind="stable")
    return torch.from_numpy(np.ascontiguousarray(order.reshape(-1, n - k + 1).T)).to(device)


@lru_cache(maxsize=32)
def _product_places(n: int, k: int, n_left: int, n_right: int, device: torch.device) -> Tensor:
    """(all sets up to k elements,) where the table of right by left products has each set's moment."""
    width = offset(n, n_left + 1)
    places = []
    for size in range(k + 1):
        sets = members(n, size)
        on_right = min(size, n_right)
        left, right = sets[: size - on_right], sets[size - on_right :]
        row = offset(n, on_right) + _rank(right, n)
        places.append(row * width + offset(n, size - on_right) + _rank(left, n))
    return torch.from_numpy(np.concatenate(places)).to(device)


def _products(columns: Tensor, k: int) -> Tensor:
    """(all sets up to k elements, n_rows) products of columns (F, n_rows)."""
    n, n_rows = columns.shape
    blocks = [columns.new_ones(1, n_rows)]
    for size in range(1, k + 1):
        smaller = blocks[-1]
        out = columns.new_empty(comb(n, size), n_rows)
        for top in range(size - 1, n):
            start, count = comb(top, size), comb(top, size - 1)
            torch.mul(columns[top], smaller[:count], out=out[start : start + count])
        blocks.append(out)
    return torch.cat(blocks)


class PackedCells:
    """Cells of all sets of up to `depth` features, for a task without steps.

    Args:
        sums: rows and their values.
        depth: D.
    """

    def __init__(self, sums: RowSums, depth: int) -> None:
        self._n = len(sums.columns)
        if depth == 3 and len(sums.rows) >= MANY_ROWS:
            self._moments = self._by_first(sums)
            return
        if depth == 4 and len(sums.rows) >= MANY_ROWS:
            self._moments = self._by_second(sums)
            return
        n_left = depth // 2
        n_right = depth - n_left
        right = _products(sums.columns, n_right)
        left = right[: offset(self._n, n_left + 1)].T
        table = sums.multiply(right, sums.weighted(left)).flatten(1)
        places = _product_places(self._n, depth, n_left, n_right, table.device)
        self._moments = _gather(table, places)

    def cells(self, k: int, part: slice) -> Iterator[Tensor]:
        """Sets of k features: (C, s_1, ..., s_k, n_sets), in falling order of the features."""
        yield signed(self._moments, self._n, k, part)

    def _by_first(self, sums: RowSums) -> Tensor:
        """Moments of up to 3 features: some first features at a time, with the pairs below them."""
        n = self._n
        pairs = _products(sums.columns, 2)
        small = torch.cat([sums.rows.new_ones(len(sums.rows), 1), sums.rows], dim=1)
        two = sums.multiply(pairs[: n + 1], sums.weighted(small)).flatten(1)
        found = [_gather(two, _product_places(n, 2, 1, 1, two.device))]
        for start in range(2, n, _FIRST_AT_ONCE):
            stop = min(n, start + _FIRST_AT_ONCE)
            below = pairs[n + 1 : n + 1 + comb(stop - 1, 2)]
            three = sums.multiply(below, sums.weighted(sums.rows[:, start:stop]))
            found += [three[:, : comb(a, 2), a - start] for a in range(start, stop)]
        return torch.cat(found, dim=1)

    def _by_second(self, sums: RowSums) -> Tensor:
        """Moments of up to 4 features: for each second feature, those above it with the pairs below it."""
        n = self._n
        moments = sums.values.new_empty(len(sums.values), offset(n, 5))
        smaller = self._by_first(sums)
        moments[:, : smaller.shape[1]] = smaller
        for b in range(2, n - 1):
            rows = sums.columns[b].nonzero()[:, 0]
            literals = sums.columns.index_select(1, rows)
            pairs = _products(literals[:b], 2)[b + 1 :]
            found = sums.multiply(pairs, sums.weighted(literals[b + 1 :].T.contiguous(), rows))
            for a in range(b + 1, n):
                start = offset(n, 4) + comb(a, 4) + comb(b, 3)
                moments[:, start : start + comb(b, 2)] = found[..., a - b - 1]
        return moments


def _gather(table: Tensor, index: Tensor) -> Tensor:
    """(C, n) the columns of a table; faster than `index_select` along the last axis."""
    return table.gather(1, index.expand(len(table), -1))


def ranges(size: int, step: int) -> Iterator[slice]:
    """0 .. size in parts of at most `step`."""
    for start in range(0, size, step):
        yield slice(start, min(size, start + step))


def signed(moments: Tensor, n: int, k: int, part: slice) -> Tensor:
    """Cells (C, 2, ..., 2, n_sets) of some k-sets from the moments (C, all sets) of their subsets."""
    index = subsets(n, k, moments.device)[..., part]
    cells = _gather(moments, index.flatten()).view(len(moments), *index.shape)
    for axis in range(1, k + 1):
        cells.select(axis, 0).sub_(cells.select(axis, 1))
    return cells
