"""Numbers rounded to multiples of a power of two, so that their sums are exact."""

from __future__ import annotations

import numpy as np

from sstorch._types import FloatArray
from sstorch.checks import blocks

# Fractions are rounded to this many bits below the largest one; fewer if sums need it.
_BITS = 46
_LARGEST_SUM = 2.0**53
# Values at once: those of many channels would take several times their room.
_BLOCK = 2**18


def quantise(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Round each channel (C, E) to multiples of a power of two, so coarse that all sums of it are exact.

    Integers stay as they are. Returns the values (C, E), and the unit of each channel (C,).
    """
    parts = list(blocks(len(values), max(values.shape[1], 1), _BLOCK))
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
    """Weights (N,) as whole numbers, all sums of which are exact, and the unit: weight = whole * unit.

    So a risk set without rows has exactly no weight. Integers keep their values; others are rounded to 47
    bits below the largest, or to as many as the sum of all weights leaves.
    """
    (rounded,), (unit,) = quantise(weight[None])
    return rounded / unit, float(unit)
