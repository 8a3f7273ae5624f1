"""One gate for the arguments of the metrics.

Every metric passes its arguments through here before it computes: what leaves the gate has the shape, the
type and the range that the formulas assume, and what cannot be used is refused with the first offending row
numbers. Row numbers count from 0.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.conversion import as_numbers, check_same_order

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]

BRIER_CONVENTIONS = ("graf", "sksurv", "surtree", "osst")

_ROWS_SHOWN = 5


def check_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """One number per row, without NaN.

    Args:
        values: anything NumPy turns into a vector of numbers, shape (n,).
        name: the argument's name, for the message.
        n_rows: the length that the other arguments have, if one is known.

    Returns:
        The values as float64, shape (n,). Infinite values pass.

    Raises:
        DataError: not numbers, not one-dimensional, empty, of another length, or NaN.
    """
    array = as_numbers(values, name)
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"{name}: expected one number per row, shape (n,), n > 0; got shape {array.shape}.")
    if n_rows is not None and array.size != n_rows:
        raise DataError(f"{name}: expected {n_rows} rows, as in the other arguments; got {array.size}.")
    missing = np.isnan(array)
    if missing.any():
        raise DataError(f"{name}: NaN in {name_rows(missing)}.")
    return array


def check_event(event: npt.ArrayLike, name: str = "event", n_rows: int | None = None) -> BoolArray:
    """Event indicators: True or 1 where the event was observed.

    Args:
        event: booleans or numbers 0 and 1, shape (n,).
        name: the argument's name, for the message.
        n_rows: the length that the other arguments have, if one is known.

    Returns:
        Booleans, shape (n,).

    Raises:
        DataError: not a vector of that length, or a value other than 0 and 1.
    """
    array = check_vector(event, name, n_rows)
    wrong = (array != 0.0) & (array != 1.0)
    if wrong.any():
        raise DataError(
            f"{name}: expected True/1 (observed) or False/0 (censored); got {array[wrong][0]:g} in "
            f"{name_rows(wrong)}. Are time and event in the order (time, event)?"
        )
    return array > 0.0


def check_time(time: npt.ArrayLike, name: str = "time") -> FloatArray:
    """Observed times.

    Args:
        time: finite and not negative, shape (n,).
        name: the argument's name, for the message.

    Returns:
        The times as float64, shape (n,).

    Raises:
        DataError: not a vector of numbers, NaN, a time that is negative or not finite.
    """
    array = check_vector(time, name)
    wrong = ~np.isfinite(array) | (array < 0.0)
    if wrong.any():
        raise DataError(f"{name}: expected finite times >= 0; got {array[wrong][0]:g} in {name_rows(wrong)}.")
    return array


def check_time_event(
    time: npt.ArrayLike, event: npt.ArrayLike, prefix: str = ""
) -> tuple[FloatArray, BoolArray]:
    """Observed times and event indicators of the same rows.

    Args:
        time: observed times, finite and not negative, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        prefix: goes before "time" and "event" in the messages.

    Returns:
        time as float64 and event as bool, both of shape (n,).

    Raises:
        DataError: shapes or lengths differ, a time is negative or not finite, an event is neither 0 nor 1.
    """
    check_same_order(**{f"{prefix}time": time, f"{prefix}event": event})
    times = check_time(time, f"{prefix}time")
    return times, check_event(event, f"{prefix}event", times.size)


def check_train(train: Any) -> tuple[FloatArray, BoolArray]:
    """The training rows, from which the censoring distribution is estimated.

    Args:
        train: the pair (time, event) of the training rows, each of shape (n_train,).

    Returns:
        time as float64 and event as bool, both of shape (n_train,).

    Raises:
        DataError: not a pair, or a pair that `check_time_event` refuses.
    """
    if not isinstance(train, tuple | list) or len(train) != 2:
        got = f"{len(train)} items" if isinstance(train, tuple | list) else type(train).__name__
        raise DataError(f"train: expected the pair (time, event) of the training rows; got {got}.")
    return check_time_event(train[0], train[1], prefix="train ")


def check_times(times: npt.ArrayLike) -> FloatArray:
    """The grid on which curves are given.

    Args:
        times: finite, not negative, strictly increasing, shape (n_times,).

    Returns:
        The grid as float64, shape (n_times,).

    Raises:
        DataError: not such a vector; positions in the message count from 0.
    """
    grid = check_vector(times, "times")
    wrong = ~np.isfinite(grid) | (grid < 0.0)
    if wrong.any():
        raise DataError(
            f"times: expected finite times >= 0; got {grid[wrong][0]:g} at position {wrong.argmax()}."
        )
    falls = np.diff(grid) <= 0.0
    if falls.any():
        k = int(falls.argmax())
        raise DataError(
            f"times: expected strictly increasing times; got {grid[k]:g} then {grid[k + 1]:g} at positions "
            f"{k} and {k + 1}. numpy.unique sorts and removes repeats (order the columns of survival alike)."
        )
    return grid


def check_convention(convention: str) -> str:
    """The name of a Brier score convention.

    Args:
        convention: one of `BRIER_CONVENTIONS`.

    Returns:
        The same name.

    Raises:
        ConfigError: an unknown name; the message lists the known ones.
    """
    return check_choice(convention, "convention", BRIER_CONVENTIONS)


def check_choice(value: str, name: str, choices: tuple[str, ...]) -> str:
    """An option that has names.

    Args:
        value: what was given.
        name: the argument's name, for the message.
        choices: the names that exist.

    Returns:
        The same value.

    Raises:
        ConfigError: an unknown name; the message lists the known ones.
    """
    if value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(f"{name}: {value!r} is unknown; the known ones are {known}.")
    return value


def check_weight(weight: npt.ArrayLike | None, n_rows: int) -> FloatArray | None:
    """Weights of the rows: a row of weight 2 counts as two equal rows, one of weight 0 not at all.

    Args:
        weight: finite weights >= 0 with a positive sum, shape (n_rows,), or None.
        n_rows: the length that the other arguments have.

    Returns:
        The weights as float64, shape (n_rows,), or None where None was given.

    Raises:
        DataError: not such a vector.
    """
    if weight is None:
        return None
    array = check_vector(weight, "sample_weight", n_rows)
    wrong = (array < 0.0) | np.isinf(array)
    if wrong.any():
        raise DataError(
            f"sample_weight: expected finite weights >= 0; got {array[wrong][0]:g} in {name_rows(wrong)}."
        )
    if not array.any():
        raise DataError("sample_weight: all weights are 0, no row is left to average over.")
    return array


def check_horizon(value: float, name: str) -> float:
    """One time, such as a truncation or a horizon.

    Args:
        value: a finite number > 0, in the unit of the observed times.
        name: the argument's name, for the message.

    Raises:
        ConfigError: anything else.
    """
    if not is_number(value) or not 0.0 < value < np.inf:
        raise ConfigError(f"{name}: expected one finite time > 0; got {value!r}.")
    return float(value)


def check_share(value: float, name: str, expected: str, *, closed: bool) -> float:
    """One number in (0, 1), or in (0, 1].

    Args:
        value: the number.
        name: the argument's name, for the message.
        expected: what the message says was expected.
        closed: whether 1 is allowed.

    Raises:
        ConfigError: anything else.
    """
    if not is_number(value) or not (0.0 < value < 1.0 or (closed and value == 1.0)):
        raise ConfigError(f"{name}: expected {expected}; got {value!r}.")
    return float(value)


def is_number(value: object) -> bool:
    """Whether the value is a real number of Python or NumPy, and no boolean."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_floor(min_censoring_prob: float) -> float:
    """A floor under the censoring distribution.

    Raises:
        ConfigError: no number in (0, 1].
    """
    return check_share(min_censoring_prob, "min_censoring_prob", "a probability in (0, 1]", closed=True)


def name_rows(wrong: BoolArray) -> str:
    """The first few of the marked rows, for a message."""
    rows = np.flatnonzero(wrong)
    shown = ", ".join(str(row) for row in rows[:_ROWS_SHOWN])
    more = f" and {rows.size - _ROWS_SHOWN} more" if rows.size > _ROWS_SHOWN else ""
    return f"{'row' if rows.size == 1 else 'rows'} {shown}{more}"
