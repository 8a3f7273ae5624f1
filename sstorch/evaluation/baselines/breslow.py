"""Breslow's baseline hazard, for models of a log relative risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from sstorch.metrics.risk_sets import risk_sets

FloatArray = npt.NDArray[np.float64]

# Its exponential is a number of float64, and large enough for S = 0.
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class BreslowBaseline:
    """Cumulative baseline hazard, a step function.

    Sums over the rows at risk are added up from the last time on, never subtracted: where risks differ by
    many orders of magnitude, differences of such sums are rounding noise and can be negative.

    Attributes:
        jumps: distinct training times, shape (n_jumps,).
        hazard: cumulative hazard at the jumps of a row with the largest training risk, shape (n_jumps,).
        largest: log risk of that row.
    """

    jumps: FloatArray
    hazard: FloatArray
    largest: float

    @classmethod
    def of(cls, log_risk: FloatArray, time: FloatArray, event: npt.NDArray[np.bool_]) -> Self:
        """Estimate it.

        Args:
            log_risk: of the training rows, shape (n,).
            time: observed times, shape (n,).
            event: event indicators, shape (n,).
        """
        largest = float(log_risk.max())
        sets = risk_sets(time, event, np.exp(log_risk - largest))
        n_events = np.bincount(sets.position, weights=event)
        share = np.divide(n_events, sets.at_risk, out=np.zeros_like(n_events), where=n_events > 0)
        return cls(sets.times, np.cumsum(share), largest)

    def survival(self, log_risk: FloatArray) -> FloatArray:
        """S at the jumps, shape (n, n_jumps), of rows with these log risks, shape (n,)."""
        # An infinite risk would make NaN of a hazard of 0.
        risk = np.exp(np.minimum(log_risk - self.largest, _LARGEST_LOG))
        with np.errstate(over="ignore"):
            curves: FloatArray = np.exp(-np.outer(risk, self.hazard))
        return curves
