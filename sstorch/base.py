"""Base classes of estimators: columns to read, rows to score, times to predict at, curves as frames."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sstorch import metrics
from sstorch._types import FloatArray
from sstorch.data import Schema, SurvivalData
from sstorch.data.columns import clean_features, to_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.step_function import StepFunction

# Times of predictions: numbers, "events" or the default.
Times = npt.ArrayLike | Literal["events"] | None
# Quantiles of the training event times at which curves are predicted by default.
DEFAULT_TIMES = 100
CurveKind = Literal["survival", "cumulative_hazard", "hazard"]


class FrameEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that read columns of any kind by the schema of their training rows."""

    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int

    @property
    @abstractmethod
    def _schema(self) -> Schema:
        """Columns of the training rows."""

    def __sklearn_tags__(self) -> Tags:
        """Tags of scikit-learn: a target is needed; text, categories and missing values may come."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _fitted_html(self) -> str:
        """What a notebook shows of a fitted estimator above its parameters; empty before it is fitted."""
        return ""

    def _repr_html_inner(self) -> str:
        html: str = self._fitted_html() + super()._repr_html_inner()
        return html

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = self._fitted_html() + bundle["text/html"]
        return bundle

    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read; other columns may hold anything."""
        return clean_features(self._schema.frame_of(X))


class SurvivalEstimator(FrameEstimator):
    """Base class of the survival estimators.

    Attributes:
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
    """

    event_times_: FloatArray
    zero_time_: float

    @property
    def unique_times_(self) -> FloatArray:
        """`event_times_` under scikit-survival's name: times where step functions jump."""
        return self.event_times_

    @abstractmethod
    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times), times increasing."""

    @abstractmethod
    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Curves of rows at checked times, (n, n_times)."""

    @overload
    def predict_survival_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        return_array: Literal[True] | None = None,
    ) -> FloatArray: ...

    @overload
    def predict_survival_function(
        self, X: object, times: Times = None, *, as_frame: Literal[True], return_array: None = None
    ) -> pd.DataFrame: ...

    @overload
    def predict_survival_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        return_array: Literal[False],
    ) -> npt.NDArray[np.object_]: ...

    def predict_survival_function(
        self, X: object, times: Times = None, as_frame: bool = False, *, return_array: bool | None = None
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]:
        """Survival function S(t | x), evaluated exactly at the given times.

        Beyond the last training event the curve of a soft tree's leaf goes on as its family says, and that of
        an exact tree keeps its value: both are extrapolations.

        Args:
            X: rows with the training columns, or one row as a Series or a dictionary.
            times: (n_times,), >= 0, original units, or one time; ``"events"`` for the distinct training event
                times. By default 100 quantiles of these, or all of them if they are no more.
            as_frame: return a DataFrame with times as columns and the index of ``X``.
            return_array: for tools of scikit-survival, which says it so: True for an array, False for a
                :class:`~sstorch.step_function.StepFunction` for each row; with either, the default of
                ``times`` is ``unique_times_``.

        Returns:
            shape (n_samples, n_times), in [0, 1], falling with t; or (n_samples,) of functions.

        Raises:
            DataError: a training column is missing or holds the wrong kind of value; times are no numbers.
            ConfigError: ``as_frame`` and ``return_array`` contradict each other.
        """
        return self._predict_curves("survival", X, times, as_frame, return_array)

    @overload
    def predict_cumulative_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        return_array: Literal[True] | None = None,
    ) -> FloatArray: ...

    @overload
    def predict_cumulative_hazard_function(
        self, X: object, times: Times = None, *, as_frame: Literal[True], return_array: None = None
    ) -> pd.DataFrame: ...

    @overload
    def predict_cumulative_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        return_array: Literal[False],
    ) -> npt.NDArray[np.object_]: ...

    def predict_cumulative_hazard_function(
        self, X: object, times: Times = None, as_frame: bool = False, *, return_array: bool | None = None
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]:
        """Cumulative hazard H(t | x); arguments and shape as :meth:`predict_survival_function`.

        It is -log S, except in exact trees whose leaves are Kaplan-Meier or IPCW curves: theirs is the
        Nelson-Aalen estimate of the leaf's rows, which is finite where S is 0.
        """
        return self._predict_curves("cumulative_hazard", X, times, as_frame, return_array)

    @overload
    def _predict_curves(
        self, kind: Literal["hazard"], X: object, times: Times, as_frame: bool
    ) -> FloatArray | pd.DataFrame: ...

    @overload
    def _predict_curves(
        self, kind: CurveKind, X: object, times: Times, as_frame: bool, return_array: bool | None
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]: ...

    def _predict_curves(
        self, kind: CurveKind, X: object, times: Times, as_frame: bool, return_array: bool | None = None
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]:
        check_is_fitted(self)
        if as_frame and return_array is not None:
            raise ConfigError(
                "as_frame asks for a DataFrame, and return_array for none; leave one of them out"
            )
        if return_array is not None and times is None:
            times = "events"
        X, grid = to_rows(X), self._grid(times)
        curves = self._curves(kind, X, grid)
        if return_array is False:
            start = 1.0 if kind == "survival" else 0.0
            functions = np.empty(len(curves), dtype=object)
            functions[:] = [StepFunction(grid, curve, start) for curve in curves]
            return functions
        if not as_frame:
            return curves
        return pd.DataFrame(curves, columns=grid, index=X.index if isinstance(X, pd.DataFrame) else None)

    def _grid(self, times: Times) -> FloatArray:
        """Times of predictions, checked."""
        if times is None:
            shares = np.linspace(0.0, 1.0, DEFAULT_TIMES)
            return np.unique(np.quantile(self.event_times_, shares, method="inverted_cdf"))
        return self.event_times_ if isinstance(times, str) and times == "events" else check_times(times)

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Time-dependent concordance index of Harrell (Antolini): risk compared at the earlier time.

        Curves are compared at every distinct event time, up to 2^27 values (rows x times), and beyond at the
        quantiles of :func:`sstorch.metrics.thinned`: 512 for 130 000 rows, 67 for a million.

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
        times = metrics.thinned(np.unique(data.time[data.event]), len(data))
        curves = self.falling_curves(data.frame, times)
        weight = None if sample_weight is None else data.sample_weight
        return metrics.concordance_harrell(data.time, data.event, curves, times, sample_weight=weight)

    def _scored(
        self, X: object, y: object, entry: object = None, sample_weight: object = None
    ) -> SurvivalData:
        check_is_fitted(self)
        frame = self._schema.frame_of(X)
        return SurvivalData(
            # The numbered rows of an array are no labels that those of y could contradict.
            frame if isinstance(X, pd.DataFrame) else X,
            y,
            sample_weight=sample_weight,
            entry=entry,
            require_events=False,
            zero_time=self.zero_time_,
        )


def check_times(times: npt.ArrayLike) -> FloatArray:
    """Times of predictions as an array (n_times,), one time as an array of one.

    Raises:
        DataError: neither a finite number >= 0 nor a list of them.
    """
    if isinstance(times, bool):
        raise DataError(f"times is {times}; times are numbers: name the argument that {times} is meant for")
    try:
        grid = np.atleast_1d(np.asarray(times, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(f"times must be numbers, or 'events': {error}") from error
    if grid.ndim != 1 or grid.size == 0:
        raise DataError(f"times must be a non-empty list of numbers, got shape {grid.shape}")
    if not np.isfinite(grid).all() or (grid < 0).any():
        raise DataError("times must be finite and >= 0")
    return grid
