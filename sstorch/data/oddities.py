"""What is odd about the rows of a table: they can be used, and results would be wrong without a word.

Each check gives what it found as an :class:`Oddity`. Numbers that it goes by are constants here; on the named
data sets it says nothing that is not so (``docs/data_sets.md`` lists what it says).
"""

import math
import unicodedata
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import names_text, option_text, rows_text
from sstorch.exceptions import DataError, DataWarning

# A column with more missing values than this share has mostly none.
_MOSTLY = 0.5
# A column of labels with more different ones than this share of the rows tells rows apart, not groups.
_IDENTIFYING = 0.75
# Rows from which different labels, or whole numbers that lie close together, identify the rows.
_MIN_IDENTIFIED = 20
# And whole numbers that lie anywhere: fewer measurements can differ by chance.
_MIN_SCATTERED = 100
# Rows from which a rank correlation above the bound is no chance, and those it is computed from at most.
_MIN_RANKED, _MAX_RANKED = 20, 10_000
_TELLS_TIME = 0.99
_MANY_CATEGORIES = 100
_FEW_EVENTS = 10
# Repdigits that stand for "unknown" in data entry, besides 9 itself: 77, 88, 99, 777 ...; either sign.
_CODES = np.array([9.0, *(float(digit * count) for digit in "789" for count in range(2, 7))])
_CODES = np.concatenate([_CODES, -_CODES, [99.9, 999.9, 99.99, 999.99]])
# A code within the reach of the measurements is one if it is this often as frequent as other values are.
_FREQUENT = 5


@dataclass(frozen=True)
class Oddity:
    """What was found, and what to do about it.

    Attributes:
        text: names column, rows and values.
        remedy: what to do.
        accident: True if it is hardly ever meant: such a column is refused in strict mode.
    """

    text: str
    remedy: str
    accident: bool = False


def tell(oddities: list[Oddity], strict: bool, stacklevel: int) -> None:
    """Warn of oddities, each in a line; refuse accidents if ``strict``.

    Args:
        oddities: what was found.
        strict: whether accidents are refused.
        stacklevel: of the warnings, as for :func:`warnings.warn` called in place of this function.

    Raises:
        DataError: there are accidents, and ``strict`` is true.
    """
    accidents = [oddity for oddity in oddities if oddity.accident]
    if strict and accidents:
        said = "; ".join(f"{oddity.text}: {oddity.remedy}" for oddity in accidents)
        keep = option_text("strict", False, "strict=False")
        raise DataError(f"{said}. If all of this is meant, keep it with {keep}")
    for oddity in oddities:
        warnings.warn(f"{oddity.text}: {oddity.remedy}", DataWarning, stacklevel=stacklevel + 1)


# ---------------------------------------------------------------------- columns


def uninformative(frame: pd.DataFrame) -> list[Oddity]:
    """Columns with one value only, or with more values missing than there."""
    names = [str(name) for name in frame.columns]
    constant = [name for name in names if _is_constant(frame[name])]
    share = frame.isna().mean()
    empty = [name for name in names if share[name] > _MOSTLY and name not in constant]
    found = []
    if constant:
        found.append(
            Oddity(f"column {names_text(constant)} has the same value in every row", _drop(constant), True)
        )
    if empty:
        shares = ", ".join(f"{share[name]:.0%}" for name in empty)
        text = f"column {names_text(empty)} is missing in {shares} of the rows"
        found.append(Oddity(text, _drop(empty), True))
    return found


def _is_constant(column: pd.Series) -> bool:
    values = column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool((values == values.iloc[0]).all() or column.isna().all())


def odd_columns(frame: pd.DataFrame, time: FloatArray) -> list[Oddity]:
    """Oddities of features.

    Identifiers, codes for missing values, categories that are spelled in several ways, columns that tell the
    time, and columns of more than 100 categories.

    Args:
        frame: features as :class:`~sstorch.SurvivalData` has them, (n, p).
        time: times, (n,).
    """
    found: list[Oddity] = []
    some = np.linspace(0, len(time) - 1, min(len(time), _MAX_RANKED)).astype(np.int64)
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            found += _odd_labels(column)
        else:
            found += _odd_numbers(frame, str(name), some, time)
    return found


def few_events(frame: pd.DataFrame, event: BoolArray) -> list[Oddity]:
    """Fewer than ten events, or fewer than the features have columns after encoding.

    Args:
        frame: features as :class:`~sstorch.SurvivalData` has them, (n, p).
        event: whether each was observed, (n,).
    """
    n_events = int(event.sum())
    if n_events < _FEW_EVENTS:
        text = f"{n_events} event{'s' * (n_events > 1)} in {len(event)} rows"
        return [Oddity(text, "fewer than ten say hardly anything about features; collect more rows")]
    n_encoded = sum(
        int((_frequencies(frame[name]) > 0).sum()) if isinstance(kind, pd.CategoricalDtype) else 1
        for name, kind in frame.dtypes.items()
    )
    if n_encoded <= n_events:
        return []
    return [
        Oddity(
            f"{n_encoded} columns after encoding, but {n_events} events",
            "so many columns tell so few events apart by chance; leave columns out, or join categories",
        )
    ]


