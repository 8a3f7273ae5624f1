"""Training of leaves with fixed gates."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn import SoftTree
from sstorch.objective import Sample
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.run import TrainingRun
from sstorch.optim.steps import LeafStep, SharedSlopesStep
from sstorch.optim.trainer import Trainer


@dataclass(frozen=True)
class Leaves(Trainer):
    """Settings of one minimisation over all leaves, each on its rows by most probable path.

    With an infinite ``fused`` all leaves have equal slopes. Leaves with estimated penalties are trained by
    Newton's method, which has no settings.

    Attributes:
        lbfgs: tolerances and limits.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)

    @property
    @override
    def n_passes(self) -> int:
        return 1

    @override
    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`; a pass is recorded as one step, LN, of the root."""
        active = run.active
        shares = run.objective.shares_slopes.to(active.device).expand(run.tree.n_problems)[active]
        for kind, problems in ((SharedSlopesStep, active[shares]), (LeafStep, active[~shares])):
            if len(problems):
                self._fit(run, kind, problems)
        # The rows' one leaf is what is trained, and E of the soft routing may be higher than at the start.
        run.accept()
        run.end_pass(run.active)

    def _fit(self, run: TrainingRun, kind: type[LeafStep], problems: Tensor) -> None:
        tree, rows = run.tree.select(problems), run.rows.select(problems)
        objective = run.objective.select(problems)
        everything = rows if len(objective.row_penalties) else None
        step = kind.make(tree, objective, rows, 1, most_probable(tree, rows), everything)
        share = torch.full_like(run.best[problems], torch.nan)
        run.minimize(self.lbfgs, "LN", 1, step, problems, rows.n_rows, share)


@torch.no_grad()
def most_probable(tree: SoftTree, sample: Sample) -> Tensor:
    """1 where a row's most probable path ends in a leaf, else 0, shape (R, L, M)."""
    leaves = torch.arange(len(tree.topology.leaves), device=sample.weight.device)
    return (tree.apply_leaf(sample.x)[:, None, :] == leaves[:, None]).to(sample.weight)
