"""Batched L-BFGS: many independent smooth problems of one dimension, minimised together.

Each problem has its own step size, curvature history, stop and status, and is in its own phase: one batched
evaluation answers the current request of every problem, be it the first try of an iteration or a trial deep
inside a line search. Problems that are done leave the batch.

All arithmetic is elementwise or sums within a problem, so each takes the same path alone and in any batch, up
to rounding in the function itself. Decisions are masks; the host only looks which problems are done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sstorch.optim.curvature import CurvatureHistory
from sstorch.optim.function import BatchedFunction
from sstorch.optim.line_search import SLOPE, VALUE, LineSearch, rounding_error
from sstorch.optim.metric import BlockMetric
from sstorch.optim.result import OptimizationResult, Status

# Compaction copies the whole state, so it waits until it saves this share of the rows.
_COMPACT_AT = 0.8
_REPORTED = ("x", "value", "gradient_norm", "status", "n_evaluations", "n_iterations")


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


@dataclass
class _Problems:
    """State of the K problems still in the batch; every field has K as its first dimension."""

    number: Tensor
    x: Tensor
    value: Tensor
    gradient: Tensor
    gradient_norm: Tensor
    start_value: Tensor
    status: Tensor
    n_evaluations: Tensor
    n_iterations: Tensor
    direction: Tensor
    low_gradient: Tensor
    search: LineSearch
    history: CurvatureHistory
    metric: BlockMetric | None

    @classmethod
    def start(
        cls, function: BatchedFunction, x: Tensor, options: LBFGSOptions, metric: BlockMetric | None
    ) -> _Problems:
        """Evaluate the starts x (R, d) and send every problem off downhill, as the metric has it."""
        value, gradient = (part.clone() for part in _evaluate(function, x))
        norm, zero = _norm(gradient), torch.zeros_like(value, dtype=torch.int64)
        spent = options.max_iterations == 0 or options.max_evaluations == 1
        status = torch.full_like(zero, Status.MAX_ITER if spent else Status.RUNNING)
        status = status.masked_fill(norm <= options.gradient_tolerance, Status.CONVERGED)
        status = status.masked_fill(~(torch.isfinite(value) & torch.isfinite(norm)), Status.NON_FINITE)
        direction = _steepest(gradient)
        if metric is not None:
            scaled = -metric(gradient)
            direction = torch.where((_dot(gradient, scaled) < 0)[:, None], scaled, direction)
        direction = torch.where((status == Status.RUNNING)[:, None], direction, 0.0)
        return cls(
            number=torch.arange(x.shape[0], device=x.device),
            x=x,
            value=value,
            gradient=gradient,
            gradient_norm=norm,
            start_value=value,
            status=status,
            n_evaluations=zero + 1,
            n_iterations=zero,
            direction=direction,
            low_gradient=gradient,
            search=LineSearch.start(value, _dot(gradient, direction)),
            history=CurvatureHistory.empty(x, options.history),
            metric=metric,
        )

    def advance(self, function: BatchedFunction, options: LBFGSOptions) -> None:
        """Answer the request of every running problem by one batched evaluation; leave the others as is."""
        running = self.status == Status.RUNNING
        step = torch.where(running, self.search.step, 0.0)[:, None]
        value, gradient = _evaluate(function, self.x + step * self.direction)
        slope = _dot(gradient, self.direction)
        # An entry of the gradient that is not finite shows in the slope, even times zero.
        finite = torch.isfinite(value) & torch.isfinite(slope)
        value, slope = torch.where(finite, value, torch.inf), torch.where(finite, slope, 0.0)
        self.search, improved, accepted = self.search.advance(value, slope, options.c1, options.c2)
        self.low_gradient = torch.where(improved[:, None], gradient, self.low_gradient)
        self.n_evaluations = self.n_evaluations + running

        # A search ends at a Wolfe point or, at its limits, at its best point if that is lower.
        low_value = self.search.low[:, VALUE]
        spent = self.n_evaluations >= options.max_evaluations
        accepted = accepted & running
        ended = accepted | (running & (spent | (self.search.n_trials >= options.max_line_search)))
        moved = ended & (accepted | (low_value < self.value)) & (low_value <= self.start_value)
        converged = self._move(moved, options) & (moved | accepted)

        # A failed search is repeated once, along steepest descent, unless it promised only rounding error.
        failed = ended & ~moved
        hopeless = failed & (self.history.count == 0)
        converged = converged | (failed & (-self.search.origin[:, SLOPE] <= rounding_error(self.value)))

        # The later line overrides the earlier.
        self.status = self.status.masked_fill(hopeless, Status.STALLED)
        self.status = self.status.masked_fill(hopeless & ~finite, Status.NON_FINITE)
        spent = spent | (self.n_iterations >= options.max_iterations)
        self.status = self.status.masked_fill(ended & spent, Status.MAX_ITER)
        self.status = self.status.masked_fill(converged, Status.CONVERGED)
        self._turn(ended & (self.status == Status.RUNNING), failed)

    def _move(self, moved: Tensor, options: LBFGSOptions) -> Tensor:
        """Go to the low point of the search where `moved` (K,); return where the stopping test holds (K,)."""
        step, value, _ = self.search.low.unbind(-1)
        s = step[:, None] * self.direction
        self.history.append(s, self.low_gradient - self.gradient, moved, self.metric)
        gradient = torch.where(moved[:, None], self.low_gradient, self.gradient)
        norm = _norm(gradient)

        tolerance = options.relative_tolerance * self.value.abs().clamp(min=1.0)
        settled = self.value - value <= torch.maximum(tolerance, rounding_error(self.value))
        if options.relative_tolerance == 0.0:
            settled = settled & (norm > 0.5 * self.gradient_norm)

        self.x = torch.where(moved[:, None], self.x + s, self.x)
        self.value = torch.where(moved, value, self.value)
        self.gradient, self.gradient_norm = gradient, norm
        self.n_iterations = self.n_iterations + moved
        return settled | (norm <= options.gradient_tolerance)

    def _turn(self, problems: Tensor, failed: Tensor) -> None:
        """Begin a search in a new direction where `problems` (K,), steepest descent where `failed` (K,)."""
        direction = self.history.direction(self.gradient, self.metric)
        slope = _dot(self.gradient, direction)
        downhill = torch.isfinite(slope) & (slope < 0.0)
        self.history.forget(problems & (failed | ~downhill))
        fresh = (self.history.count == 0)[:, None]
        direction = torch.where(fresh, _steepest(self.gradient), direction)
        self.direction = torch.where(problems[:, None], direction, self.direction)
        self.search = self.search.restart(problems, self.value, _dot(self.gradient, self.direction))

    def store(self, result: OptimizationResult) -> None:
        """Write the state of these problems to their places in the result."""
        for name in _REPORTED:
            getattr(result, name)[self.number] = getattr(self, name)


def _evaluate(function: BatchedFunction, x: Tensor) -> tuple[Tensor, Tensor]:
    """Value (K,) and gradient (K, d) at x (K, d), free of any graph."""
    value, gradient = function.value_and_gradient(x)
    if value.shape != x.shape[:1] or gradient.shape != x.shape:
        raise ValueError(
            f"value_and_gradient returned shapes {tuple(value.shape)} and {tuple(gradient.shape)} "
            f"at x of shape {tuple(x.shape)}; they must be (K,) and (K, d)."
        )
    return value.detach(), gradient.detach()


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products (K,) of the rows of a and b (K, d)."""
    return (a * b).sum(-1)


