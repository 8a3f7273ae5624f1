"""All parameters at once: joint L-BFGS, the polish after a decomposition, and Adam on mini-batches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.checks import check_integer
from sstorch.exceptions import ConfigError
from sstorch.optim.lbfgs import LBFGSOptions
from sstorch.optim.nodec import Nodec
from sstorch.optim.run import Race, Trainer, TrainingRun
from sstorch.optim.steps import JointStep, ShardedStep, freeze_except

# The race of ``trainer=joint``: of eight starts one is left after three laps.
JOINT_RACE = Race((1, 2, 3))


@dataclass(frozen=True)
class Joint(Trainer):
    """Settings of one minimisation over all gates and leaves.

    Attributes:
        lbfgs: tolerances and limits.
        race: drops the worse starts after some laps, each a pass; None minimises all at one go.
        lap: iterations of a lap, at least 1.

    Raises:
        ConfigError: a value is out of range.
    """

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)
    race: Race | None = None
    lap: int = 50

    compiled_from: ClassVar[int | None] = 1_000_000

    def __post_init__(self) -> None:
        check_integer("lap", self.lap, least=1)

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: the laps of a race, and one."""
        return 1 + (0 if self.race is None else self.race.after[-1])

    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`; a pass is recorded as one step, JOINT, of the root."""
        while self._lap(run):
            pass

    def _lap(self, run: TrainingRun) -> bool:
        """Minimise for a lap, or to the end if no start can be dropped any more; true if laps remain."""
        races = self.race is not None and self._may_drop(run, self.race)
        options = self.lbfgs
        if races:
            options = replace(options, max_iterations=min(self.lap, options.max_iterations))
        active = problems = run.active
        if run.compiled is not None:
            # Leaves that overflow are torch's.
            problems = run.record_compiled(active, 1, run.compiled.train_jointly(active, options))
        if len(problems):
            tree, rows = run.tree.select(problems), run.rows.select(problems)
            objective = run.objective.select(problems)
            step = ShardedStep.make(rows, lambda part: JointStep.make(tree, objective, part, relaxed=True))
            share = torch.full_like(run.best[problems], torch.nan)
            run.minimize(options, "JOINT", 1, step, problems, rows.n_rows, share)
        run.keep_best()
        run.end_pass(active, self.race if races else None)
        if races:
            run.save()
        return races

    @staticmethod
    def _may_drop(run: TrainingRun, race: Race) -> bool:
        """True if the end of a later pass drops an active start."""
        last = race.after[-1]
        if run.n_passes >= last:
            return False
        return len(run.active) > int(race.survivors(run.best, run.rows.counts, last).sum())


@dataclass(frozen=True)
class NodecJoint(Trainer):
    """Settings of the decomposition followed by a joint polish from the best point of each problem.

    Attributes:
        nodec: of the decomposition.
        joint: of the polish, without a race: starts are dropped by the decomposition.

    Raises:
        ConfigError: the polish has a race.
    """

    nodec: Nodec = field(default_factory=Nodec)
    joint: Joint = field(default_factory=Joint)

    compiled_from: ClassVar[int | None] = 1_000_000

    def __post_init__(self) -> None:
        if self.joint.race is not None:
            raise ConfigError("the race of nodec+joint is that of the decomposition: give joint none")

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


@dataclass(frozen=True)
class Adam(Trainer):
    """Settings of Adam over all gates and leaves, with a learning rate that falls to zero along a cosine.

    Every problem has its own moments; all see the same rows in the same order. A problem whose gradient is
    not finite sits that step out.

    Attributes:
        epochs: passes over the rows.
        batch_size: rows of a step.
        learning_rate: at the beginning.
        seed: of the order of the rows.

    Raises:
        ConfigError: if a value is out of range.

    References:
        Kingma and Ba (2015), "Adam: a method for stochastic optimization".
    """

    epochs: int = 50
    batch_size: int = 256
    learning_rate: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, an integer, got {getattr(self, name)!r}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate must be positive, got {self.learning_rate!r}")

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: epochs."""
        return self.epochs

    @override
    def advance(self, run: TrainingRun) -> None:
        if not run.rows.is_whole:
            raise ConfigError("mini-batches are drawn from all rows: use a single shard")
        # A part of the rows may lack the one that stands for its equals.
        tree, sample = run.tree, replace(run.rows.parts[0], merged_weight=None)
        n_rows = sample.weight.shape[1]
        parameters = [parameter for parameter in tree.parameters() if parameter.numel()]
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        order = torch.Generator().manual_seed(self.seed)
        if run.notes:
            _recall(optimizer, order, run.notes)
        per_epoch = math.ceil(n_rows / self.batch_size)
        for epoch in range(run.n_passes, self.epochs):
            batches = torch.randperm(n_rows, generator=order).split(self.batch_size)
            for step, rows in enumerate(batches, epoch * per_epoch):
                freeze_except(tree, parameters)
                part = sample.take(rows.to(sample.weight.device).expand(tree.n_problems, -1))
                value = run.objective(tree, part, relaxed=True)
                gradients = torch.autograd.grad(value.sum(), parameters)
                usable = _all_finite(gradients)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    mask = usable.reshape(-1, *(1,) * (gradient.ndim - 1))
                    parameter.grad = torch.where(mask, gradient, torch.zeros_like(gradient))
                phase = math.pi * step / (self.epochs * per_epoch)
                optimizer.param_groups[0]["lr"] = self.learning_rate * (1 + math.cos(phase)) / 2
                optimizer.step()
            optimizer.zero_grad()
            run.keep_best()
            run.end_pass(run.active)
            run.save(**_notes(optimizer, order))


def _notes(optimizer: torch.optim.Adam, order: torch.Generator) -> dict[str, Tensor]:
    """Moments and number of steps of each parameter, and the generator of the order of the rows."""
    moments = {
        f"{number}.{name}": value
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    return {"order": order.get_state(), **moments}


def _recall(optimizer: torch.optim.Adam, order: torch.Generator, notes: Mapping[str, Tensor]) -> None:
    """Restore optimiser and generator from :func:`_notes`."""
    states: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for key, value in notes.items():
        if key != "order":
            number, name = key.split(".")
            # Where the optimiser counts its steps: on the host.
            states[int(number)][name] = value.cpu() if name == "step" else value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(states)})
    order.set_state(notes["order"].cpu())


def _all_finite(gradients: tuple[Tensor, ...]) -> Tensor:
    """True where all gradients of a problem are finite, (R,)."""
    finite = [
        gradient.flatten(1).isfinite().all(1) if gradient.ndim > 1 else gradient.isfinite()
        for gradient in gradients
    ]
    return torch.stack(finite).all(0)
