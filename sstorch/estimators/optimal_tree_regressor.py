"""Exact regression trees."""

from __future__ import annotations

from typing import Self

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sstorch.estimators.exact_base import IntArray
from sstorch.estimators.leaf_persistence import ArrayLeaves
from sstorch.estimators.target_rows import FloatArray, TargetRows, number_target
from sstorch.optimal import Binarizer, LeastSquares
from sstorch.optimal.binarize import Preset


class OptimalTreeRegressor(RegressorMixin, ArrayLeaves):  # type: ignore[misc]
    """Regression tree of least mean squared error among all trees of its size, over yes-no questions.

    "Optimal" is meant as in :class:`OptimalTreeClassifier`: for these rows and these questions.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 5.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        leaf_penalty: loss that each leaf costs, >= 0: `ccp_alpha` of scikit-learn's trees.
        min_leaf: least number of training rows of a leaf.
        binarize: as for :class:`OptimalTreeClassifier`.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        time_limit: seconds, or None. Where they do not suffice, the best tree found is kept, with `gap_`.
        memory: bytes that the search may take.

    Attributes:
        tree_: :class:`~sstorch.optimal.BinaryTree` over the questions.
        rules_: the questions, as :class:`~sstorch.optimal.Rule`.
        loss_: weighted mean squared error of the training rows.
        objective_: `loss_` and `leaf_penalty` for each leaf.
        certified_: whether it is proved that no tree within the budget has a smaller `objective_`.
        gap_: the most by which `objective_` can exceed the smallest one; 0 if certified.
        leaf_value_: weighted mean of each leaf, (L,).
        leaf_deviation_: weighted standard deviation within each leaf, (L,).
        leaf_rows_: training rows of each leaf, (L,).
        optima_: least loss for every budget (depth, nodes) from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        feature_names_in_: raw feature names.
        n_features_in_: their number.
        n_samples_fit_: number of training rows with weight.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> tree = OptimalTreeRegressor(max_depth=2, min_leaf=10).fit(X, y)
    >>> tree.certified_, round(tree.loss_, 1), round(tree.score(X, y), 3)
    (True, 3454.2, 0.417)
    """

    _format = "sstorch.optimal_tree_regressor"
    _arrays = ("leaf_rows_", "leaf_value_", "leaf_deviation_")

    leaf_value_: FloatArray
    leaf_deviation_: FloatArray
    leaf_rows_: IntArray

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        device: str = "cpu",
        time_limit: float | None = None,
        memory: int = 4 * 2**30,
    ) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.leaf_penalty = leaf_penalty
        self.min_leaf = min_leaf
        self.binarize = binarize
        self.device = device
        self.time_limit = time_limit
        self.memory = memory

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Search for the tree.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: numbers, (n,).
            sample_weight: (n,), >= 0; rows of weight 0 are left out.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist, or there are too many questions for the
                depth: the message estimates memory and time.
        """
        settings = self._check()
        rows = TargetRows.check(X, y, number_target(y), sample_weight)
        task = LeastSquares(rows.target, sample_weight=rows.weight)
        search = settings.search_frame(rows.frame, lambda _: task, rows.target)
        tree = search.solution.tree()
        self._adopt_search(search)
        self._adopt_tree(search, tree)
        leaf, n_leaves = tree.apply(search.features), tree.n_leaves
        self.leaf_rows_ = np.bincount(leaf, minlength=n_leaves)
        self.leaf_value_ = task.decisions(leaf, n_leaves)
        weight = np.bincount(leaf, rows.weight, minlength=n_leaves)
        squares = np.bincount(leaf, rows.weight * (rows.target - self.leaf_value_[leaf]) ** 2, n_leaves)
        self.leaf_deviation_ = np.sqrt(squares / weight)
        return self

    def predict(self, X: object) -> FloatArray:
        """Mean of the training rows in the leaf of each row, (n,)."""
        leaf = self.apply(X)
        return self.leaf_value_[leaf]

    @property
    def leaf_table_(self) -> pd.DataFrame:
        """Training rows, mean and standard deviation, by leaf."""
        check_is_fitted(self, "tree_")
        return pd.DataFrame(
            {"rows": self.leaf_rows_, "mean": self.leaf_value_, "deviation": self.leaf_deviation_},
            index=pd.RangeIndex(len(self.leaf_rows_), name="leaf"),
        )

    def leaf_texts(self) -> list[str]:
        """A line on each leaf: its number, mean and rows."""
        table = self.leaf_table_
        return [
            f"leaf {number}: {mean:.5g}, {rows} row{'s' * (rows != 1)}"
            for number, mean, rows in zip(table.index, table["mean"], table["rows"], strict=True)
        ]

    def summary(self) -> str:
        """What was searched and found, the tree, and a table of the leaves, as text."""
        check_is_fitted(self, "tree_")
        lines = [
            f"Exact regression tree: {self._shape_text()}, {self.n_samples_fit_} rows",
            f"mean squared error, {self._proof_text()}",
            self.export_text(),
            "",
            "Leaves",
            self.leaf_table_.reset_index().to_string(index=False, float_format="{:.5g}".format),
        ]
        return "\n".join(lines)
