"""What is given as y, read: times, events, causes, entry times, bounds of intervals, subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as pdt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import (
    check_columns_exist,
    check_same_order,
    check_unique,
    counted,
    names_text,
    nearest_text,
    rows_text,
)
from sstorch.data.columns import (
    Column,
    as_column,
    check_size,
    folded,
    label,
    labels,
    missing_labels,
    numeric_values,
    row_labels,
    to_pandas,
    vocabulary,
)
from sstorch.exceptions import ConfigError, DataError, warn

_REMOVE = "correct or remove these rows"
_CAUSES = "If the values are competing causes, give Surv(time, cause, causes=...)"
# Times that differ by less, relative to their size, differ by rounding.
ROUNDING = 1e-9


# ---------------------------------------------------------------------- times that differ by rounding


def snapped(*parts: FloatArray | None) -> tuple[Any, ...]:
    """Arrays of times in which values within rounding of each other are the smallest of them, near zero zero.

    Chains of values within `ROUNDING` of their size, at least of a thousandth of the median, are their first.
    Parts of the same rows are read together; infinite values and None stay. The rule of ``aeqSurv`` of R.

    >>> snapped(np.array([0.3, 1.0]), np.array([0.1 + 0.2, 0.0]))
    (array([0.3, 1. ]), array([0.3, 0. ]))
    """
    values = np.sort(np.concatenate([np.zeros(1), *(part for part in parts if part is not None)]))
    values = values[: np.searchsorted(values, np.inf)]
    median = values[(np.searchsorted(values, 0.0, side="right") + len(values) - 1) // 2]
    gaps = np.diff(values)
    distinct = gaps > ROUNDING * np.maximum(values[1:], 1e-3 * median)
    near = np.flatnonzero(~distinct & (gaps > 0.0)) + 1
    if not near.size:
        return parts
    first = np.maximum.accumulate(np.where(np.append(True, distinct), np.arange(values.size), 0))

    def each(part: FloatArray) -> FloatArray:
        place = near[np.searchsorted(values[near], part).clip(max=near.size - 1)]
        return np.where(values[place] == part, values[first[place]], part)

    return tuple(None if part is None else each(part) for part in parts)


def time_of_rows(value: float, *times: FloatArray) -> float:
    """The time of rows that a given one differs from by rounding, such as a landmark; else itself."""
    return float(times_of_rows(np.asarray(value), *times))


def times_of_rows(values: FloatArray, *times: FloatArray) -> FloatArray:
    """As :func:`time_of_rows`, of several given times, (m,)."""
    known = np.unique(np.concatenate(times))
    place = np.searchsorted(known, values)
    for near in (known[np.minimum(place, known.size - 1)], known[np.maximum(place - 1, 0)]):
        values = np.where(np.abs(near - values) <= ROUNDING * near, near, values)
    return values


def steps_up_to(times: FloatArray, at: npt.ArrayLike) -> IntArray:
    """Number of sorted times up to given ones, of their shape, which may differ from a time by rounding."""
    return np.searchsorted(times, np.asarray(at) * (1.0 + ROUNDING), side="right")


# ---------------------------------------------------------------------- times and events


def parse_target(y: object, event_value: object = None) -> tuple[FloatArray, BoolArray]:
    """Times, (n,) float64 >= 0, and events, (n,), of any y but a Surv; DataError with 0-based rows."""
    times, column, where = times_and_column(y, "events")
    if event_value is None:
        return times, _events(column, where)
    words, value = event_words(pd.Series(column), where), label(event_value)
    events = np.array([folded(word) == folded(value) for word in words], dtype=bool)
    if not events.any():
        known = sorted(set(words))
        raise DataError(
            f"{where} is {value!r} in no row; its values are {names_text(known)}.{nearest_text(value, known)}"
        )
    return times, events


def times_and_column(y: object, what: str) -> tuple[FloatArray, Column, str]:
    """Times (n,), the column of events or causes, `what`, unread, and its name for messages."""
    time, event = _pair(to_pandas(y))
    check_same_order(time=time, event=event)
    times, of = _times(time, "time"), _where(event, "event")
    column = as_column(event, of)
    if len(times) != len(column):
        raise DataError(f"{len(times)} times but {len(column)} {what}; give one of each for every row")
    return np.asarray(snapped(times)[0]), column, of


def _times(values: object, role: str, missing: str = _REMOVE, infinite: bool = False) -> FloatArray:
    """Times of rows, numbers >= 0 (n,), also +inf if `infinite`; `missing` is the remedy of missing ones."""
    where = _where(values, role)
    column = as_column(values, where)
    if pdt.is_bool_dtype(column.dtype):
        raise DataError(f"{where} is boolean; times are numbers. Are time and event swapped?")
    times = numeric_values(column, where, _REMOVE)
    if (bad := np.isnan(times)).any():
        raise DataError(f"{where} is missing in {rows_text(bad)}; {missing}")
    check_size(np.where(infinite & np.isposinf(times), 0.0, times), where)
    if (bad := times < 0).any():
        raise DataError(f"{where} is negative in {rows_text(bad)}; times count from the start of follow-up")
    return times


def _where(values: object, role: str) -> str:
    """Name of a part of a target in messages: that of its column, if any."""
    own = values.name if isinstance(values, pd.Series) else None
    if own is None:
        return role
    return f"column {own!r}" if own == role else f"{role} column {str(own)!r}"


def _pair(y: Any) -> tuple[Any, Any]:
    """Times and events, unread."""
    if isinstance(y, tuple) and len(y) == 2:
        return y
    if isinstance(y, pd.DataFrame):
        names = [str(name) for name in y.columns]
        check_unique(names)
        check_columns_exist(("time", "event"), names)
        return y.iloc[:, names.index("time")], y.iloc[:, names.index("event")]
    names = list(getattr(getattr(y, "dtype", None), "names", None) or ())
    events = [name for name in names if y.dtype[name].kind == "b"]
    if {"time", "event"} <= set(names):
        names, events = ["time", "event"], ["event"]
    if len(names) == 2 and len(events) == 1:
        (time,) = set(names) - set(events)
        return pd.Series(y[time], name=time), pd.Series(y[events[0]], name=events[0])
    what = f"{type(y).__name__} of length {len(y)}" if isinstance(y, tuple | list) else type(y).__name__
    if y is None:
        what = "None: this estimator requires y to be passed, but the target y is None"
    elif names:
        what = f"a structured array with the fields {', '.join(f'{n!r} ({y.dtype[n]})' for n in names)}"
    elif isinstance(y, np.ndarray):
        what = f"a plain array of shape {y.shape}"
    elif isinstance(y, str):
        what = f"{y!r}; to name columns of a frame, give Surv.of(frame, time={y!r}, event=...)"
    raise DataError(
        "y must be sstorch.Surv(time, event), a pair (time, event), a DataFrame with a time and an event "
        f"column, or a structured array with a boolean and a float field, got {what}"
    )


def event_words(column: pd.Series, where: str) -> npt.NDArray[np.object_]:
    """Values of a column of events or causes as text (n,); those that are missing are refused."""
    if (bad := missing_labels(column)).any():
        raise DataError(f"{where} is missing in {rows_text(bad)}; remove these rows")
    return labels(column)


def _events(column: Column, where: str) -> BoolArray:
    """Rows with an event, from booleans or 0/1."""
    remedy = (
        f"code it as 1 = event, 0 = censored, or name the value of an event, event_value=VALUE. {_CAUSES}"
    )
    values = numeric_values(column, where, remedy)
    if (bad := np.isnan(values)).any():
        raise DataError(f"{where} is missing in {rows_text(bad)}; remove these rows")
    if not (bad := ~np.isin(values, (0.0, 1.0))).any():
        return np.asarray(values == 1.0)
    found = f"{where} is {values[bad][0]:g} in {rows_text(bad)}"
    if np.isin(values, (1.0, 2.0)).all():
        raise DataError(f"{found} and never 0; if 1 = censored and 2 = event, give event_value=2")
    raise DataError(f"{found}; {remedy}: coded as censored, they give risks that are too high")


# ---------------------------------------------------------------------- entries, intervals, zeros


class Intervals(NamedTuple):
    """Bounds of event times, (n,) each: after `lower`, and at or before `upper`."""

    lower: FloatArray  # >= 0; 0 without a lower bound (left-censored)
    upper: FloatArray  # inf if right-censored, equal to `lower` if exact

    @property
    def censored(self) -> BoolArray:
        """Rows with an event between two bounds, (n,): neither exact nor right-censored."""
        return (self.lower < self.upper) & (self.upper < np.inf)

    @property
    def middle(self) -> FloatArray:
        """Midpoint of each interval, (n,); the lower bound if right-censored."""
        return self.lower + (np.where(self.upper < np.inf, self.upper, self.lower) - self.lower) / 2

    def moved(self, rows: BoolArray, time: FloatArray) -> Intervals:
        """Replace exact and right-censored times of some rows, such as zeros."""
        bound = rows & ~self.censored
        upper = np.where(bound & (self.upper < np.inf), time, self.upper)
        return Intervals(np.where(bound, time, self.lower), upper)

    def subset(self, index: IntArray) -> Intervals:
        """Intervals of the rows at positions ``index``."""
        return Intervals(self.lower[index], self.upper[index])


def no_intervals(what: str) -> DataError:
    """The error of whatever needs exact or right-censored times, called `what`."""
    return DataError(
        f"{what} does not support interval-censored outcomes; use log_likelihood of PrognosticTree, "
        "SurvivalRegression or SoftSurvivalTree"
    )


def with_entry(entry: object, bounds: Intervals) -> tuple[FloatArray | None, Intervals]:
    """Entries (n,), >= 0 and before the ends of rows, or None, and bounds; events at zero are moved later."""
    if entry is None:
        return None, bounds
    entries, n_rows = _times(entry, "entry", "give 0 for no delay"), len(bounds.lower)
    if len(entries) != n_rows:
        raise DataError(f"entry has {len(entries)} rows; give one entry time for each of {n_rows}")
    entries, *ends = snapped(entries, *bounds)
    bounds = Intervals(*ends)
    at_zero = bounds.upper == 0  # events, which are moved
    if (bad := (entries > bounds.lower) | ((entries == bounds.lower) & ~bounds.censored & ~at_zero)).any():
        which, remedy = "not before the time", "such rows were never at risk: remove them"
        if bounds.censored[bad].all():
            which, remedy = "after the lower bound", "no event happened by the entry: raise the bound to it"
        raise DataError(f"{_where(entry, 'entry')} is {which} in {rows_text(bad)}; {remedy}")
    return entries, bounds


def read_bounds(lower: object, upper: object) -> Intervals:
    """Bounds of event times, (n,) each, that are known up to an interval."""
    unknown = "a bound that is not known is 0 below and inf above"
    low, high = snapped(_times(lower, "lower", unknown), _times(upper, "upper", unknown, infinite=True))
    if len(low) != len(high):
        raise DataError(f"{len(low)} lower but {len(high)} upper bounds; give one of each a row")
    if (bad := low > high).any():
        raise DataError(f"lower is above upper in {rows_text(bad)}; are the bounds swapped?")
    return Intervals(low, high)


def positive_times(time: FloatArray, event: BoolArray, value: float | None) -> tuple[FloatArray, float]:
    """Times in which zeros are `value`, at most half the smallest positive time; and this value."""
    zero = time == 0
    if zero.all() and value is None:
        raise DataError("all times are zero; check the time column")
    half = np.inf if zero.all() else 0.5 * float(time[~zero].min())
    value = half if value is None else min(half, value)
    if n_events := int((zero & event).sum()):
        why = "half the smallest positive time" if value == half else "as in training"
        warn(f"{counted(n_events, 'event')} at time zero moved to {value:g}, {why}")
    return np.where(zero, value, time), value


# ---------------------------------------------------------------------- causes


# Values of a column of causes: their names by value or number, or "auto".
CauseNames = Mapping[Any, str] | Sequence[str] | str
# Codes of causes that are found without names; a larger number is a measurement.
_CODES = [str(k) for k in range(21)]
_CENSORED = ("0", "censored")


def cause_number(cause: int | str, names: Sequence[str]) -> int:
    """Number of a cause, 1 .. K, by itself or by its name; without names there is one event, 1."""
    if isinstance(cause, str) and cause in names:
        return names.index(cause) + 1
    if isinstance(cause, int | np.integer) and 1 <= cause <= max(len(names), 1):
        return int(cause)
    if not any(names):
        raise ConfigError(f"cause must be left out, got {cause!r}: there is one event, and no cause competes")
    known = ", ".join(f"{number} ({name})" for number, name in enumerate(names, 1))
    raise ConfigError(f"unknown cause {cause!r}; the causes are {known}")


def known_causes(causes: tuple[str, ...] | None) -> tuple[str, ...]:
    """The names of the causes of an outcome; DataError if it has one event."""
    if causes is None:
        raise DataError("the data have one event; for causes give Surv(time, cause, causes=...)")
    return causes


def parse_causes(
    time: object, event: object, causes: CauseNames
) -> tuple[FloatArray, IntArray, tuple[str, ...]]:
    """Times (n,) >= 0, causes (n,), 0 if censored, and names of the causes, given as in `Surv`."""
    times, values, where = times_and_column((time, event), "causes")
    column = pd.Series(values)
    words = [folded(word) for word in event_words(column, where)]
    levels: dict[str, str] = {}
    for level in vocabulary(column):
        levels.setdefault(folded(level), level.strip())
    if not isinstance(causes, str):
        present = set(words)
        censored, named = _named([levels[word] for word in levels if word in present], causes, where)
    elif causes != "auto":
        raise ConfigError(f"causes must be 'auto' or names by value, got {causes!r}")
    elif pdt.is_bool_dtype(column.dtype):
        raise DataError(f"{where} is boolean and names no cause; give 0 for censored, 1 .. K for causes")
    elif pdt.is_numeric_dtype(column.dtype) or ("0" in levels and levels.keys() <= set(_CODES)):
        if (bad := ~np.isin(words, _CODES)).any():
            raise DataError(
                f"{where} is {words[int(bad.argmax())]} in {rows_text(bad)}; causes are 1 .. K (at most "
                f"{_CODES[-1]}), 0 is censored: {_remedy(['1', '2'])}"
            )
        censored, named = "0", {code: code for code in _CODES[1 : max(map(int, levels)) + 1]}
    else:
        stand = [level for word, level in levels.items() if word in _CENSORED]
        if len(stand) != 1:
            raise DataError(
                f"{where} has the levels {names_text(levels.values())}, of which "
                f"{'several stand' if stand else 'none stands'} for 'censored'; {_remedy(levels.values())}"
            )
        censored, named = stand[0], {level: level for level in levels.values() if level != stand[0]}
    if not named:
        raise DataError(f"{where} has no cause: all rows are censored")
    if len({folded(name) for name in named.values()}) < len(named):
        raise ConfigError(f"two values of {where} have one name; give one value per cause")
    number = {folded(censored): 0} | {folded(value): k for k, value in enumerate(named, 1)}
    return times, np.array([number[word] for word in words], dtype=np.int64), tuple(named.values())


def _named(
    levels: list[str], causes: Mapping[Any, str] | Sequence[str], where: str
) -> tuple[str, dict[str, str]]:
    """The value of censored rows, and names by value as the user gives them, else those of 1 .. K."""
    by_value = isinstance(causes, Mapping)
    given: Mapping[Any, str] = causes if isinstance(causes, Mapping) else dict(enumerate(causes, 1))
    named = {label(value): str(name) for value, name in given.items()}
    known = {folded(value) for value in named}
    others = [level for level in levels if folded(level) not in known]
    if len(others) <= by_value or others == ["0"]:
        return (others or [""])[0], named
    rule = "one value besides those named" if by_value else f"no value besides 1 .. {len(named)} but 0"
    names = set(map(folded, named.values()))
    raise DataError(
        f"{where} must have {rule}, for censored rows, got {names_text(levels)} with the causes "
        f"{names_text(named.values())}; {_remedy([x for x in levels if folded(x) in names] or levels)}"
    )


def _remedy(levels: Iterable[str]) -> str:
    """How to name causes by their values."""
    named = {level: level for level in levels if folded(level) not in _CENSORED}
    return f"name the causes by their values, without that of censored rows, such as causes={named}"


def check_all_occur(cause: IntArray, names: Sequence[str], weight: FloatArray) -> None:
    """Check that some row of positive weight, (n,), has each cause."""
    numbers = range(1, len(names) + 1)
    if absent := [names[k - 1] for k in numbers if not (cause == k).any()]:
        raise DataError(
            f"y must have an event of each cause, got none of {names_text(absent)}: give more rows, or of "
            "cross-validation folds stratified by cause, cv=PredefinedSplit(sstorch.data.folds_of(y, 2, 0)); "
            "codes of causes are consecutive, 1 .. K"
        )
    if lost := [names[k - 1] for k in numbers if not weight[cause == k].any()]:
        raise DataError(
            f"every row with cause {names_text(lost)} has sample_weight 0: no event to learn from"
        )


# ---------------------------------------------------------------------- subjects of several rows


def parse_subjects(id: object, n: int) -> tuple[IntArray, list[object]]:
    """Subject of each row, (n,), 0 .. P - 1 in the order in which they first appear, and their ids."""
    codes, ids = pd.factorize(row_labels(id, n, "id").astype(object))
    return codes.astype(np.int64), list(ids)


def check_histories(
    subject: IntArray,
    ids: Sequence[object],
    entry: FloatArray,
    time: FloatArray,
    event: BoolArray,
    whole: bool = True,
) -> None:
    """Refuse rows of a subject that overlap or, where histories are `whole`, follow an event."""
    order = np.lexsort((entry, subject))
    one, other = order[:-1], order[1:]
    follows = subject[one] == subject[other]
    one, other = one[follows], other[follows]

    def rows(pairs: BoolArray) -> str:
        k, n_pairs = int(pairs.argmax()), int(pairs.sum())
        both = np.isin(np.arange(len(subject)), [one[k], other[k]])
        more = f" ({n_pairs} such pairs)" if n_pairs > 1 else ""
        return f"{rows_text(both)} of id {ids[subject[one[k]]]!r}{more}"

    if (overlap := entry[other] < time[one]).any():
        raise DataError(
            f"{rows(overlap)} overlap: a row lasts from its entry to its time, and the next row of the "
            "subject begins at that time or later; if they are different subjects, give them different ids"
        )
    if whole and (after := event[one]).any():
        raise DataError(
            f"{rows(after)}: a row comes after an event, which ends a history; recurrent events are not "
            "supported: keep the rows up to the first"
        )


def continuations(
    subject: IntArray, entry: FloatArray, time: FloatArray, event: BoolArray, *same: npt.NDArray[Any]
) -> tuple[IntArray, BoolArray]:
    """Order of rows by subject and entry, (n,), and whether each goes on with the next one, (n - 1,)."""
    # It does without an event or gap between them, if values of `same`, (n,) each, are equal.
    order = np.lexsort((entry, subject))
    one, other = order[:-1], order[1:]
    goes_on = (entry[other] == time[one]) & ~event[one]
    for values in (subject, *same):
        goes_on &= values[one] == values[other]
    return order, goes_on
