"""Soft multivariate splits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sstorch.nn.functional import log_sigmoid_pair
from sstorch.nn.topology import Topology


class Gate(nn.Module):
    """One branch node: left with probability sigmoid(weight . x + bias).

    Attributes:
        weight: shape (*batch_shape, p), w_n of the paper.
        bias: shape (*batch_shape,), minus w_0n of the paper.
    """

    def __init__(
        self, n_features: int, batch_shape: tuple[int, ...], device: torch.device | None, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((*batch_shape, n_features), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(batch_shape, device=device, dtype=dtype))


def log_path_probability(topology: Topology, logits: Tensor, node: int = 1) -> Tensor:
    """Log probability of reaching each leaf under ``node``, for a row that is at ``node``.

    Args:
        topology: the tree.
        logits: of the branch nodes under ``node`` in heap order, shape (..., B', N).
        node: root of the subtree.

    Returns:
        shape (..., L', N), leaves from left to right; the probabilities sum to one over L'.

    References:
        Consolo, Amaldi and Carrizosa, P_in; computed as a sum of log sigmoids, level by level.
    """
    left, right = log_sigmoid_pair(logits)
    position = {n: k for k, n in enumerate(topology.branches_under(node))}
    level_log = logits.new_zeros(*logits.shape[:-2], 1, logits.shape[-1])
    level = [node]
    while level[0] in position:
        first, last = position[level[0]], position[level[-1]] + 1
        children = (left[..., first:last, :], right[..., first:last, :])
        level_log = torch.stack([level_log + child for child in children], dim=-2).flatten(-3, -2)
        level = [child for n in level for child in (2 * n, 2 * n + 1)]
    return level_log


def most_probable_leaf(topology: Topology, logits: Tensor) -> Tensor:
    """Leaf of the highest-branch-probability path: at each gate, left iff its probability is >= 1/2.

    Args:
        topology: the tree.
        logits: of all branch nodes in heap order, shape (..., B, N).

    Returns:
        Position of the leaf from left to right, 0 .. L - 1, shape (..., N), integer.
    """
    goes_right = (logits < 0).long()
    shape = (*logits.shape[:-2], 1, logits.shape[-1])
    node: Tensor = torch.ones(shape, dtype=torch.long, device=logits.device)
    for _ in range(topology.depth):
        node = 2 * node + goes_right.gather(-2, node - 1)
    return torch.sub(node.squeeze(-2), 2**topology.depth)


def visits(topology: Topology, leaf: Tensor, node: int) -> Tensor:
    """Whether the path to ``leaf`` (any shape, positions as above) passes through ``node``; boolean."""
    shift = topology.depth - topology.level(node)
    return torch.eq((leaf + 2**topology.depth) >> shift, node)
