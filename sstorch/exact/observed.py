"""The outcomes of rows as estimates of hazards and curves take them: with weights as whole numbers."""

from __future__ import annotations

import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.data import as_surv
from sstorch.exact.rounding import whole_weights
from sstorch.exact.targets import check_weights
from sstorch.metrics.outcome import Observed, read_rows


def weighted_rows(y: object, sample_weight: npt.ArrayLike | None = None) -> Observed:
    """Check outcomes of one event, and weights (N,) >= 0, one each if None.

    Weights become whole numbers, so that sums are exact; rows of weight 0 have no event.

    Raises:
        DataError: see `sstorch.data.as_surv`; or weights that are negative, not finite, or all 0.
    """
    outcome = as_surv(y)
    rows = read_rows(outcome, "an exact tree", entry=True, weight=True)
    weight, _ = whole_weights(check_weights(sample_weight, len(rows.time), y=outcome))
    return Observed(rows.time, rows.event & (weight > 0.0), rows.entry, weight)


def smallest(weight: FloatArray) -> float:
    """The smallest positive weight: half of it counts where half an event does among equal weights."""
    return float(weight[weight > 0.0].min())


def least_hazard(weight: FloatArray) -> float:
    """Hazard in place of none: 1 / (N + 1), N the sum of weights as multiples of the smallest one.

    It does not depend on the scale of weights, and is that of repeated rows where weights count these.
    """
    return smallest(weight) / (float(weight.sum()) + smallest(weight))
