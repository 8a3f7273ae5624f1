"""Checked numbers, classes, weights, outcomes and features of a search; distinct rows of its features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import as_numbers, blocks, check_same_order, check_vector, check_weight, rows_text
from sstorch.data.columns import array_names, row_labels
from sstorch.data.surv import as_surv
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import DataError
from sstorch.metrics.outcome import Observed, read_rows

# Fractions are rounded to this many bits below the largest one; fewer if sums need it.
_BITS = 46
_LARGEST_SUM = 2.0**53
# Values at once: those of many channels would take several times their room.
_BLOCK = 2**18


def finite_matrix(values: object, name: str) -> FloatArray:
    """An (N, K) array. Raises DataError: it is empty, or an entry is no finite number."""
    array = as_numbers(values, name)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{name} must be a matrix with rows and columns, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(
            f"{name}: row {row} holds {array[row, column]} in column {column}; give finite numbers"
        )
    return array


def finite_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """An (N,) array. Raises DataError: another length, or an entry is no finite number."""
    array = check_vector(values, name, n_rows)
    if (bad := ~np.isfinite(array)).any():
        raise DataError(f"{name} must be finite numbers, got {array[bad][0]} in {rows_text(bad)}")
    return array


def check_weights(sample_weight: npt.ArrayLike | None, n_rows: int, **others: Any) -> FloatArray:
    """Weights of rows, (N,), ones by default; row labels have to be those of the `others`."""
    check_same_order(**others, sample_weight=sample_weight)
    weight = check_weight(sample_weight, n_rows)
    return np.ones(n_rows) if weight is None else weight


def encode(labels: npt.ArrayLike, classes: npt.ArrayLike | None = None) -> tuple[npt.NDArray[Any], IntArray]:
    """Sorted classes (K,), and the position of each row's class among them (N,). DataError: it has none."""
    given = np.asarray(labels)
    if given.ndim != 1 or len(given) == 0:
        raise DataError(f"labels must be one class per row, got the shape {given.shape}")
    row_labels(labels, len(given), "labels")
    present, codes = np.unique(given, return_inverse=True)
    if classes is None:
        return present, codes.astype(np.int64)
    every = np.unique(np.asarray(classes))
    if len(unknown := np.setdiff1d(present, every).tolist()):
        raise DataError(f"labels: {unknown[0]!r} is none of the classes {every.tolist()}")
    return every, np.searchsorted(every, present)[codes].astype(np.int64)


def quantise(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Channels (C, E), but for integers, rounded to multiples of a unit (C,) that make all sums exact."""
    parts = blocks(len(values), max(values.shape[1], 1), _BLOCK)
    whole = np.concatenate([(part == np.rint(part)).all(axis=1) for part in (values[at] for at in parts)])
    if whole.all():
        return values, np.ones(len(values))
    rounded, unit = np.empty_like(values), np.ones(len(values))
    for at in parts:
        size = np.abs(values[at])
        largest, total = np.maximum(size.max(axis=1), 1e-300), np.maximum(size.sum(axis=1), 1e-300)
        finest = np.exp2(np.ceil(np.log2(largest)) - _BITS)
        coarsest = np.exp2(np.ceil(np.log2(total / _LARGEST_SUM)))
        unit[at] = np.where(whole[at], 1.0, np.maximum(finest, coarsest))
        part = np.divide(values[at], unit[at, None], out=rounded[at])
        np.multiply(np.rint(part, out=part), unit[at, None], out=part)
    return rounded, unit


def whole_weights(weight: FloatArray) -> tuple[FloatArray, float]:
    """Weights (N,) as whole numbers, all sums of which are exact, and the unit: weight = whole * unit."""
    (rounded,), (unit,) = quantise(weight[None])
    return rounded / unit, float(unit)


def weighted_rows(y: object, sample_weight: npt.ArrayLike | None = None) -> Observed:
    """Outcomes with whole weights; rows of weight 0 have no event. DataError: see `Surv`; or weights."""
    outcome = as_surv(y)
    rows = read_rows(outcome, "an exact tree", causes=outcome.causes is not None, entry=True, weight=True)
    weight, _ = whole_weights(check_weights(sample_weight, len(rows.time), y=outcome))
    return rows._replace(cause=rows.cause * (weight > 0.0), weight=weight, id=None)


@dataclass(frozen=True)
class Patterns:
    """Distinct rows over distinct columns that vary; columns of 1 in most rows are turned over."""

    literals: npt.NDArray[np.uint8]  # (U, F), the distinct rows, sorted by the features
    chain: IntArray  # (F,), where the chain of each feature begins: rows with one have all those before it
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
