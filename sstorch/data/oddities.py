"""Training rows from which nothing can be learned, and suspicious columns, which can invalidate results.

The thresholds are constants here; on the named data sets there is no false finding.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import counted, names_text, rows_text
from sstorch.data.columns import check_not_all_missing, is_wide, label
from sstorch.exceptions import DataError, warn

# A column of labels with more different ones than this share of the rows identifies rows, not groups.
_IDENTIFYING = 0.75
# Rows from which findings are no chance: labels, a share of missing values, a rank correlation; and whole
# numbers that are far apart, of which fewer can differ by chance.
_MIN_ROWS, _MIN_SCATTERED = 20, 100
# Names of columns that identify subjects.
_SUBJECT = re.compile(
    r"(.*[ _.-])?id|(pid|pat|patient|subject|proband|fall)([ _.-]*(id|no|nr|num|number)[ .]*)?",
    re.IGNORECASE,
)
_FEW_EVENTS = 10
# Below this many different times a feature can equal the times by chance.
_MIN_DISTINCT_TIMES = 10
# Rank correlation with the times above which a column is a time, and the rows it is computed from at most.
_OF_TIME, _MAX_RANKED = 0.99, 10_000
# Share of the rows with, or without, events that a column may assign wrongly and still determine the event; a
# number with more values has one more, whether it is missing; rarer values are one.
_WRONG, _FEW_VALUES, _MIN_VALUE = 0.01, 10, 5


@dataclass(frozen=True)
class Oddity:
    """A finding and its remedy."""

    text: str  # names column, rows and values
    remedy: str
    accident: bool = False  # hardly ever meant: an error in strict mode


def report(oddities: Iterable[Oddity], strict: bool) -> None:
    """Warn of oddities, each in a line; refuse accidents if ``strict``."""
    found = list(oddities)
    if strict and (accidents := [oddity for oddity in found if oddity.accident]):
        texts = "; ".join(f"{oddity.text}: {oddity.remedy}" for oddity in accidents)
        raise DataError(f"{texts}, drop=[NAME, ...], or if this is intended, keep columns with strict=False")
    for oddity in found:
        warn(f"{oddity.text}: {oddity.remedy}")


def check_trainable(
    frame: pd.DataFrame, time: FloatArray, event: BoolArray, weight: FloatArray, bounds: list[FloatArray]
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
    if len(np.unique(time)) < _MIN_DISTINCT_TIMES:
        return
    for name in frame.columns:
        if any(np.array_equal(frame[name].to_numpy(), times) for times in bounds):
            raise DataError(f"feature {name!r} equals the follow-up time in every row; leave it out")


def few_events(frame: pd.DataFrame, event: BoolArray) -> list[Oddity]:
    """Fewer than ten events, or fewer than the features have columns after encoding."""
    n_events = int(event.sum())
    if n_events < _FEW_EVENTS:
        text = f"{counted(n_events, 'event')} in {len(event)} rows"
        return [Oddity(text, "fewer than ten events have little information on features; collect more rows")]
    coded = [isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes]
    n_numeric = len(coded) - sum(coded)
    n_encoded = n_numeric + int(frame.loc[:, coded].nunique().sum())
    if n_encoded <= n_events or is_wide(n_numeric, len(frame)):
        return []
    remedy = "with few events many columns overfit; drop columns, or merge categories"
    return [Oddity(f"{n_encoded} columns after encoding, but {n_events} events", remedy)]


def constant_columns(frame: pd.DataFrame) -> list[Oddity]:
    """Columns with one value only."""
    constant = frame.columns[frame.nunique(dropna=False) == 1]
    text = f"column {names_text(constant)} has the same value in every row"
    return [Oddity(text, "leave it out", accident=True)] if len(constant) else []


def odd_columns(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Features (n, p) that identify rows, determine the times or events (n,), or are mostly missing."""
    found = [oddity for _, column in frame.items() for oddity in _of_column(column, time, event)]
    share = frame.isna().mean()
    if len(frame) >= _MIN_ROWS and (mostly := share[share > 0.5]).size:
        shares = ", ".join(f"{part:.0%}" for part in mostly)
        text = f"column {names_text(mostly.index)} is missing in {shares} of the rows"
        found.append(Oddity(text, "find out why, or leave it out", accident=True))
    return found


def _of_column(column: pd.Series, time: FloatArray, event: BoolArray) -> Iterator[Oddity]:
    where, known = f"column {str(column.name)!r}", column.dropna()
    n, n_rows = known.nunique(), len(known)
    coded = isinstance(column.dtype, pd.CategoricalDtype)
    whole = coded or bool((known == np.floor(known)).all())
    if whole and _SUBJECT.fullmatch(str(column.name)) and _MIN_ROWS <= n < n_rows:
        first = known[known.duplicated()].iloc[0]
        yield Oddity(
            f"{where} has {n} different values in {n_rows} rows, {label(first)!r} in "
            f"{rows_text((column == first).to_numpy())}: rows of a subject are not independent",
            "name it with id= if they follow each other in time; else keep one of them, or take standard "
            "errors by cluster, and leave it out",
            accident=True,
        )
    elif coded and n_rows >= _MIN_ROWS and n > _IDENTIFYING * n_rows:
        text = f"{where} has {n} different values in {n_rows} rows, as an identifier has"
        yield Oddity(text, "leave it out", accident=True)
    elif (
        whole
        and not coded
        and n == len(column) >= _MIN_ROWS
        and (n >= _MIN_SCATTERED or known.max() - known.min() < 3 * n)
    ):
        text = f"{where} has a different whole number in every row, as an identifier has"
        yield Oddity(text, "leave it out", accident=True)
    else:
        some = np.linspace(0, len(time) - 1, min(len(time), _MAX_RANKED)).astype(np.int64)
        text = ""
        if not coded and _orders(column.iloc[some].to_numpy(), time[some]):
            text = f"orders the rows as the follow-up time does (rank correlation above {_OF_TIME:g})"
        elif _determines(column if coded or n <= _FEW_VALUES else column.isna(), event):
            text = "separates rows with events from rows without"
        if text:
            remedy = "it is probably known only afterwards: leave it out"
            yield Oddity(f"{where} {text}", remedy, accident=True)


def _orders(values: FloatArray, time: FloatArray) -> bool:
    """Whether Spearman's rho of a numeric column and the times is nearly 1 or -1."""
    there = ~np.isnan(values)
    values, time = values[there], time[there]
    if len(values) < _MIN_ROWS or not np.ptp(values) or not np.ptp(time):
        return False
    return bool(abs(spearmanr(values, time).statistic) > _OF_TIME)


def _determines(column: pd.Series, event: BoolArray) -> bool:
    """Whether nearly all rows with a value, or without one, have the event, or nearly all have not."""
    fewer = min(event.sum(), (~event).sum())
    codes = pd.factorize(column, use_na_sentinel=False)[0]
    codes = np.where(np.bincount(codes)[codes] < _MIN_VALUE, codes.max() + 1, codes)
    rows, events = np.bincount(codes), np.bincount(codes, weights=event)
    return bool(fewer >= _FEW_EVENTS and np.minimum(events, rows - events).sum() <= _WRONG * fewer)
