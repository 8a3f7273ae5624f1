"""Cumulative incidences of competing causes: estimates from rows, calibration against them, pseudo-values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_horizon, check_share, check_vector
from sstorch.data.target import steps_up_to, time_of_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.calibration import groups_of_equal_size
from sstorch.metrics.censoring import NOT_FOLLOWED, followed_to
from sstorch.metrics.checks import (
    check_grid_unit,
    check_incidence,
    check_observed_horizon,
    check_probability,
    check_times,
)
from sstorch.metrics.outcome import ObservedCauses, Outcome, cause_number, read_causes
from sstorch.metrics.scored_rows import HorizonRows
from sstorch.metrics.weights import NONE_LEFT, by_subject, check_weighting, covariance_of

_NAME = "Aalen and Johansen's estimate"
_MOST_STEPS = 200
# Of the gain that a step still promises, relative to the loss, and of coefficients.
_TOLERANCE, _PRECISION = 1e-14, 1e-10
# Of coefficients: a factor of e^30 of the hazard.
_FURTHEST = 30.0


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
        y: outcome of the rows, a `Surv` with causes, with its entry times (left truncation), or the tuple
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
    rows = read_causes(y, _NAME, entry=True, weight=True, sample_weight=sample_weight, n_causes=n_causes)
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
    rows = read_causes(
        y,
        "the error of Aalen and Johansen's estimate",
        entry=True,
        weight=True,
        sample_weight=sample_weight,
        n_causes=n_causes,
    )
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


def incidence_and_influence(rows: ObservedCauses, t: float) -> tuple[FloatArray, FloatArray]:
    """Incidences at a time, (K,), and their derivatives with respect to the weights of rows, (K, n).

    Times the weights, the derivatives are influences: the root of their sum of squares is the error.
    """
    counts = _counts(rows)
    before, incidence = _estimate(counts)
    m = int(steps_up_to(counts.steps, t))
    return incidence[:, m], _influence(rows, counts, before, incidence, m)


class _Counts(NamedTuple):
    """Weights of rows at the distinct times of events: of each cause, (K, m), and at risk, (m,)."""

    steps: FloatArray
    events: FloatArray
    at_risk: FloatArray


def _counts(rows: ObservedCauses) -> _Counts:
    time, codes, n_causes, entry, given, _ = rows
    weight = np.ones(time.size) if given is None else given
    steps, place = np.unique(time[codes > 0], return_inverse=True)
    events = np.zeros((n_causes, len(steps)))
    np.add.at(events, (codes[codes > 0] - 1, place), weight[codes > 0])
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
    rows: ObservedCauses, counts: _Counts, before: FloatArray, incidence: FloatArray, m: int
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
    own = np.flatnonzero((rows.cause > 0) & (end <= m))
    found[:, own] -= lost[:, end[own] - 1]
    found[rows.cause[own] - 1, own] += gained[end[own] - 1]
    return np.asarray(found)


def _weight_from(values: FloatArray, weight: FloatArray, steps: FloatArray) -> FloatArray:
    """Weight of the rows whose value is at least each step."""
    order = np.argsort(values, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weight[order])])
    return np.asarray(below[-1] - below[np.searchsorted(values[order], steps, "left")])


def aalen_johansen_calibration(
    y: Outcome,
    incidence: npt.ArrayLike,
    times: npt.ArrayLike,
    cause: int | str = 1,
    *,
    power: int = 2,
    min_at_risk: float = 0.05,
) -> float:
    """Compute the distance of the mean predicted incidence of a cause from the Aalen-Johansen estimate.

    (1 / t_max) int_0^t_max |mean_i F_i(t) - F_AJ(t)|^p dt by trapezoids, from time zero (both are 0) to the
    last time with enough rows under observation. It measures calibration on average; a model without features
    is calibrated in this sense. Check groups too, with :func:`grouped_calibration_incidence`. It is
    ``aj_calibration_per_event`` of hazardous, whose integral begins at the first of its times.

    Args:
        y: outcome of the rows, a `Surv` with causes or the tuple (time, cause) with 0 for censored rows and
            1 .. K for causes, n of them.
        incidence: predicted F_i(t_k) of the cause, shape (n, n_times).
        times: strictly increasing, shape (n_times,), in the unit of ``time``.
        cause: scored cause, by number or name.
        power: p, 1 (a mean distance in probability) or 2.
        min_at_risk: minimum share of the rows under observation, in (0, 1).

    Returns:
        The distance, >= 0, 0 is best.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or no time with enough rows.
        ConfigError: a power or a share out of range.

    References:
        Alberge, Haugomat, Varoquaux and Abecassis (2026), "On the calibration of survival models with
        competing risks", AISTATS, arXiv 2602.00194.

    Examples:
        >>> rows = ([1.0, 2.0, 2.0, 3.0], [1, 2, 0, 1])
        >>> curves = [[0.3, 0.3, 0.7]] * 4  # of Aalen and Johansen: .25, .25, .75
        >>> round(aalen_johansen_calibration(rows, curves, [1.0, 2.0, 3.0], power=1), 6)
        0.041667
    """
    rows = read_causes(y, "this calibration", weight=True, incidence=incidence)
    row_time, codes, which = rows.time, rows.cause, cause_number(y, cause)
    grid = check_times(times)
    curves = check_incidence(incidence, row_time.size, grid.size)
    check_grid_unit(row_time, codes > 0, grid)
    if power not in (1, 2):
        raise ConfigError(f"power must be 1 or 2, got {power!r}.")
    check_share(min_at_risk, "min_at_risk")
    at_risk = 1.0 - np.searchsorted(np.sort(row_time), grid, side="left") / row_time.size
    inside = (at_risk >= min_at_risk) & (grid > 0.0)
    if not inside.any():
        raise DataError(
            f"times: at none of them {min_at_risk:.0%} of the rows are under observation; give earlier times."
        )
    ends = np.append(0.0, grid[inside])
    estimate = aalen_johansen(rows, grid[inside], n_causes=max(which, rows.n_causes))[which - 1]
    # Weighted means of equal weights would round otherwise.
    predicted = curves[:, inside]
    mean = predicted.mean(axis=0) if rows.weight is None else np.average(predicted, 0, rows.weight)
    distance = np.append(0.0, np.abs(mean - estimate) ** power)
    return float((np.diff(ends) * (distance[1:] + distance[:-1]) / 2).sum() / ends[-1])


def grouped_calibration_incidence(
    y: Outcome,
    incidence: npt.ArrayLike,
    cause: int | str = 1,
    *,
    t: float,
    n_bins: int = 10,
) -> pd.DataFrame:
    """Compare predicted and observed incidence of a cause at one time, by groups of predicted risk.

    Rows are divided into groups of equal size by prediction, with equal predictions in one group; for a small
    tree these are its leaves. Each mean prediction is compared with the Aalen-Johansen estimate, as in the
    calibration plot of riskRegression with ``method="quantile"`` and ``q`` groups.

    Args:
        y: outcome of the rows, a `Surv` with causes or the tuple (time, cause) with 0 for censored rows and
            1 .. K for causes, n of them.
        incidence: predicted F_i(t) of the cause, one probability per row, shape (n,).
        cause: scored cause, by number or name.
        t: the time, in the unit of ``time``.
        n_bins: number of groups; fewer with tied predictions.

    Returns:
        One row per group, from the lowest prediction: n, events (of the cause, up to t), predicted (mean),
        observed, standard_error of observed, and reason for NaN in the last two (follow-up of the group below
        t with a censored last row), or "".

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or a time outside the observed ones.
        ConfigError: fewer than two groups, or t not > 0.

    Examples:
        >>> grouped_calibration_incidence(
        ...     ([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), [0.4, 0.1, 0.4, 0.1], t=2.5, n_bins=2
        ... )["observed"].tolist()
        [0.0, 0.5]
    """
    rows_given = read_causes(y, "this calibration", incidence=incidence)
    row_time, codes, which = rows_given.time, rows_given.cause, cause_number(y, cause)
    predicted = check_probability(incidence, "incidence", row_time.size)
    horizon = time_of_rows(check_horizon(t, "t"), row_time)
    check_observed_horizon(horizon, row_time, "t")
    count, rows = max(which, rows_given.n_causes), []
    for inside in groups_of_equal_size(predicted, n_bins):
        own = row_time[inside], codes[inside]
        observed, error, reason = np.nan, np.nan, NOT_FOLLOWED.format(horizon)
        if followed_to(horizon, own[0], own[1] > 0):
            observed = float(aalen_johansen(own, [horizon], n_causes=count)[which - 1, 0])
            error = float(aalen_johansen_error(own, [horizon], n_causes=count)[which - 1, 0])
            reason = ""
        rows.append(
            {
                "n": len(own[0]),
                "events": int(((own[1] == which) & (own[0] <= horizon)).sum()),
                "predicted": float(predicted[inside].mean()),
                "observed": observed,
                "standard_error": error,
                "reason": reason,
            }
        )
    return pd.DataFrame(rows)


def incidence_of(rows: HorizonRows) -> tuple[float, FloatArray]:
    """Cumulative incidence of the event of interest at the horizon, and its derivatives by the weights, (n,).

    The estimate of Aalen and Johansen; without competing causes one minus that of Kaplan and Meier. Times the
    weights, the derivatives are influences: the root of their sum of squares is the error of the estimate.

    References:
        Aalen and Johansen (1978), Scandinavian Journal of Statistics 5, 141-150; Jaeckel (1972), "The
        infinitesimal jackknife", Bell Laboratories memorandum MM 72-1215-11.
    """
    codes = np.where(rows.interest, 1, 2 * rows.event)
    observed = ObservedCauses(rows.time, codes, 2, rows.entry, rows.weight, rows.subject)
    incidence, moved = incidence_and_influence(observed, rows.t)
    return float(incidence[0]), moved[0]


def pseudo_values(rows: HorizonRows) -> FloatArray:
    """Pseudo-values of the incidence at the horizon by the infinitesimal jackknife, (n,).

    The incidence plus the total weight times its derivative by the weight of the row, as R's
    ``survival::pseudo`` has it. Their weighted mean is the incidence, and their scale that of the incidence.

    References:
        Parner, Andersen and Overgaard (2023), Lifetime Data Analysis 29, 654-671.
    """
    value, moved = incidence_of(rows)
    pseudo: FloatArray = value + rows.weights.sum() * moved
    return pseudo


class CloglogFit(NamedTuple):
    """Coefficients (p,) and their sandwich covariance (p, p)."""

    coefficients: FloatArray
    covariance: FloatArray


def fit_cloglog(rows: HorizonRows, outcome: FloatArray, x: FloatArray, start: FloatArray) -> CloglogFit:
    """Fit F = 1 - exp(-exp(x b)) to pseudo-values Y (n,) by weighted least squares; x is (n, p).

    The estimating equations of independence with a constant variance, sum_i w_i dF_i/db (Y_i - F_i) = 0, as
    ``geese(mean.link = "cloglog", jack = TRUE)`` of R solves them, with the sandwich over subjects.

    References:
        Klein and Andersen (2005), Biometrics 61, 223-229.
    """
    weight = rows.weights / rows.weights.sum()

    def at(beta: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Residuals (n,), derivatives (n, p) and weighted sum of squares."""
        hazard = np.exp(np.clip(x @ beta, -_FURTHEST, _FURTHEST))
        residual = outcome + np.expm1(-hazard)
        return residual, (hazard * np.exp(-hazard))[:, None] * x, float(weight @ residual**2)

    beta, damping, stalled = start.astype(np.float64), 1e-3, False
    residual, slope, loss = at(beta)
    for _ in range(_MOST_STEPS):
        bread = slope.T @ (weight[:, None] * slope)
        gradient = slope.T @ (weight * residual)
        try:
            step = np.linalg.solve(bread + damping * np.diag(np.diag(bread)), gradient)
            newton = np.linalg.solve(bread, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(newton).all() or np.abs(x @ beta).max() > _FURTHEST:
            break
        promised = gradient @ newton <= _TOLERANCE * loss + np.finfo(np.float64).tiny
        if promised and (stalled or np.abs(newton).max() <= _PRECISION * (1.0 + np.abs(beta).max())):
            inverse = np.linalg.inv(bread)
            influence = (weight * residual)[:, None] * slope @ inverse
            return CloglogFit(beta, covariance_of(influence, rows.subject))
        trial = at(beta + step)
        stalled = trial[2] > loss
        if not stalled:
            beta, damping = beta + step, max(damping / 10.0, 1e-12)
            residual, slope, loss = trial
        else:
            damping *= 10.0
            if damping > 1e12:
                break
    raise DataError(
        f"a regression on the predictions of {len(rows)} rows has no finite minimum: all predictions are "
        "equal, they order the events perfectly, or there are too few events."
    )
