"""What trainers do with one problem: a visit of a node, all parameters at once, leaves alone, and E.

Nothing is kept between calls: a problem's rows are gathered and its scores worked out anew, which costs a few
per cent of the steps and bounds the memory by one problem a thread.
"""

from __future__ import annotations

import math
from collections import namedtuple
from functools import cache

import numpy as np
from numba import types

from sstorch.optim.compiled.elementary import TINY
from sstorch.optim.compiled.jit import address, call_by_address, compiled, entry, take
from sstorch.optim.compiled.lbfgs import NON_FINITE, OPTIONS, minimize
from sstorch.optim.compiled.matrix import copy, fill, inner, score, total
from sstorch.optim.compiled.steps import (
    GATES,
    JOINT,
    LEAVES,
    LOGISTIC,
    MODEL,
    ROOM,
    Penalties,
    Rows,
    V,
    Weights,
    evaluate,
    gate_sides,
    leaf_losses,
    make_room,
    reach_ends,
    set_shapes,
)
from sstorch.optim.compiled.steps import ROWS as ROWS_OF_STEP

# All problems. ``x`` (S, p, N) are the features of the splits, ``split`` (R,) the split of each problem;
# events, functions of time and ``late`` (O, N), (O, q, N), (O, N) are stored once for problems that have the
# same, ``owner`` (R,) tells which. Parameters: gates (R, B, p_gate + 1), leaves (R, L, d), written in place.
# Coefficients of penalties have one row a problem. Last, addresses of the two steps of a visit.
Problems = namedtuple(
    "Problems",
    [
        "model",
        "depth",
        "x",
        "split",
        "owner",
        "event",
        "columns",
        "entry",
        "late",
        "weight",
        "rows_per_person",
        "gates",
        "leaves",
        "ridge",
        "lasso",
        "own",
        "apart",
        "shared",
        "cone_weight",
        "cone",
        "train_gates",
        "train_leaves",
    ],
)

_INT, _INTS, _NUMBERS = types.int64, types.int64[::1], types.float64[::1]
_TWO, _THREE = types.float64[:, ::1], types.float64[:, :, ::1]
_PROBLEMS = types.NamedTuple(
    [
        MODEL,
        _INT,
        _THREE,
        *[_INTS] * 2,
        _TWO,
        *[_THREE] * 2,
        *[_TWO] * 2,
        _NUMBERS,
        *[_THREE] * 2,
        _TWO,
        _NUMBERS,
        *[_TWO] * 2,
        types.boolean[::1],
        _NUMBERS,
        _THREE,
        *[_INT] * 2,
    ],
    Problems,
)
# Problems, one of them, a node, its rows, their weights and the sum of these; thresholds and the number of
# training rows; options, record and room.
_VISITED = _PROBLEMS, _INT, _INT, ROWS_OF_STEP, _NUMBERS, types.float64
_TRAIN_GATES = types.void(*_VISITED, _NUMBERS, types.float64, OPTIONS, _NUMBERS, ROOM)
_TRAIN_LEAVES = types.void(*_VISITED, OPTIONS, _NUMBERS, ROOM)
_call_for_step = call_by_address(_TRAIN_GATES, _TRAIN_LEAVES)

# Numbers of the records of a step.
STEP, STATUS, EVALUATIONS, ROWS, SHARE, BEFORE, AFTER, NORM = range(8)
N_RECORDS = 8
NONE, BN, WLR, LN, JOINT_STEP, SKIP = range(6)
# A leaf whose hazard overflows at a row; as sstorch.optim.steps.LOSS_CEILING.
CEILING = 1e10


@compiled
def _rows_of(b, k):
    o = b.owner[k]
    return Rows(b.x[b.split[k]], b.event[o], b.columns[o], b.entry[o], b.late[o])


@compiled
def _gathered(rows, keep):
    """Copies of some of the rows; the rows themselves if they are all."""
    if keep.size == rows.x.shape[1]:
        return rows
    return Rows(
        _taken(rows.x, keep),
        _picked(rows.event, keep),
        _taken(rows.columns, keep),
        _taken(rows.entry, keep),
        _picked(rows.late, keep),
    )


@compiled
def _taken(values, keep):
    m = keep.size if values.shape[0] else 0
    out = np.empty((values.shape[0], m))
    for j in range(values.shape[0]):
        row, target = values[j], out[j]
        for i in range(m):
            target[i] = row[keep[i]]
    return out


@compiled
def _picked(values, keep):
    out = np.empty(keep.size if values.size else 0)
    for i in range(out.size):
        out[i] = values[keep[i]]
    return out


