"""Damped Newton steps for many small problems at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_ITERATIONS = 50
_HALVINGS = 20
_LONGEST_STEP = 2.0
_DIFFERENCE = 1e-4
_TOLERANCE = 1e-11


@torch.no_grad()
def minimize_small(losses: Callable[[Tensor], Tensor], start: Tensor, active: Tensor) -> Tensor:
    """Minimise functions of a handful of parameters.

    The Hessian comes from differences of the gradient, so that one derivative of the function is enough. It
    is made positive by the absolute values of its eigenvalues; steps are limited in length and halved until
    the loss falls.

    Args:
        losses: values (R,) at parameters (R, d), differentiable once.
        start: where to begin, shape (R, d).
        active: problems to solve, boolean (R,).

    Returns:
        shape (R, d), no worse than the start up to rounding; problems whose loss is not finite come back
        unchanged.
    """

    def gradients(theta: Tensor) -> Tensor:
        with torch.enable_grad():
            theta = theta.clone().requires_grad_()
            return torch.autograd.grad(losses(theta).sum(), theta)[0]

    theta, value = start, losses(start)
    active = active & torch.isfinite(value)
    shifts = _DIFFERENCE * torch.eye(theta.shape[1]).to(theta)
    for _ in range(_ITERATIONS):
        gradient = gradients(theta)
        active = active & torch.isfinite(gradient).all(-1) & (gradient.abs().amax(-1) > _TOLERANCE)
        if not bool(active.any()):
            break
        rows = [(gradients(theta + s) - gradients(theta - s)) / (2 * _DIFFERENCE) for s in shifts]
        step = _newton_step(torch.stack(rows, dim=1), gradient)
        # Near the minimum the value cannot tell a better point, while a Newton step still finds one: without
        # this margin the result would depend on rounding, and so on the batch around a problem.
        rounding = 4 * torch.finfo(value.dtype).eps * (1 + value.abs())
        trying, length = active, 1.0
        for _ in range(_HALVINGS):
            trial = torch.where(trying[:, None], theta + length * step, theta)
            lower = trying & (losses(trial) <= value + rounding)
            theta = torch.where(lower[:, None], trial, theta)
            trying, length = trying & ~lower, length / 2
            if not bool(trying.any()):
                break
        value, active = losses(theta), active & ~trying
    return theta


def _newton_step(hessian: Tensor, gradient: Tensor) -> Tensor:
    """Downhill step, shape (R, d), of limited length; along the gradient where the Hessian is not finite."""
    size = hessian.shape[-1]
    broken = ~torch.isfinite(hessian).all(-1).all(-1) | ~torch.isfinite(gradient).all(-1)
    symmetric = torch.where(broken[:, None, None], torch.eye(size).to(hessian), (hessian + hessian.mT) / 2)
    curvature, axes = torch.linalg.eigh(symmetric)
    curvature = curvature.abs().clamp(min=1e-8)
    step = -(axes @ ((axes.mT @ gradient[..., None]) / curvature[..., None])).squeeze(-1)
    length: Tensor = torch.linalg.vector_norm(step, dim=-1, keepdim=True)
    limited: Tensor = step * (_LONGEST_STEP / length.clamp(min=_LONGEST_STEP))
    return limited
