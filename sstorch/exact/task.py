"""The protocol of an objective, a sum over leaves of a cost of sums over rows, and costs of tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError


@dataclass(frozen=True)
class FeatureCosts:
    """Costs of measuring attributes, paid once per row and path.

    Several binary columns can use the same attribute; only the first on a path has a cost. Attributes of a
    group share a part of their cost, such as drawing blood: after one of them the others are discounted.

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
                f"FeatureCosts: attribute {bad} must have finite numbers, 0 <= discounted <= price, got the "
                f"price {self.price[bad]} and the discounted price {self.discounted[bad]}"
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
            >>> costs.price_of([0], 1), costs.price_of([1], 2), costs.price_of([3], 1)
            (9.0, 0.0, 4.0)
        """
        place = {name: j for j, name in enumerate(dict.fromkeys(columns))}
        members = [(name, k) for k, names in enumerate((groups or {}).values()) for name in names]
        of_group, less = dict(members), discounted or {}
        for name in (*prices, *of_group, *less):
            if name not in place:
                raise ConfigError(f"feature costs: {name!r} is no attribute; they are {', '.join(place)}")
        if len(of_group) < len(members):
            raise ConfigError("feature costs: an attribute is in two groups; put it into one")
        if lost := [name for name in less if name not in of_group]:
            raise ConfigError(f"feature costs: {lost[0]!r} has a discount, but is in no group")
        price = np.array([float(prices.get(name, 0.0)) for name in place])
        lower = [less.get(name, 0.0) if name in of_group else price[j] for name, j in place.items()]
        return cls(
            np.array([place[name] for name in columns], dtype=np.int64),
            price,
            np.array(lower, dtype=np.float64),
            np.array([of_group.get(name, -1) for name in place], dtype=np.int64),
        )

    @cached_property
    def column_group(self) -> IntArray:
        """Group of each binary column's attribute, (p,); a negative number each for one in no group."""
        alone = -1 - np.arange(len(self.group))
        group: IntArray = np.where(self.group < 0, alone, self.group)[self.attribute]
        return group

    def price_of(self, above: Sequence[int], feature: int) -> float:
        """Price of a test of a column below tests of other columns."""
        asked, known = self.attribute[feature], list(above)
        if (self.attribute[known] == asked).any():
            return 0.0
        with_others = (self.column_group[known] == self.column_group[feature]).any()
        return float((self.discounted if with_others else self.price)[asked])

    def paid(self, tree: BinaryTree, leaf: IntArray) -> float:
        """Payment of all rows for the tests above their `leaf` (N,) of a tree over columns."""
        paths = [[column for column, _ in path] for path in tree.paths()]
        each = [sum(self.price_of(path[:k], asked) for k, asked in enumerate(path)) for path in paths]
        return float(np.bincount(leaf, minlength=tree.n_leaves) @ each)


LeafCost = Callable[[FloatArray, int], float]


def log(x: float) -> float:
    """The natural logarithm, x > 0: in a `leaf_cost` several times as fast as `math.log`."""
    return math.log(x)


class Task(Protocol):
    """A loss: a constant plus a sum over leaves of costs, functions of sums over the rows of the leaf.

    `check_task` tests whether a task satisfies this protocol. Optional members:

    * `decisions(leaf, n_leaves)`, (n_leaves, ...): the class, treatment, mean or curve of each leaf of a
      partition, from the leaf of each row (N,);
    * `event`, (N,) bool: for a minimum number of events per leaf;
    * `feature_costs`, a :class:`~sstorch.exact.FeatureCosts`: what rows of a branch node pay for its test, in
      the unit of `leaf_cost`;
    * `scale`: loss per unit of `leaf_cost` (1);
    * `floor_cost(sums, i)`: a lower bound on the cost of any tree on the rows, that of all rows being at
      least the sum of those of two parts (`leaf_cost`, for losses that no split increases);
    * `rounding`: bound on the error of losses in the search;
    * `costs_of_predictions(predicted)`, (N,): for :func:`~sstorch.exact.reference_costs`.

    Attributes:
        n_rows: N.
        constant: part of the loss of every tree apart from the costs of its leaves.
        leaf_cost: cost of leaf i from the sums (C, n) of n leaves, 0 for sums of 0: a static method of
            arithmetic on `sums[0, i]`, `sums[1, i]` and so on, which numba compiles.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def constant(self) -> float: ...  # noqa: D102
    @property
    def leaf_cost(self) -> LeafCost: ...  # noqa: D102

    def row_values(self) -> FloatArray:
        """Contributions of each row to the C sums of its leaf, (C, N)."""
        ...

    def loss(self, leaf: IntArray) -> float:
        """Total loss of a partition, (N,) leaf of each row, by definition, row by row."""
        ...


def scale_of(task: Task) -> float:
    """Loss per unit of `leaf_cost`."""
    return float(getattr(task, "scale", 1.0))


def loss_of(task: Task, tree: BinaryTree, leaf: IntArray) -> float:
    """Loss of a tree over columns, with what the rows pay for its tests, from the `leaf` of each row (N,)."""
    costs: FeatureCosts | None = getattr(task, "feature_costs", None)
    return task.loss(leaf) + (0.0 if costs is None else scale_of(task) * costs.paid(tree, leaf))
