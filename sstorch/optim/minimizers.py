"""Minimisers of training steps other than the package's own: optimisers of torch, and functions of a user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from sstorch.checks import check_integer
from sstorch.optim.batched_lbfgs import LBFGSOptions, OptimizationResult, Status
from sstorch.optim.steps import Minimizer, StepObjective

_SMALL = LBFGSOptions().gradient_tolerance


@dataclass(frozen=True)
class torch_minimizer:  # noqa: N801  # used as a function; a dataclass, so that checkpoints can compare it
    """Minimiser for :meth:`TrainingRun.step` by any optimiser of torch.

    The gradient of all problems is one batched evaluation of the step. The result of a problem is the best
    point that was evaluated, and does not depend on the other problems: optimisers treat parameters one by
    one, except ``torch.optim.LBFGS``, of which every problem has its own.

    Args:
        make: returns an optimiser for a list of parameters, one of shape (d,) per problem, such as
            ``lambda parameters: torch.optim.Adam(parameters, 0.1)``.
        steps: calls of ``optimizer.step``, at least 1. Each evaluates the step once, or as often as the
            optimiser calls its closure.

    Raises:
        ConfigError: ``steps`` is not an integer, at least 1.

    >>> torch_minimizer(lambda parameters: torch.optim.Adam(parameters, lr=0.1), steps=40).steps
    40
    """

    make: Callable[[list[Tensor]], torch.optim.Optimizer]
    steps: int = 100

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, least=1)

    def __call__(self, step: StepObjective, start: Tensor) -> OptimizationResult:
        """Minimise a step from parameters (K, d)."""
        parameters = [row.clone().requires_grad_() for row in start]
        optimizer = self.make(parameters)
        if isinstance(optimizer, torch.optim.LBFGS) and len(start) > 1:  # one direction for all parameters
            each = [slice(number, number + 1) for number in range(len(start))]
            return _joined([self(step.select(own), start[own]) for own in each])
        best, n_evaluations = start.clone(), 0
        lowest = start.new_full(start.shape[:1], torch.inf)
        norm = torch.full_like(lowest, torch.nan)
        value = before = lowest

        def closure() -> Any:
            nonlocal before, best, lowest, norm, value, n_evaluations
            x = torch.stack([parameter.detach() for parameter in parameters])
            value, gradient = step.value_and_gradient(x)
            for parameter, own in zip(parameters, gradient, strict=True):
                parameter.grad = own.clone()
            better = (value < lowest) & gradient.isfinite().all(-1)
            best = torch.where(better[:, None], x, best)
            lowest = torch.where(better, value, lowest)
            norm = torch.where(better, gradient.abs().amax(-1), norm)
            before = before if n_evaluations else value
            n_evaluations += 1
            return value.sum()

        for _ in range(self.steps):
            optimizer.step(closure)
        closure()
        status = torch.where(norm <= _SMALL, int(Status.CONVERGED), int(Status.MAX_ITER))
        status = status.masked_fill(~(value.isfinite() & lowest.isfinite()), int(Status.NON_FINITE))
        count, taken = (torch.full_like(status, number) for number in (n_evaluations, self.steps))
        return OptimizationResult(best, lowest, norm, status, count, taken, before, n_evaluations)


def never_worse(minimizer: Minimizer) -> Minimizer:
    """The minimiser, whose end points are replaced by the start where the objective is higher or not finite.

    Value and gradient norm of the result are those of the step at its end points.
    """

    def minimize(step: StepObjective, start: Tensor) -> OptimizationResult:
        result = minimizer(step, start)
        before, after = step.value_and_gradient(start), step.value_and_gradient(result.x)
        lower = after[0] <= torch.nan_to_num(before[0], nan=torch.inf)
        kept = lower & after[0].isfinite() & after[1].isfinite().all(-1)
        value = torch.where(kept, after[0], before[0])
        norm = torch.where(kept, after[1].abs().amax(-1), before[1].abs().amax(-1))
        finite = value.isfinite() & norm.isfinite()
        status = result.status.masked_fill(~kept, int(Status.STALLED))
        status = status.masked_fill(~finite, int(Status.NON_FINITE))
        x = torch.where(kept[:, None], result.x, start)
        return replace(result, x=x, value=value, gradient_norm=norm, status=status, start_value=before[0])

    return minimize


def _joined(parts: list[OptimizationResult]) -> OptimizationResult:
    """One result of the problems of several."""
    count = sum(part.n_batched_evaluations for part in parts)
    names = [item.name for item in fields(OptimizationResult) if item.name != "n_batched_evaluations"]
    whole = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return OptimizationResult(**whole, n_batched_evaluations=count)
