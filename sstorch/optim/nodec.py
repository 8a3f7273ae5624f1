"""NODEC-DR-SST: node-based decomposition with data-point reassignment, for a batch of trees; other trainers.

References:
    Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from typing_extensions import override

from sstorch._version import __version__
from sstorch.batched import Batched
from sstorch.checks import check_choice, check_integer, check_share, is_number_of
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History
from sstorch.nn import Exponential, HazardFamily, LogLogistic, SoftTree, Spline, Weibull
from sstorch.nn.hazards.links import LinkFamily
from sstorch.objective import GateRidge, Ridge, Sample, TrainingObjective
from sstorch.objective.training import leaf_losses
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.run import Checkpoint, TrainingRun, opened
from sstorch.optim.steps import Step
from sstorch.optim.working_sets import LOSS_CEILING, branch_step, leaf_step, logistic_step
from sstorch.threads import torch_threads

if TYPE_CHECKING:
    from sstorch.optim.compiled.trees import CompiledTrees


def environment(device: torch.device, compiled: bool = False) -> dict[str, str]:
    """Versions, device and engine: the last bits of a result depend on them, too."""
    where = {"sstorch": __version__, "torch": torch.__version__, "device": device.type}
    return where | {"engine": "compiled" if compiled else "torch"}


@dataclass(frozen=True)
class Trainer(ABC):
    """Settings of the training of a batch.

    A subclass defines :meth:`steps`, and with several passes :attr:`n_passes`; fields of its own need the
    decorator ``@dataclass(frozen=True)``.
    """

    @property
    def n_passes(self) -> int:
        """Maximum number of recorded passes: macro iterations, or one for a single minimisation."""
        return 1

    @abstractmethod
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """Yield the steps of the active problems, each made by :meth:`TrainingRun.step` when it is its turn.

        The run takes a step before the next one is made: code after a ``yield`` sees its end, ``run.tree``.
        :meth:`TrainingRun.end_pass` ends a pass. The result is the best point of each problem.
        """

    def train(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> History:
        """Train every problem of ``tree`` in place, to its best point.

        Args:
            tree: R problems with initial solutions; float64 advised.
            objective: E.
            sample: training rows of each problem.
            callbacks: called after every pass.
            checkpoint: path of a file that is written after every pass, or an open checkpoint. If it exists,
                training continues from its last pass, or ends if finished.

        Returns:
            The records of the run, including those before an interruption.

        Raises:
            ConfigError: the checkpoint belongs to another run, is open in another process, or cannot be
                written; or the engine does not support another setting.
            FormatError: it is truncated.
        """
        # Of a decomposition, whose passes both engines have.
        engine: Engine = getattr(self, "engine", "torch")
        compiled = compiled_trees(engine, tree, objective, sample)
        with ExitStack() as stack:
            if compiled is not None:
                # Threads of torch would compete with those of the compiled engine for the cores.
                stack.enter_context(torch_threads(1))
            file = opened(
                checkpoint,
                trainer=self,
                objective=objective,
                sample=sample,
                start=tree,
                environment=environment(sample.weight.device, compiled is not None),
            )
            run = TrainingRun(tree, objective, sample, callbacks, stack.enter_context(file), compiled)
            run.train(self.steps, self.n_passes)
        return run.history


# "auto" is up to the problems alone, never to what a machine has compiled before.
Engine = Literal["auto", "torch", "compiled"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
# Rows, summed over trees, for which torch would take about as long as the compilation.
MANY_ROWS = 200_000
# Families with machine code.
_FAMILIES = (Exponential, Weibull, LogLogistic, Spline)


def link_of(family: HazardFamily) -> str | None:
    """Link of a family that the compiled engine has; None if it has not."""
    # What is derived from a family may have another loss.
    if type(family) not in _FAMILIES or not isinstance(family, LinkFamily) or not family.closed_form:
        return None
    name = family.link(torch.empty(0)).name
    return None if name == "probit" else name


def compiled_trees(
    engine: Engine, tree: SoftTree, objective: TrainingObjective, rows: Sample
) -> CompiledTrees | None:
    """The trees for the compiled engine, None for torch; ConfigError where ``"compiled"`` is impossible."""
    if engine == "torch" or (engine == "auto" and rows.weight.numel() < MANY_ROWS):
        return None
    family, device = tree.family, rows.weight.device
    penalties = (*objective.gate_penalties, *objective.leaf_penalties)
    others = [type(each).__name__ for each in penalties if type(each) not in (GateRidge, Ridge)]
    obstacles = {
        f"it runs on the CPU alone, not on {device.type}: use device='cpu'": device.type != "cpu",
        "it computes in double precision alone: use dtype='float64'": (
            tree.log_time_scale.dtype != torch.float64
        ),
        f"leaf {family.name!r} has no compiled loss: use another leaf": link_of(family) is None,
        f"ancillary={family.ancillary!r} is not supported: use ancillary='constant'": (
            family.ancillary != "constant" and bool(family.shape_names)
        ),
        "penalties on rows (fairness, small leaves) are not supported: use fairness=None, min_leaf=0 and, "
        "since distilled gates have a least leaf, init='random'": len(objective.row_penalties) > 0,
        f"{', '.join(others)} is not supported, ridges on gates and slopes are: remove it": bool(others),
        "times within intervals are not supported: use exact times": rows.log_upper is not None,
        "trees with rows of their own are not supported: give those of other trees weight zero": (
            rows.x.rows is not None
        ),
    }
    found = [reason for reason, is_met in obstacles.items() if is_met]
    if found and engine == "compiled":
        raise ConfigError(f"engine='compiled' cannot train this: {found[0]}, or engine='torch'")
    if found:
        return None
    # numba takes a while to load, which only training by it need wait for.
    from sstorch.optim.compiled.trees import CompiledTrees

    return CompiledTrees(tree, objective, rows, str(link_of(tree.family)))


class Thresholds(NamedTuple):
    """Imbalance thresholds of UpdateBranchNode, as shares of the rows at a node.

    Attributes:
        imbalance: e1; a gate is balanced if its left share lies strictly within (e1, 1 - e1).
        high_imbalance: e2; rows are reassigned if the share is <= e2 or >= 1 - e2.
        reassigned: e3, fraction of the rows on the crowded side that change sides.
    """

    imbalance: float
    high_imbalance: float
    reassigned: float

    def scaled(self, factor: float) -> Thresholds:
        """All three thresholds times ``factor``."""
        return Thresholds(*(value * factor for value in self))


# The paper's text wants e1 > e2 and its reported values have e1 < e2, with which every imbalance is high.
THRESHOLDS = {"eps_paper": Thresholds(0.1, 0.3, 0.4), "eps_ordered": Thresholds(0.1, 0.03, 0.4)}


@dataclass(frozen=True)
class BranchUpdate(Batched):
    """Decisions of UpdateBranchNode for K problems at one node."""

    left: Tensor  # routing of each row of I_s before the step, boolean (K, M)
    left_share: Tensor  # share of the weight of I_s routed left, (K,); nan where I_s is empty
    balanced: Tensor  # minimise E over the gates of the working set, boolean (K,)
    # logistic regression after reassignment, boolean (K,); the others that are not balanced get the logistic
    # regression alone
    high: Tensor


@torch.no_grad()
def classify(
    tree: SoftTree, rows: Sample, node: int, thresholds: Thresholds, n_training_rows: Tensor
) -> BranchUpdate:
    """Sort problems by imbalance at ``node`` on their rows I_s; where e1 N < 1, N (K,), all are balanced."""
    left = tree.gate_logits(rows.x, [node]).squeeze(1) >= 0
    share = (rows.weight * left).sum(-1) / rows.weight.sum(-1)
    e1, e2 = thresholds.imbalance, thresholds.high_imbalance
    balanced = ((share > e1) & (share < 1 - e1)) | (e1 * n_training_rows < 1)
    high = ~balanced & ((share <= e2) | (share >= 1 - e2))
    return BranchUpdate(left, share, balanced, high)


@torch.no_grad()
def reassign(tree: SoftTree, rows: Sample, node: int, update: BranchUpdate, fraction: float) -> Tensor:
    """Labels of the logistic regression: true for left, boolean (K, M)."""
    # At high imbalance the fraction (at least one) of the crowded side's rows is swapped that has the largest
    # error term sum_n P_in L_n (signed).
    crowded_left = (update.left_share >= 0.5)[:, None]
    probability = tree.log_leaf_probability(rows.x, node).exp()
    losses = leaf_losses(tree, rows, tree.topology.leaves_under(node)).clamp(max=LOSS_CEILING)
    crowded = (update.left == crowded_left) & (rows.weight > 0)
    error = (probability * losses).sum(-2)
    error = torch.where(crowded, error, torch.full_like(error, -torch.inf))
    rank = error.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    count = (error > -torch.inf).sum(-1, keepdim=True)
    n_swapped = torch.minimum((fraction * count).floor().long().clamp(min=1), count)
    return update.left ^ ((rank < n_swapped) & update.high[:, None])


def balancing_weights(rows: Sample, update: BranchUpdate) -> Tensor:
    """Weights o_i of the logistic regression, (K, M); 0 for padding."""
    # 1 / (2 L_s) for rows routed left, else 1 / (2 (1 - L_s)), by the ORIGINAL routing also for swapped rows.
    share = torch.where(update.left, update.left_share[:, None], 1 - update.left_share[:, None])
    doubled = 2 * share.clamp(min=torch.finfo(share.dtype).tiny)
    return rows.weight / doubled * (rows.weight > 0)


@dataclass(frozen=True)
class Nodec(Trainer):
    """Settings of NODEC-DR-SST, by default the published ones.

    Attributes:
        eps: thresholds of UpdateBranchNode: ``"eps_paper"`` (0.1, 0.3, 0.4), ``"eps_ordered"``
            (0.1, 0.03, 0.4), or :class:`Thresholds`.
        macro_iterations: M_it, maximum number of passes over the nodes.
        zeta: factor on the thresholds after each macro iteration.
        patience: k_0, inner iterations without improvement after which a problem stops; None never stops.
        gradient_tolerance: a problem stops if the max-norm of the gradient of E is below this value.
        lbfgs: tolerances and limits of the minimisation in each step.
        engine: ``"torch"``; ``"compiled"`` (on the CPU, in double precision, five leaf families, ridges; 7
            to 20 times as fast, after about 10 seconds of compilation at the first use on a machine); or
            ``"auto"``: compiled, if supported, from 200,000 rows on, summed over problems.

    Raises:
        ConfigError: if a value is out of range.
    """

    eps: str | Thresholds = "eps_paper"
    macro_iterations: int = 10
    zeta: float = 0.8
    patience: int | None = None
    gradient_tolerance: float = 1e-5
    lbfgs: LBFGSOptions = field(default_factory=lambda: LBFGSOptions(max_iterations=30))
    engine: Engine = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        check_choice(self.engine, "engine", ENGINES)
        if not isinstance(self.eps, Thresholds) and self.eps not in THRESHOLDS:
            raise ConfigError(f"eps must be one of {', '.join(THRESHOLDS)}, or Thresholds, got {self.eps!r}")
        if not all(0 <= value < 1 for value in self.thresholds):
            raise ConfigError(f"eps must be three thresholds in [0, 1), got {self.eps!r}")
        check_integer("macro_iterations", self.macro_iterations, least=1)
        check_share(self.zeta, "zeta", closed=True)
        if self.patience is not None:
            check_integer("patience", self.patience, least=1)
        if not is_number_of(self.gradient_tolerance, Real) or not self.gradient_tolerance >= 0:
            raise ConfigError(f"gradient_tolerance must be >= 0, got {self.gradient_tolerance!r}")

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of the first macro iteration."""
        return THRESHOLDS[self.eps] if isinstance(self.eps, str) else self.eps

    @property
    @override
    def n_passes(self) -> int:
        return self.macro_iterations

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """Visit every node in each macro iteration; problems out of patience or at a minimum stop."""
        thresholds = self.thresholds
        for _ in range(run.n_passes):
            thresholds = thresholds.scaled(self.zeta)
        # A single leaf has no branch node to visit: its one step is the leaf's.
        nodes = run.tree.topology.branches or run.tree.topology.leaves
        while run.n_passes < self.macro_iterations and len(run.active):
            trained, standing = run.active, None
            if run.compiled is not None:
                standing = run.compiled.train_pass(run, thresholds, self.lbfgs, self.patience)
            for node in nodes if run.compiled is None else ():
                if len(run.active):
                    for step in self._visit(run, node, thresholds):
                        yield replace(step, minimizer=self.lbfgs)
                    if node == nodes[-1]:
                        run.look(trained)
                    run.keep_best(self.patience)
            small = run.end_pass(trained, standing) <= self.gradient_tolerance  # not where it is nan
            run.active = run.active[~torch.isin(run.active, trained[small])]
            thresholds = thresholds.scaled(self.zeta)
            run.save()

    def _visit(self, run: TrainingRun, node: int, thresholds: Thresholds) -> Iterator[Step]:
        """BN or WLR step at ``node``, then LN step below it, on the rows that visit it."""
        topology, batch = run.tree.topology, run.batch(run.active)
        batch = replace(batch, rows=batch.rows.restrict(batch.tree.visits(batch.rows.x, node)))
        trains = batch.rows.n_rows >= 2
        if node in topology.branches:
            update = classify(batch.tree, batch.rows, node, thresholds, run.n_rows[run.active])
            for chosen in _where(trains & update.balanced):
                yield branch_step(batch.select(chosen), node)
            for chosen in _where(trains & ~update.balanced):
                some, own = batch.select(chosen), update.select(chosen)
                left = reassign(some.tree, some.rows, node, own, thresholds.reassigned)
                step = logistic_step(some, node, left, balancing_weights(some.rows, own))
                # The regression is convex and its start does not matter to its end; the present gate may be
                # so hard that its gradient vanishes.
                step.write(torch.zeros_like(step.read()))
                yield step
        # The root trains all leaves where they have a common part, which the nodes below cannot move.
        if node > 1 or topology.depth <= 1 or run.objective.prior is not None:
            # Gates above s have not moved, so I_s is the same; gates from s down have.
            batch = replace(batch, tree=run.present(run.active)[0])
            has_events = (batch.rows.event * batch.rows.weight).sum(-1) > 0
            for chosen in _where(trains & has_events):
                yield leaf_step(batch.select(chosen), node)


