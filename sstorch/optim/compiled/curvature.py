"""The curvature of a step for one problem, block by block of rows, and the metric that it makes."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from sstorch.optim.compiled.families import call_for_rows, n_pairs
from sstorch.optim.compiled.jit import borrowing, call_by_address, compiled, elementwise, summing
from sstorch.optim.compiled.matrix import fill, gram, invert, mirror, product, pull_back, squares, total
from sstorch.optim.compiled.steps import (
    DG,
    JOINT,
    LEAVES,
    LOGISTIC,
    MODEL,
    PENALTIES,
    ROOM,
    ROWS,
    SMOOTHING,
    SPARE,
    SPARE2,
    WEIGHTS,
    V,
    Z,
    expect,
    gate_sides,
    leaf_losses,
    leaf_scores,
    reach_ends,
    reach_gates,
    relevant,
    set_ends,
    set_shapes,
)

# Rows that a curvature is estimated from: so many, or as many as have this number of products of features,
# which cost less than an evaluation; and, as in sstorch.optim.steps.base, the largest block of it.
MAX_ROWS, MAX_PRODUCTS, MAX_BLOCK = 1024, 2**17, 64
# Rows of the pieces, spread evenly, that curvatures of many rows are estimated from.
PIECE = 64
_BLOCKS = types.float64[:, :, ::1]
METRIC = types.void(MODEL, ROWS, WEIGHTS, PENALTIES, types.float64[::1], _BLOCKS, _BLOCKS, ROOM)
_call_for_metric = call_by_address(METRIC)


@summing
def _bend(slope, left, right, n, out):
    for i in range(n):
        out[i] = abs(slope[i] * (right[i] - left[i]))


@borrowing
def _pieces(first, last, rows):
    """Size, number and spacing of the pieces of a range whose curvature about so many rows determine."""
    if last - first <= rows:
        return last - first, 1
    return PIECE, -(-rows // PIECE)


@borrowing
def _clear(blocks):
    for b in range(blocks.shape[0]):
        for j in range(blocks.shape[1]):
            fill(blocks[b, j], blocks.shape[2], 0.0)


@borrowing
def _scale(blocks, factor):
    for b in range(blocks.shape[0]):
        for j in range(blocks.shape[1]):
            for k in range(blocks.shape[2]):
                blocks[b, j, k] *= factor


@borrowing
def put_metric(model, rows, weights, penalties, x, of_gates, of_leaves, room):
    """As :func:`metric_of_step`, which is compiled once."""
    _call_for_metric(model.metric, (model, rows, weights, penalties, x, of_gates, of_leaves, room))


@compiled
def metric_of_step(model, rows, weights, penalties, x, of_gates, of_leaves, room):
    """Inverse curvature at x: blocks of gates (B, b, b) and leaves (L', b, b), or diagonals."""
    n_gates, place = weights.n_gates, weights.place
    n_leaves = place.shape[0]
    _clear(of_gates)
    _clear(of_leaves)
    for leaf in range(n_leaves):
        for j in range(place.shape[1]):
            room.theta[leaf, j] = x[place[leaf, j]]
    m, d = rows.x.shape[1], place.shape[1]
    most = max(MAX_ROWS, MAX_PRODUCTS // max(1, rows.x.shape[0] ** 2))
    spread = np.empty((n_leaves, d, d if of_leaves.shape[1] > 1 else 1))
    _clear(spread)
    if weights.what == LEAVES:
        for leaf in range(n_leaves):
            first, last = weights.ranges[leaf, 0], weights.ranges[leaf, 1]
            own = most if last - first == m else max(PIECE, most * (last - first) // max(m, 1))
            length, count = _pieces(first, last, own)
            set_shapes(model, room.theta[leaf], room)
            weight = weights.ends[min(leaf, weights.ends.shape[0] - 1)]
            factor = (last - first) / max(1, length * count)
            for piece in range(count):
                begin = first + (last - first - length) * piece // max(1, count - 1)
                for lo in range(begin, begin + length, room.work.shape[1]):
                    n = min(room.work.shape[1], begin + length - lo)
                    _leaf_curvature(model, rows, lo, n, room.theta[leaf], weight[lo:], spread[leaf], room)
            _put_leaf(model, weights, leaf, factor, spread[leaf], of_leaves)
    else:
        length, count = _pieces(0, m, most)
        factor = m / max(1, length * count)
        for piece in range(count):
            begin = (m - length) * piece // max(1, count - 1)
            for lo in range(begin, begin + length, room.work.shape[1]):
                n = min(room.work.shape[1], begin + length - lo)
                _gate_curvature(model, rows, weights, lo, n, x, of_gates, spread, room)
        for leaf in range(n_leaves):
            _put_leaf(model, weights, leaf, factor, spread[leaf], of_leaves)
        _scale(of_gates, factor)
        if of_gates.shape[1] > 1:
            for b in range(n_gates):
                mirror(of_gates[b], model.p_gate)
    _add_penalties(model, weights, penalties, x, of_gates, of_leaves)
    for b in range(of_gates.shape[0]):
        invert(of_gates[b])
    for b in range(of_leaves.shape[0]):
        invert(of_leaves[b])


@borrowing
def _gate_curvature(model, rows, weights, lo, n, x, of_gates, of_leaves, room):
    """Add the curvature of a block of rows in gates, and in leaves too if these are thawed."""
    n_gates, p, g = weights.n_gates, model.p_gate, room.work[model.gates :]
    gate_sides(model, rows.x, lo, n, x, n_gates, room)
    if weights.what == LOGISTIC:
        product(g[1], g[2], n, room.work[SPARE])
        product(room.work[SPARE], weights.ends[0, lo:], n, g[0])
    else:
        if weights.what == JOINT:
            reach_ends(model, n_gates, n, room)
            weight = weights.ends[0, lo:]
            for leaf in range(weights.place.shape[0]):
                reach, theta = room.work[model.reach + leaf], room.theta[leaf]
                product(reach, weight, n, reach)
                set_shapes(model, theta, room)
                leaf_losses(model, rows, lo, n, theta, room)
                relevant(reach, room.work[V], weight, n, room.work[model.ends + leaf])
                _leaf_curvature(model, rows, lo, n, theta, reach, of_leaves[leaf], room)
        else:
            set_ends(model, weights, lo, n, room)
        expect(model, n, n_gates, room)
        reach_gates(model, n_gates, n, room)
        for b in range(n_gates):
            _bend(g[4 * b], g[4 * b + 1], g[4 * b + 2], n, g[4 * b])
    for b in range(n_gates):
        bend = g[4 * b]
        if of_gates.shape[1] > 1:
            gram(rows.x, model.first_gate, p, lo, n, bend, of_gates[b], room.work[SPARE])
        else:
            at = b * (p + 1)
            squares(rows.x, model.first_gate, p, lo, n, bend, of_gates[at:, 0, 0])
            of_gates[at + p, 0, 0] += total(bend, n)


@elementwise
def _weigh_second(weight, n, v):
    for i in range(n):
        value = weight[i] * v[i]
        v[i] = value if weight[i] > 0 and abs(value) < math.inf else 0.0


@borrowing
def _leaf_curvature(model, rows, lo, n, theta, weight, out, room):
    """Add the curvature of n rows in a leaf to ``out``, (d, d), one triangle of each block, or (d, 1)."""
    leaf_scores(model, rows.x, lo, n, theta, room)
    s, p, first = model.s, model.p_leaf, model.first_leaf
    linked = room.work[Z], room.work[model.shape :], room.work[model.linked :], s
    written = room.work[model.second :], room.work[SPARE], room.work[DG]
    call_for_rows(model.curvatures, (model.kind, rows.columns, lo, rows.event[lo:], n, *linked, *written))
    pairs = n_pairs(model.kind, model.s)
    for pair in range(pairs):
        _weigh_second(weight, n, room.work[model.second + pair])
    if out.shape[1] == 1:
        squares(rows.x, first, p, lo, n, room.work[model.second + 0], out[:, 0])
        out[p, 0] += total(room.work[model.second + 0], n)
        for k in range(s):
            own = room.work[model.second + 1 + s + k]
            out[p + 1 + k, 0] += total(own, n)
            if model.linear:
                squares(rows.x, first, p, lo, n, own, out[p + 1 + s + k * p :, 0])
        return
    gram(rows.x, first, p, lo, n, room.work[model.second], out, room.work[SPARE])
    for j in range(s + 1):
        for k in range(max(j, 1), s + 1):
            pair = k if j == 0 else s + k
            if 0 < j < k:
                if pairs == 2 * s + 1:
                    break
                # Pairs of different shapes follow row by row.
                pair = 2 * s + (j - 1) * s - (j - 1) * j // 2 + k - j
            _add_pair(model, rows.x, lo, n, room.work[model.second + pair], j, k, out, room)


@borrowing
def _add_pair(model, x, lo, n, v, j, k, out, room):
    """Add second derivatives in shapes j, 0 for g, and k > 0."""
    s, p, first = model.s, model.p_leaf, model.first_leaf
    one, other = p + j, p + k
    sum_v = total(v, n)
    out[one, other] += sum_v
    if j < k:
        out[other, one] += sum_v
    if j > 0 and not model.linear:
        return
    # Slopes of the one with the constant of the other.
    sums = room.work[SPARE2]
    for i in range(p):
        sums[i] = 0.0
    pull_back(x, first, p, lo, n, v, sums)
    row = 0 if j == 0 else p + 1 + s + (j - 1) * p
    column = p + 1 + s + (k - 1) * p
    for i in range(p):
        if j < k:
            out[row + i, other] += sums[i]
            out[other, row + i] += sums[i]
        if model.linear:
            out[one, column + i] += sums[i]
            out[column + i, one] += sums[i]
    for i in range(p if model.linear else 0):
        product(x[first + i, lo:], v, n, room.work[SPARE])
        for h in range(p):
            sums[h] = 0.0
        pull_back(x, first, p, lo, n, room.work[SPARE], sums)
        for h in range(p):
            out[row + i, column + h] += sums[h]
            if j < k:
                out[column + h, row + i] += sums[h]


@borrowing
def _put_leaf(model, weights, leaf, factor, own, of_leaves):
    """Write a leaf's curvature, estimated from a part of the rows, where it belongs."""
    d = own.shape[0]
    full = own.shape[1] > 1
    if full:
        mirror(own, model.p_leaf)
    start = weights.n_gates * (model.p_gate + 1)
    shared = _is_shared(weights)
    for j in range(d):
        at = weights.place[leaf, j] - start
        if not full:
            of_leaves[at, 0, 0] += factor * own[j, 0]
        elif shared:
            for k in range(d):
                of_leaves[0, at, weights.place[leaf, k] - start] += factor * own[j, k]
        else:
            for k in range(d):
                of_leaves[leaf, j, k] += factor * own[j, k]


@borrowing
def _is_shared(weights):
    return weights.place.shape[0] > 1 and weights.place[0, 0] == weights.place[1, 0]


@borrowing
def _add_penalties(model, weights, penalties, x, of_gates, of_leaves):
    n_gates, p = weights.n_gates, model.p_gate
    for j in range(p if n_gates else 0):
        each = penalties.ridge[j]
        if penalties.lasso > 0:
            square = penalties.frozen[j]
            for b in range(n_gates):
                square += x[b * (p + 1) + j] ** 2
            each += penalties.lasso / math.sqrt(square + SMOOTHING**2)
        for b in range(n_gates):
            if of_gates.shape[1] > 1:
                of_gates[b, j, j] += each
            else:
                of_gates[b * (p + 1) + j, 0, 0] += each
    n_leaves, d = weights.place.shape
    start = n_gates * (p + 1)
    pull = 1.0 - 1.0 / max(1, penalties.leaves.shape[0])
    shared = _is_shared(weights)
    for leaf in range(n_leaves):
        for j in range(d):
            each = penalties.own[j] + pull * penalties.apart[j]
            if j < model.p_leaf:
                for piece in range(penalties.cone.shape[0]):
                    each += penalties.cone_weight * penalties.cone[piece, j] ** 2
            at = weights.place[leaf, j] - start
            if of_leaves.shape[1] == 1:
                of_leaves[at, 0, 0] += each
            elif shared:
                of_leaves[0, at, at] += each
            else:
                of_leaves[leaf, j, j] += each
