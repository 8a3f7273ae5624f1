"""Training of many trees at once: every start of every split, at every setting, in one batch a cause."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.coded import CodedMatrix, SplitFeatures, SplitMatrices
from sstorch.data.columns import is_wide
from sstorch.data.encodings import Linear
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.fitted import EVENT, FittedTree
from sstorch.inference import FitCovariance, HazardCovariance, LeafDerivatives
from sstorch.memory import check_fits
from sstorch.monitoring import Callback, History
from sstorch.nn import (
    DesignMatrix,
    GateParameters,
    HazardFamily,
    LeafParameters,
    Prediction,
    SoftTree,
    Topology,
    check_family,
)
from sstorch.nn.design_matrix import first_features
from sstorch.objective import (
    GroupParity,
    L2Parity,
    Monotone,
    Penalty,
    RowPenalty,
    Sample,
    SmallLeaves,
    TrainingObjective,
    counted_weight,
)
from sstorch.objective.parity import merge_equal_rows
from sstorch.objective.small_leaves import TOO_SMALL
from sstorch.optim import (
    Checkpoint,
    GateColumns,
    Heats,
    Joint,
    Leaves,
    Nodec,
    NodecJoint,
    Trainer,
    gates_of_targets,
    initialize_cox,
    initialize_kmeans,
    initialize_random,
    initialize_regression,
    problem_seed,
    set_gates,
)
from sstorch.optim.checkpoint import kept
from sstorch.optim.newton import newton
from sstorch.optim.trainer import environment
from sstorch.progress import TRAINING, report
from sstorch.soft.design import Design, in_double, null_start
from sstorch.soft.estimation import Estimator, GroupChoice, regression_targets, write_leaves
from sstorch.soft.fixed_columns import check_fixed_columns, check_strata
from sstorch.soft.honest import Honest, PlacedGates, halves
from sstorch.soft.settings import BatchSettings, Coefficients
from sstorch.soft.teacher import Teacher

TrainerT = TypeVar("TrainerT", bound=Trainer)

# Coefficient of the penalty on slopes that go the wrong way. What is left of them is taken away at the end,
# for 5e-6 of the objective on GBSG2 with three wrong directions; a larger one only slows the minimisation.
_MONOTONE = 10.0
# Standard deviation below which a feature of gates is the same in all rows.
_CONSTANT = 1e-9
# Numbers that a row takes beside its features: times, losses and their derivatives.
_ELEMENTS_A_ROW = 64
# Matrices of the size of a Hessian that an estimation has at a time, for each split.
_HESSIANS = 12
# Families of users' own that have been looked at.
_CHECKED: set[type[HazardFamily]] = set()
# Share of rows with different features above which merging the others gains nothing.
_FEW_EQUAL = 0.9
# Coefficients of a hazard above which their covariance is not kept.
_MOST_COEFFICIENTS = 1000


@dataclass(frozen=True)
class TrainedBatch:
    """Trained trees of all splits, coefficients and starts.

    Attributes:
        trees: by cause R = n_splits x n_settings x n_starts problems, ordered by split, then by coefficients;
            gates are the same for all causes. A single one where causes do not compete.
        objective: E of each problem on the rows it was trained on, of competing causes their sum, shape (R,).
        criterion: what the starts of a split are compared by, shape (R,): E, or the loss on the rows held
            out.
        histories: records of the run of each cause.
        preprocessors: fitted on the rows of each split, for all causes.
        event_times: distinct event times of each split, increasing.
        n_starts: problems per split and coefficients.
        coefficients: of the penalties that every split was trained with.
        choices: of each problem, where penalties are estimated: which groups, at what evidence.
        covariance: of the coefficients of a single problem.
        regressions: by cause the trees of depth 0, one a split, that groups were compared with; empty where
            there are none, or other rows have placed the gates.
    """

    trees: Mapping[str, SoftTree]
    objective: Tensor
    criterion: Tensor
    histories: Mapping[str, History]
    preprocessors: tuple[Preprocessor, ...]
    event_times: tuple[FloatArray, ...]
    n_starts: int
    coefficients: tuple[Coefficients, ...] = (Coefficients(),)
    choices: tuple[GroupChoice, ...] = ()
    covariance: FitCovariance = field(default_factory=FitCovariance)
    regressions: Mapping[str, SoftTree] = field(default_factory=dict)

    @property
    def tree(self) -> SoftTree:
        """The problems of the only event, or of the first cause."""
        return next(iter(self.trees.values()))

    @property
    def history(self) -> History:
        """Records of the run of the only event, or of the first cause."""
        return next(iter(self.histories.values()))

    @property
    def rhos(self) -> tuple[float, ...]:
        """The coefficient of the fairness penalty at each setting."""
        return tuple(setting.rho for setting in self.coefficients)

    def position(self, split: int, start: int, setting: int = 0) -> int:
        """Problem number of a start of a split, with the coefficients at a position."""
        return (split * len(self.coefficients) + setting) * self.n_starts + start

    def best_start(self, split: int, setting: int = 0, n_starts: int | None = None) -> int:
        """Start with the lowest criterion, the one that is returned as the split's tree at a setting.

        Args:
            split: number of the split.
            setting: position of its coefficients.
            n_starts: only the first so many starts are compared; all if None.

        Raises:
            TrainingError: none of the starts has a finite objective.
        """
        first, count = self.position(split, 0, setting), self.n_starts if n_starts is None else n_starts
        criterion = self.criterion[first : first + count]
        if not bool(criterion.isfinite().any()):
            raise TrainingError(
                f"none of the {count} starts of split {split} has a finite training objective; "
                "try another leaf, init='random', a larger ridge or dtype='float64'"
            )
        return int(torch.nan_to_num(criterion, nan=torch.inf).argmin())

    def fitted(self, split: int, start: int, setting: int = 0, prediction: Prediction = "hbp") -> FittedTree:
        """The tree of a start of a split, with the coefficients at a position."""
        position = self.position(split, start, setting)
        hazards = {cause: tree.select(position) for cause, tree in self.trees.items()}
        return FittedTree(hazards, self.preprocessors[split], prediction, event_times=self.event_times[split])

    def regression(self, split: int) -> FittedTree:
        """The regression of a split, if there are :attr:`regressions`."""
        hazards = {cause: tree.select(split) for cause, tree in self.regressions.items()}
        return FittedTree(hazards, self.preprocessors[split], event_times=self.event_times[split])


def training_rows(
    X: object,
    y: object,
    sample_weight: object = None,
    sensitive: object = None,
) -> SurvivalData:
    """The rows of positive weight of what an estimator is fitted to.

    Raises:
        DataError: the data cannot be used.
    """
    data = SurvivalData(X, y, sample_weight=sample_weight, sensitive=sensitive)
    data.warn_of_few_events()
    return data if data.sample_weight.all() else data.subset(data.sample_weight > 0)


def train_batch(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    coefficients: Sequence[Coefficients] | None = None,
) -> TrainedBatch:
    """Train ``n_starts`` trees on each split at each setting of the penalties, all in one tensor program.

    Preprocessing, time scale and initial solutions of a split come from its own rows. The random numbers of
    a problem depend on (seed, split, start) alone, so that all settings begin from the same partitions.

    Args:
        splits: training rows of each split.
        settings: of the trees.
        schema: columns and vocabulary that all splits share; taken from the first split if None.
        callbacks: called at every step.
        checkpoint: file that is written after every pass; if it is there already, training goes on from it.
        coefficients: of the penalties, each for every split and start; those of the settings if None. Only
            starts with the same coefficients race.

    Where causes compete, the leaves of each are trained for themselves, under gates that are distilled from
    the regressions of all; rows are encoded once.

    Raises:
        ConfigError: the checkpoint belongs to another run or cannot be written; there is a fairness penalty,
            and rows whose sensitive groups are not known; or causes compete, and gates are to be trained.
        DataError: the rows of a split are all of one group.
        FormatError: the checkpoint is truncated or altered.
    """
    return train_encoded(splits, settings, schema, callbacks, checkpoint, coefficients)[0]


def train_encoded(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    coefficients: Sequence[Coefficients] | None = None,
) -> tuple[TrainedBatch, SplitFeatures]:
    """:func:`train_batch`, and the encoded rows of every split, (n_splits, M, p), shorter ones filled up.

    Rows of a person that only continue the row before are joined, see :meth:`SurvivalData.joined`. Of honest
    groups the rows are those that estimate the hazards, the second of :func:`~sstorch.soft.honest.halves`.
    """
    splits = [data.joined() for data in splits]
    if isinstance(settings.teacher, Honest):
        splits, settings = _with_placed_gates(splits, settings, settings.teacher, schema, callbacks)
    coefficients = (settings.coefficients,) if coefficients is None else tuple(coefficients)
    if len(coefficients) > 1:
        settings = replace(settings, trainer=with_heats(settings.trainer, len(coefficients)))
    with nullcontext() if checkpoint is None else Checkpoint.of(checkpoint).held() as held:
        if held is not None:
            # Before initial solutions are made, which can take long.
            trainer = replace(settings.trainer, engine="auto")  # results agree but for rounding
            known = settings if splits[0].causes is not None else settings.for_cause(None, 0)
            held.identify(settings=known.facts(), trainer=trainer, coefficients=coefficients)
        return _train(splits, settings, schema, callbacks, held, coefficients)


def _with_placed_gates(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    honest: Honest,
    schema: Schema | None,
    callbacks: Sequence[Callback],
) -> tuple[list[SurvivalData], BatchSettings]:
    """Rows of every split that estimate hazards, and settings with the gates that its other rows place."""
    schema = Schema.of(splits[0].frame) if schema is None else schema
    placing, estimating = zip(*(halves(data, settings.seed) for data in splits), strict=True)
    own = replace(settings, teacher=honest.teacher)
    placed, _ = _train(placing, own, schema, callbacks, None, (settings.coefficients,))
    gates = placed.tree.gate_parameters()
    gates = GateParameters(gates.weight.detach().double(), gates.bias.detach().double())
    return list(estimating), replace(settings, teacher=PlacedGates(placed.preprocessors, gates))


def events_of_causes(data: SurvivalData) -> dict[str, int]:
    """Number of events of each cause, by name; of the only event."""
    if data.causes is None:
        return {EVENT: int(data.event.sum())}
    counts = np.bincount(data.cause, minlength=len(data.cause_names) + 1)[1:]
    return dict(zip(data.cause_names, counts.tolist(), strict=True))


def with_heats(trainer: TrainerT, heats: int) -> TrainerT:
    """A trainer whose race, if it has one, is run in heats of equal size within a split; without it for 0."""
    if isinstance(trainer, NodecJoint):
        return replace(trainer, nodec=with_heats(trainer.nodec, heats))
    if not isinstance(trainer, Nodec | Joint) or trainer.race is None:
        return trainer
    return replace(trainer, race=Heats(trainer.race.after, trainer.race.keep, heats) if heats else None)


@dataclass(frozen=True)
class _Solved:
    """Regressions with given penalties: objectives (R,), and coefficients of the first one.

    These have a prior precision, and a map to the parameters of its leaf.
    """

    objective: Tensor
    theta: Tensor
    precision: Tensor
    map: Tensor


@dataclass(frozen=True)
class _Problems:
    """Untrained trees of one cause: their rows, those held out, and the objectives with and without rows."""

    tree: SoftTree
    sample: Sample
    held_out: Sample | None
    plain: TrainingObjective  # without penalties on rows, for starts
    objective: TrainingObjective
    curved: BoolArray  # features that are curves
    settings: BatchSettings  # with the leaf of the cause

    @classmethod
    def of(
        cls,
        splits: Sequence[SurvivalData],
        features: Sequence[FloatArray | CodedMatrix],
        preprocessors: Sequence[Preprocessor],
        settings: BatchSettings,
        coefficients: tuple[Coefficients, ...],
    ) -> Self:
        """Problems of splits with one event, whose encoded rows are at hand."""
        n_starts = settings.n_starts
        tree, sample = stack_splits(splits, features, preprocessors[0], settings, len(coefficients))
        held_out = None
        if settings.trainer.holdout > 0:
            kept = _held_in(splits, settings, len(coefficients))
            held_out = replace(sample, weight=sample.weight * ~kept)
            sample = replace(sample, weight=sample.weight * kept)
        curved = np.array([feature.curved for feature in preprocessors[0].features])
        given = (
            coefficients,
            len(splits),
            n_starts,
            curved[len(curved) - tree.n_features :],
            _monotone(settings, preprocessors, len(coefficients) * n_starts),
            _gate_deviations(tree, sample) if settings.gate_ridge_units == "sd" else None,
            settings.own_penalties,
        )
        plain = objective = _objective(*given)
        row_penalties = [each for each in settings.own_penalties if isinstance(each, RowPenalty)]
        if settings.trains_small_leaves:
            row_penalties.append(SmallLeaves(TOO_SMALL, settings.min_leaf))
        if settings.fairness is not None:
            sample = _merged(sample)
            rhos = [setting.rho for setting in coefficients]
            row_penalties.append(_parity(settings.fairness, rhos, splits, tree, n_starts))
        if row_penalties:
            objective = _objective(*given, row_penalties)
        return cls(tree, sample, held_out, plain, objective, curved, settings)

    def held_by(self, precision: Tensor) -> Self:
        """The problems with a penalty on each slope by its precision in each split, (S, p)."""
        precision = precision.repeat_interleave(
            torch.tensor(self.sample.x.counts, device=precision.device), dim=0
        )
        plain, objective = (each.held_by(precision) for each in (self.plain, self.objective))
        return replace(self, plain=plain, objective=objective)

    def solve(self, preprocessor: Preprocessor) -> _Solved:
        """Give regressions with an offset or strata their leaves, by Newton's method at given penalties."""
        n_splits, each = len(self.sample.x.counts), self.sample.x.counts[0]
        n_shapes = len(self.tree.family.shape_names)
        objective = self.sample.weight.new_zeros(n_splits * each, dtype=torch.float64)
        parts = []
        for number in range(each):
            own = torch.arange(n_splits, device=objective.device) * each + number
            tree = self.tree.select(own)
            sample, family = in_double(self.sample.select(own), tree.family)
            design = Design.of(sample, tree.n_features, preprocessor)
            weight = counted_weight(sample)
            hazards = design.hazards(family, sample, weight)
            total = weight.sum(-1)
            curvature = self.objective.select(own).leaf_curvature(tree.leaf_parameters()).detach()[:, 0]
            count = total / sample.loss_weight.sum(-1)
            prior = design.given_prior(count[:, None] * curvature[:, : tree.n_features].double(), n_shapes)
            at = newton(hazards, prior, null_start(hazards))
            objective[own] = (at.loss + prior.value(at.theta)) / total
            parts.append(design.leaves(at.theta, 1, n_shapes))
        stacked = [
            torch.stack([getattr(part, item.name) for part in parts], 1).flatten(0, 1)
            for item in fields(LeafParameters)
        ]
        write_leaves(self.tree, LeafParameters(*stacked))
        map = design.map_of(0, 1, n_shapes)
        return _Solved(objective, at.theta[0].cpu(), prior.precision[0].cpu(), map.cpu())

    def estimated(self, objective: Tensor) -> tuple[Tensor, Tensor, History]:
        """As :meth:`train`, of problems that are trained already to an objective (R,)."""
        return objective, objective, History()

    def train(
        self, trainer: Trainer, callbacks: Sequence[Callback], checkpoint: Checkpoint | None
    ) -> tuple[Tensor, Tensor, History]:
        """Objective and criterion of the trained problems, (R,), and the records."""
        history = trainer.train(self.tree, self.objective, self.sample, callbacks, self.held_out, checkpoint)
        with torch.no_grad():
            final = self.objective(self.tree, self.sample)
            loss = TrainingObjective()
            criterion = final if self.held_out is None else loss(self.tree, self.held_out)
        return final, criterion, history


