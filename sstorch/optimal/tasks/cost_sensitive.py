"""Cost-sensitive classification: errors cost, and so do tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError
from sstorch.optimal.tasks.base import FloatArray, IntArray
from sstorch.optimal.tasks.classification import Classification


@dataclass(frozen=True)
class FeatureCosts:
    """What it costs to learn an attribute of a row, once for each row and path.

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
        """What a test costs, (n,).

        Args:
            above: (k, n), columns tested above.
            feature: (n,), the column tested.
        """
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
        >>> from sstorch.optimal import solve
        >>> features = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
        >>> prices = FeatureCosts.of(["cheap", "dear"], {"cheap": 0.1, "dear": 0.6})
        >>> task = CostSensitive([0, 0, 0, 1], cost_matrix=[[0, 1], [3, 0]], feature_costs=prices)
        >>> found = solve(features, task, max_depth=2)
        >>> round(found.loss, 3), found.tree().names[found.tree().feature[0]], found.tree().n_leaves
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
