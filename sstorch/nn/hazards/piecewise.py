"""Piecewise exponential hazards: constant on intervals of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from sstorch.exceptions import warn
from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import Ancillary, HazardFamily
from sstorch.nn.hazards.numeric import check_placement, pick, placed, times_text

# Units in the last place within which a time is at a breakpoint.
_ROUNDING = 32


class PiecewiseExponential(HazardFamily):
    """A hazard that is constant between breakpoints.

    exp(g) is the hazard of the first interval; shape parameter k is the log ratio of the hazard of interval k
    + 1 to it. Intervals are open on the left and closed on the right: an event at a breakpoint belongs to the
    interval that ends there. lifelines' ``PiecewiseExponentialFitter`` has lambda_k = 1 / hazard.

    Args:
        breakpoints: number of breakpoints at equally spaced quantiles of the training event times, or the
            breakpoints, increasing, in original time units.
        ancillary: as in :class:`HazardFamily`.

    Raises:
        ConfigError: an argument is out of range.
    """

    name, ratio, of_rate = "piecewise_exponential", "hazard ratio", True
    breaks: Tensor

    def __init__(self, breakpoints: int | Sequence[float] = 3, ancillary: Ancillary = "constant") -> None:
        super().__init__(ancillary)
        self.breakpoints = check_placement("breakpoints", breakpoints, 1, 1)
        count = self.breakpoints if isinstance(self.breakpoints, int) else len(self.breakpoints)
        self.shape_names = tuple(f"log_ratio_{k + 2}" for k in range(count))
        # Until training rows give better ones: even in log time around the unit of model time.
        self.register_buffer("breaks", torch.exp(torch.linspace(-1.0, 1.0, count, dtype=torch.float64)))

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.terms(log_time, linear, shape)[0]

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        time, breaks = torch.exp(log_time), self._aligned(self.breaks, max(log_time.ndim, linear.ndim))
        # Breakpoints are often times of events, whose interval the rounding of exp must not decide.
        number = (time[..., None] > breaks * (1 + _ROUNDING * torch.finfo(time.dtype).eps)).sum(-1)
        left, log_ratio, before = _pieces(breaks, shape)
        log_rate = pick(log_ratio, number)
        exposure = pick(before, number) + saturating_exp(log_rate) * (time - pick(left, number))
        return saturating_exp(linear + exposure.log()), linear + log_rate

    @override
    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        exposure = saturating_exp(cumulative_hazard.log() - linear)
        left, log_ratio, before = _pieces(self._aligned(self.breaks, linear.ndim), shape)
        number = (before[..., 1:] < exposure[..., None]).sum(-1)
        inside = (exposure - pick(before, number)) * torch.exp(-pick(log_ratio, number))
        return (pick(left, number) + inside).log()

    @override
    def options(self) -> dict[str, Any]:
        return {"breakpoints": self.breakpoints, **super().options()}

    @override
    def describe(self, time_scale: float) -> str:
        return f"breakpoints at t = {times_text(self.breaks, time_scale)}"

    @override
    def corners(self) -> Tensor:
        return self.breaks.log()

    @override
    def _constants(self, *rows: Tensor) -> dict[str, Tensor]:
        share = np.linspace(0, 1, len(self.shape_names) + 2)[1:-1]
        found = placed(
            self.breakpoints, rows, "breakpoints", lambda times: np.log(np.quantile(np.exp(times), share))
        )
        breaks = np.exp(np.stack(found))
        if (np.diff(breaks, axis=-1) <= 0).any():
            warn(
                f"the events are at too few distinct times for {len(share)} breakpoints: some coincide "
                "and the intervals between them are empty"
            )
        return {"breaks": torch.as_tensor(breaks).to(rows[0])}


def _pieces(breaks: Tensor, shape: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where each interval begins, its log ratio, and H / exp(g) there, (..., n + 1)."""
    left, log_ratio = pad(breaks, (1, 0)), pad(shape, (1, 0))
    risen = saturating_exp(log_ratio[..., :-1]) * breaks.diff(dim=-1, prepend=left[..., :1])
    return left, log_ratio, pad(risen.cumsum(-1), (1, 0))