def _train(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None,
    callbacks: Sequence[Callback],
    checkpoint: Checkpoint | None,
    coefficients: tuple[Coefficients, ...],
) -> tuple[TrainedBatch, SplitFeatures]:
    schema = Schema.of(splits[0].frame) if schema is None else schema
    competing = splits[0].causes is not None
    check_causes(splits[0], settings)
    if settings.fairness is not None:
        _check_groups(splits)
    report("encoding", 0, len(splits) + 1)
    if is_wide(len(schema.numeric), max(len(data) for data in splits)):
        if settings.fixed_columns:
            raise ConfigError("an offset or strata do not support so many columns: leave most of them out")
        settings = replace(settings, numeric=settings.numeric.settled(Linear()))
    placed = settings.teacher if isinstance(settings.teacher, PlacedGates) else None
    preprocessors = (
        tuple(placed.preprocessors) if placed is not None else fit_preprocessors(splits, settings, schema)
    )
    of_causes = {}
    for name in events_of_causes(splits[0]):
        own = [data.of_cause(name) for data in splits] if competing else list(splits)
        n_events = min(data.n_events for data in own)
        if settings.strata is not None:
            for data in own:
                check_strata(data, settings.strata, name if competing else None)
        of_causes[name] = own, settings.for_cause(name if competing else None, n_events)
    plain = settings.estimated and all(each.plainly_estimated for _, each in of_causes.values())
    _check_memory(splits, preprocessors[0], plain)
    features = []
    for number, (each, data) in enumerate(zip(preprocessors, splits, strict=True)):
        report("encoding", number + 1, len(splits) + 1)
        features.append(CodedMatrix.of(each.encode(data.frame)) if plain else each.transform(data.frame))
    causes = {
        name: _Problems.of(own, features, preprocessors, of_cause, coefficients)
        for name, (own, of_cause) in of_causes.items()
    }
    if checkpoint is not None:
        for name, problems in causes.items():
            where = environment(problems.sample.weight.device)
            checkpoint.within(f"rows/{name}").identify(sample=problems.sample, environment=where)
    choices: tuple[GroupChoice, ...] = ()
    solved: dict[str, _Solved] = {}
    if settings.estimated:
        estimator = _estimator(causes, splits, preprocessors, settings.seed, checkpoint)
        if plain:
            choices = tuple(estimator.choose(settings))
        else:
            causes = {name: each.held_by(estimator.precision(name)) for name, each in causes.items()}
    if choices:
        trained = {name: each.estimated(estimator.objective(name)) for name, each in causes.items()}
    elif settings.fixed_columns:
        solved = {name: each.solve(preprocessors[0]) for name, each in causes.items()}
        trained = {name: causes[name].estimated(each.objective) for name, each in solved.items()}
    else:
        _start(causes, splits, preprocessors, settings, checkpoint)
        trained = {
            name: each.train(
                settings.trainer,
                callbacks,
                None if checkpoint is None else checkpoint.within(f"{TRAINING}/{name}"),
            )
            for name, each in causes.items()
        }
    batch = TrainedBatch(
        {name: each.tree for name, each in causes.items()},
        sum_of([final for final, _, _ in trained.values()]),
        sum_of([criterion for _, criterion, _ in trained.values()]),
        {name: history for name, (_, _, history) in trained.items()},
        preprocessors,
        tuple(data.event_times for data in splits),
        settings.n_starts,
        coefficients,
        choices,
        _covariance(causes, settings, estimator if choices else None, solved),
        estimator.regression_trees() if choices and placed is None else {},
    )
    return batch, next(iter(causes.values())).sample.x.stored


