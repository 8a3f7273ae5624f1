"""NODEC-DR-SST: node-based decomposition with data-point reassignment, for a batch of trees."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from numbers import Integral, Real
from typing import ClassVar, Self

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import Batched
from sstorch.checks import check_integer, is_number_of
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree, Topology
from sstorch.nn.routing import most_probable_leaf
from sstorch.objective import Sample, leaf_losses
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.run import TrainingRun
from sstorch.optim.steps import LOSS_CEILING, BranchStep, LeafStep, LogisticStep
from sstorch.optim.trainer import Trainer


@dataclass(frozen=True)
class Thresholds:
    """Imbalance thresholds of UpdateBranchNode, as shares of the rows at a node.

    Attributes:
        imbalance: e1; a gate is balanced if its left share lies strictly within (e1, 1 - e1).
        high_imbalance: e2; rows are reassigned if the share is <= e2 or >= 1 - e2.
        reassigned: e3, fraction of the rows on the crowded side that change sides.
    """

    imbalance: float
    high_imbalance: float
    reassigned: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise ConfigError(f"threshold {name} must be in [0, 1), got {value!r}")

    def scaled(self, factor: float) -> Thresholds:
        """All three thresholds times ``factor``."""
        return Thresholds(self.imbalance * factor, self.high_imbalance * factor, self.reassigned * factor)


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
    """Sort problems into balanced, moderately and highly imbalanced at ``node``, on their rows I_s.

    ``n_training_rows`` is N of each problem, (K,); where e1 N < 1 every gate is balanced.

    References:
        Consolo, Amaldi and Carrizosa, procedure UpdateBranchNode.
    """
    left = tree.gate_logits(rows.x, [node]).squeeze(1) >= 0
    share = (rows.weight * left).sum(-1) / rows.weight.sum(-1)
    e1, e2 = thresholds.imbalance, thresholds.high_imbalance
    balanced = ((share > e1) & (share < 1 - e1)) | (e1 * n_training_rows < 1)
    high = ~balanced & ((share <= e2) | (share >= 1 - e2))
    return BranchUpdate(left, share, balanced, high)


@torch.no_grad()
def reassign(tree: SoftTree, rows: Sample, node: int, update: BranchUpdate, fraction: float) -> Tensor:
    """Labels of the logistic regression: true for left, boolean (K, M).

    Where the imbalance is high, the fraction of the rows (at least one) of the crowded side with the largest
    error term sum_n P_in L_n, by value, is swapped. Rows without a density at the leaf they would move to
    stay.
    """
    crowded_left = (update.left_share >= 0.5)[:, None]
    probability = tree.log_leaf_probability(rows.x, node).exp()
    losses = leaf_losses(tree, rows, tree.topology.leaves_under(node)).clamp(max=LOSS_CEILING)
    crowded = (update.left == crowded_left) & (rows.weight > 0) & _has_density(tree, rows, node, crowded_left)
    error = (probability * losses).sum(-2)
    error = torch.where(crowded, error, torch.full_like(error, -torch.inf))
    rank = error.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    count = (error > -torch.inf).sum(-1, keepdim=True)
    n_swapped = torch.minimum((fraction * count).floor().long().clamp(min=1), count)
    return update.left ^ ((rank < n_swapped) & update.high[:, None])


def _has_density(tree: SoftTree, sample: Sample, node: int, to_right: Tensor) -> Tensor:
    """True if a row has a density at the leaf it reaches from the right (or else the left) child."""
    everywhere = torch.ones_like(sample.weight, dtype=torch.bool)
    has_density = []
    for child in (2 * node, 2 * node + 1):
        leaves = tree.topology.leaves_under(child)
        defined = tree.family.defined(sample.log_time[:, None, :], tree.shape_parameters(sample.x, leaves))
        if defined is None:
            return everywhere
        leaf = torch.zeros_like(sample.weight, dtype=torch.long)
        if len(leaves) > 1:
            logits = tree.gate_logits(sample.x, tree.topology.branches_under(child))
            leaf = most_probable_leaf(Topology(len(leaves).bit_length() - 1), logits)
        has_density.append(defined.gather(1, leaf[:, None, :]).squeeze(1))
    return torch.where(to_right, has_density[1], has_density[0])


def balancing_weights(rows: Sample, update: BranchUpdate) -> Tensor:
    """Weights o_i of the logistic regression, (K, M); 0 for padding.

    1 / (2 L_s) for rows routed left and 1 / (2 (1 - L_s)) for the others, by the ORIGINAL routing also for
    swapped rows; a side without rows has no weight to give.
    """
    share = torch.where(update.left, update.left_share[:, None], 1 - update.left_share[:, None])
    doubled = 2 * share.clamp(min=torch.finfo(share.dtype).tiny)
    return rows.weight / doubled * (rows.weight > 0)


@dataclass(frozen=True)
class Nodec(Trainer):
    """Settings of NODEC-DR-SST.

    Attributes:
        eps: thresholds of UpdateBranchNode: ``"eps_paper"`` (0.1, 0.3, 0.4), ``"eps_ordered"``
            (0.1, 0.03, 0.4), or :class:`Thresholds`.
        macro_iterations: M_it, maximum number of passes over the nodes.
        zeta: factor on the thresholds after each macro iteration.
        patience: k_0, inner iterations without improvement after which a problem stops; None never stops.
        gradient_tolerance: a problem stops if the max-norm of the gradient of E is below this value.
        lbfgs: tolerances and limits of the minimisation in each step.

    Raises:
        ConfigError: if a value is out of range.
    """

    eps: str | Thresholds = "eps_paper"
    macro_iterations: int = 10
    zeta: float = 0.8
    patience: int | None = None
    gradient_tolerance: float = 1e-5
    lbfgs: LBFGSOptions = field(default_factory=lambda: LBFGSOptions(max_iterations=30))

    compiled_from: ClassVar[int | None] = 200_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.eps, Thresholds) and self.eps not in THRESHOLDS:
            raise ConfigError(f"eps must be one of {', '.join(THRESHOLDS)}, or Thresholds, got {self.eps!r}")
        check_integer("macro_iterations", self.macro_iterations, least=1)
        if not is_number_of(self.zeta, Real) or not 0 < self.zeta <= 1:
            raise ConfigError(f"zeta must be in (0, 1], got {self.zeta!r}")
        if self.patience is not None and (not is_number_of(self.patience, Integral) or self.patience < 1):
            raise ConfigError(f"patience must be at least 1, an integer, or None, got {self.patience!r}")
        if not is_number_of(self.gradient_tolerance, Real) or not self.gradient_tolerance >= 0:
            raise ConfigError(f"gradient_tolerance must be >= 0, got {self.gradient_tolerance!r}")

    @classmethod
    def paper(cls) -> Self:
        """The published settings: thresholds ``eps_paper``, 10 macro iterations and no patience.

        References:
            Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis", NODEC-DR-SST.
        """
        return cls(eps="eps_paper", macro_iterations=10, zeta=0.8, patience=None)

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of the first macro iteration."""
        return THRESHOLDS[self.eps] if isinstance(self.eps, str) else self.eps

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: macro iterations."""
        return self.macro_iterations

    @override
    def advance(self, run: TrainingRun) -> None:
        _Scheduler(self, run).run()


class _Scheduler:
    """One run of the decomposition: its thresholds and the patience spent on each problem."""

    def __init__(self, settings: Nodec, run: TrainingRun) -> None:
        self.settings = settings
        self.state = run
        self.thresholds = settings.thresholds
        self.n_rows = run.rows.n_rows
        self.unimproved = torch.zeros(run.tree.n_problems, dtype=torch.long, device=run.active.device)
        if run.notes:
            self.thresholds = Thresholds(*run.notes["thresholds"].tolist())
            self.unimproved = run.notes["unimproved"]

    def run(self) -> None:
        settings, state = self.settings, self.state
        while state.n_passes < settings.macro_iterations and len(state.active):
            trained, standing = state.active, None
            if state.compiled is None:
                self._pass(trained)
            else:
                records, standing = state.compiled.train_pass(
                    state.tree,
                    state.best_tree,
                    state.best,
                    trained,
                    astuple(self.thresholds),
                    settings.lbfgs,
                    settings.patience,
                    self.unimproved,
                )
                for record in records:
                    state.record(**record)
                self._retire()
            gradient_norm = state.end_pass(trained, standing)
            # A gradient that is not finite is none that is small.
            stationary = torch.zeros_like(state.best, dtype=torch.bool)
            stationary[trained] = gradient_norm <= settings.gradient_tolerance
            state.active = state.active[~stationary[state.active]]
            self.thresholds = self.thresholds.scaled(settings.zeta)
            thresholds = torch.tensor(astuple(self.thresholds), dtype=torch.float64)
            state.save(thresholds=thresholds, unimproved=self.unimproved)

    def _pass(self, trained: Tensor) -> None:
        """Visit every node once, while a problem trains."""
        # A single leaf has no branch node to visit: its one step is the leaf's.
        nodes = self.state.tree.topology.branches or self.state.tree.topology.leaves
        for node in nodes:
            self._visit(node)
            if node == nodes[-1]:
                self.state.look(trained)
            self._keep_best()
            if len(self.state.active) == 0:
                break

    def _visiting(self, problems: Tensor, node: int) -> tuple[SoftTree, Sample, Sample]:
        """Some problems, their rows, and those of these that visit ``node``."""
        tree, everything = self.state.present(problems)
        return tree, everything, everything.restrict(tree.visits(everything.x, node))

    def _visit(self, node: int) -> None:
        """BN or WLR step at ``node``, then LN step below it, on the rows that visit it."""
        state, active, lbfgs = self.state, self.state.active, self.settings.lbfgs
        topology = state.tree.topology
        tree, everything, rows = self._visiting(active, node)
        count = rows.n_rows
        if node in topology.branches:
            update = classify(tree, rows, node, self.thresholds, self.n_rows[active])
            trains = count >= 2
            share = update.left_share
            state.skip(active[~trains], node, count[~trains], share[~trains])
            chosen = (trains & update.balanced).nonzero().squeeze(-1)
            if len(chosen):
                sub, visiting = tree.select(chosen), rows.select(chosen)
                all_rows = self._all_rows(everything, chosen)
                objective = state.objective.select(active[chosen])
                gates = BranchStep.make(sub, objective, visiting, node, all_rows)
                state.minimize(lbfgs, "BN", node, gates, active[chosen], count[chosen], share[chosen])
            chosen = (trains & ~update.balanced).nonzero().squeeze(-1)
            if len(chosen):
                sub, visiting = tree.select(chosen), rows.select(chosen)
                decisions = update.select(chosen)
                left = reassign(sub, visiting, node, decisions, self.thresholds.reassigned)
                step = LogisticStep.make(sub, visiting, node, left, balancing_weights(visiting, decisions))
                # The regression is convex and its start does not matter to its end; the present gate may
                # be so hard that its gradient vanishes.
                step.write(torch.zeros_like(step.read()))
                state.minimize(lbfgs, "WLR", node, step, active[chosen], count[chosen], share[chosen])
        else:
            share = torch.full_like(state.best[active], torch.nan)
        if node > 1 or topology.depth <= 1:
            self._train_leaves(node, active, everything, rows, share)

    def _train_leaves(
        self, node: int, problems: Tensor, everything: Sample, rows: Sample, share: Tensor
    ) -> None:
        """LN step below ``node`` of problems (K,), on those of all their rows that visit it."""
        state, count, lbfgs = self.state, rows.n_rows, self.settings.lbfgs
        n_events = (rows.event * rows.weight).sum(-1)
        trains = (count >= 2) & (n_events > 0)
        idle = (count >= 2) & ~trains
        state.skip(problems[idle], node, count[idle], share[idle])
        chosen = trains.nonzero().squeeze(-1)
        if len(chosen):
            # Gates above s have not moved, so I_s is the same; gates from s down have.
            sub, visiting = state.tree.select(problems[chosen]), rows.select(chosen)
            all_rows = self._all_rows(everything, chosen)
            objective = state.objective.select(problems[chosen])
            step = LeafStep.make(sub, objective, visiting, node, everything=all_rows)
            state.minimize(lbfgs, "LN", node, step, problems[chosen], count[chosen], share[chosen])

    def _all_rows(self, everything: Sample, chosen: Tensor) -> Sample | None:
        """All rows of some problems, if there is a penalty that needs them."""
        return everything.select(chosen) if len(self.state.objective.row_penalties) else None

    def _keep_best(self) -> None:
        """Note improvements of E, and retire problems whose patience is spent."""
        state = self.state
        better = state.keep_best()
        self.unimproved[state.active] = torch.where(better, 0, self.unimproved[state.active] + 1)
        self._retire()

    def _retire(self) -> None:
        """Problems whose patience is spent no longer train."""
        if self.settings.patience is not None:
            active = self.state.active
            self.state.active = active[self.unimproved[active] < self.settings.patience]
