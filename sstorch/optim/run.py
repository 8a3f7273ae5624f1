"""A training run: its problems, their race, records and checkpoints, and the trainers' common part."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._version import __version__
from sstorch.checks import check_integer
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import GateGroupLasso, Sample, Shards, TrainingObjective
from sstorch.optim.checkpoint import Arrays, Checkpoint
from sstorch.optim.engine import ENGINES, Engine, compiled_problems
from sstorch.optim.lbfgs import LBFGSOptions, OptimizationResult, Status
from sstorch.optim.steps import JointStep, LeafStep, ShardedStep, freeze_except, minimize_step
from sstorch.threads import torch_threads

if TYPE_CHECKING:
    from sstorch.optim.compiled.problems import CompiledProblems


@dataclass(frozen=True)
class Race:
    """After some passes only the best starts of each split go on.

    Attributes:
        after: numbers of the passes after which starts are dropped, increasing.
        keep: share of the starts that goes on each time, in (0, 1); at least one does.

    Raises:
        ConfigError: if a value is out of range.

    References:
        Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and hyperparameter
        optimization".
    """

    after: tuple[int, ...] = (3,)
    keep: float = 0.5

    def __post_init__(self) -> None:
        if not all(a < b for a, b in zip((0, *self.after), self.after, strict=False)):
            raise ConfigError(f"race.after must be increasing numbers of passes from 1, got {self.after!r}")
        if not 0 < self.keep < 1:
            raise ConfigError(f"race.keep must be in (0, 1), got {self.keep!r}")

    def survivors(self, value: Tensor, counts: tuple[int, ...], n_passes: int) -> Tensor:
        """The starts that are still in the race.

        Args:
            value: best objective of each problem so far, shape (R,), problems ordered by split.
            counts: problems of each split; their sum is R.
            n_passes: passes done.

        Returns:
            boolean (R,): those with the lowest values of their split; ties go to the first.
        """
        rounds = sum(n_passes >= after for after in self.after)
        kept = torch.zeros_like(value, dtype=torch.bool)
        for part, values in zip(kept.split(counts), value.split(counts), strict=True):
            # ceil, but 0.1 ** 1 * 10 must be one start though it is a little more in floating point.
            quota = max(1, -int(-(len(values) * self.keep**rounds - 1e-9) // 1))
            part[values.argsort(stable=True)[:quota]] = True
        return kept


@dataclass(frozen=True)
class Heats(Race):
    """A race in which the problems of a split do not all have the same objective.

    Attributes:
        heats: number of objectives; the problems of a split race in so many groups of equal size, consecutive
            ones in each.
    """

    heats: int = 1

    def survivors(self, value: Tensor, counts: tuple[int, ...], n_passes: int) -> Tensor:
        """See :meth:`Race.survivors`; ``counts`` are multiples of the number of heats."""
        return super().survivors(
            value, tuple(n // self.heats for n in counts for _ in range(self.heats)), n_passes
        )


_STATUSES = np.array([status.name for status in Status])


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
        compiled: the problems of ``tree`` for the compiled engine; None if torch trains them.
    """

    def __init__(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        rows: Shards,
        callbacks: Sequence[Callback] = (),
        held_out: Shards | None = None,
        checkpoint: Checkpoint | None = None,
        compiled: CompiledProblems | None = None,
    ) -> None:
        self.tree = tree
        self.held_out = held_out
        self.compiled = compiled
        self._judge: CompiledProblems | None = None
        if compiled is not None and held_out is not None:
            self._judge = compiled.with_rows(held_out.parts[0])
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
        """Run the callbacks at begin and end; leave the trees at their best points, trainable again."""
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
            notes: state of the trainer, without which it could not go on from here.
        """
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
        arrays = None if self._checkpoint is None else self._checkpoint.read()
        if arrays is None:
            return False
        self.load_state_dict(arrays)
        for number in range(self.n_passes + 1):
            for callback in self.callbacks:
                callback.on_macro_iteration(number, self.history.until(number))
        return True

    def state_dict(self) -> Arrays:
        """The run as it stands between two passes, as flat arrays for a checkpoint."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "tree": self.tree.state_dict(),
            "best_tree": self.best_tree.state_dict(),
            "notes": self.notes,
            "run": {
                "best": self.best,
                "active": self.active,
                "n_passes": torch.tensor(self.n_passes),
                "finished": torch.tensor(self.finished),
            },
        }
        arrays = {
            f"{part}/{name}": value.detach().cpu().numpy()
            for part, values in parts.items()
            for name, value in values.items()
        }
        return arrays | {f"history/{name}": values for name, values in self.history.to_arrays().items()}

    def load_state_dict(self, state: Arrays) -> None:
        """Bring a run with the same initial solutions to the state of :meth:`state_dict`."""
        parts: dict[str, dict[str, npt.NDArray[Any]]] = defaultdict(dict)
        for key, array in state.items():
            part, name = key.split("/", 1)
            parts[part][name] = array
        tensors = {
            part: {name: torch.from_numpy(array).to(self.best.device) for name, array in parts[part].items()}
            for part in ("tree", "best_tree", "notes", "run")
        }
        self.tree.load_state_dict(tensors["tree"])
        self.best_tree.load_state_dict(tensors["best_tree"])
        self.notes = tensors["notes"]
        self.best, self.active = tensors["run"]["best"], tensors["run"]["active"]
        self.n_passes, self.finished = int(tensors["run"]["n_passes"]), bool(tensors["run"]["finished"])
        self.history = History.from_arrays(parts["history"])

    def go_to_best(self) -> None:
        """Make the best points the present ones."""
        self.tree.load_state_dict(self.best_tree.state_dict())

    def sub_batch(self, problems: Tensor) -> tuple[SoftTree, Shards]:
        """Copies of some trees, to be changed in a step, and their rows."""
        return self.tree.select(problems), self.rows.select(problems)

    def present(self, problems: Tensor) -> tuple[SoftTree, Shards]:
        """Trees and rows of some problems, to be read; the batch itself if they are all."""
        return (self.tree, self.rows) if len(problems) == self.tree.n_problems else self.sub_batch(problems)

    @torch.no_grad()
    def criterion(self, problems: Tensor) -> Tensor:
        """Criterion of the best point: E of some problems, or their loss on the rows held out, shape (K,)."""
        if self.compiled is not None:
            return (self._judge or self.compiled).objective(problems)
        tree, rows = self.present(problems)
        if self.held_out is not None:
            return self.held_out.select(problems).sum(lambda part: TrainingObjective().data_term(tree, part))
        objective = self.objective.select(problems)
        # Penalties on rows come with a single shard.
        penalty = objective.penalty(tree) + objective.row_penalty(tree, rows.parts[0])
        return rows.sum(lambda part: objective.data_term(tree, part)) + penalty

    def keep_best(self) -> Tensor:
        """Keep improvements of the active problems; true where one improved, (K,)."""
        value = self.criterion(self.active)
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

        ``problems`` (K,) are its positions in the batch. The name of the step, its node, the number of its
        rows (K,) and the share that was routed left before it (K,) go into the records.
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

    def record_compiled(self, problems: Tensor, node: int, records: npt.NDArray[np.float64]) -> Tensor:
        """Record steps of the compiled engine at ``node``, and tell the callbacks.

        Args:
            problems: positions of the problems, (K,).
            node: number of the node.
            records: of one step each, (K, n), as :mod:`sstorch.optim.compiled.visits` numbers them.

        Returns:
            positions of the problems whose leaves overflow, which the engine has left as they were: their
            step is not recorded, but torch's to take.
        """
        from sstorch.optim.compiled import visits

        assert self.compiled is not None
        names = {visits.BN: "BN", visits.WLR: "WLR", visits.LN: "LN", visits.JOINT_STEP: "JOINT"}
        status = records[:, visits.STATUS]
        overflow = (status == Status.NON_FINITE) & np.isin(
            records[:, visits.STEP], (visits.LN, visits.JOINT_STEP)
        )
        for code, name in names.items():
            at = np.flatnonzero((records[:, visits.STEP] == code) & ~overflow)
            if len(at) == 0:
                continue
            if self.watches_steps:
                chosen = problems[torch.from_numpy(at)]
                trees = self.tree.select(chosen)
                freeze_except(trees, _working_set(trees, node, name))
                context = StepContext(self.n_passes + 1, node, name, trees, chosen)
                for callback in self.callbacks:
                    callback.on_step(context)
            own = records[at]
            self.history.add_steps(
                problem=problems.numpy()[at],
                macro_iteration=self.n_passes + 1,
                node=node,
                step=name,
                objective_before=own[:, visits.BEFORE],
                objective_after=own[:, visits.AFTER],
                gradient_norm=own[:, visits.NORM],
                evaluations=own[:, visits.EVALUATIONS].astype(np.int64),
                rows=own[:, visits.ROWS].astype(np.int64),
                left_share=own[:, visits.SHARE],
                status=_STATUSES[status[at].astype(np.int64)],
                restarted=False,
            )
        idle = np.flatnonzero(records[:, visits.STEP] == visits.SKIP)
        rows, share = (torch.from_numpy(records[idle, column]) for column in (visits.ROWS, visits.SHARE))
        self.skip(problems[torch.from_numpy(idle)], node, rows.long(), share)
        return problems[torch.from_numpy(np.flatnonzero(overflow))]

    @property
    def watches_steps(self) -> bool:
        """Whether a callback looks at trees between steps."""
        return any(type(callback).on_step is not Callback.on_step for callback in self.callbacks)

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
        """Count a pass, drop the starts that lose the race, and record the problems that trained.

        Returns:
            as :meth:`record_pass`.
        """
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
        if self.compiled is not None:
            value, gradient = self.compiled.value_and_gradient(problems)
            masses = self.compiled.leaf_masses(problems)
        else:
            tree, rows = self.tree.select(problems), self.rows.select(problems)
            objective = self.objective.select(problems)
            step = ShardedStep.make(rows, lambda part: JointStep.make(tree, objective, part))
            value, gradient = step.value_and_gradient(step.read())
            masses = _leaf_masses(tree, rows)
        norm = gradient.abs().amax(-1)
        self.history.add_macro_iteration(
            problem=problems.cpu(),
            macro_iteration=self.n_passes,
            objective=value.cpu(),
            best_objective=self.best[problems].cpu(),
            gradient_norm=norm.cpu(),
            dropped=dropped.cpu() if isinstance(dropped, Tensor) else dropped,
            **{
                f"mass_{leaf}": mass.cpu()
                for leaf, mass in zip(self.tree.topology.leaves, masses.unbind(-1), strict=True)
            },
        )
        for callback in self.callbacks:
            callback.on_macro_iteration(self.n_passes, self.history)
        return norm