def _covariance(
    causes: Mapping[str, _Problems],
    settings: BatchSettings,
    estimator: Estimator | None,
    solved: Mapping[str, _Solved],
) -> FitCovariance:
    """Of the coefficients of a single trained problem: by the evidence, or by the Hessian at the optimum."""
    if settings.depth and estimator is None:
        return FitCovariance(reason="gates, or penalties on differences of groups, are given or trained")
    if next(iter(causes.values())).tree.n_problems > 1:
        return FitCovariance(reason="it was trained as one of several")
    sizes = [each.tree.leaf_parameters().flatten().shape[-1] for each in causes.values()]
    if (max(sizes) if estimator is None else estimator.n_coefficients) > _MOST_COEFFICIENTS:
        return FitCovariance(reason=f"it has more than {_MOST_COEFFICIENTS} coefficients")
    if estimator is not None and estimator.has_column_priors:
        return FitCovariance(reason="columns are many, and each has a prior variance of its own")
    if estimator is not None:
        return FitCovariance(estimator.covariances(0))
    if settings.monotone or settings.fairness is not None or settings.own_penalties:
        return FitCovariance(reason="it is restricted by monotone, fairness or penalties of one's own")
    if settings.trainer.holdout:
        return FitCovariance(reason="training stopped by rows held out")
    hazards = {}
    for name, each in causes.items():
        parameters = each.tree.select(0).leaf_parameters()
        leaves = LeafParameters(*(part.detach().double() for part in vars(parameters).values()))
        sample, family = in_double(each.sample, each.tree.family)
        weight = counted_weight(sample)
        leaf = torch.zeros(sample.weight.shape[1], dtype=torch.long, device=weight.device)
        information = LeafDerivatives(family, leaves, leaf, sample, weight).information()
        if solved:
            own = solved[name]
            information = own.map.mT @ information @ own.map
            hazards[name] = HazardCovariance.of_information(own.theta, information, own.precision, own.map)
            continue
        # Penalties stand beside the mean loss; the covariance counts rows.
        count = weight.sum() / sample.loss_weight.sum()
        curvature = count * each.objective.leaf_curvature(each.tree.leaf_parameters()).detach()[0, 0].double()
        size, p = len(curvature), each.tree.n_features
        order = torch.tensor([p, *range(p), *range(p + 1, size)])  # the intercept first
        hazards[name] = HazardCovariance.of_information(
            leaves.flatten()[0].cpu()[order],
            information.cpu()[order][:, order],
            curvature.cpu()[order],
            torch.eye(size, dtype=torch.float64)[:, order],
        )
    return FitCovariance(hazards)


