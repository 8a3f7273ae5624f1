"""A training run: it takes the steps of a trainer, records them and keeps the best trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sstorch._types import IntArray
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.batched_lbfgs import LBFGSOptions, Status
from sstorch.optim.checkpoint import Checkpoint
from sstorch.optim.steps import Batch, Minimizer, Step, lbfgs, never_worse
from sstorch.optim.working_sets import JointObjective, joint_step
from sstorch.threads import report

# Of a state, in addition to the trees.
_STATE = ("best", "active", "unimproved", "n_passes", "finished", "history")
_STATUSES = np.array([status.name for status in Status])


class TrainingRun:
    """State of one run.

    Attributes:
        tree: R problems at their present points.
        best_tree: the same problems at the best points so far.
        best: their E, shape (R,).
        active: ascending positions of the problems that still train.
        unimproved: calls of :meth:`keep_best` since a problem improved, shape (R,).
        n_passes: passes recorded so far.
        finished: whether the run was finished when its checkpoint was written.
        compiled: ``CompiledTrees``, if a decomposition is to use the compiled engine.
    """

    def __init__(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        rows: Sample,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | None = None,
        compiled: Any = None,
    ) -> None:
        self.tree, self.compiled = tree, compiled
        # Coefficients of penalties that had to travel at each evaluation would make the device wait.
        self.objective = objective.to(rows.weight.device)
        self.rows, self.n_rows = rows, rows.n_rows
        self.callbacks, self._checkpoint = callbacks, checkpoint
        self.history, self.n_passes, self.finished = History(), 0, False
        self.everyone = self.active = torch.arange(tree.n_problems, device=rows.weight.device)
        self.best_tree = tree.select(self.everyone)
        self.unimproved = torch.zeros_like(self.everyone)
        self.accept()
        # E where the problems stand and the norm of its gradient, nan where they are unknown.
        self._value, self._norm = torch.full_like(self.best, torch.nan), torch.full_like(self.best, torch.nan)
        self._most_passes = 1

    def train(self, steps: Callable[[TrainingRun], Iterable[Step]], n_passes: int) -> None:
        """Take the steps of a trainer; leave the trees at their best points, trainable again."""
        self.tree.requires_grad_(False)
        self._most_passes = n_passes
        for callback in self.callbacks:
            callback.on_train_begin(self.tree, n_passes)
        try:
            state = None if self._checkpoint is None else self._checkpoint.read(self.best.device)
            if state is None:
                self.n_passes = -1  # the initial solution is pass 0
                self.end_pass()
                self.save()
            else:
                self._resume(state)
            for step in () if self.finished else steps(self):
                self.take(step)
        finally:
            # Also after an interruption the trees are the best so far, and as trainable as they came.
            self.go_to_best()
            self.tree.requires_grad_(True)
            for callback in self.callbacks:
                callback.on_train_end(self.history)
        if not self.finished:
            self.objective.project(self.tree)
            self.best_tree.load_state_dict(self.tree.state_dict())
            self.finished = True
            self.save()

    def take(self, step: Step) -> None:
        """Take a step: minimise, write the trees back into the batch and record it; after E keep the best."""
        problems, tree = step.batch.problems, step.batch.tree
        if problems is None or len(problems) == 0:
            return
        result, restarted = step.minimize()
        for callback in self.callbacks:
            callback.on_step(StepContext(self.n_passes + 1, step.node, step.name, tree, problems))
        self.tree.assign(problems, tree)
        self._value[problems] = self._norm[problems] = torch.nan
        self.record(
            problems,
            step.node,
            step.name,
            result.status.cpu().numpy(),
            objective_before=result.start_value,
            objective_after=result.value,
            gradient_norm=result.gradient_norm,
            evaluations=result.n_evaluations,
            rows=step.batch.rows.n_rows,
            restarted=restarted,
        )
        if isinstance(step.objective, JointObjective):
            self.look(problems)
            self.keep_best()

    def step(
        self,
        nodes: Iterable[int] | None = None,
        *,
        name: str | None = None,
        minimizer: Minimizer | LBFGSOptions = lbfgs,
    ) -> Step:
        """The step that minimises E over any set of nodes of the active problems, all other nodes frozen.

        A problem keeps its parameters where the minimiser ends at a value of E, with all penalties, that is
        higher or not finite. Where gates are trained, penalties on rows are relaxed (:class:`RowPenalty`).

        Args:
            nodes: numbers of gates and leaves: the root is 1, the children of node s are 2s and 2s + 1; None
                for all.
            name: of the step in the records, whose node is the first of ``nodes``; by default the numbers, as
                ``"2+3"``.
            minimizer: options of the batched L-BFGS, the default; :func:`torch_minimizer` for optimisers of
                torch; or a function of a :class:`~sstorch.optim.steps.StepObjective` and starting values
                (K, d) that returns an :class:`OptimizationResult`.

        Raises:
            ConfigError: ``nodes`` is empty or contains a number that is no node.
        """
        topology = self.tree.topology
        known = [*topology.branches, *topology.leaves]
        chosen = known if nodes is None else sorted(set(nodes))
        if not chosen or not set(chosen) <= set(known):
            gates = f"gates (1 to {topology.leaves[0] - 1}) and leaves" if topology.branches else "leaves"
            raise ConfigError(
                f"`nodes` must be numbers of {gates} ({topology.leaves[0]} to {topology.leaves[-1]}), got "
                f"{chosen}: the children of node s are 2s and 2s + 1"
            )
        made = joint_step(self.copy(), chosen, relaxed=chosen[0] in topology.branches)
        if minimizer is not lbfgs and not isinstance(minimizer, LBFGSOptions):
            minimizer = never_worse(minimizer)
        return replace(made, name=name or "+".join(map(str, chosen)), minimizer=minimizer)

    def batch(self, problems: Tensor) -> Batch:
        """Some problems (K,) at their present points, with all their rows, to be read or selected from."""
        tree, rows = self.present(problems)
        everything = rows if len(self.objective.row_penalties) else None
        return Batch(tree, self.objective.select(problems), rows, everything, problems)

    def copy(self) -> Batch:
        """The active problems for a step: callbacks compare its trees, a copy, with these."""
        return replace(self.batch(self.active), tree=self.tree.select(self.active))

    def present(self, problems: Tensor) -> tuple[SoftTree, Sample]:
        """Trees and rows of some problems, to be read; the batch itself if they are all."""
        if len(problems) == self.tree.n_problems:
            return self.tree, self.rows
        return self.tree.select(problems), self.rows.select(problems)

    @torch.no_grad()
    def criterion(self, problems: Tensor) -> Tensor:
        """E of some problems where they stand, shape (K,)."""
        value: Tensor = self.objective.select(problems)(*self.present(problems))
        return value

    def look(self, problems: Tensor) -> None:
        """Evaluate E and its gradient where some problems stand, for :meth:`keep_best` and the record."""
        step = joint_step(self.batch(problems))
        self._value[problems], gradient = step.value_and_gradient(step.read())
        self._norm[problems] = gradient.abs().amax(-1)

    def keep_best(self, patience: int | None = None) -> None:
        """Keep improvements of the active problems, and retire those without one for so many calls."""
        value = self._value[self.active]
        unknown = value.isnan()
        if bool(unknown.any()):
            value[unknown] = self.criterion(self.active[unknown])
        # A difference that only rounding makes is no improvement, or patience would depend on the batch.
        best = self.best[self.active]
        rounding = 32 * torch.finfo(best.dtype).eps * (1 + best.abs())
        improved = torch.where(best.isfinite(), value < best - rounding, value < best)
        self.unimproved[self.active] = torch.where(improved, 0, self.unimproved[self.active] + 1)
        better = self.active[improved]
        if len(better):
            self.best[better] = value[improved]
            self.best_tree.assign(better, self.tree, better)
        self.retire(patience)

    def retire(self, patience: int | None) -> None:
        """Train the problems no longer whose last improvement is so many calls of :meth:`keep_best` ago."""
        if patience is not None:
            self.active = self.active[self.unimproved[self.active] < patience]

    def go_to_best(self) -> None:
        """Make the best points the present ones."""
        self.tree.load_state_dict(self.best_tree.state_dict())
        self._value.fill_(torch.nan)
        self._norm.fill_(torch.nan)

    def accept(self) -> None:
        """Make the present points the best ones, also where their criterion is higher."""
        self.best_tree.load_state_dict(self.tree.state_dict())
        # Any finite point is better than one that is not.
        self.best = torch.nan_to_num(self.criterion(self.everyone), nan=torch.inf)

    def record(self, problems: Tensor, node: int, step: str, status: IntArray, **columns: Any) -> None:
        """Add a step of some problems (K,), each with a :class:`Status`, to the history."""
        given = {key: value.cpu() if isinstance(value, Tensor) else value for key, value in columns.items()}
        place = {"problem": problems.cpu(), "macro_iteration": self.n_passes + 1, "node": node}
        self.history.add_steps(**place, step=step, status=_STATUSES[status], **given)

    def end_pass(self, problems: Tensor | None = None, standing: tuple[Tensor, ...] | None = None) -> Tensor:
        """Count a pass of some problems (K,), by default the active ones; max-norms of gradients of E (K,).

        Recorded is their ``standing``: E, these norms, and the shares of the weight of the rows whose path
        ends in each leaf, (K, L).
        """
        self.n_passes += 1
        report("training", self.n_passes, max(self.n_passes, self._most_passes))
        problems = self.active if problems is None else problems
        if standing is None:
            if bool(self._norm[problems].isnan().any()):
                self.look(problems)
            tree, rows = self.present(problems)
            with torch.no_grad():
                ends = torch.nn.functional.one_hot(tree.apply_leaf(rows.x), len(tree.topology.leaves))
                masses = (rows.normalised_weight[..., None] * ends).sum(-2)
            standing = self._value[problems], self._norm[problems], masses
        self._value[problems], self._norm[problems], masses = standing
        topology, gates = self.tree.topology, self.tree.gate_parameters().weight[problems].detach()
        columns = {f"mass_{n}": mass for n, mass in zip(topology.leaves, masses.unbind(-1), strict=True)}
        norms = zip(topology.branches, gates.norm(dim=-1).unbind(-1), strict=True)
        columns |= {f"gate_norm_{n}": own for n, own in norms}
        columns |= {"objective": self._value[problems], "best_objective": self.best[problems]}
        columns |= {"problem": problems, "gradient_norm": self._norm[problems]}
        every = {name: column.cpu() for name, column in columns.items()}
        self.history.add_macro_iteration(macro_iteration=self.n_passes, **every)
        for callback in self.callbacks:
            callback.on_macro_iteration(self.n_passes, self.history)
        return columns["gradient_norm"]

    def save(self) -> None:
        """Write the checkpoint, if there is to be one, between two passes."""
        if self._checkpoint is not None:
            trees = {"tree": dict(self.tree.state_dict()), "best_tree": dict(self.best_tree.state_dict())}
            self._checkpoint.write(trees | {name: getattr(self, name) for name in _STATE})

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint, and repeat its passes to the callbacks."""
        self.tree.load_state_dict(state["tree"])
        self.best_tree.load_state_dict(state["best_tree"])
        for name in _STATE:
            setattr(self, name, state[name])
        for number in range(self.n_passes + 1):
            for callback in self.callbacks:
                callback.on_macro_iteration(number, self.history.until(number))
