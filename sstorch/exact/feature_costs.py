"""Costs of tests, by the attribute that each column of a binary matrix asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
