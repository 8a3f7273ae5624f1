"""Checks of arguments, and the words of their messages.

Every metric passes its arguments through here before it computes: what is returned has the shape, the type
and the range that the formulas assume, and what cannot be used is refused with the first offending row
numbers, which count from 0. In all checks `name` is the argument's name for the message, and `n_rows` the
length that the other arguments have.
"""

import datetime
import difflib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exceptions import ConfigError, DataError
from sstorch.memory import at_once

_ROWS_SHOWN = 5
_NAMES_SHOWN = 30
# What the kinds of NumPy types that are no numbers are called in messages.
_NOT_NUMBERS = {
    "U": "text",
    "S": "text",
    "M": "dates",
    "m": "time spans",
    "c": "complex numbers",
    "V": "records",
}
_REMEDY = {"M": "; subtract the start and divide by one unit", "m": "; divide by one unit of time"}
# Samples smaller than this have no tails to tell a unit by.
_MIN_ROWS_FOR_UNITS = 20
# Medians that a model prolongs beyond the follow-up may lie far beyond it; those in another unit lie further.
_PROLONGED = 100.0
# Rounding of probabilities in float64, and the largest that is accepted.
_ROUNDING, _LARGEST_ROUNDING = 1e-9, 1e-5
# Between the machine epsilons of float32 and of 16-bit types.
_COARSEST = 1e-6


# ---------------------------------------------------------------------- words of messages


@dataclass(frozen=True)
class Wording:
    """How messages call the rows and the options of a table that is being read.

    Attributes:
        lines: Line of each row in its file, (n,); without it rows are called by their positions.
        options: What goes before the name of an option, such as ``"dataset."`` or ``"--"`` on a command line
            and nothing in Python; None where the table came without options.
    """

    lines: IntArray | None = None
    options: str | None = None


_wording: ContextVar[Wording] = ContextVar("wording", default=Wording())  # noqa: B039 (it is frozen)


@contextmanager
def wording(*, lines: IntArray | None = None, options: str | None = None) -> Iterator[None]:
    """Let messages of the body speak as :class:`Wording` says; what an outer body has set stays."""
    outer = _wording.get()
    inner = replace(
        outer,
        lines=lines if outer.lines is None else outer.lines,
        options=options if outer.options is None else outer.options,
    )
    token = _wording.set(inner)
    try:
        yield
    finally:
        _wording.reset(token)


def reads_text_file() -> bool:
    """True while the rows of a text file are read, which have lines."""
    return _wording.get().lines is not None


def option_text(name: str, value: object, otherwise: str) -> str:
    """An option with a value as it is written where the table came from, else other words.

    Examples:
        >>> option_text("drop", ["body mass"], "leave it out")
        'leave it out'
        >>> with wording(options=""):
        ...     option_text("drop", ["body mass"], "leave it out")
        "drop=['body mass']"
        >>> with wording(options="dataset."):
        ...     print(option_text("drop", ["body mass"], "leave it out"))
        'dataset.drop=[body mass]'
    """
    options = _wording.get().options
    if options is None:
        return otherwise
    if not options:
        return f"{name}={value!r}"
    if options == "--":
        return shlex.join([f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])])
    return shell_word(f"{options}{name}={_setting_value(value)}")


def shell_word(text: str) -> str:
    """A setting as one word of a shell, quoted where it has to be; brackets alone do without quotes."""
    return text if re.fullmatch(r"[\w@%+=:,./\[\]-]+", text) else shlex.quote(text)


def _setting_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def rows_text(bad: BoolArray) -> str:
    """Number of the marked rows and the first of them: ``"2 rows (0-based positions 3, 8)"``.

    While a text file is read these are its lines: ``"2 rows (lines 5, 10)"``.
    """
    where, lines = np.flatnonzero(bad), _wording.get().lines
    what = "0-based position"
    if lines is not None and len(lines) == len(bad):
        where, what = lines[where], "line"
    shown = ", ".join(str(i) for i in where[:_ROWS_SHOWN])
    if len(where) == 1:
        return f"1 row ({what} {shown})"
    more = ", ..." if len(where) > _ROWS_SHOWN else ""
    return f"{len(where)} rows ({what}s {shown}{more})"


