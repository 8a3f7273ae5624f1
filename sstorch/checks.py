"""Checks of arguments, and the words of their messages; `name` is that of the argument."""

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sstorch._types import BoolArray, FloatArray
from sstorch.exceptions import ConfigError, DataError
from sstorch.memory import at_once

# Name of the index of rows of a file.
DATA_ROW = "data row"
_ROWS_SHOWN = 5
_NAMES_SHOWN = 30
_NOT_NUMBERS = {"U": "text", "S": "text", "M": "dates", "m": "time spans", "c": "complex numbers"}
_NUMBERS = (bool, np.bool_, Real, Decimal)
# Labels of the rows that are read, (n,), None if messages call rows by their positions.
_named: ContextVar[pd.Index | None] = ContextVar("named", default=None)


@contextmanager
def wording(rows: object) -> Iterator[None]:
    """Let messages of the body name rows by the index of a frame, unless an outer body has set one."""
    labels, index = _named.get(), getattr(rows, "index", None)
    if labels is None and isinstance(index, pd.Index) and not is_count(index):
        labels = index
    token = _named.set(labels)
    try:
        yield
    finally:
        _named.reset(token)


def rows_text(bad: BoolArray) -> str:
    """Number of the marked rows, and the first: ``"2 rows (0-based positions 3, 8)"``, or labels of rows."""
    where, labels = np.flatnonzero(bad), _named.get()
    names, what = where[:_ROWS_SHOWN].tolist(), "0-based position"
    if labels is not None and len(labels) == len(bad):
        names = labels[where[:_ROWS_SHOWN]].tolist()
        what = DATA_ROW if labels.name == DATA_ROW else "index label"
    shown = ", ".join(map(str, names))
    if len(where) == 1:
        return f"1 row ({what} {shown})"
    more = ", ..." if len(where) > _ROWS_SHOWN else ""
    return f"{len(where)} rows ({what}s {shown}{more})"


def counted(count: float, noun: str) -> str:
    """A number of things in words: ``"1 row"``, ``"2 rows"``."""
    return f"{int(count)} {noun}{'' if count == 1 else 's'}"


def sentence_case(text: str) -> str:
    """A text that begins with a capital letter, the others as they are."""
    return text[:1].upper() + text[1:]


def names_text(names: Iterable[object]) -> str:
    """Join names for a message, at most 30 of them."""
    quoted = [repr(str(n)) for n in names]
    more = f", ... ({len(quoted)} in all)" if len(quoted) > _NAMES_SHOWN else ""
    return ", ".join(quoted[:_NAMES_SHOWN]) + more


def nearest_text(name: str, names: Iterable[str]) -> str:
    """``" Did you mean 'age'?"`` for the name most like `name`, of a mapping its value; or no text."""
    proposed = names if isinstance(names, Mapping) else {n: n for n in names}
    near = {n.casefold(): n for n in proposed}
    hits = difflib.get_close_matches(str(name).casefold(), list(near), n=1)
    return f" Did you mean {proposed[near[hits[0]]]!r}?" if hits else ""


def check_columns_exist(wanted: Iterable[str], present: Sequence[str]) -> None:
    """Refuse names that are no column; the message lists the columns and the nearest name."""
    there = set(present)
    for name in wanted:
        if name not in there:
            raise DataError(
                f"no column {name!r}; the columns are {names_text(present)}.{nearest_text(name, present)}"
            )


