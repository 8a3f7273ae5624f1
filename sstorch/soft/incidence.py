"""Cumulative incidences of competing causes from the hazards of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.soft.fitted import FittedTree

# Panels of Gauss-Legendre quadrature: their width in log time, and the nodes of each. With every family the
# error of incidences stays below 1e-8 (tests/soft/test_competing_risks_tree.py).
_WIDTH, _NODES = 0.25, 5
# Below the first event panels grow wider, down to exp(-32) of its time, where no family has mass that counts.
_BEGINNING = (32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5)
# Values of the largest array that is held at once.
_ELEMENTS = 2**21


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


def cumulative_incidence(
    trees: Sequence[FittedTree], rows: Sequence[Tensor], times: FloatArray, panels: FloatArray
) -> FloatArray:
    """Probability that each cause has ended a row's time by t, F_k(t), the integral of h_k S from 0 to t.

    S is the survival function of any event, the product of those of the causes. Between two times the causes
    share what S loses, S(a) - S(b), as their integrals do, so that incidences and S sum to one whatever the
    quadrature, and its error acts on the shares alone.

    Args:
        trees: of each cause, K of them; their curves cannot rise.
        rows: the rows as encoded for each tree, (n, p_k).
        times: shape (n_times,), >= 0, original units, in any order.
        panels: edges of :func:`log_time_panels`.

    Returns:
        shape (n, K, n_times), in [0, 1], rising with t.

    References:
        Prentice, Kalbfleisch, Peterson, Flournoy, Farewell and Breslow (1978), "The analysis of failure times
        in the presence of competing risks", Biometrics 34, 541-554.
    """
    order = np.unique(times)
    with np.errstate(divide="ignore"):
        asked = np.log(order)
    edges = _edges(panels, asked[np.isfinite(asked)])
    n_rows = len(rows[0])
    size = max(1, _ELEMENTS // (len(trees) * len(edges) * _NODES))
    found = np.empty((n_rows, len(trees), len(times)))
    place = np.searchsorted(order, times)
    for start in range(0, n_rows, size):
        part = [x[start : start + size] for x in rows]
        found[start : start + size] = _on_edges(trees, part, edges, asked)[..., place]
    return found


def _edges(panels: FloatArray, asked: FloatArray) -> FloatArray:
    """Panels with edges at the log times that are asked for, up to the last of these."""
    if len(asked) == 0:
        return panels[:1]
    last = asked[-1]
    beyond = np.arange(panels[-1] + _WIDTH, last, _WIDTH)
    inside = panels[panels < last]
    return np.unique(np.concatenate([inside, beyond, asked]))


def _on_edges(
    trees: Sequence[FittedTree], rows: Sequence[Tensor], edges: FloatArray, asked: FloatArray
) -> FloatArray:
    """Incidences (n, K, n_asked) at log times that are among the edges, or -inf."""
    survival = np.exp(-_total(trees, rows, np.exp(edges)))
    if len(edges) == 1:
        edges = np.r_[edges[0] - _WIDTH, edges]
        survival = np.concatenate([np.ones_like(survival), survival], axis=1)
    points, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(edges)[:, None] / 2
    at = (edges[:-1, None] + half * (1 + points)).ravel()
    times = np.exp(at)
    with np.errstate(divide="ignore"):
        log_hazards = np.stack(
            [tree.curves(x, times, "log_hazard") for tree, x in zip(trees, rows, strict=True)], 1
        )
    density = log_hazards + at - _total(trees, rows, times)[:, None]
    density = density.reshape(*density.shape[:2], -1, _NODES)
    # Only ratios count within a panel, whose values may all underflow.
    largest = density.max(axis=(1, 3), keepdims=True)
    masses = np.exp(density - np.where(np.isfinite(largest), largest, 0.0)) @ weights
    total = masses.sum(axis=1, keepdims=True)
    shares = np.divide(masses, total, out=np.full_like(masses, 1 / len(trees)), where=total > 0)
    lost = np.maximum(survival[:, :-1] - survival[:, 1:], 0.0)
    # What is lost before the first edge, next to nothing, goes as in the first panel.
    before = shares[:, :, :1] * (1 - survival[:, None, :1])
    incidence = np.concatenate([before, before + np.cumsum(shares * lost[:, None], axis=2)], axis=2)
    zero = np.zeros((*incidence.shape[:2], 1))
    place = np.where(np.isneginf(asked), 0, 1 + np.searchsorted(edges, asked))
    return np.concatenate([zero, incidence], axis=2)[..., place]


def _total(trees: Sequence[FittedTree], rows: Sequence[Tensor], times: FloatArray) -> FloatArray:
    """Cumulative hazard of any event, (n, n_times)."""
    parts = [tree.curves(x, times, "cumulative_hazard") for tree, x in zip(trees, rows, strict=True)]
    return np.asarray(sum(parts[1:], parts[0]), dtype=np.float64)
