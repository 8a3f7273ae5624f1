"""Training of all parameters at once, alone or after the decomposition."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from sstorch.optim.decomposition import Nodec
from sstorch.optim.lbfgs import LBFGSOptions
from sstorch.optim.run import Minimizer, TrainingRun
from sstorch.optim.sharded_step import ShardedStep, minimize_step
from sstorch.optim.steps import JointStep
from sstorch.optim.trainer import Trainer


@dataclass(frozen=True)
class Joint(Trainer):
    """Settings of one minimisation over all gates and leaves.

    Attributes:
        lbfgs: tolerances and limits.
        minimizer: the batched L-BFGS unless compared with another.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)
    minimizer: Minimizer = minimize_step

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: one."""
        return 1

    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`; recorded as one step, JOINT, of the root."""
        tree, rows = run.tree.select(run.active), run.rows.select(run.active)
        objective = run.objective.select(run.active)
        step = ShardedStep.make(rows, lambda part: JointStep.make(tree, objective, part, relaxed=True))
        share = torch.full_like(run.best[run.active], torch.nan)
        run.minimize(self.minimizer, self.lbfgs, "JOINT", 1, step, run.active, rows.n_rows, share)
        run.keep_best()
        run.end_pass(run.active)


@dataclass(frozen=True)
class NodecJoint(Trainer):
    """Settings of the decomposition followed by a joint polish from the best point of each problem.

    Attributes:
        nodec: of the decomposition.
        joint: of the polish.
    """

    nodec: Nodec = field(default_factory=Nodec)
    joint: Joint = field(default_factory=Joint)

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
