"""Losses of rows at a leaf, family by family, with first and second derivatives.

A family names its kernel and gives the functions of time that it reads, one per column
(:meth:`~sstorch.nn.HazardFamily.kernel`). Without an event the loss is the cumulative hazard: so the same
functions, at the time from which a row was observed, give what is to be taken off for it.
"""

from __future__ import annotations

import math
from functools import cache

from numba import types

from sstorch.optim.compiled.elementary import TINY, erfcx, exp, log, sigmoid_and_softplus, sigmoid_pair
from sstorch.optim.compiled.jit import address, borrowing, call_by_address, elementwise, inlined, select

KERNELS = (
    "exponential",
    "weibull",
    "log_logistic",
    "log_normal",
    "gompertz",
    "spline_ph",
    "spline_po",
    "logistic_hazard",
)
(
    EXPONENTIAL,
    WEIBULL,
    LOG_LOGISTIC,
    LOG_NORMAL,
    GOMPERTZ,
    SPLINE_PH,
    SPLINE_PO,
    LOGISTIC_HAZARD,
) = range(len(KERNELS))

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
# Log odds below which log softplus is a straight line.
_FAR = -16.0


@borrowing
def n_pairs(kind, s):
    """Second derivatives that may not be zero: (0, k), then (k, k), then, of splines, the other pairs."""
    if SPLINE_PH <= kind <= SPLINE_PO:
        return (s + 1) * (s + 2) // 2
    return 2 * s + 1


@elementwise
def link(kind, shape, s, n, linked):
    """Shape parameters (s, n) on the scale on which they act."""
    for k in range(s):
        if kind in (GOMPERTZ, LOGISTIC_HAZARD):
            for i in range(n):
                linked[k, i] = shape[k, i]
        elif kind == LOG_NORMAL:
            for i in range(n):
                linked[k, i] = exp(-shape[k, i])
        else:
            for i in range(n):
                linked[k, i] = exp(shape[k, i])


# ------------------------------------------------------------------ one shape at most


@inlined
def _log_logistic(z, c):
    """A(z) of a loss A(z) - c (log a - y), z = a (y - g), and its two derivatives."""
    left, risen = sigmoid_and_softplus(z)
    k = 1.0 + c
    return k * risen - c * z, k * left - c, k * left * (1.0 - left)


@inlined
def _weibull(z, c):
    hazard = exp(z)
    return hazard - c * z, hazard - c, hazard


@inlined
def _log_normal(z, c):
    e = erfcx(abs(z) * _SQRT_HALF)
    density = exp(-0.5 * z * z)
    up = z >= 0.0
    below = 1.0 - 0.5 * e * density
    risen = log(select(up, 0.5 * e, below))
    hazard = select(up, 0.5 * z * z, 0.0) - risen
    rate = select(up, _SQRT_TWO_OVER_PI / e, 0.5 * _SQRT_TWO_OVER_PI * density / below)
    d = 1.0 - c
    return d * hazard + c * (0.5 * z * z + _HALF_LOG_TWO_PI), d * rate + c * z, d * rate * (rate - z) + c


@inlined
def _gompertz(x):
    """log((exp(x) - 1) / x) and its two derivatives."""
    near = abs(x) < 0.1
    size = select(near, 1.0, abs(x))
    fallen = exp(-size)
    rest = 1.0 - fallen
    far = select(x > 0.0, x, 0.0) + log(rest) - log(size)
    # Of |x|; the first derivative at -|x| is 1 less that at |x|.
    first = 1.0 / rest - 1.0 / size
    second = 1.0 / (size * size) - fallen / (rest * rest)
    q = select(near, x * x, 0.0)
    series = 0.5 * x + q * (1 / 24 - q * (1 / 2880 - q * (1 / 181440 - q / 9676800)))
    slope = 0.5 + x * (1 / 12 - q * (1 / 720 - q * (1 / 30240 - q / 1209600)))
    bend = 1 / 12 - q * (1 / 240 - q * (1 / 6048 - q / 172800))
    return (
        select(near, series, far),
        select(near, slope, select(x > 0.0, first, 1.0 - first)),
        select(near, bend, second),
    )


