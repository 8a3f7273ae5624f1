"""Telling times in different units apart."""

import numpy as np

from sstorch.exceptions import DataError
from sstorch.metrics.checks import FloatArray

# Samples smaller than this have no tails to tell a unit by.
_MIN_ROWS_FOR_UNITS = 20


def check_same_unit(time: FloatArray, other: FloatArray, names: tuple[str, str]) -> None:
    """Refuse two samples of times that cannot be in one unit, such as days and years.

    Two samples of at least 20 times are refused where the largest of one lies below all but 5 % of the
    other. A mismatch whose ranges overlap more than that, such as days and weeks, cannot be told from data.

    Args:
        time: times, shape (n,).
        other: times, shape (m,).
        names: what the two are called in the message.

    Raises:
        DataError: the ranges do not overlap.
    """
    if min(time.size, other.size) < _MIN_ROWS_FOR_UNITS:
        return
    if time.max() < np.quantile(other, 0.05) or other.max() < np.quantile(time, 0.05):
        raise DataError(
            f"{names[0]} and {names[1]}: expected times in one unit; got {time.min():g} to "
            f"{time.max():g} and {other.min():g} to {other.max():g}, which hardly overlap. Are these days "
            "and years?"
        )
