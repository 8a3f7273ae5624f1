"""Accelerated failure time regressions of lifelines."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import metrics
from sstorch.data import Schema, SurvivalData
from sstorch.estimators.base import check_times
from sstorch.evaluation.baselines.base import LIFELINES, Baseline, Encoder, FloatArray, check_range
from sstorch.exceptions import DataWarning, TrainingError

_TRIES = 4


@dataclass(frozen=True)
class AFTCurves:
    """Curves of a regression with log time = μ(x) + noise / a.

    Attributes:
        encoder: raw columns to features.
        model: the baseline it is of.
        intercept: of μ, in the log of the unit of the training times.
        coefficients: of μ, by feature, shape (p,).
        shape: a > 0.
        penalizer: the penalty it was fitted with.
        zero_time: what replaces a time of zero when rows are scored: half the smallest training time.
    """

    encoder: Encoder
    model: AcceleratedFailureTime
    intercept: float
    coefficients: FloatArray
    shape: float
    penalizer: float
    zero_time: float

    def _location(self, X: object) -> FloatArray:
        return np.asarray(self.intercept + self.encoder(X) @ self.coefficients)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.evaluation.baselines.base.Curves`."""
        with np.errstate(divide="ignore"):  # log 0 = -inf gives S = 1
            log_time = np.log(check_times(times))
        z = self.shape * (log_time - self._location(X)[:, None])
        with np.errstate(over="ignore"):  # an infinite hazard gives S = 0
            return np.exp(-self.model.cumulative_hazard(z))

    def log_likelihood(self, X: object, y: object) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x), in the unit of the training times.

        Raises:
            DataError: the rows cannot be used.
        """
        data = SurvivalData(X, y, require_events=False, zero_time=self.zero_time)
        log_time = np.log(data.time)
        z = self.shape * (log_time - self._location(data.frame))
        log_hazard = np.log(self.shape) - log_time + self.model.log_slope(z)
        with np.errstate(over="ignore"):
            return metrics.log_likelihood(data.event, self.model.cumulative_hazard(z), log_hazard)


@dataclass(frozen=True)
class AcceleratedFailureTime(Baseline):
    """A parametric regression of log time, by lifelines.

    Where the optimiser does not converge, the fit is repeated with ten times the penalty, three times at
    most; a DataWarning says so, and the curves know their ``penalizer``.

    Args:
        penalizer: ridge, relative to the mean log-likelihood, on coefficients of features of unit variance.
    """

    packages: ClassVar = (LIFELINES,)

    penalizer: float = 0.01

    def __post_init__(self) -> None:
        # Without any penalty the coefficients of all categories of a column are not determined.
        check_range("penalizer", self.penalizer, 1e-8)

    @abstractmethod
    def _fitter(self, penalizer: float) -> tuple[Any, str, str]:
        """The fitter of lifelines, and its names of the scale and of the shape."""

    @abstractmethod
    def cumulative_hazard(self, z: FloatArray) -> FloatArray:
        """H at z = a (log t - μ)."""

    @abstractmethod
    def log_slope(self, z: FloatArray) -> FloatArray:
        """Log derivative of H with respect to z."""

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> AFTCurves:
        from lifelines.exceptions import ConvergenceError

        encoder = Encoder(schema, train)
        unit = float(np.exp(np.log(train.time).mean()))  # far from 1 the optimiser starts badly
        names = [f"x{j}" for j in range(encoder.x.shape[1])]
        frame = pd.DataFrame(encoder.x, columns=names).assign(
            time=train.time / unit, event=train.event.astype(float)
        )
        for penalizer in self.penalizer * 10.0 ** np.arange(_TRIES):
            fitter, scale, shape = self._fitter(float(penalizer))
            try:
                with warnings.catch_warnings():
                    # Of rare categories, and of standard errors, which are not used.
                    warnings.simplefilter("ignore")
                    fitter.fit(frame, "time", "event")
            except (ConvergenceError, np.linalg.LinAlgError):
                continue
            found = fitter.params_
            if np.isfinite(found).all():
                break
        else:
            raise TrainingError(
                f"the {self.name} regression does not converge, even with penalizer={penalizer:g}"
            )
        if penalizer > self.penalizer:
            warnings.warn(
                f"the {self.name} regression converges only with penalizer={penalizer:g}, not with "
                f"{self.penalizer:g}",
                DataWarning,
                stacklevel=3,
            )
        return AFTCurves(
            encoder,
            self,
            float(found[scale]["Intercept"]) + float(np.log(unit)),
            found[scale][names].to_numpy(),
            float(np.exp(found[shape]["Intercept"])),
            float(penalizer),
            train.zero_time,
        )


@dataclass(frozen=True)
class WeibullAFT(AcceleratedFailureTime):
    """Weibull regression: H = (t e^-μ)^a."""

    name: ClassVar[str] = "weibull_aft"

    def _fitter(self, penalizer: float) -> tuple[Any, str, str]:
        from lifelines import WeibullAFTFitter

        return WeibullAFTFitter(penalizer=penalizer), "lambda_", "rho_"

    def cumulative_hazard(self, z: FloatArray) -> FloatArray:
        """H at z = a (log t - μ)."""
        return np.exp(z)

    def log_slope(self, z: FloatArray) -> FloatArray:
        """Log derivative of H with respect to z."""
        return z


@dataclass(frozen=True)
class LogLogisticAFT(AcceleratedFailureTime):
    """Log-logistic regression: H = log(1 + (t e^-μ)^a)."""

    name: ClassVar[str] = "log_logistic_aft"

    def _fitter(self, penalizer: float) -> tuple[Any, str, str]:
        from lifelines import LogLogisticAFTFitter

        return LogLogisticAFTFitter(penalizer=penalizer), "alpha_", "beta_"

    def cumulative_hazard(self, z: FloatArray) -> FloatArray:
        """H at z = a (log t - μ)."""
        return np.logaddexp(0.0, z)

    def log_slope(self, z: FloatArray) -> FloatArray:
        """Log derivative of H with respect to z."""
        return -np.logaddexp(0.0, -z)
