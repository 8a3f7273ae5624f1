"""Times known up to an interval: interval-censored, left-, right-censored and exact rows in one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import rows_text
from sstorch.data.columns import check_size, numeric_values
from sstorch.data.target import column_of, snapped
from sstorch.exceptions import DataError


def no_intervals(what: str) -> DataError:
    """The error of whatever needs exact or right-censored times, called `what`."""
    return DataError(
        f"{what} does not support interval-censored outcomes; use log_likelihood of PrognosticTree, "
        "SurvivalRegression or SoftSurvivalTree"
    )


@dataclass(frozen=True)
class Intervals:
    """Bounds of event times: after `lower`, and at or before `upper`.

    Attributes:
        lower: (n,) >= 0; 0 without a lower bound (left-censored).
        upper: (n,); inf if right-censored, equal to `lower` if exact.
    """

    lower: FloatArray
    upper: FloatArray

    @property
    def censored(self) -> BoolArray:
        """Rows with an event between two bounds, (n,): neither exact nor right-censored."""
        return (self.lower < self.upper) & (self.upper < np.inf)

    @property
    def event(self) -> BoolArray:
        """Rows with an event by the upper bound, (n,)."""
        return self.upper < np.inf

    @property
    def middle(self) -> FloatArray:
        """Midpoint of each interval, (n,); the lower bound if right-censored."""
        upper = np.where(self.event, self.upper, self.lower)
        return self.lower + (upper - self.lower) / 2

    def moved(self, rows: BoolArray, time: FloatArray) -> Intervals:
        """Replace exact and right-censored times of some rows, such as zeros."""
        bound = rows & ~self.censored
        return Intervals(np.where(bound, time, self.lower), np.where(bound & self.event, time, self.upper))

    def subset(self, index: IntArray) -> Intervals:
        """Intervals of the rows at positions ``index``."""
        return Intervals(self.lower[index], self.upper[index])


def read_bounds(lower: object, upper: object) -> Intervals:
    """Bounds of event times, (n,) each, that are known up to an interval; see `Intervals`."""
    low, high = snapped(*(_bound(values, name) for name, values in (("lower", lower), ("upper", upper))))
    if len(low) != len(high):
        raise DataError(f"{len(low)} lower but {len(high)} upper bounds; give one of each a row")
    if (bad := np.isinf(low)).any():
        raise DataError(f"lower is infinite in {rows_text(bad)}; a row censored from the left has lower = 0")
    if (bad := low > high).any():
        raise DataError(f"lower is above upper in {rows_text(bad)}; are the bounds swapped?")
    return Intervals(low, high)


def _bound(values: object, name: str) -> FloatArray:
    numbers = numeric_values(column_of(values, name), name, "correct or remove these rows")
    check_size(numbers[np.isfinite(numbers)], name)
    if (bad := np.isnan(numbers)).any():
        raise DataError(
            f"{name} is missing in {rows_text(bad)}; a bound that is not known is 0 below and inf above"
        )
    if (bad := numbers < 0).any():
        remedy = "times count from the start of follow-up, and a bound that is not known is 0 below"
        raise DataError(f"{name} is negative in {rows_text(bad)}; {remedy}")
    return numbers
