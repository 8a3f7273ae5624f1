"""The times at which curves are to be predicted before they are scored."""

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import DataError
from sstorch.metrics.checks import FloatArray, check_convention, check_time

# No gap of a "graf" grid is wider than this share of the follow-up.
_GRAF_STEPS = 200
_SURTREE_POINTS = 101
# What the authors of "surtree" take from the largest test time, at which no row is at risk any more.
_SURTREE_STEP_BACK = 1e-3


def evaluation_times(time: npt.ArrayLike, train_time: npt.ArrayLike, convention: str = "graf") -> FloatArray:
    """The default grid of a convention: curves predicted there can be scored by it without clipping.

    "graf": the distinct positive test times, so that every event time is there and `concordance_harrell` may
    use the same curves, joined by 200 equal steps up to the largest test time tmax, so that few test rows
    with wide gaps between them still give a fine integral.

    "sksurv": the distinct test times strictly inside both the test and the training follow-up, the usual
    protocol. It misses the ends, so give concordance another grid.

    "surtree": from the 10 to the 90 % quantile of the distinct test times, 101 points if they are at most 100
    units of time apart, else steps of one unit. "osst": the distinct test times.

    Args:
        time: observed times of the test rows, shape (n,).
        train_time: observed times of the training rows, shape (n_train,), in the unit of `time`.
        convention: "graf", "sksurv", "surtree" or "osst".

    Returns:
        The grid, strictly increasing, shape (n_times,), in the unit of `time`.

    Raises:
        DataError: times that are not finite and >= 0, or no such grid: all test times are 0, or fewer than
            two of them lie inside the range.
        ConfigError: an unknown convention.

    Examples:
        >>> evaluation_times([1, 2, 3, 4, 5], train_time=[2, 9], convention="sksurv")
        array([3., 4.])
    """
    check_convention(convention)
    row_time, other_time = check_time(time), check_time(train_time, "train_time")
    last = row_time.max()
    if convention == "graf":
        if last == 0.0:
            raise DataError("time: all test times are 0, there is no follow-up to integrate over.")
        return np.union1d(row_time[row_time > 0.0], np.linspace(0.0, last, _GRAF_STEPS + 1)[1:])
    if convention == "surtree":
        low, high = surtree_window(row_time)
        if high - low <= _SURTREE_POINTS - 1:
            return np.linspace(low, high, _SURTREE_POINTS)
        return np.union1d(np.arange(low, high), [high])
    if convention == "osst":
        grid = np.unique(row_time)
        if grid.size < 2:
            raise DataError(f"time: convention 'osst' needs two distinct test times; got only {grid[0]:g}.")
        return grid
    low, high = max(row_time.min(), other_time.min()), min(last, other_time.max())
    grid = np.unique(row_time[(row_time > low) & (row_time < high)])
    if grid.size < 2:
        raise DataError(
            f"time: convention 'sksurv' needs two distinct test times inside ({low:g}, {high:g}), the "
            f"follow-up shared by test and training rows; got {grid.size}. Use larger folds or 'graf'."
        )
    return grid


def surtree_window(time: FloatArray) -> tuple[float, float]:
    """The window of the convention "surtree": the 10 and the 90 % quantile of the distinct test times.

    Args:
        time: observed times of the test rows, shape (n,).

    Returns:
        The entries len // 10 and 9 len // 10 of the sorted distinct times, the upper one 1e-3 less where it
        is the largest.

    Raises:
        DataError: the two are not in order.
    """
    distinct = np.unique(time)
    low, high = float(distinct[distinct.size // 10]), float(distinct[9 * distinct.size // 10])
    if high == distinct[-1]:
        high -= _SURTREE_STEP_BACK
    if high <= low:
        raise DataError(
            f"time: convention 'surtree' needs test times with distinct 10 and 90 % quantiles; got "
            f"{low:g} and {high:g} from {distinct.size} distinct times. Use larger folds or 'graf'."
        )
    return low, high