def name_rows(wrong: BoolArray) -> str:
    """The first of the marked rows: ``"rows 0, 1, 4, 5, 8 and 2 more"``."""
    rows = np.flatnonzero(wrong)
    shown = ", ".join(str(row) for row in rows[:_ROWS_SHOWN])
    more = f" and {rows.size - _ROWS_SHOWN} more" if rows.size > _ROWS_SHOWN else ""
    return f"{'row' if rows.size == 1 else 'rows'} {shown}{more}"


def names_text(names: Iterable[object]) -> str:
    """Join names for a message, at most 30 of them."""
    quoted = [repr(str(n)) for n in names]
    more = f", ... ({len(quoted)} in all)" if len(quoted) > _NAMES_SHOWN else ""
    return ", ".join(quoted[:_NAMES_SHOWN]) + more


def nearest_text(name: str, names: Iterable[str]) -> str:
    """Return ``" Did you mean 'age'?"`` for the name most like `name`, else an empty text.

    Args:
        name: What was asked for.
        names: Names that there are; where it is a mapping, with what is proposed in their place.
    """
    proposed = names if isinstance(names, Mapping) else {n: n for n in names}
    folded = {n.casefold(): n for n in proposed}
    hits = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    return f" Did you mean {proposed[folded[hits[0]]]!r}?" if hits else ""


# ---------------------------------------------------------------------- names, numbers and options


def check_columns_exist(wanted: Iterable[str], present: Sequence[str]) -> None:
    """Refuse names that are no column.

    Raises:
        DataError: A wanted name is missing; the message lists the columns and the nearest name.
    """
    for name in wanted:
        if name not in present:
            raise DataError(
                f"no column {name!r}; the columns are {names_text(present)}.{nearest_text(name, present)}"
            )


