"""Models of scikit-survival and lifelines: Cox, accelerated failure time, forests and boosting."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import metrics
from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import check_times
from sstorch.bench.baselines.base import (
    LIFELINES,
    SKSURV,
    Baseline,
    BreslowBaseline,
    Encoder,
    StepCurves,
    inner_folds,
)
from sstorch.data import Schema, Surv, SurvivalData
from sstorch.exceptions import ConfigError, DataWarning, TrainingError
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed

# Fits of an accelerated failure time model, each with ten times the penalty of the one before.
_TRIES = 4


def grouped_times(time: FloatArray, event: BoolArray) -> FloatArray:
    """Censored times moved back to the last event time before, which leaves every risk set as it is.

    Trees of scikit-survival store a curve at every distinct time in every node, a forest gigabytes of them.
    Censorings before the first event move to the earliest of them.
    """
    events = np.unique(time[event])
    before = np.searchsorted(events, time, side="right") - 1
    return np.where(before >= 0, events[np.maximum(before, 0)], time.min())


@dataclass(frozen=True)
class ScikitSurvivalModel(Baseline):
    """An estimator of scikit-survival that predicts step functions."""

    packages: ClassVar = (SKSURV,)

    @abstractmethod
    def _estimator(self, seed: int) -> Any:
        """The estimator, not fitted."""

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> StepCurves:
        encoder = Encoder(schema, train)
        time = grouped_times(train.time, train.event)
        model = self._estimator(seed).fit(encoder.x, Surv(time, train.event).to_structured())
        return self._curves(model, encoder, time, train.event)

    def _curves(self, model: Any, encoder: Encoder, time: FloatArray, event: BoolArray) -> StepCurves:
        """The curves of a fitted estimator, trained on these times and events."""

        def values(X: object) -> FloatArray:
            return np.asarray(model.predict_survival_function(encoder(X), return_array=True))

        return StepCurves(model.unique_times_, values)


@dataclass(frozen=True)
class LogRankTree(ScikitSurvivalModel):
    """``SurvivalTree`` of `depth` >= 1: log-rank splits, a Kaplan-Meier curve in each leaf."""

    name: ClassVar[str] = "sksurv"
    ranges: ClassVar = {"depth": (1,)}

    depth: int = 5

    def _estimator(self, seed: int) -> Any:
        from sksurv.tree import SurvivalTree

        return SurvivalTree(max_depth=self.depth, random_state=seed)


@dataclass(frozen=True)
class RandomForest(ScikitSurvivalModel):
    """``RandomSurvivalForest``; its curve is the mean of the trees' Kaplan-Meier curves."""

    name: ClassVar[str] = "rsf"
    ranges: ClassVar = {"n_trees": (1,), "min_leaf": (1,)}

    n_trees: int = 100  # number of trees
    min_leaf: int = 15  # least number of training rows of a leaf
    n_jobs: int = 1  # threads; the curves do not depend on it

    def _estimator(self, seed: int) -> Any:
        from sksurv.ensemble import RandomSurvivalForest

        return RandomSurvivalForest(
            n_estimators=self.n_trees, min_samples_leaf=self.min_leaf, n_jobs=self.n_jobs, random_state=seed
        )


@dataclass(frozen=True)
class GradientBoosting(ScikitSurvivalModel):
    """``GradientBoostingSurvivalAnalysis`` of the partial likelihood, with Breslow's baseline hazard."""

    name: ClassVar[str] = "gradient_boosting"
    ranges: ClassVar = {
        **dict.fromkeys(("n_trees", "depth_of_trees"), (1,)),
        "learning_rate": (1e-6,),
        "subsample": (1e-6, 1.0),
    }

    n_trees: int = 100  # number of boosting steps
    learning_rate: float = 0.1  # what each tree is multiplied by
    depth_of_trees: int = 3  # largest depth of each
    subsample: float = 1.0  # share of the rows that each tree is fitted to

    def _estimator(self, seed: int) -> Any:
        from sksurv.ensemble import GradientBoostingSurvivalAnalysis

        return GradientBoostingSurvivalAnalysis(
            n_estimators=self.n_trees,
            learning_rate=self.learning_rate,
            max_depth=self.depth_of_trees,
            subsample=self.subsample,
            random_state=seed,
        )

    def _curves(self, model: Any, encoder: Encoder, time: FloatArray, event: BoolArray) -> StepCurves:
        baseline = BreslowBaseline.of(model.predict(encoder.x), (time, event))
        return StepCurves(baseline.jumps, lambda X: baseline.survival(model.predict(encoder(X))))


