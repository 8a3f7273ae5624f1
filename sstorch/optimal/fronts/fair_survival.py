"""Survival trees under a limit on the difference of predicted survival between two groups."""

from __future__ import annotations

from math import ceil, floor, log2
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal.fronts.base import FloatArray, IntArray
from sstorch.optimal.fronts.group_fairness import group_balance
from sstorch.optimal.fronts.labels import share, two_values
from sstorch.optimal.tasks import LogLikelihood

_LOSS_BITS = 30
_SURVIVAL_BITS = 20
# Sums of hazards have so many bits in all, which float64 holds exactly.
_SUM_BITS = 52


class FairSurvival:
    """Least deviance of survival trees whose mean predicted survival at a horizon is alike in two groups.

    A leaf has the hazard θ Λ'(t) of `LogLikelihood`, θ = E / H (0.5 / H without events), and predicts
    S = exp(-θ Λ(horizon)). The disparity of a tree is the mean of S over the rows of group 0 less that over
    the rows of group 1: a difference of absolute risks at a time that has a meaning in the clinic, in
    percentage points. It needs no threshold that calls a leaf high risk, takes censored rows as they are, and
    is separable: times N_0 N_1 it is the sum over leaves of S (N_1 n_0 - N_0 n_1), n_g the leaf's rows of
    group g. As with all parity of predictions, a limit also levels differences that are real; read the
    observed survival of the groups beside it.

    The leaf leaves nothing to decide, so every tree has one point. Losses, hazards and S are taken in fixed
    point (multiples of 2**-30, of 2**-52 of about the sum of hazards, and of 2**-20), which makes comparisons
    exact.

    Args:
        time: observed times, shape (N,).
        event: True or 1 where the event was observed, shape (N,).
        group: 0 or 1, the sensitive group of each row.
        horizon: the time at which survival is compared, in the unit of `time`.
        max_disparity: the limit, 0 to 1, taken as the decimal number it is written as.

    Raises:
        DataError: see `LogLikelihood`; groups other than 0 and 1, or all alike.
        ConfigError: no event up to the horizon, a horizon beyond all times, or a limit out of its range; or
            too many rows for the fixed point.
    """

    order: Literal["balance"] = "balance"
    linear = False
    names = ("loss", "survival disparity")

    def __init__(
        self,
        time: npt.ArrayLike,
        event: npt.ArrayLike,
        group: npt.ArrayLike,
        *,
        horizon: float,
        max_disparity: float = 0.05,
    ) -> None:
        likelihood = LogLikelihood(time, event)
        self.event, self.n_rows = likelihood.event, likelihood.n_rows
        self.group = two_values("group", group, "one of the groups")
        if len(self.group) != self.n_rows:
            raise DataError(f"group: {len(self.group)} rows, but there are {self.n_rows} times")
        seen = self.event & (likelihood.time <= horizon)
        if not seen.any() or not horizon <= float(likelihood.time.max()):
            raise ConfigError(
                f"horizon={horizon!r}: expected a time from the first event on, up to the last observed time"
            )
        self.horizon, self.max_disparity = float(horizon), max_disparity
        # Λ is a step function: at the horizon it is that of the last event before it.
        self._hazard_then = float(likelihood.hazard[seen].max())
        total = float(likelihood.hazard.sum())
        self._hazard_unit = 2.0 ** (ceil(log2(total)) - _SUM_BITS)
        self._hazard = np.round(likelihood.hazard / self._hazard_unit).astype(np.int64)
        every = np.ones(self.n_rows, dtype=np.int64)
        self._balance, scale = group_balance(self.group, every == 1, every)
        self._scale = scale << _SURVIVAL_BITS
        if self._scale >= 2**54 or total >= 2.0**20:
            raise ConfigError(f"{self.n_rows} rows are too many for exact sums; take a sample of them")
        self.limit = floor(share("max_disparity", max_disparity) * self._scale)
        self.unit = (2.0**-_LOSS_BITS, 1.0 / self._scale)
        self.offset = (likelihood.constant, 0.0)

    def channels(self) -> IntArray:
        """Events, hazards and what predicted survival is multiplied with in the disparity, (3, N)."""
        return np.stack([self.event.astype(np.int64), self._hazard, self._balance])

    def points(self, sums: Tensor) -> Tensor:
        """One point: -E log(E / H), and S (N_1 n_0 - N_0 n_1)."""
        events, hazard, balance = sums
        exposure = hazard.clamp_min(1).to(torch.float64) * self._hazard_unit
        count = events.to(torch.float64)
        loss = -count * torch.log((count / exposure).clamp_min_(1e-300))
        survival = torch.exp(-count.clamp_min_(0.5) / exposure * self._hazard_then)
        return torch.stack(
            [
                torch.round(loss * 2.0**_LOSS_BITS).to(torch.int64),
                torch.round(survival * 2.0**_SURVIVAL_BITS).to(torch.int64) * balance,
            ]
        ).unsqueeze(1)

    def totals(self, leaf: IntArray, decision: IntArray) -> IntArray:
        """Loss and disparity, leaf by leaf."""
        total = np.zeros(2, dtype=np.int64)
        for number in range(len(decision)):
            sums = self.channels()[:, leaf == number].sum(axis=1)
            total += self.points(torch.from_numpy(sums))[:, 0].numpy()
        return total

    def predicted_survival(self, leaf: IntArray) -> FloatArray:
        """S(horizon) of each leaf of a partition of the rows, (N,) leaf of each row."""
        events = np.bincount(leaf, weights=self.event)
        exposure = np.bincount(leaf, weights=self._hazard * self._hazard_unit)
        ratio = np.maximum(events, 0.5) / np.where(exposure > 0.0, exposure, 1.0)
        survival: FloatArray = np.exp(-ratio * self._hazard_then)
        return survival

    def score(self, totals: IntArray) -> FloatArray:
        """The loss with its sign turned, per row."""
        scores: FloatArray = -(totals[:, 0] * self.unit[0] + self.offset[0]) / self.n_rows
        return scores
