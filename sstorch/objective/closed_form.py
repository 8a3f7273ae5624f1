"""The hot parts of the objective, each with its gradient in closed form.

They give what autograd gives on :func:`~sstorch.nn.routing.log_path_probability` and
:meth:`~sstorch.nn.HazardFamily.loss`, in fewer passes over the rows: a value per problem and its gradient in
the parameters, for the steps of the decomposition and the joint step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.nn import DesignMatrix, GateParameters, HazardFamily, LeafParameters
from sstorch.nn.functional import sigmoid_and_softplus
from sstorch.objective.rows import Sample


@dataclass(frozen=True)
class _Routing:
    """Gates of a full binary tree at rows."""

    left: Tensor  # (K, B, M), probability of going left; gates are in heap order
    right: Tensor  # (K, B, M)
    reach: tuple[Tensor, ...]  # (K, 2^d, M), probability of each node of depth d = 0, 1, ...

    @classmethod
    def of(cls, logits: Tensor, to_ends: bool = False) -> _Routing:
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


def gate_value_and_gradient(x: DesignMatrix, gates: GateParameters, losses: Tensor) -> tuple[Tensor, Tensor]:
    """Path probability x weighted ``losses`` (K, B + 1, M), (K,), and its gradient in gates (K, B, p + 1)."""
    expected, slopes = _Routing.of(gates.logits(x)).expected(losses)
    return expected.sum(-1), gates.features(x).pull_back(slopes)


def routing_slopes(logits: Tensor, losses: Tensor) -> Tensor:
    """Derivative of each row's part of :func:`gate_value_and_gradient` in each logit, shape (K, B, M)."""
    return _Routing.of(logits).expected(losses)[1]


def logistic_value_and_gradient(
    x: DesignMatrix, gate: GateParameters, weight: Tensor, left_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Weighted logistic loss of a single gate, sum_i o_i log(1 + exp(z_i)) - l_i z_i, (K,).

    ``weight`` o and ``left_weight`` l, the weight of rows whose label is left, else 0, are (K, M). The second
    value is its gradient in the gate, (K, 1, p + 1).
    """
    logits = gate.logits(x).squeeze(-2)
    left, loss = sigmoid_and_softplus(logits)
    value = loss.mul_(weight).addcmul_(left_weight, logits, value=-1).sum(-1)
    slope = left.mul_(weight).sub_(left_weight)
    return value, gate.features(x).pull_back(slope[:, None, :])


def leaf_value_and_gradient(
    family: HazardFamily,
    leaves: LeafParameters,
    sample: Sample,
    probability: Tensor,
    basis: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Weighted ``probability`` (K, L, M) x loss, (K,), and its gradient (K, L, d)."""
    loss, slopes = _row_losses(family, leaves, sample, basis, probability)
    value = torch.mul(probability, loss, out=loss).sum((-2, -1))
    return value, _leaf_gradient(leaves, sample.x, [slope.mul_(probability) for slope in slopes])


def tree_value_and_gradients(
    gates: GateParameters,
    leaves: LeafParameters,
    family: HazardFamily,
    sample: Sample,
    weight: Tensor,
    basis: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Path probability x weight (K, M) x loss, and gradients (K, B, p + 1) and (K, L, d)."""
    routing = _Routing.of(gates.logits(sample.x), to_ends=True)
    probability = routing.reach[-1] * weight[:, None, :]
    loss, slopes = _row_losses(family, leaves, sample, basis, probability)
    expected, of_logits = routing.expected(loss)
    value = (expected * weight).sum(-1)
    of_gates = gates.features(sample.x).pull_back(of_logits.mul_(weight[:, None, :]))
    of_leaves = _leaf_gradient(leaves, sample.x, [slope.mul_(probability) for slope in slopes])
    return value, of_gates, of_leaves


def _row_losses(
    family: HazardFamily,
    leaves: LeafParameters,
    sample: Sample,
    basis: Tensor | None,
    probability: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """Losses (K, L, M) of rows and derivatives in g and shapes, finite where the probability is zero."""
    linear, shape = leaves.linear_predictor(sample.x), leaves.shape_parameters(sample.x)
    loss, slopes, _ = family.derivatives(*sample.log_times[:2], linear, shape, basis, second=False)
    parts = [loss, *slopes]
    if family.overflows:
        irrelevant = probability == 0
        for part in parts:
            part.masked_fill_(irrelevant, 0.0)
    return parts[0], parts[1:]


def _leaf_gradient(leaves: LeafParameters, x: DesignMatrix, slopes: list[Tensor]) -> Tensor:
    """Gradient (K, L, d) in the parameters of leaves from weighted derivatives of rows, (K, L, M) each."""
    x, (first, *others) = leaves.features(x), slopes
    parts = [x.pull_back(first)]
    if leaves.shape_slope.shape[-2] == 0:
        parts += [other.sum(-1, keepdim=True) for other in others]
    else:
        shapes = [x.pull_back(other) for other in others]
        parts += [shape[..., -1:] for shape in shapes] + [shape[..., :-1] for shape in shapes]
    return torch.cat(parts, dim=-1)
