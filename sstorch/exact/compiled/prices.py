"""Prices of tests: what a row pays for a test below others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.feature_costs import FeatureCosts
from sstorch.exact.task import Task, scale_of
from sstorch.optim.compiled.jit import compiled, elementwise


class Prices(NamedTuple):
    """Prices of F features below the tests of a node; all arrays are empty if tests are free."""

    attribute: IntArray  # (F,), what each feature asks for; asked for again it is free
    group: IntArray  # (F,), discounted below each other; negative for an attribute alone
    full: FloatArray  # (F,), in the unit of the loss
    discounted: FloatArray  # (F,), the same below another feature of the group

    @classmethod
    def of(cls, task: Task, columns: IntArray) -> Prices:
        """Those of a task, of the features behind which there are `columns` (F,)."""
        costs: FeatureCosts | None = getattr(task, "feature_costs", None)
        if costs is None:
            return cls.none()
        scale = scale_of(task)
        attribute, group = costs.attribute[columns], costs.column_group[columns]
        return cls(attribute, group, scale * costs.price[attribute], scale * costs.discounted[attribute])

    @classmethod
    def none(cls) -> Prices:
        """Those of free tests."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, np.empty(0), np.empty(0))

    def below(self, feature: int) -> Prices:
        """Prices below a test of a feature."""
        if not len(self.full):
            return self
        again = self.attribute == self.attribute[feature]
        full = np.where(self.group == self.group[feature], self.discounted, self.full)
        full[again] = 0.0
        return self._replace(full=full, discounted=np.where(again, 0.0, self.discounted))

    def with_first(self, n: int) -> Prices:
        """Prices of the first n features."""
        return Prices(self.attribute[:n], self.group[:n], self.full[:n], self.discounted[:n])


@compiled
def price_below(p, x, full, discounted, y):
    """Both prices of feature x, below a test of y."""
    if p.attribute[x] == p.attribute[y]:
        return 0.0, 0.0
    return (discounted if p.group[x] == p.group[y] else full), discounted


@compiled
def prices_of_pairs(p, prefix, size, low, high, out):
    """Prices (size + 2, pairs) of the features of a prefix, low <= d < high and e < d, below the others."""
    for j in range(size + 1):
        at = 0
        for d in range(low, high):
            x = prefix[j] if j < size else d
            full, discounted = p.full[x], p.discounted[x]
            for i in range(size):
                if i != j:
                    full, discounted = price_below(p, x, full, discounted, prefix[i])
            if j < size:
                full, discounted = price_below(p, x, full, discounted, d)
            for e in range(d):
                out[j, at + e] = price_below(p, x, full, discounted, e)[0]
            at += d
    for e in range(high - 1):
        full, discounted = p.full[e], p.discounted[e]
        for i in range(size):
            full, discounted = price_below(p, e, full, discounted, prefix[i])
        at = 0
        for d in range(low, high):
            if e < d:
                out[size + 1, at + e] = price_below(p, e, full, discounted, d)[0]
            at += d


@elementwise
def _paid(costs, rows, price, lower, upper, n, out):
    """Costs of n leaves from `lower` on with what their rows, and those from `upper` on, pay."""
    paid, cost = out[lower : lower + n], costs[lower : lower + n]
    without, present = rows[lower : lower + n], rows[upper : upper + n]
    for i in range(n):
        paid[i] = cost[i] + price[i] * (without[i] + present[i])


@compiled
def pay(costs, rows, price, size, n, signs, by_d, by_e):
    """Costs of leaves without d, and e, with what rows pay with and without it, n pairs of each sign."""
    for s in range(signs):
        without_d, without_e = (4 * (s >> 1) + (s & 1)) * n, 2 * s * n
        _paid(costs, rows, price[size, :n], without_d, without_d + 2 * n, n, by_d)
        _paid(costs, rows, price[size + 1, :n], without_e, without_e + n, n, by_e)


@elementwise
def lower_paid(table, place, width, left, right, n, signs, bit, price, j, rows):
    """Lower entries of a table as for free tests, by costs with what rows pay for a test of feature j."""
    for s in range(signs):
        without = ((s >> bit) << (bit + 1)) | (s & ((1 << bit) - 1))
        at, lower, upper = place + s * width, without * n, (without | (1 << bit)) * n
        least, a, b = table[at : at + n], left[lower : lower + n], right[upper : upper + n]
        absent, present, each = rows[lower : lower + n], rows[upper : upper + n], price[j, :n]
        for i in range(n):
            least[i] = min(least[i], a[i] + each[i] * (absent[i] + present[i]) + b[i])
