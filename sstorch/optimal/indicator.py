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

# With fewer rows in a step, their cells are counted one by one; else moments and inclusion-exclusion are faster.
FEW_ROWS = 12


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
        return (self.sets.stop - self.sets.start) << self.size


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
    """All but the two smallest features of sets of a size, in falling order, sets in colexicographic order."""
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
            begin: PackedCells(
                RowSums.of(moments.literals[begin:end, 1:-1], moments.values[:, begin:end], moments.unit), depth
            )
            for begin, end in self._steps
            if end - begin >= FEW_ROWS
        }
        few = [torch.arange(b, e) for b, e in self._steps if b not in self._many]
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
        """(C, all cells) of each step: of each part signs (2, ..., 2) in falling order of the features, sets."""
        return self._accumulate(self._sums(chunk))

    def _sums(self, chunk: Sequence[Part]) -> Iterator[Tensor]:
        within = torch.cat([self._within(part) for part in chunk], dim=1) if len(self._single) else None
        at = 0
        for begin, end in self._steps:
            if begin in self._many:
                cells = [next(self._many[begin].cells(p.size, p.sets)).flatten(1) for p in chunk]
                yield torch.cat(cells, dim=1) if len(cells) > 1 else cells[0]
            else:
                assert within is not None
                rows = within[at : at + end - begin].to(self._values.dtype)
                at += end - begin
                yield self._values[:, begin:end] @ rows

    def _within(self, part: Part) -> Tensor:
        """(rows, cells) uint8: which rows of small steps lie in which cell."""
        count = part.sets.stop - part.sets.start
        rows = len(self._single)
        if part.size <= 2:
            every = (self._single.new_ones(rows, 1), self._single, self._pairs)[part.size]
            return every.flatten(1)
        out = self._single.new_empty(rows, *(2,) * part.size, count)
        place = 0
        for top, pairs in part.runs:
            above = self._single[:, :, top[0]]
            for feature in top[1:]:
                above = above.unsqueeze(-1) & self._single[:, :, feature].view(rows, *(1,) * (above.ndim - 1), 2)
            torch.bitwise_and(
                above.view(*above.shape, 1, 1, 1),
                self._pairs[..., :pairs].view(rows, *(1,) * len(top), 2, 2, pairs),
                out=out[..., place : place + pairs],
            )
            place += pairs
        return out.flatten(1)
