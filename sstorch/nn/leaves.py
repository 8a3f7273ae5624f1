"""Leaves of a tree: linear predictors and shape parameters of their hazards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sstorch.batched import Batched
from sstorch.data.design_matrix import FeaturesT, RowFeatures, last_features, project
from sstorch.nn.hazards.base import HazardFamily


class Leaf(nn.Module):
    """Parameters of a leaf, as in :class:`LeafParameters`; ``shape_slope`` is None if shapes are constant."""

    def __init__(
        self,
        in_features: int,
        family: HazardFamily,
        batch_shape: tuple[int, ...] = (),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()

        def zeros(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros((*batch_shape, *size), device=device, dtype=dtype))

        n_shape = len(family.shape_names)
        self.slope = zeros(in_features)
        self.intercept = zeros()
        self.shape = zeros(n_shape)
        self.shape_slope: nn.Parameter | None = None
        if family.ancillary != "constant":
            self.shape_slope = zeros(n_shape, in_features)

    def reset_parameters(self) -> None:
        """Draw slopes uniformly from +-1 / sqrt(p), as :class:`torch.nn.Linear`; all else is zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        bound = max(1, self.slope.shape[-1]) ** -0.5
        nn.init.uniform_(self.slope, -bound, bound)

    def extra_repr(self) -> str:
        """Sizes shown by ``repr``."""
        return (
            f"in_features={self.slope.shape[-1]}, n_shape={self.shape.shape[-1]}, "
            f"batch_shape={tuple(self.intercept.shape)}"
        )

    @torch.no_grad()
    def reset(self, intercept: Tensor, shape: Tensor) -> None:
        """Set slopes to zero, and the intercept and shape parameters to the given values."""
        for parameter in self.parameters():
            parameter.zero_()
        self.intercept.copy_(intercept)
        self.shape.copy_(shape)

    def resize(self, n_shape: int) -> None:
        """Change the number of shape parameters, then zero; the parameters stay the same objects."""
        for parameter, axis in ((self.shape, -1), (self.shape_slope, -2)):
            if parameter is not None and parameter.shape[axis] != n_shape:
                sizes = list(parameter.shape)
                sizes[axis] = n_shape
                parameter.data, parameter.grad = parameter.data.new_zeros(sizes), None


@dataclass(frozen=True)
class LeafParameters(Batched):
    """Parameters of L leaves with m shape parameters."""

    slope: Tensor  # shape (*batch_shape, L, p)
    intercept: Tensor  # shape (*batch_shape, L)
    shape: Tensor  # at x = 0 if they are linear in x, shape (*batch_shape, L, m)
    shape_slope: Tensor  # shape (*batch_shape, L, m, p), or (*batch_shape, L, 0, p) for constant shapes

    @classmethod
    def of(cls, leaf: Leaf) -> LeafParameters:
        """Those of a module, whose last batch dimension counts the leaves; or of one leaf, without L."""
        none = leaf.shape.new_zeros(*leaf.shape.shape[:-1], 0, leaf.slope.shape[-1])
        return cls(
            leaf.slope, leaf.intercept, leaf.shape, none if leaf.shape_slope is None else leaf.shape_slope
        )

    @classmethod
    def stack(cls, leaves: Sequence[Leaf]) -> LeafParameters:
        """Those of modules, one a leaf."""
        parts = zip(*(vars(cls.of(leaf)).values() for leaf in leaves), strict=True)
        return cls(*(torch.stack(each, axis) for each, axis in zip(parts, (-2, -1, -2, -3), strict=True)))

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

    def features(self, x: FeaturesT) -> FeaturesT:
        """Features of the leaves, the last p."""
        return last_features(x, self.slope.shape[-1])

    def linear_predictor(self, x: RowFeatures) -> Tensor:
        """Linear predictors of rows, shape (*batch_shape, L, N), from the last p of their features."""
        return project(self.features(x), self.slope, self.intercept)

    def shape_parameters(self, x: RowFeatures) -> Tensor:
        """Shape parameters of rows, (*batch_shape, L, N, m), with 1 for N if they are constant."""
        if self.shape_slope.shape[-2] == 0:
            return self.shape[..., None, :]
        rows: Tensor = project(self.features(x), self.shape_slope.flatten(-3, -2), self.shape.flatten(-2))
        # Rows stay contiguous: the shape parameters come last as a view.
        rows = rows.unflatten(-2, self.shape.shape[-2:])
        return rows.movedim(-2, -1)

    def at_rows(self, x: Tensor, leaf: Tensor) -> tuple[Tensor, Tensor]:
        """Linear predictor (N,) and shapes (N, m) of rows (N, p), each in one leaf, position (N,)."""
        x, shape = self.features(x), self.shape[leaf]
        linear = (self.slope[leaf] * x).sum(-1) + self.intercept[leaf]
        if self.shape_slope.shape[-2]:
            own = [(slope[leaf] * x).sum(-1) for slope in self.shape_slope.unbind(-2)]
            shape = shape + torch.stack(own, dim=-1)
        return linear, shape

    def replaced(self, positions: Tensor, part: LeafParameters) -> LeafParameters:
        """The same with ``part`` in place of the leaves at ``positions``."""
        flat = self.flatten().index_copy(-2, positions, part.flatten())
        return self.unflatten(flat, self.slope.shape[-1], self.shape.shape[-1])
