"""Exact classification trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_same_order, counted
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.base import ArrayLeaves
from sstorch.exact.estimators.objectives import (
    ClassifierSettings,
    ClassObjective,
    CostMatrix,
    Fairness,
    FrontObjective,
    choose,
    class_target,
    class_task,
)
from sstorch.exact.estimators.search import SEARCH, Search, TargetRows
from sstorch.exact.tasks import Classification


class OptimalTreeClassifier(ClassifierMixin, ArrayLeaves):  # type: ignore[misc]
    """Classification tree with the smallest training loss of all trees of its size with binary splits.

    Columns are converted to binary splits such as "age > 45.5" (`binarize`). An exact search finds the tree
    with the smallest loss on the training rows: optimal for this objective, these rows and these splits.

    For survival at a horizon, fit it to the labels of `sstorch.exact.horizon_labels`: whether the event
    occurred before the horizon, with censoring weights.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 9; above 5 see :func:`~sstorch.exact.solve`.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        objective: ``"misclassification"``, the weighted share of misclassified rows, or their mean cost with
            `cost_matrix`; ``"balanced"``, the same with equal total weight per class. For two classes, with
            the second of `classes_` positive: 1 minus ``"f1"``, ``"mcc"`` or ``"balanced_accuracy"`` (the
            optimum of ``"balanced"``), chosen from the Pareto front of false negatives and false positives,
            depth 0 to 3; 1 minus ``"auc"``, the area under the ROC curve of the leaves, depth 0 to 2.
        leaf_penalty: penalty per leaf, >= 0: λ of GOSDT.
        min_leaf: minimum number of training rows per leaf.
        binarize: splits of the columns: a preset of :class:`~sstorch.exact.Binarizer` (``"surtree"``,
            ``"quantiles"``, ``"all"``, ``"osst"``, ``"boosted"``), a Binarizer, or False for columns of 0 and
            1.
        cost_matrix: cost of each true class (rows) predicted as each class (columns), in the order of
            `classes_`; None counts errors.
        feature_costs: what it costs to learn a column of a row, by name, in the unit of `cost_matrix`;
            columns that are not named are free, and so is a column already asked about on the path. Discounts
            within groups of columns: :class:`~sstorch.exact.CostSensitive`.
        fairness: for two classes, what may differ between two groups only so much:
            ``"demographic_parity"``, the share of rows that get the positive class;
            ``"equal_opportunity"``, that share of the rows which are positive. Depth 0 to 3.
        max_disparity: the largest such difference on the training rows, 0 to 1.
        search: :class:`~sstorch.Search`, how the tree is searched for; ``search__time_limit`` sets one.

    Attributes:
        classes_: (K,), sorted.
        tree_: :class:`~sstorch.exact.BinaryTree` over the splits.
        rules_: the splits, as :class:`~sstorch.exact.Rule`.
        loss_: training loss of the tree, a mean over rows.
        objective_: `loss_` plus `leaf_penalty` times the number of leaves.
        certified_: True if it is proved that no tree within the limits has a smaller `objective_`.
        gap_: upper bound on the difference between `objective_` and the optimum; 0 if certified.
        leaf_class_: position in `classes_` that each leaf predicts, (L,).
        leaf_weights_: weight of each class in every leaf, (L, K).
        leaf_rows_: training rows of each leaf, (L,).
        optima_: smallest loss for every depth and number of nodes, from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        front_: with these objectives and with `fairness`, the trees' totals that no other tree beats in both
            (false negatives and false positives, or errors and disparity; at depth 3 only the best of the
            latter), or the area by nodes.
        disparity_: with `fairness`, that of group 0 less that of group 1 on the training rows, groups in the
            order of their names.
        feature_names_in_: raw feature names.
        n_features_in_: number of raw features.
        n_samples_fit_: number of training rows with weight.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML. van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS.

    >>> from sstorch import load_dataset
    >>> from sstorch.exact import horizon_labels
    >>> from sstorch.reading import export_text
    >>> data = load_dataset("gbsg2")
    >>> relapsed, weights = horizon_labels(data.time, data.event, horizon=730)
    >>> tree = OptimalTreeClassifier(max_depth=2, objective="balanced", min_leaf=20)
    >>> tree = tree.fit(data.frame, relapsed, sample_weight=weights)
    >>> print(export_text(tree))
    if progrec > 82:
    ...
    >>> tree.certified_, tree.predict_proba(data.frame[:2]).shape
    (True, (2, 2))
    """

    _format = "sstorch.optimal_tree_classifier"
    _settings_class = ClassifierSettings

    classes_: npt.NDArray[Any]
    leaf_class_: IntArray
    leaf_weights_: FloatArray
    front_: pd.DataFrame
    disparity_: float
    _settings: ClassifierSettings

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        objective: ClassObjective | FrontObjective = "misclassification",
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        cost_matrix: CostMatrix | None = None,
        feature_costs: Mapping[str, float] | None = None,
        fairness: Fairness | None = None,
        max_disparity: float = 0.05,
        search: Search = SEARCH,
    ) -> None:
        super().__init__(max_depth, max_nodes, leaf_penalty, min_leaf, binarize, search)
        self.objective = objective
        self.cost_matrix = cost_matrix
        self.feature_costs = feature_costs
        self.fairness = fairness
        self.max_disparity = max_disparity

    def fit(self, X: object, y: object, sample_weight: object = None, *, sensitive: object = None) -> Self:
        """Search for the tree.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: class of each row, (n,): numbers, text or booleans.
            sample_weight: (n,), >= 0; rows of weight 0 are excluded. Objectives on a front add weights
                exactly and take multiples of 2**-20.
            sensitive: group of each row (n,), for `fairness`; or the name of a column of ``X``, which then is
                not a feature. To have it as a feature too, give its values: ``sensitive=X["sex"]``.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
            ConfigError: a parameter has an invalid value, or there are too many splits for the depth (the
                message estimates memory and time).
        """
        settings: ClassifierSettings = self._check()
        check_same_order(X=X, sensitive=sensitive)
        rows = TargetRows.check(X, y, class_target(y), sample_weight).with_groups(sensitive)
        self.classes_ = rows.classes
        for name in ("front_", "disparity_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        is_class = (rows.target[:, None] == self.classes_[1 if len(self.classes_) == 2 else 0 :]) * 1.0
        priced = settings.feature_costs is not None
        questions = settings.questions(rows.frame, is_class, rows.weight, priced)
        if settings.has_front:
            task = Classification(rows.target, sample_weight=rows.weight, classes=self.classes_)
            choice = choose(questions.features, rows, settings)
            leaf = self._set(questions, choice)
            self.front_, self.leaf_class_ = choice.front, choice.decision
            if choice.disparity is not None:
                self.disparity_ = choice.disparity
        else:
            prices = settings.price_list(questions.rules, list(rows.frame.columns))
            task = class_task(rows, settings.objective, settings.cost_matrix, prices)
            leaf = self._set(questions, questions.solve(task))
            self.leaf_class_ = task.decisions(leaf, self.tree_.n_leaves)
        self.leaf_weights_ = task.leaf_weights(leaf, self.tree_.n_leaves)
        return self

    def predict(self, X: object) -> npt.NDArray[Any]:
        """Predict the class of each row, (n,): the best class of the leaf for the objective.

        With ``objective="auc"``, which does not define classes, the most frequent class of the leaf.
        """
        leaf = self._leaf(X)
        return self.classes_[self.leaf_class_[leaf]]

    def predict_proba(self, X: object) -> FloatArray:
        """Predict the weighted share of each class among the training rows of the leaf, (n, K).

        With the weights of `horizon_labels` it estimates the probability of an event before the horizon, but
        not with ``objective="balanced"``, since its weights balance the classes. The predicted class has the
        largest share, unless another class is better by `cost_matrix`, `fairness` or an objective on a front.
        """
        leaf = self._leaf(X)
        share: FloatArray = self.leaf_weights_ / self.leaf_weights_.sum(axis=1, keepdims=True)
        return share[leaf]

    @property
    def leaf_table_(self) -> pd.DataFrame:
        """Training rows, predicted class and share of each class, by leaf."""
        check_is_fitted(self, "tree_")
        share = self.leaf_weights_ / self.leaf_weights_.sum(axis=1, keepdims=True)
        return pd.DataFrame(
            {
                "rows": self.leaf_rows_,
                "class": self.classes_[self.leaf_class_],
                **{f"share of {name}": share[:, k] for k, name in enumerate(self.classes_.tolist())},
            },
            index=pd.RangeIndex(len(share), name="leaf"),
        )

    def _leaf_texts(self) -> list[str]:
        """A line on each leaf: its number, class, share of that class and rows."""
        table = self.leaf_table_
        return [
            f"leaf {number}: {name}, share {table[f'share of {name}'].iloc[number]:.3g} of "
            + counted(rows, "row")
            for number, name, rows in zip(table.index, table["class"].tolist(), table["rows"], strict=True)
        ]

    def summary(self) -> str:
        """The search and its result, the tree, and a table of the leaves, as text."""
        check_is_fitted(self, "tree_")
        settings, notes = self._settings, []
        if settings.fairness is not None:
            notes.append(f"{settings.fairness} within {settings.max_disparity:g}: {self.disparity_:.4g}")
        counts = f"{self.n_samples_fit_} rows, {len(self.classes_)} classes"
        return self._summary(
            "classification", counts, settings.objective, self.leaf_table_, "{:.3f}".format, *notes
        )
