"""Recalibration of the leaves of an exact tree: factors of their cumulative hazards."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.groups.recalibration import Recalibration, check_events
from sstorch.groups.tree import Recalibrate
from sstorch.metrics.weights import check_weighting, covariance_of
from sstorch.newton import Gaussian, Smooth, newton

# Of the gain of the last step, in nats per event.
_TOLERANCE = 1e-16


def leaf_factors(
    data: SurvivalData,
    event: BoolArray,
    leaf: IntArray,
    expected: FloatArray,
    log_ratio: FloatArray,
    how: Recalibrate,
) -> tuple[FloatArray, Recalibration]:
    """Factor exp(a + s g_l) of the cumulative hazard of each leaf, (L,), and the report.

    g is the `log_ratio` (L,), s = 0 for "intercept". The estimates maximise the Poisson likelihood, sum of
    w (d log c - c H), H the `expected` cumulative hazard (n,); errors are of the sandwich by subject.

    Raises DataError: fewer events than parameters; no expected events; or for ``"slope"``, events where none
    are expected, or in leaves of one hazard ratio alone.
    """
    with_slope, n_leaves = how == "slope", len(log_ratio)
    weighting = check_weighting(data.sample_weight, len(data))
    n_events = check_events(event, weighting, how, 1 + with_slope)
    weight = np.ones(len(data)) if weighting.values is None else weighting.values
    observed, total = (
        np.bincount(leaf, weight * each, n_leaves).astype(np.float64) for each in (event, expected)
    )
    if total.sum() <= 0:
        raise DataError("the tree expects no event of these rows; use how='baseline'")
    design = np.column_stack([np.ones(n_leaves), log_ratio])[:, : 1 + with_slope]
    moved = np.zeros(1 + with_slope)
    moved[0] = np.log(observed.sum() / total.sum())
    if with_slope:
        if (surprising := (observed > 0) & (total <= 0)).any():
            raise DataError(
                f"group {int(surprising.argmax()) + 1} has events where the tree expects none, which no "
                "slope can mend; use how='baseline' or 'intercept'"
            )
        if len(np.unique(log_ratio[observed > 0])) < 2:
            raise DataError("how='slope' needs events in leaves of two hazard ratios; use how='intercept'")
        moved = _poisson(observed, total, design, moved)
    factor = np.exp(design @ moved)
    scores = (weight * (event - factor[leaf] * expected))[:, None] * design[leaf]
    inverse = np.linalg.inv(design.T @ (design * (factor * total)[:, None]))
    errors = np.sqrt(np.diag(inverse @ covariance_of(scores, data.subject) @ inverse)).tolist()
    slope = 1.0 + float(moved[1]) if with_slope else 1.0
    ratios = float(observed.sum() / total.sum()), float(observed.sum() / (factor @ total))
    both = errors[0], errors[1] if with_slope else None
    return factor, Recalibration(how, len(data), n_events, float(moved[0]), slope, {}, *both, ratios, None)


def baseline_report(
    data: SurvivalData, event: BoolArray, before: FloatArray, after: FloatArray
) -> Recalibration:
    """Report of curves estimated from the rows; expected cumulative hazards (n,) `before` and `after`."""
    weight = data.sample_weight
    first, last = (float(weight @ event / (weight @ h)) if weight @ h > 0 else None for h in (before, after))
    n_events = int(event.sum())
    return Recalibration("baseline", len(data), n_events, None, None, {}, None, None, (first, last), None)


def check_baseline(data: SurvivalData, leaf: IntArray, n_leaves: int) -> None:
    """DataError: a leaf has no rows, or there are fewer events than leaves; DataWarning: few events."""
    empty = np.flatnonzero(np.bincount(leaf, minlength=n_leaves) == 0)
    if len(empty):
        raise DataError(
            f"how='baseline' estimates the curve of each group from its rows, and group {empty[0] + 1} has "
            "none; give more rows, or take how='intercept'"
        )
    check_events(data.event, check_weighting(data.sample_weight, len(data)), "baseline", n_leaves)


def _poisson(observed: FloatArray, total: FloatArray, design: FloatArray, start: FloatArray) -> FloatArray:
    """Maximum likelihood coefficients of a Poisson regression with offsets log(total)."""
    events, expected, x = (torch.as_tensor(each) for each in (observed, total, design))

    def loss(beta: Tensor) -> Tensor:
        linear = beta @ x.mT
        return (linear.exp() @ expected - linear @ events) / events.sum()

    theta = torch.as_tensor(start)[None]
    found: FloatArray = newton(Smooth(loss), Gaussian.flat(theta), theta, _TOLERANCE).theta[0].numpy()
    return found
