"""Objectives whose leaves take a decision or hold a mean, and targets for them from observed outcomes."""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, check_same_order, rows_text
from sstorch.data.columns import LARGEST, check_size
from sstorch.data.target import parse_target, time_of_rows
from sstorch.exact.rows import check_weights, encode, finite_matrix, finite_vector
from sstorch.exact.task import FeatureCosts, LeafCost
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import censoring_distribution


@cache
def _least_of(n_decisions: int) -> LeafCost:
    """The smallest of so many sums."""

    def leaf_cost(sums: FloatArray, i: int) -> float:
        least: float = sums[0, i]
        for k in range(1, n_decisions):
            least = min(least, sums[k, i])
        return least

    return leaf_cost


class DecisionCosts:
    """Mean cost of rows if each leaf takes the one of K decisions with the smallest total cost.

    With minus the scores of :func:`policy_scores`, or of a model, it is minus the value of a policy that
    assigns one of K treatments to each leaf. A split never increases the loss.

    Args:
        costs: cost of each row under each decision, (N, K), any sign; lower is better.
        total: denominator of the mean; None for N.

    Raises:
        DataError: not a matrix of finite numbers with rows and columns.

    References:
        Zhou, Athey and Wager (2023), Offline multi-action policy learning, Operations Research 71, 148-183.

    Examples:
        >>> from sstorch.exact import solve
        >>> task = DecisionCosts([[0.0, 5.0], [1.0, 0.0], [4.0, 0.5]])
        >>> solution = solve([[0], [1], [1]], task, max_depth=1)
        >>> round(solution.loss, 4), solution.decisions().tolist()
        (0.1667, [0, 1])
    """

    def __init__(self, costs: npt.ArrayLike, total: float | None = None) -> None:
        self.costs = finite_matrix(costs, "costs")
        self.n_rows = len(self.costs)
        self.total = float(self.n_rows if total is None else total)
        self.constant, self.scale = 0.0, 1.0 / self.total
        self.leaf_cost = _least_of(self.costs.shape[1])

    def row_values(self) -> FloatArray:
        """The costs of each row under all decisions, (K, N)."""
        return self.costs.T

    def loss(self, leaf: IntArray) -> float:
        """Mean cost of the rows under the decisions of their leaves."""
        decision = self.decisions(leaf, int(leaf.max()) + 1)
        return float(self.costs[np.arange(self.n_rows), decision[leaf]].sum() / self.total)

    def decisions(self, leaf: IntArray, n_leaves: int) -> IntArray:
        """Decision of each leaf with the smallest cost, the first of ties, (n_leaves,)."""
        least: IntArray = self.leaf_costs(leaf, n_leaves).argmin(axis=1)
        return least

    def costs_of_predictions(self, predicted: npt.ArrayLike) -> FloatArray:
        """Part of the loss of each row under predicted decisions, positions (N,), shape (N,)."""
        places = finite_vector(predicted, "predicted decisions", self.n_rows).astype(np.int64)
        if places.min() < 0 or places.max() >= self.costs.shape[1]:
            raise DataError(f"predicted decisions must be positions 0 to {self.costs.shape[1] - 1}")
        costs: FloatArray = self.costs[np.arange(self.n_rows), places] * self.scale
        return costs

    def leaf_costs(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Summed cost of the rows of each leaf under every decision, (n_leaves, K)."""
        return np.array([np.bincount(leaf, c, minlength=n_leaves) for c in self.costs.T]).T


class Classification(DecisionCosts):
    """Mean cost of predicting one class per leaf: Σ_i w_i M[k_i, leaf's class] / Σ_i w_i, and of tests.

    With M = 1 off the diagonal and 0 on it, the default, this is the share of misclassified rows, so that a
    `leaf_penalty` of `solve` is GOSDT's λ.

    Args:
        labels: class of each row, (N,), any sortable type.
        sample_weight: weights, (N,), >= 0, for example from `horizon_labels`; None for 1.
        balanced: True for equal total weight of classes.
        cost_matrix: M[true class, predicted class], (K, K), in the order of `classes`; None counts errors.
            (The package gosdt uses the transpose.)
        feature_costs: what a row pays for the tests above its leaf, in the unit of M; not with weights.
        classes: all classes; None is those of `labels`.

    Attributes:
        classes: (K,), sorted. Decisions are positions in it.
        codes: (N,), position of the class of each row.
        weight: (N,), weights; if balanced over K times the weight of the class.
        cost_matrix: (K, K).

    Raises:
        DataError: invalid labels, weights or costs.
        ConfigError: `balanced` with a class of total weight 0; or costs of tests with weights.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML. van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS (costs of tests).

    Examples:
        >>> from sstorch.exact import solve
        >>> task = Classification(["well", "ill", "ill", "well"])
        >>> solution = solve([[0, 0], [1, 0], [0, 1], [1, 1]], task, max_depth=2)
        >>> solution.tree(nodes=1).n_leaves, solution.loss, task.classes[solution.decisions()].tolist()
        (1, 0.0, ['well', 'ill', 'ill', 'well'])
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        *,
        sample_weight: npt.ArrayLike | None = None,
        balanced: bool = False,
        cost_matrix: npt.ArrayLike | None = None,
        feature_costs: FeatureCosts | None = None,
        classes: npt.ArrayLike | None = None,
    ) -> None:
        self.classes, self.codes = encode(labels, classes)
        n_classes = len(self.classes)
        weight = check_weights(sample_weight, len(self.codes), labels=labels)
        if balanced:
            share = np.bincount(self.codes, weight, minlength=n_classes)
            if not (share > 0.0).all():
                lacking = self.classes[share <= 0.0].tolist()
                raise ConfigError(
                    f"balanced: no row of class {lacking[0]!r} has weight, so it cannot count alike"
                )
            weight = weight / (n_classes * share[self.codes])
        if feature_costs is not None:
            if (weight != 1.0).any():
                raise ConfigError(
                    "feature_costs and sample_weight do not go together: a test costs the same for every "
                    "row. Repeat rows, or leave one of them out"
                )
            self.feature_costs = feature_costs
        self.weight, self.cost_matrix = weight, 1.0 - np.eye(n_classes)
        if cost_matrix is not None:
            self.cost_matrix = finite_matrix(cost_matrix, "cost_matrix")
            if self.cost_matrix.shape != (n_classes, n_classes) or (self.cost_matrix < 0.0).any():
                raise DataError(
                    f"cost_matrix must have {n_classes} x {n_classes} costs >= 0, one row for each true "
                    f"class, got {self.cost_matrix.tolist()}"
                )
        super().__init__(weight[:, None] * self.cost_matrix[self.codes], float(weight.sum()))

    def costs_of_predictions(self, predicted: npt.ArrayLike) -> FloatArray:
        """Part of the loss of each row under predicted classes, (N,)."""
        return super().costs_of_predictions(encode(predicted, self.classes)[1])

    def leaf_weights(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Weight of each class in every leaf, (n_leaves, K)."""
        weights = np.zeros((n_leaves, len(self.classes)))
        np.add.at(weights, (leaf, self.codes), self.weight)
        return weights


class LeastSquares:
    """Weighted mean squared error around the mean of each leaf: Σ_i w_i (y_i - mean of the leaf)² / Σ_i w_i.

    A `leaf_penalty` of `solve` is then the `ccp_alpha` of scikit-learn's regression trees.

    Args:
        y: (N,).
        sample_weight: weights, (N,), >= 0; None is one each.

    Raises:
        DataError: invalid values or weights, values above 1e100, or differences below 1e-100.

    Examples:
        >>> from sstorch.exact import solve
        >>> task = LeastSquares([1.0, 3.0, 8.0, 8.0])
        >>> solution = solve([[0, 0], [0, 1], [1, 0], [1, 1]], task, max_depth=2)
        >>> solution.table().loss.round(3).tolist(), solution.decisions(solution.tree(nodes=1)).tolist()
        ([9.5, 0.5, 0.0, 0.0], [2.0, 8.0])
    """

    def __init__(self, y: npt.ArrayLike, *, sample_weight: npt.ArrayLike | None = None) -> None:
        self.y = finite_vector(y, "y")
        check_size(self.y, "y")
        self.n_rows = len(self.y)
        self.weight = check_weights(sample_weight, self.n_rows, y=y)
        # Distances from the mean, in units of their size: sums of squares then lose few digits.
        self._centre = float(np.average(self.y, weights=self.weight))
        self._scale = float(np.abs(self.y - self._centre).max()) or 1.0
        if self._scale < 1.0 / LARGEST:
            raise DataError(
                f"y differs by at most {self._scale:.3g} from its mean, too little for squares in double "
                "precision; give y in a smaller unit"
            )
        self.constant, self.scale = 0.0, self._scale**2 / float(self.weight.sum())
        # The search rounds squares to 2^-46 of the largest one.
        self.rounding = 2.0**-44 * self._scale**2

    @staticmethod
    def leaf_cost(sums: FloatArray, i: int) -> float:
        """Σ w d² - (Σ w d)² / Σ w."""
        first = sums[1, i]
        cost: float = max(sums[2, i] - first * first / max(sums[0, i], 1e-300), 0.0)
        return cost

    def row_values(self) -> FloatArray:
        """Weight, and weighted distance and squared distance from the overall mean, (3, N)."""
        distance = (self.y - self._centre) / self._scale
        values: FloatArray = self.weight * np.stack([np.ones(self.n_rows), distance, distance**2])
        return values

    def costs_of_predictions(self, predicted: npt.ArrayLike) -> FloatArray:
        """Part of the loss of each row under predicted means, (N,)."""
        error = self.y - finite_vector(predicted, "predicted means", self.n_rows)
        costs: FloatArray = self.weight * error**2 / self.weight.sum()
        return costs

    def loss(self, leaf: IntArray) -> float:
        """Weighted mean of squared distances from the mean of the leaf, row by row."""
        mean = self._distances(leaf, int(leaf.max()) + 1)
        return float(np.average((self.y - self._centre - mean[leaf]) ** 2, weights=self.weight))

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Weighted mean of each leaf, (n_leaves,); the overall mean for leaves without weight."""
        return self._centre + self._distances(leaf, n_leaves)

    def _distances(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Distance of each leaf's mean from the overall mean, (n_leaves,)."""
        weight = np.bincount(leaf, self.weight, minlength=n_leaves)
        total = np.bincount(leaf, self.weight * (self.y - self._centre), minlength=n_leaves)
        mean: FloatArray = np.divide(total, weight, out=np.zeros(n_leaves), where=weight > 0.0)
        return mean


PolicyMethod = Literal["direct", "ipw", "doubly_robust"]


def horizon_labels(time: npt.ArrayLike, event: npt.ArrayLike, horizon: float) -> tuple[IntArray, FloatArray]:
    """Compute labels and censoring weights for classification of events up to a horizon.

    Weights are 1 / G(t-) for rows with an event by the horizon, 1 / G(horizon-) for rows with follow-up to
    the horizon or longer without an event, and 0 for rows censored before. G is the Kaplan-Meier estimate of
    the censoring distribution, P(C > t), of all rows, with tied events before censorings; censoring must not
    depend on X.

    Args:
        time: observed times, (N,).
        event: True or 1 if the event was observed, (N,).
        horizon: > 0, in the unit of the times.

    Returns:
        Labels (N,), 1 for an observed event up to the horizon, else 0; and weights (N,).

    Raises:
        DataError: as `sstorch.Surv`; a horizon that is not positive, beyond the event-free follow-up of all
            rows, or before the first event.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> labels, weights = horizon_labels([1.0, 2.0, 3.0, 5.0, 6.0], [1, 0, 1, 0, 1], horizon=4.0)
        >>> labels.tolist(), weights.round(3).tolist()
        ([1, 0, 1, 0, 0], [1.0, 0.0, 1.333, 1.333, 1.333])
    """
    times, events = parse_target((time, event))
    if not (np.isfinite(horizon) and horizon > 0.0):
        raise DataError(f"horizon must be a time > 0, got {horizon}")
    horizon = time_of_rows(horizon, times)
    early = events & (times <= horizon)
    alive = (times > horizon) | ((times == horizon) & ~events)
    for found, what, other in (
        (alive, f"was observed so long without event, the last time is {times.max():g}", "an earlier"),
        (early, "has an event up to then", "a later"),
    ):
        if not found.any():
            raise DataError(f"horizon={horizon:g}: no row {what}; choose {other} one")
    censoring = censoring_distribution((times, events))
    weights = np.zeros(len(times))
    weights[early] = 1.0 / censoring.before(times[early])
    weights[alive] = 1.0 / float(censoring.before(np.array([horizon]))[0])
    return early.astype(np.int64), weights


def policy_scores(
    method: PolicyMethod,
    *,
    treatment: npt.ArrayLike,
    outcome: npt.ArrayLike,
    propensity: npt.ArrayLike | None = None,
    predicted: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute scores Γ of rows under treatments from observational data.

    With t the treatment given, y its outcome, e(t) its propensity and m a model of the outcome:

    * ``"direct"``: Γ_k = m_k;
    * ``"ipw"``: Γ_k = 1(t = k) y / e(t);
    * ``"doubly_robust"``: Γ_k = m_k + 1(t = k) (y - m_k) / e(t), consistent if either model is correct.

    Args:
        method: see above.
        treatment: position 0 .. K - 1 of the treatment given, (N,).
        outcome: (N,), higher is better.
        propensity: probability of the received treatment, (N,), in (0, 1]; or of all treatments, (N, K). Not
            needed for ``"direct"``.
        predicted: m, (N, K), preferably from a model trained on other rows. Not needed for ``"ipw"``.

    Returns:
        Γ, (N, K).

    Raises:
        ConfigError: an unknown method, or a missing argument.
        DataError: an array of the wrong shape, a propensity outside (0, 1], or a treatment out of range.

    Examples:
        >>> policy_scores("ipw", treatment=[0, 1], outcome=[3.0, 1.0], propensity=[0.5, 0.25]).tolist()
        [[6.0, 0.0], [0.0, 4.0]]
    """
    check_choice(method, "method", get_args(PolicyMethod))
    for name, value, other in (("predicted", predicted, "ipw"), ("propensity", propensity, "direct")):
        if value is None and method != other:
            raise ConfigError(f"method {method!r} needs {name}")
    check_same_order(outcome=outcome, treatment=treatment, propensity=propensity, predicted=predicted)
    y = finite_vector(outcome, "outcome")
    received = finite_vector(treatment, "treatment", len(y))
    if (received != np.floor(received)).any() or (received < 0).any():
        raise DataError("treatment must be positions 0, 1, ... of treatments")
    given, rows = received.astype(np.int64), np.arange(len(y))
    wide = {"predicted": predicted, "propensity": propensity if np.ndim(propensity) == 2 else None}  # type: ignore[arg-type]
    tables = {name: finite_matrix(value, name) for name, value in wide.items() if value is not None}
    n_treatments = max([int(given.max()) + 1, *(table.shape[1] for table in tables.values())])
    for name, table in tables.items():
        if table.shape != (len(y), n_treatments):
            raise DataError(
                f"{name} must have {len(y)} rows and {n_treatments} columns, one per treatment, got the "
                f"shape {table.shape}"
            )
    if not tables and len(never := np.setdiff1d(np.arange(n_treatments), given)):
        raise DataError(
            f"treatment: no row got {never[0]}; number the treatments from 0 on without gaps, or give "
            "predicted or propensity a column for each"
        )
    model = np.zeros((len(y), n_treatments)) if method == "ipw" else tables["predicted"].copy()
    if method == "direct":
        return model
    if "propensity" in tables:
        chance = tables["propensity"][rows, given]
    else:
        chance = finite_vector(propensity, "propensity", len(y))  # type: ignore[arg-type]
    if (bad := (chance <= 0.0) | (chance > 1.0)).any():
        raise DataError(
            f"propensity must be above 0, at most 1, got {chance[bad][0]:g} for the treatment of "
            f"{rows_text(bad)}. Leave out rows that could have had one treatment only, or bound the "
            "probabilities"
        )
    model[rows, given] += (y - model[rows, given]) / chance
    return model
