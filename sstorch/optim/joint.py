"""Trainers of a single minimisation: over all nodes, also after a decomposition, or over leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from typing_extensions import override

from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.nodec import Nodec
from sstorch.optim.run import TrainingRun
from sstorch.optim.steps import Step
from sstorch.optim.trainer import Trainer
from sstorch.optim.working_sets import leaf_step


@dataclass(frozen=True)
class Joint(Trainer):
    """Settings of one minimisation over all gates and leaves.

    Attributes:
        lbfgs: tolerances and limits.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        yield run.step(name="JOINT", minimizer=self.lbfgs)
        run.end_pass()


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
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        yield from self.nodec.steps(run)
        run.go_to_best()
        run.active = torch.arange(run.tree.n_problems, device=run.active.device)
        yield from self.joint.steps(run)


@dataclass(frozen=True)
class Leaves(Trainer):
    """Settings of one minimisation over all leaves, each on its rows by most probable path; gates stay.

    Attributes:
        lbfgs: tolerances and limits.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """One step, LN of the root."""
        # A step trains a copy, which callbacks compare with the batch.
        batch = run.batch(run.active).select(run.active)
        with torch.no_grad():
            leaves = torch.arange(len(run.tree.topology.leaves), device=run.active.device)
            reached = batch.tree.apply_leaf(batch.rows.x)[:, None, :] == leaves[:, None]
        step = leaf_step(batch, 1, reached.to(batch.rows.weight))
        yield replace(step, minimizer=self.lbfgs)
        # The rows' one leaf is what is trained, and E of the soft routing may be higher than at the start.
        run.accept()
        run.end_pass()