@compiled
def _count(weight):
    count = 0
    for i in range(weight.size):
        count += weight[i] > 0
    return count


@compiled
def _level(node):
    level = 0
    while (2 << level) <= node:
        level += 1
    return level


@compiled
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


@compiled
def _visiting(b, k, rows, node, room):
    """Rows of positive weight whose most probable path passes a node, ascending."""
    n, width, level = b.weight.shape[1], b.model.p_gate + 1, _level(node)
    on = np.empty(n, np.bool_)
    for i in range(n):
        on[i] = b.weight[k, i] > 0
    z = room.work[b.model.gates]
    for up in range(level):
        gate, child = node >> (level - up), node >> (level - up - 1)
        theta = b.gates[k, gate - 1]
        for lo in range(0, n, z.size):
            size = min(z.size, n - lo)
            score(rows.x, b.model.first_gate, b.model.p_gate, lo, size, theta, theta[width - 1], z)
            for i in range(size):
                on[lo + i] = on[lo + i] and (z[i] >= 0) == (child % 2 == 0)
    keep, m = np.empty(n, np.int64), 0
    for i in range(n):
        if on[i]:
            keep[m] = i
            m += 1
    return keep[:m]


@compiled
def _empty_penalties(b):
    d = b.leaves.shape[2]
    return Penalties(
        np.zeros(b.model.p_gate),
        0.0,
        np.zeros(b.model.p_gate),
        np.zeros(d),
        np.zeros(d),
        np.empty((0, d)),
        0,
        0.0,
        np.empty((0, 0)),
        0.0,
    )


@compiled
def _gate_penalties(b, k, node, n_thawed):
    """Penalties of a BN step in which the first gates under a node are thawed."""
    none, p = _empty_penalties(b), b.model.p_gate
    frozen = np.zeros(p)
    thawed = np.zeros(b.gates.shape[1], np.bool_)
    for h in range(n_thawed):
        thawed[_gate_under(node, h) - 1] = True
    for g in range(b.gates.shape[1]):
        if not thawed[g]:
            for j in range(p):
                frozen[j] += b.gates[k, g, j] ** 2
    return Penalties(
        b.ridge[k], b.lasso[k], frozen, none.own, none.apart, none.leaves, 0, 0.0, none.cone, 0.0
    )


@compiled
def _own_penalty(b, k, leaf):
    """Ridge and monotony of one leaf."""
    value, theta = 0.0, b.leaves[k, leaf]
    for j in range(theta.size):
        value += 0.5 * b.own[k, j] * theta[j] ** 2
    cone = b.cone[k]
    for piece in range(cone.shape[0]):
        along = min(inner(cone[piece], theta, b.model.p_leaf), 0.0)
        value += 0.5 * b.cone_weight[k] * along * along
    return value


@compiled
def _leaf_penalties(b, k, first, count):
    """Penalties of a step in which so many leaves from ``first`` on are thawed."""
    constant = 0.0
    for leaf in range(b.leaves.shape[1]):
        if leaf < first or leaf >= first + count:
            constant += _own_penalty(b, k, leaf)
    return Penalties(
        np.zeros(b.model.p_gate),
        0.0,
        np.zeros(b.model.p_gate),
        b.own[k],
        b.apart[k],
        b.leaves[k].copy(),
        first,
        b.cone_weight[k],
        b.cone[k],
        constant,
    )


@compiled
def _places(n_leaves, d, start):
    """Leaves one after the other, from a position on."""
    place = np.empty((n_leaves, d), np.int64)
    for leaf in range(n_leaves):
        for j in range(d):
            place[leaf, j] = start + leaf * d + j
    return place


@compiled
def _shared_places(model, n_leaves, d):
    """Leaves with the same slopes: those of the first leaf, then intercept and shapes of each other."""
    place = np.empty((n_leaves, d), np.int64)
    own = 1 + model.s
    for leaf in range(n_leaves):
        for j in range(d):
            mine = leaf > 0 and model.p_leaf <= j < model.p_leaf + own
            place[leaf, j] = d + (leaf - 1) * own + j - model.p_leaf if mine else j
    return place


@compiled
def _nowhere(d):
    return np.empty((0, d), np.int64)


@compiled
def _record(record, step, result, rows, share):
    record[STEP] = step
    record[STATUS], record[EVALUATIONS] = result.status, result.evaluations
    record[ROWS], record[SHARE] = rows, share
    record[BEFORE], record[AFTER], record[NORM] = result.before, result.value, result.norm


