"""The models of a study: soft trees, baselines, and estimators of any other class."""

from __future__ import annotations

import importlib.metadata
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch._types import FloatArray, IntArray
from sstorch.bench.baselines import Baseline, Curves
from sstorch.bench.config import build
from sstorch.checks import has_method
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.exceptions import ConfigError, DataWarning, TrainingError
from sstorch.fitted.tree import FittedTree
from sstorch.metrics.scored import PredictsIncidence
from sstorch.optim.checkpoint import Plain, plain_values
from sstorch.soft import train_batch
from sstorch.soft.batch import check_causes
from sstorch.soft.estimator import SoftEstimator

# Parameters that are the depth of trees.
DEPTHS = ("depth", "max_depth")


@dataclass(frozen=True)
class Fit:
    """One fitted model of a study."""

    fold: int  # that it did not see
    start: int  # its initial solution; 0 where there is one alone
    chosen: bool  # of all starts of the fold the one that is returned to a user
    objective: float | None  # of its training, where recorded
    predictor: Curves | PredictsIncidence
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the choice, as JSON holds them


class StudyModel:
    """A model of a study, not fitted: an estimator of any class, of which a copy is fitted to each fold.

    Args:
        name: by which the results are known.
        estimator: with ``fit(X, y)`` and ``predict_survival_function(X, times)``.
    """

    def __init__(self, name: str, estimator: Any) -> None:
        self.name, self.estimator = name, estimator

    @property
    def depth(self) -> int | None:
        """Largest depth of the trees; None for other models."""
        depths = (getattr(self.estimator, name, None) for name in DEPTHS)
        return next((depth for depth in depths if isinstance(depth, int)), None)

    @property
    def n_starts(self) -> int:
        """Fits per fold."""
        return 1

    def check(self) -> None:
        """Make sure, before any work, that it can be fitted here.

        Raises:
            ConfigError: a setting does not exist, or a package is missing.
        """

    def check_data(self, data: SurvivalData) -> None:
        """Make sure, before any work, that it can be fitted to rows of such data.

        Raises:
            ConfigError: it names a column that is not there, or its parameters do not suit the outcome.
            DataError: it cannot be fitted to such rows.
        """
        if data.causes is not None and not has_method(self.estimator, "predict_cumulative_incidence"):
            raise ConfigError(
                f"{type(self.estimator).__name__} must have predict_cumulative_incidence for competing "
                "causes: choose another model, or one cause as dataset.event"
            )

    def settings(self) -> dict[str, Plain]:
        """Everything that shapes its results, as plain values by name."""
        kind, found = type(self.estimator), getattr(self.estimator, "get_params", None)
        values = vars(self.estimator) if found is None else found(deep=False)
        name: dict[str, Plain] = {"estimator": f"{kind.__module__}.{kind.__qualname__}"}
        return name | dict(plain_values(values, "estimator"))

    def versions(self) -> dict[str, str]:
        """Versions of torch and of the package that it comes from, if it comes from one."""
        found, package = {"torch": str(torch.__version__)}, type(self.estimator).__module__.partition(".")[0]
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
        return found

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Fit on the training rows of every fold.

        Args:
            splits: training rows of each fold.
            schema: columns and vocabulary that all folds share.
            device: where tensors live.
        """
        for fold, train in enumerate(splits):
            yield Fit(fold, 0, True, None, self.fitted(train))

    def fitted(self, train: SurvivalData) -> FittedModel:
        """A fitted copy."""
        copied = clone(self.estimator) if hasattr(self.estimator, "get_params") else deepcopy(self.estimator)
        weights = {} if train.uneven_weight is None else {"sample_weight": train.uneven_weight}
        made = copied.fit(train.frame, train.y, **weights)
        return FittedModel(copied if made is None else made, train)


class BaselineModel(StudyModel):
    """A baseline, fitted to each fold separately on the CPU.

    Args:
        name: by which the results are known.
        estimator: the baseline.
        seed: random seed.
    """

    def __init__(self, name: str, estimator: Baseline, seed: int) -> None:
        super().__init__(name, estimator)
        self._seed = seed

    def check(self) -> None:
        """See :class:`StudyModel`."""
        self.estimator.check()

    def check_data(self, data: SurvivalData) -> None:
        """See :class:`StudyModel`."""
        self.estimator.check_rows(data)

    def settings(self) -> dict[str, Plain]:
        """See :class:`StudyModel`."""
        kind: dict[str, Plain] = {"baseline": self.estimator.name, "seed": self._seed}
        return {**kind, **dict(plain_values(self.estimator.settings(), self.estimator.name))}

    def versions(self) -> dict[str, str]:
        """See :class:`StudyModel`."""
        found: dict[str, str] = self.estimator.versions()
        return found

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """See :class:`StudyModel`."""
        for fold, train in enumerate(splits):
            yield Fit(fold, 0, True, None, self.estimator.fit(train.followed(), schema, self._seed))


class SoftTreeModel(StudyModel):
    """Soft trees: all starts of all folds are one batch."""

    estimator: SoftEstimator

    @property
    def depth(self) -> int:
        """Gates on every path."""
        return self.estimator._batch_settings().depth

    @property
    def n_starts(self) -> int:
        """Initial solutions of each fold."""
        return self.estimator._batch_settings().n_starts

    @property
    def is_fair(self) -> bool:
        """Whether a fairness penalty compares sensitive groups."""
        return self.estimator._batch_settings().fairness is not None

    def check(self) -> None:
        """See :class:`StudyModel`."""
        if self.is_fair:
            raise ConfigError(f"{self.name}: a study has no sensitive groups: leave penalties.fairness out")

    def check_data(self, data: SurvivalData) -> None:
        """See :class:`StudyModel`."""
        settings = self.estimator._batch_settings()
        check_causes(data, settings)
        settings.check_columns(data)

    def settings(self) -> dict[str, Plain]:
        """The checked parameters and those of the trainer, except the device."""
        checked = replace(self.estimator._batch_settings(), device="cpu")
        return {
            **dict(plain_values(checked.facts(), "tree")),
            # Engines agree but for rounding.
            **dict(plain_values(checked.trainer.identity, "trainer")),
            "tree.prediction": checked.prediction,
        }

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Train the batch, then yield its trees."""
        settings = replace(self.estimator._batch_settings(), device=device)
        batch = train_batch(splits, settings, schema)
        for fold in range(len(splits)):
            best, encode = batch.best_start(fold), None
            for start in range(batch.n_starts):
                tree = batch.fitted(fold, start, prediction=settings.prediction)
                encode = encode or _Encoded(tree.encode)  # starts of a fold have the same encoding
                place = batch.position(fold, start)
                facts = {"choice": asdict(batch.choices[place])} if batch.choices else {}
                objective = float(batch.objective[place])
                yield Fit(fold, start, start == best, objective, _EncodedTree(tree, encode), facts)


