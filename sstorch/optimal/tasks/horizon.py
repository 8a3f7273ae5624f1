"""Classification of survival times at a horizon."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch.data import parse_target
from sstorch.exceptions import DataError
from sstorch.metrics import censoring_distribution
from sstorch.optimal.tasks.base import FloatArray, IntArray


class HorizonLabels(NamedTuple):
    """Whether the event came, and how much each row counts.

    Attributes:
        labels: (N,), 1 where the event was seen up to the horizon, else 0.
        weights: (N,), inverse probability of censoring weights, 0 where censored before the horizon.
    """

    labels: IntArray
    weights: FloatArray


def horizon_labels(time: npt.ArrayLike, event: npt.ArrayLike, horizon: float) -> HorizonLabels:
    """Labels and weights with which any classifier learns "event up to the horizon?" from censored rows.

    Rows whose event was seen by then weigh 1 / G(t-), those observed up to the horizon without one, or
    longer, 1 / G(horizon-), and those censored before tell nothing: 0. G is the Kaplan-Meier estimate of the
    censoring distribution, P(C > t), of all rows, events before censorings where they are tied: who was
    censored at the horizon itself is known to have had no event by then. The weighted share of misclassified
    rows is then a consistent estimate of the share without censoring, if censoring does not depend on X.

    Args:
        time: observed times, (N,).
        event: True or 1 where the event was observed, (N,).
        horizon: > 0, in the unit of the times.

    Raises:
        DataError: see `sstorch.data.parse_target`; a horizon that is not positive, or up to which no row was
            observed without an event (then nothing is known of those who live longer), or without any event
            up to it.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> labels, weights = horizon_labels([1.0, 2.0, 3.0, 5.0, 6.0], [1, 0, 1, 0, 1], horizon=4.0)
        >>> labels.tolist(), weights.round(3).tolist()
        ([1, 0, 1, 0, 0], [1.0, 0.0, 1.333, 1.333, 1.333])
    """
    times, events = parse_target((time, event))
    if not (np.isfinite(horizon) and horizon > 0.0):
        raise DataError(f"horizon={horizon}: expected a time > 0")
    early = events & (times <= horizon)
    alive = (times > horizon) | ((times == horizon) & ~events)
    if not alive.any():
        last = f"the last time is {times.max():g}"
        raise DataError(
            f"horizon={horizon:g}: no row was observed so long without event, {last}; choose an earlier one"
        )
    if not early.any():
        raise DataError(f"horizon={horizon:g}: no row has an event up to then; choose a later horizon")
    censoring = censoring_distribution(times, events)
    weights = np.zeros(len(times))
    weights[early] = 1.0 / censoring.before(times[early])
    weights[alive] = 1.0 / float(censoring.before(np.array([horizon]))[0])
    return HorizonLabels(early.astype(np.int64), weights)