def check_unique(names: Sequence[str]) -> None:
    """Refuse repeated column names.

    Raises:
        DataError: A name stands more than once; the message names all such.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"duplicate column name {names_text(twice)}; rename or remove one of them")


def is_number_of(value: object, kind: type) -> bool:
    """True for a number of a kind of :mod:`numbers`, Python's or NumPy's; booleans are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int) -> int:
    """Return an integer setting.

    Raises:
        ConfigError: no integer, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name} must be at least {least}, an integer, got {value!r}")
    return int(value)


def check_horizon(value: float, name: str) -> float:
    """One time, such as a truncation or a horizon: a finite number > 0.

    Raises:
        ConfigError: anything else.
    """
    if not is_number_of(value, Real) or not 0.0 < value < np.inf:
        raise ConfigError(f"{name}: expected one finite time > 0; got {value!r}.")
    return float(value)


def check_quantile(q: float) -> float:
    """A share of people who have had the event: a number in (0, 1).

    Raises:
        ConfigError: anything else.
    """
    if not is_number_of(q, Real) or not 0.0 < q < 1.0:
        raise ConfigError(f"q must be one number in (0, 1), got {q!r}")
    return float(q)


def check_truncation(tau: float) -> float:
    """Time to which a mean is restricted: a number > 0, or infinity.

    Raises:
        ConfigError: anything else.
    """
    if not is_number_of(tau, Real) or not tau > 0.0:
        raise ConfigError(f"tau must be one positive number, got {tau!r}")
    return float(tau)


def check_after(after: object, n_rows: int, name: str = "after") -> FloatArray:
    """Times at which rows are known to be alive, (n,), from one of all rows or one of each.

    Args:
        after: the times.
        n_rows: n.
        name: what messages call them.

    Raises:
        DataError: not one number, or one for each row, that is finite and >= 0.
    """
    values = np.asarray(after, dtype=object)
    if values.shape not in {(), (n_rows,)}:
        raise DataError(f"{name} has shape {values.shape}; give one time, or one for each of {n_rows} rows")
    times = as_numbers(values.reshape(-1), name)
    if (bad := ~np.isfinite(times) | (times < 0)).any():
        where = f" in {rows_text(bad)}" if values.shape else ""
        raise DataError(f"{name} must be finite and >= 0{where}; 0 is the beginning of follow-up")
    return np.broadcast_to(times, (n_rows,)).copy()


def check_share(value: float, name: str, expected: str, *, closed: bool) -> float:
    """One number in (0, 1), or in (0, 1] if ``closed``; the message says what was ``expected``.

    Raises:
        ConfigError: anything else.
    """
    if not is_number_of(value, Real) or not (0.0 < value < 1.0 or (closed and value == 1.0)):
        raise ConfigError(f"{name}: expected {expected}; got {value!r}.")
    return float(value)


def check_choice(value: str, name: str, choices: tuple[str, ...]) -> str:
    """An option that has names.

    Raises:
        ConfigError: an unknown name; the message lists the known ones.
    """
    if value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(f"{name}: {value!r} is unknown; the known ones are {known}.")
    return value


def check_convention(convention: str) -> str:
    """The name of a convention of the Brier score.

    Raises:
        ConfigError: an unknown name; the message lists the known ones.
    """
    return check_choice(convention, "convention", ("graf", "sksurv", "surtree", "osst"))


def check_device(device: object) -> None:
    """Make sure that torch can use a device.

    Raises:
        ConfigError: it is no CPU or CUDA device, or torch does not see it.
    """
    try:
        kind, index = torch.device(str(device)).type, torch.device(str(device)).index
    except RuntimeError:
        kind, index = "unknown", None
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device must be cpu, cuda or cuda:<number>, got {device!r}")
    if kind == "cuda" and (index or 0) >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        text = f"only {seen} CUDA device{'s' * (seen > 1)}" if seen else "no CUDA device"
        raise ConfigError(f"device {device!r} asked for, but torch sees {text}; use device='cpu'")


# ---------------------------------------------------------------------- arrays


def as_numbers(values: Any, name: str) -> FloatArray:
    """The values, of any shape, as float64.

    Numbers and booleans pass. Text is refused even where it spells numbers, as are dates and time spans,
    whose unit would be guessed, complex numbers, masked entries, and tensors that are not in host memory or
    carry a gradient.

    Raises:
        DataError: no numbers.
    """
    expected = f"{name}: expected an array of numbers in host memory; "
    if isinstance(values, torch.Tensor):
        if values.requires_grad:
            raise DataError(f"{expected}got a tensor that requires grad; pass {name}.detach().")
        if values.device.type != "cpu":
            raise DataError(f"{expected}got a tensor on {values.device}; pass {name}.cpu().")
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise DataError(f"{expected}got a masked array with masked entries; leave these rows out.")
    try:
        array = np.asarray(values)
        kinds: set[str] = {array.dtype.kind}
        if array.dtype.kind == "O":
            kinds = {_kind_of(kind) for kind in set(map(type, array.flat))}
        for kind, what in _NOT_NUMBERS.items():
            if kind in kinds:
                raise DataError(f"{expected}got {what}{_REMEDY.get(kind, '')}.")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError) as error:  # of NumPy, pandas or torch
        raise DataError(f"{expected}{error}.") from error


def _kind_of(kind: type) -> str:
    """The kind that an array of such objects would have; "f" for what may be a number."""
    if issubclass(kind, str | bytes):
        return "U"
    if issubclass(kind, complex | np.complexfloating):
        return "c"
    if issubclass(kind, np.datetime64 | datetime.date):  # pandas.Timestamp is one
        return "M"
    return "m" if issubclass(kind, np.timedelta64 | datetime.timedelta) else "f"


def check_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """One number per row as float64, shape (n,), without NaN; infinite ones pass.

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


