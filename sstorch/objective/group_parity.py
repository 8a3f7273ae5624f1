"""The squared difference between the survival curves of groups, as a penalty on gates and leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree, Topology
from sstorch.nn.routing import log_path_probability, most_probable_leaf, visits
from sstorch.objective.curve_moments import CurveMoments, CurveRows, Grid, pair_sum, pair_weight
from sstorch.objective.penalties import GateTerm, LeafTerm, RowPenalty
from sstorch.objective.sample import Sample

Pairs = Literal["mean", "sum"]
Gates = Literal["frozen", "relaxed"]
FloatArray = npt.NDArray[np.float64]


class GroupParity(RowPenalty):
    """rho times the squared difference between the survival curves of groups.

    :class:`~sstorch.objective.fairness.L2Parity` says what is meant and makes it.

    A problem whose rows are all of one group has no pair and the value zero.

    Args:
        rho: one value per problem, shape (R,).
        grid: nodes of R problems.
        pairs: see :class:`~sstorch.objective.fairness.L2Parity`.
        gates: see :class:`~sstorch.objective.fairness.L2Parity`.
    """

    log_time: Tensor
    measure: Tensor

    def __init__(self, rho: Tensor, grid: Grid, pairs: Pairs = "mean", gates: Gates = "frozen") -> None:
        super().__init__(rho.expand(len(grid.measure)))
        self.register_buffer("log_time", grid.log_time)
        self.register_buffer("measure", grid.measure)
        self.pairs, self.trains_gates = pairs, gates == "relaxed"

    def select(self, problems: Tensor | slice) -> GroupParity:
        """See :meth:`Penalty.select`."""
        if isinstance(problems, Tensor):
            problems = problems.to(self.coefficient.device)
        gates: Gates = "relaxed" if self.trains_gates else "frozen"
        return GroupParity(self.coefficient[problems], self._grid().select(problems), self.pairs, gates)

    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        """See :meth:`RowPenalty.forward`."""
        rows = (mixed_rows if relaxed else routed_rows)(gates, leaves, family, sample)
        factor = self.at(rows.linear) * self._per_pair(rows.member.sum(-1))
        return factor * pair_sum(rows, self._grid(rows.linear))

    def leaf_term(self, tree: SoftTree, sample: Sample, node: int) -> LeafParity:
        """See :meth:`RowPenalty.leaf_term`: rows outside I_s enter as frozen sums."""
        with torch.no_grad():
            leaf = tree.apply_leaf(sample.x)
            inside = visits(tree.topology, leaf, node)
            own = sample.restrict(inside & counted(sample))
            # Gates are frozen, and so is the leaf of each row.
            first = tree.topology.leaves_under(node)[0] - 2**tree.topology.depth
            position = tree.apply_leaf(own.x) - first
            position = torch.where(own.weight > 0, position, torch.zeros_like(position))
            everyone = routed_rows(*_parts(tree), sample)
            grid = self._grid(everyone.linear)
            frozen = None
            if node > 1:
                outside = everyone.member * ~inside[:, None, :]
                frozen = CurveRows(everyone.family, outside, everyone.linear, everyone.shape).moments(grid)
            factor = self._step_factor(everyone.member, sample.weight, sample.weight * inside)
            return LeafParity(own, position[:, None, :], membership(own), grid, frozen, factor)

    def gate_term(self, tree: SoftTree, sample: Sample, node: int) -> GateParity:
        """See :meth:`RowPenalty.gate_term`: the gates on all paths count, those that are frozen too."""
        with torch.no_grad():
            inside = visits(tree.topology, tree.apply_leaf(sample.x), node)
            own = sample.restrict(counted(sample))
            rows = mixed_rows(*_parts(tree), own)
            factor = self._step_factor(rows.member, sample.weight, sample.weight * inside)
            return GateParity(own, rows, self._grid(rows.linear), factor)

    def _step_factor(self, member: Tensor, weight: Tensor, inside: Tensor) -> Tensor:
        """What a step multiplies the sum over pairs by, shape (R,).

        The loss of a step is a mean over I_s: N / |I_s| times what its rows give in the full objective.
        """
        own = inside.sum(-1)
        scale = torch.where(own > 0, weight.sum(-1) / own, torch.zeros_like(own))
        return self.at(weight) * self._per_pair(member.sum(-1)) * scale

    def _grid(self, like: Tensor | None = None) -> Grid:
        if like is None:
            return Grid(self.log_time, self.measure)
        return Grid(self.log_time.to(like), self.measure.to(like))

    def _per_pair(self, weight: Tensor) -> Tensor:
        """What the sum over pairs is multiplied by, given the weights of the groups (K, G)."""
        if self.pairs == "sum":
            return torch.ones_like(weight[:, 0])
        pairs = pair_weight(weight)
        return torch.where(pairs > 0, 1 / pairs, torch.zeros_like(pairs))


@dataclass(frozen=True)
class LeafParity(LeafTerm):
    """The penalty as a function of the leaves under a node, gates frozen.

    Attributes:
        sample: rows I_s of each problem.
        position: the leaf of each row among these, shape (K, 1, M).
        member: row weights by group, shape (K, G, M).
        grid: nodes of the integral.
        frozen: moments of the rows outside I_s; None if there are none.
        factor: of the sum over pairs, shape (K,).
    """

    sample: Sample
    position: Tensor
    member: Tensor
    grid: Grid
    frozen: CurveMoments | None
    factor: Tensor

    def value(self, leaves: LeafParameters, family: HazardFamily) -> Tensor:
        """See :meth:`LeafTerm.value`."""
        rows = _rows_of_leaf(leaves, family, self.sample, self.member, self.position)
        return self.factor * pair_sum(rows, self.grid, self.frozen)

    def select(self, problems: Tensor | slice) -> LeafParity:
        """See :meth:`LeafTerm.select`."""
        return LeafParity(
            self.sample.select(problems),
            self.position[problems],
            self.member[problems],
            self.grid.select(problems),
            None if self.frozen is None else self.frozen.select(problems),
            self.factor[problems],
        )


@dataclass(frozen=True)
class GateParity(GateTerm):
    """The relaxed penalty as a function of the gates, leaves frozen.

    Attributes:
        sample: all rows of each problem.
        rows: their leaves' parameters.
        grid: nodes of the integral.
        factor: of the sum over pairs, shape (K,).
    """

    sample: Sample
    rows: CurveRows
    grid: Grid
    factor: Tensor

    def value(self, gates: GateParameters) -> Tensor:
        """See :meth:`GateTerm.value`."""
        probability = _probability(gates, self.sample)
        return self.factor * pair_sum(replace(self.rows, probability=probability), self.grid)

    def select(self, problems: Tensor | slice) -> GateParity:
        """See :meth:`LeafTerm.select`."""
        return GateParity(
            self.sample.select(problems),
            self.rows.select(problems),
            self.grid.select(problems),
            self.factor[problems],
        )


def membership(sample: Sample) -> Tensor:
    """Row weights by group, shape (R, G, M); rows of no group have none.

    Raises:
        ConfigError: the sample does not know its groups.
    """
    if sample.group is None:
        raise ConfigError("a parity penalty needs the group of every row: give the sample its groups")
    positions = torch.arange(sample.n_groups, device=sample.group.device)
    weight = sample.weight if sample.merged_weight is None else sample.merged_weight
    return (sample.group[:, None, :] == positions[:, None]) * weight[:, None, :]


def counted(sample: Sample) -> Tensor:
    """Rows that carry weight in comparisons of groups, boolean (R, M)."""
    return (sample.weight if sample.merged_weight is None else sample.merged_weight) > 0


def merge_equal_rows(features: FloatArray, group: npt.NDArray[np.int64], weight: FloatArray) -> FloatArray:
    """The weights of the rows of one problem, see :attr:`Sample.merged_weight`.

    Args:
        features: shape (M, p).
        group: shape (M,).
        weight: shape (M,), >= 0.

    Returns:
        shape (M,), the same sum in each group.
    """
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
        leaf = most_probable_leaf(_topology(leaves), gates.logits(sample.x))
    return _rows_of_leaf(leaves, family, sample, membership(sample), leaf[:, None, :])


def mixed_rows(
    gates: GateParameters, leaves: LeafParameters, family: HazardFamily, sample: Sample
) -> CurveRows:
    """Averages of the leaves' curves, weighted by their probabilities."""
    probability, linear = _probability(gates, sample), leaves.linear_predictor(sample.x)
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


def _probability(gates: GateParameters, sample: Sample) -> Tensor:
    """Probability of each leaf, (K, L, M)."""
    logits = gates.logits(sample.x)
    topology = Topology((logits.shape[1] + 1).bit_length() - 1)
    return log_path_probability(topology, logits).exp()


def _parts(tree: SoftTree) -> tuple[GateParameters, LeafParameters, HazardFamily]:
    return tree.gate_parameters(), tree.leaf_parameters(), tree.family


def _topology(leaves: LeafParameters) -> Topology:
    return Topology(leaves.intercept.shape[-1].bit_length() - 1)