# Losses ``v`` of n rows at a leaf, their derivatives in g and, ``ds`` (s, n), in the shape parameters; and
# second derivatives ``second`` (:func:`n_pairs`, n). All families' have the same arguments:
#     kind: number of the kernel.
#     columns: functions of time (q, m), of which those from ``lo`` on are the rows'; the first is log time.
#     lo: first of the rows.
#     c: events of the n rows.
#     n: number of rows.
#     g: linear predictors.
#     shape: shape parameters (s, n), as they are.
#     linked: the same as :func:`link` leaves them.
#     s: number of shape parameters.
#     v, dg, ds, second: written.
#     spare, spare2: of n.


@elementwise
def _location_scale_losses(kind, columns, lo, c, n, g, shape, linked, s, v, dg, ds, spare):
    y, log_a, a, of_shape = columns[0, lo : lo + n], shape[0], linked[0], ds[0]
    if kind == LOG_LOGISTIC:
        for i in range(n):
            z = a[i] * (y[i] - g[i])
            value, slope, _ = _log_logistic(z, c[i])
            v[i] = value - c[i] * (log_a[i] - y[i])
            dg[i] = -a[i] * slope
            of_shape[i] = z * slope - c[i]
    elif kind == WEIBULL:
        for i in range(n):
            z = a[i] * (y[i] - g[i])
            value, slope, _ = _weibull(z, c[i])
            v[i] = value - c[i] * (log_a[i] - y[i])
            dg[i] = -a[i] * slope
            of_shape[i] = z * slope - c[i]
    else:
        for i in range(n):
            z = a[i] * (y[i] - g[i])
            value, slope, _ = _log_normal(z, c[i])
            v[i] = value + c[i] * (log_a[i] + y[i])
            dg[i] = -a[i] * slope
            of_shape[i] = c[i] - z * slope


@elementwise
def _location_scale_curvatures(kind, columns, lo, c, n, g, shape, linked, s, second, spare, spare2):
    y, a = columns[0, lo : lo + n], linked[0]
    for i in range(n):
        z = a[i] * (y[i] - g[i])
        if kind == LOG_LOGISTIC:
            _, slope, bend = _log_logistic(z, c[i])
        elif kind == WEIBULL:
            _, slope, bend = _weibull(z, c[i])
        else:
            _, slope, bend = _log_normal(z, c[i])
        mixed = -a[i] * (slope + z * bend)
        second[0, i] = a[i] * a[i] * bend
        second[1, i] = -mixed if kind == LOG_NORMAL else mixed
        second[2, i] = z * slope + z * z * bend


@elementwise
def _exponential_rows(y, c, n, g, v, dg):
    for i in range(n):
        hazard = exp(g[i] + y[i])
        v[i] = hazard - c[i] * g[i]
        dg[i] = hazard - c[i]


@borrowing
def _exponential_losses(kind, columns, lo, c, n, g, shape, linked, s, v, dg, ds, spare):
    _exponential_rows(columns[0, lo : lo + n], c, n, g, v, dg)


@borrowing
def _exponential_curvatures(kind, columns, lo, c, n, g, shape, linked, s, second, spare, spare2):
    _exponential_rows(columns[0, lo : lo + n], c, n, g, spare, second[0])
    for i in range(n):
        second[0, i] += c[i]


@elementwise
def _gompertz_losses(kind, columns, lo, c, n, g, shape, linked, s, v, dg, ds, spare):
    y, t, a, of_shape = columns[0, lo : lo + n], columns[1, lo : lo + n], shape[0], ds[0]
    for i in range(n):
        ratio, slope, _ = _gompertz(a[i] * t[i])
        hazard = exp(g[i] + y[i] + ratio)
        v[i] = hazard - c[i] * (g[i] + a[i] * t[i])
        dg[i] = hazard - c[i]
        of_shape[i] = t[i] * (hazard * slope - c[i])


@elementwise
def _gompertz_curvatures(kind, columns, lo, c, n, g, shape, linked, s, second, spare, spare2):
    y, t, a = columns[0, lo : lo + n], columns[1, lo : lo + n], shape[0]
    for i in range(n):
        ratio, slope, bend = _gompertz(a[i] * t[i])
        hazard = exp(g[i] + y[i] + ratio)
        second[0, i] = hazard
        second[1, i] = hazard * slope * t[i]
        second[2, i] = hazard * t[i] * t[i] * (slope * slope + bend)


# ------------------------------------------------------------------ splines


