"""Regressions and groups whose penalties are estimated: candidates for gates, and the choice by evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.columns import is_wide
from sstorch.data.design_matrix import DesignMatrix, first_features
from sstorch.inference.covariance import HazardCovariance, marginal_covariance
from sstorch.monitoring import Callback
from sstorch.newton import Optimum
from sstorch.nn import GateParameters, LeafParameters, SoftTree, Topology
from sstorch.nn.routing import log_path_probability, most_probable_leaf
from sstorch.objective import NormalPrior, Sample, counted_weight
from sstorch.optim.checkpoint import Checkpoint, kept
from sstorch.optim.evidence import HELD, Estimates, Kinds, Watch, estimate
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.soft_gates import SoftGates, path_signs
from sstorch.optim.starts.distilled import gates_of_splits, gates_of_targets, single_leaf
from sstorch.optim.starts.regression_tree import GateColumns, Split, regression_tree
from sstorch.optim.starts.residuals import model_tree, residual_bag
from sstorch.progress import report
from sstorch.soft.design import Design, in_double, null_start
from sstorch.soft.group_choice import (
    REGRESSION,
    SPECTRAL,
    Candidate,
    Estimation,
    GroupChoice,
    gates_of,
    whole_to_left,
)
from sstorch.soft.rotation import held_out_start
from sstorch.soft.settings import BatchSettings
from sstorch.soft.teacher import Teacher, log_hazards, regression_targets
from sstorch.soft.trained_gates import GateFeatures, spectral_gates

T = TypeVar("T")

RESIDUALS, PREDICTOR = "residuals", "predictor"
# Kind of the weights of trained gates.
GATE = "gate"
# Least weight of a residual, as a share of the mean.
_LEAST_CURVATURE = 1e-3
# Penalties of what groups have of their own, to begin with, by kind. The evidence can have several maxima:
# wide priors that do not pay become narrow, but narrow ones can stay so where wider ones would pay.
FIRST_OWN = {"level": 0.01, "own slope": 1.0, "own shape": 0.01}
# The largest with which leaves begin whose gates are estimated: equal leaves would stay so, a saddle.
_FIRST_WITH_GATES = 100.0
# Evidence, in nats, that leaves under the gates of a start must gain on the regression, and by which they may
# be behind those of another start, for the gates to be trained.
_DIFFERENT, _BEHIND = 2.0, 10.0
# Columns that gates may use where there are many.
_GATE_COLUMNS = 50
# Rows by which gates are placed at most: a threshold from so many differs from that of all rows by less than
# follow-up and censoring do. Leaves, and the evidence that chooses between gates, see all rows.
GATE_ROWS = 20_000


class Estimator:
    """Regressions and groups of S splits, of every cause.

    Trees, one per split, are untrained. Folds by the seed estimate the shapes of many columns. A checkpoint
    keeps regressions and candidates as soon as they are estimated.
    """

    def __init__(
        self,
        trees: Mapping[str, SoftTree],
        samples: Mapping[str, Sample],
        splits: Sequence[SurvivalData],
        preprocessors: Sequence[Preprocessor],
        columns: GateColumns,
        seed: int = 0,
        checkpoint: Checkpoint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.trees, self.samples, self.splits = trees, samples, splits
        self._checkpoint, self._callbacks = checkpoint, callbacks
        self._all_columns, self._n_gate_columns = columns, len(columns.places)
        self._terms = [":".join(feature.columns) for feature in preprocessors[0].leaf_features]
        self._tree, self._sample = next(iter(trees.values())), next(iter(samples.values()))
        design = Design.of(self._sample, self._tree.in_features, preprocessors[0])
        wide = is_wide(design.kinds.count("line"), self._sample.weight.shape[-1])
        self._design = design.of_many_lines() if wide else design
        self._hazards: dict[str, LinearHazards] = {}
        self.regressions: dict[str, Estimates] = {}
        for number, (name, tree) in enumerate(trees.items()):
            report("regressions", number, len(trees))
            sample, family = in_double(samples[name], tree.family)
            weight = counted_weight(samples[name])
            hazards = self._design.hazards(family, sample, weight)
            kinds = self._design.kinds_of(1, len(family.shape_names))
            self._hazards[name] = hazards
            start = null_start(hazards)
            if wide:
                start = held_out_start(hazards, kinds, start, splits, seed)
            self.regressions[name] = self._kept(
                f"regression/{name}",
                partial(estimate, hazards, kinds, start, watch=self._watch(REGRESSION, name, kinds)),
            )
        self._gate_columns = (
            [self._visible(columns, preprocessors[0], split) for split in range(len(splits))]
            if wide and len(columns.places) > _GATE_COLUMNS
            else [columns] * len(splits)
        )

    def _kept(self, part: str, make: Callable[[], T]) -> T:
        return kept(self._checkpoint, part, make, self._tree.log_time_scale.device)

    # ------------------------------------------------------------------ groups

    def choose(self, settings: BatchSettings) -> list[GroupChoice]:
        """Give the trees their gates and leaves.

        Of each split gates and hazards are those of the candidate with the most evidence, one of which is the
        regression. Unless groups are wanted only where they gain, nodes that its gates leave whole are then
        divided by what the model predicts, and groups below such a gate share its hazard.
        """
        candidates = list(self._candidates(settings))
        plain = self._evidence(self.regressions)
        regression = self._as_candidate()
        # A priori a node is divided as likely as not, and then by each column alike (Chipman, George and
        # McCulloch, 1998).
        charge = settings.gate_charge + math.log(2 * self._n_gate_columns)
        evidence = [
            {REGRESSION: float(plain[split])}
            | {
                each.name: value
                for each in candidates
                if np.isfinite(value := float(each.evidence(charge)[split]))
            }
            for split in range(len(self.splits))
        ]
        best = [max(each, key=each.__getitem__) for each in evidence]
        hard = [next((each for each in candidates if each.name == name), regression) for name in best]
        models = list(hard)
        if settings.trains_gates and not self._design.has_many and self._tree.topology.depth:
            self._train_gates(models, evidence, best, settings)
        self._models = models
        self._adopt_hazards(models)
        gates = gates_of(models)
        if candidates and not settings.only_if_needed:
            filled = self._filled(hard, candidates[-1], settings)
            divides = torch.stack([each.divides[split] for split, each in enumerate(models)])
            gates = GateParameters(
                torch.where(divides[..., None], gates.weight, filled.weight),
                torch.where(divides, gates.bias, filled.bias),
            )
        self._adopt_gates(gates)
        leaf = self._tree.apply_leaf(self._sample.x)
        choices = []
        for split, (name, model) in enumerate(zip(best, models, strict=True)):
            estimations = {
                cause: Estimation.of(own, split, self._terms, self._design)
                for cause, own in model.estimates.items()
            }
            if model.joint is not None and len(estimations) == 1:
                (cause,) = estimations
                estimations[cause] = Estimation.of(model.joint, split, self._terms, self._design)
            n_groups = len(leaf[split][self._sample.weight[split] > 0].unique())
            choices.append(GroupChoice(evidence[split], name, n_groups, estimations))
        return choices

    def _train_gates(
        self,
        models: list[Candidate],
        evidence: Sequence[dict[str, float]],
        best: list[str],
        settings: BatchSettings,
    ) -> None:
        """Put trained gates of several columns in the place of models that have less evidence.

        The evidence of soft gates is a lower bound: the expected loss of a row is at least its negative
        log-likelihood under the mixture of the leaves.
        """
        for trained in self._trained():
            for split, value in enumerate(trained.evidence(settings.gate_charge).tolist()):
                if np.isfinite(value):
                    evidence[split][trained.name] = value
                if value > evidence[split][best[split]]:
                    models[split], best[split] = trained, trained.name

    def _filled(
        self, models: Sequence[Candidate], usual: Candidate, settings: BatchSettings
    ) -> GateParameters:
        """Gates of the splits, the `usual` ones of a regression, with whole nodes divided."""
        gates = gates_of([usual if model.name == REGRESSION else model for model in models])
        open_splits = [split for split, model in enumerate(models) if model.splits is not None]
        if not open_splits:
            return gates
        target = -log_hazards(self.trees, self.samples, self.splits).double().cpu().numpy()
        grown: list[dict[int, Split]] = [{}] * len(models)
        for split in open_splits:
            given = models[split].splits
            assert given is not None
            rows, x, share = self._placing_rows(split, settings)
            own = target[split][:, rows]
            columns, topology, least = self._gate_columns[split], self._tree.topology, settings.min_leaf
            grown[split] = regression_tree(x, own, share, columns, topology, least, given[split])
        filled = self._gates_of_splits(grown)
        places = torch.tensor(open_splits, device=gates.bias.device)
        return GateParameters(
            gates.weight.index_copy(0, places, filled.weight[places]),
            gates.bias.index_copy(0, places, filled.bias[places]),
        )

    @property
    def has_many_columns(self) -> bool:
        """Whether shapes are held, since columns are many."""
        return self._design.has_many

    @property
    def n_splits(self) -> int:
        """Of the data, those with a chosen model."""
        return len(self._models)

    @property
    def n_coefficients(self) -> int:
        """Of the largest of the chosen hazards."""
        sizes = (each.theta.shape[1] for model in self._models for each in model.estimates.values())
        return max(sizes)

    def covariances(self, split: int) -> dict[str, HazardCovariance]:
        """Of the coefficients of the chosen hazards of a split, by cause."""
        model, found = self._models[split], {}
        leaf_groups = model.position[whole_to_left(model.divides[split])].cpu()
        n_groups = int(model.position.max()) + 1
        for name, estimates in model.estimates.items():
            theta, kinds = estimates.theta[split].cpu(), estimates.kinds
            penalty = estimates.penalty[split : split + 1]
            precision = torch.where(kinds.of == HELD, kinds.precision(penalty), kinds.spread(penalty, 0.0))
            precision = precision[0].cpu()
            rows = torch.eye(len(theta), dtype=theta.dtype, device=estimates.theta.device)
            posterior = estimates.quadratic(rows[None])[split].cpu()
            found[name] = HazardCovariance.of_posterior(
                estimates.rounded[split].cpu(),
                posterior,
                marginal_covariance(posterior, theta, precision, self._blocks(kinds)),
                precision,
                self._design.map_of(split, n_groups, len(self.trees[name].family.shape_names)).cpu(),
                leaf_groups,
            )
        return found

    def _blocks(self, kinds: Kinds) -> Tensor:
        """Coefficients with one uncertain variance: those of a kind, of curves and categories by column."""
        names: list[tuple[str, ...]] = [
            (kinds.names[kind],) if kind >= 0 else () for kind in kinds.of.tolist()
        ]
        for place, term in enumerate(self._terms, 1):
            if names[place] in (("curve",), ("category",)):
                names[place] = (*names[place], term)
        known = {name: number for number, name in enumerate(dict.fromkeys(filter(None, names)))}
        return torch.tensor([known.get(name, -1) for name in names])

    def prior(self, cause: str) -> NormalPrior:
        """The prior of a cause's leaves in the chosen models, against the mean loss."""
        weight, sample, like = self._hazards[cause].weight, self.samples[cause], self._tree.log_time_scale
        groups = [model.position[whole_to_left(model.divides[k])] for k, model in enumerate(self._models)]
        parts = [self._design.prior_parts(m.estimates[cause], k) for k, m in enumerate(self._models)]
        common, own, level, shape = (torch.stack(part).to(like) for part in zip(*parts, strict=True))
        rows = weight.sum(-1) / sample.loss_weight.double().sum(-1)
        given = self._design.centre.to(like), torch.stack(groups).to(like.device), 1 / rows
        return NormalPrior(common, own, level, shape, *given)

    @property
    def converged(self) -> Tensor:
        """Whether the chosen hazards of all causes are at their optimum, boolean (S,)."""
        own = [
            torch.stack([each.converged[split] for each in model.estimates.values()]).all()
            for split, model in enumerate(self._models)
        ]
        return torch.stack(own)

    def objective(self, cause: str) -> Tensor:
        """Penalised negative log-likelihood of the trees of a cause, a row, (S,)."""
        return self._penalised[cause] / self._hazards[cause].weight.sum(-1)

    def _candidates(self, settings: BatchSettings) -> Iterator[Candidate]:
        topology, teacher = self._tree.topology, settings.teacher
        if topology.depth == 0:
            return
        if teacher in (None, RESIDUALS):
            trees = self._kept("residual trees", lambda: self._residual_trees(settings))
            n_before = 0
            for depth in range(1, topology.depth + 1):
                some = [dict(list(splits.items())[: 2**depth - 1]) for splits in trees]
                n_splits = sum(len(splits) for splits in some)
                if n_splits > n_before:
                    gates = self._gates_of_splits(some)
                    yield self._candidate(f"{RESIDUALS} {2**depth}", gates, some, depth - 1)
                n_before = n_splits
        if teacher != RESIDUALS:
            name = teacher.name if isinstance(teacher, Teacher) else PREDICTOR
            report("distilling", 0, 1)
            gates = self._kept("distilled gates", lambda: self._distilled(settings))
            yield self._candidate(f"{name} {2**topology.depth}", gates, None, topology.depth)

    def _distilled(self, settings: BatchSettings) -> GateParameters:
        """Gates of the targets of a teacher, or of what the regressions predict."""
        teacher = settings.teacher
        if isinstance(teacher, Teacher):
            targets = teacher.targets(self.splits, self._sample)
        else:
            theta = {name: estimates.theta for name, estimates in self.regressions.items()}
            targets = regression_targets(self._without_gates(theta), self.samples, self.splits)
        rows = gate_rows(self.splits, settings.seed)
        batches: list[Tensor] = [torch.arange(len(self.splits))]
        if len({id(columns) for columns in self._gate_columns}) > 1:
            batches = list(batches[0][:, None])
        parts = [
            gates_of_targets(
                self._sample.select(splits),
                targets[splits],
                self._tree.n_gate_features,
                self._gate_columns[int(splits[0])],
                self._tree.topology,
                settings.distillation,
                None if rows is None else rows[splits],
            )
            for splits in batches
        ]
        return GateParameters(
            torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        )

    def _visible(self, columns: GateColumns, preprocessor: Preprocessor, split: int) -> GateColumns:
        """The columns of a split's gates: those with the largest standardised slopes in its regressions."""
        total: dict[str, float] = {}
        scale = torch.where(self._design.scale.isinf(), 0.0, self._design.scale)
        for tree in self.regression_trees().values():
            size = (tree.leaf_parameters().slope[:, 0] * scale).abs()[split].tolist()
            for feature, value in zip(preprocessor.leaf_features, size, strict=True):
                for column in feature.columns:
                    total[column] = total.get(column, 0.0) + value
        features = preprocessor.gate_features
        names = [features[places[0]].columns[0] for places in columns.places]
        order = sorted(range(len(names)), key=lambda k: -total[names[k]])
        kept = sorted(order[:_GATE_COLUMNS])
        return GateColumns(
            tuple(columns.places[k] for k in kept), tuple(columns.categorical[k] for k in kept)
        )

    @cached_property
    def _gate_features(self) -> DesignMatrix:
        """Features of gates, (S, n, q)."""
        return first_features(self._sample.x, self._tree.n_gate_features)

    def _gates_of_splits(self, trees: Sequence[dict[int, Split]]) -> GateParameters:
        like = self._design.centre
        return gates_of_splits(trees, self._tree.topology, self._gate_features.shape[-1], like)

    def _placing_rows(self, split: int, settings: BatchSettings) -> tuple[IntArray, DesignMatrix, FloatArray]:
        """Rows of a split by which gates are placed, their features and weights with sum one."""
        drawn = gate_rows(self.splits, settings.seed)
        rows = np.arange(len(self.splits[split])) if drawn is None else drawn[split].numpy()
        rows = rows[rows >= 0]
        x = self._gate_features.of_split(split)[torch.as_tensor(rows)].to("cpu", torch.float64)
        weight = self._sample.weight[split].double().cpu().numpy()[rows]
        return rows, x, weight / weight.sum()

    def regression_trees(self) -> dict[str, SoftTree]:
        """The regressions as trees of depth 0, one per split, by cause."""
        return self._without_gates({name: each.rounded for name, each in self.regressions.items()})

    def _without_gates(self, theta: Mapping[str, Tensor]) -> dict[str, SoftTree]:
        """Trees of depth 0 with coefficients (S, D) of each cause."""
        single = {name: single_leaf(tree) for name, tree in self.trees.items()}
        for name, tree in single.items():
            leaves = self._design.leaves(theta[name], 1, len(tree.family.shape_names))
            tree.set_leaves(leaves)
        return single

    def _residual_trees(self, settings: BatchSettings, depth: int | None = None) -> list[dict[int, Any]]:
        """Splits of each problem's tree on the residuals of its regressions, by node, in order of growth."""
        residuals, curvatures = [], []
        for name, hazards in self._hazards.items():
            _, first, second = hazards.row_derivatives(self.regressions[name].theta)
            curvature = second[..., 0, 0]
            mean = (hazards.weight * curvature).sum(-1, keepdim=True) / hazards.weight.sum(-1, keepdim=True)
            curvature = torch.maximum(curvature, _LEAST_CURVATURE * mean.clamp(min=1e-12))
            residuals.append((-first[..., 0] / curvature).cpu().numpy())
            curvatures.append((hazards.weight * curvature).cpu().numpy())
        trees = []
        for split, data in enumerate(self.splits):
            report("distilling", split, len(self.splits))
            rows, x, share = self._placing_rows(split, settings)
            subject = np.arange(len(data)) if data.subject is None else data.subject
            subject = np.unique(subject[rows], return_inverse=True)[1]
            precision = np.stack([each[split, rows] for each in curvatures])
            columns, seen = self._gate_columns[split], x
            if len(columns.places) < self._n_gate_columns:
                seen = DesignMatrix(x.to_dense()[:, np.sort(np.concatenate(columns.places))])
            bags: list[FloatArray] = [
                residual_bag(seen, each[split, rows], own, subject, settings.seed)
                for each, own in zip(residuals, precision, strict=True)
            ]
            lines = self._design.lines(split, torch.as_tensor(rows)).cpu().numpy()
            deepest = self._tree.topology.depth if depth is None else depth
            given = lines, np.stack(bags), precision, share, columns
            trees.append(model_tree(x, *given, deepest, 2**deepest, settings.min_leaf))
        return trees

    def _candidate(
        self, name: str, gates: GateParameters, splits: Sequence[dict[int, Split]] | None, number: int
    ) -> Candidate:
        """The estimates of every cause under gates; of ``depth + 1`` candidates at most this is a number."""
        report("leaves", number, self._tree.topology.depth + 1)
        leaf, reached, position = self._reached(gates)
        n_groups, estimates = len(reached), {}
        for cause, plain in self._hazards.items():
            group = position[leaf]
            problem = self._design.hazards(plain.family, plain.sample, plain.weight, group, n_groups)
            make = partial(self._leaves, name, cause, problem, n_groups)
            estimates[cause] = self._kept(f"{name}/{cause}", make)
        return Candidate(name, gates, splits, estimates, self._groups(estimates, n_groups), position)

    def _reached(self, gates: GateParameters) -> tuple[Tensor, Tensor, Tensor]:
        """Leaf of each row (S, n), leaves with rows in some split (G,), and number of each leaf's group."""
        topology = self._tree.topology
        leaf = most_probable_leaf(topology, self._logits(gates))
        reached = torch.unique(leaf[self._sample.weight > 0])
        return leaf, reached, _positions(reached, topology)

    def _groups(self, estimates: Mapping[str, Estimates], n_groups: int) -> dict[str, LeafParameters]:
        """Parameters of groups by cause."""
        return {
            cause: self._design.leaves(each.rounded, n_groups, len(self.trees[cause].family.shape_names))
            for cause, each in estimates.items()
        }

    def _logits(self, gates: GateParameters) -> Tensor:
        """Of gates at all rows, (S, B, n)."""
        x = self._gate_features
        return x.project(gates.weight.to(x.dtype), gates.bias.to(x.dtype))

    def _under(self, cause: str, routes: Tensor) -> SoftGates:
        """The hazards of a cause in leaves with given log probabilities (S, L, n)."""
        own, none = self._design.own.nonzero().squeeze(-1), routes.new_zeros(routes.shape[1], 0)
        return SoftGates((self._hazards[cause],), own, none, log_probability=routes)

    def _leaves(self, name: str, cause: str, problem: LinearHazards | SoftGates, n_groups: int) -> Estimates:
        """Estimates of the leaves of a cause, which begin as its regression."""
        regression, family = self.regressions[cause], self._hazards[cause].family
        kinds = self._design.kinds_of(n_groups, len(family.shape_names))
        start = regression.theta.new_zeros(len(regression.theta), problem.n_coefficients)
        p, n_shapes = self._hazards[cause].width, len(family.shape_names)
        start[:, :p] = regression.theta[:, :p]
        of_group = n_groups if n_groups > 1 else 0
        first_shape = start.shape[1] - n_shapes * (1 + of_group)
        start[:, first_shape :: 1 + of_group] = regression.theta[:, p:]
        first = {kind: start.new_full((len(start),), value) for kind, value in FIRST_OWN.items()}
        first |= dict(zip(regression.kinds.names, regression.penalty.unbind(-1), strict=True))
        watch = self._watch(name, cause, kinds)
        return estimate(problem, kinds, start, first, watch=watch)

    def _watch(self, name: str, cause: str, kinds: Kinds, problem: SoftGates | None = None) -> Watch | None:
        """Calls the callbacks after each round of an estimation; None without callbacks."""
        if not self._callbacks:
            return None
        model = name if len(self.trees) == 1 or not cause else f"{name}, {cause}"
        total = self._sample.weight.sum(-1)

        def watch(number: int, penalty: Tensor, at: Optimum, evidence: Tensor) -> None:
            values = {"evidence": evidence, "objective": at.loss / total}
            values |= {f"variance/{kind}": 1 / penalty[:, k] for k, kind in enumerate(kinds.names)}
            if problem is not None:
                losses = problem.leaf_losses(at.theta)
                values |= {f"leaf/{2 + leaf}/loss": losses[:, leaf] for leaf in range(losses.shape[1])}
            for callback in self._callbacks:
                callback.on_round(model, number, values)

        return watch

    # ------------------------------------------------------------------ gates that are trained

    def _trained(self) -> Iterator[Candidate]:
        """Gates of several columns, each estimated together with its two leaves.

        Leaves and variances are first estimated under each of two gates to start from: as long as leaves are
        equal, gates have no gradient. A start is left if its leaves explain no more than the regression, or
        much less than those of the other.
        """
        report("gates", 0, 1)
        features, plain = self._features, self._evidence(self.regressions)
        theta = {cause: each.theta for cause, each in self.regressions.items()}
        terms = torch.tensor(self._gate_terms, device=features.z.device)
        _, signs = path_signs(Topology(1), [1])
        starts = []
        for number, gates in enumerate(spectral_gates(features, self._hazards, theta, terms), 1):
            name, leaves = f"{SPECTRAL} {number}", {}
            routes = log_path_probability(Topology(1), features.logits(gates[:, None]))
            for cause in self._hazards:
                given = f"{name} start", cause, self._under(cause, routes), len(signs)
                leaves[cause] = self._kept(f"{name}/{cause}", partial(self._leaves, *given))
            starts.append((name, gates, leaves, self._evidence(leaves)))
        most = torch.stack([evidence for *_, evidence in starts]).amax(0)
        problem = SoftGates(
            tuple(self._hazards.values()),
            self._design.own.nonzero().squeeze(-1),
            signs.to(features.z.device),
            features.z,
        )
        for name, gates, leaves, evidence in starts:
            differs = (evidence > plain + _DIFFERENT) & (evidence > most - _BEHIND)
            if bool(differs.any()):
                joined = _Joined.of(leaves, gates[:, None])
                watch = self._watch(name, "", joined.kinds, problem)
                joint = self._kept(f"{name}/gates", partial(joined.estimate, problem, watch))
                yield self._with_root(name, joint, joined, problem, differs)

    def _with_root(
        self, name: str, joint: Estimates, joined: _Joined, problem: SoftGates, differs: Tensor
    ) -> Candidate:
        """Trees whose root is an estimated gate, in splits (S,) whose leaves differ."""
        topology, n_causes = self._tree.topology, len(self._hazards)
        estimates = {
            cause: joint.part(places, joined.names[cause], 1 / n_causes)
            for cause, places in zip(self._hazards, problem.of_causes, strict=True)
        }
        gates = joint.theta.new_zeros(len(differs), len(topology.branches), problem.of_gates.stop)
        gates = gates[..., problem.of_gates]
        gates[:, 0] = joint.rounded[:, problem.of_gates]
        divides = torch.zeros(gates.shape[:2], dtype=torch.bool, device=gates.device)
        divides[:, 0] = differs
        leaves, _ = path_signs(topology, [1])
        position = _positions(leaves.to(gates.device), topology)
        of_features = self._features.of_features(gates, divides)
        return Candidate(name, of_features, None, estimates, self._groups(estimates, 2), position, joint)

    @staticmethod
    def _evidence(estimates: Mapping[str, Estimates]) -> Tensor:
        """Of all causes, (S,)."""
        return torch.stack([each.evidence for each in estimates.values()]).sum(0)

    @cached_property
    def _features(self) -> GateFeatures:
        """Features of trained gates: those of the columns that gates of a split may use."""
        used = [np.concatenate(columns.places).tolist() for columns in self._gate_columns]
        return GateFeatures.of(self._gate_features.to_dense(), self._sample.normalised_weight, used)

    @property
    def _gate_terms(self) -> list[int]:
        """Number of the raw column of each feature of trained gates."""
        column = {place: k for k, places in enumerate(self._all_columns.places) for place in places.tolist()}
        return [column[place] for place in self._features.places.tolist()]

    def _as_candidate(self) -> Candidate:
        """The regressions, as trees whose gates divide nothing."""
        gates = self._gates_of_splits([{}] * len(self.splits))
        groups = {
            name: self._design.leaves(estimates.rounded, 1, len(self.trees[name].family.shape_names))
            for name, estimates in self.regressions.items()
        }
        position = torch.zeros(2**self._tree.topology.depth, dtype=torch.long, device=gates.bias.device)
        return Candidate(REGRESSION, gates, None, self.regressions, groups, position)

    def _adopt_gates(self, gates: GateParameters) -> None:
        """Give the trees gates."""
        for tree in self.trees.values():
            tree.set_gates(gates)

    def _adopt_hazards(self, models: Sequence[Candidate]) -> None:
        """Give each split's trees the hazards of a candidate."""
        device = self._tree.log_time_scale.device
        at = [torch.tensor([split], device=device) for split in range(len(models))]
        leaf_groups = [
            model.position[whole_to_left(model.divides[split])] for split, model in enumerate(models)
        ]
        for name, tree in self.trees.items():
            parts = [
                LeafParameters(*(part[:, own] for part in vars(model.groups[name].select(split)).values()))
                for model, split, own in zip(models, at, leaf_groups, strict=True)
            ]
            leaves = [
                torch.cat([getattr(part, item.name) for part in parts]) for item in fields(LeafParameters)
            ]
            tree.set_leaves(LeafParameters(*leaves))
        self._penalised = {
            name: torch.stack([each.estimates[name].penalised[k] for k, each in enumerate(models)])
            for name in self.trees
        }


