"""Calibration without a regression: observed over expected, of the distribution, over time, and in groups."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_horizon, check_integer, check_share
from sstorch.data.target import time_of_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.censoring import NOT_FOLLOWED, followed_to
from sstorch.metrics.checks import (
    check_grid_unit,
    check_observed_horizon,
    check_probability,
    check_survival,
    check_times,
    half_width,
)
from sstorch.metrics.curves import survival_at
from sstorch.metrics.groups import Estimate
from sstorch.metrics.horizon import HorizonRows, incidence_of
from sstorch.metrics.incidence import aalen_johansen, aalen_johansen_error
from sstorch.metrics.outcome import Outcome, read_rows, read_scored
from sstorch.metrics.weights import NO_ERROR


def observed_expected_ratio(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Compute the ratio of observed risk (one minus Kaplan-Meier) and mean predicted risk by t.

    With competing causes the observed risk is the Aalen-Johansen estimate.

    Args:
        rows: outcomes and predictions at the horizon t, without late entry. The scale of the weights has no
            effect.
        level: level of the limits, in (0, 1).

    Returns:
        Ratio and limits, floats: above 1 if predicted risks are too low. The standard error of the logarithm
        is that of the observed risk by the infinitesimal jackknife (Greenwood's for equal weights) / risk.
        Limits are NaN if it is 0, for example if all rows have the event.

    Raises:
        DataError: late entry, no event by t, or predicted risks that are all 0.
        ConfigError: a level out of range.

    References:
        McLernon, Giardiello, Van Calster et al. (2023), Annals of Internal Medicine 176, 105-114; Debray et
        al. (2017), BMJ 356, i6460, for limits on the log scale, there with the error of a count; van Geloven
        et al. (2022), BMJ 377, e069249, for competing causes.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3], [1, 0, 1]), [0.5, 0.6, 0.8], 2.5)
        >>> [round(part, 3) for part in observed_expected_ratio(rows)]
        [0.909, 0.183, 4.504]
    """
    half = half_width(level)
    rows.check_from_zero("the observed over the mean predicted risk")
    rows.check_events()
    expected = float(1.0 - np.average(rows.survival, weights=rows.weight))
    if expected == 0.0:
        raise DataError("survival: every prediction is 1: no event is expected.")
    observed, moved = incidence_of(rows)
    error = rows.error_of(rows.weights * moved) / observed
    factor = float(np.exp(half * error)) if error > NO_ERROR else np.nan
    return Estimate(observed / expected, observed / expected / factor, observed / expected * factor)


