"""Objectives of classification trees, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from sstorch.estimators.target_rows import FloatArray
from sstorch.exceptions import ConfigError
from sstorch.optimal import Classification, CostSensitive, FeatureCosts

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
