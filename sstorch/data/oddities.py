"""Suspicious properties of the rows of a table, which can invalidate results without an error.

Each check returns its findings as :class:`Oddity`. Its thresholds are constants here; on the named data sets
it has no false finding (``docs/data_sets.md`` lists all findings).
"""

import math
import re
import unicodedata
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import binom

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import names_text, option_text, rows_text
from sstorch.data.columns import is_wide, label
from sstorch.data.leaks import leaks
from sstorch.data.oddity import Oddity, drop_text
from sstorch.data.strays import odd_values

# A column with more missing values than this share has mostly none.
_MOSTLY = 0.5
# A column of labels with more different ones than this share of the rows identifies rows, not groups.
_IDENTIFYING = 0.75
# Rows from which different labels, or whole numbers that lie close together, identify the rows.
_MIN_IDENTIFIED = 20
# And whole numbers that lie anywhere: fewer measurements can differ by chance.
_MIN_SCATTERED = 100
_MANY_CATEGORIES = 100
# Probability from which on repeated rows are chance.
_BY_CHANCE = 1e-3
# Names of columns that identify subjects.
_SUBJECT = re.compile(
    r"(.*[ _.-])?id|(pid|pat|patient|subject|proband|fall)([ _.-]*(id|no|nr|num|number)[ .]*)?",
    re.IGNORECASE,
)
# Rows of a first, cheap check of whether numbers can be those of an identifier.
_MANY_ROWS = 10_000
_FEW_EVENTS = 10
# Repdigits that represent "unknown" in data entry, besides 9 itself: 77, 88, 99, 777 ...; either sign; -1.
_CODES = np.array([9.0, *(float(digit * count) for digit in "789" for count in range(2, 7))])
_CODES = np.concatenate([_CODES, -_CODES, [99.9, 999.9, 99.99, 999.99, -1.0]])
# A code within the reach of the measurements is one if it is this often as frequent as other values are.
_FREQUENT = 5


# ---------------------------------------------------------------------- columns


def constant_columns(frame: pd.DataFrame) -> list[Oddity]:
    """Columns with one value only."""
    constant = [str(name) for name in frame.columns if _is_constant(frame[name])]
    if not constant:
        return []
    return [Oddity.of_columns(f"column {names_text(constant)} has the same value in every row", constant)]


def missing_columns(frame: pd.DataFrame) -> list[Oddity]:
    """Columns that are missing in half of the rows or more; in more than half it is hardly ever meant."""
    if len(frame) < _MIN_IDENTIFIED:
        return []
    share = frame.isna().mean()
    found = []
    for accident in (True, False):
        names = [str(name) for name in frame.columns if share[name] >= _MOSTLY]
        names = [name for name in names if (share[name] > _MOSTLY) == accident]
        if names:
            shares = ", ".join(f"{share[name]:.0%}" for name in names)
            text = f"column {names_text(names)} is missing in {shares} of the rows"
            found.append(Oddity.of_columns(text, names, accident, "find out why, or "))
    return found


def _is_constant(column: pd.Series) -> bool:
    values = column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool((values == values.iloc[0]).all() or column.isna().all())