@elementwise
def _spline_eta(columns, lo, n, g, w, s, eta, slope):
    """Eta and s'(y); columns are y, the curves I_j, then their slopes N_j."""
    for i in range(n):
        eta[i] = g[i]
        slope[i] = 0.0
    for j in range(s):
        curve, rise, weight = columns[1 + j, lo : lo + n], columns[1 + s + j, lo : lo + n], w[j]
        for i in range(n):
            eta[i] += weight[i] * curve[i]
            slope[i] += weight[i] * rise[i]


@elementwise
def _spline_losses(kind, columns, lo, c, n, g, shape, w, s, v, dg, ds, share):
    y = columns[0, lo : lo + n]
    _spline_eta(columns, lo, n, g, w, s, dg, share)
    for i in range(n):
        eta, slope = dg[i], max(share[i], TINY)
        if kind == SPLINE_PH:
            risen = exp(eta)
            rise = risen
        else:
            rise, risen = sigmoid_and_softplus(eta)
            rise, risen = (1.0 + c[i]) * rise, (1.0 + c[i]) * risen
        v[i] = risen - c[i] * (log(slope) + eta - y[i])
        dg[i] = rise - c[i]
        share[i] = c[i] / slope
    for j in range(s):
        curve, rise_j, weight, out = columns[1 + j, lo : lo + n], columns[1 + s + j, lo : lo + n], w[j], ds[j]
        for i in range(n):
            out[i] = weight[i] * (dg[i] * curve[i] - share[i] * rise_j[i])


@elementwise
def _spline_curvatures(kind, columns, lo, c, n, g, shape, w, s, second, bend, share):
    _spline_eta(columns, lo, n, g, w, s, bend, share)
    for i in range(n):
        eta, slope = bend[i], max(share[i], TINY)
        if kind == SPLINE_PH:
            second[0, i] = exp(eta)
            bend[i] = second[0, i] - c[i]
        else:
            left, right = sigmoid_pair(eta)
            second[0, i] = (1.0 + c[i]) * left * right
            bend[i] = (1.0 + c[i]) * left - c[i]
        share[i] = 1.0 / slope
    place = 2 * s + 1
    for j in range(s):
        curve, rise, weight = columns[1 + j, lo : lo + n], columns[1 + s + j, lo : lo + n], w[j]
        for i in range(n):
            second[1 + j, i] = second[0, i] * weight[i] * curve[i]
            own = weight[i] * rise[i] * share[i]
            second[1 + s + j, i] = (
                second[1 + j, i] * weight[i] * curve[i]
                + c[i] * own * (own - 1.0)
                + weight[i] * bend[i] * curve[i]
            )
        for k in range(j + 1, s):
            curve_k, rise_k, weight_k = columns[1 + k, lo : lo + n], columns[1 + s + k, lo : lo + n], w[k]
            for i in range(n):
                both = weight[i] * rise[i] * share[i] * weight_k[i] * rise_k[i] * share[i]
                second[place, i] = second[1 + j, i] * weight_k[i] * curve_k[i] + c[i] * both
            place += 1


# ------------------------------------------------------------------ the life table


@elementwise
def _begin(alpha, k, count, n, g, v, dg, out, product):
    """One interval's share in the sum of softplus over those that have begun."""
    for i in range(n):
        logit = g[i] + alpha[i]
        begun = count[i] > k
        e = exp(-abs(logit))
        larger = 1.0 / (1.0 + e)
        up = logit >= 0.0
        v[i] += select(begun, select(up, logit, 0.0), 0.0)
        product[i] *= select(begun, 1.0 + e, 1.0)
        out[i] = select(begun, select(up, larger, e * larger), 0.0)
        dg[i] += out[i]


@elementwise
def _add_log(v, product, n):
    for i in range(n):
        v[i] += log(product[i])
        product[i] = 1.0


