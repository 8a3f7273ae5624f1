"""The function of a training step for one problem: value and gradient, block by block of rows.

A step thaws gates, a full binary tree in heap order, or leaves, or both. Scores, losses and gradient of a
block are worked out one after the other while it is in the first level cache.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import types

from sstorch.optim.compiled.elementary import sigmoid_and_softplus, sigmoid_pair
from sstorch.optim.compiled.families import call_for_rows, link
from sstorch.optim.compiled.jit import borrowing, call_by_address, compiled, elementwise
from sstorch.optim.compiled.matrix import copy, fill, inner, product, pull_back, score, total

# Rows of a block, with few gates and with many.
BLOCK, SMALL_BLOCK, FEW_GATES = 512, 128, 7
# As in sstorch.objective.penalties.GateGroupLasso.
SMOOTHING = 1e-4
GATES, LOGISTIC, LEAVES, JOINT = range(4)
# Family and sizes: number of the kernel; features of gates and of leaves; shape parameters and whether they
# are linear in the features; first features of gates and of leaves; where the parts of a block are, and their
# number; addresses of the losses of rows and of their curvatures, of the function of a step, of its metric
# and of its minimisation.
Model = namedtuple(
    "Model",
    "kind p_gate p_leaf s linear first_gate first_leaf shape linked ds ds0 second gates ends "
    "reach n_work losses curvatures evaluate metric minimize",
)

# Rows of a step: features (p, m); events (m); functions of time (q, m); the same at entry (q, m) and 1 if the
# row was not observed from time zero (m), both without columns if all were.
Rows = namedtuple("Rows", "x event columns entry late")
# What a step weighs. ``ends``: of GATES losses at the ends (F, m), weights multiplied in; of LOGISTIC weights
# and weights of rows labelled left (2, m); of LEAVES weights of rows at each leaf (L', m), or at their own
# one (1, m); of JOINT weights (1, m). ``ranges`` (L', 2): rows of each leaf, all or its own. ``place`` (L',
# d): where the parameters of each leaf are in x; gates come first.
Weights = namedtuple("Weights", "what n_gates ends ranges place")
# Penalties of a step: ridge (p_gate) and group lasso on gates, sums of squared weights of frozen gates
# (p_gate); ridge (d) on each leaf, and on distances of leaves from their mean (d); all leaves (L, d), of
# which those from ``first`` on are thawed; coefficient and pieces (n, p_leaf) of monotone effects; the
# penalty of what is frozen.
Penalties = namedtuple("Penalties", "ridge lasso frozen own apart leaves first cone_weight cone constant")
# Rows of the room for a block: of one leaf predictor, loss and slope, two rows to spare, both results at
# entry, zeros; then, from where the model says, shapes, their links, slopes, slopes at entry, second
# derivatives; four rows of each gate; values at the ends and their probabilities. Row 0 is free: loops choose
# between code for vectors and for numbers, whose last bits differ, by the distance from what they read to
# what they write, which must not depend on where memory was found.
Z, V, DG, SPARE, SPARE2, V0, DG0, ZERO = range(1, 9)
# ``theta`` and ``of_theta`` (L', d): leaves and their gradient.
Room = namedtuple("Room", "work theta of_theta")


@compiled
def make_room(model, n_gates, n_leaves, d):
    """Room for the blocks of steps of at most so many gates and leaves."""
    size = BLOCK if n_gates <= FEW_GATES else SMALL_BLOCK
    work = np.empty((model.n_work, size))
    fill(work[ZERO], size, 0.0)
    return Room(work, np.empty((n_leaves, d)), np.empty((n_leaves, d)))


_INT, _NUMBER, _VECTOR, _MATRIX = types.int64, types.float64, types.float64[::1], types.float64[:, ::1]
_PLACES = types.int64[:, ::1]
MODEL = types.NamedTuple([_INT] * 4 + [types.boolean] + [_INT] * (len(Model._fields) - 5), Model)
ROWS = types.NamedTuple([_MATRIX, _VECTOR, _MATRIX, _MATRIX, _VECTOR], Rows)
WEIGHTS = types.NamedTuple([_INT, _INT, _MATRIX, _PLACES, _PLACES], Weights)
PENALTIES = types.NamedTuple(
    [_VECTOR, _NUMBER, _VECTOR, _VECTOR, _VECTOR, _MATRIX, _INT, _NUMBER, _MATRIX, _NUMBER], Penalties
)

ROOM = types.NamedUniTuple(_MATRIX, 3, Room)
EVALUATE = _NUMBER(MODEL, ROWS, WEIGHTS, PENALTIES, _VECTOR, _VECTOR, ROOM)
_call_for_value = call_by_address(EVALUATE)


@borrowing
def evaluate(model, rows, weights, penalties, x, gradient, room):
    """Value of a step at parameters x, and its gradient; none is worked out where that has no size."""
    return _call_for_value(model.evaluate, (model, rows, weights, penalties, x, gradient, room))


@elementwise
def _sides(z, n, left, right):
    for i in range(n):
        left[i], right[i] = sigmoid_pair(z[i])


@elementwise
def _expect(left, right, below_left, below_right, n, value, slope):
    for i in range(n):
        value[i] = left[i] * below_left[i] + right[i] * below_right[i]
        slope[i] = left[i] * right[i] * (below_left[i] - below_right[i])


@borrowing
def gate_sides(model, x, lo, n, gates, n_gates, room):
    """Probabilities of both sides of gates whose parameters follow each other: rows 4 b + 1 and 4 b + 2."""
    width, g = model.p_gate + 1, room.work[model.gates :]
    for b in range(n_gates):
        theta = gates[b * width : (b + 1) * width]
        score(x, model.first_gate, model.p_gate, lo, n, theta, theta[model.p_gate], g[4 * b])
        _sides(g[4 * b], n, g[4 * b + 1], g[4 * b + 2])


@borrowing
def reach_ends(model, n_gates, n, room):
    """Probabilities of the ends from left to right, in ``room.reach``."""
    g, reach = room.work[model.gates :], room.work[model.reach :]
    fill(reach[0], n, 1.0)
    here = 1
    while here <= n_gates:
        for k in range(here - 1, -1, -1):
            b = here - 1 + k
            product(reach[k], g[4 * b + 2], n, reach[2 * k + 1])
            product(reach[k], g[4 * b + 1], n, reach[2 * k])
        here *= 2


@borrowing
def expect(model, n, n_gates, room):
    """Expected value from those at the ends, in row 3, and derivatives in the logits, in rows 4 b."""
    g, ends = room.work[model.gates :], room.work[model.ends :]
    for b in range(n_gates - 1, -1, -1):
        c = 2 * b + 1
        left = g[4 * c + 3] if c < n_gates else ends[c - n_gates]
        right = g[4 * c + 7] if c + 1 < n_gates else ends[c + 1 - n_gates]
        _expect(g[4 * b + 1], g[4 * b + 2], left, right, n, g[4 * b + 3], g[4 * b])


@borrowing
def set_ends(model, weights, lo, n, room):
    """The values that a step has at the ends."""
    for end in range(weights.ends.shape[0]):
        copy(weights.ends[end, lo:], n, room.work[model.ends + end])


@borrowing
def reach_gates(model, n_gates, n, room):
    """Multiply the derivatives, rows 4 b, by the probability of getting to each gate; uses rows 4 b + 3."""
    g = room.work[model.gates :]
    for b in range(1, n_gates):
        up = (b - 1) // 2
        side = g[4 * up + 1 + (b - 1) % 2]
        if up > 0:
            product(g[4 * up + 3], side, n, g[4 * b + 3])
        else:
            copy(side, n, g[4 * b + 3])
        product(g[4 * b], g[4 * b + 3], n, g[4 * b])


@borrowing
def _pull_gates(model, x, lo, n, n_gates, room, out):
    width, g = model.p_gate + 1, room.work[model.gates :]
    for b in range(n_gates):
        at = b * width
        pull_back(x, model.first_gate, model.p_gate, lo, n, g[4 * b], out[at : at + width])
        out[at + width - 1] += total(g[4 * b], n)


@elementwise
def _logistic(z, weight, left_weight, n, v):
    for i in range(n):
        left, risen = sigmoid_and_softplus(z[i])
        v[i] = weight[i] * risen - left_weight[i] * z[i]
        z[i] = weight[i] * left - left_weight[i]


@borrowing
def set_shapes(model, theta, room):
    """Fill the shapes of a leaf where they are the same for all rows."""
    if not model.linear:
        size = room.work.shape[1]
        for k in range(model.s):
            fill(room.work[model.shape + k], size, theta[model.p_leaf + 1 + k])
        # One number of each is enough to link it.
        link(model.kind, room.work[model.shape :], model.s, min(model.s, 1), room.work[model.linked :])
        for k in range(model.s):
            fill(room.work[model.linked + k], size, room.work[model.linked + k, 0])


@borrowing
def leaf_scores(model, x, lo, n, theta, room):
    """Linear predictor, and shapes where they are linear too."""
    first, p, s = model.first_leaf, model.p_leaf, model.s
    score(x, first, p, lo, n, theta, theta[p], room.work[Z])
    if model.linear:
        for k in range(s):
            at = p + 1 + s + k * p
            score(x, first, p, lo, n, theta[at:], theta[p + 1 + k], room.work[model.shape + k])
        link(model.kind, room.work[model.shape :], s, n, room.work[model.linked :])


@elementwise
def _less(late, part, n, out):
    for i in range(n):
        out[i] -= part[i] if late[i] > 0 else 0.0


@borrowing
def _losses_at(model, columns, lo, event, n, value, slope, slopes, room):
    """Losses and derivatives of n rows at functions of time, into the rows of the room with these numbers."""
    work = room.work
    linked = work[Z], work[model.shape :], work[model.linked :], model.s
    out = work[value], work[slope], work[slopes:], work[SPARE]
    call_for_rows(model.losses, (model.kind, columns, lo, event, n, *linked, *out))


@borrowing
def leaf_losses(model, rows, lo, n, theta, room):
    """Losses of n rows at a leaf, whose shapes are set, with their derivatives in g and in the shapes."""
    leaf_scores(model, rows.x, lo, n, theta, room)
    _losses_at(model, rows.columns, lo, rows.event[lo : lo + n], n, V, DG, model.ds, room)
    if rows.late.size:
        _losses_at(model, rows.entry, lo, room.work[ZERO], n, V0, DG0, model.ds0, room)
        late = rows.late[lo : lo + n]
        _less(late, room.work[V0], n, room.work[V])
        _less(late, room.work[DG0], n, room.work[DG])
        for k in range(model.s):
            _less(late, room.work[model.ds0 + k], n, room.work[model.ds + k])


@elementwise
def _weigh(weight, n, v):
    """Multiply by weights; also what is infinite is nothing at weight zero."""
    for i in range(n):
        v[i] = weight[i] * v[i] if weight[i] > 0 else 0.0


@borrowing
def _pull_leaf(model, x, lo, n, weight, room, out):
    """Weigh the derivatives, and add their sums to the gradient of a leaf."""
    first, p, s = model.first_leaf, model.p_leaf, model.s
    _weigh(weight, n, room.work[DG])
    pull_back(x, first, p, lo, n, room.work[DG], out)
    out[p] += total(room.work[DG], n)
    for k in range(s):
        _weigh(weight, n, room.work[model.ds + k])
        out[p + 1 + k] += total(room.work[model.ds + k], n)
        if model.linear:
            pull_back(x, first, p, lo, n, room.work[model.ds + k], out[p + 1 + s + k * p :])


@borrowing
def evaluate_step(model, rows, weights, penalties, x, gradient, room):
    """What :func:`evaluate` calls."""
    fill(gradient, gradient.size, 0.0)
    n_gates, place = weights.n_gates, weights.place
    wants = gradient.size > 0
    for leaf in range(place.shape[0]):
        for j in range(place.shape[1]):
            room.theta[leaf, j] = x[place[leaf, j]]
            room.of_theta[leaf, j] = 0.0
    value = 0.0
    if weights.what == LEAVES:
        value = _leaves(model, rows, weights, gradient, room)
    else:
        m, size = rows.x.shape[1], room.work.shape[1]
        for lo in range(0, m, size):
            n = min(size, m - lo)
            if weights.what == LOGISTIC:
                z = room.work[model.gates]
                score(rows.x, model.first_gate, model.p_gate, lo, n, x, x[model.p_gate], z)
                _logistic(z, weights.ends[0, lo:], weights.ends[1, lo:], n, room.work[V])
                value += total(room.work[V], n)
                _pull_gates(model, rows.x, lo, n, n_gates, room, gradient)
                continue
            gate_sides(model, rows.x, lo, n, x, n_gates, room)
            if weights.what == JOINT:
                reach_ends(model, n_gates, n, room)
                weight = weights.ends[0, lo:]
                for leaf in range(place.shape[0]):
                    reach = room.work[model.reach + leaf]
                    product(reach, weight, n, reach)
                    set_shapes(model, room.theta[leaf], room)
                    leaf_losses(model, rows, lo, n, room.theta[leaf], room)
                    relevant(reach, room.work[V], weight, n, room.work[model.ends + leaf])
                    if wants:
                        _pull_leaf(model, rows.x, lo, n, reach, room, room.of_theta[leaf])
                expect(model, n, n_gates, room)
                value += total(room.work[model.gates + 3] if n_gates else room.work[model.ends + 0], n)
            else:
                set_ends(model, weights, lo, n, room)
                expect(model, n, n_gates, room)
                value += total(room.work[model.gates + 3], n)
            if wants:
                reach_gates(model, n_gates, n, room)
                _pull_gates(model, rows.x, lo, n, n_gates, room, gradient)
    if wants:
        for leaf in range(place.shape[0]):
            for j in range(place.shape[1]):
                gradient[place[leaf, j]] += room.of_theta[leaf, j]
    return value + _penalty(model, weights, penalties, x, gradient, room)


@elementwise
def relevant(reach, loss, weight, n, out):
    """``out`` = loss x weight, 0 if a leaf is not reached."""
    for i in range(n):
        out[i] = loss[i] * weight[i] if reach[i] > 0 else 0.0


@borrowing
def _leaves(model, rows, weights, gradient, room):
    value = 0.0
    for leaf in range(weights.place.shape[0]):
        theta = room.theta[leaf]
        set_shapes(model, theta, room)
        weight = weights.ends[min(leaf, weights.ends.shape[0] - 1)]
        first, last = weights.ranges[leaf, 0], weights.ranges[leaf, 1]
        for lo in range(first, last, room.work.shape[1]):
            n = min(room.work.shape[1], last - lo)
            leaf_losses(model, rows, lo, n, theta, room)
            _weigh(weight[lo:], n, room.work[V])
            value += total(room.work[V], n)
            if gradient.size:
                _pull_leaf(model, rows.x, lo, n, weight[lo:], room, room.of_theta[leaf])
    return value


@borrowing
def _penalty(model, weights, penalties, x, gradient, room):
    """Penalties of the step; their gradient is added."""
    value = penalties.constant
    n_gates, p = weights.n_gates, model.p_gate
    wants = gradient.size > 0
    if n_gates:
        for j in range(p):
            square = penalties.frozen[j]
            for b in range(n_gates):
                square += x[b * (p + 1) + j] ** 2
            each = penalties.ridge[j]
            value += 0.5 * each * square
            if penalties.lasso > 0:
                norm = math.sqrt(square + SMOOTHING**2)
                value += penalties.lasso * (norm - SMOOTHING)
                each += penalties.lasso / norm
            if wants:
                for b in range(n_gates):
                    gradient[b * (p + 1) + j] += each * x[b * (p + 1) + j]
    place, leaves = weights.place, penalties.leaves
    n_leaves, d = place.shape
    if n_leaves == 0:
        return value
    for leaf in range(n_leaves):
        for j in range(d):
            leaves[penalties.first + leaf, j] = room.theta[leaf, j]
            own = penalties.own[j] * room.theta[leaf, j]
            value += 0.5 * own * room.theta[leaf, j]
            if wants:
                gradient[place[leaf, j]] += own
        for piece in range(penalties.cone.shape[0]):
            along = inner(penalties.cone[piece], room.theta[leaf], model.p_leaf)
            if along < 0:
                value += 0.5 * penalties.cone_weight * along * along
                if wants:
                    for j in range(model.p_leaf):
                        gradient[place[leaf, j]] += penalties.cone_weight * along * penalties.cone[piece, j]
    for j in range(d):
        if penalties.apart[j] > 0:
            mean = 0.0
            for leaf in range(leaves.shape[0]):
                mean += leaves[leaf, j]
            mean /= leaves.shape[0]
            for leaf in range(leaves.shape[0]):
                value += 0.5 * penalties.apart[j] * (leaves[leaf, j] - mean) ** 2
            if wants:
                for leaf in range(n_leaves):
                    gradient[place[leaf, j]] += penalties.apart[j] * (room.theta[leaf, j] - mean)
    return value
