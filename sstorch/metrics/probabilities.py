"""The gate for predicted probabilities: survival curves, and survival at one time."""

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import DataError
from sstorch.metrics.checks import FloatArray, check_vector, name_rows
from sstorch.metrics.conversion import as_numbers, rounding_unit

_ROUNDING = 1e-9
_LARGEST_ROUNDING = 1e-5
_COARSEST = 1e-6  # between the machine epsilons of float32 and of 16-bit types
# Elements of one block of curves, 8 MB of float64: checks take no more memory than this beside the curves.
_BLOCK = 2**20


def check_survival(survival: npt.ArrayLike, n_rows: int, n_times: int) -> FloatArray:
    """Survival curves on a grid.

    A curve may rise above its own running minimum, or leave [0, 1], by rounding: 1e-9 in float64, 16 machine
    epsilons in a coarser floating type (1.9e-6 in float32), never more than 1e-5. Curves of 16 bits are
    refused: their rounding is as large as differences between models.

    Args:
        survival: S_i(t_k) in [0, 1], not rising with t, shape (n_rows, n_times).
        n_rows: number of rows, as in `time`.
        n_times: number of grid times.

    Returns:
        The curves as float64, shape (n_rows, n_times).

    Raises:
        DataError: another shape, 16-bit floats, NaN, values outside [0, 1], or curves that rise.
    """
    curves = as_numbers(survival, "survival")
    if curves.shape != (n_rows, n_times):
        hint = " It looks transposed: rows come first." if curves.shape == (n_times, n_rows) else ""
        raise DataError(
            f"survival: expected shape (n_samples, n_times) = ({n_rows}, {n_times}); "
            f"got {curves.shape}.{hint}"
        )
    rounding = rounding_of(rounding_unit(survival), "survival")
    lowest, highest = curves.min(axis=1), curves.max(axis=1)  # NaN goes through both
    missing = np.isnan(lowest)
    if missing.any():
        raise DataError(f"survival: NaN in {name_rows(missing)}.")
    outside = (lowest < -rounding) | (highest > 1.0 + rounding)
    if outside.any():
        i = int(outside.argmax())
        raise DataError(
            f"survival: expected probabilities in [0, 1]; got values from {lowest[i]:g} to {highest[i]:g} in "
            f"{name_rows(outside)}. Pass survival, not risk and not cumulative hazard."
        )
    rises = np.zeros(n_rows, dtype=bool)
    step = max(1, _BLOCK // n_times)
    for start in range(0, n_rows, step):
        part = curves[start : start + step]
        suspect = np.flatnonzero((part[:, 1:] > part[:, :-1]).any(axis=1))
        if suspect.size:  # steps within the rounding must not add up to a rise
            part = part[suspect]
            rises[start + suspect] = (part - np.minimum.accumulate(part, axis=1) > rounding).any(axis=1)
    if rises.any():
        raise DataError(
            f"survival: expected curves that do not rise with t; they rise in {name_rows(rises)}. Pass "
            "survival, not risk and not 1 - survival, with columns in the order of times."
        )
    return curves


def rounding_of(epsilon: float, name: str) -> float:
    """How far probabilities of a floating type may be off by rounding.

    Args:
        epsilon: machine epsilon of the type, 0 where there is none.
        name: the argument's name, for the message.

    Raises:
        DataError: a type of 16 bits or less.
    """
    if epsilon > _COARSEST:
        raise DataError(
            f"{name}: expected float32 or float64; got 16 bits or less, with a rounding of {epsilon:.1g}, "
            "as large as differences between models. Predict in float32, conversion afterwards is too late."
        )
    return min(_LARGEST_ROUNDING, max(_ROUNDING, 16.0 * epsilon))


def check_probability(values: npt.ArrayLike, name: str, n_rows: int) -> FloatArray:
    """One probability per row.

    Args:
        values: numbers in [0, 1] up to rounding, as in `check_survival`, shape (n_rows,).
        name: the argument's name, for the message.
        n_rows: the length that the other arguments have.

    Returns:
        The probabilities as float64, cut to [0, 1], shape (n_rows,).

    Raises:
        DataError: not such a vector.
    """
    array = check_vector(values, name, n_rows)
    rounding = rounding_of(rounding_unit(values), name)
    wrong = (array < -rounding) | (array > 1.0 + rounding)
    if wrong.any():
        raise DataError(
            f"{name}: expected probabilities in [0, 1]; got {array[wrong][0]:g} in {name_rows(wrong)}. Pass "
            "survival, not risk, not a time and not a cumulative hazard."
        )
    return np.clip(array, 0.0, 1.0)
