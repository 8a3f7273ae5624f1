"""Competing causes of an event: which one ended each row's time, if any did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import names_text, option_text, rows_text
from sstorch.data.columns import label, labels, vocabulary
from sstorch.data.target import split_target, times_of
from sstorch.exceptions import ConfigError, DataError

# Values of a column of causes: their names by value, or "auto" where codes or levels speak for themselves.
CauseNames = Mapping[Any, str] | str
# More causes than this are values of a measurement.
_MAX_CAUSES = 20
_CENSORED = ("censored", "censor", "none")


@dataclass(frozen=True)
class Causes:
    """Causes of the events of rows.

    Attributes:
        coding: name of each cause by its value, as text; used to read other rows.
        codes: cause of each row, 1 .. K in the order of ``names``, 0 if censored; shape (n,).
    """

    coding: Mapping[str, str]
    codes: IntArray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K causes; a subset of the rows keeps all."""
        return tuple(self.coding.values())

    def subset(self, index: IntArray) -> Causes:
        """The causes of the rows at positions ``index``."""
        return Causes(self.coding, self.codes[index])

    def number(self, cause: int | str) -> int:
        """As :func:`cause_number`."""
        return cause_number(cause, self.names)


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


def known_causes(causes: Causes | None) -> Causes:
    """The causes of an outcome; DataError if it has one event."""
    if causes is None:
        raise DataError("the data have one event; for causes give Surv(time, cause, causes=...)")
    return causes


def parse_causes(time: object, event: object, causes: CauseNames) -> tuple[FloatArray, Causes]:
    """Times (n,) >= 0 and causes of two columns; `causes` are names by value, or ``"auto"``, as in `Surv`."""
    time_column, time_where, cause_column, where = split_target((time, event))
    times = times_of(time_column, time_where)
    if len(times) != len(cause_column):
        raise DataError(f"{len(times)} times but {len(cause_column)} causes; give one of each for every row")
    column = cause_column.reset_index(drop=True)
    words = list(labels(column))
    if (missing := np.array([word is None for word in words], dtype=bool)).any():
        raise DataError(f"{where} is missing in {rows_text(missing)}; remove these rows")
    if isinstance(causes, str) and causes != "auto":
        raise ConfigError(f"causes must be 'auto' or names by value, got {causes!r}")
    censored, named = (
        _coded(column, words, where) if isinstance(causes, str) else _named(words, causes, where)
    )
    number = {censored: 0} | {value: k for k, value in enumerate(named, 1)}
    codes = np.array([number[word] for word in words], dtype=np.int64)
    if not named:
        raise DataError(f"{where} has no cause: all rows are censored")
    if len(set(named.values())) < len(named):
        raise ConfigError(f"two values of {where} have one name; give one value per cause")
    return times, Causes(named, codes)


def _named(words: list[str], causes: Mapping[Any, str], where: str) -> tuple[str, dict[str, str]]:
    """The value of censored rows, and names by value as the user gives them."""
    named = {label(value): str(name) for value, name in causes.items()}
    others = sorted(set(words) - set(named))
    if len(others) > 1:
        raise DataError(
            f"{where} holds {names_text(others)} and the causes that are named; one value is that of "
            f"censored rows: name all other values in {option_text('causes', {'VALUE': 'NAME'}, 'causes')}"
        )
    return (others or [""])[0], named


def _coded(column: pd.Series, words: list[str], where: str) -> tuple[str, dict[str, str]]:
    """The value of censored rows, and names by value where codes or levels speak for themselves."""
    remedy = f"name the causes by their values with {option_text('causes', {1: 'NAME'}, 'causes={1: ...}')}"
    if pdt.is_bool_dtype(column.dtype):
        raise DataError(f"{where} is boolean and names no cause; give 0 for censored, 1 .. K for causes")
    if isinstance(column.dtype, pd.CategoricalDtype):
        first, *levels = [label(level) for level in column.cat.categories]
        return first, {level: level for level in levels}
    if pdt.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64)
        if (bad := (values != np.round(values)) | (values < 0) | (values > _MAX_CAUSES)).any():
            raise DataError(
                f"{where} is {values[bad][0]:g} in {rows_text(bad)}; causes are 1 .. K (at most "
                f"{_MAX_CAUSES}), 0 is censored: {remedy}"
            )
        return "0", {str(k): str(k) for k in range(1, int(values.max()) + 1)}
    censored = [word for word in set(words) if word.lower() in _CENSORED]
    if len(censored) != 1:
        raise DataError(f"{where} has no value 'censored' that stands for no event; {remedy}")
    return censored[0], {word: word for word in vocabulary(column) if word != censored[0]}


def check_all_occur(causes: Causes, weight: FloatArray) -> None:
    """Check that some row of positive weight, (n,), has each cause."""
    absent = [name for k, name in enumerate(causes.names, 1) if not (causes.codes == k).any()]
    if absent:
        raise DataError(
            f"y must have an event of each cause, got none of {names_text(absent)}: give more rows, or of "
            "cross-validation folds stratified by cause, cv=PredefinedSplit(sstorch.data.folds_of(y, 2, 0)); "
            "codes of causes are consecutive, 1 .. K"
        )
    lost = [name for k, name in enumerate(causes.names, 1) if not weight[causes.codes == k].any()]
    if lost:
        raise DataError(
            f"every row with cause {names_text(lost)} has sample_weight 0: no event to learn from"
        )
