"""Many columns: principal components of more features than rows, and shapes by held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sstorch.data import SurvivalData
from sstorch.data.design_matrix import DesignMatrix
from sstorch.data.folds import stratified_folds
from sstorch.newton import Gaussian, newton
from sstorch.optim.evidence import Kinds, estimate
from sstorch.optim.linear_hazards import LinearHazards

# Singular values of features that count as zero, as a share of the largest.
_RANK = 1e-7
# Features that a product of matrices takes at once.
_AT_ONCE = 4096
# Folds by which shape parameters are estimated, and the precision of what is not penalised there.
N_FOLDS, _VAGUE = 5, 1e-4


def principal_components(z: Tensor) -> tuple[Tensor, Tensor]:
    """Components U S and U S^-1, (S, n, r), of features Z = U S V', (S, n, q); zero beyond a split's rank.

    The coefficients b of Z and V'b have the same independent normal prior, and the likelihood depends on V'b
    alone: optimum and evidence of the r coefficients of U S are those of the q of Z, and b = Z' U S^-1 times
    the former.
    """
    values, vectors = torch.linalg.eigh(torch.matmul(z, z.mT))
    root = values.clamp(min=0.0).sqrt()
    counts = root > _RANK * root[:, -1:]
    first = values.shape[-1] - max(int(counts.sum(-1).max()), 1)
    root, vectors, counts = root[:, first:], vectors[..., first:], counts[:, first:]
    scores = vectors * torch.where(counts, root, 0.0)[:, None]
    return scores, vectors / torch.where(counts, root, torch.inf)[:, None]


def freedom_of_features(z: Tensor, dual: Tensor, covariance: Tensor, penalty: Tensor) -> Tensor:
    """Effective degrees of freedom (q,) of features (n, q) whose U S^-1 is `dual`, (n, r).

    Covariance and penalty are those of the components.
    """
    inner = torch.eye(len(covariance)).to(covariance) - penalty * covariance
    parts = []
    for some in z.split(_AT_ONCE, dim=-1):
        turned = torch.matmul(dual.mT, some)
        parts.append((torch.matmul(inner, turned) * turned).sum(0))
    return torch.cat(parts)


def held_out_start(
    hazards: LinearHazards, kinds: Kinds, start: Tensor, splits: Sequence[SurvivalData], seed: int
) -> Tensor:
    """Coefficients (S, D) to start from: `start` with the shapes of linear predictors of held-out rows.

    With more columns than rows those of the training rows allow a perfect fit. The predictors of five folds
    have one free slope; a split with too few events for folds keeps its shapes.
    """
    fold = torch.stack(
        [_folds(event, data, seed) for event, data in zip(hazards.sample.event, splits, strict=True)]
    )
    enough = (fold >= 0).any(-1)
    if not bool(enough.any()):
        return start
    predictor, first = torch.zeros_like(hazards.weight), None
    for number in range(N_FOLDS):
        seen = replace(hazards, weight=hazards.weight * (fold != number))
        found = estimate(seen, kinds, start, first)
        first = dict(zip(kinds.names, found.penalty.unbind(-1), strict=True))
        own = hazards.parameters(found.theta)[0] - found.theta[:, :1]
        predictor = torch.where(fold == number, own, predictor)
    slope, x = torch.zeros_like(start[:, :1]), DesignMatrix(predictor[..., None], hazards.x.counts)
    null = replace(hazards, x=x, centre=None, scale=None)
    at = torch.cat([start[:, :1], slope, start[:, hazards.n_linear :]], -1)
    shapes = newton(null, Gaussian(torch.full_like(at, _VAGUE), at), at).theta[:, 2:]
    return torch.cat([start[:, : hazards.n_linear], torch.where(enough[:, None], shapes, at[:, 2:])], -1)


def _folds(event: Tensor, data: SurvivalData, seed: int) -> Tensor:
    """Fold of each row, by subject and stratified by event, (n,); -1 for padding, and with too few events."""
    had = event[: len(data)].cpu().numpy() > 0
    fold = torch.full(event.shape, -1, device=event.device)
    events = int(had.sum()) if data.subject is None else len(np.unique(data.subject[had]))
    if events >= N_FOLDS:
        own = stratified_folds(had, N_FOLDS, seed, data.subject)
        fold[: len(data)] = torch.as_tensor(own).to(event.device)
    return fold
