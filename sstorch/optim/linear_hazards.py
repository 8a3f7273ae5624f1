"""Hazards whose linear predictor and shapes are linear in their coefficients, for Newton's method."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.checks import blocks
from sstorch.data.design_matrix import DesignMatrix
from sstorch.newton import Problem
from sstorch.nn import HazardFamily
from sstorch.objective import Sample

# Largest change of a shape parameter in a step: most are logarithms.
_LONGEST = 3.0
# Elements of the derivatives of a row, and of the rows that are worked on at once.
_ELEMENTS_A_ROW, _ELEMENTS = 64, 2**22


@dataclass(frozen=True)
class LinearHazards(Batched, Problem):
    """K problems: a hazard family whose linear predictor and shapes are linear in coefficients.

    Coefficients of a problem are, in one vector (D,): those of the features (p,), and for L groups levels
    (L,), own slopes (L, q), then of each of the m shape parameters the constant and the deviations (1 + L,);
    without groups L = 0. Features are z = (x - centre) / scale, made block by block.
    """

    family: HazardFamily  # prepared for the problems
    sample: Sample  # their rows
    weight: Tensor  # what the loss of each row counts, in rows, (K, n); 0 marks padding
    x: DesignMatrix  # features of the rows, p - 1, without the one for the intercept
    centre: Tensor | None = None  # what is taken off them, (K, p - 1); None for features as they are
    scale: Tensor | None = None  # by what they are divided, (K, p - 1); +inf for those that are zero
    group: Tensor | None = None  # group of each row, 0 ... L - 1, (K, n)
    own: Tensor | None = field(default=None, metadata=SHARED)  # positions of features with own slopes, (q,)
    n_groups: int = field(default=0, metadata=SHARED)  # L; 0 without groups
    offset: Tensor | None = None  # what is added to the linear predictor of each row, (K, n)

    @property
    def width(self) -> int:
        """Coefficients that all rows share, p: the intercept and the slopes."""
        return 1 + self.x.shape[-1]

    @property
    def n_linear(self) -> int:
        """Coefficients of the linear predictor."""
        q = 0 if self.own is None else len(self.own)
        return self.width + self.n_groups * (1 + q)

    @property
    def n_coefficients(self) -> int:
        """D, the length of the vector of a problem."""
        return self.n_linear + len(self.family.shape_names) * (1 + self.n_groups)

    def parameters(self, theta: Tensor, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Linear predictors (K, n) and shape parameters (K, n or 1, m) of rows, for coefficients (K, D)."""
        p, n_linear, n_groups = self.width, self.n_linear, self.n_groups
        shapes = theta[:, n_linear:].unflatten(1, (len(self.family.shape_names), 1 + n_groups))
        if self.group is None or self.own is None:
            return self._linear(theta[:, None, :p], rows).squeeze(1), shapes[..., 0][:, None]
        each = theta[:, None, :p].repeat(1, n_groups, 1)
        each[..., 0] += theta[:, p : p + n_groups]
        each[..., self.own] += theta[:, p + n_groups : n_linear].unflatten(1, (n_groups, len(self.own)))
        group = self.group[:, rows]
        linear = self._linear(each, rows).gather(1, group[:, None]).squeeze(1)
        values = (shapes[..., :1] + shapes[..., 1:]).mT  # (K, L, m)
        return linear, values.gather(1, group[..., None].expand(-1, -1, values.shape[-1]))

    def _linear(self, theta: Tensor, rows: slice) -> Tensor:
        """Linear predictors (K, L, rows) for L vectors of shared coefficients, (K, L, p)."""
        centre, scale = self.units
        slope = theta[..., 1:] / scale[:, None]
        linear = self.x[rows].project(slope, theta[..., 0] - (slope * centre[:, None]).sum(-1))
        return linear if self.offset is None else linear + self.offset[:, None, rows]

    @property
    def units(self) -> tuple[Tensor, Tensor]:
        """Centre and scale of the features, (K, p - 1)."""
        if self.centre is not None and self.scale is not None:
            return self.centre, self.scale
        like = self.weight.new_zeros(len(self.weight), self.x.shape[-1])
        return like, torch.ones_like(like)

    @override
    @torch.no_grad()
    def value(self, theta: Tensor) -> Tensor:
        """Negative log-likelihood, (K,)."""
        total = theta.new_zeros(len(theta))
        for rows in self._row_blocks:
            linear, shape = self.parameters(theta, rows)
            times = self.part(rows).log_times
            loss = self.family.loss(times, linear[:, None], shape[:, None]).squeeze(1)
            total += self._sum(loss, rows)
        return total

    def row_derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Losses (K, n), derivatives (K, n, q), (K, n, q, q) in linear predictor and shapes, q = 1 + m."""
        width = 1 + len(self.family.shape_names)
        first = theta.new_empty(*self.weight.shape, width)
        second, losses = first.new_empty(*first.shape, width), first.new_empty(self.weight.shape)
        for rows in self._row_blocks:
            own = self.derivatives_at(*self.parameters(theta, rows), rows)
            for whole, part in zip((losses, first, second), own, strict=True):
                whole[:, rows] = part
        return losses, first, second

    def derivatives_at(
        self, linear: Tensor, shape: Tensor, rows: slice = slice(None)
    ) -> tuple[Tensor, Tensor, Tensor]:
        """:meth:`row_derivatives` of rows at linear predictors (K, n) and shape parameters (K, n or 1, m)."""
        loss, slopes, pairs = self.in_leaves(linear[:, None], shape[:, None], rows)
        loss, first, counts = loss.squeeze(1), torch.stack(slopes, -1).squeeze(1), self.weight[:, rows] > 0
        second = first.new_zeros(*first.shape, first.shape[-1])
        for (j, k), part in pairs.items():
            second[..., j, k] = second[..., k, j] = part.squeeze(1)
        # Far out in a tail derivatives that vanish are products of zero and infinity.
        second = torch.where(second.isfinite() & counts[..., None, None], second, 0.0)
        return torch.where(counts, loss, 0.0), torch.where(counts[..., None], first, 0.0), second

    def in_leaves(
        self, linear: Tensor, shape: Tensor, rows: slice
    ) -> tuple[Tensor, list[Tensor], dict[tuple[int, int], Tensor]]:
        """:meth:`HazardFamily.derivatives` of rows at predictors (K, L, n) and shapes (K, L, n or 1, m)."""
        basis = None if self._basis is None else self._basis[..., rows]
        return self.family.derivatives(self.part(rows).log_times, linear, shape, basis)

    @cached_property
    def _basis(self) -> Tensor | None:
        return self.family.basis(self.sample.log_time)

    @cached_property
    def _row_blocks(self) -> list[slice]:
        return blocks(self.weight.shape[1], len(self.weight) * _ELEMENTS_A_ROW, _ELEMENTS)

    def part(self, rows: slice) -> Sample:
        """Times of some rows, with the weights of the problems; features are those of all rows."""
        return replace(self.sample.columns(rows), weight=self.weight[:, rows])

    @override
    def step_size(self, step: Tensor) -> Tensor:
        shapes = torch.nn.functional.pad(step[:, self.n_linear :], (0, 1)).abs().amax(-1)
        return _LONGEST / shapes.clamp(min=_LONGEST)

    @property
    @override
    def n_rows(self) -> int:
        return self.weight.shape[1]

    @override
    def thinned(self, stride: int) -> LinearHazards:
        rows = slice(None, None, stride)
        return replace(
            self,
            sample=self.part(rows),
            weight=self.weight[:, rows],
            x=self.x[rows],
            group=None if self.group is None else self.group[:, rows],
            offset=None if self.offset is None else self.offset[:, rows],
        )

    @override
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss, first, second = self.row_derivatives(theta)
        total = self._sum(loss, slice(None))
        first *= self.weight[..., None]
        second *= self.weight[..., None, None]
        gradient = first.new_zeros(len(first), self.n_coefficients)
        hessian = gradient.new_zeros(*gradient.shape, self.n_coefficients)
        centre, scale = self.units
        for k, (split, groups) in enumerate(zip(self.x.split.tolist(), self._members, strict=True)):
            x, weight = self.x.of_split(split), second[k, :, 0, 0]
            right = torch.cat([second[k, :, 0, 1:], first[k, :, :1]], 1)
            for rows, (columns, places) in zip(groups, self._targets, strict=True):
                gram = x.moments(rows, weight, right, centre[k], scale[k])
                shapes = torch.cat([gram[:, self.width : -1].mT, second[k, rows, 1:, 1:].sum(0)], 1)
                own = torch.cat([gram[:, :-1], shapes])
                slope = torch.cat([gram[:, -1], first[k, rows, 1:].sum(0)])
                if self.n_groups == 0:  # each sum is of one coefficient, in their order
                    hessian[k], gradient[k] = own, slope
                else:
                    hessian[k, places[:, None], places] += own[columns[:, None], columns]
                    gradient[k, places] += slope[columns]
        # Products of matrices round on both sides of the diagonal.
        return total, gradient, (hessian + hessian.mT).mul_(0.5)

    @cached_property
    def _members(self) -> list[list[slice | Tensor]]:
        """Rows of each group, of each problem."""
        if self.group is None:
            return [[slice(None)]] * len(self.weight)
        group = self.group.masked_fill(self.weight <= 0, -1)
        return [[(own == k).nonzero().squeeze(-1) for k in range(self.n_groups)] for own in group]

    @cached_property
    def _targets(self) -> list[tuple[Tensor, Tensor]]:
        """Of each group, columns of its sums (the one, features, shapes), and their coefficients."""
        p, m, n_groups = self.width, len(self.family.shape_names), self.n_groups
        count = partial(torch.arange, device=self.weight.device)
        of_shapes = self.n_linear + count(m) * (1 + n_groups)
        columns, places = count(p + m), torch.cat([count(p), of_shapes])
        if self.own is None:
            return [(columns, places)]
        q, targets = len(self.own), []
        columns = torch.cat([columns, count(1), self.own, p + count(m)])
        for k in range(n_groups):
            level, slopes = p + k + count(1), p + n_groups + k * q + count(q)
            targets.append((columns, torch.cat([places, level, slopes, of_shapes + 1 + k])))
        return targets

    def _sum(self, loss: Tensor, rows: slice) -> Tensor:
        weight = self.weight[:, rows]
        return (weight * torch.where(weight > 0, loss, 0.0)).sum(-1)
