"""Piecewise exponential hazards: constant on intervals of time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch.exceptions import DataWarning
from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import Ancillary
from sstorch.nn.hazards.numeric import check_placement, placement_times
from sstorch.nn.hazards.parametric import RateFamily

# Units in the last place within which a time is at a breakpoint.
_ROUNDING = 32


class PiecewiseExponential(RateFamily):
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

    name = "piecewise_exponential"
    breaks: Tensor

    def __init__(self, breakpoints: int | Sequence[float] = 3, ancillary: Ancillary = "constant") -> None:
        super().__init__(ancillary)
        self.breakpoints = check_placement("breakpoints", breakpoints, 1, 1)
        count = self.breakpoints if isinstance(self.breakpoints, int) else len(self.breakpoints)
        self.shape_names = tuple(f"log_ratio_{k + 2}" for k in range(count))
        # Until training rows give better ones: even in log time around the unit of model time.
        default = torch.exp(torch.linspace(-1.0, 1.0, count, dtype=torch.float64))
        self.register_buffer("breaks", default)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: exp(g) sum of time in interval x ratio."""
        return self.terms(log_time, linear, shape)[0]

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        time = torch.exp(log_time)
        breaks = [self._aligned(value, linear) for value in self.breaks.unbind(-1)]
        exposure = torch.minimum(time, breaks[0])
        log_ratio = torch.zeros_like(linear)
        # Breakpoints are often times of events, whose interval the rounding of exp must not decide.
        slack = 1 + _ROUNDING * torch.finfo(time.dtype).eps
        for k, left in enumerate(breaks):
            inside = (time - left).clamp(min=0)
            if k + 1 < len(breaks):
                inside = torch.minimum(inside, breaks[k + 1] - left)
            exposure = exposure + saturating_exp(shape[..., k]) * inside
            log_ratio = torch.where(time > left * slack, shape[..., k], log_ratio)
        return saturating_exp(linear + exposure.log()), linear + log_ratio

    @override
    def options(self) -> dict[str, Any]:
        given = self.breakpoints if isinstance(self.breakpoints, int) else list(self.breakpoints)
        return {"breakpoints": given, **super().options()}

    @override
    def describe(self, time_scale: float) -> str:
        times = ", ".join(f"{value * time_scale:.4g}" for value in self.breaks.tolist())
        return f"breakpoints at t = {times}"

    def _corners(self, like: Tensor) -> Tensor:
        return self._spread(self.breaks.log().unbind(-1), like)

    def _constants(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_time_scale: Tensor
    ) -> dict[str, Tensor]:
        if not isinstance(self.breakpoints, int):
            given = torch.tensor(self.breakpoints, dtype=torch.float64, device=log_time.device)
            return {"breaks": (given / log_time_scale.double().exp()[:, None]).to(log_time)}
        share = np.linspace(0, 1, self.breakpoints + 2)[1:-1]
        rows = placement_times(log_time, event, weight, "breakpoints")
        breaks = np.stack([np.quantile(np.exp(times), share) for times in rows])
        if (np.diff(breaks, axis=-1) <= 0).any():
            warnings.warn(
                f"the events are at too few distinct times for {self.breakpoints} breakpoints: some coincide "
                "and the intervals between them are empty",
                DataWarning,
                stacklevel=2,
            )
        return {"breaks": torch.as_tensor(breaks).to(log_time)}
