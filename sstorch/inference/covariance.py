"""Covariance of the coefficients of a fitted model, penalties integrated out; contrasts of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch.checks import check_columns_exist, check_tree
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.columns import numeric_values
from sstorch.exceptions import ConfigError, DataError
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
    # 5 %, 50 % and 95 % quantile of numbers, of distinct ones where the outer two are equal; else empty
    values: tuple[float, ...]


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


# Text of the contrast of a line.
_PER_UNIT = "per unit"


def term_facts(preprocessor: Preprocessor, frame: pd.DataFrame) -> dict[str, TermFacts]:
    """Facts about each column and each product of the training rows, such as ``"age"`` or ``"age:horTh"``."""
    places: dict[str, list[int]] = {}
    for place, feature in enumerate(preprocessor.leaf_features):
        if feature.columns in ((preprocessor.offset,), (preprocessor.strata,)):
            continue  # no covariates
        places.setdefault(":".join(feature.columns), []).append(place)
    facts, frame = {}, preprocessor.schema.frame_of(frame)
    for name, own in places.items():
        facts[name] = TermFacts(tuple(own), ())
        if name not in preprocessor.schema.columns or name in preprocessor.schema.categories:
            continue
        values = numeric_values(frame[name], f"column {name!r}")
        if len(known := values[~np.isnan(values)]):
            found = np.quantile(known, [0.05, 0.5, 0.95], method="lower")
            if found[0] == found[2]:
                found[[0, 2]] = np.quantile(np.unique(known), [0.05, 0.95], method="nearest")
            facts[name] = TermFacts(tuple(own), tuple(found.tolist()))
    return facts


class Contrast(NamedTuple):
    """A difference of linear predictors, linear in the slopes."""

    term: str  # column, or two of them, ``"a:b"``
    text: str  # the values that are compared, ``"10 vs 1"``, ``"II vs I"`` or ``"per unit"``
    features: Tensor  # difference of the encoded features of leaves, (p,)


class Values(NamedTuple):
    """Two values of a column that are compared."""

    text: str  # of the comparison
    first: float | str  # the reference
    second: float | str

    @classmethod
    def of(cls, first: float | str, second: float | str) -> Self:
        """With their text."""
        one, other = (
            v if isinstance(v, str) else f"{v:.{4 if abs(v) < 1e3 else 6}g}" for v in (first, second)
        )
        return cls(f"{other} vs {one}", first, second)


class Contrasts:
    """Contrasts of columns, the others at their reference: the median or the most frequent category."""

    def __init__(self, preprocessor: Preprocessor, facts: Mapping[str, TermFacts]) -> None:
        self._preprocessor, self._facts = preprocessor, facts
        schema = preprocessor.schema
        self.reference: dict[str, float | str | None] = {
            name: preprocessor.mode_[name]
            if name in schema.categories
            else facts[name].values[1]
            if name in facts and facts[name].values
            else preprocessor.fill_[name]
            for name in schema.columns
        }
        features = preprocessor.leaf_features
        self.curves = {feature.columns[0] for feature in features if feature.kind == "curve"}
        # Columns of products are centred on means: their own effect is one at the reference of the others.
        self.products = [name for name in facts if ":" in name and name not in schema.columns]
        self.factors = {name for term in self.products for name in self._pair(term)}

    def kind(self, term: str) -> str:
        """``"line"``, ``"curve"``, ``"category"`` or ``"interaction"``."""
        if term in self.products:
            return "interaction"
        if term in self._preprocessor.schema.categories:
            return "category"
        return "curve" if term in self.curves else "line"

    def levels(self, column: str) -> list[str]:
        """Categories of a column that training rows had, but the reference."""
        origins = zip(self._preprocessor.schema.origins, self._preprocessor.scale_, strict=True)
        known = [word for (name, word), scale in origins if name == column and scale and word is not None]
        return [word for word in known if word != self.reference[column]]

    @property
    def baselines(self) -> dict[str, dict[str, float | str]]:
        """Strata by text such as ``"sex = f"``, and the value of their column; one without a text if none."""
        column = self._preprocessor.strata
        if column is None:
            return {"": {}}
        known = {*self.levels(column), self.reference[column]}
        words = [word for word in self._preprocessor.schema.categories[column] if word in known]
        return {f"{column} = {word}": {column: word} for word in words}

    def comparisons(self, term: str) -> list[Values]:
        """Contrasts of tables: as :meth:`outer`, but a line per unit."""
        usual = self.reference.get(term)
        if self.kind(term) == "line" and isinstance(usual, float):
            return [Values(_PER_UNIT, usual, usual + 1.0)]
        return self.outer(term)

    def outer(self, term: str) -> list[Values]:
        """The 95 % against the 5 % quantile of a number; every category against the reference."""
        if self.kind(term) == "category":
            return [Values.of(str(self.reference[term] or ""), word) for word in self.levels(term)]
        values = self._facts[term].values
        return [Values.of(values[0], values[2])] if values else []

    def rows(self, terms: Sequence[str]) -> list[Contrast]:
        """Contrasts of the tables of coefficients."""
        wanted = []
        for term in terms:
            columns = self._pair(term) if term in self.products else (term,)
            for pairs in product(*map(self.comparisons, columns)):
                text = " x ".join(dict.fromkeys(each.text for each in pairs if each.text != _PER_UNIT))
                wanted.append((term, text or _PER_UNIT, dict(zip(columns, pairs, strict=True))))
        return self._encoded(wanted)

    def between(self, column: str, pairs: Sequence[Values]) -> list[Contrast]:
        """Contrasts between two values of a column each."""
        return self._encoded([(column, each.text, {column: each}) for each in pairs])

    def checked(self, column: str, value: object) -> float | str:
        """A value of a column; a DataError if the column does not exist or has no such value."""
        schema = self._preprocessor.schema
        check_columns_exist([column], list(schema.columns))
        if column in schema.categories:
            word = str(value)
            known = [*self.levels(column), self.reference[column]]
            if word not in known:
                raise DataError(f"column {column!r} has no category {word!r}; training rows had {known}")
            return word
        number = float(numeric_values(pd.Series([value]), f"value of {column!r}")[0])
        if np.isnan(number):
            raise DataError(f"value of {column!r} must be a number, got {value!r}")
        return number

    def encoded(self, changes: Sequence[Mapping[str, float | str]]) -> Tensor:
        """Features of leaves of the reference row with some of its values changed, (n, p)."""
        columns = {}
        for name, usual in self.reference.items():
            cells = pd.Series([change.get(name, usual) for change in changes], dtype=object)
            columns[name] = cells if isinstance(usual, str | None) else cells.astype(np.float64)
        x = torch.as_tensor(self._preprocessor.transform(pd.DataFrame(columns)))
        return x[:, x.shape[1] - len(self._preprocessor.leaf_features) :].double()

    def _pair(self, term: str) -> tuple[str, str]:
        feature = self._preprocessor.leaf_features[self._facts[term].places[0]]
        return feature.columns[0], feature.columns[1]

    def _encoded(self, wanted: Sequence[tuple[str, str, Mapping[str, Values]]]) -> list[Contrast]:
        """Differences between the values of each column, of several columns differences of differences."""
        changes, signs = [], []
        for _, _, values in wanted:
            for second in product((True, False), repeat=len(values)):
                sides = zip(values.items(), second, strict=True)
                changes.append({name: pair.second if side else pair.first for (name, pair), side in sides})
                signs.append((-1.0) ** second.count(False))
        if not wanted:
            return []
        signed = torch.tensor(signs, dtype=torch.float64)[:, None] * self.encoded(changes)
        parts = signed.split([2 ** len(values) for _, _, values in wanted])
        return [Contrast(*each[:2], part.sum(0)) for each, part in zip(wanted, parts, strict=True)]
