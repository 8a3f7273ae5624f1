"""Exact trees whose leaves hold a value: the common part, regression, and policies."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_columns_exist, check_same_order, check_weight, counted
from sstorch.data.columns import check_not_all_missing, clean_features
from sstorch.data.survival_data import Groups, parse_groups
from sstorch.exact.estimators.base import ExactTree, Questions
from sstorch.exact.rows import finite_matrix, finite_vector
from sstorch.exact.tasks import DecisionCosts, LeastSquares
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import DataError


@dataclass(frozen=True)
class TargetRows:
    """Training rows of positive weight that passed all checks."""

    frame: pd.DataFrame  # (n, p), cleaned
    target: npt.NDArray[Any]  # (n,) or (n, K)
    weight: FloatArray  # (n,)
    groups: Groups | None

    @classmethod
    def check(
        cls,
        X: object,
        y: object,
        target: npt.NDArray[Any],
        sample_weight: object = None,
        sensitive: object = None,
    ) -> Self:
        """Checked features, `y`, `target`, weights, groups (DataError); a named group column is dropped."""
        frame, groups = clean_features(X), None
        n = len(frame)
        if len(target) != n:
            raise DataError(f"X has {n} rows but y has {len(target)}; give one target for every row")
        if n < 2:
            raise DataError(f"at least two rows are needed, the data have n_samples = {n}")
        named = sensitive if isinstance(sensitive, str) else None
        check_same_order(X=X, y=y, sample_weight=sample_weight, sensitive=None if named else sensitive)
        check_not_all_missing(frame)
        given = check_weight(sample_weight, n)
        weight = np.ones(n) if given is None else given
        kept = weight > 0.0
        rows, frame = np.flatnonzero(kept), frame[kept].reset_index(drop=True)
        if named is not None:
            check_columns_exist((named,), list(frame.columns))
            groups, frame = parse_groups(frame[named], len(frame), named), frame.drop(columns=named)
            if not len(frame.columns):
                raise DataError(f"no feature column is left apart from the sensitive column {named!r}")
        elif sensitive is not None:
            groups = parse_groups(sensitive, n).subset(rows)
        return cls(frame, target[kept], weight[kept], groups)


def check_given(y: object) -> None:
    """Raises DataError: there is no target."""
    if y is None:
        raise DataError("this estimator requires y to be passed, but the target y is None")


class ValueTree(ExactTree):
    """Base class of exact trees with arrays that have one row per leaf."""

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


class OptimalTreeRegressor(RegressorMixin, ValueTree):  # type: ignore[misc]
    """Regression tree with the smallest mean squared error of all trees of its size with binary splits.

    Args:
        leaf_penalty: loss that each leaf costs, >= 0: `ccp_alpha` of scikit-learn's trees.
        max_depth, max_nodes, min_leaf, binarize, search: as for :class:`OptimalSurvivalTree`.

    Attributes:
        loss_: weighted mean squared error of the training rows.
        leaf_value_: weighted mean of each leaf, (L,).

    All other attributes are as in :class:`OptimalTreeClassifier`.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> tree = OptimalTreeRegressor(max_depth=2, min_leaf=10).fit(X, y)
    >>> tree.certified_, round(tree.loss_, 1), round(tree.score(X, y), 3)
    (True, 3454.2, 0.417)
    """

    _format = "sstorch.optimal_tree_regressor"

    leaf_value_: FloatArray

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Search for the tree; columns and errors as in :meth:`OptimalTreeClassifier.fit`.

        Args:
            X: DataFrame or array (n, p).
            y: numbers, (n,).
            sample_weight: (n,), >= 0; rows of weight 0 are excluded.
        """
        settings = self._checked()
        check_given(y)
        try:
            column = column_or_1d(y, warn=True)
        except ValueError as error:
            raise DataError(f"y: {error}") from error
        rows = TargetRows.check(X, y, finite_vector(column, "y"), sample_weight)
        task = LeastSquares(rows.target, sample_weight=rows.weight)
        questions = settings._questions(rows.frame, rows.weight)
        leaf = self._set_solution(settings, questions, settings._solve(questions, task))
        self.leaf_value_ = task.decisions(leaf, self.tree_.n_leaves)
        return self

    def predict(self, X: object) -> FloatArray:
        """Predict the mean of the training rows in the leaf of each row, (n,)."""
        leaf = self._leaf(X)
        return self.leaf_value_[leaf]

    def _leaf_values(self) -> tuple[dict[str, Any], list[str]]:
        return {"mean": self.leaf_value_}, [f"mean {mean:.5g}" for mean in self.leaf_value_]

    @property
    def _summary_texts(self) -> list[str]:
        return ["regression", f"{self.n_samples_fit_} rows", "mean squared error,"]


