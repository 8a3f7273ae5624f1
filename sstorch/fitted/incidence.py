"""Quadrature of cumulative incidences of competing causes from the hazards of each."""

from __future__ import annotations

import numpy as np

from sstorch._types import FloatArray

# Panels of Gauss-Legendre quadrature: their width in log time, and the nodes of each. With every family the
# error of incidences stays below 1e-8 (tests/fitted/test_incidence.py).
_WIDTH, NODES = 0.25, 5
# Below the first event panels grow wider, down to exp(-32) of its time, where no family has mass that counts.
_BEGINNING = (32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5)


def log_time_panels(event_times: FloatArray, corners: FloatArray) -> FloatArray:
    """Edges of the panels between which hazards are smooth, log times, increasing.

    Args:
        event_times: training event times, original units, > 0.
        corners: times at which a hazard has a step or a bend, original units.
    """
    first, last = np.log(event_times.min()), np.log(event_times.max())
    count = max(1, int(np.ceil((last - first) / _WIDTH)))
    inner = np.linspace(first, last, count + 1)
    with np.errstate(divide="ignore"):
        bends = np.log(corners)
    edges = np.concatenate([first - np.array(_BEGINNING), inner, bends[np.isfinite(bends)]])
    return np.unique(edges)


def panels_up_to(panels: FloatArray, asked: FloatArray) -> FloatArray:
    """Panels with edges at the log times that are asked for, up to the last of these; two edges at least."""
    if len(asked) == 0:
        return panels[:2]
    last = asked[-1]
    beyond = np.arange(panels[-1] + _WIDTH, last, _WIDTH)
    inside = panels[panels < last]
    edges = np.unique(np.concatenate([inside, beyond, asked]))
    return edges if len(edges) > 1 else np.r_[edges[0] - _WIDTH, edges]


def inner_rule(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log times of the nodes of all panels, (n_panels * NODES,), and the weights of a panel, (NODES,)."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + points)).ravel(), weights


def shared_losses(
    survival: FloatArray, log_density: FloatArray, weights: FloatArray, edges: FloatArray, asked: FloatArray
) -> FloatArray:
    """Incidences (n, K, n_asked) at log times that are among the edges, or -inf.

    Between two edges the causes share what survival loses as the integrals of their densities do.

    Args:
        survival: of any event at the edges, shape (n, n_edges).
        log_density: of each cause in log time at the nodes of :func:`inner_rule`, (n, K, n_panels * NODES).
        weights: of the nodes of a panel.
        edges: log times, increasing.
        asked: log times.
    """
    density = log_density.reshape(*log_density.shape[:2], -1, NODES)
    # Only ratios count within a panel, whose values may all underflow.
    largest = density.max(axis=(1, 3), keepdims=True)
    masses = np.exp(density - np.where(np.isfinite(largest), largest, 0.0)) @ weights
    total = masses.sum(axis=1, keepdims=True)
    shares = np.divide(masses, total, out=np.full_like(masses, 1 / masses.shape[1]), where=total > 0)
    lost = np.maximum(survival[:, :-1] - survival[:, 1:], 0.0)
    # What is lost before the first edge, next to nothing, goes as in the first panel.
    before = shares[:, :, :1] * (1 - survival[:, None, :1])
    incidence = np.concatenate([before, before + np.cumsum(shares * lost[:, None], axis=2)], axis=2)
    zero = np.zeros((*incidence.shape[:2], 1))
    place = np.where(np.isneginf(asked), 0, 1 + np.searchsorted(edges, asked))
    return np.concatenate([zero, incidence], axis=2)[..., place]
