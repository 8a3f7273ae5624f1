"""More features than rows: the same linear predictors from as many coefficients as there are rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

# Singular values of features that count as zero, as a share of the largest.
_RANK = 1e-7
# Features that a product of matrices takes at once.
_AT_ONCE = 4096


@dataclass(frozen=True)
class Rotation:
    """Lines, turned into their principal components.

    With Z = U S V' the coefficients b of Z and V'b have the same independent normal prior, and the likelihood
    depends on V'b alone: optimum and evidence of the r coefficients of U S are those of the q of Z, and
    b = Z' U S^-1 times the former.
    """

    places: Tensor  # of the features among all, (q,)
    z: Tensor  # features in units in which their coefficients have one variance, (S, n, q)
    scores: Tensor  # U S, (S, n, r); zero columns where a split has a lower rank
    dual: Tensor  # U S^-1, (S, n, r)

    @classmethod
    def of(cls, places: Tensor, z: Tensor) -> Self:
        """From features (S, n, q)."""
        values, vectors = torch.linalg.eigh(torch.matmul(z, z.mT))
        root = values.clamp(min=0.0).sqrt()
        counts = root > _RANK * root[:, -1:]
        first = values.shape[-1] - max(int(counts.sum(-1).max()), 1)
        root, vectors, counts = root[:, first:], vectors[..., first:], counts[:, first:]
        scores = vectors * torch.where(counts, root, 0.0)[:, None]
        return cls(places, z, scores, vectors / torch.where(counts, root, torch.inf)[:, None])

    def coefficients(self, rotated: Tensor) -> Tensor:
        """Those of the features, (S, L, q), from those of the components, (S, L, r)."""
        return torch.matmul(torch.matmul(rotated, self.dual.mT), self.z)

    def freedom(self, split: int, covariance: Tensor, penalty: Tensor) -> Tensor:
        """Effective degrees of freedom (q,), with `covariance` and `penalty` of the components."""
        inner = torch.eye(len(covariance)).to(covariance) - penalty * covariance
        parts = []
        for some in self.z[split].split(_AT_ONCE, dim=-1):
            turned = torch.matmul(self.dual[split].mT, some)
            parts.append((torch.matmul(inner, turned) * turned).sum(0))
        return torch.cat(parts)
