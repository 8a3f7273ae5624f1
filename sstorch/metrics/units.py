"""Telling times in different units apart, and horizons that nobody was observed at."""

import numpy as np

from sstorch.exceptions import DataError
from sstorch.metrics.checks import BoolArray, FloatArray

# Samples smaller than this have no tails to tell a unit by.
_MIN_ROWS_FOR_UNITS = 20
# Medians that a model prolongs beyond the follow-up may lie far beyond it; those in another unit lie further.
_PROLONGED = 100.0


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
    if _all_below(time, other) or _all_below(other, time):
        _refuse(time, other, names)


def check_grid_unit(time: FloatArray, event: BoolArray, grid: FloatArray) -> None:
    """Refuse a grid of curves that cannot be in the unit of the rows.

    A grid of any size has to overlap the observed times. One of at least 20 times must not end before all but
    5 % of the events, nor have all but 5 % of its times beyond the last observed one.

    Args:
        time: observed times, shape (n,).
        event: event indicators, shape (n,).
        grid: strictly increasing, shape (n_times,).

    Raises:
        DataError: such a grid.
    """
    if grid[0] > time.max() or grid[-1] < time.min():
        raise DataError(
            f"times: expected a grid within the observed times, {time.min():g} to {time.max():g}; "
            f"got {grid[0]:g} to {grid[-1]:g}, where nothing was observed. Are both in one unit?"
        )
    # Before rare events a grid may well end where most rows are still under observation.
    if _all_below(grid, time[event]) or _all_below(time, grid):
        _refuse(time, grid, ("time", "times"))


def check_predicted_unit(time: FloatArray, predicted: FloatArray) -> None:
    """Refuse predicted times that cannot be in the unit of the observed ones.

    Those of at least 20 rows are refused where all lie below 95 % of the observed times, or half of them
    beyond a hundred times the largest: curves that hardly fall are prolonged far beyond the follow-up.

    Args:
        time: observed times, shape (n,).
        predicted: predicted times, infinite ones passed over, shape (n,).

    Raises:
        DataError: such predictions.
    """
    finite = predicted[np.isfinite(predicted)]
    enough = min(finite.size, time.size) >= _MIN_ROWS_FOR_UNITS
    if _all_below(finite, time) or (enough and np.median(finite) > _PROLONGED * time.max()):
        _refuse(time, finite, ("time", "predicted_time"))


def check_observed_horizon(horizon: float, time: FloatArray, name: str) -> None:
    """Refuse a horizon outside the observed times.

    Args:
        horizon: one time.
        time: observed times, shape (n,).
        name: the argument's name, for the message.

    Raises:
        DataError: no row was observed that long, or nothing had happened yet.
    """
    if not time.min() <= horizon <= time.max():
        raise DataError(
            f"{name}: expected a time within the observed ones, {time.min():g} to {time.max():g}; got "
            f"{horizon:g}. Are both in one unit?"
        )


def _all_below(low: FloatArray, high: FloatArray) -> bool:
    if min(low.size, high.size) < _MIN_ROWS_FOR_UNITS:
        return False
    return bool(low.max() < np.quantile(high, 0.05))


def _refuse(time: FloatArray, other: FloatArray, names: tuple[str, str]) -> None:
    raise DataError(
        f"{names[0]} and {names[1]}: expected times in one unit; got {time.min():g} to {time.max():g} and "
        f"{other.min():g} to {other.max():g}, which hardly overlap. Are these days and years?"
    )