def _working_set(tree: SoftTree, node: int, step: str) -> list[torch.nn.Parameter]:
    """The parameters that a step at a node trains."""
    if step == "JOINT":
        return list(tree.parameters())
    if step == "LN":
        return [part for leaf in tree.topology.leaves_under(node) for part in tree.leaf(leaf).trained()]
    nodes = [node] if step == "WLR" or node == 1 else tree.topology.branches_under(node)
    return [part for gate in nodes for part in tree.gate(gate).parameters()]


def _retry_from_start(
    step: ShardedStep, result: OptimizationResult, options: LBFGSOptions
) -> OptimizationResult:
    """Repeat the step from the start of the family in every leaf where leaves overflow."""
    failed = (result.status == Status.NON_FINITE).nonzero().squeeze(-1)
    if len(failed) == 0:
        return result
    again = step.select(failed)
    fresh, parts = step.first.tree.select(failed), [step.sample for step in again.steps]
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
def _leaf_masses(tree: SoftTree, rows: Shards) -> Tensor:
    """Share of each problem's training weight whose path ends in each leaf, (R, L)."""

    def masses(part: Sample) -> Tensor:
        ends = torch.nn.functional.one_hot(tree.apply_leaf(part.x), len(tree.topology.leaves))
        return (part.normalised_weight[..., None] * ends).sum(-2)

    return rows.sum(masses)


