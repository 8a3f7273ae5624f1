"""Penalties on all rows, their terms in the steps of a decomposition, and the check of custom penalties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import Batched
from sstorch.exceptions import TrainingError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.functional import gradients
from sstorch.nn.routing import visits
from sstorch.objective.penalties import GatePenalty, Penalty
from sstorch.objective.rows import Sample

# Curvature of the square of what a leaf lacks: as in distillation, where it outweighs the likelihood.
TOO_SMALL = 10.0


class RowTerm(Batched, ABC):
    """A penalty on rows in a step that trains gates, or leaves; it keeps everything that is frozen there."""

    @abstractmethod
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        """Value per problem, shape (K,), from all gates or from all leaves, those that are frozen too."""


class RowPenalty(Penalty, ABC):
    """Base class of penalties that depend on rows: on curves, means or shares of a tree.

    :meth:`forward` receives parameters and rows, no predictions: ``gates.leaf_probability(sample.x)`` are the
    probabilities of leaves, (K, L, M), and :class:`~sstorch.nn.SurvivalDistribution` of their logarithms, the
    predictors and the shapes of the leaves gives every curve, in model units of time. ``sample.group`` holds
    the groups of ``sensitive=``.

    ``trains_leaves``: it acts where leaves are trained, gates frozen. ``trains_gates``: it acts where gates
    are trained, which get a gradient through probabilities of leaves, not through the most probable leaf.
    """

    trains_gates: bool = False
    trains_leaves: bool = True

    @abstractmethod
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        """Value per problem, shape (K,).

        Args:
            gates: all gates.
            leaves: all leaves.
            family: of the leaves, for the K problems.
            sample: their rows.
            relaxed: True where gates are trained: a form that is smooth in them.
        """

    def term(self, tree: SoftTree, sample: Sample, node: int, of_gates: bool) -> RowTerm:
        """The penalty as a function of the leaves, or the relaxation as one of the gates (``of_gates``).

        The loss of a step at ``node`` is a mean over its rows I_s alone; the term of K problems, with all
        their rows, weighs against it as the penalty does against the mean over all rows.
        """
        with torch.no_grad():
            inside = sample.weight * visits(tree.topology, tree.apply_leaf(sample.x), node)
            gates, leaves = tree.gate_parameters(), tree.leaf_parameters()
            return _Term(self, sample, weight_in_step(sample.weight, inside), gates, leaves, tree.family)


@dataclass(frozen=True)
class _Term(RowTerm):
    """A penalty by its :meth:`RowPenalty.forward`."""

    penalty: RowPenalty
    sample: Sample
    factor: Tensor  # shape (K,)
    gates: GateParameters
    leaves: LeafParameters
    family: HazardFamily

    @override
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        of_gates = isinstance(parameters, GateParameters)
        gates = parameters if isinstance(parameters, GateParameters) else self.gates
        leaves = parameters if isinstance(parameters, LeafParameters) else self.leaves
        return self.factor * self.penalty.forward(gates, leaves, self.family, self.sample, of_gates)


def weight_in_step(weight: Tensor, inside: Tensor) -> Tensor:
    """Weight of all rows over that of the rows of a step, (K, M) -> (K,), as in its mean loss; else 0."""
    total = inside.sum(-1)
    return torch.where(total > 0, weight.sum(-1) / total, torch.zeros_like(total))


class SmallLeaves(RowPenalty):
    """lambda sum_n max(0, m - (1/N) sum_i P_in)^2: every leaf has a share m of the rows, as routed softly.

    It is used in the training of gates only.

    Args:
        coefficient: lambda, one value or one per problem, shape (R,).
        least: m, in [0, 1/2).
    """

    trains_gates, trains_leaves = True, False

    def __init__(self, coefficient: float | Tensor, least: float) -> None:
        super().__init__(coefficient)
        self.least = least

    @override
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        share = (gates.leaf_probability(sample.x) * sample.normalised_weight[:, None, :]).sum(-1)
        return self.at(share) * (self.least - share).clamp(min=0).square().sum(-1)


def check_penalties(penalties: Sequence[Penalty], tree: SoftTree, sample: Sample, problems: Tensor) -> None:
    """Raise TrainingError if a custom penalty or its gradient is not finite at some finite problems (K,)."""
    gates, leaves = (
        type(part)(*(value.detach()[problems].requires_grad_() for value in vars(part).values()))
        for part in (tree.gate_parameters(), tree.leaf_parameters())
    )
    values = {f"gates.{name}": value for name, value in vars(gates).items()}
    values |= {f"leaves.{name}": value for name, value in vars(leaves).items()}
    finite = torch.stack([value.isfinite().flatten(1).all(1) for value in values.values()]).all(0)
    for penalty in penalties:
        own = penalty.select(problems)
        if isinstance(own, RowPenalty):
            family, rows = tree.family.select(problems), sample.select(problems)
            value = own(gates, leaves, family, rows, relaxed=True)
        else:
            value = own(gates if isinstance(own, GatePenalty) else leaves)
        wrong = finite & ~value.isfinite()
        text = f"penalty {type(penalty).__name__}"
        if bool(wrong.any()):
            found = float(value.detach()[wrong][0])
            raise TrainingError(f"{text} is {found} at finite gates and leaves; it must be finite there")
        for name, slope in zip(values, gradients(value.sum(), [*values.values()]), strict=True):
            if bool((finite & ~slope.isfinite().flatten(1).all(1)).any()):
                raise TrainingError(
                    f"{text} has no finite gradient with respect to {name} where training stopped: make it "
                    "differentiable there, such as a norm by (sum of squares + 1e-12).sqrt()"
                )