def _check_memory(splits: Sequence[SurvivalData], preprocessor: Preprocessor, plain: bool) -> None:
    """Refuse what memory cannot hold before rows are encoded.

    Raises:
        ConfigError: encoded rows and their derivatives take more than what is free, or than the limit.
    """
    n, n_features = sum(len(data) for data in splits), len(preprocessor.features)
    width = n_features - (sum(preprocessor.coded_levels) if plain else 0)
    # Other trainers read one tensor, which is made of parts.
    n_bytes = 8 * n * ((1 if plain else 3) * width + _ELEMENTS_A_ROW)
    n_bytes += 8 * _HESSIANS * len(splits) * len(preprocessor.leaf_features) ** 2 * plain
    what = f"{n:,} rows with {width} numbers each" + (f" in {len(splits)} splits" if len(splits) > 1 else "")
    check_fits(
        n_bytes, what, "take fewer folds, Columns(numeric='linear'), fewer columns, or a part of the rows"
    )


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape; a single one as it is."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)


def check_causes(data: SurvivalData, settings: BatchSettings) -> None:
    """Make sure that what is to be trained exists for competing causes, where rows have some.

    Raises:
        ConfigError: gates are to be trained on the outcomes, or there is a fairness penalty.
    """
    if data.causes is None:
        return
    if settings.init != "distilled" or not isinstance(settings.trainer, Leaves):
        raise ConfigError(
            "gates that are trained on the outcomes divide by the likelihood of one event: use "
            "PrognosticTree, whose gates are distilled from the regressions of all causes, or "
            "Surv(time, cause == k) for the hazard of cause k alone"
        )
    if settings.fairness is not None:
        raise ConfigError(
            "the fairness penalty compares survival curves, which those of a single cause are not: use "
            "fairness=None"
        )


