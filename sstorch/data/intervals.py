"""Times known up to an interval: interval-censored, left-, right-censored and exact rows in one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import rows_text
from sstorch.data.columns import check_same_order, check_size, numeric_values, to_pandas
from sstorch.exceptions import DataError

_FIELDS = ("lower", "upper")


@dataclass(frozen=True)
class Intervals:
    """Bounds of the event time of every row: it is after `lower`, and not after `upper`.

    Attributes:
        lower: (n,) >= 0; 0 where nothing is known from below: the row is left-censored, or unknown.
        upper: (n,); inf where the row is right-censored, equal to `lower` where the time is exact.
    """

    lower: FloatArray
    upper: FloatArray

    @property
    def censored(self) -> BoolArray:
        """Rows whose event came between two bounds, (n,): all but exact and right-censored ones."""
        return (self.lower < self.upper) & (self.upper < np.inf)

    @property
    def event(self) -> BoolArray:
        """Rows whose event has come by their upper bound, (n,)."""
        return self.upper < np.inf

    @property
    def middle(self) -> FloatArray:
        """The middle of each interval, (n,); the lower bound of a row without an upper one."""
        upper = np.where(self.event, self.upper, self.lower)
        return self.lower + (upper - self.lower) / 2

    def moved(self, rows: BoolArray, time: FloatArray) -> Intervals:
        """With exact and right-censored times of some rows, such as zeros, replaced."""
        bound = rows & ~self.censored
        return Intervals(np.where(bound, time, self.lower), np.where(bound & self.event, time, self.upper))

    def subset(self, index: IntArray) -> Intervals:
        """Those of the rows at positions ``index``."""
        return Intervals(self.lower[index], self.upper[index])


def interval(lower: object, upper: object) -> npt.NDArray[np.void]:
    """A target of event times that are known up to an interval, as R's ``Surv(type = "interval2")``.

    Args:
        lower: Last time at which the event had not come yet (n,), >= 0: 0 for a left-censored row.
        upper: First time at which it had (n,): infinite for a right-censored row, equal to `lower` for an
            exact time.

    Returns:
        Structured array (n,) with the fields ``lower`` and ``upper``; it splits by rows as any target does.

    Raises:
        DataError: A bound is missing, negative or text, a lower one infinite, or an interval reversed. Rows
            are given as 0-based positions.

    >>> interval([0, 2, 3, 5], [4, 2, 7, np.inf])
    array([(0.,  4.), (2.,  2.), (3.,  7.), (5., inf)],
          dtype=[('lower', '<f8'), ('upper', '<f8')])
    """
    check_same_order(("lower", lower), ("upper", upper))
    bounds = [_bound(values, name) for name, values in zip(_FIELDS, (lower, upper), strict=True)]
    if len(bounds[0]) != len(bounds[1]):
        raise DataError(f"{len(bounds[0])} lower but {len(bounds[1])} upper bounds; give one of each a row")
    low, high = bounds
    if (bad := np.isinf(low)).any():
        raise DataError(f"lower is infinite in {rows_text(bad)}; a row censored from the left has lower = 0")
    if (bad := low > high).any():
        raise DataError(f"lower is above upper in {rows_text(bad)}; are the bounds swapped?")
    target = np.empty(len(low), dtype=[(name, np.float64) for name in _FIELDS])
    target["lower"], target["upper"] = low, high
    return target


def _bound(values: object, name: str) -> FloatArray:
    array = values if isinstance(values, pd.Series) else np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{name} is an array of shape {array.shape}; give one bound for each row")
    numbers = numeric_values(pd.Series(array), name, "correct or remove these rows")
    check_size(numbers[np.isfinite(numbers)], name)
    if (bad := np.isnan(numbers)).any():
        raise DataError(
            f"{name} is missing in {rows_text(bad)}; a bound that is not known is 0 below and inf above"
        )
    if (bad := numbers < 0).any():
        raise DataError(f"{name} is negative in {rows_text(bad)}; times count from the start of follow-up")
    return numbers


def is_interval(y: object) -> bool:
    """Whether a target holds intervals: a structured array or a frame with the fields of `interval` alone."""
    if isinstance(y, np.ndarray):
        return y.dtype.names is not None and set(y.dtype.names) == set(_FIELDS)
    y = to_pandas(y)
    return isinstance(y, pd.DataFrame) and {str(name) for name in y.columns} == set(_FIELDS)


def parse_intervals(y: object) -> Intervals:
    """Read intervals.

    Args:
        y: A target for which :func:`is_interval` is true.

    Raises:
        DataError: As :func:`interval`.
    """
    values = to_pandas(y)
    lower, upper = (values[name] for name in _FIELDS)  # type: ignore[index]
    target = interval(lower, upper)
    return Intervals(target["lower"].copy(), target["upper"].copy())
