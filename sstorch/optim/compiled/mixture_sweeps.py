"""Coordinate ascent for a Gaussian regression whose coefficients have a mixture of normal priors."""

from __future__ import annotations

import numpy as np

from sstorch._types import FloatArray
from sstorch.optim.compiled.jit import entry, summing


@summing
def _dot(a: FloatArray, b: FloatArray) -> float:
    out = 0.0
    for i in range(a.shape[0]):
        out += a[i] * b[i]
    return out


@summing
def _subtract(a: FloatArray, factor: float, b: FloatArray) -> None:
    for i in range(a.shape[0]):
        a[i] -= factor * b[i]


@entry
def mixture_sweeps(
    x: FloatArray,
    wx: FloatArray,
    information: FloatArray,
    score: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    share: FloatArray,
    shrinkage: FloatArray,
    n_zero: int,
    max_sweeps: int,
    tolerance: float,
) -> tuple[int, float]:
    """Maximise the evidence lower bound over one coefficient at a time, and over the shares of the mixture.

    The posterior of coefficient j is a mixture: of component k the weight is proportional to share_k (1 + v_k
    d_j)^(-1/2) exp(g_j^2 s_jk / 2) with s_jk = 1 / (d_j + 1 / v_k), its mean is s_jk g_j and its variance
    s_jk; g_j is the score of j at the other coefficients' means.

    Features x (p, n) are centred by the weights of the rows, wx the same times these, and d, `information`
    (p,), their sums of squares. `variance` (K,) is 0 for the point mass at zero. Written in place: `score`
    (n,), weight times residual; `mean` and `shrinkage` (p,), the posterior mean and the same over g_j;
    `share` (K,). `n_zero` further coefficients are zero and count in the shares. Sweeps end when the squared
    changes of the coefficients, times their information, sum to less than the tolerance, in nats.

    Returns the sweeps made, and the bound minus its terms in the residuals, in nats.

    References:
        Kim, Wang, Carbonetto and Stephens (2024), "A flexible empirical Bayes approach to multiple linear
        regression", Journal of Machine Learning Research 25(185), algorithm 1.
    """
    p, n_components = x.shape[0], variance.shape[0]
    log_weight = np.empty(n_components)
    bound = 0.0
    for sweep in range(max_sweeps):
        total = np.zeros(n_components)
        change = 0.0
        bound = 0.0
        for j in range(p):
            d = information[j]
            if d <= 0.0:
                continue
            g = _dot(x[j], score) + d * mean[j]
            largest = -np.inf
            for k in range(n_components):
                if share[k] > 0.0:
                    v = variance[k]
                    log_weight[k] = np.log(share[k]) - 0.5 * np.log1p(v * d) + 0.5 * g * g * v / (1.0 + v * d)
                    largest = max(largest, log_weight[k])
                else:
                    log_weight[k] = -np.inf
            mass = 0.0
            for k in range(n_components):
                log_weight[k] = np.exp(log_weight[k] - largest)
                mass += log_weight[k]
            ratio = 0.0
            for k in range(n_components):
                weight = log_weight[k] / mass
                total[k] += weight
                ratio += weight * variance[k] / (1.0 + variance[k] * d)
            new = ratio * g
            shrinkage[j] = ratio
            # The log of the sum of the weights holds the part of the residuals that the mean of j explains,
            # which is taken off again.
            bound += largest + np.log(mass) - g * new + 0.5 * d * new * new
            delta = new - mean[j]
            if delta != 0.0:
                change += d * delta * delta
                _subtract(score, delta, wx[j])
                mean[j] = new
        total[0] += n_zero
        count = total.sum()
        for k in range(n_components):
            share[k] = total[k] / count
        if change < tolerance:
            return sweep + 1, bound
    return max_sweeps, bound
