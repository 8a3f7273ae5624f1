"""Matrices of features in which the indicators of a category are stored as one integer a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sstorch._types import BoolArray, IntArray

# A category with more levels is stored as codes; indicators of fewer are as cheap as numbers.
CODED_LEVELS = 16


@dataclass(frozen=True)
class CodedMatrix:
    """Features (n, p): numbers, and blocks of indicators stored as codes.

    Rows are selected as those of a tensor; products with weights gather one weight a row and block.
    """

    numbers: Tensor  # features that are stored as they are, (n, d)
    # Position within its block of the indicator that is one, the size of the block for none, (n, C), integer
    codes: Tensor
    places: Tensor  # positions of the numbers among the p features, ascending, (d,)
    blocks: tuple[tuple[int, int], ...]  # first feature and size of the block of each column of codes

    @classmethod
    def of(cls, features: Tensor | CodedMatrix) -> CodedMatrix:
        """The same features; of a tensor all are numbers."""
        if isinstance(features, CodedMatrix):
            return features
        codes = features.new_zeros(len(features), 0, dtype=torch.int32)
        return cls(features, codes, torch.arange(features.shape[1], device=features.device), ())

    @property
    def shape(self) -> torch.Size:
        """Of the matrix with indicators."""
        return torch.Size([len(self.numbers), len(self.places) + sum(size for _, size in self.blocks)])

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.numbers.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers, and of what products give."""
        return self.numbers.dtype

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice | Tensor | IntArray | BoolArray) -> Self:
        """Some rows."""
        return type(self)(self.numbers[rows], self.codes[rows], self.places, self.blocks)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The same on a device, with numbers of a type."""
        numbers = self.numbers.to(device=device, dtype=dtype)
        return type(self)(numbers, self.codes.to(device=device), self.places.to(device=device), self.blocks)

    def features(self, chosen: slice) -> CodedMatrix:
        """Consecutive features, counted from the first of them; no block is cut."""
        first, last, _ = chosen.indices(self.shape[-1])
        kept = (self.places >= first) & (self.places < last)
        inside = [k for k, (start, size) in enumerate(self.blocks) if first <= start and start + size <= last]
        numbers, codes = self.numbers, self.codes
        if len(inside) < len(self.blocks):
            codes = codes[:, inside]
        if not bool(kept.all()):
            at = kept.nonzero().squeeze(-1).tolist()  # they are consecutive: a view
            numbers = numbers[:, at[0] : at[-1] + 1] if at else numbers[:, :0]
        blocks = tuple((self.blocks[k][0] - first, self.blocks[k][1]) for k in inside)
        return CodedMatrix(numbers, codes, self.places[kept] - first, blocks)

    def columns(self, places: Sequence[int], rows: slice | Tensor = slice(None)) -> Tensor:
        """Some features of rows, as numbers, (m, len(places))."""
        at = torch.as_tensor(list(places), dtype=torch.long, device=self.device)
        numbers, codes = self.numbers[rows], self.codes[rows]
        out = numbers.new_zeros(len(numbers), len(at))
        found = torch.isin(at, self.places)
        out[:, found] = numbers[:, torch.searchsorted(self.places, at[found])]
        for k, (first, size) in enumerate(self.blocks):
            inside = (at >= first) & (at < first + size)
            out[:, inside] = (codes[:, k, None] == at[inside] - first).to(out)
        return out

    def project(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Linear scores weight . x + bias: (..., K, p) and (..., K) -> (..., K, n)."""
        scores = torch.matmul(weight[..., self.places], self.numbers.mT) + bias[..., None]
        for k, (first, size) in enumerate(self.blocks):
            table = torch.nn.functional.pad(weight[..., first : first + size], (0, 1))
            scores += table.index_select(-1, self.codes[:, k])
        return scores

    def to_dense(self) -> Tensor:
        """All features as numbers, (n, p)."""
        out = self.numbers.new_zeros(self.shape)
        out[:, self.places] = self.numbers
        for k, (first, size) in enumerate(self.blocks):
            levels = torch.arange(size, device=self.device)
            out[:, first : first + size] = (self.codes[:, k, None] == levels).to(out)
        return out


@dataclass(frozen=True)
class SplitMatrices:
    """Features of S splits, (S, n, p): a matrix each, none of which is copied to be of one length."""

    parts: tuple[CodedMatrix, ...]  # matrices of the splits with the same features, of at most n rows
    n_rows: int  # n, of the longest

    @classmethod
    def of(cls, features: Tensor | SplitMatrices | Sequence[CodedMatrix]) -> SplitMatrices:
        """The same splits; a tensor is (S, n, p)."""
        if isinstance(features, SplitMatrices):
            return features
        parts = tuple(CodedMatrix.of(part) for part in features)
        return cls(parts, max(len(part) for part in parts))

    @property
    def shape(self) -> torch.Size:
        """Of a tensor of all splits."""
        return torch.Size([len(self.parts), self.n_rows, self.parts[0].shape[1]])

    @property
    def places(self) -> Tensor:
        """Positions of the numbers among the features, (d,)."""
        return self.parts[0].places

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """First feature and size of the blocks of codes."""
        return self.parts[0].blocks

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, split: int) -> CodedMatrix:
        """The matrix of a split."""
        return self.parts[split]

    def features(self, chosen: slice) -> SplitMatrices:
        """Consecutive features of all splits."""
        return SplitMatrices(tuple(part.features(chosen) for part in self.parts), self.n_rows)

    def thinned(self, stride: int) -> SplitMatrices:
        """Every stride-th row of all splits."""
        return SplitMatrices.of([part[::stride] for part in self.parts])

    def project(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Linear scores of each split, (S, K, p) and (S, K) -> (S, K, n); zero beyond its rows."""
        scores = weight.new_zeros(len(self), weight.shape[1], self.n_rows)
        for split, part in enumerate(self.parts):
            scores[split, :, : len(part)] = part.project(weight[split], bias[split])
        return scores

    def to_dense(self) -> Tensor:
        """All features as numbers, (S, n, p); zero beyond the rows of a split."""
        out = self.parts[0].numbers.new_zeros(self.shape)
        for split, part in enumerate(self.parts):
            out[split, : len(part)] = part.to_dense()
        return out


# Features of rows, (n, p), and of the rows of splits, (S, n, p).
RowFeatures = Tensor | CodedMatrix
SplitFeatures = Tensor | SplitMatrices


def dense(features: RowFeatures | SplitFeatures) -> Tensor:
    """All features as numbers."""
    return features if isinstance(features, Tensor) else features.to_dense()
