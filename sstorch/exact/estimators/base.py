"""The common part of exact estimators: prediction, reading, saving."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch._types import IntArray
from sstorch.base import FrameEstimator
from sstorch.checks import check_device, names_text
from sstorch.data import Schema
from sstorch.data.columns import labels
from sstorch.exact.binarize import Binarizer, Rule
from sstorch.exact.estimators.objectives import FrontSearch
from sstorch.exact.estimators.search import SearchSettings, TreeSearch, answers, check_binary_columns
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import DataWarning, FormatError
from sstorch.files import read_folder, write_folder


class ExactTree(FrameEstimator):
    """Base class of exact trees, of whatever objective; not for use by itself."""

    tree_: BinaryTree
    rules_: list[Rule]
    loss_: float
    objective_: float
    gap_: float
    optima_: pd.DataFrame
    path_: pd.DataFrame
    schema_: Schema
    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int
    n_samples_fit_: int
    _settings: SearchSettings

    def _adopt_search(self, search: TreeSearch | FrontSearch) -> None:
        """Take what a search found for the budget that it was asked for, but the tree."""
        solution = search.solution
        self.loss_, self.objective_, self.gap_ = solution.loss, solution.objective, solution.gap
        self.optima_ = solution.table()
        self.path_ = pd.DataFrame(solution.path())

    def _adopt_tree(self, search: TreeSearch | FrontSearch, tree: BinaryTree) -> None:
        """Take a tree of a search, with its questions and columns."""
        self._settings, self.tree_, self.rules_, self.schema_ = (
            search.settings,
            tree,
            search.rules,
            search.schema,
        )
        self.feature_names_in_ = np.asarray(search.schema.columns, dtype=object)
        self.n_features_in_, self.n_samples_fit_ = len(search.schema.columns), len(search.features)

    @property
    def _schema(self) -> Schema:
        return self.schema_

    @property
    def certified_(self) -> bool:
        """Whether it is proved that no tree within the budget has a smaller `objective_`."""
        check_is_fitted(self, "tree_")
        return self.gap_ == 0.0

    def apply(self, X: object) -> IntArray:
        """Leaf of each row, 0 .. L - 1, shape (n,).

        A missing value answers no to every question but "is missing".

        Raises:
            DataError: a training column is missing, or holds the wrong kind of value.
        """
        check_is_fitted(self, "tree_")
        frame = self._cleaned(X)
        used = {int(j) for j in self.tree_.feature if j >= 0}
        columns = sorted({self.rules_[j].column for j in used})
        if self._settings.binarize is None:
            check_binary_columns(frame, columns)
        for name in columns:
            if name in self.schema_.categories:
                _warn_of_unknown(frame[name], self.schema_.categories[name])
        return self.tree_.apply(answers(self.rules_, frame, used))

    def export_text(self) -> str:
        """The tree as indented questions in original units, and what there is to say of each leaf."""
        check_is_fitted(self, "tree_")
        return self.tree_.export_text(self.leaf_texts())

    @abstractmethod
    def leaf_texts(self) -> list[str]:
        """A line on each leaf."""

    def _shape_text(self) -> str:
        tree = self.tree_
        return f"depth {tree.depth}, {tree.n_leaves} lea{'ves' if tree.n_leaves > 1 else 'f'}"

    def _proof_text(self) -> str:
        """What the loss is, and for which budget it is proved to be the least."""
        own = self._settings
        budget = f"depth {own.max_depth}" + ("" if own.max_nodes is None else f" and {own.max_nodes} nodes")
        if own.leaf_penalty:
            budget += f", {own.leaf_penalty:g} per leaf"
        proof = "optimal" if self.certified_ else f"at most {self.gap_:.4g} above the optimum"
        return f"loss {self.loss_:.6g}, {proof} for {budget} over {len(self.rules_)} questions"


def _warn_of_unknown(column: pd.Series, words: tuple[str, ...]) -> None:
    unknown: list[Any] = sorted({label for label in labels(column) if label is not None} - set(words))
    if unknown:
        warnings.warn(
            f"column {str(column.name)!r} has the unknown category {names_text(unknown)}: it answers no to "
            f"questions about the known ones, which are {names_text(words)}",
            DataWarning,
            stacklevel=4,
        )


_NUMBERS = ("loss_", "objective_", "gap_")
_TABLES = ("optima_", "path_")


def write_tree(
    estimator: ExactTree,
    folder: Path,
    name: str,
    version: int,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tables: Iterable[str] = (),
) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Args:
        estimator: fitted.
        folder: where to write.
        name: of the format.
        version: of the format.
        state: what the objective adds, as JSON can hold it.
        tensors: what the objective adds.
        tables: attributes that the objective adds, frames of numbers.

    Raises:
        ConfigError: if the folder cannot be written.
    """
    tree = estimator.tree_
    whole = {
        "parameters": _plain(estimator._settings),
        "rules": [rule.to_dict() for rule in estimator.rules_],
        "tree": {
            "feature": tree.feature.tolist(),
            "absent": tree.absent.tolist(),
            "present": tree.present.tolist(),
            "names": list(tree.names),
        },
        "schema": estimator.schema_.to_dict(),
        "n_samples_fit": estimator.n_samples_fit_,
        **{key: float(getattr(estimator, key)) for key in _NUMBERS},
        **state,
    }
    every = dict(tensors)
    for key in (*tables, *_TABLES):
        table: pd.DataFrame = getattr(estimator, key)
        whole[key] = list(table.columns)
        every |= {
            f"{key}.{j}": torch.from_numpy(table.iloc[:, j].to_numpy().copy()) for j in range(table.shape[1])
        }
    write_folder(folder, name, version, whole, every)


