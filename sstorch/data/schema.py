"""Schema: the columns of a model in order, and the vocabulary of the categorical ones."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import pandas as pd

from sstorch.checks import check_columns_exist, names_text, wording
from sstorch.data.columns import array_names, as_frame, clean_features, kind_of, to_pandas, vocabulary
from sstorch.exceptions import DataError


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
