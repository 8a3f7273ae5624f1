"""Initial solutions of spline leaves by least squares onto a Cox model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from sstorch.nn import SoftTree, Spline
from sstorch.objective import Sample
from sstorch.optim.cox_model import cox_cumulative_hazards
from sstorch.optim.initialization import initialize_random

FloatArray = npt.NDArray[np.float64]

# Penalty of the Cox model and of the least squares: one-hot columns are collinear, and draws can be small.
_PENALTY = 1e-3
# Smallest weight of a function of the spline basis: log 0 is no parameter.
_SMALLEST = 1e-3
# Numbers in the drawn rows of the Cox models that are fitted at a time.
_ELEMENTS = 2**24


def initialize_cox(tree: SoftTree, sample: Sample, seeds: Sequence[np.random.SeedSequence]) -> None:
    """Random gates; spline leaves fitted by least squares to the curves of a Cox model.

    For each leaf a share 1/L of the rows with an event is drawn with replacement and a Cox model is fitted to
    them. Its cumulative hazard at each drawn row, on the scale of the spline, is regressed on the spline
    basis and x, with weights of the basis that are positive, so that the curve falls. A leaf whose Cox model
    cannot be fitted keeps the start of :func:`initialize_random`.

    Args:
        tree: R problems with :class:`~sstorch.nn.Spline` leaves; changed in place.
        sample: training rows.
        seeds: one per problem.

    References:
        Consolo, Amaldi and Carrizosa, initialisation of spline leaves.
    """
    family = tree.family
    if not isinstance(family, Spline):
        raise TypeError(f"leaves are {family.name}, not splines")
    initialize_random(tree, sample, seeds)
    design = family.design(sample.log_time).double().cpu().numpy()
    log_time, event, weight = (
        part.double().cpu().numpy() for part in (sample.log_time, sample.event, sample.weight)
    )
    entry = np.zeros_like(log_time)
    if sample.log_entry is not None:
        entry = sample.log_entry.double().exp().cpu().numpy()
    matrices = sample.x.matrices.double().cpu().numpy()
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    # The leaves of a few problems at a time: their drawn rows are copied.
    size = max(1, _ELEMENTS // (np.count_nonzero(event, axis=1).max() * matrices.shape[-1]))
    for first in range(0, len(seeds), size):
        drawn = _draw(tree, weight, event, seeds, range(first, min(first + size, len(seeds))))
        longest = max(len(rows) for _, _, rows in drawn)
        rows = np.stack([np.resize(rows, longest) for _, _, rows in drawn])
        counts = np.arange(longest) < np.array([[len(rows)] for _, _, rows in drawn])
        problem = np.array([[problem] for _, problem, _ in drawn])
        hazards = cox_cumulative_hazards(
            torch.as_tensor(matrices[split[problem], rows]),
            torch.as_tensor(np.exp(log_time[problem, rows])),
            torch.as_tensor(entry[problem, rows]),
            torch.as_tensor(counts, dtype=torch.float64),
            _PENALTY,
        )
        for (node, own, rows_of_leaf), hazard in zip(drawn, hazards, strict=True):
            hazard = hazard[: len(rows_of_leaf)]
            if bool((hazard.isfinite() & (hazard > 0)).all()):
                x = matrices[split[own]][rows_of_leaf]
                target = family.to_scale(hazard).numpy()
                solution = _least_squares(design[own, rows_of_leaf], x, target)
                _write(tree, node, own, *(torch.as_tensor(part) for part in solution))


def _draw(
    tree: SoftTree,
    weight: FloatArray,
    event: FloatArray,
    seeds: Sequence[np.random.SeedSequence],
    problems: Iterable[int],
) -> list[tuple[int, int, npt.NDArray[np.int64]]]:
    """Leaf, problem and rows of every draw of rows with an event."""
    drawn = []
    for problem in problems:
        draws = np.random.default_rng(seeds[problem].spawn(1)[0])
        chance = weight[problem] * event[problem]
        count = max(1, round(np.count_nonzero(chance) / len(tree.topology.leaves)))
        for node in tree.topology.leaves:
            drawn.append((node, problem, draws.choice(len(chance), count, p=chance / chance.sum())))
    return drawn


def _least_squares(design: FloatArray, x: FloatArray, target: FloatArray) -> tuple[FloatArray, ...]:
    """Intercept, weights of the spline basis and slopes of a leaf."""
    n_basis, n_features = design.shape[1], x.shape[1]
    usable = np.isfinite(target)
    matrix = np.column_stack([np.ones(len(target)), design, x])[usable]
    penalty = np.sqrt(_PENALTY * usable.sum()) * np.eye(matrix.shape[1])[1 + n_basis :]
    lower = np.r_[-np.inf, np.full(n_basis, _SMALLEST), np.full(n_features, -np.inf)]
    fit = lsq_linear(
        np.vstack([matrix, penalty]), np.r_[target[usable], np.zeros(n_features)], (lower, np.inf)
    )
    return fit.x[0], fit.x[1 : 1 + n_basis], fit.x[1 + n_basis :]


@torch.no_grad()
def _write(
    tree: SoftTree, node: int, problem: int, intercept: Tensor, weights: Tensor, slope: Tensor
) -> None:
    family, leaf = tree.family, tree.leaf(node)
    leaf.intercept[problem] = intercept.to(leaf.intercept)
    leaf.slope[problem] = slope.to(leaf.slope)
    shape = weights.log() if isinstance(family, Spline) and family.monotone else weights
    leaf.shape[problem, : len(shape)] = shape.to(leaf.shape)
