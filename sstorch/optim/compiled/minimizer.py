"""L-BFGS on the steps of one tree, by the rules of ``sstorch.optim.batched_lbfgs`` and its line search."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from sstorch.optim.compiled.jit import kernel
from sstorch.optim.compiled.rows import (
    BERNOULLI,
    EPS,
    FLOAT,
    INT,
    MAX_BLOCK,
    STEP,
    V1,
    V2,
    V3,
    evaluate,
    metric,
)

CONVERGED, MAX_ITER, STALLED, NON_FINITE = range(1, 5)  # as sstorch.optim.batched_lbfgs.Status
C1, C2, MAX_TRIALS = 1e-4, 0.9, 20  # as sstorch.optim.batched_lbfgs
# Of a result: values at the start and at the end, norm of the gradient, status and evaluations.
BEFORE, AFTER, NORM, STATUS, EVALUATIONS = range(5)
# Iterations of a logistic regression after which its curvature is taken anew.
NEWTON = 3
OPTIONS = types.UniTuple(FLOAT, 5)


@kernel(FLOAT(V1, V1))
def dot(a, b):
    """Inner product."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@kernel(FLOAT(V1))
def norm_of(v):
    """Maximum norm; nan if an entry is."""
    norm = 0.0
    for j in range(v.size):
        norm = abs(v[j]) if abs(v[j]) > norm or v[j] != v[j] else norm
    return norm


