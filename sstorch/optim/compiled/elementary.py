"""Elementary functions as vector code in loops over rows, to a few units in the last place; after fdlibm."""

from __future__ import annotations

import math

import numpy as np

from sstorch.optim.compiled.jit import inlined

_LOG2E = 1.4426950408889634
_LN2_HI = 6.93147180369123816490e-01
_LN2_LO = 1.90821492927058770002e-10
# Adding it leaves the nearest integer in the low bits.
_MAGIC = 6755399441055744.0
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (1 / math.factorial(k) for k in range(2, 14))
_L1, _L2, _L3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
_L4, _L5 = 2.222219843214978396e-01, 1.818357216161805012e-01
_L6, _L7 = 1.531383769920937332e-01, 1.479819860510658591e-01
_SQRT2 = math.sqrt(2)
_EXP_OVERFLOW = 709.782712893384
TINY = float(np.finfo(np.float64).tiny)


@inlined
def exp(x):
    """The exponential: 0 far below, +inf if it overflows, nan of nan."""
    inside = min(max(x, -708.0), 709.5)
    t = inside * _LOG2E + _MAGIC
    n = t - _MAGIC
    r = (inside - n * _LN2_HI) - n * _LN2_LO
    p = _C13
    p = p * r + _C12
    p = p * r + _C11
    p = p * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    p = p * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = (p * r) * r + r + 1.0
    # 2^n in two factors, since 2^1024 is not a number.
    value = (p * np.int64((np.float64(t).view(np.int64) + 1022) << 52).view(np.float64)) * 2.0
    value = math.inf if x > _EXP_OVERFLOW else value
    return value if x == x else x


@inlined
def _log_series(f, s):
    """log(1 + f) - f with s = f / (2 + f), |f| < .42."""
    z = s * s
    r = z * (_L1 + z * (_L2 + z * (_L3 + z * (_L4 + z * (_L5 + z * (_L6 + z * _L7))))))
    h = 0.5 * f * f
    return s * (h + r) - h


@inlined
def log(x):
    """The logarithm; below the smallest normal number it is that one's."""
    inside = min(max(x, TINY), 1.7976931348623157e308)
    bits = np.float64(inside).view(np.int64)
    # The exponent as a double, by way of 2^52 + exponent.
    n = np.int64((bits >> 52) | 0x4330000000000000).view(np.float64) - (4503599627370496.0 + 1023.0)
    f = np.int64((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    big = f > _SQRT2
    f = (0.5 * f if big else f) - 1.0
    n = n + 1.0 if big else n
    value = n * _LN2_HI + ((_log_series(f, f / (2.0 + f)) + n * _LN2_LO) + f)
    value = math.inf if x > 1.7976931348623157e308 else value
    return value if x == x else x


@inlined
def sigmoid_pair(z):
    """sigmoid(z) and sigmoid(-z)."""
    e = exp(-abs(z))
    larger = 1.0 / (1.0 + e)
    smaller = e * larger
    up = z >= 0.0
    return (larger if up else smaller), (smaller if up else larger)


@inlined
def sigmoid_and_softplus(z):
    """sigmoid(z) and log(1 + exp(z)), with one division for both."""
    e = exp(-abs(z))
    big = e > _SQRT2 - 1.0
    f = (e - 1.0) * 0.5 if big else e
    one, two = 1.0 + e, 2.0 + f
    both = 1.0 / (one * two)
    larger = both * two
    k = 1.0 if big else 0.0
    tail = k * _LN2_HI + ((_log_series(f, f * (both * one)) + k * _LN2_LO) + f)
    # Not max(z, 0), which would lose a nan.
    return (larger if z >= 0.0 else e * larger), (0.0 if z <= 0.0 else z) + tail
