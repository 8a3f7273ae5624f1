"""Designs of regressions and groups whose penalties are estimated."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sstorch.checks import blocks
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.basis import Feature
from sstorch.data.design_matrix import DesignMatrix, last_features
from sstorch.data.folds import stratified_folds
from sstorch.newton import Gaussian, newton
from sstorch.nn import HazardFamily, LeafParameters
from sstorch.objective import Sample
from sstorch.optim.evidence import HELD, MANY_ROWS, Estimates, Kinds, estimate
from sstorch.optim.linear_hazards import LinearHazards

# Kinds of coefficients, each with a variance of its own, and of features that are no part of the problem.
KINDS = ("line", "curve", "category", "interaction", "level", "own slope", "own shape")
OFFSET, STRATUM = "offset", "stratum"
FIXED = (OFFSET, STRATUM)
# Precision of the priors under which a hazard without covariates is fitted, and of what stays zero.
_VAGUE, _ZERO = 1e-4, 1e8
# Standard deviation below which a feature is the same in all rows.
_CONSTANT = 1e-9
# Elements of the rows whose moments are taken at once.
_ELEMENTS = 2**22
# Events of a part of the rows by which a hazard without covariates is started.
_ENOUGH_EVENTS = 1_000
# A category with more levels has no slopes of its own in the groups.
_MANY_LEVELS = 6
# Singular values of features that count as zero, as a share of the largest.
_RANK = 1e-7
# Folds by which shape parameters are estimated, where columns are many.
_N_FOLDS = 5


def _kind_of(feature: Feature, preprocessor: Preprocessor) -> str:
    """The kind of a leaf feature's coefficient."""
    for kind, column in ((OFFSET, preprocessor.offset), (STRATUM, preprocessor.strata)):
        if feature.columns == (column,):
            return kind
    if feature.kind == "product":
        return "interaction"
    if feature.curved:
        return "curve"
    return "category" if feature.columns[0] in preprocessor.schema.categories else "line"