def environment(device: torch.device, compiled: bool = False) -> dict[str, str]:
    """Versions, device and engine, on which the last bits of a result depend beside settings and data."""
    where = {"sstorch": __version__, "torch": torch.__version__, "device": device.type}
    return where | {"engine": "compiled" if compiled else "torch"}


@dataclass(frozen=True)
class Trainer(ABC):
    """Settings of a way to train a batch.

    Attributes:
        holdout: share of the training rows, stratified by event, that an estimator does not train on: each
            tree is kept at the point of its training, and the start is chosen, with the lowest loss there. 0
            trains on all.
        n_shards: the rows are worked through in so many shards, which bounds memory; processes of an
            initialised ``torch.distributed`` share them (:class:`~sstorch.objective.Shards`), and with the
            same number train the same tree.
        engine: what takes the steps, ``"torch"``, ``"compiled"`` (the CPU, double precision, most leaves; 5
            to 13 times as fast with many starts, after about 40 seconds of compiling at its first use on a
            machine), or ``"auto"``: compiled where it can be and there are many rows and problems
            (`compiled_from`).
        compiled_from: rows, added up over the problems, from which ``engine="auto"`` is the compiled one:
            torch would then take about as long as the compiler; None if it cannot take these steps.
    """

    holdout: float = field(default=0.0, kw_only=True)
    n_shards: int = field(default=1, kw_only=True)
    engine: Engine = field(default="auto", kw_only=True)

    compiled_from: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ConfigError(f"holdout must be a share in [0, 1), got {self.holdout!r}")
        check_integer("n_shards", self.n_shards, 1)
        if self.engine not in ENGINES:
            raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")

    @property
    @abstractmethod
    def n_passes(self) -> int:
        """The most passes that are recorded: macro iterations, or one for a single minimisation."""

    @abstractmethod
    def advance(self, run: TrainingRun) -> None:
        """Train the problems of ``run`` that are active."""

    def train(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback] = (),
        held_out: Sample | None = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> History:
        """Train every problem of ``tree`` in place; leave it at its best point, driven-out features at zero.

        Args:
            tree: R problems with initial solutions; float64 advised.
            objective: E.
            sample: training rows of each problem.
            callbacks: called after every inner step and pass.
            held_out: rows that are not trained on. If given, the best point is that with the lowest mean loss
                there instead of the lowest E, and patience counts improvements of it.
            checkpoint: file that is written after every pass. If it is there already, ``tree`` being the same
                initial solutions, training goes on from the last pass it holds, or is over at once.

        Returns:
            The records of the run, those from before an interruption included.

        Raises:
            ConfigError: the checkpoint belongs to a run with other settings, data or initial solutions, is
                held by another process, or cannot be written; or shards or the engine do not go with another
                setting.
            FormatError: it is truncated, altered or of an unknown format version.
        """
        rows = Shards.cut(sample, self.n_shards)
        reason = (
            f"{type(self).__name__} trains by torch alone: use another trainer"
            if self.compiled_from is None
            else None
        )

        def say() -> None:
            for callback in callbacks:
                callback.on_compile()

        many = self.compiled_from or math.inf
        compiled = compiled_problems(self.engine, reason, tree, objective, rows, many, say)
        with ExitStack() as stack:
            if compiled is not None:
                # Beside the threads of the compiled engine those of torch would fight for the cores; and
                # what is left to torch, leaves that overflow, is the same on any number of threads.
                stack.enter_context(torch_threads(1))
            if checkpoint is not None:
                checkpoint = stack.enter_context(Checkpoint.of(checkpoint).held())
                checkpoint.identify(
                    trainer=replace(self, engine="auto"),  # `environment` has it
                    objective=objective,
                    sample=sample,
                    held_out=held_out,
                    start=tree,
                    environment=environment(sample.weight.device, compiled is not None),
                )
            held_out_rows = None if held_out is None else Shards.cut(held_out, self.n_shards)
            if checkpoint is not None and rows.group is not None:
                raise ConfigError("a run of several processes cannot be resumed: leave the checkpoint out")
            if not rows.is_whole and any(isinstance(p, GateGroupLasso) for p in objective.gate_penalties):
                raise ConfigError("gate_sparsity needs all rows at once: use a single shard")
            if not rows.is_whole and len(objective.row_penalties):
                raise ConfigError("penalties on rows need all of them at once: use a single shard")
            run = TrainingRun(tree, objective, rows, callbacks, held_out_rows, checkpoint, compiled)
            with run.session(self.n_passes):
                if not run.finished:
                    self.advance(run)
            if not run.finished:
                run.objective.project(tree)
                run.objective.sparsify(tree, sample)
                run.finish()
        return run.history
