"""The interface of all baselines, what they are made of, Kaplan-Meier, and models of competing causes."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from sstorch import metrics
from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch._version import __version__
from sstorch.base import check_times
from sstorch.data import Preprocessor, Schema, Surv, SurvivalData, as_surv, stratified_folds
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.metrics.censoring import KaplanMeier, risk_sets
from sstorch.metrics.outcome import Observed
from sstorch.metrics.scored import PredictsIncidence
from sstorch.usage import install_extra, pip_install

# Largest rise of a curve that counts as rounding; some packages predict in float32.
_ROUNDING = 1e-5
# Its exponential is a number of float64, and large enough for S = 0.
_LARGEST_LOG = 700.0
# Of curves of a cause that end at zero.
_LEAST_SURVIVAL = 1e-12


@runtime_checkable
class Curves(Protocol):
    """A fitted model of one event, of any kind.

    Parametric ones also have ``log_likelihood(X, y)``, the mean per row in the unit of the data;
    curves that are step functions have no density and no such method.
    """

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival S(t | x), shape (n, n_times), in [0, 1] and not rising with t.

        Args:
            X: rows with the columns of the schema; other columns are ignored, in any order.
            times: finite numbers >= 0, shape (n_times,), in the unit of the training times.
        """
        ...


@dataclass(frozen=True)
class Requirement:
    """A Python package that a baseline needs."""

    distribution: str
    module: str
    extra: str | None = None  # of this package, which brings it; None for what is always installed

    @property
    def install(self) -> str:
        """The command that installs it."""
        return pip_install(self.distribution) if self.extra is None else install_extra(self.extra)


LIFELINES = Requirement("lifelines", "lifelines")
SKSURV = Requirement("scikit-survival", "sksurv", "baselines")
PYCOX = Requirement("pycox", "pycox")
TORCHTUPLES = Requirement("torchtuples", "torchtuples")