@dataclass(frozen=True)
class Design:
    """Features of leaves in units in which coefficients of one kind are comparable."""

    # Lines and products are standardised; the curve of a column is scaled as a whole, to variances with sum
    # one; categories are centred indicators; moments are weighted. Offset and strata have no slopes: strata
    # are groups of the problems, and a single group of leaves.

    x: DesignMatrix  # the p features of the rows of S splits, in units of their own
    centre: Tensor  # what was taken off the features, (S, p)
    scale: Tensor  # by what was divided, +inf for features that are the same in all rows, (S, p)
    kinds: tuple[str, ...]  # of the features
    own: Tensor  # those that groups have slopes of their own of, boolean (p,)
    # in place of more lines than rows, behind the other features: :func:`principal_components`
    components: tuple[Tensor, Tensor] | None = None
    has_many: bool = False  # lines, see :meth:`of_many_lines`

    @classmethod
    def of(cls, sample: Sample, n_features: int, preprocessor: Preprocessor) -> Self:
        """Of the rows of S problems, one per split."""
        x = last_features(sample.x, n_features).to(dtype=torch.float64)
        centre, variance = _moments(x, sample.normalised_weight.double())
        features, levels = preprocessor.leaf_features, preprocessor.schema.categories
        kinds = tuple(_kind_of(feature, preprocessor) for feature in features)
        scale, blocks = variance.sqrt(), dict[str, list[int]]()
        constant = scale <= _CONSTANT
        constant[:, [j for j, kind in enumerate(kinds) if kind in FIXED]] = True
        for j, (kind, feature) in enumerate(zip(kinds, features, strict=True)):
            if kind == "curve":
                blocks.setdefault(feature.columns[0], []).append(j)
        for places in blocks.values():
            scale[:, places] = variance[:, places].sum(-1, keepdim=True).sqrt()
        scale[:, [j for j, kind in enumerate(kinds) if kind == "category"]] = 1.0
        own = [
            kind == "line" or (kind == "category" and len(levels[feature.columns[0]]) <= _MANY_LEVELS)
            for kind, feature in zip(kinds, features, strict=True)
        ]
        scale = torch.where(constant, torch.inf, scale)
        return cls(x, centre, scale, kinds, torch.tensor(own, device=centre.device))

    def lines(self, split: int, rows: slice | Tensor) -> Tensor:
        """Features that groups have slopes of their own of, of some rows of a split, (m, q)."""
        own = self.own[self.x.places]
        numbers, places = self.x.of_split(split)[rows].numbers[:, own], self.x.places[own]
        return (numbers - self.centre[split, places]) / self.scale[split, places]

    @property
    def z(self) -> Tensor:
        """The features of all rows in the units of the design, (S, n, p), for few rows."""
        return (self.x.to_dense() - self.centre[:, None]) / self.scale[:, None]

    def of_many_lines(self) -> Self:
        """The same with held shapes, without slopes of groups, and more lines than rows as components."""
        lines, own = self._places_of("line"), torch.zeros_like(self.own)
        components = principal_components(self.z[..., lines]) if len(lines) > len(self.x) else None
        return replace(self, own=own, components=components, has_many=True)

    @property
    def _straight(self) -> list[int]:
        """Places of the features that are not turned into components."""
        return [k for k, kind in enumerate(self.kinds) if self.components is None or kind != "line"]

    @property
    def _width(self) -> int:
        """Slopes that all rows share, d."""
        return len(self._straight) + (0 if self.components is None else self.components[0].shape[-1])

    def freedom(self, estimates: Estimates, split: int) -> Tensor:
        """Effective degrees of freedom of each feature in what all groups share, (p,)."""
        straight = self._straight
        end = 1 + len(straight)  # behind the intercept
        out = estimates.theta.new_zeros(len(self.kinds))
        out[straight] = estimates.freedom[split, 1:end]
        if self.components is not None:
            unit = torch.eye(estimates.theta.shape[1]).to(estimates.theta)[None, end : 1 + self._width]
            penalty = estimates.penalty[split, estimates.kinds.names.index("line")]
            shrunken = torch.eye(unit.shape[1]).to(unit) - penalty * estimates.quadratic(unit)[split]
            lines = self._places_of("line")
            turned = self.components[1][split].mT @ self.z[split][:, lines]
            out[lines] = (shrunken @ turned * turned).sum(0)
        return out

    def prior_parts(self, estimates: Estimates, split: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Prior precisions in a split: common and own slopes of features (p,), own levels and shapes ()."""
        known = dict(zip(estimates.kinds.names, estimates.penalty[split], strict=True))
        square = torch.where(self.scale.isinf(), 1.0, self.scale).square()[split]
        none = square.new_tensor(torch.inf)
        own = torch.where(self.own & ("own slope" in known), known.get("own slope", none) * square, torch.inf)
        common = torch.stack([known[kind] for kind in self.kinds]) * square
        zero = torch.zeros_like(none)
        return common, own, known.get("level", zero), known.get("own shape", zero)

    def kinds_of(self, n_groups: int, n_shapes: int) -> Kinds:
        """Kinds of the coefficients of :meth:`hazards`."""
        groups, n_strata = n_groups if n_groups > 1 else 0, len(self._places_of(STRATUM))
        names: list[str | None] = [None, *(self.kinds[place] for place in self._straight)]
        names += ["line"] * (self._width - len(self._straight))
        names += ["level"] * groups + ["own slope"] * (groups * int(self.own.sum()))
        names += [None] * n_strata  # levels of strata have no prior
        names += ([None] + ["own shape"] * (groups or n_strata)) * n_shapes
        kinds = tuple(kind for kind in KINDS if kind in names)
        codes = [HELD if name in FIXED else -1 if name is None else kinds.index(name) for name in names]
        if self.has_many:  # with free shapes a perfect fit would be in reach
            codes[len(names) - n_shapes * (1 + groups) :: 1 + groups] = [HELD] * n_shapes
        return Kinds(kinds, torch.tensor(codes, device=self.centre.device))

    def hazards(
        self,
        family: HazardFamily,
        sample: Sample,
        weight: Tensor,
        group: Tensor | None = None,
        n_groups: int = 1,
    ) -> LinearHazards:
        """Problems with all rows in one group, or parameters in groups (S, n); an offset is centred."""
        if self.components is None:
            hazards = LinearHazards(family, sample, weight, self.x, self.centre, self.scale)
        else:
            columns = torch.cat([self.z[..., self._straight], self.components[0]], -1)
            hazards = LinearHazards(family, sample, weight, DesignMatrix(columns, self.x.counts))
        known, (offset, strata) = self.x.places.tolist(), map(self._places_of, (OFFSET, STRATUM))
        if offset:
            values = self.x.numbers[..., known.index(offset[0])] - self.centre[:, offset]
            hazards = replace(hazards, offset=torch.where(weight > 0, values, 0.0))
        if strata:
            group = self.x.numbers[..., [known.index(place) for place in strata]].argmax(-1)
            return replace(hazards, group=group, own=self.own_places[:0], n_groups=len(strata))
        if group is None or n_groups == 1:
            return hazards
        return replace(hazards, group=group, own=1 + self.own_places, n_groups=n_groups)

    @property
    def own_places(self) -> Tensor:
        """Positions of the features that groups have slopes of their own of."""
        return self.own.nonzero().squeeze(-1)

    def _places_of(self, kind: str) -> list[int]:
        return [place for place, own in enumerate(self.kinds) if own == kind]

    def given_prior(self, curvature: Tensor, n_shapes: int) -> Gaussian:
        """Prior by `curvature` of slopes, (S, p), in rows; strata after the first, a reference, have none."""
        none = curvature.new_zeros(len(curvature), 1)
        slopes = torch.where(self.scale.isinf(), _ZERO, curvature / self.scale.square())
        share = self.centre[:, self._places_of(STRATUM)]
        held = torch.where((share > 0) & ((share > 0).cumsum(-1) > 1), 0.0, _ZERO)
        precision = torch.cat([none, slopes, held, *[none, held] * n_shapes], 1)
        return Gaussian(precision, torch.zeros_like(precision))

    def leaves(self, theta: Tensor, n_groups: int, n_shapes: int) -> LeafParameters:
        """Parameters of the groups, in the units of the features, from coefficients (S, D)."""
        own, strata = self.own_places, self._places_of(STRATUM)
        groups = n_groups if n_groups > 1 else 0
        count = groups or len(strata)
        sizes = [1, self._width, count, groups * len(own), n_shapes * (1 + count)]
        intercept, common, level, of_groups, shapes = theta.split(sizes, 1)
        shapes = shapes.unflatten(1, (n_shapes, 1 + count))
        intercept, shape = (part.expand(*part.shape[:-1], n_groups) for part in (intercept, shapes[..., :1]))
        slope = common[:, None].expand(-1, n_groups, -1).clone()
        if groups:
            intercept, shape = intercept + level, shape + shapes[..., 1:]
            slope[..., own] += of_groups.unflatten(1, (groups, len(own)))
        slope = self._of_features(slope)
        slope[..., self._places_of(OFFSET)] = 1.0
        intercept = intercept - (slope * self.centre[:, None]).sum(-1)
        shape_slope = slope.new_zeros(*slope.shape[:-1], n_shapes if strata else 0, slope.shape[-1])
        if strata:
            slope[..., strata] = level[:, None]
            shape_slope[..., strata] = shapes[:, None, :, 1:]
        return LeafParameters(slope, intercept, shape.mT.contiguous(), shape_slope)

    def _of_features(self, slope: Tensor) -> Tensor:
        """Slopes of the features as they are, (S, L, p), from those of z, (S, L, d)."""
        out, straight = slope.new_zeros(*slope.shape[:-1], len(self.kinds)), self._straight
        out[..., straight] = slope[..., : len(straight)]
        if self.components is not None:
            lines = self._places_of("line")
            turned = torch.matmul(slope[..., len(straight) :], self.components[1].mT)
            out[..., lines] = torch.matmul(turned, self.z[..., lines])
        return out / self.scale[:, None]

    def map_of(self, split: int, n_groups: int, n_shapes: int) -> Tensor:
        """:meth:`leaves` of a split, flattened, by coefficients, (n_groups, d, D)."""
        count, own = len(self.kinds_of(n_groups, n_shapes).of), slice(split, split + 1)
        units = torch.eye(1 + count, count, dtype=self.centre.dtype, device=self.centre.device)
        one = replace(self, centre=self.centre[own], scale=self.scale[own])
        found = one.leaves(units, n_groups, n_shapes).flatten()
        return (found[:-1] - found[-1]).movedim(0, -1)  # the slope of an offset, a constant, is no part of it


def _moments(x: DesignMatrix, share: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted means and variances of features, (S, p), by shares of the rows, (S, n)."""
    mean = share.new_zeros(len(share), x.shape[-1])
    variance = torch.zeros_like(mean)
    for split in range(len(share)):
        part = x.of_split(split)
        parts = blocks(len(part), max(1, len(x.places)), _ELEMENTS)
        for rows in parts:
            mean[split, x.places] += (share[split, rows, None] * part.numbers[rows]).sum(0)
        for rows in parts:
            away = part.numbers[rows] - mean[split, x.places]
            variance[split, x.places] += (share[split, rows, None] * away.square_()).sum(0)
        for k, (first, size) in enumerate(x.blocks):
            assert part.codes is not None
            level = torch.bincount(part.codes[:, k], share[split], size + 1)[:size]
            mean[split, first : first + size] = level
            variance[split, first : first + size] = level * (1 - level)
    return mean, variance


def in_double(sample: Sample, family: HazardFamily) -> tuple[Sample, HazardFamily]:
    """Rows and family in double precision, in which Hessians are factored."""
    if sample.log_time.dtype == torch.float64:
        return sample, family
    floating: dict[str, Any] = {
        name: part.double()
        for name, part in vars(sample).items()
        if isinstance(part, Tensor) and part.is_floating_point()
    }
    return replace(sample, **floating), copy.deepcopy(family).double()


def null_start(hazards: LinearHazards) -> Tensor:
    """Coefficients (S, D) without covariates by maximum likelihood, of very many rows of a part."""
    x = hazards.x.features(slice(0, 0))
    null = replace(hazards, x=x, centre=None, scale=None, group=None, own=None, n_groups=0)
    n_events = int(((hazards.weight > 0) * hazards.sample.event).sum(-1).min())
    if (stride := min(hazards.weight.shape[1] // MANY_ROWS, n_events // _ENOUGH_EVENTS)) > 1:
        null = null.thinned(stride)
    family, sample, weight = null.family, null.sample, null.weight
    intercept, shape = family.guess(sample.log_time, sample.event, weight, sample.log_entry)
    guess = torch.cat([intercept[:, None], shape], 1)
    found = newton(null, Gaussian(torch.full_like(guess, _VAGUE), guess), guess).theta
    start = guess.new_zeros(len(guess), hazards.n_coefficients)
    start[:, 0] = found[:, 0]
    start[:, hazards.n_linear :: 1 + hazards.n_groups] = found[:, 1:]
    return start


def principal_components(z: Tensor) -> tuple[Tensor, Tensor]:
    """Components U S and U S^-1, (S, n, r), of features Z = U S V', (S, n, q); zero beyond the rank."""
    # The coefficients b of Z and V'b have the same independent normal prior, and the likelihood depends on
    # V'b alone: optimum and evidence are those of Z, and b = Z' U S^-1 times the r coefficients of U S.
    values, vectors = torch.linalg.eigh(torch.matmul(z, z.mT))
    root = values.clamp(min=0.0).sqrt()
    counts = root > _RANK * root[:, -1:]
    first = values.shape[-1] - max(int(counts.sum(-1).max()), 1)
    root, vectors, counts = root[:, first:], vectors[..., first:], counts[:, first:]
    scores = vectors * torch.where(counts, root, 0.0)[:, None]
    return scores, vectors / torch.where(counts, root, torch.inf)[:, None]


def held_out_start(
    hazards: LinearHazards, kinds: Kinds, start: Tensor, splits: Sequence[SurvivalData], seed: int
) -> Tensor:
    """Starting values (S, D): `start` with the shapes of linear predictors of rows held out in five folds."""
    # With more columns than rows the predictors of training rows allow a perfect fit. Those of held-out rows
    # have one free slope; a split with too few events for folds keeps its shapes.
    fold = torch.stack(
        [_folds(event, data, seed) for event, data in zip(hazards.sample.event, splits, strict=True)]
    )
    enough = (fold >= 0).any(-1)
    if not bool(enough.any()):
        return start
    predictor, first = torch.zeros_like(hazards.weight), None
    for number in range(_N_FOLDS):
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
    if events >= _N_FOLDS:
        own = stratified_folds(had, _N_FOLDS, seed, data.subject)
        fold[: len(data)] = torch.as_tensor(own).to(event.device)
    return fold
