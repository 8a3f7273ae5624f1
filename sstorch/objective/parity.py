"""Fairness: differences between the survival curves of groups, as a penalty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import roots_legendre
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.batched import Batched
from sstorch.checks import check_choice, check_integer
from sstorch.exceptions import ConfigError
from sstorch.memory import at_once
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree, Topology
from sstorch.nn.routing import most_probable_leaf
from sstorch.objective.penalties import RowPenalty, RowTerm, weight_in_step
from sstorch.objective.rows import Sample

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
        """Sum over the pairs of rows of different groups of w_i w_j (S_i - S_j)^2, at each node, (R, Q)."""
        # With V_g = sum_{h != g} W_h it is sum_g V_g scatter_g + sum_{g < h} W_g W_h (m_g - m_h)^2.
        within = torch.einsum("rqg,rg->rq", self.scatter, _others(self.weight))
        between = self.mean[..., None] - self.mean[..., None, :]
        return within + torch.einsum("rqgh,rg,rh->rq", between.square(), self.weight, self.weight) / 2


# Where the squared differences are summed: nodes in log model time, and their weights >= 0, in original time
# units, shape (R, Q) each.
Grid = tuple[Tensor, Tensor]


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

    def moments(self, log_time: Tensor) -> CurveMoments:
        """Moments of the curves by group, chunk by chunk: only the curves of one are in memory."""
        # Chunks of many rows are computed once more for their gradient.
        n_nodes, step = log_time.shape[1], -(-self.linear.shape[-1] // _CENTRE_ROWS)
        with torch.no_grad():
            centre = self.take(slice(None, None, max(1, step))).curves(log_time).mean(-1)
        keep = self.linear.numel() * n_nodes <= KEPT_ELEMENTS or not torch.is_grad_enabled()
        sums = [
            _sums(part, log_time, centre)
            if keep
            else checkpoint(_sums, part, log_time, centre, use_reentrant=False)
            for part in self.chunks(n_nodes)
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
    """Integral over the grid of sum_{i, j of different groups} w_i w_j (S_i(t) - S_j(t))^2, (R,), >= 0."""
    # Each pair counts once; ``frozen`` holds the moments of further rows, constants.
    log_time, measure = grid
    moments = rows.moments(log_time)
    moments = moments if frozen is None else moments.merge(frozen)
    return (measure * moments.pair_sums()).sum(-1)


def _others(values: Tensor) -> Tensor:
    """Sum of the values of the other groups, (..., G)."""
    n_groups = values.shape[-1]
    return values @ (1 - torch.eye(n_groups, device=values.device, dtype=values.dtype))


def _or_one(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, torch.ones_like(value))


Gates = Literal["frozen", "relaxed"]


class GroupParity(RowPenalty):
    """rho times the squared difference between curves of groups, see :class:`L2Parity`; 0 for one group."""

    per_problem = ("coefficient", "log_time", "measure")

    log_time: Tensor
    measure: Tensor

    def __init__(self, rho: Tensor, grid: Grid, gates: Gates = "frozen") -> None:
        super().__init__(rho.expand(len(grid[0])))
        for name, values in zip(("log_time", "measure"), grid, strict=True):
            self.register_buffer(name, values)
        self.trains_gates = gates == "relaxed"

    @override
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        rows = (mixed_rows if relaxed else routed_rows)(gates, leaves, family, sample)
        factor = self.at(rows.linear) * self._per_pair(rows.member.sum(-1))
        return factor * pair_sum(rows, self._grid(rows.linear))

    @override
    def term(self, tree: SoftTree, sample: Sample, node: int, of_gates: bool) -> RowTerm:
        """See :meth:`RowPenalty.term`: rows outside I_s enter as frozen sums where leaves are trained."""
        gates, leaves, family = tree.gate_parameters(), tree.leaf_parameters(), tree.family
        with torch.no_grad():
            member, inside = membership(sample), tree.visits(sample.x, node)
            factor = weight_in_step(sample.weight, sample.weight * inside)
            factor = self.at(factor) * self._per_pair(member.sum(-1)) * factor
            grid = self._grid(member)
            if of_gates:
                rows = sample.restrict(counted(sample))
                return _ParityTerm(rows, mixed_rows(gates, leaves, family, rows), grid, factor)
            rows, frozen = sample.restrict(inside & counted(sample)), None
            if node > 1:
                everyone = routed_rows(gates, leaves, family, sample)
                frozen = replace(everyone, member=member * ~inside[:, None]).moments(grid[0])
            leaf = tree.apply_leaf(rows.x)[:, None]  # which frozen gates do not change
            curves = _rows_of_leaf(leaves, family, rows, membership(rows), leaf)
            return _ParityTerm(rows, curves, grid, factor, leaf, frozen)

    def _grid(self, like: Tensor) -> Grid:
        return self.log_time.to(like), self.measure.to(like)

    def _per_pair(self, weight: Tensor) -> Tensor:
        """One over the sum of w_i w_j over pairs of rows of different groups, by their weights (K, G)."""
        pairs = (weight * _others(weight)).sum(-1) / 2
        return torch.where(pairs > 0, 1 / pairs, 0.0)


@dataclass(frozen=True)
class _ParityTerm(RowTerm):
    """The penalty as a function of the leaves, gates frozen, or the relaxed one of the gates."""

    sample: Sample
    curves: CurveRows  # of the sample, where the step began
    grid: Grid
    factor: Tensor  # of the sum over pairs, shape (K,)
    leaf: Tensor | None = None  # of each row, (K, 1, M), where leaves are trained
    frozen: CurveMoments | None = None  # of the rows outside I_s

    @override
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        if isinstance(parameters, GateParameters):
            rows = replace(self.curves, probability=parameters.leaf_probability(self.sample.x))
        else:
            assert self.leaf is not None
            family, member = self.curves.family, self.curves.member
            rows = _rows_of_leaf(parameters, family, self.sample, member, self.leaf)
        return self.factor * pair_sum(rows, self.grid, self.frozen)


def membership(sample: Sample) -> Tensor:
    """Row weights by group, shape (R, G, M); rows of no group have none."""
    if sample.group is None:
        raise ConfigError("a parity penalty needs the group of every row: give the sample its groups")
    positions = torch.arange(sample.n_groups, device=sample.group.device)
    weight = sample.weight if sample.merged_weight is None else sample.merged_weight
    return (sample.group[:, None, :] == positions[:, None]) * weight[:, None, :]


def counted(sample: Sample) -> Tensor:
    """Rows that carry weight in comparisons of groups, boolean (R, M)."""
    return (sample.weight if sample.merged_weight is None else sample.merged_weight) > 0


def merge_equal_rows(features: FloatArray, group: npt.NDArray[np.int64], weight: FloatArray) -> FloatArray:
    """:attr:`Sample.merged_weight` of one problem (M,) from its features (M, p), groups and weights (M,)."""
    merged = np.zeros_like(weight)
    rows = np.flatnonzero(weight > 0)
    keys = np.column_stack([features[rows], group[rows]])
    _, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    np.add.at(merged, rows[first][number.reshape(-1)], weight[rows])
    return merged


def routed_rows(
    gates: GateParameters, leaves: LeafParameters, family: HazardFamily, sample: Sample
) -> CurveRows:
    """Curves of the leaf at the end of each row's most probable path."""
    with torch.no_grad():
        logits = gates.logits(sample.x)
        leaf = most_probable_leaf(Topology(logits.shape[1].bit_length()), logits)
    return _rows_of_leaf(leaves, family, sample, membership(sample), leaf[:, None, :])


