"""Covariance of the coefficients of a fitted model, also with estimated penalties integrated out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch.checks import check_tree
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.fitted import FittedTree

# "marginal": estimated penalties are integrated out; "sandwich": V B V with V the inverse of Hessian and
# penalties, B the sum of the outer products of scores.
CovarianceKind = Literal["marginal", "sandwich"]
# Share of the largest eigenvalue, of a matrix with unit diagonal, below which a direction has no information.
_SINGULAR = 1e-10
# Part of a combination of coefficients in such directions, as a share of it, above which it has no estimate.
_OUTSIDE = 1e-6
# Standard deviations of the prior of a block of coefficients at which the evidence is compared.
_DEVIATIONS = np.geomspace(1e-3, 10.0, 61)
# Scale of their prior: of log ratios per standard deviation of a column.
_SCALE = 1.0
# Share of the information of data and prior, in a direction, below which that of the data is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class HazardCovariance:
    """Covariance of the coefficients theta (D,) of one hazard: intercept, p shared slopes, others."""

    # parameters of G groups as linear combinations of the coefficients, (G d, D): per group slopes (p,),
    # intercept, shapes (m,) and, if any, their slopes (m p,)
    map: Tensor
    theta: Tensor  # the estimates, (D,)
    information: Tensor  # Hessian of the negative log-likelihood, (D, D)
    marginal: Tensor  # posterior covariance with estimated penalties integrated out, (D, D)
    precision: Tensor  # of the normal prior of each coefficient, (D,); 0 for no prior
    null: Tensor  # directions without information in the data, (D, r)
    groups: Tensor  # number of the group of each leaf, from left to right, 0 ... G - 1, (L,)
    robust: Tensor | None = None  # the sandwich, (D, D), used in place of the others

    @classmethod
    def of_posterior(
        cls,
        theta: Tensor,
        posterior: Tensor,
        marginal: Tensor,
        precision: Tensor,
        map: Tensor,
        groups: Tensor,
    ) -> Self:
        """Create it from the posterior covariance, if every coefficient has information or a prior."""
        information = torch.linalg.inv(posterior) - torch.diag(precision)
        return cls(map, theta, information, marginal, precision, posterior.new_zeros(len(theta), 0), groups)

    @classmethod
    def of_information(cls, theta: Tensor, information: Tensor, precision: Tensor, map: Tensor) -> Self:
        """Create it from the Hessian of the negative log-likelihood (D, D), one group, fixed penalties."""
        matrix, null = _inverse(information + torch.diag(precision))
        return cls(map, theta, information, matrix, precision, null, torch.zeros(1, dtype=torch.long))

    @property
    def covariance(self) -> Tensor:
        """The covariance in use, (D, D)."""
        return self.marginal if self.robust is None else self.robust

    @property
    def n_groups(self) -> int:
        """Number of groups with separate parameters, G."""
        return int(self.groups.max()) + 1

    @cached_property
    def root(self) -> Tensor:
        """F with F F' the covariance in use, (D, r)."""
        values, vectors = torch.linalg.eigh(self.covariance)
        root: Tensor = vectors * values.clamp(min=0).sqrt()
        return root

    @cached_property
    def by_group(self) -> Tensor:
        """:attr:`map` by group, (G, d, D)."""
        maps: Tensor = self.map.unflatten(0, (self.n_groups, -1))
        return maps

    @cached_property
    def posterior(self) -> Tensor:
        """Inverse of Hessian and penalties, (D, D)."""
        return _inverse(self.information + torch.diag(self.precision))[0]

    def identified(self, combinations: Tensor) -> Tensor:
        """Independent combinations, (q, n), of those of the coefficients (n, D), that have an estimate."""
        size = combinations.norm(dim=-1)
        seen = size > 0
        unit = combinations[seen] / size[seen, None]
        left, along, _ = torch.linalg.svd(unit @ torch.linalg.qr(self.null).Q)
        left = left[:, int((along > _OUTSIDE).sum()) :]
        out = combinations.new_zeros(left.shape[1], len(combinations))
        out[:, seen] = (left / size[seen, None]).mT
        return out

    def freedom(self, places: Tensor) -> tuple[float, float]:
        """Effective and reference degrees of freedom of what is identified of some coefficients."""
        basis = self.identified(torch.eye(len(self.theta), dtype=self.theta.dtype)[places])
        found = self.posterior @ self.information
        parts = (each[places[:, None], places] for each in (found, found @ found))
        once, twice = (float((basis @ part @ basis.mT).trace()) for part in parts)
        return once, 2 * once - twice

    def spread(self, places: Tensor) -> Tensor:
        """Information on some coefficients at any intercept, (k, k)."""
        found = self.information
        side = found[places, 0]
        return found[places[:, None], places] - side[:, None] * side / found[0, 0]

    def unseen(self, combinations: Tensor) -> Tensor:
        """Mark combinations of coefficients (n, D) without an estimate, boolean (n,), zero ones included."""
        size = combinations.norm(dim=-1)
        outside = (combinations @ self.null).norm(dim=-1) if self.null.shape[1] else -size
        return torch.where(size > 0, outside > _OUTSIDE * size, True)


