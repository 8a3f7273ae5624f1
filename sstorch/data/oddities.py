"""Training rows from which nothing can be learned, and suspicious ones, which can invalidate results.

Each check returns its findings as :class:`Oddity`. Its thresholds are constants here; on the named data sets
it has no false finding (``docs/data_sets.md`` lists all findings).
"""

import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import names_text, rows_text
from sstorch.data.columns import check_not_all_missing, is_wide, label
from sstorch.exceptions import DataError, DataWarning

# A column with more missing values than this share has mostly none.
_MOSTLY = 0.5
# A column of labels with more different ones than this share of the rows identifies rows, not groups.
_IDENTIFYING = 0.75
# Rows from which different labels, or whole numbers that lie close together, identify the rows.
_MIN_IDENTIFIED = 20
# And whole numbers that lie anywhere: fewer measurements can differ by chance.
_MIN_SCATTERED = 100
# Names of columns that identify subjects.
_SUBJECT = re.compile(
    r"(.*[ _.-])?id|(pid|pat|patient|subject|proband|fall)([ _.-]*(id|no|nr|num|number)[ .]*)?",
    re.IGNORECASE,
)
# Rows of a first, cheap check of whether numbers can be those of an identifier.
_MANY_ROWS = 10_000
_FEW_EVENTS = 10
# Below this many different times a feature can equal the times by chance.
_MIN_DISTINCT_TIMES = 10
# Rows from which a rank correlation above the bound is no chance, and those it is computed from at most.
_MIN_RANKED, _MAX_RANKED = 20, 10_000
_TELLS_TIME = 0.99
# Rows with and without events from which the area under the curve above its bound is no chance, and the lower
# bound for columns that are called as outcomes are.
_MIN_EACH = 10
_TELLS_EVENT, _SUSPECT = 0.99, 0.9
_OUTCOME_NAME = re.compile(
    r"(?<![a-z])(status|vital|dead|died|death|deceased|alive|event|censor(ed)?|cens|outcome)(?![a-z])"
    r"|cause.?of.?death",
    re.IGNORECASE,
)
# A numeric column with at most so many values is read as categories, too; rarer categories are one.
_FEW_VALUES, _MIN_CATEGORY = 10, 5
# Categories whose rows all have events: the probability of it by chance, the least share of all events that
# they hold, and the largest share of events among all rows, above which it means little.
_NAMES_SHOWN = 5
_CHANCE, _LEAST_HELD, _MOST_EVENTS = 1e-4, 0.5, 0.9


@dataclass(frozen=True)
class Oddity:
    """A finding and its remedy."""

    text: str  # names column, rows and values
    remedy: str  # what to do
    accident: bool = False  # true if it is hardly ever meant: such a column is refused in strict mode

    @classmethod
    def of_columns(cls, text: str, names: list[str], accident: bool = True, before: str = "") -> Self:
        """Columns that are best left out; the remedy is how that is done, with other words before it."""
        return cls(text, before + drop_text(names), accident)


def report(oddities: list[Oddity], strict: bool, stacklevel: int) -> None:
    """Warn of oddities, each in a line; refuse accidents if ``strict``.

    `stacklevel` is that of :func:`warnings.warn` called in place of this function.
    """
    accidents = [oddity for oddity in oddities if oddity.accident]
    if strict and accidents:
        said = "; ".join(f"{oddity.text}: {oddity.remedy}" for oddity in accidents)
        raise DataError(f"{said}, drop=[NAME, ...], or if this is intended, keep columns with strict=False")
    for oddity in oddities:
        warnings.warn(f"{oddity.text}: {oddity.remedy}", DataWarning, stacklevel=stacklevel + 1)


def drop_text(names: list[str]) -> str:
    """Instruction for leaving columns out."""
    return f"leave {'it' if len(names) == 1 else 'them'} out"


def check_trainable(
    frame: pd.DataFrame,
    time: FloatArray,
    event: BoolArray,
    weight: FloatArray,
    bounds: list[FloatArray],
) -> None:
    """Refuse rows that nothing can be learned from, or whose times, `bounds`, stand in a feature."""
    if len(time) == 1:
        raise DataError("the data have one row; at least two are needed (n_samples = 1)")
    if not event.any():
        raise DataError(
            f"all {len(event)} rows are censored: no event to learn from; "
            "check the coding of the event column"
        )
    if not all(times.any() for times in bounds[1:]):
        raise DataError(
            "lower must be > 0 in some rows, got left-censored ones alone: no row was event-free at a known "
            "time, and the estimate is an event of every row at time zero"
        )
    if not (event & (weight > 0)).any():
        raise DataError("every row with an event has sample_weight 0: no event to learn from")
    if len(distinct := np.unique(time[weight > 0])) == 1:
        value = f"{distinct[0]:g}" if distinct[0] else "zero"
        raise DataError(f"all times are {value}: a model of time cannot be fitted; check the time column")
    check_not_all_missing(frame[weight > 0])
    if len(np.unique(time)) >= _MIN_DISTINCT_TIMES:
        for name in frame.columns:
            if any(np.array_equal(frame[name].to_numpy(), times) for times in bounds):
                raise DataError(
                    f"feature {name!r} equals the follow-up time in every row; {drop_text([name])}"
                )


