"""Minimisers of other packages for a training step, one tree at a time: what ours are compared with."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize as scipy_minimize
from torch import Tensor

from sstorch.optim import LBFGSOptions, OptimizationResult, Status
from sstorch.optim.steps import Step


def _result(x: Tensor, value: Tensor, gradient: Tensor, n_evaluations: int) -> OptimizationResult:
    count = torch.tensor([n_evaluations], device=x.device)
    status = torch.full_like(count, Status.CONVERGED)
    return OptimizationResult(x, value, gradient.abs().amax(-1), status, count, count, n_evaluations)


def torch_lbfgs(step: Step, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
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


def scipy_slsqp(step: Step, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
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
