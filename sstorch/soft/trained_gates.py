"""Gates that are estimated with the leaves: their features, and starting values of several columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sstorch.nn import GateParameters
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.starts.distilled import CLOSED

# Slope of a gate's logit at the start, a standard deviation of its score: the gate goes from .27 to .73
# within one. Steeper gates learn from the rows near their threshold alone.
SHARPNESS = 2.0
# Standard deviation below which a feature is the same in all rows, and ridge of the curvature of a product,
# a row.
_CONSTANT, _RIDGE = 1e-9, 0.01


@dataclass(frozen=True)
class GateFeatures:
    """Features of gates of S splits, in standard deviations."""

    z: Tensor  # standardised, 0 where a split's gates do not use a feature, (S, n, Q)
    places: Tensor  # positions among the features of gates, (Q,)
    centre: Tensor  # (S, Q)
    scale: Tensor  # standard deviations, +inf of features that are not used, (S, Q)
    n_features: int  # features of gates

    @classmethod
    def of(cls, x: Tensor, share: Tensor, used: Sequence[Sequence[int]]) -> Self:
        """Of features (S, n, q), shares of the rows (S, n) and positions that each split's gates use."""
        places = torch.tensor(sorted(set().union(*used)), dtype=torch.long, device=x.device)
        values, share = x[..., places].double(), share.double()[..., None]
        centre = (share * values).sum(1)
        scale = (share * (values - centre[:, None]).square()).sum(1).sqrt()
        allowed = torch.stack([torch.isin(places, places.new_tensor(list(own))) for own in used])
        scale = torch.where(allowed & (scale > _CONSTANT), scale, torch.inf)
        return cls((values - centre[:, None]) / scale[:, None], places, centre, scale, x.shape[-1])

    def logits(self, gates: Tensor) -> Tensor:
        """Logits of rows, (S, B, n), by biases and weights (S, B, 1 + Q)."""
        return gates[..., :1] + torch.matmul(gates[..., 1:], self.z.mT)

    def of_features(self, gates: Tensor, divides: Tensor) -> GateParameters:
        """Gates of features in their own units, (S, B, q); those that divide nothing send all rows left."""
        weight = gates[..., 1:] / self.scale[:, None]
        bias = gates[..., 0] - (weight * self.centre[:, None]).sum(-1)
        weight = torch.where(divides[..., None], weight, 0.0)
        out = weight.new_zeros(*weight.shape[:-1], self.n_features)
        out[..., self.places] = weight
        return GateParameters(out, torch.where(divides, bias, CLOSED))


def spectral_gates(
    features: GateFeatures, hazards: Mapping[str, LinearHazards], theta: Mapping[str, Tensor], terms: Tensor
) -> list[Tensor]:
    """Two gates of several columns for each split, (S, 1 + Q) each, from what products would explain.

    A slope that turns where v . z changes its sign is to first order a product (v . z)(d . z), a quadratic
    form in z. Its matrix has the Newton steps of the products of two columns from the regressions; the best
    product of two linear forms has its largest and least eigenvectors, sqrt(w+) e+ +- sqrt(-w-) e-. Either
    factor may be the gate; its threshold is the median.

    Args:
        features: of the gates.
        hazards: of the regressions, by cause.
        theta: their coefficients, by cause.
        terms: number of the column of each feature, (Q,); a column has no product with itself.
    """
    z = features.z
    steps = z.new_zeros(len(z), z.shape[-1], z.shape[-1])
    weight = next(iter(hazards.values())).weight
    n = weight.sum(-1)[:, None, None]
    for name, each in hazards.items():
        _, first, second = each.row_derivatives(theta[name])
        score, curvature = -weight * first[..., 0], (weight * second[..., 0, 0]).clamp(min=0.0)
        square = z.square()
        slopes = torch.matmul(z.mT, z * score[..., None])
        steps += slopes / (torch.matmul(square.mT, square * curvature[..., None]) + _RIDGE * n)
    steps = torch.where(terms[:, None] == terms, 0.0, steps)
    values, vectors = torch.linalg.eigh(steps)
    large, small = values[:, -1:].clamp(min=0).sqrt(), (-values[:, :1]).clamp(min=0).sqrt()
    found = []
    for sign in (1.0, -1.0):
        direction = large * vectors[..., -1] + sign * small * vectors[..., 0]
        score = torch.matmul(z, direction[..., None]).squeeze(-1)
        found.append(_at_median(direction, score, weight))
    return found


def _at_median(direction: Tensor, score: Tensor, weight: Tensor) -> Tensor:
    """Gates with directions (S, Q), their scores (S, n) cut at the median and scaled; zero where constant."""
    share = weight / weight.sum(-1, keepdim=True)
    mean = (share * score).sum(-1, keepdim=True)
    deviation = (share * (score - mean).square()).sum(-1, keepdim=True).sqrt()
    order = score.argsort(-1)
    passed = share.gather(-1, order).cumsum(-1)
    place = (passed >= 0.5).to(torch.uint8).argmax(-1, keepdim=True)
    median = score.gather(-1, order.gather(-1, place))
    sharpness = torch.where(deviation > _CONSTANT, SHARPNESS / deviation, 0.0)
    return sharpness * torch.cat([-median, direction], -1)
