"""Models of scikit-survival and lifelines: Cox, accelerated failure time, trees, forests and boosting."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import check_times
from sstorch.bench.baselines.base import Baseline, BreslowBaseline, Encoder, KnownCurves, inner_folds
from sstorch.data import Schema, Surv, SurvivalData
from sstorch.data.columns import array_names
from sstorch.exceptions import DataWarning, TrainingError
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

    packages: ClassVar = ("scikit-survival",)
    predicts_risk: ClassVar[bool] = False  # a log risk, of which Breslow's baseline hazard makes curves

    @abstractmethod
    def _estimator(self, seed: int) -> Any:
        """The estimator, not fitted."""

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> KnownCurves:
        encoder = Encoder(schema, train)
        time = grouped_times(train.time, train.event)
        model = self._estimator(seed).fit(encoder.x, Surv(time, train.event).to_structured())
        if self.predicts_risk:
            baseline = BreslowBaseline.of(model.predict(encoder.x), (time, train.event))
            return baseline.curves(lambda X: model.predict(encoder(X)))
        predict = model.predict_survival_function
        return KnownCurves(model.unique_times_, lambda X: predict(encoder(X), return_array=True))


@dataclass(frozen=True)
class LogRankTree(ScikitSurvivalModel):
    """``SurvivalTree``: log-rank splits, a Kaplan-Meier curve in each leaf."""

    name: ClassVar[str] = "sksurv"

    depth: int = 5

    def _estimator(self, seed: int) -> Any:
        from sksurv.tree import SurvivalTree

        return SurvivalTree(max_depth=self.depth, random_state=seed)


@dataclass(frozen=True)
class RandomForest(ScikitSurvivalModel):
    """``RandomSurvivalForest``; its curve is the mean of the trees' Kaplan-Meier curves."""

    name: ClassVar[str] = "rsf"

    n_trees: int = 100
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
    predicts_risk: ClassVar[bool] = True

    n_trees: int = 100  # number of boosting steps
    learning_rate: float = 0.1  # factor of each tree
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
    packages: ClassVar = ("scikit-survival",)

    # candidates. The partial log-likelihood, a sum over events, is reduced by half the penalty times the
    # squared coefficients of the features on [0, 1]. With one candidate there is no choice; those at which
    # Newton's method fails, in an inner fold or with all rows, are passed over
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
    inner_folds: int = 5  # folds, stratified by event, of the choice (fewer if there are fewer events)

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> KnownCurves:
        encoder = Encoder(schema, train)
        model = self._chosen(encoder.x, train, seed)
        baseline = BreslowBaseline.of(encoder.x @ model.coef_, train.y)
        return baseline.curves(lambda X: encoder(X) @ model.coef_)

    def _chosen(self, x: FloatArray, train: SurvivalData, seed: int) -> Any:
        """The fitted regression of the best penalty, its ``alpha``."""
        scores = dict.fromkeys(self.penalties, 0.0)
        if len(scores) > 1:
            folds = inner_folds(train, self.inner_folds, seed)
            scores = {p: _score(x, train.time, train.event, folds, p) for p in scores}
        for penalty in sorted(scores, key=lambda penalty: -scores[penalty]):
            model = fit_cox(x, train.time, train.event, penalty)
            if model is not None and scores[penalty] > -np.inf:
                return model
        raise TrainingError("Cox regression converges with none of the ridge penalties; give larger ones")


def _score(x: FloatArray, time: FloatArray, event: BoolArray, folds: IntArray, penalty: float) -> float:
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


# ---------------------------------------------------------------------- lifelines


def _table(x: FloatArray, rows: SurvivalData, unit: float = 1.0) -> pd.DataFrame:
    """Features and outcome as lifelines takes them, times in a unit."""
    table = pd.DataFrame(x, columns=array_names(x.shape[1]))
    times = {"time": rows.time / unit, "entry": rows.entry / unit}
    return table.assign(**times, event=rows.event.astype(float))


def _converges(fitter: Any, *arguments: Any, **columns: Any) -> bool:
    """Fit a model of lifelines; False if it does not converge."""
    from lifelines.exceptions import ConvergenceError

    try:
        with warnings.catch_warnings():  # of rare categories, and of standard errors, which are not used
            warnings.simplefilter("ignore")
            fitter.fit(*arguments, **columns)
    except (ConvergenceError, np.linalg.LinAlgError):
        return False
    return bool(np.isfinite(fitter.params_).all())


