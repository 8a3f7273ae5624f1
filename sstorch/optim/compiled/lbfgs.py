"""L-BFGS for one problem: the decisions of :func:`sstorch.optim.batched_lbfgs.minimize`, compiled."""

from __future__ import annotations

import math
from collections import namedtuple
from functools import cache

import numpy as np
from numba import types

from sstorch.optim.compiled.curvature import MAX_BLOCK, METRIC, metric_of_step, put_metric
from sstorch.optim.compiled.families import n_pairs, row_functions
from sstorch.optim.compiled.jit import address, borrowing, call_by_address, compiled
from sstorch.optim.compiled.matrix import EPS, copy, inner
from sstorch.optim.compiled.steps import (
    EVALUATE,
    LOGISTIC,
    MODEL,
    PENALTIES,
    ROOM,
    ROWS,
    WEIGHTS,
    ZERO,
    Model,
    evaluate,
    evaluate_step,
)

# As :class:`sstorch.optim.batched_lbfgs.Status`.
CONVERGED, MAX_ITER, STALLED, NON_FINITE = 1, 2, 3, 4

# Iterations of a logistic regression, whose start is far away, after which its curvature is worked out again
# where an inverse costs less than an evaluation.
_NEWTON = 3

# The fields of :class:`sstorch.optim.batched_lbfgs.LBFGSOptions` that count here.
Options = namedtuple(
    "Options",
    "history max_iterations max_evaluations gradient_tolerance relative_tolerance max_line_search c1 c2",
)

# How a minimisation ended; x is at its end.
Result = namedtuple("Result", "before value norm status evaluations")

RESULT = types.NamedTuple([types.float64] * 3 + [types.int64] * 2, Result)
OPTIONS = types.NamedTuple(
    [types.int64] * 3 + [types.float64] * 2 + [types.int64] + [types.float64] * 2, Options
)
_MINIMIZE = RESULT(MODEL, ROWS, WEIGHTS, PENALTIES, types.float64[::1], OPTIONS, ROOM)
_call_for_result = call_by_address(_MINIMIZE)


@borrowing
def _norm(g):
    value = 0.0
    for j in range(g.size):
        if not abs(g[j]) <= value:  # also where it is nan
            value = abs(g[j])
            if value != value:
                return value
    return value


@borrowing
def _apply(of_gates, of_leaves, g, out):
    """Product of the blocks with a vector."""
    at = 0
    for blocks in (of_gates, of_leaves):
        size = blocks.shape[1]
        for b in range(blocks.shape[0]):
            if size == 1:
                out[at] = blocks[b, 0, 0] * g[at]
            else:
                for j in range(size):
                    out[at + j] = inner(blocks[b, j], g[at:], size)
            at += size


@borrowing
def _direction(g, of_gates, of_leaves, scale, s, y, rho, count, out, alpha, spare):
    """The two loops of L-BFGS (Nocedal and Wright 2006, algorithm 7.4) on the last ``count`` pairs."""
    d, m = g.size, rho.size
    copy(g, d, out)
    n = min(count, m)
    for k in range(n):
        i = (count - 1 - k) % m
        alpha[i] = rho[i] * inner(s[i], out, d)
        for j in range(d):
            out[j] -= alpha[i] * y[i, j]
    _apply(of_gates, of_leaves, out, spare)
    for j in range(d):
        out[j] = scale * spare[j]
    for k in range(n - 1, -1, -1):
        i = (count - 1 - k) % m
        beta = rho[i] * inner(y[i], out, d)
        for j in range(d):
            out[j] += (alpha[i] - beta) * s[i, j]
    for j in range(d):
        out[j] = -out[j]


@borrowing
def _steepest(g, out):
    size = 0.0
    for j in range(g.size):
        size += abs(g[j])
    for j in range(g.size):
        out[j] = -g[j] / max(size, 1.0)


