"""The common part of exact estimators: prediction, reading, saving."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray, IntArray
from sstorch.base import FrameEstimator
from sstorch.checks import check_integer, counted, names_text, wording
from sstorch.data import Schema
from sstorch.data.columns import labels
from sstorch.deploy.calculator import PageNode
from sstorch.exact.binarize import Binarizer, Preset, Rule
from sstorch.exact.estimators.search import (
    SEARCH,
    Questions,
    Search,
    answers,
    binarizer_of,
    check_binary_columns,
    finite,
)
from sstorch.exact.formula import page_nodes
from sstorch.exact.solution import Solution
from sstorch.exact.solve import solve
from sstorch.exact.task import Task
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.files import read_folder, reading, write_folder
from sstorch.parameters import restored

FORMAT_VERSION = 9


class ExactTree(FrameEstimator):
    """Base class of exact trees for all objectives; not for direct use.

    A subclass names its file format, its kind and loss in texts, and what of a fit is not written to files.
    """

    _format: ClassVar[str]
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
    _settings: Self  # the parameters of the fit, checked

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

    def _checked(self) -> Self:
        """A copy with the parameters checked and brought to plain types.

        Raises:
            ConfigError: a value does not exist or is out of range; the message gives the values allowed.
        """
        settings = type(self)(**self.get_params(deep=False))
        settings._check()
        return settings

    def _check(self) -> None:
        """Check the parameters and bring them to plain types; see `_checked`."""
        if not isinstance(self.search, Search):
            raise ConfigError(f"search must be Search(...), got {self.search!r}")
        self.search = self.search.checked()
        if self.search.n_buckets is not None and getattr(self, "objective", None) != "integrated_brier":
            raise ConfigError("n_buckets is for objective='integrated_brier'; leave it None")
        self.max_depth = check_integer("max_depth", self.max_depth, 0)
        if self.max_nodes is not None:
            self.max_nodes = check_integer("max_nodes", self.max_nodes, 0)
        self.leaf_penalty = finite("leaf_penalty", self.leaf_penalty, "a finite number >= 0", zero=True)
        self.min_leaf = check_integer("min_leaf", self.min_leaf, 1)
        self.binarize = binarizer_of(self.binarize)

    def _questions(
        self, frame: pd.DataFrame, target: object, weight: FloatArray | None = None, priced: bool = False
    ) -> Questions:
        """Questions about cleaned columns, see `Questions.of`."""
        return Questions.of(self.binarize, frame, target, weight, priced)

    def _solve(
        self, questions: Questions, task: Task, min_events: int = 0, guess: FloatArray | None = None
    ) -> Solution:
        """Search for the trees of all budgets up to that of the checked parameters, or for one by a guess.

        Raises:
            DataError: no leaf could be large enough.
            ConfigError: too many questions for the depth.
        """
        return solve(
            questions.features,
            task,
            self.max_depth,
            self.max_nodes,
            leaf_penalty=self.leaf_penalty,
            min_leaf=self.min_leaf,
            min_events=min_events,
            time_limit=self.search.time_limit,
            memory=self.search.memory,
            verbose=self.search.verbose,
            guess=guess,
        )

    def _set(self, settings: Self, questions: Questions, tree: BinaryTree) -> IntArray:
        """Take over a tree of a search with checked parameters; the leaf of each training row, (N,)."""
        self._settings, self.tree_, self.rules_ = settings, tree, questions.rules
        self._set_schema(questions.schema)
        self.n_samples_fit_ = len(questions.features)
        return tree.apply(questions.features)

    def _set_solution(self, settings: Self, questions: Questions, solution: Solution) -> IntArray:
        """Take over the tree that the parameters ask for, with its loss; see `_set`."""
        tree = solution.tree()
        self.loss_, self.objective_, self.gap_ = solution.loss, solution.objective, solution.gap
        self.optima_, self.path_ = solution.table(), pd.DataFrame(solution.path())
        return self._set(settings, questions, tree)

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
        if self._settings.binarize is False:
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

    def _page_nodes(self) -> list[PageNode]:
        return page_nodes(self.tree_, self.rules_)

    def _fitted_html(self) -> str:
        return f"<pre>{escape(self._export_text())}</pre>" if hasattr(self, "tree_") else ""

    @abstractmethod
    def _leaf_texts(self) -> list[str]:
        """A line on each leaf."""

    def _summary(
        self, texts: Sequence[str], table: pd.DataFrame, number: Callable[[float], str], heading: str
    ) -> str:
        """The search and its result, the tree, and a table of the leaves, as text.

        `texts` are the kind of the tree, counts of its rows, the name of the loss up to its value, and more
        lines on the result.
        """
        kind, counts, loss, *notes = texts
        tree, settings = self.tree_, self._settings
        budget = f"depth {settings.max_depth}"
        if settings.max_nodes is not None:
            budget += f" and {counted(settings.max_nodes, 'node')}"
        if settings.leaf_penalty:
            budget += f", {settings.leaf_penalty:g} per leaf"
        lines = [
            f"Exact {kind} tree: depth {tree.depth}, {tree.n_leaves} lea{'ves' if tree.n_leaves > 1 else 'f'}"
            f", {counts}",
            f"{loss} loss {self.loss_:.6g}, {self._proof} for {budget} over {len(self.rules_)} questions",
            *notes,
            self._export_text(),
            "",
            heading,
            table.reset_index().to_string(index=False, float_format=number),
        ]
        return "\n".join(lines)

    @property
    def _proof(self) -> str:
        return "optimal" if self.certified_ else f"at most {self.gap_:.4g} above the optimum"

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
        parameters = vars(self._settings).copy()
        binarizer: Any = parameters["binarize"]
        if binarizer is not False:  # a preset, or the binarizer's own parameters
            own = binarizer.get_params()
            is_preset = own == Binarizer(binarizer.preset).get_params()
            parameters["binarize"] = binarizer.preset if is_preset else own
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
            tree._settings = tree._checked()
            tree.__dict__.update(state["fitted"])
        return tree


class ArrayLeaves(ExactTree):
    """Base class of exact trees with arrays that have one row per leaf; not for direct use."""

    _digits: ClassVar[str] = "{:.5g}"

    leaf_rows_: IntArray

    def _set(self, settings: Self, questions: Questions, tree: BinaryTree) -> IntArray:
        leaf = super()._set(settings, questions, tree)
        self.leaf_rows_ = np.bincount(leaf, minlength=self.tree_.n_leaves)
        return leaf

    @abstractmethod
    def _leaf_values(self) -> tuple[dict[str, Any], list[str]]:
        """Columns of `leaf_table_`, and a text on each leaf."""

    @property
    @abstractmethod
    def _summary_texts(self) -> list[str]:
        """See `_summary`."""

    @property
    def leaf_table_(self) -> pd.DataFrame:
        """Training rows of each leaf and what it holds."""
        check_is_fitted(self, "tree_")
        index = pd.RangeIndex(len(self.leaf_rows_), name="leaf")
        return pd.DataFrame({"rows": self.leaf_rows_, **self._leaf_values()[0]}, index=index)

    def _leaf_texts(self) -> list[str]:
        texts = zip(self._leaf_values()[1], self.leaf_rows_.tolist(), strict=True)
        return [f"leaf {number}: {text} of {counted(n, 'row')}" for number, (text, n) in enumerate(texts)]

    def summary(self) -> str:
        """The search and its result, the tree, and a table of the leaves, as text."""
        check_is_fitted(self, "tree_")
        return self._summary(self._summary_texts, self.leaf_table_, self._digits.format, "Leaves")


def _warn_of_unknown(column: pd.Series, known: tuple[str, ...]) -> None:
    unknown: list[Any] = sorted({label for label in labels(column) if label is not None} - set(known))
    if unknown:
        warnings.warn(
            f"column {str(column.name)!r} has the unknown category {names_text(unknown)}: splits on known "
            f"categories are false for it; known are {names_text(known)}",
            DataWarning,
            stacklevel=4,
        )
