"""Parameters of the nodes of a batch of trees, stacked over nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.nn.design_matrix import DesignMatrix

Features = Tensor | DesignMatrix


@dataclass(frozen=True)
class GateParameters:
    """Parameters of B gates.

    Attributes:
        weight: shape (*batch_shape, B, p).
        bias: shape (*batch_shape, B).
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def unflatten(cls, theta: Tensor) -> GateParameters:
        """Views of one row per gate, weights before bias, shape (..., B, p + 1)."""
        return cls(theta[..., :-1], theta[..., -1])

    def flatten(self) -> Tensor:
        """One row per gate, the inverse of :meth:`unflatten`."""
        return torch.cat([self.weight, self.bias[..., None]], dim=-1)

    def logits(self, x: Features) -> Tensor:
        """Logits of rows, shape (*batch_shape, B, N)."""
        return project(x, self.weight, self.bias)

    def replaced(self, positions: Tensor, part: GateParameters) -> GateParameters:
        """The same with ``part`` in the place of the gates at ``positions``."""
        return GateParameters(
            self.weight.index_copy(-2, positions, part.weight), self.bias.index_copy(-1, positions, part.bias)
        )

    def select(self, problems: Tensor | slice) -> GateParameters:
        """Those of some problems of a one-dimensional batch: positions (K,), or a slice."""
        return GateParameters(self.weight[problems], self.bias[problems])


@dataclass(frozen=True)
class LeafParameters:
    """Parameters of L leaves with m shape parameters.

    Attributes:
        slope: shape (*batch_shape, L, p).
        intercept: shape (*batch_shape, L).
        shape: shape parameters, at x = 0 where they are linear in x, shape (*batch_shape, L, m).
        shape_slope: their slopes, shape (*batch_shape, L, m, p), or (*batch_shape, L, 0, p) where the shape
            parameters are constant.
    """

    slope: Tensor
    intercept: Tensor
    shape: Tensor
    shape_slope: Tensor

    @classmethod
    def unflatten(cls, theta: Tensor, n_features: int, n_shape: int) -> LeafParameters:
        """Views of one row per leaf: slope, intercept, shape, shape_slope, shape (..., L, d)."""
        ends = n_features + 1, n_features + 1 + n_shape
        return cls(
            theta[..., :n_features],
            theta[..., n_features],
            theta[..., ends[0] : ends[1]],
            theta[..., ends[1] :].unflatten(-1, (-1, n_features)),
        )

    def flatten(self) -> Tensor:
        """One row per leaf, the inverse of :meth:`unflatten`."""
        parts = (self.slope, self.intercept[..., None], self.shape, self.shape_slope.flatten(-2))
        return torch.cat(parts, dim=-1)

    def linear_predictor(self, x: Features) -> Tensor:
        """Linear predictors of rows, shape (*batch_shape, L, N)."""
        return project(x, self.slope, self.intercept)

    def shape_parameters(self, x: Features) -> Tensor:
        """Shape parameters of rows, (*batch_shape, L, N, m), with 1 for N if they are constant."""
        if self.shape_slope.shape[-2] == 0:
            return self.shape[..., None, :]
        rows: Tensor = project(x, self.shape_slope.flatten(-3, -2), self.shape.flatten(-2))
        # Rows stay contiguous: the shape parameters come last as a view.
        rows = rows.unflatten(-2, self.shape.shape[-2:])
        return rows.movedim(-2, -1)

    def replaced(self, positions: Tensor, part: LeafParameters) -> LeafParameters:
        """The same with ``part`` in the place of the leaves at ``positions``."""
        return LeafParameters(
            self.slope.index_copy(-2, positions, part.slope),
            self.intercept.index_copy(-1, positions, part.intercept),
            self.shape.index_copy(-2, positions, part.shape),
            self.shape_slope.index_copy(-3, positions, part.shape_slope),
        )

    def select(self, problems: Tensor | slice) -> LeafParameters:
        """Those of some problems of a one-dimensional batch: positions (K,), or a slice."""
        return LeafParameters(
            self.slope[problems], self.intercept[problems], self.shape[problems], self.shape_slope[problems]
        )


def project(x: Features, weight: Tensor, bias: Tensor) -> Tensor:
    """Linear scores weight . x + bias, shapes (..., K, p) and (..., K) -> (..., K, N), rows last."""
    if isinstance(x, DesignMatrix):
        return x.project(weight, bias)
    return torch.matmul(weight, x.mT) + bias[..., None]
