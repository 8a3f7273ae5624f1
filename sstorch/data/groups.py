"""Sensitive groups: who belongs to which, read from a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.data.columns import labels, vocabulary
from sstorch.data.wording import rows_text
from sstorch.exceptions import DataError

# A column with more values than this is a measurement, not a group.
_MAX_GROUPS = 20


@dataclass(frozen=True)
class Groups:
    """The sensitive group of every row.

    Attributes:
        name: of the sensitive column.
        labels: names of the groups, G of them; a subset of the rows keeps them all.
        codes: group of each row, 0 .. G - 1, shape (n,).
    """

    name: str
    labels: tuple[str, ...]
    codes: npt.NDArray[np.int64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows of each group, shape (G,)."""
        return np.bincount(self.codes, minlength=len(self.labels))

    def subset(self, index: npt.NDArray[np.int64]) -> Groups:
        """The groups of the rows at positions ``index``."""
        return Groups(self.name, self.labels, self.codes[index])

    def check_pairs(self, weight: npt.NDArray[np.float64], where: str) -> None:
        """Make sure that at least two groups have rows with weight.

        Raises:
            DataError: they have not; the message begins with ``where``.
        """
        present = np.unique(self.codes[weight > 0])
        if len(present) < 2:
            only = self.labels[present[0]] if len(present) else "none"
            raise DataError(
                f"{where} are all of one group, {self.name}={only}: there is nobody to compare with; "
                "use more rows, other folds, or no fairness penalty"
            )


def parse_groups(values: object, n: int, name: str = "sensitive") -> Groups:
    """Read the group of every row.

    Args:
        values: one label for each row: text, numbers, booleans or categories.
        n: number of rows.
        name: of the column; that of a Series goes first.

    Raises:
        DataError: values are missing, of the wrong number, all alike or too many; the message says which.
    """
    if isinstance(values, pd.Series):
        name = name if values.name is None else str(values.name)
    array = values if isinstance(values, pd.Series) else np.asarray(values)
    if array.shape != (n,):
        raise DataError(f"sensitive has shape {array.shape}; give one group for each of {n} rows")
    column = pd.Series(array, name=name).reset_index(drop=True)
    text = labels(column)
    if (missing := np.array([value is None for value in text])).any():
        raise DataError(
            f"sensitive column {name!r} is missing in {rows_text(missing)}; drop these rows, or give them a "
            "group of their own such as 'unknown'"
        )
    found = set(text)
    names = tuple(value for value in vocabulary(column) if value in found)
    if len(names) < 2:
        raise DataError(f"sensitive column {name!r} is {names[0]} in every row; two groups are needed")
    if len(names) > _MAX_GROUPS:
        raise DataError(
            f"sensitive column {name!r} has {len(names)} different values; at most {_MAX_GROUPS} groups can "
            "be compared: cut it into a few, for instance with pd.cut"
        )
    code = {value: number for number, value in enumerate(names)}
    return Groups(name, names, np.array([code[value] for value in text], dtype=np.int64))
