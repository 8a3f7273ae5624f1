"""Objectives whose leaves take a decision or hold a mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.exact.task import Entries, OneStepTask
from sstorch.exceptions import ConfigError, DataError

PolicyMethod = Literal["direct", "ipw", "doubly_robust"]


class DecisionCosts(OneStepTask):
    """Mean cost of rows whose leaf takes one of K decisions for all its rows: the cheapest in total.

    This is classification with a cost of its own for each row, and every task whose leaves choose among
    finitely many things: classes, treatments. A split never raises the loss.

    Args:
        costs: of each row under each decision, (N, K), any sign; lower is better.
        total: the mean's denominator; None is N.

    Raises:
        DataError: not a matrix of finite numbers with rows and columns.

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

    def entries(self) -> Entries:
        """One entry per row: its cost under every decision."""
        return Entries.of_rows(self.costs.T)

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """The least of the K sums."""
        return next(cells).amin(0).div_(self.total)

    def loss(self, leaf: IntArray) -> float:
        """Mean over rows of their cost under the decision of their leaf."""
        decision = self.decisions(leaf, int(leaf.max()) + 1)
        return float(self.costs[np.arange(self.n_rows), decision[leaf]].sum() / self.total)

    def decisions(self, leaf: IntArray, n_leaves: int) -> IntArray:
        """Of each leaf the cheapest decision, the first of equal ones, (n_leaves,)."""
        least: IntArray = self.leaf_costs(leaf, n_leaves).argmin(axis=1)
        return least

    def leaf_costs(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Summed cost of the rows of each leaf under every decision, (n_leaves, K)."""
        return np.column_stack([np.bincount(leaf, c, minlength=n_leaves) for c in self.costs.T])


def finite_matrix(values: npt.ArrayLike, name: str) -> FloatArray:
    """Read an (N, K) array.

    Raises:
        DataError: it is none, it is empty, or an entry is not finite; the message names the first one.
    """
    array = _numbers(values, name, "a matrix of numbers")
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{name}: expected a matrix with rows and columns, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(
            f"{name}: row {row} holds {array[row, column]} in column {column}; give finite numbers"
        )
    return array


def finite_vector(values: npt.ArrayLike, name: str, n_rows: int | None = None) -> FloatArray:
    """Read an (N,) array. Raises DataError: it is none, has another length, or an entry is not finite."""
    array = _numbers(values, name, "numbers")
    if array.ndim != 1 or len(array) == 0 or (n_rows is not None and len(array) != n_rows):
        wanted = "a list of numbers" if n_rows is None else f"{n_rows} numbers, one per row"
        raise DataError(f"{name}: expected {wanted}, got the shape {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{name}: row {row} holds {array[row]}; give finite numbers")
    return array


def _numbers(values: npt.ArrayLike, name: str, wanted: str) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected {wanted}: {error}") from error


def check_weights(sample_weight: npt.ArrayLike | None, n_rows: int) -> FloatArray:
    """Weights of rows, (N,), ones by default.

    Raises:
        DataError: no list of N finite numbers >= 0 of which one is positive.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    weight = finite_vector(sample_weight, "sample_weight", n_rows)
    if (weight < 0.0).any() or not (weight > 0.0).any():
        raise DataError("sample_weight: expected numbers >= 0, not all of them 0")
    return weight


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
        >>> from sstorch.exact import solve
        >>> task = Classification(["well", "ill", "ill", "well"])
        >>> solution = solve([[0, 0], [0, 1], [1, 0], [1, 1]], task, max_depth=2)
        >>> solution.tree(nodes=1).n_leaves, solution.loss, solution.tree().n_leaves
        (1, 0.0, 4)
        >>> task.classes[solution.decisions()].tolist()
        ['well', 'ill', 'ill', 'well']
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
    present, codes = np.unique(given, return_inverse=True)
    if classes is None:
        return present, codes.astype(np.int64)
    every = np.unique(np.asarray(classes))
    if unknown := sorted(set(present.tolist()) - set(every.tolist())):
        raise DataError(f"labels: {unknown[0]!r} is none of the classes {every.tolist()}")
    return every, np.searchsorted(every, present)[codes].astype(np.int64)


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


@dataclass(frozen=True)
class FeatureCosts:
    """Prices of learning an attribute of a row, paid once for each row and path.

    Binary columns are questions about attributes: several may ask about the same one, and then only the first
    on a path costs. Attributes of a group share a part of their price, such as drawing blood: where one of
    the group was asked for above, the others cost their discounted price.

    Attributes:
        attribute: of each binary column, (p,), its attribute, 0 .. A - 1.
        price: of each attribute, (A,), >= 0.
        discounted: of each attribute where another one of its group is known already, (A,), >= 0, at most
            `price`.
        group: of each attribute, (A,); -1 is none.
    """

    attribute: IntArray
    price: FloatArray
    discounted: FloatArray
    group: IntArray

    def __post_init__(self) -> None:
        sizes = {len(self.price), len(self.discounted), len(self.group)}
        if len(sizes) > 1 or (self.attribute < 0).any() or (self.attribute >= len(self.price)).any():
            raise ConfigError(
                "FeatureCosts: give price, discounted and group for every attribute of a column"
            )
        fair = (self.discounted >= 0.0) & (self.discounted <= self.price) & np.isfinite(self.price)
        if not fair.all():
            bad = int(np.flatnonzero(~fair)[0])
            raise ConfigError(
                f"FeatureCosts: attribute {bad} has the price {self.price[bad]} and the discounted price "
                f"{self.discounted[bad]}; expected finite numbers, 0 <= discounted <= price"
            )

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        prices: Mapping[str, float],
        groups: Mapping[str, Sequence[str]] | None = None,
        discounted: Mapping[str, float] | None = None,
    ) -> FeatureCosts:
        """From names.

        Args:
            columns: of each binary column, the name of its attribute.
            prices: of attributes; one that is not named is free.
            groups: names of groups with the attributes in them.
            discounted: prices of attributes in groups after another one of the group; 0 by default.

        Raises:
            ConfigError: a name that is no attribute, an attribute in two groups, a discount without a group,
                or prices out of range.

        Examples:
            >>> costs = FeatureCosts.of(["age", "iron", "iron", "sugar"], {"iron": 9.0, "sugar": 8.0},
            ...                         groups={"blood": ["iron", "sugar"]}, discounted={"iron": 4.0})
            >>> above, feature = np.array([[0, 1, 3]]), np.array([1, 2, 1])
            >>> costs.price_of(above, feature).tolist()    # iron after age, after iron, and after sugar
            [9.0, 0.0, 4.0]
        """
        names = list(dict.fromkeys(columns))
        groups, discounted = groups or {}, discounted or {}
        inside = [name for members in groups.values() for name in members]
        for name in (*prices, *inside, *discounted):
            if name not in names:
                raise ConfigError(f"feature costs: {name!r} is no attribute; they are {', '.join(names)}")
        if len(set(inside)) < len(inside):
            raise ConfigError("feature costs: an attribute is in two groups; put it into one")
        if lost := [name for name in discounted if name not in inside]:
            raise ConfigError(f"feature costs: {lost[0]!r} has a discount, but is in no group")
        of_group = {name: number for number, members in enumerate(groups.values()) for name in members}
        price = np.array([float(prices.get(name, 0.0)) for name in names])
        lower = [discounted.get(name, 0.0) if name in of_group else price[j] for j, name in enumerate(names)]
        place = {name: j for j, name in enumerate(names)}
        return cls(
            np.array([place[name] for name in columns], dtype=np.int64),
            price,
            np.array(lower, dtype=np.float64),
            np.array([of_group.get(name, -1) for name in names], dtype=np.int64),
        )

    def price_of(self, above: IntArray, feature: IntArray) -> FloatArray:
        """Price (n,) of tests of the columns `feature`, (n,), below tests of the columns `above`, (k, n)."""
        known, asked = self.attribute[above], self.attribute[feature]
        again = (known == asked).any(axis=0)
        with_others = ((self.group[known] == self.group[asked]) & (self.group[asked] >= 0)).any(axis=0)
        return np.where(again, 0.0, np.where(with_others, self.discounted[asked], self.price[asked]))


