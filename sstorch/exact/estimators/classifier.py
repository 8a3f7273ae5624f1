"""Exact classification trees: sums over leaves, and objectives chosen from a front of totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, rows_text
from sstorch.data.columns import missing_labels
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.base import SEARCH, Questions, Search
from sstorch.exact.estimators.values import TargetRows, ValueTree, check_given
from sstorch.exact.fronts import DecidedTree, confusion_front, group_fairness, solve_areas, solve_front
from sstorch.exact.rows import finite_matrix
from sstorch.exact.solution import Optimum
from sstorch.exact.task import FeatureCosts
from sstorch.exact.tasks import Classification
from sstorch.exceptions import ConfigError, DataError

ClassObjective = Literal["misclassification", "balanced"]
FrontObjective = Literal["f1", "mcc", "auc"]
Fairness = Literal["demographic_parity", "equal_opportunity"]


class OptimalTreeClassifier(ClassifierMixin, ValueTree):  # type: ignore[misc]
    """Classification tree with the smallest training loss of all trees of its size with binary splits.

    Columns are converted to binary splits such as "age > 45.5". The tree is optimal for this objective, these
    rows and these splits. For survival at a horizon, fit it to `sstorch.exact.horizon_labels`.

    Args:
        objective: ``"misclassification"``, the weighted share of misclassified rows, or their mean cost with
            `cost_matrix`; ``"balanced"``, the same with equal total weight per class. For two classes, with
            the second of `classes_` positive: 1 minus ``"f1"`` or ``"mcc"``, chosen from the Pareto front of
            false negatives and false positives, depth 0 to 3; 1 minus ``"auc"``, the area under the ROC curve
            of the leaves, depth 0 to 2.
        leaf_penalty: penalty per leaf, >= 0: λ of GOSDT.
        max_depth, max_nodes, min_leaf, binarize, search: as for :class:`OptimalSurvivalTree`.
        cost_matrix: cost of each true class (rows) predicted as each class (columns), in the order of
            `classes_`; None counts errors.
        feature_costs: what it costs to learn a column of a row, by name, in the unit of `cost_matrix`;
            columns that are not named are free, and so is a column already asked about on the path. Discounts
            within groups of columns: :class:`~sstorch.exact.Classification`.
        fairness: for two classes, what may differ between two groups only so much:
            ``"demographic_parity"``, the share of rows that get the positive class;
            ``"equal_opportunity"``, that share of the rows which are positive. Depth 0 to 3.
        max_disparity: the largest such difference on the training rows, 0 to 1.

    Attributes:
        classes_: (K,), sorted.
        loss_: training loss of the tree, a mean over rows.
        leaf_class_: position in `classes_` that each leaf predicts, (L,).
        leaf_weights_: weight of each class in every leaf, (L, K).
        leaf_rows_: training rows of each leaf, (L,).
        front_: from a front, the totals that no other tree beats in both (false negatives and false
            positives, or errors and disparity; at depth 3 only the best of the latter), or the area by nodes.
        disparity_: with `fairness`, that of group 0 less that of group 1 on the training rows, groups in the
            order of their names.

    `tree_`, `rules_`, `objective_`, `certified_`, `gap_`, `optima_` and the attributes of the training data
    are as in :class:`OptimalSurvivalTree`.

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
    >>> tree.certified_, tree.predict_proba(data.frame[:2]).shape
    (True, (2, 2))
    """

    _format = "sstorch.optimal_tree_classifier"
    _digits: ClassVar[str] = "{:.3f}"

    classes_: npt.NDArray[Any]
    leaf_class_: IntArray
    leaf_weights_: FloatArray
    front_: pd.DataFrame
    disparity_: float

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        objective: ClassObjective | FrontObjective = "misclassification",
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | Binarizer = "surtree",
        cost_matrix: Sequence[Sequence[float]] | None = None,
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
        """Search for the tree; `X` and errors as in :meth:`OptimalSurvivalTree.fit`.

        Args:
            X: DataFrame or array (n, p).
            y: class of each row, (n,): numbers, text or booleans.
            sample_weight: (n,), >= 0; rows of weight 0 are excluded. Fronts and areas take whole numbers.
            sensitive: group of each row (n,), for `fairness`; or the name of a column of ``X``, which then is
                not a feature. To have it as a feature too, give its values: ``sensitive=X["sex"]``.
        """
        settings, target = self._checked(), class_target(y)
        rows = TargetRows.check(X, y, target, sample_weight, sensitive)
        self.classes_ = np.unique(target)
        for name in ("front_", "disparity_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        questions = settings._questions(rows.frame, rows.weight, settings.feature_costs is not None)
        task = self._task(settings, questions, rows)
        if settings._cause:
            decided = self._set_front(settings, questions, rows)
            leaf = self._set(settings, questions, decided.tree)
        else:
            leaf = self._set_solution(settings, questions, settings._solve(questions, task))
        self.leaf_class_ = task.decisions(leaf, self.tree_.n_leaves)
        if settings._cause and settings.objective != "auc":
            self.leaf_class_ = decided.decision
        self.leaf_weights_ = task.leaf_weights(leaf, self.tree_.n_leaves)
        return self

    def _check(self) -> None:
        check_choice(self.objective, "objective", (*get_args(ClassObjective), *get_args(FrontObjective)))
        if self.cost_matrix is not None:
            self.cost_matrix = finite_matrix(self.cost_matrix, "cost_matrix").tolist()
        super()._check()
        if self.fairness is not None:
            check_choice(self.fairness, "fairness", get_args(Fairness))
            if self.objective != "misclassification":
                raise ConfigError(f"fairness needs objective='misclassification', got {self.objective!r}")
        if self.feature_costs is not None:  # as JSON can hold them
            try:
                self.feature_costs = {str(name): float(cost) for name, cost in self.feature_costs.items()}
            except (AttributeError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"feature_costs must be numbers by name of column, got {self.feature_costs!r}"
                ) from error
            if self.objective == "balanced":
                raise ConfigError("feature_costs need objective='misclassification', got 'balanced'")
        for name in ("leaf_penalty", "cost_matrix", "feature_costs") if self._cause else ():
            if getattr(self, name) not in (None, 0.0):
                raise ConfigError(f"{name} does not go with {self._cause}; leave it at its default")

    @property
    def _cause(self) -> str:
        """The parameter by which the tree is chosen from a front of totals; empty if there is none."""
        if self.fairness is not None:
            return f"fairness={self.fairness!r}"
        return f"objective={self.objective!r}" if self.objective in get_args(FrontObjective) else ""

    def _task(self, settings: Self, questions: Questions, rows: TargetRows) -> Classification:
        """The mean cost of errors, by row or by class, and of questions where they cost something."""
        costs = None
        if settings.feature_costs is not None:
            columns = list(rows.frame.columns)
            asked = np.array([columns.index(rule.column) for rule in questions.rules], dtype=np.int64)
            costs = replace(FeatureCosts.of(columns, settings.feature_costs), attribute=asked)
        return Classification(
            rows.target,
            sample_weight=rows.weight,
            balanced=settings.objective == "balanced",
            cost_matrix=settings.cost_matrix,
            feature_costs=costs,
            classes=self.classes_,
        )

    def _set_front(self, settings: Self, questions: Questions, rows: TargetRows) -> DecidedTree:
        """Search for the tree of a front, and set loss, gap, and front; errors: `solve_front`."""
        classes, search, gap = self.classes_, settings.search, 0.0
        if len(classes) != 2:
            raise DataError(f"{settings._cause} needs two classes, y has {len(classes)}: {classes.tolist()}")
        y = (rows.target == classes[1]).astype(np.int64)
        limits = settings.max_depth, settings.max_nodes, settings.min_leaf
        if settings.objective == "auc":
            if search.time_limit is not None:
                raise ConfigError("time_limit is not for objective='auc', whose search is short")
            areas = solve_areas(questions.features, y, *limits, sample_weight=rows.weight)
            decided = areas[-1]
            self.front_ = pd.DataFrame({"nodes": range(len(areas)), "auc": [tree.score for tree in areas]})
        else:
            if settings.fairness is None:
                task = confusion_front(y, settings.objective, sample_weight=rows.weight)  # type: ignore[arg-type]
            else:
                groups = _groups(rows, y, settings.fairness)
                limit = settings.max_disparity
                task = group_fairness(
                    y, groups, settings.fairness, max_disparity=limit, sample_weight=rows.weight
                )
            front = solve_front(
                questions.features, task, *limits, time_limit=search.time_limit, memory=search.memory
            )
            decided, self.front_, gap = front.tree(), front.table(), front.gap
            if settings.fairness is not None:
                self.disparity_ = float(self.front_["disparity"].iloc[int(self.front_["score"].argmax())])
        self.loss_ = self.objective_ = loss = 1.0 - decided.score
        most = 2**settings.max_depth - 1
        nodes = most if settings.max_nodes is None else min(settings.max_nodes, most)
        self.gap_, self.optima_ = gap, pd.DataFrame([Optimum(settings.max_depth, nodes, loss, loss - gap)])
        return decided

    def predict(self, X: object) -> npt.NDArray[Any]:
        """Predict the class of each row, (n,): the best class of the leaf for the objective.

        With ``objective="auc"``, which does not define classes, the most frequent class of the leaf.
        """
        leaf = self._leaf(X)
        return self.classes_[self.leaf_class_[leaf]]

    def predict_proba(self, X: object) -> FloatArray:
        """Predict the weighted share of each class among the training rows of the leaf, (n, K).

        With the weights of `horizon_labels` it estimates the probability of an event before the horizon, but
        not with ``objective="balanced"``, whose weights balance the classes.
        """
        leaf = self._leaf(X)
        return self._shares[leaf]

    @property
    def _shares(self) -> FloatArray:
        """Weighted share of each class in each leaf, (L, K)."""
        shares: FloatArray = self.leaf_weights_ / self.leaf_weights_.sum(axis=1, keepdims=True)
        return shares

    def _leaf_values(self) -> tuple[dict[str, Any], list[str]]:
        given = self.classes_[self.leaf_class_]
        own = np.take_along_axis(self._shares, self.leaf_class_[:, None], axis=1)[:, 0]
        texts = [f"{name}, share {part:.3g}" for name, part in zip(given.tolist(), own, strict=True)]
        shares = zip(self.classes_.tolist(), self._shares.T, strict=True)
        return {"class": given, **{f"share of {name}": share for name, share in shares}}, texts

    @property
    def _summary_texts(self) -> list[str]:
        settings, counts = self._settings, f"{self.n_samples_fit_} rows, {len(self.classes_)} classes"
        fairness, limit = settings.fairness, settings.max_disparity
        notes = [] if fairness is None else [f"{fairness} within {limit:g}: {self.disparity_:.4g}"]
        return ["classification", counts, settings.objective, *notes]


def class_target(y: object) -> npt.NDArray[Any]:
    """Classes, (n,). Raises DataError: no list of classes, or one is missing."""
    check_given(y)
    try:
        classes = np.asarray(column_or_1d(y, warn=True))
        missing = missing_labels(pd.Series(classes))
        if not missing.any():
            if classes.dtype.kind == "f":
                check_array(classes, ensure_2d=False, input_name="y", ensure_min_samples=0)
            check_classification_targets(classes)
            np.unique(classes)  # cannot sort numbers among text
    except (TypeError, ValueError) as error:
        raise DataError(f"y: {error}") from error
    if missing.any():
        raise DataError(f"y is missing in {rows_text(missing)}; drop these rows")
    return classes


def _groups(rows: TargetRows, y: IntArray, fairness: Fairness) -> IntArray:
    """Group of each row, 0 or 1; ConfigError: no groups; DataError: not two, or one without rows."""
    if rows.groups is None:
        raise ConfigError("fairness needs the sensitive groups: fit(X, y, sensitive=...)")
    name, labels, codes = rows.groups.name, rows.groups.labels, rows.groups.codes
    if len(labels) != 2:
        raise DataError(f"fairness compares two groups, {name} has {len(labels)}; merge some")
    compared = codes if fairness == "demographic_parity" else codes[y == 1]
    for number, label in enumerate(labels):
        if number not in compared:
            kind = "row" if fairness == "demographic_parity" else "row of the positive class"
            raise DataError(f"{name}={label}: no {kind} with weight; merge this group with another one")
    return codes
