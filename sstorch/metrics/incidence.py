"""Cumulative incidences by the estimate of Aalen and Johansen, their errors and derivatives by weights.

With one event it is one minus the estimate of Kaplan and Meier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_vector
from sstorch.data.target import steps_up_to
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.weights import NONE_LEFT, by_subject, check_weighting

_NAME = "Aalen and Johansen's estimate"


def aalen_johansen(
    y: Outcome,
    times: npt.ArrayLike,
    *,
    n_causes: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Aalen-Johansen estimate of the cumulative incidence of every cause.

    At each event time the incidence of cause k increases by S(t-) d_k / n, with S the Kaplan-Meier estimate
    for any event: incidences and S sum to one. Rows censored at an event time are at risk. The result equals
    R's ``survfit`` for ``Surv(time, factor)``; lifelines' ``AalenJohansenFitter`` breaks ties of times at
    random.

    Args:
        y: outcome of the rows, a `Surv`, with its entry times (left truncation), or the tuple
            (time, cause) with 0 for censored rows and 1 .. K for causes.
        times: times of the incidences, shape (n_times,); constant beyond the last row.
        n_causes: K; None for that of the `Surv`, or the largest cause.
        sample_weight: weights >= 0, shape (n,); None for the weights of `y`.

    Returns:
        shape (K, n_times), non-decreasing right-continuous step functions.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`).

    References:
        Aalen and Johansen (1978), "An empirical transition matrix for non-homogeneous Markov chains based on
        censored observations", Scandinavian Journal of Statistics 5, 141-150.

    Examples:
        >>> aalen_johansen(([1.0, 2.0, 2.0, 3.0], [1, 2, 0, 1]), times=[1.0, 2.5, 3.0])
        array([[0.25, 0.25, 0.75],
               [0.  , 0.25, 0.25]])
    """
    rows = _read(y, _NAME, sample_weight, n_causes)
    asked = check_vector(times, "times")
    counts = _counts(rows)
    _, incidence = _estimate(counts)
    return np.asarray(incidence[:, steps_up_to(counts.steps, asked)])


