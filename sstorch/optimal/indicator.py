"""Cells of all sets of a size, for tasks with many steps: from which rows lie in which cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from sstorch.optimal.moments import Moments
from sstorch.optimal.packed import PackedCells
from sstorch.optimal.products import RowSums
from sstorch.optimal.stream import Accumulate

# From so many rows in a step on, moments and inclusion-exclusion are faster than their cells one by one.
FEW_ROWS = 4
# Rows for which it is held at once in which cells they lie.
_ROWS_AT_ONCE = 256


class Part(NamedTuple):
    """Neighbouring sets of k features in colexicographic order.

    Attributes:
        size: k.
        sets: their range among all sets of this size.
        runs: the features above the two smallest, and how many pairs there are below these.
    """

    size: int
    sets: slice
    runs: tuple[tuple[tuple[int, ...], int], ...]

    @property
    def cells(self) -> int:
        """Number of cells."""
        count: int = self.sets.stop - self.sets.start
        return count << self.size


def parts(n: int, size: int, most: int) -> Iterator[Part]:
    """All sets of a size, at most as many at once, but at least those with the same features on top."""
    if size == 0:
        yield Part(0, slice(0, 1), ())
        return
    begin = count = 0
    runs: list[tuple[tuple[int, ...], int]] = []
    for top in _tops(n, size):
        pairs = comb(top[-1] if top else n, min(size, 2))
        if runs and count + pairs > most:
            yield Part(size, slice(begin, begin + count), tuple(runs))
            begin, count, runs = begin + count, 0, []
        runs.append((top, pairs))
        count += pairs
    yield Part(size, slice(begin, begin + count), tuple(runs))


def chunks(n: int, depth: int, most: int) -> Iterator[list[Part]]:
    """All sets of up to `depth` features, small sizes together; at most so many cells, as far as can be."""
    chunk: list[Part] = []
    cells = 0
    for size in range(depth + 1):
        for part in parts(n, size, max(1, most >> size)):
            more = part.cells
            if chunk and cells + more > most:
                yield chunk
                chunk, cells = [], 0
            chunk.append(part)
            cells += more
    yield chunk


def _tops(n: int, size: int) -> list[tuple[int, ...]]:
    """All but the two smallest features, falling, of sets of a size in colexicographic order."""
    return sorted(top[::-1] for top in combinations(range(2, n), max(size - 2, 0)))


class IndicatorCells:
    """Cells of all sets of up to `depth` features, for each step of a task.

    Args:
        moments: the task's entries.
        accumulate: the task's.
        depth: D.
    """

    def __init__(self, moments: Moments, accumulate: Accumulate, depth: int) -> None:
        self._accumulate, self._values = accumulate, moments.values
        self._steps = list(pairwise(moments.steps))
        self._many = {
            number: PackedCells(_row_sums(moments, begin, end), depth)
            for number, (begin, end) in enumerate(self._steps)
            if end - begin >= FEW_ROWS
        }
        small = [step for number, step in enumerate(self._steps) if number not in self._many]
        self._ends = _ends([end - begin for begin, end in small])
        few = [torch.arange(*step) for step in small]
        rows = moments.literals[torch.cat(few).to(moments.values.device) if few else []][:, 1:-1]
        present = rows.to(torch.uint8)
        # (rows, 2, F), and (rows, 2, 2, C(F, 2)): the signs of all single features and pairs.
        self._single = torch.stack([1 - present, present], dim=1)
        n = present.shape[1]
        self._pairs = present.new_empty(len(present), 2, 2, comb(n, 2))
        for x in range(1, n):
            below = self._single[:, None, :, :x]
            run = slice(comb(x, 2), comb(x + 1, 2))
            torch.bitwise_and(self._single[:, :, None, x : x + 1], below, out=self._pairs[..., run])

    def cells(self, chunk: Sequence[Part]) -> Iterator[Tensor]:
        """(C, all cells) of each step: of each part signs in falling order of the features, then sets."""
        return self._accumulate(self._sums(chunk))

    def _sums(self, chunk: Sequence[Part]) -> Iterator[Tensor]:
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

    def _within(self, part: Part, rows: slice) -> Tensor:
        """(rows, cells) uint8: which rows of small steps lie in which cell."""
        single, pair = self._single[rows], self._pairs[rows]
        count, n_rows = part.sets.stop - part.sets.start, len(single)
        if part.size <= 2:
            every = (single.new_ones(n_rows, 1), single, pair)[part.size]
            return every.flatten(1)
        out = single.new_empty(n_rows, *(2,) * part.size, count)
        place = 0
        for top, pairs in part.runs:
            above = single[:, :, top[0]]
            for feature in top[1:]:
                above = above.unsqueeze(-1) & single[:, :, feature].view(n_rows, *(1,) * (above.ndim - 1), 2)
            torch.bitwise_and(
                above.view(*above.shape, 1, 1, 1),
                pair[..., :pairs].view(n_rows, *(1,) * len(top), 2, 2, pairs),
                out=out[..., place : place + pairs],
            )
            place += pairs
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
