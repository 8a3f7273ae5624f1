"""Columns that are known only with the outcome: they order rows as the times do, or separate the events."""

import math
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import rows_text
from sstorch.data.oddity import Oddity, drop_text

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


def leaks(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Columns that order the rows as their times do, or that separate rows with events from the others.

    The area under the curve is that of the ranks of a numeric column, and that of the shares of events in the
    categories of a categorical one or of a numeric one with few values, a missing value being a category.
    """
    some = np.linspace(0, len(time) - 1, min(len(time), _MAX_RANKED)).astype(np.int64)
    t, e = rankdata(time[some]), event[some]
    found: list[Oddity] = []
    for name in map(str, frame.columns):
        column = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes, missing = column.cat.codes.to_numpy()[some].astype(np.int64), len(column.cat.categories)
            area = _area_of_codes(np.where(codes < 0, missing, codes), e)
        else:
            values = column.to_numpy()[some]
            there = ~np.isnan(values)
            ranks: FloatArray = rankdata(values[there])
            times = t if there.all() else rankdata(t[there])
            if there.sum() >= _MIN_RANKED and abs(_correlation(ranks, times)) > _TELLS_TIME:
                text = f"orders the rows as the follow-up time does (rank correlation above {_TELLS_TIME:g})"
                found.append(
                    Oddity.of_columns(f"column {name!r} {text}: it is probably known only afterwards", [name])
                )
                continue
            area = _area(ranks, e[there])
            few = np.unique(values[there])
            if len(few) <= _FEW_VALUES or not there.all():
                codes = np.where(there, np.searchsorted(few, values), len(few))
                area = max(
                    area, _area_of_codes(np.where(there, 0, 1) if len(few) > _FEW_VALUES else codes, e)
                )
        bound = _SUSPECT if _OUTCOME_NAME.search(name) else _TELLS_EVENT
        if area > bound:
            text = (
                f"column {name!r} separates rows with events from rows without (area under the curve "
                f"{math.floor(1000 * area) / 1000:g}): it is probably known only afterwards"
            )
            found.append(Oddity.of_columns(text, [name], area > _TELLS_EVENT))
        else:
            found += _only_events(column, event)
    return found


def _correlation(ranks: FloatArray, others: FloatArray) -> float:
    """Spearman's rho from two sets of ranks, 0 if one of them is constant."""
    a, b = (values - 0.5 * (len(ranks) + 1) for values in (ranks, others))
    norm = math.sqrt(float((a**2).sum()) * float((b**2).sum()))
    return float(a @ b) / norm if norm else 0.0


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
