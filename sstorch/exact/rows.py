"""Checked numbers, classes, weights and outcomes, from which tasks are made; weights as whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import as_numbers, blocks, check_same_order, check_vector, check_weight, rows_text
from sstorch.data.columns import row_labels
from sstorch.data.surv import as_surv
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