@dataclass(frozen=True)
class _Joined:
    """Coefficients of leaves by cause and of gates in one vector, to begin with."""

    names: Mapping[str, Mapping[str, str]]  # of the kinds of each cause, by their names in the vector
    kinds: Kinds
    theta: Tensor  # (S, D)
    first: Mapping[str, Tensor]  # penalties to begin with, by kind

    @classmethod
    def of(cls, estimates: Mapping[str, Estimates], gates: Tensor) -> Self:
        """Of leaves by cause and gates (S, B, 1 + Q), whose weights have a prior around zero."""
        names, codes, count = {}, [], 0
        first: dict[str, Tensor] = {}
        for cause, each in estimates.items():
            prefix = f"{cause}: " if len(estimates) > 1 else ""
            names[cause] = {f"{prefix}{kind}": kind for kind in each.kinds.names}
            codes.append(torch.where(each.kinds.of >= 0, each.kinds.of + count, each.kinds.of))
            begin = each.penalty.clamp(max=_FIRST_WITH_GATES)
            first |= dict(zip(names[cause], begin.unbind(-1), strict=True))
            count += len(each.kinds.names)
        of_gates = torch.full(gates.shape[1:], count, device=gates.device)
        of_gates[:, 0] = -1
        kinds = Kinds((*first, GATE), torch.cat([*codes, of_gates.flatten()]))
        theta = torch.cat([*(each.theta for each in estimates.values()), gates.flatten(1)], 1)
        size = gates[..., 1:].square().mean((1, 2))
        first[GATE] = (1 / size.clamp(min=1e-6)).clamp(1e-2, 1e2)
        return cls(names, kinds, theta, first)

    def estimate(self, problem: SoftGates, watch: Watch | None) -> Estimates:
        """Coefficients and variances of all together."""
        return estimate(problem, self.kinds, self.theta, self.first, careful=True, watch=watch)


