"""Recalibration of the leaves of an exact tree: factors of their cumulative hazards."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.exact.tree import LeafCurves
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
) -> tuple[FloatArray, float, Recalibration]:
    """Factor of the cumulative hazard of each leaf, (L,), exponent of the hazard ratios, and the report.

    The hazard of leaf l becomes exp(a + s g_l) times what it was, with its log hazard ratio g_l, `log_ratio`
    (L,). The estimates maximise the Poisson likelihood, sum of w (d log c - c H), which is that of the rows
    given the form of the curves, H their `expected` cumulative hazard from entry to time (n,); with s = 0
    ("intercept") exp(a) is observed over expected events. Standard errors are those of the sandwich of Huber
    and White, residuals being summed by subject.

    Raises DataError: fewer events than parameters; no expected events; or for ``"slope"``, events where none
    are expected, or in leaves of one hazard ratio alone.
    """
    weighting = check_weighting(data.sample_weight, len(data))
    n_parameters = 1 if how == "intercept" else 2
    n_events = check_events(event, weighting, how, n_parameters, stacklevel=5)
    weight = np.ones(len(data)) if weighting.values is None else weighting.values
    n_leaves = len(log_ratio)
    observed, total = (
        np.bincount(leaf, weight * each, n_leaves).astype(np.float64) for each in (event, expected)
    )
    if total.sum() <= 0:
        raise DataError("the tree expects no event of these rows; use how='baseline'")
    design = np.column_stack([np.ones(n_leaves), log_ratio])[:, :n_parameters]
    moved = np.zeros(n_parameters)
    moved[0] = np.log(observed.sum() / total.sum())
    if how == "slope":
        _check_slope(observed, total, log_ratio)
        moved = _poisson(observed, total, design, moved)
    factor = np.exp(design @ moved)
    scores = (weight * (event - factor[leaf] * expected))[:, None] * design[leaf]
    inverse = np.linalg.inv(design.T @ (design * (factor * total)[:, None]))
    errors = np.sqrt(np.diag(inverse @ covariance_of(scores, data.subject) @ inverse)).tolist()
    slope = 1.0 + float(moved[1]) if how == "slope" else 1.0
    report = Recalibration(
        how,
        len(data),
        n_events,
        float(moved[0]),
        slope,
        {},
        errors[0],
        errors[1] if how == "slope" else None,
        (
            float(observed.sum() / total.sum()),
            float(observed.sum() / (factor @ total)),
        ),
        None,
    )
    return factor, slope, report


def baseline_report(
    data: SurvivalData,
    event: BoolArray,
    expected: tuple[FloatArray, FloatArray],
) -> Recalibration:
    """Report of curves estimated from the rows; `expected` cumulative hazards (n,) before and after."""
    weight = data.sample_weight
    ratios = [float(weight @ event / (weight @ each)) if (weight @ each) > 0 else None for each in expected]
    return Recalibration(
        "baseline", len(data), int(event.sum()), None, None, {}, None, None, (ratios[0], ratios[1]), None
    )


def check_baseline(data: SurvivalData, leaf: IntArray, n_leaves: int) -> None:
    """Require rows in each leaf, and as many events as leaves; a DataWarning where events are few.

    Raises:
        DataError: a leaf has no rows, or there are fewer events than leaves.
    """
    empty = np.flatnonzero(np.bincount(leaf, minlength=n_leaves) == 0)
    if len(empty):
        raise DataError(
            f"how='baseline' estimates the curve of each group from its rows, and group {empty[0] + 1} has "
            "none; give more rows, or take how='intercept'"
        )
    weighting = check_weighting(data.sample_weight, len(data))
    check_events(data.event, weighting, "baseline", n_leaves, stacklevel=5)


def scaled_incidence(
    curves: LeafCurves, hazards: FloatArray, factors: FloatArray
) -> tuple[LeafCurves, FloatArray]:
    """Curves of any event and incidences (L, K, T) of cause-specific `hazards` times factors (L, K).

    At each event time the log survival factor is divided among the causes in proportion to their hazards, and
    each part is multiplied: with one factor for all causes S becomes S^c, and incidences and survival sum to
    one.
    """
    rates = np.diff(hazards, axis=2, prepend=0.0)
    scaled = factors[:, :, None] * rates
    total, wanted = rates.sum(axis=1), scaled.sum(axis=1)
    power = np.divide(wanted, total, out=np.ones_like(total), where=total > 0)
    before = np.column_stack([np.ones(len(curves.survival)), curves.survival[:, :-1]])
    kept = np.divide(curves.survival, before, out=np.ones_like(before), where=before > 0)
    survival = np.cumprod(kept**power, axis=1, dtype=np.float64)
    fall = -np.diff(survival, axis=1, prepend=1.0)
    share = np.divide(scaled, wanted[:, None], out=np.zeros_like(scaled), where=wanted[:, None] > 0)
    incidence = np.cumsum(share * fall[:, None], axis=2)
    return LeafCurves(curves.times, survival, np.cumsum(wanted, axis=1)), incidence


def _check_slope(observed: FloatArray, total: FloatArray, log_ratio: FloatArray) -> None:
    """Require that the estimate exists: events in leaves of two hazard ratios, each with expected events."""
    if (surprising := (observed > 0) & (total <= 0)).any():
        raise DataError(
            f"group {int(surprising.argmax()) + 1} has events where the tree expects none, which no slope "
            "can mend; use how='baseline' or 'intercept'"
        )
    if len(np.unique(log_ratio[observed > 0])) < 2:
        raise DataError("how='slope' needs events in leaves of two hazard ratios; use how='intercept'")


def _poisson(observed: FloatArray, total: FloatArray, design: FloatArray, start: FloatArray) -> FloatArray:
    """Maximum likelihood coefficients of a Poisson regression with offsets log(total), by Newton's method."""
    events, expected, x = (torch.as_tensor(each) for each in (observed, total, design))

    def loss(beta: Tensor) -> Tensor:
        linear = beta @ x.mT
        return (linear.exp() @ expected - linear @ events) / events.sum()

    theta = torch.as_tensor(start)[None]
    found: FloatArray = newton(Smooth(loss), Gaussian.flat(theta), theta, _TOLERANCE).theta[0].numpy()
    return found
