"""Costs of many leaves from their sums, by the machine code of a task's `leaf_cost`; prices of tests."""

from __future__ import annotations

import hashlib
import math
import sys
from functools import cache, lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from sstorch._types import FloatArray, IntArray
from sstorch.exact import task as protocol
from sstorch.exact.survival_tasks import IntegratedBrier
from sstorch.exact.task import FeatureCosts, LeafCost, Task, scale_of
from sstorch.exceptions import ConfigError
from sstorch.optim.compiled import elementary
from sstorch.optim.compiled.jit import address, cache_folder, call, compiled, elementwise, entry, of_users

# Leaves whose curves are computed at once: their arrays fit the first level cache.
_AT_ONCE = 256
_SIGNATURE = numba.void(
    numba.float64[:, ::1], numba.float64, numba.float64[:, ::1], numba.int64, numba.float64[::1]
)


class Form(NamedTuple):
    """Costs of leaves and their inputs."""

    address: int  # of a kernel that writes the costs of n leaves: (sums, scale, blocks, n, cost)
    scale: float = 1.0  # costs are multiplied by it
    least: FloatArray = np.empty(0)  # (L,), of each of the last channels, what a leaf needs
    # (M, 3), the time axis of curves, see :class:`sstorch.exact.survival_tasks.Blocks`
    blocks: FloatArray = np.empty((0, 3))
    followed: bool = False  # costs are those of curves that follow the rows through time

    @classmethod
    def of(cls, task: Task, floor: bool = False) -> Form:
        """That of a task, or its `floor_cost`, leaves without conditions; ConfigError: not compilable."""
        scale = scale_of(task)
        if isinstance(task, IntegratedBrier):
            place = _address_of(_best_costs if floor else _kaplan_meier_costs)
            return cls(place, scale, blocks=np.stack(task.blocks, axis=1))
        cost = getattr(task, "floor_cost", task.leaf_cost) if floor else task.leaf_cost
        return cls(_loop_of(cost), scale)


@overload(protocol.log)
def _fast_log(x):
    return lambda x: elementary.log(x)


@cache
def say_compiling() -> None:
    """Print one line where the kernels are not compiled yet, which takes some seconds."""
    if not any(cache_folder().rglob("counts.begin-*")):
        print("exact trees: compiling, once per machine", file=sys.stderr, flush=True)


def _each_leaf(sums, scale, blocks, n, cost):
    for i in range(n):
        cost[i] = scale * one(sums, i)  # type: ignore[name-defined]  # noqa: F821 -- a global of each copy


@lru_cache(maxsize=256)
def _loop_of(leaf_cost: LeafCost) -> int:
    """Address of the loop over leaves of a scalar cost. Raises ConfigError: it cannot be compiled."""
    digest = _digest(leaf_cost)
    known = {"one": of_users(cached=False, forceinline=True)(leaf_cost)}
    # numba finds machine code on disk by the name of a function.
    loop = FunctionType(_each_leaf.__code__, known, f"each_leaf_{digest}")
    loop.__qualname__, loop.__module__ = loop.__name__, __name__
    try:
        compiled_loop = of_users(cached=digest is not None)(loop)
        found = address(compiled_loop, _SIGNATURE)
    except numba.core.errors.NumbaError as error:
        raise ConfigError(
            f"leaf_cost must be a function (sums, i) that numba can compile, got {leaf_cost!r}: "
            f"{str(error).strip().splitlines()[-1]}"
        ) from error
    _KEPT.append(compiled_loop)  # its machine code lives as long as it does
    return found


def _digest(leaf_cost: LeafCost) -> str | None:
    """A name for all that a function computes with; None where it uses more than numbers and `log`."""
    code = getattr(leaf_cost, "__code__", None)
    if code is None:
        return None
    names = {name: leaf_cost.__globals__[name] for name in code.co_names if name in leaf_cost.__globals__}
    cells = [cell.cell_contents for cell in leaf_cost.__closure__ or ()]
    used = [*code.co_consts, *cells, *(value for value in names.values() if value is not protocol.log)]
    if not all(isinstance(value, int | float | str | None) for value in used):
        return None
    text = repr((code.co_code, code.co_names, used, leaf_cost.__defaults__))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_KEPT: list[object] = []


