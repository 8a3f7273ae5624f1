"""Variances of coefficients by marginal likelihood: penalties that are estimated instead of searched.

Coefficients of one kind have independent normal priors of mean zero and one variance, whose inverse is their
penalty. It maximises the evidence, the likelihood of the data with the coefficients integrated out by
Laplace's approximation; in the terms of mixed models it is restricted maximum likelihood.

References:
    MacKay (1992), Neural Computation 4, 415-447, the fixed point; Wood and Fasiolo (2017), Biometrics 73,
    1071-1081, the same for smooth terms; Wood (2011), Journal of the Royal Statistical Society B 73, 3-36,
    restricted maximum likelihood by Laplace's approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.newton import UNCONVERGED, Gaussian, Optimum, Problem, System, newton, step_to

# Inverse variances: the first, bounds, and above which all coefficients of a kind are zero.
_FIRST, _LEAST, _LARGEST, _ASLEEP = 10.0, 1e-4, 1e6, 1e5
# Effective degrees of freedom of a kind below which its coefficients are zero.
_NOTHING = 0.01
# Inverse variance, around the start, of coefficients that are not penalised: for the evidence to exist.
_VAGUE = 1e-2
# Number of the kind of coefficients that are held, and their precision.
HELD, _HELD = -2, 1e8
# Change of a log inverse variance, and gain in nats, below which the fixed point is reached.
_SETTLED, _GAIN = 0.01, 1e-4
# Gain of a Newton step, in nats, below which the penalties move.
_NEAR = 1.0
# Rows from twice as many of which on the first rounds see a part of them.
MANY_ROWS = 20_000
# Gain of a round over so many rows, in nats, below which the fixed point is reached; that of a Newton step
# below which the last one is spared.
_GAIN_OF_MANY, _REACHED = 0.05, 5e-13
# Rounds, updates within a round, and the largest factor by which a variance changes in one.
_MAX_ROUNDS, _MAX_UPDATES, _FACTOR = 100, 15, 30.0
# The same where a problem is not convex, and the gain of a round, in nats, below which it is done.
_FACTOR_GATES, _UPDATES_GATES, _GAIN_GATES = 8.0, 3, 0.01
# Gain left to Newton's method, in nats, before the first round, and between rounds of what is not convex.
_CLOSE = 0.3
# Negative degrees of freedom that are rounding.
_CONCAVE = 1e-6
# Changes of direction of a log variance after which each further one halves its steps, which grow where the
# direction stays: rounds can otherwise cycle.
_TURNS, _GROWTH = 3, 1.3


# Called after each round with its number, penalties (K, G), coefficients and evidence (K,).
Watch = Callable[[int, Tensor, Optimum, Tensor], None]


@dataclass(frozen=True)
class Kinds:
    """Coefficients that share a variance."""

    names: tuple[str, ...]  # of the kinds
    of: Tensor  # number of each coefficient's kind, (D,); -1 for none, ``HELD`` for what stays at its start

    def precision(self, penalty: Tensor) -> Tensor:
        """Prior precision of each coefficient, (K, G) -> (K, D)."""
        return torch.where(self.of == HELD, _HELD, self.spread(penalty, _VAGUE))

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the coefficients of each kind, (K, D) -> (K, G)."""
        held = self.of >= 0
        out = values.new_zeros(len(values), len(self.names))
        return out.index_add_(1, self.of[held], values[:, held])

    def spread(self, values: Tensor, other: float) -> Tensor:
        """The value of its kind for each coefficient, (K, G) -> (K, D), and another for those without."""
        if not self.names:
            return values.new_full((len(values), len(self.of)), other)
        return torch.where(self.of >= 0, values[:, self.of.clamp(min=0)], other)


