"""Rows with a target that is no survival time: classes, numbers, scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from sstorch.data.columns import check_not_all_missing, clean_features
from sstorch.data.rows import check_same_order, parse_weights
from sstorch.exceptions import DataError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TargetRows:
    """Training rows that passed all checks; rows of weight 0 are left out.

    Attributes:
        frame: features (n, p), as `clean_features` gives them.
        target: (n,) or (n, K).
        weight: (n,), > 0.
        every: the target of all rows, also those of weight 0.
    """

    frame: pd.DataFrame
    target: npt.NDArray[Any]
    weight: FloatArray
    every: npt.NDArray[Any]

    @classmethod
    def check(cls, X: object, y: object, target: npt.NDArray[Any], sample_weight: object) -> TargetRows:
        """Bring features, target and weights together.

        Args:
            X: DataFrame or array (n, p).
            y: the target as it was given.
            target: y as an array.
            sample_weight: (n,), or None.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
        """
        frame = clean_features(X)
        n = len(frame)
        if len(target) != n:
            raise DataError(f"X has {n} rows but y has {len(target)}; give one target for every row")
        if n < 2:
            raise DataError(f"at least two rows are needed, the data have n_samples = {n}")
        check_same_order(("X", X), ("y", y), ("sample_weight", sample_weight))
        check_not_all_missing(frame)
        weight = parse_weights(sample_weight, n)
        kept = weight > 0.0
        if not kept.all():
            frame = frame[kept].reset_index(drop=True)
        return cls(frame, target[kept], weight[kept], target)


def class_target(y: object) -> npt.NDArray[Any]:
    """Classes, (n,).

    Raises:
        DataError: no list of classes, or one is missing.
    """
    _check_given(y)
    try:
        classes = np.asarray(column_or_1d(y, warn=True))
        if (missing := pd.isna(classes)).any():
            raise DataError(f"y: row {int(np.flatnonzero(missing)[0])} has no class; drop such rows")
        if classes.dtype.kind == "f":
            check_array(classes, ensure_2d=False, input_name="y", ensure_min_samples=0)
        check_classification_targets(classes)
        np.unique(classes)  # cannot sort numbers among text
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"y: {error}") from error
    return classes


def number_target(y: object) -> FloatArray:
    """Numbers, (n,).

    Raises:
        DataError: no list of finite numbers.
    """
    _check_given(y)
    try:
        flat = column_or_1d(y, warn=True)
        numbers = check_array(flat, ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
    return np.asarray(numbers)


def _check_given(y: object) -> None:
    if y is None:
        raise DataError("this estimator requires y to be passed, but the target y is None")
