"""Initial solutions of spline leaves by least squares onto a Cox model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from sstorch.nn import SoftTree, Spline
from sstorch.objective import Sample
from sstorch.optim.initialization import initialize_random

FloatArray = npt.NDArray[np.float64]

# Penalty of the Cox model and of the least squares: one-hot columns are collinear, and draws can be small.
_PENALTY = 1e-3
# Smallest weight of a function of the spline basis: log 0 is no parameter.
_SMALLEST = 1e-3


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
    for problem, seed in enumerate(seeds):
        draws = np.random.default_rng(seed.spawn(1)[0])
        chance = weight[problem] * event[problem]
        count = max(1, round(np.count_nonzero(chance) / len(tree.topology.leaves)))
        for node in tree.topology.leaves:
            rows = draws.choice(len(chance), count, p=chance / chance.sum())
            x = matrices[split[problem]][rows]
            hazard = _cox_cumulative_hazard(x, np.exp(log_time[problem, rows]), entry[problem, rows])
            if hazard is not None:
                target = family.to_scale(torch.as_tensor(hazard)).numpy()
                solution = _least_squares(design[problem, rows], x, target)
                _write(tree, node, problem, *(torch.as_tensor(part) for part in solution))


def _cox_cumulative_hazard(x: FloatArray, time: FloatArray, entry: FloatArray) -> FloatArray | None:
    """H of each row at its own time by a Cox model of rows that all have an event; None where it fails."""
    # Imported here: lifelines takes seconds to import.
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    varies = np.ptp(x, axis=0) > 0
    if not varies.any():
        return None
    frame = pd.DataFrame(x[:, varies]).assign(time=time)
    late = {}
    if entry.any():
        frame, late = frame.assign(entry=entry), {"entry_col": "entry"}
    try:
        with warnings.catch_warnings():
            # Columns that separate the few drawn rows: the penalty keeps the coefficients finite.
            warnings.simplefilter("ignore")
            model = CoxPHFitter(penalizer=_PENALTY).fit(frame, "time", **late)
    except ConvergenceError:
        return None
    baseline = model.baseline_cumulative_hazard_.iloc[:, 0]
    own = baseline.to_numpy()[np.searchsorted(baseline.index.to_numpy(), time)]
    hazard: FloatArray = own * model.predict_partial_hazard(frame).to_numpy()
    return hazard if np.isfinite(hazard).all() and (hazard > 0).all() else None


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
