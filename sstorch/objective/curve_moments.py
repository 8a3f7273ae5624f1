"""Squared differences between the survival curves of groups, from moments: never pair by pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sstorch.batched import Batched
from sstorch.memory import at_once
from sstorch.nn import HazardFamily

# Elements (problems x leaves x nodes x rows) of an intermediate; rows are taken in chunks that stay below.
CHUNK_ELEMENTS = 2**18
# Elements of all chunks together up to which their graphs are kept, instead of being recorded once more.
KEPT_ELEMENTS = 2**22
# Rows, evenly chosen, whose mean curve is the centre.
_CENTRE_ROWS = 32


@dataclass(frozen=True)
class CurveMoments(Batched):
    """Mean and scatter of the curves of groups at Q nodes, from a centre near their mean to keep digits."""

    centre: Tensor  # shape (R, Q)
    weight: Tensor  # W_g, sum of the row weights of each group, shape (R, G)
    # m_g, weighted mean of the curves minus the centre, shape (R, Q, G); 0 for a group without rows
    mean: Tensor
    scatter: Tensor  # sum over the rows of a group of w_i (S_i - m_g)^2, shape (R, Q, G)

    def merge(self, other: CurveMoments) -> CurveMoments:
        """Moments of the rows of both, about the centre of this one (Chan, Golub and LeVeque 1983)."""
        weight = self.weight + other.weight
        share = (other.weight / _or_one(weight))[:, None, :]
        step = other.mean + (other.centre - self.centre)[..., None] - self.mean
        # The mean of a group without rows is no mean of anything.
        step = torch.where((other.weight > 0)[:, None, :], step, torch.zeros_like(step))
        between = step.square() * self.weight[:, None, :] * share
        return CurveMoments(
            self.centre, weight, self.mean + share * step, self.scatter + other.scatter + between
        )

    def pair_sums(self) -> Tensor:
        """Sum over the pairs of rows of different groups of w_i w_j (S_i - S_j)^2, at each node, (R, Q).

        With V_g = sum_{h != g} W_h it is sum_g V_g scatter_g + sum_{g < h} W_g W_h (m_g - m_h)^2.
        """
        within = torch.einsum("rqg,rg->rq", self.scatter, _others(self.weight))
        between = self.mean[..., None] - self.mean[..., None, :]
        return within + torch.einsum("rqgh,rg,rh->rq", between.square(), self.weight, self.weight) / 2


def pair_weight(weight: Tensor) -> Tensor:
    """Sum of w_i w_j over the pairs of rows of different groups, from the groups' weights (R, G): (R,)."""
    return (weight * _others(weight)).sum(-1) / 2


@dataclass(frozen=True)
class Grid(Batched):
    """Where the squared differences are summed."""

    log_time: Tensor  # nodes in log model time, shape (R, Q)
    measure: Tensor  # their weights >= 0, in original time units, shape (R, Q)


@dataclass(frozen=True)
class CurveRows(Batched):
    """Rows whose survival curves are compared, by the parameters of these curves."""

    family: HazardFamily  # of the leaves, constants for R problems
    member: Tensor  # w_i where row i belongs to group g, else 0, shape (R, G, M)
    linear: Tensor  # linear predictors at the L' leaves a curve is made of, shape (R, L', M)
    shape: Tensor  # their shape parameters, shape (R, L', M or 1, m)
    # weights of the leaves, shape (R, L', M); None if L' = 1, one leaf per row
    probability: Tensor | None = None

    def curves(self, log_time: Tensor) -> Tensor:
        """S at log times (R, Q): shape (R, Q, M)."""
        shape = self.shape[:, :, None]
        curves = self.family.survival(log_time[:, None, :, None], self.linear[:, :, None, :], shape)
        if self.probability is None:
            return curves.squeeze(1)
        return torch.einsum("rlm,rlqm->rqm", self.probability, curves)

    def chunks(self, n_nodes: int) -> Iterator[CurveRows]:
        """Consecutive rows, few enough at a time for the memory budget."""
        n_problems, n_leaves, n_rows = self.linear.shape
        size = at_once(n_problems * n_leaves * n_nodes, CHUNK_ELEMENTS)
        for begin in range(0, n_rows, size):
            yield self.take(slice(begin, begin + size))

    def take(self, rows: slice) -> CurveRows:
        """Some of the rows, the same positions in every problem."""
        return replace(
            self,
            member=self.member[..., rows],
            linear=self.linear[..., rows],
            shape=self.shape if self.shape.shape[2] == 1 else self.shape[:, :, rows],
            probability=None if self.probability is None else self.probability[..., rows],
        )

    @torch.no_grad()
    def centre(self, log_time: Tensor) -> Tensor:
        """Mean curve of some rows, evenly chosen, shape (R, Q)."""
        n_rows = self.linear.shape[-1]
        step = max(1, -(-n_rows // _CENTRE_ROWS))
        return self.take(slice(0, n_rows, step)).curves(log_time).mean(-1)

    def moments(self, grid: Grid) -> CurveMoments:
        """Moments of the curves by group, chunk by chunk: only the curves of one are in memory.

        Chunks of many rows are computed once more for their gradient.
        """
        centre = self.centre(grid.log_time)
        transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
        keep = (
            not torch.is_grad_enabled()
            or transformed
            or self.linear.numel() * grid.log_time.shape[1] <= KEPT_ELEMENTS
        )
        sums = [
            _sums(part, grid.log_time, centre)
            if keep
            else checkpoint(_sums, part, grid.log_time, centre, use_reentrant=False)
            for part in self.chunks(grid.log_time.shape[1])
        ]
        first, second = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
        weight = self.member.sum(-1)
        mean = first / _or_one(weight)[:, None, :]
        return CurveMoments(centre, weight, mean, (second - first * mean).clamp(min=0))


def _sums(rows: CurveRows, log_time: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """First and second sums by group, (R, Q, G), of curves minus the centre."""
    deviation = rows.curves(log_time) - centre[..., None]
    return deviation @ rows.member.mT, deviation.square() @ rows.member.mT


def pair_sum(rows: CurveRows, grid: Grid, frozen: CurveMoments | None = None) -> Tensor:
    """Integral over the grid of sum_{i, j of different groups} w_i w_j (S_i(t) - S_j(t))^2, (R,), >= 0.

    Each pair counts once; ``frozen`` holds the moments of further rows, constants.
    """
    moments = rows.moments(grid)
    moments = moments if frozen is None else moments.merge(frozen)
    return (grid.measure * moments.pair_sums()).sum(-1)


def _others(values: Tensor) -> Tensor:
    """Sum of the values of the other groups, (..., G)."""
    n_groups = values.shape[-1]
    return values @ (1 - torch.eye(n_groups, device=values.device, dtype=values.dtype))


def _or_one(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, torch.ones_like(value))