class _Encoded:
    """Encoded rows (n, p) and outcomes of tables, kept for as long as this object is."""

    def __init__(self, encode: Callable[[pd.DataFrame], RowFeatures]) -> None:
        self._encode = encode
        # The table is kept too, so that its identity is not given to another one.
        self._known: dict[tuple[int, str], tuple[pd.DataFrame, Any]] = {}

    def __call__(self, frame: pd.DataFrame) -> RowFeatures:
        encoded: RowFeatures = self._once(frame, "x", lambda: self._encode(frame))
        return encoded

    def rows(self, frame: pd.DataFrame, y: object) -> SurvivalData:
        """A table with its outcome, which is the same at each call."""
        rows: SurvivalData = self._once(frame, "y", lambda: SurvivalData(frame, y, require_events=False))
        return rows

    def _once(self, frame: pd.DataFrame, what: str, make: Callable[[], Any]) -> Any:
        if (id(frame), what) not in self._known:
            self._known[id(frame), what] = frame, make()
        return self._known[id(frame), what][1]


class _EncodedTree:
    """A trained tree that shares encoded rows with the other trees of its fold."""

    def __init__(self, tree: FittedTree, encode: _Encoded) -> None:
        self._tree, self._encode = tree, encode

    def falling_curves(self, X: pd.DataFrame, times: FloatArray) -> FloatArray:
        """S(t | x), (n, n_times); curves of unconstrained splines that rise as their running minimum."""
        return self._tree.falling_curves(self._encode(X), times)

    def predict_cumulative_incidence(self, X: pd.DataFrame, times: FloatArray) -> FloatArray:
        """Cumulative incidence of each of K causes, (n, K, n_times)."""
        return self._tree.incidence(self._encode(X), times)

    def apply(self, X: pd.DataFrame) -> IntArray:
        """Group of each row, (n,)."""
        return self._tree.apply(self._encode(X))

    def log_likelihood(self, X: pd.DataFrame, y: object) -> float:
        """Mean log-likelihood per row, in the unit of the data."""
        return self._tree.log_likelihood(self._encode(X), self._encode.rows(X, y))


class FittedModel:
    """A fitted estimator of any class, as scores, tables and figures of a run use it.

    What is not here is taken from the estimator: ``apply``, ``log_likelihood``, ``save`` and others.
    """

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
        """S(t | x), (n, n_times), increasing times; curves that rise as their running minimum.

        Raises:
            TrainingError: the estimator predicts another shape, missing values, or values outside [0, 1].
        """
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
    """The models of a node: one for each value of every parameter that is a list.

    Args:
        name: of the node.
        node: with a ``_target_``; with ``optional`` a model is left out, with a message, where what it needs
            is not installed.
        seed: ``random_state`` of estimators that have one and whose node does not, and seed of baselines.
        where: name of the node, for messages.

    Raises:
        ConfigError: a target, parameter or value does not exist, or makes neither estimator nor baseline.

    Warns:
        DataWarning: an optional model is left out.
    """
    models: list[StudyModel] = []
    for suffix, chosen in _grid(node):
        optional, made = chosen.pop("optional", False), build(chosen, where)
        if "random_state" not in chosen and "random_state" in getattr(made, "get_params", dict)():
            made.set_params(random_state=seed)
        model = as_model(name + suffix, made, seed, where)
        if optional:
            try:
                model.check()
            except ConfigError as error:
                warnings.warn(f"{model.name} is left out: {error}", DataWarning, stacklevel=3)
                continue
        models.append(model)
    return models


def as_model(name: str, made: Any, seed: int, where: str) -> StudyModel:
    """The model of a study for an estimator or baseline.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(made, SoftEstimator):
        return SoftTreeModel(name, made)
    if isinstance(made, Baseline):
        return BaselineModel(name, made, seed)
    if not has_method(made, "fit") or not has_method(made, "predict_survival_function"):
        raise ConfigError(
            f"{where} must be an estimator with fit(X, y) and predict_survival_function(X, times), or a "
            f"baseline, got {type(made).__name__}"
        )
    return StudyModel(name, made)


def _grid(entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every choice of one value of each list, and what distinguishes it from the others except the depth."""
    lists = {name: value for name, value in entry.items() if isinstance(value, list)}
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        suffix = "".join(f",{name}={value}" for name, value in chosen.items() if name not in DEPTHS)
        yield suffix, {**entry, **chosen}
