"""Reports on the recalibration of the leaves of an exact tree, by cause."""

from __future__ import annotations

import math

import numpy as np

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.groups.recalibration import Recalibration, check_events
from sstorch.metrics.weights import check_weighting, covariance_of


def intercept_report(data: SurvivalData, event: BoolArray, expected: FloatArray) -> Recalibration:
    """Log of observed over `expected` events (n,), with the sandwich of subjects. DataError: none of them."""
    weighting = check_weighting(data.sample_weight, len(data))
    n_events = check_events(event, weighting, "intercept", 1)
    weight = np.ones(len(data)) if weighting.values is None else weighting.values
    observed, total = float(weight @ event), float(weight @ expected)
    if total <= 0:
        raise DataError("the tree expects no event of these rows; use how='baseline'")
    ratio = observed / total
    residuals = (weight * (event - ratio * expected))[:, None]
    error = math.sqrt(float(covariance_of(residuals, data.subject)[0, 0])) / observed
    return Recalibration(
        "intercept", len(data), n_events, math.log(ratio), 1.0, {}, error, None, (ratio, 1.0), None
    )


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
