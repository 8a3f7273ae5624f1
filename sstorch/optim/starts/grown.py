"""Soft trees grown level by level: each level begins from the trained tree of the one before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.nn import SoftTree
from sstorch.nn.design_matrix import first_features
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.joint import Joint
from sstorch.optim.lbfgs import LBFGSOptions
from sstorch.optim.starts.clusters import fit_leaves, start_leaves
from sstorch.optim.starts.hard import SHARPNESS, StartDraw, draw_starts

# Events that each side of a new split must have.
MIN_EVENTS = 5
# The levels above the last are trained to a place to grow from, not to the end.
_LEVEL = Joint(LBFGSOptions(max_iterations=200))
_TINY = 1e-300


def initialize_grown(
    tree: SoftTree,
    objective: TrainingObjective,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
) -> None:
    """Grow trees level by level: split every leaf where its own model fits worst, train, split again.

    A single leaf is trained first. Then, level by level, the rows of every leaf are split where an effect of
    the sides on the hazard, with the leaf's model as offset, has the largest likelihood ratio; the new leaves
    are fitted to their rows, or are copies of the one they came from where that has the lower objective; and
    all parameters of the tree are trained together. The last level is left to the trainer. A leaf that cannot
    be split sends its rows left.

    The first start of a split sees all of its rows and columns when it looks for splits, the others a
    bootstrap sample and a random half of the columns, as in `initialize_greedy`.

    Args:
        tree: R problems, ordered by split; changed in place.
        objective: minimised at every level.
        sample: training rows.
        seeds: one per problem.

    References:
        LeBlanc and Crowley (1992), Biometrics 48, 411-425, on the deviance of a split given a hazard;
        Zeileis, Hothorn and Hornik (2008), JCGS 17, 492-514, on growing trees of models.
    """
    matrices = first_features(sample.x, tree.n_gate_features).matrices.double().cpu().numpy()
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    weight = sample.weight.double().cpu().numpy()
    draws = draw_starts(matrices.shape[-1], weight, split, seeds)
    orders = [np.argsort(x, axis=0, kind="stable") for x in matrices]
    grown = _like(tree, 0)
    start_leaves(grown, sample)
    for depth in range(1, tree.topology.depth + 1):
        _LEVEL.train(grown, objective, sample)
        leaf, hazard = _state(grown, sample)
        deeper = _like(tree, depth)
        _copy(grown, deeper)
        for problem, draw in enumerate(draws):
            number = int(split[problem])
            event = draw.repeats * sample.event[problem].double().cpu().numpy()
            splits = split_leaves(
                matrices[number],
                orders[number],
                leaf[problem],
                len(grown.topology.leaves),
                event,
                draw.repeats * hazard[problem],
                weight[problem],
                draw,
            )
            _write(deeper, problem, grown.topology.leaves, *splits)
        _fit(deeper, objective, sample)
        grown = deeper
    with torch.no_grad():
        tree.assign(torch.arange(tree.n_problems, device=tree.log_time_scale.device), grown)


def split_leaves(
    x: FloatArray,
    order: npt.NDArray[np.int64],
    leaf: npt.NDArray[np.int64],
    n_leaves: int,
    events: FloatArray,
    hazard: FloatArray,
    weight: FloatArray,
    draw: StartDraw,
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """The split x_j <= threshold of each leaf with the largest deviance explained, given a hazard.

    With E events and summed cumulative hazard H on a side, the likelihood ratio of one hazard ratio per side
    is twice the sum over sides of E log(E / H), less that of the whole. Row weights count in E and H; how
    many events a side has does not depend on them.

    Args:
        x: features, shape (n, p).
        order: rows in rising order of each feature, shape (n, p).
        leaf: of each row, shape (n,).
        n_leaves: L.
        events: events drawn, shape (n,).
        hazard: cumulative hazards at the rows' times, for all draws of a row, shape (n,).
        weight: row weights, shape (n,).
        draw: which features may split.

    Returns:
        feature of each leaf, -1 where no split leaves enough events on both sides, shape (L,); threshold,
        halfway to the next row of the leaf, shape (L,).
    """
    feature, threshold = np.full(n_leaves, -1, dtype=np.int64), np.zeros(n_leaves)
    columns = np.arange(x.shape[1]) if draw.features is None else draw.features
    for number in range(n_leaves):
        inside = (leaf == number) & (draw.repeats > 0)
        if events[inside].sum() < 2 * MIN_EVENTS:
            continue
        weighted, offset = weight * events, weight * hazard
        total, best = _deviance(weighted[inside].sum(), offset[inside].sum()), 0.0
        for j in columns:
            rows = order[:, j]
            rows = rows[inside[rows]]
            values = x[rows, j]
            # A cut behind the last row of each value, the largest excepted.
            cuts = np.flatnonzero(values[1:] > values[:-1])
            if len(cuts) == 0:
                continue
            e, h, count = weighted[rows].cumsum(), offset[rows].cumsum(), events[rows].cumsum()
            gain = _deviance(e[cuts], h[cuts]) + _deviance(e[-1] - e[cuts], h[-1] - h[cuts]) - total
            gain[np.minimum(count[cuts], count[-1] - count[cuts]) < MIN_EVENTS] = 0.0
            if gain.max() > best:
                best, cut = float(gain.max()), cuts[gain.argmax()]
                feature[number], threshold[number] = j, (values[cut] + values[cut + 1]) / 2
    return feature, threshold


def _deviance(events: FloatArray | float, hazard: FloatArray | float) -> FloatArray:
    """E log(E / H)."""
    explained: FloatArray = events * np.log(np.maximum(events, _TINY) / np.maximum(hazard, _TINY))
    return explained


@torch.no_grad()
def _state(tree: SoftTree, sample: Sample) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Leaf of each row, and its cumulative hazard there from its entry to its own time, (R, M) each."""
    leaf = tree.apply_leaf(sample.x)
    total = torch.zeros_like(sample.log_time)
    for position, node in enumerate(tree.topology.leaves):
        linear, shape = tree.linear_predictor(sample.x, [node]), tree.shape_parameters(sample.x, [node])
        parameters = linear[..., None], shape[..., None, :]

        def hazard(log_time: Tensor, parameters: tuple[Tensor, Tensor] = parameters) -> Tensor:
            return tree.family.cumulative_hazard(log_time[:, None, :, None], *parameters)[:, 0, :, 0]

        accumulated = hazard(sample.log_time)
        if sample.log_entry is not None:
            late = sample.log_entry.isfinite()
            before = hazard(torch.where(late, sample.log_entry, sample.log_time))
            accumulated = accumulated - torch.where(late, before, torch.zeros_like(before))
        total = torch.where(leaf == position, accumulated, total)
    # A leaf that overflows for some rows says nothing of the others.
    limit = torch.finfo(torch.float64).max / (1 + total.shape[-1]) ** 2
    return leaf.cpu().numpy(), total.double().clamp(0, limit).cpu().numpy()


