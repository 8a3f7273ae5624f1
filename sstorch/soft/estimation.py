"""Regressions and groups whose penalties are estimated: candidates for gates, and the choice by evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.columns import is_wide
from sstorch.inference.covariance import FitCovariance, HazardCovariance, marginal_covariance
from sstorch.monitoring import Callback
from sstorch.newton import Optimum
from sstorch.nn import GateParameters, LeafParameters, SoftTree, Topology
from sstorch.nn.routing import log_path_probability, most_probable_leaf
from sstorch.objective import Sample
from sstorch.objective.penalties import NormalPrior
from sstorch.objective.rows import counted_weight
from sstorch.optim.evidence import HELD, Estimates, Kinds, Watch, estimate
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.run import Checkpoint, kept
from sstorch.optim.soft_gate import SoftGate
from sstorch.optim.starts.regression_tree import Split, single_leaf
from sstorch.soft.design import Design, held_out_start, in_double, null_start
from sstorch.soft.gates import (
    GATE,
    GATE_COLUMNS,
    GateAndLeaves,
    GateFeatures,
    GatePlacing,
    gate_columns,
    spectral_gates,
    strongest,
)
from sstorch.soft.group_choice import (
    REGRESSION,
    SPECTRAL,
    Candidate,
    Estimation,
    GroupChoice,
    gates_of,
    positions_of,
    total_evidence,
)
from sstorch.soft.settings import BatchSettings
from sstorch.soft.teacher import Teacher, log_hazards, regression_targets
from sstorch.threads import report

T = TypeVar("T")

RESIDUALS, PREDICTOR = "residuals", "predictor"
# Coefficients of a hazard above which their covariance is not kept.
MOST_COEFFICIENTS = 1000
TOO_MANY = f"it has more than {MOST_COEFFICIENTS} coefficients"
# Penalties of what groups have of their own, to begin with, by kind. The evidence can have several maxima:
# wide priors that do not pay become narrow, but narrow ones can stay so where wider ones would pay.
FIRST_OWN = {"level": 0.01, "own slope": 1.0, "own shape": 0.01}
# Evidence, in nats, that leaves under the gates of a start must gain on the regression, and by which they may
# be behind those of another start, for the gates to be trained.
_DIFFERENT, _BEHIND = 2.0, 10.0
# Difference of an effect between groups that is none.
_NO_DIFFERENCE = 1e-3


class Estimator:
    """Regressions and groups of S splits, of every cause; trees, one per split, are untrained."""

    def __init__(
        self,
        trees: Mapping[str, SoftTree],
        samples: Mapping[str, Sample],
        splits: Sequence[SurvivalData],
        preprocessors: Sequence[Preprocessor],
        settings: BatchSettings,
        checkpoint: Checkpoint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.trees, self.samples, self.splits, self._settings = trees, samples, splits, settings
        self._checkpoint, self._callbacks = checkpoint, callbacks
        self._columns = columns = gate_columns(preprocessors[0])
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
            hazards = self._design.hazards(family, sample, counted_weight(samples[name]))
            kinds, start = self._design.kinds_of(1, len(family.shape_names)), null_start(hazards)
            if wide:
                start = held_out_start(hazards, kinds, start, splits, settings.seed)
            make = partial(estimate, hazards, kinds, start, watch=self._watch(REGRESSION, name, kinds))
            self._hazards[name] = hazards
            self.regressions[name] = self._kept(f"regression/{name}", make)
        visible = [columns] * len(splits)
        if wide and len(columns.places) > GATE_COLUMNS:
            slopes = [self._leaves_of(*each).slope[:, 0].abs() for each in self.regressions.items()]
            scale = torch.where(self._design.scale.isinf(), 0.0, self._design.scale)
            visible = [strongest(columns, preprocessors[0], own) for own in (sum(slopes) * scale).tolist()]
        self._placing = GatePlacing(self._tree, self._sample, splits, visible, settings)

    def _kept(self, part: str, make: Callable[[], T]) -> T:
        return kept(self._checkpoint, part, make, self._tree.log_time_scale.device)

    def choose(self) -> list[GroupChoice]:
        """Give the trees the gates and hazards of the candidate with the most evidence, or the regression."""
        # Unless groups are wanted only where they gain, undivided nodes are then divided by the prediction,
        # and share their hazard. The evidence of trained gates is a lower bound: the expected loss of a row
        # is at least its negative log-likelihood under the mixture of the leaves.
        settings, topology, candidates = self._settings, self._tree.topology, list(self._candidates())
        trained = list(self._trained()) if settings.trains_gates and not self._design.has_many else []
        # A priori a node is divided as likely as not, and then by each column alike (Chipman, George and
        # McCulloch, 1998).
        charge = settings.gate_charge + math.log(2 * len(self._columns.places))
        values = {REGRESSION: total_evidence(self.regressions)}
        values |= {each.name: each.evidence(charge) for each in candidates}
        values |= {each.name: each.evidence(settings.gate_charge) for each in trained}
        none = torch.zeros(len(topology.leaves), dtype=torch.long, device=self._sample.weight.device)
        whole = self._placing.gates([{}] * len(self.splits))  # gates that divide nothing
        plain = Candidate(REGRESSION, whole, None, self.regressions, none)
        known = {each.name: each for each in (plain, *candidates, *trained)}
        evidence = [
            {name: float(value[split]) for name, value in values.items() if value[split].isfinite()}
            for split in range(len(self.splits))
        ]
        best = [max(each, key=each.__getitem__) for each in evidence]
        self._models = models = [known[name] for name in best]
        self._adopt_hazards()
        gates = gates_of(models)
        if candidates and not settings.only_if_needed:
            # Of a regression the gates are those of the last candidate, of its predictions or a teacher.
            usual = [candidates[-1] if model.name == REGRESSION else model for model in models]
            for tree in self.trees.values():
                tree.set_gates(gates)
            target = -log_hazards(self.trees, self.samples, self.splits)
            given = [None if each.splits is None else each.splits[k] for k, each in enumerate(usual)]
            gates = self._placing.filled(gates_of(usual), given, target)
        for tree in self.trees.values():
            tree.set_gates(gates)
        leaf = self._tree.apply_leaf(self._sample.x)
        choices = []
        for split, (name, model) in enumerate(zip(best, models, strict=True)):
            joint = model.joint if len(self.trees) == 1 else None
            estimations = {
                cause: Estimation.of(joint or own, split, self._terms, self._design)
                for cause, own in model.estimates.items()
            }
            n_groups = len(leaf[split][self._sample.weight[split] > 0].unique())
            differences = self._differences(split)
            choices.append(GroupChoice(evidence[split], name, n_groups, estimations, differences))
        return choices

    def _differences(self, split: int) -> tuple[str, ...]:
        """Columns whose effects, of a standard deviation or category, differ most between groups."""
        model, largest = self._models[split], dict.fromkeys(self._terms, 0.0)
        groups, own = model.groups_of_leaves(split).unique(), self._design.own_places
        for name, estimates in model.estimates.items() if model.n_groups > 1 else ():
            begin = self._hazards[name].width + model.n_groups
            slopes = estimates.rounded[split, begin : begin + model.n_groups * len(own)]
            slopes = slopes.unflatten(0, (model.n_groups, len(own)))[groups]
            for place, value in zip(own.tolist(), (slopes.amax(0) - slopes.amin(0)).tolist(), strict=True):
                largest[self._terms[place]] = max(largest[self._terms[place]], value)
        least = max(max(largest.values(), default=0.0) / 2, _NO_DIFFERENCE)
        return tuple(sorted((term for term in largest if largest[term] > least), key=lambda t: -largest[t]))

    def covariance(self) -> FitCovariance:
        """Of the coefficients of the chosen hazards of the last split."""
        split, found = len(self._models) - 1, {}
        model = self._models[split]
        sizes = [each.theta.shape[1] for own in self._models for each in own.estimates.values()]
        if max(sizes) > MOST_COEFFICIENTS:
            return FitCovariance(reason=TOO_MANY)
        if self._design.has_many:
            return FitCovariance(reason="with many columns, shape parameters are held")
        for name, estimates in model.estimates.items():
            theta, kinds = estimates.theta[split].cpu(), estimates.kinds
            penalty = estimates.penalty[split : split + 1]
            precision = torch.where(kinds.of == HELD, kinds.precision(penalty), kinds.spread(penalty, 0.0))
            precision = precision[0].cpu()
            rows = torch.eye(len(theta), dtype=theta.dtype, device=estimates.theta.device)
            posterior = estimates.quadratic(rows[None])[split].cpu()
            n_shapes = len(self.trees[name].family.shape_names)
            found[name] = HazardCovariance(
                self._design.map_of(split, model.n_groups, n_shapes).cpu(),
                estimates.rounded[split].cpu(),
                torch.linalg.inv(posterior) - torch.diag(precision),
                precision,
                model.groups_of_leaves(split).cpu(),
                marginal_covariance(posterior, theta, precision, self._blocks(kinds)),
            )
        return FitCovariance(found)

    def _blocks(self, kinds: Kinds) -> Tensor:
        """Coefficients with one uncertain variance: those of a kind, of curves and categories by column."""
        names = [kinds.names[kind] if kind >= 0 else "" for kind in kinds.of.tolist()]
        for place, term in enumerate(self._terms, 1):
            names[place] += f" of {term}" if names[place] in ("curve", "category") else ""
        known = {name: number for number, name in enumerate(dict.fromkeys(filter(None, names)))}
        return torch.tensor([known.get(name, -1) for name in names])

    def prior(self, cause: str) -> NormalPrior:
        """The prior of a cause's leaves in the chosen models, against the mean loss."""
        weight, sample, like = self._hazards[cause].weight, self.samples[cause], self._tree.log_time_scale
        groups = [model.groups_of_leaves(split) for split, model in enumerate(self._models)]
        parts = [self._design.prior_parts(m.estimates[cause], k) for k, m in enumerate(self._models)]
        common, own, level, shape = (torch.stack(part).to(like) for part in zip(*parts, strict=True))
        rows = weight.sum(-1) / sample.loss_weight.double().sum(-1)
        given = self._design.centre.to(like), torch.stack(groups).to(like.device), 1 / rows
        return NormalPrior(common, own, level, shape, *given)

    @property
    def gate_precision(self) -> Tensor:
        """Precision of trained gates, by standard deviation, against the mean loss; NaN of others, (S,)."""
        weight, sample = next(iter(self._hazards.values())).weight, self._sample
        precision = weight.new_full((len(weight),), torch.nan)
        for k, model in enumerate(self._models):
            if model.joint is not None:
                precision[k] = model.joint.penalty[k, model.joint.kinds.names.index(GATE)]
        return precision * sample.loss_weight.double().sum(-1) / weight.sum(-1)

    @property
    def divides(self) -> Tensor:
        """Whether leaves below a gate differ in their hazards, (S, G): else only a ridge would move it."""
        topology = self._tree.topology
        first = topology.leaves[0]
        below = [[leaf - first for leaf in topology.leaves_under(gate)] for gate in topology.branches]
        groups = [model.groups_of_leaves(k).tolist() for k, model in enumerate(self._models)]
        several = [[len({own[leaf] for leaf in leaves}) > 1 for leaves in below] for own in groups]
        return torch.tensor(several, device=self._tree.log_time_scale.device).reshape(len(groups), -1)

    @property
    def converged(self) -> Tensor:
        """Whether the chosen hazards of all causes are at their optimum, boolean (S,)."""
        own = [model.estimates.values() for model in self._models]
        return torch.tensor([all(bool(each.converged[k]) for each in own[k]) for k in range(len(own))])

    def objective(self, cause: str) -> Tensor:
        """Penalised negative log-likelihood of the trees of a cause, a row, (S,)."""
        penalised = [model.estimates[cause].penalised[k] for k, model in enumerate(self._models)]
        return torch.stack(penalised) / self._hazards[cause].weight.sum(-1)

    def _candidates(self) -> Iterator[Candidate]:
        topology, teacher = self._tree.topology, self._settings.teacher
        if topology.depth == 0:
            return
        if teacher in (None, RESIDUALS):
            theta = {name: each.theta for name, each in self.regressions.items()}
            given = self._hazards, theta, self._design.lines
            trees = self._kept("residual trees", lambda: self._placing.residual_trees(*given))
            n_before = 0
            for depth in range(1, topology.depth + 1):
                some = [dict(list(splits.items())[: 2**depth - 1]) for splits in trees]
                n_splits = sum(len(splits) for splits in some)
                if n_splits > n_before:
                    gates = self._placing.gates(some)
                    yield self._candidate(f"{RESIDUALS} {2**depth}", gates, some, depth - 1)
                n_before = n_splits
        if teacher != RESIDUALS:
            name = teacher.name if isinstance(teacher, Teacher) else PREDICTOR
            gates = self._kept("distilled gates", lambda: self._placing.distilled(self._targets()))
            yield self._candidate(f"{name} {2**topology.depth}", gates, None, topology.depth)

    def _targets(self) -> Tensor:
        """Predictions of a teacher, or of the regressions, (S, J, n)."""
        teacher = self._settings.teacher
        if isinstance(teacher, Teacher):
            return teacher.targets(self.splits, self._sample)
        single = {name: single_leaf(tree) for name, tree in self.trees.items()}
        for name, tree in single.items():
            theta, n_shapes = self.regressions[name].theta, len(tree.family.shape_names)
            tree.set_leaves(self._design.leaves(theta, 1, n_shapes))
        return regression_targets(single, self.samples, self.splits)

    def _candidate(
        self, name: str, gates: GateParameters, splits: Sequence[dict[int, Split]] | None, number: int
    ) -> Candidate:
        """The estimates of every cause under gates; `number` of at most depth + 1 candidates."""
        topology = self._tree.topology
        report("leaves", number, topology.depth + 1)
        leaf = most_probable_leaf(topology, self._placing.logits(gates))
        reached = torch.unique(leaf[self._sample.weight > 0])  # leaves with rows in some split
        n_groups, estimates, position = len(reached), {}, positions_of(reached, topology)
        for cause, plain in self._hazards.items():
            rows = plain.family, plain.sample, plain.weight
            problem = self._design.hazards(*rows, position[leaf], n_groups)
            make = partial(self._leaves, name, cause, problem, n_groups)
            estimates[cause] = self._kept(f"{name}/{cause}", make)
        return Candidate(name, gates, splits, estimates, position)

    def _leaves_of(self, cause: str, estimates: Estimates, n_groups: int = 1) -> LeafParameters:
        """Parameters of the groups of a cause."""
        return self._design.leaves(estimates.rounded, n_groups, len(self._hazards[cause].family.shape_names))

    def _leaves(self, name: str, cause: str, problem: LinearHazards | SoftGate, n_groups: int) -> Estimates:
        """Estimates of the leaves of a cause, which begin as its regression."""
        regression, family = self.regressions[cause], self._hazards[cause].family
        p, n_shapes = self._hazards[cause].width, len(family.shape_names)
        kinds = self._design.kinds_of(n_groups, n_shapes)
        start = regression.theta.new_zeros(len(regression.theta), problem.n_coefficients)
        start[:, :p] = regression.theta[:, :p]
        of_group = n_groups if n_groups > 1 else 0
        first_shape = start.shape[1] - n_shapes * (1 + of_group)
        start[:, first_shape :: 1 + of_group] = regression.theta[:, p:]
        first = {kind: start.new_full((len(start),), value) for kind, value in FIRST_OWN.items()}
        first |= dict(zip(regression.kinds.names, regression.penalty.unbind(-1), strict=True))
        watch = self._watch(name, cause, kinds)
        return estimate(problem, kinds, start, first, watch=watch)

    def _watch(self, name: str, cause: str, kinds: Kinds, problem: SoftGate | None = None) -> Watch | None:
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

    def _trained(self) -> Iterator[Candidate]:
        """Gates of several columns, each estimated together with its two leaves, from two starting gates."""
        # Leaves are first estimated under each: gates of equal leaves have no gradient. A start is left if
        # its leaves explain no more than the regression, or much less than those of the other.
        if self._tree.topology.depth == 0:
            return
        report("gates", 0, 1)
        theta = {cause: each.theta for cause, each in self.regressions.items()}
        features = GateFeatures.of(
            self._placing.features, self._sample.normalised_weight, self._placing.columns
        )
        own, starts = self._design.own_places, []
        for number, gates in enumerate(spectral_gates(features, self._hazards, theta), 1):
            name, leaves = f"{SPECTRAL} {number}", {}
            routes = log_path_probability(Topology(1), features.logits(gates[:, None]))
            for cause, hazards in self._hazards.items():
                under = SoftGate((hazards,), own, log_probability=routes)
                given = f"{name} start", cause, under, 2
                leaves[cause] = self._kept(f"{name}/{cause}", partial(self._leaves, *given))
            starts.append((name, gates, leaves, total_evidence(leaves)))
        least = torch.stack([evidence for *_, evidence in starts]).amax(0) - _BEHIND
        least = torch.maximum(least, total_evidence(self.regressions) + _DIFFERENT)
        for name, gates, leaves, evidence in starts:
            if bool((evidence > least).any()):
                joined = GateAndLeaves.of(self._hazards, own, features, leaves, gates)
                watch = self._watch(name, "", joined.kinds, joined.problem)
                joint = self._kept(f"{name}/gates", partial(joined.estimate, watch))
                yield joined.candidate(name, joint, evidence > least, self._tree.topology)

    def _adopt_hazards(self) -> None:
        """Give each split's trees the hazards of the chosen model."""
        models, places = self._models, range(len(self._models))
        groups = [model.groups_of_leaves(split) for split, model in enumerate(models)]
        for name, tree in self.trees.items():
            of_model = {
                id(model): vars(self._leaves_of(name, model.estimates[name], model.n_groups))
                for model in models
            }
            leaves = {
                part: torch.stack([of_model[id(models[k])][part][k, groups[k]] for k in places])
                for part in of_model[id(models[0])]
            }
            tree.set_leaves(LeafParameters(**leaves))
