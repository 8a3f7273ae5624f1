"""Damped Newton for hazards whose linear predictor and shapes are linear in their coefficients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self, cast

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.exceptions import TrainingError
from sstorch.nn import HazardFamily
from sstorch.objective import Sample, row_losses

# Gain of a step, in nats, below which a minimum is reached.
TOLERANCE = 1e-9
_MAX_STEPS, _MAX_HALVINGS = 100, 40
# Largest change of a shape parameter in a step: most are logarithms.
_LONGEST = 3.0
# What is first added to the diagonal of a Hessian that is not positive definite, as a share of its largest.
_FIRST_LIFT = 1e-8
# Armijo's condition.
_ARMIJO = 1e-4


@dataclass(frozen=True)
class LinearHazards(Batched):
    """K problems: a hazard family whose linear predictor and shapes are linear in coefficients.

    The linear predictor is a sum over features with the same coefficients in all rows and, where there are
    groups, a level and slopes of its own in each; a shape parameter is a constant, and in each group a
    deviation from it. Coefficients of a problem are, in one vector (D,): those of the features (p,), levels
    (L,), own slopes (L, q), then of each of the m shape parameters the constant and the deviations (1 + L,);
    without groups L = 0.

    Attributes:
        family: prepared for the problems.
        sample: their rows.
        weight: what the loss of each row counts, in rows, (K, n); 0 marks padding.
        design: features, a one for the intercept first, (K, n, p).
        group: group of each row, 0 ... L - 1, (K, n); None for none.
        own: features with slopes of their own in the groups, (K, n, q).
        n_groups: L; 0 without groups.
    """

    family: HazardFamily
    sample: Sample
    weight: Tensor
    design: Tensor
    group: Tensor | None = None
    own: Tensor | None = None
    n_groups: int = field(default=0, metadata=SHARED)

    @property
    def n_linear(self) -> int:
        """Coefficients of the linear predictor."""
        q = 0 if self.own is None else self.own.shape[-1]
        return self.design.shape[-1] + self.n_groups * (1 + q)

    @property
    def n_coefficients(self) -> int:
        """D, the length of the vector of a problem."""
        return self.n_linear + len(self.family.shape_names) * (1 + self.n_groups)

    def parameters(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Linear predictors (K, n) and shape parameters (K, n or 1, m) of rows, for coefficients (K, D)."""
        p, n_linear, n_groups = self.design.shape[-1], self.n_linear, self.n_groups
        linear = torch.matmul(self.design, theta[:, :p, None]).squeeze(-1)
        shapes = theta[:, n_linear:].unflatten(1, (len(self.family.shape_names), 1 + n_groups))
        if self.group is None or self.own is None:
            return linear, shapes[..., 0][:, None]
        linear = linear + theta[:, p : p + n_groups].gather(1, self.group)
        slopes = theta[:, p + n_groups : n_linear].unflatten(1, (n_groups, -1))
        each = torch.matmul(self.own, slopes.mT)  # (K, n, L)
        linear = linear + each.gather(-1, self.group[..., None]).squeeze(-1)
        values = (shapes[..., :1] + shapes[..., 1:]).mT  # (K, L, m)
        return linear, values.gather(1, self.group[..., None].expand(-1, -1, values.shape[-1]))

    @torch.no_grad()
    def value(self, theta: Tensor) -> Tensor:
        """Negative log-likelihood, (K,)."""
        linear, shape = self.parameters(theta)
        return self._sum(row_losses(self.family, self.sample, linear[:, None], shape[:, None]).squeeze(1))

    def row_derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Losses of rows (K, n), first derivatives (K, n, q) and second ones (K, n, q, q), q = 1 + m.

        They are those in the linear predictor and the shape parameters of the row, zero for padding; by the
        family where it has second derivatives of its own and rows are observed from time zero, else by
        autograd.
        """
        return self.derivatives_at(*self.parameters(theta))

    def derivatives_at(self, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """:meth:`row_derivatives` at linear predictors (K, n) and shape parameters (K, n or 1, m)."""
        own = type(self.family).second_derivatives is not HazardFamily.second_derivatives
        if own and self.sample.log_entry is None and self.sample.log_lower is None:
            loss, first, second = self._by_family(linear, shape)
        else:
            loss, first, second = self._by_autograd(linear, shape)
        # Far out in a tail derivatives that vanish are products of zero and infinity.
        counts = self.weight > 0
        second = torch.where(second.isfinite() & counts[..., None, None], second, 0.0)
        return torch.where(counts, loss, 0.0), torch.where(counts[..., None], first, 0.0), second

    def _by_family(self, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.sample.log_time[:, None], self.sample.event[:, None], linear[:, None], shape[:, None]
        loss, of_linear, of_shape = self.family.loss_and_gradient(*rows)
        first = torch.stack([of_linear, *of_shape], -1).squeeze(1)
        second = first.new_zeros(*first.shape, first.shape[-1])
        for (j, k), part in self.family.second_derivatives(*rows).items():
            second[..., j, k] = second[..., k, j] = part.squeeze(1)
        return loss.squeeze(1), first, second

    def _by_autograd(self, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            parts = [linear, *shape.expand(*linear.shape, -1).unbind(-1)]
            parts = [part.detach().clone().requires_grad_() for part in parts]
            stacked = torch.stack(parts[1:], -1) if parts[1:] else shape.new_zeros(*linear.shape, 0)
            loss = row_losses(self.family, self.sample, parts[0][:, None], stacked[:, None]).squeeze(1)
            loss = torch.where(self.weight > 0, loss, 0.0)
            first = torch.autograd.grad(
                loss.sum(), parts, create_graph=True, allow_unused=True, materialize_grads=True
            )
            second = [
                torch.autograd.grad(
                    each.sum(), parts, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                if each.requires_grad
                else [torch.zeros_like(part) for part in parts]
                for each in first
            ]
        rows = torch.stack([torch.stack(list(each), -1) for each in second], -2)
        return loss.detach(), torch.stack(first, -1).detach(), (rows + rows.mT) / 2

    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Negative log-likelihood (K,), its gradient (K, D) and Hessian (K, D, D)."""
        loss, first, second = self.row_derivatives(theta)
        first, second = self.weight[..., None] * first, self.weight[..., None, None] * second
        p, start, n_groups = self.design.shape[-1], self.n_linear, self.n_groups
        gradient = theta.new_zeros(*theta.shape)
        hessian = theta.new_zeros(*theta.shape, theta.shape[-1])
        gradient[:, :p] = torch.matmul(first[..., None, :, 0], self.design).squeeze(1)
        hessian[:, :p, :p] = torch.matmul((second[..., :1, 0] * self.design).mT, self.design)
        base = start + torch.arange(len(self.family.shape_names), device=theta.device) * (1 + n_groups)
        gradient[:, base] = first[..., 1:].sum(1)
        hessian[:, :p, base] = torch.matmul(self.design.mT, second[..., 0, 1:])
        hessian[:, base[:, None], base] = second[..., 1:, 1:].sum(1)
        if n_groups:
            self._add_groups(first, second, base, gradient, hessian)
        # Blocks off the diagonal were written on one side of it.
        return self._sum(loss), gradient, hessian.triu() + hessian.triu(1).mT

    def _add_groups(
        self, first: Tensor, second: Tensor, base: Tensor, gradient: Tensor, hessian: Tensor
    ) -> None:
        """What levels, slopes and shapes of groups add to the derivatives, in place.

        Rows of a group meet its coefficients alone: they are put beside each other, and a product over the
        rows of every group is one over all rows.

        Args:
            first: weighted first derivatives of rows, (K, n, 1 + m).
            second: weighted second ones, (K, n, 1 + m, 1 + m).
            base: places of the constants of the shapes, (m,).
            gradient: shape (K, D).
            hessian: shape (K, D, D).
        """
        assert self.group is not None
        assert self.own is not None
        p, q, n_groups = self.design.shape[-1], self.own.shape[-1], self.n_groups
        rows, real = self._rows_of_groups()
        one = torch.ones_like(self.own[..., :1])
        own = _gathered(torch.cat([one, self.own], -1), rows)  # (K, L, W, 1 + q)
        shared = _gathered(self.design, rows).mT
        u = _gathered(first, rows) * real
        v = _gathered(second.flatten(-2), rows) * real
        v = v.unflatten(-1, second.shape[-2:])
        weighted = v[..., :1, 0] * own
        of_linear, of_shapes = torch.matmul(shared, weighted), torch.matmul(shared, v[..., 0, 1:])
        within, side = torch.matmul(own.mT, weighted), torch.matmul(own.mT, v[..., 0, 1:])
        inner = v[..., 1:, 1:].sum(-3)
        slopes = torch.matmul(u[..., None, :, 0], own).squeeze(-2)
        for k in range(n_groups):
            first_slope = p + n_groups + k * q
            linear = torch.tensor([p + k, *range(first_slope, first_slope + q)], device=base.device)
            shapes = base + 1 + k
            gradient[:, linear] = slopes[:, k]
            gradient[:, shapes] = u[:, k, :, 1:].sum(1)
            hessian[:, :p, linear] = of_linear[:, k]
            hessian[:, :p, shapes] = of_shapes[:, k]
            hessian[:, linear[:, None], linear] = within[:, k]
            hessian[:, linear[:, None], base] = side[:, k]
            hessian[:, linear[:, None], shapes] = side[:, k]
            hessian[:, base[:, None], shapes] = inner[:, k]
            hessian[:, shapes[:, None], base] = inner[:, k]
            hessian[:, shapes[:, None], shapes] = inner[:, k]

    def _rows_of_groups(self) -> tuple[Tensor, Tensor]:
        """Rows of each group, shorter ones filled up, (K, L, W), and 1 where they are real, (K, L, W, 1)."""
        assert self.group is not None
        group = torch.where(self.weight > 0, self.group, self.n_groups)
        count = torch.nn.functional.one_hot(group, self.n_groups + 1).sum(1)[:, :-1]
        order, before = group.argsort(dim=1, stable=True), count.cumsum(1) - count
        place = torch.arange(max(int(count.max()), 1), device=group.device)
        rows = order.gather(1, (before[..., None] + place).clamp(max=group.shape[1] - 1).flatten(1))
        real = place < count[..., None]
        return rows.unflatten(1, (self.n_groups, -1)), real[..., None].to(self.weight)

    def _sum(self, loss: Tensor) -> Tensor:
        return (self.weight * torch.where(self.weight > 0, loss, 0.0)).sum(-1)


