"""Training of many trees at once: every start of every split of the data in one batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.estimators.settings import BatchSettings
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.monitoring import Callback, History
from sstorch.nn import DesignMatrix, SoftTree, make_family
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import (
    Checkpoint,
    initialize_cox,
    initialize_greedy,
    initialize_kmeans,
    initialize_optimal,
    initialize_random,
    problem_seed,
)


@dataclass(frozen=True)
class TrainedBatch:
    """Trained trees of all splits and starts.

    Attributes:
        tree: R = n_splits x n_starts problems, ordered by split.
        objective: E of each problem on the rows it was trained on, shape (R,).
        criterion: what the starts of a split are compared by, shape (R,): E, or the loss on the rows held
            out.
        history: records of the run.
        preprocessors: fitted on each split's own rows.
        n_starts: problems per split.
    """

    tree: SoftTree
    objective: Tensor
    criterion: Tensor
    history: History
    preprocessors: tuple[Preprocessor, ...]
    n_starts: int

    def position(self, split: int, start: int) -> int:
        """Problem number of a start of a split."""
        return split * self.n_starts + start

    def best_start(self, split: int) -> int:
        """Start with the lowest criterion, the one that is returned as the split's tree.

        Raises:
            TrainingError: no start of the split has a finite objective.
        """
        own = self.criterion[split * self.n_starts : (split + 1) * self.n_starts]
        if not bool(own.isfinite().any()):
            raise TrainingError(
                f"none of the {self.n_starts} starts of split {split} has a finite training objective; "
                "try another leaf, init='random', a larger ridge or dtype='float64'"
            )
        return int(torch.nan_to_num(own, nan=torch.inf).argmin())


def train_batch(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
) -> TrainedBatch:
    """Train ``n_starts`` trees on each split, all in one tensor program.

    Preprocessing, time scale and initial solutions of a split come from its own rows. The random numbers of
    a problem depend on (seed, split, start) alone.

    Args:
        splits: training rows of each split.
        settings: of the trees.
        schema: columns and vocabulary that all splits share; taken from the first split if None.
        callbacks: told of every step.
        checkpoint: file that is written after every pass; if it is there already, training goes on from it.
            See :class:`Checkpoint`.

    Raises:
        ConfigError: the checkpoint belongs to another run or cannot be written.
        FormatError: it is truncated or altered.
    """
    with ExitStack() as stack:
        if checkpoint is not None:
            checkpoint = stack.enter_context(Checkpoint.of(checkpoint).held())
            # Told before initial solutions are made, which can take long.
            checkpoint.identify(settings=settings.facts(), trainer=settings.trainer)
        return _train_batch(splits, settings, schema, callbacks, checkpoint)


def _train_batch(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None,
    callbacks: Sequence[Callback],
    checkpoint: Checkpoint | None,
) -> TrainedBatch:
    schema = Schema.of(splits[0].frame) if schema is None else schema
    preprocessors = tuple(
        Preprocessor(schema, settings.missing_numbers, settings.missing_categories).fit(data.frame)
        for data in splits
    )
    tree, sample = stack_splits(splits, preprocessors, settings)
    held_out = None
    if settings.holdout > 0:
        kept = _held_in(splits, settings)
        held_out = replace(sample, weight=sample.weight * ~kept)
        sample = replace(sample, weight=sample.weight * kept)
    objective = TrainingObjective(settings.ridge, settings.gate_ridge, settings.fused, settings.gate_sparsity)
    seeds = [
        problem_seed(settings.seed, split, start)
        for split in range(len(splits))
        for start in range(settings.n_starts)
    ]
    if settings.init == "kmeans":
        initialize_kmeans(tree, objective, sample, seeds)
    elif settings.init == "greedy":
        initialize_greedy(tree, objective, sample, seeds)
    elif settings.init == "optimal":
        initialize_optimal(tree, objective, sample, seeds)
    elif settings.init == "cox":
        initialize_cox(tree, sample, seeds)
    else:
        initialize_random(tree, sample, seeds)
    history = settings.trainer.train(
        tree, objective, sample, callbacks, held_out, checkpoint, settings.n_shards
    )
    with torch.no_grad():
        final = objective(tree, sample)
        criterion = final if held_out is None else TrainingObjective()(tree, held_out)
    return TrainedBatch(tree, final, criterion, history, preprocessors, settings.n_starts)


def _held_in(splits: Sequence[SurvivalData], settings: BatchSettings) -> Tensor:
    """Rows that each problem is trained on, boolean (R, M): all but a share of those with and without events.

    The starts of a split hold out the same rows, so that their losses there can be compared.

    Raises:
        DataError: the share leaves out no row with an event, or all of them.
    """
    kept = np.ones((len(splits), max(len(data) for data in splits)), dtype=bool)
    for number, data in enumerate(splits):
        draws = np.random.default_rng(problem_seed(settings.seed, number, settings.n_starts))
        for event in (True, False):
            rows = draws.permutation(np.flatnonzero(data.event == event))
            count = round(settings.holdout * len(rows))
            if event and not 0 < count < len(rows):
                raise DataError(
                    f"holdout={settings.holdout:g} leaves out {count} of {len(rows)} rows with an event; at "
                    "least one must be left out and one kept: choose another share, or more rows"
                )
            kept[number, rows[:count]] = False
    return torch.as_tensor(kept, device=settings.device).repeat_interleave(settings.n_starts, dim=0)


def stack_splits(
    splits: Sequence[SurvivalData], preprocessors: Sequence[Preprocessor], settings: BatchSettings
) -> tuple[SoftTree, Sample]:
    """Untrained trees and their rows; shorter splits repeat their first row at weight zero."""
    device, dtype = torch.device(settings.device), settings.torch_dtype
    width = max(len(data) for data in splits)
    features, times, entries, events, weights = [], [], [], [], []
    for data, preprocessor in zip(splits, preprocessors, strict=True):
        rows = np.r_[np.arange(len(data)), np.zeros(width - len(data), dtype=np.int64)]
        features.append(preprocessor.transform(data.frame)[rows])
        times.append(np.log(data.time[rows]))
        with np.errstate(divide="ignore"):  # entry at time zero is -inf
            entries.append(np.log(data.entry[rows]))
        events.append(data.event[rows])
        # Objectives are weighted means; the largest weight is made one so that no sum overflows.
        weight = data.sample_weight[rows] / data.sample_weight.max()
        weights.append(np.where(np.arange(width) < len(data), weight, 0.0))

    def stacked(values: list[np.ndarray]) -> Tensor:
        return torch.as_tensor(np.stack(values), dtype=torch.float64)

    # The geometric mean time is the unit of model time: log times are then centred on zero.
    log_scale = torch.tensor([np.log(data.time).mean() for data in splits], dtype=torch.float64)
    log_time, event, weight = stacked(times) - log_scale[:, None], stacked(events), stacked(weights)
    log_entry = stacked(entries) - log_scale[:, None] if any(data.entry.any() for data in splits) else None
    family = make_family(settings.leaf)
    if log_entry is not None and family.can_rise:
        raise ConfigError("entry times need curves that cannot rise: use leaves with monotone=True")
    family = family.prepare(log_time, event, weight, log_scale)

    split = torch.arange(len(splits)).repeat_interleave(settings.n_starts)
    matrices = torch.as_tensor(np.stack(features), device=device, dtype=dtype)
    tree = SoftTree(
        matrices.shape[-1], settings.depth, family.select(split), (len(split),), device=device, dtype=dtype
    )
    tree.set_time_scale(log_scale[split].exp())
    sample = Sample(
        DesignMatrix(matrices, (settings.n_starts,) * len(splits)),
        log_time[split].to(device, dtype),
        event[split].to(device, dtype),
        weight[split].to(device, dtype),
        None if log_entry is None else log_entry[split].to(device, dtype),
    )
    return tree, sample
