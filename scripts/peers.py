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
from scipy.special import expit
from torch import Tensor

from sstorch.optim import LBFGSOptions, OptimizationResult, Status, steps
from sstorch.optim.steps import StepObjective
from sstorch.optim.working_sets import BranchObjective, LeafObjective, LogisticObjective


class OneStep(Protocol):
    """What the minimisers below need of a step: its objective with its gradient."""

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (1,) and gradient (1, d) at parameters (1, d)."""
        ...


Peer = Callable[[OneStep, Tensor, LBFGSOptions], OptimizationResult]


def _result(
    x: Tensor, value: Tensor, gradient: Tensor, n_evaluations: int, before: Tensor
) -> OptimizationResult:
    count = torch.tensor([n_evaluations], device=x.device)
    status = torch.full_like(count, Status.CONVERGED)
    return OptimizationResult(x, value, gradient.abs().amax(-1), status, count, before)


def torch_lbfgs(step: OneStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
    """torch.optim.LBFGS with strong Wolfe line search on the step's own parameters, for one tree."""
    x, before = start.clone().requires_grad_(), step.value_and_gradient(start)[0]
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
        value, x.grad = step.value_and_gradient(x.detach())
        return value.sum()

    optimizer.step(closure)
    x = x.detach()
    value, gradient = step.value_and_gradient(x)
    return _result(x, value, gradient, calls, before)


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
    return _result(x, value, gradient, int(found.nfev), step.value_and_gradient(start)[0])


@dataclass(frozen=True)
class PlainStep:
    """A training step over all rows, with values and gradients by plain autograd, whatever else it has."""

    step: StepObjective

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`StepObjective.value_and_gradient`."""
        x = x.detach().requires_grad_()
        value = self.step.data(x) + self.step.penalty(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient


@dataclass(frozen=True)
class NumpyStep:
    """A training step of one tree with log-logistic leaves, values and gradients written in NumPy.

    What a careful user would write by hand for SciPy: rows outside the node are left out, and products of
    matrices are BLAS's.

    Attributes:
        step: a :class:`BranchObjective` of one gate, a :class:`LogisticObjective` or a
            :class:`LeafObjective`.
        x: features of the rows of the node, shape (n, p).
        weights: losses at both ends of a gate, logistic weights (all, left) or leaf probabilities, (k, n).
        log_time: model time, shape (n,).
        event: shape (n,).
        ridge: twice the coefficient of each parameter's square, shape (d,).
    """

    step: StepObjective
    x: np.ndarray
    weights: np.ndarray
    log_time: np.ndarray
    event: np.ndarray
    ridge: np.ndarray

    @classmethod
    def of(cls, step: StepObjective, start: Tensor) -> NumpyStep:
        """The rows, weights and ridges of a step that begins at parameters (1, d)."""
        if isinstance(step, BranchObjective):
            assert len(step.gate_places) == 1
            weights = step.weight[0]
        elif isinstance(step, LogisticObjective):
            weights = torch.stack([step.weight[0], step.left_weight[0]])
        else:
            assert isinstance(step, LeafObjective)
            weights = step.weight[0]
        sample, split = step.sample, int(np.argmax(step.sample.x.counts))
        values = [sample.x.to_dense()[split], weights.T, sample.log_time[0], sample.event[0]]
        if sample.x.rows is not None:
            values[0] = values[0][sample.x.rows[0]]
        used = (weights != 0).any(0).cpu().numpy()
        x, own, log_time, event = (value.cpu().numpy()[used] for value in values)
        ridge = torch.autograd.functional.hessian(lambda x: step.penalty(x).sum(), start)[0, :, 0].diagonal()
        return cls(step, x, np.ascontiguousarray(own.T), log_time, event, ridge.cpu().numpy())

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Objective and gradient (d,) at parameters (d,)."""
        if isinstance(self.step, LeafObjective):
            parts = zip(np.split(x, len(self.weights)), self.weights, strict=True)
            found = [self._leaf(own, weight) for own, weight in parts]
            value, gradient = sum(each[0] for each in found), np.concatenate([each[1] for each in found])
        else:
            value, by_row = self._gate(self.x @ x[:-1] + x[-1])
            gradient = np.r_[by_row @ self.x, by_row.sum()]
        return value + 0.5 * float(self.ridge @ (x * x)), gradient + self.ridge * x

    def _gate(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss of a gate or of a logistic regression, and its derivatives in the logits (n,)."""
        left, (first, second) = expit(z), self.weights
        if isinstance(self.step, LogisticObjective):
            return float(first @ np.logaddexp(0.0, z) - second @ z), first * left - second
        return float(left @ first + (1.0 - left) @ second), left * (1.0 - left) * (first - second)

    def _leaf(self, x: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
        """Weighted loss of a log-logistic leaf, slopes, intercept and log a, and its gradient.

        A line search may try an `a` that overflows, so that it is cut.
        """
        a, event = np.exp(np.clip(x[-1], -20.0, 20.0)), self.event
        z = a * (self.log_time - self.x @ x[:-2] - x[-2])
        loss = (1.0 + event) * np.logaddexp(0.0, z) - event * (z + x[-1] - self.log_time)
        slope = (1.0 + event) * expit(z) - event
        by_row = -a * weight * slope
        return float(weight @ loss), np.r_[by_row @ self.x, by_row.sum(), weight @ (z * slope - event)]


def numpy_slsqp(step: OneStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
    """SciPy's SLSQP with its defaults on gradients written in NumPy."""
    assert isinstance(step, StepObjective)
    own = NumpyStep.of(step, start)
    found = scipy_minimize(
        own.value_and_gradient,
        start[0].numpy(),
        jac=True,
        method="SLSQP",
        options={"maxiter": options.max_iterations, "ftol": options.relative_tolerance},
    )
    value, gradient = own.value_and_gradient(found.x)
    x, gradient = (torch.as_tensor(each)[None] for each in (found.x, gradient))
    before = step.value_and_gradient(start)[0]
    return _result(x, torch.tensor([value], dtype=x.dtype), gradient, int(found.nfev), before)


def with_autograd(minimizer: Peer) -> Peer:
    """The same minimiser on plain autograd gradients."""

    def minimize(step: OneStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
        assert isinstance(step, StepObjective)
        return minimizer(PlainStep(step), start, options)

    return minimize


@contextmanager
def minimized_by(minimizer: Peer | None) -> Iterator[None]:
    """Let every trainer take its steps with another minimiser meanwhile; with its own if there is none."""

    def minimize(
        step: StepObjective, start: Tensor, options: LBFGSOptions, metric: object
    ) -> OptimizationResult:
        assert minimizer is not None
        return minimizer(step, start, options)

    with patch.object(steps, "minimize", steps.minimize if minimizer is None else minimize):
        yield
