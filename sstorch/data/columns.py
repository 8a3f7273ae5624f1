"""Columns of features and labels, read, and the schema of those of a model.

Numbers are float64 with NaN for missing; booleans count as 0 and 1, sparse columns as their values. Labels
are text: a value is identified by ``str(value)``, whole numbers without decimals, so that the labels ``1``,
``1.0`` and ``"1"`` are one category (pandas turns a column of integers into floats as soon as one cell is
missing).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse
from pandas.api import types as pdt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_columns_exist, check_unique, names_text, rows_text, wording
from sstorch.exceptions import DataError
from sstorch.memory import check_fits

# A column, or a plain array of booleans or real numbers, (n,).
Column = pd.Series | npt.NDArray[Any]
# Sums and squares of larger values leave the range of float64; no measurement is that large.
LARGEST = 1e100
# A text column with more different numbers than this is taken for a measurement, not for codes of groups.
_MAX_NUMBER_LABELS = 10
# A number or a date, as any country writes them; codes such as 8B and 13-1 are neither.
_NUMBER = re.compile(
    r"[+\u2212-]?(\d[\d.,' \u00a0\u202f\u2019]*|[.,]\d+)(e[+-]?\d+)?\s*%?|\d+[-/.]\d+[-/.]\d+([ T].*)?",
    re.IGNORECASE,
)
_CONVERT = (
    "convert it with pd.to_numeric, decimal commas to points, without units; codes of missing values become "
    "empty cells, na_values=[CODE] when a file is read"
)
# Cells of a text file that are missing; pandas would also take the category None.
MISSING = ("", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null")
# Texts that a missing label becomes, in any case.
_MISSING_LABELS = {word.casefold() for word in (*MISSING, "NaT")}
# A design is wide from so many columns on, where they are half as many as rows, or many anyway.
_FEWEST, _MANY = 100, 500


# ---------------------------------------------------------------------- frames


def to_pandas(values: object) -> object:
    """A frame or column of pandas of what exports Arrow streams, such as polars; the rest as it is."""
    if isinstance(values, (pd.DataFrame, pd.Series)) or not hasattr(values, "__arrow_c_stream__"):
        return values
    import pyarrow as pa  # only objects of other libraries need it

    if not hasattr(values, "columns"):  # a column alone, not a frame
        (column,) = to_pandas(pa.table({"": pa.chunked_array(values)})).items()  # type: ignore[attr-defined]
        return column[1].rename(getattr(values, "name", None) or None)
    table = pa.table(values)
    # Unsigned codes, as polars has them, cannot be converted before pyarrow 23.
    fields = [
        field.with_type(pa.dictionary(pa.int64(), field.type.value_type, field.type.ordered))
        if pa.types.is_dictionary(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields)).to_pandas()


def as_column(values: object, where: str) -> Column:
    """Values of rows (n,) as a column, from an array, Series or list of any library; numbers as they are."""
    if type(values) is np.ndarray and values.ndim == 1 and values.dtype.kind in "biuf":
        return values
    values = to_pandas(values)
    own = (pd.Series, pd.Index, pd.api.extensions.ExtensionArray, list, tuple)
    if not isinstance(values, (*own, np.ma.MaskedArray)) and hasattr(values, "__array__"):
        values = np.asarray(values)  # a column of another library, such as a tensor
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise DataError(f"{where} is an array of shape {values.shape}; give one value a row")
    if not isinstance(values, (*own, np.ndarray)):
        raise DataError(f"{where} is a {type(values).__name__}; give an array, a Series or a list")
    try:  # an empty list has no type of its own; masked values are missing
        return pd.Series(values, dtype=None if len(values) else np.float64)
    except OverflowError:  # of integers beyond float64
        return pd.Series(values, dtype=object)


def as_frame(X: object) -> pd.DataFrame:
    """Features (n, p), a frame or an array, as a new frame with text names and rows numbered from 0."""
    X = to_pandas(X)
    if isinstance(X, pd.DataFrame):
        frame = X.reset_index(drop=True)
        frame.columns = pd.Index([str(c) for c in X.columns])
        check_unique(list(frame.columns))
    else:
        array = _as_array(X)
        if array.ndim != 2 or array.dtype.names is not None:
            raise DataError(
                f"X is an array of shape {array.shape}; give a plain array (n, p). Reshape your data with "
                "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row"
            )
        frame = pd.DataFrame(array, columns=array_names(array.shape[1]))
    # pandas sorts columns in the byte order of the machine alone; files may have another.
    kinds = [(name, kind) for name, kind in frame.dtypes.items() if isinstance(kind, np.dtype)]
    foreign = {name: kind.newbyteorder("=") for name, kind in kinds if not kind.isnative}
    return frame.astype(foreign) if foreign else frame


def _as_array(X: object) -> npt.NDArray[Any]:
    if isinstance(X, (scipy.sparse.sparray, scipy.sparse.spmatrix)):
        _check_dense(*X.shape)
        return np.asarray(X.toarray())
    if isinstance(X, np.ndarray):
        return X
    if isinstance(X, list) or (hasattr(X, "__array__") and not isinstance(X, pd.Series)):
        try:
            return np.asarray(X)
        except (TypeError, ValueError) as error:
            raise DataError(f"X is a {type(X).__name__} that is no array (n, p): {error}") from error
    raise DataError(
        f"X must be a DataFrame or an array (n, p), got {type(X).__name__}; of one row give X.iloc[[i]], or "
        "pd.DataFrame([row])"
    )


def _check_dense(n: int, p: int) -> None:
    """Refuse sparse columns that are too many to be stored as numbers."""
    remedy = "give a category as one column of labels, not as indicators: labels are stored as codes"
    check_fits(8 * n * p, f"{n} rows of {p} sparse columns as numbers", remedy)


def array_names(p: int) -> list[str]:
    """Names of the p columns of a plain array: ``x0``, ``x1``, ..."""
    return [f"x{j}" for j in range(p)]


def clean_features(X: object, *, categories: Container[str] = ()) -> pd.DataFrame:
    """Columns as float64 with NaN or categories; text of `categories` may be numbers; all faults raise."""
    frame = as_frame(X)
    if frame.shape[1] == 0:
        raise DataError(
            f"X has no columns: 0 feature(s) (shape={frame.shape}) while a minimum of 1 is required; "
            "give at least one feature"
        )
    _check_dense(len(frame), sum(isinstance(dtype, pd.SparseDtype) for dtype in frame.dtypes))
    out, faults = dict[str, object](), list[str]()
    for name in frame.columns:
        column = frame[name]
        try:
            if (name in categories and _is_text(column)) or kind_of(column) == "categorical":
                out[name] = pd.Categorical(labels(column), categories=list(vocabulary(column)))
            else:
                out[name] = finite_values(column, f"column {name!r}")
        except DataError as fault:
            faults.append(str(fault))
    if faults:
        raise DataError("; ".join(faults))
    return pd.DataFrame(out, index=frame.index)


def check_not_all_missing(frame: pd.DataFrame) -> None:
    """Refuse columns without a single value."""
    if empty := [name for name in frame.columns if frame[name].isna().all()]:
        raise DataError(f"column {names_text(empty)} is missing in every row; drop it")


def is_wide(n_columns: int, n_rows: int) -> bool:
    """Whether a regression on so many numeric columns has straight lines and held shapes."""
    return n_columns >= _FEWEST and (2 * n_columns >= n_rows or n_columns >= _MANY)


# ---------------------------------------------------------------------- numbers


def _is_text(column: pd.Series) -> bool:
    """True if all cells that are not missing are text; pandas needs no loop in Python to see it."""
    return bool(pdt.infer_dtype(column, skipna=True) == "string")


def _cells(column: pd.Series, kinds: type | tuple[type, ...]) -> BoolArray:
    """Cells of some types that are not missing, (n,)."""
    found = np.fromiter((isinstance(cell, kinds) for cell in column.astype(object)), bool, len(column))
    return found & column.notna().to_numpy(dtype=bool)


def _numbers(column: pd.Series) -> BoolArray:
    return _cells(column, (bool, np.bool_, Real, Decimal))


def _first(column: pd.Series, mask: BoolArray) -> str:
    return repr(column.iloc[int(mask.argmax())])


def _refuse_dates(column: pd.Series, where: str) -> None:
    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.PeriodDtype):
        raise DataError(
            f"{where} holds dates or time differences; turn it into a number, such as days since a start, "
            "(date - start).dt.days, or drop it"
        )


def _refuse_numbers_as_text(column: pd.Series, where: str) -> None:
    """Refuse text cells that are mostly numbers or dates: labels where a measurement was meant."""
    words = column.astype(str).str.strip()
    units = words[column.notna()].str.extract(r"(\D*)$", expand=False).unique()
    if len(units) == 1:  # mg/l of all cells
        words = words.str.removesuffix(units[0])
    found = (words.str.fullmatch(_NUMBER) & column.notna()).to_numpy(dtype=bool)
    n_labels = words[found].nunique()
    if n_labels <= _MAX_NUMBER_LABELS or 2 * found.sum() < column.notna().sum():
        return
    odd = ~found & column.notna().to_numpy(dtype=bool)
    others = f", but {_first(column, odd)} in {rows_text(odd)}" if odd.any() else ""
    text = f"{n_labels} different numbers or dates written as text, such as {_first(column, found)}{others}"
    raise DataError(
        f"{where} holds {text}; {_CONVERT}; dates become days since a start, (pd.to_datetime(date) - "
        "start).dt.days, and names of groups a category; or leave the column out"
    )


def kind_of(column: pd.Series) -> Literal["numeric", "categorical"]:
    """Whether a column holds numbers (booleans, nothing) or labels (text, categories); else refused."""
    where = f"column {str(column.name)!r}"
    _refuse_dates(column, where)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "categorical"
    if pdt.is_complex_dtype(column.dtype):
        raise DataError(
            f"Complex data not supported: {where} holds complex numbers; give its real parts as columns of "
            "their own"
        )
    if pdt.is_numeric_dtype(column.dtype):
        return "numeric"
    if not _is_text(column):
        text, number = _cells(column, str), _numbers(column)
        if (bad := column.notna().to_numpy(dtype=bool) & ~text & ~number).any():
            kind = type(column.iloc[int(bad.argmax())]).__name__
            raise DataError(
                f"{where} holds objects of type {kind} in {rows_text(bad)}; give numbers, of dates the "
                "number of days, or text, or drop it"
            )
        if text.any() and number.any():
            rare, name = (text, "text") if text.sum() <= number.sum() else (number, "numbers")
            found = f"{name} such as {_first(column, rare)} in {rows_text(rare)}"
            raise DataError(
                f"{where} mixes numbers with text: {found}; "
                "convert it with pd.to_numeric(..., errors='coerce') or with astype(str)"
            )
        if not text.any():
            return "numeric"
    _refuse_numbers_as_text(column, where)
    return "categorical"


def numeric_values(
    column: Column, where: str, remedy: str = "correct these values or set them to missing"
) -> FloatArray:
    """Read a column as numbers (n,), NaN if missing; messages call it `where`, such as "column 'age'"."""
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    _refuse_dates(column, where)
    if pdt.is_numeric_dtype(column.dtype) and not pdt.is_complex_dtype(column.dtype):
        values = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        values[np.isnan(values)] = np.nan  # NA of R is a signalling NaN, of which arithmetic warns
        return values
    number = _numbers(column)
    if (bad := column.notna().to_numpy(dtype=bool) & ~number).any():
        # One stray word makes a whole CSV column text: name the word, not every row.
        spelled = [isinstance(cell, str) and _NUMBER.fullmatch(cell.strip()) is not None for cell in column]
        if (odd := bad & ~np.array(spelled)).any():
            raise DataError(
                f"{where} holds {_first(column, odd)}, which is not a number, in {rows_text(odd)}; {remedy}"
            )
        text = f"numbers written as text, such as {_first(column, bad)}, in {rows_text(bad)}"
        raise DataError(f"{where} holds {text}; {_CONVERT}")
    cells = zip(column.astype(object), number, strict=True)
    return np.array([_to_float(cell) if known else np.nan for cell, known in cells], dtype=np.float64)


def _to_float(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # an int beyond float64, refused later as one beyond the largest
        return math.copysign(math.inf, cell > 0 or -1)


def finite_values(
    column: Column, where: str, remedy: str = "correct these values or set them to missing"
) -> FloatArray:
    """As :func:`numeric_values`, without infinite and absurdly large numbers."""
    values = numeric_values(column, where, remedy)
    check_size(values, where)
    return values


def check_size(values: FloatArray, where: str) -> None:
    """Refuse infinite and absurdly large numbers (above 1e100); NaN passes."""
    if (bad := np.abs(values) > LARGEST).any():
        raise DataError(
            f"{where} is infinite or larger than {LARGEST:g} in {rows_text(bad)}; correct these values"
        )


# ---------------------------------------------------------------------- labels


def label(value: object) -> str:
    """Return the text that identifies a category: ``str(value)``, whole numbers without decimals."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def folded(word: str) -> str:
    """A word without blanks around it and in one case, as words of outcomes are compared."""
    return word.strip().casefold()


