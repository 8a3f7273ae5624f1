"""Classification of events up to a horizon: labels and censoring weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.data.target import parse_target, time_of_rows
from sstorch.exceptions import DataError
from sstorch.metrics import censoring_distribution


class HorizonLabels(NamedTuple):
    """Classes and weights of rows.

    Attributes:
        labels: (N,), 1 for an observed event up to the horizon, else 0.
        weights: (N,), inverse probability of censoring weights, 0 if censored before the horizon.
    """

    labels: IntArray
    weights: FloatArray


def horizon_labels(time: npt.ArrayLike, event: npt.ArrayLike, horizon: float) -> HorizonLabels:
    """Compute labels and censoring weights for classification of events up to a horizon.

    Weights are 1 / G(t-) for rows with an event by the horizon, 1 / G(horizon-) for rows with follow-up to
    the horizon or longer without an event, and 0 for rows censored before. G is the Kaplan-Meier estimate of
    the censoring distribution, P(C > t), of all rows, with tied events before censorings: a row censored at
    the horizon has no event by then. The weighted share of misclassified rows is a consistent estimate of the
    share without censoring, if censoring does not depend on X.

    Args:
        time: observed times, (N,).
        event: True or 1 if the event was observed, (N,).
        horizon: > 0, in the unit of the times.

    Raises:
        DataError: as `sstorch.data.as_surv`; a horizon that is not positive, beyond the event-free
            follow-up of all rows (survival is then unknown), or before the first event.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> labels, weights = horizon_labels([1.0, 2.0, 3.0, 5.0, 6.0], [1, 0, 1, 0, 1], horizon=4.0)
        >>> labels.tolist(), weights.round(3).tolist()
        ([1, 0, 1, 0, 0], [1.0, 0.0, 1.333, 1.333, 1.333])
    """
    times, events = parse_target((time, event))
    if not (np.isfinite(horizon) and horizon > 0.0):
        raise DataError(f"horizon must be a time > 0, got {horizon}")
    horizon = time_of_rows(horizon, times)
    early = events & (times <= horizon)
    alive = (times > horizon) | ((times == horizon) & ~events)
    if not alive.any():
        last = f"the last time is {times.max():g}"
        raise DataError(
            f"horizon={horizon:g}: no row was observed so long without event, {last}; choose an earlier one"
        )
    if not early.any():
        raise DataError(f"horizon={horizon:g}: no row has an event up to then; choose a later horizon")
    censoring = censoring_distribution((times, events))
    weights = np.zeros(len(times))
    weights[early] = 1.0 / censoring.before(times[early])
    weights[alive] = 1.0 / float(censoring.before(np.array([horizon]))[0])
    return HorizonLabels(early.astype(np.int64), weights)