def _norm(gradient: Tensor) -> Tensor:
    """Maximum norm (K,) of the rows of gradient (K, d); zero where d is."""
    return gradient.abs().amax(-1) if gradient.shape[-1] else gradient.sum(-1)


def _steepest(gradient: Tensor) -> Tensor:
    """The step (K, d) against gradient (K, d), no longer than 1 in the sum norm."""
    return -gradient / gradient.abs().sum(-1, keepdim=True).clamp(min=1.0)


Part = Tensor | LineSearch | CurvatureHistory | BlockMetric | None


def _select(state: _Problems, rows: Tensor) -> _Problems:
    """The state of some of its problems, given by their positions (J,)."""
    return replace(state, **{name: _rows(part, rows) for name, part in vars(state).items()})


def _rows(part: Part, rows: Tensor) -> Any:
    if part is None:
        return None
    if isinstance(part, Tensor):
        return part[rows]
    if isinstance(part, BlockMetric):
        return part.select(rows)
    return replace(part, **{name: value[rows] for name, value in vars(part).items()})


def minimize(
    function: BatchedFunction,
    x0: Tensor,
    options: LBFGSOptions | None = None,
    metric: BlockMetric | None = None,
) -> OptimizationResult:
    """Minimise R independent functions of d variables from R starts.

    The method is L-BFGS (Nocedal and Wright 2006, algorithm 7.5) with a strong Wolfe line search. No graph
    is kept, and `function` is called in the grad mode of the caller.

    Args:
        function: The R functions. They may return non-finite entries anywhere: the line search steps back
            from such points, and a start that is one is returned with status `NON_FINITE`.
        x0: (R, d), floating point; its device and dtype are those of the computation. R and d may be 0.
        options: Tolerances and limits, each counted per problem; by default those of `LBFGSOptions()`.
        metric: Inverse curvature of each function near its start, which scales the directions (a
            preconditioner); by default none is known.

    Returns:
        The best point of each problem, the value there and why it stopped.

    Raises:
        ValueError: If `x0` is not a floating point matrix, or `function` returns other shapes.
    """
    if x0.dim() != 2 or not x0.is_floating_point():
        raise ValueError(f"x0 must be floating point (R, d), found {x0.dtype} of shape {tuple(x0.shape)}.")
    options = options or LBFGSOptions()
    check_every = options.check_every or (1 if x0.device.type == "cpu" else 4)
    problems = _Problems.start(function, x0.detach().clone(), options, metric)
    reported = {name: getattr(problems, name).clone() for name in _REPORTED}
    result = OptimizationResult(**reported, n_batched_evaluations=0)
    n_batched = 1
    while (n_running := int((problems.status == Status.RUNNING).sum())) > 0:
        if n_running <= _COMPACT_AT * len(problems.number):
            problems.store(result)
            rows = (problems.status == Status.RUNNING).nonzero().squeeze(-1)
            problems, function = _select(problems, rows), function.select(rows)
        for _ in range(check_every):
            problems.advance(function, options)
        n_batched += check_every
    problems.store(result)
    return replace(result, n_batched_evaluations=n_batched)
