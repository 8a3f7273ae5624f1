"""Training of all parameters at once, alone or after the decomposition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import ClassVar

import torch

from sstorch.exceptions import ConfigError
from sstorch.optim.arguments import is_number
from sstorch.optim.decomposition import Nodec
from sstorch.optim.lbfgs import LBFGSOptions
from sstorch.optim.race import Race
from sstorch.optim.run import TrainingRun
from sstorch.optim.sharded_step import ShardedStep
from sstorch.optim.steps import JointStep
from sstorch.optim.trainer import RETIRED_MINIMIZER, Trainer

# What it comes with by name: of eight starts one is left after three laps.
JOINT_RACE = Race((1, 2, 3))


@dataclass(frozen=True)
class Joint(Trainer):
    """Settings of one minimisation over all gates and leaves.

    Attributes:
        lbfgs: tolerances and limits.
        race: drops the worse starts after some laps, each a pass; None minimises all at one go.
        lap: iterations of a lap, at least 1.

    Raises:
        ConfigError: a value is out of range.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)
    race: Race | None = None
    lap: int = 50

    retired: ClassVar[Mapping[str, str | None]] = RETIRED_MINIMIZER

    def __post_init__(self) -> None:
        if not is_number(self.lap, Integral) or self.lap < 1:
            raise ConfigError(f"lap must be at least 1, an integer, got {self.lap!r}")

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: the laps of a race, and one."""
        return 1 + (0 if self.race is None else self.race.after[-1])

    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`; a pass is recorded as one step, JOINT, of the root."""
        while self._lap(run):
            pass

    def _lap(self, run: TrainingRun) -> bool:
        """Minimise for a lap, or to the end if nobody is left to be dropped; whether there is more to do."""
        races = self.race is not None and self._may_drop(run, self.race)
        options = self.lbfgs
        if races:
            options = replace(options, max_iterations=min(self.lap, options.max_iterations))
        active = run.active
        tree, rows = run.tree.select(active), run.rows.select(active)
        objective = run.objective.select(active)
        step = ShardedStep.make(rows, lambda part: JointStep.make(tree, objective, part, relaxed=True))
        share = torch.full_like(run.best[active], torch.nan)
        run.minimize(options, "JOINT", 1, step, active, rows.n_rows, share)
        run.keep_best()
        run.end_pass(active, self.race if races else None)
        if races:
            run.save()
        return races

    @staticmethod
    def _may_drop(run: TrainingRun, race: Race) -> bool:
        """Whether a later end of a pass drops one of those that are active."""
        last = race.after[-1]
        if run.n_passes >= last:
            return False
        return len(run.active) > int(race.survivors(run.best, run.rows.counts, last).sum())


@dataclass(frozen=True)
class NodecJoint(Trainer):
    """Settings of the decomposition followed by a joint polish from the best point of each problem.

    Attributes:
        nodec: of the decomposition.
        joint: of the polish, without a race: starts are dropped by the decomposition.

    Raises:
        ConfigError: the polish has a race.
    """

    nodec: Nodec = field(default_factory=Nodec)
    joint: Joint = field(default_factory=Joint)

    def __post_init__(self) -> None:
        if self.joint.race is not None:
            raise ConfigError("the race of nodec+joint is that of the decomposition: give joint none")

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`."""
        return self.nodec.n_passes + self.joint.n_passes

    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`."""
        self.nodec.advance(run)
        run.go_to_best()
        run.active = torch.arange(run.tree.n_problems, device=run.active.device)
        self.joint.advance(run)
