"""Base class of the survival estimators: predictions, times, conditions, scored rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol, cast, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from sstorch import metrics
from sstorch._types import FloatArray
from sstorch.base import CurveKind, FrameEstimator, check_times, median_event_time
from sstorch.checks import check_after
from sstorch.data import SurvivalData
from sstorch.data.columns import to_pandas
from sstorch.data.surv import OutcomeType, outcome_of
from sstorch.data.target import cause_number
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted.model import EVENT, FittedModel
from sstorch.metrics.curves import check_alive
from sstorch.metrics.grids import thinned

# Times of predictions: numbers, "events" or the default; times until which rows are event-free; curves.
Times = npt.ArrayLike | Literal["events"] | None
After = npt.ArrayLike | None
Curves = npt.NDArray[Any] | pd.DataFrame
# Quantiles of the training event times at which curves are predicted by default.
_DEFAULT_TIMES = 100


class CurveMethod(Protocol):
    """Type of the methods that predict curves: an array, or with ``as_frame`` a frame."""

    @overload
    def __call__(
        self, X: object, times: Times = None, as_frame: Literal[False] = False, *, after: After = None
    ) -> npt.NDArray[Any]: ...

    @overload
    def __call__(
        self, X: object, times: Times = None, *, as_frame: Literal[True], after: After = None
    ) -> pd.DataFrame: ...


def _typed(method: Callable[..., Any]) -> CurveMethod:
    """The method itself, whose type depends on ``as_frame``."""
    return cast(CurveMethod, method)


def _has_density(estimator: object) -> bool:
    """Whether rows have distributions with densities: those of exact trees are step functions."""
    return getattr(type(estimator), "_has_density", True)


class SurvivalEstimator(FrameEstimator):
    """Base class of the survival estimators: predictions of ``_model`` for rows of ``_encode``.

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

    @property
    @abstractmethod
    def _model(self) -> FittedModel:
        """The trained model; of an exact tree the curves of its leaves."""

    @abstractmethod
    def _encode(self, X: object, warn: bool = False) -> Any:
        """Rows as the model reads them; if asked for, a DataWarning names values far outside their range."""

    @property
    def causes_(self) -> tuple[str, ...]:
        """Names of the K causes, in the order of their numbers 1 .. K; empty if causes do not compete."""
        check_is_fitted(self)
        return self.outcome_type_.causes or ()

    @property
    def _chosen(self) -> Any:
        """The estimator that holds the results of a fit, of a search that of the chosen tree."""
        return self

    def _set_outcome(self, data: SurvivalData) -> None:
        """Take over what later outcomes, default times and risks need of the training rows."""
        self.outcome_type_ = replace(data.outcome_type, weighted=data.uneven_weight is not None)
        self.zero_time_, self.horizon_ = data.zero_time, median_event_time(data)
        self.time_varying_ = data.time_varying

    def predict(self, X: object, cause: int | str = 1) -> FloatArray:
        """Predict the risk of each row; higher means an earlier event.

        Args:
            X: rows with the training columns.
            cause: with competing causes, by number, 1 .. K, or by name.

        Returns:
            Sum of H(t | x) over the distinct training event times, shape (n,), as forests of scikit-survival
            (above 4096 times by a quadrature of 512 terms, to about six digits). With competing causes, the
            cumulative incidence of the cause at ``horizon_``.

        Raises:
            ConfigError: the cause is unknown, or the model has competing causes and time-varying covariates.
        """
        model = self._model
        if model.competing:
            number = self._number(cause)
            self._refuse_unknown_future(None)
            return np.asarray(self._incidences(X, np.array([self.horizon_]))[:, number - 1, 0])
        self._number(cause)
        return model.risk(self._encode(X, warn=True), self._grid("events"))

    @_typed
    def predict_survival_function(
        self, X: object, times: Times = None, as_frame: bool = False, *, after: After = None
    ) -> Curves:
        """Predict the survival function S(t | x), exactly at the given times.

        Beyond the last training event curves are extrapolated: by the family for a soft tree, as a constant
        for an exact tree.

        Args:
            X: rows with the training columns.
            times: (n_times,), >= 0, original units, or one time; ``"events"`` for the distinct training event
                times. By default at most 100 quantiles of these.
            as_frame: return a DataFrame with times as columns and the index of ``X``.
            after: time until which the rows are event-free, a number or (n,). The curves are then
                S(after + t | x) / S(after | x), with ``times`` counted from ``after``.

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
        self, X: object, times: Times = None, as_frame: bool = False, *, after: After = None
    ) -> Curves:
        """Predict the cumulative hazard H(t | x); arguments, shape: :meth:`predict_survival_function`.

        It is -log S; of exact trees with Kaplan-Meier curves the Nelson-Aalen estimate of the leaf.
        """
        return self._predict_curves("cumulative_hazard", X, times, as_frame, after)

    @available_if(_has_density)  # type: ignore[untyped-decorator]
    @_typed
    def predict_hazard_function(
        self, X: object, times: Times = None, as_frame: bool = False, *, after: After = None
    ) -> Curves:
        """Predict the hazard h(t | x) per time unit; arguments, shape: :meth:`predict_survival_function`."""
        return self._predict_curves("hazard", X, times, as_frame, after)

    @_typed
    def predict_cumulative_incidence(
        self, X: object, times: Times = None, as_frame: bool = False, *, after: After = None
    ) -> Curves:
        """Predict the cumulative incidence of each cause in the presence of the other causes.

        The incidences of all causes and :meth:`predict_survival_function` sum to one, up to rounding. For a
        single event the incidence is 1 - S.

        Args:
            X: rows with the training columns.
            times: as in :meth:`predict_survival_function`; so are errors.
            as_frame: return a DataFrame with the index of ``X`` and columns of two levels, cause and time.
            after: one time until which the rows are event-free. Incidences are then conditional, with times
                counted from ``after``.

        Returns:
            shape (n, K, n_times), in [0, 1], non-decreasing in t; causes in the order of ``causes_``, K = 1
            without causes.
        """
        check_is_fitted(self)
        self._refuse_unknown_future(after)
        start = 0.0 if after is None else float(check_after(after, 1)[0])
        grid = self._grid(times, start)
        if after is not None:
            check_alive(np.exp(self._log_survival(X, np.array([start]))[:, 0]) > 0.0, start)
        found = self._incidences(X, grid, start)
        if not as_frame:
            return found
        columns = pd.MultiIndex.from_product([self.causes_ or (EVENT,), grid], names=["cause", "time"])
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(found.reshape(len(found), -1), columns=columns, index=index)

    def predict_quantile(
        self, X: object, q: float = 0.5, after: After = None, *, extrapolate: bool = False
    ) -> FloatArray:
        """Predict the quantile ``q`` of the survival time; the median by default.

        Args:
            X: rows with the training columns.
            q: in (0, 1).
            after: time until which the rows are event-free, a number or (n,); the result is then the
                remaining time.
            extrapolate: extrapolate beyond the last training event by the family of the leaves. By default
                such quantiles are +inf.

        Returns:
            shape (n,), original units; +inf if the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
            DataError: predicted survival at ``after`` is 0.
        """
        x, start = self._alive(X, after)
        return self._model.quantile(x, q, start, extrapolate)

    def predict_rmst(self, X: object, tau: float, after: After = None) -> FloatArray:
        """Predict the restricted mean survival time: the area under S(t | x) from 0 to ``tau``.

        Args:
            X: rows with the training columns.
            tau: > 0, original units; ``math.inf`` for the mean, an extrapolation far beyond most follow-up.
            after: as in :meth:`predict_quantile`: the mean of the remaining time, restricted to ``tau``.

        Returns:
            shape (n,), original units; +inf if ``tau`` is infinite and the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive.
            DataError: predicted survival at ``after`` is 0.
        """
        x, start = self._alive(X, after)
        return self._model.restricted_mean(x, tau, start)

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Compute the time-dependent concordance index (Antolini): risks are compared at the earlier time.

        Curves are compared at every distinct event time up to 2^27 values (rows x times), beyond that at
        quantiles. With competing causes it is the mean concordance of the incidences over causes with events;
        rows with another cause are censored at their time.

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
        times = thinned(np.unique(data.time[data.event]), len(data) * n_causes)
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

    @available_if(_has_density)  # type: ignore[untyped-decorator]
    def log_likelihood(self, X: object, y: object, sample_weight: object = None) -> float:
        """Compute the mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), original units.

        For an event within an interval it is log(S(lower | x) - S(upper | x)) + H(entry | x); with competing
        causes the sum over causes.

        Args:
            X: rows with the training columns.
            y: outcome of the rows, as in ``fit``.
            sample_weight: (n,), >= 0; the mean is weighted.

        Raises:
            DataError: the data are invalid, or the outcome lacks parts of the training outcome.
        """
        data = self._scored(X, y, sample_weight)
        return self._model.log_likelihood(self._encode(X), data)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores read them, those of :meth:`predict_survival_function`, (n, n_times)."""
        return self._model.curves(self._encode(X), check_times(times))

    def _number(self, cause: int | str) -> int:
        """Number of a cause, 1 .. K."""
        return cause_number(cause, self.causes_)

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
        if times is not None or events.size <= _DEFAULT_TIMES:
            return events
        shares = np.linspace(0.0, 1.0, _DEFAULT_TIMES)
        return np.unique(np.quantile(events, shares, method="inverted_cdf"))

    def _refuse_unknown_future(self, after: object) -> None:
        """Require ``after`` for a model with time-varying covariates."""
        if after is None and getattr(self, "time_varying_", False):
            raise ConfigError(
                "the model has time-varying covariates: one row does not determine survival from time zero. "
                "Pass after=, a time at which the subject is at risk and from which its covariates stay as "
                "in the row (after=0 from time zero), to a method that predicts curves"
            )

    def _predict_curves(
        self, kind: CurveKind, X: object, times: Times, as_frame: bool, after: After
    ) -> Curves:
        check_is_fitted(self)
        X = to_pandas(X)
        index, alive = X.index if isinstance(X, pd.DataFrame) else None, None
        if after is not None:
            alive = check_after(after, _num_samples(self._frame(X)), X)
        elif kind != "hazard":  # which asks what a row is at that time alone
            self._refuse_unknown_future(after)
        grid = self._grid(times, 0.0 if alive is None else float(alive.min(initial=np.inf)))
        curves = self._curves(kind, X, grid) if alive is None else self._curves_after(kind, X, grid, alive)
        return pd.DataFrame(curves, columns=grid, index=index) if as_frame else curves

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Curves of rows at checked times, (n, n_times)."""
        return self._model.curves(self._encode(X, warn=True), times, kind)

    def _curves_after(self, kind: CurveKind, X: object, times: FloatArray, after: FloatArray) -> FloatArray:
        """Conditional curves of rows, (n, n_times), each from its time ``after``."""
        at = np.concatenate([after[:, None], after[:, None] + times], axis=1)
        survival = self._log_survival(X, at)
        check_alive(np.exp(survival[:, 0]) > 0.0, after)
        if kind == "survival":
            return np.exp(survival[:, 1:] - survival[:, :1])
        curves = self._curves(kind, X, at)
        return curves[:, 1:] - curves[:, :1] if kind == "cumulative_hazard" else curves[:, 1:]

    def _log_survival(self, X: object, times: FloatArray) -> FloatArray:
        """Log survival functions of rows, each at times of its own, (n, n_times)."""
        return -self._curves("cumulative_hazard", X, times)

    def _incidences(self, X: object, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Cumulative incidences at checked times, (n, K, n_times), of rows that are event-free ``after``."""
        return self._model.incidence(self._encode(X, warn=True), times, after)

    def _alive(self, X: object, after: After) -> tuple[Any, FloatArray | None]:
        """Encoded rows, and times at which they are alive, (n,), checked; None if not given."""
        self._refuse_unknown_future(after)
        x = self._encode(X, warn=True)
        if after is None:
            return x, None
        times = check_after(after, len(x), X)
        check_alive(self._model.curves(x, times[:, None], "survival")[:, 0] > 0.0, times)
        return x, times

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
