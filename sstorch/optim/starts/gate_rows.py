"""Rows as gates are placed on them: numbers, and the level of each category."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.data.coded import CodedMatrix


@dataclass(frozen=True)
class GateColumns:
    """Features of gates by raw column.

    Attributes:
        places: positions of the features of each column; a number precedes its curve.
        categorical: True for a categorical column, with one feature per category.
    """

    places: tuple[IntArray, ...]
    categorical: tuple[bool, ...]


@dataclass(frozen=True)
class Split:
    """A gate on one raw column: left where slope . x + constant >= 0, x the features of gates."""

    column: int  # number of the raw column
    slope: FloatArray  # shape (q,)
    constant: float  # of the score


@dataclass(frozen=True)
class GateRows:
    """The q features of gates of n rows."""

    numbers: FloatArray  # features that are stored as they are, (n, d)
    # position of the indicator that is one in its block, the size of the block for none, (n, C)
    codes: IntArray
    places: IntArray  # positions of the numbers among the features, (d,)
    blocks: tuple[tuple[int, int], ...] = ()  # first feature and size of the block of each column of codes

    @classmethod
    def of(cls, x: FloatArray | GateRows) -> GateRows:
        """The same rows; of an array all features are numbers."""
        if isinstance(x, GateRows):
            return x
        return cls(x, np.zeros((len(x), 0), dtype=np.int64), np.arange(x.shape[1]))

    @classmethod
    def of_matrix(cls, x: CodedMatrix) -> GateRows:
        """The same rows of one matrix, (n, q)."""
        codes = x.codes.cpu().numpy().astype(np.int64)
        return cls(x.numbers.double().cpu().numpy(), codes, x.places.cpu().numpy(), x.blocks)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice | IntArray) -> GateRows:
        return GateRows(self.numbers[rows], self.codes[rows], self.places, self.blocks)

    @property
    def n_features(self) -> int:
        """Number of features, q."""
        return len(self.places) + sum(size for _, size in self.blocks)

    def dense(self) -> Tensor:
        """All features as numbers, (n, q)."""
        codes, places = torch.as_tensor(self.codes), torch.as_tensor(self.places)
        return CodedMatrix(torch.as_tensor(self.numbers), codes, places, self.blocks).to_dense()

    def deviations(self, weight: FloatArray) -> FloatArray:
        """Standard deviations of the numbers by weights (n,) with sum one; zero for indicators, (q,)."""
        out = np.zeros(self.n_features)
        variance = weight @ self.numbers**2 - (weight @ self.numbers) ** 2
        out[self.places] = np.sqrt(np.maximum(variance, 0))
        return out

    def score(self, slope: FloatArray, rows: IntArray | slice = slice(None)) -> FloatArray:
        """Slope . x of rows, (n,)."""
        used = np.flatnonzero(slope[self.places])
        out: FloatArray = self.numbers[rows][:, used] @ slope[self.places[used]]
        for k, (first, size) in enumerate(self.blocks):
            table = np.r_[slope[first : first + size], 0.0]
            if table.any():
                out = out + table[self.codes[rows, k]]
        return out

    def number(self, place: int, rows: IntArray) -> FloatArray:
        """A number of rows, (n,)."""
        out: FloatArray = self.numbers[rows, self._at[place]]
        return out

    def levels(self, places: IntArray, rows: IntArray) -> IntArray:
        """Level of a category with indicators at some places, 0 ... L - 1, and L for none, (n,)."""
        first = int(places[0])
        for k, (start, _) in enumerate(self.blocks):
            if start == first:
                return np.asarray(self.codes[rows, k])
        block = self.numbers[np.ix_(rows, self._at[places])]
        return np.asarray(np.where(block.any(axis=1), block.argmax(axis=1), len(places)))

    def in_order(self) -> Iterator[tuple[int, int | None]]:
        """Position and size of each block of indicators, and position and None of each number, in order."""
        numbers: list[tuple[int, int | None]] = [(int(place), None) for place in self.places]
        return iter(sorted([*numbers, *self.blocks], key=lambda each: each[0]))

    @cached_property
    def _at(self) -> IntArray:
        """Column of each feature among the numbers; -1 for indicators that are stored as codes."""
        at = np.full(self.n_features, -1)
        at[self.places] = np.arange(len(self.places))
        return at
