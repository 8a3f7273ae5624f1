"""The rows of one problem, its penalties, and a minimisation over its leaves."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import types

from sstorch.optim.compiled.jit import compiled
from sstorch.optim.compiled.lbfgs import NON_FINITE, minimize
from sstorch.optim.compiled.matrix import copy, inner
from sstorch.optim.compiled.records import (
    AFTER,
    BEFORE,
    EVALUATIONS,
    LN,
    NORM,
    ROWS,
    SHARE,
    STATUS,
    STEP,
    write_record,
)
from sstorch.optim.compiled.steps import LEAVES, MODEL, Penalties, Rows, Weights

# All problems. ``x`` (S, p, N) are the features of the splits, ``split`` (R,) the split of each problem;
# events, functions of time and ``late`` (O, N), (O, q, N), (O, N) are stored once for problems that have the
# same, those of ``owner`` (R,). Parameters: gates (R, B, p_gate + 1), leaves (R, L, d), written in place.
# Coefficients of penalties have one row per problem. Last, addresses of the two steps of a visit.
_INT, _INTS, _NUMBERS = types.int64, types.int64[::1], types.float64[::1]
_TWO, _THREE = types.float64[:, ::1], types.float64[:, :, ::1]
_FIELDS = {
    "model": MODEL,
    "depth": _INT,
    "x": _THREE,
    "split": _INTS,
    "owner": _INTS,
    "event": _TWO,
    "columns": _THREE,
    "entry": _THREE,
    "late": _TWO,
    "weight": _TWO,
    "rows_per_subject": _NUMBERS,
    "gates": _THREE,
    "leaves": _THREE,
    "ridge": _TWO,
    "lasso": _NUMBERS,
    "own": _TWO,
    "apart": _TWO,
    "shared": types.boolean[::1],
    "cone_weight": _NUMBERS,
    "cone": _THREE,
    "train_gates": _INT,
    "train_leaves": _INT,
}
Problems = namedtuple("Problems", list(_FIELDS))  # type: ignore[misc]
PROBLEMS = types.NamedTuple(list(_FIELDS.values()), Problems)


@compiled
def rows_of(b, k):
    """Rows of a problem."""
    o = b.owner[k]
    return Rows(b.x[b.split[k]], b.event[o], b.columns[o], b.entry[o], b.late[o])


@compiled
def gathered(rows, keep):
    """Copies of some of the rows; the rows themselves if they are all."""
    return rows if keep.size == rows.x.shape[1] else copied(rows, keep)


@compiled
def copied(rows, keep):
    """Copies of some of the rows, in the given order."""
    return Rows(
        _taken(rows.x, keep),
        picked(rows.event, keep),
        _taken(rows.columns, keep),
        _taken(rows.entry, keep),
        picked(rows.late, keep),
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
def picked(values, keep):
    """Values of some of the rows; none if there are none of all."""
    out = np.empty(keep.size if values.size else 0)
    for i in range(out.size):
        out[i] = values[keep[i]]
    return out


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
def leaf_penalties(b, k, first, count, ridge, lasso):
    """Penalties of a step in which so many leaves from ``first`` on are thawed; ridge and lasso of gates."""
    constant = 0.0
    for leaf in range(b.leaves.shape[1]):
        if leaf < first or leaf >= first + count:
            constant += _own_penalty(b, k, leaf)
    none, leaves = np.zeros(b.model.p_gate), b.leaves[k].copy()
    return Penalties(
        ridge, lasso, none, b.own[k], b.apart[k], leaves, first, b.cone_weight[k], b.cone[k], constant
    )


@compiled
def places(n_leaves, d, start):
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
def fit_leaves(b, k, first, rows, ends, ranges, shared, options, record, room):
    """Minimise over leaves from ``first`` on; they stay as they are where one overflows."""
    count, d = ranges.shape[0], b.leaves.shape[2]
    gates = 0
    tied = shared
    for j in range(d):
        tied = tied or b.apart[k, j] > 0
    penalties = leaf_penalties(b, k, first, count, np.zeros(b.model.p_gate), 0.0)
    if tied:
        place = _shared_places(b.model, count, d) if shared else places(count, d, 0)
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
        write_record(record, LN, result, rows.x.shape[1], record[SHARE])
        return
    found = np.empty((count, d))
    record[STEP], record[STATUS], record[EVALUATIONS], record[NORM] = LN, 0.0, 0.0, 0.0
    record[BEFORE] = record[AFTER] = penalties.constant
    record[ROWS] = rows.x.shape[1]
    for leaf in range(count):
        of_leaves = penalties.own, penalties.apart, penalties.leaves
        cone = penalties.cone_weight, penalties.cone
        one = Penalties(penalties.ridge, 0.0, penalties.frozen, *of_leaves, first + leaf, *cone, 0.0)
        copy(b.leaves[k, first + leaf], d, found[leaf])
        at = min(leaf, ends.shape[0] - 1)
        weights = Weights(LEAVES, gates, ends[at : at + 1], ranges[leaf : leaf + 1], places(1, d, 0))
        result = minimize(b.model, rows, weights, one, found[leaf], options, room)
        record[BEFORE] += result.before
        record[AFTER] += result.value
        record[STATUS] = max(record[STATUS], result.status)
        record[EVALUATIONS] = max(record[EVALUATIONS], result.evaluations)
        record[NORM] = max(record[NORM], result.norm)
    if record[STATUS] != NON_FINITE:
        for leaf in range(count):
            copy(found[leaf], d, b.leaves[k, first + leaf])
