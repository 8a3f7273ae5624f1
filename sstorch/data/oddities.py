"""Training rows from which nothing can be learned, and suspicious ones, which can invalidate results.

Each check returns its findings as :class:`Oddity`. Its thresholds are constants here; on the named data sets
it has no false finding (``docs/data_sets.md`` lists all findings).
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import counted, names_text, rows_text
from sstorch.data.columns import check_not_all_missing, is_wide, label
from sstorch.exceptions import DataError, warn

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
_FEW_EVENTS = 10
# Below this many different times a feature can equal the times by chance.
_MIN_DISTINCT_TIMES = 10
# Rows from which a rank correlation above the bound is no chance, and those it is computed from at most.
_MIN_RANKED, _MAX_RANKED = 20, 10_000
_OF_TIME = 0.99
# Rows with and without events from which the area under the curve above its bound is no chance, and the lower
# bound for columns that are called as outcomes are.
_MIN_EACH = 10
_OF_EVENT, _SUSPECT = 0.99, 0.9
_OUTCOME_NAME = re.compile(
    r"(?<![a-z])(status|vital|dead|died|death|deceased|alive|event|censor(ed)?|cens|outcome)(?![a-z])"
    r"|cause.?of.?death",
    re.IGNORECASE,
)
# A numeric column with at most so many values is read as categories, too; rarer categories are one.
_FEW_VALUES, _MIN_CATEGORY = 10, 5
# Categories whose rows all have events: the probability of it by chance, the least share of all events that
# they hold, and the largest share of events among all rows, above which it means little.
_CHANCE, _LEAST_HELD, _MOST_EVENTS = 1e-4, 0.5, 0.9
_AFTERWARDS = "it is probably known only afterwards"


@dataclass(frozen=True)
class Oddity:
    """A finding and its remedy."""

    text: str  # names column, rows and values
    remedy: str  # what to do
    accident: bool = False  # true if it is hardly ever meant: such a column is refused in strict mode


def _leave_out(text: str, names: Sequence[str], before: str = "", accident: bool = True) -> Oddity:
    """Columns that are best left out; other words before the remedy."""
    return Oddity(text, f"{before}leave {'it' if len(names) == 1 else 'them'} out", accident)


def report(oddities: Iterable[Oddity], strict: bool) -> None:
    """Warn of oddities, each in a line; refuse accidents if ``strict``."""
    found = list(oddities)
    if strict and (accidents := [oddity for oddity in found if oddity.accident]):
        texts = "; ".join(f"{oddity.text}: {oddity.remedy}" for oddity in accidents)
        raise DataError(f"{texts}, drop=[NAME, ...], or if this is intended, keep columns with strict=False")
    for oddity in found:
        warn(f"{oddity.text}: {oddity.remedy}")


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
    constant = [str(name) for name in frame.columns[frame.nunique(dropna=False) == 1]]
    text = f"column {names_text(constant)} has the same value in every row"
    return [_leave_out(text, constant)] if constant else []


def odd_columns(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Oddities of features (n, p), as `SurvivalData` has them, and of times (n,).

    Identifiers, columns that determine the outcome, and columns that are mostly missing.
    """
    identifiers = [oddity for _, column in frame.items() for oddity in _identifiers(column)]
    return [*identifiers, *_leaks(frame, time, event), *_missing(frame)]


def _missing(frame: pd.DataFrame) -> Iterator[Oddity]:
    """Columns that are missing in half of the rows or more; in more than half it is hardly ever meant."""
    share = frame.isna().mean()
    for accident, wanted in ((True, share > 0.5), (False, share == 0.5)):
        if len(frame) >= _MIN_IDENTIFIED and (names := list(map(str, frame.columns[wanted]))):
            shares = ", ".join(f"{part:.0%}" for part in share[wanted])
            text = f"column {names_text(names)} is missing in {shares} of the rows"
            yield _leave_out(text, names, "find out why, or ", accident)


# ---------------------------------------------------------------------- identifiers