class CostSensitive(Classification):
    """Mean cost of errors and of tests: Σ_i (M[k_i, class of the leaf] + prices of the tests above i) / N.

    Args:
        labels: class of each row, (N,).
        cost_matrix: M[true class, predicted class], (K, K), in the unit of the prices.
        feature_costs: what tests cost.
        classes: all classes; None is those of `labels`.

    Raises:
        DataError: labels or costs that cannot be used.

    References:
        van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS.

    Examples:
        >>> from sstorch.exact import solve
        >>> features = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
        >>> prices = FeatureCosts.of(["cheap", "dear"], {"cheap": 0.1, "dear": 0.6})
        >>> task = CostSensitive([0, 0, 0, 1], cost_matrix=[[0, 1], [3, 0]], feature_costs=prices)
        >>> solution = solve(features, task, max_depth=2)
        >>> tree = solution.tree()
        >>> round(solution.loss, 3), tree.names[tree.feature[0]], tree.n_leaves
        (0.35, 'x0', 2)
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        *,
        cost_matrix: npt.ArrayLike | None = None,
        feature_costs: FeatureCosts,
        classes: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(labels, cost_matrix=cost_matrix, classes=classes)
        self.feature_costs = feature_costs

    def branch_cost(self, above: IntArray, feature: IntArray) -> FloatArray:
        """Price of a test as a part of the mean over all rows."""
        return self.feature_costs.price_of(above, feature) / self.n_rows


class LeastSquares(OneStepTask):
    """Weighted mean squared error around the mean of each leaf: Σ_i w_i (y_i - mean of the leaf)² / Σ_i w_i.

    A `leaf_penalty` of `solve` is then the `ccp_alpha` of scikit-learn's regression trees.

    Args:
        y: (N,).
        sample_weight: weights, (N,), >= 0; None is one each.

    Attributes:
        y: (N,).
        weight: (N,).
        cost_scale: the loss of a unit of the squares that the search adds up.
        rounding: what losses of the search can be off by, of which an outlier far from all others makes much.

    Raises:
        DataError: values or weights that cannot be used.

    Examples:
        >>> from sstorch.exact import solve
        >>> task = LeastSquares([1.0, 3.0, 8.0, 8.0])
        >>> solution = solve([[0, 0], [0, 1], [1, 0], [1, 1]], task, max_depth=2)
        >>> solution.table().loss.round(3).tolist(), solution.decisions(solution.tree(nodes=1)).tolist()
        ([9.5, 0.5, 0.0, 0.0], [2.0, 8.0])
    """

    def __init__(self, y: npt.ArrayLike, *, sample_weight: npt.ArrayLike | None = None) -> None:
        self.y = finite_vector(y, "y")
        self.n_rows = len(self.y)
        self.weight = check_weights(sample_weight, self.n_rows)
        # Distances from the mean, in units of their size: sums of squares then lose few digits.
        self._centre = float(np.average(self.y, weights=self.weight))
        self._scale = float(np.abs(self.y - self._centre).max()) or 1.0
        self.cost_scale = self._scale**2 / float(self.weight.sum())
        # The search rounds squares to 2^-46 of the largest one.
        self.rounding = 2.0**-44 * self._scale**2

    def entries(self) -> Entries:
        """One entry per row: its weight, with distance and squared distance from the mean of all."""
        distance = (self.y - self._centre) / self._scale
        return Entries.of_rows(self.weight * np.stack([np.ones(self.n_rows), distance, distance**2]))

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """Σ w d² - (Σ w d)² / Σ w."""
        weight, first, second = next(cells)
        explained = first.square_().div_(weight.clamp_min_(1e-300))
        cost: Tensor = second.sub_(explained).clamp_min_(0.0)
        return cost.mul_(self.cost_scale)

    def loss(self, leaf: IntArray) -> float:
        """Weighted mean of squared distances from the leaf's mean, row by row."""
        mean = self.decisions(leaf, int(leaf.max()) + 1)
        return float(np.average((self.y - mean[leaf]) ** 2, weights=self.weight))

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Weighted mean of each leaf, that of all rows in leaves without weight, (n_leaves,)."""
        weight = np.bincount(leaf, self.weight, minlength=n_leaves)
        total = np.bincount(leaf, self.weight * (self.y - self._centre), minlength=n_leaves)
        mean: FloatArray = self._centre + np.divide(total, weight, out=np.zeros(n_leaves), where=weight > 0.0)
        return mean


class Policy(DecisionCosts):
    """Mean estimated outcome, turned over, of a policy that gives each leaf one of K treatments.

    The loss is -Σ_i Γ[i, treatment of the leaf of i] / N, so that the least loss is the greatest value.

    Args:
        scores: Γ, estimated outcome of each row under each treatment, (N, K), higher is better: of
            `policy_scores`, or of any model: survival probabilities at a horizon, restricted mean survival.

    Raises:
        DataError: not a matrix of finite numbers.

    References:
        Zhou, Athey and Wager (2023), Offline multi-action policy learning, Operations Research 71, 148-183.

    Examples:
        >>> from sstorch.exact import solve
        >>> solution = solve([[0], [0], [1]], Policy([[2.0, 1.0], [3.0, 3.5], [0.0, 4.0]]), max_depth=1)
        >>> -solution.loss, solution.decisions().tolist()
        (3.0, [0, 1])
    """

    def __init__(self, scores: npt.ArrayLike) -> None:
        self.scores = finite_matrix(scores, "scores")
        super().__init__(-self.scores)


def policy_scores(
    method: PolicyMethod,
    *,
    treatment: npt.ArrayLike,
    outcome: npt.ArrayLike,
    propensity: npt.ArrayLike | None = None,
    predicted: npt.ArrayLike | None = None,
) -> FloatArray:
    """Scores Γ of rows under treatments, from observed outcomes of treatments that were chosen by others.

    With t the treatment given, y its outcome, e(t) its propensity and m a model of the outcome:

    * ``"direct"``: Γ_k = m_k;
    * ``"ipw"``: Γ_k = 1(t = k) y / e(t);
    * ``"doubly_robust"``: Γ_k = m_k + 1(t = k) (y - m_k) / e(t), right if either model is.

    Args:
        method: see above.
        treatment: position 0 .. K - 1 of the treatment given, (N,).
        outcome: (N,), higher is better.
        propensity: probability with which each row got its treatment, (N,), in (0, 1]; or of all
            treatments, (N, K). Not needed by ``"direct"``.
        predicted: m, (N, K), best of a model that did not see the row. Not needed by ``"ipw"``.

    Returns:
        Γ, (N, K).

    Raises:
        ConfigError: an unknown method, or an argument that it needs is missing.
        DataError: an array of the wrong shape, a propensity outside (0, 1], or a treatment out of range.

    Examples:
        >>> policy_scores("ipw", treatment=[0, 1], outcome=[3.0, 1.0], propensity=[0.5, 0.25]).tolist()
        [[6.0, 0.0], [0.0, 4.0]]
    """
    if method not in get_args(PolicyMethod):
        raise ConfigError(f"method must be one of {', '.join(get_args(PolicyMethod))}, got {method!r}")
    needs = {"predicted": predicted} if method != "ipw" else {}
    needs |= {"propensity": propensity} if method != "direct" else {}
    for name, value in needs.items():
        if value is None:
            raise ConfigError(f"method {method!r} needs {name}")
    y = finite_vector(outcome, "outcome")
    n_rows = len(y)
    model = None if predicted is None else finite_matrix(predicted, "predicted")
    given, n_treatments = _treatments(treatment, n_rows, model, propensity)
    if method == "direct" or model is None:
        scores = np.zeros((n_rows, n_treatments)) if model is None else model.copy()
    else:
        scores = model.copy() if method == "doubly_robust" else np.zeros((n_rows, n_treatments))
    if method == "direct":
        return scores
    rows = np.arange(n_rows)
    scores[rows, given] += (y - scores[rows, given]) / _propensity(propensity, given, n_treatments)
    return scores


def _treatments(
    treatment: npt.ArrayLike, n_rows: int, model: FloatArray | None, propensity: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int64], int]:
    """The treatments given (N,), and K."""
    given = finite_vector(treatment, "treatment", n_rows)
    if (given != np.floor(given)).any() or (given < 0).any():
        raise DataError("treatment: expected positions 0, 1, ... of treatments")
    n_treatments = int(given.max()) + 1
    if model is not None:
        if len(model) != n_rows or model.shape[1] < n_treatments:
            raise DataError(
                f"predicted: expected {n_rows} rows and at least {n_treatments} columns, one per treatment, "
                f"got the shape {model.shape}"
            )
        n_treatments = model.shape[1]
    elif propensity is not None and np.ndim(propensity) == 2:
        n_treatments = max(n_treatments, np.shape(propensity)[1])
    elif len(never := np.setdiff1d(np.arange(n_treatments), given)):
        raise DataError(
            f"treatment: no row got {never[0]}; number the treatments from 0 on without gaps, or give "
            "predicted or propensity a column for each"
        )
    return given.astype(np.int64), n_treatments


def _propensity(
    propensity: npt.ArrayLike | None, given: npt.NDArray[np.int64], n_treatments: int
) -> FloatArray:
    """Propensity of the treatment given, (N,)."""
    if np.ndim(propensity) == 2:  # type: ignore[arg-type]
        every = finite_matrix(propensity, "propensity")  # type: ignore[arg-type]
        if every.shape != (len(given), n_treatments):
            raise DataError(
                f"propensity: expected {len(given)} rows and {n_treatments} columns, got {every.shape}"
            )
        chance: FloatArray = every[np.arange(len(given)), given]
    else:
        chance = finite_vector(propensity, "propensity", len(given))  # type: ignore[arg-type]
    if not ((chance > 0.0) & (chance <= 1.0)).all():
        row = int(np.flatnonzero(~((chance > 0.0) & (chance <= 1.0)))[0])
        raise DataError(
            f"propensity: row {row} got its treatment with probability {chance[row]:g}; expected above 0, at "
            "most 1. Leave out rows that could have had one treatment only, or bound the probabilities"
        )
    return chance
