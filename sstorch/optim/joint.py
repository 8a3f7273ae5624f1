"""Joint L-BFGS over all parameters, also after a decomposition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from typing_extensions import override

from sstorch.checks import check_integer
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.nodec import Nodec
from sstorch.optim.run import TrainingRun
from sstorch.optim.steps import JointStep
from sstorch.optim.trainer import Trainer


@dataclass(frozen=True)
class Joint(Trainer):
    """Settings of one minimisation over all gates and leaves.

    Attributes:
        lbfgs: tolerances and limits.
        lap: with ``holdout``, iterations per round, each a pass, at least 1; a start stops after the first
            round without an improvement of the held-out loss.

    Raises:
        ConfigError: a value is out of range.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)
    lap: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("lap", self.lap, least=1)

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: one; with ``holdout`` all rounds."""
        return -(-self.lbfgs.max_iterations // self.lap) if self.holdout else 1

    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`; a pass is recorded as one step, JOINT, of the root."""
        while self._lap(run):
            pass

    def _lap(self, run: TrainingRun) -> bool:
        """Minimise for a round, or to the end if nothing can stop a start before; true if rounds remain."""
        stops = self.holdout > 0 and run.held_out is not None
        options = self.lbfgs
        if stops:
            options = replace(options, max_iterations=min(self.lap, options.max_iterations))
        active = run.active
        tree, rows = run.tree.select(active), run.rows.select(active)
        step = JointStep.make(tree, run.objective.select(active), rows, relaxed=True)
        share = torch.full_like(run.best[active], torch.nan)
        run.minimize(options, "JOINT", 1, step, active, rows.n_rows, share)
        run.look(active)
        improved = run.keep_best()
        run.end_pass(active)
        if stops:
            run.active = run.active[torch.isin(run.active, active[improved])]
        goes_on = stops and len(run.active) > 0 and run.n_passes < self.n_passes
        if goes_on:
            run.save()
        return goes_on


@dataclass(frozen=True)
class NodecJoint(Trainer):
    """Settings of the decomposition followed by joint optimisation from the best point of each problem.

    Attributes:
        nodec: settings of the decomposition.
        joint: settings of the joint optimisation.
    """

    nodec: Nodec = field(default_factory=Nodec)
    joint: Joint = field(default_factory=Joint)

    @property
    @override
    def n_passes(self) -> int:
        return self.nodec.n_passes + self.joint.n_passes

    @override
    def advance(self, run: TrainingRun) -> None:
        self.nodec.advance(run)
        run.go_to_best()
        run.active = torch.arange(run.tree.n_problems, device=run.active.device)
        self.joint.advance(run)