def _identifiers(column: pd.Series) -> Iterator[Oddity]:
    """A column that identifies subjects, by its name, or rows, by its values."""
    name, present = str(column.name), column.dropna()
    coded = isinstance(column.dtype, pd.CategoricalDtype)
    # The first rows of a measurement differ from whole numbers already.
    if not coded and any((some != np.floor(some)).any() for some in (present[:100], present)):
        return
    n, n_rows = present.nunique(), len(present)
    if _SUBJECT.fullmatch(name) and _MIN_IDENTIFIED <= n < n_rows:
        first = present[present.duplicated()].iloc[0]
        text = (
            f"column {name!r} has {n} different values in {n_rows} rows, {label(first)!r} in "
            f"{rows_text((column == first).to_numpy())}: rows of a subject are not independent"
        )
        remedy = (
            "name it with id= if they follow each other in time; else keep one of them, or take standard "
        )
        yield _leave_out(text, [name], f"{remedy}errors by cluster, and ")
    elif coded and n_rows >= _MIN_IDENTIFIED and n > _IDENTIFYING * n_rows:
        text = f"column {name!r} has {n} different values in {n_rows} rows, as an identifier has"
        yield _leave_out(text, [name])
    elif not coded and n == len(column):
        close = present.max() - present.min() < 3 * n
        if n >= (_MIN_IDENTIFIED if close else _MIN_SCATTERED):
            text = f"column {name!r} has a different whole number in every row, as an identifier has"
            yield _leave_out(text, [name])


# ---------------------------------------------------------------------- leaks of the outcome


def _leaks(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> Iterator[Oddity]:
    """Columns that order the rows as their times do, or that separate rows with events from the others."""
    some = np.linspace(0, len(time) - 1, min(len(time), _MAX_RANKED)).astype(np.int64)
    for name, column in frame.items():
        where, part = f"column {str(name)!r}", column.iloc[some]
        if not isinstance(column.dtype, pd.CategoricalDtype) and _orders(part, time[some]):
            text = f"orders the rows as the follow-up time does (rank correlation above {_OF_TIME:g})"
            yield _leave_out(f"{where} {text}: {_AFTERWARDS}", [str(name)])
            continue
        area = _separation(part, event[some])
        if area > (_SUSPECT if _OUTCOME_NAME.search(str(name)) else _OF_EVENT):
            shown = f"(area under the curve {math.floor(1000 * area) / 1000:g})"
            text = f"{where} separates rows with events from rows without {shown}: {_AFTERWARDS}"
            yield _leave_out(text, [str(name)], accident=area > _OF_EVENT)
        elif (only := _only_events(column, event)) is not None:
            what, rows = only
            text = f"{where} is {what} in {rows_text(rows)}, all of them with events: {_AFTERWARDS}"
            yield _leave_out(text, [str(name)], "if it is, ", accident=False)


def _orders(column: pd.Series, time: FloatArray) -> bool:
    """Whether Spearman's rho of a numeric column and the times is nearly 1 or -1."""
    there = column.notna().to_numpy()
    ranks, others = rankdata(column[there]), rankdata(time[there])
    if len(ranks) < _MIN_RANKED or not np.ptp(ranks) or not np.ptp(others):
        return False
    return bool(abs(np.corrcoef(ranks, others)[0, 1]) > _OF_TIME)


def _separation(column: pd.Series, event: BoolArray) -> float:
    """Area under the curve of a column as a prediction of the event.

    It is that of the ranks of a numeric column, and that of the shares of events in the categories of a
    categorical one or of a numeric one with few values, a missing value being a category.
    """
    there, area = column.notna().to_numpy(), 0.0
    if not isinstance(column.dtype, pd.CategoricalDtype):
        area = _area(rankdata(column[there]), event[there])
        if column.nunique() > _FEW_VALUES:
            return area if there.all() else max(area, _area_of_codes(there.astype(np.int64), event))
    return max(area, _area_of_codes(pd.factorize(column, use_na_sentinel=False)[0], event))


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


def _only_events(column: pd.Series, event: BoolArray) -> tuple[str, BoolArray] | None:
    """Categories, or not being missing, whose rows (n,) all have events and hold half of all events."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, words = column.cat.codes.to_numpy(), [repr(str(word)) for word in column.cat.categories]
    else:
        codes, words = column.isna().to_numpy() * -1, ["not missing"]
    known, share = codes >= 0, float(event.mean())
    rows = np.bincount(codes[known], minlength=len(words))
    events = np.bincount(codes[known], weights=event[known], minlength=len(words))
    only = np.flatnonzero((rows == events) & (share**rows < _CHANCE / max(len(words), 1)))
    if share > _MOST_EVENTS or events[only].sum() < max(_LEAST_HELD * event.sum(), _MIN_EACH):
        return None
    return " or ".join(words[k] for k in only[:5]) + ", ..." * (len(only) > 5), np.isin(codes, only)
