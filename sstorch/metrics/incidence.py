"""Cumulative incidences of competing causes, estimated from rows alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import rows_text
from sstorch.exceptions import DataError


def aalen_johansen(
    time: npt.ArrayLike,
    cause: npt.ArrayLike,
    times: npt.ArrayLike,
    n_causes: int | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
    entry: npt.ArrayLike | None = None,
) -> FloatArray:
    """Estimate of Aalen and Johansen of the cumulative incidence of every cause.

    At each time of an event cause k takes S(t-) d_k / n of the probability, S being Kaplan-Meier's estimate
    for any event, so that incidences and S sum to one. Events of several causes at one time share it by their
    numbers; rows censored at a time are at risk there. It is what R's ``survfit`` gives for
    ``Surv(time, factor)``; lifelines' ``AalenJohansenFitter`` moves tied times apart at random.

    Args:
        time: observed times, shape (n,).
        cause: 1 .. K, 0 where the row was censored, shape (n,).
        times: at which incidences are wanted, shape (n_times,). Beyond the last row they keep their values.
        n_causes: K; the largest cause if None.
        sample_weight: shape (n,); None is one each.
        entry: times from which rows were observed, shape (n,); None if from time zero.

    Returns:
        shape (K, n_times), rising right-continuous steps.

    Raises:
        DataError: shapes differ, or a cause is no integer from 0 to K.

    References:
        Aalen and Johansen (1978), "An empirical transition matrix for non-homogeneous Markov chains based on
        censored observations", Scandinavian Journal of Statistics 5, 141-150.

    Examples:
        >>> aalen_johansen([1.0, 2.0, 2.0, 3.0], [1, 2, 0, 1], times=[1.0, 2.5, 3.0])
        array([[0.25, 0.25, 0.75],
               [0.  , 0.25, 0.25]])
    """
    t, codes = np.asarray(time, dtype=np.float64), np.asarray(cause)
    if t.ndim != 1 or codes.shape != t.shape:
        raise DataError(f"time has shape {t.shape} and cause {codes.shape}; give one of each for every row")
    count = int(codes.max(initial=0)) if n_causes is None else n_causes
    if (bad := ~np.isin(codes, np.arange(count + 1))).any():
        raise DataError(f"cause is no number from 0 to {count} in {rows_text(bad)}")
    weight = np.ones(len(t)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    steps, place = np.unique(t[codes > 0], return_inverse=True)
    if len(steps) == 0:
        return np.zeros((count, np.size(times)))
    events = np.zeros((count, len(steps)))
    np.add.at(events, (codes[codes > 0].astype(np.int64) - 1, place), weight[codes > 0])
    at_risk = _weight_from(t, weight, steps)
    if entry is not None:
        # A row that enters at a time is at risk after it.
        at_risk = at_risk - _weight_from(np.asarray(entry, dtype=np.float64), weight, steps)
    hazard = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
    survival = np.cumprod(np.concatenate([[1.0], 1 - hazard.sum(axis=0)]))
    incidence = np.concatenate([np.zeros((count, 1)), np.cumsum(hazard * survival[:-1], axis=1)], axis=1)
    asked = np.asarray(times, dtype=np.float64)
    return np.asarray(incidence[:, np.searchsorted(steps, asked, "right")])


def _weight_from(values: FloatArray, weight: FloatArray, steps: FloatArray) -> FloatArray:
    """Weight of the rows whose value is at least each step."""
    order = np.argsort(values, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weight[order])])
    return np.asarray(below[-1] - below[np.searchsorted(values[order], steps, "left")])
