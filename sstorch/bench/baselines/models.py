"""Kaplan-Meier, and models of scikit-survival, lifelines and R."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from sstorch import metrics
from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.bench.baselines.base import Baseline, BreslowBaseline, Encoder, Predict, inner_folds, steps
from sstorch.data import Surv, SurvivalData
from sstorch.data.columns import array_names
from sstorch.exceptions import ConfigError, DataError, TrainingError, warn
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.outcome import Observed

# Fits of an accelerated failure time model, each with ten times the penalty of the one before.
_TRIES = 4
# Two numbers of float64 that differ are two numbers again when they are read.
_DIGITS = "%.17g"


@dataclass(kw_only=True, eq=False, repr=False)
class KaplanMeierBaseline(Baseline):
    """Kaplan-Meier estimate of all training rows, without features; Aalen-Johansen of competing causes."""

    name: ClassVar[str] = "kaplan_meier"
    knows: ClassVar = ("entry", "weights", "causes")

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        if train.causes is not None:
            y = train.weighted_y
            return lambda x, times: np.repeat(metrics.aalen_johansen(y, times)[None], len(x), axis=0)
        known = KaplanMeier.fit(train.weighted_y)
        return steps(known.times, lambda x: np.tile(known.values, (len(x), 1)))


# ---------------------------------------------------------------------- scikit-survival


def grouped_times(time: FloatArray, event: BoolArray) -> FloatArray:
    """Censored times moved back to the event time before: equal risk sets, smaller curves in each node."""
    events = np.unique(time[event])
    before = np.searchsorted(events, time, side="right") - 1
    return np.where(before >= 0, events[np.maximum(before, 0)], time.min())


@dataclass(kw_only=True, eq=False, repr=False)
class ScikitSurvivalModel(Baseline):
    """An estimator of scikit-survival that predicts step functions."""

    packages: ClassVar = ("scikit-survival",)

    @abstractmethod
    def _estimator(self) -> Any:
        """The estimator, not fitted."""

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        time = grouped_times(train.time, train.event)
        model = self._estimator().fit(encoder.x, Surv(time, train.event).to_structured())
        return steps(model.unique_times_, lambda x: model.predict_survival_function(x, return_array=True))


@dataclass(kw_only=True, eq=False, repr=False)
class LogRankTree(ScikitSurvivalModel):
    """``SurvivalTree``: log-rank splits, a Kaplan-Meier curve in each leaf."""

    name: ClassVar[str] = "sksurv"

    depth: int = 5

    def _estimator(self) -> Any:
        from sksurv.tree import SurvivalTree

        return SurvivalTree(max_depth=self.depth, random_state=self.random_state)


@dataclass(kw_only=True, eq=False, repr=False)
class RandomForest(ScikitSurvivalModel):
    """``RandomSurvivalForest``; its curve is the mean of the trees' Kaplan-Meier curves."""

    name: ClassVar[str] = "rsf"

    n_trees: int = 100
    min_leaf: int = 15  # least number of training rows of a leaf
    n_jobs: int = 1  # threads; the curves do not depend on it

    def _estimator(self) -> Any:
        from sksurv.ensemble import RandomSurvivalForest

        return RandomSurvivalForest(
            n_estimators=self.n_trees,
            min_samples_leaf=self.min_leaf,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class GradientBoosting(ScikitSurvivalModel):
    """``GradientBoostingSurvivalAnalysis`` of the partial likelihood, with Breslow's baseline hazard."""

    name: ClassVar[str] = "gradient_boosting"

    n_trees: int = 100  # number of boosting steps
    learning_rate: float = 0.1  # factor of each tree
    depth_of_trees: int = 3  # largest depth of each
    subsample: float = 1.0  # share of the rows that each tree is fitted to

    def _estimator(self) -> Any:
        from sksurv.ensemble import GradientBoostingSurvivalAnalysis

        return GradientBoostingSurvivalAnalysis(
            n_estimators=self.n_trees,
            learning_rate=self.learning_rate,
            max_depth=self.depth_of_trees,
            subsample=self.subsample,
            random_state=self.random_state,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class Cox(Baseline):
    """Cox regression of scikit-survival with Efron's ties and a ridge; Breslow's baseline hazard.

    The penalty maximises the cross-validated partial log-likelihood of Verweij and van Houwelingen (1993),
    Statistics in Medicine 12, which judges the size of the coefficients, too.
    """

    name: ClassVar[str] = "cox"
    packages: ClassVar = ("scikit-survival",)

    # candidates: half of it times the squared coefficients of features on [0, 1] is subtracted from the sum
    # over events. Those at which Newton's method fails, in an inner fold or with all rows, are passed over
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
    inner_folds: int = 5  # folds, stratified by event, of the choice (fewer if there are fewer events)

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        slopes = self._chosen(encoder.x, train).coef_
        return BreslowBaseline.of(encoder.x @ slopes, train.y).curves(lambda x: x @ slopes)

    def _chosen(self, x: FloatArray, train: SurvivalData) -> Any:
        """The fitted regression of the best penalty, its ``alpha``."""
        scores = dict.fromkeys(self.penalties, 0.0)
        if len(scores) > 1:
            folds = inner_folds(train, self.inner_folds, self.random_state)
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
    ends, which = np.cumsum(counts), np.repeat(np.arange(len(counts)), counts)
    share = (np.arange(len(which)) - (ends - counts)[which]) / counts[which]
    return float(linear[event].sum() - np.log(sets.at_risk[which] - share * sets.n_events[which]).sum())


# ---------------------------------------------------------------------- lifelines


def _table(x: FloatArray, rows: SurvivalData, unit: float = 1.0) -> pd.DataFrame:
    """Features and outcome as lifelines takes them, times in a unit."""
    table = pd.DataFrame(x, columns=array_names(x.shape[1]))
    return table.assign(time=rows.time / unit, entry=rows.entry / unit, event=rows.event.astype(float))


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


@dataclass(kw_only=True, eq=False, repr=False)
class LifelinesCox(Baseline):
    """``CoxPHFitter`` with a small ridge, Efron's ties, weights, entry times; Breslow's baseline hazard."""

    name: ClassVar[str] = "cox_lifelines"
    packages: ClassVar = ("lifelines",)
    knows: ClassVar = ("entry", "weights")

    ridge: float = 10.0  # twice the factor of squared effects of features in standard deviations, whatever n

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        from lifelines import CoxPHFitter

        fitter = CoxPHFitter(penalizer=self.ridge / len(train))
        table = _table(encoder.x, train).assign(weight=train.sample_weight)
        columns = {"weights_col": "weight", "entry_col": "entry"}
        if not train.entry.any():  # without them it is faster
            del table["entry"], columns["entry_col"]
        if not _converges(fitter, table, "time", "event", **columns):
            raise TrainingError("Cox regression does not converge; give a larger ridge")
        slopes = fitter.params_.to_numpy(np.float64)
        return BreslowBaseline.of(encoder.x @ slopes, train.weighted_y).curves(lambda x: x @ slopes)


@dataclass(kw_only=True, eq=False, repr=False)
class AcceleratedFailureTime(Baseline):
    """A regression of log time, by lifelines; where it does not converge, with a larger penalty."""

    packages: ClassVar = ("lifelines",)
    knows: ClassVar = ("entry",)
    fitter: ClassVar[str]  # of lifelines

    # ridge, relative to the mean log-likelihood, on coefficients of features of unit variance
    penalizer: float = 0.01

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        import lifelines

        # Unit of its times: far from 1 the optimiser starts badly.
        self._unit, self._zero_time = float(np.exp(np.log(train.time).mean())), train.zero_time
        table = _table(encoder.x, train, self._unit)
        for penalizer in self.penalizer * 10.0 ** np.arange(_TRIES):
            self._fitted = getattr(lifelines, self.fitter)(penalizer=float(penalizer))
            if _converges(self._fitted, table, "time", "event", entry_col="entry"):
                break
        else:
            raise TrainingError(
                f"the {self.name} regression does not converge, even with penalizer={penalizer:g}"
            )
        if penalizer > self.penalizer:
            text = f"the {self.name} regression converges only with penalizer={penalizer:g}, not with "
            warn(f"{text}{self.penalizer:g}")
        fitter, unit = self._fitted, self._unit  # of competing causes each has its own

        def predict(x: FloatArray, times: FloatArray) -> FloatArray:
            rows = pd.DataFrame(x, columns=array_names(x.shape[1]))
            return np.asarray(fitter.predict_survival_function(rows, times=times / unit), np.float64).T

        return predict

    def log_likelihood(self, X: object, y: object) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in the training unit."""
        rows = SurvivalData(X, y, require_events=False, zero_time=self._zero_time)
        if rows.causes is not None:
            raise DataError("the likelihood of competing causes is not that of a model of each")
        table = _table(self._encoder(rows.frame), rows, self._unit)
        mean = self._fitted.score(table, scoring_method="log_likelihood")
        return float(mean - rows.event.mean() * np.log(self._unit))


@dataclass(kw_only=True, eq=False, repr=False)
class WeibullAFT(AcceleratedFailureTime):
    """Weibull regression."""

    name: ClassVar[str] = "weibull_aft"
    fitter: ClassVar = "WeibullAFTFitter"


@dataclass(kw_only=True, eq=False, repr=False)
class LogLogisticAFT(AcceleratedFailureTime):
    """Log-logistic regression."""

    name: ClassVar[str] = "log_logistic_aft"
    fitter: ClassVar = "LogLogisticAFTFitter"


# ---------------------------------------------------------------------- R


def leaf_of(nodes: pd.DataFrame, x: FloatArray) -> IntArray:
    """Row of `nodes`, as trees.R writes them, in which each row of features (n, p) ends, (n,)."""
    feature, left, right = (nodes[name].to_numpy(np.int64) for name in ("feature", "left", "right"))
    threshold, strict = nodes["threshold"].to_numpy(np.float64), nodes["strict"].to_numpy() == 1
    node = np.zeros(len(x), dtype=np.int64)
    while (inner := np.flatnonzero(feature[node] >= 0)).size:
        at = node[inner]
        value, limit = x[inner, feature[at]], threshold[at]
        below = np.where(strict[at], value < limit, value <= limit)
        node[inner] = np.where(below, left[at], right[at])
    return node


@dataclass(kw_only=True, eq=False, repr=False)
class RTree(Baseline):
    """A tree that Rscript fits, with its package's defaults but for the depth, and the curves of pec."""

    depth: int = 5  # largest depth, >= 1

    def versions(self) -> dict[str, str]:
        """Versions of this package, of R and of its packages; ConfigError if one is missing."""
        if isinstance(found := _r_found(), ConfigError):
            raise found
        return super().versions() | found

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        table = pd.DataFrame(encoder.x, columns=array_names(encoder.x.shape[1]))
        table = table.assign(time=train.time, event=train.event.astype(int))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            table.to_csv(folder / "train.csv", index=False, float_format=_DIGITS)
            _run(self.name, str(self.depth), name)
            nodes = pd.read_csv(folder / "nodes.csv", float_precision="round_trip")
            leaf = np.loadtxt(folder / "leaf.csv", ndmin=1).astype(np.int64)
            curves = pd.read_csv(folder / "curves.csv", header=None, float_precision="round_trip")
        if not np.array_equal(leaf_of(nodes, encoder.x), leaf):
            raise TrainingError(
                f"the tree of {self.name} was read wrongly: training rows are in other leaves"
            )
        survival = curves.ffill(axis=1).to_numpy()  # prodlim gives NA beyond the last time of a leaf
        return steps(np.unique(train.time), lambda x: survival[leaf_of(nodes, x)])


@dataclass(kw_only=True, eq=False, repr=False)
class RPart(RTree):
    """Recursive partitioning by the exponential deviance, with curves of ``pec::pecRpart``."""

    name: ClassVar[str] = "rpart"


@dataclass(kw_only=True, eq=False, repr=False)
class CTree(RTree):
    """Conditional inference tree of party, with curves of ``pec::pecCtree``."""

    name: ClassVar[str] = "ctree"


def _run(*arguments: str) -> str:
    """Run the program in R and return what it prints."""
    program = resources.files("sstorch.bench.baselines") / "trees.R"
    with resources.as_file(program) as file:
        command = ["Rscript", "--vanilla", str(file), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrainingError(f"Rscript {arguments[0]} ended with an error: {done.stderr.strip()}")
    return done.stdout


@cache
def _r_found() -> dict[str, str] | ConfigError:
    """Versions by package, or what is missing; R takes seconds to start, and is started once."""
    remedy = (
        "install R with its packages rpart, party and pec; on Debian, as root: "
        "apt-get install r-base-core r-cran-rpart r-cran-party r-cran-pec"
    )
    if shutil.which("Rscript") is None:
        return ConfigError(f"there is no Rscript; {remedy}")
    try:
        return dict(line.split() for line in _run("versions").splitlines())
    except TrainingError as error:
        return ConfigError(f"R lacks a package: {error}; {remedy}")


BASELINES: tuple[type[Baseline], ...] = (
    *(KaplanMeierBaseline, Cox, LifelinesCox, WeibullAFT, LogLogisticAFT),
    *(LogRankTree, RPart, CTree, RandomForest, GradientBoosting),
)
