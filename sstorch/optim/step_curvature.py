"""Curvature of the objective in the gates, or in the leaves, as blocks: one a node.

Second derivatives between nodes are left out, and where a row's own second derivative is negative its size
is taken: the blocks scale the first direction of a minimisation, they do not decide where it ends.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn import DesignMatrix, HazardFamily, LeafParameters
from sstorch.objective import Sample
from sstorch.objective.blocks import problem_blocks
from sstorch.objective.closed_form import routing_slopes

# Rows that a block is estimated from, and the largest block that is worth its cost: beyond, only diagonals.
MAX_ROWS = 1024
MAX_BLOCK = 64


def stride_of(x: DesignMatrix) -> int:
    """Every how many rows are enough."""
    return -(-x.matrices.shape[1] // MAX_ROWS)


def gate_curvature(x: DesignMatrix, logits: Tensor, losses: Tensor) -> Tensor:
    """Second derivatives of the expected loss in the parameters of gates.

    Args:
        x: rows.
        logits: of the gates of a full binary tree, shape (K, B, M).
        losses: at its leaves, weights multiplied in, shape (K, B + 1, M).

    Returns:
        as :func:`blocks`.
    """
    return blocks(x, (routing_slopes(logits, losses) * (1 - 2 * torch.sigmoid(logits))).abs_())


def leaf_curvature(
    family: HazardFamily, leaves: LeafParameters, sample: Sample, probability: Tensor
) -> Tensor:
    """Second derivatives of the expected loss in the parameters of leaves.

    Args:
        family: of the leaves.
        leaves: parameters of L leaves.
        sample: rows.
        probability: of the leaves, row weights multiplied in, shape (K, L, M).

    Returns:
        shape (K, L, d, d) in the order of :meth:`LeafParameters.unflatten`.
    """
    count = 1 + leaves.shape.shape[-1]
    parts = []
    for some in problem_blocks(len(probability), count * probability[0].numel(), probability.device):
        hazard, own = family.select(some), leaves.select(some)
        rows, reach = sample.select(some), probability[some]
        linear, shape = own.linear_predictor(rows.x), own.shape_parameters(rows.x)
        pairs = hazard.second_derivatives(
            rows.log_time[:, None], rows.event[:, None], linear, shape, hazard.basis(rows.log_time)
        )
        weighted = {
            pair: torch.nan_to_num(torch.where(reach > 0, reach * second, 0.0), 0.0, 0.0, 0.0)
            for pair, second in pairs.items()
        }
        parts.append(_leaf_blocks(rows.x, weighted, count - 1, n_slopes=leaves.shape_slope.shape[-2]))
    return torch.cat(parts)


def blocks(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Second moments of features and a one, weights (K, n, M).

    Returns:
        shape (K, n, p + 1, p + 1), or, where that is too large, the diagonals alone, (K, n (p + 1), 1, 1).
    """
    if x.matrices.shape[-1] + 1 <= MAX_BLOCK:
        return x.gram(weight)
    return _diagonal(_squares(x, weight))


def add_to_diagonal(curvature: Tensor, values: Tensor) -> Tensor:
    """Blocks with values (K, n, b) added to their diagonals."""
    if curvature.shape[-1] == 1:
        return curvature + _diagonal(values)
    return curvature + torch.diag_embed(values)


def _leaf_blocks(
    x: DesignMatrix, pairs: dict[tuple[int, int], Tensor], n_shape: int, n_slopes: int
) -> Tensor:
    """Blocks of leaves from second derivatives of rows, (K, L, M) for each pair of g and m shapes."""
    n_features, zero = x.matrices.shape[-1], torch.zeros_like(pairs[0, 0])
    size = (n_features + 1) + n_shape + n_slopes * n_features
    if size > MAX_BLOCK:
        first = [_squares(x, pairs[0, 0])]
        shapes = [_squares(x, pairs.get((k, k), zero)) for k in range(1, n_shape + 1)]
        first += [shape[..., -1:] for shape in shapes]
        return _diagonal(torch.cat(first + [shape[..., :-1] for shape in shapes] * (n_slopes > 0), dim=-1))
    parts = [[zero] * (n_shape + 1) for _ in range(n_shape + 1)]
    for j in range(n_shape + 1):
        for k in range(j, n_shape + 1):
            rows = pairs.get((j, k), zero)
            if n_slopes or k == 0:
                part = x.gram(rows)
            elif j == 0:
                part = x.pull_back(rows)[..., None]
            else:
                part = rows.sum(-1)[..., None, None]
            parts[j][k], parts[k][j] = part, part.mT
    whole = torch.cat([torch.cat(row, dim=-1) for row in parts], dim=-2)
    if not n_slopes:
        return whole
    # From slopes and constant of g, of shape 1, ... to the order of the leaf's parameters.
    places = torch.arange(whole.shape[-1], device=whole.device).reshape(n_shape + 1, -1)
    order = torch.cat([places[0], places[1:, -1], places[1:, :-1].flatten()])
    return whole[..., order, :][..., order]


def _squares(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Weighted sums of squared features and of ones, (K, n, p + 1)."""
    return DesignMatrix(x.matrices.square(), x.counts, x.rows).pull_back(weight)


def _diagonal(values: Tensor) -> Tensor:
    """Blocks of size one, (K, n b, 1, 1), from diagonals (K, n, b)."""
    return values.flatten(1)[..., None, None]
