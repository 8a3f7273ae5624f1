"""Piecewise exponential leaf."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError, DataWarning
from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import Ancillary, HazardFamily
from sstorch.nn.hazards.exponential import log_rate


class PiecewiseExponential(HazardFamily):
    """A hazard that is constant between breakpoints.

    exp(g) is the hazard of the first interval; shape parameter k is the log ratio of the hazard of interval
    k + 1 to it. An interval is open on the left and closed on the right, so that an event at a breakpoint
    belongs to the interval that ends there. lifelines' ``PiecewiseExponentialFitter`` has lambda_k = 1 /
    hazard.

    Args:
        breakpoints: their number, put at equally spaced quantiles of the training event times, or the
            breakpoints themselves, increasing, in original time units.
        ancillary: as in :class:`HazardFamily`.

    Raises:
        ConfigError: an argument is out of range.
    """

    name = "piecewise_exponential"
    breaks: Tensor

    def __init__(self, breakpoints: int | Sequence[float] = 3, ancillary: Ancillary = "constant") -> None:
        super().__init__(ancillary)
        self.breakpoints: int | tuple[float, ...]
        count: int
        if isinstance(breakpoints, int) and breakpoints is not True:
            self.breakpoints = count = breakpoints
        elif isinstance(breakpoints, Sequence) and all(isinstance(value, Real) for value in breakpoints):
            self.breakpoints, count = tuple(float(value) for value in breakpoints), len(breakpoints)
            if not all(a < b for a, b in zip((0.0, *self.breakpoints), self.breakpoints, strict=False)):
                raise ConfigError(f"breakpoints must be positive times, increasing, got {breakpoints!r}")
        else:
            count = 0
        if count < 1:
            raise ConfigError(f"breakpoints must be a number >= 1 or a list of times, got {breakpoints!r}")
        self.shape_names = tuple(f"log_ratio_{k + 2}" for k in range(count))
        # Until training rows give better ones: even in log time around the unit of model time.
        default = torch.exp(torch.linspace(-1.0, 1.0, count, dtype=torch.float64))
        self.register_buffer("breaks", default)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: exp(g) sum of time in interval x ratio."""
        return self.terms(log_time, linear, shape)[0]

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: g plus the log ratio of the interval."""
        return self.terms(log_time, linear, shape)[1]

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`."""
        time = torch.exp(log_time)
        breaks = [self._aligned(value, linear) for value in self.breaks.unbind(-1)]
        exposure = torch.minimum(time, breaks[0])
        log_ratio = torch.zeros_like(linear)
        for k, left in enumerate(breaks):
            inside = (time - left).clamp(min=0)
            if k + 1 < len(breaks):
                inside = torch.minimum(inside, breaks[k + 1] - left)
            exposure = exposure + saturating_exp(shape[..., k]) * inside
            log_ratio = torch.where(time > left, shape[..., k], log_ratio)
        return saturating_exp(linear + exposure.log()), linear + log_ratio

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: H is made of straight pieces."""
        left_over = cumulative_hazard * torch.exp(-linear) + torch.zeros_like(shape[..., 0])
        breaks = [self._aligned(value, linear) for value in self.breaks.unbind(-1)]
        time = torch.minimum(left_over, breaks[0])
        left_over = left_over - time
        for k, left in enumerate(breaks):
            inside = left_over * torch.exp(-shape[..., k])
            if k + 1 < len(breaks):
                inside = torch.minimum(inside, breaks[k + 1] - left)
            time = time + inside
            left_over = (left_over - inside * torch.exp(shape[..., k])).clamp(min=0)
        return time.log()

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`: a sum of exponential integrals."""
        tau = torch.exp(log_tau)
        log_rates = [linear, *(linear + shape[..., k] for k in range(shape.shape[-1]))]
        breaks = [self._aligned(value, linear) for value in self.breaks.unbind(-1)]
        ends = [*(torch.minimum(value, tau) for value in breaks), tau]
        total, hazard, left = torch.zeros_like(linear), torch.zeros_like(linear), torch.zeros_like(tau)
        for log_rate_, right in zip(log_rates, ends, strict=True):
            passed = torch.exp(log_rate_) * (right - left)
            total = total + torch.exp(-hazard - log_rate_) * -torch.expm1(-passed)
            hazard, left = hazard + passed, right
        return total

    def guess(self, log_time: Tensor, event: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.guess`: one rate in all intervals."""
        rate = log_rate(log_time, event, weight)
        return rate, rate.new_zeros(*rate.shape, len(self.shape_names))

    def options(self) -> dict[str, Any]:
        """See :meth:`HazardFamily.options`."""
        given = self.breakpoints if isinstance(self.breakpoints, int) else list(self.breakpoints)
        return {"breakpoints": given, **super().options()}

    def describe(self, time_scale: float) -> str:
        """See :meth:`HazardFamily.describe`."""
        times = ", ".join(f"{value * time_scale:.4g}" for value in self.breaks.tolist())
        return f"breakpoints at t = {times}"

    def _constants(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_time_scale: Tensor
    ) -> dict[str, Tensor]:
        if not isinstance(self.breakpoints, int):
            given = torch.tensor(self.breakpoints, dtype=torch.float64, device=log_time.device)
            return {"breaks": (given / log_time_scale.double().exp()[:, None]).to(log_time)}
        observed = (event > 0) & (weight > 0)
        share = np.linspace(0, 1, self.breakpoints + 2)[1:-1]
        breaks = np.stack(
            [
                np.quantile(np.exp(times[mask]), share)
                for times, mask in zip(log_time.double().cpu().numpy(), observed.cpu().numpy(), strict=True)
            ]
        )
        if (np.diff(breaks, axis=-1) <= 0).any():
            warnings.warn(
                f"the events are at too few distinct times for {self.breakpoints} breakpoints: some coincide "
                "and the intervals between them are empty",
                DataWarning,
                stacklevel=2,
            )
        return {"breaks": torch.as_tensor(breaks).to(log_time)}
