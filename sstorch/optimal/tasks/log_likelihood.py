"""Deviance of a proportional hazards model with one hazard ratio per leaf: the objective of SurTree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch.data import parse_target
from sstorch.exceptions import DataError
from sstorch.optimal.tasks.base import BoolArray, Entries, FloatArray, IntArray

_TINY = 1e-300


class LogLikelihood:
    """Half the deviance of leaves with hazard θ Λ'(t), Λ the Nelson-Aalen estimate of all rows.

    With E events and H = Σ Λ(t_i) in a leaf, θ = E / H is the maximum likelihood estimate, and the loss of
    the leaf is -Σ_{events} log Λ(t_i) - E log(E / H) >= 0: half its deviance against the model with one θ per
    row. A leaf without events has loss 0 (its θ is reported as 0.5 / H). A split never raises the loss.

    Args:
        time: observed times, shape (N,).
        event: True or 1 where the event was observed, shape (N,).
        time_tolerance: Λ is read at t + time_tolerance. 0 is the definition; pystreed reads with 1e-6.

    Attributes:
        hazard: (N,), Λ(t_i); 1 / (N + 1) before the first event.

    Raises:
        DataError: see `sstorch.data.parse_target`; or no event.

    References:
        LeBlanc and Crowley (1992), Biometrics 48, 411-425. Huisman, van der Linden and Demirović (2024),
        Optimal survival trees: a dynamic programming approach, AAAI 38.
    """

    n_steps = 1

    def __init__(self, time: npt.ArrayLike, event: npt.ArrayLike, *, time_tolerance: float = 0.0) -> None:
        self.time, self.event = parse_target((time, event))
        self.n_rows = len(self.time)
        if not self.event.any():
            raise DataError("event: no row has an event, so there is no hazard to estimate")
        self.hazard = nelson_aalen(self.time, self.event, time_tolerance)
        self.constant = float(-np.log(self.hazard[self.event]).sum())

    def entries(self) -> Entries:
        """One entry per row: an event or none, and the hazard."""
        rows = np.arange(self.n_rows, dtype=np.int64)
        return Entries(rows, np.zeros(self.n_rows, dtype=np.int64), np.stack([self.event, self.hazard]))

    def accumulate(self, sums: Iterator[Tensor]) -> Iterator[Tensor]:
        """The sums themselves."""
        return sums

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """-E log(E / H), and 0 without events."""
        events, hazard = next(cells)
        hazard.clamp_min_(_TINY)
        torch.div(events, hazard, out=hazard).clamp_min_(_TINY).log_().mul_(events)
        cost: Tensor = hazard.neg_()
        return cost

    def floor(self, cells: Iterator[Tensor]) -> Tensor:
        """The cost itself: a split never raises the loss."""
        return self.cost(cells)

    def loss(self, leaf: IntArray) -> float:
        """Σ_i Λ_i θ - d_i log Λ_i - d_i log θ - d_i, θ that of the row's leaf; 0 in leaves without events."""
        theta, has_events = self._theta(leaf, int(leaf.max()) + 1)
        of_row = theta[leaf]
        d, hazard = self.event.astype(np.float64), self.hazard
        rows = hazard * of_row - d * (np.log(hazard) + np.log(of_row) + 1.0)
        return float(rows[has_events[leaf]].sum())

    def decisions(self, leaf: IntArray, n_leaves: int) -> FloatArray:
        """Hazard ratio θ of each leaf, 0.5 / H in leaves without events, (n_leaves,)."""
        return self._theta(leaf, n_leaves)[0]

    def _theta(self, leaf: IntArray, n_leaves: int) -> tuple[FloatArray, BoolArray]:
        """Hazard ratio of each leaf, and which leaves have events."""
        events = np.bincount(leaf, weights=self.event, minlength=n_leaves)
        hazard = np.bincount(leaf, weights=self.hazard, minlength=n_leaves)
        filled = np.where(hazard > 0.0, hazard, 1.0)
        return np.maximum(events, 0.5) / filled, events > 0


def nelson_aalen(time: FloatArray, event: BoolArray, tolerance: float = 0.0) -> FloatArray:
    """Λ(t_i + tolerance) of each row, 1 / (N + 1) before the first event, shape (N,)."""
    distinct, position = np.unique(time, return_inverse=True)
    counts = np.bincount(position)
    at_risk = len(time) - np.concatenate(([0], np.cumsum(counts)[:-1]))
    hazard = np.cumsum(np.bincount(position, weights=event) / at_risk)
    hazard = np.where(hazard > 0.0, hazard, 1.0 / (len(time) + 1))
    if tolerance:
        hazard = hazard[np.searchsorted(distinct, distinct + tolerance, side="right") - 1]
    read: FloatArray = hazard[position]
    return read
