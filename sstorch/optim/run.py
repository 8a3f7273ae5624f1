"""A training run: its problems, their records and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sstorch._types import IntArray
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.batched_lbfgs import LBFGSOptions, OptimizationResult, Status
from sstorch.optim.checkpoint import Checkpoint
from sstorch.optim.minimizers import never_worse
from sstorch.optim.steps import JointStep, LeafStep, Minimizer, Step, freeze_except, lbfgs
from sstorch.progress import TRAINING, report

if TYPE_CHECKING:
    from sstorch.optim.compiled.trees import CompiledTrees

# Of a state, in addition to the trees.
_STATE = ("best", "active", "n_passes", "notes", "finished", "history")
_STATUSES = np.array([status.name for status in Status])
_NO_STEP = {
    **dict.fromkeys(("objective_before", "objective_after", "gradient_norm"), np.nan),
    "evaluations": 0,
    "restarted": False,
}


class TrainingRun:
    """State of one run.

    Attributes:
        tree: R problems at their present points.
        best_tree: the same problems at the best points so far.
        best: their criterion, shape (R,): E, or the loss on the rows held out.
        active: ascending positions of the problems that still train.
        n_passes: passes recorded so far.
        notes: of the trainer at the last :meth:`save`; empty if there are none.
        finished: whether the run was finished when its checkpoint was written.
        compiled: the trees for the compiled engine, if a decomposition is to use it.
    """

    def __init__(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        rows: Sample,
        callbacks: Sequence[Callback] = (),
        held_out: Sample | None = None,
        checkpoint: Checkpoint | None = None,
        compiled: CompiledTrees | None = None,
    ) -> None:
        self.tree = tree
        self.held_out = held_out
        self.compiled = compiled
        # Coefficients of penalties that had to travel at each evaluation would make the device wait.
        self.objective = objective.to(rows.weight.device)
        self.rows = rows
        self.callbacks = callbacks
        self.history = History()
        self.n_passes = 0
        everyone = torch.arange(tree.n_problems, device=rows.weight.device)
        self.best_tree = tree.select(everyone)
        # Any finite point is better than one that is not.
        self.best = torch.nan_to_num(self.criterion(everyone), nan=torch.inf)
        self.active = everyone
        self.notes: Mapping[str, Tensor] = {}
        self.finished = False
        # E where the problems stand, nan where it is unknown, and gradients of those that were looked at.
        self._known = torch.full_like(self.best, torch.nan)
        self._gradient: Tensor | None = None
        self._checkpoint = checkpoint

    @contextmanager
    def session(self, n_passes: int) -> Iterator[None]:
        """Run the callbacks at begin and end; leave the trees at their best points, trainable again."""
        freeze_except(self.tree, ())
        self._most_passes = n_passes
        report(TRAINING, 0, n_passes)
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
        """Write the checkpoint, if there is to be one, between two passes, with notes of the trainer."""
        self.notes = notes
        if self._checkpoint is not None:
            self._checkpoint.write(self.state_dict())

    def finish(self) -> None:
        """Make the present points the results, and save the run as finished."""
        self.best_tree.load_state_dict(self.tree.state_dict())
        self.finished = True
        self.save()

    def _resume(self) -> bool:
        """Restore from the checkpoint, if there is one, and repeat its passes to the callbacks."""
        state = None if self._checkpoint is None else self._checkpoint.read(self.best.device)
        if state is None:
            return False
        self.load_state_dict(state)
        for number in range(self.n_passes + 1):
            for callback in self.callbacks:
                callback.on_macro_iteration(number, self.history.until(number))
        return True

    def state_dict(self) -> dict[str, Any]:
        """The run as it stands between two passes."""
        trees = {"tree": dict(self.tree.state_dict()), "best_tree": dict(self.best_tree.state_dict())}
        return trees | {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring a run with the same initial solutions to the state of :meth:`state_dict`."""
        self.tree.load_state_dict(state["tree"])
        self.best_tree.load_state_dict(state["best_tree"])
        for name in _STATE:
            setattr(self, name, state[name])

    def go_to_best(self) -> None:
        """Make the best points the present ones."""
        self.tree.load_state_dict(self.best_tree.state_dict())

    def present(self, problems: Tensor) -> tuple[SoftTree, Sample]:
        """Trees and rows of some problems, to be read; the batch itself if they are all."""
        if len(problems) == self.tree.n_problems:
            return self.tree, self.rows
        return self.tree.select(problems), self.rows.select(problems)

    @torch.no_grad()
    def criterion(self, problems: Tensor) -> Tensor:
        """Criterion of the best point: E of some problems, or their loss on the rows held out, shape (K,)."""
        tree, rows = self.present(problems)
        if self.held_out is not None:
            return TrainingObjective().data_term(tree, self.held_out.select(problems))
        objective = self.objective.select(problems)
        penalty = objective.penalty(tree) + objective.row_penalty(tree, rows)
        return objective.data_term(tree, rows) + penalty

    def look(self, problems: Tensor) -> None:
        """Work out E and its gradient where some problems stand, for :meth:`keep_best` and the record."""
        tree, rows = self.tree.select(problems), self.rows.select(problems)
        objective = self.objective.select(problems)
        step = JointStep.make(tree, objective, rows)
        value, gradient = step.value_and_gradient(step.read())
        self._known[problems], self._gradient = value, gradient

    def keep_best(self) -> Tensor:
        """Keep improvements of the active problems; true where one improved, (K,)."""
        value = self._known[self.active]
        unknown = value.isnan() if self.held_out is None else torch.ones_like(value, dtype=torch.bool)
        if bool(unknown.any()):
            value[unknown] = self.criterion(self.active[unknown])
        if self._gradient is None:
            self._known.fill_(torch.nan)
        # A difference that only rounding makes is no improvement, or patience would depend on the batch.
        best = self.best[self.active]
        rounding = 32 * torch.finfo(best.dtype).eps * (1 + best.abs())
        better = torch.where(best.isfinite(), value < best - rounding, value < best)
        improved = self.active[better]
        if len(improved):
            self.best[improved] = value[better]
            self.best_tree.assign(improved, self.tree, improved)
        return better

    def accept(self) -> None:
        """Make the present points the best ones, also where their criterion is higher."""
        everyone = torch.arange(self.tree.n_problems, device=self.active.device)
        self.best_tree.load_state_dict(self.tree.state_dict())
        self.best = torch.nan_to_num(self.criterion(everyone), nan=torch.inf)

    def train(
        self,
        nodes: Iterable[int],
        *,
        name: str | None = None,
        minimizer: Minimizer | LBFGSOptions = lbfgs,
    ) -> Tensor:
        """Minimise E over any set of nodes of the active problems, all other nodes frozen, and record it.

        A problem keeps its parameters where the minimiser ends at a value of E, with all penalties, that is
        higher or not finite. Where gates are trained, penalties on rows are relaxed (:class:`RowPenalty`).

        Args:
            nodes: numbers of gates and leaves: the root is 1, the children of node s are 2s and 2s + 1.
            name: of the step in the records, whose node is the first of ``nodes``; by default the numbers, as
                ``"2+3"``.
            minimizer: :func:`lbfgs`, by default or by its options; :func:`torch_minimizer` for any optimiser
                of torch; or a function of a :class:`~sstorch.optim.steps.Step` and starting values (K, d)
                that returns an :class:`OptimizationResult`.

        Returns:
            True where the best point of an active problem improved, boolean (K,).

        Raises:
            ConfigError: ``nodes`` is empty or contains a number that is no node.
        """
        topology, chosen = self.tree.topology, sorted(set(nodes))
        known = [*topology.branches, *topology.leaves]
        if not chosen or not set(chosen) <= set(known):
            gates = f"gates (1 to {topology.leaves[0] - 1}) and leaves" if topology.branches else "leaves"
            raise ConfigError(
                f"`nodes` must be numbers of {gates} ({topology.leaves[0]} to {topology.leaves[-1]}), got "
                f"{chosen}: the children of node s are 2s and 2s + 1"
            )
        problems = self.active
        if len(problems):
            tree, rows = self.tree.select(problems), self.rows.select(problems)
            relaxed = chosen[0] in topology.branches
            step = JointStep.make(tree, self.objective.select(problems), rows, relaxed, chosen)
            if isinstance(minimizer, LBFGSOptions):
                minimizer = partial(lbfgs, options=minimizer)
            share = torch.full_like(self.best[problems], torch.nan)
            label = name or "+".join(map(str, chosen))
            self.minimize(never_worse(minimizer), label, chosen[0], step, problems, rows.n_rows, share)
        return self.keep_best()

    def minimize(
        self,
        minimizer: Minimizer | LBFGSOptions,
        name: str,
        node: int,
        step: Step,
        problems: Tensor,
        count: Tensor,
        share: Tensor,
    ) -> None:
        """Take one step of a sub-batch and write the working set back into the batch.

        ``minimizer`` is a :data:`Minimizer`, or the options of :func:`lbfgs`.
        ``problems`` (K,) are its positions in the batch. The name of the step, its node, the number of its
        rows (K,) and the share that was routed left before it (K,) go into the records.
        """
        start = step.read()
        with torch.no_grad():
            before = step.value()
        if isinstance(minimizer, LBFGSOptions):
            minimizer = partial(lbfgs, options=minimizer)
        result = minimizer(step, start)
        restarted = torch.zeros_like(problems, dtype=torch.bool)
        if isinstance(step, LeafStep | JointStep) and step.nodes:
            restarted = result.status == Status.NON_FINITE
            result = _retry_from_start(step, result, minimizer)
        step.write(result.x)
        for callback in self.callbacks:
            callback.on_step(StepContext(self.n_passes + 1, node, name, step.tree, problems))
        self.tree.assign(problems, step.tree)
        self.record(
            problems,
            node,
            name,
            result.status.cpu().numpy(),
            objective_before=before,
            objective_after=result.value,
            gradient_norm=result.gradient_norm,
            evaluations=result.n_evaluations,
            rows=count,
            left_share=share,
            restarted=restarted,
        )

    def record(self, problems: Tensor, node: int, step: str, status: IntArray | str, **columns: Any) -> None:
        """Add a step of some problems (K,) to the history; columns that are not given are of no step.

        ``status`` holds a :class:`Status` for each problem.
        """
        status = status if isinstance(status, str) else _STATUSES[status]
        given = {key: value.cpu() if isinstance(value, Tensor) else value for key, value in columns.items()}
        place = {"problem": problems.cpu(), "macro_iteration": self.n_passes + 1, "node": node}
        self.history.add_steps(**place, step=step, status=status, **_NO_STEP | given)

    def skip(self, problems: Tensor, node: int, count: Tensor, share: Tensor) -> None:
        """Record problems with nothing to train at ``node``: too few rows, or no event for its leaves."""
        if len(problems):
            self.record(problems, node, "SKIP", "SKIPPED", rows=count, left_share=share)

    def end_pass(self, problems: Tensor, standing: tuple[Tensor, ...] | None = None) -> Tensor:
        """Count a pass, and return :meth:`record_pass`."""
        self.n_passes += 1
        report(TRAINING, self.n_passes, max(self.n_passes, self._most_passes))
        return self.record_pass(problems, standing)

    def record_pass(self, problems: Tensor, standing: tuple[Tensor, ...] | None = None) -> Tensor:
        """Record where some problems stand; max-norms of their gradients of E, shape (K,).

        ``standing``, which is worked out by default, is E, these norms, the share of the weight of rows whose
        path ends in each leaf, (K, L), and with rows held out their mean loss.
        """
        value, norm, masses, *held_out_loss = standing or self._standing(problems)
        topology, gates = self.tree.topology, self.tree.gate_parameters().weight[problems].detach()
        columns = {f"mass_{n}": mass for n, mass in zip(topology.leaves, masses.unbind(-1), strict=True)}
        norms = zip(topology.branches, gates.norm(dim=-1).unbind(-1), strict=True)
        columns |= {f"gate_norm_{n}": own for n, own in norms}
        if held_out_loss:
            (columns["held_out_loss"],) = held_out_loss
        columns |= {"objective": value, "best_objective": self.best[problems], "gradient_norm": norm}
        self.history.add_macro_iteration(
            problem=problems.cpu(),
            macro_iteration=self.n_passes,
            **{name: column.cpu() for name, column in columns.items()},
        )
        for callback in self.callbacks:
            callback.on_macro_iteration(self.n_passes, self.history)
        return norm

    def _standing(self, problems: Tensor) -> tuple[Tensor, ...]:
        if self._gradient is None:
            self.look(problems)
        assert self._gradient is not None
        value, norm = self._known[problems], self._gradient.abs().amax(-1)
        self._gradient = None
        self._known.fill_(torch.nan)
        held_out_loss = () if self.held_out is None else (self.criterion(problems),)
        return value, norm, _leaf_masses(*self.present(problems)), *held_out_loss


