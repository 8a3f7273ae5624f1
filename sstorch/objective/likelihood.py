"""Expected negative log-likelihood of a soft tree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sstorch.nn import HazardFamily, LeafParameters, SoftTree
from sstorch.objective.sample import Sample


def leaf_losses(
    tree: SoftTree, sample: Sample, leaves: Sequence[int], relevant: Tensor | None = None
) -> Tensor:
    """Negative log-likelihood of every row at every leaf, L_n = H - c log h, given survival up to its entry.

    Args:
        tree: R problems.
        sample: rows of the problems.
        leaves: leaf nodes.
        relevant: boolean (R, len(leaves), M), false where the loss will be multiplied by zero; all if None.

    Returns:
        shape (R, len(leaves), M), in model time units.

    References:
        Consolo, Amaldi and Carrizosa, error term L_n(x_i, t_i, c_i).
    """
    return parameter_losses(tree.family, tree.leaf_parameters(leaves), sample, relevant)


def parameter_losses(
    family: HazardFamily, leaves: LeafParameters, sample: Sample, relevant: Tensor | None = None
) -> Tensor:
    """:func:`leaf_losses` of parameters.

    Args:
        family: of the leaves, prepared for the K problems.
        leaves: parameters of L leaves.
        sample: rows of the problems.
        relevant: boolean (K, L, M), false where the loss will be multiplied by zero. There it is set to zero,
            and its gradient kept finite, since 0 x inf is not 0; all if None.
    """
    linear, shape = leaves.linear_predictor(sample.x), leaves.shape_parameters(sample.x)
    log_time = sample.log_time[:, None, :]
    if relevant is not None:
        linear = torch.where(relevant, linear, family.neutral(log_time))
    log_entry = None if sample.log_entry is None else sample.log_entry[:, None, :]
    loss = family.loss(log_time, sample.event[:, None, :], linear, shape, log_entry)
    return loss if relevant is None else torch.where(relevant, loss, torch.zeros_like(loss))


def expected_loss(probability: Tensor, losses: Tensor) -> Tensor:
    """Sum over leaves and rows of probability x loss.

    Args:
        probability: P_in times the normalised row weight, shape (K, L', M).
        losses: shape (K, L', M).

    Returns:
        shape (K,).
    """
    return (probability * losses).sum((-2, -1))
