"""Exact trees whose leaves hold a value: regression and policies."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import RegressorMixin

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_same_order, names_text
from sstorch.exact.estimators.base import ArrayLeaves
from sstorch.exact.estimators.search import TargetRows, check_given, number_target
from sstorch.exact.policy import Policy
from sstorch.exact.rows import finite_matrix
from sstorch.exact.tasks import LeastSquares
from sstorch.exceptions import DataError


class OptimalTreeRegressor(RegressorMixin, ArrayLeaves):  # type: ignore[misc]
    """Regression tree with the smallest mean squared error of all trees of its size with binary splits.

    The tree is optimal for these rows and these splits, as in :class:`OptimalTreeClassifier`.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 9; above 5 see :func:`~sstorch.exact.solve`.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        leaf_penalty: loss that each leaf costs, >= 0: `ccp_alpha` of scikit-learn's trees.
        min_leaf: least number of training rows of a leaf.
        binarize: as for :class:`OptimalTreeClassifier`, and so is `search`.

    Attributes:
        loss_: weighted mean squared error of the training rows.
        leaf_value_: weighted mean of each leaf, (L,).
        leaf_deviation_: weighted standard deviation within each leaf, (L,).

    `tree_`, `rules_`, `leaf_rows_`, `objective_`, `certified_`, `gap_`, `optima_`, `path_` and the attributes
    of the training data are as in :class:`OptimalTreeClassifier`.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> tree = OptimalTreeRegressor(max_depth=2, min_leaf=10).fit(X, y)
    >>> tree.certified_, round(tree.loss_, 1), round(tree.score(X, y), 3)
    (True, 3454.2, 0.417)
    """

    _format = "sstorch.optimal_tree_regressor"

    leaf_value_: FloatArray
    leaf_deviation_: FloatArray

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Search for the tree; columns and errors as in :meth:`OptimalTreeClassifier.fit`.

        Args:
            X: DataFrame or array (n, p).
            y: numbers, (n,).
            sample_weight: (n,), >= 0; rows of weight 0 are excluded.
        """
        settings = self._checked()
        rows = TargetRows.check(X, y, number_target(y), sample_weight)
        task = LeastSquares(rows.target, sample_weight=rows.weight)
        questions = settings._questions(rows.frame, rows.target, rows.weight)
        leaf = self._set_solution(settings, questions, settings._solve(questions, task))
        n_leaves = self.tree_.n_leaves
        self.leaf_value_ = task.decisions(leaf, n_leaves)
        weight = np.bincount(leaf, rows.weight, minlength=n_leaves)
        squares = np.bincount(leaf, rows.weight * (rows.target - self.leaf_value_[leaf]) ** 2, n_leaves)
        self.leaf_deviation_ = np.sqrt(squares / weight)
        return self

    def predict(self, X: object) -> FloatArray:
        """Predict the mean of the training rows in the leaf of each row, (n,)."""
        leaf = self._leaf(X)
        return self.leaf_value_[leaf]

    def _leaf_values(self) -> tuple[dict[str, Any], list[str]]:
        columns = {"mean": self.leaf_value_, "deviation": self.leaf_deviation_}
        return columns, [f"mean {mean:.5g}" for mean in self.leaf_value_]

    @property
    def _summary_texts(self) -> list[str]:
        return ["regression", f"{self.n_samples_fit_} rows", "mean squared error,"]


class OptimalPolicyTree(ArrayLeaves):
    """Tree that assigns treatments: the largest mean score of all trees of its size with binary splits.

    A score estimates the outcome of a row under a treatment. `sstorch.exact.policy_scores` computes scores
    from observed outcomes (direct, inverse propensity, doubly robust); survival models predict them as
    probabilities at a horizon or restricted means under each treatment. The tree is optimal for these scores,
    rows and splits. Its value on the training rows is optimistic: use :meth:`score` on other rows.

    Args:
        max_depth: maximum number of splits on a path, 0 (one treatment for all) to 5.
        max_nodes: maximum number of splits in the tree, one less than leaves; None is what the depth can
            hold.
        leaf_penalty: minimum gain in mean score per leaf, >= 0.
        min_leaf: least number of training rows of a leaf.
        binarize: as for :class:`OptimalTreeClassifier`, and so is `search`.

    Attributes:
        treatments_: (K,), names of the columns of the scores, or 0 .. K - 1.
        loss_: minus the mean score of the training rows under their treatments.
        leaf_treatment_: position in `treatments_` of each leaf's treatment, (L,).
        leaf_value_: mean score of each leaf under every treatment, (L, K).

    `tree_`, `rules_`, `leaf_rows_`, `objective_`, `certified_`, `gap_`, `optima_`, `path_` and the attributes
    of the training data are as in :class:`OptimalTreeClassifier`.

    >>> import pandas as pd
    >>> from sstorch.reading import export_text
    >>> X = pd.DataFrame({"age": [40.0, 45.0, 50.0, 60.0, 65.0, 70.0]})
    >>> scores = pd.DataFrame({"drug": [3.0, 2.0, 2.5, 0.5, 0.0, 0.5], "none": [1.0] * 6})
    >>> tree = OptimalPolicyTree(max_depth=1).fit(X, scores)
    >>> print(export_text(tree))
    if age > 55:
      leaf 1: none, value 1 of 3 rows
    else:
      leaf 0: drug, value 2.5 of 3 rows
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
        task = Policy(rows.target)
        gain = rows.target - rows.target.mean(axis=1, keepdims=True)
        questions = settings._questions(rows.frame, gain)
        leaf = self._set_solution(settings, questions, settings._solve(questions, task))
        n_leaves, n_treatments = self.tree_.n_leaves, rows.target.shape[1]
        names = y.columns.tolist() if isinstance(y, pd.DataFrame) else list(range(n_treatments))
        self.treatments_ = np.array(names)
        self.leaf_treatment_ = task.decisions(leaf, n_leaves)
        self.leaf_value_ = -task.leaf_costs(leaf, n_leaves) / self.leaf_rows_[:, None]
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
            DataError: the data are invalid, or the columns are in another order.
        """
        leaf = self._leaf(X)
        if isinstance(y, pd.DataFrame):
            check_same_order(X=X, y=y)
            names, given = self.treatments_.tolist(), y.columns.tolist()
            if len(given) != len(names) or set(given) != set(names):
                raise DataError(
                    f"y has the columns {names_text(given)}, the treatments are {names_text(names)}"
                )
            y = y[names]
        scores = _scores(y)
        if scores.shape != (len(leaf), len(self.treatments_)):
            raise DataError(
                f"y has the shape {scores.shape}; give scores of {len(leaf)} rows under "
                f"{len(self.treatments_)} treatments"
            )
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
    return finite_matrix(y, "y, the scores of treatments")  # type: ignore[arg-type]