def _retry_from_start(
    step: LeafStep | JointStep, result: OptimizationResult, minimizer: Minimizer
) -> OptimizationResult:
    """Repeat the step from the start of the family in every leaf where leaves overflow."""
    failed = (result.status == Status.NON_FINITE).nonzero().squeeze(-1)
    if len(failed) == 0:
        return result
    again = step.select(failed)
    fresh, rows = step.tree.select(failed), again.sample
    intercept, shape = fresh.family.start(rows.log_time, rows.event, rows.weight, rows.log_entry)
    for node in step.nodes:
        fresh.leaf(node).reset(intercept, shape)
    retried = minimizer(again, again.read_from(fresh))
    # A retry that ends no lower must not move the leaf.
    worked = retried.value < torch.nan_to_num(result.value[failed], nan=torch.inf)
    n_evaluations = result.n_evaluations.index_add(0, failed, retried.n_evaluations)
    better = result.replaced(failed[worked], retried.select(worked))
    return replace(better, n_evaluations=n_evaluations, n_iterations=result.n_iterations)


@torch.no_grad()
def _leaf_masses(tree: SoftTree, rows: Sample) -> Tensor:
    """Share of each problem's training weight whose path ends in each leaf, (R, L)."""
    ends = torch.nn.functional.one_hot(tree.apply_leaf(rows.x), len(tree.topology.leaves))
    return (rows.normalised_weight[..., None] * ends).sum(-2)
