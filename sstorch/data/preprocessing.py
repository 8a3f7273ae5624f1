"""Preprocessor: from raw features to the numbers a model takes, with statistics of the training rows only."""

from collections.abc import Collection
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.exceptions import NotFittedError

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import names_text, rows_text
from sstorch.data.basis import Basis, Feature
from sstorch.data.columns import Schema, finite_values, label_codes
from sstorch.data.design_matrix import CODED_LEVELS, DesignMatrix, RowFeatures
from sstorch.data.encodings import Encodings
from sstorch.exceptions import DataError, warn
from sstorch.packing import Packed

# A range below this share of the values is rounding noise of a constant.
_NOISE = 16 * float(np.finfo(np.float64).eps)
# Widths of the training range beyond which a number is no rare one, but of another unit or a code.
_FAR = 1.0


class Preprocessor(Packed):
    """Imputation, one-hot encoding, scaling, and optional curves of the scaled columns.

    Every category of the schema is one feature (none is dropped), at the position of its column. A category
    without training rows is zero in every row. Numeric features are in [0, 1] on the training rows, but not
    always on other rows; a numeric feature that is constant on the training rows is zero in every row.
    Missing numbers are the weighted mean of the training rows, missing categories have all indicators 0.

    Args:
        schema: Columns and vocabularies.
        encodings: Encodings of the columns in gates and leaves; by default unchanged columns.
        offset: Numeric column with a fixed coefficient: not scaled, no missing values.
        strata: Categorical column; a category without training rows is an error.

    Attributes:
        offset_, scale_: (p,) float64: a scaled column or category is ``z = (x - offset_) * scale_``, with x
            the raw number, or the 0/1 indicator of a category; scale 0 for columns without information.
        fill_: Imputed number by column.
        mode_: Most frequent category by column, None if the training rows have none.
        basis_: Basis functions that replace the scaled columns; None for unchanged columns.

    Raises:
        ConfigError: An option is unknown, or encodings do not fit the schema.
    """

    offset_: FloatArray
    scale_: FloatArray
    fill_: dict[str, float]
    mode_: dict[str, str | None]
    basis_: Basis | None = None

    def __init__(
        self,
        schema: Schema,
        encodings: Encodings | None = None,
        offset: str | None = None,
        strata: str | None = None,
    ) -> None:
        self.schema, self.encodings = schema, encodings if encodings is not None else Encodings()
        self.encodings.check_columns(schema.columns, schema.categories)
        self.offset, self.strata = offset, strata

    @property
    def features(self) -> tuple[Feature, ...]:
        """The encoded features, in order."""
        if self.basis_ is not None:
            return self.basis_.features
        origins = zip(self.schema.feature_names_out, self.schema.origins, strict=True)
        return tuple(Feature(name, (column,), (j,)) for j, (name, (column, _)) in enumerate(origins))

    @property
    def gate_features(self) -> tuple[Feature, ...]:
        """Features of the gates, the first of all features."""
        return self.features[: self.basis_.n_gates] if self.basis_ else self.features

    @property
    def leaf_features(self) -> tuple[Feature, ...]:
        """Features of the leaves, the last of all features."""
        features = self.features
        return features[len(features) - self.basis_.n_leaves :] if self.basis_ else features

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the encoded features: ``"age"``, ``"grade=II"``."""
        return [feature.name for feature in self.features]

    def leaf_slopes(self, column: str) -> FloatArray:
        """Derivatives of the features of leaves by a scaled number, one row per piece, (pieces, q)."""
        j = self.schema.origins.index((column, None))
        if self.basis_ is None:
            return np.eye(len(self.scale_))[j : j + 1]
        return self.basis_.slopes(j)[:, len(self.features) - self.basis_.n_leaves :]

    def fit(self, X: object, weight: FloatArray | None = None) -> Self:
        """Estimate means, most frequent categories, ranges, and knots of curves.

        Args:
            X: Training rows, frame or array (n, p) with the columns of the schema.
            weight: Weights of means and most frequent categories, (n,), > 0; None where all are alike. Ranges
                and knots count each row once.

        Raises:
            DataError: No rows, or the columns do not fit the schema.
        """
        frame = self.schema.frame_of(X)
        if len(frame) == 0:
            raise DataError("the preprocessing needs at least one row, got no rows to fit to")
        scaling: list[tuple[float, float]] = []
        self.fill_, self.mode_, empty = {}, {}, []
        for name in self.schema.columns:
            words = self.schema.categories.get(name)
            if words is None:
                values = _numbers(frame[name])
                known = ~np.isnan(values)
                present, own = values[known], None if weight is None else weight[known]
                mean = np.average(present, weights=own) if known.any() else 0.0
                # Rounding can leave the range.
                self.fill_[name] = float(np.clip(mean, present.min(), present.max())) if known.any() else 0.0
                scaling.append((0.0, 1.0) if name == self.offset else _range(present))
            else:
                codes = _level_codes(frame[name], words)
                known = codes >= 0
                counts = np.bincount(codes[known], None if weight is None else weight[known], len(words))
                self.mode_[name] = words[int(counts.argmax())] if known.any() else None
                scaling += [(0.0, 1.0 if count else 0.0) for count in counts]
            if not known.any():
                empty.append(name)
        self.offset_, self.scale_ = np.array(scaling).reshape(-1, 2).T.copy()
        self.basis_ = None
        if not self.encodings.are_linear:
            z, _, given = self._scaled(frame, self._coded)
            names, origins = self.schema.feature_names_out, self.schema.origins
            self.basis_ = Basis.fit(self.encodings, origins, names, z, given)
        if empty:
            warn(f"column {names_text(empty)} is missing in every training row and is set to zero")
        return self

    def transform(self, X: object) -> FloatArray:
        """Encode rows.

        Columns can be in any order; columns not in the schema are ignored. A category outside the vocabulary
        has all indicators 0, and a DataWarning names it.

        Args:
            X: Frame (n, ...) or, if the schema was read from an array, array (n, p).

        Returns:
            (n, q) float64, C-contiguous, columns as in `feature_names_out`.

        Raises:
            DataError: A column is missing or holds the wrong kind of value; rows are 0-based positions.
            sklearn.exceptions.NotFittedError: `fit` was not called.
        """
        z = self.scaled(X)
        return z if self.basis_ is None else self.basis_.transform(z)

    def scaled(self, X: object) -> FloatArray:
        """Impute and scale columns and categories, without curves, (n, p); see `transform`."""
        return self._scaled(X, frozenset())[0]

    def encode(self, X: object) -> RowFeatures:
        """As :meth:`transform`, (n, q), with categories of over 16 levels and in no product as codes."""
        coded = self._coded
        if not coded:
            return torch.as_tensor(self.transform(X))
        z, codes, given = self._scaled(X, coded)
        numbers = z if self.basis_ is None else self.basis_.of_columns(given).transform(z)
        columns, levels = [feature.columns[0] for feature in self.features], self.schema.categories
        blocks = [(columns.index(name), len(levels[name])) for name in self.schema.columns if name in coded]
        return DesignMatrix(torch.as_tensor(numbers), codes=torch.as_tensor(codes), blocks=tuple(blocks))

    @property
    def coded_levels(self) -> list[int]:
        """Levels of each category stored as codes by :meth:`encode`."""
        return [len(self.schema.categories[name]) for name in self._coded]

    @property
    def _coded(self) -> frozenset[str]:
        """Categories that are stored as codes: of many levels, and in no product."""
        many = {name for name, words in self.schema.categories.items() if len(words) > CODED_LEVELS}
        return frozenset(many.difference(*self.encodings.pairs(self.schema.columns)))

    def _scaled(
        self, X: object, coded: Collection[str]
    ) -> tuple[FloatArray, npt.NDArray[np.int32], IntArray]:
        """Columns of rows, imputed and scaled, with indicators of categories not `coded`, (n, p')."""
        # Also codes of the others, (n, C), the number of levels for none; positions of the first, (p',).
        if not hasattr(self, "scale_"):
            raise NotFittedError("this Preprocessor is not fitted yet; call fit first")
        frame = self.schema.frame_of(X)
        given = np.array([column not in coded for column, _ in self.schema.origins], dtype=bool)
        out = np.empty((len(frame), int(given.sum())))
        codes = np.empty((len(frame), len(coded)), dtype=np.int32)
        at = first = number = 0
        for name in self.schema.columns:
            column, words = frame[name], self.schema.categories.get(name)
            if words is None:
                values = _numbers(column)
                if name == self.offset:
                    self._check_known(column, np.isnan(values))
                out[:, at] = np.where(np.isnan(values), self.fill_[name], values)
                at, first = at + 1, first + 1
                continue
            # A level that no training row had is none.
            seen = self.scale_[first : first + len(words)] != 0
            first += len(words)
            if name == self.strata:
                cells, found = label_codes(column)
                own = {word for word, known in zip(words, seen, strict=True) if known}
                self._check_known(column, ~np.array([*(each in own for each in found), False])[cells])
            levels = _level_codes(column, words)
            if name in coded:
                codes[:, number] = np.where(np.append(seen, False)[levels], levels, len(words))
                number += 1
            else:
                out[:, at : at + len(words)] = levels[:, None] == np.arange(len(words))
                at += len(words)
        out -= self.offset_[given]
        out *= self.scale_[given]
        return out, codes, np.asarray(np.flatnonzero(given), dtype=np.int64)

    def _check_known(self, column: pd.Series, unknown: BoolArray) -> None:
        """Refuse values of the offset or strata that are missing, or strata without training rows."""
        if not unknown.any():
            return
        what = "the offset" if column.name == self.offset else "strata"
        value = column[unknown].iloc[0]
        found = "missing" if pd.isna(value) else f"{str(value)!r}, which no training row had,"
        raise DataError(
            f"column {str(column.name)!r} ({what} of the model) is {found} in {rows_text(unknown)}: "
            "there is no baseline for these rows; remove them, or give their value"
        )

    def warn_of_far_values(self, X: object) -> None:
        """Warn about numbers outside the training range by more than its width: values, range and rows."""
        frame = self.schema.frame_of(X)
        for j, (name, category) in enumerate(self.schema.origins):
            if category is not None or not self.scale_[j] or name == self.offset:
                continue
            values, low, width = _numbers(frame[name]), self.offset_[j], 1 / self.scale_[j]
            z = (values - low) / width
            far = (z < -_FAR) | (z > 1 + _FAR)  # never where missing
            if far.any():
                warn(
                    f"column {name!r} is {values[far][0]:g} in {rows_text(far)}, far outside its training "
                    f"range {low:g} to {low + width:g}: predictions are extrapolated there; is "
                    "the unit that of the training rows, and is a missing value left empty?"
                )


def _range(values: FloatArray) -> tuple[float, float]:
    """Offset and factor of a numeric column; factor 0 for a constant, or without values."""
    if not len(values):
        return 0.0, 0.0
    low, high = float(values.min()), float(values.max())
    noise = max(_NOISE * max(abs(low), abs(high)), float(np.finfo(np.float64).tiny))
    return low, 1.0 / (high - low) if high - low > noise else 0.0


def _numbers(column: pd.Series) -> FloatArray:
    return finite_values(column, f"column {str(column.name)!r}", "this column is numeric in the schema")


def _level_codes(column: pd.Series, words: tuple[str, ...]) -> IntArray:
    """Position of each label among words, -1 if missing or unknown; a DataWarning names unknown ones."""
    codes, found = label_codes(column)
    place = {word: k for k, word in enumerate(words)}
    levels = np.array([*(place.get(name, -2) for name in found), -1])[codes]
    unknown = levels == -2
    if unknown.any():
        strange = names_text(sorted({found[code] for code in codes[unknown]}))
        warn(
            f"column {str(column.name)!r} has the unknown category {strange} "
            f"in {rows_text(unknown)}, encoded as zeros; known are {names_text(words)}"
        )
        levels[unknown] = -1
    return levels
