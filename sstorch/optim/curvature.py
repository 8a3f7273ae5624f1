"""Curvature of training steps, block by block: one a node. It scales the first direction of a minimisation.

Where a row's own second derivative is negative its size is taken.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import torch
from torch import Tensor

from sstorch.nn import DesignMatrix, HazardFamily, LeafParameters
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.closed_form import routing_slopes
from sstorch.objective.rows import problem_blocks
from sstorch.optim.linear_hazards import loss_derivatives

# The largest blocks that are worth their cost, of a node and of all leaves that a prior binds: beyond, only
# diagonals.
MAX_BLOCK, MAX_BOUND = 64, 1024


def gate_curvature(x: DesignMatrix, logits: Tensor, losses: Tensor) -> Tensor:
    """Curvature of gates by ``logits`` (K, B, M) and weighted ``losses`` (K, B + 1, M)."""
    return feature_blocks(x, (routing_slopes(logits, losses) * (1 - 2 * torch.sigmoid(logits))).abs_())


def leaf_curvature(
    family: HazardFamily, leaves: LeafParameters, sample: Sample, probability: Tensor
) -> Tensor:
    """Curvature (K, L, d, d) of the expected loss in leaves, weighted ``probability`` (K, L, M)."""
    count = 1 + leaves.shape.shape[-1]
    parts = []
    for some in problem_blocks(len(probability), count * probability[0].numel(), probability.device):
        hazard, parameters = family.select(some), leaves.select(some)
        rows, reach = sample.select(some), probability[some]
        linear, shape = parameters.linear_predictor(rows.x), parameters.shape_parameters(rows.x)
        pairs = loss_derivatives(hazard, rows, linear, shape, hazard.basis(rows.log_time))[2]
        weighted = {
            pair: torch.nan_to_num(torch.where(reach > 0, reach * second, 0.0), 0.0, 0.0, 0.0)
            for pair, second in pairs.items()
        }
        parts.append(
            _leaf_blocks(leaves.features(rows.x), weighted, count - 1, n_slopes=leaves.shape_slope.shape[-2])
        )
    return torch.cat(parts)


def _leaf_blocks(
    x: DesignMatrix, pairs: dict[tuple[int, int], Tensor], n_shape: int, n_slopes: int
) -> Tensor:
    """Blocks of leaves from second derivatives of rows, (K, L, M) for each pair of g and m shapes."""
    n_features, zero = x.shape[-1], torch.zeros_like(pairs[0, 0])
    size = (n_features + 1) + n_shape + n_slopes * n_features
    if size > MAX_BLOCK:
        first = [_squares(x, pairs[0, 0])]
        shapes = [_squares(x, pairs.get((k, k), zero)) for k in range(1, n_shape + 1)]
        first += [shape[..., -1:] for shape in shapes]
        return _diagonal(torch.cat(first + [shape[..., :-1] for shape in shapes] * (n_slopes > 0), dim=-1))
    parts = [[zero] * (n_shape + 1) for _ in range(n_shape + 1)]
    for j, k in combinations_with_replacement(range(n_shape + 1), 2):
        rows = pairs.get((j, k), zero)
        if n_slopes or k == 0:
            part = x.gram(rows)
        else:
            part = rows.sum(-1)[..., None, None] if j else x.pull_back(rows)[..., None]
        parts[j][k], parts[k][j] = part, part.mT
    whole = torch.cat([torch.cat(row, dim=-1) for row in parts], dim=-2)
    if not n_slopes:
        return whole
    # From slopes and constant of g, of shape 1, ... to the order of the leaf's parameters.
    places = torch.arange(whole.shape[-1], device=whole.device).reshape(n_shape + 1, -1)
    order = torch.cat([places[0], places[1:, -1], places[1:, :-1].flatten()])
    return whole[..., order, :][..., order]


def feature_blocks(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Moments of features and a one by weights (K, n, M): blocks (K, n, p + 1, p + 1), or their diagonals."""
    if x.shape[-1] + 1 <= MAX_BLOCK:
        return x.gram(weight)
    return _diagonal(_squares(x, weight))


def plus_diagonal(curvature: Tensor, values: Tensor) -> Tensor:
    """Blocks with values (K, n, b) added to their diagonals."""
    if curvature.shape[-1] == 1:
        return curvature + _diagonal(values)
    return curvature + torch.diag_embed(values)


def penalised_leaves(
    blocks: Tensor, penalties: TrainingObjective, leaves: LeafParameters, places: Tensor
) -> Tensor:
    """Blocks of leaves at some places with penalties; one of all that a prior binds, unless it is large."""
    diagonal = penalties.leaf_curvature(leaves)[:, places]
    n_leaves, size = diagonal.shape[1:]
    blocks = plus_diagonal(blocks, diagonal)
    if penalties.prior is None or n_leaves * size > MAX_BOUND:
        return blocks
    whole = penalties.prior.hessian(leaves)[:, places][..., places, :]
    whole.diagonal(dim1=1, dim2=3).diagonal(dim1=1, dim2=2).zero_()
    if blocks.shape[-1] != size:
        blocks = torch.diag_embed(blocks.reshape(len(blocks), n_leaves, size))
    for number in range(n_leaves):
        whole[:, number, :, number] += blocks[:, number]
    return whole.reshape(len(whole), 1, n_leaves * size, n_leaves * size)


def _squares(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Weighted sums of squared features and of ones, (K, n, p + 1)."""
    return DesignMatrix(x.to_dense().square(), x.counts, x.rows).pull_back(weight)


def _diagonal(values: Tensor) -> Tensor:
    """Blocks of size one, (K, n b, 1, 1), from diagonals (K, n, b)."""
    return values.flatten(1)[..., None, None]
