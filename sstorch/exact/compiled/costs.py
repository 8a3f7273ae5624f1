"""Costs of many leaves from their sums."""

from __future__ import annotations

import math

import numpy as np

from sstorch.exact.compiled.forms import BLOCKS, FOLLOWED, LEAST, SQUARES
from sstorch.optim.compiled.elementary import log
from sstorch.optim.compiled.jit import compiled, elementwise

_TINY = 1e-290
# Leaves whose curves are drawn at once: what they are at fits the first level cache.
_AT_ONCE = 256


@elementwise
def _log_ratio(sums, first, n, cost):
    for i in range(n):
        # Equal clamps: a leaf without rows has the ratio 1, one without events a product of nearly 0.
        events = max(sums[first, i], _TINY)
        cost[i] += events * log(max(sums[first + 1, i], _TINY) / events)


@elementwise
def _least(sums, n_decisions, scale, n, cost):
    last = n_decisions - 1
    for i in range(n):
        cost[i] = min(sums[0, i], sums[last, i])
    for k in range(1, last):
        for i in range(n):
            cost[i] = min(cost[i], sums[k, i])
    for i in range(n):
        cost[i] /= scale


@elementwise
def _squares(sums, scale, n, cost):
    for i in range(n):
        first = sums[1, i]
        cost[i] = max(sums[2, i] - first * first / max(sums[0, i], 1e-300), 0.0) * scale


@elementwise
def _block(sums, first, begin, n, alive, passed, event_weight, at_risk, survival, weight, cost):
    for i in range(n):
        leaving, events = sums[first, begin + i], sums[first + 1, begin + i]
        a = sums[first + 2, begin + i] + alive * (at_risk[i] - leaving)
        s = survival[i] * (1.0 - events / max(at_risk[i], 0.5))
        survival[i] = s
        weight[i] += event_weight * events
        at_risk[i] -= leaving
        cost[begin + i] += (1.0 - s) * (1.0 - s) * a + s * s * passed * weight[i]


@compiled
def _curves(sums, blocks, n, cost):
    """Integrated Brier scores of leaves with Kaplan-Meier curves, block by block."""
    state = np.empty((3, _AT_ONCE))
    at_risk, survival, weight = state[0], state[1], state[2]
    for begin in range(0, n, _AT_ONCE):
        count = min(_AT_ONCE, n - begin)
        at_risk[:] = 0.0
        survival[:] = 1.0
        weight[:] = 0.0
        for m in range(blocks.shape[1]):
            for i in range(count):
                at_risk[i] += sums[3 * m, begin + i]
        for m in range(blocks.shape[1]):
            alive, passed, event_weight = blocks[0, m], blocks[1, m], blocks[2, m]
            _block(sums, 3 * m, begin, count, alive, passed, event_weight, at_risk, survival, weight, cost)


@compiled
def leaf_costs(sums, n, form, cost):
    """Write the costs of n leaves into `cost`, infinite if one lacks rows or events.

    `sums` (C, >= n) are channels of the task, then those that leaves need some of. Where rows are followed
    these conditions are all that is written.
    """
    n_channels = len(sums) - len(form.least)
    if form.kind == LEAST:
        _least(sums, n_channels, form.scale, n, cost)
    elif form.kind == SQUARES:
        _squares(sums, form.scale, n, cost)
    elif form.kind == BLOCKS or form.kind == FOLLOWED:
        cost[:n] = 0.0
        if form.kind == BLOCKS:
            _curves(sums, form.blocks, n, cost)
    else:
        cost[:n] = 0.0
        for first in range(0, n_channels, 2):
            _log_ratio(sums, first, n, cost)
    for k in range(len(form.least)):
        for i in range(n):
            if sums[n_channels + k, i] < form.least[k]:
                cost[i] = math.inf
