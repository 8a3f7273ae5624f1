"""All parameters of a problem: its objective E and gradient, joint training, training of all leaves."""

from __future__ import annotations

import math

import numpy as np

from sstorch.optim.compiled.elementary import TINY
from sstorch.optim.compiled.jit import borrowing, compiled, entry, take
from sstorch.optim.compiled.lbfgs import NON_FINITE, minimize
from sstorch.optim.compiled.matrix import copy, fill, score, total
from sstorch.optim.compiled.parts import copied, fit_leaves, leaf_penalties, picked, places, rows_of
from sstorch.optim.compiled.records import JOINT_STEP, SHARE, write_record
from sstorch.optim.compiled.steps import JOINT, Weights, evaluate, make_room


@borrowing
def _count(weight):
    count = 0
    for i in range(weight.size):
        count += weight[i] > 0
    return count


@compiled
def _flat(b, k):
    x, at = np.empty(b.gates[k].size + b.leaves[k].size), 0
    for rows in (b.gates[k], b.leaves[k]):
        for j in range(rows.shape[0]):
            copy(rows[j], rows.shape[1], x[at:])
            at += rows.shape[1]
    return x


@borrowing
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
    subjects = total(weight, weight.size) / b.rows_per_subject[k]
    for i in range(weight.size):
        share[0, i] = weight[i] / subjects if subjects > 0 else 0.0
    place = places(n_leaves, d, n_gates * (b.model.p_gate + 1))
    penalties = leaf_penalties(b, k, 0, n_leaves, b.ridge[k], b.lasso[k])
    return Weights(JOINT, n_gates, share, np.empty((0, 2), np.int64), place), penalties


@entry
def gradients(b, problems, queue, values, gradient):
    """E of some problems (K,) and its gradient in all parameters (K, n or 0), gates first; written."""
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        weights, penalties = _objective(b, k)
        values[j] = evaluate(b.model, rows_of(b, k), weights, penalties, _flat(b, k), gradient[j], room)


@entry
def train_jointly(b, problems, queue, options, records):
    """Minimise E over all parameters into ``records`` (K, N_RECORDS); they stay where that overflows."""
    room = make_room(b.model, b.gates.shape[1], b.leaves.shape[1], b.leaves.shape[2])
    while True:
        j = take(queue)
        if j >= problems.size:
            return
        k = problems[j]
        weights, penalties = _objective(b, k)
        x = _flat(b, k)
        result = minimize(b.model, rows_of(b, k), weights, penalties, x, options, room)
        if result.status != NON_FINITE:
            _unflatten(x, b.gates[k], 0)
            _unflatten(x, b.leaves[k], b.gates[k].size)
        write_record(records[j], JOINT_STEP, result, _count(b.weight[k]), math.nan)


@borrowing
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
        m, all_weight = 0, b.weight[k]
        for leaf in range(n_leaves):
            ranges[leaf, 0] = m
            for i in range(keep.size):
                if all_weight[i] > 0 and leaf_of[i] == leaf:
                    keep[m] = i
                    m += 1
            ranges[leaf, 1] = m
        # Rows of a leaf follow each other: also all of them are gathered.
        keep = keep[:m]
        rows = copied(rows_of(b, k), keep)
        weight = picked(b.weight[k], keep)
        ends = np.empty((1, m))
        subjects = total(weight, weight.size) / b.rows_per_subject[k]
        for i in range(m):
            ends[0, i] = weight[i] / subjects
        records[j, SHARE] = math.nan
        fit_leaves(b, k, 0, rows, ends, ranges, b.shared[k], options, records[j], room)


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
        weight, mass = b.weight[k], masses[j]
        fill(mass, mass.size, 0.0)
        for i in range(leaf_of.size):
            mass[leaf_of[i]] += weight[i]
        whole = max(total(weight, leaf_of.size), TINY)
        for leaf in range(mass.size):
            mass[leaf] /= whole
