"""Batched L-BFGS: many independent smooth problems of one dimension, minimised together.

One batched evaluation answers the current request of every problem, be it the first try of an iteration or a
trial deep inside a line search. All arithmetic is elementwise or sums within a problem, so each takes the
same path alone and in any batch, up to rounding in the function itself. Decisions are masks; the host only
looks which problems are done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor

from sstorch.batched import Batched
from sstorch.checks import check_integer
from sstorch.exceptions import ConfigError

# A point on a line is a triple in the last dimension.
STEP, VALUE, SLOPE = 0, 1, 2

# Sufficient decrease (Armijo), the share to which a slope must shrink (strong Wolfe), and trials a search.
C1, C2, MAX_TRIALS = 1e-4, 0.9, 20
# Next trial as a fraction of the bracket [low, high], and, without one, as a multiple of the last extension.
_ZOOM = (0.1, 0.9)
_EXTEND = (2.1, 5.0)


def rounding_error(value: Tensor) -> Tensor:
    """A change of values (K,) that may be rounding alone: ten units in the last place of max(|value|, 1)."""
    return value.abs().clamp(min=1.0) * (10.0 * torch.finfo(value.dtype).eps)


@dataclass
class LineSearch(Batched):
    """State of K line searches."""

    origin: Tensor  # (K, 3), step 0, with the value and the (negative) slope there
    low: Tensor  # (K, 3), the best acceptable point so far, at first the origin
    high: Tensor  # (K, 3), the other end of the bracket; step infinite for none, value where it is not finite
    step: Tensor  # (K,), the trial to be evaluated next
    n_trials: Tensor  # (K,) int64, trials answered so far

    @classmethod
    def start(cls, value: Tensor, slope: Tensor) -> LineSearch:
        """Begin at step zero, with values (K,) and negative slopes (K,) there; the first trial is at 1."""
        origin = torch.stack((torch.zeros_like(value), value, slope), dim=-1)
        high = torch.full_like(origin, torch.inf)
        return cls(origin, origin, high, torch.ones_like(value), torch.zeros_like(value, dtype=torch.int64))

    def restart(self, problems: Tensor, value: Tensor, slope: Tensor) -> LineSearch:
        """Begin again where `problems` (K,) is true, from `value` (K,) and `slope` (K,) at step zero."""
        pairs = zip(vars(LineSearch.start(value, slope)).values(), vars(self).values(), strict=True)
        return LineSearch(*(torch.where(problems[:, None] if p[0].ndim > 1 else problems, *p) for p in pairs))

    def advance(self, value: Tensor, slope: Tensor) -> tuple[LineSearch, Tensor, Tensor]:
        """Take values (K,), +inf if not finite, and slopes (K,) at `step`, and choose the next trials."""
        # Also returns where the trial became `low` and where the Wolfe conditions end the search, bool (K,).
        trial = torch.stack((self.step, value, slope), dim=-1)
        _, value0, slope0 = self.origin.unbind(-1)
        noise = rounding_error(value0)
        rise = value - value0

        decreased = rise <= C1 * self.step * slope0
        flat = rise.abs() <= noise
        accepted = (decreased | (flat & (slope <= (2.0 * C1 - 1.0) * slope0))) & (slope.abs() <= -C2 * slope0)
        # Written so that nan is not an improvement.
        improved = accepted | ((decreased | flat) & (value <= self.low[:, VALUE] + noise))

        # An improved trial whose slope points back to `low` has the minimum between the two.
        crossed = improved & (slope * (self.high[:, STEP] - self.low[:, STEP]) >= 0)
        low = torch.where(improved[:, None], trial, self.low)
        high = torch.where(crossed[:, None], self.low, self.high)
        high = torch.where(improved[:, None], high, trial)

        # Interpolate inside the bracket, or else extrapolate from the two latest points.
        bracketed = torch.isfinite(high[:, STEP])
        start = torch.where(bracketed[:, None], low, self.low)
        end = torch.where(bracketed[:, None], high, trial)
        fraction = _cubic_minimum(start, end, noise)
        inside = fraction.nan_to_num(0.5).clamp(*_ZOOM)
        beyond = torch.where(fraction > 1.0, fraction, _EXTEND[1]).clamp(*_EXTEND)
        step = torch.lerp(start[:, STEP], end[:, STEP], torch.where(bracketed, inside, beyond))
        return LineSearch(self.origin, low, high, step, self.n_trials + 1), improved, accepted


def _cubic_minimum(start: Tensor, end: Tensor, noise: Tensor) -> Tensor:
    """Share (K,) of the way to the minimum of the cubic, nan for none; of the secant within `noise` (K,)."""
    width, rise, _ = (end - start).unbind(-1)
    slope0, slope1 = start[:, SLOPE] * width, end[:, SLOPE] * width
    rise = torch.where(rise.abs() <= noise, 0.5 * (slope0 + slope1), rise)
    a = slope0 + slope1 - 3.0 * rise
    b = torch.sqrt(a * a - slope0 * slope1)
    return 1.0 - (slope1 + b - a) / (slope1 - slope0 + 2.0 * b)


class Status(IntEnum):
    """Status of a problem at the end of the minimisation.

    Attributes:
        RUNNING: Never in a result.
        CONVERGED: The gradient is small, or the value no longer decreases measurably.
        MAX_ITER: The limit on iterations or on evaluations was reached first.
        STALLED: No decrease was found, not even along steepest descent.
        NON_FINITE: Value or gradient are not finite at the start, or at every trial step around the end.
    """

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    STALLED = 3
    NON_FINITE = 4


@dataclass(frozen=True)
class OptimizationResult(Batched):
    """End points of R problems, on the device and in the dtype of the start.

    Attributes:
        x: (R, d), the end points.
        value: (R,), the value at `x`; never above the value at the start.
        gradient_norm: (R,), maximum norm of the gradient at `x`.
        status: (R,) int64, a `Status` per problem.
        n_evaluations: (R,) int64, evaluations per problem, including the start.
        start_value: (R,), the value at the start.
    """

    x: Tensor
    value: Tensor
    gradient_norm: Tensor
    status: Tensor
    n_evaluations: Tensor
    start_value: Tensor


class BatchedFunction(Protocol):
    """K scalar functions of d variables each."""

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values (K,) and gradients (K, d) at the rows of x (K, d); not finite outside of the domain."""
        ...

    def select(self, problems: Tensor) -> BatchedFunction:
        """The function of the problems at ascending positions (J,) among the current K."""
        ...


