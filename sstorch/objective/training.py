"""The training objective: expected negative log-likelihood plus penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from sstorch.nn import SoftTree
from sstorch.objective.likelihood import expected_loss, leaf_losses
from sstorch.objective.penalties import (
    Fused,
    GateGroupLasso,
    GateRidge,
    Penalty,
    Ridge,
    RowPenalty,
    StepTerm,
    zero_features,
)
from sstorch.objective.sample import Sample

PenaltyT = TypeVar("PenaltyT", bound=Penalty)


class TrainingObjective(nn.Module):
    """E(w, beta) = (1/N) sum_i sum_n P_in L_n(x_i, t_i, c_i) + penalties.

    Args:
        ridge: coefficient of :class:`Ridge`, one value or one per problem (R,).
        gate_ridge: coefficient of :class:`GateRidge`.
        fused: coefficient of :class:`Fused`.
        gate_sparsity: coefficient of :class:`GateGroupLasso`.
        row_penalties: penalties on what the tree predicts, such as
            :class:`~sstorch.objective.fairness.GroupParity`.

    References:
        Consolo, Amaldi and Carrizosa, the training problem; the gate and fused penalties are additions.
    """

    def __init__(
        self,
        ridge: float | Tensor = 0.0,
        gate_ridge: float | Tensor = 0.0,
        fused: float | Tensor = 0.0,
        gate_sparsity: float | Tensor = 0.0,
        row_penalties: Sequence[RowPenalty] = (),
    ) -> None:
        super().__init__()
        self.row_penalties = nn.ModuleList(_active(row_penalties))
        self.gate_penalties = nn.ModuleList(_active([GateRidge(gate_ridge), GateGroupLasso(gate_sparsity)]))
        self.leaf_penalties = nn.ModuleList(_active([Ridge(ridge), Fused(fused)]))

    def forward(
        self, tree: SoftTree, sample: Sample, problems: Tensor | None = None, relaxed: bool = False
    ) -> Tensor:
        """Value of E per problem; the plain form that the decomposition's steps are checked against.

        Args:
            tree: R problems.
            sample: rows of the problems at ``problems``.
            problems: ascending positions (K,) in ``tree``; all if None.
            relaxed: with the relaxation of penalties that are not smooth in the gates.

        Returns:
            shape (K,), in nats per row of model time; +inf where a leaf's hazard overflows.
        """
        probability = tree.log_leaf_probability(sample.x, problems=problems).exp()
        weighted = probability * sample.normalised_weight[:, None, :]
        losses = leaf_losses(tree, sample, tree.topology.leaves, problems, weighted.detach() > 0)
        return (
            expected_loss(weighted, losses)
            + self.gate_penalty(tree, problems)
            + self.leaf_penalty(tree, problems)
            + self.row_penalty(tree, sample, problems, relaxed)
        )

    def gate_penalty(self, tree: SoftTree, problems: Tensor | None = None) -> Tensor:
        """Sum of the penalties that act on gates, shape (K,)."""
        return _total(self.gate_penalties, tree, problems)

    def leaf_penalty(self, tree: SoftTree, problems: Tensor | None = None) -> Tensor:
        """Sum of the penalties that act on leaves, shape (K,)."""
        return _total(self.leaf_penalties, tree, problems)

    def row_penalty(
        self, tree: SoftTree, sample: Sample, problems: Tensor | None = None, relaxed: bool = False
    ) -> Tensor:
        """Sum of the penalties on what the tree predicts, shape (K,); arguments as for E."""
        count = tree.n_problems if problems is None else len(problems)
        total: Tensor = tree.log_time_scale.new_zeros(count)
        for penalty in self.row_penalties:
            total = total + torch.as_tensor(penalty(tree, sample, problems, relaxed))
        return total

    def leaf_terms(self, tree: SoftTree, sample: Sample, node: int) -> tuple[StepTerm, ...]:
        """What the penalties on rows add to an LN step; see :meth:`RowPenalty.leaf_term`."""
        penalties = [penalty for penalty in self.row_penalties if isinstance(penalty, RowPenalty)]
        return tuple(penalty.leaf_term(tree, sample, node) for penalty in penalties)

    def branch_terms(self, tree: SoftTree, sample: Sample, node: int) -> tuple[StepTerm, ...]:
        """What those that train gates add to a BN step; see :meth:`RowPenalty.branch_term`."""
        penalties = [penalty for penalty in self.row_penalties if isinstance(penalty, RowPenalty)]
        return tuple(penalty.branch_term(tree, sample, node) for penalty in penalties if penalty.trains_gates)

    def sparsify(self, tree: SoftTree, sample: Sample) -> None:
        """Set to zero the gate weights of features that a :class:`GateGroupLasso` has driven out.

        A problem whose objective would rise by more than a millionth keeps its weights.

        Args:
            tree: R problems, trained; changed in place.
            sample: their rows.
        """
        for penalty in self.gate_penalties:
            if not isinstance(penalty, GateGroupLasso) or not tree.topology.branches:
                continue

            def smooth(trial: SoftTree, penalty: GateGroupLasso = penalty) -> Tensor:
                return torch.as_tensor(self(trial, sample) - penalty(trial))

            features = penalty.vanishing(tree, smooth)
            sparse = tree.select(torch.arange(tree.n_problems, device=features.device))
            zero_features(sparse, features)
            with torch.no_grad():
                before, after = self(tree, sample), self(sparse, sample)
            worse = ~(after <= before + 1e-6 * (1 + before.abs()))
            zero_features(tree, features & ~worse[:, None])

    def select(self, problems: Tensor) -> TrainingObjective:
        """The objective of some of the problems: positions (K,)."""
        chosen = TrainingObjective()
        chosen.gate_penalties = nn.ModuleList(_selected(self.gate_penalties, problems))
        chosen.leaf_penalties = nn.ModuleList(_selected(self.leaf_penalties, problems))
        chosen.row_penalties = nn.ModuleList(_selected(self.row_penalties, problems))
        return chosen


def _active(penalties: Sequence[PenaltyT]) -> list[PenaltyT]:
    return [penalty for penalty in penalties if not penalty.is_zero]


def _selected(penalties: nn.ModuleList, problems: Tensor) -> list[Penalty]:
    return [penalty.select(problems) for penalty in penalties if isinstance(penalty, Penalty)]


def _total(penalties: nn.ModuleList, tree: SoftTree, problems: Tensor | None) -> Tensor:
    count = tree.n_problems if problems is None else len(problems)
    total: Tensor = tree.log_time_scale.new_zeros(count)
    for penalty in penalties:
        total = total + torch.as_tensor(penalty(tree, problems))
    return total