@borrowing
def _cubic(start, value0, slope0, end, value1, slope1, noise):
    """As ``sstorch.optim.line_search._cubic_minimum``."""
    width, rise = end - start, value1 - value0
    slope0, slope1 = slope0 * width, slope1 * width
    if abs(rise) <= noise:
        rise = 0.5 * (slope0 + slope1)
    a = slope0 + slope1 - 3.0 * rise
    b = math.sqrt(a * a - slope0 * slope1)
    return 1.0 - (slope1 + b - a) / (slope1 - slope0 + 2.0 * b)


@borrowing
def minimize(model, rows, weights, penalties, x, options, room):
    """Minimise a step from x, which is left at the end."""
    return _call_for_result(model.minimize, (model, rows, weights, penalties, x, options, room))


@compiled
def minimize_step(model, rows, weights, penalties, x, options, room):
    """What :func:`minimize` calls."""
    d, m = x.size, options.history
    of_gates, of_leaves = _blocks(model, weights, d)
    memory = np.empty((7, d)), np.empty((2, m, d)), np.empty((2, m))
    return _descend(model, rows, weights, penalties, x, options, room, of_gates, of_leaves, *memory)


@borrowing
def _descend(model, rows, weights, penalties, x, options, room, of_gates, of_leaves, vectors, pairs, numbers):
    """Minimise in the memory of a metric, of vectors (7, d), and of pairs (2, m, d) with their (2, m)."""
    d, m = x.size, options.history
    g, trial_g, low_g, trial = vectors[0], vectors[1], vectors[2], vectors[3]
    direction, spare, change = vectors[4], vectors[5], vectors[6]
    s, y, rho, alpha = pairs[0], pairs[1], numbers[0], numbers[1]
    value = evaluate(model, rows, weights, penalties, x, g, room)
    before, norm = value, _norm(g)
    evaluations, iterations = 1, 0
    if not (math.isfinite(value) and math.isfinite(norm)):
        return Result(before, value, norm, NON_FINITE, evaluations)
    if norm <= options.gradient_tolerance:
        return Result(before, value, norm, CONVERGED, evaluations)
    if options.max_iterations == 0 or options.max_evaluations == 1:
        return Result(before, value, norm, MAX_ITER, evaluations)
    put_metric(model, rows, weights, penalties, x, of_gates, of_leaves, room)
    count, scale = 0, 1.0
    _apply(of_gates, of_leaves, g, direction)
    for j in range(d):
        direction[j] = -direction[j]
    slope = inner(g, direction, d)
    steepest = not slope < 0
    if steepest:
        _steepest(g, direction)
        slope = inner(g, direction, d)
    while True:
        noise = max(abs(value), 1.0) * 10.0 * EPS
        low, low_value, low_slope = 0.0, value, slope
        high = high_value = high_slope = math.inf
        step, trials = 1.0, 0
        copy(g, d, low_g)
        accepted = finite = False
        while True:
            for j in range(d):
                trial[j] = x[j] + step * direction[j]
            v = evaluate(model, rows, weights, penalties, trial, trial_g, room)
            evaluations += 1
            trials += 1
            rise_slope = inner(trial_g, direction, d)
            finite = math.isfinite(v) and math.isfinite(rise_slope)
            if not finite:
                v, rise_slope = math.inf, 0.0
            rise = v - value
            decreased = rise <= options.c1 * step * slope
            flat = abs(rise) <= noise
            accepted = (decreased or (flat and rise_slope <= (2.0 * options.c1 - 1.0) * slope)) and abs(
                rise_slope
            ) <= -options.c2 * slope
            improved = accepted or ((decreased or flat) and v <= low_value + noise)
            old, old_value, old_slope = low, low_value, low_slope
            if improved:
                if rise_slope * (high - low) >= 0:
                    high, high_value, high_slope = low, low_value, low_slope
                low, low_value, low_slope = step, v, rise_slope
                copy(trial_g, d, low_g)
            else:
                high, high_value, high_slope = step, v, rise_slope
            if accepted or trials >= options.max_line_search or evaluations >= options.max_evaluations:
                break
            if math.isfinite(high):
                part = _cubic(low, low_value, low_slope, high, high_value, high_slope, noise)
                part = 0.5 if math.isnan(part) else min(max(part, 0.1), 0.9)
                step = low + part * (high - low)
            else:
                part = _cubic(old, old_value, old_slope, step, v, rise_slope, noise)
                part = min(max(part if part > 1.0 else 5.0, 2.1), 5.0)
                step = old + part * (step - old)
        moved = (accepted or low_value < value) and low_value <= before
        spent = evaluations >= options.max_evaluations
        converged = not moved and (accepted or -slope <= noise)
        if moved:
            for j in range(d):
                direction[j] *= low
                change[j] = low_g[j] - g[j]
            along, square = inner(direction, change, d), inner(change, change, d)
            if along > EPS * square:
                at = count % m
                copy(direction, d, s[at])
                copy(change, d, y[at])
                rho[at] = 1.0 / along
                count += 1
                _apply(of_gates, of_leaves, change, spare)
                scale = along / inner(change, spare, d)
            for j in range(d):
                x[j] += direction[j]
                g[j] = low_g[j]
            new_norm = _norm(g)
            settled = value - low_value <= max(options.relative_tolerance * max(abs(value), 1.0), noise)
            if options.relative_tolerance == 0.0:
                settled = settled and new_norm > 0.5 * norm
            value, norm = low_value, new_norm
            iterations += 1
            converged = settled or norm <= options.gradient_tolerance
        if converged:
            return Result(before, value, norm, CONVERGED, evaluations)
        if spent or iterations >= options.max_iterations:
            return Result(before, value, norm, MAX_ITER, evaluations)
        if not moved and steepest:
            return Result(before, value, norm, STALLED if finite else NON_FINITE, evaluations)
        if moved and weights.what == LOGISTIC and iterations <= _NEWTON and d**3 < rows.x.shape[1]:
            put_metric(model, rows, weights, penalties, x, of_gates, of_leaves, room)
            count, scale = 0, 1.0
        if moved:
            _direction(g, of_gates, of_leaves, scale, s, y, rho, count, direction, alpha, spare)
            slope = inner(g, direction, d)
        steepest = not moved or not (slope < 0 and math.isfinite(slope))
        if steepest:
            # A failed search is repeated once, along steepest descent.
            count, scale = 0, 1.0
            _steepest(g, direction)
            slope = inner(g, direction, d)


