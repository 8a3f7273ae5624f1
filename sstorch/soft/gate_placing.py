"""Placing of gates: on residuals of regressions, on predictions, and below other gates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.design_matrix import DesignMatrix, first_features
from sstorch.nn import GateParameters, SoftTree
from sstorch.objective import Sample
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.starts.regression_tree import (
    GateColumns,
    Split,
    gates_of_splits,
    model_tree,
    regression_tree,
)
from sstorch.optim.starts.residuals import residual_bag
from sstorch.progress import report
from sstorch.soft.settings import BatchSettings

# Least weight of a residual, as a share of the mean.
_LEAST_CURVATURE = 1e-3
# Columns that gates may use where there are many.
GATE_COLUMNS = 50
# Rows by which gates are placed at most: a threshold from so many differs from that of all rows by less than
# follow-up and censoring do. Leaves, and the evidence that chooses between gates, see all rows.
GATE_ROWS = 20_000


@dataclass(frozen=True)
class GatePlacing:
    """How gates of S splits are placed.

    Of more than 20,000 rows gates are placed by some: subjects are drawn, with all their rows.
    """

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
        """The gates, with whole nodes below those `given` divided by a target (S, J, n).

        Gates of a split stay where None is given.
        """
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
        lines: Callable[[int, Tensor], Tensor],
    ) -> list[dict[int, Split]]:
        """Splits of each problem's tree on the residuals of regressions, by node, in order of growth.

        `hazards` of the regressions and their coefficients `theta` are by cause; `lines` are features that
        groups have slopes of their own of, of some rows of a split.
        """
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
            n = len(data)
            subject = np.arange(n) if data.subject is None else data.subject
            n_subjects = int(subject.max()) + 1
            chosen = np.full(n_subjects, n <= GATE_ROWS)
            if n > GATE_ROWS:
                order = np.random.default_rng(self.settings.seed).permutation(n_subjects)
                chosen[order[: max(1, GATE_ROWS * n_subjects // n)]] = True
            found.append(np.flatnonzero(chosen[subject]))
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
