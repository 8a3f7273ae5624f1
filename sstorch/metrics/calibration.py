"""Calibration of the predicted survival at one time: a test in groups, a smooth curve, its mean error."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import blocks, check_choice, check_horizon, check_integer, check_share
from sstorch.data.target import time_of_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.censoring import NOT_FOLLOWED, followed_to, risk_sets
from sstorch.metrics.checks import (
    BLOCK_ELEMENTS,
    check_grid_unit,
    check_observed_horizon,
    check_probability,
    check_survival,
    check_times,
    half_width,
)
from sstorch.metrics.curves import survival_at
from sstorch.metrics.incidence import aalen_johansen, aalen_johansen_error
from sstorch.metrics.outcome import Observed, Outcome, read_rows, read_scored

# Points of the smooth curve, between which it is straight, and share of the rows that each regression sees.
_POINTS, _SPAN = 100, 0.75


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


@dataclass(frozen=True, eq=False)
class OneCalibration:
    """Result of `one_calibration`.

    Attributes:
        statistic: sum over the groups of (observed - predicted)^2 / variance; NaN if there is a `reason`.
        p_value: p-value of the null hypothesis of calibration; NaN if there is a `reason`.
        degrees_of_freedom: degrees of freedom of the chi-squared distribution.
        table: one row per group, from the lowest prediction: n, events up to t, predicted (mean survival),
            observed (Kaplan-Meier at t), variance; both are NaN for a group without follow-up to t.
        reason: reason for a missing test, or "".
    """

    statistic: float
    p_value: float
    degrees_of_freedom: int
    table: pd.DataFrame
    reason: str = ""


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


def one_calibration(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    n_bins: int = 10,
    variance: Literal["effective", "binomial", "greenwood"] = "effective",
    degrees_of_freedom: Literal["groups", "groups-1"] = "groups",
) -> OneCalibration:
    """Test 1-calibration: a Hosmer-Lemeshow test of predicted survival at one time.

    Rows are divided into groups of equal size by prediction, with equal predictions in one group. The test
    compares the mean prediction of each group with Kaplan-Meier at t.

    Rejection rates at level 5 % for true predictions of 500 rows in ten groups, t the median event time (600
    simulations; rates gamma(4, 1/4), no censoring / censoring Exp(1)): "effective" 5.2 % / 7.5 %, "binomial"
    5.2 % / 14.5 %, "greenwood" 9.7 % / 16.5 %; with "groups-1" 7.7 % / 10.2 %, 7.7 % / 19.2 % and 13.8 % /
    20.0 %.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t), one probability per row, shape (n,).
        t: the time, in the unit of `y`.
        n_bins: number of groups; fewer with tied predictions.
        variance: "effective", p (1 - p) / m with p the mean prediction and m the effective number of
            uncensored rows, S (1 - S) / Greenwood's variance, with S Kaplan-Meier at t (Rothman), or if that
            is 0 / 0 the rows not censored before t. "binomial", p (1 - p) / n, as D'Agostino and Nam, equal
            without censoring; "greenwood", Greenwood's variance (Demler et al., who recommend at least five
            events per group).
        degrees_of_freedom: "groups" for held-out rows; "groups-1", as D'Agostino and Nam, for training rows.

    Returns:
        Statistic, p-value, degrees of freedom and the table of the groups. If a group has follow-up below t
        and its last row is censored, its survival at t cannot be estimated: statistic and p-value are NaN
        with a reason.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), a time outside the observed ones, equal
            predictions, or a group with variance 0 and different prediction and observation.
        ConfigError: fewer than two bins, t not > 0, or an unknown option.

    References:
        D'Agostino and Nam (2003), Handbook of Statistics 23, 1-25; Demler, Paynter and Cook (2015),
        Statistics in Medicine 34, 1659-1680; Rothman (1978), Journal of Chronic Diseases 31, 557-560.

    Examples:
        >>> result = one_calibration(([1, 2, 3, 4], [1, 1, 1, 1]), [0.25, 0.25, 0.75, 0.75], t=2.5, n_bins=2)
        >>> result.table["observed"].tolist()
        [0.0, 1.0]
    """
    check_choice(variance, "variance", ("effective", "binomial", "greenwood"))
    check_choice(degrees_of_freedom, "degrees_of_freedom", ("groups", "groups-1"))
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    groups = groups_of_equal_size(predicted, n_bins)
    if (n_groups := len(groups)) < 2:
        raise DataError(
            "survival: all predictions are equal or nearly so, and one group leaves no degree of freedom."
        )
    rows = []
    for inside in groups:
        group_time, group_event = row_time[inside], row_event[inside]
        observed, greenwood = np.nan, np.nan
        if followed_to(horizon, group_time, group_event):
            observed, greenwood = _kaplan_meier_at(group_time, group_event, horizon)
        mean, n = float(predicted[inside].mean()), int(inside.sum())
        effective = max(1.0, float(np.sum(group_event | (group_time >= horizon))))
        if greenwood > 0.0:
            effective = observed * (1.0 - observed) / greenwood
        null = mean * (1.0 - mean)
        spreads = {"effective": null / effective, "binomial": null / n, "greenwood": greenwood}
        rows.append(
            {
                "n": n,
                "events": int((group_event & (group_time <= horizon)).sum()),
                "predicted": mean,
                "observed": observed,
                "variance": spreads[variance] if np.isfinite(observed) else np.nan,
            }
        )
    table = pd.DataFrame(rows)
    free = n_groups if degrees_of_freedom == "groups" else n_groups - 1
    if (unknown := table["observed"].isna()).any():
        reason = (
            f"group {int(unknown.to_numpy().argmax())} of {n_groups}: {NOT_FOLLOWED.format(horizon)}; choose "
            "an earlier time or fewer bins"
        )
        return OneCalibration(np.nan, np.nan, free, table, reason)
    square = (table["observed"] - table["predicted"]).to_numpy() ** 2
    spread = table["variance"].to_numpy()
    undefined = (spread <= 0.0) & (square > 0.0)
    if undefined.any():
        k = int(undefined.argmax())
        raise DataError(
            f"survival: group {k} of {n_groups} has variance 0 (predicted {table['predicted'][k]:g}, "
            f"observed {table['observed'][k]:g} at t = {horizon:g}), so that no test is possible; "
            "use fewer bins or another time."
        )
    statistic = float(np.divide(square, spread, out=np.zeros(n_groups), where=spread > 0.0).sum())
    return OneCalibration(statistic, float(chi2.sf(statistic, free)), free, table)


def calibration_curve(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    level: float = 0.95,
) -> pd.DataFrame:
    """Estimate a smooth calibration curve of predicted survival at one time, with a pointwise band.

    The pseudo-observations of 1(T > t), n S(t) - (n - 1) S_-i(t), with S the Kaplan-Meier estimate with and
    without the row, are smoothed over the predictions by local linear regression (loess of degree 1) on the
    nearest three quarters of the rows. The pointwise band is the normal approximation for a linear smoother,
    with squared residuals as variances.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n > 1 of them.
        survival: predicted S_i(t), one probability per row, shape (n,).
        t: the time, in the unit of `y`.
        level: level of the band, in (0, 1).

    Returns:
        Columns predicted (increasing, at most 100 quantiles of the predictions, all within [0, 1]), observed,
        lower and upper, cut to [0, 1].

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), a time outside the observed ones, or a single
            row.
        ConfigError: t not > 0, or a level out of range.

    References:
        Gerds, Andersen and Kattan (2014), Statistics in Medicine 33, 3191-3203, for pseudo-observations;
        Cleveland (1979), Journal of the American Statistical Association 74, 829-836, for the smoother.

    Examples:
        >>> curve = calibration_curve(([1, 2, 3, 4], [1, 1, 1, 1]), [0.3, 0.3, 0.6, 0.6], t=2.5)
        >>> curve["observed"].round(6).tolist()
        [0.0, 1.0]
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    points, observed, error = _smooth(row_time, row_event, predicted, horizon)
    half = half_width(level) * error
    return pd.DataFrame(
        {
            "predicted": points,
            "observed": np.clip(observed, 0.0, 1.0),
            "lower": np.clip(observed - half, 0.0, 1.0),
            "upper": np.clip(observed + half, 0.0, 1.0),
        }
    )


