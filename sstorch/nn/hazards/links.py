"""Families whose cumulative hazard is a link of one index: H = link(eta), eta rising with log time.

The loss of a right-censored row is A(eta; c) - c (log eta' - y) with A = H - c log dH/deta. A link knows A
and its derivatives in eta, a family the derivatives of its index; one routine joins them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import (
    HALF_LOG_TWO_PI,
    log_expm1,
    log_sigmoid_pair,
    normal_cumulative_hazard,
    saturating_exp,
    sigmoid_and_softplus,
    softplus,
    survival_of,
)
from sstorch.nn.hazards.base import HazardFamily

# Of a standard normal z: beyond, the hazard is z and its derivative one, to rounding.
_FAR = 1e4


class Link(ABC):
    """H of an index eta and its inverse; elementwise on tensors of any shape.

    ``overflows`` is True if H can be infinite at a finite index. Without derivatives of the loss
    (``closed_form``) those of the family come from autograd.
    """

    overflows = True
    closed_form = True

    @abstractmethod
    def terms(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """H and log dH/deta."""

    @abstractmethod
    def index(self, cumulative_hazard: Tensor) -> Tensor:
        """The eta at which H is reached."""

    def hazard(self, eta: Tensor) -> Tensor:
        """H."""
        return self.terms(eta)[0]

    def survival(self, eta: Tensor) -> Tensor:
        """exp(-H), with all digits of its tail."""
        return survival_of(self.hazard(eta))

    def loss(self, eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        """A(eta; c) and its derivative, without a graph."""
        raise NotImplementedError

    def curvature(self, eta: Tensor, event: Tensor) -> Tensor:
        """Second derivative of A, without a graph."""
        raise NotImplementedError


class ExponentialLink(Link):
    """H = exp(eta): proportional hazards."""

    @override
    def terms(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        return saturating_exp(eta), eta

    @override
    def index(self, cumulative_hazard: Tensor) -> Tensor:
        return cumulative_hazard.log()

    @override
    def loss(self, eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        hazard = torch.exp(eta)
        return hazard.addcmul(event, eta, value=-1), hazard.sub_(event)

    @override
    def curvature(self, eta: Tensor, event: Tensor) -> Tensor:
        return torch.exp(eta)


class LogisticLink(Link):
    """S = sigmoid(-eta): proportional odds."""

    overflows = False

    @override
    def terms(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        log_event, log_survival = log_sigmoid_pair(eta)
        return -log_survival, log_event

    @override
    def hazard(self, eta: Tensor) -> Tensor:
        return softplus(eta)

    @override
    def survival(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(-eta)

    @override
    def index(self, cumulative_hazard: Tensor) -> Tensor:
        return log_expm1(cumulative_hazard)

    @override
    def loss(self, eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        slope, loss = sigmoid_and_softplus(eta)
        loss.mul_(1 + event).addcmul_(event, eta, value=-1)
        return loss, slope.mul_(1 + event).sub_(event)

    @override
    def curvature(self, eta: Tensor, event: Tensor) -> Tensor:
        slope = torch.sigmoid(eta)
        return (1 - slope).mul_(slope).mul_(1 + event)


class NormalLink(Link):
    """S = Phi(-eta): normal scores."""

    @override
    def terms(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        hazard = normal_cumulative_hazard(eta)
        # Far out in the tail the hazard is eta, and the difference of two squares would have no digits left.
        far = eta > _FAR
        near = torch.where(far, torch.zeros_like(eta), eta)
        near_hazard = torch.where(far, torch.zeros_like(hazard), hazard)
        log_rate = near_hazard - near * near / 2 - HALF_LOG_TWO_PI
        return hazard, torch.where(far, torch.where(far, eta, torch.ones_like(eta)).log(), log_rate)

    @override
    def hazard(self, eta: Tensor) -> Tensor:
        return normal_cumulative_hazard(eta)

    @override
    def survival(self, eta: Tensor) -> Tensor:
        return torch.erfc(eta * math.sqrt(0.5)) / 2  # torch's own function cuts off the tail

    @override
    def index(self, cumulative_hazard: Tensor) -> Tensor:
        survival, failure = torch.exp(-cumulative_hazard), -torch.expm1(-cumulative_hazard)
        return torch.where(survival < 0.5, -torch.special.ndtri(survival), torch.special.ndtri(failure))

    @override
    def loss(self, eta: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        censored, square = 1 - event, eta * eta / 2 + HALF_LOG_TWO_PI
        loss = censored * -torch.special.log_ndtr(-eta)
        return loss.addcmul_(event, square), (censored * _rate(eta)).addcmul_(event, eta)

    @override
    def curvature(self, eta: Tensor, event: Tensor) -> Tensor:
        rate = _rate(eta)
        return (1 - event) * torch.where(eta > _FAR, 1.0, rate * (rate - eta)) + event


def _rate(z: Tensor) -> Tensor:
    """Hazard of the standard normal distribution."""
    mills: Tensor = torch.special.erfcx(z * math.sqrt(0.5))
    return math.sqrt(2 / math.pi) / mills


@dataclass(frozen=True)
class ArandaOrdazLink(Link):
    """H = log(1 + theta exp(eta)) / theta: odds at theta = 1, hazards as theta -> 0.

    References:
        Aranda-Ordaz (1981), Biometrika 68, 357-363.
    """

    log_theta: Tensor
    closed_form = False

    @override
    def terms(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        z = eta + self.log_theta
        # Where theta exp(eta) is below rounding error the logarithm is its argument.
        hazard = torch.where(z < -40, saturating_exp(eta), softplus(z) * torch.exp(-self.log_theta))
        # eta - softplus(z), also where eta is infinite.
        return hazard, log_sigmoid_pair(z)[0] - self.log_theta

    @override
    def index(self, cumulative_hazard: Tensor) -> Tensor:
        return log_expm1(cumulative_hazard * torch.exp(self.log_theta)) - self.log_theta


@dataclass(frozen=True)
class Index:
    """Eta at rows and its first derivatives, without a graph, broadcastable to (K, L, M)."""

    eta: Tensor
    log_slope: Tensor  # log of its derivative in log time
    of_linear: Tensor  # derivative of eta in g
    of_shapes: list[Tensor]  # in each shape parameter
    of_log_slope: list[Tensor]  # derivatives of the log slope in each shape parameter


class LinkFamily(HazardFamily):
    """H = link(eta) with an index that is linear in g and in exponentials of the shapes.

    ``shape_sign`` is -1 if a shape is minus the log of what multiplies; ``scaled`` is True if that multiplies
    g, too.
    """

    shape_sign = 1
    scaled = False

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
        """Eta and its derivatives at rows; arguments as :meth:`loss_and_gradient`, without a graph."""

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
    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        at = self.index_at(log_time, linear.detach(), shape.detach(), basis)
        loss, rise = self.link(shape).loss(at.eta, event)
        loss.addcmul_(event, at.log_slope, value=-1).add_(event * log_time)
        return loss, rise * at.of_linear, self._of_shapes(at, rise, event)

    @override
    def second_derivatives(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> dict[tuple[int, int], Tensor]:
        at = self.index_at(log_time, linear.detach(), shape.detach(), basis)
        link = self.link(shape)
        rise, bend = link.loss(at.eta, event)[1], link.curvature(at.eta, event)
        found = {(0, 0): bend * at.of_linear.square()}
        for j, first in enumerate(self._of_shapes(at, rise, event)):
            own, log_own = bend * at.of_shapes[j], event * at.of_log_slope[j]
            found[0, j + 1] = own * at.of_linear
            if self.scaled:
                found[0, j + 1].addcmul_(rise, at.of_linear, value=self.shape_sign)
            for k in range(j, len(at.of_shapes)):
                found[j + 1, k + 1] = (own * at.of_shapes[k]).addcmul_(log_own, at.of_log_slope[k])
            found[j + 1, j + 1].add_(first, alpha=self.shape_sign)
        return found

    def _of_shapes(self, at: Index, rise: Tensor, event: Tensor) -> tuple[Tensor, ...]:
        """Derivatives of the loss in each shape."""
        pairs = zip(at.of_shapes, at.of_log_slope, strict=True)
        return tuple((rise * own).addcmul_(event, log_own, value=-1) for own, log_own in pairs)
