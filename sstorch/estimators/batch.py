"""Training of many trees at once: every start of every split of the data in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History
from sstorch.nn import DesignMatrix, HazardFamily, SoftTree, Topology, make_family
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import Nodec, initialize_kmeans, initialize_random, problem_seed

DTYPES = {"float64": torch.float64, "float32": torch.float32}
TRAINERS = {"nodec": Nodec}
INITS = ("kmeans", "random")


@dataclass(frozen=True)
class BatchSettings:
    """Everything about the trees of a batch but the data; names as in :class:`SoftSurvivalTree`.

    Raises:
        ConfigError: if a value does not exist or is out of range.
    """

    depth: int
    leaf: str | HazardFamily
    n_starts: int
    trainer: str | Nodec
    init: str
    ridge: float
    gate_ridge: float
    fused: float
    device: str
    dtype: str
    seed: int

    def __post_init__(self) -> None:
        Topology(self.depth)
        make_family(self.leaf)
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if isinstance(self.trainer, str) and self.trainer not in TRAINERS:
            raise ConfigError(f"trainer must be one of {', '.join(TRAINERS)}, got {self.trainer!r}")
        if self.init not in INITS:
            raise ConfigError(f"init must be one of {', '.join(INITS)}, got {self.init!r}")
        if self.n_starts < 1:
            raise ConfigError(f"n_starts must be at least 1, got {self.n_starts}")
        for name in ("ridge", "gate_ridge", "fused"):
            value = getattr(self, name)
            if not np.isfinite(value) or value < 0:
                raise ConfigError(f"{name} must be a finite number >= 0, got {value!r}")
        kind = str(self.device).partition(":")[0]
        if kind not in ("cpu", "cuda"):
            raise ConfigError(f"device must be cpu, cuda or cuda:<number>, got {self.device!r}")
        if kind == "cuda" and not torch.cuda.is_available():
            raise ConfigError(
                f"device {self.device!r} asked for, but torch sees no CUDA device; use device='cpu'"
            )


@dataclass(frozen=True)
class TrainedBatch:
    """Trained trees of all splits and starts.

    Attributes:
        tree: R = n_splits x n_starts problems, ordered by split.
        objective: E of each problem, shape (R,).
        history: records of the run.
        preprocessors: fitted on each split's own rows.
        n_starts: problems per split.
    """

    tree: SoftTree
    objective: Tensor
    history: History
    preprocessors: tuple[Preprocessor, ...]
    n_starts: int

    def position(self, split: int, start: int) -> int:
        """Problem number of a start of a split."""
        return split * self.n_starts + start

    def best_start(self, split: int) -> int:
        """Start with the lowest training objective, the one that is returned as the split's tree."""
        own = self.objective[split * self.n_starts : (split + 1) * self.n_starts]
        return int(torch.nan_to_num(own, nan=torch.inf).argmin())


def train_batch(
    splits: Sequence[SurvivalData],
    settings: BatchSettings,
    schema: Schema | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainedBatch:
    """Train ``n_starts`` trees on each split, all in one tensor program.

    Preprocessing, time scale and initial solutions of a split come from its own rows. The random numbers of
    a problem depend on (seed, split, start) alone.

    Args:
        splits: training rows of each split.
        settings: of the trees.
        schema: columns and vocabulary that all splits share; taken from the first split if None.
        callbacks: told of every step.
    """
    schema = Schema.of(splits[0].frame) if schema is None else schema
    preprocessors = tuple(Preprocessor(schema).fit(data.frame) for data in splits)
    tree, sample = stack_splits(splits, preprocessors, settings)
    objective = TrainingObjective(settings.ridge, settings.gate_ridge, settings.fused)
    seeds = [
        problem_seed(settings.seed, split, start)
        for split in range(len(splits))
        for start in range(settings.n_starts)
    ]
    if settings.init == "kmeans":
        initialize_kmeans(tree, objective, sample, seeds)
    else:
        initialize_random(tree, sample, seeds)
    trainer = TRAINERS[settings.trainer]() if isinstance(settings.trainer, str) else settings.trainer
    history = trainer.train(tree, objective, sample, callbacks)
    with torch.no_grad():
        final = objective(tree, sample)
    return TrainedBatch(tree, final, history, preprocessors, settings.n_starts)


def stack_splits(
    splits: Sequence[SurvivalData], preprocessors: Sequence[Preprocessor], settings: BatchSettings
) -> tuple[SoftTree, Sample]:
    """Untrained trees and their rows; shorter splits repeat their first row at weight zero."""
    device, dtype = torch.device(settings.device), DTYPES[settings.dtype]
    width = max(len(data) for data in splits)
    features, times, events, weights = [], [], [], []
    for data, preprocessor in zip(splits, preprocessors, strict=True):
        rows = np.r_[np.arange(len(data)), np.zeros(width - len(data), dtype=np.int64)]
        features.append(preprocessor.transform(data.frame)[rows])
        times.append(np.log(data.time[rows]))
        events.append(data.event[rows])
        weights.append(np.where(np.arange(width) < len(data), data.sample_weight[rows], 0.0))

    def per_problem(values: list[np.ndarray]) -> Tensor:
        stacked = torch.as_tensor(np.stack(values), dtype=torch.float64)
        return stacked.repeat_interleave(settings.n_starts, dim=0)

    # The geometric mean time is the unit of model time: log times are then centred on zero.
    log_scale = torch.tensor([np.log(data.time).mean() for data in splits], dtype=torch.float64)
    log_scale = log_scale.repeat_interleave(settings.n_starts)
    matrices = torch.as_tensor(np.stack(features), device=device, dtype=dtype)
    tree = SoftTree(
        matrices.shape[-1],
        settings.depth,
        settings.leaf,
        (len(splits) * settings.n_starts,),
        device,
        dtype,
    )
    tree.set_time_scale(log_scale.exp())
    sample = Sample(
        DesignMatrix(matrices, (settings.n_starts,) * len(splits)),
        (per_problem(times) - log_scale[:, None]).to(device, dtype),
        per_problem(events).to(device, dtype),
        per_problem(weights).to(device, dtype),
    )
    return tree, sample
