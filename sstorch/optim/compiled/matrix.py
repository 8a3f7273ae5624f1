"""Products of a block of rows with parameters, features first: what a step does with the design matrix."""

from __future__ import annotations

import math

import numpy as np

from sstorch.optim.compiled.jit import borrowing, compiled, elementwise, summing

EPS = float(np.finfo(np.float64).eps)


@elementwise
def copy(source, n, out):
    """Put the first n values into ``out``; a slice that is assigned brings much more code with it."""
    for i in range(n):
        out[i] = source[i]


@elementwise
def fill(out, n, value):
    """Set the first n values."""
    for i in range(n):
        out[i] = value


@elementwise
def score(x, first, p, lo, n, weight, bias, out):
    """``out`` = bias + weight . features ``first`` to ``first + p`` of the n rows from ``lo`` on."""
    for i in range(n):
        out[i] = bias
    j = 0
    while j + 4 <= p:
        k = first + j
        w0, w1, w2, w3 = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        x0, x1 = x[k, lo : lo + n], x[k + 1, lo : lo + n]
        x2, x3 = x[k + 2, lo : lo + n], x[k + 3, lo : lo + n]
        for i in range(n):
            out[i] += w0 * x0[i] + w1 * x1[i] + w2 * x2[i] + w3 * x3[i]
        j += 4
    while j < p:
        w0, x0 = weight[j], x[first + j, lo : lo + n]
        for i in range(n):
            out[i] += w0 * x0[i]
        j += 1


@summing
def total(v, n):
    """Sum of the first n values."""
    value = 0.0
    for i in range(n):
        value += v[i]
    return value


@summing
def inner(a, b, n):
    """Inner product of the first n values."""
    value = 0.0
    for i in range(n):
        value += a[i] * b[i]
    return value


@summing
def pull_back(x, first, p, lo, n, v, out):
    """Add weighted sums of the features of n rows to ``out`` (p), weights ``v``."""
    j = 0
    while j + 4 <= p:
        k = first + j
        x0, x1 = x[k, lo : lo + n], x[k + 1, lo : lo + n]
        x2, x3 = x[k + 2, lo : lo + n], x[k + 3, lo : lo + n]
        a0 = a1 = a2 = a3 = 0.0
        for i in range(n):
            a0 += x0[i] * v[i]
            a1 += x1[i] * v[i]
            a2 += x2[i] * v[i]
            a3 += x3[i] * v[i]
        out[j] += a0
        out[j + 1] += a1
        out[j + 2] += a2
        out[j + 3] += a3
        j += 4
    while j < p:
        out[j] += inner(x[first + j, lo : lo + n], v, n)
        j += 1


@elementwise
def product(a, b, n, out):
    """``out`` = a b."""
    for i in range(n):
        out[i] = a[i] * b[i]


@borrowing
def gram(x, first, p, lo, n, v, h, spare):
    """Add second moments of features and a one, weights ``v``, to the first block of h, one triangle."""
    for j in range(p):
        product(x[first + j, lo:], v, n, spare)
        pull_back(x, first, j + 1, lo, n, spare, h[j])
        h[j, p] += total(spare, n)
    h[p, p] += total(v, n)


@borrowing
def mirror(h, p):
    """Complete the block that :func:`gram` has filled one triangle of."""
    for j in range(p + 1):
        for k in range(j):
            if j < p:
                h[k, j] = h[j, k]
            else:
                h[j, k] = h[k, j]


@summing
def squares(x, first, p, lo, n, v, out):
    """Add weighted sums of squared features to ``out`` (p)."""
    for j in range(p):
        row = x[first + j, lo : lo + n]
        value = 0.0
        for i in range(n):
            value += row[i] * row[i] * v[i]
        out[j] += value


@compiled
def invert(h):
    """Put the inverse of a symmetric matrix in its place, without off-diagonals unless it is definite."""
    d = h.shape[0]
    mean = 0.0
    for j in range(d):
        for k in range(d):
            if not math.isfinite(h[j, k]):
                h[j, k] = 0.0
        mean += abs(h[j, j]) / d
    floor = mean * math.sqrt(EPS) if mean > 0 else 1.0
    if d == 1:
        h[0, 0] = 1.0 / (h[0, 0] + floor if h[0, 0] + floor > 0 else abs(h[0, 0]) + floor)
        return
    factor = np.empty((d, d))
    for j in range(d):
        fill(factor[j], d, 0.0)
    definite = True
    for j in range(d):
        pivot = h[j, j] + floor - inner(factor[j], factor[j], j)
        if not pivot > 0:
            definite = False
            break
        factor[j, j] = math.sqrt(pivot)
        for i in range(j + 1, d):
            factor[i, j] = (h[i, j] - inner(factor[i], factor[j], j)) / factor[j, j]
    if not definite:
        for j in range(d):
            own = 1.0 / (abs(h[j, j]) + floor)
            fill(h[j], d, 0.0)
            h[j, j] = own
        return
    # Columns of the factor's inverse, as rows.
    inverse = np.empty((d, d))
    for j in range(d):
        fill(inverse[j], d, 0.0)
    for j in range(d):
        inverse[j, j] = 1.0 / factor[j, j]
        for i in range(j + 1, d):
            inverse[j, i] = -inner(factor[i, j:], inverse[j, j:], i - j) / factor[i, i]
    for j in range(d):
        for k in range(j + 1):
            h[j, k] = h[k, j] = inner(inverse[j, j:], inverse[k, j:], d - j)
