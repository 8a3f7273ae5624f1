"""Conditional computation: each row meets the gates and the leaf on its most probable path, no other node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sstorch.nn.soft_tree import SoftTree

# Its cost is that of gathering the parameters of depth + 1 nodes, the other way's one pass over all leaves.
# Measured by `scripts/bench_predict --nodes` in microseconds a row, path / all nodes: depth 5, 16 features
# .29 / .31 and 32 features .47 / .35; depth 6, 32 features .53 / .67 and 64 features .82 / .71; at depth 4
# and less it loses with any number of features.
LEAST_DEPTH = 5
LEAVES_PER_FEATURE = 2


def applies(tree: SoftTree, x: object) -> bool:
    """Whether predictions are computed this way.

    Those of one tree, no batch, with at least five levels and two leaves for each feature: up to 16 features
    at depth 5, up to 32 at depth 6.
    """
    topology = tree.topology
    return (
        topology.depth >= LEAST_DEPTH
        and len(topology.leaves) >= LEAVES_PER_FEATURE * tree.n_features
        and tree.batch_shape == ()
        and isinstance(x, Tensor)
        and x.ndim == 2
    )


def leaf_of_rows(tree: SoftTree, x: Tensor) -> Tensor:
    """Leaf of each row's most probable path in one tree.

    Args:
        tree: without batch dimension.
        x: features, shape (N, p).

    Returns:
        Position of the leaf from left to right, 0 .. L - 1, shape (N,), integer.
    """
    gates = tree.gate_parameters()
    node = torch.ones(x.shape[0], dtype=torch.long, device=x.device)
    for _ in range(tree.topology.depth):
        right = score_at(x, gates.weight, gates.bias, node - 1) < 0
        node = 2 * node + right.long()
    return node - len(tree.topology.leaves)


def parameters_of_rows(tree: SoftTree, x: Tensor) -> tuple[Tensor, Tensor]:
    """Linear predictor (N,) and shape parameters (N, m) of each row in its leaf; arguments as above."""
    leaf, parameters = leaf_of_rows(tree, x), tree.leaf_parameters()
    linear = score_at(x, parameters.slope, parameters.intercept, leaf)
    slope = parameters.shape_slope
    if slope.shape[-2] == 0:
        return linear, parameters.shape.index_select(0, leaf)
    columns = [score_at(x, slope[:, k], parameters.shape[:, k], leaf) for k in range(slope.shape[-2])]
    return linear, torch.stack(columns, dim=-1)


def score_at(x: Tensor, weight: Tensor, bias: Tensor, node: Tensor) -> Tensor:
    """Score of each row at one node of its own, weight[node] . x + bias[node].

    Args:
        x: features, shape (N, p).
        weight: of all K nodes, shape (K, p).
        bias: shape (K,).
        node: position of each row's node, shape (N,).

    Returns:
        shape (N,).
    """
    return (weight.index_select(0, node) * x).sum(-1) + bias.index_select(0, node)
