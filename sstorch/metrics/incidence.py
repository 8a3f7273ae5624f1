"""Cumulative incidences of Aalen and Johansen, their errors and derivatives; K = 1 is 1 - Kaplan-Meier."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import check_vector
from sstorch.data.target import steps_up_to
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.weights import NONE_LEFT, by_subject, check_weighting


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

    Arguments are described in `sstorch.metrics`; entry times (left truncation) of `y` count. At `times`,
    (n_times,), incidences are constant beyond the last row; `n_causes` is K, None for that of the `Surv` or
    the largest cause.

    Returns:
        shape (K, n_times), non-decreasing right-continuous step functions.

    References:
        Aalen and Johansen (1978), "An empirical transition matrix for non-homogeneous Markov chains based on
        censored observations", Scandinavian Journal of Statistics 5, 141-150.

    Examples:
        >>> aalen_johansen(([1.0, 2.0, 2.0, 3.0], [1, 2, 0, 1]), times=[1.0, 2.5, 3.0])
        array([[0.25, 0.25, 0.75],
               [0.  , 0.25, 0.25]])
    """
    estimate = _Estimate.of(_read(y, sample_weight, n_causes))
    return np.asarray(estimate.incidence[:, steps_up_to(estimate.steps, check_vector(times, "times"))])


def aalen_johansen_error(
    y: Outcome,
    times: npt.ArrayLike,
    *,
    n_causes: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Standard errors of `aalen_johansen`, (K, n_times), by the infinitesimal jackknife over subjects."""
    # As R's ``survfit`` for ``Surv(time, factor)``, and Greenwood's for one cause, equal weights and no left
    # truncation. Jaeckel (1972), MM 72-1215-11.
    rows = _read(y, sample_weight, n_causes)
    rows = rows._replace(weight=check_weighting(rows.weight, rows.time.size).values)
    estimate = _Estimate.of(rows)
    asked = steps_up_to(estimate.steps, check_vector(times, "times"))
    weighted = (rows.weights[:, None] * estimate.influence(rows, int(m)).T for m in asked)
    return np.sqrt([(by_subject(each, rows.id) ** 2).sum(axis=0) for each in weighted]).T


def incidence_and_influence(rows: Observed, t: float) -> tuple[FloatArray, FloatArray]:
    """Incidences at a time, (K,), and their derivatives with respect to the weights of rows, (K, n)."""
    estimate = _Estimate.of(rows)
    m = int(steps_up_to(estimate.steps, t))
    return estimate.incidence[:, m], estimate.influence(rows, m)


def _read(y: Outcome, sample_weight: npt.ArrayLike | None, n_causes: int | None) -> Observed:
    what: dict[str, Any] = {"causes": True, "entry": True, "weight": True, "n_causes": n_causes}
    rows = read_rows(y, "Aalen and Johansen's estimate", sample_weight=sample_weight, **what)
    return rows._replace(n_causes=max(rows.n_causes, n_causes or 0))


class _Estimate(NamedTuple):
    """Counts, as sums of weights, and estimates at the m distinct times of events."""

    steps: FloatArray  # the times, (m,)
    events: FloatArray  # of each cause, (K, m)
    at_risk: FloatArray  # (m,)
    before: FloatArray  # S just before each time, (m,)
    incidence: FloatArray  # before the first and after each time, (K, m + 1)

    @classmethod
    def of(cls, rows: Observed) -> _Estimate:
        """Estimate the incidences of rows."""
        event, sets = rows.event, risk_sets(rows)
        steps, place = np.unique(rows.time[event], return_inverse=True)
        events = np.zeros((rows.n_causes, len(steps)))
        np.add.at(events, (rows.cause[event].astype(np.int64) - 1, place), rows.weights[event])
        at_risk = sets.at_risk[np.searchsorted(sets.times, steps)]
        hazard = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
        survival = np.cumprod(np.append(1.0, 1.0 - hazard.sum(axis=0)))[:-1]
        incidence = np.cumsum(np.pad(hazard * survival, ((0, 0), (1, 0))), axis=1)
        return cls(steps, events, at_risk, survival, incidence)

    def influence(self, rows: Observed, m: int) -> FloatArray:
        """Derivatives of the incidences after m steps with respect to the weights of the rows, (K, n).

        A larger hazard adds to its cause and takes from what all causes have later.
        """
        events, at_risk = self.events[:, :m], self.at_risk[:m]
        total = events.sum(axis=0)
        left, risk = at_risk - total, np.where(at_risk > 0, at_risk, 1.0)
        gained = self.before[:m] / risk
        later = self.incidence[:, m, None] - self.incidence[:, 1 : m + 1]
        lost = np.divide(later, left, out=np.zeros_like(later), where=left > NONE_LEFT * at_risk)
        there = np.cumsum(np.pad((gained * events - lost * total) / risk, ((0, 0), (1, 0))), axis=1)
        end = np.searchsorted(self.steps, rows.time, "right")
        found = -there[:, np.minimum(end, m)]
        if rows.entry is not None:
            found += there[:, np.minimum(np.searchsorted(self.steps, rows.entry, "right"), m)]
        own = np.flatnonzero(rows.event & (end <= m))
        found[:, own] -= lost[:, end[own] - 1]
        found[rows.cause[own].astype(np.int64) - 1, own] += gained[end[own] - 1]
        return np.asarray(found)
