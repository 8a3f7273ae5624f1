"""Special columns of a file: dates of follow-up, detection limits, coded categories."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_columns_exist, option_text, rows_text
from sstorch.data.columns import MAX_NUMBER_LABELS, labels
from sstorch.exceptions import ConfigError, DataError, DataWarning

# What becomes of detection limits: their value, their value and a 0/1 column, or a missing value.
LIMITS = ("value", "indicator", "missing")
_LIMIT = re.compile(r"\s*([<>≤≥])=?\s*(\S.*)")
# Days of a unit of time; of months and years the mean of the Gregorian calendar.
_DAYS = {"days": 1.0, "weeks": 7.0, "months": 365.2425 / 12, "years": 365.2425}
# Forms of dates; %d/%m and %m/%d can both fit.
_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%d%b%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%Y%m%d"),
)
_MOST = 0.9  # share of the cells in a column of dates
_MIDNIGHT = re.compile(r"[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?$")


# ---------------------------------------------------------------------- numbers and detection limits


def _number(cell: object, decimal: str) -> float:
    """A cell as a number; NaN if it is none."""
    if not isinstance(cell, str):
        return float(cell) if pdt.is_number(cell) else math.nan  # type: ignore[arg-type]
    try:
        value = float(cell.replace(decimal, ".")) if decimal == "." or "." not in cell else math.nan
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _is_text(column: pd.Series) -> bool:
    return pdt.is_object_dtype(column.dtype) or isinstance(column.dtype, pd.StringDtype)


def _numbers(column: pd.Series, decimal: str) -> FloatArray:
    cells = column.unique()  # far fewer than rows
    known = {cell: _number(cell, decimal) for cell in cells}
    return np.array(column.map(known).to_numpy(dtype=np.float64, na_value=np.nan))


def numbers_of_text(frame: pd.DataFrame, decimal: str) -> pd.DataFrame:
    """The frame with numbers in place of columns of text that hold more numbers than groups have names."""
    out = {}
    for name in frame.columns:
        column = frame[name]
        if _is_text(column) and column.nunique() > MAX_NUMBER_LABELS:
            values = _numbers(column, decimal)
            if np.array_equal(np.isnan(values), column.isna()):
                out[name] = values
    return frame.assign(**out)


def limits_of(column: pd.Series, decimal: str) -> str:
    """Signs of detection limits such as ``>300`` in a column (n,): ``"<"``, ``">"``, both or none."""
    if not _is_text(column):
        return ""
    signs = set()
    numbers = 0
    for cell in column.dropna().unique():
        if not math.isnan(_number(cell, decimal)):
            numbers += 1
            continue
        match = _LIMIT.fullmatch(cell) if isinstance(cell, str) else None
        if match is None or math.isnan(_number(match[2], decimal)):
            return ""
        signs.add("<" if match[1] in "<≤" else ">")
    return "".join(sorted(signs)) if numbers else ""


def resolved_limits(
    frame: pd.DataFrame, limits: str | Mapping[str, str] | None, decimal: str
) -> dict[str, str]:
    """Treatment of detection limits by column: ``value``, ``missing`` or ``indicator`` with its signs.

    `limits` is one of `LIMITS` for all columns of the training rows that have limits, or by column.
    """
    if limits is None:
        return {}
    by_column = limits if isinstance(limits, Mapping) else dict.fromkeys(map(str, frame.columns), limits)
    check_columns_exist(by_column, [str(name) for name in frame.columns])
    out = {}
    for name, how in by_column.items():
        kind, _, given = str(how).partition(" ")
        if kind not in LIMITS or set(given) - set("<>") or (given and kind != "indicator"):
            raise ConfigError(f"limits must be one of {', '.join(LIMITS)}, got {how!r}")
        if signs := given or limits_of(frame[name], decimal):
            out[str(name)] = f"{kind} {signs}" if kind == "indicator" else kind
    return out


def with_limits(frame: pd.DataFrame, limits: Mapping[str, str], decimal: str) -> pd.DataFrame:
    """The frame with numbers in place of detection limits, and a 0/1 column for each sign of an indicator.

    `limits` are as `resolved_limits` returns them; columns that are not there are passed over.
    """
    frame = frame.copy(deep=False)
    for name, how in limits.items():
        if name not in frame:
            continue
        column = frame[name]
        below, above = (np.zeros(len(frame), dtype=bool) for _ in "<>")
        if limits_of(column, decimal):
            parts = column.astype(str).str.extract(_LIMIT.pattern)
            below, above = (parts[0].isin(list(signs)).to_numpy() for signs in ("<≤", ">≥"))
            limit = below | above
            column = column.mask(limit, parts[1]) if how != "missing" else column.mask(limit)
        if _is_text(column):
            values = _numbers(column, decimal)
            if not np.array_equal(np.isnan(values), column.isna()):
                continue  # other words stand in it, which the checks of numbers name
            column = pd.Series(values, index=frame.index)
        frame[name] = column
        for sign, marked in (("<", below), (">", above)):
            if sign in how:
                indicator = f"{name} {'below' if sign == '<' else 'above'} limit"
                frame[indicator] = np.where(column.isna(), np.nan, marked.astype(np.float64))
    return frame


# ---------------------------------------------------------------------- categories


def with_categories(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The frame with categories in place of numbers, in their order; absent columns are passed over."""
    out = {}
    for name in names:
        if name in frame and not isinstance(frame[name].dtype, pd.CategoricalDtype):
            words = labels(frame[name])
            known = set(words) - {None}
            order = sorted(known, key=lambda word: (_number(word, "."), word)) if known else []
            out[name] = pd.Categorical(words, categories=order)
    return frame.assign(**out)