@compiled
def _skip(record, rows, share):
    fill(record, N_RECORDS, math.nan)
    record[STEP], record[EVALUATIONS] = SKIP, 0
    record[ROWS], record[SHARE] = rows, share


# ------------------------------------------------------------------ a visit


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
            for i in range(n):
                losses[leaf, lo + i] = CEILING if room.work[V][i] > CEILING else room.work[V][i]
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
def _swap(losses, reach, weight, left, share, fraction):
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
    order = np.argsort(error[:count], kind="mergesort")
    for r in range(swapped):
        left[own[order[r]]] = not left[own[order[r]]]


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
        for i in range(n):
            left[lo + i] = z[i] >= 0
            on_left += weight[lo + i] if left[lo + i] else 0.0
    share = on_left / mass
    e1, e2 = thresholds[0], thresholds[1]
    balanced = (e1 < share < 1 - e1) or e1 * n_rows < 1
    high = not balanced and (share <= e2 or share >= 1 - e2)
    nowhere = _nowhere(b.leaves.shape[2])
    no_ranges = np.empty((0, 2), np.int64)
    people = mass / b.rows_per_person[k]
    if balanced:
        losses = _leaf_losses_under(b, k, rows, first, under, room)
        thawed = 1 if node == 1 else under - 1
        if thawed == under - 1:
            for leaf in range(under):
                for i in range(m):
                    losses[leaf, i] *= weight[i] / people
        else:
            half = under // 2
            ends = np.zeros((2, m))
            for side in range(2):
                reach = _reach(b, k, rows, 2 * node + side, half - 1, room)
                for leaf in range(half):
                    for i in range(m):
                        ends[side, i] += reach[leaf, i] * losses[side * half + leaf, i]
                for i in range(m):
                    ends[side, i] *= weight[i] / people
            losses = ends
        x = _gates_under(b, k, node, thawed)
        weights = Weights(GATES, thawed, losses, no_ranges, nowhere)
        result = minimize(model, rows, weights, _gate_penalties(b, k, node, thawed), x, options, room)
        for h in range(thawed):
            copy(x[h * width :], width, b.gates[k, _gate_under(node, h) - 1])
        _record(record, BN, result, m, share)
        return
    ends = np.empty((2, m))
    labels = left.copy()
    if high:
        losses = _leaf_losses_under(b, k, rows, first, under, room)
        reach = _reach(b, k, rows, node, under - 1, room)
        _swap(losses, reach, weight, labels, share, thresholds[2])
    for i in range(m):
        ends[0, i] = weight[i] / (2 * max(share if left[i] else 1 - share, TINY))
        ends[1, i] = ends[0, i] if labels[i] else 0.0
    none = _empty_penalties(b)
    ridge = np.ones(b.model.p_gate)
    one = Penalties(ridge, 0.0, none.frozen, none.own, none.apart, none.leaves, 0, 0.0, none.cone, 0.0)
    # Convex, and its start does not matter to its end; the present gate may be so hard that its gradient
    # vanishes.
    x = np.zeros(width)
    result = minimize(model, rows, Weights(LOGISTIC, 1, ends, no_ranges, nowhere), one, x, options, room)
    copy(x, width, b.gates[k, node - 1])
    _record(record, WLR, result, m, share)


@compiled
def _fit_leaves(b, k, first, rows, ends, ranges, shared, options, record, room):
    """Minimise over leaves from ``first`` on; they stay as they are where one of them overflows.

    Without a penalty that ties them leaves are minimised one by one.
    """
    count, d = ranges.shape[0], b.leaves.shape[2]
    gates = 0
    tied = shared
    for j in range(d):
        tied = tied or b.apart[k, j] > 0
    penalties = _leaf_penalties(b, k, first, count)
    if tied:
        place = _shared_places(b.model, count, d) if shared else _places(count, d, 0)
        x = np.empty((d + (count - 1) * (1 + b.model.s)) if shared else count * d)
        for leaf in range(count - 1, -1, -1):
            for j in range(d):
                x[place[leaf, j]] = b.leaves[k, first + leaf, j]
        weights = Weights(LEAVES, gates, ends, ranges, place)
        result = minimize(b.model, rows, weights, penalties, x, options, room)
        if result.status != NON_FINITE:
            for leaf in range(count):
                for j in range(d):
                    b.leaves[k, first + leaf, j] = x[place[leaf, j]]
        _record(record, LN, result, rows.x.shape[1], record[SHARE])
        return
    found = np.empty((count, d))
    record[STEP], record[STATUS], record[EVALUATIONS], record[NORM] = LN, 0.0, 0.0, 0.0
    record[BEFORE] = record[AFTER] = penalties.constant
    record[ROWS] = rows.x.shape[1]
    for leaf in range(count):
        one = Penalties(
            penalties.ridge,
            0.0,
            penalties.frozen,
            penalties.own,
            penalties.apart,
            penalties.leaves,
            first + leaf,
            penalties.cone_weight,
            penalties.cone,
            0.0,
        )
        copy(b.leaves[k, first + leaf], d, found[leaf])
        at = min(leaf, ends.shape[0] - 1)
        weights = Weights(LEAVES, gates, ends[at : at + 1], ranges[leaf : leaf + 1], _places(1, d, 0))
        result = minimize(b.model, rows, weights, one, found[leaf], options, room)
        record[BEFORE] += result.before
        record[AFTER] += result.value
        record[STATUS] = max(record[STATUS], result.status)
        record[EVALUATIONS] = max(record[EVALUATIONS], result.evaluations)
        record[NORM] = max(record[NORM], result.norm)
    if record[STATUS] != NON_FINITE:
        for leaf in range(count):
            copy(found[leaf], d, b.leaves[k, first + leaf])