@dataclass(frozen=True)
class CoxCurves(StepCurves):
    """Curves of a Cox model."""

    penalty: float  # ridge that was chosen
    coefficients: FloatArray  # log hazard ratios of the features that vary in the training rows, (p,)


@dataclass(frozen=True)
class Cox(Baseline):
    """Cox regression of scikit-survival with Efron's ties and a ridge; Breslow's baseline hazard.

    The penalty maximises the cross-validated partial log-likelihood: for each inner fold, that of all
    training rows minus that of the rows fitted to, at the coefficients fitted without the fold. Unlike the
    concordance of the held-out rows it judges the size of the coefficients, on which the curves depend, and
    it is steady where a fold has a handful of events.

    References:
        Verweij and van Houwelingen (1993), Cross-validation in survival analysis, Statistics in Medicine 12.
    """

    name: ClassVar[str] = "cox"
    # Without any penalty the coefficients of all categories of a column are not determined.
    ranges: ClassVar = {"penalties": (1e-6,), "inner_folds": (2,)}
    packages: ClassVar = (SKSURV,)

    # candidates. The partial log-likelihood, a sum over events, is reduced by half the penalty times the
    # squared coefficients of the features on [0, 1]. With one candidate there is no choice; those at which
    # Newton's method fails, in an inner fold or with all rows, are passed over
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
    inner_folds: int = 5  # folds, stratified by event, of the choice (fewer if there are fewer events)

    def __post_init__(self) -> None:
        if not self.penalties:
            raise ConfigError("penalties is empty; give at least one")
        super().__post_init__()

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> CoxCurves:
        encoder = Encoder(schema, train)
        for penalty in self._ranked(encoder.x, train, seed):
            model = fit_cox(encoder.x, train.time, train.event, penalty)
            if model is not None:
                break
        else:
            raise TrainingError("Cox regression converges with none of the ridge penalties; give larger ones")

        baseline = BreslowBaseline.of(encoder.x @ model.coef_, train.y)

        def values(X: object) -> FloatArray:
            return baseline.survival(encoder(X) @ model.coef_)

        return CoxCurves(baseline.jumps, values, penalty, model.coef_)

    def _ranked(self, x: FloatArray, train: SurvivalData, seed: int) -> list[float]:
        """The candidates that converge in all inner folds, best first."""
        if len(self.penalties) == 1:
            return list(self.penalties)
        folds = inner_folds(train, self.inner_folds, seed)
        scores = {p: self._score(x, train.time, train.event, folds, p) for p in self.penalties}
        usable = [penalty for penalty in self.penalties if scores[penalty] > -np.inf]
        return sorted(usable, key=lambda penalty: -scores[penalty])

    @staticmethod
    def _score(
        x: FloatArray,
        time: FloatArray,
        event: BoolArray,
        folds: IntArray,
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


def fit_cox(x: FloatArray, time: FloatArray, event: BoolArray, penalty: float) -> Any | None:
    """A fitted ``CoxPHSurvivalAnalysis``, or None if Newton's method fails."""
    from sklearn.exceptions import ConvergenceWarning
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            # Overflow on the way to infinity, and equations that are singular up to rounding.
            warnings.simplefilter("error", RuntimeWarning)
            target = Surv(time, event).to_structured()
            return CoxPHSurvivalAnalysis(alpha=penalty, ties="efron").fit(x, target)
    except (ConvergenceWarning, RuntimeWarning, np.linalg.LinAlgError):
        return None
    except ValueError as error:
        if "search direction" not in str(error):
            raise
        return None


def partial_log_likelihood(linear: FloatArray, time: FloatArray, event: BoolArray) -> float:
    """Log partial likelihood of x'β, shape (n,), with Efron's ties, summed over events."""
    linear = linear - linear.max()  # which changes nothing but the range of the exponentials
    sets = risk_sets(Observed(time, event, weight=np.exp(linear)))
    counts = np.bincount(sets.position, weights=event).astype(np.int64)
    # The j-th of d tied events, j = 0 .. d - 1, has the share j/d of all of them removed from its risk set.
    ends = np.cumsum(counts)
    which = np.repeat(np.arange(len(counts)), counts)
    share = (np.arange(len(which)) - (ends - counts)[which]) / counts[which]
    return float(linear[event].sum() - np.log(sets.at_risk[which] - share * sets.n_events[which]).sum())


@dataclass(frozen=True)
class AFTCurves:
    """Curves of a regression with log time = μ(x) + noise / a."""

    encoder: Encoder
    model: AcceleratedFailureTime
    intercept: float  # of μ, in the log of the unit of the training times
    coefficients: FloatArray  # of μ, by feature, (p,)
    shape: float  # a > 0
    penalizer: float  # it was fitted with
    zero_time: float  # replaces a time of zero when rows are scored: half the smallest training time

    def _location(self, X: object) -> FloatArray:
        return np.asarray(self.intercept + self.encoder(X) @ self.coefficients)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        with np.errstate(divide="ignore"):  # log 0 = -inf gives S = 1
            log_time = np.log(check_times(times))
        z = self.shape * (log_time - self._location(X)[:, None])
        with np.errstate(over="ignore"):  # an infinite hazard gives S = 0
            return np.exp(-self.model.cumulative_hazard(z))

    def log_likelihood(self, X: object, y: object) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in the training unit."""
        data = SurvivalData(X, y, require_events=False, zero_time=self.zero_time)
        location = self._location(data.frame)

        def hazard(time: FloatArray) -> FloatArray:
            with np.errstate(divide="ignore", over="ignore"):  # nothing at zero; infinite far away
                return self.model.cumulative_hazard(self.shape * (np.log(time) - location))

        log_time = np.log(data.time)
        log_hazard = np.log(self.shape) - log_time + self.model.log_slope(self.shape * (log_time - location))
        return metrics.log_likelihood(data.event, hazard(data.time) - hazard(data.begin), log_hazard)


@dataclass(frozen=True)
class AcceleratedFailureTime(Baseline):
    """A parametric regression of log time, by lifelines.

    Where the optimiser does not converge, the fit is repeated with ten times the penalty, three times at
    most; with a DataWarning; the curves have their ``penalizer``.
    """

    packages: ClassVar = (LIFELINES,)
    knows: ClassVar = ("entry",)
    # Without any penalty the coefficients of all categories of a column are not determined.
    ranges: ClassVar = {"penalizer": (1e-8,)}
    # The fitter of lifelines, and its names of the scale and of the shape.
    fitter: ClassVar[tuple[str, str, str]]

    # ridge, relative to the mean log-likelihood, on coefficients of features of unit variance
    penalizer: float = 0.01

    @abstractmethod
    def cumulative_hazard(self, z: FloatArray) -> FloatArray:
        """H at z = a (log t - μ)."""

    @abstractmethod
    def log_slope(self, z: FloatArray) -> FloatArray:
        """Log derivative of H with respect to z."""

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> AFTCurves:
        import lifelines
        from lifelines.exceptions import ConvergenceError

        kind, scale, shape = self.fitter
        encoder = Encoder(schema, train)
        unit = float(np.exp(np.log(train.time).mean()))  # far from 1 the optimiser starts badly
        names = [f"x{j}" for j in range(encoder.x.shape[1])]
        frame = pd.DataFrame(encoder.x, columns=names)
        late = {"entry_col": "entry"} if train.entry.any() else {}
        if late:
            frame["entry"] = train.entry / unit
        frame = frame.assign(time=train.time / unit, event=train.event.astype(float))
        for penalizer in self.penalizer * 10.0 ** np.arange(_TRIES):
            fitter = getattr(lifelines, kind)(penalizer=float(penalizer))
            try:
                with warnings.catch_warnings():
                    # Of rare categories, and of standard errors, which are not used.
                    warnings.simplefilter("ignore")
                    fitter.fit(frame, "time", "event", **late)
            except (ConvergenceError, np.linalg.LinAlgError):
                continue
            parameters = fitter.params_
            if np.isfinite(parameters).all():
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
            float(parameters[scale]["Intercept"]) + float(np.log(unit)),
            parameters[scale][names].to_numpy(),
            float(np.exp(parameters[shape]["Intercept"])),
            float(penalizer),
            train.zero_time,
        )


@dataclass(frozen=True)
class WeibullAFT(AcceleratedFailureTime):
    """Weibull regression: H = (t e^-μ)^a."""

    name: ClassVar[str] = "weibull_aft"
    fitter: ClassVar = ("WeibullAFTFitter", "lambda_", "rho_")

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
    fitter: ClassVar = ("LogLogisticAFTFitter", "alpha_", "beta_")

    def cumulative_hazard(self, z: FloatArray) -> FloatArray:
        """H at z = a (log t - μ)."""
        return np.logaddexp(0.0, z)

    def log_slope(self, z: FloatArray) -> FloatArray:
        """Log derivative of H with respect to z."""
        return -np.logaddexp(0.0, -z)


@dataclass(frozen=True)
class CoxTimeVarying(Baseline):
    """``CoxTimeVaryingFitter``: rows of subjects, each at risk from its entry to its time; Efron's ties.

    A curve is that of a subject whose covariates stay as they are from time zero.
    """

    name: ClassVar[str] = "cox_time_varying"
    packages: ClassVar = (LIFELINES,)
    knows: ClassVar = ("entry",)
    # Without any penalty the coefficients of all categories of a column are not determined.
    ranges: ClassVar = {"penalizer": (1e-8,)}

    # ridge, relative to the mean log-likelihood, on coefficients of features on [0, 1]
    penalizer: float = 0.01

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> StepCurves:
        from lifelines import CoxTimeVaryingFitter
        from lifelines.exceptions import ConvergenceError

        encoder = Encoder(schema, train)
        names = [f"x{j}" for j in range(encoder.x.shape[1])]
        frame = pd.DataFrame(encoder.x, columns=names).assign(
            id=np.arange(len(train)) if train.subject is None else train.subject,
            start=train.entry,
            stop=train.time,
            event=train.event.astype(int),
        )
        fitter = CoxTimeVaryingFitter(penalizer=self.penalizer)
        try:
            with warnings.catch_warnings():
                # Of rare categories, and of standard errors, which are not used.
                warnings.simplefilter("ignore")
                fitter.fit(frame, id_col="id", event_col="event", start_col="start", stop_col="stop")
        except (ConvergenceError, np.linalg.LinAlgError) as error:
            raise TrainingError(
                f"the Cox regression does not converge; give a larger penalizer than {self.penalizer:g}"
            ) from error
        baseline = fitter.baseline_cumulative_hazard_.iloc[:, 0]
        jumps, hazard = baseline.index.to_numpy(dtype=np.float64), baseline.to_numpy()

        def values(X: object) -> FloatArray:
            risk = fitter.predict_partial_hazard(pd.DataFrame(encoder(X), columns=names)).to_numpy()
            return np.asarray(np.exp(-risk[:, None] * hazard))

        return StepCurves(jumps, values)