def mixed_rows(
    gates: GateParameters, leaves: LeafParameters, family: HazardFamily, sample: Sample
) -> CurveRows:
    """Averages of the leaves' curves, weighted by their probabilities."""
    probability, linear = gates.leaf_probability(sample.x), leaves.linear_predictor(sample.x)
    # A leaf that a row does not reach may overflow there.
    neutral = family.neutral(torch.zeros_like(linear))
    linear = torch.where(probability.detach() > 0, linear, neutral)
    return CurveRows(family, membership(sample), linear, leaves.shape_parameters(sample.x), probability)


def _rows_of_leaf(
    leaves: LeafParameters, family: HazardFamily, sample: Sample, member: Tensor, position: Tensor
) -> CurveRows:
    linear = leaves.linear_predictor(sample.x).gather(1, position)
    shape = leaves.shape_parameters(sample.x)
    shape = shape.expand(*shape.shape[:2], position.shape[-1], shape.shape[-1])
    shape = shape.gather(1, position[..., None].expand(-1, -1, -1, shape.shape[-1]))
    return CurveRows(family, member, linear, shape)


# Nodes of a part of the quadrature between two knots, at least.
_PANEL_NODES = 12


@dataclass(frozen=True)
class L2Parity:
    """Settings of the L2 penalty between the survival curves of sensitive groups.

    The penalty is rho times the integral of (S_i(t) - S_j(t))^2 between the smallest and largest observed
    training time, in the time unit of the data, averaged over pairs i, j of rows from different groups,
    weighted by the product of their weights: rho = 10 is 10 / (N_M N_F) times the sum over pairs in the
    paper. S_i is the curve of the leaf on the most probable path of row i.

    Attributes:
        gates: ``"frozen"``: the penalty is used only in the training of leaves, with frozen gates, as in the
            paper. ``"relaxed"``: also in the training of gates, by a relaxation with S_i the average curve of
            the leaves weighted by their probabilities (the penalty itself is piecewise constant in the
            gates).
        n_nodes: number of Gauss-Legendre nodes in log time; more if the quadrature is split at knots or
            breakpoints of the leaves.

    Raises:
        ConfigError: a value is unknown or out of range.

    References:
        Consolo, Amaldi and Carrizosa, group fairness of soft survival trees.
    """

    gates: Gates = "frozen"
    n_nodes: int = 64

    def __post_init__(self) -> None:
        check_choice(self.gates, "fairness gates", get_args(Gates))
        check_integer("fairness n_nodes", self.n_nodes, least=2)

    def nodes(self, time: FloatArray, corners: Sequence[float] = ()) -> tuple[FloatArray, FloatArray]:
        """Nodes and weights (Q,), original units, of training times; the quadrature is split at corners."""
        first, last = float(time.min()), float(time.max())
        limits = np.array([first, *sorted({corner for corner in corners if first < corner < last}), last])
        lengths = np.diff(np.log(limits))
        least = _PANEL_NODES if len(lengths) > 1 else self.n_nodes
        shares = lengths / lengths.sum() if len(lengths) > 1 else np.ones(1)
        counts = [max(least, round(self.n_nodes * share)) for share in shares]
        panels = [log_time_quadrature(*each) for each in zip(limits[:-1], limits[1:], counts, strict=True)]
        nodes, weights = zip(*panels, strict=True)
        return np.concatenate(nodes), np.concatenate(weights)

    def penalty(
        self,
        rho: Tensor,
        times: Sequence[FloatArray],
        log_scale: FloatArray,
        problems_of: Sequence[int],
        corners: Sequence[Sequence[float]] | None = None,
    ) -> GroupParity:
        """The penalty of R problems, rho (R,), so many of each split.

        Of each split, observed training times in original units, the log of the unit of model time, and times
        at which the curves are not smooth.
        """
        nodes = [self.nodes(time, at) for time, at in zip(times, corners or [()] * len(times), strict=True)]
        width = max(len(own) for own, _ in nodes)
        # Shorter lists of nodes repeat their last one at weight zero.
        log_time = np.log([np.pad(own, (0, width - len(own)), "edge") for own, _ in nodes])
        measure = np.stack([np.pad(weight, (0, width - len(weight))) for _, weight in nodes])
        split = np.repeat(np.arange(len(times)), problems_of)
        parts = (log_time - np.asarray(log_scale)[:, None])[split], measure[split]
        return GroupParity(rho, (torch.as_tensor(parts[0]), torch.as_tensor(parts[1])), self.gates)


_legendre = lru_cache(maxsize=32)(roots_legendre)


def log_time_quadrature(first: float, last: float, n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes (Q,) in log time and weights of integrals over time, between limits > 0."""
    # Survival curves of the families here are smooth in log time; in time itself they may have a singularity
    # at zero, next to the first node, and the same number of nodes gives up to six digits less.
    x, weight = _legendre(n_nodes)
    half = (np.log(last) - np.log(first)) / 2
    times = np.exp((np.log(first) + np.log(last)) / 2 + half * x)
    return times, half * weight * times


FAIRNESS = {"l2": L2Parity(), "l2_relaxed": L2Parity(gates="relaxed")}
