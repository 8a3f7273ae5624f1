"""What a classifier may optimise, and the rows that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_columns_exist
from sstorch.data import Schema
from sstorch.data.columns import check_not_all_missing, check_same_order, clean_features, parse_weights
from sstorch.data.target import Groups, parse_groups
from sstorch.exact.binarize import Rule
from sstorch.exact.estimators.search import SearchSettings
from sstorch.exact.fronts import ConfusionFront, FrontSolution, GroupFairness, solve_front, solve_roc_hull
from sstorch.exact.solve import Optimum, PathStep
from sstorch.exact.tasks import Classification, CostSensitive, FeatureCosts
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, DataError


@dataclass(frozen=True)
class TargetRows:
    """Training rows that passed all checks; rows of weight 0 are left out.

    Attributes:
        frame: features (n, p), as `clean_features` gives them.
        target: (n,) or (n, K).
        weight: (n,), > 0.
        every: the target of all rows, also those of weight 0.
        kept: (N,) bool, the rows that were given and have weight.
    """

    frame: pd.DataFrame
    target: npt.NDArray[Any]
    weight: FloatArray
    every: npt.NDArray[Any]
    kept: npt.NDArray[np.bool_]

    @classmethod
    def check(cls, X: object, y: object, target: npt.NDArray[Any], sample_weight: object) -> TargetRows:
        """Bring features, target and weights together.

        Args:
            X: DataFrame or array (n, p).
            y: the target as it was given.
            target: y as an array.
            sample_weight: (n,), or None.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
        """
        frame = clean_features(X)
        n = len(frame)
        if len(target) != n:
            raise DataError(f"X has {n} rows but y has {len(target)}; give one target for every row")
        if n < 2:
            raise DataError(f"at least two rows are needed, the data have n_samples = {n}")
        check_same_order(("X", X), ("y", y), ("sample_weight", sample_weight))
        check_not_all_missing(frame)
        weight = parse_weights(sample_weight, n)
        kept = weight > 0.0
        if not kept.all():
            frame = frame[kept].reset_index(drop=True)
        return cls(frame, target[kept], weight[kept], target, kept)


def with_groups(rows: TargetRows, sensitive: object) -> tuple[TargetRows, Groups | None]:
    """The rows without the sensitive column, and their groups.

    Args:
        rows: checked.
        sensitive: group of each row that was given (n,), the name of a column, or None.

    Raises:
        DataError: groups that cannot be read, or no feature beside them.
    """
    if sensitive is None:
        return rows, None
    if not isinstance(sensitive, str):
        groups = parse_groups(sensitive, len(rows.kept))
        return rows, groups.subset(np.flatnonzero(rows.kept))
    check_columns_exist((sensitive,), list(rows.frame.columns))
    groups = parse_groups(rows.frame[sensitive], len(rows.frame), sensitive)
    if rows.frame.shape[1] == 1:
        raise DataError(f"no feature column is left beside the sensitive column {sensitive!r}")
    return replace(rows, frame=rows.frame.drop(columns=sensitive)), groups


def class_target(y: object) -> npt.NDArray[Any]:
    """Classes, (n,).

    Raises:
        DataError: no list of classes, or one is missing.
    """
    _check_given(y)
    try:
        classes = np.asarray(column_or_1d(y, warn=True))
        if (missing := pd.isna(classes)).any():
            raise DataError(f"y: row {int(np.flatnonzero(missing)[0])} has no class; drop such rows")
        if classes.dtype.kind == "f":
            check_array(classes, ensure_2d=False, input_name="y", ensure_min_samples=0)
        check_classification_targets(classes)
        np.unique(classes)  # cannot sort numbers among text
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"y: {error}") from error
    return classes


def number_target(y: object) -> FloatArray:
    """Numbers, (n,).

    Raises:
        DataError: no list of finite numbers.
    """
    _check_given(y)
    try:
        flat = column_or_1d(y, warn=True)
        numbers = check_array(flat, ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
    return np.asarray(numbers)


def _check_given(y: object) -> None:
    if y is None:
        raise DataError("this estimator requires y to be passed, but the target y is None")


ClassObjective = Literal["misclassification", "balanced"]
CostMatrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class ClassRows:
    """What an objective is made of.

    Attributes:
        labels: class of each row, (n,).
        classes: all classes, (K,), sorted.
        weight: (n,), > 0.
        cost_matrix: M[true class, predicted class], or None.
        feature_costs: what the questions cost, or None.
    """

    labels: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    weight: FloatArray
    cost_matrix: CostMatrix | None
    feature_costs: FeatureCosts | None


def misclassification(rows: ClassRows) -> Classification:
    """Mean cost of errors, and of questions where they cost something.

    Raises:
        ConfigError: questions that cost something, and weights.
    """
    if rows.feature_costs is None:
        return Classification(
            rows.labels, sample_weight=rows.weight, cost_matrix=rows.cost_matrix, classes=rows.classes
        )
    if (rows.weight != 1.0).any():
        raise ConfigError(
            "feature_costs and sample_weight do not go together: a question costs the same for every row. "
            "Repeat rows, or leave one of them out"
        )
    return CostSensitive(
        rows.labels, cost_matrix=rows.cost_matrix, feature_costs=rows.feature_costs, classes=rows.classes
    )


def balanced(rows: ClassRows) -> Classification:
    """Mean over classes of the cost of errors.

    Raises:
        ConfigError: questions that cost something.
    """
    if rows.feature_costs is not None:
        raise ConfigError("feature_costs need objective='misclassification'")
    return Classification(
        rows.labels,
        sample_weight=rows.weight,
        balanced=True,
        cost_matrix=rows.cost_matrix,
        classes=rows.classes,
    )


# A further objective is a function from rows to a task, and its name here and in `ClassObjective`.
CLASS_OBJECTIVES: dict[str, Callable[[ClassRows], Classification]] = {
    "misclassification": misclassification,
    "balanced": balanced,
}


FrontObjective = Literal["f1", "balanced_accuracy", "mcc", "auc"]
Fairness = Literal["demographic_parity", "equal_opportunity"]
FRONT_OBJECTIVES: tuple[str, ...] = get_args(FrontObjective)


class FrontBudget(NamedTuple):
    """What a search for a front may use; arguments of `solve_front`."""

    max_depth: int
    max_nodes: int | None
    min_leaf: int
    time_limit: float | None
    memory: int
    device: str


@dataclass(frozen=True)
class FrontRows:
    """What an objective is made of.

    Attributes:
        labels: class of each row, (n,).
        classes: all classes, (K,), sorted; the second one is positive.
        weight: (n,), > 0.
        groups: the sensitive group of each row, or None.
    """

    labels: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    weight: FloatArray
    groups: Groups | None

    def positive(self, objective: str) -> IntArray:
        """1 for rows of the second of two classes.

        Raises:
            DataError: there are not two classes.
        """
        if len(self.classes) != 2:
            raise DataError(
                f"{objective} needs two classes, y has {len(self.classes)}: {self.classes.tolist()}"
            )
        positive: IntArray = (self.labels == self.classes[1]).astype(np.int64)
        return positive


@dataclass(frozen=True)
class FrontChoice:
    """The tree chosen from a front, with what `ExactTree` reads of a `Solution`.

    Attributes:
        best: the tree.
        decision: (L,), class of each leaf.
        loss: 1 - score, or the share of errors.
        gap: the most by which the loss can exceed the smallest one.
        front: what the tree was chosen from.
        budget: depth and nodes.
        disparity: of a fair tree; else None.
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


