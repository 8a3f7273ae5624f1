"""Allowance for estimated penalties: the covariance with their uncertainty integrated out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Standard deviations of the prior of a block of coefficients at which the evidence is compared.
_DEVIATIONS = np.geomspace(1e-3, 10.0, 61)
# Scale of their prior: of log ratios per standard deviation of a column.
_SCALE = 1.0
# Share of the information of data and prior, in a direction, below which that of the data is rounding.
_ROUNDING = 1e-12


def marginal_covariance(posterior: Tensor, theta: Tensor, precision: Tensor, blocks: Tensor) -> Tensor:
    """Mean square deviation of the coefficients from their estimates, the penalties not being known.

    The prior standard deviation s of each block of coefficients in turn gets weights by its evidence and a
    prior whose density in s^2 is (1 + s^2)^(-3/2), nearly flat where it matters, the log-likelihood replaced
    by its expansion at the estimates. With V(s) and b(s), covariance and estimates at s, the result is the
    sum of V and over blocks of E[V(s) - V] and E[(b(s) - b)(b(s) - b)']. Given the estimated penalties alone,
    coefficients whose variance was estimated as nearly zero would seem to be known to be zero. A block may be
    a part of those that share a variance, such as the curve of one column: that its variance is that of the
    others is a part of what is unknown. In directions where the likelihood is not concave, as of the shapes
    of a group with few events, the expansion has no largest value under a weak prior: V and b are kept there.

    Args:
        posterior: V, inverse of Hessian and penalties, (D, D).
        theta: b, the estimates, (D,).
        precision: inverse variance of the prior of each coefficient, the same in a block, (D,).
        blocks: number of each coefficient's block, -1 for none, (D,).

    References:
        Kass and Steffey (1989), Journal of the American Statistical Association 84, 717-726; Wood, Pya and
        Saefken (2016), the same journal 111, 1548-1563; Morris and Tang (2011), Statistical Science 26,
        271-287, on flat priors of variances, with which intervals have their nominal coverage.
    """
    total = posterior.clone()
    grid = torch.as_tensor(_DEVIATIONS, dtype=posterior.dtype)
    share = (grid / _SCALE).square()
    prior = share / (1 + share) ** 1.5  # of log s
    for number in range(int(blocks.max()) + 1):
        places = (blocks == number).nonzero().squeeze(-1)
        present = precision[places[0]]
        block = posterior[places[:, None], places]
        values, vectors = torch.linalg.eigh(block)
        concave = 1 - present * values > _ROUNDING
        values, vectors = values[concave], vectors[:, concave]
        along, axes = vectors.mT @ theta[places], posterior[:, places] @ vectors
        other = grid.square().reciprocal()[:, None]
        factor = 1 + (other - present) * values  # eigenvalues of I + (penalty - present) V_gg
        change = (other - present) / factor
        evidence = (
            len(values) * other[:, 0].log() - factor.log().sum(-1) - (change * along.square()).sum(-1)
        ) / 2
        weight = torch.softmax(evidence + prior.log(), 0)
        moved = weight.sqrt()[:, None] * change * along
        total += axes @ (moved.mT @ moved - torch.diag(weight @ change)) @ axes.mT
    return (total + total.mT) / 2
