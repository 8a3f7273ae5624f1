"""Base class of estimators whose fitted model has a distribution of event times for every row."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.base import CurveKind, SurvivalEstimator, Times, check_times
from sstorch.checks import check_after
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.fitted.model import FittedModel
from sstorch.metrics.curves import check_alive


class DistributionEstimator(SurvivalEstimator):
    """Base class of estimators whose curves are those of a :class:`~sstorch.nn.SurvivalDistribution`."""

    @property
    @abstractmethod
    def _model(self) -> FittedModel:
        """The trained model."""

    @abstractmethod
    def _encode(self, X: object, warn: bool = False) -> Any:
        """Rows as the model reads them; if asked for, a DataWarning names values far outside their range."""

    def predict(self, X: object, cause: int | str = 1) -> FloatArray:
        """Predict the risk of each row; higher means an earlier event.

        Args:
            X: rows with the training columns.
            cause: with competing causes, by number, 1 .. K, or by name.

        Returns:
            Sum of H(t | x) over the distinct training event times, shape (n,), as forests of scikit-survival
            (above 4096 times by a quadrature of 512 terms, to about seven digits). With competing causes, the
            cumulative incidence of the cause at ``horizon_``.

        Raises:
            ConfigError: the cause is unknown, or the model has competing causes and time-varying covariates.
        """
        model = self._model
        if model.competing:
            return self._risk_of(X, cause)
        self._number(cause)
        return model.risk(self._encode(X, warn=True), self._grid("events"))

    @overload
    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> FloatArray: ...

    @overload
    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        *,
        as_frame: Literal[True],
        after: npt.ArrayLike | None = None,
    ) -> pd.DataFrame: ...

    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: bool = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]:
        """Predict the hazard h(t | x) per time unit; arguments, shape: :meth:`predict_survival_function`."""
        return self._predict_curves("hazard", X, times, as_frame, after=after)

    def predict_quantile(
        self,
        X: object,
        q: float = 0.5,
        after: npt.ArrayLike | None = None,
        *,
        extrapolate: bool = False,
    ) -> FloatArray:
        """Predict the quantile ``q`` of the survival time; the median by default.

        Args:
            X: rows with the training columns.
            q: in (0, 1).
            after: time until which the rows are event-free, a number or (n,); the result is then the
                remaining time.
            extrapolate: True extrapolates beyond the last training event by the family of the leaves. By
                default such quantiles are +inf, as for Kaplan-Meier.

        Returns:
            shape (n,), original units; +inf if the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
            DataError: predicted survival at ``after`` is 0: conditional survival is undefined.
        """
        self._refuse_unknown_future(after)
        x = self._encode(X, warn=True)
        return self._model.quantile(x, q, self._alive(x, after, X), extrapolate)

    def predict_rmst(self, X: object, tau: float, after: npt.ArrayLike | None = None) -> FloatArray:
        """Predict the restricted mean survival time: the area under S(t | x) from 0 to ``tau``.

        Args:
            X: rows with the training columns.
            tau: > 0, original units; ``math.inf`` for the mean, an extrapolation far beyond most follow-up.
            after: as in :meth:`predict_quantile`: the mean of the remaining time, restricted to ``tau``.

        Returns:
            shape (n,), original units; +inf if ``tau`` is infinite and the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive.
            DataError: predicted survival at ``after`` is 0: conditional survival is undefined.
        """
        self._refuse_unknown_future(after)
        x = self._encode(X, warn=True)
        return self._model.restricted_mean(x, tau, self._alive(x, after, X))

    def _alive(self, x: Any, after: npt.ArrayLike | None, X: object) -> FloatArray | None:
        """Times at which rows are alive, (n,), checked; None if not given."""
        if after is None:
            return None
        times = check_after(after, len(x), X)
        check_alive(self._model.curves(x, times[:, None], "survival")[:, 0] > 0.0, times)
        return times

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
        """Survival curves as scores need them, (n, n_times), times increasing.

        They equal :meth:`predict_survival_function`, except for increasing curves of unconstrained splines.
        These are replaced by the smallest value up to each time, and a DataWarning states the number of rows.
        """
        curves = self._model.curves(self._encode(X), check_times(times))
        if not self._model.can_rise:
            return curves
        falling = np.minimum.accumulate(curves, axis=1)
        if n_rising := int((falling < curves).any(axis=1).sum()):
            warnings.warn(
                f"{n_rising} of {len(curves)} curves rise: scored as their running minimum; "
                "monotone=True has no such curves",
                DataWarning,
                stacklevel=3,
            )
        return falling

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        return self._model.curves(self._encode(X, warn=True), times, kind)

    def _incidences(self, X: object, times: FloatArray, after: float = 0.0) -> FloatArray:
        model = self._model
        if not model.competing:
            return super()._incidences(X, times, after)
        return model.incidence(self._encode(X, warn=True), times, after)

    def _curves_after(self, kind: CurveKind, X: object, times: FloatArray, after: FloatArray) -> FloatArray:
        if self._model.can_rise:
            raise ConfigError("remaining time needs curves that cannot increase: use monotone=True")
        return super()._curves_after(kind, X, times, after)
