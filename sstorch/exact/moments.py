"""Totals of rows by the features that they have: patterns, products and moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exact.rounding import quantise
from sstorch.exact.task import Entries
from sstorch.exact.tree import Nested
from sstorch.exceptions import DataError

_BASE_BITS = 8
# With fewer rows it takes longer to put the digits of sums together than it saves.
MANY_ROWS = 1000


@dataclass(frozen=True)
class Patterns:
    """Distinct rows of a binary matrix, over its distinct columns.

    Columns that are constant, or that repeat or complement another one, split nothing again and are excluded.
    A column that is 1 in more than half of the rows is turned over, so that products of columns are sparse.

    Features are chains: rows that have one of a chain have all those before it, as with the thresholds of a
    column. A feature may be a chain of its own.
    """

    # (U, F) uint8, the distinct rows, sorted by the features in the order of chains
    literals: npt.NDArray[np.uint8]
    order: IntArray  # (F,), the features in the order of chains
    chain: IntArray  # (F,), where in that order the chain of each begins
    columns: IntArray  # (F,), the column of the matrix behind each feature
    flipped: BoolArray  # (F,) bool, True where a literal of 1 means a matrix entry of 0
    of_row: IntArray  # (N,), the distinct row that each row of the matrix is
    features: BoolArray  # (N, p) bool, the matrix
    names: tuple[str, ...]  # of its columns

    @classmethod
    def of(cls, features: object, merge_columns: bool = True) -> Patterns:
        """Collapse the rows and columns of a binary matrix, (N, p). Raises DataError: it is not binary.

        Without `merge_columns` those that repeat or complement others stay: their tests may cost differently.
        """
        matrix, names = check_binary(features)
        n = len(matrix)
        by_column = np.ascontiguousarray(matrix.T)
        packed = np.packbits(by_column, axis=1)
        width, bits = packed.shape[1], packed.tobytes()
        codes = [int.from_bytes(bits[at : at + width]) for at in range(0, len(bits), width)]
        counts = [code.bit_count() for code in codes]
        first_row, every = 1 << (8 * width - 1), ((1 << n) - 1) << (8 * width - n)
        flipped = [
            2 * m > n or (2 * m == n and code >= first_row) for m, code in zip(counts, codes, strict=True)
        ]
        codes = [code ^ every if turn else code for turn, code in zip(flipped, codes, strict=True)]
        kept = [j for j, m in enumerate(counts) if 0 < m < n]
        if merge_columns:
            kept = sorted({codes[j]: j for j in reversed(kept)}.values())
        order, chain = _chains([codes[j] for j in kept])
        columns, turned = np.array(kept, dtype=np.int64), np.array([flipped[j] for j in kept], dtype=np.bool_)
        by_feature = by_column[columns] ^ turned[:, None]
        index, of_row = _distinct_rows(by_feature[order])
        literals = np.ascontiguousarray(by_feature[:, index].T).view(np.uint8)
        return cls(literals, order, chain, columns, turned, of_row, matrix, tuple(names))

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.of_row)

    @property
    def n_features(self) -> int:
        """F."""
        return int(self.literals.shape[1])

    def tensor(self, device: torch.device) -> Tensor:
        """(U, F + 2) float64: a column of ones, the literals, a column of ones."""
        padded = np.ones((len(self.literals), self.n_features + 2))
        padded[:, 1:-1] = self.literals
        return torch.from_numpy(padded).to(device)

    def sums(self, entries: Entries) -> FloatArray:
        """(C, U), what the entries of one step add up to in each distinct row."""
        place = self.of_row[entries.row]
        return np.array([np.bincount(place, weights=v, minlength=len(self.literals)) for v in entries.values])

    def in_columns(self, tree: Nested) -> Nested:
        """A tree over columns of the matrix instead of features."""
        if not isinstance(tree, tuple):
            return tree
        feature, absent, present = tree[0], self.in_columns(tree[1]), self.in_columns(tree[2])
        if self.flipped[feature]:
            absent, present = present, absent
        return int(self.columns[feature]), absent, present


def check_binary(features: object) -> tuple[BoolArray, list[str]]:
    """The feature matrix as (N, p) booleans, and the names of its columns.

    Raises:
        DataError: no matrix with rows and columns, or an entry that is neither 0 nor 1.
    """
    if isinstance(features, pd.DataFrame):
        names = [str(name) for name in features.columns]
        array: npt.NDArray[Any] = features.to_numpy()
    else:
        array = np.asarray(features)
        names = [f"x{j}" for j in range(array.shape[1])] if array.ndim == 2 else []
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"features must be a matrix with rows and columns, got the shape {array.shape}")
    if array.dtype == np.bool_:
        return array, names
    ones = array == 1
    binary = ones | (array == 0)
    if not binary.all():
        column = int(np.flatnonzero(~binary.all(axis=0))[0])
        row = int(np.flatnonzero(~binary[:, column])[0])
        raise DataError(
            f"features: column {names[column]!r} holds {array[row, column]!r} in row {row}, "
            "but exact trees split on 0/1 columns; use sstorch.exact.Binarizer first"
        )
    return np.asarray(ones, dtype=np.bool_), names


def _chains(codes: list[int]) -> tuple[IntArray, IntArray]:
    """An order of the features (F,), and where in it the chain of each begins, (F,).

    A chain are neighbours of which each is in no rows but those of the one before, or in all of them.
    The bits of a code are the rows of a feature.
    """
    n = len(codes)
    order: list[int] = []
    chain: list[int] = []
    at = 0
    while at < n:
        end = at + 1
        rises = end < n and bool(codes[end] & ~codes[at])
        while end < n and not (codes[end - 1] & ~codes[end] if rises else codes[end] & ~codes[end - 1]):
            end += 1
        order += range(end - 1, at - 1, -1) if rises else range(at, end)
        chain += [at] * (end - at)
        at = end
    return np.array(order, dtype=np.int64), np.array(chain, dtype=np.int64)


def _distinct_rows(literals: BoolArray) -> tuple[IntArray, IntArray]:
    """Index of one row of each group of equal rows, and the group of every row, of literals (F, N).

    Groups come in the order of their first feature, then the second, and so on.
    """
    words = max(1, -(-len(literals) // 64))
    padded = np.zeros((literals.shape[1], 64 * words), dtype=np.bool_)
    padded[:, : len(literals)] = literals.T
    keys = np.packbits(padded, axis=1).view(">u8").astype(np.uint64)
    begins = np.empty(len(keys), dtype=np.bool_)
    begins[:1] = True
    if words == 1:
        order = keys[:, 0].argsort()
        ordered = keys[order, 0]
        np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    else:
        order = np.lexsort(keys.T[::-1])
        ordered = keys[order]
        begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    of_row = np.empty(len(order), dtype=np.int64)
    of_row[order] = begins.cumsum() - 1
    return order[begins], of_row


@cache
def _has_int8_instructions() -> bool:
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    return hasattr(torch, "_int_mm") and supported is not None and bool(supported())


@dataclass(frozen=True)
class RowSums:
    """Sums over rows of values times products of literals, exact.

    `literals` (U, F) are uint8, `values` (C, U) multiples of `unit` (C,) by channel. With `int8` digits of 8
    bits are multiplied instead of float64; the sums are the same.
    """

    literals: Tensor
    values: Tensor
    unit: Tensor
    int8: bool

    @classmethod
    def of(cls, literals: Tensor, values: Tensor, unit: Tensor) -> RowSums:
        """With 8-bit digits where they are faster: many rows, on a processor with instructions for them."""
        int8 = literals.device.type == "cpu" and len(literals) >= MANY_ROWS and _has_int8_instructions()
        return cls(literals, values, unit, int8)

    @cached_property
    def rows(self) -> Tensor:
        """(U, F) literals in the dtype of the products."""
        return self.literals.to(torch.int8 if self.int8 else torch.float64).contiguous()

    @cached_property
    def columns(self) -> Tensor:
        """(F, U), the same."""
        return self.rows.T.contiguous()

    @cached_property
    def weights(self) -> Tensor:
        """(U, G), the values in the dtype of the products, G digits in all; without digits G = C."""
        return (self._digits[0] if self.int8 else self.values).T.contiguous()

    def weighted(self, products: Tensor, rows: Tensor | None = None) -> Tensor:
        """(n, G, L): products of literals (n, L), times the weights of all or of some rows."""
        weights = self.weights if rows is None else self.weights.index_select(0, rows)
        return weights.unsqueeze(2) * products.unsqueeze(1)

    @cached_property
    def _digits(self) -> tuple[Tensor, list[tuple[int, int, float]]]:
        """Signed digits of all channels, and for each its channel's number, its place and its worth."""
        rows, places = [], []
        whole = torch.round(self.values / self.unit[:, None]).to(torch.int64)
        for channel, rest in enumerate(whole):
            place = 0
            while place == 0 or bool(rest.any()):
                digit = ((rest + 128) & 255) - 128
                rows.append(digit.to(torch.int8))
                worth = float(self.unit[channel]) * 2.0 ** (_BASE_BITS * place)
                places.append((channel, place, worth))
                rest = (rest - digit) >> _BASE_BITS
                place += 1
        return torch.stack(rows), places

    def multiply(self, products: Tensor, weighted: Tensor) -> Tensor:
        """Sums (C, R, L) over rows of products of literals (R, n) times `weighted` ones (n, G, L)."""
        _, n_digits, size = weighted.shape
        if not self.int8:
            sums = (products @ weighted.flatten(1)).view(-1, n_digits, size)
            return sums.movedim(1, 0)
        digits = torch._int_mm(products, weighted.flatten(1)).view(-1, n_digits, size)
        out = self.values.new_empty(len(self.values), len(products), size)
        for number, (channel, place, worth) in enumerate(self._digits[1]):
            if place == 0:
                torch.mul(digits[:, number], worth, out=out[channel])
            else:
                out[channel].add_(digits[:, number], alpha=worth)
        return out