def _start(
    causes: Mapping[str, _Problems],
    splits: Sequence[SurvivalData],
    preprocessors: Sequence[Preprocessor],
    settings: BatchSettings,
    checkpoint: Checkpoint | None,
) -> None:
    """Give the problems of each cause their initial solutions, or those that a checkpoint has kept."""

    def made() -> dict[str, dict[str, Tensor]]:
        report("initial solutions", 0, 1)
        if settings.init != "distilled":
            (problems,) = causes.values()
            _initialize(problems, len(splits), settings)
        if settings.distils:
            _distil(causes, splits, preprocessors, settings)
        return {name: dict(each.tree.state_dict()) for name, each in causes.items()}

    for name, state in kept(checkpoint, "initial solutions", made).items():
        causes[name].tree.load_state_dict(state)


def _distil(
    causes: Mapping[str, _Problems],
    splits: Sequence[SurvivalData],
    preprocessors: Sequence[Preprocessor],
    settings: BatchSettings,
) -> None:
    """Give the first start of each split and setting distilled gates, and leaves all its regression."""
    trees = {name: each.tree for name, each in causes.items()}
    samples = {name: each.sample for name, each in causes.items()}
    objectives = {name: each.plain for name, each in causes.items()}
    first = torch.arange(0, next(iter(trees.values())).n_problems, settings.n_starts)
    if settings.n_starts > 1:
        trees = {name: tree.select(first) for name, tree in trees.items()}
        samples = {name: sample.select(first) for name, sample in samples.items()}
        objectives = {name: objective.select(first) for name, objective in objectives.items()}
    regressions = {
        name: initialize_regression(tree, objectives[name], samples[name]) for name, tree in trees.items()
    }
    if settings.depth:
        gates = _distilled_gates(regressions, samples, splits, preprocessors, settings)
        for tree in trees.values():
            set_gates(tree, gates)
    if settings.n_starts > 1:
        for name, tree in trees.items():
            causes[name].tree.assign(first, tree)