@dataclass(frozen=True)
class FrontSearch:
    """A finished search and what it was made of, as `TreeSearch` has them.

    Attributes:
        settings: of the search.
        schema: of the raw columns.
        rules: the binary features.
        features: their answers, shape (N, F).
        solution: the tree chosen.
    """

    settings: SearchSettings
    schema: Schema
    rules: list[Rule]
    features: BoolArray
    solution: FrontChoice


def choose(
    features: pd.DataFrame,
    rows: FrontRows,
    objective: str,
    fairness: Fairness | None,
    max_disparity: float,
    budget: FrontBudget,
) -> FrontChoice:
    """Search for the tree of an objective.

    Args:
        features: binary, (n, F), with names.
        rows: labels, weights and groups.
        objective: one of `FRONT_OBJECTIVES`, or ``"misclassification"`` with `fairness`.
        fairness: the disparity that is limited, or None.
        max_disparity: the limit.
        budget: what the search may use.

    Raises:
        DataError: other than two classes or groups, or see `solve_front`.
        ConfigError: weights that cannot be summed exactly, or see `solve_front`.
    """
    nodes = 2**budget.max_depth - 1 if budget.max_nodes is None else budget.max_nodes
    size = budget.max_depth, min(nodes, 2**budget.max_depth - 1)
    y = rows.positive(f"objective={objective!r}" if fairness is None else f"fairness={fairness!r}")
    if objective == "auc":
        if budget.time_limit is not None:
            raise ConfigError("time_limit is not for objective='auc', whose search is short; leave it None")
        ranking = solve_roc_hull(
            features,
            y,
            budget.max_depth,
            budget.max_nodes,
            sample_weight=rows.weight,
            min_leaf=budget.min_leaf,
            device=budget.device,
        )
        best = ranking.tree()
        leaf = best.tree.apply(features)
        majority = Classification(rows.labels, sample_weight=rows.weight, classes=rows.classes)
        decision = majority.decisions(leaf, best.tree.n_leaves)
        return FrontChoice(best.tree, decision, 1.0 - ranking.auc[-1], 0.0, ranking.table(), size)
    if fairness is not None:
        task = GroupFairness(
            y, _two_groups(rows), fairness, sample_weight=rows.weight, max_disparity=max_disparity
        )
        found = solve_front(features, task, **budget._asdict())
        number = found.best()
        bound = max(0.0, found.lower_bound) * task.unit[0] / task.total_weight
        return _chosen(found, number, lower_bound=bound, size=size, disparity=float(found.values[number, 1]))
    front = ConfusionFront(y, sample_weight=rows.weight, metric=objective)  # type: ignore[arg-type]
    found = solve_front(features, front, **budget._asdict())
    return _chosen(found, found.best(), lower_bound=0.0, size=size)


