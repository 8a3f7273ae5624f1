"""Times at which curves are scored: the grid of each convention, of incidences, and thinned grids."""

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_horizon
from sstorch.exceptions import DataError
from sstorch.memory import set_limit
from sstorch.metrics.checks import check_observed_horizon, check_time
from sstorch.metrics.outcome import Outcome, read_rows

# No gap of a "graf" grid is wider than this share of the follow-up.
_GRAF_STEPS = 200
_SURTREE_POINTS = 101
# Its authors' times are days and months: in seconds steps of one unit would fill the memory.
_SURTREE_STEPS = 10_000
# What the authors of "surtree" take from the largest test time, at which no row is at risk any more.
_SURTREE_STEP_BACK = 1e-3
_N_TIMES = 100
# Before the first few events there is nothing to score, and after the last weights for censoring grow large.
_FIRST_QUANTILE, _LAST_QUANTILE = 0.02, 0.9
# Curves are read at every time of a grid while rows x times are no more: a GiB of float64.
WHOLE_ELEMENTS = 2**27
# Beyond, a thinned grid has so many times, and so many values for all rows: half a GiB.
MOST_TIMES = 512
MOST_ELEMENTS = 2**26
LEAST_TIMES = 32


def evaluation_times(time: npt.ArrayLike, train_time: npt.ArrayLike, convention: str = "graf") -> FloatArray:
    """Default grid of times of a convention.

    "graf": the distinct positive test times and 200 equal steps up to the largest. "sksurv": the distinct
    test times strictly inside both the test and the training follow-up. "surtree": from the 10 to the 90 %
    quantile of the distinct test times, 101 points if the range is at most 100 units of time, else steps of
    one unit, at most 10,000. "osst": the distinct test times.

    `time` (n,) are the observed times of the test rows, `train_time` (n_train,) those of the training rows in
    the same unit; the times of the convention "trapezoid" are up to its user.

    Returns:
        The grid, strictly increasing, shape (n_times,), in the unit of `time`.

    Raises:
        DataError: times that are not finite and >= 0, or an empty grid: all test times are 0, or fewer than
            two are inside the range.
        ConfigError: an unknown convention.

    Examples:
        >>> evaluation_times([1, 2, 3, 4, 5], train_time=[2, 9], convention="sksurv")
        array([3., 4.])
    """
    check_choice(convention, "convention", ("graf", "sksurv", "surtree", "osst"))
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
        step = max(1.0, (high - low) / _SURTREE_STEPS)
        return np.union1d(np.arange(low, high, step), [high])
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
    """The window of the convention "surtree": the 10 and the 90 % quantile of the distinct test times."""
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


def incidence_times(y: Outcome, tau: float | None = None) -> FloatArray:
    """About a hundred quantiles of event times, from 2 % to `tau` or 90 %; a tuple is (time, cause)."""
    # Beyond the 90 % quantile censoring weights increase.
    known = read_rows(y, "a grid of times", causes=True, entry=True, weight=True).counted()
    if tau is not None:
        check_observed_horizon(check_horizon(tau, "tau"), known.time, "tau")
    events = known.time[known.event]
    if events.size == 0:
        raise DataError("cause: no row has an event: default times of scores are not defined.")
    last = _LAST_QUANTILE if tau is None else float((events <= tau).mean())
    times = np.quantile(events, np.linspace(min(_FIRST_QUANTILE, last), last, _N_TIMES))
    return np.unique(times if tau is None else np.append(times[times < tau], tau))


def thinned(times: FloatArray, n_rows: int) -> FloatArray:
    """Thin increasing times, (n_times,), so that curves of many rows need bounded memory."""
    # Half are quantiles, half the first at or after equal steps, whatever memory of the machine is free.
    limit = set_limit()
    whole, most = (
        elements if limit is None else min(elements, limit // 8)
        for elements in (WHOLE_ELEMENTS, MOST_ELEMENTS)
    )
    if n_rows * times.size <= whole:
        return times
    count = min(times.size, max(LEAST_TIMES, min(MOST_TIMES, most // n_rows)))
    quantiles = np.linspace(0, times.size - 1, count - count // 2).round().astype(np.int64)
    steps = np.searchsorted(times, np.linspace(times[0], times[-1], count // 2 + 2)[1:-1])
    return times[np.union1d(quantiles, steps)]


def thinned_together(grids: dict[str, FloatArray], n_rows: int) -> dict[str, FloatArray]:
    """Grids of the same curves, :func:`thinned` together; each keeps its range and its ends."""
    union = np.unique(np.concatenate([[], *grids.values()]))
    some = thinned(union, n_rows)
    if some.size == union.size:
        return grids
    some = np.unique(np.concatenate([some, *(grid[[0, -1]] for grid in grids.values() if grid.size)]))
    ends = {name: (grid.min(initial=np.inf), grid.max(initial=-np.inf)) for name, grid in grids.items()}
    return {name: some[(some >= first) & (some <= last)] for name, (first, last) in ends.items()}