@dataclass(frozen=True)
class LifelinesCox(Baseline):
    """``CoxPHFitter`` with a small ridge, Efron's ties, weights and entry times; Breslow's baseline hazard.

    A curve of start-stop rows is that of a subject whose covariates stay as they are from time zero.
    """

    name: ClassVar[str] = "cox_lifelines"
    packages: ClassVar = ("lifelines",)
    knows: ClassVar = ("entry", "weights")

    ridge: float = 10.0  # twice the factor of squared effects of features in standard deviations, whatever n

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> KnownCurves:
        from lifelines import CoxPHFitter

        encoder, fitter = Encoder(schema, train), CoxPHFitter(penalizer=self.ridge / len(train))
        table = _table(encoder.x, train).assign(weight=train.sample_weight)
        columns = {"weights_col": "weight", "entry_col": "entry"}
        if not train.entry.any():  # without them it is faster
            del table["entry"], columns["entry_col"]
        if not _converges(fitter, table, "time", "event", **columns):
            raise TrainingError("Cox regression does not converge; give a larger ridge")
        slopes = fitter.params_.to_numpy(np.float64)
        baseline = BreslowBaseline.of(encoder.x @ slopes, train.weighted_y)
        return baseline.curves(lambda X: encoder(X) @ slopes)


@dataclass(frozen=True)
class AFTCurves:
    """Curves of a fitted regression of lifelines."""

    encoder: Encoder
    fitter: Any
    unit: float  # of its times, in that of the training times
    zero_time: float  # replaces a time of zero when rows are scored: half the smallest training time

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        x = self.encoder(X)
        rows = pd.DataFrame(x, columns=array_names(x.shape[1]))
        found = self.fitter.predict_survival_function(rows, times=check_times(times) / self.unit)
        return np.asarray(found, np.float64).T

    def log_likelihood(self, X: object, y: object) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in the training unit."""
        rows = SurvivalData(X, y, require_events=False, zero_time=self.zero_time)
        table = _table(self.encoder(rows.frame), rows, self.unit)
        mean = self.fitter.score(table, scoring_method="log_likelihood")
        return float(mean - rows.event.mean() * np.log(self.unit))


@dataclass(frozen=True)
class AcceleratedFailureTime(Baseline):
    """A parametric regression of log time, by lifelines.

    Where the optimiser does not converge, the fit is repeated with ten times the penalty, three times at
    most; with a DataWarning.
    """

    packages: ClassVar = ("lifelines",)
    knows: ClassVar = ("entry",)
    fitter: ClassVar[str]  # of lifelines

    # ridge, relative to the mean log-likelihood, on coefficients of features of unit variance
    penalizer: float = 0.01

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> AFTCurves:
        import lifelines

        encoder = Encoder(schema, train)
        unit = float(np.exp(np.log(train.time).mean()))  # far from 1 the optimiser starts badly
        table = _table(encoder.x, train, unit)
        for penalizer in self.penalizer * 10.0 ** np.arange(_TRIES):
            fitter = getattr(lifelines, self.fitter)(penalizer=float(penalizer))
            if _converges(fitter, table, "time", "event", entry_col="entry"):
                break
        else:
            raise TrainingError(
                f"the {self.name} regression does not converge, even with penalizer={penalizer:g}"
            )
        if penalizer > self.penalizer:
            text = f"the {self.name} regression converges only with penalizer={penalizer:g}, not with "
            warnings.warn(f"{text}{self.penalizer:g}", DataWarning, stacklevel=3)
        return AFTCurves(encoder, fitter, unit, train.zero_time)


@dataclass(frozen=True)
class WeibullAFT(AcceleratedFailureTime):
    """Weibull regression."""

    name: ClassVar[str] = "weibull_aft"
    fitter: ClassVar = "WeibullAFTFitter"


@dataclass(frozen=True)
class LogLogisticAFT(AcceleratedFailureTime):
    """Log-logistic regression."""

    name: ClassVar[str] = "log_logistic_aft"
    fitter: ClassVar = "LogLogisticAFTFitter"
