"""Settings and the course of training that all trainers share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar

import torch

from sstorch._version import __version__
from sstorch.checks import check_choice, is_number_of
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.checkpoint import Checkpoint, opened
from sstorch.optim.engine import ENGINES, Engine, compiled_trees
from sstorch.optim.run import TrainingRun
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

    Attributes:
        holdout: share of held-out training rows, stratified by event. The iterate of each tree, and the
            start, are chosen by the lowest held-out loss. 0 for no held-out rows.
        engine: ``"torch"``, ``"compiled"`` (:class:`Nodec` on the CPU, in double precision, seven leaf
            families, ridges; 7 to 20 times as fast, after about 10 seconds of compilation at the first use on
            a machine), or ``"auto"``: compiled, if supported, for many rows and problems (`compiled_from`).
        compiled_from: number of rows, summed over problems, from which ``engine="auto"`` is compiled: torch
            would then take about as long as the compilation; None if torch alone trains.
    """

    holdout: float = field(default=0.0, kw_only=True)
    engine: Engine = field(default="auto", kw_only=True)

    compiled_from: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if not is_number_of(self.holdout, Real) or not 0 <= self.holdout < 1:
            raise ConfigError(f"holdout must be a share in [0, 1), got {self.holdout!r}")
        check_choice(self.engine, "engine", ENGINES)

    @property
    def n_passes(self) -> int:
        """Maximum number of recorded passes: macro iterations, or one for a single minimisation."""
        return 1

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
        held_out: Sample | None = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> History:
        """Train every problem of ``tree`` in place, to its best point with removed features at zero.

        Args:
            tree: R problems with initial solutions; float64 advised.
            objective: E.
            sample: training rows of each problem.
            callbacks: called after every inner step and pass.
            held_out: held-out rows. If given, the best point has the lowest mean held-out loss instead of the
                lowest E, and patience counts improvements of this loss.
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
        own = self.engine, type(self).__name__, self.compiled_from
        compiled = compiled_trees(*own, tree, objective, sample, held_out, callbacks)
        with ExitStack() as stack:
            if compiled is not None:
                # Threads of torch would compete with those of the compiled engine for the cores.
                stack.enter_context(torch_threads(1))
            file = opened(
                checkpoint,
                trainer=replace(self, engine="auto"),  # `environment` has it
                objective=objective,
                sample=sample,
                held_out=held_out,
                start=tree,
                environment=environment(sample.weight.device, compiled is not None),
            )
            run = TrainingRun(
                tree, objective, sample, callbacks, held_out, stack.enter_context(file), compiled
            )
            with run.session(self.n_passes):
                for step in () if run.finished else self.steps(run):
                    run.take(step)
            if not run.finished:
                run.objective.project(tree)
                run.objective.sparsify(tree, sample)
                run.finish()
        return run.history