@dataclass(frozen=True)
class Estimates(Batched):
    """Coefficients of K problems, with penalties that maximise the evidence."""

    kinds: Kinds = field(metadata=SHARED)  # of the coefficients
    theta: Tensor  # coefficients, (K, D)
    mean: Tensor  # of their priors, (K, D)
    penalty: Tensor  # inverse variance of each kind, (K, G)
    evidence: Tensor  # log marginal likelihood, in nats, (K,)
    log_likelihood: Tensor  # at the coefficients, in nats, (K,)
    penalised: Tensor  # negative log-likelihood and penalties, in nats, (K,)
    system: System  # inverse covariance of the coefficients given the data, by Laplace's approximation
    # effective degrees of freedom, (K, D): 1 less the share of the prior in the precision given the data
    freedom: Tensor
    converged: Tensor  # whether penalties and coefficients are those of a maximum, boolean (K,)
    # which coefficients of the system these are; None for all
    places: slice | None = field(default=None, metadata=SHARED)

    @property
    def rounded(self) -> Tensor:
        """Coefficients (K, D), exactly at the mean if a kind has next to no degrees of freedom."""
        nothing = self.kinds.spread(self.kinds.sums(self.freedom), 1.0) < _NOTHING
        return torch.where(nothing, self.mean, self.theta)

    def quadratic(self, rows: Tensor) -> Tensor:
        """Covariance (K, m, m) of combinations, `rows` (K or 1, m, D), of the coefficients given data."""
        if self.places is not None:
            width = self.system.factor.shape[-1]
            rows = torch.nn.functional.pad(rows, (self.places.start, width - self.places.stop))
        return rows @ self.system.solve(rows.expand(len(self.theta), -1, -1).mT)

    def part(self, places: slice, names: Mapping[str, str], share: float = 1.0) -> Estimates:
        """Estimates of some coefficients, kinds renamed; evidence and log-likelihood are those of all."""
        numbers = [self.kinds.names.index(name) for name in names]
        renumbered = torch.full((len(self.kinds.names) + 2,), -1, device=self.theta.device)
        renumbered[numbers] = torch.arange(len(numbers), device=self.theta.device)
        renumbered[HELD] = HELD
        return replace(
            self,
            kinds=Kinds(tuple(names.values()), renumbered[self.kinds.of[places]]),
            theta=self.theta[:, places],
            mean=self.mean[:, places],
            penalty=self.penalty[:, numbers],
            penalised=share * self.penalised,
            freedom=self.freedom[:, places],
            places=places,
        )


@torch.no_grad()
def estimate(
    problems: Problem,
    kinds: Kinds,
    start: Tensor,
    first: Mapping[str, Tensor] | None = None,  # penalties by kind, at which rounds begin
    gain: float = _GAIN,  # in nats, below which rounds end
    mean: Tensor | None = None,  # of the priors, (K, D), None for zero; vague ones have the mean ``start``
    careful: bool = False,  # for problems that are not convex
    watch: Watch | None = None,
) -> Estimates:
    """Coefficients and the variance of each kind, from ``start`` (K, D).

    In every round the log-likelihood is replaced by its expansion at the present coefficients, for which the
    fixed point lambda = (n - lambda tr V) / ||b||^2 of each kind is found, V its block of the inverse of
    Hessian and penalties; not where they are far from the optimum or the problem is not convex. A Newton step
    leads to the next.
    """
    mean = torch.where(kinds.of >= 0, 0.0 if mean is None else mean, start)
    size = kinds.sums(torch.ones_like(start[:1]))
    stride = problems.n_rows // MANY_ROWS
    if stride > 1:
        # Most rounds are those of a part of the rows, whose estimates are near.
        gain = _GAIN_OF_MANY
        few = estimate(problems.thinned(stride), kinds, start, first, gain, mean, careful)
        start, first = few.theta, dict(zip(kinds.names, few.penalty.unbind(-1), strict=True))
    penalty = start.new_full((len(start), len(kinds.names)), _FIRST)
    for name, values in ({} if first is None else first).items():
        if name in kinds.names:
            penalty[:, kinds.names.index(name)] = values

    def prior(penalty: Tensor, rows: Tensor | slice = slice(None)) -> Gaussian:
        return Gaussian(kinds.precision(penalty), mean[rows])

    if stride > 1:
        at = Optimum.of(problems, start)
    else:
        at = newton(problems, prior(penalty), start, tolerance=_CLOSE)
    active = torch.arange(len(start), device=start.device)
    factor, updates = (_FACTOR_GATES, _UPDATES_GATES) if careful else (_FACTOR, _MAX_UPDATES)
    gain = max(gain, _GAIN_GATES) if careful else gain
    reach = torch.full_like(penalty, math.log(factor))
    turns, before = torch.zeros_like(penalty), torch.zeros_like(penalty)
    for number in range(_MAX_ROUNDS if kinds.names else 0):
        whole = len(active) == len(start)
        part, here = (problems, at) if whole else (problems.select(active), at.select(active))
        given = penalty[active], mean[active], reach[active].exp()
        found, target, near, rise = _update(here, kinds, size, *given, updates)
        step, last = (found / penalty[active]).log(), before[active]
        moved = torch.where(found < _ASLEEP, step.abs(), 0.0).amax(-1)
        turned = step * last < 0
        turns[active] += turned
        shorter = torch.minimum(torch.minimum(step.abs(), last.abs()), reach[active]) / 2
        longer = (_GROWTH * reach[active]).clamp(max=math.log(factor))
        reach[active] = torch.where(turned & (turns[active] > _TURNS), shorter, longer)
        before[active] = step
        penalty = penalty.index_copy(0, active, found)
        own = prior(found, active)
        reached, promised, falls = step_to(part, own, here, target)
        new = Optimum.of(part, reached)
        at = at.replaced(active, newton(part, own, reached, _CLOSE, new) if careful else new)
        if watch is not None:
            every = prior(penalty)
            watch(number, penalty, at, _evidence(at, every, System.of(at.hessian, every.precision)))
        settled = near & ((moved < _SETTLED) | (rise < gain)) & ((promised < gain) | ~falls | careful)
        active = active[~settled]
        if len(active) == 0:
            break
    own = prior(penalty)
    system = System.of(at.hessian, own.precision)
    if stride <= 1 or bool((at.gain(own, system) > _REACHED).any()):
        at = newton(problems, own, at.theta, at=at)
        system = System.of(at.hessian, own.precision)
    converged = at.gain(own, system) <= UNCONVERGED
    if kinds.names:
        converged[active] = False
    freedom = 1 - own.precision * system.variances()
    likelihood = _evidence(at, own, system), -at.loss, at.loss + own.value(at.theta)
    return Estimates(kinds, at.theta, mean, penalty, *likelihood, system, freedom, converged)


