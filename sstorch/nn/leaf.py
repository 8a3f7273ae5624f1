"""Parameters of one leaf."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Leaf(nn.Module):
    """Linear predictor and shape parameters of a leaf hazard.

    Attributes:
        slope: gamma, shape (*batch_shape, p).
        intercept: gamma_0, shape (*batch_shape,).
        shape: shape parameters, shape (*batch_shape, m).
    """

    def __init__(
        self,
        n_features: int,
        n_shape: int,
        batch_shape: tuple[int, ...],
        device: torch.device | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()

        def zeros(*size: int) -> Tensor:
            return torch.zeros((*batch_shape, *size), device=device, dtype=dtype)

        self.slope = nn.Parameter(zeros(n_features))
        self.intercept = nn.Parameter(zeros())
        self.shape = nn.Parameter(zeros(n_shape))
