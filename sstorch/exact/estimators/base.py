"""The common part of exact estimators: prediction, reading, saving."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sstorch._types import IntArray
from sstorch.base import FrameEstimator
from sstorch.checks import counted, names_text, wording
from sstorch.data import Schema
from sstorch.data.columns import labels
from sstorch.exact.binarize import Binarizer, Preset, Rule
from sstorch.exact.estimators.objectives import FrontChoice
from sstorch.exact.estimators.search import (
    SEARCH,
    Questions,
    Search,
    SearchSettings,
    answers,
    check_binary_columns,
)
from sstorch.exact.solution import Solution
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import DataWarning
from sstorch.files import read_folder, reading, write_folder
from sstorch.parameters import restored

FORMAT_VERSION = 9


class ExactTree(FrameEstimator):
    """Base class of exact trees for all objectives; not for direct use.

    A subclass names its file format, and what of a fit is not written to files.
    """

    _format: ClassVar[str]
    _settings_class: ClassVar[type[SearchSettings]] = SearchSettings
    _not_saved: ClassVar[tuple[str, ...]] = ()

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

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        search: Search = SEARCH,
    ) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.leaf_penalty = leaf_penalty
        self.min_leaf = min_leaf
        self.binarize = binarize
        self.search = search

    def _check(self) -> Any:
        """The parameters, checked, as the class of settings that belongs to the estimator."""
        names = [field.name for field in fields(self._settings_class)]
        return self._settings_class(**{name: getattr(self, name) for name in names})

    def _set(
        self, questions: Questions, solution: Solution | FrontChoice, tree: BinaryTree | None = None
    ) -> IntArray:
        """Take over a tree of a search; by default the one that the settings ask for, with its loss.

        Returns the leaf of each training row, (N,).
        """
        if tree is None:
            tree = solution.tree()
            self.loss_, self.objective_, self.gap_ = solution.loss, solution.objective, solution.gap
            self.optima_, self.path_ = solution.table(), pd.DataFrame(solution.path())
        self._settings, self.tree_, self.rules_ = questions.settings, tree, questions.rules
        self._set_schema(questions.schema)
        self.n_samples_fit_ = len(questions.features)
        return tree.apply(questions.features)

    def _set_schema(self, schema: Schema) -> None:
        self.schema_ = schema
        self.feature_names_in_ = np.asarray(schema.columns, dtype=object)
        self.n_features_in_ = len(schema.columns)

    @property
    def _schema(self) -> Schema:
        return self.schema_

    @property
    def certified_(self) -> bool:
        """True if it is proved that no tree within the budget has a smaller `objective_`."""
        check_is_fitted(self, "tree_")
        return self.gap_ == 0.0

    # ------------------------------------------------------------------ predict

    def apply(self, X: object) -> IntArray:
        """Return the leaf of each row, 0 .. L - 1, shape (n,); for a survival tree the group, 1 .. L.

        Groups are numbered by prognosis: 1 has the longest (event-free) survival. A missing value goes to the
        "no" side of every split except "is missing".

        Raises:
            DataError: a training column is missing, or holds the wrong kind of value.
        """
        return self._leaf(X)

    def _leaf(self, X: object) -> IntArray:
        """Position of the leaf of each row, 0 .. L - 1, (n,); a DataWarning names unknown categories."""
        check_is_fitted(self, "tree_")
        frame = self._cleaned(X)
        columns = sorted({self.rules_[j].column for j in self._asked})
        if self._settings.binarize is None:
            check_binary_columns(frame, columns)
        with wording(rows=X):
            for name in columns:
                if name in self.schema_.categories:
                    _warn_of_unknown(frame[name], self.schema_.categories[name])
        return self._leaves(frame)

    def _leaves(self, frame: pd.DataFrame) -> IntArray:
        """Leaf of each row that was read, (n,)."""
        return self.tree_.apply(answers(self.rules_, frame, self._asked))

    @property
    def _asked(self) -> set[int]:
        """Questions that the tree asks."""
        return {int(j) for j in self.tree_.feature if j >= 0}

    # ------------------------------------------------------------------ read

    def _export_text(self, n_terms: int | None = None) -> str:
        check_is_fitted(self, "tree_")
        return self.tree_.text(self._leaf_texts())

    def _export_graphviz(self, n_terms: int | None = None) -> str:
        check_is_fitted(self, "tree_")
        return self.tree_.graph(self._leaf_texts())

    def _fitted_html(self) -> str:
        return f"<pre>{escape(self._export_text())}</pre>" if hasattr(self, "tree_") else ""

    @abstractmethod
    def _leaf_texts(self) -> list[str]:
        """A line on each leaf."""

    def _summary(
        self,
        kind: str,
        counts: str,
        loss: str,
        table: pd.DataFrame,
        number: Callable[[float], str],
        *notes: str,
        heading: str = "Leaves",
    ) -> str:
        """The search and its result, the tree, and a table of the leaves, as text.

        `kind` is that of the tree, `counts` are those of rows and of what they hold, `loss` is its name up to
        its value, and `notes` are more lines on the result.
        """
        tree, settings = self.tree_, self._settings
        budget = f"depth {settings.max_depth}"
        if settings.max_nodes is not None:
            budget += f" and {counted(settings.max_nodes, 'node')}"
        if settings.leaf_penalty:
            budget += f", {settings.leaf_penalty:g} per leaf"
        proof = "optimal" if self.certified_ else f"at most {self.gap_:.4g} above the optimum"
        lines = [
            f"Exact {kind} tree: depth {tree.depth}, {tree.n_leaves} lea{'ves' if tree.n_leaves > 1 else 'f'}"
            f", {counts}",
            f"{loss} loss {self.loss_:.6g}, {proof} for {budget} over {len(self.rules_)} questions",
            *notes,
            self._export_text(),
            "",
            heading,
            table.reset_index().to_string(index=False, float_format=number),
        ]
        return "\n".join(lines)

    # ------------------------------------------------------------------ keep

    def save(self, path: str | Path) -> None:
        """Write the fitted tree to a folder: ``model.json`` and ``tensors.safetensors``, without pickle.

        For a search it is the chosen tree; load it by :meth:`OptimalSurvivalTree.load`.

        Raises:
            ConfigError: the folder cannot be written.
        """
        check_is_fitted(self, "tree_")
        left_out = {"_settings", *self._not_saved, *self._get_param_names()}
        fitted = {name: value for name, value in vars(self).items() if name not in left_out}
        parameters = self.get_params(deep=False) | _parameters(self._settings)
        state = {"parameters": parameters, "fitted": fitted}
        write_folder(Path(path), self._format, FORMAT_VERSION, state, {})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a tree written by :meth:`save`, which can be fitted again with its saved parameters.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
        """
        folder = Path(path)
        state, _ = read_folder(folder, cls._format, FORMAT_VERSION)
        with reading(folder):
            parameters = {**state["parameters"]}
            if isinstance(parameters["binarize"], dict):
                parameters["binarize"] = Binarizer(**parameters["binarize"])
            tree = restored(cls, parameters)
            tree._settings = tree._check()
            tree.__dict__.update(state["fitted"])
        return tree


