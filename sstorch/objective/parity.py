"""Fairness: differences between the survival curves of groups, as a penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import roots_legendre
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_integer
from sstorch.exceptions import ConfigError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree, Topology
from sstorch.nn.routing import most_probable_leaf, visits
from sstorch.objective.curve_moments import CurveMoments, CurveRows, Grid, pair_sum, pair_weight
from sstorch.objective.row_penalties import RowPenalty, RowTerm, weight_in_step
from sstorch.objective.rows import Sample

Gates = Literal["frozen", "relaxed"]


class GroupParity(RowPenalty):
    """rho times the squared difference between curves of groups, see :class:`L2Parity`; 0 for one group."""

    per_problem = ("coefficient", "log_time", "measure")

    log_time: Tensor
    measure: Tensor

    def __init__(self, rho: Tensor, grid: Grid, gates: Gates = "frozen") -> None:
        super().__init__(rho.expand(len(grid.measure)))
        self.register_buffer("log_time", grid.log_time)
        self.register_buffer("measure", grid.measure)
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
        parts = tree.gate_parameters(), tree.leaf_parameters(), tree.family
        with torch.no_grad():
            member, inside = membership(sample), visits(tree.topology, tree.apply_leaf(sample.x), node)
            factor = weight_in_step(sample.weight, sample.weight * inside)
            factor = self.at(factor) * self._per_pair(member.sum(-1)) * factor
            grid = self._grid(member)
            if of_gates:
                rows = sample.restrict(counted(sample))
                return _GateParity(rows, mixed_rows(*parts, rows), grid, factor)
            rows, frozen = sample.restrict(inside & counted(sample)), None
            if node > 1:
                everyone = routed_rows(*parts, sample)
                frozen = replace(everyone, member=member * ~inside[:, None]).moments(grid)
            leaf = tree.apply_leaf(rows.x)[:, None]  # which frozen gates do not change
            return _LeafParity(rows, tree.family, leaf, membership(rows), grid, frozen, factor)

    def _grid(self, like: Tensor) -> Grid:
        return Grid(self.log_time.to(like), self.measure.to(like))

    def _per_pair(self, weight: Tensor) -> Tensor:
        """Factor of the sum over pairs, given the weights of the groups (K, G)."""
        pairs = pair_weight(weight)
        return torch.where(pairs > 0, 1 / pairs, 0.0)


@dataclass(frozen=True)
class _LeafParity(RowTerm):
    """The penalty as a function of the leaves, gates frozen."""

    sample: Sample  # rows I_s of each problem
    family: HazardFamily
    leaf: Tensor  # of each row, shape (K, 1, M)
    member: Tensor  # row weights by group, shape (K, G, M)
    grid: Grid
    frozen: CurveMoments | None  # of the rows outside I_s
    factor: Tensor  # of the sum over pairs, shape (K,)

    @override
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        assert isinstance(parameters, LeafParameters)
        rows = _rows_of_leaf(parameters, self.family, self.sample, self.member, self.leaf)
        return self.factor * pair_sum(rows, self.grid, self.frozen)


@dataclass(frozen=True)
class _GateParity(RowTerm):
    """The relaxed penalty as a function of the gates, leaves frozen."""

    sample: Sample
    rows: CurveRows
    grid: Grid
    factor: Tensor  # of the sum over pairs, shape (K,)

    @override
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        assert isinstance(parameters, GateParameters)
        rows = replace(self.rows, probability=parameters.leaf_probability(self.sample.x))
        return self.factor * pair_sum(rows, self.grid)


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
        return GroupParity(rho, Grid(*map(torch.as_tensor, parts)), self.gates)


_legendre = lru_cache(maxsize=32)(roots_legendre)


def log_time_quadrature(first: float, last: float, n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes (Q,) in log time and weights of integrals over time, between limits > 0.

    Survival curves of the families here are smooth in log time; in time itself they may have a singularity
    at zero, next to the first node, and the same number of nodes gives up to six digits less.
    """
    x, weight = _legendre(n_nodes)
    half = (np.log(last) - np.log(first)) / 2
    times = np.exp((np.log(first) + np.log(last)) / 2 + half * x)
    return times, half * weight * times


FAIRNESS = {"l2": L2Parity(), "l2_relaxed": L2Parity(gates="relaxed")}
