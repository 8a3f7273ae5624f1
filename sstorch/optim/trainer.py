"""Settings and the course of training that all trainers share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from sstorch._version import __version__
from sstorch.monitoring import Callback, History
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.checkpoint import Checkpoint, opened
from sstorch.optim.run import PassEngine, TrainingRun
from sstorch.optim.steps import Step
from sstorch.threads import torch_threads


def environment(device: torch.device, compiled: bool = False) -> dict[str, str]:
    """Versions, device and engine: the last bits of a result depend on them, too."""
    where = {"sstorch": __version__, "torch": torch.__version__, "device": device.type}
    return where | {"engine": "compiled" if compiled else "torch"}


@dataclass(frozen=True)
class Trainer(ABC):
    """Settings of the training of a batch.

    A subclass defines :meth:`steps`, and with several passes :attr:`n_passes`; fields of its own need the
    decorator ``@dataclass(frozen=True)``.
    """

    @property
    def n_passes(self) -> int:
        """Maximum number of recorded passes: macro iterations, or one for a single minimisation."""
        return 1

    @property
    def identity(self) -> Trainer:
        """The settings that results depend on but for rounding, for comparison with another run."""
        return self

    def compiled(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback],
    ) -> PassEngine | None:
        """What takes all steps of a pass at once; None if torch takes them one by one."""
        return None

    @abstractmethod
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """Yield the steps of the active problems, each made by :meth:`TrainingRun.step` when it is its turn.

        The run takes a step before the next one is made. :meth:`TrainingRun.end_pass` ends a pass. The result
        of the training is the best point of each problem.
        """

    def train(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> History:
        """Train every problem of ``tree`` in place, to its best point.

        Args:
            tree: R problems with initial solutions; float64 advised.
            objective: E.
            sample: training rows of each problem.
            callbacks: called after every inner step and pass.
            checkpoint: path of a file that is written after every pass. If it exists, training continues from
                its last pass, or ends if finished. A checkpoint that is open is used as it is.

        Returns:
            The records of the run, including those before an interruption.

        Raises:
            ConfigError: the checkpoint belongs to a run with other settings, data, starting values or
                versions of the software, is open in another process, or cannot be written; or the engine does
                not support another setting.
            FormatError: it is truncated or altered.
        """
        compiled = self.compiled(tree, objective, sample, callbacks)
        with ExitStack() as stack:
            if compiled is not None:
                # Threads of torch would compete with those of the compiled engine for the cores.
                stack.enter_context(torch_threads(1))
            file = opened(
                checkpoint,
                trainer=self.identity,
                objective=objective,
                sample=sample,
                start=tree,
                environment=environment(sample.weight.device, compiled is not None),
            )
            run = TrainingRun(tree, objective, sample, callbacks, stack.enter_context(file), compiled)
            with run.session(self.n_passes):
                for step in () if run.finished else self.steps(run):
                    run.take(step)
            if not run.finished:
                run.objective.project(tree)
                run.finish()
        return run.history
