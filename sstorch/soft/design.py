"""Designs of regressions and groups whose penalties are estimated."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from sstorch.data import Preprocessor
from sstorch.data.basis import Feature
from sstorch.data.coded import SplitMatrices
from sstorch.nn import HazardFamily, LeafParameters
from sstorch.nn.design_matrix import last_features
from sstorch.objective import Sample
from sstorch.objective import counted_weight as counted_weight
from sstorch.optim.evidence import Kinds
from sstorch.optim.linear_design import LinearDesign, row_blocks
from sstorch.optim.newton import Gaussian, LinearHazards, newton

# Kinds of coefficients, each with a variance of its own.
KINDS = ("line", "curve", "category", "interaction", "level", "own slope", "own shape")
# Precision of the priors under which a hazard without covariates is fitted.
_VAGUE = 1e-4
# Standard deviation below which a feature is the same in all rows.
_CONSTANT = 1e-9
# A category with more levels has no slopes of its own in the groups.
_MANY_LEVELS = 6


def kind_of(feature: Feature, preprocessor: Preprocessor) -> str:
    """The kind of a leaf feature's coefficient."""
    if feature.kind == "product":
        return "interaction"
    if feature.curved:
        return "curve"
    return "category" if feature.columns[0] in preprocessor.schema.categories else "line"


@dataclass(frozen=True)
class Design:
    """Features of leaves in units in which coefficients of one kind are comparable.

    Lines and products are standardised; the curve of a column is scaled as a whole, so that its features have
    variances with sum one; categories are centred indicators. Means and deviations are weighted.

    Attributes:
        x: features of S splits, (S, n, p), from which the centre is taken off before the scale divides them.
        centre: shape (S, p).
        scale: +inf for features that are the same in all rows, (S, p).
        kinds: of the features.
        own: features that groups have slopes of their own of, boolean (p,).
    """

    x: SplitMatrices
    centre: Tensor
    scale: Tensor
    kinds: tuple[str, ...]
    own: Tensor

    @classmethod
    def of(cls, sample: Sample, n_features: int, preprocessor: Preprocessor) -> Self:
        """Of the rows of S problems, one a split."""
        x = SplitMatrices.of(last_features(sample.x, n_features).stored)
        centre, variance = _moments(x, sample.normalised_weight.double())
        features = preprocessor.leaf_features
        kinds = tuple(kind_of(feature, preprocessor) for feature in features)
        scale = variance.sqrt()
        blocks: dict[str, list[int]] = {}
        for j, (kind, feature) in enumerate(zip(kinds, features, strict=True)):
            if kind == "curve":
                blocks.setdefault(feature.columns[0], []).append(j)
        constant = scale <= _CONSTANT
        for places in blocks.values():
            scale[:, places] = variance[:, places].sum(-1, keepdim=True).sqrt()
        scale[:, [j for j, kind in enumerate(kinds) if kind == "category"]] = 1.0
        scale = torch.where(constant, torch.inf, scale)
        levels = preprocessor.schema.categories
        own = [
            kind == "line" or (kind == "category" and len(levels[feature.columns[0]]) <= _MANY_LEVELS)
            for kind, feature in zip(kinds, features, strict=True)
        ]
        return cls(x, centre, scale, kinds, torch.tensor(own, device=centre.device))

    def lines(self, split: int, rows: slice | Tensor) -> Tensor:
        """Features that groups have slopes of their own of, of some rows of a split, (m, q)."""
        own = self.own[self.x.places]
        numbers = self.x[split].numbers[rows][:, own].double()
        places = self.x.places[own]
        return (numbers - self.centre[split, places]) / self.scale[split, places]

    def kinds_of(self, n_groups: int, n_shapes: int) -> Kinds:
        """Kinds of the coefficients of :meth:`hazards`."""
        names: list[str | None] = [None, *self.kinds]
        if n_groups > 1:
            names += ["level"] * n_groups + ["own slope"] * (n_groups * int(self.own.sum()))
        for _ in range(n_shapes):
            names += [None] + (["own shape"] * n_groups if n_groups > 1 else [])
        kinds = tuple(kind for kind in KINDS if kind in names)
        codes = [-1 if name is None else kinds.index(name) for name in names]
        return Kinds(kinds, torch.tensor(codes, device=self.centre.device))

    def hazards(
        self,
        family: HazardFamily,
        sample: Sample,
        weight: Tensor,
        group: Tensor | None = None,
        n_groups: int = 1,
    ) -> LinearHazards:
        """The problems: all rows in one group, or with levels, slopes and shapes of their own in the groups.

        Args:
            family: prepared for S problems.
            sample: their rows.
            weight: what the loss of each row counts, (S, n).
            group: of each row, 0 ... n_groups - 1, (S, n).
            n_groups: how many there are.
        """
        split = torch.arange(len(self.centre), device=self.centre.device)
        design = LinearDesign(self.x, split, self.centre, self.scale)
        if group is None or n_groups == 1:
            return LinearHazards(family, sample, weight, design)
        own = 1 + self.own.nonzero().squeeze(-1)
        return LinearHazards(family, sample, weight, design, group, own, n_groups)

    def leaves(self, theta: Tensor, n_groups: int, n_shapes: int) -> LeafParameters:
        """Parameters of the groups, in the units of the features, from coefficients (S, D)."""
        p, q = len(self.own), int(self.own.sum())
        slope = theta[:, None, 1 : 1 + p].expand(-1, n_groups, -1).clone()
        intercept = theta[:, :1].expand(-1, n_groups).clone()
        end = 1 + p
        if n_groups > 1:
            intercept = intercept + theta[:, end : end + n_groups]
            end += n_groups
            slope[..., self.own] += theta[:, end : end + n_groups * q].unflatten(1, (n_groups, q))
            end += n_groups * q
        shapes = theta[:, end:].unflatten(1, (n_shapes, 1 + n_groups if n_groups > 1 else 1))
        shape = shapes[..., :1].expand(-1, -1, n_groups)
        if n_groups > 1:
            shape = shape + shapes[..., 1:]
        slope = slope / self.scale[:, None]
        intercept = intercept - (slope * self.centre[:, None]).sum(-1)
        none = slope.new_zeros(*slope.shape[:-1], 0, p)
        return LeafParameters(slope, intercept, shape.mT.contiguous(), none)

    def map_of(self, split: int, n_groups: int, n_shapes: int) -> Tensor:
        """:meth:`leaves` of a split as a matrix, (n_groups * d, D): a row for each parameter of each group.

        Parameters of a group are in the order of :meth:`LeafParameters.unflatten`.
        """
        count = len(self.kinds_of(n_groups, n_shapes).of)
        units = torch.eye(count, dtype=self.centre.dtype, device=self.centre.device)
        centre, scale = (part[split].expand(count, -1) for part in (self.centre, self.scale))
        one = replace(self, centre=centre, scale=scale)
        return one.leaves(units, n_groups, n_shapes).flatten().flatten(1).mT