@compiled
def _train_leaves(b, k, node, rows, weight, mass, options, record, room):
    """LN step."""
    level = _level(node)
    under = 1 << (b.depth - level)
    first = (node << (b.depth - level)) - (1 << b.depth)
    m = rows.x.shape[1]
    events = inner(rows.event, weight, m)
    if not events > 0:
        _skip(record, m, record[SHARE])
        return
    reach = _reach(b, k, rows, node, under - 1, room)
    people = mass / b.rows_per_person[k]
    for leaf in range(under):
        for i in range(m):
            reach[leaf, i] *= weight[i] / people
    ranges = np.empty((under, 2), np.int64)
    ranges[:, 0], ranges[:, 1] = 0, m
    _fit_leaves(b, k, first, rows, reach, ranges, False, options, record, room)


@entry
def visit(b, problems, queue, node, thresholds, n_rows, gates, leaves, options, records):
    """Visit a node in some problems: the step of its gates, that of the leaves below it, or both.

    Args:
        b: all problems.
        problems: positions of the problems (K,).
        queue: (1,), how many of them have been taken, which threads share.
        node: its number.
        thresholds: imbalance, high imbalance, share that is reassigned.
        n_rows: training rows of each problem, (K,).
        gates: whether to take the BN or WLR step.
        leaves: whether to take the LN step.
        options: of both minimisations.
        records: (K, 2, N_RECORDS), written; without ``gates`` the left share is read.
    """
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    is_branch = node <= b.gates.shape[1]
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k, record = problems[j], records[j]
        whole = _rows_of(b, k)
        keep = _visiting(b, k, whole, node, room)
        m = keep.size
        if gates:
            for slot in range(2):
                fill(record[slot], N_RECORDS, math.nan)
                record[slot, STEP] = NONE
            if is_branch and m < 2:
                weight = _picked(b.weight[k], keep)
                # No row has no share.
                _skip(record[0], m, math.nan if m == 0 else _share_left(b, k, whole, keep, node))
        if m < 2:
            continue
        rows = _gathered(whole, keep)
        weight = _picked(b.weight[k], keep)
        mass = total(weight, weight.size)
        if gates and is_branch:
            _call_for_step(
                b.train_gates,
                (b, k, node, rows, weight, mass, thresholds, n_rows[j], options, record[0], room),
            )
        if leaves and (node > 1 or b.depth <= 1):
            record[1, SHARE] = record[0, SHARE]
            _call_for_step(b.train_leaves, (b, k, node, rows, weight, mass, options, record[1], room))


@compiled
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


# ------------------------------------------------------------------ the whole tree


@compiled
def _flat(b, k):
    x, at = np.empty(b.gates[k].size + b.leaves[k].size), 0
    for rows in (b.gates[k], b.leaves[k]):
        for j in range(rows.shape[0]):
            copy(rows[j], rows.shape[1], x[at:])
            at += rows.shape[1]
    return x


@compiled
def _unflatten(x, rows, at):
    for j in range(rows.shape[0]):
        copy(x[at + j * rows.shape[1] :], rows.shape[1], rows[j])


