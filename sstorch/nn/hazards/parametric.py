"""Hazards with one shape at most, and the piecewise exponential hazard, constant on intervals of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from sstorch.exceptions import warn
from sstorch.nn.functional import log_expm1_ratio, saturating_exp
from sstorch.nn.hazards.base import Ancillary, HazardFamily
from sstorch.nn.hazards.links import EXPONENTIAL, LOGISTIC, NORMAL, Index, Link, LinkFamily
from sstorch.nn.hazards.numeric import check_placement, pick, placed


class LocationScale(LinkFamily):
    """log T = g + W / a: eta = a (y - g), with a shape parameter log a, or minus log a."""

    ratio: str | None = "time ratio"
    closed_form = True
    scaled = True
    linear_sign = -1
    own_link: Link

    @override
    def link(self, shape: Tensor) -> Link:
        return self.own_link

    def log_scale(self, shape: Tensor) -> Tensor:
        """Log of a, shape (...)."""
        return self.shape_sign * shape[..., 0]

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None) -> Index:
        log_a = self.log_scale(shape)
        a, one = torch.exp(log_a), torch.ones_like(log_a)
        eta = a * (log_time + self.linear_sign * linear)
        n = len(self.shape_names)  # one, or none
        return Index(eta, log_a, self.linear_sign * a, [eta] * n, one, [one] * n)

    @override
    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        eta = self.link(shape).inverse(cumulative_hazard)
        return eta * torch.exp(-self.log_scale(shape)) - self.linear_sign * linear


class Exponential(LocationScale):
    """H(t) = mu t with log mu = g: a constant hazard, no shape parameter.

    flexsurv's "exp"; lifelines' ``ExponentialFitter`` has lambda_ = 1 / mu.
    """

    name, shape_names = "exponential", ()
    ratio, of_rate = "hazard ratio", True
    linear_sign, own_link = 1, EXPONENTIAL

    @override
    def log_scale(self, shape: Tensor) -> Tensor:
        return shape.new_zeros(shape.shape[:-1])


class Weibull(LocationScale):
    """H(t) = (t / mu)^a with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``WeibullAFTFitter`` (mu = lambda_, a = rho_).
    """

    name, shape_names, own_link = "weibull", ("log_a",), EXPONENTIAL


class LogLogistic(LocationScale):
    """S(t) = 1 / (1 + (t / mu)^a) with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``LogLogisticAFTFitter`` (mu = alpha_, a = beta_).
    """

    name, shape_names, own_link = "log_logistic", ("log_a",), LOGISTIC
    overflows = False


class LogNormal(LocationScale):
    """log T is normal with mean g and standard deviation sigma; shape parameter log sigma.

    The parametrisation is that of lifelines' ``LogNormalAFTFitter`` (g = mu_, sigma = sigma_).
    """

    name, shape_names, own_link = "log_normal", ("log_sigma",), NORMAL
    shape_sign = -1

    @override
    def restricted_mean(
        self, log_tau: Tensor, linear: Tensor, shape: Tensor, log_after: Tensor | None = None
    ) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is exp(g + sigma^2 / 2)."""
        if log_after is not None:
            return super().restricted_mean(log_tau, linear, shape, log_after)
        finite, log_mean = log_tau < torch.inf, linear + torch.exp(2 * shape[..., 0]) / 2
        restricted = super().restricted_mean(torch.where(finite, log_tau, linear.detach()), linear, shape)
        return torch.where(finite, restricted, torch.exp(log_mean))


class Gompertz(HazardFamily):
    """h(t) = b exp(a t) with log b = g and shape parameter a, positive or negative, per unit of model time.

    With a < 0 the survival function has the limit exp(b / a) > 0, a cured share; a = 0 is exponential. The
    parametrisation is flexsurv's (a = shape, b = rate).
    """

    name, shape_names = "gompertz", ("a",)
    ratio, of_rate = "hazard ratio", True

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        # b (exp(a t) - 1) / a, smooth through a = 0.
        return saturating_exp(linear + log_time + log_expm1_ratio(shape[..., 0] * saturating_exp(log_time)))

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        hazard = self.cumulative_hazard(log_time, linear, shape)
        return hazard, linear + shape[..., 0] * saturating_exp(log_time)


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
    corner_name = "breakpoints"
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