def _distilled_gates(
    regressions: Mapping[str, SoftTree],
    samples: Mapping[str, Sample],
    splits: Sequence[SurvivalData],
    preprocessors: Sequence[Preprocessor],
    settings: BatchSettings,
) -> GateParameters:
    """Gates of regressions, trees of depth 0 by cause, or of another teacher."""
    if isinstance(settings.teacher, PlacedGates):
        return settings.teacher.gates
    tree, sample = next(iter(regressions.values())), next(iter(samples.values()))
    if isinstance(settings.teacher, Teacher):
        targets = settings.teacher.targets(splits, sample)
    else:
        targets = regression_targets(regressions, samples, splits)
    return gates_of_targets(
        sample,
        targets,
        tree.n_gate_features,
        gate_columns(preprocessors[0]),
        Topology(settings.depth),
        settings.distillation,
    )


def _estimator(
    causes: Mapping[str, _Problems],
    splits: Sequence[SurvivalData],
    preprocessors: Sequence[Preprocessor],
    seed: int,
    checkpoint: Checkpoint | None,
) -> Estimator:
    """Regressions of all causes with estimated penalties, one a split, however many problems it has."""
    trees = {name: each.tree for name, each in causes.items()}
    samples = {name: each.sample for name, each in causes.items()}
    counts = torch.tensor(next(iter(samples.values())).x.counts)
    if bool((counts > 1).any()):
        first = counts.cumsum(0) - counts
        trees = {name: tree.select(first) for name, tree in trees.items()}
        samples = {name: sample.select(first) for name, sample in samples.items()}
    return Estimator(trees, samples, splits, preprocessors, gate_columns(preprocessors[0]), seed, checkpoint)


def _initialize(problems: _Problems, n_splits: int, settings: BatchSettings) -> None:
    """Give the problems their initial solutions."""
    tree, sample = problems.tree, problems.sample
    n_settings = tree.n_problems // (n_splits * settings.n_starts)
    seeds = [
        problem_seed(settings.seed, split, start)
        for split in range(n_splits)
        for _ in range(n_settings)
        for start in range(settings.n_starts)
    ]
    curved = problems.curved
    if settings.init == "kmeans":
        initialize_kmeans(tree, problems.plain, sample, seeds)
    elif settings.init == "cox":
        initialize_cox(tree, sample, seeds, curved)
    else:
        initialize_random(tree, sample, seeds, curved)


def fit_preprocessors(
    splits: Sequence[SurvivalData], settings: BatchSettings, schema: Schema
) -> tuple[Preprocessor, ...]:
    """Of every split, fitted to its rows; all make the same features."""
    missing = settings.missing_numbers, settings.missing_categories
    check_fixed_columns(schema, settings.offset_column, settings.strata)
    fitted = tuple(
        Preprocessor(
            schema,
            *missing,
            encodings=settings.encodings,
            offset=settings.offset_column,
            strata=settings.strata,
        ).fit(data.frame)
        for data in splits
    )
    # A curve may have fewer knots in a split, whose other features are zero there: what is zero in all goes.
    bases = [preprocessor.basis_ for preprocessor in fitted if preprocessor.basis_ is not None]
    if bases:
        chosen = np.any([basis.informative for basis in bases], axis=0)
        for preprocessor, basis in zip(fitted, bases, strict=True):
            preprocessor.basis_ = basis.keep(chosen)
    return fitted


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


def _objective(
    coefficients: Sequence[Coefficients],
    n_splits: int,
    n_starts: int,
    curved: npt.NDArray[np.bool_],
    monotone: Monotone | None,
    gate_scale: Tensor | None,
    own: Sequence[Penalty],
    row_penalties: Sequence[RowPenalty] = (),
) -> TrainingObjective:
    def per_problem(values: list[float]) -> float | Tensor:
        """One value for all where they agree, else (R,)."""
        if len(set(values)) == 1:
            return values[0]
        return torch.tensor(values, dtype=torch.float64).repeat_interleave(n_starts).repeat(n_splits)

    return TrainingObjective(
        ridge=per_problem([setting.ridge for setting in coefficients]),
        gate_ridge=per_problem([setting.gate_ridge for setting in coefficients]),
        fused=per_problem([setting.fused for setting in coefficients]),
        gate_sparsity=per_problem([setting.gate_sparsity for setting in coefficients]),
        row_penalties=row_penalties,
        roughness=per_problem([setting.roughness for setting in coefficients]),
        curved=torch.as_tensor(curved) if curved.any() else None,
        monotone=monotone,
        offset=per_problem([setting.offset for setting in coefficients]),
        fused_shape=per_problem([setting.fused_shape for setting in coefficients]),
        gate_scale=gate_scale,
        own=own,
    )


def _gate_deviations(tree: SoftTree, sample: Sample) -> Tensor:
    """Weighted standard deviations of the features of gates in the rows of each problem, (R, p).

    Of a feature that is the same in all rows it is one, the range of the others, so that its weight is not
    free: further rows may differ in it.
    """
    x, counts = first_features(sample.x, tree.n_gate_features).matrices.double(), sample.x.counts
    first = np.cumsum(counts) - counts
    share = sample.normalised_weight[first].double()[..., None]
    centred = x - (share * x).sum(-2, keepdim=True)
    deviation = (share * centred.square()).sum(-2).sqrt()
    deviation = torch.where(deviation > _CONSTANT, deviation, 1.0)
    return deviation.repeat_interleave(torch.tensor(counts, device=x.device), dim=0)


