"""Checked numbers, weights and classes that objectives are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_same_order, check_weight
from sstorch.data.columns import row_labels
from sstorch.exceptions import DataError


def finite_matrix(values: npt.ArrayLike, name: str) -> FloatArray:
    """Read an (N, K) array.

    Raises:
        DataError: it is none, it is empty, or an entry is not finite; the message names the first one.
    """
    array = _numbers(values, name, "a matrix of numbers")
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{name} must be a matrix with rows and columns, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(
            f"{name}: row {row} holds {array[row, column]} in column {column}; give finite numbers"
        )
    return array


def finite_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """Read an (N,) array. Raises DataError: it is none, has another length, or an entry is not finite."""
    array = _numbers(values, name, "numbers")
    if array.ndim != 1 or len(array) == 0 or (n_rows is not None and len(array) != n_rows):
        wanted = "a list of numbers" if n_rows is None else f"{n_rows} numbers, one per row"
        raise DataError(f"{name} must be {wanted}, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{name}: row {row} holds {array[row]}; give finite numbers")
    return array


def _numbers(values: npt.ArrayLike, name: str, wanted: str) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be {wanted}: {error}") from error


def check_weights(sample_weight: npt.ArrayLike | None, n_rows: int, **others: Any) -> FloatArray:
    """Weights of rows, (N,), ones by default; row labels have to be those of the `others`.

    Raises:
        DataError: see `sstorch.checks.check_weight`.
    """
    check_same_order(**others, sample_weight=sample_weight)
    weight = check_weight(sample_weight, n_rows)
    return np.ones(n_rows) if weight is None else weight


def encode(labels: npt.ArrayLike, classes: npt.ArrayLike | None = None) -> tuple[npt.NDArray[Any], IntArray]:
    """Sorted classes (K,), and the position of each row's class among them (N,).

    Raises:
        DataError: no list of labels, or a label that is none of the classes.
    """
    given = np.asarray(labels)
    if given.ndim != 1 or len(given) == 0:
        raise DataError(f"labels must be one class per row, got the shape {given.shape}")
    row_labels(labels, len(given), "labels")
    present, codes = np.unique(given, return_inverse=True)
    if classes is None:
        return present, codes.astype(np.int64)
    every = np.unique(np.asarray(classes))
    if unknown := sorted(set(present.tolist()) - set(every.tolist())):
        raise DataError(f"labels: {unknown[0]!r} is none of the classes {every.tolist()}")
    return every, np.searchsorted(every, present)[codes].astype(np.int64)


def check_cost_matrix(cost_matrix: npt.ArrayLike | None, n_classes: int) -> FloatArray:
    """M[true class, predicted class], (K, K); None counts errors.

    Raises:
        DataError: another shape, or an entry that is negative or not finite.
    """
    if cost_matrix is None:
        return 1.0 - np.eye(n_classes)
    matrix = finite_matrix(cost_matrix, "cost_matrix")
    if matrix.shape != (n_classes, n_classes) or (matrix < 0.0).any():
        raise DataError(
            f"cost_matrix must have {n_classes} x {n_classes} costs >= 0, one row for each true class, got "
            f"{matrix.tolist()}"
        )
    return matrix
