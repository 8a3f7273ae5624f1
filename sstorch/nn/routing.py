"""Soft routing: the nodes of a tree, its gates, and the probabilities of its leaves."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from sstorch.batched import Batched
from sstorch.checks import is_number_of
from sstorch.data.design_matrix import FeaturesT, RowFeatures, first_features, project
from sstorch.exceptions import ConfigError

MAX_DEPTH = 6


@dataclass(frozen=True)
class Topology:
    """Node numbers of a full binary tree with ``depth`` gates on every path, 0 to 6; else ConfigError."""

    depth: int

    def __post_init__(self) -> None:
        if not is_number_of(self.depth, Integral) or self.depth not in range(MAX_DEPTH + 1):
            raise ConfigError(f"depth must be an integer from 0 to {MAX_DEPTH}, got {self.depth!r}")
        object.__setattr__(self, "depth", int(self.depth))

    @property
    def branches(self) -> range:
        """Branch nodes 1 .. 2^D - 1."""
        return range(1, 2**self.depth)

    @property
    def leaves(self) -> range:
        """Leaves 2^D .. 2^(D+1) - 1, from left to right."""
        return range(2**self.depth, 2 ** (self.depth + 1))

    def level(self, node: int) -> int:
        """Number of gates above ``node``."""
        return node.bit_length() - 1

    def ancestors(self, node: int) -> list[tuple[int, bool]]:
        """Gates on the path from the root to ``node``, each with whether the path turns left there."""
        below = [node >> k for k in range(self.level(node) - 1, -1, -1)]
        return [(child // 2, child % 2 == 0) for child in below]

    def branches_under(self, node: int) -> list[int]:
        """``node`` and the branch nodes below it, in heap order; empty if ``node`` is a leaf."""
        return [n for n in self.branches if self._is_under(n, node)]

    def leaves_under(self, node: int) -> list[int]:
        """Leaves below ``node``, from left to right; ``[node]`` if it is a leaf."""
        return [n for n in self.leaves if self._is_under(n, node)]

    def _is_under(self, n: int, node: int) -> bool:
        return n >> max(self.level(n) - self.level(node), 0) == node


class Gate(nn.Module):
    """One branch node: left with probability sigmoid(weight . x + bias)."""

    def __init__(
        self,
        in_features: int,
        batch_shape: tuple[int, ...] = (),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        # w_n of the paper, and minus w_0n.
        self.weight = nn.Parameter(torch.zeros((*batch_shape, in_features), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(batch_shape, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Draw weights and bias uniformly from +-1 / sqrt(p), as :class:`torch.nn.Linear`."""
        bound = max(1, self.weight.shape[-1]) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Sizes shown by ``repr``."""
        return f"in_features={self.weight.shape[-1]}, batch_shape={tuple(self.bias.shape)}"


@dataclass(frozen=True)
class GateParameters(Batched):
    """Parameters of B gates."""

    weight: Tensor  # shape (*batch_shape, B, p)
    bias: Tensor  # shape (*batch_shape, B)

    @classmethod
    def unflatten(cls, theta: Tensor) -> GateParameters:
        """Views of one row per gate, weights before bias, shape (..., B, p + 1)."""
        return cls(theta[..., :-1], theta[..., -1])

    def flatten(self) -> Tensor:
        """One row per gate, the inverse of :meth:`unflatten`."""
        return torch.cat([self.weight, self.bias[..., None]], dim=-1)

    def features(self, x: FeaturesT) -> FeaturesT:
        """Features of the gates, the first p."""
        return first_features(x, self.weight.shape[-1])

    def logits(self, x: RowFeatures) -> Tensor:
        """Logits of rows, shape (*batch_shape, B, N), from the first p of their features."""
        return project(self.features(x), self.weight, self.bias)

    def leaf_probability(self, x: RowFeatures) -> Tensor:
        """Probability of each leaf of the tree of all these gates, shape (*batch_shape, B + 1, N)."""
        logits = self.logits(x)
        return log_path_probability(Topology(logits.shape[-2].bit_length()), logits).exp()

    def replaced(self, positions: Tensor, part: GateParameters) -> GateParameters:
        """The same with ``part`` in place of the gates at ``positions``."""
        return self.unflatten(self.flatten().index_copy(-2, positions, part.flatten()))


def log_path_probability(topology: Topology, logits: Tensor, node: int = 1) -> Tensor:
    """Log probability (..., L', N) of each leaf under ``node``, left to right, for a row at ``node``."""
    # P_in of the paper as a sum of log sigmoids of ``logits`` (..., B', N), branch nodes in heap order.
    left, right = logsigmoid(logits), logsigmoid(-logits)
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
    """Leaf (..., N) by ``logits`` (..., B, N): at each gate left iff its probability is >= 1/2."""
    goes_right = (logits < 0).long()
    shape = (*logits.shape[:-2], 1, logits.shape[-1])
    node: Tensor = torch.ones(shape, dtype=torch.long, device=logits.device)
    for _ in range(topology.depth):
        node = 2 * node + goes_right.gather(-2, node - 1)
    return torch.sub(node.squeeze(-2), 2**topology.depth)


def visits(topology: Topology, leaf: Tensor, node: int) -> Tensor:
    """True if the path to ``leaf`` (positions from left to right, any shape) passes through ``node``."""
    shift = topology.depth - topology.level(node)
    return torch.eq((leaf + 2**topology.depth) >> shift, node)
