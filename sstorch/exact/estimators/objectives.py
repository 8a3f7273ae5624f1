"""The objectives of a classifier: sums over leaves, and those chosen from a front of totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from sstorch._types import IntArray
from sstorch.checks import check_choice, is_number_of, rows_text
from sstorch.data.columns import missing_labels
from sstorch.exact.binarize import Rule
from sstorch.exact.estimators.search import SearchSettings, TargetRows, check_given
from sstorch.exact.feature_costs import FeatureCosts
from sstorch.exact.fronts import ConfusionFront, GroupFairness, solve_front, solve_roc_hull
from sstorch.exact.solution import Optimum, PathStep
from sstorch.exact.targets import finite_matrix
from sstorch.exact.tasks import Classification, CostSensitive
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, DataError

ClassObjective = Literal["misclassification", "balanced"]
FrontObjective = Literal["f1", "balanced_accuracy", "mcc", "auc"]
Fairness = Literal["demographic_parity", "equal_opportunity"]
CostMatrix = Sequence[Sequence[float]]


@dataclass(kw_only=True)
class ClassifierSettings(SearchSettings):
    """The checked parameters of exact classification trees."""

    objective: ClassObjective | FrontObjective
    cost_matrix: CostMatrix | None
    feature_costs: Mapping[str, float] | None
    fairness: Fairness | None
    max_disparity: float

    def __post_init__(self) -> None:
        names = (*get_args(ClassObjective), *get_args(FrontObjective))
        check_choice(self.objective, "objective", names)
        if self.cost_matrix is not None:
            self.cost_matrix = finite_matrix(self.cost_matrix, "cost_matrix").tolist()
        super().__post_init__()
        self._check_front()
        self.feature_costs = _prices(self.feature_costs)
        self.max_disparity = float(self.max_disparity)

    def _check_front(self) -> None:
        """Check fairness and its limit; with a front, options of sums over leaves raise ConfigError."""
        limit, fairness, objective = self.max_disparity, self.fairness, self.objective
        if not is_number_of(limit, Real) or not 0 <= float(limit) <= 1:
            raise ConfigError(f"max_disparity must be a number from 0 to 1, got {limit!r}")
        if fairness is not None and fairness not in get_args(Fairness):
            raise ConfigError(
                f"fairness must be None or one of {', '.join(get_args(Fairness))}, got {fairness!r}"
            )
        if fairness is not None and objective != "misclassification":
            raise ConfigError(f"fairness needs objective='misclassification', got {objective!r}")
        if not self.has_front:
            return
        cause = f"objective={objective!r}" if fairness is None else f"fairness={fairness!r}"
        given = {name: getattr(self, name) for name in ("leaf_penalty", "cost_matrix", "feature_costs")}
        for name, value in given.items():
            if value is not None and value != 0.0:
                raise ConfigError(f"{name} does not go with {cause}; leave it at its default")

    @property
    def has_front(self) -> bool:
        """True if the tree is chosen from a front of totals."""
        return self.fairness is not None or self.objective in get_args(FrontObjective)

    def price_list(self, rules: Sequence[Rule], columns: Sequence[str]) -> FeatureCosts | None:
        """Prices of the questions, by their columns; None if they are free. Not all columns need have one.

        Raises ConfigError: a price is that of no column, or as in :meth:`FeatureCosts.of`.
        """
        if self.feature_costs is None:
            return None
        costs = FeatureCosts.of(columns, self.feature_costs)
        asked = np.array([columns.index(rule.column) for rule in rules], dtype=np.int64)
        return replace(costs, attribute=asked)


def _prices(costs: Mapping[str, float] | None) -> dict[str, float] | None:
    """Costs by column, as JSON can hold them. Raises ConfigError: a cost is not a number."""
    if costs is None:
        return None
    try:
        return {str(column): float(cost) for column, cost in costs.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"feature costs must be numbers by name of column, got {costs!r}") from error


def class_target(y: object) -> npt.NDArray[Any]:
    """Classes, (n,). Raises DataError: no list of classes, or one is missing."""
    check_given(y)
    try:
        classes = np.asarray(column_or_1d(y, warn=True))
        if (missing := missing_labels(pd.Series(classes))).any():
            raise DataError(f"y is missing in {rows_text(missing)}; drop these rows")
        if classes.dtype.kind == "f":
            check_array(classes, ensure_2d=False, input_name="y", ensure_min_samples=0)
        check_classification_targets(classes)
        np.unique(classes)  # cannot sort numbers among text
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"y: {error}") from error
    return classes


def class_task(
    rows: TargetRows,
    objective: ClassObjective | FrontObjective,
    cost_matrix: CostMatrix | None,
    prices: FeatureCosts | None,
) -> Classification:
    """The mean cost of errors, by row or by class, and of questions where they cost something.

    Raises:
        ConfigError: questions that cost something, with classes that count alike or with weights.
    """
    if prices is None:
        return Classification(
            rows.target,
            sample_weight=rows.weight,
            balanced=objective == "balanced",
            cost_matrix=cost_matrix,
            classes=rows.classes,
        )
    if objective == "balanced":
        raise ConfigError("feature_costs need objective='misclassification'")
    if (rows.weight != 1.0).any():
        raise ConfigError(
            "feature_costs and sample_weight do not go together: a question costs the same for every row. "
            "Repeat rows, or leave one of them out"
        )
    return CostSensitive(rows.target, cost_matrix=cost_matrix, feature_costs=prices, classes=rows.classes)


@dataclass(frozen=True)
class FrontChoice:
    """The tree chosen from a front, with what `ExactTree` reads of a `Solution`.

    `decision` (L,) has the class of each leaf; `loss` is 1 - score, or the share of errors, and `gap` the
    most by which it can exceed the smallest one; `disparity` is that of a fair tree, else None.
    """

    best: BinaryTree
    decision: IntArray
    loss: float
    gap: float
    front: pd.DataFrame
    budget: tuple[int, int]
    disparity: float | None = None

    @property
    def objective(self) -> float:
        """The loss: leaves cost nothing."""
        return self.loss

    def tree(self) -> BinaryTree:
        """The tree."""
        return self.best

    def table(self) -> pd.DataFrame:
        """The budget, its loss and a lower bound, as `Solution.table` has them."""
        return pd.DataFrame([Optimum(*self.budget, self.loss, self.loss - self.gap)])

    def path(self) -> list[PathStep]:
        """One step: without a penalty."""
        return [PathStep(0.0, self.best.n_nodes, self.loss)]


def choose(features: pd.DataFrame, rows: TargetRows, settings: ClassifierSettings) -> FrontChoice:
    """Search for the tree of an objective on a front, over binary features (n, F) with names.

    Raises:
        DataError: other than two classes or groups, or see `solve_front`.
        ConfigError: weights that cannot be summed exactly, or see `solve_front`.
    """
    depth, fairness, objective = settings.max_depth, settings.fairness, settings.objective
    search = settings.search
    most = 2**depth - 1
    size = depth, most if settings.max_nodes is None else min(settings.max_nodes, most)
    y = _positive(rows, f"objective={objective!r}" if fairness is None else f"fairness={fairness!r}")
    if objective == "auc":
        if search.time_limit is not None:
            raise ConfigError("time_limit is not for objective='auc', whose search is short; leave it None")
        ranking = solve_roc_hull(
            features,
            y,
            depth,
            settings.max_nodes,
            sample_weight=rows.weight,
            min_leaf=settings.min_leaf,
        )
        best = ranking.tree()
        majority = Classification(rows.target, sample_weight=rows.weight, classes=rows.classes)
        decision = majority.decisions(best.tree.apply(features), best.tree.n_leaves)
        return FrontChoice(best.tree, decision, 1.0 - ranking.auc[-1], 0.0, ranking.table(), size)
    task: ConfusionFront | GroupFairness
    if fairness is None:
        task = ConfusionFront(y, sample_weight=rows.weight, metric=objective)  # type: ignore[arg-type]
    else:
        task = GroupFairness(
            y,
            _groups(rows, y, fairness),
            fairness,
            sample_weight=rows.weight,
            max_disparity=settings.max_disparity,
        )
    front = solve_front(
        features,
        task,
        depth,
        settings.max_nodes,
        min_leaf=settings.min_leaf,
        time_limit=search.time_limit,
        memory=search.memory,
        verbose=search.verbose,
    )
    number = front.best()
    decided = front.tree(number)
    bound, disparity = 0.0, None
    if isinstance(task, GroupFairness):
        bound = max(0.0, front.lower_bound) * task.unit[0] / task.total_weight
        disparity = float(front.values[number, 1])
    loss = 1.0 - decided.score
    gap = 0.0 if front.certified else max(0.0, loss - bound)
    return FrontChoice(decided.tree, decided.decision, loss, gap, front.table(), size, disparity)


def _positive(rows: TargetRows, objective: str) -> IntArray:
    """1 for rows of the second of two classes. Raises DataError: there are not two classes."""
    classes = rows.classes
    if len(classes) != 2:
        raise DataError(f"{objective} needs two classes, y has {len(classes)}: {classes.tolist()}")
    positive: IntArray = (rows.target == classes[1]).astype(np.int64)
    return positive


def _groups(rows: TargetRows, y: IntArray, fairness: Fairness) -> IntArray:
    """Group of each row, 0 or 1.

    Raises ConfigError without groups, DataError of other than two, or if one has no rows to compare.
    """
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
