"""Blocks of features in which totals are taken: plans, pivots and streams of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from sstorch.exact.moments import Moments, RowSums

# Rows of a matrix product at a time.
_ROWS = 8192
Accumulate = Callable[[Iterator[Tensor]], Iterator[Tensor]]


class Run(NamedTuple):
    """Neighbouring sets above a pivot, that are at `place` among those of the block.

    They are features a in the range `first`, or pairs of these with a `second` largest feature b.
    """

    second: int | None
    first: slice
    place: slice


@dataclass(frozen=True)
class FeatureBlock:
    """Sets of features above + {pivot} + below, for all combinations of two groups of sets.

    The L sets above are in `runs`: features a, or pairs a > b. The R sets below have the size `right`: single
    features, or pairs x > y in colexicographic order.
    """

    pivot: int
    runs: tuple[Run, ...]
    right: int

    @property
    def n_left(self) -> int:
        """Size of the sets above the pivot."""
        return 1 if self.runs[0].second is None else 2

    @property
    def width(self) -> int:
        """L."""
        return int(self.runs[-1].place.stop)

    @property
    def height(self) -> int:
        """R."""
        return comb(self.pivot, self.right)


def blocks(n_features: int, pivot: int, left: int, right: int, size: int) -> Iterator[FeatureBlock]:
    """All sets with a pivot, `left` (1 or 2) features above it and `right` below it, in blocks.

    A block has at most `size` cells, or all sets below with a single one above.
    """
    most = max(1, (size >> (left + 1 + right)) // max(1, comb(pivot, right)))
    seconds: list[int | None] = [None] if left == 1 else list(range(pivot + 1, n_features - 1))
    runs: list[Run] = []
    width = 0
    for second in seconds:
        start = (pivot if second is None else second) + 1
        while start < n_features:
            stop = min(n_features, start + most - width)
            runs.append(Run(second, slice(start, stop), slice(width, width + stop - start)))
            width, start = width + stop - start, stop
            if width == most:
                yield FeatureBlock(pivot, tuple(runs), right)
                runs, width = [], 0
    if runs:
        yield FeatureBlock(pivot, tuple(runs), right)


@lru_cache(maxsize=32)
def pairs(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Larger and smaller feature of all pairs of 0 .. n - 1; the first C(m, 2) are those of 0 .. m - 1."""
    larger, smaller = torch.tril_indices(n, n, -1, device=device)
    return larger.contiguous(), smaller.contiguous()


def pair_run(larger: int) -> slice:
    """Where the pairs with this larger feature are."""
    start = comb(larger, 2)
    return slice(start, start + larger)


