"""Concordance between predictions and the order of the events."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    check_survival,
    check_time_event,
    check_times,
    check_vector,
)

TiedTime = Literal["exclude", "censored_later"]

# Elements of one (rows x events) block: 16 MB of float64, and a few masks of 2 MB.
_BLOCK = 2**21


def concordance_harrell(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    tied_time: TiedTime = "exclude",
) -> float:
    """Time-dependent concordance C_H of survival curves, without weights.

    Over the pairs t_i < t_j with an event in i, the share in which the row that failed had the lower
    predicted survival at its own time: mean of 1[S_i(t_i) < S_j(t_i)] + 0.5 1[S_i(t_i) = S_j(t_i)]. Values
    are compared exactly. For curves that do not cross it equals Harrell's C of any risk score in their order.

    Args:
        time: observed times, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `time`. Put every
            distinct event time in it: elsewhere S is read as the right-continuous step function through the
            grid, that is at the last grid time <= t_i, and as 1 before the first.
        tied_time: pairs with t_i = t_j. "exclude" leaves them out, as the strict t_i < t_j of the formula
            says; "censored_later" adds those with an event in i and none in j, whose event must come later
            still (the rule of scikit-survival and lifelines). Two events at the same time are never a pair.

    Returns:
        C_H in [0, 1]: 1 is perfect order, 0.5 no order.

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses, or no comparable pair.
        ConfigError: an unknown `tied_time`.

    References:
        Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944: C^td. The half for
        equal predictions is that of Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387.

    Examples:
        >>> survival = [[0.5, 0.2], [0.9, 0.4], [0.9, 0.8]]
        >>> concordance_harrell([1.0, 2.0, 3.0], [1, 1, 0], survival, times=[1.0, 2.0])
        1.0
    """
    row_time, row_event = check_time_event(time, event)
    grid = check_times(times)
    curves = check_survival(survival, row_time.size, grid.size)

    def at_own_times(rows: IntArray) -> FloatArray:
        column = np.searchsorted(grid, row_time[rows], side="right") - 1
        values = curves[:, np.maximum(column, 0)]
        values[:, column < 0] = 1.0
        return values

    return _concordance(row_time, row_event, at_own_times, tied_time)


def concordance_harrell_risk(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    risk: npt.ArrayLike,
    *,
    tied_time: TiedTime = "exclude",
) -> float:
    """Harrell's concordance C of one risk score per row.

    Over the pairs t_i < t_j with an event in i, the mean of 1[r_i > r_j] + 0.5 1[r_i = r_j].

    Args:
        time: observed times, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        risk: score, higher where the event is expected earlier, shape (n,). Any monotone scale, no unit.
        tied_time: pairs with t_i = t_j, as in `concordance_harrell`.

    Returns:
        C in [0, 1]: 1 is perfect order, 0.5 no order.

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses, or no comparable pair.
        ConfigError: an unknown `tied_time`.

    References:
        Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387.

    Examples:
        >>> concordance_harrell_risk([1.0, 2.0, 3.0], [1, 1, 0], risk=[2.0, 2.0, 1.0])
        0.8333333333333334
    """
    row_time, row_event = check_time_event(time, event)
    # A score turned over plays the part of the survival probability, at every time the same.
    safety = -check_vector(risk, "risk", row_time.size)

    def at_any_time(rows: IntArray) -> FloatArray:
        return np.broadcast_to(safety[:, None], (safety.size, rows.size))

    return _concordance(row_time, row_event, at_any_time, tied_time)


def _concordance(
    time: FloatArray, event: BoolArray, values_at: Callable[[IntArray], FloatArray], tied_time: str
) -> float:
    """Count the pairs of a few events at a time.

    Args:
        time: observed times, shape (n,).
        event: event indicators, shape (n,).
        values_at: for the rows of m events, the values of all rows at those events' times, shape (n, m).
        tied_time: "exclude" or "censored_later".
    """
    if tied_time not in ("exclude", "censored_later"):
        raise ConfigError(
            f"tied_time: {tied_time!r} is unknown; the known ones are 'exclude', 'censored_later'."
        )
    events = np.flatnonzero(event)
    events = events[
        np.argsort(time[events], kind="stable")
    ]  # neighbours in a block read neighbouring columns
    per_block = max(1, _BLOCK // time.size)
    n_pairs = n_concordant = n_tied = 0
    for start in range(0, events.size, per_block):
        rows = events[start : start + per_block]
        comparable = time[:, None] > time[rows]
        if tied_time == "censored_later":
            comparable |= (time[:, None] == time[rows]) & ~event[:, None]
        values = values_at(rows)
        own = values[rows, np.arange(rows.size)]
        n_pairs += int(np.count_nonzero(comparable))
        n_concordant += int(np.count_nonzero(comparable & (values > own)))
        n_tied += int(np.count_nonzero(comparable & (values == own)))
    if n_pairs == 0:
        raise DataError(
            f"no comparable pair among {time.size} rows with {events.size} events: concordance needs a row "
            "whose event comes before the time of another row. Use larger folds, or stratify them by event."
        )
    return (n_concordant + 0.5 * n_tied) / n_pairs
