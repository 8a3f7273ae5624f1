"""Training rows from which nothing can be learned, and suspicious columns, which can invalidate results.

The thresholds are constants here; on the named data sets there is no false finding.
"""

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import counted, names_text
from sstorch.data.columns import check_not_all_missing, is_wide, labels
from sstorch.data.surv import Surv
from sstorch.exceptions import DataError

# A column of labels with more different ones than this share of the rows identifies rows, not groups.
_IDENTIFYING = 0.75
# Rows from which findings are no chance: labels, a share of missing values, a rank correlation; and whole
# numbers that are far apart, of which fewer can differ by chance.
_MIN_ROWS, _MIN_SCATTERED = 20, 100
_FEW_EVENTS = 10
# Below this many different times a feature can equal the times by chance.
_MIN_DISTINCT = 10
# Rank correlation with the times above which a column is a time, and the rows it is computed from at most.
_OF_TIME, _MAX_RANKED = 0.99, 10_000
# Share of the rows with, or without, events that a column may assign wrongly and still determine the event; a
# number with more values has one more, whether it is missing; rarer values are one.
_WRONG, _FEW_VALUES, _MIN_VALUE = 0.01, 10, 5


def check_trainable(frame: pd.DataFrame, y: Surv, time: FloatArray, weight: FloatArray) -> None:
    """Refuse rows that nothing can be learned from, or whose features hold the outcome; times are (n,)."""
    if len(time) == 1:
        raise DataError("the data have one row; at least two are needed (n_samples = 1)")
    if not y.event.any():
        raise DataError(
            f"all {len(time)} rows are censored: no event to learn from; check the coding of the event column"
        )
    if y.intervals is not None and not y.intervals.lower.any():
        raise DataError(
            "lower must be > 0 in some rows, got left-censored ones alone: no row was event-free at a known "
            "time, and the estimate is an event of every row at time zero"
        )
    if not (y.event & (weight > 0)).any():
        raise DataError("every row with an event has sample_weight 0: no event to learn from")
    if len(distinct := np.unique(time[weight > 0])) == 1:
        value = f"{distinct[0]:g}" if distinct[0] else "zero"
        raise DataError(f"all times are {value}: a model of time cannot be fitted; check the time column")
    check_not_all_missing(frame[weight > 0])
    bounds = [time, *(y.intervals or ())]
    known = [("the follow-up time", own) for own in bounds if len(np.unique(own)) >= _MIN_DISTINCT]
    if y.entry is not None and np.ptp(y.entry):
        known.append(("the entry time", y.entry))
    subjects = labels(pd.Series([] if y.id is None else y.id))
    for name, column in frame.items():
        equal = [what for what, own in known if np.array_equal(column.to_numpy(), own)]
        # Labels of whole columns are slow; that of the first row of a measurement differs already.
        if np.array_equal(labels(column[:1]), subjects[:1]) and np.array_equal(labels(column), subjects):
            equal = ["the subject"]
        if equal:
            raise DataError(f"column {str(name)!r} of X equals {equal[0]} in every row; drop it from X")


def few_events(frame: pd.DataFrame, event: BoolArray) -> list[str]:
    """Fewer than ten events, or fewer than the features have columns after encoding."""
    n_events = int(event.sum())
    if n_events < _FEW_EVENTS:
        remedy = "fewer than ten events have little information on features; collect more rows"
        return [f"{counted(n_events, 'event')} in {len(event)} rows: {remedy}"]
    n_numeric = frame.select_dtypes("number").shape[1]
    n_encoded = n_numeric + int(frame.select_dtypes("category").nunique().sum())
    if n_encoded <= n_events or is_wide(n_numeric, len(frame)):
        return []
    remedy = "with few events many columns overfit; drop columns, or merge categories"
    return [f"{n_encoded} columns after encoding, but {n_events} events: {remedy}"]


def odd_columns(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[str]:
    """Features (n, p) that identify rows, determine the times or events (n,), or are mostly missing."""
    texts = ((name, _oddity(column, time, event)) for name, column in frame.items())
    found = [f"column {str(name)!r} {text}" for name, text in texts if text]
    share = frame.isna().mean()
    if len(frame) >= _MIN_ROWS and (mostly := share[share > 0.5]).size:
        shares = ", ".join(f"{part:.0%}" for part in mostly)
        text = f"column {names_text(mostly.index)} is missing in {shares} of the rows"
        found.append(f"{text}: find out why, or leave it out")
    return found


def _oddity(column: pd.Series, time: FloatArray, event: BoolArray) -> str:
    """What is odd of a feature, and the remedy; or no text."""
    known, coded = column.dropna(), isinstance(column.dtype, pd.CategoricalDtype)
    n = known.nunique()
    if coded and len(known) >= _MIN_ROWS and n > _IDENTIFYING * len(known):
        return f"has {n} different values in {len(known)} rows, as an identifier has: leave it out"
    numbered = not coded and n == len(column) >= _MIN_ROWS and bool((known == np.floor(known)).all())
    if numbered and (n >= _MIN_SCATTERED or known.max() - known.min() < 3 * n):
        return "has a different whole number in every row, as an identifier has: leave it out"
    remedy = "it is probably known only afterwards: leave it out"
    some = np.linspace(0, len(time) - 1, min(len(time), _MAX_RANKED)).astype(np.int64)
    if not coded and _orders(column.iloc[some].to_numpy(), time[some]):
        return f"orders the rows as the follow-up time does (rank correlation above {_OF_TIME:g}): {remedy}"
    if _determines(column if coded or n <= _FEW_VALUES else column.isna(), event):
        return f"separates rows with events from rows without: {remedy}"
    return ""


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
