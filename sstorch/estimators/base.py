"""What survival estimators share: rows to score, times to predict at, curves as frames."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sstorch import metrics
from sstorch.data import Schema, SurvivalData
from sstorch.data.columns import clean_features
from sstorch.exceptions import DataError

FloatArray = npt.NDArray[np.float64]


class SurvivalEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators.

    Attributes:
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
    """

    event_times_: FloatArray
    zero_time_: float

    @property
    @abstractmethod
    def _schema(self) -> Schema:
        """Columns of the training rows."""

    @abstractmethod
    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times), times increasing."""

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Time-dependent concordance index of Harrell (Antolini): risk compared at the earlier time.

        Args:
            X: rows with the training columns.
            y: their times and events, as in ``fit``.
            sample_weight: (n,), >= 0; a pair counts with the product of its weights.

        Raises:
            DataError: the data cannot be used, or no two rows can be compared.
        """
        data = self._scored(X, y, sample_weight=sample_weight)
        if not data.event.any():
            raise DataError("no row has an event, so no two rows can be compared; score more rows")
        times = np.unique(data.time[data.event])
        curves = self.falling_curves(data.frame, times)
        weight = None if sample_weight is None else data.sample_weight
        return metrics.concordance_harrell(data.time, data.event, curves, times, sample_weight=weight)

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn may expect: a target; text, categories and missing values."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _scored(
        self, X: object, y: object, entry: object = None, sample_weight: object = None
    ) -> SurvivalData:
        check_is_fitted(self)
        return SurvivalData(
            self._schema.frame_of(X),
            y,
            sample_weight=sample_weight,
            entry=entry,
            require_events=False,
            zero_time=self.zero_time_,
        )

    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read; other columns may hold anything."""
        return clean_features(self._schema.frame_of(X))

    def _grid(self, times: npt.ArrayLike | None) -> FloatArray:
        """Times to predict at: those given, checked, or the training event times."""
        return self.event_times_ if times is None else check_times(times)


def check_times(times: npt.ArrayLike) -> FloatArray:
    """Times of predictions as an array.

    Raises:
        DataError: no list of finite numbers >= 0.
    """
    try:
        grid = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"times must be numbers: {error}") from error
    if grid.ndim != 1 or grid.size == 0:
        raise DataError(f"times must be a non-empty list of numbers, got shape {grid.shape}")
    if not np.isfinite(grid).all() or (grid < 0).any():
        raise DataError("times must be finite and >= 0")
    return grid


def curves_as(curves: FloatArray, grid: FloatArray, X: object, as_frame: bool) -> FloatArray | pd.DataFrame:
    """Curves (n, n_times) as they are, or as a frame with times as columns and the index of ``X``."""
    if not as_frame:
        return curves
    return pd.DataFrame(curves, columns=grid, index=X.index if isinstance(X, pd.DataFrame) else None)