def check_weight(weight: npt.ArrayLike | None, n_rows: int) -> FloatArray | None:
    """Weights of the rows as float64, shape (n_rows,), or None where None was given.

    A row of weight 2 counts as two equal rows, one of weight 0 not at all.

    Raises:
        DataError: no such vector of finite weights >= 0 with a positive sum.
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


def misordered(parts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Names of the first two objects that have the same row labels in different orders.

    What has no row labels, as pandas objects and outcomes of them have, is passed over.
    """
    labels = {name: getattr(part, "index", None) for name, part in parts.items()}
    indexed = {name: index for name, index in labels.items() if isinstance(index, pd.Index)}
    if len(indexed) < 2:
        return None
    (first_name, first), *others = indexed.items()
    for name, index in others:
        if (
            len(index) == len(first)
            and not index.equals(first)
            and first.is_unique
            and index.is_unique
            and first.isin(index).all()
        ):
            return first_name, name
    return None


def check_same_order(**parts: Any) -> None:
    """Refuse pandas objects whose row labels agree but stand in another order: rows would be mixed up.

    Raises:
        DataError: two of the arguments have the same labels in different orders.
    """
    if names := misordered(parts):
        raise DataError(
            f"{names[0]} and {names[1]}: the same row labels in a different order; bring {names[1]} into the "
            f"order of {names[0]}, or reset_index(drop=True) on both if the rows do correspond."
        )


# ---------------------------------------------------------------------- times and events


def check_time(time: npt.ArrayLike, name: str = "time") -> FloatArray:
    """Observed times as float64, shape (n,).

    Raises:
        DataError: not a vector of numbers, NaN, a time that is negative or not finite.
    """
    array = check_vector(time, name)
    wrong = ~np.isfinite(array) | (array < 0.0)
    if wrong.any():
        raise DataError(f"{name}: expected finite times >= 0; got {array[wrong][0]:g} in {name_rows(wrong)}.")
    return array


def check_event(event: npt.ArrayLike, name: str = "event", n_rows: int | None = None) -> BoolArray:
    """Event indicators as booleans, shape (n,), True where the event was observed.

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


def check_time_event(
    time: npt.ArrayLike, event: npt.ArrayLike, prefix: str = ""
) -> tuple[FloatArray, BoolArray]:
    """Observed times and event indicators of the same rows, each (n,).

    Args:
        time: observed times, finite and not negative, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        prefix: goes before "time" and "event" in the messages.

    Raises:
        DataError: shapes or lengths differ, a time is negative or not finite, an event is neither 0 nor 1.
    """
    check_same_order(**{f"{prefix}time": time, f"{prefix}event": event})
    times = check_time(time, f"{prefix}time")
    return times, check_event(event, f"{prefix}event", times.size)


def check_interval(lower: npt.ArrayLike, upper: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Bounds of event times, (n,) each: finite lower ones >= 0, and upper ones that are not below them.

    Raises:
        DataError: no such vectors, or they differ in length; the message names rows.
    """
    low = check_vector(lower, "lower")
    high = check_vector(upper, "upper", low.size)
    wrong = ~np.isfinite(low) | (low < 0.0)
    if wrong.any():
        raise DataError(
            f"lower: expected finite times >= 0, 0 for rows censored from the left; got {low[wrong][0]:g} in "
            f"{name_rows(wrong)}."
        )
    wrong = high < low
    if wrong.any():
        raise DataError(
            f"upper: expected times not before lower; got {high[wrong][0]:g} in {name_rows(wrong)}."
        )
    return low, high


