"""Covariance of the coefficients of a fitted model, penalties integrated out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad

from sstorch.checks import blocks, check_tree
from sstorch.data import SurvivalData
from sstorch.data.columns import to_pandas
from sstorch.exceptions import ConfigError
from sstorch.fitted import FittedTree
from sstorch.inference.contrasts import TermFacts

# "marginal": estimated penalties are integrated out; "sandwich": V B V with V the inverse of Hessian and
# penalties, B the sum of the outer products of scores.
CovarianceKind = Literal["marginal", "sandwich"]
# Share of the largest eigenvalue, of a matrix with unit diagonal, below which a direction has no information.
_SINGULAR = 1e-10
# Part of a combination of coefficients in such directions, as a share of it, above which it has no estimate.
_OUTSIDE = 1e-6
# Standard deviations of the prior of a block of coefficients at which the evidence is compared.
_DEVIATIONS = np.geomspace(1e-3, 10.0, 61)
# Share of the information of data and prior, in a direction, below which that of the data is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class HazardCovariance:
    """Covariance of the coefficients theta (D,) of one hazard: intercept, p shared slopes, others."""

    # parameters of leaves of each of G groups as linear combinations of the coefficients, (G, d, D), in the
    # order of `LeafFeatures`
    map: Tensor
    theta: Tensor  # the estimates, (D,)
    information: Tensor  # Hessian of the negative log-likelihood, (D, D)
    precision: Tensor  # of the normal prior of each coefficient, (D,); 0 for no prior
    groups: Tensor  # number of the group of each leaf, from left to right, 0 ... G - 1, (L,)
    adjusted: Tensor | None = None  # marginal or sandwich, (D, D), in place of the posterior

    @cached_property
    def _inverse(self) -> tuple[Tensor, Tensor]:
        """Inverse of Hessian and penalties where they have information, and unit directions without any."""
        matrix = self.information + torch.diag(self.precision)
        diagonal = matrix.diagonal()
        scale = torch.where(diagonal > 0, diagonal, 1.0).sqrt()
        values, vectors = torch.linalg.eigh(matrix / scale / scale[:, None])
        good = values > _SINGULAR * values[-1].clamp(min=_SINGULAR)
        seen, null = vectors[:, good] / scale[:, None], vectors[:, ~good] / scale[:, None]
        return (seen / values[good]) @ seen.mT, null / null.norm(dim=0)

    @property
    def posterior(self) -> Tensor:
        """Inverse of Hessian and penalties, (D, D)."""
        return self._inverse[0]

    @property
    def null(self) -> Tensor:
        """Directions without information in data or prior, (D, r)."""
        return self._inverse[1]

    @property
    def covariance(self) -> Tensor:
        """The covariance in use, (D, D)."""
        return self.posterior if self.adjusted is None else self.adjusted

    @cached_property
    def root(self) -> Tensor:
        """F with F F' the covariance in use, (D, D)."""
        values, vectors = torch.linalg.eigh(self.covariance)
        root: Tensor = vectors * values.clamp(min=0).sqrt()
        return root

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

    def unseen(self, combinations: Tensor) -> Tensor:
        """Mark combinations of coefficients (n, D) without an estimate, boolean (n,), zero ones included."""
        size = combinations.norm(dim=-1)
        outside = (combinations @ self.null).norm(dim=-1)
        return torch.where(size > 0, outside > _OUTSIDE * size, True)

    def errors(self, combinations: Tensor) -> Tensor:
        """Standard errors (n,) of combinations of the coefficients (n, D); NaN without an estimate."""
        return torch.where(self.unseen(combinations), torch.nan, (combinations @ self.root).norm(dim=-1))


class LeafFeatures:
    """Linear predictor and m shapes of rows as linear functions of the d parameters of their leaf."""

    # Parameters are slopes (p,), intercept, shapes (m,) and, if any, slopes of the shapes (m p,).

    def __init__(self, x: Tensor, n_parameters: int, n_shapes: int) -> None:
        (_, p), self._size = x.shape, n_parameters
        n_constant = p + 1 + n_shapes
        n_slopes = p if n_parameters > n_constant else 0
        slopes = [torch.arange(p), *torch.arange(n_constant, n_parameters).reshape(n_shapes, n_slopes)]
        # Of the linear predictor and each shape: places of its slopes and of its constant, by features, the
        # last of which is 1.
        self._places = [torch.cat([own, torch.tensor([p + k])]) for k, own in enumerate(slopes)]
        self._x = pad(x, (0, 1), value=1.0)

    def combined(self, parameters: Tensor) -> Tensor:
        """Linear predictors and shapes, (n, 1 + m, D), of D vectors of parameters, (d, D)."""
        return torch.stack([self._x[:, -len(own) :] @ parameters[own] for own in self._places], 1)

    def scores(self, first: Tensor) -> Tensor:
        """Derivatives in the parameters, (n, d), from those in linear predictor and shapes, (n, 1 + m)."""
        out = first.new_empty(len(first), self._size)
        for part, own in enumerate(self._places):
            out[:, own] = first[:, part, None] * self._x[:, -len(own) :]
        return out

    def information(self, second: Tensor) -> Tensor:
        """Sum over rows of second derivatives in the parameters, (d, d), from those (n, 1 + m, 1 + m)."""
        out = second.new_zeros(self._size, self._size)
        for rows in blocks(len(second), self._size):
            for j, own in enumerate(self._places):
                for k, other in enumerate(self._places):
                    weighted = self._x[rows, -len(own) :] * second[rows, j, k, None]
                    out[own[:, None], other] += weighted.mT @ self._x[rows, -len(other) :]
        return out


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


class Inferable(Protocol):
    """A fitted regression or groups, with the covariance of their coefficients."""

    covariance_: FitCovariance

    @property
    def _tree(self) -> FittedTree: ...  # NotFittedError before there is one

    def _cleaned(self, X: object) -> pd.DataFrame: ...  # the training columns of rows, read

    # Rows with their outcome, checked against that of training.
    def _scored(self, X: object, y: object, sample_weight: object = None) -> SurvivalData: ...


def index_of(X: object, n_rows: int) -> pd.Index[Any]:
    """Labels of rows: those of a frame, else their numbers."""
    frame = to_pandas(X)
    return frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(n_rows)


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
    """Mean square deviation of the coefficients from their estimates, the penalties not being known."""
    # By the `posterior` V (D, D), inverse of Hessian and penalties, estimates b = `theta`, and inverse
    # variances of the prior, the same in each of the `blocks` (-1 for none). The standard deviation s of each
    # in turn is weighted by its evidence and a prior with density (1 + s^2)^(-3/2) in s^2, the log-likelihood
    # replaced by its expansion: V and over blocks E[V(s) - V] and E[(b(s) - b)(b(s) - b)']. If the likelihood
    # is not concave, as of the shapes of a group with few events, V and b are kept. Kass and Steffey (1989),
    # JASA 84, 717-726; Wood, Pya and Saefken (2016), JASA 111, 1548-1563; Morris and Tang (2011), Statistical
    # Science 26, 271-287, on flat priors of variances, with which intervals have their nominal coverage.
    total = posterior.clone()
    grid = torch.as_tensor(_DEVIATIONS, dtype=posterior.dtype)
    share = grid.square()
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