def _like(tree: SoftTree, depth: int) -> SoftTree:
    """A tree of another depth over the same problems."""
    other = SoftTree(
        tree.n_features,
        depth,
        tree.family,
        tree.batch_shape,
        tree.log_time_scale.device,
        tree.log_time_scale.dtype,
        tree.n_gate_features,
    )
    other.log_time_scale.copy_(tree.log_time_scale)
    return other


@torch.no_grad()
def _copy(tree: SoftTree, deeper: SoftTree) -> None:
    """Gates of a tree, and its leaves twice, into one that is a level deeper; its last gates send left."""
    for node in tree.topology.branches:
        deeper.gate(node).load_state_dict(tree.gate(node).state_dict())
    for node in tree.topology.leaves:
        deeper.gate(node).bias.fill_(SHARPNESS)
        for child in (2 * node, 2 * node + 1):
            deeper.leaf(child).load_state_dict(tree.leaf(node).state_dict())


@torch.no_grad()
def _write(
    tree: SoftTree,
    problem: int,
    nodes: Sequence[int],
    feature: npt.NDArray[np.int64],
    threshold: FloatArray,
) -> None:
    """Splits as gates sigmoid(k (threshold - x_j)) of a problem."""
    for node, j, value in zip(nodes, feature.tolist(), threshold.tolist(), strict=True):
        if j >= 0:
            tree.gate(node).weight[problem, j] = -SHARPNESS
            tree.gate(node).bias[problem] = SHARPNESS * value


def _fit(tree: SoftTree, objective: TrainingObjective, sample: Sample) -> None:
    """Fit new leaves to their rows in those problems where that lowers the objective."""
    fitted = tree.select(torch.arange(tree.n_problems, device=tree.log_time_scale.device))
    fit_leaves(fitted, objective, sample, fitted.apply_leaf(sample.x))
    with torch.no_grad():
        better: Tensor = objective(fitted, sample) < objective(tree, sample)
    chosen = better.nonzero()[:, 0]
    tree.assign(chosen, fitted.select(chosen))