def odd_columns(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Oddities of features (n, p), as `SurvivalData` has them, and of times (n,).

    Identifiers, codes for missing values, numbers far from all others, two units in a column, categories that
    are spelled in several ways, columns of more than 100 categories, columns that determine the outcome, and
    columns that are mostly missing.
    """
    found = list(odd_values(time, "the time"))
    for name in frame.columns:
        column = frame[name]
        if subjects := several_rows(column):
            found += subjects
        elif isinstance(column.dtype, pd.CategoricalDtype):
            found += _odd_labels(column)
        else:
            found += _odd_numbers(frame, str(name), time)
    return [*found, *leaks(frame, time, event), *missing_columns(frame)]


def few_events(frame: pd.DataFrame, event: BoolArray) -> list[Oddity]:
    """Fewer than ten events, or fewer than the features have columns after encoding."""
    n_events = int(event.sum())
    if n_events < _FEW_EVENTS:
        text = f"{n_events} event{'s' * (n_events > 1)} in {len(event)} rows"
        return [Oddity(text, "fewer than ten events have little information on features; collect more rows")]
    n_encoded = sum(
        int((_frequencies(frame[name]) > 0).sum()) if isinstance(kind, pd.CategoricalDtype) else 1
        for name, kind in frame.dtypes.items()
    )
    n_numeric = sum(not isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes)
    if n_encoded <= n_events or is_wide(n_numeric, len(frame)):  # columns that have priors of their own
        return []
    return [
        Oddity(
            f"{n_encoded} columns after encoding, but {n_events} events",
            "with few events many columns overfit; drop columns, or merge categories",
        )
    ]


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
    return [Oddity(text, f"{remedy}errors by cluster, and {drop_text([name])}", True, (name,))]


def _frequencies(column: pd.Series) -> IntArray:
    """Rows of each category."""
    codes = column.cat.codes.to_numpy()
    return np.bincount(codes[codes >= 0], minlength=len(column.cat.categories))


def _odd_labels(column: pd.Series) -> Iterator[Oddity]:
    name, counts = str(column.name), _frequencies(column)
    present = [str(word) for word, count in zip(column.cat.categories, counts, strict=True) if count]
    n_rows = int(counts.sum())
    if n_rows >= _MIN_IDENTIFIED and len(present) > _IDENTIFYING * n_rows:
        text = f"column {name!r} has {len(present)} different values in {n_rows} rows, as an identifier has"
        yield Oddity.of_columns(text, [name])
        return
    spellings: dict[str, list[str]] = {}
    for word in present:
        folded = " ".join(unicodedata.normalize("NFKC", word).casefold().split())
        spellings.setdefault(folded, []).append(word)
    alike = [words for words in spellings.values() if len(words) > 1]
    if alike:
        frequency = dict(zip(map(str, column.cat.categories), counts, strict=True))
        rare = [word for words in alike for word in words if word != max(words, key=frequency.__getitem__)]
        yield Oddity(
            f"column {name!r} has categories that differ by case or blanks only, "
            f"{' and '.join(names_text(words) for words in alike[:3])}, the rarer in "
            f"{rows_text(column.isin(rare).to_numpy())}",
            "write each in one way",
            True,
        )
    if len(present) > _MANY_CATEGORIES:
        yield Oddity(
            f"column {name!r} has {len(present)} categories, each of which has a coefficient",
            f"join the rare ones, or {drop_text([name])}",
        )


def _odd_numbers(frame: pd.DataFrame, name: str, time: FloatArray) -> Iterator[Oddity]:
    values: FloatArray = frame[name].to_numpy()
    if _identifies(frame, name):
        text = f"column {name!r} has a different whole number in every row, as an identifier has"
        yield Oddity.of_columns(text, [name])
        return
    codes = _codes_of_missing(values)
    if codes.size:
        named = [int(code) if code.is_integer() else code for code in codes.tolist()]
        others = frame.drop(columns=name).select_dtypes("number")
        # Elsewhere it can be a number.
        elsewhere = others.isin(codes).to_numpy().any() or np.isin(time, codes).any()
        remedy = [f"{name}={code}" if elsewhere else code for code in named]
        option = option_text("missing", remedy, "")
        yield Oddity(
            f"column {name!r} is {' or '.join(map(str, named))} in {rows_text(np.isin(values, codes))}, "
            "far from its other values, as a code for a missing value is",
            f"if it is one, {f'give {option}' if option else 'set these cells to missing (NaN)'}",
            True,
            missing=tuple(remedy),
        )
        return
    yield from odd_values(values, f"column {name!r}")


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


def _codes_of_missing(values: FloatArray) -> FloatArray:
    """Codes such as -999 and 99 that lie far from all other values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column without values
        low, high = np.nanmin(values), np.nanmax(values)
    if not np.isin((low, high), _CODES).any():
        return np.empty(0)
    is_code = np.isin(values, _CODES)
    others = values[~is_code & ~np.isnan(values)]
    if not len(others) or others.min() == others.max():
        return np.empty(0)
    low, high = others.min(), others.max()
    usual = len(others) / len(np.unique(others))
    found = []
    for code in np.unique(values[is_code]):
        count, gap = int((values == code).sum()), max(low - code, code - high)
        # Of numbers from 0 on, -1 can be one; of those from 1 on it is none.
        far = low >= 1 if code == -1 else gap > 0.5 * (high - low) or code < 0 <= low
        frequent = gap > 0 and count >= _FREQUENT and count > _FREQUENT * usual
        # A single 9 may well be a number of something.
        if (far and (abs(code) > 9 or count > 1)) or (frequent and abs(code) > 9):
            found.append(code)
    return np.array(found)


# ---------------------------------------------------------------------- rows


def repeated_rows(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Rows that repeat others in all features, time and event, more often than rows do by chance.

    Where all features are coarse, different subjects agree in everything. So repeats are named only where
    most pairs of rows with equal features have equal outcomes, and more than any two rows, or where many
    more of those with events do than any two rows with events: times of censoring can depend on a feature,
    such as the day of entry, and then agree with it, or be the same for all, at the end of a study.
    """
    features = pd.util.hash_pandas_object(frame, index=False)
    outcome = pd.util.hash_pandas_object(pd.DataFrame({"time": time, "event": event}), index=False)
    whole = pd.util.hash_pandas_object(pd.DataFrame({"x": features, "y": outcome}), index=False)
    repeats = whole.duplicated().to_numpy()
    if not repeats.any():
        return []
    n_events = int(event.sum())
    chance = _pairs(outcome[event]) / max(0.5 * n_events * (n_events - 1), 1.0)
    expected = _pairs(features[event]) * chance
    of_events = _pairs(whole[event]) > 2 * expected + 3 * math.sqrt(expected)
    alike, agreeing, n = _pairs(features), _pairs(whole), len(outcome)
    at_random = _pairs(outcome) / (0.5 * n * (n - 1))
    if not of_events and (2 * agreeing <= alike or binom.sf(agreeing - 1, alike, at_random) > _BY_CHANCE):
        return []
    times = np.unique(whole.value_counts(sort=False).to_numpy())
    if len(times) == 1:
        text = f"every row stands {times[0]} times in the data"
    else:
        verb = "repeats another" if repeats.sum() == 1 else "repeat others"
        text = f"{rows_text(repeats)} {verb} in every column"
    return [
        Oddity(
            text,
            "remove them if they are the same subjects: they would count twice, and stand in training and "
            "test rows at once",
        )
    ]


def _pairs(codes: pd.Series) -> float:
    """Number of pairs of rows that are equal."""
    counts = codes.value_counts(sort=False).to_numpy().astype(np.float64)
    return float((counts * (counts - 1)).sum()) / 2