def _moments(x: SplitMatrices, share: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted means and variances of features, (S, p), by shares of the rows, (S, n)."""
    mean = share.new_zeros(len(share), x.shape[-1])
    variance = torch.zeros_like(mean)
    for split, part in enumerate(x.parts):
        blocks = row_blocks(len(part), max(1, len(x.places)))
        for rows in blocks:
            mean[split, x.places] += (share[split, rows, None] * part.numbers[rows].double()).sum(0)
        for rows in blocks:
            away = part.numbers[rows].double() - mean[split, x.places]
            variance[split, x.places] += (share[split, rows, None] * away.square_()).sum(0)
        for k, (first, size) in enumerate(x.blocks):
            level = torch.bincount(part.codes[:, k], share[split, : len(part)], size + 1)[:size]
            mean[split, first : first + size] = level
            variance[split, first : first + size] = level * (1 - level)
    return mean, variance


def in_double(sample: Sample, family: HazardFamily) -> tuple[Sample, HazardFamily]:
    """Rows and family in double precision, in which Hessians are factored."""
    if sample.log_time.dtype == torch.float64:
        return sample, family
    parts: dict[str, Any] = {item.name: getattr(sample, item.name) for item in fields(sample)}
    for name, part in parts.items():
        if isinstance(part, Tensor) and part.is_floating_point():
            parts[name] = part.double()
    return Sample(**parts), copy.deepcopy(family).double()


def null_start(hazards: LinearHazards) -> Tensor:
    """Coefficients (S, D) of the hazard without covariates, by maximum likelihood."""
    family, sample, weight = hazards.family, hazards.sample, hazards.weight
    intercept, shape = family.guess(sample.log_time, sample.event, weight, sample.log_entry)
    guess = torch.cat([intercept[:, None], shape], 1)
    null = LinearHazards(family, sample, weight, hazards.design.without_features)
    found = newton(null, Gaussian(torch.full_like(guess, _VAGUE), guess), guess).theta
    start = guess.new_zeros(len(guess), hazards.n_coefficients)
    start[:, 0] = found[:, 0]
    start[:, hazards.n_linear :: 1 + hazards.n_groups] = found[:, 1:]
    return start