def _inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of a symmetric matrix (D, D) where it has information, and unit directions without any."""
    diagonal = matrix.diagonal()
    scale = torch.where(diagonal > 0, diagonal, 1.0).sqrt()
    values, vectors = torch.linalg.eigh(matrix / scale / scale[:, None])
    good = values > _SINGULAR * values[-1].clamp(min=_SINGULAR)
    seen, null = vectors[:, good] / scale[:, None], vectors[:, ~good] / scale[:, None]
    return (seen / values[good]) @ seen.mT, null / null.norm(dim=0)


def linear_parts(parameters: Tensor, features: Tensor, n_shapes: int) -> Tensor:
    """Linear predictor and m shapes of rows with features (n, p), (n, 1 + m, D), from parameters (d, D)."""
    p = features.shape[1]
    parts = parameters[p : p + 1 + n_shapes].repeat(len(features), 1, 1)
    parts[:, 0] += features @ parameters[:p]
    if len(parameters) > p + 1 + n_shapes:
        slopes = parameters[p + 1 + n_shapes :].unflatten(0, (n_shapes, p))
        parts[:, 1:] += torch.einsum("nj,mjd->nmd", features, slopes)
    return parts


@dataclass(frozen=True)
class TermFacts:
    """Facts about the training values of one column, or of a product of two, for tables."""

    places: tuple[int, ...]  # positions of its features among those of the leaves
    values: tuple[float, ...]  # 5 %, 50 % and 95 % quantile of a number; empty for others


@dataclass(frozen=True)
class FitCovariance:
    """Covariance of a fitted model, by cause.

    Attributes:
        hazards: covariance of each cause; empty if there is none.
        terms: facts about columns and products, by name.
        kind: kind of the covariance in use.
        clusters: number of independent subjects or clusters of a sandwich; 0 otherwise.
        reason: reason for a missing covariance.
    """

    hazards: Mapping[str, HazardCovariance] = field(default_factory=dict)
    terms: Mapping[str, TermFacts] = field(default_factory=dict)
    kind: CovarianceKind = "marginal"
    clusters: int = 0
    reason: str = ""

    def sandwich(self, meats: Mapping[str, Tensor], clusters: int) -> Self:
        """Return a copy that uses the sandwich, from the sums of outer products of scores by cause."""
        hazards = {
            name: replace(each, robust=each.posterior @ meats[name] @ each.posterior)
            for name, each in self.hazards.items()
        }
        return replace(self, hazards=hazards, kind="sandwich", clusters=clusters)


def quantiles(values: np.ndarray) -> tuple[float, ...]:
    """5 %, 50 % and 95 % quantile of known numbers; of the distinct ones where the outer two are equal."""
    known = values[~np.isnan(values)]
    if not len(known):
        return ()
    found = np.quantile(known, [0.05, 0.5, 0.95], method="lower")
    if found[0] == found[2]:
        found[[0, 2]] = np.quantile(np.unique(known), [0.05, 0.95], method="nearest")
    return tuple(found.tolist())


class Inferable(Protocol):
    """A fitted regression or groups, with the covariance of their coefficients."""

    covariance_: FitCovariance

    @property
    def _tree(self) -> FittedTree:
        """The trained tree; raises NotFittedError before there is one."""

    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read."""

    def _scored(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """Rows with their outcome, checked against that of training."""


def covariance_of(model: Inferable) -> FitCovariance:
    """The covariance of a model; raises ConfigError with the reason if it has none."""
    if reason := no_covariance(model):
        raise ConfigError(reason)
    found: FitCovariance = vars(model)["covariance_"]
    return found


def no_covariance(model: Inferable) -> str:
    """Why a model has no covariance; empty if it has one."""
    check_tree(model, "_tree", "soft survival tree")
    tree = model._tree
    found: FitCovariance | None = vars(model).get("covariance_")
    if found is not None and found.hazards:
        return ""
    reason = "it was trained as one of several, or recalibrated" if found is None else found.reason
    kind = "this regression" if tree.module.topology.depth == 0 else "these groups"
    return f"the coefficients of {kind} have no covariance: {reason}"


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
