"""The rows that the problems of a batch look at, stored once per data split."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.data.coded import CodedMatrix, RowFeatures, SplitFeatures, SplitMatrices, dense
from sstorch.memory import at_once

# Where copies of the rows of each problem cost more than they save.
MAX_TILE_FEATURES = 32
MAX_TILE_ELEMENTS = 2**24
# Multiples of the golden ratio modulo one are evenly spread and never periodic.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class DesignMatrix(Batched):
    """Feature matrices shared by the problems of a batch.

    A batch holds problems of one or more splits (folds). Problems of a split read the same matrix, in
    which the split's own preprocessing is already applied; no matrix is copied per problem. Problems are
    ordered by split.

    Attributes:
        stored: features, shape (n_splits, n_rows, p), categories of many levels possibly as codes. Shorter
            splits are padded at the end.
        counts: number of problems of each split; their sum is R.
        rows: optional rows each problem keeps, shape (R, M), integer; ``None`` keeps all.
        tiles: copies of their features, where these are small enough to pay, shape (R, p, M).
    """

    stored: SplitFeatures = field(metadata=SHARED)
    counts: tuple[int, ...] = field(metadata=SHARED)
    rows: Tensor | None = None
    tiles: Tensor | None = None

    @property
    def matrices(self) -> Tensor:
        """The features as numbers, those of categories too."""
        return dense(self.stored)

    @property
    def n_rows(self) -> int:
        """Rows per problem, M."""
        return int(self.stored.shape[1] if self.rows is None else self.rows.shape[1])

    def project(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Scores weight . x + bias, (R, K, M), by weight (R, K, p) and bias (R, K): one product per split."""
        if self.tiles is not None:
            return torch.baddbmm(bias[..., None], weight, self.tiles)
        parts = [
            self._scores(split, part)
            for split, part in enumerate(weight.split(self.counts))
            if self.counts[split]
        ]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.rows is not None:
            scores = scores.gather(-1, self.rows[:, None, :].expand(-1, scores.shape[1], -1))
        return scores + bias[..., None]

    def _scores(self, split: int, weight: Tensor) -> Tensor:
        """Weight . x of all rows of a split, (r, K, p) -> (r, K, n)."""
        if isinstance(self.stored, Tensor):
            return torch.matmul(weight, self.stored[split].T)
        scores = self.stored[split].project(weight, weight.new_zeros(1))
        return torch.nn.functional.pad(scores, (0, self.stored.n_rows - scores.shape[-1]))

    def spread(self, values: Tensor, stride: int = 1) -> Tensor:
        """Sums of values (R, ..., M) of kept rows at one in `stride` of all rows, (R, ..., n)."""
        if self.rows is not None:
            lead = values.shape[1:-1]
            rows = self.rows.reshape(-1, *(1,) * len(lead), self.rows.shape[-1]).expand(values.shape)
            whole = values.new_zeros(*values.shape[:-1], self.stored.shape[1])
            values = whole.scatter_add_(-1, rows, values)
        return values[..., self._thinned(stride, values.device)]

    def thin(self, stride: int) -> DesignMatrix:
        """One in `stride` of all rows, kept or not, for all problems."""
        matrices = self.matrices
        return DesignMatrix(matrices[:, self._thinned(stride, matrices.device)], self.counts)

    def _thinned(self, stride: int, device: torch.device) -> slice | Tensor:
        """One row in each `stride`, at places that do not repeat.

        Every stride-th row would be the same visit of every subject where all have as many.
        """
        if stride == 1:
            return slice(None)
        first = torch.arange(0, self.stored.shape[1], stride, device=device)
        place = (first / stride * _GOLDEN % 1.0 * stride).long()
        return (first + place).clamp(max=self.stored.shape[1] - 1)

    def pull_back(self, weight: Tensor) -> Tensor:
        """Weighted sums of x and of ones, the adjoint of :meth:`project`: (R, K, M) -> (R, K, p + 1)."""
        if self.tiles is not None:
            sums = torch.bmm(weight, self.tiles.mT)
        else:
            splits = zip(self.spread(weight).split(self.counts), self.matrices, strict=True)
            sums = torch.cat([torch.matmul(part, matrix) for part, matrix in splits if len(part)])
        return torch.cat([sums, weight.sum(-1, keepdim=True)], dim=-1)

    def gram(self, weight: Tensor) -> Tensor:
        """Sums of x x', a one appended to x, (R, K, p + 1, p + 1), weighted by (R, K, M)."""
        n_features = self.matrices.shape[-1]
        row, column = torch.triu_indices(n_features + 1, n_features + 1, device=weight.device).unbind(0)
        place = torch.zeros(n_features + 1, n_features + 1, dtype=torch.long, device=weight.device)
        place[row, column] = place[column, row] = torch.arange(len(row), device=weight.device)
        extended = torch.nn.functional.pad(self.matrices, (0, 1), value=1.0)
        weight = self.spread(weight)
        # One product of matrices per split, with the products of features formed once for all problems.
        splits = zip(weight.split(self.counts), extended, strict=True)
        sums = [
            torch.matmul(part, matrix[:, row] * matrix[:, column]) for part, matrix in splits if len(part)
        ]
        return torch.cat(sums)[..., place]

    def features(self, chosen: slice) -> DesignMatrix:
        """Views of some of the features, consecutive ones."""
        tiles = None if self.tiles is None else self.tiles[:, chosen]
        return DesignMatrix(_some_features(self.stored, chosen), self.counts, self.rows, tiles)

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
        """Keep, for each problem, the rows at positions ``rows`` (R, M') of those it has now.

        With few features, or few rows kept, a copy of a problem's own rows is faster, two to four times, than
        scores of all rows of which some are picked.
        """
        rows = rows if self.rows is None else self.rows.gather(-1, rows)
        n_features = self.stored.shape[-1]
        tiles = None
        few = n_features <= MAX_TILE_FEATURES or 2 * rows.shape[-1] <= self.stored.shape[1]
        if few and rows.numel() * n_features <= at_once(1, MAX_TILE_ELEMENTS):
            counts = torch.tensor(self.counts, device=rows.device)
            split = torch.arange(len(counts), device=rows.device).repeat_interleave(
                counts, output_size=len(rows)
            )
            # Rows last: one gather a feature.
            tiles = self.matrices.mT.contiguous()[split].gather(
                -1, rows[:, None, :].expand(-1, n_features, -1)
            )
        return DesignMatrix(self.stored, self.counts, rows, tiles)


Features = Tensor | CodedMatrix | DesignMatrix
FeaturesT = TypeVar("FeaturesT", Tensor, DesignMatrix, RowFeatures, SplitFeatures, Features)


def first_features(x: FeaturesT, count: int) -> FeaturesT:
    """The first so many features of rows, those that gates see; what is given if it has no others."""
    return _some_features(x, slice(0, count))


def last_features(x: FeaturesT, count: int) -> FeaturesT:
    """The last so many features of rows, those that leaves see."""
    width = _width(x)
    return _some_features(x, slice(width - count, width))


def _width(x: Features | SplitMatrices) -> int:
    return x.stored.shape[-1] if isinstance(x, DesignMatrix) else x.shape[-1]


def _some_features(x: FeaturesT, chosen: slice) -> FeaturesT:
    if chosen == slice(0, _width(x)):
        return x
    return x[..., chosen] if isinstance(x, Tensor) else x.features(chosen)


def project(x: Features, weight: Tensor, bias: Tensor) -> Tensor:
    """Linear scores weight . x + bias, shapes (..., K, p) and (..., K) -> (..., K, N), rows last."""
    if not isinstance(x, Tensor):
        return x.project(weight, bias)
    return torch.matmul(weight, x.mT) + bias[..., None]
