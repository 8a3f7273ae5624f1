"""Training objective: expected negative log-likelihood plus penalties; probabilities of paths."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from sstorch.exceptions import ConfigError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.objective.penalties import (
    GatePenalty,
    GateRidge,
    LeafPenalty,
    Monotone,
    NormalPrior,
    ParametersT,
    Penalty,
    Ridge,
    RowPenalty,
    RowTerm,
)
from sstorch.objective.rows import Sample, problem_blocks


def leaf_losses(tree: SoftTree, sample: Sample, leaves: Sequence[int]) -> Tensor:
    """L_n of the paper: losses given survival to entry, (R, len(leaves), M), in model time."""
    return parameter_losses(tree.prepared_family, tree.leaf_parameters(leaves), sample)


def parameter_losses(
    family: HazardFamily, leaves: LeafParameters, sample: Sample, relevant: Tensor | None = None
) -> Tensor:
    """:func:`leaf_losses` of parameters, (K, L, M), zero with a finite gradient where not ``relevant``."""
    linear, shape = leaves.linear_predictor(sample.x), leaves.shape_parameters(sample.x)
    if relevant is not None:
        linear = torch.where(relevant, linear, family.neutral(sample.log_time[:, None, :]))
    loss = family.loss(sample.log_times, linear, shape)
    return loss if relevant is None else torch.where(relevant, loss, torch.zeros_like(loss))


def expected_loss(probability: Tensor, losses: Tensor) -> Tensor:
    """Sum over leaves and rows of probability (times normalised row weight) x loss, (K, L', M) -> (K,)."""
    return (probability * losses).sum((-2, -1))


class TrainingObjective(nn.Module):
    """E(w, beta) = (1/N) sum_i sum_n P_in L_n(x_i, t_i, c_i) + penalties.

    Args:
        ridge: coefficient of :class:`Ridge`, one value or one per problem (R,).
        gate_ridge: coefficient of :class:`GateRidge`.
        row_penalties: penalties on predictions, such as :class:`~sstorch.objective.parity.GroupParity`.
        roughness: coefficient of the ridge of features that are curves: it is their roughness in the features
            of :class:`~sstorch.data.basis.Basis`, squared changes of slope or the squared second derivative
            (Eilers and Marx 1996, Statistical Science 11, 89-121).
        curved: these features, which have no other ridge, boolean (p,); None for none.
        monotone: constraint on the direction of effects.
        own: custom penalties, each a :class:`GatePenalty` or a :class:`LeafPenalty`.

    References:
        Consolo, Amaldi and Carrizosa, the training problem; the gate penalty is an addition.
    """

    def __init__(
        self,
        ridge: float | Tensor = 0.0,
        gate_ridge: float | Tensor = 0.0,
        row_penalties: Sequence[RowPenalty] = (),
        roughness: float | Tensor = 0.0,
        curved: Tensor | None = None,
        monotone: Monotone | None = None,
        own: Sequence[Penalty] = (),
    ) -> None:
        super().__init__()
        leaves: list[Penalty] = [Ridge(ridge, None if curved is None else ~curved)]
        leaves += [] if curved is None else [Ridge(roughness, curved)]
        leaves += [] if monotone is None else [monotone]
        leaves += [each for each in own if isinstance(each, LeafPenalty)]
        gates = [GateRidge(gate_ridge), *(each for each in own if isinstance(each, GatePenalty))]
        self.gate_penalties, self.leaf_penalties, self.row_penalties = (
            nn.ModuleList(each for each in penalties if bool(each.coefficient.any()))
            for penalties in (gates, leaves, row_penalties)
        )

    def forward(self, tree: SoftTree, sample: Sample) -> Tensor:
        """E of R problems, (R,), in nats per row of model time; +inf if a leaf's hazard overflows."""
        return self.data_term(tree, sample) + self.penalty(tree) + self.row_penalty(tree, sample)

    def penalty(self, tree: SoftTree) -> Tensor:
        """Sum of the penalties on gates and leaves, shape (R,)."""
        return self.gate_penalty(tree.gate_parameters()) + self.leaf_penalty(tree.leaf_parameters())

    def row_penalty(self, tree: SoftTree, sample: Sample, relaxed: bool = False) -> Tensor:
        """Sum of the penalties on predictions, or of their relaxations, shape (R,)."""
        parts = tree.gate_parameters(), tree.leaf_parameters(), tree.prepared_family
        return self.parameter_row_penalty(*parts, sample, relaxed)

    def parameter_row_penalty(self, gates: GateParameters, leaves: LeafParameters, *others: object) -> Tensor:
        """:meth:`row_penalty` of parameters; arguments of :meth:`RowPenalty.forward`."""
        zero = leaves.intercept.new_zeros(leaves.intercept.shape[:-1])
        return _total(self.row_penalties, zero, gates, leaves, *others)

    def terms(self, tree: SoftTree, sample: Sample, node: int, of_gates: bool) -> tuple[RowTerm, ...]:
        """Terms of row penalties in a BN or an LN step, by :meth:`RowPenalty.term`."""
        penalties = (cast(RowPenalty, each) for each in self.row_penalties)
        return tuple(
            each.term(tree, sample, node, of_gates)
            for each in penalties
            if (each.trains_gates if of_gates else each.trains_leaves)
        )

    def data_term(self, tree: SoftTree, sample: Sample) -> Tensor:
        """Expected negative log-likelihood of all rows, (R,)."""
        if len(tree.batch_shape) != 1:
            raise ConfigError(
                f"`tree` must have a batch_shape (R,), got {tree.batch_shape}; one tree has (1,)"
            )
        gates, leaves, family = tree.gate_parameters(), tree.leaf_parameters(), tree.prepared_family
        weight, values = sample.loss_weight, []
        n_elements = len(tree.topology.leaves) * weight.shape[-1]
        for some in problem_blocks(tree.n_problems, n_elements, weight.device):
            own = gates.select(some), leaves.select(some), family.select(some), sample.select(some)
            values.append(self.plain_data_term(*own, weight[some]))
        return torch.cat(values)

    def plain_data_term(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        weight: Tensor,
    ) -> Tensor:
        """The data term of K problems, (K,); row weights (K, M) are normalised."""
        weighted = gates.leaf_probability(sample.x) * weight[:, None, :]
        return expected_loss(weighted, parameter_losses(family, leaves, sample, weighted.detach() > 0))

    def gate_penalty(self, gates: GateParameters) -> Tensor:
        """Sum of the penalties that act on gates, shape (K,)."""
        return _total(self.gate_penalties, gates.bias.new_zeros(gates.bias.shape[:-1]), gates)

    def leaf_penalty(self, leaves: LeafParameters) -> Tensor:
        """Sum of the penalties that act on leaves, shape (K,)."""
        return _total(self.leaf_penalties, leaves.intercept.new_zeros(leaves.intercept.shape[:-1]), leaves)

    def gate_curvature(self, gates: GateParameters) -> Tensor:
        """Diagonal of the Hessian of the penalties in weights and bias of gates, (K, B, p + 1)."""
        return _curvature(self.gate_penalties, gates)

    def leaf_curvature(self, leaves: LeafParameters) -> Tensor:
        """The same for each leaf in the order of :meth:`LeafParameters.unflatten`, (K, L, d)."""
        return _curvature(self.leaf_penalties, leaves)

    @property
    def prior(self) -> NormalPrior | None:
        """The prior of the leaves, if they have a common part."""
        return next((each for each in self.leaf_penalties if isinstance(each, NormalPrior)), None)

    def project(self, tree: SoftTree) -> None:
        """Remove what penalties that stand for constraints have left of violations, in place."""
        for penalty in self.leaf_penalties:
            if isinstance(penalty, Monotone | NormalPrior):
                penalty.project(tree)

    def with_prior(self, prior: NormalPrior, gates: GateRidge | None = None) -> TrainingObjective:
        """Return the objective plus a prior of the leaves, and of the gates in place of their ridge."""
        own = [*self.gate_penalties]
        if gates is not None:
            own = [gates, *(each for each in own if not isinstance(each, GateRidge))]
        return self._with(own, [prior, *self.leaf_penalties], self.row_penalties)

    def select(self, problems: Tensor | slice) -> TrainingObjective:
        """The objective of some of the problems: positions (K,) or a slice."""
        kinds = (self.gate_penalties, self.leaf_penalties, self.row_penalties)
        return self._with(*([cast(Penalty, each).select(problems) for each in kind] for kind in kinds))

    def _with(self, *kinds: Iterable[nn.Module]) -> TrainingObjective:
        """The objective with other penalties on gates, on leaves and on rows."""
        changed = copy.copy(self)
        names = ("gate_penalties", "leaf_penalties", "row_penalties")
        changed._modules = {name: nn.ModuleList(kind) for name, kind in zip(names, kinds, strict=True)}
        return changed


def _curvature(penalties: nn.ModuleList, parameters: ParametersT) -> Tensor:
    seconds = (cast(Penalty, penalty).curvature(parameters).flatten() for penalty in penalties)
    return sum(seconds, torch.zeros_like(parameters.flatten()))


def _total(penalties: nn.ModuleList, zero: Tensor, *arguments: object) -> Tensor:
    total = zero
    for penalty in penalties:
        value = torch.as_tensor(penalty(*arguments))
        # Of another shape it would be broadcast, so that problems paid for each other.
        if value.shape != zero.shape:
            shapes = f"shape {tuple(zero.shape)}, got {tuple(value.shape)}: sum over the last axes alone"
            raise ConfigError(f"{type(penalty).__name__} must give one value for each problem, {shapes}")
        total = total + value
    return total


@dataclass(frozen=True)
class Routing:
    """Gates of a full binary tree at rows, for derivatives in closed form."""

    left: Tensor  # (K, B, M), probability of going left; gates are in heap order
    right: Tensor  # (K, B, M)
    reach: tuple[Tensor, ...]  # (K, 2^d, M), probability of each node of depth d = 0, 1, ...

    @classmethod
    def of(cls, logits: Tensor, to_ends: bool = False) -> Routing:
        """Probabilities from the root downwards, those of the B + 1 ends of the tree only if asked for."""
        left, right = torch.sigmoid(logits), torch.sigmoid(-logits)
        reach = [logits.new_ones(len(logits), 1, logits.shape[-1])]
        n_gates = logits.shape[-2]
        while (first := 2 ** (len(reach) - 1) - 1) < (n_gates if to_ends else n_gates // 2):
            level = slice(first, 2 * first + 1)
            sides = (left[:, level], right[:, level])
            if first:
                sides = (reach[-1] * sides[0], reach[-1] * sides[1])
            reach.append(torch.stack(sides, dim=-2).flatten(-3, -2))
        return cls(left, right, tuple(reach))

    def expected(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Expected loss (K, M) of ``losses`` (K, B + 1, M), and its derivatives in the logits (K, B, M)."""
        slopes, n_gates = self.left * self.right, self.left.shape[-2]
        while n_gates:
            first = n_gates // 2
            level = slice(first, n_gates)
            below_left, below_right = losses[:, 0::2], losses[:, 1::2]
            level_slopes = slopes[:, level].mul_(below_left - below_right)
            if first:
                level_slopes.mul_(self.reach[n_gates.bit_length() - 1])
            losses = (self.left[:, level] * below_left).addcmul_(self.right[:, level], below_right)
            n_gates = first
        return losses.squeeze(-2), slopes
