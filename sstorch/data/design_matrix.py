"""Features of rows: numbers, and categories of many levels stored as one code a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeVar

import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.batched import SHARED, Batched
from sstorch.checks import blocks
from sstorch.memory import at_once

# A category with more levels is stored as codes; indicators of fewer are as cheap as numbers.
CODED_LEVELS = 16
# Where copies of the rows of each problem cost more than they save.
MAX_TILE_FEATURES = 32
MAX_TILE_ELEMENTS = 2**24
# Multiples of the golden ratio modulo one are evenly spread and never periodic.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class DesignMatrix(Batched):
    """Features of rows, (n, p), or of S splits, (S, n, p), that the problems of a batch share.

    Problems, ordered by split, read the rows of their split, a fold with its own preprocessing; no row is
    copied. An indicator of a category may be stored as a code: p counts the numbers and all indicators.

    Attributes:
        numbers: other features, (n, d) or (S, n, d); shorter splits are padded at the end.
        counts: number of problems of each split; their sum is R. Empty for rows (n, p).
        rows: rows that each problem keeps, (R, M), integer; None for all.
        tiles: copies of their features, where these are small enough to pay, (R, p, M).
        codes: position within its block of the indicator that is one, the size of the block for none, (n, C)
            or (S, n, C), integer; None without blocks.
        blocks: first feature and size of the indicators of each column of codes.
    """

    numbers: Tensor = field(metadata=SHARED)
    counts: tuple[int, ...] = field(default=(), metadata=SHARED)
    rows: Tensor | None = None
    tiles: Tensor | None = None
    codes: Tensor | None = field(default=None, metadata=SHARED)
    blocks: tuple[tuple[int, int], ...] = field(default=(), metadata=SHARED)

    @classmethod
    def of(cls, x: Tensor | FloatArray | DesignMatrix) -> DesignMatrix:
        """The same rows, (n, p); an array is not copied."""
        return x if isinstance(x, DesignMatrix) else cls(torch.as_tensor(x))

    @classmethod
    def stack(cls, parts: Sequence[Tensor | FloatArray | DesignMatrix]) -> DesignMatrix:
        """Rows of S splits, (n, p) each, one problem a split; shorter ones repeat their first row."""
        splits = [cls.of(part) for part in parts]
        n_rows = max(len(part.numbers) for part in splits)

        def padded(values: list[Tensor]) -> Tensor:
            """Of splits, (S, n, k); a view of a single one."""
            if len(values) == 1:
                return values[0][None]
            return torch.stack([torch.cat([v, v[:1].expand(n_rows - len(v), -1)]) for v in values])

        codes = [part.codes for part in splits if part.codes is not None]
        return cls(
            padded([part.numbers for part in splits]),
            (1,) * len(splits),
            codes=padded(codes) if codes else None,
            blocks=splits[0].blocks,
        )

    @property
    def shape(self) -> torch.Size:
        """Of the matrix with indicators, (n, p) or (S, n, p)."""
        width = self.numbers.shape[-1] + sum(size for _, size in self.blocks)
        return torch.Size([*self.numbers.shape[:-1], width])

    @property
    def n_rows(self) -> int:
        """Rows per problem, M."""
        return int(self.numbers.shape[-2] if self.rows is None else self.rows.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.numbers.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers, and of what products give."""
        return self.numbers.dtype

    @property
    def split(self) -> Tensor:
        """Number of each problem's split, (R,)."""
        counts = torch.tensor(self.counts, device=self.device)
        return torch.arange(len(counts), device=self.device).repeat_interleave(
            counts, output_size=sum(self.counts)
        )

    @cached_property
    def places(self) -> Tensor:
        """Positions of the numbers among the features, (d,)."""
        coded = set(self.levels.tolist())
        own = [place for place in range(self.shape[-1]) if place not in coded]
        return torch.tensor(own, dtype=torch.long, device=self.device)

    @cached_property
    def levels(self) -> Tensor:
        """Positions among the features of the indicators stored as codes, block by block, (Q,)."""
        places = [place for first, size in self.blocks for place in range(first, first + size)]
        return torch.tensor(places, dtype=torch.long, device=self.device)

    def __len__(self) -> int:
        return self.numbers.shape[-2]

    def __getitem__(self, rows: slice | Tensor | IntArray | BoolArray) -> DesignMatrix:
        """Some rows, of all splits."""
        codes = None if self.codes is None else self.codes[..., rows, :]
        return DesignMatrix(self.numbers[..., rows, :], self.counts, codes=codes, blocks=self.blocks)

    def of_split(self, split: int) -> DesignMatrix:
        """The rows of a split, (n, p)."""
        codes = None if self.codes is None else self.codes[split]
        return DesignMatrix(self.numbers[split], codes=codes, blocks=self.blocks)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The same on a device, with numbers of a type."""
        rows = None if self.rows is None else self.rows.to(device=device)
        tiles = None if self.tiles is None else self.tiles.to(device=device, dtype=dtype)
        codes = None if self.codes is None else self.codes.to(device=device)
        numbers = self.numbers.to(device=device, dtype=dtype)
        return replace(self, numbers=numbers, rows=rows, tiles=tiles, codes=codes)

    def to_dense(self) -> Tensor:
        """All features of all rows as numbers, (n, p) or (S, n, p)."""
        if self.codes is None:
            return self.numbers
        out = self.numbers.new_zeros(self.shape)
        out[..., self.places] = self.numbers
        for k, (first, size) in enumerate(self.blocks):
            levels = torch.arange(size, device=self.device)
            out[..., first : first + size] = (self.codes[..., k, None] == levels).to(out)
        return out

    def features(self, chosen: slice) -> DesignMatrix:
        """Views of consecutive features, counted from the first of them; no block is cut."""
        tiles = None if self.tiles is None else self.tiles[:, chosen]
        if not self.blocks:
            return replace(self, numbers=self.numbers[..., chosen], tiles=tiles)
        first, last, _ = chosen.indices(self.shape[-1])
        inside = [k for k, (start, size) in enumerate(self.blocks) if first <= start and start + size <= last]
        at = [k for k, place in enumerate(self.places.tolist()) if first <= place < last]
        numbers = self.numbers[..., at[0] : at[-1] + 1] if at else self.numbers[..., :0]
        codes = None if self.codes is None or not inside else self.codes[..., inside]
        blocks = tuple((self.blocks[k][0] - first, self.blocks[k][1]) for k in inside)
        return DesignMatrix(numbers, self.counts, self.rows, tiles, codes, blocks)

    def columns(self, places: Sequence[int], rows: slice | Tensor | IntArray = slice(None)) -> Tensor:
        """Some features of rows (n, p), as numbers, (m, len(places))."""
        at = torch.as_tensor(list(places), dtype=torch.long, device=self.device)
        found = torch.isin(at, self.places)
        stored = torch.searchsorted(self.places, at[found])
        if isinstance(rows, slice):
            numbers = self.numbers[rows][:, stored]
        else:
            numbers = self.numbers[torch.as_tensor(rows, device=self.device)[:, None], stored]
        out = numbers.new_zeros(len(numbers), len(at))
        out[:, found] = numbers
        for k, (first, size) in enumerate(self.blocks):
            inside = (at >= first) & (at < first + size)
            assert self.codes is not None
            out[:, inside] = (self.codes[rows, k, None] == at[inside] - first).to(out)
        return out

    def select(self, problems: Tensor | slice) -> Self:
        """The same rows for some of the problems: ascending positions (K,), or a slice."""
        ends = list(itertools.accumulate(self.counts, initial=0))
        if isinstance(problems, slice):
            first, last, _ = problems.indices(ends[-1])
            counts = [max(0, min(end, last) - max(start, first)) for start, end in itertools.pairwise(ends)]
        else:
            # On the host, for which a GPU waits once.
            counts = torch.searchsorted(problems.cpu(), torch.tensor(ends)).diff().tolist()
        return replace(super().select(problems), counts=tuple(counts))

    def restrict(self, rows: Tensor) -> DesignMatrix:
        """Keep rows at positions (R, M') of those each problem has; few are copied, which is faster."""
        rows = rows if self.rows is None else self.rows.gather(-1, rows)
        n_features, tiles = self.shape[-1], None
        few = n_features <= MAX_TILE_FEATURES or 2 * rows.shape[-1] <= len(self)
        if few and rows.numel() * n_features <= at_once(1, MAX_TILE_ELEMENTS):
            # Rows last: one gather a feature.
            tiles = (
                self.to_dense()
                .mT.contiguous()[self.split]
                .gather(-1, rows[:, None, :].expand(-1, n_features, -1))
            )
        return replace(self, rows=rows, tiles=tiles)

    def project(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Scores weight . x + bias, (..., K, M), by weight (..., K, p), of splits (R, K, p), and bias."""
        if self.tiles is not None:
            return torch.baddbmm(bias[..., None], weight, self.tiles)
        if not self.counts:
            scores = self._scores(weight)
        else:
            parts = [
                self.of_split(split)._scores(part)
                for split, part in enumerate(weight.split(self.counts))
                if self.counts[split]
            ]
            scores = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.rows is not None:
            scores = scores.gather(-1, self.rows[:, None, :].expand(-1, scores.shape[1], -1))
        return scores + bias[..., None]

    def _scores(self, weight: Tensor) -> Tensor:
        """Weight . x of rows (n, p), (..., K, p) -> (..., K, n)."""
        if self.codes is None:
            return torch.matmul(weight, self.numbers.mT)
        scores = torch.matmul(weight[..., self.places], self.numbers.mT)
        for k, (first, size) in enumerate(self.blocks):
            table = torch.nn.functional.pad(weight[..., first : first + size], (0, 1))
            scores += table.index_select(-1, self.codes[:, k])
        return scores

    def pull_back(self, weight: Tensor) -> Tensor:
        """Weighted sums of x and of ones, the adjoint of :meth:`project`: (R, K, M) -> (R, K, p + 1)."""
        if self.tiles is not None:
            sums = torch.bmm(weight, self.tiles.mT)
        else:
            splits = zip(self.spread(weight).split(self.counts), self.to_dense(), strict=True)
            sums = torch.cat([torch.matmul(part, matrix) for part, matrix in splits if len(part)])
        return torch.cat([sums, weight.sum(-1, keepdim=True)], dim=-1)

    def gram(self, weight: Tensor) -> Tensor:
        """Sums of x x', a one appended to x, (R, K, p + 1, p + 1), weighted by (R, K, M)."""
        n_features = self.shape[-1]
        row, column = torch.triu_indices(n_features + 1, n_features + 1, device=weight.device).unbind(0)
        place = torch.zeros(n_features + 1, n_features + 1, dtype=torch.long, device=weight.device)
        place[row, column] = place[column, row] = torch.arange(len(row), device=weight.device)
        extended = torch.nn.functional.pad(self.to_dense(), (0, 1), value=1.0)
        weight = self.spread(weight)
        # One product of matrices per split, with the products of features formed once for all problems.
        splits = zip(weight.split(self.counts), extended, strict=True)
        sums = [
            torch.matmul(part, matrix[:, row] * matrix[:, column]) for part, matrix in splits if len(part)
        ]
        return torch.cat(sums)[..., place]

    def moments(
        self, rows: slice | Tensor, weight: Tensor, right: Tensor, centre: Tensor, scale: Tensor
    ) -> Tensor:
        """Weighted sums over rows, z'Wz and z'r, (1 + p, 1 + p + k), of a one and standardised features z."""
        # W (n,) of any sign, r (n, k); z = (x - centre) / scale, +inf for features that are zero.
        width, size, n_right = 1 + len(self.places), 1 + self.shape[-1], right.shape[-1]
        half = width // 2  # the lower left quarter of a symmetric matrix is the upper right one
        inverse = 1 / scale[self.places]
        shift = -centre[self.places] * inverse
        gram = weight.new_zeros(width, width + n_right)
        # A row without a level counts in one more.
        levels = weight.new_zeros(len(self.levels) + 1, width + n_right)
        sizes = self.levels.new_tensor([n_levels for _, n_levels in self.blocks])
        firsts = sizes.cumsum(0) - sizes
        pairs = weight.new_zeros(len(levels), len(levels))
        for block in blocks(len(weight) if isinstance(rows, slice) else len(rows), width):
            at = block if isinstance(rows, slice) else rows[block]
            x = self[at]
            z = weight.new_ones(len(x), width)
            torch.addcmul(shift, x.numbers.to(inverse), inverse, out=z[:, 1:])
            own = torch.cat([z * weight[at, None], right[at]], 1)
            gram[:half] += torch.matmul(z[:, :half].mT, own)
            gram[half:, half:] += torch.matmul(z[:, half:].mT, own[:, half:])
            codes = (
                () if x.codes is None else torch.where(x.codes < sizes, x.codes + firsts, len(pairs) - 1).T
            )
            for k, code in enumerate(codes):
                levels.index_add_(0, code, own)
                for other in codes[k + 1 :]:
                    pairs.view(-1).index_add_(0, code * len(pairs) + other, weight[at])
        gram[half:, :half] = gram[:half, half:width].mT
        if not self.blocks:
            return gram
        levels, pairs = levels[:-1], pairs[:-1, :-1]
        coded, plain = 1 + self.levels, torch.nn.functional.pad(1 + self.places, (1, 0))
        columns = torch.cat([plain, torch.arange(size, size + n_right, device=self.device)])
        out = gram.new_zeros(size, size + n_right)
        out[plain[:, None], columns] = gram
        out[coded[:, None], columns] = levels
        out[plain[:, None], coded] = levels[:, :width].mT
        out[coded[:, None], coded] = pairs + pairs.mT + torch.diag(levels[:, 0])
        centre, inverse = centre[self.levels], 1 / scale[self.levels]
        out[coded] = (out[coded] - centre[:, None] * out[0]) * inverse[:, None]
        out[:, coded] = (out[:, coded] - out[:, :1] * centre) * inverse
        return out

    def spread(self, values: Tensor, stride: int = 1) -> Tensor:
        """Sums of values (R, ..., M) of kept rows at one in `stride` of all rows, (R, ..., n)."""
        if self.rows is not None:
            lead = values.shape[1:-1]
            rows = self.rows.reshape(-1, *(1,) * len(lead), self.rows.shape[-1]).expand(values.shape)
            whole = values.new_zeros(*values.shape[:-1], len(self))
            values = whole.scatter_add_(-1, rows, values)
        return values[..., self._thinned(stride)]

    def thin(self, stride: int) -> DesignMatrix:
        """One in `stride` of all rows, kept or not, for all problems."""
        return self[self._thinned(stride)]

    def _thinned(self, stride: int) -> slice | Tensor:
        if stride == 1:
            return slice(None)
        first = torch.arange(0, len(self), stride, device=self.device)
        # At places that do not repeat: every stride-th row would be the same visit of every subject.
        place = (first / stride * _GOLDEN % 1.0 * stride).long()
        return (first + place).clamp(max=len(self) - 1)


# Features of rows as modules and fitted trees take them.
RowFeatures = Tensor | DesignMatrix
FeaturesT = TypeVar("FeaturesT", Tensor, DesignMatrix, RowFeatures)


def dense(x: RowFeatures) -> Tensor:
    """All features as numbers."""
    return x if isinstance(x, Tensor) else x.to_dense()


def first_features(x: FeaturesT, count: int) -> FeaturesT:
    """The first so many features of rows, those that gates see."""
    return _some_features(x, slice(0, count))


def last_features(x: FeaturesT, count: int) -> FeaturesT:
    """The last so many features of rows, those that leaves see."""
    return _some_features(x, slice(x.shape[-1] - count, x.shape[-1]))


def _some_features(x: FeaturesT, chosen: slice) -> FeaturesT:
    if chosen == slice(0, x.shape[-1]):
        return x
    return x[..., chosen] if isinstance(x, Tensor) else x.features(chosen)


def project(x: RowFeatures, weight: Tensor, bias: Tensor) -> Tensor:
    """Linear scores weight . x + bias, shapes (..., K, p) and (..., K) -> (..., K, N), rows last."""
    if not isinstance(x, Tensor):
        return x.project(weight, bias)
    return torch.matmul(weight, x.mT) + bias[..., None]
