"""Classification: one class per leaf, the objective of GOSDT and of STreeD's accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal.tasks.base import FloatArray, IntArray
from sstorch.optimal.tasks.decision_costs import DecisionCosts, check_weights, finite_matrix


class Classification(DecisionCosts):
    """Mean cost of predicting one class per leaf: Σ_i w_i M[k_i, leaf's class] / Σ_i w_i.

    With M = 1 off the diagonal and 0 on it, the default, this is the share of misclassified rows, so that a
    `leaf_penalty` of `solve` is GOSDT's λ.

    Args:
        labels: class of each row, (N,), anything that can be sorted.
        sample_weight: weights, (N,), >= 0, for instance of `horizon_labels`; None is one each.
        balanced: whether every class counts alike: rows weigh 1 / (K times the weight of their class).
        cost_matrix: M[true class, predicted class], (K, K), in the order of `classes`; None counts errors.
            (The package gosdt wants the transpose.)
        classes: all classes; None is those of `labels`.

    Attributes:
        classes: (K,), sorted. Decisions are positions in it.
        codes: (N,), position of each row's class.
        weight: (N,), weights with the factor of the class.
        cost_matrix: (K, K).

    Raises:
        DataError: labels, weights or costs that cannot be used.
        ConfigError: `balanced` with weights that leave a class out.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML.

    Examples:
        >>> from sstorch.optimal import solve
        >>> task = Classification(["well", "ill", "ill", "well"])
        >>> found = solve([[0, 0], [0, 1], [1, 0], [1, 1]], task, max_depth=2)
        >>> found.tree(nodes=1).n_leaves, found.loss, found.tree().n_leaves, task.classes[found.decisions()]
        (1, 0.0, 4, array(['well', 'ill', 'ill', 'well'], dtype='<U4'))
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        *,
        sample_weight: npt.ArrayLike | None = None,
        balanced: bool = False,
        cost_matrix: npt.ArrayLike | None = None,
        classes: npt.ArrayLike | None = None,
    ) -> None:
        self.classes, self.codes = encode(labels, classes)
        n_classes = len(self.classes)
        weight = check_weights(sample_weight, len(self.codes))
        if balanced:
            share = np.bincount(self.codes, weight, minlength=n_classes)
            if not (share > 0.0).all():
                lacking = self.classes[share <= 0.0].tolist()
                raise ConfigError(
                    f"balanced: no row of class {lacking[0]!r} has weight, so it cannot count alike"
                )
            weight = weight / (n_classes * share[self.codes])
        self.weight = weight
        self.cost_matrix = check_cost_matrix(cost_matrix, n_classes)
        super().__init__(weight[:, None] * self.cost_matrix[self.codes], float(weight.sum()))

    def leaf_weights(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Weight of each class in every leaf, (n_leaves, K)."""
        weights = np.zeros((n_leaves, len(self.classes)))
        np.add.at(weights, (leaf, self.codes), self.weight)
        return weights


def encode(labels: npt.ArrayLike, classes: npt.ArrayLike | None = None) -> tuple[npt.NDArray[Any], IntArray]:
    """Sorted classes (K,), and the position of each row's class among them (N,).

    Raises:
        DataError: no list of labels, or a label that is none of the classes.
    """
    given = np.asarray(labels)
    if given.ndim != 1 or len(given) == 0:
        raise DataError(f"labels: expected one class per row, got the shape {given.shape}")
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise DataError(
            f"labels: row {int(np.flatnonzero(np.isnan(given))[0])} is NaN; drop rows without class"
        )
    found, codes = np.unique(given, return_inverse=True)
    if classes is None:
        return found, codes.astype(np.int64)
    every = np.unique(np.asarray(classes))
    if unknown := sorted(set(found.tolist()) - set(every.tolist())):
        raise DataError(f"labels: {unknown[0]!r} is none of the classes {every.tolist()}")
    return every, np.searchsorted(every, found)[codes].astype(np.int64)


def check_cost_matrix(cost_matrix: npt.ArrayLike | None, n_classes: int) -> FloatArray:
    """M[true class, predicted class], (K, K); None counts errors.

    Raises:
        DataError: another shape, or an entry that is negative or not finite.
    """
    if cost_matrix is None:
        return 1.0 - np.eye(n_classes)
    matrix = finite_matrix(cost_matrix, "cost_matrix")
    if matrix.shape != (n_classes, n_classes) or (matrix < 0.0).any():
        raise DataError(
            f"cost_matrix: expected {n_classes} x {n_classes} costs >= 0, one row for each true class, got "
            f"{matrix.tolist()}"
        )
    return matrix
