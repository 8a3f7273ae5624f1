"""Families whose cumulative hazard is a link of one index: H = link(eta), eta rising with log time.

The loss of a right-censored row is A(eta; c) - c (log eta' - y) with A = H - c log dH/deta. A link knows A
and its derivatives in eta, a family the derivatives of its index; one routine joins them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
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
from sstorch.nn.hazards.base import Derivatives, HazardFamily

# Of a standard normal z: beyond, the hazard is z and its derivative one, to rounding.
_FAR = 1e4


class Link(NamedTuple):
    """H of an index eta, elementwise on tensors of any shape, in forms that keep their digits."""

    name: str  # that of the machine code
    terms: Callable[[Tensor], tuple[Tensor, Tensor]]  # H and log dH/deta
    hazard: Callable[[Tensor], Tensor]  # H
    survival: Callable[[Tensor], Tensor]  # exp(-H), with all digits of its tail
    inverse: Callable[[Tensor], Tensor]  # the eta at which H is reached
    # Of eta and c, without a graph: A and its derivative; its second derivative. None: both by autograd.
    loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    curvature: Callable[[Tensor, Tensor], Tensor] | None = None


def _exponential_loss(eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    hazard = torch.exp(eta)
    return hazard.addcmul(event, eta, value=-1), hazard.sub_(event)


# H = exp(eta): proportional hazards.
EXPONENTIAL = Link(
    "exp",
    terms=lambda eta: (saturating_exp(eta), eta),
    hazard=saturating_exp,
    survival=lambda eta: survival_of(saturating_exp(eta)),
    inverse=torch.log,
    loss=_exponential_loss,
    curvature=lambda eta, event: torch.exp(eta),
)


def _logistic_loss(eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    slope, loss = sigmoid_and_softplus(eta)
    loss.mul_(1 + event).addcmul_(event, eta, value=-1)
    return loss, slope.mul_(1 + event).sub_(event)


def _logistic_curvature(eta: Tensor, event: Tensor) -> Tensor:
    slope = torch.sigmoid(eta)
    return (1 - slope).mul_(slope).mul_(1 + event)


# S = sigmoid(-eta): proportional odds.
LOGISTIC = Link(
    "logistic",
    terms=lambda eta: (softplus(eta), logsigmoid(eta)),
    hazard=softplus,
    survival=lambda eta: torch.sigmoid(-eta),
    inverse=log_expm1,
    loss=_logistic_loss,
    curvature=_logistic_curvature,
)


def _normal_rate(z: Tensor) -> Tensor:
    """Hazard of the standard normal distribution."""
    mills: Tensor = torch.special.erfcx(z * math.sqrt(0.5))
    return math.sqrt(2 / math.pi) / mills


def _normal_terms(eta: Tensor) -> tuple[Tensor, Tensor]:
    hazard = normal_cumulative_hazard(eta)
    # Far out in the tail the hazard is eta, and the difference of two squares would have no digits left.
    far = eta > _FAR
    near = torch.where(far, torch.zeros_like(eta), eta)
    near_hazard = torch.where(far, torch.zeros_like(hazard), hazard)
    log_rate = near_hazard - near * near / 2 - HALF_LOG_TWO_PI
    return hazard, torch.where(far, torch.where(far, eta, torch.ones_like(eta)).log(), log_rate)


def _normal_index(cumulative_hazard: Tensor) -> Tensor:
    survival, failure = torch.exp(-cumulative_hazard), -torch.expm1(-cumulative_hazard)
    return torch.where(survival < 0.5, -torch.special.ndtri(survival), torch.special.ndtri(failure))


def _normal_loss(eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    censored, square = 1 - event, eta * eta / 2 + HALF_LOG_TWO_PI
    loss = censored * -torch.special.log_ndtr(-eta)
    return loss.addcmul_(event, square), (censored * _normal_rate(eta)).addcmul_(event, eta)


def _normal_curvature(eta: Tensor, event: Tensor) -> Tensor:
    rate = _normal_rate(eta)
    return (1 - event) * torch.where(eta > _FAR, 1.0, rate * (rate - eta)) + event


# S = Phi(-eta): normal scores.
NORMAL = Link(
    "probit",
    terms=_normal_terms,
    hazard=normal_cumulative_hazard,
    survival=lambda eta: torch.erfc(eta * math.sqrt(0.5)) / 2,  # torch's own function cuts off the tail
    inverse=_normal_index,
    loss=_normal_loss,
    curvature=_normal_curvature,
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
        # eta - softplus(eta + log theta), also where eta is infinite.
        terms=lambda eta: (hazard(eta), logsigmoid(eta + log_theta) - log_theta),
        hazard=hazard,
        survival=lambda eta: survival_of(hazard(eta)),
        inverse=lambda hazard: log_expm1(hazard * torch.exp(log_theta)) - log_theta,
    )


class Index(NamedTuple):
    """Eta at rows and its first derivatives, without a graph, broadcastable to (K, L, M)."""

    eta: Tensor
    log_slope: Tensor  # log of its derivative in log time
    of_linear: Tensor  # derivative of eta in g
    of_shapes: list[Tensor]  # in each shape parameter
    of_log_slope: list[Tensor]  # derivatives of the log slope in each shape parameter


class LinkFamily(HazardFamily):
    """H = link(eta), an index linear in g and in exponentials of the shapes."""

    shape_sign = 1  # -1 if a shape is minus the log of a factor
    scaled = False  # whether the shape multiplies g, too

    @abstractmethod
    def link(self, shape: Tensor) -> Link:
        """The link, which may depend on a shape parameter."""

    @abstractmethod
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """Eta and the log of its derivative in log time; arguments as :meth:`cumulative_hazard`."""

    def eta(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Eta alone; arguments as :meth:`cumulative_hazard`."""
        return self.index(log_time, linear, shape)[0]

    @abstractmethod
    def index_at(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None) -> Index:
        """Eta and its derivatives at rows; arguments as :meth:`derivatives`, without a graph."""

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.link(shape).hazard(self.eta(log_time, linear, shape))

    @override
    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.link(shape).survival(self.eta(log_time, linear, shape))

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        eta, log_slope = self.index(log_time, linear, shape)
        hazard, log_rate = self.link(shape).terms(eta)
        return hazard, log_slope - log_time + log_rate

    @override
    def derivatives(
        self,
        log_time: Tensor,
        event: Tensor,
        linear: Tensor,
        shape: Tensor,
        basis: Tensor | None = None,
        second: bool = True,
    ) -> Derivatives:
        at, link = self.index_at(log_time, linear.detach(), shape.detach(), basis), self.link(shape)
        assert link.loss is not None
        assert link.curvature is not None
        loss, rise = link.loss(at.eta, event)
        loss.addcmul_(event, at.log_slope, value=-1).add_(event * log_time)
        shapes = [*zip(at.of_shapes, at.of_log_slope, strict=True)]
        first = [rise * at.of_linear]
        first += [(rise * own).addcmul_(event, log_own, value=-1) for own, log_own in shapes]
        if not second:
            return loss, first, {}
        bend = link.curvature(at.eta, event)
        pairs = {(0, 0): bend * at.of_linear.square()}
        for j, (own, log_own) in enumerate(shapes, start=1):
            pairs[0, j] = bend * own * at.of_linear
            if self.scaled:
                pairs[0, j].addcmul_(rise, at.of_linear, value=self.shape_sign)
            for k, (other, log_other) in enumerate(shapes[j - 1 :], start=j):
                pairs[j, k] = (bend * own * other).addcmul_(event * log_own, log_other)
            pairs[j, j].add_(first[j], alpha=self.shape_sign)
        return loss, first, pairs