@dataclass(frozen=True)
class BlockMetric(Batched):
    """Inverses of positive definite curvature matrices, block by block along the variables."""

    inverses: tuple[Tensor, ...]  # (K, n_j, b_j, b_j): variables are n_1 blocks of b_1, then n_2 of b_2, ...

    @classmethod
    def invert(cls, *curvatures: Tensor) -> BlockMetric:
        """The metric of symmetric blocks (K, n, b, b), made positive definite where they are not."""
        return cls(tuple(_inverse(curvature) for curvature in curvatures))

    def __call__(self, gradient: Tensor) -> Tensor:
        """The step (K, d) that the metric answers to a gradient (K, d): its product with the inverses."""
        sizes = [inverse.shape[1] * inverse.shape[2] for inverse in self.inverses]
        parts = [
            (inverse * part.reshape(len(part), inverse.shape[1], 1, -1)).sum(-1).flatten(1)
            for inverse, part in zip(self.inverses, gradient.split(sizes, dim=1), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _inverse(curvature: Tensor) -> Tensor:
    """Inverses of symmetric (K, n, b, b); off-diagonal parts are dropped where they spoil definiteness."""
    curvature = torch.nan_to_num(curvature, nan=0.0, posinf=0.0, neginf=0.0)
    diagonal = curvature.diagonal(dim1=-2, dim2=-1).abs()
    scale = diagonal.mean(-1, keepdim=True)
    # A variable without curvature moves as the flattest of the others would.
    floor = torch.where(scale > 0, scale * torch.finfo(scale.dtype).eps ** 0.5, torch.ones_like(scale))
    factor, failed = torch.linalg.cholesky_ex(curvature + torch.diag_embed(floor.expand_as(diagonal)))
    alone = torch.diag_embed((diagonal + floor).sqrt())
    return torch.cholesky_inverse(torch.where((failed > 0)[..., None, None], alone, factor))


@dataclass
class CurvatureHistory(Batched):
    """The last m curvature pairs of K problems, and the quasi-Newton direction they define.

    With R the upper triangle of S Yᵀ in order of age and D its diagonal, the two loops of L-BFGS (Nocedal and
    Wright 2006, algorithm 7.4) are two triangular systems, the compact form of Byrd, Nocedal and Schnabel
    (1994), Mathematical Programming 63, 129-156:

        a = R⁻¹ S g,   q = g - Yᵀ a,   b = R⁻ᵀ (D a - γ Y q),   H g = γ q + Sᵀ b.

    With a metric M, γ M takes the place of γ. R⁻¹ itself is kept: forgetting a pair strikes a row and a
    column out of it, a new pair adds a column, for any order of the rows; nothing is shifted or solved. An
    empty slot is a row and a column of zeros. The next of the m + 1 slots to be written is always empty.
    """

    s: Tensor  # (K, m + 1, d)
    y: Tensor  # (K, m + 1, d)
    inverse: Tensor  # (K, m + 1, m + 1), R⁻¹
    diagonal: Tensor  # (K, m + 1), D
    scale: Tensor  # (K,), γ
    count: Tensor  # (K,) int64, pairs remembered since the last reset

    @classmethod
    def empty(cls, x: Tensor, m: int) -> CurvatureHistory:
        """No pairs yet, for points x (K, d) and at most m pairs each."""
        k, d = x.shape
        s, y, inverse = (x.new_zeros(k, m + 1, size) for size in (d, d, m + 1))
        count = torch.zeros(k, dtype=torch.int64, device=x.device)
        return cls(s, y, inverse, x.new_zeros(k, m + 1), x.new_ones(k), count)

    def direction(self, gradient: Tensor, metric: BlockMetric | None = None) -> Tensor:
        """The step -H g (K, d) for gradients g (K, d), the first guess of H a metric or, if None, 1."""
        a = _times(self.inverse, _times(self.s, gradient))
        q = gradient - _combine(a, self.y)
        q = self.scale[:, None] * (q if metric is None else metric(q))
        b = _combine(self.diagonal * a - _times(self.y, q), self.inverse)
        return -(q + _combine(b, self.s))

    def append(self, s: Tensor, y: Tensor, problems: Tensor, metric: BlockMetric | None = None) -> None:
        """Remember steps s (K, d) and gradient changes y (K, d) where `problems` (K,) and curvature allow."""
        sy, yy = (s * y).sum(-1), (y * y).sum(-1)
        keep = problems & (sy > torch.finfo(s.dtype).eps * yy)
        if metric is not None:
            yy = (y * metric(y)).sum(-1)
        slots = torch.arange(self.s.shape[1], device=s.device)
        slot = (self.count % len(slots))[:, None]
        self.count = self.count + keep
        following = (self.count % len(slots))[:, None, None]

        # A pair that is not kept stays invisible, its column being zero.
        at = slot[:, :, None].expand(-1, 1, s.shape[1])
        self.s.scatter_(1, at, s[:, None, :])
        self.y.scatter_(1, at, y[:, None, :])
        self.diagonal.scatter_(1, slot, sy[:, None])
        # The column of the inverse: -R⁻¹ (S y) / s·y, and 1 / s·y on the diagonal.
        column = _times(self.inverse, _times(self.s, y)).masked_fill(slots == slot, -1.0) / -sy[:, None]
        column = torch.where(keep[:, None], column, 0.0)
        self.inverse.scatter_(2, slot[:, :, None].expand(-1, len(slots), 1), column[:, :, None])
        # The oldest pair heads its row and is alone in its column.
        self.inverse.scatter_(1, following.expand(-1, 1, len(slots)), 0.0)
        self.scale = torch.where(keep, sy / yy, self.scale)

    def forget(self, problems: Tensor) -> None:
        """Drop all pairs where `problems` (K,) is true."""
        self.inverse.masked_fill_(problems[:, None, None], 0.0)
        self.scale = self.scale.masked_fill(problems, 1.0)
        self.count = self.count.masked_fill(problems, 0)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix (K, i, j) times vector (K, j), summed in an order that does not depend on K."""
    return (matrix * vector[:, None, :]).sum(-1)


def _combine(weight: Tensor, matrix: Tensor) -> Tensor:
    """Sum of the rows of matrix (K, i, j) with weights (K, i)."""
    return (weight[:, :, None] * matrix).sum(1)


# Compaction copies the whole state, so it waits until it saves this share of the rows.
_COMPACT_AT = 0.8
_REPORTED = ("x", "value", "gradient_norm", "status", "n_evaluations", "start_value")


@dataclass(frozen=True)
class LBFGSOptions:
    """Settings of `minimize`.

    Attributes:
        history: Curvature pairs kept per problem.
        max_iterations: Iterations per problem.
        max_evaluations: Evaluations per problem.
        gradient_tolerance: Converged when the maximum norm of the gradient is at most this.
        relative_tolerance: Converged when one iteration lowers the value by at most this fraction of
            max(|value|, 1), or by no more than rounding error. With 0 only the gradient is used, until it no
            longer decreases at a value constant up to rounding.

    Raises:
        ConfigError: If a setting is outside its range.
    """

    history: int = 20
    max_iterations: int = 1000
    max_evaluations: int = 2000
    gradient_tolerance: float = 1e-6
    relative_tolerance: float = 2.2e-9

    def __post_init__(self) -> None:
        for name, least in {"history": 1, "max_iterations": 0, "max_evaluations": 1}.items():
            check_integer(name, getattr(self, name), least)
        for name in ("gradient_tolerance", "relative_tolerance"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"`{name}` must be a number >= 0, got {getattr(self, name)!r}")


@dataclass
class _Problems(Batched):
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
    steepest: Tensor  # bool, where the direction is that of steepest descent, without a metric
    low_gradient: Tensor
    search: LineSearch
    history: CurvatureHistory
    metric: BlockMetric | None

    @classmethod
    def start(
        cls, function: BatchedFunction, x: Tensor, options: LBFGSOptions, metric: BlockMetric | None
    ) -> _Problems:
        """Evaluate the starts x (R, d) and send every problem off downhill, as the metric has it."""
        value, gradient = function.value_and_gradient(x)
        if value.shape != x.shape[:1] or gradient.shape != x.shape:
            raise ValueError(
                f"value_and_gradient returned shapes {tuple(value.shape)} and {tuple(gradient.shape)} "
                f"at x of shape {tuple(x.shape)}; they must be (K,) and (K, d)."
            )
        value, gradient = value.detach().clone(), gradient.detach().clone()
        norm, zero = _norm(gradient), torch.zeros_like(value, dtype=torch.int64)
        spent = options.max_iterations == 0 or options.max_evaluations == 1
        status = torch.full_like(zero, Status.MAX_ITER if spent else Status.RUNNING)
        status = status.masked_fill(norm <= options.gradient_tolerance, Status.CONVERGED)
        status = status.masked_fill(~(torch.isfinite(value) & torch.isfinite(norm)), Status.NON_FINITE)
        direction, steepest = _steepest(gradient), torch.ones_like(norm, dtype=torch.bool)
        if metric is not None:
            scaled = -metric(gradient)
            steepest = ~(_dot(gradient, scaled) < 0)
            direction = torch.where(steepest[:, None], direction, scaled)
        direction = torch.where((status == Status.RUNNING)[:, None], direction, 0.0)
        number = torch.arange(x.shape[0], device=x.device)
        search = LineSearch.start(value, _dot(gradient, direction))
        history, at = CurvatureHistory.empty(x, options.history), (x, value, gradient, norm)
        state = value, status, zero + 1, zero, direction, steepest, gradient
        return cls(number, *at, *state, search, history, metric)

    def running(self) -> Tensor:
        """Positions of the problems that are not done, for which a GPU makes the host wait."""
        return (self.status == Status.RUNNING).nonzero().squeeze(-1)

    def trial(self) -> Tensor:
        """The points (K, d) at which running problems ask for a value and gradient."""
        step = torch.where(self.status == Status.RUNNING, self.search.step, 0.0)[:, None]
        return self.x + step * self.direction

    def advance(self, value: Tensor, gradient: Tensor, options: LBFGSOptions) -> None:
        """Take values (K,) and gradients (K, d) at the trial points; leave problems that are done as is."""
        running, gradient = self.status == Status.RUNNING, gradient.detach()
        value, slope = value.detach(), _dot(gradient, self.direction)
        # An entry of the gradient that is not finite shows in the slope, even times zero.
        finite = torch.isfinite(value) & torch.isfinite(slope)
        value, slope = torch.where(finite, value, torch.inf), torch.where(finite, slope, 0.0)
        self.search, improved, accepted = self.search.advance(value, slope)
        self.low_gradient = torch.where(improved[:, None], gradient, self.low_gradient)
        self.n_evaluations = self.n_evaluations + running

        # A search ends at a Wolfe point or, at its limits, at its best point if that is lower.
        low_value = self.search.low[:, VALUE]
        spent = self.n_evaluations >= options.max_evaluations
        accepted = accepted & running
        ended = accepted | (running & (spent | (self.search.n_trials >= MAX_TRIALS)))
        moved = ended & (accepted | (low_value < self.value)) & (low_value <= self.start_value)
        converged = self._move(moved, options) & (moved | accepted)

        # A failed search is repeated once, along steepest descent, unless it promised only rounding error.
        failed = ended & ~moved
        hopeless = failed & self.steepest
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
        fresh = self.history.count == 0
        self.steepest = torch.where(problems, fresh, self.steepest)
        direction = torch.where(fresh[:, None], _steepest(self.gradient), direction)
        self.direction = torch.where(problems[:, None], direction, self.direction)
        self.search = self.search.restart(problems, self.value, _dot(self.gradient, self.direction))

    def store(self, result: OptimizationResult) -> None:
        """Write the state of these problems to their places in the result."""
        for name in _REPORTED:
            getattr(result, name)[self.number] = getattr(self, name)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products (K,) of the rows of a and b (K, d)."""
    return (a * b).sum(-1)


def _norm(gradient: Tensor) -> Tensor:
    """Maximum norm (K,) of the rows of gradient (K, d); zero if d is."""
    return gradient.abs().amax(-1) if gradient.shape[-1] else gradient.sum(-1)


def _steepest(gradient: Tensor) -> Tensor:
    """The step (K, d) against gradient (K, d), no longer than 1 in the sum norm."""
    return -gradient / gradient.abs().sum(-1, keepdim=True).clamp(min=1.0)


def minimize(
    function: BatchedFunction,
    x0: Tensor,
    options: LBFGSOptions | None = None,
    metric: BlockMetric | None = None,
) -> OptimizationResult:
    """Minimise R independent functions of d variables from R starts.

    The method is L-BFGS (Nocedal and Wright 2006, algorithm 7.5) with a strong Wolfe line search.

    Args:
        function: The R functions. They may return non-finite entries anywhere: the line search steps back
            from such points, and a start that is one is returned with status `NON_FINITE`.
        x0: (R, d), floating point; its device and dtype are those of the computation. R and d may be 0.
        options: Tolerances and limits, each counted per problem.
        metric: Inverse curvature of each function near its start, a preconditioner, if it is known.

    Returns:
        The best point of each problem, the value there and why it stopped.

    Raises:
        ValueError: If `x0` is not a floating point matrix, or `function` returns other shapes.
    """
    if x0.dim() != 2 or not x0.is_floating_point():
        raise ValueError(f"x0 must be floating point (R, d), found {x0.dtype} of shape {tuple(x0.shape)}.")
    options = options or LBFGSOptions()
    # Until a look at what is done, for which a device waits.
    evaluations = 1 if x0.device.type == "cpu" else 4
    problems = _Problems.start(function, x0.detach().clone(), options, metric)
    result = OptimizationResult(**{name: getattr(problems, name).clone() for name in _REPORTED})
    while len(running := problems.running()) > 0:
        if len(running) <= _COMPACT_AT * len(problems.number):
            problems.store(result)
            problems, function = problems.select(running), function.select(running)
        for _ in range(evaluations):
            problems.advance(*function.value_and_gradient(problems.trial()), options)
    problems.store(result)
    return result
