"""Checks of times, events, grids and curves; errors name the first rows, which count from 0."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from scipy.stats import t as student

from sstorch._types import FloatArray, IntArray
from sstorch.checks import as_numbers, blocks, check_share, check_vector, rows_text
from sstorch.data.target import snapped, times_of_rows
from sstorch.exceptions import DataError

# Rounding of probabilities in float64, and the largest that is accepted.
_ROUNDING, _LARGEST_ROUNDING = 1e-9, 1e-5
# Between the machine epsilons of float32 and of 16-bit types.
_COARSEST = 1e-6
# Of one (times x rows) block: 1 MB of float64, which stays in the cache.
BLOCK_ELEMENTS = 2**17


def check_time(time: npt.ArrayLike, name: str = "time") -> FloatArray:
    """Observed times as float64, finite and >= 0, shape (n,); those that differ by rounding are equal."""
    array = check_vector(time, name)
    wrong = ~np.isfinite(array) | (array < 0.0)
    if wrong.any():
        raise DataError(f"{name} must be finite times >= 0, got {array[wrong][0]:g} in {rows_text(wrong)}.")
    return np.asarray(snapped(array)[0])


def check_cause(
    cause: npt.ArrayLike, name: str, n_rows: int | None = None, n_causes: int | None = None
) -> IntArray:
    """Causes of events, 0 (censored) .. K, as integers, shape (n,); K is not limited if it is None."""
    array = check_vector(cause, name, n_rows)
    wrong = (array != np.round(array)) | (array < 0.0) | (array > (np.inf if n_causes is None else n_causes))
    if wrong.any():
        known = "True/1 (observed) or False/0 (censored)"
        if name == "cause":
            known = f"0 (censored) or the number of a cause, 1 .. {n_causes or 'K'}"
        raise DataError(
            f"{name} must be {known}, got {array[wrong][0]:g} in {rows_text(wrong)}. Are time and {name} in "
            f"the order (time, {name})?"
        )
    return array.astype(np.int64)


def check_times(times: npt.ArrayLike, rows: FloatArray | None = None) -> FloatArray:
    """The grid of curves as float64, (n_times,): finite, >= 0, strictly increasing."""
    # A time that differs from one of `rows` (n,) by rounding becomes that one.
    grid = check_vector(times, "times")
    wrong = ~np.isfinite(grid) | (grid < 0.0)
    if wrong.any():
        raise DataError(
            f"times must be finite times >= 0, got {grid[wrong][0]:g} at position {wrong.argmax()}."
        )
    falls = np.diff(grid) <= 0.0
    if falls.any():
        k = int(falls.argmax())
        raise DataError(
            f"times must be strictly increasing times, got {grid[k]:g} then {grid[k + 1]:g} at positions "
            f"{k} and {k + 1}. numpy.unique sorts and removes repeats (order the columns of survival alike)."
        )
    return times_of_rows(grid, rows) if rows is not None and rows.size else grid


def check_observed_horizon(horizon: float, time: FloatArray, name: str) -> None:
    """Refuse a horizon outside the observed times, shape (n,)."""
    if not time.min() <= horizon <= time.max():
        raise DataError(
            f"{name} must be a time within the observed ones, {time.min():g} to {time.max():g}, got "
            f"{horizon:g}. Are both in one unit?"
        )


def check_overlap(time: FloatArray, grid: FloatArray) -> None:
    """Refuse a grid of curves outside the observed times (n,), as in another unit."""
    if grid[0] > time.max() or grid[-1] < time.min():
        raise DataError(
            f"times must be a grid within the observed times, {time.min():g} to {time.max():g}; "
            f"got {grid[0]:g} to {grid[-1]:g}, where nothing was observed. Are both in one unit?"
        )


def check_survival(survival: npt.ArrayLike, n_rows: int, n_times: int) -> FloatArray:
    """Curves S_i(t_k), (n_rows, n_times), in [0, 1] and falling up to 1e-9, or 16 epsilons in float32."""
    curves, shape = as_numbers(survival, "survival"), (n_rows, n_times)
    if curves.shape != shape:
        hint = " It looks transposed: rows come first." if curves.shape == shape[::-1] else ""
        hint = " Pass the curves of one cause." if curves.ndim == 3 else hint
        raise DataError(f"survival must have shape (n_samples, n_times) = {shape}, got {curves.shape}.{hint}")
    rounding = _rounding_of(survival, "survival")
    coarse = rounding > _ROUNDING  # as float64, such curves would not pass a second time
    if _fall(curves) and curves[:, 0].max() <= 1.0 + rounding and curves[:, -1].min() >= -rounding:
        return curves.clip(0.0, 1.0) if coarse else curves
    lowest, highest = curves.min(axis=1), curves.max(axis=1)  # NaN goes through both
    missing = np.isnan(lowest)
    if missing.any():
        raise DataError(f"survival: NaN in {rows_text(missing)}.")
    outside = (lowest < -rounding) | (highest > 1.0 + rounding)
    if outside.any():
        i = int(outside.argmax())
        raise DataError(
            f"survival must be probabilities in [0, 1], got values from {lowest[i]:g} to {highest[i]:g} in "
            f"{rows_text(outside)}. Pass survival, not risk and not cumulative hazard."
        )
    rises = np.zeros(n_rows, dtype=bool)
    for rows in blocks(n_rows, n_times):
        part = curves[rows]
        suspect = np.flatnonzero((part[:, 1:] > part[:, :-1]).any(axis=1))
        if suspect.size:  # steps within the rounding must not add up to a rise
            part = part[suspect]
            rises[rows.start + suspect] = (part - np.minimum.accumulate(part, axis=1) > rounding).any(axis=1)
    if rises.any():
        raise DataError(
            f"survival must be curves that do not increase with t; they increase in {rows_text(rises)}. "
            "Pass survival, not risk and not 1 - survival, with columns in the order of times."
        )
    return np.minimum.accumulate(curves.clip(0.0, 1.0), axis=1) if coarse else curves


def _fall(curves: FloatArray) -> bool:
    """Whether no curve (n, n_times) rises and none of several times is NaN; False for one time or no row."""
    n_rows, n_times = curves.shape
    if n_rows == 0 or n_times < 2:
        return False
    if curves.flags.f_contiguous:
        steps, by_time = blocks(n_times - 1, n_rows, BLOCK_ELEMENTS), curves.T
        return all(bool((by_time[k.start + 1 : k.stop + 1] <= by_time[:-1][k]).all()) for k in steps)
    return all(bool((curves[rows, 1:] <= curves[rows, :-1]).all()) for rows in blocks(n_rows, n_times))


def check_probability(values: npt.ArrayLike, name: str, n_rows: int) -> FloatArray:
    """One probability per row as float64, cut to [0, 1], shape (n_rows,); rounding as in `check_survival`."""
    array, rounding = check_vector(values, name, n_rows), _rounding_of(values, name)
    wrong = (array < -rounding) | (array > 1.0 + rounding)
    if wrong.any():
        raise DataError(
            f"{name} must be probabilities in [0, 1], got {array[wrong][0]:g} in {rows_text(wrong)}. Pass "
            f"{name}, not risk, not a time and not a cumulative hazard."
        )
    return np.clip(array, 0.0, 1.0)


def _rounding_of(values: Any, name: str) -> float:
    """Rounding of probabilities of the floating type of the values."""
    dtype = np.asarray(values).dtype
    epsilon = float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
    if epsilon > _COARSEST:
        raise DataError(
            f"{name} must be float32 or float64, got 16 bits or less, with a rounding of {epsilon:.1g}, "
            "as large as differences between models. Predict in float32, conversion afterwards is too late."
        )
    return min(_LARGEST_ROUNDING, max(_ROUNDING, 16.0 * epsilon))


def half_width(level: float, degrees_of_freedom: float | None = None) -> float:
    """Half the width of a confidence interval in standard errors: normal, or of Student's t distribution."""
    upper = 0.5 + 0.5 * check_share(level, "level")
    return float(norm.ppf(upper) if degrees_of_freedom is None else student.ppf(upper, degrees_of_freedom))