def integrated_calibration_index(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
) -> float:
    """Integrated calibration index: mean absolute distance of predictions from the calibration curve.

    As defined by Austin et al., except for the smoother: `calibration_curve` instead of a hazard regression.
    Compare only values of this function. Arguments and errors are as in `calibration_curve`.

    Returns:
        The mean over the rows, in [0, 1], 0 is best.

    References:
        Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742.

    Examples:
        >>> rows = ([1, 2, 3, 4], [1, 1, 1, 1])
        >>> round(integrated_calibration_index(rows, [0.3, 0.3, 0.6, 0.6], t=2.5), 6)
        0.35
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    points, observed, _ = _smooth(row_time, row_event, predicted, horizon)
    smooth = np.interp(predicted, points, np.clip(observed, 0.0, 1.0))
    return float(np.abs(smooth - predicted).mean())


def pseudo_observations(y: Outcome, *, t: float) -> FloatArray:
    """Compute jackknife pseudo-observations of survival beyond t, n S(t) - (n - 1) S_-i(t).

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n > 1 of them.
        t: the time, in the unit of `y`.

    Returns:
        Shape (n,); without censoring 1 if survival exceeds t, else 0.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or a single row.
        ConfigError: t not > 0.

    References:
        Andersen and Pohar Perme (2010), Statistical Methods in Medical Research 19, 71-99.

    Examples:
        >>> pseudo_observations(([1, 2, 3], [1, 0, 1]), t=2.5).round(6).tolist()
        [0.0, 1.0, 1.0]
    """
    rows = read_rows(y, "a pseudo-observation")
    row_time, row_event = rows.time, rows.event
    horizon, n = time_of_rows(check_horizon(t, "t"), row_time), row_time.size
    if n < 2:
        raise DataError("time: one row cannot be left out; pseudo-observations need at least two.")
    distinct, position, events, _, at_risk = risk_sets(Observed(row_time, row_event))
    events = np.where(distinct <= horizon, events, 0.0)
    kept = np.maximum(at_risk - 1.0, 1.0)  # the last row at risk is alone
    factor = 1.0 - events / at_risk
    before = np.concatenate(([1.0], np.cumprod(1.0 - events / kept)))[:-1]
    after = np.concatenate((np.cumprod(factor[::-1])[::-1], [1.0]))[1:]
    other_events = events[position] - (row_event & (row_time <= horizon))
    left_out = before[position] * (1.0 - other_events / kept[position]) * after[position]
    return n * float(np.prod(factor)) - (n - 1) * left_out


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


def rows_at_one_time(
    y: Outcome, survival: npt.ArrayLike, t: float
) -> tuple[FloatArray, BoolArray, FloatArray, float]:
    """Times, events and predictions of the rows, each (n,), and a time within the observed ones, checked."""
    rows = read_rows(y, "a score at one time", survival=survival)
    row_time, row_event = rows.time, rows.event
    horizon = time_of_rows(check_horizon(t, "t"), row_time)
    predicted = check_probability(survival, "survival", row_time.size)
    check_observed_horizon(horizon, row_time, "t")
    return row_time, row_event, predicted, horizon


def _smooth(
    time: FloatArray, event: BoolArray, predicted: FloatArray, t: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Points among the predictions, the smooth curve of pseudo-observations there, and its errors, (m,) each.

    Around each point the ceil(.75 n) nearest rows get tricube weights and a straight line (Cleveland 1979).
    Where they do not vary, as with few distinct predictions, the line is level. With l the row of the
    smoother matrix at the point and e the residuals from the curve, the error is sqrt(sum l^2 e^2).
    """
    points = np.unique(np.quantile(predicted, np.linspace(0.0, 1.0, _POINTS), method="nearest"))
    outcome = pseudo_observations((time, event), t=t)
    nearest = min(predicted.size, int(np.ceil(_SPAN * predicted.size)))
    smoother = np.empty((points.size, predicted.size))
    for some in blocks(points.size, predicted.size, BLOCK_ELEMENTS):
        smoother[some] = _smoother(predicted, points[some], nearest)
    curve = smoother @ outcome
    square = (outcome - np.interp(predicted, points, curve)) ** 2
    return points, curve, np.sqrt(smoother**2 @ square)


