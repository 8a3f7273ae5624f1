"""Objectives of classification trees that are no sum over leaves: F1, MCC, AUC, and errors of fair trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.data import Schema
from sstorch.data.groups import Groups
from sstorch.estimators.target_rows import FloatArray
from sstorch.estimators.tree_search import BoolArray, SearchSettings
from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal import BinaryTree, Classification, Optimum, PathStep, Rule
from sstorch.optimal.fronts import (
    ConfusionFront,
    FrontSolution,
    GroupFairness,
    solve_front,
    solve_roc_hull,
)

IntArray = npt.NDArray[np.int64]
FrontObjective = Literal["f1", "balanced_accuracy", "mcc", "auc"]
Fairness = Literal["demographic_parity", "equal_opportunity"]
FRONT_OBJECTIVES: tuple[str, ...] = get_args(FrontObjective)


class Budget(NamedTuple):
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
    budget: Budget,
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
