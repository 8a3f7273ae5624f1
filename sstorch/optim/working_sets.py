"""Working sets of training steps: gates (BN), the regression of a gate (WLR), leaves (LN), or any nodes.

Parameters (K, d) are those of the thawed nodes, gates before leaves, node after node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import torch
from torch import Tensor, nn
from typing_extensions import override

from sstorch.batched import SHARED
from sstorch.nn import DesignMatrix, GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.functional import sigmoid_and_softplus, softplus
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.penalties import RowTerm
from sstorch.objective.rows import problem_blocks
from sstorch.objective.training import (
    Routing,
    expected_loss,
    leaf_losses,
    parameter_losses,
)
from sstorch.optim.steps import Batch, Step, StepObjective, by_autograd

# In place of an infinite loss of a leaf whose hazard overflows at a row: gates send the row away from it.
LOSS_CEILING = 1e10


@dataclass(frozen=True)
class BranchObjective(StepObjective):
    """E restricted to a subtree and to I_s as a function of its upper gates, up to a constant."""

    penalties: TrainingObjective
    weight: Tensor  # normalised weight of the rows x expected loss below each end of the gates, (K, F, M)
    gates: GateParameters  # all gates, where the step began
    # positions of the thawed ones, a full binary tree; on the device: a copy at each evaluation would wait
    gate_places: Tensor = field(metadata=SHARED)
    terms: tuple[RowTerm, ...] = field(default=(), kw_only=True)  # of the penalties on rows

    def gates_at(self, x: Tensor) -> tuple[GateParameters, GateParameters]:
        """The thawed gates at their parameters (K, B (p + 1)), and all gates with them."""
        n_gates = len(self.gate_places)
        part = GateParameters.unflatten(x.reshape(len(x), n_gates, self.tree.n_gate_features + 1))
        every = n_gates == self.gates.bias.shape[1]
        return part, part if every else self.gates.replaced(self.gate_places, part)

    @override
    def data(self, x: Tensor) -> Tensor:
        return expected_loss(self.gates_at(x)[0].leaf_probability(self.sample.x), self.weight)

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gates, rows = self.gates_at(x)[0], self.sample.x
        expected, slopes = Routing.of(gates.logits(rows)).expected(self.weight)
        return expected.sum(-1), gates.features(rows).pull_back(slopes).flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        gates = self.gates_at(x)[1]
        return sum((term.value(gates) for term in self.terms), self.penalties.gate_penalty(gates))

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride, (thawed, gates) = self.stride(), self.gates_at(x)
        rows, losses = self.sample.x.thin(stride), self.sample.x.spread(self.weight, stride) * stride
        blocks = gate_curvature(thawed.features(rows), thawed.logits(rows), losses)
        return (plus_diagonal(blocks, self.penalties.gate_curvature(gates)[:, self.gate_places]),)


@dataclass(frozen=True)
class LeafObjective(StepObjective):
    """E restricted to a subtree and to I_s as a function of its leaves, up to a constant."""

    penalties: TrainingObjective
    weight: Tensor  # normalised weight of the rows x P_in within the subtree, (K, L', M)
    leaves: LeafParameters  # all leaves, where the step began
    leaf_places: Tensor = field(metadata=SHARED)  # of the thawed ones
    family: HazardFamily
    basis: Tensor | None  # :meth:`HazardFamily.basis` of the log times
    terms: tuple[RowTerm, ...] = field(default=(), kw_only=True)  # of the penalties on rows

    def leaves_at(self, x: Tensor) -> tuple[LeafParameters, LeafParameters]:
        """The thawed leaves at their parameters (K, L d), and all leaves with them."""
        theta, n_shapes = x.unflatten(1, (len(self.leaf_places), -1)), len(self.tree.family.shape_names)
        part = LeafParameters.unflatten(theta, self.tree.in_features, n_shapes)
        every = theta.shape[1] == self.leaves.intercept.shape[1]
        return part, part if every else self.leaves.replaced(self.leaf_places, part)

    @property
    def is_closed(self) -> bool:
        """Whether gradients in leaves are written out."""
        return self.family.closed_form and self.sample.log_times.is_plain

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not self.is_closed:
            return super().data_and_gradient(x)
        loss, gradient = self.losses_and_gradient(self.leaves_at(x)[0], self.weight)
        return torch.mul(self.weight, loss, out=loss).sum((-2, -1)), gradient.flatten(1)

    def losses_and_gradient(self, leaves: LeafParameters, probability: Tensor) -> tuple[Tensor, Tensor]:
        """Losses of rows, finite where ``probability`` (K, L, M) is 0; gradient (K, L, d) of the product."""
        rows, shape_slopes = self.sample.x, leaves.shape_slope.shape[-2]
        linear, shape = leaves.linear_predictor(rows), leaves.shape_parameters(rows)
        times = self.sample.log_times
        loss, slopes, _ = self.family.derivatives(times, linear, shape, self.basis, second=False)
        if self.family.overflows:
            irrelevant = probability == 0
            for part in (loss, *slopes):
                part.masked_fill_(irrelevant, 0.0)
        x, (first, *others) = leaves.features(rows), [slope.mul_(probability) for slope in slopes]
        shapes = [x.pull_back(each) if shape_slopes else each.sum(-1, keepdim=True) for each in others]
        parts = [x.pull_back(first), *(each[..., -1:] for each in shapes)]
        parts += [each[..., :-1] for each in shapes if shape_slopes]
        return loss, torch.cat(parts, dim=-1)

    @override
    def data(self, x: Tensor) -> Tensor:
        losses = parameter_losses(self.family, self.leaves_at(x)[0], self.sample, self.weight > 0)
        return expected_loss(self.weight, losses)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        leaves = self.leaves_at(x)[1]
        return sum((term.value(leaves) for term in self.terms), self.penalties.leaf_penalty(leaves))

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride, (thawed, leaves) = self.stride(), self.leaves_at(x)
        weight = self.sample.x.spread(self.weight, stride) * stride
        blocks = leaf_curvature(self.family, thawed, self.sample.thin(stride), weight)
        return (penalised_leaves(blocks, self.penalties, leaves, self.leaf_places),)


@dataclass(frozen=True)
class JointObjective(BranchObjective, LeafObjective):
    """E as a function of any gates and leaves; ``weight`` (K, M) is that of the rows."""

    # with the relaxation of penalties that are not smooth in the gates, as a minimiser needs it
    relaxed: bool = field(default=False, metadata=SHARED)

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not self.is_closed:
            return by_autograd(self.data, x)
        (gates, leaves), rows, weight = self._tree_at(x), self.sample.x, self.weight[:, None]
        routing = Routing.of(gates.logits(rows), to_ends=True)
        loss, of_leaves = self.losses_and_gradient(leaves, routing.reach[-1] * weight)
        expected, slopes = routing.expected(loss)
        of_gates = gates.features(rows).pull_back(slopes.mul_(weight))
        own = (of_gates, self.gate_places), (of_leaves, self.leaf_places)
        parts = [each if each.shape[1] == len(at) else each[:, at] for each, at in own]
        return (expected * self.weight).sum(-1), torch.cat([part.flatten(1) for part in parts], dim=1)

    @override
    def data(self, x: Tensor) -> Tensor:
        return self.penalties.plain_data_term(*self._tree_at(x), self.family, self.sample, self.weight)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        gates, leaves = self._tree_at(x)
        rows = self.penalties.parameter_row_penalty(gates, leaves, self.family, self.sample, self.relaxed)
        return self.penalties.gate_penalty(gates) + self.penalties.leaf_penalty(leaves) + rows

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        (gates, leaves), stride, found = self._tree_at(x), self.stride(), []
        rows = self.sample.thin(stride)
        weight = self.sample.x.spread(self.weight, stride)[:, None, :] * stride
        logits = gates.logits(rows.x)
        probability = log_path_probability(self.tree.topology, logits).exp() * weight
        if len(self.gate_places):
            losses = parameter_losses(self.family, leaves, rows, probability > 0).clamp(max=LOSS_CEILING)
            blocks = gate_curvature(gates.features(rows.x), logits, weight * losses)
            blocks = plus_diagonal(blocks, self.penalties.gate_curvature(gates))
            found.append(_of_nodes(blocks, logits.shape[1], self.gate_places))
        if len(self.leaf_places):
            blocks = leaf_curvature(self.family, leaves, rows, probability)
            blocks = _of_nodes(blocks, probability.shape[1], self.leaf_places)
            found.append(penalised_leaves(blocks, self.penalties, leaves, self.leaf_places))
        return tuple(found)

    def _tree_at(self, x: Tensor) -> tuple[GateParameters, LeafParameters]:
        """All gates and leaves, at parameters of the thawed ones."""
        end = len(self.gate_places) * (self.tree.n_gate_features + 1)
        gates = self.gates_at(x[:, :end])[1]
        return gates, self.leaves_at(x[:, end:])[1] if len(self.leaf_places) else self.leaves


def _of_nodes(blocks: Tensor, n_nodes: int, places: Tensor) -> Tensor:
    """Blocks of some of the nodes; diagonals have a block for each parameter of a node."""
    each: Tensor = blocks.unflatten(1, (n_nodes, blocks.shape[1] // n_nodes))
    return each[:, places].flatten(1, 2)


@dataclass(frozen=True)
class LogisticObjective(StepObjective):
    """(1/2) ||w||^2 + sum_i o_i logloss_i of one gate, intercept free: scikit-learn at C = 1."""

    weight: Tensor  # o_i, (K, M)
    left_weight: Tensor  # o_i where the label is left, else 0, (K, M)

    @override
    def data(self, x: Tensor) -> Tensor:
        logits = GateParameters.unflatten(x[:, None]).logits(self.sample.x).squeeze(1)
        return (self.weight * softplus(logits) - self.left_weight * logits).sum(-1)

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, rows = GateParameters.unflatten(x[:, None]), self.sample.x
        logits = gate.logits(rows).squeeze(1)
        left, loss = sigmoid_and_softplus(logits)
        value = loss.mul_(self.weight).addcmul_(self.left_weight, logits, value=-1).sum(-1)
        slope = left.mul_(self.weight).sub_(self.left_weight)
        return value, gate.features(rows).pull_back(slope[:, None]).flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        return x[:, :-1].square().sum(-1) / 2

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride = self.stride()
        rows, weight = self.sample.x.thin(stride), self.sample.x.spread(self.weight, stride) * stride
        gate = GateParameters.unflatten(x[:, None])
        left = torch.sigmoid(gate.logits(rows))
        blocks = feature_blocks(gate.features(rows), weight[:, None] * left * (1 - left))
        ridge = torch.ones_like(x)
        ridge[:, -1] = 0
        return (plus_diagonal(blocks, ridge[:, None]),)


@torch.no_grad()
def branch_step(batch: Batch, node: int) -> Step:
    """BN: thaw the gates of the working set of ``node``: the root alone, or the node and all below it."""
    tree, sample, topology = batch.tree, batch.rows, batch.tree.topology
    nodes = [node] if node == 1 else topology.branches_under(node)
    losses = leaf_losses(tree, sample, topology.leaves_under(node)).clamp(max=LOSS_CEILING)
    if node == 1 and topology.depth > 1:
        below = [tree.log_leaf_probability(sample.x, child).exp() for child in (2, 3)]
        losses = (torch.cat(below, dim=1) * losses).unflatten(1, (2, -1)).sum(2)
    weight, terms = losses * sample.loss_weight[:, None, :], _terms(batch, node, True)
    objective = BranchObjective(tree, sample, batch.penalties, weight, *_gates(batch, nodes), terms=terms)
    return Step("BN", node, batch, _thawed(tree, nodes), objective)


def logistic_step(batch: Batch, node: int, left: Tensor, weight: Tensor) -> Step:
    """WLR: thaw the gate of ``node``, labels ``left`` (K, M) boolean, row weights (K, M)."""
    objective = LogisticObjective(batch.tree, batch.rows, weight, weight * left)
    return Step("WLR", node, batch, _thawed(batch.tree, [node]), objective)


@torch.no_grad()
def leaf_step(batch: Batch, node: int, probability: Tensor | None = None) -> Step:
    """LN: thaw the leaves under ``node``, of probability (K, L', M), the tree's soft routing if None."""
    tree, sample = batch.tree, batch.rows
    nodes = tree.topology.leaves_under(node)
    if probability is None:
        probability = tree.log_leaf_probability(sample.x, node).exp()
    weight, terms = probability * sample.loss_weight[:, None, :], _terms(batch, node, False)
    objective = LeafObjective(tree, sample, batch.penalties, weight, *_leaves(batch, nodes), terms=terms)
    return Step("LN", node, batch, _thawed(tree, nodes), objective, tuple(nodes))


@torch.no_grad()
def joint_step(batch: Batch, nodes: Collection[int] | None = None, relaxed: bool = False) -> Step:
    """Thaw every parameter of the gates and leaves ``nodes``, of all if None."""
    tree, sample, topology = batch.tree, batch.rows, batch.tree.topology
    chosen = [n for n in (*topology.branches, *topology.leaves) if nodes is None or n in nodes]
    given = tree, sample, batch.penalties, sample.loss_weight
    leaves, gates = _leaves(batch, chosen), _gates(batch, chosen)
    objective = JointObjective(*given, *leaves, *gates, relaxed=relaxed)
    of_leaves = tuple(node for node in topology.leaves if node in chosen)
    return Step("JOINT", chosen[0], batch, _thawed(tree, chosen), objective, of_leaves)


def _thawed(tree: SoftTree, nodes: Sequence[int]) -> tuple[nn.Parameter, ...]:
    """Parameters of nodes that have elements."""
    first = tree.topology.leaves[0]
    modules = [tree.gate(n) if n < first else tree.leaf(n) for n in nodes]
    own = [tuple(part for part in each.parameters() if part.numel()) for each in modules]
    return tuple(parameter for part in own for parameter in part)


def _terms(batch: Batch, node: int, of_gates: bool) -> tuple[RowTerm, ...]:
    every = batch.everything
    return () if every is None else batch.penalties.terms(batch.tree, every, node, of_gates)


def _gates(batch: Batch, nodes: Sequence[int]) -> tuple[GateParameters, Tensor]:
    """All gates, and the positions of those among some nodes."""
    places = [n - 1 for n in nodes if n in batch.tree.topology.branches]
    return batch.tree.gate_parameters(), torch.tensor(
        places, dtype=torch.long, device=batch.rows.weight.device
    )


def _leaves(batch: Batch, nodes: Sequence[int]) -> tuple[LeafParameters, Tensor, HazardFamily, Tensor | None]:
    """All leaves, the positions of those among some nodes, their family, and its functions of the times."""
    tree, first = batch.tree, batch.tree.topology.leaves[0]
    places = [n - first for n in nodes if n >= first]
    at = torch.tensor(places, dtype=torch.long, device=batch.rows.weight.device)
    return tree.leaf_parameters(), at, tree.family, tree.family.basis(batch.rows.log_time)


# The largest blocks that are worth their cost, of a node and of all leaves that a prior binds: beyond, only
# diagonals.
MAX_BLOCK, MAX_BOUND = 64, 1024


def gate_curvature(x: DesignMatrix, logits: Tensor, losses: Tensor) -> Tensor:
    """Curvature of gates by ``logits`` (K, B, M) and weighted ``losses`` (K, B + 1, M)."""
    slopes = Routing.of(logits).expected(losses)[1]
    return feature_blocks(x, (slopes * (1 - 2 * torch.sigmoid(logits))).abs_())


def leaf_curvature(
    family: HazardFamily, leaves: LeafParameters, sample: Sample, probability: Tensor
) -> Tensor:
    """Curvature (K, L, d, d) of the expected loss in leaves, weighted ``probability`` (K, L, M)."""
    count = 1 + leaves.shape.shape[-1]
    parts = []
    for some in problem_blocks(len(probability), count * probability[0].numel(), probability.device):
        hazard, parameters = family.select(some), leaves.select(some)
        rows, reach = sample.select(some), probability[some]
        linear, shape = parameters.linear_predictor(rows.x), parameters.shape_parameters(rows.x)
        pairs = hazard.derivatives(rows.log_times, linear, shape, hazard.basis(rows.log_time))[2]
        weighted = {
            pair: torch.nan_to_num(torch.where(reach > 0, reach * second, 0.0), 0.0, 0.0, 0.0)
            for pair, second in pairs.items()
        }
        parts.append(
            _leaf_blocks(leaves.features(rows.x), weighted, count - 1, n_slopes=leaves.shape_slope.shape[-2])
        )
    return torch.cat(parts)


def _leaf_blocks(
    x: DesignMatrix, pairs: dict[tuple[int, int], Tensor], n_shape: int, n_slopes: int
) -> Tensor:
    """Blocks of leaves from second derivatives of rows, (K, L, M) for each pair of g and m shapes."""
    n_features, zero = x.shape[-1], torch.zeros_like(pairs[0, 0])
    size = (n_features + 1) + n_shape + n_slopes * n_features
    if size > MAX_BLOCK:
        first = [_squares(x, pairs[0, 0])]
        shapes = [_squares(x, pairs.get((k, k), zero)) for k in range(1, n_shape + 1)]
        first += [shape[..., -1:] for shape in shapes]
        return _diagonal(torch.cat(first + [shape[..., :-1] for shape in shapes] * (n_slopes > 0), dim=-1))
    parts = [[zero] * (n_shape + 1) for _ in range(n_shape + 1)]
    for j, k in combinations_with_replacement(range(n_shape + 1), 2):
        rows = pairs.get((j, k), zero)
        if n_slopes or k == 0:
            part = x.gram(rows)
        else:
            part = rows.sum(-1)[..., None, None] if j else x.pull_back(rows)[..., None]
        parts[j][k], parts[k][j] = part, part.mT
    whole = torch.cat([torch.cat(row, dim=-1) for row in parts], dim=-2)
    if not n_slopes:
        return whole
    # From slopes and constant of g, of shape 1, ... to the order of the leaf's parameters.
    places = torch.arange(whole.shape[-1], device=whole.device).reshape(n_shape + 1, -1)
    order = torch.cat([places[0], places[1:, -1], places[1:, :-1].flatten()])
    return whole[..., order, :][..., order]


def feature_blocks(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Moments of features and a one by weights (K, n, M): blocks (K, n, p + 1, p + 1), or their diagonals."""
    if x.shape[-1] + 1 <= MAX_BLOCK:
        return x.gram(weight)
    return _diagonal(_squares(x, weight))


def plus_diagonal(curvature: Tensor, values: Tensor) -> Tensor:
    """Blocks with values (K, n, b) added to their diagonals."""
    if curvature.shape[-1] == 1:
        return curvature + _diagonal(values)
    return curvature + torch.diag_embed(values)


def penalised_leaves(
    blocks: Tensor, penalties: TrainingObjective, leaves: LeafParameters, places: Tensor
) -> Tensor:
    """Blocks of leaves at some places with penalties; one of all that a prior binds, unless it is large."""
    diagonal = penalties.leaf_curvature(leaves)[:, places]
    n_leaves, size = diagonal.shape[1:]
    blocks = plus_diagonal(blocks, diagonal)
    if penalties.prior is None or n_leaves * size > MAX_BOUND:
        return blocks
    whole = penalties.prior.hessian(leaves)[:, places][..., places, :]
    whole.diagonal(dim1=1, dim2=3).diagonal(dim1=1, dim2=2).zero_()
    if blocks.shape[-1] != size:
        blocks = torch.diag_embed(blocks.reshape(len(blocks), n_leaves, size))
    for number in range(n_leaves):
        whole[:, number, :, number] += blocks[:, number]
    return whole.reshape(len(whole), 1, n_leaves * size, n_leaves * size)


def _squares(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Weighted sums of squared features and of ones, (K, n, p + 1)."""
    return DesignMatrix(x.to_dense().square(), x.counts, x.rows).pull_back(weight)


def _diagonal(values: Tensor) -> Tensor:
    """Blocks of size one, (K, n b, 1, 1), from diagonals (K, n, b)."""
    return values.flatten(1)[..., None, None]
