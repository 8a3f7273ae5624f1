"""The common part of exact estimators: parameters, questions, search, leaves, texts, files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import FrameEstimator, Parameters, restored
from sstorch.checks import check_integer, counted, names_text
from sstorch.data import Schema
from sstorch.data.columns import labels
from sstorch.deploy.calculator import PageNode
from sstorch.exact.binarize import Binarizer, Preset, Rule
from sstorch.exact.solution import Solution
from sstorch.exact.solve import solve
from sstorch.exact.task import Task
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, warn
from sstorch.files import read_folder, reading, write_folder

FORMAT_VERSION = 12


@dataclass(repr=False)
class Search(Parameters):
    """Settings of exact search. They do not change the optimal tree, only the result of an incomplete search.

    Attributes:
        time_limit: seconds of each search, or None. If they do not suffice, the best tree found is kept, with
            its `gap_`.
        memory: bytes that the search may take.
        n_buckets: of integrated Brier scores: None for all observed times, or a number of buckets of equal
            width that times are put in for the search (not for the curves).
    """

    time_limit: float | None = None
    memory: int = 4 * 2**30
    n_buckets: int | None = None


SEARCH = Search()


class Questions(NamedTuple):
    """The questions that a tree may ask about raw columns, and their answers in the training rows (N, F)."""

    schema: Schema
    rules: list[Rule]
    features: pd.DataFrame


def answers(rules: Sequence[Rule], frame: pd.DataFrame, used: set[int] | None = None) -> BoolArray:
    """Answers of the rules on cleaned columns, (n, F); False for rules that are not in ``used``."""
    out = np.zeros((len(frame), len(rules)), dtype=np.bool_)
    for j, rule in enumerate(rules):
        if used is None or j in used:
            out[:, j] = rule(frame[rule.column])
    return out


class ExactTree(FrameEstimator):
    """Base class of exact trees; a subclass names its file format, and what of a fit is not saved."""

    _format: ClassVar[str]
    _not_saved: ClassVar[tuple[str, ...]] = ()

    tree_: BinaryTree
    rules_: list[Rule]
    loss_: float
    objective_: float
    gap_: float
    optima_: pd.DataFrame
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
        binarize: Preset | Binarizer = "surtree",
        search: Search = SEARCH,
    ) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.leaf_penalty = leaf_penalty
        self.min_leaf = min_leaf
        self.binarize = binarize
        self.search = search

    def _checked(self) -> Self:
        """A copy with the parameters checked, apart from those that the search checks."""
        settings = type(self)(**self.get_params(deep=False))
        settings._check()
        return settings

    def _check(self) -> None:
        """Raises ConfigError: a parameter is out of range."""
        if not isinstance(self.search, Search):
            raise ConfigError(f"search must be Search(...), got {self.search!r}")
        check_integer("memory", self.search.memory, 1)
        if self.search.n_buckets is not None and getattr(self, "objective", None) != "integrated_brier":
            raise ConfigError("n_buckets is for objective='integrated_brier'; leave it None")
        if not isinstance(self.binarize, Binarizer) and self.binarize not in get_args(Preset):
            raise ConfigError(
                f"binarize must be one of {', '.join(get_args(Preset))} or a Binarizer, got {self.binarize!r}"
            )

    def _questions(
        self, frame: pd.DataFrame, weight: FloatArray | None = None, priced: bool = False
    ) -> Questions:
        """Questions about cleaned columns, of these rows alone; `priced` ones with equal answers are kept."""
        preset = self.binarize
        binarizer: Binarizer = clone(preset) if isinstance(preset, Binarizer) else Binarizer(preset)
        if priced:
            binarizer.set_params(merge_columns=False)
        rules = binarizer.fit(frame, sample_weight=weight).rules_
        names = [rule.name for rule in rules]
        return Questions(Schema.of(frame), rules, pd.DataFrame(answers(rules, frame), columns=names))

    def _solve(self, questions: Questions, task: Task, **more: Any) -> Solution:
        """Search by the parameters; `more` are further arguments of `solve`."""
        return solve(
            questions.features,
            task,
            self.max_depth,
            self.max_nodes,
            leaf_penalty=self.leaf_penalty,
            min_leaf=self.min_leaf,
            time_limit=self.search.time_limit,
            memory=self.search.memory,
            **more,
        )

    def _set(self, settings: Self, questions: Questions, tree: BinaryTree) -> IntArray:
        """Take over a tree of a search with checked parameters; the leaf of each training row, (N,)."""
        self._settings, self.tree_ = settings, tree
        self.schema_, self.rules_ = questions.schema, questions.rules
        self.feature_names_in_ = np.asarray(self.schema_.columns, dtype=object)
        self.n_features_in_, self.n_samples_fit_ = len(self.schema_.columns), len(questions.features)
        return tree.apply(questions.features)

    def _set_solution(self, settings: Self, questions: Questions, solution: Solution) -> IntArray:
        """Take over the tree that the parameters ask for, with its loss; see `_set`."""
        self.loss_, self.objective_, self.gap_ = solution.loss, solution.objective, solution.gap
        self.optima_ = solution.table()
        return self._set(settings, questions, solution.tree())

    @property
    def _schema(self) -> Schema:
        return self.schema_

    @property
    def certified_(self) -> bool:
        """True if it is proved that no tree within the budget has a smaller `objective_`."""
        check_is_fitted(self, "tree_")
        return self.gap_ == 0.0

    # ------------------------------------------------------------------ leaves

    def apply(self, X: object) -> IntArray:
        """Return the leaf of each row, 0 .. L - 1, (n,); missing values go to "no", but for "is missing".

        Raises:
            DataError: a training column is missing, or holds the wrong kind of value.
        """
        return self._leaf(X)

    def _leaf(self, X: object) -> IntArray:
        """Position of the leaf of each row, 0 .. L - 1, (n,); a DataWarning names unknown categories."""
        check_is_fitted(self, "tree_")
        frame = self._cleaned(X)
        for name in sorted({self.rules_[j].column for j in self.tree_.feature if j >= 0}):
            known = self.schema_.categories.get(name, ())
            unknown: set[Any] = set(labels(frame[name])) - {None, *known} if known else set()
            if unknown:
                warn(
                    f"column {name!r} has the unknown category {names_text(sorted(unknown))}: splits on "
                    f"known categories are false for it; known are {names_text(known)}"
                )
        return self._leaves(frame)

    def _leaves(self, frame: pd.DataFrame) -> IntArray:
        """Leaf of each row that was read, (n,)."""
        return self.tree_.apply(answers(self.rules_, frame, {int(j) for j in self.tree_.feature if j >= 0}))

    # ------------------------------------------------------------------ texts

    def _export_text(self, n_terms: int | None = None) -> str:
        check_is_fitted(self, "tree_")
        return self.tree_._export_text(leaf_texts=self._leaf_texts())

    def _page_nodes(self) -> list[PageNode]:
        tree, texts = self.tree_, {0: ""}
        for node, feature in enumerate(tree.feature):
            if feature >= 0:
                rule = tree.names[int(feature)]
                texts[int(tree.present[node])] = rule
                texts[int(tree.absent[node])] = f"not ({rule})"
        return [
            PageNode(texts[node], (int(tree.present[node]), int(tree.absent[node])))
            if leaf < 0
            else PageNode(texts[node], (), leaf + 1)
            for node, leaf in enumerate(tree.leaf_number.tolist())
        ]

    def _fitted_html(self) -> str:
        return f"<pre>{escape(self._export_text())}</pre>" if hasattr(self, "tree_") else ""

    @abstractmethod
    def _leaf_texts(self) -> list[str]:
        """A line on each leaf."""

    def _summary(
        self, texts: Sequence[str], table: pd.DataFrame, number: Callable[[float], str], heading: str
    ) -> str:
        """Search, tree and table of leaves; `texts`: kind, counts, name of the loss, more lines."""
        kind, counts, loss, *notes = texts
        tree, settings = self.tree_, self._settings
        budget = f"depth {settings.max_depth}"
        if settings.max_nodes is not None:
            budget += f" and {counted(settings.max_nodes, 'node')}"
        if settings.leaf_penalty:
            budget += f", {settings.leaf_penalty:g} per leaf"
        leaves = f"{tree.n_leaves} lea{'ves' if tree.n_leaves > 1 else 'f'}"
        proof = "optimal" if self.certified_ else f"at most {self.gap_:.4g} above the optimum"
        lines = [
            f"Exact {kind} tree: depth {tree.depth}, {leaves}, {counts}",
            f"{loss} loss {self.loss_:.6g}, {proof} for {budget} over {len(self.rules_)} questions",
            *notes,
            f"{self._export_text()}\n\n{heading}",
            table.reset_index().to_string(index=False, float_format=number),
        ]
        return "\n".join(lines)

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the fitted tree to a folder: ``model.json`` and ``tensors.safetensors``, without pickle.

        For a search it is the chosen tree; load it by :meth:`OptimalSurvivalTree.load`.

        Raises:
            ConfigError: the folder cannot be written.
        """
        check_is_fitted(self, "tree_")
        left_out = {"_settings", *self._not_saved, *self._get_param_names()}
        fitted = {name: value for name, value in vars(self).items() if name not in left_out}
        parameters = {name: value for name, value in vars(self._settings).items() if not callable(value)}
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
            tree = restored(cls, state["parameters"])
            tree._settings = tree._checked()
            tree.__dict__.update(state["fitted"])
        return tree