def check_entry(entry: npt.ArrayLike | None, time: FloatArray, name: str = "entry") -> FloatArray | None:
    """Times from which rows were observed, shape (n,): -inf where that was from the beginning.

    A row is at risk at t where entry < t <= time, so that at a time of zero nobody but those of -inf is.

    Args:
        entry: as given, 0 for the beginning, shape (n,); None for all.
        time: checked times of the rows, shape (n,).
        name: of the argument, for the messages.

    Returns:
        The times, or None where no row entered late.

    Raises:
        DataError: not a vector of that length, a value negative or not finite, or one that is not before the
            row's time.
    """
    if entry is None:
        return None
    array = check_vector(entry, name, time.size)
    wrong = ~np.isfinite(array) | (array < 0.0)
    if wrong.any():
        raise DataError(
            f"{name}: expected finite times >= 0, 0 for rows observed from the beginning; got "
            f"{array[wrong][0]:g} in {name_rows(wrong)}."
        )
    late = array > 0.0
    wrong = late & (array >= time)
    if wrong.any():
        raise DataError(
            f"{name}: expected times before those of the rows; {name_rows(wrong)} entered at "
            f"{array[wrong][0]:g} and left at {time[wrong][0]:g}, never at risk: remove such rows."
        )
    return np.where(late, array, -np.inf) if late.any() else None


def check_cause(
    cause: npt.ArrayLike, name: str = "cause", n_rows: int | None = None, n_causes: int | None = None
) -> IntArray:
    """Causes of events as integers, shape (n,): 0 where the row was censored, else 1 .. K.

    Raises:
        DataError: not a vector of that length, or a value that is no such integer; without ``n_causes`` K is
            not limited.
    """
    array = check_vector(cause, name, n_rows)
    wrong = (array != np.round(array)) | (array < 0.0) | (array > (np.inf if n_causes is None else n_causes))
    if wrong.any():
        known = "1 .. K" if n_causes is None else f"1 .. {n_causes}"
        raise DataError(
            f"{name}: expected 0 (censored) or the number of a cause, {known}; got {array[wrong][0]:g} in "
            f"{name_rows(wrong)}. Are time and cause in the order (time, cause)?"
        )
    return array.astype(np.int64)


def check_time_cause(
    time: npt.ArrayLike, cause: npt.ArrayLike, prefix: str = "", n_causes: int | None = None
) -> tuple[FloatArray, IntArray]:
    """Observed times and causes of the same rows, each (n,); see `check_time` and `check_cause`."""
    check_same_order(**{f"{prefix}time": time, f"{prefix}cause": cause})
    times = check_time(time, f"{prefix}time")
    return times, check_cause(cause, f"{prefix}cause", times.size, n_causes)


def check_train(train: Any) -> tuple[FloatArray, BoolArray]:
    """Times and events, each (n_train,), of the training rows, which give the censoring distribution.

    Raises:
        DataError: not a pair, or a pair that `check_time_event` refuses.
    """
    _check_pair(train, "(time, event)")
    return check_time_event(train[0], train[1], prefix="train ")


def check_train_causes(train: Any) -> tuple[FloatArray, IntArray]:
    """Times and causes, each (n_train,), of the training rows, which give the censoring distribution.

    Raises:
        DataError: not a pair, or a pair that `check_time_cause` refuses.
    """
    _check_pair(train, "(time, cause)")
    return check_time_cause(train[0], train[1], prefix="train ")


def _check_pair(train: Any, names: str) -> None:
    if not isinstance(train, tuple | list) or len(train) != 2:
        got = f"{len(train)} items" if isinstance(train, tuple | list) else type(train).__name__
        raise DataError(f"train: expected the pair {names} of the training rows; got {got}.")