def aalen_johansen_error(
    y: Outcome,
    times: npt.ArrayLike,
    *,
    n_causes: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Standard errors of :func:`aalen_johansen`, by the infinitesimal jackknife.

    The square root of the sum over subjects of the squared derivative of the estimate with respect to the
    weight of the subject, times w^2. It equals R's ``survfit`` for ``Surv(time, factor)``, and Greenwood's
    error for a single cause, equal weights and no left truncation.

    Arguments and errors are as in :func:`aalen_johansen`. Influences are summed by subject; errors do not
    depend on splits of follow-up into start-stop rows, nor on the scale of weights.

    Returns:
        shape (K, n_times), 0 before the first event.

    References:
        Jaeckel (1972), "The infinitesimal jackknife", Bell Laboratories memorandum MM 72-1215-11.

    Examples:
        >>> aalen_johansen_error(([1.0, 2.0, 2.0, 3.0], [1, 2, 0, 1]), times=[1.0, 3.0]).round(4)
        array([[0.2165, 0.2165],
               [0.    , 0.2165]])
    """
    rows = _read(y, f"the error of {_NAME}", sample_weight, n_causes)
    asked = check_vector(times, "times")
    given, _ = check_weighting(rows.weight, rows.time.size)
    rows = rows._replace(weight=given)
    factor = np.ones(rows.time.size) if given is None else given
    errors = np.zeros((rows.n_causes, asked.size))
    counts = _counts(rows)
    estimates = _estimate(counts)
    for place, m in enumerate(steps_up_to(counts.steps, asked)):
        parts = by_subject(factor[:, None] * _influence(rows, counts, *estimates, int(m)).T, rows.id)
        errors[:, place] = np.sqrt((parts**2).sum(axis=0))
    return errors


def incidence_and_influence(rows: Observed, t: float) -> tuple[FloatArray, FloatArray]:
    """Incidences at a time, (K,), and their derivatives with respect to the weights of rows, (K, n).

    Times the weights, the derivatives are influences: the root of their sum of squares is the error.
    """
    counts = _counts(rows)
    before, incidence = _estimate(counts)
    m = int(steps_up_to(counts.steps, t))
    return incidence[:, m], _influence(rows, counts, before, incidence, m)


def _read(y: Outcome, what: str, sample_weight: npt.ArrayLike | None, n_causes: int | None) -> Observed:
    rows = read_rows(
        y, what, causes=True, entry=True, weight=True, sample_weight=sample_weight, n_causes=n_causes
    )
    return rows._replace(n_causes=max(rows.n_causes, n_causes or 0))


class _Counts(NamedTuple):
    """Weights of rows at the distinct times of events: of each cause, (K, m), and at risk, (m,)."""

    steps: FloatArray
    events: FloatArray
    at_risk: FloatArray


def _counts(rows: Observed) -> _Counts:
    time, event, entry, weight = rows.time, rows.event, rows.entry, rows.weights
    steps, place = np.unique(time[event], return_inverse=True)
    events = np.zeros((rows.n_causes, len(steps)))
    np.add.at(events, (_codes(rows)[event] - 1, place), weight[event])
    at_risk = _weight_from(time, weight, steps)
    if entry is not None:
        # A row that enters at a time is at risk after it.
        at_risk = at_risk - _weight_from(entry, weight, steps)
    return _Counts(steps, events, at_risk)


def _estimate(counts: _Counts) -> tuple[FloatArray, FloatArray]:
    """S just before each step, (m,), and the incidences before the first and after each step, (K, m + 1)."""
    known = counts.at_risk > 0
    hazard = np.divide(counts.events, counts.at_risk, out=np.zeros_like(counts.events), where=known)
    survival = np.cumprod(np.append(1.0, 1.0 - hazard.sum(axis=0)))[:-1]
    return survival, np.cumsum(np.pad(hazard * survival, ((0, 0), (1, 0))), axis=1)


def _influence(
    rows: Observed, counts: _Counts, before: FloatArray, incidence: FloatArray, m: int
) -> FloatArray:
    """Derivatives of the incidences after m steps with respect to the weights of the rows, (K, n).

    A row at risk at a step makes the hazards of the step smaller, and with an event there larger by one of
    n; a larger hazard adds to its cause and takes from what all causes have later.
    """
    events, at_risk = counts.events[:, :m], counts.at_risk[:m]
    total = events.sum(axis=0)
    left, risk = at_risk - total, np.where(at_risk > 0, at_risk, 1.0)
    gained = before[:m] / risk
    later = incidence[:, m, None] - incidence[:, 1 : m + 1]
    lost = np.divide(later, left, out=np.zeros_like(later), where=left > NONE_LEFT * at_risk)
    there = np.cumsum(np.pad((gained * events - lost * total) / risk, ((0, 0), (1, 0))), axis=1)
    end = np.searchsorted(counts.steps, rows.time, "right")
    found = -there[:, np.minimum(end, m)]
    if rows.entry is not None:
        found += there[:, np.minimum(np.searchsorted(counts.steps, rows.entry, "right"), m)]
    own = np.flatnonzero(rows.event & (end <= m))
    found[:, own] -= lost[:, end[own] - 1]
    found[_codes(rows)[own] - 1, own] += gained[end[own] - 1]
    return np.asarray(found)


def _codes(rows: Observed) -> IntArray:
    return rows.cause.astype(np.int64, copy=False)


def _weight_from(values: FloatArray, weight: FloatArray, steps: FloatArray) -> FloatArray:
    """Weight of the rows whose value is at least each step."""
    order = np.argsort(values, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weight[order])])
    return np.asarray(below[-1] - below[np.searchsorted(values[order], steps, "left")])