def _gathered(values: Tensor, rows: Tensor) -> Tensor:
    """Values (K, n, c) of rows (K, L, W), (K, L, W, c)."""
    out = values.gather(1, rows.flatten(1)[..., None].expand(-1, -1, values.shape[-1]))
    return cast(Tensor, out.unflatten(1, rows.shape[1:]))


@dataclass(frozen=True)
class Gaussian(Batched):
    """Independent normal priors of coefficients.

    Attributes:
        precision: inverse variances, (K, D); 0 for none.
        mean: shape (K, D).
    """

    precision: Tensor
    mean: Tensor

    def value(self, theta: Tensor) -> Tensor:
        """Negative log density without its constant, (K,)."""
        return (self.precision * (theta - self.mean).square()).sum(-1) / 2

    def gradient(self, theta: Tensor) -> Tensor:
        """Of :meth:`value`, (K, D)."""
        return self.precision * (theta - self.mean)


@dataclass(frozen=True)
class Optimum(Batched):
    """Where Newton's method stands.

    Attributes:
        theta: coefficients, (K, D).
        loss: negative log-likelihood there, (K,).
        gradient: of the negative log-likelihood, (K, D).
        hessian: of the negative log-likelihood, (K, D, D).
    """

    theta: Tensor
    loss: Tensor
    gradient: Tensor
    hessian: Tensor

    @classmethod
    def of(cls, problems: LinearHazards, theta: Tensor) -> Self:
        """At coefficients (K, D)."""
        return cls(theta, *problems.derivatives(theta))

    def replaced(self, positions: Tensor, part: Optimum) -> Optimum:
        """The same with ``part`` in the place of the problems at ``positions``."""
        pairs = zip(vars(self).values(), vars(part).values(), strict=True)
        return Optimum(*(old.index_copy(0, positions, new) for old, new in pairs))


