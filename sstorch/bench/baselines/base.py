"""The interface of all baselines, and what they are made of: encoded rows, curves, baseline hazards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch._version import __version__
from sstorch.base import check_times
from sstorch.data import Preprocessor, Schema, Surv, SurvivalData, stratified_folds
from sstorch.data.outcomes import as_surv
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.metrics.censoring import risk_sets
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
class Baseline(ABC):
    """Reference model: a frozen dataclass of settings, of which the package behind it checks the values.

    Trees have the field ``depth``. Raw columns are encoded with statistics of the training rows: one 0/1
    feature per category (all 0 if missing), missing numbers replaced by the mean, numbers scaled to [0, 1]
    (:class:`~sstorch.data.Preprocessor`), constant columns excluded.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()  # distributions that it needs
    # What it supports apart from times and events: "entry", "weights"; "causes" at once, not one by one.
    knows: ClassVar[tuple[str, ...]] = ()

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> Curves | PredictsIncidence:
        """Fit the model; of competing causes, models of their hazards, put together to incidences.

        Args:
            train: training rows.
            schema: columns and vocabularies, possibly of a larger table.
            seed: random seed; equal seeds give equal curves.

        Raises:
            ConfigError: a package or program is missing.
            DataError: the rows are not supported (:meth:`check_rows`), or all features are constant.
            TrainingError: fitting failed.
        """
        self.check()
        self.check_rows(train)
        if train.causes is None or "causes" in self.knows:
            fitted: Curves | PredictsIncidence = self._fit(train, schema, seed)
            return fitted
        of_causes = [self._fit(train.of_cause(name), schema, seed) for name in train.cause_names]
        return cause_specific(of_causes, train.event_times)

    @abstractmethod
    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> Any:
        """Fit the model, after all checks."""

    def check(self) -> None:
        """Raise a ConfigError with the command that installs it if something that it needs is missing."""
        self.versions()

    def check_rows(self, rows: SurvivalData) -> None:
        """Raise a DataError for rows with intervals, weights or entry times that it does not support."""
        if np.ptp(rows.sample_weight) > 0 and "weights" not in self.knows:
            raise DataError(
                f"the baseline {self.name!r} does not support weights; kaplan_meier and cox_lifelines do"
            )
        if rows.entry.any() and "entry" not in self.knows:
            raise DataError(
                f"the baseline {self.name!r} takes every row as observed from time zero, and some entered "
                "later; kaplan_meier, weibull_aft, log_logistic_aft and cox_lifelines support entry"
            )
        rows.refuse_intervals("the baseline")

    def settings(self) -> dict[str, Any]:
        """Every setting and its value."""
        return asdict(self)

    def versions(self) -> dict[str, str]:
        """Versions of this package and of required packages."""
        found = {"sstorch": __version__}
        for package in self.packages:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                of_extra = package == "scikit-survival"  # the others are always installed
                remedy = install_extra("baselines") if of_extra else pip_install(package)
                raise ConfigError(
                    f"the baseline {self.name!r} needs the package {package}; install it: {remedy}"
                ) from None
        return found


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


# ---------------------------------------------------------------------- fitted models


@dataclass(frozen=True)
class KnownCurves:
    """Curves known at some times: 1 at time zero, the last value beyond the last time.

    Between two times they keep the value of the first, or are straight lines.
    """

    knots: FloatArray  # strictly increasing times > 0, (n_knots,)
    values: Callable[[object], npt.ArrayLike]  # S at the knots, (n, n_knots), from rows with the raw columns
    straight: bool = False

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        grid, nodes = check_times(times), np.append(0.0, self.knots)
        curves = np.pad(checked_curves(self.values(X)), ((0, 0), (1, 0)), constant_values=1.0)
        right = np.searchsorted(nodes, grid, side="right")
        if not self.straight:
            return curves[:, right - 1]
        right = np.clip(right, 1, len(nodes) - 1)
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

    Sums over the rows at risk are added up from the last time on: where risks differ by many orders of
    magnitude, differences of such sums are rounding noise and can be negative.
    """

    jumps: FloatArray  # distinct training times, (n_jumps,)
    hazard: FloatArray  # cumulative, at the jumps, of a row with the largest training risk, (n_jumps,)
    largest: float  # log risk of that row

    @classmethod
    def of(cls, log_risk: FloatArray, y: Surv | tuple[Any, Any]) -> Self:
        """Estimate it from log risks (n,) and the outcome of the training rows."""
        outcome = as_surv(y)
        time, event, _ = outcome.right_censored("a baseline hazard")
        largest, each = float(log_risk.max()), 1.0 if outcome.weight is None else outcome.weight
        sets = risk_sets(Observed(time, event, outcome.entry, each * np.exp(log_risk - largest)))
        n_events = np.bincount(sets.position, weights=event * each)
        share = np.divide(n_events, sets.at_risk, out=np.zeros_like(n_events), where=n_events > 0)
        return cls(sets.times, np.cumsum(share), largest)

    def survival(self, log_risk: FloatArray) -> FloatArray:
        """S of rows with these log risks, (n,), at the jumps, (n, n_jumps)."""
        # An infinite risk would make NaN of a hazard of 0.
        risk = np.exp(np.minimum(log_risk - self.largest, _LARGEST_LOG))
        with np.errstate(over="ignore"):
            curves: FloatArray = np.exp(-np.outer(risk, self.hazard))
        return curves

    def curves(self, log_risk: Callable[[object], FloatArray]) -> KnownCurves:
        """Curves of rows by their log risks."""
        return KnownCurves(self.jumps, lambda X: self.survival(log_risk(X)))


@dataclass(frozen=True)
class KnownIncidences:
    """Incidences that are steps."""

    jumps: FloatArray  # strictly increasing times, (n_jumps,)
    values: Callable[[object], FloatArray]  # at the jumps, (n, K, n_jumps), from rows with the raw columns

    def predict_cumulative_incidence(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Cumulative incidence of each cause at times >= 0, (n, K, n_times), in [0, 1], rising with t."""
        at = np.searchsorted(self.jumps, check_times(times), side="right")
        return np.pad(self.values(X), ((0, 0), (0, 0), (1, 0)))[..., at]


def cause_specific(models: list[Curves], jumps: FloatArray) -> KnownIncidences:
    """A survival model of each cause, the others being censored, put together to incidences.

    With cumulative hazards H_k = -log S_k of the models the causes share what S = exp(-sum H_k) loses at each
    time by their increments, so that incidences and S sum to one.

    References:
        Prentice and others (1978), Biometrics 34, 541-554.
    """

    def values(X: object) -> FloatArray:
        survival = np.stack([model.falling_curves(X, jumps) for model in models], axis=1)
        hazard = -np.log(np.maximum(survival, _LEAST_SURVIVAL))
        steps = np.diff(hazard, axis=2, prepend=0.0)
        lost = -np.diff(np.exp(-hazard.sum(axis=1)), axis=1, prepend=1.0)
        total = steps.sum(axis=1, keepdims=True)
        shares = np.divide(steps, total, out=np.zeros_like(steps), where=total > 0)
        return np.asarray(np.cumsum(shares * lost[:, None], axis=2))

    return KnownIncidences(jumps, values)
