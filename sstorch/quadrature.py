"""Sums over very many times, from a few of them."""

import numpy as np

from sstorch._types import FloatArray

# Sums over no more times than this are taken term by term.
MOST_TERMS = 4096
# Beyond, so many pieces with so many nodes each: 512 terms.
PIECES, NODES = 64, 8


def sum_rule(times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights (n_nodes,) that sum a smooth function over increasing times > 0, (n_times,).

    Up to 4096 times they are the times themselves, of weight one. Beyond, the times are cut into 64 pieces of
    equal numbers, and on each the function is replaced by the polynomial of degree 7 in log t through eight
    Chebyshev nodes; the weights are the sums of its Lagrange polynomials over the times of the piece, so that
    these polynomials are summed exactly. Cumulative hazards of smooth families are summed to about seven
    digits so, those of the families with steps to four (``tests/test_quadrature.py``).

    References:
        Trefethen (2019), Approximation Theory and Approximation Practice, chapter 5.

    >>> times = np.linspace(0.01, 3.0, 100_000)
    >>> nodes, weights = sum_rule(times)
    >>> nodes.size, bool(abs(np.sqrt(nodes) @ weights / np.sqrt(times).sum() - 1) < 1e-7)
    (512, True)
    """
    if times.size <= MOST_TERMS:
        return times, np.ones_like(times)
    angles = (2 * np.arange(NODES) + 1) * np.pi / (2 * NODES)
    # Inverse of the values of the Chebyshev polynomials at their nodes, by their discrete orthogonality.
    inverse = np.cos(np.outer(angles, np.arange(NODES))) * (2 / NODES)
    inverse[:, 0] /= 2
    nodes, weights = [], []
    for piece in np.array_split(np.log(times), PIECES):
        middle, half = (
            0.5 * (piece[-1] + piece[0]),
            0.5 * (piece[-1] - piece[0]) or 1.0,
        )  # logarithms may be equal
        place = np.arccos(np.clip((piece - middle) / half, -1.0, 1.0))
        sums = np.cos(np.arange(NODES)[:, None] * place).sum(axis=1)
        nodes.append(np.exp(middle + half * np.cos(angles)))
        weights.append(inverse @ sums)
    order = np.argsort(joined := np.concatenate(nodes))
    return joined[order], np.concatenate(weights)[order]