def check_times(times: npt.ArrayLike) -> FloatArray:
    """The grid on which curves are given as float64, shape (n_times,): finite, >= 0, strictly increasing.

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


def check_observed_horizon(horizon: float, time: FloatArray, name: str) -> None:
    """Refuse a horizon outside the observed times, shape (n,).

    Raises:
        DataError: no row was observed that long, or nothing had happened yet.
    """
    if not time.min() <= horizon <= time.max():
        raise DataError(
            f"{name}: expected a time within the observed ones, {time.min():g} to {time.max():g}; got "
            f"{horizon:g}. Are both in one unit?"
        )


def check_same_unit(time: FloatArray, other: FloatArray, names: tuple[str, str]) -> None:
    """Refuse two samples of times that cannot be in one unit, such as days and years.

    Two samples of at least 20 times are refused where the largest of one lies below all but 5 % of the
    other. A mismatch whose ranges overlap more than that, such as days and weeks, cannot be told from data.

    Raises:
        DataError: the ranges do not overlap.
    """
    if _all_below(time, other) or _all_below(other, time):
        _refuse_units(time, other, names)


def check_grid_unit(time: FloatArray, event: BoolArray, grid: FloatArray) -> None:
    """Refuse a grid of curves that cannot be in the unit of the rows.

    A grid of any size has to overlap the observed times. One of at least 20 times must not end before all but
    5 % of the events, nor have all but 5 % of its times beyond the last observed one.

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
        _refuse_units(time, grid, ("time", "times"))


def check_predicted_unit(time: FloatArray, predicted: FloatArray) -> None:
    """Refuse predicted times that cannot be in the unit of the observed ones; infinite ones are passed over.

    Those of at least 20 rows are refused where all lie below 95 % of the observed times, or half of them
    beyond a hundred times the largest: curves that hardly fall are prolonged far beyond the follow-up.

    Raises:
        DataError: such predictions.
    """
    finite = predicted[np.isfinite(predicted)]
    enough = min(finite.size, time.size) >= _MIN_ROWS_FOR_UNITS
    if _all_below(finite, time) or (enough and np.median(finite) > _PROLONGED * time.max()):
        _refuse_units(time, finite, ("time", "predicted_time"))


def _all_below(low: FloatArray, high: FloatArray) -> bool:
    if min(low.size, high.size) < _MIN_ROWS_FOR_UNITS:
        return False
    return bool(low.max() < np.quantile(high, 0.05))


def _refuse_units(time: FloatArray, other: FloatArray, names: tuple[str, str]) -> None:
    raise DataError(
        f"{names[0]} and {names[1]}: expected times in one unit; got {time.min():g} to {time.max():g} and "
        f"{other.min():g} to {other.max():g}, which hardly overlap. Are these days and years?"
    )


# ---------------------------------------------------------------------- probabilities


def blocks(n_rows: int, width: int, elements: int = 2**20) -> Iterator[slice]:
    """Slices of consecutive rows, each with at most so many elements, within the limit of memory.

    The default is 8 MB of float64, so that a few such arrays are small beside the curves themselves.

    Examples:
        >>> list(blocks(5, width=10, elements=30))
        [slice(0, 3, None), slice(3, 6, None)]
    """
    step = at_once(width, elements)
    return (slice(start, start + step) for start in range(0, n_rows, step))


