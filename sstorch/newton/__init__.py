"""Damped Newton of a batch of functions, each with a normal prior of its coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.exceptions import TrainingError

# Gain of a step, in nats, below which a minimum is reached, and above which a fit has not converged.
TOLERANCE, UNCONVERGED = 1e-9, 1e-4
_MAX_STEPS, _MAX_HALVINGS = 100, 40
# Armijo's condition.
_ARMIJO = 1e-4
# Relative rounding of a value, and in units of the precision of its numbers where these have fewer digits.
_ROUNDING, _UNITS = 1e-13, 4
# Shares of the diagonal that are added to it in turn where a matrix is not positive definite: for rounding,
# then Levenberg's, each a multiple of the one before; and the least diagonal, as a share of the largest.
_FIRST_LIFT, _LEVENBERG, _GROWTH, _LEAST = 1e-8, 1e-3, 4.0, 1e-6


class Problem(ABC):
    """K functions of D coefficients each, in nats, the members of a batch: what :func:`newton` minimises."""

    @abstractmethod
    def value(self, theta: Tensor) -> Tensor:
        """Values (K,) at coefficients (K, D); +inf or NaN where a function is not defined."""

    @abstractmethod
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (K,), gradients (K, D) and Hessians (K, D, D) at coefficients (K, D); all finite."""

    @abstractmethod
    def select(self, members: Tensor) -> Self:
        """The same for some members, ascending positions (J,); :class:`~sstorch.batched.Batched` has it."""

    def step_size(self, step: Tensor) -> Tensor:
        """Share of a step (K, D), in (0, 1], at which halving begins, (K,): large steps of logs overflow."""
        return step.new_ones(len(step))

    @property
    def n_rows(self) -> int:
        """Rows of the longest member; 0, the default, if the problem cannot be thinned."""
        return 0

    def thinned(self, stride: int) -> Self:
        """The same with every stride-th of the rows; needed only where :attr:`n_rows` is not 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class Smooth(Batched, Problem):
    """K functions of coefficients (K, D) and of data of K members, by plain differentiable operations."""

    function: Callable[..., Tensor] = field(metadata=SHARED)  # coefficients, then data, to values (K,)
    data: tuple[Any, ...] = ()  # each of a kind that a field of Batched may have

    @override
    @torch.no_grad()
    def value(self, theta: Tensor) -> Tensor:
        return self.function(theta, *self.data)

    @override
    @torch.enable_grad()
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        theta = theta.detach().requires_grad_()
        value = self.function(theta, *self.data)
        (gradient,) = torch.autograd.grad(value.sum(), theta, create_graph=True)
        rows = [
            torch.autograd.grad(each.sum(), theta, retain_graph=True, materialize_grads=True)[0]
            if each.requires_grad
            else torch.zeros_like(theta)
            for each in gradient.unbind(-1)
        ]
        matrices = torch.stack(rows, -1)
        # Far out derivatives that vanish are products of zero and infinity.
        matrices = torch.where(matrices.isfinite(), matrices, 0.0)
        return value.detach(), gradient.detach(), (matrices + matrices.mT) / 2


@dataclass(frozen=True)
class Gaussian(Batched):
    """Independent normal priors of coefficients."""

    precision: Tensor  # inverse variances, (K, D); 0 for none
    mean: Tensor  # shape (K, D)

    @classmethod
    def flat(cls, theta: Tensor) -> Self:
        """None, for coefficients like theta (K, D)."""
        return cls(torch.zeros_like(theta), torch.zeros_like(theta))

    def value(self, theta: Tensor) -> Tensor:
        """Negative log density without its constant, (K,)."""
        return (self.precision * (theta - self.mean).square()).sum(-1) / 2

    def gradient(self, theta: Tensor) -> Tensor:
        """Of :meth:`value`, (K, D)."""
        return self.precision * (theta - self.mean)


@dataclass(frozen=True)
class System(Batched):
    """Matrices of K problems, factored."""

    factor: Tensor  # Cholesky factors, (K, D, D)
    indefinite: Tensor  # whether more than rounding was added to make it positive definite, boolean (K,)

    @classmethod
    def of(cls, hessian: Tensor, precision: Tensor) -> Self:
        """Of symmetric matrices (K, D, D) plus a diagonal (K, D); TrainingError if they are not finite."""
        # Where not positive definite, growing shares of the absolute diagonal are added (Levenberg).
        matrix = hessian.clone()
        matrix.diagonal(dim1=-2, dim2=-1).add_(precision)
        factor, info = torch.linalg.cholesky_ex(matrix)
        failed = info > 0
        if not bool(failed.any()):
            return cls(factor, failed)
        if not bool(hessian.isfinite().all()):
            raise TrainingError(
                "second derivatives of the likelihood are not finite: try another leaf, or fixed penalties"
            )
        own = matrix.diagonal(dim1=-2, dim2=-1).abs()
        largest = own.amax(-1, keepdim=True).clamp(min=_FIRST_LIFT)
        # What rounding took away is of the size of the largest.
        added, share = torch.where(failed[:, None], _FIRST_LIFT * largest, 0.0), _LEVENBERG
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(added))
        indefinite = failed = info > 0
        while bool(failed.any()):
            added = torch.where(failed[:, None], share * torch.maximum(own, _LEAST * largest), added)
            factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(added))
            failed, share = info > 0, _GROWTH * share
        return cls(factor, indefinite)

    def solve(self, right: Tensor) -> Tensor:
        """Solutions for right-hand sides (K, D, m)."""
        return torch.cholesky_solve(right, self.factor)

    def variances(self) -> Tensor:
        """Diagonal of the inverse, (K, D)."""
        return torch.cholesky_inverse(self.factor).diagonal(dim1=-2, dim2=-1)

    def log_determinant(self) -> Tensor:
        """Of each matrix, (K,)."""
        return 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@dataclass(frozen=True)
class Optimum(Batched):
    """State of Newton's method: coefficients (K, D), values of the functions and derivatives there."""

    theta: Tensor
    loss: Tensor  # (K,)
    gradient: Tensor  # (K, D)
    hessian: Tensor  # (K, D, D)

    @classmethod
    def of(cls, problems: Problem, theta: Tensor) -> Self:
        """At coefficients (K, D)."""
        return cls(theta, *problems.derivatives(theta))

    def gain(self, prior: Gaussian, system: System | None = None) -> Tensor:
        """Gain that is left to a Newton step, in nats, (K,): half the squared decrement."""
        system = System.of(self.hessian, prior.precision) if system is None else system
        slope = self.gradient + prior.gradient(self.theta)
        return (slope * system.solve(slope[..., None]).squeeze(-1)).sum(-1) / 2


