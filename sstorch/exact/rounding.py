"""Numbers rounded to multiples of a power of two, so that their sums are exact."""

from __future__ import annotations

import numpy as np

from sstorch._types import FloatArray

# Fractions are rounded to this many bits below the largest one; fewer if sums need it.
_BITS = 46
_LARGEST_SUM = 2.0**53


def quantise(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Round each channel (C, E) to multiples of a power of two, so coarse that all sums of it are exact.

    Integers stay as they are. Returns the values (C, E), and the unit of each channel (C,).
    """
    whole = (values == np.rint(values)).all(axis=1)
    if whole.all():
        return values, np.ones(len(values))
    size = np.abs(values)
    largest = np.maximum(size.max(axis=1), 1e-300)
    unit = np.exp2(np.ceil(np.log2(largest)) - _BITS)
    coarsest = np.exp2(np.ceil(np.log2(np.maximum(size.sum(axis=1), 1e-300) / _LARGEST_SUM)))
    unit = np.where(whole, 1.0, np.maximum(unit, coarsest))
    return np.rint(values / unit[:, None]) * unit[:, None], unit


def whole_weights(weight: FloatArray) -> tuple[FloatArray, float]:
    """Weights (N,) as whole numbers, all sums of which are exact, and the unit: weight = whole * unit.

    So a risk set without rows has exactly no weight. Integers keep their values; others are rounded to 47
    bits below the largest, or to as many as the sum of all weights leaves.
    """
    (rounded,), (unit,) = quantise(weight[None])
    return rounded / unit, float(unit)
