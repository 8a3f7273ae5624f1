"""Kaplan-Meier of the censoring times of each problem's training rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.metrics.batched.arguments import Problems
from sstorch.metrics.checks import check_floor


@dataclass(frozen=True, eq=False)
class CensoringDistribution:
    """G of each problem, a right-continuous step function.

    Attributes:
        times: training times in order, (b, n_train).
        values: G after 0, 1, ..., n_train rows have left, (b, n_train + 1).
    """

    times: Tensor
    values: Tensor

    @classmethod
    def fit(cls, rows: Problems, tied_events: str = "removed") -> "CensoringDistribution":
        """Product-limit estimate, as `sstorch.metrics.censoring_distribution`.

        Row by row in the order of time, events first among ties: a censoring of weight w with r at risk is
        the factor 1 - w / r, and the factors of tied censorings telescope to 1 - c / r. With
        `tied_events="at_risk"` censorings go first.
        """
        time, event = rows.time, rows.event
        first = event if tied_events == "at_risk" else ~event
        order = first.int().argsort(dim=-1, stable=True)
        order = order.gather(-1, time.gather(-1, order).argsort(dim=-1, stable=True))
        weight = rows.row_weight.gather(-1, order)
        left = weight.flip(-1).cumsum(-1).flip(-1)
        counts = ~event.gather(-1, order) & (weight > 0)
        factor = torch.where(counts, 1.0 - weight / torch.where(counts, left, 1.0), 1.0)
        values = torch.cat((torch.ones_like(time[..., :1]), factor.cumprod(-1)), dim=-1)
        return cls(time.gather(-1, order).contiguous(), values)

    def at(self, t: Tensor) -> Tensor:
        """G(t), (b, m) in and out."""
        return self._read(t, right=True)

    def before(self, t: Tensor) -> Tensor:
        """G(t-), (b, m) in and out."""
        return self._read(t, right=False)

    def floor(self, min_censoring_prob: float | None) -> Tensor:
        """The value below which G may not fall, as `sstorch.metrics.censoring_floor`, (b, 1).

        Raises:
            ConfigError: `min_censoring_prob` is outside (0, 1].
        """
        if min_censoring_prob is None:
            # G is read at distinct times only: among ties it passes through values it never takes.
            taken = self.at(self.times)
            return torch.where(taken > 0, taken, 1.0).amin(-1, keepdim=True)
        return torch.full_like(self.times[..., :1], check_floor(min_censoring_prob))

    def _read(self, t: Tensor, right: bool) -> Tensor:
        return self.values.gather(-1, torch.searchsorted(self.times, t.contiguous(), right=right))
