"""Base class of estimators that read columns of any kind, groups of their parameters, checks of times."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags

from sstorch._types import FloatArray
from sstorch.checks import as_numbers
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import DataError

EstimatorT = TypeVar("EstimatorT", bound=BaseEstimator)


class Parameters(BaseEstimator):  # type: ignore[misc]
    """Related parameters of an estimator, a dataclass; a scikit-learn grid may have ``penalties__ridge``."""

    @property
    def changed(self) -> dict[str, Any]:
        """The values that are not those by default."""
        usual = type(self)().get_params()
        return {name: value for name, value in self.get_params().items() if value != usual[name]}


def restored(kind: type[EstimatorT], parameters: Mapping[str, Any]) -> EstimatorT:
    """An estimator with saved parameters; those that its constructor lacks are set after it."""
    names = kind._get_param_names() & parameters.keys()
    estimator: EstimatorT = kind(**{name: parameters[name] for name in names})
    bases: list[type[BaseEstimator]] = [base for base in kind.__mro__ if issubclass(base, BaseEstimator)]
    for name in {name for base in bases for name in base._get_param_names()} - names:
        if name in parameters:
            setattr(estimator, name, parameters[name])
    return estimator


CurveKind = Literal["survival", "cumulative_hazard", "hazard"]


class FrameEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that read columns of any kind by the schema of their training rows."""

    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int

    @property
    @abstractmethod
    def _schema(self) -> Schema:
        """Columns of the training rows."""

    def set_params(self, **values: Any) -> Self:
        """Set parameters, ``penalties__ridge=1`` that of a group, which no other estimator shares then."""
        for group in {name.partition("__")[0] for name in values if "__" in name}:
            if isinstance(own := getattr(self, group, None), Parameters):
                setattr(self, group, clone(own))
        changed: Self = super().set_params(**values)
        return changed

    def __sklearn_tags__(self) -> Tags:
        """Tags of scikit-learn: a target is needed; text, categories and missing values may come."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        takes = tags.input_tags
        takes.allow_nan = takes.string = takes.categorical = takes.sparse = True
        return tags

    def _fitted_html(self) -> str:
        """HTML summary of a fitted estimator for notebooks; empty before fitting."""
        return ""

    def _html_repr(self) -> str:
        html: str = self._fitted_html() + super()._html_repr()
        return html

    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read; other columns may hold anything."""
        return self._schema.clean(X)

    def _frame(self, X: object) -> Any:
        """Rows with the training columns, unread."""
        frame = self._schema.frame_of(X)
        # The numbered rows of an array are not labels that those of an outcome could contradict.
        return frame if isinstance(X, pd.DataFrame) else X


def check_times(times: npt.ArrayLike) -> FloatArray:
    """Finite times >= 0 of predictions as an array (n_times,), one time as an array of one."""
    if isinstance(times, bool):
        raise DataError(f"times must be numbers, got {times}; name the argument that it is for")
    try:  # neither text nor dates nor time spans, whose unit is unknown
        grid = np.atleast_1d(as_numbers(times, "times"))
    except DataError as error:
        raise DataError(f"times must be numbers, or 'events': {error}") from error
    if grid.ndim != 1 or grid.size == 0:
        raise DataError(f"times must be a non-empty list of numbers, got shape {grid.shape}")
    if not (fine := np.isfinite(grid) & (grid >= 0)).all():
        raise DataError(f"times must be finite and >= 0, got {grid[~fine][0]:g}")
    return grid


def median_event_time(data: SurvivalData) -> float:
    """Median of the observed event times, by weight; one of them."""
    time, weight = data.nominal_time[data.event], data.sample_weight[data.event]
    order = np.argsort(time, kind="stable")
    # By a power of two, so that sums of the largest weights are finite and nothing is rounded.
    share = np.ldexp(weight, -np.frexp(weight.max())[1])[order].cumsum()
    return float(time[order][np.searchsorted(share, share[-1] / 2)])
