"""Objectives whose leaves take a decision or hold a mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.data.columns import LARGEST, check_size
from sstorch.exact.targets import check_cost_matrix, check_weights, encode, finite_matrix, finite_vector
from sstorch.exact.task import Entries, OneStepTask
from sstorch.exceptions import ConfigError, DataError


class DecisionCosts(OneStepTask):
    """Mean cost of rows if each leaf takes the one of K decisions with the smallest total cost.

    This is classification with separate costs per row, and any task with finitely many decisions: classes,
    treatments. A split never increases the loss.

    Args:
        costs: cost of each row under each decision, (N, K), any sign; lower is better.
        total: denominator of the mean; None for N.

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
        """One entry per row: the costs under all decisions."""
        return Entries.of_rows(self.costs.T)

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """The smallest of the K sums."""
        return next(cells).amin(0).div_(self.total)

    def loss(self, leaf: IntArray) -> float:
        """Mean cost of the rows under the decisions of their leaves."""
        decision = self.decisions(leaf, int(leaf.max()) + 1)
        return float(self.costs[np.arange(self.n_rows), decision[leaf]].sum() / self.total)

    def decisions(self, leaf: IntArray, n_leaves: int) -> IntArray:
        """Decision of each leaf with the smallest cost, the first of ties, (n_leaves,)."""
        least: IntArray = self.leaf_costs(leaf, n_leaves).argmin(axis=1)
        return least

    def leaf_costs(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Summed cost of the rows of each leaf under every decision, (n_leaves, K)."""
        return np.array([np.bincount(leaf, c, minlength=n_leaves) for c in self.costs.T]).T


class Classification(DecisionCosts):
    """Mean cost of predicting one class per leaf: Σ_i w_i M[k_i, leaf's class] / Σ_i w_i.

    With M = 1 off the diagonal and 0 on it, the default, this is the share of misclassified rows, so that a
    `leaf_penalty` of `solve` is GOSDT's λ.

    Args:
        labels: class of each row, (N,), any sortable type.
        sample_weight: weights, (N,), >= 0, for example from `horizon_labels`; None for 1.
        balanced: True for equal total weight of classes: the weight of a row is divided by K times the weight
            of its class.
        cost_matrix: M[true class, predicted class], (K, K), in the order of `classes`; None counts errors.
            (The package gosdt uses the transpose.)
        classes: all classes; None is those of `labels`.

    Attributes:
        classes: (K,), sorted. Decisions are positions in it.
        codes: (N,), position of the class of each row.
        weight: (N,), weights times the factor of the class.
        cost_matrix: (K, K).

    Raises:
        DataError: invalid labels, weights or costs.
        ConfigError: `balanced` with a class of total weight 0.

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
        weight = check_weights(sample_weight, len(self.codes), labels=labels)
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


@dataclass(frozen=True)
class FeatureCosts:
    """Costs of measuring attributes, paid once per row and path.

    Several binary columns can use the same attribute; only the first on a path has a cost. Attributes of a
    group share a part of their cost, such as drawing blood: after one attribute of the group, the others have
    the discounted price.

    Attributes:
        attribute: attribute of each binary column, (p,), 0 .. A - 1.
        price: price of each attribute, (A,), >= 0.
        discounted: price of each attribute after another attribute of its group, (A,), >= 0, at most `price`.
        group: group of each attribute, (A,); -1 for none.
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
            columns: name of the attribute of each binary column.
            prices: prices of attributes; others are free.
            groups: attributes of each group, by name.
            discounted: prices of attributes after another attribute of the group; 0 by default.

        Raises:
            ConfigError: an unknown attribute, an attribute in two groups, a discount without a group, or
                prices out of range.

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

    @cached_property
    def column_group(self) -> IntArray:
        """Group of each binary column's attribute, (p,); one of its own, negative, for an attribute alone."""
        alone = -1 - np.arange(len(self.group))
        group: IntArray = np.where(self.group < 0, alone, self.group)[self.attribute]
        return group

    def price_of(self, above: IntArray, feature: IntArray) -> FloatArray:
        """Price (n,) of tests of the columns `feature`, (n,), below tests of the columns `above`, (k, n)."""
        asked = self.attribute[feature]
        if not len(above):
            return self.price[asked]
        one_of = np.logical_or.reduce  # with less around it than `any`: most trees ask for few prices
        with_others = one_of(self.column_group[above] == self.column_group[feature])
        price: FloatArray = np.where(with_others, self.discounted[asked], self.price[asked])
        price[one_of(self.attribute[above] == asked)] = 0.0
        return price


class CostSensitive(Classification):
    """Mean cost of errors and of tests: Σ_i (M[k_i, class of the leaf] + prices of the tests above i) / N.

    Args:
        labels: class of each row, (N,).
        cost_matrix: M[true class, predicted class], (K, K), in the unit of the prices.
        feature_costs: costs of tests.
        classes: all classes; None is those of `labels`.

    Raises:
        DataError: invalid labels or costs.

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
        """Cost of a test as a part of the mean over all rows."""
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
        cost_scale: loss per unit of the squares in the search.
        rounding: bound on the rounding error of losses in the search, large for extreme outliers.

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
        self.cost_scale = self._scale**2 / float(self.weight.sum())
        # The search rounds squares to 2^-46 of the largest one.
        self.rounding = 2.0**-44 * self._scale**2

    def entries(self) -> Entries:
        """One entry per row: weight, distance and squared distance from the overall mean."""
        distance = (self.y - self._centre) / self._scale
        return Entries.of_rows(self.weight * np.stack([np.ones(self.n_rows), distance, distance**2]))

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """Σ w d² - (Σ w d)² / Σ w."""
        weight, first, second = next(cells)
        explained = first.square_().div_(weight.clamp_min_(1e-300))
        cost: Tensor = second.sub_(explained).clamp_min_(0.0)
        return cost.mul_(self.cost_scale)

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
