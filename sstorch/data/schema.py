"""Schema: which columns a model takes, and which categories they can hold."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd

from sstorch.data.columns import array_names, as_frame, kind_of, to_pandas, vocabulary
from sstorch.data.wording import check_columns_exist, names_text
from sstorch.exceptions import DataError, FormatError


@dataclass(frozen=True)
class Schema:
    """Columns in order, and the vocabulary of the categorical ones.

    It holds no statistic of the values, so one schema of a whole data set can serve all folds.

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

    @property
    def origins(self) -> list[tuple[str, str | None]]:
        """Column and category (None: numeric) of each encoded feature, in order."""
        out: list[tuple[str, str | None]] = []
        for name in self.columns:
            if name in self.categories:
                out.extend((name, category) for category in self.categories[name])
            else:
                out.append((name, None))
        return out

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the encoded features: ``"age"``, ``"grade=II"``."""
        return [column if category is None else f"{column}={category}" for column, category in self.origins]

    @property
    def takes_arrays(self) -> bool:
        """Whether the columns are those of a plain array: ``x0``, ``x1``, ..."""
        return list(self.columns) == array_names(len(self.columns))

    def frame_of(self, X: object) -> pd.DataFrame:
        """Take the columns of a model from rows: text names, in order, the index of a DataFrame kept.

        Args:
            X: DataFrame, other columns in it ignored; or, if the schema was read from an array, array (n, p).

        Raises:
            DataError: A column is missing, or an array cannot stand for the columns.
        """
        X = to_pandas(X)
        frame = as_frame(X)
        if not isinstance(X, pd.DataFrame):
            if not self.takes_arrays:
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

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as a dictionary that JSON can hold."""
        return {
            "columns": list(self.columns),
            "categories": {name: list(values) for name, values in self.categories.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a schema from `to_dict`.

        Raises:
            FormatError: An entry is missing or altered.
        """
        try:
            columns = tuple(str(name) for name in state["columns"])
            categories = {str(k): tuple(str(v) for v in values) for k, values in state["categories"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"the saved schema is incomplete or altered: {error!r}") from error
        if len(set(columns)) != len(columns) or not set(categories) <= set(columns):
            raise FormatError(
                "the saved schema is altered: its columns repeat or do not match its categories"
            )
        return cls(columns, categories)
