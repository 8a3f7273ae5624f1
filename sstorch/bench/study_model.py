"""The models of a study: soft trees and baselines."""

from __future__ import annotations

import importlib.metadata
import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.bench.baselines import Baseline, Curves, make_baseline
from sstorch.bench.baselines.base import model_for
from sstorch.bench.flat import SOFT_TREE, check_names, soft_tree, unused
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.fitted.tree import FittedTree
from sstorch.metrics.scored import PredictsIncidence
from sstorch.nn import make_family
from sstorch.optim.checkpoint import Plain, plain_values
from sstorch.soft import train_batch
from sstorch.soft.batch import check_causes
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.settings import AUTO


class EncodedRows:
    """Encoded features (n, p) and outcomes of tables, kept for as long as this object is."""

    def __init__(self, encode: Callable[[pd.DataFrame], RowFeatures]) -> None:
        self._encode = encode
        # The table is kept too, so that its identity is not given to another one.
        self._known: dict[int, tuple[pd.DataFrame, RowFeatures]] = {}
        self._outcomes: dict[int, tuple[pd.DataFrame, SurvivalData]] = {}

    def __call__(self, frame: pd.DataFrame) -> RowFeatures:
        """Features (n, p)."""
        if id(frame) not in self._known:
            self._known[id(frame)] = frame, self._encode(frame)
        return self._known[id(frame)][1]

    def rows(self, frame: pd.DataFrame, y: object) -> SurvivalData:
        """A table with its outcome, which is the same at each call."""
        if id(frame) not in self._outcomes:
            self._outcomes[id(frame)] = frame, SurvivalData(frame, y, require_events=False)
        return self._outcomes[id(frame)][1]


class EncodedTree:
    """A trained tree that shares encoded rows with the other trees of its fold."""

    def __init__(self, tree: FittedTree, encode: EncodedRows) -> None:
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


@dataclass(frozen=True)
class Fit:
    """One fitted model of a study."""

    fold: int  # that it did not see
    start: int  # its initial solution; 0 where there is one alone
    chosen: bool  # of all starts of the fold the one that is returned to a user
    objective: float | None  # of its training, where recorded
    predictor: Curves | PredictsIncidence
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the choice, as JSON holds them


class StudyModel(ABC):
    """A model of a study, not fitted.

    Args:
        name: by which the results are known.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def depth(self) -> int | None:
        """Depth of the trees; None for other models."""

    @property
    def n_starts(self) -> int:
        """Fits per fold."""
        return 1

    @abstractmethod
    def check(self) -> None:
        """Make sure, before any work, that it can be fitted here.

        Raises:
            ConfigError: a setting does not exist, or a package is missing.
        """

    @abstractmethod
    def check_data(self, data: SurvivalData) -> None:
        """Make sure, before any work, that it can be fitted to rows of such data.

        Raises:
            ConfigError: it names a column that is not there, or its parameters do not suit the outcome.
            DataError: it cannot be fitted to such rows.
        """

    @abstractmethod
    def settings(self) -> dict[str, Plain]:
        """Everything that shapes its results, as plain values by name."""

    def versions(self) -> dict[str, str]:
        """Versions of the packages that it comes from, of soft trees that of torch."""
        return {"torch": importlib.metadata.version("torch")}

    @abstractmethod
    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Fit on the training rows of every fold.

        Args:
            splits: training rows of each fold.
            schema: columns and vocabulary that all folds share.
            device: where tensors live.
        """


