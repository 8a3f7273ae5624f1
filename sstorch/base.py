"""Base classes of estimators: reading of columns, scored rows, times of predictions, curves as frames."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, Protocol, Self, cast, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from sstorch import metrics
from sstorch._types import FloatArray
from sstorch.checks import as_numbers, check_after
from sstorch.data import Schema, SurvivalData, outcome_of
from sstorch.data.causes import cause_number
from sstorch.data.columns import to_rows
from sstorch.data.surv import OutcomeType
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.curves import check_alive
from sstorch.parameters import Parameters

# Times of predictions: numbers, "events" or the default.
Times = npt.ArrayLike | Literal["events"] | None
# Quantiles of the training event times at which curves are predicted by default.
DEFAULT_TIMES = 100
CurveKind = Literal["survival", "cumulative_hazard", "hazard"]


class CurveMethod(Protocol):
    """Type of the methods that predict curves: an array, or with ``as_frame`` a frame."""

    @overload
    def __call__(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any]: ...

    @overload
    def __call__(
        self,
        X: object,
        times: Times = None,
        *,
        as_frame: Literal[True],
        after: npt.ArrayLike | None = None,
    ) -> pd.DataFrame: ...


def _typed(method: Callable[..., Any]) -> CurveMethod:
    """The method itself, whose type depends on ``as_frame``."""
    return cast(CurveMethod, method)


@lru_cache(maxsize=64)
def _default_times(events: bytes) -> FloatArray:
    """Quantiles of event times, given as the bytes of float64; they are those of every prediction."""
    shares = np.linspace(0.0, 1.0, DEFAULT_TIMES)
    return np.unique(np.quantile(np.frombuffer(events), shares, method="inverted_cdf"))


class FrameEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that read columns of any kind by the schema of their training rows."""

    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int

    @property
    @abstractmethod
    def _schema(self) -> Schema:
        """Columns of the training rows."""

    def set_params(self, **values: Any) -> Self:
        """Set parameters by name, ``penalties__ridge=1`` that of a group of parameters.

        Only this estimator is changed, even if another one has the same group.
        """
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
        return self._schema.clean(X)

    def _frame(self, X: object) -> Any:
        """Rows with the training columns, unread."""
        # Missing values become levels where the rows are encoded, or trees trained on them.
        frame = Schema(self._schema.inputs, self._schema.categories).frame_of(X)
        # The numbered rows of an array are not labels that those of an outcome could contradict.
        return frame if isinstance(X, pd.DataFrame) else X