def _positions(leaves: Tensor, topology: Topology) -> Tensor:
    """Number of the group of each leaf, of those that are groups; 0 for others, (L,)."""
    position = torch.zeros(len(topology.leaves), dtype=torch.long, device=leaves.device)
    position[leaves] = torch.arange(len(leaves), device=leaves.device)
    return position


def gate_rows(splits: Sequence[SurvivalData], seed: int) -> Tensor | None:
    """Rows of each split by which gates are placed, (S, m), padded; None if no split has very many.

    Of more than 20,000 subjects are drawn with all their rows, which weigh the same in all splits.
    """
    if max(len(data) for data in splits) <= GATE_ROWS:
        return None
    drawn = [_drawn(data, np.random.default_rng(seed)) for data in splits]
    width = max(len(rows) for rows in drawn)
    padded = [np.pad(rows, (0, width - len(rows)), constant_values=-1) for rows in drawn]
    return torch.as_tensor(np.stack(padded))


def _drawn(data: SurvivalData, rng: np.random.Generator) -> IntArray:
    n = len(data)
    if n <= GATE_ROWS:
        return np.arange(n)
    subject = np.arange(n) if data.subject is None else data.subject
    n_subjects = int(subject.max()) + 1
    chosen = np.zeros(n_subjects, dtype=bool)
    chosen[rng.permutation(n_subjects)[: max(1, GATE_ROWS * n_subjects // n)]] = True
    return np.flatnonzero(chosen[subject])
