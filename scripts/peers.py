"""Minimisers of other packages for a training step, one tree at a time: what ours are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from unittest.mock import patch

import numpy as np
import torch
from scipy.optimize import minimize as scipy_minimize
from torch import Tensor

from sstorch.optim import LBFGSOptions, OptimizationResult, Status, run
from sstorch.optim.steps import ShardedStep, Step


class OneStep(Protocol):
    """What the minimisers below need of a step: its objective, differentiable, and with its gradient."""

    def value_at(self, x: Tensor) -> Tensor:
        """Objective (1,) at parameters (1, d)."""
        ...

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (1,) and gradient (1, d) at parameters (1, d)."""
        ...


Peer = Callable[[OneStep, Tensor, LBFGSOptions], OptimizationResult]


def _result(x: Tensor, value: Tensor, gradient: Tensor, n_evaluations: int) -> OptimizationResult:
    count = torch.tensor([n_evaluations], device=x.device)
    status = torch.full_like(count, Status.CONVERGED)
    return OptimizationResult(x, value, gradient.abs().amax(-1), status, count, count, n_evaluations)


def torch_lbfgs(step: OneStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
    """torch.optim.LBFGS with strong Wolfe line search on the step's own parameters, for one tree."""
    x = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x],
        max_iter=options.max_iterations,
        max_eval=options.max_evaluations,
        tolerance_grad=options.gradient_tolerance,
        tolerance_change=options.relative_tolerance,
        history_size=options.history,
        line_search_fn="strong_wolfe",
    )
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        value = step.value_at(x).sum()
        value.backward()
        return value

    optimizer.step(closure)
    x = x.detach()
    value, gradient = step.value_and_gradient(x)
    return _result(x, value, gradient, calls)


def scipy_slsqp(step: OneStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
    """SciPy's SLSQP, the solver of the paper, for one tree."""

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = step.value_and_gradient(torch.as_tensor(x, device=start.device)[None])
        return float(value), gradient[0].cpu().numpy()

    found = scipy_minimize(
        function,
        start[0].cpu().numpy(),
        jac=True,
        method="SLSQP",
        options={"maxiter": options.max_iterations, "ftol": options.relative_tolerance},
    )
    x = torch.as_tensor(found.x, device=start.device)[None]
    value, gradient = step.value_and_gradient(x)
    return _result(x, value, gradient, int(found.nfev))


@dataclass(frozen=True)
class PlainStep:
    """A training step over all rows, with values and gradients by plain autograd, whatever else it has."""

    step: Step

    def value_at(self, x: Tensor) -> Tensor:
        """See :meth:`Step.value_at`."""
        return self.step.plain_data(x) + self.step.penalty(x)

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`Step.value_and_gradient`."""
        x = x.detach().requires_grad_()
        value = self.value_at(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient


def with_autograd(minimizer: Peer) -> Peer:
    """The same minimiser on plain autograd gradients."""

    def minimize(step: OneStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
        assert isinstance(step, ShardedStep)
        return minimizer(PlainStep(step.first), start, options)

    return minimize


@contextmanager
def minimized_by(minimizer: Peer | None) -> Iterator[None]:
    """Let every trainer take its steps with another minimiser meanwhile; with its own if there is none."""
    with patch.object(run, "minimize_step", minimizer or run.minimize_step):
        yield
