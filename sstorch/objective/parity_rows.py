"""Whose curves a parity penalty compares, and what it adds to the steps of the decomposition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective.curve_moments import CurveMoments, CurveRows, Grid, pair_sum
from sstorch.objective.penalties import StepTerm
from sstorch.objective.sample import Sample

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeafParity(StepTerm):
    """The penalty as a function of the leaves under a node, gates frozen.

    Attributes:
        nodes: the leaves.
        sample: rows I_s of each problem.
        position: the leaf of each row among ``nodes``, shape (K, 1, M).
        member: row weights by group, shape (K, G, M).
        grid: nodes of the integral.
        frozen: moments of the rows outside I_s; None if there are none.
        factor: of the sum over pairs, shape (K,).
    """

    nodes: tuple[int, ...]
    sample: Sample
    position: Tensor
    member: Tensor
    grid: Grid
    frozen: CurveMoments | None
    factor: Tensor

    def value(self, tree: SoftTree, problems: Tensor | None) -> Tensor:
        """See :meth:`StepTerm.value`."""
        rows = _rows_of_leaf(tree, self.sample, self.member, self.position, self.nodes, problems)
        return self.factor * pair_sum(rows, self.grid, self.frozen)

    def select(self, problems: Tensor) -> LeafParity:
        """See :meth:`StepTerm.select`."""
        return LeafParity(
            self.nodes,
            self.sample.select(problems),
            self.position[problems],
            self.member[problems],
            self.grid.select(problems),
            None if self.frozen is None else self.frozen.select(problems),
            self.factor[problems],
        )


@dataclass(frozen=True)
class BranchParity(StepTerm):
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

    def value(self, tree: SoftTree, problems: Tensor | None) -> Tensor:
        """See :meth:`StepTerm.value`."""
        probability = tree.log_leaf_probability(self.sample.x, problems=problems).exp()
        return self.factor * pair_sum(replace(self.rows, probability=probability), self.grid)

    def select(self, problems: Tensor) -> BranchParity:
        """See :meth:`StepTerm.select`."""
        return BranchParity(
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
    tree: SoftTree, sample: Sample, problems: Tensor | None = None, leaf: Tensor | None = None
) -> CurveRows:
    """Curves of the leaf at the end of each row's most probable path."""
    if leaf is None:
        with torch.no_grad():
            trees = tree if problems is None else tree.select(problems)
            leaf = trees.apply_leaf(sample.x)
    nodes = tuple(tree.topology.leaves)
    return _rows_of_leaf(tree, sample, membership(sample), leaf[:, None, :], nodes, problems)


def mixed_rows(tree: SoftTree, sample: Sample, problems: Tensor | None = None) -> CurveRows:
    """Averages of the leaves' curves, weighted by their probabilities."""
    probability = tree.log_leaf_probability(sample.x, problems=problems).exp()
    linear = tree.linear_predictor(sample.x, problems=problems)
    family = tree.family.select(problems)
    # A leaf that a row does not reach may overflow there.
    neutral = family.neutral(torch.zeros_like(linear))
    linear = torch.where(probability.detach() > 0, linear, neutral)
    shape = tree.shape_parameters(sample.x, problems=problems)
    return CurveRows(family, membership(sample), linear, shape, probability)


def _rows_of_leaf(
    tree: SoftTree,
    sample: Sample,
    member: Tensor,
    position: Tensor,
    nodes: tuple[int, ...],
    problems: Tensor | None,
) -> CurveRows:
    linear = tree.linear_predictor(sample.x, nodes, problems).gather(1, position)
    shape = tree.shape_parameters(sample.x, nodes, problems)
    shape = shape.expand(*shape.shape[:2], position.shape[-1], shape.shape[-1])
    shape = shape.gather(1, position[..., None].expand(-1, -1, -1, shape.shape[-1]))
    return CurveRows(tree.family.select(problems), member, linear, shape)
