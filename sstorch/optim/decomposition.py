"""NODEC-DR-SST: node-based decomposition with data-point reassignment, for a batch of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.monitoring.callbacks import Callback, StepContext
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.branch_update import THRESHOLDS, Thresholds, balancing_weights, classify, reassign
from sstorch.optim.lbfgs import LBFGSOptions, minimize
from sstorch.optim.result import OptimizationResult, Status
from sstorch.optim.steps import BranchStep, JointStep, LeafStep, LogisticStep, Step, freeze_except

Minimizer = Callable[[Step, Tensor, LBFGSOptions], OptimizationResult]


@dataclass(frozen=True)
class Nodec:
    """Settings of NODEC-DR-SST.

    Attributes:
        eps: thresholds of UpdateBranchNode: ``"eps_paper"`` (0.1, 0.3, 0.4), ``"eps_ordered"``
            (0.1, 0.03, 0.4), or :class:`Thresholds`.
        macro_iterations: M_it, the most passes over the nodes.
        zeta: factor on the thresholds after each macro iteration.
        patience: k_0, inner iterations without improvement after which a problem stops; None never stops.
        gradient_tolerance: a problem stops once the max-norm of the gradient of E is below.
        lbfgs: tolerances and limits of the minimisation in each step.
        minimizer: what minimises each step; the batched L-BFGS unless compared with another.

    Raises:
        ConfigError: if a value is out of range.
    """

    eps: str | Thresholds = "eps_paper"
    macro_iterations: int = 10
    zeta: float = 0.8
    patience: int | None = None
    gradient_tolerance: float = 1e-5
    lbfgs: LBFGSOptions = field(default_factory=lambda: LBFGSOptions(max_iterations=100))
    minimizer: Minimizer = minimize

    def __post_init__(self) -> None:
        if not isinstance(self.eps, Thresholds) and self.eps not in THRESHOLDS:
            raise ConfigError(f"eps must be one of {', '.join(THRESHOLDS)}, or Thresholds, got {self.eps!r}")
        if not _is_number(self.macro_iterations, Integral) or self.macro_iterations < 1:
            raise ConfigError(
                f"macro_iterations must be at least 1, an integer, got {self.macro_iterations!r}"
            )
        if not _is_number(self.zeta, Real) or not 0 < self.zeta <= 1:
            raise ConfigError(f"zeta must be in (0, 1], got {self.zeta!r}")
        if self.patience is not None and (not _is_number(self.patience, Integral) or self.patience < 1):
            raise ConfigError(f"patience must be at least 1, an integer, or None, got {self.patience!r}")
        if not _is_number(self.gradient_tolerance, Real) or not self.gradient_tolerance >= 0:
            raise ConfigError(f"gradient_tolerance must be >= 0, got {self.gradient_tolerance!r}")

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of the first macro iteration."""
        return THRESHOLDS[self.eps] if isinstance(self.eps, str) else self.eps

    def train(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback] = (),
    ) -> History:
        """Train every problem of ``tree`` in place and leave it at its best point.

        Args:
            tree: R problems with initial solutions; float64 advised.
            objective: E.
            sample: training rows of each problem.
            callbacks: told of every inner step and macro iteration.

        Returns:
            The records of the run.
        """
        return _Scheduler(self, tree, objective, sample, callbacks).run()


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


