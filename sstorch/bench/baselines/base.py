"""The interface of all baselines, and what they are made of: encoded rows, curves, baseline hazards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray, IntArray
from sstorch._version import __version__
from sstorch.base import check_times
from sstorch.data import Preprocessor, Schema, Surv, SurvivalData, stratified_folds
from sstorch.data.surv import as_surv
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed
from sstorch.usage import install_extra, pip_install

# Survival (n, n_times), or incidences of K causes (n, K, n_times), of features (n, p) at times.
Predict = Callable[[FloatArray, FloatArray], FloatArray]
# Largest rise of a curve that counts as rounding; some packages predict in float32.
_ROUNDING = 1e-5
# Its exponential is a number of float64, and large enough for S = 0.
_LARGEST_LOG = 700.0
# Of curves of a cause that end at zero.
_LEAST_SURVIVAL = 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(BaseEstimator, ABC):  # type: ignore[misc]
    """Reference model: an estimator of scikit-learn; the package behind it checks its parameters.

    Trees have the parameter ``depth``. Raw columns are encoded with statistics of the training rows: one 0/1
    feature per category (all 0 if missing), missing numbers replaced by the mean, numbers scaled to [0, 1]
    (:class:`~sstorch.data.Preprocessor`), constant columns excluded.

    Args:
        random_state: random seed; equal seeds give equal curves.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()  # distributions that it needs
    # What it supports apart from times and events: "entry", "weights"; "causes" at once, not one by one.
    knows: ClassVar[tuple[str, ...]] = ()

    random_state: int = 0

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Fit the model; of competing causes, models of their hazards, put together to incidences.

        Args:
            X: training rows, a frame with raw columns or an array (n, p).
            y: their outcome, :class:`~sstorch.Surv` or (time, event), each (n,).
            sample_weight: weights (n,) >= 0.

        Raises:
            ConfigError: a package or program is missing.
            DataError: the rows are not supported (:meth:`check_rows`), or all features are constant.
            TrainingError: fitting failed.
        """
        self.versions()
        train = SurvivalData(X, y, sample_weight=sample_weight).followed()
        self.check_rows(train)
        self._encoder, self._competing = Encoder(train), train.causes is not None
        if not self._competing or "causes" in self.knows:
            self._predict: Predict = self._fit(self._encoder, train)
        else:
            of_causes = [self._fit(self._encoder, train.of_cause(name)) for name in train.cause_names]
            self._predict = cause_specific(of_causes, train.event_times)
        return self

    @abstractmethod
    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        """Fit the model to the features of the encoder, after all checks."""

    def predict_survival_function(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival S(t | x), shape (n, n_times), in [0, 1] and not rising with t.

        Args:
            X: rows with the training columns; other columns are ignored, in any order.
            times: finite numbers >= 0, shape (n_times,), in the unit of the training times.
        """
        return self._predicted(X, times, competing=False)

    falling_curves = predict_survival_function

    def predict_cumulative_incidence(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Cumulative incidence of each of K causes at times >= 0, (n, K, n_times), in [0, 1], rising."""
        return self._predicted(X, times, competing=True)

    def _predicted(self, X: object, times: npt.ArrayLike, competing: bool) -> FloatArray:
        check_is_fitted(self, "_predict")
        if competing != self._competing:
            kind = "competing causes" if self._competing else "one event"
            raise DataError(f"the baseline {self.name!r} was fitted to {kind}: use the method for these")
        return self._predict(self._encoder(X), check_times(times))

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

    def versions(self) -> dict[str, str]:
        """Versions of this package and of required packages; ConfigError if one is not installed."""
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
    """Raw columns to the numbers a model takes, learned from training rows, without constant features."""

    def __init__(self, train: SurvivalData) -> None:
        self._preprocessor = Preprocessor(Schema.of(train.frame)).fit(train.frame, train.uneven_weight)
        encoded = self._preprocessor.transform(train.frame)
        self._varies = np.ptp(encoded, axis=0) > 0
        self._train: FloatArray = encoded[:, self._varies]

    @property
    def x(self) -> FloatArray:
        """The features of the training rows, (n, p); a DataError if there are none."""
        if not self._varies.any():
            raise DataError("every feature is constant in the training rows: the model cannot be fitted")
        return self._train

    def __call__(self, X: object) -> FloatArray:
        """Encode rows, shape (n, p)."""
        return self._preprocessor.transform(X)[:, self._varies]


def inner_folds(train: SurvivalData, n_folds: int, seed: int) -> IntArray:
    """Fold of each training row, stratified by event; at most as many folds as there are events."""
    n_events = int(train.event.sum())
    if n_events < 2:
        raise DataError(f"the training rows have {n_events} event; at least two are needed to leave one out")
    return stratified_folds(train.event, min(n_folds, n_events), seed, train.subject)


# ---------------------------------------------------------------------- predictions


def steps(knots: FloatArray, values: Callable[[FloatArray], npt.ArrayLike]) -> Predict:
    """Step functions with S at the knots, increasing times > 0, as values (n, n_knots); 1 before them."""

    def predict(x: FloatArray, times: FloatArray) -> FloatArray:
        return _with_start(values(x))[:, np.searchsorted(knots, times, side="right")]

    return predict


def straight_lines(knots: FloatArray, values: Callable[[FloatArray], npt.ArrayLike]) -> Predict:
    """As :func:`steps`, with straight lines between time zero and the knots."""
    nodes = np.append(0.0, knots)

    def predict(x: FloatArray, times: FloatArray) -> FloatArray:
        curves = _with_start(values(x))
        right = np.clip(np.searchsorted(nodes, times, side="right"), 1, len(knots))
        share = np.minimum((times - nodes[right - 1]) / (nodes[right] - nodes[right - 1]), 1.0)
        joined: FloatArray = curves[:, right - 1] * (1.0 - share) + curves[:, right] * share
        return joined

    return predict


def _with_start(curves: npt.ArrayLike) -> FloatArray:
    return np.pad(checked_curves(curves), ((0, 0), (1, 0)), constant_values=1.0)


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
    """Cumulative baseline hazard, a step function; sums at risk are added up from the last time on."""

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

    def curves(self, log_risk: Callable[[FloatArray], FloatArray]) -> Predict:
        """Curves of rows by the log risks (n,) of their features."""
        return steps(self.jumps, lambda x: self.survival(log_risk(x)))


def cause_specific(models: list[Predict], jumps: FloatArray) -> Predict:
    """Incidences by a survival model of each cause, others censored (Prentice and others, 1978)."""
    # The causes share the loss of S = exp(sum log S_k) by the increments of -log S_k: all sum to one with S.

    def predict(x: FloatArray, times: FloatArray) -> FloatArray:
        survival = np.stack([model(x, jumps) for model in models], axis=1)
        hazard = -np.log(np.maximum(survival, _LEAST_SURVIVAL))
        gained = np.diff(hazard, axis=2, prepend=0.0)
        lost = -np.diff(np.exp(-hazard.sum(axis=1)), axis=1, prepend=1.0)
        total = gained.sum(axis=1, keepdims=True)
        shares = np.divide(gained, total, out=np.zeros_like(gained), where=total > 0)
        incidence = np.cumsum(shares * lost[:, None], axis=2)
        return np.pad(incidence, ((0, 0), (0, 0), (1, 0)))[..., np.searchsorted(jumps, times, side="right")]

    return predict