@dataclass(frozen=True)
class Moments:
    """The entries of a task, collapsed over equal rows, and sums of them over products of literals."""

    literals: Tensor  # (E, F + 2) float64, the literals of each entry's row between two columns of ones
    values: Tensor  # (C, E), what each entry adds; multiples of a power of two of which all sums are exact
    unit: Tensor  # (C,), that power of two
    steps: tuple[int, ...]  # (S + 1,), where the entries of each step begin; entries are sorted by step

    @classmethod
    def of(cls, patterns: Patterns, entries: Entries, n_steps: int, device: torch.device) -> Moments:
        """Add up the entries of equal rows in the same step."""
        n_patterns = len(patterns.literals)
        if n_steps == 1:
            group, values = np.arange(n_patterns, dtype=np.int64), patterns.sums(entries)
        else:
            key = entries.step * n_patterns + patterns.of_row[entries.row]
            group, position = np.unique(key, return_inverse=True)
            values = np.stack(
                [np.bincount(position, weights=v, minlength=len(group)) for v in entries.values]
            )
        begin = np.searchsorted(group, np.arange(n_steps + 1) * n_patterns)
        literals = patterns.tensor(device)
        if n_steps > 1:
            literals = literals[torch.from_numpy(group % n_patterns).to(device)]
        exact, unit = (torch.from_numpy(array).to(device) for array in quantise(values))
        return cls(literals, exact, unit, tuple(begin.tolist()))

    @property
    def n_features(self) -> int:
        """F."""
        return self.literals.shape[1] - 2

    def row_sums(self) -> RowSums:
        """The rows and values of a task with one step."""
        return RowSums.of(self.literals[:, 1:-1], self.values, self.unit)

    def where(self, kept: Tensor) -> Moments:
        """The entries whose rows are `kept`, (E,) bool."""
        before = torch.nn.functional.pad(kept.cumsum(0), (1, 0)).tolist()
        return Moments(
            self.literals[kept], self.values[:, kept], self.unit, tuple(int(before[s]) for s in self.steps)
        )

    def has(self, feature: int) -> Tensor:
        """(E,) bool: rows in which the literal of a feature is 1."""
        return self.literals[:, feature + 1] > 0.0

    def total(self) -> Iterator[Tensor]:
        """Sums over all rows, (C,) for each step."""
        for begin, end in self._ranges():
            yield self.values[:, begin:end].sum(1)

    def singles(self) -> Iterator[Tensor]:
        """Sums over the rows of each literal, (C, F) for each step."""
        for begin, end in self._ranges():
            yield self.values[:, begin:end] @ self.literals[begin:end, 1:-1]

    def pairs(self) -> Iterator[Tensor]:
        """Sums over the rows of two literals, (C, 1 + F, 1 + F) for each step; the first ask for none."""
        rows = self.literals[:, :-1]
        for begin, end in self._ranges():
            part = rows[begin:end]
            yield (self.values[:, begin:end].unsqueeze(1) * part.T) @ part

    def _ranges(self) -> Iterator[tuple[int, int]]:
        return zip(self.steps[:-1], self.steps[1:], strict=True)