def label_codes(column: pd.Series) -> tuple[IntArray, list[str]]:
    """Read a column as labels: the position of each cell's, -1 if missing, (n,), and the labels."""
    _refuse_dates(column, f"column {str(column.name)!r}")
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, dtype=np.int64), [label(c) for c in column.cat.categories]
    cells = column.astype(object)
    if not _is_text(column):
        cells = cells.map(label, na_action="ignore")
    codes, names = pd.factorize(cells)
    return np.asarray(codes, dtype=np.int64), list(names)


def labels(column: pd.Series) -> npt.NDArray[np.object_]:
    """Read a column as labels (n,): text, or None if missing."""
    codes, names = label_codes(column)
    return np.asarray(np.array([*names, None], dtype=object)[codes], dtype=object)


def vocabulary(column: pd.Series) -> tuple[str, ...]:
    """Return the categories of a column: in the order of a pandas Categorical, else sorted as text."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return tuple(dict.fromkeys(label(c) for c in column.cat.categories))
    return tuple(sorted(set(labels(column)) - {None}))


def missing_labels(column: pd.Series) -> BoolArray:
    """Whether each label is missing, (n,): as a value, or as a text such as ``""``, ``nan`` or ``NA``."""
    missing = column.isna()
    if not pdt.is_numeric_dtype(column.dtype):
        words = [word for word in column.unique() if isinstance(word, str)]
        missing |= column.isin([word for word in words if folded(word) in _MISSING_LABELS])
    return missing.to_numpy(dtype=bool)


def row_labels(values: object, n_rows: int, name: str) -> pd.Series:
    """Labels of rows, (n_rows,), such as groups or clusters, as a column; missing ones are refused."""
    column = pd.Series(as_column(values, name)).reset_index(drop=True)
    if len(column) != n_rows:
        raise DataError(f"{name} must have one label for each of {n_rows} rows, got {len(column)}")
    where = name if column.name is None else f"{name} column {str(column.name)!r}"
    if (missing := missing_labels(column)).any():
        raise DataError(
            f"{where} is missing in {rows_text(missing)}; drop these rows, or give them a label of their own "
            "such as 'unknown'"
        )
    return column


@dataclass(frozen=True)
class Schema:
    """Ordered columns, and vocabularies of categorical columns; no statistics of the values.

    Attributes:
        columns: Names of the p raw features, in order.
        categories: Vocabulary of each categorical column; the other columns are numeric.
    """

    columns: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        if twice := [name for name, count in Counter(self.feature_names_out).items() if count > 1]:
            raise DataError(f"two encoded features are called {names_text(twice)}; rename a column")

    @classmethod
    def of(cls, X: object) -> Self:
        """Read the schema of a frame or of an array (n, p).

        The vocabulary keeps the order of a pandas Categorical, and is sorted as text otherwise. Categories
        are compared as text: ``1``, ``1.0`` and ``"1"`` are one.

        Raises:
            DataError: A column can hold neither numbers nor categories.
        """
        frame = as_frame(X)
        kinds = {name: kind_of(frame[name]) for name in frame.columns}
        categories = {name: vocabulary(frame[name]) for name, kind in kinds.items() if kind == "categorical"}
        return cls(tuple(kinds), categories)

    @property
    def numeric(self) -> tuple[str, ...]:
        """Names of the numeric columns."""
        return tuple(name for name in self.columns if name not in self.categories)

    @cached_property
    def origins(self) -> list[tuple[str, str | None]]:
        """Column and category (None: numeric) of each encoded feature, in order."""
        return [(name, category) for name in self.columns for category in self.categories.get(name, (None,))]

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the encoded features: ``"age"``, ``"grade=II"``."""
        return [column if category is None else f"{column}={category}" for column, category in self.origins]

    def frame_of(self, X: object) -> pd.DataFrame:
        """Select the columns of a model from rows: names as text, in order, with the index of a DataFrame.

        Args:
            X: DataFrame (other columns are ignored); or, if the schema was read from an array, array (n, p).

        Raises:
            DataError: A column is missing, or an array does not fit the columns.
        """
        X = to_pandas(X)
        frame = as_frame(X)
        if not isinstance(X, pd.DataFrame):
            if list(self.columns) != array_names(len(self.columns)):
                raise DataError(
                    "X is an array, but the columns have names; give a DataFrame with the columns "
                    f"{names_text(self.columns)}"
                )
            if frame.shape[1] != len(self.columns):
                raise DataError(
                    f"X has {frame.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{len(self.columns)} features as input; give the training columns in their order"
                )
        check_columns_exist(self.columns, list(frame.columns))
        frame = frame[list(self.columns)]
        return frame.set_index(X.index) if isinstance(X, pd.DataFrame) else frame

    def clean(self, X: object) -> pd.DataFrame:
        """Read the columns of a model as in training; see :meth:`frame_of`.

        Raises:
            DataError: A column is missing or holds the wrong kind of value.
        """
        with wording(rows=X):
            return clean_features(self.frame_of(X), categories=self.categories)
