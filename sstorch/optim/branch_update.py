"""UpdateBranchNode: how a gate is treated, given how evenly it splits its rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree, Topology
from sstorch.nn.routing import most_probable_leaf
from sstorch.objective import Sample, Shards, leaf_losses
from sstorch.optim.steps import LOSS_CEILING


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
class BranchUpdate:
    """What UpdateBranchNode decides for each of K problems at one node.

    Attributes:
        left: routing of each row of I_s before the step, boolean (K, M) for each shard of this process.
        left_share: share of the weight of I_s routed left, (K,); nan where I_s is empty.
        balanced: minimise E over the gates of the working set, boolean (K,).
        high: logistic regression after reassignment, boolean (K,); the others that are not balanced get the
            logistic regression alone.
    """

    left: tuple[Tensor, ...]
    left_share: Tensor
    balanced: Tensor
    high: Tensor

    def select(self, problems: Tensor) -> BranchUpdate:
        """The decisions for the problems at positions (K',)."""
        left = tuple(part[problems] for part in self.left)
        return BranchUpdate(left, self.left_share[problems], self.balanced[problems], self.high[problems])


@torch.no_grad()
def classify(
    tree: SoftTree, rows: Shards, node: int, thresholds: Thresholds, n_training_rows: Tensor
) -> BranchUpdate:
    """Sort problems into balanced, moderately and highly imbalanced at ``node``.

    Args:
        tree: K problems.
        rows: I_s of each problem.
        node: s.
        thresholds: e1, e2 and e3.
        n_training_rows: N of each problem, (K,); where e1 N < 1 every gate is balanced.

    References:
        Consolo, Amaldi and Carrizosa, procedure UpdateBranchNode.
    """
    left = tuple(tree.gate_logits(part.x, [node]).squeeze(1) >= 0 for part in rows.parts)
    on_left = [(part.weight * own).sum(-1) for part, own in zip(rows.parts, left, strict=True)]
    share = rows.total(on_left) / rows.sum(lambda part: part.weight.sum(-1))
    e1, e2 = thresholds.imbalance, thresholds.high_imbalance
    balanced = ((share > e1) & (share < 1 - e1)) | (e1 * n_training_rows < 1)
    high = ~balanced & ((share <= e2) | (share >= 1 - e2))
    return BranchUpdate(left, share, balanced, high)


@torch.no_grad()
def reassign(
    tree: SoftTree, rows: Shards, node: int, update: BranchUpdate, fraction: float
) -> tuple[Tensor, ...]:
    """Labels of the logistic regression: the present routing, rows swapped where the imbalance is high.

    On the crowded side, the given fraction of the rows (at least one) with the largest error term
    sum_n P_in L_n over the leaves under ``node`` is moved to the other side. The error term is a negative
    log density and may be negative: largest is by value. A row without a density at the leaf it would move
    to, under an unconstrained spline that does not fall there, stays.

    Returns:
        boolean (K, M), true for left, for each shard of this process.
    """
    crowded_left = (update.left_share >= 0.5)[:, None]
    errors = []
    for part, left in zip(rows.parts, update.left, strict=True):
        probability = tree.log_leaf_probability(part.x, node).exp()
        losses = leaf_losses(tree, part, tree.topology.leaves_under(node)).clamp(max=LOSS_CEILING)
        crowded = (left == crowded_left) & (part.weight > 0) & _has_density(tree, part, node, crowded_left)
        error = (probability * losses).sum(-2)
        errors.append(torch.where(crowded, error, torch.full_like(error, -torch.inf)))
    whole, own = rows.gather(errors)
    rank = whole.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    count = (whole > -torch.inf).sum(-1, keepdim=True)
    n_swapped = torch.minimum((fraction * count).floor().long().clamp(min=1), count)
    swap = (rank < n_swapped) & update.high[:, None]
    return tuple(left ^ swap[:, where] for left, where in zip(update.left, own, strict=True))


def _has_density(tree: SoftTree, sample: Sample, node: int, to_right: Tensor) -> Tensor:
    """Whether each row has a density at the leaf it reaches from the right (or else the left) child."""
    everywhere = torch.ones_like(sample.weight, dtype=torch.bool)
    found = []
    for child in (2 * node, 2 * node + 1):
        leaves = tree.topology.leaves_under(child)
        defined = tree.family.defined(sample.log_time[:, None, :], tree.shape_parameters(sample.x, leaves))
        if defined is None:
            return everywhere
        leaf = torch.zeros_like(sample.weight, dtype=torch.long)
        if len(leaves) > 1:
            logits = tree.gate_logits(sample.x, tree.topology.branches_under(child))
            leaf = most_probable_leaf(Topology(len(leaves).bit_length() - 1), logits)
        found.append(defined.gather(1, leaf[:, None, :]).squeeze(1))
    return torch.where(to_right, found[1], found[0])


def balancing_weights(rows: Shards, update: BranchUpdate) -> tuple[Tensor, ...]:
    """Row weights o_i of the logistic regression, by the ORIGINAL routing also for swapped rows.

    1 / (2 L_s) for rows routed left and 1 / (2 (1 - L_s)) for the others; a side without rows has no
    weight to give.

    Returns:
        shape (K, M), zero for padding, for each shard of this process.
    """
    weights = []
    for part, left in zip(rows.parts, update.left, strict=True):
        share = torch.where(left, update.left_share[:, None], 1 - update.left_share[:, None])
        weight = part.weight / (2 * share.clamp(min=torch.finfo(share.dtype).tiny)) * (part.weight > 0)
        weights.append(weight)
    return tuple(weights)
