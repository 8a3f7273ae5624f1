"""Settings and the course of training that all trainers share, and the choice of the engine."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from sstorch._version import __version__
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History
from sstorch.nn import Exponential, HazardFamily, LogLogistic, SoftTree, Spline, Weibull
from sstorch.nn.hazards.links import LinkFamily
from sstorch.objective import GateRidge, Ridge, Sample, TrainingObjective
from sstorch.objective.penalties import Roughness
from sstorch.optim.checkpoint import Checkpoint, opened
from sstorch.optim.run import TrainingRun
from sstorch.optim.steps import Step
from sstorch.threads import torch_threads

if TYPE_CHECKING:
    from sstorch.optim.compiled.trees import CompiledTrees


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
            checkpoint: path of a file that is written after every pass, or an open checkpoint. If it exists,
                training continues from its last pass, or ends if finished.

        Returns:
            The records of the run, including those before an interruption.

        Raises:
            ConfigError: the checkpoint belongs to another run, is open in another process, or cannot be
                written; or the engine does not support another setting.
            FormatError: it is truncated.
        """
        # Of a decomposition, whose passes both engines have.
        engine: Engine = getattr(self, "engine", "torch")
        compiled = compiled_trees(engine, tree, objective, sample, callbacks)
        with ExitStack() as stack:
            if compiled is not None:
                # Threads of torch would compete with those of the compiled engine for the cores.
                stack.enter_context(torch_threads(1))
            file = opened(
                checkpoint,
                trainer=self,
                objective=objective,
                sample=sample,
                start=tree,
                environment=environment(sample.weight.device, compiled is not None),
            )
            run = TrainingRun(tree, objective, sample, callbacks, stack.enter_context(file), compiled)
            run.train(self.steps, self.n_passes)
        return run.history


# "auto" is up to the problems alone, never to what a machine has compiled before.
Engine = Literal["auto", "torch", "compiled"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
# Rows, summed over trees, for which torch would take about as long as the compilation.
MANY_ROWS = 200_000
# Families with machine code.
_FAMILIES = (Exponential, Weibull, LogLogistic, Spline)


def link_of(family: HazardFamily) -> str | None:
    """Link of a family that the compiled engine has; None if it has not."""
    # What is derived from a family may have another loss.
    if type(family) not in _FAMILIES or not isinstance(family, LinkFamily) or not family.closed_form:
        return None
    name = family.link(torch.empty(0)).name
    return None if name == "probit" else name


def compiled_trees(
    engine: Engine,
    tree: SoftTree,
    objective: TrainingObjective,
    rows: Sample,
    callbacks: Sequence[Callback],
) -> CompiledTrees | None:
    """The trees for the compiled engine, None for torch; ConfigError where ``"compiled"`` is impossible."""
    if engine == "torch" or (engine == "auto" and rows.weight.numel() < MANY_ROWS):
        return None
    family, device = tree.family, rows.weight.device
    penalties = (*objective.gate_penalties, *objective.leaf_penalties)
    others = [type(each).__name__ for each in penalties if type(each) not in (GateRidge, Ridge, Roughness)]
    looks = [type(each).__name__ for each in callbacks if type(each).on_step is not Callback.on_step]
    obstacles = {
        f"it runs on the CPU alone, not on {device.type}: use device='cpu'": device.type != "cpu",
        "it computes in double precision alone: use dtype='float64'": (
            tree.log_time_scale.dtype != torch.float64
        ),
        f"leaf {family.name!r} has no compiled loss: use another leaf": link_of(family) is None,
        f"ancillary={family.ancillary!r} is not supported: use ancillary='constant'": (
            family.ancillary != "constant" and bool(family.shape_names)
        ),
        "penalties on rows (fairness, small leaves) are not supported: use fairness=None, min_leaf=0 and, "
        "since distilled gates have a least leaf, init='random'": len(objective.row_penalties) > 0,
        f"{', '.join(others)} is not supported, ridges on gates and slopes are: remove it": bool(others),
        "times within intervals are not supported: use exact times": rows.log_upper is not None,
        "trees with rows of their own are not supported: give those of other trees weight zero": (
            rows.x.rows is not None
        ),
        f"{', '.join(looks)} looks at trees between steps: use on_macro_iteration alone": bool(looks),
    }
    found = [reason for reason, is_met in obstacles.items() if is_met]
    if found and engine == "compiled":
        raise ConfigError(f"engine='compiled' cannot train this: {found[0]}, or engine='torch'")
    if found:
        return None
    # numba takes a while to load, which only training by it need wait for.
    from sstorch.optim.compiled.trees import CompiledTrees

    return CompiledTrees(tree, objective, rows, str(link_of(tree.family)))
