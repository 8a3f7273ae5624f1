"""A visit of a node of one problem: the step of its gates and that of the leaves below it.

Nothing is kept between calls: a problem's rows are gathered and its scores worked out again, which costs a
few per cent of the steps and bounds the memory by one problem a thread.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import types

from sstorch.optim.compiled.elementary import TINY
from sstorch.optim.compiled.jit import (
    address,
    borrowing,
    call_by_address,
    compiled,
    elementwise,
    entry,
    summing,
    take,
)
from sstorch.optim.compiled.lbfgs import OPTIONS, minimize
from sstorch.optim.compiled.matrix import copy, fill, inner, product, score, total
from sstorch.optim.compiled.parts import PROBLEMS, fit_leaves, gathered, picked, rows_of
from sstorch.optim.compiled.records import (
    BN,
    IS_WHOLE,
    N_RECORDS,
    NONE,
    SHARE,
    STEP,
    WLR,
    write_record,
    write_skip,
)
from sstorch.optim.compiled.steps import (
    GATES,
    LOGISTIC,
    ROOM,
    Penalties,
    V,
    Weights,
    gate_sides,
    leaf_losses,
    make_room,
    reach_ends,
    set_shapes,
)
from sstorch.optim.compiled.steps import ROWS as ROWS_OF_STEP

_NUMBERS = types.float64[::1]
# Problems, one of them, a node, its rows, their weights and the sum of these; thresholds and the number of
# training rows; options, record and room.
_VISITED = PROBLEMS, types.int64, types.int64, ROWS_OF_STEP, _NUMBERS, types.float64
_TRAIN_GATES = types.void(*_VISITED, _NUMBERS, types.float64, OPTIONS, _NUMBERS, ROOM)
_TRAIN_LEAVES = types.void(*_VISITED, OPTIONS, _NUMBERS, ROOM)
_call_for_step = call_by_address(_TRAIN_GATES, _TRAIN_LEAVES)
# A leaf whose hazard overflows at a row; as sstorch.optim.steps.LOSS_CEILING.
CEILING = 1e10


@borrowing
def _level(node):
    level = 0
    while (2 << level) <= node:
        level += 1
    return level


@borrowing
def _gate_under(node, h):
    """Number of gate h, in heap order from 0, of those under a node."""
    level = _level(h + 1)
    return (node << level) + (h + 1 - (1 << level))


@compiled
def _gates_under(b, k, node, n_gates):
    """Parameters of the first gates under a node, in heap order, side by side."""
    width = b.model.p_gate + 1
    flat = np.empty(n_gates * width)
    for h in range(n_gates):
        copy(b.gates[k, _gate_under(node, h) - 1], width, flat[h * width :])
    return flat


@elementwise
def _stay(z, left, n, on):
    """Take the rows off that a gate sends to the other side."""
    for i in range(n):
        on[i] &= (z[i] >= 0) == left


@compiled
def _visiting(b, k, rows, node, room):
    """Rows of positive weight whose most probable path passes a node, ascending."""
    n, width, level = b.weight.shape[1], b.model.p_gate + 1, _level(node)
    on, weight = np.empty(n, np.bool_), b.weight[k]
    for i in range(n):
        on[i] = weight[i] > 0
    z = room.work[b.model.gates]
    for up in range(level):
        gate, child = node >> (level - up), node >> (level - up - 1)
        theta = b.gates[k, gate - 1]
        for lo in range(0, n, z.size):
            size = min(z.size, n - lo)
            score(rows.x, b.model.first_gate, b.model.p_gate, lo, size, theta, theta[width - 1], z)
            _stay(z, child % 2 == 0, size, on[lo:])
    keep, m = np.empty(n, np.int64), 0
    for i in range(n):
        keep[m] = i
        m += on[i]
    return keep[:m]


@compiled
def _on_gates(b, ridge, lasso, frozen):
    """Penalties of a step that thaws gates alone."""
    none = np.zeros(b.leaves.shape[2])
    nothing = np.empty((0, none.size))
    return Penalties(ridge, lasso, frozen, none, none, nothing, 0, 0.0, np.empty((0, 0)), 0.0)


@compiled
def _gate_penalties(b, k, node, n_thawed):
    """Penalties of a BN step in which the first gates under a node are thawed."""
    p = b.model.p_gate
    frozen = np.zeros(p)
    thawed = np.zeros(b.gates.shape[1], np.bool_)
    for h in range(n_thawed):
        thawed[_gate_under(node, h) - 1] = True
    for g in range(b.gates.shape[1]):
        if not thawed[g]:
            for j in range(p):
                frozen[j] += b.gates[k, g, j] ** 2
    return _on_gates(b, b.ridge[k], b.lasso[k], frozen)


@elementwise
def _at_most(values, most, n, out):
    for i in range(n):
        out[i] = most if values[i] > most else values[i]


@compiled
def _leaf_losses_under(b, k, rows, first, count, room):
    """Losses (L', m) of rows at leaves, at most the ceiling."""
    m, size = rows.x.shape[1], room.work.shape[1]
    losses = np.empty((count, m))
    for leaf in range(count):
        theta = b.leaves[k, first + leaf]
        set_shapes(b.model, theta, room)
        for lo in range(0, m, size):
            n = min(size, m - lo)
            leaf_losses(b.model, rows, lo, n, theta, room)
            _at_most(room.work[V], CEILING, n, losses[leaf, lo:])
    return losses


@compiled
def _reach(b, k, rows, node, n_gates, room):
    """Probability (L', m) of each leaf under a node for rows that are there."""
    m, size = rows.x.shape[1], room.work.shape[1]
    reach = np.empty((n_gates + 1, m))
    flat = _gates_under(b, k, node, n_gates)
    for lo in range(0, m, size):
        n = min(size, m - lo)
        gate_sides(b.model, rows.x, lo, n, flat, n_gates, room)
        reach_ends(b.model, n_gates, n, room)
        for leaf in range(n_gates + 1):
            copy(room.work[b.model.reach + leaf], n, reach[leaf, lo:])
    return reach


@compiled
def _swap(losses, reach, left, share, fraction):
    """Move a part of the rows of the crowded side, those with the largest errors, to the other."""
    crowded_left = share >= 0.5
    m = left.size
    error, own = np.empty(m), np.empty(m, np.int64)
    count = 0
    for i in range(m):
        if left[i] == crowded_left:
            value = 0.0
            for leaf in range(losses.shape[0]):
                value += reach[leaf, i] * losses[leaf, i]
            error[count], own[count] = -value, i
            count += 1
    swapped = min(max(math.floor(fraction * count), 1), count)
    last = np.partition(error[:count], swapped - 1)[swapped - 1]
    for r in range(count):
        if error[r] < last:
            left[own[r]] = not crowded_left
            swapped -= 1
    # Of equal errors the first rows, as a stable order has them.
    for r in range(count):
        if error[r] == last and swapped > 0:
            left[own[r]] = not crowded_left
            swapped -= 1


@summing
def _route(z, weight, n, left):
    """Weight of the rows that a gate sends to the left, which are marked."""
    mass = 0.0
    for i in range(n):
        left[i] = z[i] >= 0
        mass += weight[i] if z[i] >= 0 else 0.0
    return mass


@elementwise
def _add_product(a, b, n, out):
    for i in range(n):
        out[i] += a[i] * b[i]


@compiled
def _over(weight, subjects):
    """Share of each row (m,) in the mean over subjects."""
    out = np.empty(weight.size)
    for i in range(weight.size):
        out[i] = weight[i] / subjects
    return out


@borrowing
def _are_below(values, ceiling):
    """Whether all of a matrix are below a number."""
    below = True
    for j in range(values.shape[0]):
        for i in range(values.shape[1]):
            below &= values[j, i] < ceiling
    return below


@compiled
def _train_gates(b, k, node, rows, weight, mass, thresholds, n_rows, options, record, room):
    """BN or WLR step, after UpdateBranchNode."""
    model, m = b.model, rows.x.shape[1]
    width, level = model.p_gate + 1, _level(node)
    under = 1 << (b.depth - level)
    first = (node << (b.depth - level)) - (1 << b.depth)
    theta = b.gates[k, node - 1]
    left = np.empty(m, np.bool_)
    z, size = room.work[model.gates], room.work.shape[1]
    on_left = 0.0
    for lo in range(0, m, size):
        n = min(size, m - lo)
        score(rows.x, model.first_gate, model.p_gate, lo, n, theta, theta[width - 1], z)
        on_left += _route(z, weight[lo:], n, left[lo:])
    share = on_left / mass
    e1, e2 = thresholds[0], thresholds[1]
    balanced = (e1 < share < 1 - e1) or e1 * n_rows < 1
    high = not balanced and (share <= e2 or share >= 1 - e2)
    nowhere = np.empty((0, b.leaves.shape[2]), np.int64)
    no_ranges = np.empty((0, 2), np.int64)
    subjects = mass / b.rows_per_subject[k]
    if balanced:
        losses, share_of = _leaf_losses_under(b, k, rows, first, under, room), _over(weight, subjects)
        thawed = 1 if node == 1 else under - 1
        if thawed < under - 1:
            half = under // 2
            ends = np.zeros((2, m))
            record[IS_WHOLE] = _are_below(losses, CEILING)
            for side in range(2):
                reach = _reach(b, k, rows, 2 * node + side, half - 1, room)
                for leaf in range(half):
                    _add_product(reach[leaf], losses[side * half + leaf], m, ends[side])
            losses = ends
        for end in range(losses.shape[0]):
            product(losses[end], share_of, m, losses[end])
        x = _gates_under(b, k, node, thawed)
        weights = Weights(GATES, thawed, losses, no_ranges, nowhere)
        result = minimize(model, rows, weights, _gate_penalties(b, k, node, thawed), x, options, room)
        for h in range(thawed):
            copy(x[h * width :], width, b.gates[k, _gate_under(node, h) - 1])
        write_record(record, BN, result, m, share)
        return
    ends = np.empty((2, m))
    labels = left.copy()
    if high:
        losses = _leaf_losses_under(b, k, rows, first, under, room)
        reach = _reach(b, k, rows, node, under - 1, room)
        _swap(losses, reach, labels, share, thresholds[2])
    for i in range(m):
        ends[0, i] = weight[i] / (2 * max(share if left[i] else 1 - share, TINY))
        ends[1, i] = ends[0, i] if labels[i] else 0.0
    one = _on_gates(b, np.ones(b.model.p_gate), 0.0, np.zeros(b.model.p_gate))
    # Convex, and its start does not matter to its end; the present gate may be so hard that its gradient
    # vanishes.
    x = np.zeros(width)
    result = minimize(model, rows, Weights(LOGISTIC, 1, ends, no_ranges, nowhere), one, x, options, room)
    copy(x, width, b.gates[k, node - 1])
    write_record(record, WLR, result, m, share)


@compiled
def _train_leaves(b, k, node, rows, weight, mass, options, record, room):
    """LN step."""
    level = _level(node)
    under = 1 << (b.depth - level)
    first = (node << (b.depth - level)) - (1 << b.depth)
    m = rows.x.shape[1]
    events = inner(rows.event, weight, m)
    if not events > 0:
        write_skip(record, m, record[SHARE])
        return
    reach = _reach(b, k, rows, node, under - 1, room)
    share_of = _over(weight, mass / b.rows_per_subject[k])
    for leaf in range(under):
        product(reach[leaf], share_of, m, reach[leaf])
    ranges = np.empty((under, 2), np.int64)
    ranges[:, 0], ranges[:, 1] = 0, m
    fit_leaves(b, k, first, rows, reach, ranges, False, options, record, room)


@entry
def visit(b, problems, queue, node, thresholds, n_rows, gates, leaves, options, records):
    """Visit a node in some problems (K,): the step of its gates, that of the leaves below it, or both.

    Threads share `queue` (1,), the number of problems taken. `thresholds` are imbalance, high imbalance and
    the share that is reassigned, `n_rows` (K,) training rows. Written are `records` (K, 2, N_RECORDS);
    without ``gates`` the left share is read from there.
    """
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    is_branch = node <= b.gates.shape[1]
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k, record = problems[j], records[j]
        whole = rows_of(b, k)
        keep = _visiting(b, k, whole, node, room)
        m = keep.size
        if gates:
            for slot in range(2):
                fill(record[slot], N_RECORDS, math.nan)
                record[slot, STEP] = NONE
            if is_branch and m < 2:
                weight = picked(b.weight[k], keep)
                # No row has no share.
                write_skip(record[0], m, math.nan if m == 0 else _share_left(b, k, whole, keep, node))
        if m < 2:
            continue
        rows = gathered(whole, keep)
        weight = picked(b.weight[k], keep)
        mass = total(weight, weight.size)
        if gates and is_branch:
            _call_for_step(
                b.train_gates,
                (b, k, node, rows, weight, mass, thresholds, n_rows[j], options, record[0], room),
            )
        if leaves and (node > 1 or b.depth <= 1):
            record[1, SHARE] = record[0, SHARE]
            _call_for_step(b.train_leaves, (b, k, node, rows, weight, mass, options, record[1], room))


@borrowing
def _share_left(b, k, rows, keep, node):
    theta = b.gates[k, node - 1]
    z = theta[theta.size - 1]
    for j in range(theta.size - 1):
        z += theta[j] * rows.x[j, keep[0]]
    return 1.0 if z >= 0 else 0.0


@cache
def steps_of_visit() -> tuple[int, int]:
    """Addresses of both steps; they are compiled, or loaded, at the first call."""
    return address(_train_gates, _TRAIN_GATES), address(_train_leaves, _TRAIN_LEAVES)