def _kaplan_meier_at(time: FloatArray, event: BoolArray, t: float) -> tuple[float, float]:
    """Kaplan-Meier at t and Greenwood's variance (0 if all rows have failed)."""
    counts = risk_sets(Observed(time, event))
    n_events, at_risk = (count[counts.times <= t] for count in (counts.n_events, counts.at_risk))
    survival = float(np.prod(1.0 - n_events / at_risk))
    if survival == 0.0:
        return 0.0, 0.0
    return survival, survival**2 * float((n_events / (at_risk * (at_risk - n_events))).sum())


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


def _smoother(x: FloatArray, points: FloatArray, nearest: int) -> FloatArray:
    """The weights with which the rows enter the smooth value at each point, shape (m, n), of sum 1."""
    offset = x - points[:, None]
    distance = np.abs(offset)
    radius = np.partition(distance, nearest - 1, axis=1)[:, nearest - 1, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = distance / radius
        tricube = np.clip(1.0 - share * share * share, 0.0, None)
        tricube *= tricube * tricube  # powers of arrays take ten times as long
    # Where the radius is 0, the point itself holds as many rows as are wanted.
    weight = np.where(radius > 0.0, tricube, distance == 0.0)
    level = weight / weight.sum(axis=1, keepdims=True)
    mean = (level * offset).sum(axis=1, keepdims=True)
    offset -= mean
    spread = (level * offset**2).sum(axis=1, keepdims=True)
    slopes = spread > 1e-12 * np.maximum(radius, np.finfo(np.float64).tiny) ** 2
    tilt = np.divide(mean, spread, out=np.zeros_like(mean), where=slopes)
    smoother: FloatArray = level * (1.0 - tilt * offset)
    return smoother
