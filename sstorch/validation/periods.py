"""Periods of rows that are monitored: labels, or dates that are binned."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as pdt

from sstorch._types import BoolArray
from sstorch.checks import check_choice, check_columns_exist, check_same_order, rows_text
from sstorch.data.columns import label, to_pandas
from sstorch.exceptions import DataError

Every = Literal["day", "week", "month", "quarter", "year"]
_FREQUENCY = {"day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
_DATE = r"\d{4}-\d{1,2}-\d{1,2}(?:[T ].*)?"
# More periods than this were hardly meant: dates in a form that is not read, or times.
_MANY = 500


def periods_of(X: Any, by: str | npt.ArrayLike | None, every: Every) -> list[tuple[str, BoolArray]]:
    """Rows of each period, (n,) bool, by the name of the period, in order.

    `by` is the name of a column of `X`, or one value for each row; dates are put in bins of width `every`,
    all else are names of periods. Raises DataError if unknown column, a value is missing, or there are more
    than 500 names.
    """
    check_choice(every, "every", get_args(Every))
    X = to_pandas(X)
    if by is None:
        return [("all rows", np.ones(len(X), dtype=np.bool_))]
    if isinstance(by, str):
        names = [str(name) for name in X.columns] if isinstance(X, pd.DataFrame) else []
        check_columns_exist((by,), names)
        values = X.iloc[:, names.index(by)]
    else:
        values = by if isinstance(by, pd.Series) else pd.Series(np.asarray(by).reshape(-1))
        check_same_order(X=X, by=by)
        if len(values) != len(X):
            raise DataError(f"by has {len(values)} values; give one for each of {len(X)} rows")
    values = values.reset_index(drop=True)
    if (missing := values.isna().to_numpy()).any():
        raise DataError(f"by is missing in {rows_text(missing)}: give these rows a period, or leave them out")
    found = _binned(values, every)
    order = list(found.cat.categories) if isinstance(found.dtype, pd.CategoricalDtype) else None
    present = [value for value in (sorted(set(found)) if order is None else order) if (found == value).any()]
    if len(present) > _MANY:
        raise DataError(
            f"by has {len(present)} different values, such as {label(present[0])!r}, each of which would be "
            "a period: give names of periods, or dates (datetime64, or text such as 2025-01-31)"
        )
    return [(label(value), (found == value).to_numpy()) for value in present]


def _binned(values: pd.Series, every: Every) -> pd.Series:
    """Dates as periods; other values as they are."""
    if pdt.is_object_dtype(values.dtype) or isinstance(values.dtype, pd.StringDtype):
        text = values.astype(str)
        if not text.str.fullmatch(_DATE).all():
            return text
        values = pd.to_datetime(text, errors="coerce", format="mixed", utc=True)
        if (wrong := values.isna().to_numpy()).any():
            raise DataError(f"by is {text[wrong].iloc[0]!r} in {rows_text(wrong)}, which is not a date")
    if pdt.is_datetime64_any_dtype(values.dtype):
        return pd.Series(values.dt.tz_localize(None).dt.to_period(_FREQUENCY[every]))
    return values