class SurvivalEstimator(FrameEstimator):
    """Base class of the survival estimators.

    Attributes:
        event_times_: distinct training event times, original units, increasing; of intervals the upper
            bounds.
        zero_time_: replacement of a time of zero in scored rows: half the smallest training time;
            None for that of the scored rows.
        outcome_type_: type of the training outcome; later outcomes need the same ``entry`` and ``id``.
        horizon_: median of the observed training event times, at which :meth:`predict` computes incidences.
        time_varying_: True if training subjects have several rows.
    """

    event_times_: FloatArray
    zero_time_: float | None
    outcome_type_: OutcomeType
    horizon_: float
    time_varying_: bool

    def _set_outcome(self, data: SurvivalData) -> None:
        """Take over what later outcomes, default times and risks need of the training rows."""
        self.outcome_type_ = replace(data.outcome_type, weighted=data.uneven_weight is not None)
        self.zero_time_, self.horizon_ = data.zero_time, median_event_time(data)
        self.time_varying_ = data.time_varying

    @property
    def causes_(self) -> tuple[str, ...]:
        """Names of the K causes, in the order of their numbers 1 .. K; empty if causes do not compete."""
        check_is_fitted(self)
        return self.outcome_type_.causes or ()

    def _incidences(self, X: object, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Cumulative incidences at checked times, (n, K, n_times), of rows that are event-free ``after``."""
        if not after:
            return 1.0 - self._curves("survival", X, times)[:, None]
        hazard = -self._log_survival(X, np.append(0.0, times) + after)
        return -np.expm1(hazard[:, None, :1] - hazard[:, None, 1:])

    def _number(self, cause: int | str) -> int:
        """Number of a cause, 1 .. K."""
        return cause_number(cause, self.causes_)

    @property
    def _chosen(self) -> Any:
        """The estimator that holds the results of a fit, of a search that of the chosen tree."""
        return self

    @abstractmethod
    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times), times increasing."""

    @abstractmethod
    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Curves of rows at checked times, (n, n_times)."""

    @_typed
    def predict_survival_function(
        self,
        X: object,
        times: Times = None,
        as_frame: bool = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any] | pd.DataFrame:
        """Predict the survival function S(t | x), exactly at the given times.

        Beyond the last training event curves are extrapolated: by the family for a soft tree, as a constant
        for an exact tree.

        Args:
            X: rows with the training columns, or one row as a Series or a dictionary.
            times: (n_times,), >= 0, original units, or one time; ``"events"`` for the distinct training event
                times. By default 100 quantiles of these, or all of them if there are at most 100.
            as_frame: return a DataFrame with times as columns and the index of ``X``.
            after: time until which the rows are event-free, a number or (n,). The curves are then
                conditional, S(after + t | x) / S(after | x), with ``times`` counted from ``after``, as
                ``conditional_after`` of lifelines.

        Returns:
            shape (n_samples, n_times), in [0, 1], non-increasing in t.

        Raises:
            DataError: a training column is missing or holds the wrong kind of value; times are not numbers;
                predicted survival at ``after`` is 0: conditional survival is undefined.
            ConfigError: the model has time-varying covariates and ``after`` is not given: one row does not
                determine future survival (``after=0`` for constant covariates).
        """
        return self._predict_curves("survival", X, times, as_frame, after)

    @_typed
    def predict_cumulative_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: bool = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any] | pd.DataFrame:
        """Predict the cumulative hazard H(t | x); arguments, shape: :meth:`predict_survival_function`.

        It is -log S. Exact trees with Kaplan-Meier or IPCW curves return the Nelson-Aalen estimate of the
        leaf, which is finite if S is 0.
        """
        return self._predict_curves("cumulative_hazard", X, times, as_frame, after)

    def _predict_curves(
        self,
        kind: CurveKind,
        X: object,
        times: Times,
        as_frame: bool,
        after: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any] | pd.DataFrame:
        check_is_fitted(self)
        X = to_rows(X)
        index, alive = X.index if isinstance(X, pd.DataFrame) else None, None
        if after is not None:
            alive = check_after(after, _num_samples(self._frame(X)), X)
        elif kind != "hazard":  # which asks what a row is at that time alone
            self._refuse_unknown_future(after)
        grid = self._grid(times, 0.0 if alive is None else float(alive.min(initial=np.inf)))
        curves = self._curves(kind, X, grid) if alive is None else self._curves_after(kind, X, grid, alive)
        if not as_frame:
            return curves
        return pd.DataFrame(curves, columns=grid, index=index)

    def _refuse_unknown_future(self, after: object) -> None:
        """Require ``after`` for a model with time-varying covariates."""
        if after is None and getattr(self, "time_varying_", False):
            raise ConfigError(
                "the model has time-varying covariates: one row does not determine survival from time zero. "
                "Pass after=, a time at which the subject is at risk and from which its covariates stay as "
                "in the row (after=0 from time zero)"
            )

    def _curves_after(self, kind: CurveKind, X: object, times: FloatArray, after: FloatArray) -> FloatArray:
        """Conditional curves of rows, (n, n_times), each from its time ``after``."""
        at = np.concatenate([after[:, None], after[:, None] + times], axis=1)
        survival = self._log_survival(X, at)
        check_alive(np.exp(survival[:, 0]) > 0.0, after)
        if kind == "survival":
            return np.exp(survival[:, 1:] - survival[:, :1])
        curves = self._curves(kind, X, at)
        return curves[:, 1:] - curves[:, :1] if kind == "cumulative_hazard" else curves[:, 1:]

    def _risk_of(self, X: object, cause: int | str) -> FloatArray:
        """Cumulative incidence of a cause at ``horizon_``, (n,)."""
        number = self._number(cause)
        if getattr(self, "time_varying_", False):
            raise ConfigError(
                "the model has time-varying covariates: one row does not determine the incidence at a "
                "horizon. Use predict_cumulative_incidence(X, times, after=...), after=0 from time zero"
            )
        return np.asarray(self._incidences(X, np.array([self.horizon_]))[:, number - 1, 0])

    def _log_survival(self, X: object, times: FloatArray) -> FloatArray:
        """Log survival functions of rows, each at times of its own, (n, n_times)."""
        return -self._curves("cumulative_hazard", X, times)

    def _grid(self, times: Times, after: float = 0.0) -> FloatArray:
        """Times of predictions, checked; those of events count from ``after``."""
        if times is not None and not (isinstance(times, str) and times == "events"):
            return check_times(times)
        if not self.event_times_.size:
            raise DataError(
                "training event times are unknown: give times=, or use TorchSurvival.wrap(module, y)"
            )
        events = self.event_times_[self.event_times_ > after] - after if after else self.event_times_
        if events.size == 0:
            raise DataError(
                f"no training event is later than after={after:g}; name the times, which count from there"
            )
        if times is not None:
            return events
        return _default_times(events.tobytes()).copy()

    @overload
    def predict_cumulative_incidence(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        after: float | None = None,
    ) -> FloatArray: ...

    @overload
    def predict_cumulative_incidence(
        self, X: object, times: Times = None, *, as_frame: Literal[True], after: float | None = None
    ) -> pd.DataFrame: ...

    def predict_cumulative_incidence(
        self, X: object, times: Times = None, as_frame: bool = False, *, after: float | None = None
    ) -> FloatArray | pd.DataFrame:
        """Predict the cumulative incidence of each cause in the presence of the other causes.

        The incidences of all causes and :meth:`predict_survival_function` sum to one, up to rounding. For a
        single event the incidence is 1 - S.

        Args:
            X: rows with the training columns.
            times: as in :meth:`predict_survival_function`.
            as_frame: return a DataFrame with the index of ``X`` and columns of two levels, cause and time.
            after: time until which the rows are event-free. Incidences are then conditional, with times
                counted from ``after``.

        Returns:
            shape (n, K, n_times), in [0, 1], non-decreasing in t; causes in the order of ``causes_``, K = 1
            without causes.

        Raises:
            DataError: a training column is missing or holds the wrong kind of value; times are not numbers;
                predicted survival at ``after`` is 0: conditional survival is undefined.
            ConfigError: the tree was trained on time-varying covariates and ``after`` is not given: one row
                does not determine future incidences (``after=0`` for constant covariates).
        """
        check_is_fitted(self)
        self._refuse_unknown_future(after)
        if after is None:
            grid = self._grid(times)
            found = self._incidences(X, grid)
        else:
            (start,) = check_after(after, 1)
            grid = self._grid(times, start)
            check_alive(np.exp(self._log_survival(X, np.array([start]))[:, 0]) > 0.0, start)
            found = self._incidences(X, grid, start)
        if not as_frame:
            return found
        columns = pd.MultiIndex.from_product([self.causes_ or ("event",), grid], names=["cause", "time"])
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(found.reshape(len(found), -1), columns=columns, index=index)

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Compute the time-dependent concordance index (Antolini): risks are compared at the earlier time.

        Curves are compared at every distinct event time up to 2^27 values (rows x times), beyond that at the
        quantiles of :func:`sstorch.metrics.thinned`: 512 for 130 000 rows, 67 for a million. With competing
        causes it is the mean concordance of the incidences over causes; rows with another cause are censored
        at their time, and causes without rows are excluded.

        Args:
            X: rows with the training columns.
            y: outcome of the rows, as in ``fit``.
            sample_weight: (n,), >= 0; the weight of a pair is the product of its weights. With left
                truncation, pairs must be at risk at the same time.

        Raises:
            DataError: the data are invalid, or no two rows are comparable.
        """
        data = self._scored(X, y, sample_weight)
        if not data.event.any():
            raise DataError("no row has an event: no two rows are comparable; score more rows")
        n_causes = max(1, len(self.causes_))
        times = metrics.thinned(np.unique(data.time[data.event]), len(data) * n_causes)
        if not self.causes_:
            curves = self.falling_curves(X, times)
            return metrics.concordance_harrell(data.weighted_y, curves, times)
        incidence = self._incidences(X, times)
        scores = [
            metrics.concordance_harrell(data.weighted_y.of_cause(k), 1 - incidence[:, k - 1], times)
            for k in range(1, n_causes + 1)
            if (data.cause == k).any()
        ]
        return float(np.mean(scores))

    def _scored(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """Rows with an outcome of the type of the training outcome."""
        check_is_fitted(self)
        return SurvivalData(
            self._frame(X),
            outcome_of(self, y),
            sample_weight=sample_weight,
            require_events=False,
            zero_time=self.zero_time_,
        )

    def _rows(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """The rows of positive weight, with follow-up, and the training columns alone."""
        return self._scored(X, y, sample_weight).followed()


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
