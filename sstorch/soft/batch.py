"""Training of many trees at once: every start of every split, at every setting, in one batch a cause."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.columns import is_wide
from sstorch.data.design_matrix import DesignMatrix
from sstorch.data.encodings import Linear
from sstorch.exceptions import ConfigError, TrainingError
from sstorch.fitted.model import EVENT
from sstorch.fitted.tree import FittedTree, Prediction
from sstorch.inference.covariance import FitCovariance
from sstorch.memory import check_fits
from sstorch.monitoring import Callback, History
from sstorch.nn import SoftTree, Topology
from sstorch.optim import Leaves
from sstorch.optim.nodec import environment
from sstorch.optim.run import Checkpoint, kept, opened
from sstorch.optim.starts.clusters import initialize_cox, initialize_kmeans, initialize_random, problem_seed
from sstorch.optim.starts.regression_tree import gates_of_targets, initialize_regression
from sstorch.soft.estimation import MOST_COEFFICIENTS, TOO_MANY, Estimator
from sstorch.soft.gates import gate_columns
from sstorch.soft.group_choice import GroupChoice
from sstorch.soft.problems import Problems, Solved, check_groups, check_strata, fit_preprocessors
from sstorch.soft.settings import BatchSettings, Coefficients
from sstorch.soft.teacher import Teacher, regression_targets
from sstorch.threads import one_blas_thread, report, threads_for

# Why trees of several problems have no covariance.
SEVERAL = "it was trained as one of several"
# Numbers that a row takes in addition to its features: times, losses and their derivatives.
_ELEMENTS_A_ROW = 64
# Matrices of the size of a Hessian that an estimation has at a time, for each split.
_HESSIANS = 12


@dataclass(frozen=True)
class TrainedBatch:
    """Trained trees: R = n_splits x n_settings x n_starts problems, by split, then by coefficients."""

    trees: Mapping[str, SoftTree]  # by cause, with shared gates; a single entry without competing causes
    objective: Tensor  # E of each problem on its training rows, summed over competing causes, (R,)
    histories: Mapping[str, History]  # by cause
    preprocessors: tuple[Preprocessor, ...]  # of each split
    event_times: tuple[FloatArray, ...]  # distinct ones of each split, increasing
    n_starts: int
    converged: Tensor  # whether leaves of all causes are at their optimum, or gates are trained, boolean (R,)
    coefficients: tuple[Coefficients, ...] = (Coefficients(),)
    choices: tuple[GroupChoice, ...] = ()  # of each problem, if penalties are estimated
    covariance: FitCovariance = field(default_factory=FitCovariance)  # of the last split

    @property
    def tree(self) -> SoftTree:
        """The problems of the only event, or of the first cause."""
        return next(iter(self.trees.values()))

    @property
    def history(self) -> History:
        """Records of the run of the only event, or of the first cause."""
        return next(iter(self.histories.values()))

    def position(self, split: int, start: int, setting: int = 0) -> int:
        """Problem number of a start of a split, with the coefficients at a position."""
        return (split * len(self.coefficients) + setting) * self.n_starts + start

    def best_start(self, split: int, setting: int = 0) -> int:
        """Start of a split with the lowest objective; TrainingError if none is finite."""
        first = self.position(split, 0, setting)
        objective = self.objective[first : first + self.n_starts]
        if not bool(objective.isfinite().any()):
            raise TrainingError(
                f"none of the {self.n_starts} starts of split {split} has a finite training objective; "
                "try another leaf, init='random', a larger ridge or dtype='float64'"
            )
        return int(torch.nan_to_num(objective, nan=torch.inf).argmin())

    def fitted(self, split: int, start: int, setting: int = 0, prediction: Prediction = "hbp") -> FittedTree:
        """The tree of a start of a split, with the coefficients at a position."""
        position = self.position(split, start, setting)
        hazards = {cause: tree.select(position) for cause, tree in self.trees.items()}
        return FittedTree(hazards, self.preprocessors[split], prediction, event_times=self.event_times[split])


def train_batch(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None = None,  # of all splits, by default that of the first
    coefficients: Sequence[Coefficients] | None = None,
) -> TrainedBatch:
    """Train ``n_starts`` trees on each split at each setting of the penalties, in one tensor program."""
    # Preprocessing, time scale and starting values of a split use only its rows; random numbers depend only
    # on (seed, split, start).
    return train_encoded([data.joined() for data in splits], settings, schema, (), None, coefficients)[0]


def train_encoded(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None,
    callbacks: Sequence[Callback],
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    coefficients: Sequence[Coefficients] | None = None,
) -> tuple[TrainedBatch, DesignMatrix]:
    """:func:`train_batch` by a checkpoint, and the encoded rows, (n_splits, M, p), shorter ones filled up."""
    coefficients = (settings.coefficients,) if coefficients is None else tuple(coefficients)
    n_leaves = len(splits) * settings.n_starts * len(coefficients) * 2**settings.depth
    with one_blas_thread(), threads_for(len(splits[0]) * max(n_leaves, splits[0].frame.shape[1])):
        batch = _Batch.of(splits, settings, schema, coefficients)
        known = settings if splits[0].causes is not None else settings.for_cause(None, 0)
        file = opened(
            checkpoint,
            settings=known.facts(),
            trainer=settings.trainer,
            coefficients=coefficients,
            samples={name: each.sample for name, each in batch.causes.items()},
            environment=environment(batch.first.sample.weight.device),
        )
        with file as held:
            batch = replace(batch, checkpoint=held)
            train = batch.estimated if settings.estimated else batch.trained
            return train(callbacks), batch.first.sample.x


def _of_cause(
    name: str, splits: Sequence[SurvivalData], settings: BatchSettings
) -> tuple[list[SurvivalData], BatchSettings]:
    """Splits with the events of one cause, or of the only event, and settings with its leaf."""
    cause = None if splits[0].causes is None else name
    own = list(splits) if cause is None else [data.of_cause(cause) for data in splits]
    for data in own if settings.strata is not None else ():
        check_strata(data, str(settings.strata), cause)
    return own, settings.for_cause(cause, min(data.n_events for data in own))


def _check_memory(
    splits: Sequence[SurvivalData], preprocessor: Preprocessor, plain: bool, coded: bool
) -> None:
    """Raise ConfigError, before rows are encoded, if they and their derivatives exceed the free memory."""
    n, n_features = sum(len(data) for data in splits), len(preprocessor.features)
    width = n_features - (sum(preprocessor.coded_levels) if coded else 0)
    copies = 1 if len(splits) == 1 else 2  # several splits are one tensor, which is made of parts
    n_bytes = 8 * n * ((copies if coded else 3) * width + _ELEMENTS_A_ROW)
    n_bytes += 8 * _HESSIANS * len(splits) * len(preprocessor.leaf_features) ** 2 * plain
    what = f"{n:,} rows with {width} numbers each" + (f" in {len(splits)} splits" if len(splits) > 1 else "")
    check_fits(
        n_bytes, what, "take fewer folds, Columns(numeric='linear'), fewer columns, or a part of the rows"
    )


def check_causes(data: SurvivalData, settings: BatchSettings) -> None:
    """Raise ConfigError if causes compete, and gates are to be trained or there is a fairness penalty."""
    if data.causes is not None and not settings.keeps_gates:
        raise ConfigError(
            "a trainer moves gates by the likelihood of one event: use trainer=None, PrognosticTree, or "
            "Surv(time, cause == k) for the hazard of cause k alone"
        )
    if data.causes is not None and settings.fairness is not None:
        raise ConfigError("the fairness penalty does not support competing causes: use fairness=None")


@dataclass(frozen=True)
class _Batch:
    """Untrained problems of every cause, and the splits they are of."""

    causes: Mapping[str, Problems]
    splits: Sequence[SurvivalData]
    preprocessors: tuple[Preprocessor, ...]
    settings: BatchSettings
    coefficients: tuple[Coefficients, ...]
    plain: bool  # whether Newton's method trains the leaves of all causes
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(
        cls,
        splits: Sequence[SurvivalData],
        settings: BatchSettings,
        schema: Schema | None,
        coefficients: tuple[Coefficients, ...],
    ) -> Self:
        """Of splits, whose rows are encoded once for all causes."""
        schema = Schema.of(splits[0].frame) if schema is None else schema
        check_causes(splits[0], settings)
        if settings.fairness is not None:
            check_groups(splits)
        report("encoding", 0, len(splits) + 1)
        if is_wide(len(schema.numeric), max(len(data) for data in splits)):
            if settings.fixed_columns:
                raise ConfigError(
                    "an offset or strata do not support so many columns: leave most of them out"
                )
            settings = replace(settings, numeric=settings.numeric.settled(Linear()))
        preprocessors = fit_preprocessors(splits, settings, schema)
        names = (EVENT,) if splits[0].causes is None else splits[0].cause_names
        of_causes = {name: _of_cause(name, splits, settings) for name in names}
        plain = settings.estimated and all(each.plainly_estimated for _, each in of_causes.values())
        coded = plain and not settings.trains_gates
        _check_memory(splits, preprocessors[0], plain, coded)
        features = []
        for number, (each, data) in enumerate(zip(preprocessors, splits, strict=True)):
            report("encoding", number + 1, len(splits) + 1)
            features.append(each.encode(data.frame) if coded else each.transform(data.frame))
        x = DesignMatrix.stack(features)
        del features
        causes = {
            name: Problems.of(own, x, preprocessors, of_cause, coefficients)
            for name, (own, of_cause) in of_causes.items()
        }
        return cls(causes, splits, preprocessors, settings, coefficients, plain)

    @property
    def first(self) -> Problems:
        """Problems of the first cause, whose gates and features are those of all."""
        return next(iter(self.causes.values()))

    def estimated(self, callbacks: Sequence[Callback]) -> TrainedBatch:
        """Train by the evidence; where Newton's method does not support E, a trainer then minimises it."""
        counts, causes = torch.tensor(self.first.sample.x.counts), self.causes
        if bool((counts > 1).any()):  # of each split one problem is estimated
            causes = {name: each.select(counts.cumsum(0) - counts) for name, each in causes.items()}
        estimator = Estimator(
            {name: each.tree for name, each in causes.items()},
            {name: each.sample for name, each in causes.items()},
            self.splits,
            self.preprocessors,
            self.settings,
            self.checkpoint,
            callbacks,
        )
        choices = tuple(estimator.choose())
        if self.plain:
            finished = {name: (estimator.objective(name), History()) for name in self.causes}
            several = len(self.splits) < self.first.tree.n_problems
            covariance = FitCovariance(reason=SEVERAL) if several else estimator.covariance()
            result = self._result(finished, estimator.converged, covariance)
        else:
            split = torch.arange(len(counts)).repeat_interleave(counts)
            gates = [part[split.to(part.device)] for part in (estimator.gate_precision, estimator.divides)]
            own = {}
            for name, each in self.causes.items():
                each.tree.assign(torch.arange(len(split)), estimator.trees[name].select(split))
                own[name] = each.under(estimator.prior(name).select(split), *gates)
            choices = tuple(choices[number] for number in split.tolist())
            result = replace(self, causes=own)._trained(callbacks)
        return replace(result, choices=choices)

    def trained(self, callbacks: Sequence[Callback]) -> TrainedBatch:
        """Train by the trainer of the settings, or with an offset or strata by Newton's method."""
        if not self.settings.fixed_columns:
            self._start()
            return self._trained(callbacks)
        solved = {name: each.solve(self.preprocessors[0]) for name, each in self.causes.items()}
        finished = {name: (each.objective, History()) for name, each in solved.items()}
        converged = torch.stack([each.converged for each in solved.values()]).all(0)
        return self._result(finished, converged, self._covariance(solved))

    def _trained(self, callbacks: Sequence[Callback]) -> TrainedBatch:
        """Minimise the objectives by the trainer, from where the trees are."""
        trainer, finished = self.settings.trainer, {}
        converged = torch.ones(self.first.tree.n_problems, dtype=torch.bool)
        for name, each in self.causes.items():
            file = None if self.checkpoint is None else self.checkpoint.within(f"training/{name}")
            finished[name] = each.train(trainer, callbacks, file)
            # Trainers of gates end after as many iterations as they are given.
            if isinstance(trainer, Leaves):
                last = finished[name][1].steps.groupby("problem")["status"].last()
                converged[last.index[last != "CONVERGED"].to_numpy(np.int64)] = False
        return self._result(finished, converged, self._covariance({}))

    def _covariance(self, solved: Mapping[str, Solved]) -> FitCovariance:
        """Of the coefficients of a single problem under given penalties, by its Hessian."""
        sizes = [each.tree.leaf_parameters().flatten().shape[-1] for each in self.causes.values()]
        reason = ""
        if self.settings.depth:
            reason = "gates are given, or trained by a trainer"
        elif self.first.tree.n_problems > 1:
            reason = SEVERAL
        elif max(sizes) > MOST_COEFFICIENTS:
            reason = TOO_MANY
        elif self.settings.restricted:
            reason = "it is restricted by monotone, fairness or custom penalties"
        if reason:
            return FitCovariance(reason=reason)
        return FitCovariance({name: each.covariance(solved.get(name)) for name, each in self.causes.items()})

    def _result(
        self, finished: Mapping[str, tuple[Tensor, History]], converged: Tensor, covariance: FitCovariance
    ) -> TrainedBatch:
        """The trees of all causes, with their objectives and records."""
        return TrainedBatch(
            {name: each.tree for name, each in self.causes.items()},
            torch.stack([objective for objective, _ in finished.values()]).sum(0),
            {name: history for name, (_, history) in finished.items()},
            self.preprocessors,
            tuple(data.event_times for data in self.splits),
            self.settings.n_starts,
            converged,
            self.coefficients,
            covariance=covariance,
        )

    def _start(self) -> None:
        """Give the problems of each cause their initial solutions, or those that a checkpoint has kept."""

        def made() -> dict[str, dict[str, Tensor]]:
            report("initial solutions", 0, 1)
            if self.settings.init != "distilled":
                self._initialize()
            if "distilled" in self.settings.init:
                self._distil()
            return {name: dict(each.tree.state_dict()) for name, each in self.causes.items()}

        for name, state in kept(self.checkpoint, "initial solutions", made).items():
            self.causes[name].tree.load_state_dict(state)

    def _distil(self) -> None:
        """Give the first start of each split and setting distilled gates, and leaves all its regression."""
        settings, n_starts = self.settings, self.settings.n_starts
        first = torch.arange(0, self.first.tree.n_problems, n_starts)
        own = {name: each.select(first) if n_starts > 1 else each for name, each in self.causes.items()}
        regressions = {
            name: initialize_regression(each.tree, each.plain, each.sample) for name, each in own.items()
        }
        if settings.depth:
            samples = {name: each.sample for name, each in own.items()}
            sample, n_features = next(iter(samples.values())), self.first.tree.n_gate_features
            if isinstance(settings.teacher, Teacher):
                targets = settings.teacher.targets(self.splits, sample)
            else:
                targets = regression_targets(regressions, samples, self.splits)
            columns, topology = gate_columns(self.preprocessors[0]), Topology(settings.depth)
            gates = gates_of_targets(sample, targets, n_features, columns, topology, settings.min_leaf)
            for each in own.values():
                each.tree.set_gates(gates)
        for name, each in own.items() if n_starts > 1 else ():
            self.causes[name].tree.assign(first, each.tree)

    def _initialize(self) -> None:
        """Give the problems of the only event their initial solutions."""
        tree, sample, curved = self.first.tree, self.first.sample, self.first.curved
        n_splits, n_starts = len(self.splits), self.settings.n_starts
        seeds = [
            problem_seed(self.settings.seed, split, start)
            for split in range(n_splits)
            for _ in self.coefficients
            for start in range(n_starts)
        ]
        if self.settings.init == "kmeans":
            initialize_kmeans(tree, self.first.plain, sample, seeds)
        elif self.settings.init == "cox":
            initialize_cox(tree, sample, seeds, curved)
        else:
            initialize_random(tree, sample, seeds, curved)
