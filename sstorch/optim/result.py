"""What a batched minimiser takes and gives: a function of K problems, settings, and a result for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
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


@dataclass(frozen=True)
class LBFGSOptions:
    """Settings of `minimize`.

    Attributes:
        history: Curvature pairs kept per problem.
        max_iterations: Iterations per problem.
        max_evaluations: Evaluations per problem.
        gradient_tolerance: Converged when the maximum norm of the gradient is at most this.
        relative_tolerance: Converged when one iteration lowers the value by at most this fraction of
            max(|value|, 1), or by no more than rounding error. With 0 the gradient alone decides, until it
            no longer shrinks at a value constant to rounding.
        max_line_search: Trial steps per line search.
        c1: Sufficient decrease (Armijo) constant.
        c2: Curvature (strong Wolfe) constant.
        check_every: Evaluations between two looks at which problems are done; by default 1 on the CPU, and
            4 on other devices, which a look makes wait.

    Raises:
        ValueError: If a setting is outside its range.
    """

    history: int = 20
    max_iterations: int = 1000
    max_evaluations: int = 2000
    gradient_tolerance: float = 1e-6
    relative_tolerance: float = 2.2e-9
    max_line_search: int = 20
    c1: float = 1e-4
    c2: float = 0.9
    check_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("history", "max_evaluations", "max_line_search"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}.")
        for name in ("max_iterations", "gradient_tolerance", "relative_tolerance"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, found {getattr(self, name)}.")
        if not (0.0 < self.c1 < 0.5 and self.c1 < self.c2 < 1.0):
            raise ValueError(f"0 < c1 < 1/2 and c1 < c2 < 1 must hold, found c1 = {self.c1}, c2 = {self.c2}.")
        if self.check_every is not None and self.check_every < 1:
            raise ValueError(f"check_every must be at least 1, found {self.check_every}.")


class Status(IntEnum):
    """Why a problem left the minimiser.

    Attributes:
        RUNNING: Still being minimised; never found in a result.
        CONVERGED: The gradient is small, or the value no longer decreases measurably.
        MAX_ITER: The limit on iterations or on evaluations was reached first.
        STALLED: No decrease was found, not even along steepest descent.
        NON_FINITE: The start has no finite value or gradient, or every trial step around the
            returned point had none.
    """

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    STALLED = 3
    NON_FINITE = 4


@dataclass(frozen=True)
class OptimizationResult:
    """End points of R problems, on the device and in the dtype of the start.

    Attributes:
        x: (R, d), the end points.
        value: (R,), the value at `x`; never above the value at the start.
        gradient_norm: (R,), maximum norm of the gradient at `x`.
        status: (R,) int64, a `Status` per problem.
        n_evaluations: (R,) int64, evaluations a problem asked for, its start included.
        n_iterations: (R,) int64, line searches that moved the problem.
        n_batched_evaluations: Calls of the batched function, each of which served every problem
            still in the batch.
    """

    x: Tensor
    value: Tensor
    gradient_norm: Tensor
    status: Tensor
    n_evaluations: Tensor
    n_iterations: Tensor
    n_batched_evaluations: int
