"""Counts at observed times, the censoring distribution and inverse probability of censoring weights."""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_choice
from sstorch.data.target import ROUNDING
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.outcome import Observed, Outcome, read_rows, training
from sstorch.metrics.weights import exposed_weight

NOT_FOLLOWED = "not all rows had the event, and none was observed up to {:g}"


class RiskSets(NamedTuple):
    """Counts at the distinct observed times; sums of weights where rows have weights."""

    times: FloatArray  # distinct observed times, increasing, shape (m,)
    position: IntArray  # of each row among `times`, shape (n,)
    n_events: FloatArray  # events at each time, shape (m,)
    n_censored: FloatArray  # censorings at each time, shape (m,)
    # Rows that had entered before each time and were observed up to it or longer, shape (m,)
    at_risk: FloatArray


def risk_sets(rows: Observed) -> RiskSets:
    """Count the rows, or add up their weights, at each distinct time."""
    event, each = rows.event, 1.0 if rows.weight is None else rows.weight
    distinct, position = np.unique(rows.time, return_inverse=True)
    n_events: FloatArray = np.bincount(position, weights=event * each).astype(np.float64)
    n_censored: FloatArray = np.bincount(position, weights=~event * each).astype(np.float64)
    at_risk: FloatArray = np.cumsum((n_events + n_censored)[::-1])[::-1]
    if rows.entry is not None:
        # A row that enters at a time is at risk after it: it is missing up to there.
        last = np.searchsorted(distinct, rows.entry, side="right")
        entering = np.bincount(last, np.broadcast_to(each, rows.time.shape), distinct.size + 1)
        missing = np.cumsum(entering[::-1])[::-1][1:]
        at_risk = exposed_weight(n_events + n_censored, at_risk - missing, at_risk)
    return RiskSets(distinct, position, n_events, n_censored, at_risk)


def followed_to(t: npt.ArrayLike, time: FloatArray, event: BoolArray) -> BoolArray:
    """Whether rows (n,) of positive weight determine survival at times t of any shape."""
    # They do up to the longest time, and beyond it if all rows observed that long had an event.
    if time.size == 0:
        return np.zeros(np.shape(t), dtype=bool)
    last = time.max()
    return np.asarray(np.asarray(t) <= last * (1.0 + ROUNDING)) | bool(event[time == last].all())


def censoring_distribution(
    y: Outcome,
    *,
    tied_events: Literal["removed", "at_risk"] = "removed",
    sample_weight: npt.ArrayLike | None = None,
) -> KaplanMeier:
    """Kaplan-Meier estimate of the censoring distribution, G(t) = P(C > t).

    Estimate it on the TRAINING rows, as the metrics do with their argument `train`.

    Entry times (left truncation) of `y` count: G is conditional on being under observation at the first
    entry; a row that a later one of its subject continues is not censored. `tied_events` is whether a row
    with an event at t is at risk of censoring at t: "removed" if not (scikit-survival, and all metrics here
    except the convention "osst"), "at_risk" if it is (lifelines, pycox, OSST).

    Returns:
        G, with `at(t)` for G(t) and `before(t)` for G(t-).

    Raises:
        DataError: an invalid outcome.
        ConfigError: an unknown `tied_events`.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> g = censoring_distribution(([1.0, 2.0, 2.0, 4.0], [1, 1, 0, 0]))
        >>> g.at([1.0, 2.0, 4.0]).tolist(), g.before([2.0, 4.0]).tolist()
        ([1.0, 0.5, 0.0], [1.0, 0.5])
    """
    check_choice(tied_events, "tied_events", ("removed", "at_risk"))
    rows = read_rows(y, "the censoring distribution", entry=True, weight=True, sample_weight=sample_weight)
    distinct, position, n_events, leaving, at_risk = risk_sets(rows)
    n_censored = np.bincount(position, rows.weights * (rows.ends & ~rows.event)).astype(np.float64)
    if tied_events == "removed":
        at_risk = exposed_weight(leaving, at_risk - n_events, at_risk)
    # Where the events take all at risk, or all at risk have weight 0, no one is censored: the factor is 1.
    share = np.divide(n_censored, at_risk, out=np.zeros_like(at_risk), where=n_censored > 0.0)
    return KaplanMeier.steps(distinct, np.cumprod(1.0 - share, dtype=np.float64))


def floored(censoring: KaplanMeier) -> KaplanMeier:
    """G for weights 1 / G: where it is 0, as after a censored last training row, its last positive value."""
    least = censoring.values[censoring.values > 0.0].min(initial=1.0)
    return KaplanMeier.steps(censoring.times, np.maximum(censoring.values, least))


def ipcw_weights(y: Outcome, *, train: Outcome) -> FloatArray:
    """1 / G(t_i-) for observed events, else 0, (n,), with the G of training rows, see `floored`."""
    # Robins and Rotnitzky (1992), AIDS Epidemiology, 297-331.
    rows = read_rows(y, "a weight 1 / G", weight=True)
    g = floored(censoring_distribution(training(train))).before(rows.time)
    return np.where(rows.event, 1.0 / g, 0.0)
