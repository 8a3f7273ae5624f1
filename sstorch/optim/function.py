"""What a batched minimiser minimises: K functions, evaluated and restricted together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class BatchedFunction(Protocol):
    """K scalar functions of d variables each."""

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate each function at its own point.

        Args:
            x: (K, d), one point per problem, to be left unchanged. It carries no graph.

        Returns:
            Values (K,) and gradients (K, d). Entries that are not finite mark a point outside the domain.
        """
        ...

    def select(self, problems: Tensor) -> BatchedFunction:
        """Restrict to some of the problems.

        Args:
            problems: (J,) int64, ascending positions among the current K problems.

        Returns:
            The function of these J problems, in this order.
        """
        ...


class AutogradFunction:
    """A `BatchedFunction` whose gradients come from autograd.

    Args:
        f: Maps x (K, d) and problem numbers (K,) to values (K,); value k depends on row k of x alone.
        problems: (K,) int64, numbers of the problems, or their count to number them from zero.
    """

    def __init__(self, f: Callable[[Tensor, Tensor], Tensor], problems: Tensor | int) -> None:
        self._f = f
        self._problems = torch.arange(problems) if isinstance(problems, int) else problems

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values (K,) and gradients (K, d) at x (K, d), also where the caller has switched gradients off."""
        self._problems = self._problems.to(x.device)
        with torch.inference_mode(False), torch.enable_grad():
            x = x.detach().clone().requires_grad_()
            value = self._f(x, self._problems)
            (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient

    def select(self, problems: Tensor) -> AutogradFunction:
        """The same function for a subset (J,) of its problems."""
        return AutogradFunction(self._f, self._problems.to(problems.device)[problems])
