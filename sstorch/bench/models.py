"""The models of runs and studies: soft trees, and estimators of any other class, such as baselines."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch._types import FloatArray, IntArray
from sstorch.bench.config import build
from sstorch.checks import has_method
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.exceptions import ConfigError, TrainingError, warn
from sstorch.fitted.tree import FittedTree
from sstorch.metrics.curves import check_takes_times
from sstorch.nn import SoftTree
from sstorch.optim.run import Plain, plain_values
from sstorch.soft.batch import TrainedBatch, check_causes, train_batch
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.settings import BatchSettings

# Parameters that are the depth of trees.
DEPTHS = ("depth", "max_depth")


class Fit(NamedTuple):
    """One fitted model of a cross-validation."""

    fold: int  # that it did not see
    predictor: Any  # with falling_curves(X, times), with competing causes predict_cumulative_incidence
    start: int = 0  # its initial solution; 0 where there is one alone
    chosen: bool = True  # of all starts of the fold the one that is returned to a user
    objective: float = np.nan  # of its training, where recorded


class StudyModel:
    """A model that is not fitted: an estimator of any class, of which a copy is fitted to each fold."""

    def __init__(self, name: str, estimator: Any) -> None:
        # `n_starts` fits per fold; `depth` is the largest of trees, None for other models.
        self.name, self.estimator, self.n_starts = name, estimator, 1
        depths = (getattr(self.estimator, name, None) for name in DEPTHS)
        self.depth = next((depth for depth in depths if isinstance(depth, int)), None)

    def check_data(self, data: SurvivalData) -> None:
        """Raise a ConfigError or DataError, before any work, if it cannot be fitted to rows of such data."""
        if data.causes is not None and not has_method(self.estimator, "predict_cumulative_incidence"):
            raise ConfigError(
                f"{type(self.estimator).__name__} must have predict_cumulative_incidence for competing "
                "causes: choose another model, or one cause as dataset.event"
            )
        if has_method(self.estimator, "check_rows"):
            self.estimator.check_rows(data)

    def settings(self) -> dict[str, Plain]:
        """Everything that shapes its results, as plain values by name."""
        kind, found = type(self.estimator), getattr(self.estimator, "get_params", None)
        values = vars(self.estimator) if found is None else found(deep=False)
        name: dict[str, Plain] = {"estimator": f"{kind.__module__}.{kind.__qualname__}"}
        return name | dict(plain_values(values, "estimator"))

    def versions(self) -> dict[str, str]:
        """Versions of torch and of the packages that it comes from; ConfigError if one is not installed."""
        found, package = {"torch": str(torch.__version__)}, type(self.estimator).__module__.partition(".")[0]
        if has_method(self.estimator, "versions"):
            return {**found, **self.estimator.versions()}
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
        return found

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Fit on the training rows of every fold, with the columns and vocabulary that all share."""
        for fold, train in enumerate(splits):
            yield Fit(fold, self.fitted(train))

    def fitted(self, train: SurvivalData) -> FittedModel:
        """A fitted copy."""
        copied = clone(self.estimator) if hasattr(self.estimator, "get_params") else deepcopy(self.estimator)
        weights = {} if train.uneven_weight is None else {"sample_weight": train.uneven_weight}
        made = copied.fit(train.frame, train.y, **weights)
        return FittedModel(copied if made is None else made, train)


class SoftTreeModel(StudyModel):
    """Soft trees: all starts of all folds are one batch; a ConfigError if a parameter is invalid."""

    def __init__(self, name: str, estimator: SoftEstimator) -> None:
        super().__init__(name, estimator)
        self.batch_settings = estimator._batch_settings()
        self.depth, self.n_starts = self.batch_settings.depth, self.batch_settings.n_starts

    def check_data(self, data: SurvivalData) -> None:
        """See :class:`StudyModel`."""
        if self.batch_settings.fairness is not None and data.groups is None:
            raise ConfigError(
                f"{self.name}.penalties.fairness needs dataset.sensitive=COLUMN in a run; studies have no "
                "sensitive groups"
            )
        check_causes(data, self.batch_settings)
        self.batch_settings.check_columns(data)

    def settings(self) -> dict[str, Plain]:
        """The checked parameters and those of the trainer, except the device."""
        checked = replace(self.batch_settings, device="cpu")
        return {
            **dict(plain_values(checked.facts(), "tree")),
            # Engines agree but for rounding.
            **dict(plain_values(checked.trainer, "trainer")),
            "tree.prediction": checked.prediction,
        }

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """See :class:`StudyModel`."""
        settings = replace(self.batch_settings, device=device)
        yield from fits_of(train_batch(splits, settings, schema), len(splits), settings)


def fits_of(batch: TrainedBatch, n_folds: int, settings: BatchSettings, setting: int = 0) -> Iterator[Fit]:
    """The trees of the first splits of a trained batch, at a position among its coefficients."""
    for fold in range(n_folds):
        best, known = batch.best_start(fold, setting), dict[tuple[int, str], Any]()
        for start in range(batch.n_starts):
            tree = batch.fitted(fold, start, setting, settings.prediction)
            place = batch.position(fold, start, setting)
            yield Fit(fold, ScoredTree(tree, known), start, start == best, float(batch.objective[place]))