def _evidence(at: Optimum, prior: Gaussian, system: System) -> Tensor:
    """Laplace's approximation of the log marginal likelihood, (K,)."""
    volume = (prior.precision.log().sum(-1) - system.log_determinant()) / 2
    return volume - (at.loss + prior.value(at.theta))


def _update(
    at: Optimum, kinds: Kinds, size: Tensor, penalty: Tensor, mean: Tensor, reach: Tensor, updates: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fixed point of the variances, by factors of at most `reach` (K, G), and its coefficients."""
    # Also whether these are near the optimum, boolean (K,), else penalties stay; and the gain in evidence
    # (K,), in nats, by its slopes, half of n - lambda tr V - lambda ||b||^2 for each log variance.
    right = torch.matmul(at.hessian, at.theta[..., None]).squeeze(-1) - at.gradient
    precision = kinds.precision(penalty)
    system = System.of(at.hessian, precision)
    slope = at.gradient + precision * (at.theta - mean)
    newton_step = system.solve(slope[..., None]).squeeze(-1)
    near = ((slope * newton_step).sum(-1) / 2 < _NEAR) & ~system.indefinite
    reach = torch.where(near[:, None], reach, 1.0)
    given, least, largest = penalty, penalty / reach, penalty * reach
    before, slopes = torch.zeros_like(penalty), torch.zeros_like(penalty)
    done = torch.zeros_like(penalty[:, :1], dtype=torch.bool)
    for update in range(updates):
        target = system.solve((right + precision * mean)[..., None]).squeeze(-1)
        variance = system.variances()
        free = size - penalty * kinds.sums(variance)
        square = kinds.sums((target - mean).square())
        if update == 0:
            slopes = (free - penalty * square).abs() / 2
        new = torch.minimum(free.clamp(min=1e-6), size) / (square + 1e-12)
        # Where the problem is concave along a kind the fixed point says nothing of its variance.
        new = torch.where(free > -_CONCAVE, new, penalty).clamp(_LEAST, _LARGEST)
        step = (new / penalty).log()
        if update % 3 == 2:  # what is left of a geometric series
            ratio = torch.where(before != 0, step / before, 0.0).clamp(min=0.0, max=0.9)
            step = step / (1 - ratio)
        before = step
        new = (penalty * step.exp()).clamp(least, largest).clamp(_LEAST, _LARGEST)
        moved = torch.where(new < _ASLEEP, (new / penalty).log().abs(), 0.0)
        # Each stops for itself, so that a problem does not depend on the others.
        penalty = torch.where(done, penalty, new)
        precision = kinds.precision(penalty)
        system = System.of(at.hessian, precision)
        done = done | (moved < _SETTLED / 4).all(-1, keepdim=True)
        if bool(done.all()):
            break
    target = system.solve((right + precision * mean)[..., None]).squeeze(-1)
    rise = (slopes * (penalty / given).log().abs()).sum(-1)
    return penalty, torch.where(near[:, None], target, at.theta - newton_step), near, rise
