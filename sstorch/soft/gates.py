"""Gates of groups: placed on residuals and predictions, or estimated together with their leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.design_matrix import DesignMatrix, first_features
from sstorch.nn import GateParameters, SoftTree, Topology
from sstorch.objective import Sample
from sstorch.optim.evidence import Estimates, Kinds, Watch, estimate
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.soft_gate import SoftGate
from sstorch.optim.starts.regression_tree import (
    GateColumns,
    Split,
    gates_of_splits,
    model_tree,
    regression_tree,
    residual_bag,
)
from sstorch.soft.group_choice import Candidate, positions_of
from sstorch.soft.settings import BatchSettings
from sstorch.threads import report

# Kind of the weights of trained gates.
GATE = "gate"
# The largest penalty of leaves to begin with: equal leaves would stay so, a saddle.
_FIRST = 100.0
# Slope of a gate's logit at the start, a standard deviation of its score: the gate goes from .27 to .73
# within one. Steeper gates learn from the rows near their threshold alone.
SHARPNESS = 2.0
# Standard deviation below which a feature is the same in all rows, and ridge of the curvature of a product,
# a row.
_CONSTANT, _RIDGE = 1e-9, 0.01
# Least weight of a residual, as a share of the mean.
_LEAST_CURVATURE = 1e-3
# Columns that gates may use where there are many.
GATE_COLUMNS = 50
# Rows by which gates are placed at most: a threshold from so many differs from that of all rows by less than
# follow-up and censoring do. Leaves, and the evidence that chooses between gates, see all rows.
GATE_ROWS = 20_000


@dataclass(frozen=True)
class GatePlacing:
    """How gates of S splits are placed: of more than 20,000 rows by those of subjects that are drawn."""

    tree: SoftTree  # that has the gates, one per split
    sample: Sample  # rows of the splits
    splits: Sequence[SurvivalData]
    columns: Sequence[GateColumns]  # that the gates of each split may use
    settings: BatchSettings

    @cached_property
    def features(self) -> DesignMatrix:
        """Features of gates, (S, n, q)."""
        return first_features(self.sample.x, self.tree.n_gate_features)

    def logits(self, gates: GateParameters) -> Tensor:
        """Of gates at all rows, (S, B, n)."""
        x = self.features
        return x.project(gates.weight.to(x.dtype), gates.bias.to(x.dtype))

    def gates(self, trees: Sequence[Mapping[int, Split]]) -> GateParameters:
        """Gates of the splits of each tree, by node; those of other nodes send all rows left."""
        like = self.tree.log_time_scale.double()
        return gates_of_splits(trees, self.tree.topology, self.features.shape[-1], like)

    def distilled(self, targets: Tensor) -> GateParameters:
        """Gates of the targets of a teacher, (S, J, n)."""
        report("distilling", 0, 1)
        return self.gates([self._tree(split, targets, {}) for split in range(len(self.splits))])

    def filled(
        self, gates: GateParameters, given: Sequence[Mapping[int, Split] | None], target: Tensor
    ) -> GateParameters:
        """The gates, with whole nodes below those `given`, not None, divided by a target (S, J, n)."""
        trees = [{} if own is None else self._tree(split, target, own) for split, own in enumerate(given)]
        grown, stays = self.gates(trees), torch.tensor([own is None for own in given])
        stays = stays.to(gates.bias.device)[:, None]
        weight = torch.where(stays[..., None], gates.weight, grown.weight)
        return GateParameters(weight, torch.where(stays, gates.bias, grown.bias))

    def _tree(self, split: int, target: Tensor, given: Mapping[int, Split]) -> Mapping[int, Split]:
        """Splits of the tree of a split on a target (S, J, n), by node; those that are given stay."""
        rows, x, share = self._rows(split)
        known = target[split].double().cpu().numpy()[:, rows]
        columns, topology = self.columns[split], self.tree.topology
        return regression_tree(x, known, share, columns, topology, self.settings.min_leaf, given)

    def residual_trees(
        self,
        hazards: Mapping[str, LinearHazards],
        theta: Mapping[str, Tensor],
        lines: Callable[[int, Tensor], Tensor],  # of some rows: :meth:`Design.lines`
    ) -> list[dict[int, Split]]:
        """Splits of each problem's tree on the residuals of regressions, by node, in order of growth."""
        residuals, curvatures = [], []
        for name, each in hazards.items():
            _, first, second = each.row_derivatives(theta[name])
            curvature = second[..., 0, 0]
            mean = (each.weight * curvature).sum(-1, keepdim=True) / each.weight.sum(-1, keepdim=True)
            curvature = torch.maximum(curvature, _LEAST_CURVATURE * mean.clamp(min=1e-12))
            residuals.append((-first[..., 0] / curvature).cpu().numpy())
            curvatures.append((each.weight * curvature).cpu().numpy())
        trees = []
        for split, data in enumerate(self.splits):
            report("distilling", split, len(self.splits))
            rows, x, share = self._rows(split)
            subject = np.arange(len(data)) if data.subject is None else data.subject
            subject = np.unique(subject[rows], return_inverse=True)[1]
            precision = np.stack([each[split, rows] for each in curvatures])
            columns, seen = self.columns[split], x
            places = np.sort(np.concatenate(columns.places))
            if len(places) < x.shape[-1]:
                seen = DesignMatrix(x.to_dense()[:, places])
            bags: list[FloatArray] = [
                residual_bag(seen, each[split, rows], own, subject, self.settings.seed)
                for each, own in zip(residuals, precision, strict=True)
            ]
            given = lines(split, torch.as_tensor(rows)).cpu().numpy(), np.stack(bags), precision, share
            trees.append(model_tree(x, *given, columns, self.tree.topology, self.settings.min_leaf))
        return trees

    def _rows(self, split: int) -> tuple[IntArray, DesignMatrix, FloatArray]:
        """Rows of a split by which gates are placed, their features and weights with sum one."""
        rows = self._drawn[split]
        x = self.features.of_split(split)[torch.as_tensor(rows)].to("cpu", torch.float64)
        weight = self.sample.weight[split].double().cpu().numpy()[rows]
        return rows, x, weight / weight.sum()

    @cached_property
    def _drawn(self) -> list[IntArray]:
        """Rows of each split by which gates are placed; where they are very many those of some subjects."""
        found = []
        for data in self.splits:
            n, subject = len(data), np.arange(len(data)) if data.subject is None else data.subject
            order = np.random.default_rng(self.settings.seed).permutation(int(subject.max()) + 1)
            some = order[: max(1, GATE_ROWS * len(order) // n)]
            found.append(np.flatnonzero(np.isin(subject, some)) if n > GATE_ROWS else np.arange(n))
        return found


def strongest(columns: GateColumns, preprocessor: Preprocessor, size: Sequence[float]) -> GateColumns:
    """The 50 columns with the largest sum of the sizes (p,) of the slopes of their features in leaves."""
    total: dict[str, float] = defaultdict(float)
    for feature, value in zip(preprocessor.leaf_features, size, strict=True):
        for column in feature.columns:
            total[column] += value
    names = [preprocessor.gate_features[places[0]].columns[0] for places in columns.places]
    kept = sorted(sorted(range(len(names)), key=lambda k: -total[names[k]])[:GATE_COLUMNS])
    return GateColumns(tuple(columns.places[k] for k in kept), tuple(columns.categorical[k] for k in kept))


def gate_columns(preprocessor: Preprocessor) -> GateColumns:
    """The raw columns of the features that gates see."""
    places: dict[tuple[str, ...], list[int]] = {}
    straight_first = sorted(enumerate(preprocessor.gate_features), key=lambda each: each[1].curved)
    for place, feature in straight_first:
        places.setdefault(feature.columns, []).append(place)
    return GateColumns(
        tuple(np.array(own) for own in places.values()),
        tuple(column in preprocessor.schema.categories for (column,) in places),
    )


@dataclass(frozen=True)
class GateFeatures:
    """Features of gates of S splits, in standard deviations."""

    z: Tensor  # standardised, 0 where a split's gates do not use a feature, (S, n, Q)
    places: Tensor  # positions among the features of gates, (Q,)
    column: Tensor  # number of the raw column of each, (Q,)
    centre: Tensor  # (S, Q)
    scale: Tensor  # standard deviations, +inf of features that are not used, (S, Q)
    n_features: int  # features of gates

    @classmethod
    def of(cls, x: DesignMatrix, share: Tensor, columns: Sequence[GateColumns]) -> Self:
        """Of features (S, n, q), shares of the rows (S, n) and the columns of each split's gates."""
        used = [np.concatenate(own.places) for own in columns]
        places = torch.as_tensor(np.unique(np.concatenate(used)), device=share.device)
        of_column = {place: own[0] for each in columns for own in each.places for place in own}
        column = places.new_tensor([of_column[place] for place in places.tolist()])
        values, share = x.to_dense()[..., places].double(), share.double()[..., None]
        centre = (share * values).sum(1)
        scale = (share * (values - centre[:, None]).square()).sum(1).sqrt()
        allowed = torch.stack([torch.isin(places, torch.as_tensor(own).to(places)) for own in used])
        scale = torch.where(allowed & (scale > _CONSTANT), scale, torch.inf)
        return cls((values - centre[:, None]) / scale[:, None], places, column, centre, scale, x.shape[-1])

    def logits(self, gates: Tensor) -> Tensor:
        """Logits of rows, (S, B, n), by biases and weights (S, B, 1 + Q)."""
        return gates[..., :1] + torch.matmul(gates[..., 1:], self.z.mT)

    def split(self, gate: Tensor, problem: int) -> Split:
        """A gate of a split, bias and weights (1 + Q,), by the features in their own units."""
        weight = gate[1:] / self.scale[problem]
        slope = weight.new_zeros(self.n_features).index_copy(0, self.places, weight)
        bias = gate[0] - weight @ self.centre[problem]
        return Split(-1, slope.cpu().numpy(), float(bias))  # of several columns


@dataclass(frozen=True)
class GateAndLeaves:
    """One gate of S splits with its two leaves, of each cause: coefficients in one vector, to begin with."""

    problem: SoftGate
    features: GateFeatures
    names: Mapping[str, Mapping[str, str]]  # of the kinds of each cause, by their names in the vector
    kinds: Kinds
    theta: Tensor  # (S, D)
    first: Mapping[str, Tensor]  # penalties to begin with, by kind

    @classmethod
    def of(
        cls,
        hazards: Mapping[str, LinearHazards],
        own: Tensor,
        features: GateFeatures,
        leaves: Mapping[str, Estimates],
        gate: Tensor,
    ) -> Self:
        """Of a gate (S, 1 + Q), with a prior around zero, and its leaves, with slopes of their `own`."""
        problem = SoftGate(tuple(hazards.values()), own, features.z)
        names, codes = {}, []
        first: dict[str, Tensor] = {}
        for cause, each in leaves.items():
            prefix = f"{cause}: " if len(leaves) > 1 else ""
            names[cause] = {f"{prefix}{kind}": kind for kind in each.kinds.names}
            codes.append(torch.where(each.kinds.of >= 0, each.kinds.of + len(first), each.kinds.of))
            first |= dict(zip(names[cause], each.penalty.clamp(max=_FIRST).unbind(-1), strict=True))
        of_gate = torch.full_like(gate[0], len(first), dtype=torch.long)
        of_gate[0] = -1
        first[GATE] = (1 / gate[:, 1:].square().mean(1).clamp(min=1e-6)).clamp(1e-2, 1e2)
        theta = torch.cat([*(each.theta for each in leaves.values()), gate], 1)
        return cls(problem, features, names, Kinds((*first,), torch.cat([*codes, of_gate])), theta, first)

    def estimate(self, watch: Watch | None) -> Estimates:
        """Coefficients and variances of all together."""
        return estimate(self.problem, self.kinds, self.theta, self.first, careful=True, watch=watch)

    def candidate(self, name: str, joint: Estimates, divides: Tensor, topology: Topology) -> Candidate:
        """Trees whose root is the estimated gate, in the splits where it `divides` rows, boolean (S,)."""
        share = 1 / len(self.names)
        estimates = {
            cause: joint.part(places, names, share)
            for (cause, names), places in zip(self.names.items(), self.problem.of_causes, strict=True)
        }
        gates = joint.rounded[:, self.problem.of_gate]
        splits = [
            {1: self.features.split(gate, k)} if own else {}
            for k, (gate, own) in enumerate(zip(gates, divides.tolist(), strict=True))
        ]
        of_features = gates_of_splits(splits, topology, self.features.n_features, gates)
        leaves = torch.tensor([0, len(topology.leaves) // 2], device=gates.device)  # gates below send left
        position = positions_of(leaves, topology)
        return Candidate(name, of_features, splits, estimates, position, joint)


def spectral_gates(
    features: GateFeatures, hazards: Mapping[str, LinearHazards], theta: Mapping[str, Tensor]
) -> list[Tensor]:
    """Two gates of several columns for each split, (S, 1 + Q) each, from what products would explain."""
    # A slope that turns where v . z changes its sign is to first order a product (v . z)(d . z), a quadratic
    # form in z. Its matrix has the Newton steps of products of two columns; the best product of two linear
    # forms has its largest and least eigenvectors, sqrt(w+) e+ +- sqrt(-w-) e-. Either may be the gate.
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
    steps = torch.where(features.column[:, None] == features.column, 0.0, steps)
    values, vectors = torch.linalg.eigh(steps)
    large, small = values[:, -1:].clamp(min=0).sqrt(), (-values[:, :1]).clamp(min=0).sqrt()
    share, found = weight / weight.sum(-1, keepdim=True), []
    for sign in (1.0, -1.0):
        direction = large * vectors[..., -1] + sign * small * vectors[..., 0]
        score = torch.matmul(z, direction[..., None]).squeeze(-1)
        mean = (share * score).sum(-1, keepdim=True)
        deviation = (share * (score - mean).square()).sum(-1, keepdim=True).sqrt()
        order = score.argsort(-1)
        place = (share.gather(-1, order).cumsum(-1) >= 0.5).to(torch.uint8).argmax(-1, keepdim=True)
        median = score.gather(-1, order.gather(-1, place))
        sharpness = torch.where(deviation > _CONSTANT, SHARPNESS / deviation, 0.0)
        found.append(sharpness * torch.cat([-median, direction], -1))
    return found