class SoftTreeModel(StudyModel):
    """Soft trees: all starts of all folds are one batch.

    Args:
        name: by which the results are known.
        estimator: parameters of the trees; the device is set by the study.
    """

    def __init__(self, name: str, estimator: SoftEstimator) -> None:
        super().__init__(name)
        self.estimator = estimator

    @property
    def depth(self) -> int:
        """Gates on every path."""
        return self.estimator._batch_settings().depth

    @property
    def n_starts(self) -> int:
        """Initial solutions of each fold."""
        return self.estimator._batch_settings().n_starts

    def check(self) -> None:
        """Check every parameter."""
        self.estimator._batch_settings()

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
            **dict(plain_values(replace(checked.trainer, engine="auto"), "trainer")),
            "tree.prediction": checked.prediction,
        }

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Train the batch, then yield its trees."""
        settings = replace(self.estimator._batch_settings(), device=device)
        batch = train_batch(splits, settings, schema)
        for fold in range(len(splits)):
            best = batch.best_start(fold)
            trees = [
                batch.fitted(fold, start, prediction=settings.prediction) for start in range(batch.n_starts)
            ]
            encode = EncodedRows(trees[best].encode)
            for start, tree in enumerate(trees):
                position = batch.position(fold, start)
                facts = {"choice": batch.choices[position].to_dict()} if batch.choices else {}
                objective = float(batch.objective[position])
                yield Fit(fold, start, start == best, objective, EncodedTree(tree, encode), facts)


class BaselineModel(StudyModel):
    """A baseline, fitted to each fold separately on the CPU.

    Args:
        name: by which the results are known.
        baseline: what is fitted.
        seed: random seed.
    """

    def __init__(self, name: str, baseline: Baseline, seed: int) -> None:
        super().__init__(name)
        self.baseline, self._seed = baseline, seed

    @property
    def depth(self) -> int | None:
        """Maximum depth of the trees; None for other models."""
        return getattr(self.baseline, "depth", None)

    def check(self) -> None:
        """See :class:`StudyModel`."""
        self.baseline.check()

    def check_data(self, data: SurvivalData) -> None:
        """See :class:`StudyModel`."""
        model_for(self.baseline, data).check_rows(data)

    def settings(self) -> dict[str, Plain]:
        """See :class:`StudyModel`."""
        kind: dict[str, Plain] = {"baseline": self.baseline.name, "seed": self._seed}
        return {**kind, **dict(plain_values(self.baseline.settings(), self.baseline.name))}

    def versions(self) -> dict[str, str]:
        """See :class:`StudyModel`."""
        return self.baseline.versions()

    def fits(self, splits: Sequence[SurvivalData], schema: Schema, device: str) -> Iterator[Fit]:
        """Fit one fold after the other."""
        for fold, train in enumerate(splits):
            yield Fit(
                fold, 0, True, None, model_for(self.baseline, train).fit(train.followed(), schema, self._seed)
            )


def soft_tree_models(
    shared: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]], where: str = "study.soft_trees"
) -> list[SoftTreeModel]:
    """Soft trees by name.

    Args:
        shared: flat settings that all have, see :func:`~sstorch.bench.soft_tree`.
        entries: for each name settings of its own, which win, and ``leaf_options`` of its leaf. A list
            represents one model with each of its values, but for ``interactions``.
        where: of the configuration they are, for messages.

    Raises:
        ConfigError: unknown setting, no model of the entry uses it, or a value does not exist.
    """
    models: list[SoftTreeModel] = []
    for name, entry in entries.items():
        check_names(entry, (*SOFT_TREE, "leaf_options"), f"{where}.{name}: a tree")
        if entry.get("fairness") is not None:
            raise ConfigError(f"{where}.{name}: a study has no sensitive groups: leave fairness out")
        own = list[SoftTreeModel]()
        for suffix, chosen in _grid(entry):
            settings = {**shared, **chosen}
            options, leaf = settings.pop("leaf_options", {}), settings.get("leaf", AUTO)
            if options or leaf != AUTO:
                settings["leaf"] = make_family(leaf, **options)
            own.append(SoftTreeModel(name + suffix, soft_tree(**settings)))
        estimators = [model.estimator for model in own]
        for setting in unused(entry, estimators):
            kinds = " and ".join(dict.fromkeys(type(each).__name__ for each in estimators))
            raise ConfigError(f"{where}.{name}: {setting} is not used by {kinds}: leave it out")
        models += own
    return models


def baseline_models(entries: Mapping[str, Mapping[str, Any]], seed: int) -> list[StudyModel]:
    """Baselines by name.

    Args:
        entries: for each name its options, and ``baseline``, the model, if the name is not that of one. A
            list represents one model with each of its values. With ``optional`` a model is excluded, with a
            message, where what it needs is not installed.
        seed: of everything random in them.

    Raises:
        ConfigError: there is no such baseline or option.

    Warns:
        DataWarning: an optional model is excluded.
    """
    models: list[StudyModel] = []
    for name, entry in entries.items():
        for suffix, chosen in _grid(entry):
            optional = chosen.pop("optional", False)
            model = BaselineModel(name + suffix, make_baseline(chosen.pop("baseline", name), **chosen), seed)
            if optional:
                try:
                    model.check()
                except ConfigError as error:
                    warnings.warn(f"{model.name} is left out: {error}", DataWarning, stacklevel=3)
                    continue
            models.append(model)
    return models


def _grid(entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every choice of one value of each list, and what distinguishes it from the others except the depth.

    Interactions are a list themselves, and one value.
    """
    lists = {
        name: value for name, value in entry.items() if isinstance(value, list) and name != "interactions"
    }
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        suffix = "".join(f",{name}={value}" for name, value in chosen.items() if name != "depth")
        yield suffix, {**entry, **chosen}
