"""Families whose cumulative hazard is a link of one index: H = link(eta), eta rising with log time.

The loss of a right-censored row is A(eta; c) - c (log eta' - y) with A = H - c log dH/deta. A link knows A
and its derivatives in eta, a family the derivatives of its index; one routine joins them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from typing_extensions import override

from sstorch.nn.functional import (
    HALF_LOG_TWO_PI,
    log_expm1,
    normal_cumulative_hazard,
    saturating_exp,
    sigmoid_and_softplus,
    softplus,
    survival_of,
)
from sstorch.nn.hazards.base import Derivatives, HazardFamily, LogTimes

# Of a standard normal z: beyond, the hazard is z and its derivative one, to rounding.
_FAR = 1e4
# A, its derivative, and its second one if it is asked for.
LossOfIndex = tuple[Tensor, Tensor, Tensor | None]


class Link(NamedTuple):
    """H of an index eta, elementwise on tensors of any shape, in forms that keep their digits."""

    name: str  # that of the machine code
    hazard: Callable[[Tensor], Tensor]  # H
    log_rate: Callable[[Tensor, Tensor], Tensor]  # log dH/deta, of eta and H
    survival: Callable[[Tensor], Tensor]  # exp(-H), with all digits of its tail
    inverse: Callable[[Tensor], Tensor]  # the eta at which H is reached
    # Of eta, c and whether the second derivative is asked for, without a graph; None: by autograd.
    loss: Callable[[Tensor, Tensor, bool], LossOfIndex] | None = None


def _exponential_loss(eta: Tensor, event: Tensor, second: bool) -> LossOfIndex:
    hazard = torch.exp(eta)
    return hazard.addcmul(event, eta, value=-1), hazard - event, hazard


# H = exp(eta): proportional hazards.
EXPONENTIAL = Link(
    "exp",
    hazard=saturating_exp,
    log_rate=lambda eta, hazard: eta,
    survival=lambda eta: survival_of(saturating_exp(eta)),
    inverse=torch.log,
    loss=_exponential_loss,
)


def _logistic_loss(eta: Tensor, event: Tensor, second: bool) -> LossOfIndex:
    (slope, loss), factor = sigmoid_and_softplus(eta), 1 + event
    bend = (1 - slope).mul_(slope).mul_(factor) if second else None
    return loss.mul_(factor).addcmul_(event, eta, value=-1), slope.mul_(factor).sub_(event), bend


# S = sigmoid(-eta): proportional odds.
LOGISTIC = Link(
    "logistic",
    hazard=softplus,
    log_rate=lambda eta, hazard: logsigmoid(eta),
    survival=lambda eta: torch.sigmoid(-eta),
    inverse=log_expm1,
    loss=_logistic_loss,
)


def _normal_log_rate(eta: Tensor, hazard: Tensor) -> Tensor:
    # Far out in the tail the hazard is eta, and the difference of two squares would have no digits left.
    far = eta > _FAR
    near, near_hazard = (torch.where(far, torch.zeros_like(eta), part) for part in (eta, hazard))
    log_rate = near_hazard - near * near / 2 - HALF_LOG_TWO_PI
    return torch.where(far, torch.where(far, eta, torch.ones_like(eta)).log(), log_rate)


def _normal_index(cumulative_hazard: Tensor) -> Tensor:
    survival, failure = torch.exp(-cumulative_hazard), -torch.expm1(-cumulative_hazard)
    return torch.where(survival < 0.5, -torch.special.ndtri(survival), torch.special.ndtri(failure))


def _normal_loss(eta: Tensor, event: Tensor, second: bool) -> LossOfIndex:
    censored, rate = 1 - event, math.sqrt(2 / math.pi) / torch.special.erfcx(eta * math.sqrt(0.5))
    loss = censored * -torch.special.log_ndtr(-eta)
    bend = censored * torch.where(eta > _FAR, 1.0, rate * (rate - eta)) + event if second else None
    loss.addcmul_(event, eta * eta / 2 + HALF_LOG_TWO_PI)
    return loss, (censored * rate).addcmul_(event, eta), bend


# S = Phi(-eta): normal scores.
NORMAL = Link(
    "probit",
    hazard=normal_cumulative_hazard,
    log_rate=_normal_log_rate,
    survival=lambda eta: torch.erfc(eta * math.sqrt(0.5)) / 2,  # torch's own function cuts off the tail
    inverse=_normal_index,
    loss=_normal_loss,
)


def aranda_ordaz(log_theta: Tensor) -> Link:
    """H = log(1 + theta exp(eta)) / theta: odds at theta = 1, hazards as theta -> 0."""
    # Aranda-Ordaz (1981), Biometrika 68, 357-363.

    def hazard(eta: Tensor) -> Tensor:
        z = eta + log_theta
        # Where theta exp(eta) is below rounding error the logarithm is its argument.
        return torch.where(z < -40, saturating_exp(eta), softplus(z) * torch.exp(-log_theta))

    return Link(
        "aranda_ordaz",
        hazard=hazard,
        # eta - softplus(eta + log theta), also where eta is infinite.
        log_rate=lambda eta, hazard: logsigmoid(eta + log_theta) - log_theta,
        survival=lambda eta: survival_of(hazard(eta)),
        inverse=lambda hazard: log_expm1(hazard * torch.exp(log_theta)) - log_theta,
    )


class Index(NamedTuple):
    """Eta and the log of its slope in log time, with first derivatives, broadcastable to one shape."""

    eta: Tensor
    log_slope: Tensor
    of_linear: Tensor  # derivative of eta in g
    of_factors: Sequence[Tensor]  # in the log of each factor, which is a shape parameter or minus it
    slope: Tensor  # of eta in log time, up to a constant
    slope_of_factors: Sequence[Tensor]  # its derivatives in the log of each factor


class LinkFamily(HazardFamily):
    """H = link(eta), an index linear in g and in factors, exponentials of the shapes."""

    shape_sign = 1  # -1 if a shape is minus the log of its factor
    scaled = False  # whether the factor multiplies g, too

    @abstractmethod
    def link(self, shape: Tensor) -> Link:
        """The link, which may depend on a shape parameter."""

    @abstractmethod
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None) -> Index:
        """Eta and its derivatives; arguments as :meth:`cumulative_hazard`, or as :meth:`derivatives`."""

    def eta(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Eta alone; arguments as :meth:`cumulative_hazard`."""
        return self.index(log_time, linear, shape).eta

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.link(shape).hazard(self.eta(log_time, linear, shape))

    @override
    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.link(shape).survival(self.eta(log_time, linear, shape))

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        (eta, log_slope, *_), link = self.index(log_time, linear, shape), self.link(shape)
        hazard = link.hazard(eta)
        return hazard, log_slope - log_time + link.log_rate(eta, hazard)

    @override
    @torch.no_grad()
    def derivatives(
        self,
        times: LogTimes,
        linear: Tensor,
        shape: Tensor,
        basis: Tensor | None = None,
        second: bool = True,
    ) -> Derivatives:
        link = self.link(shape)
        if link.loss is None or not times.is_plain:
            return super().derivatives(times, linear, shape, basis, second)
        log_time, event = times.log_time, times.event
        eta, log_slope, of_linear, factors, slope, slopes = self.index(log_time, linear, shape, basis)
        loss, rise, bend = link.loss(eta, event, second)
        loss.addcmul_(event, log_slope, value=-1).add_(event * log_time)
        shapes = [(own, of_slope / slope) for own, of_slope in zip(factors, slopes, strict=True)]
        first = [rise * of_linear]
        first += [(rise * own).addcmul_(event, log_own, value=-1) for own, log_own in shapes]
        pairs = {}
        if bend is not None:
            pairs[0, 0] = bend * of_linear.square()
            for j, (own, log_own) in enumerate(shapes, start=1):
                pairs[0, j] = bend * own * of_linear
                if self.scaled:
                    pairs[0, j].addcmul_(rise, of_linear)
                for k, (other, log_other) in enumerate(shapes[j - 1 :], start=j):
                    pairs[j, k] = (bend * own * other).addcmul_(event * log_own, log_other)
                pairs[j, j].add_(first[j])
        if self.shape_sign < 0:
            for part in (*first[1:], *(pairs[pair] for pair in pairs if pair[0] == 0 < pair[1])):
                part.neg_()
        return loss, first, pairs
