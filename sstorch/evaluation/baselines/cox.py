"""Cox regression with a ridge penalty chosen within the training rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sstorch.data import Schema, SurvivalData, stratified_folds
from sstorch.evaluation.baselines.base import SKSURV, Baseline, Encoder, FloatArray, check_range
from sstorch.evaluation.baselines.scikit_survival import structured
from sstorch.evaluation.baselines.step_curves import StepCurves
from sstorch.exceptions import ConfigError, TrainingError
from sstorch.metrics.risk_sets import risk_sets


@dataclass(frozen=True)
class CoxCurves(StepCurves):
    """Curves of a Cox model.

    Attributes:
        penalty: ridge penalty that was chosen.
        coefficients: log hazard ratios of the encoded features that vary in the training rows, shape (p,).
    """

    penalty: float
    coefficients: FloatArray


@dataclass(frozen=True)
class Cox(Baseline):
    """Cox proportional hazards with Efron's ties, a ridge and Breslow's baseline hazard, by scikit-survival.

    The penalty maximises the cross-validated partial log-likelihood: for each inner fold, that of all
    training rows minus that of the rows fitted to, at the coefficients fitted without the fold. Unlike the
    concordance of the rows left out it judges the size of the coefficients, on which the curves depend, and
    it is steady where a fold has a handful of events.

    Args:
        penalties: candidates. The partial log-likelihood, a sum over events, is reduced by half the penalty
            times the squared coefficients of the features on [0, 1]. With one candidate there is no choice;
            those at which Newton's method fails, in an inner fold or with all rows, are passed over.
        inner_folds: folds, stratified by event, of the choice (fewer if there are fewer events).

    References:
        Verweij and van Houwelingen (1993), Cross-validation in survival analysis, Statistics in Medicine 12.
    """

    name: ClassVar[str] = "cox"
    packages: ClassVar = (SKSURV,)

    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
    inner_folds: int = 5

    def __post_init__(self) -> None:
        if not self.penalties:
            raise ConfigError("penalties is empty; give at least one")
        for penalty in self.penalties:
            # Without any penalty the coefficients of all categories of a column are not determined.
            check_range("penalties", penalty, 1e-6)
        check_range("inner_folds", self.inner_folds, 2)

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> CoxCurves:
        encoder = Encoder(schema, train)
        for penalty in self._ranked(encoder.x, train, seed):
            model = fit_cox(encoder.x, train.time, train.event, penalty)
            if model is not None:
                break
        else:
            raise TrainingError("Cox regression converges with none of the ridge penalties; give larger ones")

        def values(X: object) -> FloatArray:
            return np.asarray(
                np.exp(np.outer(-np.exp(encoder(X) @ model.coef_), model.cum_baseline_hazard_.y))
            )

        return CoxCurves(model.unique_times_, values, penalty, model.coef_)

    def _ranked(self, x: FloatArray, train: SurvivalData, seed: int) -> list[float]:
        """The candidates that converge in all inner folds, best first."""
        if len(self.penalties) == 1:
            return list(self.penalties)
        folds = stratified_folds(train.event, min(self.inner_folds, int(train.event.sum())), seed)
        scores = {p: self._score(x, train.time, train.event, folds, p) for p in self.penalties}
        usable = [penalty for penalty in self.penalties if scores[penalty] > -np.inf]
        return sorted(usable, key=lambda penalty: -scores[penalty])

    @staticmethod
    def _score(
        x: FloatArray,
        time: FloatArray,
        event: npt.NDArray[np.bool_],
        folds: npt.NDArray[np.int64],
        penalty: float,
    ) -> float:
        """Cross-validated partial log-likelihood; minus infinity where a fit does not converge."""
        total = 0.0
        for fold in range(int(folds.max()) + 1):
            kept = folds != fold
            model = fit_cox(x[kept], time[kept], event[kept], penalty)
            if model is None:
                return -np.inf
            linear = x @ model.coef_
            total += partial_log_likelihood(linear, time, event)
            total -= partial_log_likelihood(linear[kept], time[kept], event[kept])
        return total


def fit_cox(x: FloatArray, time: FloatArray, event: npt.NDArray[np.bool_], penalty: float) -> Any | None:
    """A fitted ``CoxPHSurvivalAnalysis``, or None where Newton's method fails."""
    from sklearn.exceptions import ConvergenceWarning
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            warnings.simplefilter("error", RuntimeWarning)  # overflow on the way to infinity
            return CoxPHSurvivalAnalysis(alpha=penalty, ties="efron").fit(x, structured(time, event))
    except (ConvergenceWarning, RuntimeWarning, ValueError, np.linalg.LinAlgError):
        return None


def partial_log_likelihood(linear: FloatArray, time: FloatArray, event: npt.NDArray[np.bool_]) -> float:
    """Log partial likelihood with Efron's ties, summed over events.

    Args:
        linear: x'β, shape (n,).
        time: observed times, shape (n,).
        event: event indicators, shape (n,).
    """
    linear = linear - linear.max()  # which changes nothing but the range of the exponentials
    sets = risk_sets(time, event, np.exp(linear))
    counts = np.bincount(sets.position, weights=event).astype(np.int64)
    # The j-th of d tied events, j = 0 .. d - 1, has the share j/d of all of them removed from its risk set.
    ends = np.cumsum(counts)
    which = np.repeat(np.arange(len(counts)), counts)
    share = (np.arange(len(which)) - (ends - counts)[which]) / counts[which]
    return float(linear[event].sum() - np.log(sets.at_risk[which] - share * sets.n_events[which]).sum())
