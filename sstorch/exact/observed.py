"""Observed: the outcomes of rows as estimates of hazards and curves take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray
from sstorch.data import as_surv
from sstorch.exact.rounding import whole_weights
from sstorch.exact.targets import check_weights
from sstorch.metrics import outcome
from sstorch.metrics.outcome import read_rows


@dataclass(frozen=True)
class Observed:
    """Outcomes of rows: times, events, entry times, weights."""

    time: FloatArray  # (N,), observed times
    event: BoolArray  # (N,) bool, whether the event was observed; False in rows of weight 0
    # (N,), times from which rows were at risk, -inf from the beginning; None if all were
    entry: FloatArray | None
    weight: FloatArray  # (N,), weights as whole numbers of `unit`, so that sums are exact
    unit: float  # weight that counts as one; 1 where weights are integers

    @classmethod
    def of(cls, y: object, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Check outcomes of one event, and weights (N,) >= 0, one each if None.

        Raises:
            DataError: see `sstorch.data.as_surv`; or weights that are negative, not finite, or all 0.
        """
        rows = read_rows(as_surv(y), "an exact tree", entry=True, weight=True)
        weight, unit = whole_weights(check_weights(sample_weight, len(rows.time)))
        return cls(rows.time, rows.event & (weight > 0.0), rows.entry, weight, unit)

    @property
    def weighted(self) -> outcome.Observed:
        """The rows as metrics take them."""
        return outcome.Observed(self.time, self.event, self.entry, self.weight)

    @cached_property
    def smallest(self) -> float:
        """The smallest positive weight: half of it counts where half an event does among equal weights."""
        return float(self.weight[self.weight > 0.0].min())

    @cached_property
    def least_hazard(self) -> float:
        """Hazard in place of none: 1 / (N + 1), N the sum of weights as multiples of the smallest one.

        It does not depend on the scale of weights, and is that of repeated rows where weights count these.
        """
        return self.smallest / (float(self.weight.sum()) + self.smallest)
