"""Rows at risk, events and censorings at each distinct time: what every product limit is made of."""

from typing import NamedTuple

import numpy as np

from sstorch.metrics.checks import BoolArray, FloatArray, IntArray


class RiskSets(NamedTuple):
    """Counts at the distinct observed times; sums of weights where rows have weights.

    Attributes:
        times: distinct observed times, increasing, shape (m,).
        position: of each row among `times`, shape (n,).
        n_events: events at each time, shape (m,).
        n_censored: censorings at each time, shape (m,).
        at_risk: rows observed up to each time or longer, shape (m,).
    """

    times: FloatArray
    position: IntArray
    n_events: FloatArray
    n_censored: FloatArray
    at_risk: FloatArray


def risk_sets(time: FloatArray, event: BoolArray, weight: FloatArray | None = None) -> RiskSets:
    """Count the rows at each distinct time.

    Args:
        time: observed times, shape (n,), checked.
        event: event indicators, shape (n,).
        weight: weights of the rows, shape (n,), or None for one each.
    """
    distinct, position = np.unique(time, return_inverse=True)
    each = 1.0 if weight is None else weight
    n_events: FloatArray = np.bincount(position, weights=event * each).astype(np.float64)
    n_censored: FloatArray = np.bincount(position, weights=~event * each).astype(np.float64)
    at_risk: FloatArray = np.cumsum((n_events + n_censored)[::-1])[::-1]
    return RiskSets(distinct, position, n_events, n_censored, at_risk)