def _chosen(
    found: FrontSolution,
    number: int,
    *,
    lower_bound: float,
    size: tuple[int, int],
    disparity: float | None = None,
) -> FrontChoice:
    decided = found.tree(number)
    loss = 1.0 - decided.score
    gap = 0.0 if found.certified else max(0.0, loss - lower_bound)
    return FrontChoice(decided.tree, decided.decision, loss, gap, found.table(), size, disparity)


def _two_groups(rows: FrontRows) -> IntArray:
    """Group of each row, 0 or 1.

    Raises:
        ConfigError: groups are not known.
        DataError: there are not two groups.
    """
    if rows.groups is None:
        raise ConfigError("fairness needs the sensitive groups: fit(X, y, sensitive=...)")
    if len(rows.groups.labels) != 2:
        raise DataError(
            f"{rows.groups.name}: fairness compares two groups, there are {len(rows.groups.labels)}: "
            f"{', '.join(rows.groups.labels)}; put them together to two"
        )
    return rows.groups.codes


def check_front(
    settings: Sequence[tuple[str, object]], objective: str, fairness: str | None, max_disparity: object
) -> None:
    """Refuse settings that are for sums over leaves only.

    Args:
        settings: names and values, which have to be None or 0.
        objective: of the tree.
        fairness: the disparity that is limited, or None.
        max_disparity: the limit.

    Raises:
        ConfigError: names the first one that is set, or an unknown fairness or limit.
    """
    if (
        isinstance(max_disparity, bool)
        or not isinstance(max_disparity, Real)
        or not 0 <= float(max_disparity) <= 1
    ):
        raise ConfigError(f"max_disparity must be a number from 0 to 1, got {max_disparity!r}")
    if fairness is not None and fairness not in get_args(Fairness):
        raise ConfigError(
            f"fairness must be None or one of {', '.join(get_args(Fairness))}, got {fairness!r}"
        )
    if fairness is not None and objective != "misclassification":
        raise ConfigError(f"fairness needs objective='misclassification', got {objective!r}")
    if fairness is None and objective not in FRONT_OBJECTIVES:
        return
    cause = f"objective={objective!r}" if fairness is None else f"fairness={fairness!r}"
    for name, value in settings:
        if value is not None and value != 0.0:
            raise ConfigError(f"{name} does not go with {cause}; leave it at its default")
