"""Parameters of one leaf."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sstorch.nn.hazards import HazardFamily


class Leaf(nn.Module):
    """Linear predictor and shape parameters of a leaf hazard.

    Attributes:
        slope: gamma, shape (*batch_shape, p).
        intercept: gamma_0, shape (*batch_shape,).
        shape: shape parameters, shape (*batch_shape, m); at x = 0 where they are linear in x.
        shape_slope: their slopes, shape (*batch_shape, m, p), or None where they are constant.
    """

    def __init__(
        self,
        n_features: int,
        family: HazardFamily,
        batch_shape: tuple[int, ...],
        device: torch.device | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()

        def zeros(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros((*batch_shape, *size), device=device, dtype=dtype))

        n_shape = len(family.shape_names)
        self.slope = zeros(n_features)
        self.intercept = zeros()
        self.shape = zeros(n_shape)
        self.shape_slope: nn.Parameter | None = None
        if family.ancillary == "linear":
            self.shape_slope = zeros(n_shape, n_features)

    def trained(self) -> tuple[nn.Parameter, ...]:
        """The parameters that have elements: a family may have no shape."""
        return tuple(parameter for parameter in self.parameters() if parameter.numel())

    @torch.no_grad()
    def reset(self, intercept: Tensor, shape: Tensor) -> None:
        """Become a leaf without covariates: slopes zero, the given intercept and shape parameters."""
        for parameter in self.parameters():
            parameter.zero_()
        self.intercept.copy_(intercept)
        self.shape.copy_(shape)