class ArrayLeaves(ExactTree):
    """Base class of exact trees with arrays that have one row per leaf; not for direct use."""

    leaf_rows_: IntArray

    def _set(
        self, questions: Questions, solution: Solution | FrontChoice, tree: BinaryTree | None = None
    ) -> IntArray:
        leaf = super()._set(questions, solution, tree)
        self.leaf_rows_ = np.bincount(leaf, minlength=self.tree_.n_leaves)
        return leaf


def _warn_of_unknown(column: pd.Series, known: tuple[str, ...]) -> None:
    unknown: list[Any] = sorted({label for label in labels(column) if label is not None} - set(known))
    if unknown:
        warnings.warn(
            f"column {str(column.name)!r} has the unknown category {names_text(unknown)}: splits on known "
            f"categories are false for it; known are {names_text(known)}",
            DataWarning,
            stacklevel=4,
        )


def _parameters(settings: SearchSettings) -> dict[str, Any]:
    """The settings as the constructor's arguments, a binarizer by its preset or its own parameters."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    binarizer: Binarizer | None = settings.binarize
    if binarizer is None:
        return {**values, "binarize": False}
    parameters = binarizer.get_params()
    is_preset = parameters == Binarizer(parameters["preset"]).get_params()
    return {**values, "binarize": parameters["preset"] if is_preset else parameters}