def constant_columns(frame: pd.DataFrame) -> list[Oddity]:
    """Columns with one value only."""
    constant = [str(name) for name in frame.columns[frame.nunique(dropna=False) == 1]]
    text = f"column {names_text(constant)} has the same value in every row"
    return [Oddity.of_columns(text, constant)] if constant else []


def missing_columns(frame: pd.DataFrame) -> list[Oddity]:
    """Columns that are missing in half of the rows or more; in more than half it is hardly ever meant."""
    if len(frame) < _MIN_IDENTIFIED:
        return []
    share, found = frame.isna().mean(), []
    for accident, wanted in ((True, share > _MOSTLY), (False, share == _MOSTLY)):
        if names := [str(name) for name in frame.columns[wanted]]:
            shares = ", ".join(f"{part:.0%}" for part in share[wanted])
            text = f"column {names_text(names)} is missing in {shares} of the rows"
            found.append(Oddity.of_columns(text, names, accident, "find out why, or "))
    return found


def odd_columns(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Oddities of features (n, p), as `SurvivalData` has them, and of times (n,).

    Identifiers, columns that determine the outcome, and columns that are mostly missing.
    """
    found = [oddity for name in frame.columns for oddity in _identifiers(frame, str(name))]
    return [*found, *_leaks(frame, time, event), *missing_columns(frame)]


def few_events(frame: pd.DataFrame, event: BoolArray) -> list[Oddity]:
    """Fewer than ten events, or fewer than the features have columns after encoding."""
    n_events = int(event.sum())
    if n_events < _FEW_EVENTS:
        text = f"{n_events} event{'s' * (n_events > 1)} in {len(event)} rows"
        return [Oddity(text, "fewer than ten events have little information on features; collect more rows")]
    coded = [isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes]
    n_numeric = len(coded) - sum(coded)
    n_encoded = n_numeric + int(frame.loc[:, coded].nunique().sum())
    if n_encoded <= n_events or is_wide(n_numeric, len(frame)):
        return []
    remedy = "with few events many columns overfit; drop columns, or merge categories"
    return [Oddity(f"{n_encoded} columns after encoding, but {n_events} events", remedy)]


def several_rows(column: pd.Series) -> list[Oddity]:
    """A column that by its name identifies subjects, of which some have several rows."""
    name, present = str(column.name), column.dropna()
    n, n_rows = present.nunique(), len(present)
    if not _SUBJECT.fullmatch(name) or not _MIN_IDENTIFIED <= n < n_rows:
        return []
    if pd.api.types.is_numeric_dtype(column.dtype) and (present != np.floor(present)).any():
        return []
    first = present[present.duplicated()].iloc[0]
    text = (
        f"column {name!r} has {n} different values in {n_rows} rows, {label(first)!r} in "
        f"{rows_text((column == first).to_numpy())}: rows of a subject are not independent"
    )
    remedy = "name it with id= if they follow each other in time; else keep one of them, or take standard "
    return [Oddity(text, f"{remedy}errors by cluster, and {drop_text([name])}", True)]


def _identifiers(frame: pd.DataFrame, name: str) -> list[Oddity]:
    column = frame[name]
    if subjects := several_rows(column):
        return subjects
    if not isinstance(column.dtype, pd.CategoricalDtype):
        text = f"column {name!r} has a different whole number in every row, as an identifier has"
        return [Oddity.of_columns(text, [name])] if _identifies(frame, name) else []
    n, n_rows = column.nunique(), int(column.count())
    text = f"column {name!r} has {n} different values in {n_rows} rows, as an identifier has"
    found = n_rows >= _MIN_IDENTIFIED and n > _IDENTIFYING * n_rows
    return [Oddity.of_columns(text, [name])] if found else []


def _identifies(frame: pd.DataFrame, name: str) -> bool:
    """True if a column has a whole number for each row, too many or too close together to measure anything.

    Rows that repeat others in every column count once: they do not hide an identifier.
    """
    values: FloatArray = frame[name].to_numpy()
    part = values[:: max(len(values) // _MANY_ROWS, 1)]
    if (part != np.floor(part)).any() or 2 * len(np.unique(part)) < len(part):  # NaN is no whole number
        return False
    if (values != np.floor(values)).any():
        return False
    shared = frame[name].duplicated(keep=False)
    if shared.mean() > 0.5 or frame[shared].drop_duplicates()[name].duplicated().any():
        return False
    n = frame[name].nunique()
    close = values.max() - values.min() < 3 * n
    return bool(n >= (_MIN_IDENTIFIED if close else _MIN_SCATTERED))


def _leaks(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> Iterator[Oddity]:
    """Columns that order the rows as their times do, or that separate rows with events from the others."""
    some = np.linspace(0, len(time) - 1, min(len(time), _MAX_RANKED)).astype(np.int64)
    for name in map(str, frame.columns):
        column, after = frame[name], "it is probably known only afterwards"
        part, e = column.iloc[some], event[some]
        if not isinstance(column.dtype, pd.CategoricalDtype) and _orders(part, time[some]):
            text = f"orders the rows as the follow-up time does (rank correlation above {_TELLS_TIME:g})"
            yield Oddity.of_columns(f"column {name!r} {text}: {after}", [name])
        elif (area := _separation(part, e)) > (_SUSPECT if _OUTCOME_NAME.search(name) else _TELLS_EVENT):
            text = f"(area under the curve {math.floor(1000 * area) / 1000:g}): {after}"
            text = f"column {name!r} separates rows with events from rows without {text}"
            yield Oddity.of_columns(text, [name], area > _TELLS_EVENT)
        else:
            yield from _only_events(column, event)


def _orders(column: pd.Series, time: FloatArray) -> bool:
    """Whether Spearman's rho of a numeric column and the times is nearly 1 or -1."""
    there = column.notna().to_numpy()
    ranks, others = rankdata(column[there]), rankdata(time[there])
    if len(ranks) < _MIN_RANKED or not np.ptp(ranks) or not np.ptp(others):
        return False
    return bool(abs(np.corrcoef(ranks, others)[0, 1]) > _TELLS_TIME)


def _separation(column: pd.Series, event: BoolArray) -> float:
    """Area under the curve of a column as a prediction of the event.

    It is that of the ranks of a numeric column, and that of the shares of events in the categories of a
    categorical one or of a numeric one with few values, a missing value being a category.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _area_of_codes(pd.factorize(column, use_na_sentinel=False)[0], event)
    there = column.notna().to_numpy()
    area = _area(rankdata(column[there]), event[there])
    if column.nunique() <= _FEW_VALUES:
        return max(area, _area_of_codes(pd.factorize(column, use_na_sentinel=False)[0], event))
    return area if there.all() else max(area, _area_of_codes(there.astype(np.int64), event))


def _area(ranks: FloatArray, event: BoolArray) -> float:
    """Area under the curve of ranks as predictions of the event, in either direction; 0 of too few rows."""
    n_events = int(event.sum())
    pairs = float(n_events) * (len(event) - n_events)
    if min(n_events, len(event) - n_events) < _MIN_EACH:
        return 0.0
    area = (float(ranks[event].sum()) - 0.5 * n_events * (n_events + 1)) / pairs
    return max(area, 1.0 - area)


def _area_of_codes(codes: IntArray, event: BoolArray) -> float:
    """Area under the curve of the share of events in each category."""
    rows, events = np.bincount(codes), np.bincount(codes, weights=event)
    rare = rows < _MIN_CATEGORY
    rows[rare], events[rare] = rows[rare].sum(), events[rare].sum()
    shares = np.divide(events, rows, out=np.zeros(len(rows)), where=rows > 0)
    return _area(rankdata(shares[codes]), event)


def _only_events(column: pd.Series, event: BoolArray) -> Iterator[Oddity]:
    """Categories, or a column that is there, whose rows all have events and hold half of all events."""
    share = float(event.mean())
    if share > _MOST_EVENTS:
        return
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, words = column.cat.codes.to_numpy(), [repr(str(word)) for word in column.cat.categories]
    else:
        codes, words = column.isna().to_numpy() * -1, ["not missing"]
    known = codes >= 0
    rows = np.bincount(codes[known], minlength=len(words))
    events = np.bincount(codes[known], weights=event[known], minlength=len(words))
    only = np.flatnonzero((rows == events) & (share**rows < _CHANCE / max(len(words), 1)))
    if events[only].sum() < max(_LEAST_HELD * event.sum(), _MIN_EACH):
        return
    named = " or ".join(words[k] for k in only[:_NAMES_SHOWN]) + (", ..." if len(only) > _NAMES_SHOWN else "")
    yield Oddity(
        f"column {str(column.name)!r} is {named} in {rows_text(np.isin(codes, only))}, all of them with "
        "events: it is probably known only afterwards",
        f"if it is, {drop_text([str(column.name)])}",
    )
