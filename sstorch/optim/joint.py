"""Trainers of a single minimisation: over all nodes, also after a decomposition, or over leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.checks import check_integer
from sstorch.nn import SoftTree
from sstorch.objective import Sample
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
    @override
    def n_passes(self) -> int:
        """One; with ``holdout`` all rounds."""
        return -(-self.lbfgs.max_iterations // self.lap) if self.holdout else 1

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """Minimise to the end, or for a round at a time where held-out rows can stop a start before."""
        rounds, options = self.holdout > 0 and run.held_out is not None, self.lbfgs
        if rounds:
            options = replace(options, max_iterations=min(self.lap, options.max_iterations))
        while True:
            yield run.step(name="JOINT", minimizer=options)
            run.end_pass()
            if rounds:
                run.active = run.active[run.improved]
            if not rounds or len(run.active) == 0 or run.n_passes >= self.n_passes:
                return
            run.save()


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
    """Settings of one minimisation over all leaves, each on its rows by most probable path.

    With an infinite ``fused`` all leaves have equal slopes. Leaves with estimated penalties are trained by
    Newton's method, which has no settings.

    Attributes:
        lbfgs: tolerances and limits.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """One step, LN of the root, of problems whose leaves share slopes, and of the others."""
        shared = run.objective.shares_slopes.to(run.active.device).expand(run.tree.n_problems)
        for share_slopes in (True, False):
            some = (shared == share_slopes).nonzero().squeeze(-1)
            if len(some):
                batch = run.batch(run.active).select(some)
                reached = most_probable(batch.tree, batch.rows)
                yield replace(leaf_step(batch, 1, reached, share_slopes), minimizer=self.lbfgs)
        # The rows' one leaf is what is trained, and E of the soft routing may be higher than at the start.
        run.accept()
        run.end_pass()


@torch.no_grad()
def most_probable(tree: SoftTree, sample: Sample) -> Tensor:
    """1 where a row's most probable path ends in a leaf, else 0, shape (R, L, M)."""
    leaves = torch.arange(len(tree.topology.leaves), device=sample.weight.device)
    return (tree.apply_leaf(sample.x)[:, None, :] == leaves[:, None]).to(sample.weight)