def observed_expected_hazard(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Compute observed events / sum of predicted cumulative hazards: the standardised event ratio.

    It supports left truncation and start-stop rows of time-varying covariates, since every row contributes
    the hazard of its follow-up. Its logarithm is the calibration intercept of a Poisson regression with log
    cumulative hazards as offset.

    Args:
        rows: outcomes and predictions at the horizon t, with the `expected` hazards
            H_i(min(time_i, t)) - H_i(entry_i) >= 0.
        level: level of the limits, in (0, 1).

    Returns:
        Ratio and limits, floats: above 1 if predicted risks are too low. The standard error of the logarithm
        is the sandwich over subjects.

    Raises:
        DataError: no event by t, or an expected number of 0 or infinity.
        ConfigError: a level out of range.

    References:
        Berry (1983), Biometrics 39, 173-184; Crowson, Atkinson and Therneau (2016), Statistical Methods in
        Medical Research 25, 1692-1706.

    Examples:
        >>> from sstorch import Surv
        >>> y = Surv([2, 3, 4], [1, 0, 1], entry=[0, 1, 1])
        >>> rows = HorizonRows.of(y, np.ones(3), 4, expected=np.array([0.5, 0.4, 0.7]))
        >>> [round(part, 3) for part in observed_expected_hazard(rows)]
        [1.25, 0.669, 2.334]
    """
    half = half_width(level)
    if rows.expected is None:
        raise DataError("the model has no survival at each row's own times, which the expected hazards need.")
    rows.check_events()
    seen = rows.interest & (rows.time <= rows.t)
    if rows.entry is not None:
        seen &= rows.entry < rows.t
    expected, observed = float(rows.weights @ rows.expected), float(rows.weights @ seen)
    if not 0.0 < expected < np.inf:
        raise DataError(f"the predicted cumulative hazards add up to {expected:g}, and no ratio is defined.")
    error = rows.error_of(rows.weights * (seen / observed - rows.expected / expected))
    ratio, factor = observed / expected, float(np.exp(half * error))
    return Estimate(ratio, ratio / factor, ratio * factor)


@dataclass(frozen=True, eq=False)
class DCalibration:
    """Result of `d_calibration`.

    Attributes:
        statistic: Pearson's chi-squared of the bins against equal shares.
        p_value: p-value of the null hypothesis of calibration.
        table: one row per bin of predicted probability: lower, upper, observed, expected numbers of rows.
    """

    statistic: float
    p_value: float
    table: pd.DataFrame


def d_calibration(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    n_bins: int = 10,
) -> DCalibration:
    """Test D-calibration: S_i(t_i) of calibrated curves is uniform on [0, 1].

    A row with an event counts in the bin [lower, upper) that contains S_i(t_i) (the top bin includes 1). A
    row censored at c is distributed over the probabilities below s = S_i(c): (s - lower) / s in the bin of s
    and (upper - lower) / s in each bin below; s = 0 counts in the lowest bin.

    Distributed rows vary less than rows in bins: the test is conservative under censoring. In 500 simulations
    of 500 rows with true curves the test at level 5 % rejects in 4.8 % without censoring and in 0.2 % with
    half of the rows censored (censoring Exp(1)). A large p-value is then weak evidence.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `y`. Put every
            distinct observed time in it, as `evaluation_times(time, train_time)` does: elsewhere S is read as
            the right-continuous step function through the grid, and as 1 before the first.
        n_bins: number of equal bins of [0, 1].

    Returns:
        Statistic, p-value (chi-squared with n_bins - 1 degrees of freedom) and the table of the bins.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or a grid in another unit than `time`.
        ConfigError: fewer than two bins.

    References:
        Haider, Hoehn, Davis and Greiner (2020), Journal of Machine Learning Research 21 (85), section 3.5 and
        appendix B.

    Examples:
        >>> survival = [[0.9, 0.7, 0.4], [0.8, 0.2, 0.1]]
        >>> result = d_calibration(([3.0, 2.0], [0, 1]), survival, [1.0, 2.0, 3.0], n_bins=2)
        >>> result.table["observed"].tolist(), round(result.p_value, 4)
        ([2.0, 0.0], 0.1573)
    """
    check_integer("n_bins", n_bins, 2)
    rows = read_rows(y, "D-calibration", survival=survival)
    row_time, row_event = rows.time, rows.event
    grid = check_times(times)
    curves = check_survival(survival, row_time.size, grid.size)
    check_grid_unit(row_time, row_event, grid)
    return d_calibration_at(row_event, survival_at(curves, grid, row_time), n_bins)


def d_calibration_at(row_event: BoolArray, survival: FloatArray, n_bins: int = 10) -> DCalibration:
    """D-calibration of n rows whose predicted S at their own times is known, (n,); see `d_calibration`."""
    reached = np.clip(survival, 0.0, 1.0)
    edges = np.arange(n_bins + 1) / n_bins
    failed = np.bincount(_bin(reached[row_event], edges), minlength=n_bins)
    observed = failed + _spread(reached[~row_event], edges)
    expected = row_event.size / n_bins
    statistic = float(((observed - expected) ** 2).sum() / expected)
    table = pd.DataFrame(
        {"lower": edges[:-1], "upper": edges[1:], "observed": observed, "expected": np.full(n_bins, expected)}
    )
    return DCalibration(statistic, float(chi2.sf(statistic, n_bins - 1)), table)


def aalen_johansen_calibration(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    cause: int | str = 1,
    *,
    power: int = 2,
    min_at_risk: float = 0.05,
) -> float:
    """Compute the distance of the mean predicted incidence of a cause from the Aalen-Johansen estimate.

    (1 / t_max) int_0^t_max |mean_i F_i(t) - F_AJ(t)|^p dt by trapezoids, from time zero (both are 0) to the
    last time with enough rows under observation. It measures calibration on average; a model without features
    is calibrated in this sense. Check groups too, with :func:`grouped_calibration`. It is
    ``aj_calibration_per_event`` of hazardous, whose integral begins at the first of its times.

    Args:
        y: outcome of the rows, a `Surv` with causes or the tuple (time, cause) with 0 for censored rows and
            1 .. K for causes, n of them.
        survival: one minus the predicted F_i(t_k) of the cause, shape (n, n_times).
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
        >>> curves = [[0.7, 0.7, 0.3]] * 4  # of Aalen and Johansen: .75, .75, .25
        >>> round(aalen_johansen_calibration(rows, curves, [1.0, 2.0, 3.0], power=1), 6)
        0.041667
    """
    rows, which = read_scored(y, "this calibration", cause, weight=True, survival=survival)
    row_time = rows.time
    grid = check_times(times)
    curves = check_survival(survival, row_time.size, grid.size)
    check_grid_unit(row_time, rows.event, grid)
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
    estimate = 1.0 - aalen_johansen(rows, grid[inside])[which - 1]
    # Weighted means of equal weights would round otherwise.
    predicted = curves[:, inside]
    mean = predicted.mean(axis=0) if rows.weight is None else np.average(predicted, 0, rows.weight)
    distance = np.append(0.0, np.abs(mean - estimate) ** power)
    return float((np.diff(ends) * (distance[1:] + distance[:-1]) / 2).sum() / ends[-1])


def grouped_calibration(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    n_bins: int = 10,
    cause: int | str | None = None,
) -> pd.DataFrame:
    """Compare predicted and observed risk of an event at one time, by groups of predicted risk.

    Rows are divided into groups of equal size by prediction, with equal predictions in one group; for a small
    tree these are its leaves. Each mean prediction is compared with the Aalen-Johansen estimate, for one
    event one minus that of Kaplan and Meier, as in the calibration plot of riskRegression with
    ``method="quantile"`` and ``q`` groups.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them; (time, cause) for one of
            several causes.
        survival: predicted S_i(t), one probability per row, shape (n,); of a cause one minus its incidence.
        t: the time, in the unit of `y`.
        n_bins: number of groups; fewer with tied predictions.
        cause: scored cause, by number or name; None for one event.

    Returns:
        One row per group, from the lowest risk: n, events (of the cause, up to t), predicted (mean risk),
        observed risk, standard_error of observed, and reason for NaN in the last two (follow-up of the group
        below t with a censored last row), or "".

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or a time outside the observed ones.
        ConfigError: fewer than two groups, or t not > 0.

    Examples:
        >>> rows = [1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]
        >>> grouped_calibration(rows, [0.6, 0.9, 0.6, 0.9], t=2.5, n_bins=2, cause=1)["observed"].tolist()
        [0.0, 0.5]
    """
    rows, which = read_scored(y, "this calibration", cause, survival=survival)
    predicted = check_probability(survival, "survival", rows.time.size)
    horizon = time_of_rows(check_horizon(t, "t"), rows.time)
    check_observed_horizon(horizon, rows.time, "t")
    table = []
    for inside in groups_of_equal_size(1.0 - predicted, n_bins):
        own = rows.take(inside)
        observed, error, reason = np.nan, np.nan, NOT_FOLLOWED.format(horizon)
        if followed_to(horizon, own.time, own.event):
            observed = float(aalen_johansen(own, [horizon])[which - 1, 0])
            error = float(aalen_johansen_error(own, [horizon])[which - 1, 0])
            reason = ""
        table.append(
            {
                "n": own.time.size,
                "events": int(((own.cause == which) & (own.time <= horizon)).sum()),
                "predicted": float(1.0 - predicted[inside].mean()),
                "observed": observed,
                "standard_error": error,
                "reason": reason,
            }
        )
    return pd.DataFrame(table)


def groups_of_equal_size(predicted: FloatArray, n_bins: int) -> list[BoolArray]:
    """Marks of the rows of each group, from the lowest prediction; equal predictions are in one group."""
    check_integer("n_bins", n_bins, 2)
    rank = np.searchsorted(np.sort(predicted), predicted, side="left")
    group = rank * n_bins // rank.size
    return [group == k for k in np.unique(group)]


def _bin(probability: FloatArray, edges: FloatArray) -> npt.NDArray[np.intp]:
    return np.minimum(np.searchsorted(edges, probability, side="right") - 1, edges.size - 2)


def _spread(probability: FloatArray, edges: FloatArray) -> FloatArray:
    """Sum over rows of the uniform distribution on [0, s], per bin."""
    certain = probability <= 0.0
    s = probability[~certain]
    position, n_bins = _bin(s, edges), edges.size - 1
    within = np.bincount(position, weights=(s - edges[position]) / s, minlength=n_bins)
    # A bin gets its width over s from every row whose s lies in a bin above it.
    inverse = np.bincount(position, weights=1.0 / s, minlength=n_bins)
    above = np.concatenate((np.cumsum(inverse[:0:-1])[::-1], [0.0]))
    spread: FloatArray = within + np.diff(edges) * above
    spread[0] += np.count_nonzero(certain)
    return spread