@compiled
def _objective(b, k):
    """E of a problem as a step."""
    weight = b.weight[k]
    d, n_leaves = b.leaves.shape[2], b.leaves.shape[1]
    n_gates = b.gates.shape[1]
    share = np.empty((1, weight.size))
    people = total(weight, weight.size) / b.rows_per_person[k]
    for i in range(weight.size):
        share[0, i] = weight[i] / people if people > 0 else 0.0
    place = _places(n_leaves, d, n_gates * (b.model.p_gate + 1))
    leaves = _leaf_penalties(b, k, 0, n_leaves)
    penalties = Penalties(
        b.ridge[k],
        b.lasso[k],
        leaves.frozen,
        leaves.own,
        leaves.apart,
        leaves.leaves,
        0,
        leaves.cone_weight,
        leaves.cone,
        0.0,
    )
    return Weights(JOINT, n_gates, share, np.empty((0, 2), np.int64), place), penalties


@entry
def objectives(b, problems, queue, values):
    """E of some problems, (K,), written."""
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    nothing = np.empty(0)
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        weights, penalties = _objective(b, k)
        values[j] = evaluate(b.model, _rows_of(b, k), weights, penalties, _flat(b, k), nothing, room)


@entry
def gradients(b, problems, queue, values, gradient):
    """E of some problems (K,) and its gradient in all parameters (K, n), gates first; written."""
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        weights, penalties = _objective(b, k)
        values[j] = evaluate(b.model, _rows_of(b, k), weights, penalties, _flat(b, k), gradient[j], room)


@entry
def train_jointly(b, problems, queue, options, records):
    """Minimise E of some problems over all parameters; they stay as they are where that overflows.

    ``records`` (K, N_RECORDS) are written.
    """
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        weights, penalties = _objective(b, k)
        x = _flat(b, k)
        result = minimize(b.model, _rows_of(b, k), weights, penalties, x, options, room)
        if result.status != NON_FINITE:
            _unflatten(x, b.gates[k], 0)
            _unflatten(x, b.leaves[k], b.gates[k].size)
        _record(records[j], JOINT_STEP, result, _count(b.weight[k]), math.nan)


@compiled
def _leaves_of_rows(b, k, leaf_of, room):
    """Leaf of the most probable path of each row, (N,), written."""
    model, x, size = b.model, b.x[b.split[k]], room.work.shape[1]
    for lo in range(0, leaf_of.size, size):
        n = min(size, leaf_of.size - lo)
        for g in range(b.gates.shape[1]):
            theta, z = b.gates[k, g], room.work[model.gates + 4 * g]
            score(x, model.first_gate, model.p_gate, lo, n, theta, theta[model.p_gate], z)
        for i in range(n):
            node = 1
            for _ in range(b.depth):
                node = 2 * node + (0 if room.work[model.gates + 4 * (node - 1), i] >= 0 else 1)
            leaf_of[lo + i] = node - (1 << b.depth)


@entry
def train_leaves(b, problems, queue, options, records):
    """Minimise over the leaves of some problems, each on its own rows; as :func:`train_jointly`."""
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    n_leaves, leaf_of = b.leaves.shape[1], np.empty(b.weight.shape[1], np.int64)
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        _leaves_of_rows(b, k, leaf_of, room)
        keep = np.empty(b.weight.shape[1], np.int64)
        ranges = np.zeros((n_leaves, 2), np.int64)
        m = 0
        for leaf in range(n_leaves):
            ranges[leaf, 0] = m
            for i in range(keep.size):
                if b.weight[k, i] > 0 and leaf_of[i] == leaf:
                    keep[m] = i
                    m += 1
            ranges[leaf, 1] = m
        # Rows of a leaf follow each other: also all of them are gathered.
        keep = keep[:m]
        whole = _rows_of(b, k)
        rows = Rows(
            _taken(whole.x, keep),
            _picked(whole.event, keep),
            _taken(whole.columns, keep),
            _taken(whole.entry, keep),
            _picked(whole.late, keep),
        )
        weight = _picked(b.weight[k], keep)
        ends = np.empty((1, m))
        people = total(weight, weight.size) / b.rows_per_person[k]
        for i in range(m):
            ends[0, i] = weight[i] / people
        records[j, SHARE] = math.nan
        _fit_leaves(b, k, 0, rows, ends, ranges, b.shared[k], options, records[j], room)


@entry
def leaf_masses(b, problems, queue, masses):
    """Share of each problem's weight whose most probable path ends in each leaf, (K, L), written."""
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    leaf_of = np.empty(b.weight.shape[1], np.int64)
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        _leaves_of_rows(b, k, leaf_of, room)
        fill(masses[j], masses.shape[1], 0.0)
        for i in range(leaf_of.size):
            masses[j, leaf_of[i]] += b.weight[k, i]
        whole = max(total(b.weight[k], leaf_of.size), TINY)
        for leaf in range(masses.shape[1]):
            masses[j, leaf] /= whole