def cholesky(hessian: Tensor) -> Tensor:
    """Cholesky factors; where a matrix is not positive definite, with its diagonal raised until it is.

    Args:
        hessian: symmetric, (K, D, D).

    Raises:
        TrainingError: it is not finite.
    """
    factor, info = torch.linalg.cholesky_ex(hessian)
    if not bool((info > 0).any()):
        return cast(Tensor, factor)
    if not bool(hessian.isfinite().all()):
        raise TrainingError(
            "second derivatives of the likelihood are not finite: try another leaf, or penalties with numbers"
        )
    failed = (info > 0).nonzero().squeeze(-1)
    part = hessian[failed]
    lift = _FIRST_LIFT * part.diagonal(dim1=-2, dim2=-1).abs().amax(-1).clamp(min=_FIRST_LIFT)
    eye = torch.eye(hessian.shape[-1], dtype=hessian.dtype, device=hessian.device)
    while len(failed):
        again, info = torch.linalg.cholesky_ex(part + lift[:, None, None] * eye)
        factor = factor.index_copy(0, failed, again)
        still = info > 0
        failed, part, lift = failed[still], part[still], 100 * lift[still]
    return cast(Tensor, factor)


def step_to(
    problems: LinearHazards, prior: Gaussian, at: Optimum, target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Go towards coefficients (K, D), the step halved until the objective falls.

    Returns:
        where that leads (K, D); the objective's fall that was promised to first order, (K,); and whether the
        objective has fallen, (K,).
    """
    step = target - at.theta
    d = problems.n_linear
    longest = step[:, d:].abs().amax(-1) if step.shape[-1] > d else step.new_zeros(len(step))
    size = (_LONGEST / longest.clamp(min=_LONGEST)).clamp(max=1.0)
    slope = ((at.gradient + prior.gradient(at.theta)) * step).sum(-1)
    before = at.loss + prior.value(at.theta)
    rounding = 1e-13 * (1 + before.abs())
    for _ in range(_MAX_HALVINGS):
        trial = at.theta + size[:, None] * step
        after = problems.value(trial) + prior.value(trial)
        bad = ~(after <= before + _ARMIJO * size * slope + rounding)
        if not bool(bad.any()):
            break
        size = torch.where(bad, size / 2, size)
    return torch.where(bad[:, None], at.theta, trial), -slope, ~bad


def newton(
    problems: LinearHazards,
    prior: Gaussian,
    theta: Tensor,
    tolerance: float = TOLERANCE,
    max_steps: int = _MAX_STEPS,
) -> Optimum:
    """Minimise negative log-likelihood and prior of K problems by damped Newton.

    A problem is done when half its squared Newton decrement, the gain that is left, is at most the tolerance,
    or when no step along the direction of Newton lowers the objective.

    Args:
        problems: K problems.
        prior: of their coefficients.
        theta: where to begin, (K, D).
        tolerance: in nats.
        max_steps: most steps.

    References:
        Nocedal and Wright (2006), Numerical Optimization, 2nd ed., 3.4, on Hessians that are not positive
        definite.
    """
    done = torch.zeros(len(theta), dtype=torch.bool, device=theta.device)
    at = Optimum.of(problems, theta)
    for _ in range(max_steps):
        rest = (~done).nonzero().squeeze(-1)
        whole = len(rest) == len(done)
        part = problems if whole else problems.select(rest)
        own = prior if whole else prior.select(rest)
        here = at if whole else at.select(rest)
        factor = cholesky(here.hessian + torch.diag_embed(own.precision))
        gradient = here.gradient + own.gradient(here.theta)
        target = here.theta - torch.cholesky_solve(gradient[..., None], factor).squeeze(-1)
        reached, promised, falls = step_to(part, own, here, target)
        new = Optimum.of(part, reached)
        done = done.index_copy(0, rest, (promised / 2 <= tolerance) | ~falls)
        at = new if whole else at.replaced(rest, new)
        if bool(done.all()):
            break
    return at