@compiled
def _blocks(model, weights, d):
    """Room for the metric: one block a node, one for all leaves with shared slopes, or diagonals."""
    n_gates, q = weights.n_gates, model.p_gate + 1
    n_leaves, width = weights.place.shape
    rest = d - n_gates * q
    shared = rest < n_leaves * width
    gate_shape = (n_gates, q, q) if q <= MAX_BLOCK else (n_gates * q, 1, 1)
    leaf_shape = (rest, 1, 1)
    if shared and rest <= MAX_BLOCK:
        leaf_shape = (1, rest, rest)
    elif not shared and width <= MAX_BLOCK:
        leaf_shape = (n_leaves, width, width)
    return np.empty(gate_shape), np.empty(leaf_shape)


@cache
def _addresses() -> tuple[int, ...]:
    """Of the functions that all families share; they are compiled, or loaded, at the first call."""
    functions = (evaluate_step, EVALUATE), (metric_of_step, METRIC), (minimize_step, _MINIMIZE)
    return tuple(address(*each) for each in functions)


def make_model(kind, n_features, p_gate, p_leaf, s, linear, n_gates):
    """A family and its sizes; where a block has what."""
    at, places = ZERO + 1, []
    pairs = int(n_pairs.py_func(kind, s))  # type: ignore[attr-defined]  # of numba
    for count in (s, s, s, s, pairs, 4 * max(n_gates, 1), n_gates + 1, n_gates + 1):
        places.append(at)
        at += count
    sizes = kind, p_gate, p_leaf, s, linear, 0, n_features - p_leaf
    return Model._make((*sizes, *places, at, *row_functions(kind), *_addresses()))
