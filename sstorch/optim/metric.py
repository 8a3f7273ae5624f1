"""Curvature of a step at its start, one block a node: what turns a gradient into a step of the right size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockMetric:
    """Inverses of positive definite curvature matrices, block by block along the variables.

    Attributes:
        inverses: shapes (K, n_j, b_j, b_j); the variables are n_1 blocks of b_1, then n_2 of b_2, ...
    """

    inverses: tuple[Tensor, ...]

    @classmethod
    def invert(cls, *curvatures: Tensor) -> BlockMetric:
        """The metric of symmetric blocks (K, n, b, b), made positive definite where they are not."""
        return cls(tuple(_inverse(curvature) for curvature in curvatures))

    def __call__(self, gradient: Tensor) -> Tensor:
        """The step (K, d) that the metric answers to a gradient (K, d): its product with the inverses."""
        sizes = [inverse.shape[1] * inverse.shape[2] for inverse in self.inverses]
        parts = [
            (inverse * part.reshape(len(part), inverse.shape[1], 1, -1)).sum(-1).flatten(1)
            for inverse, part in zip(self.inverses, gradient.split(sizes, dim=1), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def select(self, problems: Tensor) -> BlockMetric:
        """The metric of some of the problems, positions (K',)."""
        return BlockMetric(tuple(inverse[problems] for inverse in self.inverses))


def _inverse(curvature: Tensor) -> Tensor:
    """Inverses of symmetric (K, n, b, b); off-diagonal parts are dropped where they spoil definiteness."""
    curvature = torch.nan_to_num(curvature, nan=0.0, posinf=0.0, neginf=0.0)
    diagonal = curvature.diagonal(dim1=-2, dim2=-1).abs()
    scale = diagonal.mean(-1, keepdim=True)
    # A variable without curvature moves as the flattest of the others would.
    floor = torch.where(scale > 0, scale * torch.finfo(scale.dtype).eps ** 0.5, torch.ones_like(scale))
    factor, failed = torch.linalg.cholesky_ex(curvature + torch.diag_embed(floor.expand_as(diagonal)))
    alone = torch.diag_embed((diagonal + floor).sqrt())
    return torch.cholesky_inverse(torch.where((failed > 0)[..., None, None], alone, factor))