@cache
def _address_of(loop: Any) -> int:
    return address(loop, _SIGNATURE)


@elementwise
def _block(sums, first, begin, n, block, best, scale, state, cost):
    at_risk, survival, weight = state[0], state[1], state[2]
    alive, passed, event_weight = block[0], block[1], block[2]
    leaving, events = sums[first, begin : begin + n], sums[first + 1, begin : begin + n]
    square, total = sums[first + 2, begin : begin + n], cost[begin : begin + n]
    for i in range(n):
        a = square[i] + alive * (at_risk[i] - leaving[i])
        weight[i] += event_weight * events[i]
        b = passed * weight[i]
        if best:
            a = max(a, 0.0)
            total[i] += scale * (a * b / max(a + b, 1e-300))
        else:
            s = survival[i] * (1.0 - events[i] / max(at_risk[i], 0.5))
            survival[i] = s
            total[i] += scale * ((1.0 - s) * (1.0 - s) * a + s * s * b)
        at_risk[i] -= leaving[i]


@compiled
def _curve_costs(sums, scale, blocks, n, cost, best):
    """Integrated Brier scores of leaves by Kaplan-Meier curves, or the `best` steps: Σ a b / (a + b)."""
    state = np.empty((3, _AT_ONCE))
    for begin in range(0, n, _AT_ONCE):
        count = min(_AT_ONCE, n - begin)
        state[0], state[1], state[2] = 0.0, 1.0, 0.0
        for m in range(len(blocks)):
            part = sums[3 * m, begin : begin + count]
            for i in range(count):
                state[0, i] += part[i]
        cost[begin : begin + count] = 0.0
        for m in range(len(blocks)):
            _block(sums, 3 * m, begin, count, blocks[m], best, scale, state, cost)


@compiled
def _kaplan_meier_costs(sums, scale, blocks, n, cost):
    _curve_costs(sums, scale, blocks, n, cost, False)


@compiled
def _best_costs(sums, scale, blocks, n, cost):
    _curve_costs(sums, scale, blocks, n, cost, True)


@compiled
def leaf_costs(sums, n, form, cost):
    """Write costs of n leaves by sums of channels, then of rows and events: infinite if one lacks these."""
    # Where rows are followed these conditions are all that is written.
    if form.followed:
        cost[:n] = 0.0
    else:
        call(form.address, (sums, form.scale, form.blocks, n, cost))
    n_channels = len(sums) - len(form.least)
    for k in range(len(form.least)):
        for i in range(n):
            if sums[n_channels + k, i] < form.least[k]:
                cost[i] = math.inf


@entry
def _write_costs(sums, form, cost):
    leaf_costs(sums, sums.shape[1], form, cost)


def costs_of(form: Form, sums: FloatArray) -> FloatArray:
    """Costs (n,) of leaves with sums (C, n)."""
    cost = np.empty(sums.shape[1])
    _write_costs(np.ascontiguousarray(sums, dtype=np.float64), form, cost)
    return cost


class Prices(NamedTuple):
    """Prices of F features below the tests of a node; all arrays are empty if tests are free."""

    attribute: IntArray = np.empty(0, dtype=np.int64)  # (F,), what each asks for; asked for again it is free
    group: IntArray = np.empty(0, dtype=np.int64)  # (F,), discounted below each other; negative if alone
    full: FloatArray = np.empty(0)  # (F,), in the unit of the loss
    discounted: FloatArray = np.empty(0)  # (F,), the same below another feature of the group

    @classmethod
    def of(cls, task: Task, columns: IntArray) -> Prices:
        """Those of a task, of the features behind which there are `columns` (F,)."""
        costs: FeatureCosts | None = getattr(task, "feature_costs", None)
        if costs is None:
            return cls()
        scale = scale_of(task)
        attribute, group = costs.attribute[columns], costs.column_group[columns]
        return cls(attribute, group, scale * costs.price[attribute], scale * costs.discounted[attribute])

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