def parameters_of(state: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The constructor's arguments of a saved tree.

    Raises:
        KeyError, TypeError, ValueError: they are missing or altered.
    """
    parameters = dict(state["parameters"])
    if isinstance(parameters["binarize"], dict):
        parameters["binarize"] = Binarizer(**parameters["binarize"])
    parameters["device"] = device
    return parameters


def read_tree(
    estimator: ExactTree,
    settings: SearchSettings,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tables: Iterable[str] = (),
) -> None:
    """Give an estimator what :func:`write_tree` wrote of all trees.

    Raises:
        KeyError, TypeError, ValueError, IndexError: something is missing or altered.
    """
    estimator._settings = settings
    estimator.rules_ = [Rule.from_dict(rule) for rule in state["rules"]]
    estimator.tree_ = _tree(state["tree"], len(estimator.rules_))
    estimator.schema_ = Schema.from_dict(state["schema"])
    estimator.n_samples_fit_ = int(state["n_samples_fit"])
    for key in _NUMBERS:
        setattr(estimator, key, float(state[key]))
    for key in (*tables, *_TABLES):
        setattr(estimator, key, _table(state[key], key, tensors))
    names = estimator.schema_.columns
    if unknown := {rule.column for rule in estimator.rules_} - set(names):
        raise ValueError(f"rules about unknown columns {sorted(unknown)}")
    estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator.n_features_in_ = len(names)


def _plain(settings: SearchSettings) -> dict[str, Any]:
    """The settings as the constructor's arguments, in a form that JSON can hold."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    binarizer: Binarizer | None = settings.binarize
    if binarizer is None:
        return {**values, "binarize": False}
    own = binarizer.get_params()
    return {**values, "binarize": own["preset"] if own == Binarizer(own["preset"]).get_params() else own}


def _tree(state: dict[str, Any], n_rules: int) -> BinaryTree:
    """The tree, if its nodes are one in preorder.

    Raises:
        ValueError: they are not.
    """
    feature, absent, present = (
        np.array(state[key], dtype=np.int64) for key in ("feature", "absent", "present")
    )
    names = tuple(str(name) for name in state["names"])
    inner = np.flatnonzero(feature >= 0)
    children = np.concatenate([absent[inner], present[inner]])
    if (
        len(names) != n_rules
        or not len(feature) == len(absent) == len(present)
        or (feature < -1).any()
        or (feature >= n_rules).any()
        or not np.array_equal(np.sort(children), np.arange(1, len(feature)))
        or (children <= np.concatenate([inner, inner])).any()
    ):
        raise ValueError("the nodes do not form a tree over its rules")
    return BinaryTree(feature, absent, present, names)


def _table(names: list[str], key: str, tensors: Mapping[str, Tensor]) -> pd.DataFrame:
    return pd.DataFrame({str(name): tensors[f"{key}.{j}"].numpy() for j, name in enumerate(names)})


VERSION = 1


class ArrayLeaves(ExactTree):
    """Base class of exact trees that hold a row of each of some arrays per leaf; not for use by itself.

    A subclass names its file format, the attributes that are such arrays, and the one, if any, that names
    classes or treatments; further frames of numbers and numbers are kept where the fit has made them.
    """

    _format: ClassVar[str]
    _arrays: ClassVar[tuple[str, ...]]
    _labels: ClassVar[str | None] = None
    _tables: ClassVar[tuple[str, ...]] = ()
    _numbers: ClassVar[tuple[str, ...]] = ()

    def _check(self) -> SearchSettings:
        return SearchSettings(**SearchSettings.common(**self.get_params(deep=False)))

    def save(self, path: str | Path) -> None:
        """Write the fitted tree into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        Raises:
            ConfigError: the folder cannot be written.
        """
        check_is_fitted(self, "tree_")
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in self._arrays}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        label = self._labels
        state: dict[str, Any] = {} if label is None else {label: _labels_state(getattr(self, label))}
        tables = [name for name in self._tables if hasattr(self, name)]
        state["tables"] = tables
        state["numbers"] = {name: float(getattr(self, name)) for name in self._numbers if hasattr(self, name)}
        write_tree(self, Path(path), self._format, VERSION, state, tensors, tuple(tables))

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a tree written by :meth:`save`; ``device`` is where it would be fitted anew.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        folder = Path(path)
        state, tensors = read_folder(folder, cls._format, VERSION)
        try:
            tree = cls(**parameters_of(state, device))
            read_tree(tree, tree._check(), state, tensors, state["tables"])
            for name, number in state["numbers"].items():
                setattr(tree, name, float(number))
            for name in cls._arrays:
                array = tensors[name].numpy()
                if len(array) != tree.tree_.n_leaves:
                    raise ValueError(f"{name} has {len(array)} rows for {tree.tree_.n_leaves} leaves")
                setattr(tree, name, array)
            if cls._labels is not None:
                setattr(tree, cls._labels, _labels(state[cls._labels]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{folder} is incomplete or altered: {error}") from error
        return tree


def _labels_state(labels: npt.NDArray[Any]) -> dict[str, Any]:
    return {"dtype": labels.dtype.str if labels.dtype.kind != "O" else "object", "values": labels.tolist()}


def _labels(state: dict[str, Any]) -> npt.NDArray[Any]:
    return np.array(state["values"], dtype=state["dtype"])
