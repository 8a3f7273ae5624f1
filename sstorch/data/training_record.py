"""Distributions of the training columns, stored in a fitted model for comparison with later rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.data.columns import labels, numeric_values

# Bins of a numeric column: its tenths, or its values where it has no more than so many.
_N_BINS = 10


@dataclass(frozen=True)
class NumericColumn:
    """Distribution of a numeric column in the training rows."""

    range: tuple[float, float]  # smallest and largest value
    cuts: tuple[float, ...]  # upper bounds of all bins but the last, increasing, each a value of the column
    counts: tuple[int, ...]  # rows in each bin, (len(cuts) + 1,), and missing ones at the end

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """Read the values (n,) of a column, NaN if missing, some of them not missing."""
        present = np.sort(values[~np.isnan(values)])
        some = np.concatenate((present[:1], present[1:][np.diff(present) > 0][:_N_BINS]))
        if len(some) > _N_BINS:  # quantiles that are values of the column
            some = np.unique(present[-(-len(present) * np.arange(1, _N_BINS) // _N_BINS) - 1])
        cuts = some[some < present[-1]]
        below = np.searchsorted(present, cuts, side="right")
        counts = np.diff(below, prepend=0, append=len(present)).tolist()
        return cls(
            (float(present[0]), float(present[-1])),
            tuple(cuts.tolist()),
            (*counts, len(values) - len(present)),
        )

    def count(self, values: FloatArray) -> IntArray:
        """Rows of other values (m,) in each bin, and missing ones at the end."""
        missing = np.isnan(values)
        bins = np.searchsorted(self.cuts, values[~missing], side="left")
        return np.append(np.bincount(bins, minlength=len(self.cuts) + 1), missing.sum())


@dataclass(frozen=True)
class CategoricalColumn:
    """Distribution of a categorical column in the training rows."""

    counts: Mapping[str, int]  # rows of each category that had some
    missing: int  # rows without one

    @classmethod
    def of(cls, column: pd.Series) -> Self:
        """Read a column (n,) of categories."""
        words = pd.Series(labels(column), dtype=object)
        counts = words.value_counts()
        return cls({str(word): int(count) for word, count in counts.items()}, int(words.isna().sum()))


@dataclass(frozen=True)
class TrainingRecord:
    """Distributions of the columns in the training rows, which are saved with a model.

    Rows of positive weight count once each, unweighted.
    """

    n_rows: int  # training rows
    numeric: Mapping[str, NumericColumn]  # numeric columns by name
    categorical: Mapping[str, CategoricalColumn]  # categorical columns by name

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """Read clean training rows, as :class:`~sstorch.SurvivalData` has them."""
        numeric: dict[str, NumericColumn] = {}
        categorical: dict[str, CategoricalColumn] = {}
        for name in map(str, frame.columns):
            if isinstance(frame[name].dtype, pd.CategoricalDtype):
                categorical[name] = CategoricalColumn.of(frame[name])
            else:
                numeric[name] = NumericColumn.of(numeric_values(frame[name], f"column {name!r}"))
        return cls(len(frame), numeric, categorical)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON can hold it, without loss."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a record from `to_dict`."""
        numeric = {
            name: NumericColumn(tuple(column["range"]), tuple(column["cuts"]), tuple(column["counts"]))
            for name, column in state["numeric"].items()
        }
        categorical = {name: CategoricalColumn(**column) for name, column in state["categorical"].items()}
        return cls(state["n_rows"], numeric, categorical)