@borrowing
def _life_table_losses(kind, columns, lo, c, n, g, alpha, linked, s, v, dg, ds, product):
    """Losses of :class:`~sstorch.nn.LogisticHazard`.

    Columns: y, number of the own interval, intervals begun, logs of the share left of the own one and of its
    length, time beyond the last end, log of the last end.
    """
    number, count = columns[1, lo : lo + n], columns[2, lo : lo + n]
    for i in range(n):
        v[i] = 0.0
        dg[i] = 0.0
        product[i] = 1.0
    for k in range(s - 1):
        _begin(alpha[k], k, count, n, g, v, dg, ds[k], product)
        if k % 1000 == 999:  # factors are at most 2
            _add_log(v, product, n)
    _add_log(v, product, n)
    for i in range(n):
        own = int(number[i])
        ds[s - 1, i] = 0.0
        observed = c[i] if own < s - 1 else 0.0
        if own < s - 1:
            logit = g[i] + alpha[own, i]
            change = observed
            v[i] += observed * (columns[4, lo + i] - logit)
            left = columns[3, lo + i]
            if left > -math.inf and observed < 1.0:
                slope, rest = sigmoid_and_softplus(max(logit + left, -1e4))
                v[i] -= (1.0 - observed) * rest
                change += (1.0 - observed) * slope
            ds[own, i] -= change
            dg[i] -= change
        elif columns[5, lo + i] > 0.0 or c[i] > 0.0:
            tail = g[i] + alpha[s - 1, i]
            slope, risen = sigmoid_and_softplus(tail)
            excess = columns[5, lo + i]
            v[i] += risen * excess
            change = slope * excess
            if c[i] > 0.0:
                log_risen = tail - 0.5 * math.exp(tail) if tail < _FAR else math.log(risen)
                v[i] -= c[i] * (log_risen - columns[6, lo + i])
                change -= c[i] * (1.0 if tail < _FAR else slope / risen)
            ds[s - 1, i] = change
            dg[i] += change


@borrowing
def _life_table_curvatures(kind, columns, lo, c, n, g, alpha, linked, s, second, spare, spare2):
    number, count = columns[1, lo : lo + n], columns[2, lo : lo + n]
    for i in range(n):
        second[0, i] = 0.0
    for k in range(s):
        _bend(alpha[k], k if k < s - 1 else math.inf, count, n, g, second[1 + k])
    for i in range(n):
        own = int(number[i])
        observed = c[i] if own < s - 1 else 0.0
        left = columns[3, lo + i]
        if own < s - 1:
            if left > -math.inf:
                one, other = sigmoid_pair(g[i] + alpha[own, i] + left)
                second[1 + own, i] -= (1.0 - observed) * one * other
        else:
            slope, risen = sigmoid_and_softplus(g[i] + alpha[s - 1, i])
            second[s, i] = columns[5, lo + i] * slope * (1.0 - slope)
            if c[i] > 0.0 and g[i] + alpha[s - 1, i] >= _FAR:
                share = slope / risen
                second[s, i] -= c[i] * share * (1.0 - slope - share)
    for k in range(s):
        for i in range(n):
            second[0, i] += second[1 + k, i]
            second[1 + s + k, i] = second[1 + k, i]


@elementwise
def _bend(alpha, k, count, n, g, out):
    for i in range(n):
        left, right = sigmoid_pair(g[i] + alpha[i])
        out[i] = select(count[i] > k, left * right, 0.0)


# ------------------------------------------------------------------ all of them

# Types of the arguments, and how those call who have the address of one of the two.
_INT, _ROW, _ROWS = types.int64, types.float64[::1], types.float64[:, ::1]
_GIVEN = (_INT, _ROWS, _INT, _ROW, _INT, _ROW, _ROWS, _ROWS, _INT)
LOSSES = types.void(*_GIVEN, _ROW, _ROW, _ROWS, _ROW)
CURVATURES = types.void(*_GIVEN, _ROWS, _ROW, _ROW)
call_for_rows = call_by_address(LOSSES, CURVATURES)


@cache
def row_functions(kind: int) -> tuple[int, int]:
    """Addresses of the losses and of the curvatures of a kernel; compiled, or loaded, at the first call."""
    if kind == EXPONENTIAL:
        losses, curvatures = _exponential_losses, _exponential_curvatures
    elif kind <= LOG_NORMAL:
        losses, curvatures = _location_scale_losses, _location_scale_curvatures
    elif kind == GOMPERTZ:
        losses, curvatures = _gompertz_losses, _gompertz_curvatures
    elif kind <= SPLINE_PO:
        losses, curvatures = _spline_losses, _spline_curvatures
    else:
        losses, curvatures = _life_table_losses, _life_table_curvatures
    return address(losses, LOSSES), address(curvatures, CURVATURES)