class _Scheduler:
    """State of one run: the trees, the best point of each problem so far, and who still trains."""

    def __init__(
        self,
        settings: Nodec,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback],
    ) -> None:
        self.settings = settings
        self.tree = tree
        # Coefficients of penalties that had to travel at each evaluation would make the device wait.
        self.objective = objective.to(sample.weight.device)
        self.sample = sample
        self.callbacks = callbacks
        self.history = History()
        self.thresholds = settings.thresholds
        self.n_rows = sample.n_rows
        self.macro_iteration = 0
        everyone = torch.arange(tree.n_problems, device=sample.weight.device)
        self.best_tree = tree.select(everyone)
        # Any finite point is better than one that is not.
        self.best = torch.nan_to_num(self._full_objective(everyone), nan=torch.inf)
        self.unimproved = torch.zeros_like(everyone)
        self.active = everyone

    def run(self) -> History:
        freeze_except(self.tree, ())
        for callback in self.callbacks:
            callback.on_train_begin(self.tree, self.settings.macro_iterations)
        try:
            self._train()
        finally:
            # Also after an interruption the trees are the best so far, and as trainable as they came.
            self.tree.load_state_dict(self.best_tree.state_dict())
            self.tree.requires_grad_(True)
            for callback in self.callbacks:
                callback.on_train_end(self.history)
        return self.history

    def _train(self) -> None:
        settings = self.settings
        self._end_macro_iteration(self.active)
        # A single leaf has no branch node to visit: its one step is the leaf's.
        nodes = self.tree.topology.branches or self.tree.topology.leaves
        for self.macro_iteration in range(1, settings.macro_iterations + 1):
            trained = self.active
            for node in nodes:
                self._visit(node)
                if len(self.active) == 0:
                    break
            gradient_norm = self._end_macro_iteration(trained)
            # A gradient that is not finite is none that is small.
            stationary = torch.zeros_like(self.best, dtype=torch.bool)
            stationary[trained] = gradient_norm <= settings.gradient_tolerance
            self.active = self.active[~stationary[self.active]]
            self.thresholds = self.thresholds.scaled(settings.zeta)
            if len(self.active) == 0:
                break

    # ------------------------------------------------------------------ one inner iteration

    def _visit(self, node: int) -> None:
        """BN or WLR step at ``node``, then LN step below it, on the rows that visit it."""
        topology = self.tree.topology
        tree, everything = self._sub_batch(self.active)
        inside = tree.visits(everything.x, node)
        rows = everything.restrict(inside)
        count = rows.n_rows
        if node in topology.branches:
            update = classify(tree, rows, node, self.thresholds, self.n_rows[self.active])
            trains = count >= 2
            share = update.left_share
            self._skip(~trains, node, count, share)
            chosen = _positions(trains & update.balanced)
            if len(chosen):
                sub, own = tree.select(chosen), rows.select(chosen)
                step: Step = BranchStep.make(sub, self.objective.select(self.active[chosen]), own, node)
                self._minimize("BN", node, step, self.active[chosen], count[chosen], share[chosen])
            chosen = _positions(trains & ~update.balanced)
            if len(chosen):
                sub, own = tree.select(chosen), rows.select(chosen)
                mine = update.select(chosen)
                left = reassign(sub, own, node, mine, self.thresholds.reassigned)
                step = LogisticStep.make(sub, own, node, left, balancing_weights(own, mine))
                # The regression is convex and its start does not matter to its end; the present gate may
                # be so hard that its gradient vanishes.
                step.write(torch.zeros_like(step.read()))
                self._minimize("WLR", node, step, self.active[chosen], count[chosen], share[chosen])
        else:
            share = torch.full_like(self.best[self.active], torch.nan)
        if node > 1 or topology.depth <= 1:
            n_events = (rows.event * rows.weight).sum(-1)
            trains = (count >= 2) & (n_events > 0)
            self._skip((count >= 2) & ~trains, node, count, share)
            chosen = _positions(trains)
            if len(chosen):
                # Gates above s have not moved, so I_s is the same; gates from s down have.
                sub, own = self.tree.select(self.active[chosen]), rows.select(chosen)
                leaf_step = LeafStep.make(sub, self.objective.select(self.active[chosen]), own, node)
                self._minimize("LN", node, leaf_step, self.active[chosen], count[chosen], share[chosen])
        self._keep_best()

    def _minimize(
        self, name: str, node: int, step: Step, problems: Tensor, count: Tensor, share: Tensor
    ) -> None:
        """Take one step of a sub-batch and write the working set back into the batch."""
        start = step.read()
        with torch.no_grad():
            before = step.value()
        result = self.settings.minimizer(step, start, self.settings.lbfgs)
        restarted = torch.zeros_like(problems, dtype=torch.bool)
        if isinstance(step, LeafStep):
            restarted = result.status == Status.NON_FINITE
            result = _retry_from_start(step, result, self.settings)
        step.write(result.x)
        for callback in self.callbacks:
            callback.on_step(StepContext(self.macro_iteration, node, name, step.tree, problems))
        self.tree.assign(problems, step.tree)
        self.history.add_steps(
            problem=problems.cpu(),
            macro_iteration=self.macro_iteration,
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

    def _skip(self, who: Tensor, node: int, count: Tensor, share: Tensor) -> None:
        """Record the problems with nothing to train at ``node``: too few rows, or no event for its leaves."""
        if not bool(who.any()):
            return
        self.history.add_steps(
            problem=self.active[who].cpu(),
            macro_iteration=self.macro_iteration,
            node=node,
            step="SKIP",
            objective_before=torch.nan,
            objective_after=torch.nan,
            gradient_norm=torch.nan,
            evaluations=0,
            rows=count[who].cpu(),
            left_share=share[who].cpu(),
            status="SKIPPED",
            restarted=False,
        )

    # ------------------------------------------------------------------ bookkeeping

    def _sub_batch(self, problems: Tensor) -> tuple[SoftTree, Sample]:
        if len(problems) == self.tree.n_problems:
            return self.tree, self.sample
        return self.tree.select(problems), self.sample.select(problems)

    @torch.no_grad()
    def _full_objective(self, problems: Tensor) -> Tensor:
        tree, sample = self._sub_batch(problems)
        return self.objective.select(problems)(tree, sample)  # type: ignore[no-any-return]

    def _keep_best(self) -> None:
        """Note improvements of E, and retire problems whose patience is spent."""
        value = self._full_objective(self.active)
        # A difference that only rounding makes is no improvement, or patience would depend on the batch.
        best = self.best[self.active]
        rounding = 32 * torch.finfo(best.dtype).eps * (1 + best.abs())
        better = torch.where(best.isfinite(), value < best - rounding, value < best)
        improved = self.active[better]
        if len(improved):
            self.best[improved] = value[better]
            self.best_tree.assign(improved, self.tree.select(improved))
        self.unimproved[self.active] = torch.where(better, 0, self.unimproved[self.active] + 1)
        if self.settings.patience is not None:
            self.active = self.active[self.unimproved[self.active] < self.settings.patience]

    def _end_macro_iteration(self, problems: Tensor) -> Tensor:
        """Record the problems that trained in it; returns the max-norms of their gradients of E, (K,)."""
        tree, sample = self.tree.select(problems), self.sample.select(problems)
        step = JointStep.make(tree, self.objective.select(problems), sample)
        value, gradient = step.value_and_gradient(step.read())
        norm = gradient.abs().amax(-1)
        self.history.add_macro_iteration(
            problem=problems.cpu(),
            macro_iteration=self.macro_iteration,
            objective=value.cpu(),
            best_objective=self.best[problems].cpu(),
            gradient_norm=norm.cpu(),
            **{f"mass_{leaf}": mass.cpu() for leaf, mass in _leaf_masses(tree, sample).items()},
        )
        for callback in self.callbacks:
            callback.on_macro_iteration(self.macro_iteration, self.history)
        return norm


def _retry_from_start(step: LeafStep, result: OptimizationResult, settings: Nodec) -> OptimizationResult:
    """Begin once more, from the family's own start, where the present leaves overflow."""
    failed = _positions(result.status == Status.NON_FINITE)
    if len(failed) == 0:
        return result
    again = step.select(failed)
    rows = again.sample
    intercept, shape = step.tree.family.select(failed).start(rows.log_time, rows.event, rows.weight)
    fresh = step.tree.select(failed)
    for node in step.nodes:
        fresh.leaf(node).reset(intercept, shape)
    parameters = [parameter for node in step.nodes for parameter in fresh.leaf(node).trained()]
    start = torch.cat([parameter.detach().reshape(len(failed), -1) for parameter in parameters], dim=1)
    retried = settings.minimizer(again, start, settings.lbfgs)
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
def _leaf_masses(tree: SoftTree, sample: Sample) -> dict[int, Tensor]:
    """Share of each problem's training weight whose path ends in each leaf."""
    leaf = tree.apply_leaf(sample.x)
    weight = sample.normalised_weight
    return {n: (weight * (leaf == k)).sum(-1) for k, n in enumerate(tree.topology.leaves)}


def _positions(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(-1)
