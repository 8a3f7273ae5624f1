"""Wald tests of penalised terms."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from sstorch._types import FloatArray

# Eigenvalues below this share of the largest are none.
_SMALL = 1e-12
# Points of the integrals over an angle, periodic, and over a chi-squared variable.
_ANGLES, _NODES = 64, 200


def term_test(
    coefficients: FloatArray, covariance: FloatArray, spread: FloatArray, freedom: float
) -> tuple[float, float]:
    """Statistic and p-value of the hypothesis that a penalised term is zero.

    The quadratic form of the term's values at the training rows in a pseudo-inverse of their covariance,
    whose rank is the degrees of freedom that the penalty has left, which need not be an integer: the last
    whole one and the part share a block of two.

    Args:
        coefficients: of the term, (k,).
        covariance: given the data, (k, k).
        spread: second moments of its features among the training rows, (k, k).
        freedom: reference degrees of freedom, > 0.

    References:
        Wood (2013), "On p-values for smooth components of an extended generalized additive model",
        Biometrika 100, 221-228.
    """
    values, vectors = np.linalg.eigh(spread)
    good = values > _SMALL * max(values[-1], 0.0)
    root = (vectors[:, good] * np.sqrt(values[good])).T  # of the term's values, an orthogonal basis
    moved = root @ coefficients
    variances, axes = np.linalg.eigh(root @ covariance @ root.T)
    order = np.argsort(-variances)
    variances, axes = variances[order], axes[:, order]
    variances = variances[variances > variances[0] * _SMALL]
    rank = min(freedom, float(len(variances)))
    whole = int(np.floor(rank))
    part = rank - whole
    if part < 1e-9 or whole == len(variances):
        part = 0.0
    along = (axes.T @ moved)[: len(variances)]
    if whole == 0 or part == 0.0:
        count = max(whole, 1)
        statistic = float((along[:count] ** 2 / variances[:count]).sum())
        return statistic, float(chi2.sf(statistic, count))
    share = np.sqrt(part * (1 - part) / 2)
    scale = variances[whole - 1 : whole + 1] ** -0.5
    block = scale[:, None] * np.array([[1.0, share], [share, part]]) * scale
    own, turned = np.linalg.eigh(block)
    half = turned * np.sqrt(own) @ turned.T
    first = float((along[: whole - 1] ** 2 / variances[: whole - 1]).sum())
    # The signs of the two axes are arbitrary, and the form depends on them: both are taken.
    forms = [
        first + float(np.sum((half @ (along[whole - 1 : whole + 1] * [1.0, sign])) ** 2)) for sign in (1, -1)
    ]
    upper = (part + 1 + np.sqrt(1 - part**2)) / 2
    weights = upper, part + 1 - upper
    return float(np.mean(forms)), float(np.mean([chi2_tail(each, whole - 1, weights) for each in forms]))


def chi2_tail(value: float, whole: int, weights: tuple[float, float]) -> float:
    """Probability that a sum of chi-squared variables exceeds a value > 0, precise in the tail.

    One of weight one with `whole` degrees of freedom, and two of one degree each with the weights. In polar
    coordinates these two are c(angle) times one with two degrees of freedom, whose tail is an exponential;
    what is left is an integral over the angle and over the first one.
    """
    angle = (np.arange(_ANGLES) + 0.5) * np.pi / _ANGLES
    c = weights[0] * np.cos(angle) ** 2 + weights[1] * np.sin(angle) ** 2
    if whole == 0:
        return float(np.exp(-value / (2 * c)).mean())
    u, width = np.polynomial.legendre.leggauss(_NODES)
    u, width = (u + 1) / 2, width / 2
    density = 2 * value * u * chi2.pdf(value * u**2, whole) * width
    rest = np.exp(-value * (1 - u[:, None] ** 2) / (2 * c)).mean(1)
    return float(chi2.sf(value, whole) + density @ rest)
