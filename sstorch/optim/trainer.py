"""What a trainer is: settings of a way to train a batch."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

from sstorch.exceptions import ConfigError
from sstorch.monitoring.callbacks import Callback
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree
from sstorch.objective import GateGroupLasso, Sample, Shards, TrainingObjective
from sstorch.optim.checkpoint import Checkpoint
from sstorch.optim.resume import environment
from sstorch.optim.run import TrainingRun

# The only minimiser that is left of the choice that there was.
RETIRED_MINIMIZER = {"minimizer": "sstorch.optim.sharded_step.minimize_step"}


class Trainer(ABC):
    """Settings of a way to train a batch.

    Attributes:
        retired: settings of earlier versions, each at the value that it would have now. They are part of the
            fingerprint, so that checkpoints and studies of those versions are still recognised.
    """

    retired: ClassVar[Mapping[str, str | None]] = {}

    @property
    @abstractmethod
    def n_passes(self) -> int:
        """The most passes that are recorded: macro iterations, epochs, or one for a single minimisation."""

    @abstractmethod
    def advance(self, run: TrainingRun) -> None:
        """Train the problems of ``run`` that are active."""

    def train(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback] = (),
        held_out: Sample | None = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        n_shards: int = 1,
    ) -> History:
        """Train every problem of ``tree`` in place; leave it at its best point, driven-out features at zero.

        Args:
            tree: R problems with initial solutions; float64 advised.
            objective: E.
            sample: training rows of each problem.
            callbacks: told of every inner step and pass.
            held_out: rows that are not trained on. If given, the best point is that with the lowest mean loss
                there instead of the lowest E, and patience counts improvements of it.
            checkpoint: file that is written after every pass. If it is there already, ``tree`` being the same
                initial solutions, training goes on from the last pass it holds, or is over at once.
            n_shards: the rows are worked through in so many shards, which several processes of
                ``torch.distributed`` share; see :class:`~sstorch.objective.Shards`.

        Returns:
            The records of the run, those from before an interruption included.

        Raises:
            ConfigError: the checkpoint belongs to a run with other settings, data or initial solutions, is
                held by another process, or cannot be written; or shards do not go with another setting.
            FormatError: it is truncated, altered or of an unknown format version.
        """
        with ExitStack() as stack:
            if checkpoint is not None:
                checkpoint = stack.enter_context(Checkpoint.of(checkpoint).held())
                checkpoint.identify(
                    trainer=self,
                    n_shards=n_shards,
                    objective=objective,
                    sample=sample,
                    held_out=held_out,
                    start=tree,
                    environment=environment(sample.weight.device),
                )
            rows = Shards.cut(sample, n_shards)
            held_out_rows = None if held_out is None else Shards.cut(held_out, n_shards)
            if checkpoint is not None and rows.group is not None:
                raise ConfigError("a run of several processes cannot be resumed: leave the checkpoint out")
            if not rows.is_whole and any(isinstance(p, GateGroupLasso) for p in objective.gate_penalties):
                raise ConfigError("gate_sparsity needs all rows at once: use a single shard")
            if not rows.is_whole and len(objective.row_penalties):
                raise ConfigError("penalties on rows need all of them at once: use a single shard")
            run = TrainingRun(tree, objective, rows, callbacks, held_out_rows, checkpoint)
            with run.session(self.n_passes):
                if not run.finished:
                    self.advance(run)
            if not run.finished:
                run.objective.sparsify(tree, sample)
                run.finish()
        return run.history
