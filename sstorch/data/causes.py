"""Competing causes of an event: their numbers 1 .. K, and the column that they are read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pandas.api import types as pdt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import names_text, rows_text
from sstorch.data.columns import folded, label, vocabulary
from sstorch.data.target import event_words, times_and_column
from sstorch.exceptions import ConfigError, DataError

# Values of a column of causes: their names by value or number, or "auto".
CauseNames = Mapping[Any, str] | Sequence[str] | str
# Codes of causes that are found without names; a larger number is a measurement.
_CODES = [str(k) for k in range(21)]
_CENSORED = ("0", "censored", "right-censored", "right censored", "censor", "cens", "none")


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
    """Times (n,) >= 0 and causes (n,), 0 if censored, of two columns, and names of the causes.

    `causes` are as in `Surv`. Values are compared without blanks around them and whatever their case.
    """
    times, column, where = times_and_column((time, event), "causes")
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
