"""Binary labels, groups and weights, checked and as integers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal.fronts.base import FloatArray, IntArray

_WEIGHT_BITS = 20


def two_values(name: str, values: npt.ArrayLike, meaning: str) -> IntArray:
    """A column of 0 and 1, of both, as integers.

    Args:
        name: of the argument, for messages.
        values: (N,).
        meaning: what a row of 1 is, for messages.

    Raises:
        DataError: not one-dimensional, another value, or only one of the two.
    """
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise DataError(f"{name}: expected a column of 0 and 1, got the shape {array.shape}")
    if not np.isin(array, (0, 1)).all():
        other = array[~np.isin(array, (0, 1))][0]
        raise DataError(f"{name}: expected 0 and 1 (1 is {meaning}), found {other!r}")
    whole = array.astype(np.int64)
    if whole.min() == whole.max():
        raise DataError(f"{name}: all rows are {whole[0]}, there is nothing to tell apart")
    return whole


def whole_weights(weight: npt.ArrayLike | None, n_rows: int) -> tuple[IntArray, float]:
    """Weights as integers, and what 1 of them is.

    Raises:
        DataError: another number of weights than rows, or one that is negative or not finite.
        ConfigError: weights that are no multiples of 2**-20.
    """
    if weight is None:
        return np.ones(n_rows, dtype=np.int64), 1.0
    array: FloatArray = np.asarray(weight, dtype=np.float64)
    if array.shape != (n_rows,):
        raise DataError(
            f"sample_weight: expected one for each of the {n_rows} rows, got the shape {array.shape}"
        )
    if not np.isfinite(array).all() or (array < 0.0).any():
        raise DataError("sample_weight: expected finite numbers of at least 0")
    for bits in range(_WEIGHT_BITS + 1):
        scaled = array * 2.0**bits
        if (scaled == np.round(scaled)).all():
            return scaled.astype(np.int64), 2.0**-bits
    raise ConfigError(
        f"sample_weight: fronts are compared exactly and take multiples of 2**-{_WEIGHT_BITS} only; round "
        "them, such as np.round(sample_weight * 1024) / 1024"
    )


def share(name: str, value: float) -> Fraction:
    """A number from 0 to 1 as the decimal number it is written as.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, bool) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}={value!r}: expected a number from 0 to 1")
    return Fraction(Decimal(repr(float(value))))
