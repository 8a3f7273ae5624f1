"""The binary matrix as the search sees it: distinct rows, distinct columns, each column mostly 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch.exceptions import DataError

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Patterns:
    """Distinct rows of a binary matrix, over its distinct columns.

    Columns that are constant, or that repeat or complement another one, split nothing anew and are left out.
    A column that is 1 in more than half of the rows is turned over, so that products of columns are sparse.

    Attributes:
        literals: (U, F) uint8, the distinct rows.
        columns: (F,), the column of the matrix behind each feature.
        flipped: (F,) bool, True where a literal of 1 means a matrix entry of 0.
        of_row: (N,), the distinct row that each row of the matrix is.
    """

    literals: npt.NDArray[np.uint8]
    columns: IntArray
    flipped: BoolArray
    of_row: IntArray

    @classmethod
    def of(cls, features: BoolArray, merge_columns: bool = True) -> Patterns:
        """Collapse the rows and columns of an (N, p) boolean matrix.

        Args:
            features: the matrix.
            merge_columns: False keeps columns that repeat or complement others: tests may cost differently.
        """
        n = len(features)
        counts = features.sum(axis=0, dtype=np.int64)
        flipped = (2 * counts > n) | ((2 * counts == n) & features[0])
        turned = features ^ flipped
        packed = np.packbits(turned.T, axis=1)
        first: dict[bytes, int] = {}
        for column in np.flatnonzero((counts > 0) & (counts < n)):
            key = packed[column].tobytes() if merge_columns else str(column).encode()
            first.setdefault(key, int(column))
        columns = np.fromiter(first.values(), dtype=np.int64, count=len(first))
        literals = np.ascontiguousarray(turned[:, columns]).view(np.uint8)
        index, of_row = _distinct_rows(literals)
        return cls(literals[index], columns, flipped[columns], of_row)

    @property
    def n_features(self) -> int:
        """F."""
        return int(self.literals.shape[1])

    def tensor(self, device: torch.device) -> Tensor:
        """(U, F + 2) float64: a column of ones, the literals, a column of ones."""
        padded = np.ones((len(self.literals), self.n_features + 2))
        padded[:, 1:-1] = self.literals
        return torch.from_numpy(padded).to(device)


def check_binary(features: object) -> tuple[BoolArray, list[str]]:
    """The feature matrix as (N, p) booleans, and the names of its columns.

    Raises:
        DataError: not two-dimensional, no rows or columns, or an entry that is neither 0 nor 1; the message
            names the first column with such an entry.
    """
    if isinstance(features, pd.DataFrame):
        names = [str(name) for name in features.columns]
        array: npt.NDArray[Any] = features.to_numpy()
    else:
        array = np.asarray(features)
        names = [f"x{j}" for j in range(array.shape[1])] if array.ndim == 2 else []
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"features: expected a matrix with rows and columns, got the shape {array.shape}")
    if array.dtype == np.bool_:
        return array, names
    binary = np.isin(array, (0, 1))
    if not binary.all():
        column = int(np.flatnonzero(~binary.all(axis=0))[0])
        row = int(np.flatnonzero(~binary[:, column])[0])
        raise DataError(
            f"features: column {names[column]!r} holds {array[row, column]!r} in row {row}, "
            "but exact trees split on 0/1 columns; use sstorch.optimal.Binarizer first"
        )
    return array.astype(np.bool_), names


def _distinct_rows(literals: npt.NDArray[np.uint8]) -> tuple[IntArray, IntArray]:
    """Index of the first of each group of equal rows, and the group of every row."""
    packed = np.packbits(literals, axis=1)
    words = -(-packed.shape[1] // 8)
    padded = np.zeros((len(packed), max(words, 1) * 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    keys = padded.view(np.uint64)
    if keys.shape[1] == 1:
        _, index, of_row = np.unique(keys[:, 0], return_index=True, return_inverse=True)
    else:
        _, index, of_row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return index.astype(np.int64), of_row.reshape(-1).astype(np.int64)
