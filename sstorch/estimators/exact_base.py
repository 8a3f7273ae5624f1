"""What all exact trees share: the tree, its questions, how rows find their leaf, what there is to read."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sstorch.data import Schema
from sstorch.data.columns import labels
from sstorch.data.wording import names_text
from sstorch.estimators.base import FrameEstimator
from sstorch.estimators.tree_search import SearchSettings, TreeSearch, answers, check_binary_columns
from sstorch.exceptions import DataWarning
from sstorch.optimal import BinaryTree, Rule

IntArray = npt.NDArray[np.int64]


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

    def _adopt_search(self, search: TreeSearch) -> None:
        """Take what a search found for the budget that it was asked for, but the tree."""
        solution = search.solution
        self.loss_, self.objective_, self.gap_ = solution.loss, solution.objective, solution.gap
        self.optima_ = solution.table()
        self.path_ = pd.DataFrame(solution.path())

    def _adopt_tree(self, search: TreeSearch, tree: BinaryTree) -> None:
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
