"""Squared differences between the survival curves of groups, from moments: never pair by pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sstorch.batched import Batched
from sstorch.memory import at_once
from sstorch.nn import HazardFamily
from sstorch.nn.functional import plain_operations, with_gradients

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
        """Moments of the rows of both, about the centre of this one.

        References:
            Chan, Golub and LeVeque (1983), The American Statistician 37, 242-247.
        """
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

        With the other groups' weight V_g = sum_{h != g} W_h this is
        sum_g V_g scatter_g + sum_{g < h} W_g W_h (m_g - m_h)^2: no term is negative.
        """
        within = torch.einsum("rqg,rg->rq", self.scatter, _others(self.weight))
        between = self.mean[..., None] - self.mean[..., None, :]
        return within + torch.einsum("rqgh,rg,rh->rq", between.square(), self.weight, self.weight) / 2

    def pulls(self) -> tuple[Tensor, Tensor]:
        """V_g (R, G) and U_g = sum_{h != g} W_h m_h (R, Q, G): d/dS_i is 2 w_i (V_g (S_i - centre) - U_g)."""
        return _others(self.weight), _others(self.weight[:, None, :] * self.mean)


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

    def chunks(self, n_nodes: int) -> Iterator[tuple[slice, CurveRows]]:
        """Consecutive rows, few enough at a time for the memory budget."""
        n_problems, n_leaves, n_rows = self.linear.shape
        size = at_once(n_problems * n_leaves * n_nodes, CHUNK_ELEMENTS)
        for begin in range(0, n_rows, size):
            yield slice(begin, begin + size), self.take(slice(begin, begin + size))

    def take(self, rows: slice | Tensor) -> CurveRows:
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
        total, count = torch.zeros_like(log_time), 0
        some = self.take(torch.arange(0, n_rows, step, device=log_time.device))
        for _, part in some.chunks(log_time.shape[1]):
            curves = part.curves(log_time)
            total, count = total + curves.sum(-1), count + curves.shape[-1]
        return total / count

    @torch.no_grad()
    def moments(self, grid: Grid) -> CurveMoments:
        """Moments of the curves by group, in one pass."""
        centre = self.centre(grid.log_time)
        sums = _Sums(self.member)
        for _, part in self.chunks(grid.log_time.shape[1]):
            sums.add(part.curves(grid.log_time) - centre[..., None], part.member)
        return sums.moments(centre)


class _Sums:
    """First and second sums by group, added up chunk by chunk."""

    def __init__(self, member: Tensor) -> None:
        self.weight = member.sum(-1)
        self.first: Tensor | float = 0.0
        self.second: Tensor | float = 0.0

    def add(self, deviation: Tensor, member: Tensor) -> None:
        """Count rows with curves minus the centre (R, Q, m)."""
        self.first = self.first + deviation @ member.mT
        self.second = self.second + deviation.square() @ member.mT

    def moments(self, centre: Tensor) -> CurveMoments:
        first, second = torch.as_tensor(self.first), torch.as_tensor(self.second)
        mean = first / _or_one(self.weight)[:, None, :]
        return CurveMoments(centre, self.weight, mean, (second - first * mean).clamp(min=0))


_NAMES = ("linear", "shape", "probability")


def pair_sum(rows: CurveRows, grid: Grid, frozen: CurveMoments | None = None) -> Tensor:
    """Integral over the grid of sum_{i, j of different groups} w_i w_j (S_i(t) - S_j(t))^2, (R,), >= 0.

    Each pair counts once; ``frozen`` holds the moments of further rows, constants. Differentiable; first
    derivatives in ``linear``, ``shape`` and ``probability`` alone take O(M Q L') time and the memory of a
    chunk and of the arguments.
    """
    parts = {name: getattr(rows, name) for name in _NAMES if getattr(rows, name) is not None}
    recording = torch.is_grad_enabled()
    needed = [name for name, part in parts.items() if recording and part.requires_grad and part.numel()]

    def plain(*values: Tensor) -> Tensor:
        """The same by plain operations, as a function of what is needed."""
        changed: dict[str, Any] = dict(zip(needed, values, strict=True))
        own = replace(rows, **changed)
        centre, sums = own.centre(grid.log_time), _Sums(own.member)
        sums.add(own.curves(grid.log_time) - centre[..., None], own.member)
        moments = sums.moments(centre)
        moments = moments if frozen is None else moments.merge(frozen)
        return (grid.measure * moments.pair_sums()).sum(-1)

    inputs = [parts[name] for name in needed]
    if plain_operations(rows.member, *vars(grid).values(), *rows.family.parameters()):
        return plain(*inputs)
    with torch.no_grad():
        value, gradients = _value_and_gradients(rows, grid, frozen, needed)
    return with_gradients(plain, inputs, value, gradients) if gradients else value


def _value_and_gradients(
    rows: CurveRows, grid: Grid, frozen: CurveMoments | None, needed: list[str]
) -> tuple[Tensor, list[Tensor]]:
    """The integral and its gradients in what is needed: one pass over few rows, two over many."""
    chunks = list(rows.chunks(grid.log_time.shape[1]))
    centre, sums = rows.centre(grid.log_time), _Sums(rows.member)
    keep = bool(needed) and rows.linear.numel() * grid.log_time.shape[1] <= KEPT_ELEMENTS
    kept = []
    for _, part in chunks:
        recorded = _recorded(part, needed if keep else [], grid)
        if keep:
            kept.append(recorded)
        sums.add(recorded[1].detach() - centre[..., None], part.member)
    moments = sums.moments(centre)
    moments = moments if frozen is None else moments.merge(frozen)
    gradients = {name: torch.zeros_like(getattr(rows, name)) for name in needed}
    for number, (place, chunk) in enumerate(chunks if needed else []):
        part, curves = kept[number] if keep else _recorded(chunk, needed, grid)
        slope = _slope(curves.detach(), part.member, moments, grid.measure)
        of_part = torch.autograd.grad(curves, [getattr(part, name) for name in needed], slope)
        for name, gradient in zip(needed, of_part, strict=True):
            _add(gradients[name], name, place, gradient)
    return (grid.measure * moments.pair_sums()).sum(-1), list(gradients.values())


def _recorded(part: CurveRows, needed: list[str], grid: Grid) -> tuple[CurveRows, Tensor]:
    """The rows with fresh tensors that need gradients, and their curves, recorded if there are such."""
    with torch.set_grad_enabled(bool(needed)):
        fresh = {name: getattr(part, name).detach().requires_grad_() for name in needed}
        part = replace(part, **fresh)
        return part, part.curves(grid.log_time)


def _slope(curves: Tensor, member: Tensor, moments: CurveMoments, measure: Tensor) -> Tensor:
    """Derivative of the integral by each curve at each node, shape (R, Q, m)."""
    others, pull = moments.pulls()
    other_weight = torch.einsum("rg,rgm->rm", others, member)
    twice = (2 * measure)[..., None]
    slope = (curves - moments.centre[..., None]).mul_(other_weight[:, None, :]).mul_(twice)
    return torch.baddbmm(slope, pull * twice, member, alpha=-1)


def _add(total: Tensor, name: str, place: slice, gradient: Tensor) -> None:
    if name != "shape":
        total[..., place] += gradient
    elif total.shape[2] == 1:
        total += gradient
    else:
        total[:, :, place] += gradient


def _others(values: Tensor) -> Tensor:
    """Sum of the values of the other groups, (..., G)."""
    n_groups = values.shape[-1]
    return values @ (1 - torch.eye(n_groups, device=values.device, dtype=values.dtype))


def _or_one(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, torch.ones_like(value))