class ScoredTree:
    """A trained tree; `known` has encoded rows and outcomes of tables, shared by the starts of a fold."""

    def __init__(self, tree: FittedTree, known: dict[tuple[int, str], Any]) -> None:
        self._tree, self._known = tree, known

    @property
    def module_(self) -> SoftTree:
        """The tree of the first cause, as estimators have it."""
        return self._tree.module

    def _once(self, X: pd.DataFrame, what: str, make: Any) -> Any:
        if (id(X), what) not in self._known:
            self._known[id(X), what] = X, make()  # the table is kept, so that its identity stays
        return self._known[id(X), what][1]

    def _encode(self, X: pd.DataFrame) -> RowFeatures:
        encoded: RowFeatures = self._once(X, "x", lambda: self._tree.encode(X))
        return encoded

    def falling_curves(self, X: pd.DataFrame, times: FloatArray) -> FloatArray:
        """S(t | x), until any cause, (n, n_times)."""
        curves = self._tree.curves if self._tree.competing else self._tree.falling_curves
        return curves(self._encode(X), times)

    def predict_cumulative_incidence(self, X: pd.DataFrame, times: FloatArray) -> FloatArray:
        """Cumulative incidence of each of K causes, (n, K, n_times)."""
        return self._tree.incidence(self._encode(X), times)

    def apply(self, X: pd.DataFrame) -> IntArray:
        """Group of each row, (n,)."""
        return self._tree.apply(self._encode(X))

    def log_likelihood(self, X: pd.DataFrame, y: object) -> float:
        """Mean log-likelihood per row, in the unit of the data."""
        rows = self._once(X, "y", lambda: SurvivalData(X, y, require_events=False))
        return self._tree.log_likelihood(self._encode(X), rows)


class FittedModel:
    """A fitted estimator of any class, as a run uses it; attributes not defined here are the estimator's."""

    choice_ = group_validation_ = None
    objective_ = np.nan

    def __init__(self, estimator: Any, train: SurvivalData) -> None:
        self.estimator = estimator
        self.outcome_type_ = train.outcome_type
        self.time_unit_ = getattr(estimator, "time_unit_", None) or train.time_unit
        self.metrics_: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "estimator" or name.startswith("__"):  # of copies that have no state yet
            raise AttributeError(name)
        return getattr(self.estimator, name)

    def falling_curves(self, X: object, times: FloatArray) -> FloatArray:
        """S(t | x), (n, n_times), increasing times; a TrainingError for another shape or values."""
        times = np.asarray(times, np.float64)
        if has_method(self.estimator, "falling_curves"):
            found: FloatArray = self.estimator.falling_curves(X, times)
            return found
        name = f"{type(self.estimator).__name__}.predict_survival_function"
        curves = np.asarray(self.estimator.predict_survival_function(X, times), np.float64)
        expected = (len(cast(pd.DataFrame, X)), len(times))
        if curves.shape != expected:
            raise TrainingError(f"{name} must return shape {expected}, got {curves.shape}")
        if not ((curves >= -1e-9) & (curves <= 1 + 1e-9)).all():  # NaN neither
            raise TrainingError(
                f"{name} must return probabilities in [0, 1], got {curves.min()} to {curves.max()}"
            )
        return np.minimum.accumulate(np.clip(curves, 0.0, 1.0), axis=1)

    def summary(self, details: bool = True) -> str:
        """The summary of the estimator, or its parameters."""
        own = self.estimator
        return str(own.summary()) if has_method(own, "summary") else repr(own)


def models_of(name: str, node: Mapping[str, Any], seed: int, where: str) -> list[StudyModel]:
    """The models of a node: one for each value of every parameter that is a list; `where` is its name."""
    # `seed` is the default ``random_state``; ``optional`` skips, with a DataWarning, what lacks a package.
    models: list[StudyModel] = []
    for suffix, chosen in _grid(node):
        optional, made = chosen.pop("optional", False), build(chosen, where)
        if "random_state" not in chosen and "random_state" in getattr(made, "get_params", dict)():
            made.set_params(random_state=seed)
        model = as_model(name + suffix, made, where)
        try:
            model.versions()
        except ConfigError as error:
            if not optional:
                raise
            warn(f"{model.name} is left out: {error}")
            continue
        models.append(model)
    return models


def as_model(name: str, made: Any, where: str) -> StudyModel:
    """The model for an estimator; ConfigError if it is none."""
    if isinstance(made, SoftEstimator):
        return SoftTreeModel(name, made)
    if not has_method(made, "fit") or not has_method(made, "predict_survival_function"):
        raise ConfigError(
            f"{where} must be an estimator with fit(X, y) and predict_survival_function(X, times), got "
            f"{type(made).__name__}"
        )
    check_takes_times(made, "predict_survival_function", where)
    return StudyModel(name, made)


def _grid(entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every choice of one value of each list, and what distinguishes it from the others except the depth."""
    lists = {name: value for name, value in entry.items() if isinstance(value, list)}
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        suffix = "".join(f",{name}={value}" for name, value in chosen.items() if name not in DEPTHS)
        yield suffix, {**entry, **chosen}
