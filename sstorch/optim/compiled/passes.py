"""A pass of NODEC over the nodes of one tree: BN or WLR step, LN step and the best point, node by node."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from sstorch.optim.compiled import minimizer
from sstorch.optim.compiled.elementary import TINY
from sstorch.optim.compiled.jit import entry_kernel, kernel, take
from sstorch.optim.compiled.minimizer import AFTER, BEFORE, EVALUATIONS, NORM, STATUS, minimize, norm_of
from sstorch.optim.compiled.rows import (
    BERNOULLI,
    EPS,
    FLOAT,
    INT,
    LANES,
    LEFT,
    LOSS,
    MODEL,
    OF_GATE,
    PARTS,
    RIGHT,
    ROWS,
    V1,
    V2,
    V3,
    evaluate,
    leaf_rows,
    reach_ends,
    score,
)

CEILING = 1e10  # as sstorch.optim.working_sets.LOSS_CEILING
# Of a record of a step: the five numbers of a result, then these.
STEP, COUNT, RESTARTED, N_RECORDS = range(5, 9)
NONE, BN, WLR, LN = range(4)
# Where a tree stands: E, the norm of its gradient, then masses of leaves.
VALUE, GRADIENT, MASSES = range(3)

I1, B1, OPTIONS = types.int64[::1], types.boolean[::1], minimizer.OPTIONS
# Features (S, F, N) of S splits and the split of each tree; functions of time (O, T, 2 + 2 s, N), T = 2 if
# rows entered late, and whose is whose; weights (R, T, N), at entry negative; rows per subject (R,).
DATA = types.Tuple([V3, I1, FLOAT[:, :, :, ::1], I1, V3, V1])
# Rows of a tree: features, functions of time, weights (B, T, n), their positions (padded), number and weight,
# and the factor that makes weights those of a mean.
BLOCKS = types.Tuple([V3, V3, V3, I1, INT, FLOAT, FLOAT])
# A tree: gates (G, p + 1), leaves (L, d), their ridges, and the losses (L, N) of its rows.
TREE = types.Tuple([V2, V2, V1, V1, V2])


@kernel(types.void(V1, V1))
def put(source, out):
    """Copy; a slice that is assigned brings much more code with it."""
    for j in range(out.size):
        out[j] = source[j]


@kernel(INT(INT, INT))
def below(node, h):
    """Position of node h, in heap order, of those at and below a node."""
    level = 0
    while 2 << level <= h + 1:
        level += 1
    return (node << level) + h - (1 << level)


@kernel(INT(INT))
def padded(m):
    """At least as many rows as the blocks of m have, and one."""
    return m + LANES * (m // ROWS + 2)


@kernel(V3(V3, I1, INT), True)
def blocks_of(source, keep, m):
    """Rows keep[:m] of values (T, q, N) in blocks (T B, q, n), to whose end ``keep`` is padded."""
    n_blocks = max((m + ROWS - 1) // ROWS, 1)
    n = LANES * ((m + n_blocks * LANES - 1) // (n_blocks * LANES))
    for r in range(m, n_blocks * n):
        keep[r] = keep[0]
    out = np.empty((source.shape[0] * n_blocks, source.shape[1], n))
    for b in range(out.shape[0]):
        for j in range(out.shape[1]):
            row, to, start = source[b // n_blocks, j], out[b, j], b % n_blocks * n
            if n > 0 and keep[start + n - 1] - keep[start] == n - 1:  # one after the other
                put(row[keep[start] :], to)
            else:
                for i in range(n):
                    to[i] = row[keep[start + i]]
    return out


@kernel(BLOCKS(DATA, INT, I1, INT), True)
def load(data, k, keep, m):
    """Rows keep[:m] of tree k; what pads the blocks has no weight."""
    x, split, times, owner, weight, per_subject = data
    own, mass = blocks_of(weight[k : k + 1], keep, m), 0.0
    n = own.shape[2]
    for r in range(m, own.shape[0] * n):
        for t in range(own.shape[1]):
            own[r // n, t, r % n] = 0.0
    for b in range(own.shape[0]):
        for i in range(n):
            mass += own[b, 0, i]
    features, functions = blocks_of(x[split[k] : split[k] + 1], keep, m), blocks_of(times[owner[k]], keep, m)
    return features, functions, own, keep, m, mass, per_subject[k] / mass


@kernel(BLOCKS(DATA, INT), True)
def load_all(data, k):
    """All rows of tree k that have weight."""
    weight, m = data[4], 0
    keep = np.zeros(padded(weight.shape[2]), np.int64)
    for r in range(weight.shape[2]):
        keep[m] = r
        m += weight[k, 0, r] > 0.0
    return load(data, k, keep, m)


@kernel(types.void(MODEL, BLOCKS, V2, INT, INT, V2, V2))
def set_losses(model, rows, leaves, first, count, table, w):
    """Losses of rows at some leaves, into a table (L, N)."""
    x, times, weight, keep, _, _, _ = rows
    n = x.shape[2]
    for b in range(times.shape[0]):
        at_entry, of, start = b >= x.shape[0], b % x.shape[0], b % x.shape[0] * n
        own = weight[of, b // x.shape[0]]
        for leaf in range(first, first + count):
            leaf_rows(model, x[of], times[b], leaves[leaf], n, w)
            loss, to = w[LOSS], table[leaf]
            for i in range(n):
                if not at_entry:
                    to[keep[start + i]] = loss[i]
                elif own[i] < 0.0 and to[keep[start + i]] < math.inf:
                    to[keep[start + i]] -= loss[i]


@kernel(V3(V3, V2, INT, INT, V2), True)
def reach_below(x, gates, node, count, w):
    """Probability (B, count, n) of each of the leaves below a node for rows that are there."""
    width = gates.shape[1]
    reach, theta = np.empty((x.shape[0], count, x.shape[2])), np.empty(count * width)
    for j in range((count - 1) * width):
        theta[j] = gates[below(node, j // width), j % width]
    for b in range(x.shape[0]):
        reach_ends(width - 1, count - 1, x[b], theta, x.shape[2], w, reach[b])
    return reach


@kernel(FLOAT(V2, V1))
def ridge_of(theta, ridge):
    """Half the weighted squares of all nodes."""
    total = 0.0
    for j in range(theta.shape[0]):
        for k in range(theta.shape[1]):
            total += 0.5 * ridge[k] * theta[j, k] * theta[j, k]
    return total


@kernel(FLOAT(BLOCKS, V3, V2))
def expected_loss(rows, reach, table):
    """Mean over rows of their losses (L, N) at the leaves; what has no probability does not count."""
    total, n, keep = 0.0, reach.shape[2], rows[3]
    for b in range(reach.shape[0]):
        weight = rows[2][b, 0]
        for leaf in range(reach.shape[1]):
            to, loss = reach[b, leaf], table[leaf]
            for i in range(n):
                share = to[i] * weight[i]
                total += share * loss[keep[b * n + i]] if share > 0.0 else 0.0
    return rows[6] * total


@kernel(types.void(BLOCKS, V3, INT, V3))
def set_leaf_weights(rows, reach, leaf, out):
    """Weights of rows in a leaf (T B, 1, n): probability x weight."""
    for b in range(out.shape[0]):
        of, own = b % reach.shape[0], out[b, 0]
        weight, to = rows[2][of, b // reach.shape[0]], reach[of, leaf]
        for i in range(own.size):
            own[i] = rows[6] * weight[i] * to[i]


@kernel(INT(BLOCKS, V2, INT, I1, V2), True)
def visiting(rows, gates, node, out, w):
    """Positions of the rows whose most probable path passes a node; their number."""
    x, keep, n, count, level = rows[0], rows[3], rows[0].shape[2], 0, 0
    on = np.empty(n, np.bool_)
    while 2 << level <= node:
        level += 1
    for b in range(x.shape[0]):
        for i in range(n):
            on[i] = b * n + i < rows[4]
        for up in range(level, 0, -1):
            logit, theta, left = w[0], gates[(node >> up) - 1], (node >> (up - 1)) % 2 == 0
            score(x[b], 0, theta.size - 1, theta, n, logit)
            for i in range(n):
                on[i] &= (logit[i] >= 0.0) == left
        for i in range(n):
            out[count] = keep[b * n + i]
            count += on[i]
    return count


@kernel(types.void(V1, INT, B1, types.boolean, B1), True)
def swap(error, count, left, crowded_left, label):
    """Move the rows of the crowded side with the largest errors to the other, of equal ones the first."""
    order, lo, hi = np.empty(left.size), 0, -1
    for r in range(left.size):
        if left[r] == crowded_left:
            hi += 1
            order[hi] = error[r]
    while lo < hi:  # Hoare's selection of the largest but count - 1
        pivot, i, j = order[(lo + hi) // 2], lo, hi
        while i <= j:
            while order[i] > pivot:
                i += 1
            while order[j] < pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i, j = i + 1, j - 1
        if j < count - 1 < i:
            break
        lo, hi = (lo, j) if count - 1 <= j else (i, hi)
    last, equal = order[count - 1], count
    for r in range(left.size):
        equal -= left[r] == crowded_left and error[r] > last
    for r in range(left.size):
        if left[r] == crowded_left and (error[r] > last or (error[r] == last and equal > 0)):
            equal -= error[r] == last
            label[r] = not crowded_left


@kernel(types.void(BLOCKS, TREE, INT, V1, FLOAT, OPTIONS, V1, V2), True)
def train_gates(rows, tree, node, thresholds, n_rows, options, record, w):
    """BN or WLR step at a node, after UpdateBranchNode."""
    x, times, weight, keep, m, mass, scale = rows
    gates, _, ridge, _, table = tree
    n, width, count, on_left, left = x.shape[2], gates.shape[1], 1, 0.0, np.empty(m, np.bool_)
    while node * count <= gates.shape[0]:
        count *= 2
    first = node * count - gates.shape[0] - 1
    for b in range(x.shape[0]):
        logit = w[0]
        score(x[b], 0, width - 1, gates[node - 1], n, logit)
        for i in range(min(n, m - b * n)):
            left[b * n + i] = logit[i] >= 0.0
            on_left += weight[b, 0, i] if logit[i] >= 0.0 else 0.0
    share, e1, e2 = on_left / mass, thresholds[0], thresholds[1]
    record[COUNT] = m
    if m < 2:
        return
    if e1 < share < 1.0 - e1 or e1 * n_rows < 1.0:
        n_gates = 1 if node == 1 else count - 1
        half, rest = count // (n_gates + 1), ridge_of(gates, ridge)
        ends = np.zeros((x.shape[0], n_gates + 1, n))
        for e in range(n_gates + 1):
            # Below one end, whose gates are frozen; without any its probability is 1.
            reach = reach_below(x, gates, 2 * node + e, half, w)
            for b in range(x.shape[0]):
                for leaf in range(half):
                    to, losses, end = reach[b, leaf], table[first + e * half + leaf], ends[b, e]
                    for i in range(n):
                        loss = losses[keep[b * n + i]]
                        end[i] += scale * weight[b, 0, i] * to[i] * (loss if loss < CEILING else CEILING)
        theta, penalties = np.empty(n_gates * width), np.empty(n_gates * width)
        for j in range(theta.size):
            theta[j], penalties[j] = gates[below(node, j // width), j % width], ridge[j % width]
            rest -= 0.5 * penalties[j] * theta[j] * theta[j]
        minimize((0, 0, 0, width - 1, 0, n_gates), x, times, ends, penalties, theta, options, record, w)
        for j in range(theta.size):
            gates[below(node, j // width), j % width] = theta[j]
        record[STEP] = BN
        record[BEFORE] += rest
        record[AFTER] += rest
        return
    label, crowded_left = left.copy(), share >= 0.5
    if share <= e2 or share >= 1.0 - e2:
        reach, error, crowded = reach_below(x, gates, node, count, w), np.zeros(m), 0
        for r in range(m):
            crowded += left[r] == crowded_left
        for b in range(x.shape[0]):
            for leaf in range(count):
                for i in range(min(n, m - b * n)):
                    loss = table[first + leaf, keep[b * n + i]]
                    error[b * n + i] += reach[b, leaf, i] * (loss if loss < CEILING else CEILING)
        swap(error, min(max(int(thresholds[2] * crowded), 1), crowded), left, crowded_left, label)
    ends, marks = np.zeros((x.shape[0], 1, n)), np.zeros((x.shape[0], 2, n))
    for b in range(x.shape[0]):
        for i in range(min(n, m - b * n)):
            side = share if left[b * n + i] else 1.0 - share
            ends[b, 0, i] = weight[b, 0, i] / (2.0 * max(side, TINY))
            marks[b, 1, i] = 0.0 if label[b * n + i] else 1.0
    theta, penalties = np.zeros(width), np.ones(width)
    penalties[width - 1] = 0.0
    # Of going right, whose index is 0 - (w . x + b). It is convex, and the present gate may have no gradient.
    minimize((BERNOULLI, 0, 0, width - 1, 0, 0), x, marks, ends, penalties, theta, options, record, w)
    put(theta, gates[node - 1])
    record[STEP] = WLR


@kernel(types.void(MODEL, BLOCKS, TREE, INT, OPTIONS, V1, V2), True)
def train_leaves(model, rows, tree, node, options, record, w):
    """LN step below a node: each of its leaves alone, since E is a sum over leaves."""
    x, times, weight, _, m, _, _ = rows
    gates, leaves, _, ridge, _ = tree
    count, p, n, events, theta = 1, model[3], x.shape[2], 0.0, np.empty(leaves.shape[1])
    while node * count <= gates.shape[0]:
        count *= 2
    for b in range(x.shape[0]):
        for i in range(n):
            events += weight[b, 0, i] * times[b, 1, i]
    record[COUNT] = m
    if not events > 0.0:
        return
    reach, ends = reach_below(x, gates, node, count, w), np.empty((times.shape[0], 1, n))
    out = np.empty(N_RECORDS)
    record[BEFORE] = record[AFTER] = ridge_of(leaves, ridge)
    record[NORM] = record[STATUS] = record[EVALUATIONS] = record[RESTARTED] = 0.0
    for at in range(count):
        leaf = leaves[node * count - gates.shape[0] - 1 + at]
        set_leaf_weights(rows, reach, at, ends)
        put(leaf, theta)
        own = 0.0
        for j in range(theta.size):
            own += 0.5 * ridge[j] * theta[j] * theta[j]
        minimize(model, x, times, ends, ridge, theta, options, out, w)
        record[BEFORE] += out[BEFORE] - own
        after, evaluations = out[AFTER], out[EVALUATIONS]
        put(theta, leaf)
        if out[STATUS] == minimizer.NON_FINITE:
            # It overflows: again from a constant hazard, events over time at risk.
            at_risk, events, total = 0.0, 0.0, 0.0
            for b in range(ends.shape[0]):
                for i in range(n):
                    at_risk += ends[b, 0, i] * math.exp(times[b, 0, i]) if ends[b, 0, i] != 0.0 else 0.0
                    events += ends[b, 0, i] * times[b, 1, i]
                    total += max(ends[b, 0, i], 0.0)
            for j in range(theta.size):
                theta[j] = 0.0
            theta[p] = math.log(max(at_risk, TINY) / max(events, 0.5 * total / m, TINY))
            theta[p] *= -1.0 if model[1] else 1.0
            minimize(model, x, times, ends, ridge, theta, options, out, w)
            record[RESTARTED], evaluations = 1.0, evaluations + out[EVALUATIONS]
            if out[AFTER] < after or not math.isfinite(after):
                put(theta, leaf)
                after = out[AFTER]
        record[AFTER] += after - own
        record[NORM], record[STATUS] = max(record[NORM], out[NORM]), max(record[STATUS], out[STATUS])
        record[EVALUATIONS] = max(record[EVALUATIONS], evaluations)
    record[STEP] = LN


@kernel(types.void(MODEL, BLOCKS, TREE, V1, V2), True)
def set_standing(model, rows, tree, out, w):
    """E of a tree and the norm of its gradient; masses of its leaves."""
    x, times, weight, keep, _, mass, scale = rows
    gates, leaves, gate_ridge, leaf_ridge, table = tree
    n, count, width = x.shape[2], leaves.shape[0], gates.shape[1]
    reach, ends, norms = (
        np.empty((x.shape[0], count, n)),
        np.empty((x.shape[0], count, n)),
        np.zeros(count + 1),
    )
    theta, penalties, gradient = np.empty(gates.size), np.empty(gates.size), np.empty(gates.size)
    of_leaf = np.empty(leaves.shape[1])
    for j in range(theta.size):
        theta[j], penalties[j] = gates[j // width, j % width], gate_ridge[j % width]
    for leaf in range(count):
        out[MASSES + leaf] = 0.0
    for b in range(x.shape[0]):
        reach_ends(width - 1, count - 1, x[b], theta, n, w, reach[b])
        for i in range(n):
            node = 0
            while node < count - 1:  # the more probable side
                goes_left = w[OF_GATE * node + LEFT, i] >= w[OF_GATE * node + RIGHT, i]
                node = 2 * node + 1 if goes_left else 2 * node + 2
            out[MASSES + node - count + 1] += weight[b, 0, i] / mass
        for leaf in range(count):
            for i in range(n):
                share = scale * weight[b, 0, i]
                ends[b, leaf, i] = share * table[leaf, keep[b * n + i]] if share > 0.0 else 0.0
    if count > 1:
        evaluate((0, 0, 0, width - 1, 0, count - 1), x, times, ends, penalties, theta, gradient, w)
        norms[count] = norm_of(gradient)
    ends = np.empty((times.shape[0], 1, n))
    for leaf in range(count):
        set_leaf_weights(rows, reach, leaf, ends)
        evaluate(model, x, times, ends, leaf_ridge, leaves[leaf], of_leaf, w)
        norms[leaf] = norm_of(of_leaf)
    out[GRADIENT] = norm_of(norms)
    out[VALUE] = ridge_of(gates, gate_ridge) + ridge_of(leaves, leaf_ridge)
    out[VALUE] += expected_loss(rows, reach, table)


_BEST = types.Tuple([V1, V3, V3, I1])
_PAIRS = types.UniTuple(V3, 2), types.UniTuple(V2, 2)
_PASS = (I1, I1, MODEL, DATA, *_PAIRS, V1, INT, OPTIONS, _BEST, FLOAT[:, :, :, ::1], V2)


@entry_kernel(types.void(*_PASS))
def run_pass(
    queue, trees, model, data, nodes, ridges, thresholds, patience, options, best_so_far, records, standing
):
    """A pass of some trees (K,), which threads take from a common queue."""
    # Written are gates (R, G, p + 1), leaves (R, L, d), the best so far with E (R,) and visits without
    # improvement (R,), records (K, nodes, 2, 8), and the standing (K, 2 + L).
    gates, leaves = nodes
    best, best_gates, best_leaves, unimproved = best_so_far
    n_gates, n_leaves = gates.shape[1], leaves.shape[1]
    w = np.empty((max(OF_GATE * n_gates, PARTS + 2 * max(model[4], 1)), ROWS))
    table = np.empty((n_leaves, data[4].shape[2]))
    there = np.empty(padded(data[4].shape[2]), np.int64)
    while True:
        t = take(queue)
        if t >= trees.size:
            return
        k = trees[t]
        rows = load_all(data, k)
        tree = (gates[k], leaves[k], ridges[0][k], ridges[1][k], table)
        set_losses(model, rows, leaves[k], 0, n_leaves, table, w)
        for node in range(1, max(n_gates, 1) + 1):
            record, count = records[t, node - 1], n_leaves
            m = visiting(rows, gates[k], node, there, w)
            visitors = rows if m == rows[4] else load(data, k, there, m)
            if n_gates > 0:
                train_gates(visitors, tree, node, thresholds, float(rows[4]), options, record[0], w)
            if (node > 1 or n_leaves <= 2) and visitors[4] >= 2:
                train_leaves(model, visitors, tree, node, options, record[1], w)
                while node * count >= 2 * n_leaves:
                    count //= 2
                set_losses(model, rows, leaves[k], node * count - n_leaves, count, table, w)
            value = expected_loss(rows, reach_below(rows[0], gates[k], 1, n_leaves, w), table)
            value += ridge_of(gates[k], ridges[0][k]) + ridge_of(leaves[k], ridges[1][k])
            # As sstorch.optim.run: what rounding alone makes is no improvement.
            rounding = 32.0 * EPS * (1.0 + abs(best[k])) if math.isfinite(best[k]) else 0.0
            unimproved[k] += 1
            if value < best[k] - rounding:
                best[k], unimproved[k] = value, 0
                for g in range(n_gates):
                    put(gates[k, g], best_gates[k, g])
                for leaf in range(n_leaves):
                    put(leaves[k, leaf], best_leaves[k, leaf])
            if unimproved[k] >= patience:
                break
        set_standing(model, rows, tree, standing[t], w)