@dataclass(frozen=True)
class Baseline(ABC):
    """Reference model: a frozen dataclass of settings.

    Trees have the field ``depth``. Raw columns are encoded with statistics of the training rows: one 0/1
    feature per category (all 0 if missing), missing numbers replaced by the mean, numbers scaled to [0, 1]
    (:class:`~sstorch.data.Preprocessor`), constant columns excluded.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[Requirement, ...]] = ()
    # What it supports apart from times and events: "entry", "weights".
    knows: ClassVar[tuple[str, ...]] = ()
    # Least and, if it has one, largest value of each number among the settings.
    ranges: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    def __post_init__(self) -> None:
        for name, ends in self.ranges.items():
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else (values,):
                if value is not None:
                    check_range(name, value, *ends)

    def check(self) -> None:
        """Make sure, before any work, that what the model needs is installed.

        Raises:
            ConfigError: a package is missing; the message contains the command that installs it.
        """
        for package in self.packages:
            if importlib.util.find_spec(package.module) is None:
                raise ConfigError(
                    f"the baseline {self.name!r} needs the package {package.distribution}; install it: "
                    f"{package.install}"
                )

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> Curves:
        """Fit the model to training rows.

        Args:
            train: training rows.
            schema: columns and vocabularies, possibly of a larger table.
            seed: random seed; equal seeds give equal curves.

        Raises:
            ConfigError: a package or program is missing, or the seed is out of range.
            DataError: the rows have weights or entry times that the model does not support, or intervals, or
                only constant features.
            TrainingError: fitting failed.
        """
        self.check()
        check_range("seed", seed, 0, 2**32 - 1)
        self.check_rows(train)
        return self._fit(train, schema, seed)

    def check_rows(self, rows: SurvivalData) -> None:
        """Raise an error for rows that this baseline does not support.

        Raises:
            DataError: the rows have weights or entry times that the model does not support, or intervals.
        """
        _check_causes(rows, False)
        if np.ptp(rows.sample_weight) > 0 and "weights" not in self.knows:
            raise DataError("the baseline does not support weights; kaplan_meier does, and Cox in a run")
        if rows.entry.any() and "entry" not in self.knows:
            raise DataError(
                "the baseline takes every row as observed from time zero, and some entered later; "
                "kaplan_meier, weibull_aft, log_logistic_aft and cox_time_varying support entry"
            )
        rows.refuse_intervals("the baseline")

    @abstractmethod
    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> Curves:
        """Fit the model, after all checks."""

    def settings(self) -> dict[str, Any]:
        """Every setting and its value."""
        return asdict(self)

    def versions(self) -> dict[str, str]:
        """Versions of this package and of required packages."""
        self.check()
        return {"sstorch": __version__} | {
            p.distribution: metadata.version(p.distribution) for p in self.packages
        }


class Encoder:
    """Raw columns to the numbers a model takes, learned from training rows.

    Features that are constant in the training rows are excluded: most solvers refuse or warn of them. The
    features of the training rows are kept as `x`, shape (n, p).
    """

    def __init__(self, schema: Schema, train: SurvivalData) -> None:
        self._preprocessor = Preprocessor(schema).fit(train.frame, train.uneven_weight)
        encoded = self._preprocessor.transform(train.frame)
        self._varies = np.ptp(encoded, axis=0) > 0
        if not self._varies.any():
            raise DataError("every feature is constant in the training rows: the model cannot be fitted")
        self.x: FloatArray = encoded[:, self._varies]

    def __call__(self, X: object) -> FloatArray:
        """Encode rows, shape (n, p)."""
        return self._preprocessor.transform(X)[:, self._varies]


def inner_folds(train: SurvivalData, n_folds: int, seed: int) -> IntArray:
    """Fold of each training row, stratified by event; at most as many folds as there are events."""
    n_events = int(train.event.sum())
    if n_events < 2:
        raise DataError(f"the training rows have {n_events} event; at least two are needed to leave one out")
    return stratified_folds(train.event, min(n_folds, n_events), seed, train.subject)


def check_range(name: str, value: float, low: float, high: float = np.inf) -> None:
    """Refuse a setting outside [low, high]."""
    if not low <= value <= high:
        upper = "" if high == np.inf else f" and <= {high:g}"
        raise ConfigError(f"{name}={value!r} must be >= {low:g}{upper}")


@dataclass(frozen=True)
class StepCurves:
    """Right-continuous step functions: 1 before the first jump, the last value beyond the last one."""

    jumps: FloatArray  # strictly increasing times, (n_jumps,)
    values: Callable[[object], FloatArray]  # S at the jumps, (n, n_jumps), from rows with the raw columns

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        grid = check_times(times)
        curves = checked_curves(self.values(X))
        column = np.searchsorted(self.jumps, grid, side="right") - 1
        return np.where(column >= 0, curves[:, np.maximum(column, 0)], 1.0)


@dataclass(frozen=True)
class SharedCurve:
    """A curve that all rows share."""

    curve: Callable[[FloatArray], FloatArray]  # S at times, (n_times,)
    schema: Schema  # of the columns that rows must have

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        return np.tile(self.curve(check_times(times)), (len(self.schema.frame_of(X)), 1))


@dataclass(frozen=True)
class BrokenLineCurves:
    """Curves that are straight between knots, 1 at time zero, constant beyond the last knot."""

    knots: FloatArray  # strictly increasing times > 0, (n_knots,)
    values: Callable[[object], FloatArray]  # S at the knots, (n, n_knots), from rows with the raw columns

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        grid = check_times(times)
        nodes = np.append(0.0, self.knots)
        curves = np.pad(checked_curves(self.values(X)), ((0, 0), (1, 0)), constant_values=1.0)
        right = np.clip(np.searchsorted(nodes, grid, side="right"), 1, len(nodes) - 1)
        share = np.minimum((grid - nodes[right - 1]) / (nodes[right] - nodes[right - 1]), 1.0)
        joined: FloatArray = curves[:, right - 1] * (1.0 - share) + curves[:, right] * share
        return joined


def checked_curves(curves: npt.ArrayLike) -> FloatArray:
    """Predicted survival (n, n_times) as float64 in [0, 1], not rising, with rounding removed."""
    values = np.asarray(curves, dtype=np.float64)
    if np.isnan(values).any():
        raise TrainingError("the fitted model predicts NaN for some rows")
    falling: FloatArray = np.minimum.accumulate(np.clip(values, 0.0, 1.0), axis=1)
    if (np.abs(falling - values) > _ROUNDING).any():
        raise TrainingError("the fitted model predicts curves that increase or are outside [0, 1]")
    return falling


@dataclass(frozen=True)
class BreslowBaseline:
    """Cumulative baseline hazard, a step function.

    Sums over the rows at risk are added up from the last time on, never subtracted: where risks differ by
    many orders of magnitude, differences of such sums are rounding noise and can be negative.
    """

    jumps: FloatArray  # distinct training times, (n_jumps,)
    hazard: FloatArray  # cumulative, at the jumps, of a row with the largest training risk, (n_jumps,)
    largest: float  # log risk of that row

    @classmethod
    def of(cls, log_risk: FloatArray, y: Surv | tuple[FloatArray, BoolArray]) -> Self:
        """Estimate it from log risks (n,) and the outcome of the training rows."""
        outcome = as_surv(y)
        time, event, _ = outcome.right_censored("a baseline hazard")
        largest, each = float(log_risk.max()), 1.0 if outcome.weight is None else outcome.weight
        sets = risk_sets(Observed(time, event, outcome.entry, each * np.exp(log_risk - largest)))
        n_events = np.bincount(sets.position, weights=event * each)
        share = np.divide(n_events, sets.at_risk, out=np.zeros_like(n_events), where=n_events > 0)
        return cls(sets.times, np.cumsum(share), largest)

    def survival(self, log_risk: FloatArray, times: npt.ArrayLike | None = None) -> FloatArray:
        """S of rows with these log risks, (n,), at some times or, if None, at the jumps, (n, n_times)."""
        hazard = self.hazard
        if times is not None:
            hazard = np.append(0.0, hazard)[np.searchsorted(self.jumps, check_times(times), side="right")]
        # An infinite risk would make NaN of a hazard of 0.
        risk = np.exp(np.minimum(log_risk - self.largest, _LARGEST_LOG))
        with np.errstate(over="ignore"):
            curves: FloatArray = np.exp(-np.outer(risk, hazard))
        return curves


@dataclass(frozen=True)
class KaplanMeierBaseline(Baseline):
    """Kaplan-Meier estimate of all training rows, without features; it takes weights and entry times."""

    name: ClassVar[str] = "kaplan_meier"
    knows: ClassVar = ("entry", "weights")

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> Curves:
        return SharedCurve(KaplanMeier.fit(train.weighted_y).at, schema)


# ---------------------------------------------------------------------- competing causes


@dataclass(frozen=True)
class StepIncidences:
    """Incidences that are steps."""

    jumps: FloatArray  # strictly increasing times, (n_jumps,)
    # incidences at the jumps, (n, K, n_jumps), from rows with the raw columns
    values: Callable[[object], FloatArray]

    def predict_cumulative_incidence(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Cumulative incidence of each cause at times >= 0, (n, K, n_times), in [0, 1], rising with t."""
        at = np.searchsorted(self.jumps, check_times(times), side="right")
        values = self.values(X)
        zero = np.zeros((*values.shape[:2], 1))
        return np.asarray(np.concatenate([zero, values], axis=2)[..., at])


