"""Exact classification trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray, IntArray
from sstorch.data import Schema
from sstorch.data.columns import check_same_order
from sstorch.exact.binarize import Binarizer, Preset, Rule
from sstorch.exact.estimators.base import ArrayLeaves
from sstorch.exact.estimators.objectives import (
    CLASS_OBJECTIVES,
    FRONT_OBJECTIVES,
    ClassObjective,
    ClassRows,
    CostMatrix,
    Fairness,
    FrontBudget,
    FrontObjective,
    FrontRows,
    FrontSearch,
    TargetRows,
    check_front,
    choose,
    class_target,
    with_groups,
)
from sstorch.exact.estimators.search import SearchSettings
from sstorch.exact.tasks import Classification, FeatureCosts, finite_matrix
from sstorch.exceptions import ConfigError


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings(SearchSettings):
    """The checked parameters of exact classification trees."""

    objective: ClassObjective | FrontObjective
    cost_matrix: CostMatrix | None
    feature_costs: Mapping[str, float] | None
    feature_groups: Mapping[str, Sequence[str]] | None
    discounted_costs: Mapping[str, float] | None
    fairness: Fairness | None
    max_disparity: float

    @property
    def is_priced(self) -> bool:
        """See :class:`SearchSettings`."""
        return self.feature_costs is not None

    def price_list(self, rules: Sequence[Rule], columns: Sequence[str]) -> FeatureCosts | None:
        """What the questions cost, by their columns; None if they are free.

        Args:
            rules: the questions; a column of which there is none, such as a constant one, needs no price.
            columns: all training columns.

        Raises:
            ConfigError: a price is that of no column, or as in :meth:`FeatureCosts.of`.
        """
        if self.feature_costs is None:
            return None
        # Everything that can be wrong with the prices is found out whatever the questions are.
        FeatureCosts.of(columns, self.feature_costs, self.feature_groups, self.discounted_costs)
        asked = {rule.column for rule in rules}
        prices = {name: price for name, price in self.feature_costs.items() if name in asked}
        later = {name: price for name, price in (self.discounted_costs or {}).items() if name in asked}
        groups = {
            group: [name for name in names if name in asked]
            for group, names in (self.feature_groups or {}).items()
        }
        return FeatureCosts.of([rule.column for rule in rules], prices, groups, later)


class OptimalTreeClassifier(ClassifierMixin, ArrayLeaves):  # type: ignore[misc]
    """Classification tree of least training loss among all trees of its size, over yes-no questions.

    Columns become questions such as "age > 45.5" (`binarize`), and a search that leaves no tree out finds the
    one with the least loss on the training rows. "Optimal" is meant so: for this objective, these rows and
    these questions.

    For survival at a horizon, fit it to what `sstorch.exact.horizon_labels` makes of times and events:
    whether the event came before the horizon, with weights that make up for censoring.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 5.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        objective: ``"misclassification"``, the weighted share of misclassified rows, or their mean cost with
            `cost_matrix`; ``"balanced"``, the same with each class counted alike. For two classes, the second
            of `classes_` positive: 1 less ``"f1"``, ``"mcc"`` or ``"balanced_accuracy"`` (the optimum of
            ``"balanced"``), chosen from the front of false negatives and false positives, depth 0 to 3; 1
            less ``"auc"``, the area under the ROC curve of the leaves, depth 0 to 2.
        leaf_penalty: loss that each leaf costs, >= 0: GOSDT's λ.
        min_leaf: least number of training rows of a leaf.
        binarize: how columns become questions: a preset of :class:`~sstorch.exact.Binarizer`
            (``"surtree"``, ``"quantiles"``, ``"all"``, ``"osst"``, ``"boosted"``), a Binarizer with settings
            of one's own, or False for columns that hold 0 and 1 already.
        cost_matrix: cost of each true class (rows) predicted as each class (columns), in the order of
            `classes_`; None counts errors.
        feature_costs: what it costs to learn a column of a row, by name, in the unit of `cost_matrix`;
            columns that are not named are free, and so is a column already asked about on the path.
        feature_groups: groups of columns that share a part of their cost: names of groups with columns.
        discounted_costs: cost of such a column where another one of its group is known already; 0 where it
            is not named.
        fairness: for two classes and two groups, what may differ between the groups only so much:
            ``"demographic_parity"``, the share of rows that get the positive class;
            ``"equal_opportunity"``, that share of the rows which are positive. Depth 0 to 3.
        max_disparity: the largest such difference on the training rows, 0 to 1.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        time_limit: seconds, or None. Where they do not suffice, the best tree found is kept, with `gap_`.
        memory: bytes that the search may take.

    Attributes:
        classes_: (K,), sorted.
        tree_: :class:`~sstorch.exact.BinaryTree` over the questions.
        rules_: the questions, as :class:`~sstorch.exact.Rule`.
        loss_: training loss of the tree, a mean over rows.
        objective_: `loss_` and `leaf_penalty` for each leaf.
        certified_: whether it is proved that no tree within the budget has a smaller `objective_`.
        gap_: the most by which `objective_` can exceed the smallest one; 0 if certified.
        leaf_class_: position in `classes_` that each leaf predicts, (L,).
        leaf_weights_: weight of each class in every leaf, (L, K).
        leaf_rows_: training rows of each leaf, (L,).
        optima_: least loss for every budget (depth, nodes) from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        front_: with these objectives and with `fairness`, the trees' totals that no other tree beats in both
            (false negatives and false positives, or errors and disparity; at depth 3 only the best of the
            latter), or the area by nodes.
        disparity_: with `fairness`, that of group 0 less that of group 1 on the training rows, groups in the
            order of their names.
        feature_names_in_: raw feature names.
        n_features_in_: their number.
        n_samples_fit_: number of training rows with weight.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML. van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS.

    >>> from sstorch import load_dataset
    >>> from sstorch.exact import horizon_labels
    >>> data = load_dataset("gbsg2")
    >>> relapsed, weights = horizon_labels(data.time, data.event, horizon=730)
    >>> tree = OptimalTreeClassifier(max_depth=2, objective="balanced", min_leaf=20)
    >>> tree = tree.fit(data.frame, relapsed, sample_weight=weights)
    >>> print(tree.export_text())
    if progrec > 26:
    ...
    >>> tree.certified_, tree.predict_proba(data.frame[:2]).shape
    (True, (2, 2))
    """

    _format = "sstorch.optimal_tree_classifier"
    _arrays = ("leaf_rows_", "leaf_weights_", "leaf_class_")
    _labels = "classes_"
    _tables = ("front_",)
    _numbers = ("disparity_",)

    classes_: npt.NDArray[Any]
    leaf_class_: IntArray
    leaf_weights_: FloatArray
    leaf_rows_: IntArray
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
        feature_groups: Mapping[str, Sequence[str]] | None = None,
        discounted_costs: Mapping[str, float] | None = None,
        fairness: Fairness | None = None,
        max_disparity: float = 0.05,
        device: str = "cpu",
        time_limit: float | None = None,
        memory: int = 4 * 2**30,
    ) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.objective = objective
        self.leaf_penalty = leaf_penalty
        self.min_leaf = min_leaf
        self.binarize = binarize
        self.cost_matrix = cost_matrix
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.discounted_costs = discounted_costs
        self.fairness = fairness
        self.max_disparity = max_disparity
        self.device = device
        self.time_limit = time_limit
        self.memory = memory

    def _check(self) -> ClassifierSettings:
        names = (*CLASS_OBJECTIVES, *FRONT_OBJECTIVES)
        if self.objective not in names:
            raise ConfigError(f"objective must be one of {', '.join(names)}, got {self.objective!r}")
        check_front(
            [(name, getattr(self, name)) for name in ("leaf_penalty", "cost_matrix", "feature_costs")],
            self.objective,
            self.fairness,
            self.max_disparity,
        )
        matrix = None if self.cost_matrix is None else finite_matrix(self.cost_matrix, "cost_matrix").tolist()
        own = {field.name for field in fields(ClassifierSettings)} - {
            field.name for field in fields(SearchSettings)
        }
        common = {name: value for name, value in self.get_params(deep=False).items() if name not in own}
        if self.feature_costs is None and (self.feature_groups or self.discounted_costs):
            raise ConfigError("feature_groups and discounted_costs need feature_costs")
        return ClassifierSettings(
            **SearchSettings.common(**common),
            objective=self.objective,
            cost_matrix=matrix,
            feature_costs=_prices(self.feature_costs),
            feature_groups=None
            if self.feature_groups is None
            else {
                str(name): [str(column) for column in group] for name, group in self.feature_groups.items()
            },
            discounted_costs=_prices(self.discounted_costs),
            fairness=self.fairness,
            max_disparity=float(self.max_disparity),
        )

    def fit(self, X: object, y: object, sample_weight: object = None, *, sensitive: object = None) -> Self:
        """Search for the tree.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: class of each row, (n,): numbers, text or booleans.
            sample_weight: (n,), >= 0; rows of weight 0 are left out. Objectives on a front add weights
                exactly and take multiples of 2**-20.
            sensitive: group of each row (n,), for `fairness`; or the name of a column of ``X``, which then is
                no feature. To have it as a feature too, give its values: ``sensitive=X["sex"]``.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist, or there are too many questions for the
                depth: the message estimates memory and time.
        """
        settings = self._check()
        check_same_order(("X", X), ("sensitive", sensitive))
        rows, groups = with_groups(TargetRows.check(X, y, class_target(y), sample_weight), sensitive)
        self.classes_ = np.unique(rows.every)
        for name in ("front_", "disparity_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        is_class = (rows.target[:, None] == self.classes_[1 if len(self.classes_) == 2 else 0 :]) * 1.0
        if settings.fairness is not None or settings.objective in FRONT_OBJECTIVES:
            return self._choose(
                settings, rows.frame, FrontRows(rows.target, self.classes_, rows.weight, groups), is_class
            )
        found: list[Classification] = []

        def make(rules: list[Rule]) -> Classification:
            labelled = ClassRows(
                rows.target,
                self.classes_,
                rows.weight,
                settings.cost_matrix,
                settings.price_list(rules, list(rows.frame.columns)),
            )
            found.append(CLASS_OBJECTIVES[settings.objective](labelled))
            return found[0]

        search = settings.search_frame(rows.frame, make, is_class)
        tree = search.solution.tree()
        self._adopt_search(search)
        self._adopt_tree(search, tree)
        leaf, task = tree.apply(search.features), found[0]
        self.leaf_rows_ = np.bincount(leaf, minlength=tree.n_leaves)
        self.leaf_weights_ = task.leaf_weights(leaf, tree.n_leaves)
        self.leaf_class_ = task.decisions(leaf, tree.n_leaves)
        return self

    def _choose(
        self, settings: ClassifierSettings, frame: pd.DataFrame, rows: FrontRows, target: FloatArray
    ) -> Self:
        """Take the best tree of a front."""
        rules, features = settings.questions(frame, target)
        budget = FrontBudget(*(getattr(settings, name) for name in FrontBudget._fields))
        chosen = choose(features, rows, settings.objective, settings.fairness, settings.max_disparity, budget)
        search = FrontSearch(settings, Schema.of(frame), rules, features.to_numpy(), chosen)
        self._adopt_search(search)
        self._adopt_tree(search, chosen.best)
        self.front_, self.leaf_class_ = chosen.front, chosen.decision
        if chosen.disparity is not None:
            self.disparity_ = chosen.disparity
        leaf, n_leaves = chosen.best.apply(search.features), chosen.best.n_leaves
        self.leaf_rows_ = np.bincount(leaf, minlength=n_leaves)
        shares = Classification(rows.labels, sample_weight=rows.weight, classes=rows.classes)
        self.leaf_weights_ = shares.leaf_weights(leaf, n_leaves)
        return self

    def predict(self, X: object) -> npt.NDArray[Any]:
        """Class of each row, (n,): the one that is best for the objective in its leaf.

        With ``objective="auc"``, which needs no classes, the one of largest share in the leaf.
        """
        leaf = self.apply(X)
        return self.classes_[self.leaf_class_[leaf]]

    def predict_proba(self, X: object) -> FloatArray:
        """Share of each class in the weight of the training rows of the leaf, (n, K).

        With the weights of `horizon_labels` it estimates the probability of an event before the horizon; with
        ``objective="balanced"`` it does not, since the weights are those that make classes count alike. The
        class predicted is the one of largest share, unless `cost_matrix` makes another one cheaper, or an
        objective on a front or `fairness` makes it better.
        """
        leaf = self.apply(X)
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

    def leaf_texts(self) -> list[str]:
        """A line on each leaf: its number, class, share of that class and rows."""
        table = self.leaf_table_
        return [
            f"leaf {number}: {name}, share {table[f'share of {name}'].iloc[number]:.3g} of {rows} "
            f"row{'s' * (rows != 1)}"
            for number, name, rows in zip(table.index, table["class"].tolist(), table["rows"], strict=True)
        ]

    def summary(self) -> str:
        """What was searched and found, the tree, and a table of the leaves, as text."""
        check_is_fitted(self, "tree_")
        lines = [
            f"Exact classification tree: {self._shape_text()}, {self.n_samples_fit_} rows, "
            f"{len(self.classes_)} classes",
            f"{self._settings.objective} {self._proof_text()}",
            *(
                [f"{own.fairness} within {own.max_disparity:g}: {self.disparity_:.4g}"]
                if (own := self._settings).fairness is not None
                else []
            ),
            self.export_text(),
            "",
            "Leaves",
            self.leaf_table_.reset_index().to_string(index=False, float_format="{:.3f}".format),
        ]
        return "\n".join(lines)


def _prices(costs: Mapping[str, float] | None) -> dict[str, float] | None:
    """Costs by column, as JSON can hold them.

    Raises:
        ConfigError: a cost is no number.
    """
    if costs is None:
        return None
    try:
        return {str(column): float(cost) for column, cost in costs.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"feature costs must be numbers by name of column, got {costs!r}") from error
