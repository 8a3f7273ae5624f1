"""Distinct rows of a binary matrix, over its distinct columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.columns import array_names
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import DataError


@dataclass(frozen=True)
class Patterns:
    """Distinct rows of a binary matrix, over its distinct columns that are not constant.

    A column that is 1 in more than half of the rows is turned over, so that products of columns are sparse.
    Features are chains: rows that have one of a chain have all those before it, as with thresholds.
    """

    literals: npt.NDArray[np.uint8]  # (U, F), the distinct rows, sorted by the features
    chain: IntArray  # (F,), where the chain of each feature begins
    columns: IntArray  # (F,), the column of the matrix behind each feature
    flipped: BoolArray  # (F,) bool, True where a literal of 1 means a matrix entry of 0
    row: IntArray  # (U,), a row of the matrix that is each distinct row
    of_row: IntArray  # (N,), the distinct row that each row of the matrix is
    features: BoolArray  # (N, p) bool, the matrix
    names: tuple[str, ...]  # of its columns

    @property
    def n_features(self) -> int:
        """F."""
        return int(self.literals.shape[1])

    @classmethod
    def of(cls, features: object, merge_columns: bool = True) -> Patterns:
        """Collapse a binary matrix, (N, p); with `merge_columns` columns that repeat or complement others."""
        matrix, names = check_binary(features)
        n = len(matrix)
        by_column = np.ascontiguousarray(matrix.T)
        packed = np.packbits(by_column, axis=1)
        width, bits = packed.shape[1], packed.tobytes()
        codes = [int.from_bytes(bits[at : at + width]) for at in range(0, len(bits), width)]
        counts = [code.bit_count() for code in codes]
        first_row, every = 1 << (8 * width - 1), ((1 << n) - 1) << (8 * width - n)
        flipped = [2 * m + (code >= first_row) > n for m, code in zip(counts, codes, strict=True)]
        codes = [code ^ every if turn else code for turn, code in zip(flipped, codes, strict=True)]
        kept = [j for j, m in enumerate(counts) if 0 < m < n]
        if merge_columns:
            kept = sorted({codes[j]: j for j in reversed(kept)}.values())
        order, chain = _chains([codes[j] for j in kept])
        columns = np.array(kept, dtype=np.int64)[order]
        turned = np.array(flipped, dtype=np.bool_)[columns]
        by_feature = by_column[columns] ^ turned[:, None]
        index, of_row = _distinct_rows(by_feature)
        literals = np.ascontiguousarray(by_feature[:, index].T).view(np.uint8)
        return cls(literals, chain, columns, turned, index, of_row, matrix, tuple(names))

    def sums(self, values: FloatArray) -> FloatArray:
        """(C, U), what the rows of values (C, N) add up to in each distinct row."""
        n_patterns = len(self.literals)
        return np.array([np.bincount(self.of_row, weights=v, minlength=n_patterns) for v in values])

    def leaves(self, tree: BinaryTree) -> IntArray:
        """The leaf of each row of the matrix, (N,), of a tree over its columns."""
        return tree.apply(self.features[self.row])[self.of_row]

    def in_columns(self, tree: Nested) -> Nested:
        """A tree over columns of the matrix instead of features."""
        if not isinstance(tree, tuple):
            return tree
        absent, present = map(self.in_columns, tree[1:])
        if self.flipped[tree[0]]:
            absent, present = present, absent
        return int(self.columns[tree[0]]), absent, present


def check_binary(features: object) -> tuple[BoolArray, list[str]]:
    """The feature matrix as (N, p) booleans, and the names of its columns. DataError: it is not binary."""
    if isinstance(features, pd.DataFrame):
        names = [str(name) for name in features.columns]
        array: npt.NDArray[Any] = features.to_numpy()
    else:
        array = np.asarray(features)
        names = array_names(array.shape[1]) if array.ndim == 2 else []
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"features must be a matrix with rows and columns, got the shape {array.shape}")
    if array.dtype == np.bool_:
        return array, names
    ones = array == 1
    if (other := ~(ones | (array == 0))).any():
        column, row = np.argwhere(other.T)[0].tolist()
        raise DataError(
            f"features: column {names[column]!r} holds {array[row, column]!r} in row {row}, "
            "but exact trees split on 0/1 columns; use sstorch.exact.Binarizer first"
        )
    return np.asarray(ones, dtype=np.bool_), names


def _chains(codes: list[int]) -> tuple[IntArray, IntArray]:
    """An order of features (F,), by codes with rows as bits, and where the chain of each begins, (F,)."""
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
    """Index of one row of each group of equal rows, in order, and the group of every row, of (F, N)."""
    words = max(1, -(-len(literals) // 64))
    padded = np.zeros((literals.shape[1], 64 * words), dtype=np.bool_)
    padded[:, : len(literals)] = literals.T
    keys = np.packbits(padded, axis=1).view(">u8").astype(np.uint64)
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    begins = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    of_row = np.empty(len(order), dtype=np.int64)
    of_row[order] = begins.cumsum() - 1
    return order[begins], of_row
