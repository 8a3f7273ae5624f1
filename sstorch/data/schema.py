"""Schema: the columns of a model in order, and the vocabulary of the categorical ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd

from sstorch.checks import check_columns_exist, names_text, wording
from sstorch.data.columns import array_names, as_frame, clean_features, kind_of, labels, to_pandas, vocabulary
from sstorch.exceptions import ConfigError, DataError

# The level of missing values where they are one.
MISSING_LEVEL = "missing"


@dataclass(frozen=True)
class Schema:
    """Ordered columns, and vocabularies of categorical columns; no statistics of the values.

    Attributes:
        columns: Names of the p raw features, in order, each number of `missing` followed by its indicator.
        categories: Vocabulary of each categorical column; the other columns are numeric.
        missing: Columns with missing values as a separate level: the category ``"missing"``, or for a number
            an indicator column ``"NAME missing"``.
    """

    columns: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...] = ()

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

    def with_missing(self, names: Sequence[str]) -> Self:
        """Return the schema with a separate level for missing values of some columns.

        Raises:
            ConfigError: A name is not a column.
            DataError: A column already has the name of an indicator.
        """
        for name in names:
            if name not in self.columns:
                raise ConfigError(f"missing names {name!r}; the columns are {names_text(self.columns)}")
        columns, categories = [], dict(self.categories)
        for name in self.columns:
            columns.append(name)
            if name in names and name in categories:
                categories[name] = tuple(dict.fromkeys((*categories[name], MISSING_LEVEL)))
            elif name in names:
                columns.append(_indicator(name))
        return type(self)(tuple(columns), categories, tuple(names))

    @cached_property
    def indicators(self) -> dict[str, str]:
        """The numeric column whose missing values each indicator marks."""
        return {_indicator(name): name for name in self.missing if name not in self.categories}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns that rows must have: all but indicators."""
        return tuple(name for name in self.columns if name not in self.indicators)

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

        Missing values are converted to levels where the schema has these; existing indicators are kept.

        Args:
            X: DataFrame (other columns are ignored); or, if the schema was read from an array, array (n, p).

        Raises:
            DataError: A column is missing, or an array does not fit the columns.
        """
        X, inputs = to_pandas(X), self.inputs
        frame = as_frame(X)
        if not isinstance(X, pd.DataFrame):
            if list(inputs) != array_names(len(inputs)):
                raise DataError(
                    "X is an array, but the columns have names; give a DataFrame with the columns "
                    f"{names_text(inputs)}"
                )
            if frame.shape[1] != len(inputs):
                raise DataError(
                    f"X has {frame.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{len(inputs)} features as input; give the training columns in their order"
                )
        check_columns_exist(inputs, list(frame.columns))
        for name in self.missing:
            missing = frame[name].isna().to_numpy(dtype=bool)
            if name not in self.categories:
                if _indicator(name) not in frame:
                    frame[_indicator(name)] = missing.astype(np.float64)
            elif missing.any():
                words = np.where(missing, MISSING_LEVEL, labels(frame[name]))
                frame[name] = pd.Categorical(words, list(dict.fromkeys([*self.categories[name], *words])))
        frame = frame[list(self.columns)]
        return frame.set_index(X.index) if isinstance(X, pd.DataFrame) else frame

    def clean(self, X: object) -> pd.DataFrame:
        """Read the columns of a model as in training; see :meth:`frame_of`.

        Raises:
            DataError: A column is missing or holds the wrong kind of value.
        """
        with wording(rows=X):
            return clean_features(self.frame_of(X), categories=self.categories)


def _indicator(name: str) -> str:
    return f"{name} {MISSING_LEVEL}"
