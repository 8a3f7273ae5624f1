"""Calibration of cumulative incidences, of all rows and of groups: against the Aalen-Johansen estimate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.checks import check_horizon, check_share
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
from sstorch.metrics.incidence import aalen_johansen, aalen_johansen_error
from sstorch.metrics.outcome import Outcome, cause_number, read_causes


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
    horizon = check_horizon(t, "t")
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