class OptimalPolicyTree(ValueTree):
    """Tree that assigns treatments: the largest mean score of all trees of its size with binary splits.

    A score estimates the outcome of a row under a treatment. `sstorch.exact.policy_scores` computes scores
    from observed outcomes; survival models predict them as probabilities at a horizon or restricted means
    under each treatment. The value on the training rows is optimistic: use :meth:`score` on other rows.

    Args:
        leaf_penalty: minimum gain in mean score per leaf, >= 0.
        max_depth, max_nodes, min_leaf, binarize, search: as for :class:`OptimalSurvivalTree`.

    Attributes:
        treatments_: (K,), names of the columns of the scores, or 0 .. K - 1.
        loss_: minus the mean score of the training rows under their treatments.
        leaf_treatment_: position in `treatments_` of each leaf's treatment, (L,).
        leaf_value_: mean score of each leaf under every treatment, (L, K).

    All other attributes are as in :class:`OptimalTreeClassifier`.

    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": [40.0, 45.0, 50.0, 60.0, 65.0, 70.0]})
    >>> scores = pd.DataFrame({"drug": [3.0, 2.0, 2.5, 0.5, 0.0, 0.5], "none": [1.0] * 6})
    >>> tree = OptimalPolicyTree(max_depth=1).fit(X, scores)
    >>> tree.predict(X).tolist(), tree.score(X, scores)
    (['drug', 'drug', 'drug', 'none', 'none', 'none'], 1.75)
    """

    _format = "sstorch.optimal_policy_tree"

    treatments_: npt.NDArray[Any]
    leaf_treatment_: IntArray
    leaf_value_: FloatArray

    def fit(self, X: object, y: object) -> Self:
        """Search for the tree; columns and errors as in :meth:`OptimalTreeClassifier.fit`.

        Args:
            X: DataFrame or array (n, p).
            y: score of each row under each treatment, higher is better, (n, K), array or DataFrame.
        """
        settings = self._checked()
        rows = TargetRows.check(X, y, _scores(y))
        task, questions = DecisionCosts(-rows.target), settings._questions(rows.frame)
        leaf = self._set_solution(settings, questions, settings._solve(questions, task))
        names = y.columns.tolist() if isinstance(y, pd.DataFrame) else list(range(rows.target.shape[1]))
        self.treatments_ = np.array(names)
        self.leaf_treatment_ = task.decisions(leaf, self.tree_.n_leaves)
        self.leaf_value_ = -task.leaf_costs(leaf, self.tree_.n_leaves) / self.leaf_rows_[:, None]
        return self

    def predict(self, X: object) -> npt.NDArray[Any]:
        """Predict the treatment of each row, (n,)."""
        leaf = self._leaf(X)
        return self.treatments_[self.leaf_treatment_[leaf]]

    def score(self, X: object, y: object) -> float:
        """Compute the mean score of rows under the treatments assigned by the tree; higher is better.

        Args:
            X: rows with the training columns.
            y: scores of the rows under each treatment, (n, K), in the order of `treatments_`, or a DataFrame
                with these columns.

        Raises:
            DataError: the data are invalid.
        """
        leaf, names = self._leaf(X), self.treatments_.tolist()
        if isinstance(y, pd.DataFrame):
            check_same_order(X=X, y=y)
            check_columns_exist(names, list(y.columns))
            y = y[names] if len(y.columns) == len(names) else y  # others are an error below
        scores = _scores(y)
        if scores.shape != (len(leaf), len(names)):
            raise DataError(f"y must have the shape {(len(leaf), len(names))}, got {scores.shape}")
        return float(scores[np.arange(len(leaf)), self.leaf_treatment_[leaf]].mean())

    def _leaf_values(self) -> tuple[dict[str, Any], list[str]]:
        given = self.treatments_[self.leaf_treatment_]
        values = zip(self.treatments_.tolist(), self.leaf_value_.T, strict=True)
        own = self.leaf_value_[np.arange(len(given)), self.leaf_treatment_]
        texts = [f"{name}, value {mean:.4g}" for name, mean in zip(given.tolist(), own, strict=True)]
        return {"treatment": given, **{f"value of {name}": mean for name, mean in values}}, texts

    @property
    def _summary_texts(self) -> list[str]:
        counts = f"{self.n_samples_fit_} rows, {len(self.treatments_)} treatments"
        return ["policy", counts, "minus mean score,"]


def _scores(y: object) -> FloatArray:
    """Scores, (n, K). Raises DataError: no matrix of finite numbers."""
    check_given(y)
    return finite_matrix(y, "y, the scores of treatments")