def _frequencies(column: pd.Series) -> IntArray:
    """Rows of each category."""
    codes = column.cat.codes.to_numpy()
    return np.bincount(codes[codes >= 0], minlength=len(column.cat.categories))


def _odd_labels(column: pd.Series) -> Iterator[Oddity]:
    name, counts = str(column.name), _frequencies(column)
    present = [str(word) for word, count in zip(column.cat.categories, counts, strict=True) if count]
    n_rows = int(counts.sum())
    if n_rows >= _MIN_IDENTIFIED and len(present) > _IDENTIFYING * n_rows:
        yield Oddity(
            f"column {name!r} has {len(present)} different values in {n_rows} rows, as an identifier has",
            _drop([name]),
            True,
        )
        return
    spellings: dict[str, list[str]] = {}
    for word in present:
        spellings.setdefault(_folded(word), []).append(word)
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
            f"column {name!r} has {len(present)} categories, each of which becomes a column",
            f"join the rare ones, or {_drop([name])}",
        )


def _odd_numbers(frame: pd.DataFrame, name: str, some: IntArray, time: FloatArray) -> Iterator[Oddity]:
    values: FloatArray = frame[name].to_numpy()
    if _identifies(frame, name, some):
        yield Oddity(
            f"column {name!r} has a different whole number in every row, as an identifier has",
            _drop([name]),
            True,
        )
    x, t = values[some], time[some]
    there = ~np.isnan(x)
    if there.sum() >= _MIN_RANKED and abs(_rank_correlation(x[there], t[there])) > _TELLS_TIME:
        yield Oddity(
            f"column {name!r} orders the rows as the follow-up time does (rank correlation above "
            f"{_TELLS_TIME:g}), and so is known only afterwards",
            _drop([name]),
            True,
        )
    codes = _codes_of_missing(values)
    if codes.size:
        named = [int(code) if code.is_integer() else code for code in codes.tolist()]
        option = option_text("missing", named, "")
        yield Oddity(
            f"column {name!r} is {' or '.join(map(str, named))} in {rows_text(np.isin(values, codes))}, "
            "far from its other values, as a code for a missing value is",
            f"if it is one, {f'say so with {option}' if option else 'set these cells to missing (NaN)'}",
            True,
        )


def _identifies(frame: pd.DataFrame, name: str, some: IntArray) -> bool:
    """True if a column has a whole number for each row, too many or too close together to measure anything.

    Rows that repeat others in every column count once: they do not hide an identifier.
    """
    values: FloatArray = frame[name].to_numpy()
    part = values[some]
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


def _rank_correlation(x: FloatArray, t: FloatArray) -> float:
    """Spearman's rho, 0 where one of them is constant."""
    ranks = [rankdata(values) - 0.5 * (len(values) + 1) for values in (x, t)]
    norm = math.sqrt(float((ranks[0] ** 2).sum()) * float((ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / norm if norm else 0.0


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
        far = gap > 0.5 * (high - low) or (code < 0 <= low)
        frequent = gap > 0 and count >= _FREQUENT and count > _FREQUENT * usual
        # A single 9 may well be a number of something.
        if (far and (abs(code) > 9 or count > 1)) or (frequent and abs(code) > 9):
            found.append(code)
    return np.array(found)


def _folded(word: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", word).casefold().split())


def _drop(names: list[str]) -> str:
    it = "it" if len(names) == 1 else "them"
    option = option_text("drop", names, "")
    return f"drop {it} with {option}" if option else f"leave {it} out"


# ---------------------------------------------------------------------- rows


def repeated_rows(frame: pd.DataFrame, time: FloatArray, event: BoolArray) -> list[Oddity]:
    """Rows that repeat others in all features, time and event, more often than rows do by chance.

    Where all features are coarse, different persons agree in everything. So repeats are told only where most
    pairs of rows with equal features have equal outcomes, or where many more of those with events do than
    any two rows with events: times of censoring can depend on a feature, such as the day of entry, and then
    agree with it.
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
    if not of_events and 2 * _pairs(whole) <= _pairs(features):
        return []
    verb = "repeats another" if repeats.sum() == 1 else "repeat others"
    return [
        Oddity(
            f"{rows_text(repeats)} {verb} in every column",
            "remove them if they are the same persons: they would count twice, and stand in training and "
            "test rows at once",
        )
    ]


def _pairs(codes: pd.Series) -> float:
    """Number of pairs of rows that are equal."""
    counts = codes.value_counts(sort=False).to_numpy().astype(np.float64)
    return float((counts * (counts - 1)).sum()) / 2
