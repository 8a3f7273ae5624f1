"""Quadrature of cumulative incidences of competing causes from the hazards of each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray

# Panels of Gauss-Legendre quadrature: their width in log time, and the nodes of each. With every family the
# error of incidences stays below 1e-8 (tests/fitted/test_incidence.py).
WIDTH, NODES = 0.25, 5
# Places of the nodes in (-1, 1) and their weights, (NODES,) each.
PLACES, WEIGHTS = np.polynomial.legendre.leggauss(NODES)
# Below the first event they are half as wide, since spline hazards can bend sharply there, and grow wider
# below 1/e of its time, down to exp(-32) of it, where no family has mass that counts. Beyond the last event
# they have the same width up to 55 times its time, and grow then.
_BEGINNING = (32.0, 16.0, 8.0, 4.0, 2.0, *np.arange(1.0, 0.0, -WIDTH / 2).tolist())
_END = (*np.arange(WIDTH, 4.1, WIDTH).tolist(), 5.0, 6.0, 8.0, 12.0, 20.0, 36.0)
DOUBLING = np.log1p(0.5 ** np.arange(13))


def log_time_panels(event_times: FloatArray, corners: FloatArray) -> FloatArray:
    """Edges of the panels between which hazards are smooth, log times, increasing."""
    # `corners` are times at which a hazard has a step or a bend; all times are > 0, in original units.
    first, last = np.log(event_times.min()), np.log(event_times.max())
    count = max(1, int(np.ceil((last - first) / WIDTH)))
    inner = np.linspace(first, last, count + 1)
    with np.errstate(divide="ignore"):
        bends = np.log(corners)
    edges = [first - np.array(_BEGINNING), inner, last + np.array(_END), bends[np.isfinite(bends)]]
    return np.unique(np.concatenate(edges))


def panels_from(panels: FloatArray, after: float) -> FloatArray:
    """The edges from a time on, its logarithm the first; all of them from time zero."""
    # Where few survive it the others may have the event soon: panels double their width from 2^-12 of it on.
    if not after:
        return panels
    start = np.log(after)
    return np.unique(np.concatenate([[start], start + DOUBLING, panels[panels > start]]))


def panels_before(panels: FloatArray, time: float) -> FloatArray:
    """The edges before a time, two at least."""
    with np.errstate(divide="ignore"):
        return panels[: max(2, int(np.searchsorted(panels, np.log(time))))]


def hazard_alive(hazard: Tensor) -> Tensor:
    """A cumulative hazard where exp(-hazard) > 0, nan elsewhere: nothing is conditional on S = 0."""
    return hazard.where(hazard.neg().double().exp() > 0, torch.nan)


def cumulative_incidence(
    curves: Callable[[Tensor], tuple[Tensor, Tensor]], times: Tensor, edges: Tensor, after: float = 0.0
) -> tuple[Tensor, Tensor]:
    """F_k(t), the integral of h_k S from 0 to t, (n, K, T), and S(t) of any event, (n, T), given `after`."""
    # `curves` of times (M,): log hazard of each cause, (n, K, M), cumulative hazard of any event, (n, M). In
    # each panel causes share what S loses as integrals of h_k S do: incidences and S sum to one. The last
    # panel of a time begins at the edge before it, so that an incidence does not depend on the other times.
    places, weights = (torch.as_tensor(part, device=times.device) for part in (PLACES, WEIGHTS))
    end = times.clamp(min=torch.finfo(times.dtype).tiny).log()
    passed = torch.searchsorted(edges, end)
    full = (passed - 1).clamp(min=0)
    left = torch.where(passed > 0, edges[full], end - WIDTH)
    inner = (edges[:-1, None] + edges.diff()[:, None] / 2 * (1 + places)).flatten()
    own = (left[:, None] + (end - left)[:, None] / 2 * (1 + places)).flatten()
    nodes = torch.cat([inner, own])
    log_hazard, total = curves(torch.cat([edges, end, nodes]).exp())
    log_hazard, total = log_hazard.double(), total.double()
    if after:
        total = total - hazard_alive(total[:, :1])
    # Of len() a trace would keep the number.
    n_panels, n_times = edges.shape[0] - 1, end.shape[0]
    n_nodes = (n_panels + n_times) * NODES
    at_edges, at_end, at_nodes = total.split([n_panels + 1, n_times, n_nodes], dim=-1)
    density = log_hazard.narrow(-1, n_panels + 1 + n_times, n_nodes) + nodes - at_nodes[:, None]
    density = density.unflatten(-1, (n_panels + n_times, NODES))
    # Only ratios count within a panel, whose values may all underflow.
    largest = density.amax((1, 3), keepdim=True).clamp(min=torch.finfo(times.dtype).min / 2)
    mass = (density - largest).exp() @ weights
    whole = mass.sum(1, keepdim=True)
    share = torch.where(whole > 0, mass / whole, 1 / mass.shape[1])
    of_panel, of_last = share.split([n_panels, n_times], dim=-1)
    # What is lost before the first edge, next to nothing, goes as in the first panel.
    one = at_edges[:, :1].neg().exp() if after else torch.ones_like(at_edges[:, :1])
    before = torch.cat([one, at_edges[:, 1:].neg().exp()], 1)
    survival = at_end.neg().exp()
    gained = of_panel * -before.diff(dim=1).clamp(max=0)[:, None]
    sums = torch.cat([0.0 * gained[..., :1], gained.cumsum(-1)], -1)
    last = of_last * (before[:, full] - survival).clamp(min=0)[:, None]
    return (sums[..., full] + last).where(times > after, sums[..., :1]), survival.where(times > after, one)
