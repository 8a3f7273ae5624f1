"""Rows as gates are placed on them: numbers, and the level of each category."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.data.design_matrix import DesignMatrix


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


def deviations(x: DesignMatrix, weight: FloatArray) -> FloatArray:
    """Standard deviations (q,) of the numbers of rows by weights (n,) with sum one; 0 for coded ones."""
    out, numbers = np.zeros(x.shape[-1]), x.numbers.numpy()
    variance = weight @ numbers**2 - (weight @ numbers) ** 2
    out[x.places.numpy()] = np.sqrt(np.maximum(variance, 0))
    return out


def scores(x: DesignMatrix, slope: FloatArray, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Slope . x of rows, (n,), by the features that it looks at."""
    used = np.flatnonzero(slope)
    out: FloatArray = x.columns(used.tolist(), rows).numpy() @ slope[used]
    return out


def levels(x: DesignMatrix, places: IntArray, rows: IntArray) -> IntArray:
    """Level of a category with indicators at some places, 0 ... L - 1, and L for none, (n,)."""
    for k, (first, _) in enumerate(x.blocks):
        if first == places[0] and x.codes is not None:
            return np.asarray(x.codes.numpy()[rows, k], dtype=np.int64)
    block = x.columns(places.tolist(), rows).numpy()
    return np.asarray(np.where(block.any(axis=1), block.argmax(axis=1), len(places)))


def in_order(x: DesignMatrix) -> Iterator[tuple[int, int | None]]:
    """Position and size of each block of indicators, and position and None of each number, in order."""
    numbers: list[tuple[int, int | None]] = [(place, None) for place in x.places.tolist()]
    return iter(sorted([*numbers, *x.blocks], key=lambda each: each[0]))