def step_to(problems: Problem, prior: Gaussian, at: Optimum, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients (K, D) of a step that is halved, the fall promised (K,), and whether it fell (K,)."""
    step = target - at.theta
    size = problems.step_size(step)
    slope = ((at.gradient + prior.gradient(at.theta)) * step).sum(-1)
    before = at.loss + prior.value(at.theta)
    rounding = max(_ROUNDING, _UNITS * torch.finfo(before.dtype).eps) * (1 + before.abs())
    for _ in range(_MAX_HALVINGS):
        trial = at.theta + size[:, None] * step
        after = problems.value(trial) + prior.value(trial)
        bad = ~(after <= before + _ARMIJO * size * slope + rounding)
        if not bool(bad.any()):
            break
        size = torch.where(bad, size / 2, size)
    return torch.where(bad[:, None], at.theta, trial), -slope, ~bad


def newton(
    problems: Problem,
    prior: Gaussian,
    theta: Tensor,
    tolerance: float = TOLERANCE,
    at: Optimum | None = None,
) -> Optimum:
    """Minimise K functions, each plus its prior, by damped Newton, from theta (K, D), where they are finite.

    A step is halved until the sum of function and prior falls enough (Armijo). Where their Hessian is not
    positive definite, a multiple of its absolute diagonal is added first (Levenberg), for each member by
    itself. A member is done when its gain is at most the tolerance, in nats, and its Hessian positive
    definite, when no step lowers the sum, or after 100 steps: check its ``gain``, at most ``UNCONVERGED``. A
    start at an exact saddle point stays there. ``at`` has the derivatives at theta, if they are known.

    Raises:
        TrainingError: second derivatives are not finite.

    References:
        Nocedal and Wright (2006), Numerical Optimization, 2nd ed., 3.4; Marquardt (1963), Journal of the
        Society for Industrial and Applied Mathematics 11, 431-441, on the diagonal.
    """
    done = torch.zeros(len(theta), dtype=torch.bool, device=theta.device)
    at = Optimum.of(problems, theta) if at is None else at
    for _ in range(_MAX_STEPS):
        rest = (~done).nonzero().squeeze(-1)
        whole = len(rest) == len(done)
        part = problems if whole else problems.select(rest)
        own = prior if whole else prior.select(rest)
        here = at if whole else at.select(rest)
        system = System.of(here.hessian, own.precision)
        gradient = here.gradient + own.gradient(here.theta)
        target = here.theta - system.solve(gradient[..., None]).squeeze(-1)
        reached, promised, falls = step_to(part, own, here, target)
        new = Optimum.of(part, reached)
        small = (promised / 2 <= tolerance) & (~system.indefinite | (promised <= 0))
        done = done.index_copy(0, rest, small | ~falls)
        at = new if whole else at.replaced(rest, new)
        if bool(done.all()):
            break
    return at