def _monotone(
    settings: BatchSettings, preprocessors: Sequence[Preprocessor], n_problems: int
) -> Monotone | None:
    """The penalty that holds effects to one direction, for so many problems a split, if one is asked for."""
    if not settings.monotone:
        return None
    # Where exp(g) is a ratio of times, a larger predictor is a longer life.
    risk = -1.0 if settings.family.ratio == "time ratio" else 1.0
    cones = []
    for preprocessor in preprocessors:
        rows = []
        for column, way in settings.monotone:
            sign = risk if way == "up" else -risk
            rows.append(sign * preprocessor.leaf_slopes(column))
        cones.append(np.concatenate(rows))
    # A split with fewer pieces repeats one, which asks nothing more of it.
    n_pieces = max(len(cone) for cone in cones)
    cones = [np.concatenate([cone, np.repeat(cone[:1], n_pieces - len(cone), axis=0)]) for cone in cones]
    cone = torch.as_tensor(np.stack(cones)).repeat_interleave(n_problems, dim=0)
    return Monotone(torch.full((len(cone),), _MONOTONE, dtype=torch.float64), cone)


def _held_in(splits: Sequence[SurvivalData], settings: BatchSettings, n_settings: int = 1) -> Tensor:
    """Rows that each problem is trained on, boolean (R, M): all but a share of those with and without events.

    Of persons with several rows all are kept or none. The starts of a split hold out the same rows, so that
    their losses there can be compared.

    Raises:
        DataError: the share leaves out no row with an event, or all of them.
    """
    kept = np.ones((len(splits), max(len(data) for data in splits)), dtype=bool)
    for number, data in enumerate(splits):
        draws = np.random.default_rng(problem_seed(settings.seed, number, settings.n_starts))
        person = np.arange(len(data)) if data.person is None else data.person
        had = np.bincount(person, data.event) > 0
        for event in (True, False):
            persons = draws.permutation(np.flatnonzero(had == event))
            count = round(settings.trainer.holdout * len(persons))
            if event and not 0 < count < len(persons):
                raise DataError(
                    f"holdout={settings.trainer.holdout:g} leaves out {count} of {len(persons)} rows with an "
                    "event; at least one must be left out and one kept: choose another share, or more rows"
                )
            kept[number, np.flatnonzero(np.isin(person, persons[:count]))] = False
    return torch.as_tensor(kept, device=settings.device).repeat_interleave(
        n_settings * settings.n_starts, dim=0
    )


def stack_splits(
    splits: Sequence[SurvivalData],
    encoded: Sequence[FloatArray | CodedMatrix],
    preprocessor: Preprocessor,
    settings: BatchSettings,
    n_settings: int = 1,
) -> tuple[SoftTree, Sample]:
    """Untrained trees and their rows; shorter splits repeat their first row at weight zero.

    The rows of a split have one event, features (n, p) that are `encoded` alike in all splits, and are
    trained on with `n_settings` coefficients of penalties.
    """
    device, dtype = torch.device(settings.device), settings.torch_dtype
    width = max(len(data) for data in splits)
    features, times, entries, events, weights, groups = [], [], [], [], [], []
    lowers: list[FloatArray] = []
    uppers: list[FloatArray] = []
    for data, own in zip(splits, encoded, strict=True):
        rows = np.r_[np.arange(len(data)), np.zeros(width - len(data), dtype=np.int64)]
        x = own if isinstance(own, CodedMatrix) else CodedMatrix.of(torch.as_tensor(own))
        features.append(x.to(device, dtype))
        times.append(np.log(data.nominal_time[rows]))
        with np.errstate(divide="ignore"):  # entry at time zero is -inf
            entries.append(np.log(data.entry[rows]))
            for bounds, values in zip((lowers, uppers), _bounds(data), strict=True):
                bounds.append(np.log(values[rows]))
        events.append(data.event[rows])
        # Objectives are weighted means; the largest weight is made one so that no sum overflows.
        weight = data.sample_weight[rows] / data.sample_weight.max()
        weights.append(np.where(np.arange(width) < len(data), weight, 0.0))
        groups.append(np.zeros(width, dtype=np.int64) if data.groups is None else data.groups.codes[rows])

    def stacked(values: list[np.ndarray]) -> Tensor:
        return torch.as_tensor(np.stack(values), dtype=torch.float64)

    # The geometric mean time is the unit of model time: log times are then centred on zero.
    log_scale = torch.tensor([np.log(last_times(data)).mean() for data in splits], dtype=torch.float64)
    log_time, event, weight = stacked(times) - log_scale[:, None], stacked(events), stacked(weights)
    log_entry = stacked(entries) - log_scale[:, None] if any(data.entry.any() for data in splits) else None
    family = settings.family
    intervals = any(data.intervals is not None for data in splits)
    if (log_entry is not None or intervals) and family.can_rise:
        what = "entry times" if log_entry is not None else "times within intervals"
        raise ConfigError(f"{what} need curves that cannot rise: use leaves with monotone=True")
    family = family.prepare(log_time, event, weight, log_scale)
    _check_own(family)

    n_problems = n_settings * settings.n_starts
    split = torch.arange(len(splits)).repeat_interleave(n_problems)
    matrices: SplitFeatures = SplitMatrices.of(features)
    if not settings.plainly_estimated:
        # What other trainers read is one tensor, in which padding repeats a row.
        matrices = torch.stack(
            [
                torch.cat([each.to_dense(), each[:1].to_dense().expand(width - len(each), -1)])
                for each in features
            ]
        )
    tree = SoftTree(
        len(preprocessor.leaf_features),
        settings.depth,
        family.select(split),
        (len(split),),
        device=device,
        dtype=dtype,
        n_gate_features=len(preprocessor.gate_features),
    )
    tree.set_time_scale(log_scale[split].exp())
    sample = Sample(
        DesignMatrix(matrices, (n_problems,) * len(splits)),
        log_time[split].to(device, dtype),
        event[split].to(device, dtype),
        weight[split].to(device, dtype),
        None if log_entry is None else log_entry[split].to(device, dtype),
    )
    if intervals:
        log_lower, log_upper = (
            (stacked(bounds) - log_scale[:, None])[split].to(device, dtype) for bounds in (lowers, uppers)
        )
        sample = replace(sample, log_lower=log_lower, log_upper=log_upper)
    if any(data.person is not None for data in splits):
        # Penalties are held against a mean over persons: cutting a row in two must not weaken them.
        per_person = [float(data.sample_weight.sum() / persons_weight(data).sum()) for data in splits]
        each = torch.tensor(per_person, device=device, dtype=dtype)[split][:, None]
        sample = replace(sample, rows_per_person=each)
    if settings.fairness is not None and splits[0].groups is not None:
        codes = torch.as_tensor(np.stack(groups), device=device)[split.to(device)]
        sample = replace(sample, group=codes, n_groups=len(splits[0].groups.labels))
    return tree, sample