@kernel(types.void(V3, V1, V1))
def apply(h, v, out):
    """Product of the blocks with a vector."""
    q = h.shape[1]
    for j in range(v.size):
        row, total = h[j // q, j % q], 0.0
        for k in range(q):
            total += row[k] * v[j - j % q + k]
        out[j] = total


@kernel(FLOAT(*[FLOAT] * 7))
def cubic(start, value0, slope0, end, value1, slope1, noise):
    """As ``sstorch.optim.batched_lbfgs._cubic_minimum``."""
    width, rise = end - start, value1 - value0
    slope0, slope1 = slope0 * width, slope1 * width
    if abs(rise) <= noise:
        rise = 0.5 * (slope0 + slope1)
    a = slope0 + slope1 - 3.0 * rise
    b = math.sqrt(a * a - slope0 * slope1)
    return 1.0 - (slope1 + b - a) / (slope1 - slope0 + 2.0 * b)


@kernel(types.void(V3, V2, V2, V2, INT, FLOAT, V1, V1, V1))
def set_direction(h, s, y, numbers, count, scale, gradient, spare, out):
    """The two loops of L-BFGS (Nocedal and Wright 2006, algorithm 7.4) on the last pairs."""
    m, d, rho, alpha = s.shape[0], out.size, numbers[0], numbers[1]
    for j in range(d):
        out[j] = -gradient[j]
    for k in range(count - 1, max(count - m, 0) - 1, -1):
        alpha[k % m], pair = rho[k % m] * dot(s[k % m], out), y[k % m]
        for j in range(d):
            out[j] -= alpha[k % m] * pair[j]
    apply(h, out, spare)
    for j in range(d):
        out[j] = scale * spare[j]
    for k in range(max(count - m, 0), count):
        beta, pair = alpha[k % m] - rho[k % m] * dot(y[k % m], out), s[k % m]
        for j in range(d):
            out[j] += beta * pair[j]


@kernel(types.void(*STEP, OPTIONS, V1, V2), True)
def minimize(model, x, times, ends, ridge, theta, options, out, w):
    """Minimise a step from theta, which is left at the end; ``out`` gets the numbers of the result."""
    history, max_iterations, max_evaluations, gtol, rtol = options
    d, m, n_nodes = theta.size, int(history), max(model[5], 1)
    q = d // n_nodes if d <= MAX_BLOCK * n_nodes else 1
    h = np.empty((d // q, q, q))
    vectors, s, y, numbers = np.empty((7, d)), np.empty((m, d)), np.empty((m, d)), np.empty((2, m))
    gradient, trial, at_trial, at_low = vectors[0], vectors[1], vectors[2], vectors[3]
    direction, change, spare = vectors[4], vectors[5], vectors[6]
    value = evaluate(model, x, times, ends, ridge, theta, gradient, w)
    start, norm, evaluations, iterations, count, status = value, norm_of(gradient), 1, 0, 0, 0
    scale, fresh, steepest = 1.0, True, False
    if not (math.isfinite(value) and math.isfinite(norm)):
        status = NON_FINITE
    elif norm <= gtol:
        status = CONVERGED
    elif max_iterations == 0 or max_evaluations == 1:
        status = MAX_ITER
    while status == 0:
        if fresh:
            metric(model, x, times, ends, ridge, theta, h, w)
            count, scale, fresh = 0, 1.0, False
        if not steepest:
            set_direction(h, s, y, numbers, count, scale, gradient, spare, direction)
            steepest = not dot(gradient, direction) < 0.0
        if steepest:
            size, count, scale = 0.0, 0, 1.0
            for j in range(d):
                size += abs(gradient[j])
            for j in range(d):
                direction[j] = -gradient[j] / max(size, 1.0)
        slope, noise = dot(gradient, direction), max(abs(value), 1.0) * 10.0 * EPS
        low, low_value, low_slope = 0.0, value, slope
        high, high_value, high_slope = math.inf, math.inf, math.inf
        step, trials, accepted, finite = 1.0, 0, False, False
        while not accepted and trials < MAX_TRIALS and (trials == 0 or evaluations < max_evaluations):
            for j in range(d):
                trial[j] = theta[j] + step * direction[j]
            at = evaluate(model, x, times, ends, ridge, trial, at_trial, w)
            at_slope = dot(at_trial, direction)
            evaluations += 1
            trials += 1
            finite = math.isfinite(at) and math.isfinite(at_slope)
            if not finite:
                at, at_slope = math.inf, 0.0
            decreased, flat = at - value <= C1 * step * slope, abs(at - value) <= noise
            accepted = decreased or (flat and at_slope <= (2.0 * C1 - 1.0) * slope)
            accepted = accepted and abs(at_slope) <= -C2 * slope
            last, last_value, last_slope, tried = low, low_value, low_slope, step
            if accepted or ((decreased or flat) and at <= low_value + noise):
                if at_slope * (high - low) >= 0.0:
                    high, high_value, high_slope = low, low_value, low_slope
                low, low_value, low_slope = step, at, at_slope
                for j in range(d):
                    at_low[j] = at_trial[j]
            else:
                high, high_value, high_slope = step, at, at_slope
            if math.isfinite(high):
                part = cubic(low, low_value, low_slope, high, high_value, high_slope, noise)
                part = 0.5 if math.isnan(part) else min(max(part, 0.1), 0.9)
                step = low + part * (high - low)
            else:
                part = cubic(last, last_value, last_slope, tried, at, at_slope, noise)
                step = last + min(max(part if part > 1.0 else 5.0, 2.1), 5.0) * (tried - last)
        moved = (accepted or low_value < value) and low_value <= start
        done = not moved and (accepted or -slope <= noise)
        if moved:
            for j in range(d):
                direction[j] *= low
                theta[j] += direction[j]
                change[j] = at_low[j] - gradient[j]
                gradient[j] = at_low[j]
            along = dot(direction, change)
            if along > EPS * dot(change, change):
                pair, of_pair = s[count % m], y[count % m]
                for j in range(d):
                    pair[j], of_pair[j] = direction[j], change[j]
                apply(h, change, spare)
                numbers[0, count % m], scale = 1.0 / along, along / dot(change, spare)
                count += 1
            old_norm, norm = norm, norm_of(gradient)
            done = value - low_value <= max(rtol * max(abs(value), 1.0), noise)
            done = (done and (rtol > 0.0 or norm > 0.5 * old_norm)) or norm <= gtol
            value = low_value
            iterations += 1
            fresh = model[0] == BERNOULLI and iterations <= NEWTON and d**3 < x.shape[0] * x.shape[2]
        if done:
            status = CONVERGED
        elif evaluations >= max_evaluations or iterations >= max_iterations:
            status = MAX_ITER
        elif not moved and steepest:
            status = STALLED if finite else NON_FINITE
        steepest = not moved  # a failed search is repeated once, along steepest descent
    out[BEFORE], out[AFTER], out[NORM] = start, value, norm
    out[STATUS], out[EVALUATIONS] = status, evaluations
