"""What blocks of rows give: losses at a leaf, probabilities of a tree; value, gradient, curvature of a step.

A block has features (F, n) and functions of time (2 + 2 s, n): log time y, event c, and of a spline I_j and
N_j for its s shapes. A leaf is a link of an index eta(y): affine, eta = a (y - g) with a = exp(shape), or a
spline, eta = g + sum_j w_j I_j(y) with w_j = exp(shape_j). The loss is A(eta; c) - c (log eta'(y) - y).

A step trains gates, with weighted losses of the rows at their ends, ``ends`` (B, n_gates + 1, n), or one leaf
(no gates), where ``ends`` (B, 1, n) are row weights. ``times`` may have twice as many blocks as ``x``: the
second half are the rows at their late entry, without event, with negative weights. No loop may read a row of
``w`` that it writes under another name: it would not become vector code.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from sstorch.optim.compiled.elementary import TINY, exp, log, sigmoid_and_softplus, sigmoid_pair
from sstorch.optim.compiled.jit import kernel

# Rows of a block at most, and what their number is a multiple of.
ROWS, LANES = 256, 32
# Links; that of Bernoulli is the logistic regression of a gate.
EXP, LOGISTIC, BERNOULLI = range(3)
# Rows of ``w`` in a leaf: loss, A' and A'', eta, log eta', weight x event, two to spare; from PARTS on the s
# derivatives of eta by shapes, then those of log eta'.
LOSS, FIRST, SECOND, ETA, STEEP, EVENT, SPARE, SQUARE, PARTS = range(9)
# Rows of ``w`` for each gate: probabilities of its sides and of a path to it, expected value below it, and
# the derivative by its logit.
LEFT, RIGHT, REACH, BELOW, SLOPE, OF_GATE = range(6)
# Rows that a curvature is estimated from, more where products of features are few; the largest block that is
# worth its cost: beyond, it is a diagonal.
MAX_ROWS, MAX_PRODUCTS, MAX_BLOCK = 1024, 2**17, 64
EPS = float(np.finfo(np.float64).eps)

INT, FLOAT = types.int64, types.float64
V1, V2, V3 = FLOAT[::1], FLOAT[:, ::1], FLOAT[:, :, ::1]
# Link, whether the index is a spline, position of the first feature, numbers of features, shapes and gates.
MODEL = types.UniTuple(INT, 6)
STEP = MODEL, V3, V3, V3, V1, V1  # model, x, times, ends, ridge, theta


@kernel(types.void(V2, INT, INT, V1, INT, V1))
def score(x, first, p, theta, n, out):
    """``out`` = theta[p] + theta . features ``first`` to ``first + p``."""
    for i in range(n):
        out[i] = theta[p]
    for j in range(0, p, 4):  # four features at a time, the last with others of weight zero
        j1, j2, j3 = min(j + 1, p - 1), min(j + 2, p - 1), min(j + 3, p - 1)
        t0, t1 = theta[j], theta[j1] if j1 > j else 0.0
        t2, t3 = theta[j2] if j2 > j1 else 0.0, theta[j3] if j3 > j2 else 0.0
        x0, x1, x2, x3 = x[first + j], x[first + j1], x[first + j2], x[first + j3]
        for i in range(n):
            out[i] += t0 * x0[i] + t1 * x1[i] + t2 * x2[i] + t3 * x3[i]


@kernel(types.void(V2, INT, INT, V1, INT, V1, INT))
def add_sums(x, first, p, v, n, out, at):
    """Add the sums of v times p features, and of v, to ``out`` from a position on: the adjoint of scores."""
    for j in range(0, p, 4):
        j1, j2, j3 = min(j + 1, p - 1), min(j + 2, p - 1), min(j + 3, p - 1)
        x0, x1, x2, x3 = x[first + j], x[first + j1], x[first + j2], x[first + j3]
        s0 = s1 = s2 = s3 = 0.0
        for i in range(n):
            s0 += x0[i] * v[i]
            s1 += x1[i] * v[i]
            s2 += x2[i] * v[i]
            s3 += x3[i] * v[i]
        out[at + j] += s0
        out[at + j1] += s1 if j1 > j else 0.0
        out[at + j2] += s2 if j2 > j1 else 0.0
        out[at + j3] += s3 if j3 > j2 else 0.0
    total = 0.0
    for i in range(n):
        total += v[i]
    out[at + p] += total


@kernel(types.void(INT, V1, V1, INT, V1, V1, V1))
def link(kind, eta, c, n, loss, first, second):
    """A(eta; c) and its two derivatives."""
    if kind == EXP:
        for i in range(n):
            hazard = exp(eta[i])
            loss[i], first[i], second[i] = hazard - c[i] * eta[i], hazard - c[i], hazard
    else:
        twice = 1.0 if kind == LOGISTIC else 0.0  # the density of times has softplus twice
        for i in range(n):
            share, risen = sigmoid_and_softplus(eta[i])
            k = 1.0 + twice * c[i]
            loss[i], first[i] = k * risen - c[i] * eta[i], k * share - c[i]
            second[i] = k * share * (1.0 - share)


@kernel(FLOAT(MODEL, V2, V2, V1, INT, V2))
def leaf_rows(model, x, times, theta, n, w):
    """Losses of rows at a leaf and what their derivatives are made of; d eta / dg, that of all rows."""
    kind, spline, first, p, s, _ = model
    y, c, loss, eta, steep = times[0], times[1], w[LOSS], w[ETA], w[STEEP]
    score(x, first, p, theta, n, eta)
    lead = 1.0
    if spline:
        for i in range(n):
            steep[i] = 0.0
        for j in range(s):
            weight, rise, growth = math.exp(theta[p + 1 + j]), w[PARTS + j], w[PARTS + s + j]
            curve, fall = times[2 + j], times[2 + s + j]
            for i in range(n):
                rise[i], growth[i] = weight * curve[i], weight * fall[i]
            for i in range(n):
                eta[i] += rise[i]
                steep[i] += growth[i]
        for i in range(n):
            steep[i] = max(steep[i], TINY)
        for j in range(s):
            growth = w[PARTS + s + j]
            for i in range(n):
                growth[i] /= steep[i]
        for i in range(n):
            steep[i] = log(steep[i])
    else:
        log_a = theta[p + 1] if s > 0 else 0.0
        a = math.exp(log_a)
        lead = -a
        rise, growth = w[PARTS], w[PARTS + 1]
        for i in range(n):
            rise[i] = a * (y[i] - eta[i])
            eta[i], steep[i], growth[i] = rise[i], log_a, 1.0
    link(kind, eta, c, n, loss, w[FIRST], w[SECOND])
    for i in range(n):
        loss[i] -= c[i] * (steep[i] - y[i])
    return lead


@kernel(types.void(INT, INT, V2, V1, INT, V2))
def gate_rows(p, n_gates, x, theta, n, w):
    """Probabilities of the sides of gates, in heap order, and of the paths to them."""
    for g in range(n_gates):
        at = OF_GATE * g
        left, right, reach, logit = w[at + LEFT], w[at + RIGHT], w[at + REACH], w[at + SLOPE]
        score(x, 0, p, theta[g * (p + 1) :], n, logit)
        for i in range(n):
            left[i], right[i] = sigmoid_pair(logit[i])
        up = OF_GATE * ((g - 1) // 2)
        side, above = w[up + (LEFT if g % 2 == 1 else RIGHT)], w[up + REACH]
        for i in range(n):
            reach[i] = above[i] * side[i] if g > 0 else 1.0


@kernel(types.void(INT, V2, INT, V2))
def expect(n_gates, ends, n, w):
    """Expected value below every gate of values at the ends (n_gates + 1, n); derivatives by the logits."""
    for g in range(n_gates - 1, -1, -1):
        at, end = OF_GATE * g, 2 * g + 1 - n_gates
        left, right, reach, below, slope = w[at], w[at + RIGHT], w[at + REACH], w[at + BELOW], w[at + SLOPE]
        one = ends[end] if end >= 0 else w[OF_GATE * (2 * g + 1) + BELOW]
        other = ends[end + 1] if end + 1 >= 0 else w[OF_GATE * (2 * g + 2) + BELOW]
        for i in range(n):
            below[i] = left[i] * one[i] + right[i] * other[i]
            slope[i] = reach[i] * left[i] * right[i] * (one[i] - other[i])


@kernel(types.void(INT, INT, V2, V1, INT, V2, V2))
def reach_ends(p, n_gates, x, theta, n, w, out):
    """Probability (n_gates + 1, n) of every end below the gates, from left to right."""
    gate_rows(p, n_gates, x, theta, n, w)
    for e in range(n_gates + 1):
        up, own = OF_GATE * ((n_gates + e - 1) // 2), out[e]
        side, above = w[up + (LEFT if (n_gates + e) % 2 == 1 else RIGHT)], w[up + REACH]
        for i in range(n):
            own[i] = above[i] * side[i] if n_gates > 0 else 1.0


@kernel(FLOAT(*STEP, V1, V2))
def evaluate(model, x, times, ends, ridge, theta, gradient, w):
    """Value and gradient of a step."""
    _, _, first, p, s, n_gates = model
    n, value = x.shape[2], 0.0
    for j in range(theta.size):
        value += 0.5 * ridge[j] * theta[j] * theta[j]
        gradient[j] = ridge[j] * theta[j]
    for b in range(x.shape[0] if n_gates > 0 else 0):
        gate_rows(p, n_gates, x[b], theta, n, w)
        expect(n_gates, ends[b], n, w)
        below = w[BELOW]
        for i in range(n):
            value += below[i]
        for g in range(n_gates):
            add_sums(x[b], 0, p, w[OF_GATE * g + SLOPE], n, gradient, g * (p + 1))
    for b in range(0 if n_gates > 0 else times.shape[0]):
        rows, weight, event = x[b % x.shape[0]], ends[b, 0], times[b, 1]
        lead = leaf_rows(model, rows, times[b], theta, n, w)
        loss, slope = w[LOSS], w[FIRST]
        for i in range(n):
            counts = weight[i] != 0.0  # a loss that does not count may be infinite
            value += weight[i] * loss[i] if counts else 0.0
            slope[i] = lead * weight[i] * slope[i] if counts else 0.0
        for k in range(s):
            rise, growth, of_eta, of_steep = w[PARTS + k], w[PARTS + s + k], 0.0, 0.0
            for i in range(n):
                of_eta += slope[i] * rise[i] if weight[i] != 0.0 else 0.0
                of_steep += weight[i] * event[i] * growth[i]
            gradient[p + 1 + k] += of_eta / lead - of_steep
        add_sums(rows, first, p, slope, n, gradient, 0)
    return value


@kernel(types.void(V2, INT, INT, V1, INT, V3, INT, V1))
def add_moments(x, first, p, v, n, h, node, spare):
    """Add moments of p features and a one, weights v, to a block of h: lower triangle or diagonal."""
    full, start = h.shape[1] > 1, node * (p + 1)
    for j in range(p):
        row, total = x[first + j], 0.0
        for i in range(n):
            spare[i] = row[i] * v[i]
        if full:
            add_sums(x, first, j + 1, spare, n, h[node, j], 0)  # its last entry is above the diagonal, unread
        for i in range(0 if full else n):
            total += row[i] * spare[i]
        h[0 if full else start + j, 0, 0] += total
    add_sums(x, first, p if full else 0, v, n, h[node, p] if full else h[start + p, 0], 0)


@kernel(types.void(MODEL, V2, V2, V1, V1, V3, V2))
def add_leaf_curvature(model, x, times, weight, theta, h, w):
    """Add second derivatives of a block of rows in a leaf; rows where they are not finite do not count."""
    _, spline, first, p, s, _ = model
    n, full = x.shape[1], h.shape[1] > 1
    lead = leaf_rows(model, x, times, theta, n, w)
    slope, bend, weighted, spare, event = w[FIRST], w[SECOND], w[EVENT], w[SPARE], times[1]
    square = w[SQUARE]
    for i in range(n):
        counts = weight[i] > 0.0 and bend[i] < math.inf
        slope[i] = weight[i] * slope[i] if counts else 0.0
        bend[i] = weight[i] * bend[i] if counts else 0.0
        weighted[i] = weight[i] * event[i] if counts else 0.0
        square[i] = lead * lead * bend[i]
    add_moments(x, first, p, square, n, h, 0, spare)
    outer = 0.0 if spline else lead
    for k in range(s):
        rise, growth, row = w[PARTS + k], w[PARTS + s + k], p + 1 + k
        for i in range(n):
            spare[i] = lead * bend[i] * rise[i] + outer * slope[i]
        if full:
            add_sums(x, first, p, spare, n, h[0, row], 0)
        for j in range(0 if full else k, k + 1):
            other, of_other, total = w[PARTS + j], w[PARTS + s + j], 0.0
            for i in range(n):
                total += bend[i] * rise[i] * other[i] + weighted[i] * growth[i] * of_other[i]
                total += slope[i] * rise[i] - weighted[i] * growth[i] if j == k else 0.0
            h[0 if full else row, row if full else 0, p + 1 + j if full else 0] += total


@kernel(types.boolean(V2))
def invert(h):
    """Put the inverse of a symmetric matrix in its place; whether it is positive definite."""
    for k in range(h.shape[0]):
        pivot, size = h[k], h[k, k]
        if not size > 0.0:
            return False
        pivot[k] = 1.0
        for j in range(h.shape[0]):
            pivot[j] /= size
        for i in range(h.shape[0]):
            row, factor = h[i], h[i, k]
            if i != k:
                row[k] = 0.0
                for j in range(h.shape[0]):
                    row[j] -= factor * pivot[j]
    return True


@kernel(types.void(*STEP, V3, V2))
def metric(model, x, times, ends, ridge, theta, h, w):
    """Inverse curvature of a step near theta by a part of the rows: a block a node, or (d, 1, 1)."""
    _, _, _, p, _, n_gates = model
    n, q, taken = x.shape[2], h.shape[1], 0
    stride = max(1, x.shape[0] * n // max(MAX_ROWS, MAX_PRODUCTS // max(1, p * p)))
    for g in range(h.shape[0]):
        for j in range(q):
            for k in range(q):
                h[g, j, k] = 0.0
    for b in range(0, x.shape[0], stride):
        taken += 1
        if n_gates > 0:
            gate_rows(p, n_gates, x[b], theta, n, w)
            expect(n_gates, ends[b], n, w)
        else:
            add_leaf_curvature(model, x[b], times[b], ends[b, 0], theta, h, w)
        for g in range(n_gates):
            left, right, slope = w[OF_GATE * g + LEFT], w[OF_GATE * g + RIGHT], w[OF_GATE * g + SLOPE]
            for i in range(n):
                slope[i] = abs(slope[i] * (right[i] - left[i]))
            add_moments(x[b], 0, p, slope, n, h, g, w[OF_GATE * g + REACH])
    factor, size = x.shape[0] / taken, w[0]
    for g in range(h.shape[0]):
        block, mean = h[g], 0.0
        for j in range(q):
            block[j, j] = block[j, j] * factor + ridge[g * q + j]
            mean += abs(block[j, j]) / q
        for j in range(q):
            block[j, j] += mean * math.sqrt(EPS) if mean > 0.0 else 1.0
            size[j] = abs(block[j, j])
            for k in range(j):
                block[j, k] *= factor
                block[k, j] = block[j, k]
        if not invert(block):
            for j in range(q):
                for k in range(q):
                    block[j, k] = 1.0 / size[j] if j == k else 0.0