def _check_own(family: HazardFamily) -> None:
    """Look at a family that is not of this package before it is trained for the first time."""
    kind = type(family)
    if not kind.__module__.startswith("sstorch.") and kind not in _CHECKED:
        check_family(family.select(0))
        _CHECKED.add(kind)


def _bounds(data: SurvivalData) -> tuple[FloatArray, FloatArray]:
    """Bounds of the times within intervals, (n,); 0 and +inf of others."""
    if data.intervals is None:
        return np.zeros(len(data)), np.full(len(data), np.inf)
    within = data.intervals.censored
    return np.where(within, data.intervals.lower, 0.0), np.where(within, data.intervals.upper, np.inf)


def last_times(data: SurvivalData) -> FloatArray:
    """The last time of each person, (P,); of each row where rows are persons."""
    if data.person is None:
        return data.nominal_time
    last = np.zeros(int(data.person.max()) + 1)
    np.maximum.at(last, data.person, data.time)
    return last


def persons_weight(data: SurvivalData) -> FloatArray:
    """The weight of each person, the mean of the rows', (P,)."""
    if data.person is None:
        return data.sample_weight
    mean: FloatArray = np.bincount(data.person, data.sample_weight) / np.bincount(data.person)
    return mean


def _check_groups(splits: Sequence[SurvivalData]) -> None:
    for number, data in enumerate(splits):
        if data.groups is None or splits[0].groups is None:
            raise ConfigError("a fairness penalty needs the sensitive groups: fit(X, y, sensitive=...)")
        if data.groups.labels != splits[0].groups.labels:
            raise ConfigError("the splits have different sensitive groups: take them from one table")
        name = f"the training rows of split {number}" if len(splits) > 1 else "the training rows"
        data.groups.check_pairs(data.sample_weight, name)


def _merged(sample: Sample) -> Sample:
    """The rows, equal ones counted once by the fairness penalty; as they are if few are equal."""
    if sample.group is None:
        return sample
    counts = np.array(sample.x.counts)
    first = torch.as_tensor(counts.cumsum() - counts, device=sample.weight.device)
    group, weight = sample.group[first].cpu().numpy(), sample.weight[first].double().cpu().numpy()
    matrices = sample.x.matrices.double().cpu().numpy()
    merged = np.stack([merge_equal_rows(x, g, w) for x, g, w in zip(matrices, group, weight, strict=True)])
    if (merged > 0).sum() > _FEW_EQUAL * (weight > 0).sum():
        return sample
    per_problem = torch.as_tensor(counts, device=sample.weight.device)
    weights = torch.as_tensor(merged).to(sample.weight).repeat_interleave(per_problem, dim=0)
    return replace(sample, merged_weight=weights)


def _parity(
    settings: L2Parity, rhos: Sequence[float], splits: Sequence[SurvivalData], tree: SoftTree, n_starts: int
) -> GroupParity:
    """The fairness penalty of every problem: rho, and an integral over its own training times."""
    n_problems = len(rhos) * n_starts
    first = torch.arange(len(splits)) * n_problems
    log_scale = tree.log_time_scale.detach().cpu().double()[first]
    corners = tree.family.corners().detach().cpu().double()
    if corners.ndim == 1:
        corners = corners.expand(tree.n_problems, -1)
    at = (corners[first] + log_scale[:, None]).exp().tolist()
    rho = torch.tensor(rhos, dtype=torch.float64).repeat_interleave(n_starts).repeat(len(splits))
    if settings.pairs == "sum":
        # The objective's weights are divided by the largest one.
        largest = torch.tensor([data.sample_weight.max() for data in splits], dtype=torch.float64)
        rho = rho * largest.square().repeat_interleave(n_problems)
    times = [data.nominal_time[data.sample_weight > 0] for data in splits]
    return settings.penalty(rho, times, log_scale.numpy(), [n_problems] * len(splits), at)