# ---------------------------------------------------------------------- dates


def is_dates(column: pd.Series) -> bool:
    """Whether a column holds dates, as timestamps or as text in one form."""
    if pdt.is_datetime64_any_dtype(column.dtype):
        return True
    if not _is_text(column):
        return False
    cells = pd.Series(column.dropna().unique())
    if len(cells) == 0 or not all(isinstance(cell, str) and len(cell) >= 6 for cell in cells):
        return False
    # Of ten, nine at least: what is no date, such as 31.02., is reported by `dates_of`. Numbers are no dates.
    return any(parsed.notna().mean() >= _MOST for parsed in _parsed(cells, _DATES[:-1]).values())


def _parsed(cells: pd.Series, forms: Sequence[str]) -> dict[str, pd.Series]:
    """Texts as dates by form, missing where one does not fit; midnight and times of day are cut off."""
    bare = cells.astype(str).str.replace(_MIDNIGHT, "", regex=True).where(cells.notna())
    out = {}
    for form in forms:
        dates = pd.to_datetime(bare, format=form, errors="coerce")
        if dates.notna().any():
            out[form] = dates
    return out


def dates_of(columns: Sequence[pd.Series], form: str | None) -> list[pd.Series]:
    """Columns of dates, (n,) each, as timestamps; texts of all columns are read in one form.

    `form` is that of the texts, as `strptime` takes it; None finds it.
    """
    typed = {k: column for k, column in enumerate(columns) if pdt.is_datetime64_any_dtype(column.dtype)}
    texts = {k: column for k, column in enumerate(columns) if k not in typed}
    if texts:
        cells = pd.concat(texts.values(), ignore_index=True)
        fits = _parsed(cells, [form] if form is not None else _DATES)
        best = max((int(dates.notna().sum()) for dates in fits.values()), default=0)
        fits = {key: dates for key, dates in fits.items() if dates.notna().sum() == best}
        dates = next(iter(fits.values()), pd.Series(pd.NaT, index=cells.index))
        if other := next((key for key, found in fits.items() if not found.equals(dates)), None):
            one = next(iter(fits))
            given = option_text("date_format", one, f"date_format={one!r}")
            raise DataError(
                f"column {str(columns[0].name)!r} holds dates such as {cells.dropna().iloc[0]!r}, in which "
                f"day and month cannot be distinguished; choose {given} or {other}"
            )
        start = 0
        for k, column in texts.items():
            part = dates.iloc[start : start + len(column)].set_axis(column.index)
            start += len(column)
            if (bad := (part.isna() & column.notna()).to_numpy()).any():
                of_form = f" of the form {next(iter(fits))}" if fits else ""
                raise DataError(
                    f"column {str(column.name)!r} holds {column[bad].iloc[0]!r}, which is not a "
                    f"date{of_form}, in {rows_text(bad)}; correct these cells or set them to missing"
                )
            typed[k] = part
    return [_plain(typed[k]) for k in range(len(columns))]


def _plain(dates: pd.Series) -> pd.Series:
    return dates.dt.tz_localize(None) if dates.dt.tz is not None else dates


def follow_up(frame: pd.DataFrame, dates: Sequence[str], form: str | None, unit: str) -> FloatArray:
    """Time from the first to the second of two columns of dates, (n,), in days, weeks, months or years.

    A month has 365.2425 / 12 days and a year 365.2425; `form` is as in `dates_of`.
    """
    if len(dates) != 2:
        raise ConfigError(f"date must be two columns, start and end of follow-up, got {list(dates)}")
    check_choice(unit, "time_unit of dates", _DAYS)
    check_columns_exist(dates, [str(name) for name in frame.columns])
    start, end = dates_of([frame[name] for name in dates], form)
    for name, column in zip(dates, (start, end), strict=True):
        if (bad := column.isna().to_numpy()).any():
            raise DataError(
                f"date {name!r} is missing in {rows_text(bad)}: the follow-up of these rows is not known; "
                "complete it, for subjects without an event by the last contact (without them, survival is "
                "estimated too low), or remove rows that have no date"
            )
        future = (column > pd.Timestamp.now()).to_numpy()
        if 0.0 < future.mean() < 1.0 - _MOST:  # in all rows dates are shifted, to protect the subjects
            text = f"date {name!r} is in the future in {rows_text(future)}: correct these rows"
            warnings.warn(text, DataWarning, stacklevel=2)
    days = np.asarray((end - start).dt.total_seconds(), dtype=np.float64) / 86400.0
    if (bad_order := days < 0).any():
        raise DataError(
            f"date {dates[1]!r} is before {dates[0]!r} in {rows_text(bad_order)}; correct these rows"
        )
    return days / _DAYS[unit]