def check_unique(names: Sequence[str]) -> None:
    """Refuse repeated column names."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"duplicate column name {names_text(twice)}; rename or remove one of them")


def is_number_of(value: object, kind: type) -> bool:
    """True for a number of a kind of :mod:`numbers`, Python's or NumPy's; booleans are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int) -> int:
    """Return an integer setting."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name} must be at least {least}, an integer, got {value!r}")
    return int(value)


def check_horizon(value: float, name: str) -> float:
    """One time, such as a truncation or a horizon: a finite number > 0."""
    if not is_number_of(value, Real) or not 0.0 < value < np.inf:
        raise ConfigError(f"{name} must be one finite time > 0, got {value!r}.")
    return float(value)


def check_truncation(tau: float) -> float:
    """Time to which a mean is restricted: a number > 0, or infinity."""
    if not is_number_of(tau, Real) or not tau > 0.0:
        raise ConfigError(f"tau must be one positive number, got {tau!r}")
    return float(tau)


def check_after(after: object, n_rows: int, X: object = None) -> FloatArray:
    """Times >= 0 at which rows `X` are event-free, (n_rows,), from one of all rows or one of each."""
    check_same_order(X=X, after=after)
    times = as_numbers(after, "after")
    if times.shape not in {(), (n_rows,)}:
        raise DataError(f"after has shape {times.shape}; give one time, or one for each of {n_rows} rows")
    if (bad := ~np.isfinite(times) | (times < 0)).any():
        where = f" in {rows_text(bad)}" if times.shape else ""
        raise DataError(f"after must be finite and >= 0{where}; 0 is the beginning of follow-up")
    return np.broadcast_to(times, (n_rows,)).copy()


def check_share(value: float, name: str, *, closed: bool = False) -> float:
    """One number in (0, 1), or in (0, 1] if ``closed``."""
    if not is_number_of(value, Real) or not (0.0 < value < 1.0 or (closed and value == 1.0)):
        raise ConfigError(f"{name} must be a number in (0, 1{']' if closed else ')'}, got {value!r}.")
    return float(value)


def check_choice(value: Any, name: str, choices: Collection[str]) -> None:
    """Raise ConfigError for a value that is none of the choices."""
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_device(device: object) -> None:
    """Check that torch can use a device."""
    try:
        place = torch.device(str(device))
        kind, index = place.type, place.index
    except RuntimeError:
        kind, index = "unknown", None
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device must be cpu, cuda or cuda:<number>, got {device!r}")
    if kind == "cuda" and (index or 0) >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        text = f"only {seen} CUDA device{'s' * (seen > 1)}" if seen else "no CUDA device"
        raise ConfigError(f"device {device!r} requested, but torch sees {text}; use device='cpu'")


def as_numbers(values: Any, name: str) -> FloatArray:
    """Values as float64; DataError for all but numbers and booleans, also for text that spells numbers."""
    try:
        array = np.asarray(values)
        if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
            found = "masked entries; remove these rows"
        elif array.dtype.kind != "O":
            found = "" if array.dtype.kind in "biuf" else _NOT_NUMBERS.get(array.dtype.kind, str(array.dtype))
        else:
            array = np.where(pd.isna(array), np.nan, array)
            found = next((type(cell).__name__ for cell in array.flat if not isinstance(cell, _NUMBERS)), "")
        if not found:
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # of NumPy, pandas or torch
        found = str(error).rstrip(".")
    raise DataError(
        f"{name} must be an array of numbers in host memory, got {found}; of dates and time spans give "
        "numbers, (date - start) / unit"
    )


def check_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """One number per row as float64, shape (n,), n > 0, without NaN; infinite ones pass."""
    array = as_numbers(values, name)
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"{name} must be one number per row, shape (n,), n > 0, got shape {array.shape}.")
    if n_rows is not None and array.size != n_rows:
        raise DataError(f"{name} must have {n_rows} rows, as in the other arguments, got {array.size}.")
    missing = np.isnan(array)
    if missing.any():
        raise DataError(f"{name}: NaN in {rows_text(missing)}.")
    return array


def check_weight(weight: object, n_rows: int) -> FloatArray | None:
    """A copy of the weights of rows, (n_rows,) float64, finite, >= 0, of a positive sum; None is None."""
    if weight is None:
        return None
    values = as_numbers(weight, "sample_weight")
    if values.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {values.shape}; give one weight for each of {n_rows} rows")
    if (bad := ~np.isfinite(values) | (values < 0.0)).any():
        raise DataError(
            f"sample_weight is negative, missing or infinite in {rows_text(bad)}; weights are >= 0"
        )
    if not values.any():
        raise DataError("sample_weight is zero in every row; give some rows weight")
    return values.copy()


def check_same_order(**parts: Any) -> None:
    """Refuse parts of the same rows whose labels are in another order, or agree only in part."""
    # An index that counts from 0 is no label unless the other one is a permutation of it.
    labels = {name: getattr(part, "index", None) for name, part in parts.items()}
    indexed = {name: index for name, index in labels.items() if isinstance(index, pd.Index)}
    for (name, one), (other, two) in combinations(indexed.items(), 2):
        if len(one) != len(two) or one.equals(two):
            continue
        shared, whole = one.isin(two), two.isin(one).all()
        whole = whole and shared.all()
        if not shared.any() or (not whole and (is_count(one) or is_count(two))):
            continue
        how = "the same row labels in a different order"
        if not whole:
            how = f"row labels that agree in part, {(*one[~shared], *two)[0]!r} is not in both"
        raise DataError(
            f"{name} and {other}: {how}; bring {other} into the order of {name}, or "
            "reset_index(drop=True) on both if the rows do correspond"
        )


def is_count(index: object) -> bool:
    """True for an index that counts rows from 0, which pandas gives to rows without labels."""
    return isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1


def check_tree(tree: object, needs: str, wanted: str = "survival tree") -> None:
    """Raise ConfigError for what has not the attribute that a tree has, such as a pipeline or a search."""
    if hasattr(type(tree), needs):
        return
    kind = f"the class {tree.__name__}" if isinstance(tree, type) else type(tree).__name__
    raise ConfigError(
        f"tree must be a fitted {wanted}, got {kind}; of a search give best_estimator_, of a "
        "pipeline its last step (set_output(transform='pandas') before fit keeps names of columns)"
    )


def blocks(n_rows: int, width: int, elements: int = 2**20) -> list[slice]:
    """Slices of consecutive rows, each with at most so many elements, within the limit of memory.

    >>> blocks(5, width=10, elements=30)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    step = at_once(width, elements)
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def has_method(model: object, name: str) -> bool:
    """Whether an object, not a class, has a method, of its own or by ``__getattr__``."""
    return not isinstance(model, type) and callable(getattr(model, name, None))
