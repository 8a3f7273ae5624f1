"""A batch in training, as every trainer sees it: points, best points, who still trains, and the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from sstorch.monitoring.callbacks import Callback, StepContext
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree
from sstorch.objective import Sample, Shards, TrainingObjective
from sstorch.optim.checkpoint import Checkpoint
from sstorch.optim.lbfgs import LBFGSOptions
from sstorch.optim.race import Race
from sstorch.optim.result import OptimizationResult, Status
from sstorch.optim.resume import restore, to_arrays
from sstorch.optim.sharded_step import ShardedStep, minimize_step
from sstorch.optim.steps import JointStep, LeafStep, freeze_except


class TrainingRun:
    """State of one run.

    Attributes:
        tree: R problems at their present points.
        best_tree: the same problems at the best points so far.
        best: their criterion, shape (R,): E, or the loss on the rows held out.
        active: ascending positions of the problems that still train.
        n_passes: passes recorded so far.
        notes: what the trainer noted at the last :meth:`save` of a run that is resumed, else empty.
        finished: whether the run was finished when its checkpoint was written.
    """

    def __init__(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        rows: Shards,
        callbacks: Sequence[Callback] = (),
        held_out: Shards | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.tree = tree
        self.held_out = held_out
        # Coefficients of penalties that had to travel at each evaluation would make the device wait.
        self.objective = objective.to(rows.device)
        self.rows = rows
        self.callbacks = callbacks
        self.history = History()
        self.n_passes = 0
        everyone = torch.arange(tree.n_problems, device=rows.device)
        self.best_tree = tree.select(everyone)
        # Any finite point is better than one that is not.
        self.best = torch.nan_to_num(self.criterion(everyone), nan=torch.inf)
        self.active = everyone
        self.notes: Mapping[str, Tensor] = {}
        self.finished = False
        self._checkpoint = checkpoint

    @contextmanager
    def session(self, n_passes: int) -> Iterator[None]:
        """Tell the callbacks of beginning and end; leave the trees at their best points, trainable again."""
        freeze_except(self.tree, ())
        for callback in self.callbacks:
            callback.on_train_begin(self.tree, n_passes)
        try:
            if not self._resume():
                self.record_pass(self.active)
                self.save()
            yield
        finally:
            # Also after an interruption the trees are the best so far, and as trainable as they came.
            self.go_to_best()
            self.tree.requires_grad_(True)
            for callback in self.callbacks:
                callback.on_train_end(self.history)

    def save(self, **notes: Tensor) -> None:
        """Write the checkpoint, if there is to be one: the run as it stands between two passes.

        Args:
            notes: what the trainer needs to go on from here, beside the run itself.
        """
        if self._checkpoint is not None:
            self._checkpoint.write(to_arrays(self, notes))

    def finish(self) -> None:
        """Note that training is over and the present points are the results."""
        self.best_tree.load_state_dict(self.tree.state_dict())
        self.finished = True
        self.save()

    def _resume(self) -> bool:
        """Become the run that the checkpoint holds, if it holds one, and tell the callbacks of its passes."""
        arrays = None if self._checkpoint is None else self._checkpoint.read()
        if arrays is None:
            return False
        restore(self, arrays)
        for number in range(self.n_passes + 1):
            for callback in self.callbacks:
                callback.on_macro_iteration(number, self.history.until(number))
        return True

    def go_to_best(self) -> None:
        """Make the best points the present ones."""
        self.tree.load_state_dict(self.best_tree.state_dict())

    def sub_batch(self, problems: Tensor) -> tuple[SoftTree, Shards]:
        """Trees and rows of some problems; the batch itself if they are all."""
        if len(problems) == self.tree.n_problems:
            return self.tree, self.rows
        return self.tree.select(problems), self.rows.select(problems)

    @torch.no_grad()
    def criterion(self, problems: Tensor) -> Tensor:
        """What tells the best point: E of some problems, or their loss on the rows held out, shape (K,)."""
        tree, rows = self.sub_batch(problems)
        if self.held_out is not None:
            return self.held_out.select(problems).sum(lambda part: TrainingObjective().data_term(tree, part))
        objective = self.objective.select(problems)
        # Penalties on rows come with a single shard.
        penalty = objective.penalty(tree) + objective.row_penalty(tree, rows.parts[0])
        return rows.sum(lambda part: objective.data_term(tree, part)) + penalty

    def keep_best(self) -> Tensor:
        """Note improvements of the active problems; whether each improved, boolean (K,)."""
        value = self.criterion(self.active)
        # A difference that only rounding makes is no improvement, or patience would depend on the batch.
        best = self.best[self.active]
        rounding = 32 * torch.finfo(best.dtype).eps * (1 + best.abs())
        better = torch.where(best.isfinite(), value < best - rounding, value < best)
        improved = self.active[better]
        if len(improved):
            self.best[improved] = value[better]
            self.best_tree.assign(improved, self.tree.select(improved))
        return better

    def minimize(
        self,
        options: LBFGSOptions,
        name: str,
        node: int,
        step: ShardedStep,
        problems: Tensor,
        count: Tensor,
        share: Tensor,
    ) -> None:
        """Take one step of a sub-batch and write the working set back into the batch.

        Args:
            options: of the minimisation.
            name: of the step, for the records.
            node: s.
            step: of a sub-batch of K problems.
            problems: their positions (K,) in the batch.
            count: rows of the step, shape (K,).
            share: routed left before the step, shape (K,).
        """
        start = step.read()
        with torch.no_grad():
            before = step.value()
        result = minimize_step(step, start, options)
        restarted = torch.zeros_like(problems, dtype=torch.bool)
        if isinstance(step.first, LeafStep | JointStep):
            restarted = result.status == Status.NON_FINITE
            result = _retry_from_start(step, result, options)
        step.write(result.x)
        for callback in self.callbacks:
            callback.on_step(StepContext(self.n_passes + 1, node, name, step.first.tree, problems))
        self.tree.assign(problems, step.first.tree)
        self.history.add_steps(
            problem=problems.cpu(),
            macro_iteration=self.n_passes + 1,
            node=node,
            step=name,
            objective_before=before.cpu(),
            objective_after=result.value.cpu(),
            gradient_norm=result.gradient_norm.cpu(),
            evaluations=result.n_evaluations.cpu(),
            rows=count.cpu(),
            left_share=share.cpu(),
            status=[Status(code).name for code in result.status.tolist()],
            restarted=restarted.cpu(),
        )

    def skip(self, problems: Tensor, node: int, count: Tensor, share: Tensor) -> None:
        """Record problems with nothing to train at ``node``: too few rows, or no event for its leaves."""
        if len(problems) == 0:
            return
        self.history.add_steps(
            problem=problems.cpu(),
            macro_iteration=self.n_passes + 1,
            node=node,
            step="SKIP",
            objective_before=torch.nan,
            objective_after=torch.nan,
            gradient_norm=torch.nan,
            evaluations=0,
            rows=count.cpu(),
            left_share=share.cpu(),
            status="SKIPPED",
            restarted=False,
        )

    def end_pass(self, problems: Tensor, race: Race | None = None) -> Tensor:
        """Count a pass, drop who loses the race, and record the problems that trained; see `record_pass`."""
        self.n_passes += 1
        dropped = torch.zeros_like(problems, dtype=torch.bool)
        if race is not None:
            runs_on = race.survivors(self.best, self.rows.counts, self.n_passes)
            still = torch.zeros_like(runs_on).index_fill(0, self.active, True)
            dropped = (still & ~runs_on)[problems]
            self.active = self.active[runs_on[self.active]]
        return self.record_pass(problems, dropped)

    def record_pass(self, problems: Tensor, dropped: Tensor | bool = False) -> Tensor:
        """Record where some problems stand; max-norms of their gradients of E, shape (K,)."""
        tree, rows = self.tree.select(problems), self.rows.select(problems)
        objective = self.objective.select(problems)
        step = ShardedStep.make(rows, lambda part: JointStep.make(tree, objective, part))
        value, gradient = step.value_and_gradient(step.read())
        norm = gradient.abs().amax(-1)
        self.history.add_macro_iteration(
            problem=problems.cpu(),
            macro_iteration=self.n_passes,
            objective=value.cpu(),
            best_objective=self.best[problems].cpu(),
            gradient_norm=norm.cpu(),
            dropped=dropped.cpu() if isinstance(dropped, Tensor) else dropped,
            **{f"mass_{leaf}": mass.cpu() for leaf, mass in _leaf_masses(tree, rows).items()},
        )
        for callback in self.callbacks:
            callback.on_macro_iteration(self.n_passes, self.history)
        return norm


def _retry_from_start(
    step: ShardedStep, result: OptimizationResult, options: LBFGSOptions
) -> OptimizationResult:
    """Begin once more, from the family's own start in every leaf of the step, where the leaves overflow."""
    failed = (result.status == Status.NON_FINITE).nonzero().squeeze(-1)
    if len(failed) == 0:
        return result
    again = step.select(failed)
    fresh, parts = step.first.tree.select(failed), [own.sample for own in again.steps]
    log_time, event, weight = (
        step.rows.gather([getattr(part, name) for part in parts])[0]
        for name in ("log_time", "event", "weight")
    )
    entries = [part.log_entry for part in parts if part.log_entry is not None]
    log_entry = step.rows.gather(entries)[0] if entries else None
    intercept, shape = fresh.family.start(log_time, event, weight, log_entry)
    for node in cast(LeafStep | JointStep, step.first).nodes:
        fresh.leaf(node).reset(intercept, shape)
    retried = minimize_step(again, again.first.read_from(fresh), options)
    # A retry that ends no lower must not move the leaf.
    worked = retried.value < torch.nan_to_num(result.value[failed], nan=torch.inf)
    n_evaluations = result.n_evaluations.index_add(0, failed, retried.n_evaluations)
    failed = failed[worked]
    return replace(
        result,
        x=result.x.index_copy(0, failed, retried.x[worked]),
        value=result.value.index_copy(0, failed, retried.value[worked]),
        gradient_norm=result.gradient_norm.index_copy(0, failed, retried.gradient_norm[worked]),
        status=result.status.index_copy(0, failed, retried.status[worked]),
        n_evaluations=n_evaluations,
    )


@torch.no_grad()
def _leaf_masses(tree: SoftTree, rows: Shards) -> dict[int, Tensor]:
    """Share of each problem's training weight whose path ends in each leaf."""

    def masses(part: Sample) -> Tensor:
        ends = torch.nn.functional.one_hot(tree.apply_leaf(part.x), len(tree.topology.leaves))
        return (part.normalised_weight[..., None] * ends).sum(-2)

    return dict(zip(tree.topology.leaves, rows.sum(masses).unbind(-1), strict=True))