def model_for(baseline: Baseline, data: SurvivalData) -> Baseline | AalenJohansen | CauseSpecific:
    """The model that a baseline of one event is for an outcome: with competing causes, one for each cause."""
    if data.outcome_type.causes is None:
        return baseline
    return AalenJohansen() if isinstance(baseline, KaplanMeierBaseline) else CauseSpecific(baseline)


@dataclass(frozen=True)
class AalenJohansen:
    """The estimate of Aalen and Johansen in the training rows, the same for all rows."""

    name: ClassVar[str] = "aalen_johansen"

    def check_rows(self, rows: SurvivalData) -> None:
        """Any rows with causes can be used."""
        _check_causes(rows, True)

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> PredictsIncidence:
        """Estimate the incidences; ``seed`` is not read."""
        jumps = train.event_times
        curves = metrics.aalen_johansen(train.weighted_y, jumps)

        def values(X: object) -> FloatArray:
            return np.broadcast_to(curves, (len(schema.frame_of(X)), *curves.shape))

        return StepIncidences(jumps, values)


@dataclass(frozen=True)
class CauseSpecific:
    """A survival model of each cause, the others being censored, put together to incidences.

    With cumulative hazards H_k = -log S_k of the models the causes share what S = exp(-sum H_k) loses at each
    time by their increments, so that incidences and S sum to one.

    References:
        Prentice and others (1978), "The analysis of failure times in the presence of competing risks",
        Biometrics 34, 541-554.
    """

    baseline: Baseline  # of the survival models, such as ``make_baseline("cox")``

    @property
    def name(self) -> str:
        """Of the survival models, and what is made of them."""
        return f"cause_specific_{self.baseline.name}"

    def check_rows(self, rows: SurvivalData) -> None:
        """Raise a DataError for rows that the model of each cause does not support."""
        self.baseline.check_rows(rows.of_cause(1))

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> PredictsIncidence:
        """Fit a model of every cause."""
        jumps = train.event_times
        models = [self.baseline.fit(train.of_cause(name), schema, seed) for name in train.cause_names]

        def values(X: object) -> FloatArray:
            survival = np.stack([model.falling_curves(X, jumps) for model in models], axis=1)
            hazard = -np.log(np.maximum(survival, _LEAST_SURVIVAL))
            steps = np.diff(hazard, axis=2, prepend=0.0)
            lost = -np.diff(np.exp(-hazard.sum(axis=1)), axis=1, prepend=1.0)
            total = steps.sum(axis=1, keepdims=True)
            shares = np.divide(steps, total, out=np.zeros_like(steps), where=total > 0)
            return np.asarray(np.cumsum(shares * lost[:, None], axis=2))

        return StepIncidences(jumps, values)


def _check_causes(data: SurvivalData, wanted: bool) -> None:
    """Check that there is one event, or that there are competing causes."""
    if wanted and data.causes is None:
        raise DataError(
            "y has one event; a model of competing risks needs Surv(time, cause, causes=...), with 0 for "
            "censored rows"
        )
    if not wanted and data.causes is not None:
        raise DataError(
            f"y has competing causes ({', '.join(data.cause_names)}): use PrognosticTree, "
            "SurvivalRegression or OptimalSurvivalTree, or Surv(time, cause == k) for the hazard of "
            "cause k alone"
        )