@lru_cache(maxsize=256)
def partners(n: int, device: torch.device) -> Tensor:
    """((n - 1) n,): n - 1 times for each feature x below n a pair with it, all of them once.

    r is the place of the pair x > y, C(n, 2) + r that of the pair y > x.
    """
    x = torch.arange(n).expand(n - 1, n)
    y = torch.arange(n - 1)[:, None]
    y = torch.where(y >= x, y + 1, y)
    place = torch.where(x > y, x * (x - 1) // 2 + y, n * (n - 1) // 2 + y * (y - 1) // 2 + x)
    return place.flatten().to(device)


def right_signs(small: Tensor, both: Tensor | None, cells: Tensor) -> Tensor:
    """Write the signs of the features below the pivot, first, by inclusion and exclusion, into `cells`.

    `small` (..., 1 + b, L) asks for none of these features or for one, `both` (..., R, L) for two; it is None
    if the sets below are single features, and may be the entry for two of `cells`, (2, [2,] ..., R, L).
    """
    if both is None:
        cells[1].copy_(small[..., 1:, :])
        torch.sub(small[..., :1, :], small[..., 1:, :], out=cells[0])
        return cells
    larger, smaller = pairs(small.shape[-2] - 1, small.device)
    free = small[..., :1, :] - small[..., 1:, :]
    torch.index_select(small[..., 1:, :], -2, larger, out=cells[1, 0])
    torch.index_select(small[..., 1:, :], -2, smaller, out=cells[0, 1])
    torch.index_select(free, -2, larger, out=cells[0, 0])
    cells[1, 0].sub_(both)
    cells[0, 1].sub_(both)
    cells[0, 0].sub_(cells[0, 1])
    return cells


class _BlockCells:
    """Memory for the cells of a block, the same for each: new pages take longer than filling them."""

    def __init__(self, like: Tensor) -> None:
        self._memory = like.new_empty(0)

    def _empty(self, block: FeatureBlock, channels: int) -> Tensor:
        """(2, ..., 2, C, signs, R, L): signs of the features below the pivot first."""
        n_signs = 2 ** (block.n_left + 1)
        shape = torch.Size((*(2,) * block.right, channels, n_signs, block.height, block.width))
        if len(self._memory) < shape.numel():
            self._memory = self._memory.new_empty(shape.numel())
        return self._memory[: shape.numel()].view(shape)

    @staticmethod
    def _in_order(block: FeatureBlock, cells: Tensor) -> Tensor:
        """(C, 2, ..., 2, R, L), signs in falling order of the features."""
        signs = cells.unflatten(-3, (2,) * (block.n_left + 1))
        below, first = range(1, 1 + block.right), block.n_left + 2
        ordered: Tensor = signs.movedim(block.right, 0).movedim(
            tuple(below), tuple(range(first, first + block.right))
        )
        return ordered


class PivotCells(_BlockCells):
    """Cells of blocks of sets of 3 to `depth` <= 5 features, by inclusion and exclusion from moments.

    The moments of all sets with the same pivot are a matrix product over the rows in which it is 1: products
    of features above it times products of features below it. Pivots have to be asked for in falling order,
    because moments of larger pivots are needed for the cells of smaller ones.

    Rows of moments ask for none of the features below the pivot, then each of them, then each pair.
    """

    def __init__(self, sums: RowSums, depth: int) -> None:
        super().__init__(sums.values)
        self._sums, self._depth = sums, depth
        self._n, self._channels = len(sums.columns), len(sums.values)
        # (C, 1 + F [+ pairs], 1 + F): the column asks for no feature above the rows' ones, or for one.
        self._free = sums.values.new_zeros(self._channels, self._height(self._n), self._n + 1)
        self._lowest = self._n
        self._fill_free()
        # For each pivot, (C, 1 + b [+ pairs], 1 + A), in which the pivot is asked for.
        self._asked: dict[int, Tensor] = {}
        # For each second feature b: (C, s_a, s_b, rows, A), sets of a and b above smaller pivots.
        self._above: dict[int, Tensor] = {}
        self._products: tuple[int, list[tuple[Tensor, Tensor, Tensor]]] = (-1, [])
        self._last: tuple[FeatureBlock | None, Tensor] = (None, sums.values)

    def cells(self, block: FeatureBlock) -> Iterator[Tensor]:
        """(C, 2, ..., 2, R, L), signs in falling order of the features."""
        while self._lowest > block.pivot:
            self._lowest -= 1
            self._multiply(self._lowest)
        small = self._signed(block, slice(0, 1 + block.pivot), None)
        cells, both = self._empty(block, self._channels), None
        if block.right == 2:
            both = self._signed(block, slice(1 + block.pivot, self._height(block.pivot)), cells[1, 1])
        yield self._in_order(block, right_signs(small, both, cells))

    def _height(self, below: int) -> int:
        """Rows of moments with so many features below."""
        return 1 + below + (comb(below, 2) if self._depth > 3 else 0)

    def _rows(self, x: int, rows: slice) -> slice:
        """From rows of the block's pivot to those of a larger pivot x, or of all features: F."""
        return rows if rows.start == 0 else slice(1 + x, 1 + x + rows.stop - rows.start)

    def _signed(self, block: FeatureBlock, rows: slice, out: Tensor | None) -> Tensor:
        """(C, signs, rows, L) signs of the features above the pivot and of the pivot."""
        if out is None:
            height = rows.stop - rows.start
            out = self._free.new_empty(self._channels, 2 ** (block.n_left + 1), height, block.width)
        signs = out.unflatten(1, (-1, 2))
        absent, present = signs.select(2, 0), signs.select(2, 1)
        asked = self._asked[block.pivot][:, rows]
        if block.n_left == 1:
            a = block.runs[0].first
            first = slice(a.start - block.pivot, a.stop - block.pivot)
            free = self._free[:, self._rows(self._n, rows)]
            present[:, 1] = asked[..., first]
            torch.sub(asked[..., :1], asked[..., first], out=present[:, 0])
            torch.sub(free[..., a.start + 1 : a.stop + 1], present[:, 1], out=absent[:, 1])
            torch.sub(free[..., :1] - free[..., a.start + 1 : a.stop + 1], present[:, 0], out=absent[:, 0])
            return out
        self._pairs_present(block, asked, rows, present)
        for run in block.runs:
            b = run.second
            assert b is not None
            above = self._above[b][..., self._rows(b, rows), run.first.start - b - 1 : run.first.stop - b - 1]
            torch.sub(above.flatten(1, 2), present[..., run.place], out=absent[..., run.place])
        return out

    def _pairs_present(self, block: FeatureBlock, asked: Tensor, rows: slice, out: Tensor) -> None:
        """(C, 4, rows, L) signs of a and b, the pivot asked for."""
        c = block.pivot
        with_a = torch.cat([asked[..., r.first.start - c : r.first.stop - c] for r in block.runs], dim=-1)
        seconds = [(r.second or 0, r.place.stop - r.place.start) for r in block.runs]
        with_b = torch.cat(
            [asked[..., b - c : b - c + 1].expand(-1, -1, size) for b, size in seconds], dim=-1
        )
        both = self._triples(block)[:, rows]
        out[:, 3] = both
        torch.sub(with_a, both, out=out[:, 2])
        torch.sub(with_b, both, out=out[:, 1])
        torch.sub(asked[..., :1] - with_a, out[:, 1], out=out[:, 0])

    def _triples(self, block: FeatureBlock) -> Tensor:
        """(C, rows, L) moments with a, b and the pivot asked for."""
        if self._last[0] is block:
            return self._last[1]
        self._last = (block, self._multiply_triples(block))
        return self._last[1]

    def _multiply_triples(self, block: FeatureBlock) -> Tensor:
        moments: Tensor | None = None
        if self._products[0] != block.pivot:
            self._products = (block.pivot, list(self._factors(block.pivot)))
        for literals, right, rows in self._products[1]:
            left = torch.cat([literals[r.second] * literals[r.first] for r in block.runs])
            part = self._sums.multiply(right, self._sums.weighted(left.T.contiguous(), rows))
            moments = part if moments is None else moments.add_(part)
        if moments is None:
            return self._free.new_zeros(self._channels, self._height(block.pivot), block.width)
        return moments

    def _factors(self, pivot: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Literals, products of those below the pivot, and numbers of some rows in which it is 1."""
        sums = self._sums
        for index in sums.columns[pivot].nonzero()[:, 0].split(_ROWS):
            literals = sums.rows.index_select(0, index).T.contiguous()
            yield literals, self._right(literals[:pivot]), index

    def _right(self, literals: Tensor) -> Tensor:
        """(rows of moments, n) products of no, one or two literals (b, n)."""
        parts = [literals.new_ones(1, literals.shape[1]), literals]
        if self._depth > 3:
            larger, smaller = pairs(len(literals), literals.device)
            parts.append(literals.index_select(0, larger).mul_(literals.index_select(0, smaller)))
        return torch.cat(parts)

    def _multiply(self, pivot: int) -> None:
        """Moments with the pivot and at most one feature above it."""
        n = self._n
        moments = self._free.new_zeros(self._channels, self._height(pivot), n - pivot)
        factors = self._factors(pivot)
        if self._depth == 5:  # they are needed again, by the blocks of this pivot
            self._products = (pivot, list(factors))
            factors = iter(self._products[1])
        for literals, right, rows in factors:
            left = torch.cat([literals.new_ones(1, literals.shape[1]), literals[pivot + 1 :]])
            moments += self._sums.multiply(right, self._sums.weighted(left.T.contiguous(), rows))
        self._asked[pivot] = moments
        self._free[:, : 1 + pivot, pivot + 1] = moments[:, : 1 + pivot, 0]
        self._free[:, n + 1 : n + 1 + comb(pivot, 2), pivot + 1] = moments[:, 1 + pivot :, 0]
        if self._depth == 5:
            every = torch.arange(len(moments[0]), device=moments.device)
            every = torch.where(every > pivot, every + n - pivot, every)
            free = self._free.index_select(1, every)
            above = moments.new_empty(self._channels, 2, 2, *moments.shape[1:-1], n - pivot - 1)
            above[:, 1, 1] = moments[..., 1:]
            torch.sub(free[..., pivot + 2 :], moments[..., 1:], out=above[:, 1, 0])
            torch.sub(moments[..., :1], moments[..., 1:], out=above[:, 0, 1])
            torch.sub(free[..., :1] - free[..., pivot + 2 :], above[:, 0, 1], out=above[:, 0, 0])
            self._above[pivot] = above
        elif self._depth == 4 and pivot + 1 in self._asked:
            # Sets of three need no more than the rows of single features.
            self._asked[pivot + 1] = self._asked[pivot + 1][:, : 2 + pivot].clone()

    def _fill_free(self) -> None:
        """Moments of no, one or two features, none asked for above them."""
        sums, n = self._sums, self._n
        one = sums.columns.new_ones(1, sums.columns.shape[1])
        right = torch.cat([one, sums.columns])
        left = right if self._depth > 3 else one
        moments = sums.multiply(right, sums.weighted(left.T.contiguous()))
        self._free[:, : n + 1, 0] = moments[..., 0]
        if self._depth > 3:
            larger, smaller = pairs(n, moments.device)
            self._free[:, n + 1 :, 0] = moments[:, larger + 1, smaller + 1]


class StreamedCells(_BlockCells):
    """Cells of blocks of sets, for each step of a task, that keeps no sums between blocks."""

    def __init__(self, moments: Moments, accumulate: Accumulate) -> None:
        super().__init__(moments.values)
        self._moments, self._accumulate = moments, accumulate
        self._literals = moments.literals[:, 1:-1].T.contiguous()

    def cells(self, block: FeatureBlock) -> Iterator[Tensor]:
        """(C, 2, ..., 2, R, L) of each step, signs in falling order of the features."""
        for sums in self._accumulate(self._sums(block)):
            # (C, R + 1 [+ b], signs, L)
            moved = sums.transpose(1, 2)
            cells, both = self._empty(block, len(moved)), None
            if block.right == 2:
                both = moved[..., 1 + block.pivot :, :]
                cells[1, 1].copy_(both)
            yield self._in_order(block, right_signs(moved[..., : 1 + block.pivot, :], both, cells))

    def _sums(self, block: FeatureBlock) -> Iterator[Tensor]:
        """(C, rows, signs, L) of each step: rows ask for none of the features below, each, and each pair."""
        literals, c = self._literals, block.pivot
        below = literals[:c]
        right = [below.new_ones(1, below.shape[1]), below]
        if block.right == 2:
            right += [below[x] * below[:x] for x in range(1, c)]
        products = torch.cat(right)
        left = self._left(block)
        signs, width, _ = left.shape
        values = self._moments.values
        for begin, end in pairwise(self._moments.steps):
            weighted = values[:, None, begin:end] * left[..., begin:end].flatten(0, 1)
            sums = products[:, begin:end] @ weighted.flatten(0, 1).T
            yield sums.view(len(products), len(values), signs, width).transpose(0, 1)

    def _left(self, block: FeatureBlock) -> Tensor:
        """(signs, L, entries): which entries have the signs of the features above the pivot and of it."""
        literals = self._literals
        first = torch.cat([literals[r.first] for r in block.runs])
        features = [first]
        if block.n_left == 2:
            sizes = torch.tensor([r.place.stop - r.place.start for r in block.runs])
            seconds = torch.tensor([r.second or 0 for r in block.runs]).repeat_interleave(sizes)
            features.append(literals[seconds.to(literals.device)])
        features.append(literals[block.pivot].expand_as(first))
        signed = first.new_ones(1, *first.shape)
        for feature in features:
            signed = torch.stack([signed * (1.0 - feature), signed * feature], dim=1).flatten(0, 1)
        return signed
