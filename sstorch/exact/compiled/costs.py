"""Costs of many leaves from their sums."""

from __future__ import annotations

import math

from sstorch.exact.compiled.forms import LEAST, SQUARES
from sstorch.optim.compiled.elementary import log
from sstorch.optim.compiled.jit import compiled, elementwise

_TINY = 1e-290


@elementwise
def _log_ratio(sums, first, n, cost):
    for i in range(n):
        # Equal clamps: a leaf without rows has the ratio 1, one without events a product of nearly 0.
        events = max(sums[first, i], _TINY)
        cost[i] += events * log(max(sums[first + 1, i], _TINY) / events)


@elementwise
def _least(sums, n_decisions, scale, n, cost):
    for i in range(n):
        cost[i] = sums[0, i]
    for k in range(1, n_decisions):
        for i in range(n):
            cost[i] = min(cost[i], sums[k, i])
    for i in range(n):
        cost[i] /= scale


@elementwise
def _squares(sums, scale, n, cost):
    for i in range(n):
        first = sums[1, i]
        cost[i] = max(sums[2, i] - first * first / max(sums[0, i], 1e-300), 0.0) * scale


@compiled
def leaf_costs(sums, n, form, scale, least, cost):
    """Costs of n leaves, infinite where one lacks rows or events.

    Args:
        sums: (C, >= n), channels of the task, then those that `least` (L,) are asked of.
        n: number of leaves.
        form: kind of the cost, see :class:`sstorch.exact.compiled.forms.Form`.
        scale: of the same.
        least: of each of the last channels, what a leaf needs.
        cost: (>= n,), overwritten.
    """
    n_channels = len(sums) - len(least)
    if form == LEAST:
        _least(sums, n_channels, scale, n, cost)
    elif form == SQUARES:
        _squares(sums, scale, n, cost)
    else:
        cost[:n] = 0.0
        for first in range(0, n_channels, 2):
            _log_ratio(sums, first, n, cost)
    for k in range(len(least)):
        for i in range(n):
            if sums[n_channels + k, i] < least[k]:
                cost[i] = math.inf
