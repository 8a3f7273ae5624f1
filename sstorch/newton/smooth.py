"""Functions whose derivatives come from autograd, as problems for Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.newton.minimize import Problem


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