def check_survival(survival: npt.ArrayLike, n_rows: int, n_times: int) -> FloatArray:
    """Survival curves S_i(t_k) on a grid as float64, shape (n_rows, n_times).

    A curve may rise above its own running minimum, or leave [0, 1], by rounding: 1e-9 in float64, 16 machine
    epsilons in a coarser floating type (1.9e-6 in float32), never more than 1e-5. Curves of 16 bits are
    refused: their rounding is as large as differences between models.

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
    rounding = _rounding_of(survival, "survival")
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
    for rows in blocks(n_rows, n_times):
        part = curves[rows]
        suspect = np.flatnonzero((part[:, 1:] > part[:, :-1]).any(axis=1))
        if suspect.size:  # steps within the rounding must not add up to a rise
            part = part[suspect]
            rises[rows.start + suspect] = (part - np.minimum.accumulate(part, axis=1) > rounding).any(axis=1)
    if rises.any():
        raise DataError(
            f"survival: expected curves that do not rise with t; they rise in {name_rows(rises)}. Pass "
            "survival, not risk and not 1 - survival, with columns in the order of times."
        )
    return curves


def check_incidence(
    incidence: npt.ArrayLike, n_rows: int, n_times: int, *, rising: bool = True
) -> FloatArray:
    """Cumulative incidences F_i(t_k) of a cause on a grid as float64, shape (n_rows, n_times).

    Rounding is treated as by `check_survival`.

    Args:
        incidence: the curves, shape (n_rows, n_times).
        n_rows: number of rows.
        n_times: number of times.
        rising: False where each time is looked at alone, and curves may fall.

    Raises:
        DataError: another shape, 16-bit floats, NaN, values outside [0, 1], or curves that fall.
    """
    curves = as_numbers(incidence, "incidence")
    if curves.shape != (n_rows, n_times):
        hint = " Pass the curves of one cause." if curves.ndim == 3 else ""
        raise DataError(
            f"incidence: expected shape (n_samples, n_times) = ({n_rows}, {n_times}); "
            f"got {curves.shape}.{hint}"
        )
    rounding = _rounding_of(incidence, "incidence")
    wrong = np.asarray(~((curves >= -rounding) & (curves <= 1.0 + rounding)).all(axis=1))  # NaN is wrong, too
    if wrong.any():
        raise DataError(f"incidence: expected probabilities in [0, 1]; got others in {name_rows(wrong)}.")
    if rising:
        falls = np.zeros(n_rows, dtype=bool)
        for rows in blocks(n_rows, n_times):
            part = curves[rows]
            falls[rows] = (np.maximum.accumulate(part, axis=1) - part > rounding).any(axis=1)
        if falls.any():
            raise DataError(
                f"incidence: expected curves that do not fall with t; they fall in {name_rows(falls)}. Pass "
                "cumulative incidences, not survival, with columns in the order of times."
            )
    return curves


def check_probability(values: npt.ArrayLike, name: str, n_rows: int) -> FloatArray:
    """One probability per row as float64, cut to [0, 1], shape (n_rows,).

    Values may leave [0, 1] by rounding, as those of `check_survival`.

    Raises:
        DataError: not such a vector.
    """
    array = check_vector(values, name, n_rows)
    rounding = _rounding_of(values, name)
    wrong = (array < -rounding) | (array > 1.0 + rounding)
    if wrong.any():
        raise DataError(
            f"{name}: expected probabilities in [0, 1]; got {array[wrong][0]:g} in {name_rows(wrong)}. Pass "
            f"{name}, not risk, not a time and not a cumulative hazard."
        )
    return np.clip(array, 0.0, 1.0)


def _rounding_of(values: Any, name: str) -> float:
    """Rounding of probabilities of this floating type.

    Raises:
        DataError: a type of 16 bits or less.
    """
    epsilon = _machine_epsilon(values)
    if epsilon > _COARSEST:
        raise DataError(
            f"{name}: expected float32 or float64; got 16 bits or less, with a rounding of {epsilon:.1g}, "
            "as large as differences between models. Predict in float32, conversion afterwards is too late."
        )
    return min(_LARGEST_ROUNDING, max(_ROUNDING, 16.0 * epsilon))


def _machine_epsilon(values: Any) -> float:
    """That of the coarsest floating type of the values; 0 where they have none."""
    if isinstance(values, torch.Tensor):
        return float(torch.finfo(values.dtype).eps) if values.is_floating_point() else 0.0
    given = list(values.dtypes) if isinstance(values, pd.DataFrame) else [getattr(values, "dtype", None)]
    types = [getattr(dtype, "numpy_dtype", dtype) for dtype in given]  # pandas has floating types of its own
    return max(
        (float(np.finfo(t).eps) for t in types if isinstance(t, np.dtype) and t.kind == "f"), default=0.0
    )