def _where(mask: Tensor) -> list[Tensor]:
    """Positions at which a mask (K,) is true, if there are any."""
    positions = mask.nonzero().squeeze(-1)
    return [positions] if len(positions) else []


@dataclass(frozen=True)
class Joint(Trainer):
    """Settings of one minimisation over all gates and leaves."""

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        yield run.step(name="JOINT", minimizer=self.lbfgs)
        run.end_pass()


@dataclass(frozen=True)
class NodecJoint(Trainer):
    """Settings of the decomposition followed by joint optimisation from the best point of each problem."""

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
        run.active = run.everyone
        yield from self.joint.steps(run)


@dataclass(frozen=True)
class Leaves(Trainer):
    """Settings of one minimisation over all leaves, each on its rows by most probable path; gates stay."""

    lbfgs: LBFGSOptions = field(default_factory=LBFGSOptions)

    @override
    def steps(self, run: TrainingRun) -> Iterator[Step]:
        """One step, LN of the root."""
        batch = run.copy()
        with torch.no_grad():
            leaf = batch.tree.apply_leaf(batch.rows.x)
            reached = torch.nn.functional.one_hot(leaf, len(run.tree.topology.leaves)).mT
        yield replace(leaf_step(batch, 1, reached.to(batch.rows.weight)), minimizer=self.lbfgs)
        # The rows' one leaf is what is trained, and E of the soft routing may be higher than at the start.
        run.accept()
        run.end_pass()
