"""Tests of differences between groups: of hazards (log-rank), and of cumulative incidences (Gray)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.columns import row_labels
from sstorch.metrics.groups import RiskTable, risk_table
from sstorch.metrics.outcome import Observed, Outcome, read_rows, read_scored
from sstorch.metrics.weights import NONE_LEFT, check_weighting, covariance_of, rank_test

# Share of the largest variance of a score below which one is the square of a rounding error.
_NO_VARIANCE = 1e-20


class LogrankTest(NamedTuple):
    """Result of `logrank_test`: chi squared, its degrees of freedom, and p of no difference."""

    statistic: float
    degrees_of_freedom: int  # groups minus one, less where some are never at risk with others at an event
    p_value: float


def logrank_test(
    y: Outcome,
    group: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
    strata: npt.ArrayLike | None = None,
) -> LogrankTest:
    """Log-rank test of no difference between two or more groups, optionally stratified.

    With unequal sampling weights it is the robust score test of the weighted Cox model, as in R's
    ``coxph(..., ties="breslow", robust=TRUE)``, whatever their scale. Groups defined on the same rows, such
    as leaves of a tree on its training rows, differ by construction: p is valid only on other rows.

    Arguments are described in `sstorch.metrics`; entry times (left truncation) of `y` count. `group` and
    `strata` are a number or a label for each row, (n,): rows are compared within strata.

    Returns:
        Chi squared, degrees of freedom, and p; 0, 0 and 1 where no two groups are compared.

    Raises:
        DataError: invalid arguments, or labels whose number is wrong or that are missing.

    References:
        Peto and Peto (1972), Journal of the Royal Statistical Society A 135, 185-207; the variance with ties
        is that of Klein and Moeschberger (2003), Survival Analysis, 2nd edition, section 7.3; strata are
        those of section 7.5. Lin and Wei (1989), Journal of the American Statistical Association 84,
        1074-1078, for the robust variance.

    Examples:
        >>> test = logrank_test(([1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 1]), ["a", "a", "a", "b", "b", "b"])
        >>> round(test.statistic, 3), test.degrees_of_freedom, round(test.p_value, 3)
        (5.052, 1, 0.025)
    """
    others: dict[str, Any] = {"sample_weight": sample_weight, "group": group, "strata": strata}
    rows = read_rows(y, "the log-rank test", entry=True, weight=True, **others)
    n = rows.time.size
    codes, n_groups, inside_strata = _groups_and_strata(group, strata, rows.weights)
    weight, robust = check_weighting(rows.weight, n)
    rows = rows._replace(weight=weight)
    excess, covariance = np.zeros(n_groups), np.zeros((n_groups, n_groups))
    residuals = np.zeros((n if robust else 0, n_groups))
    for inside in inside_strata:
        part = rows.take(inside)
        times = np.unique(part.time[part.event])
        if times.size == 0:
            continue
        table = risk_table(part, codes[inside], n_groups, times)
        own_excess, own_covariance = _excess_events(table)
        excess += own_excess
        covariance += own_covariance
        if robust:
            residuals[inside] = _residuals(part, codes[inside], times, table)
    if robust:
        covariance = covariance_of(rows.weights[:, None] * residuals, rows.id)
    return _score_test(excess, covariance)


def gray_test(
    y: Outcome,
    group: npt.ArrayLike,
    cause: int | str = 1,
    *,
    sample_weight: npt.ArrayLike | None = None,
    strata: npt.ArrayLike | None = None,
) -> LogrankTest:
    """Gray's test of equal cumulative incidences of a cause in two or more groups, optionally stratified.

    :func:`logrank_test` with other causes censored compares cause-specific hazards, this test subdistribution
    hazards. Scores are those of Gray with rho = 0: the number at risk of a group is Y(t) (1 - F(t-)) / S(t-),
    with F and S its Aalen-Johansen and Kaplan-Meier estimates. The variance is the sum over subjects of
    squared influences instead of Gray's formula under the null hypothesis: p-values differ slightly from R's
    ``cuminc``, but are valid for left truncation, sampling weights and several rows per subject.

    Arguments, result and errors are as in :func:`logrank_test`, but for `y`, a `Surv` with causes or the
    tuple (time, cause) with 0 for censored rows and 1 .. K for causes, and `cause`, by number or by name; an
    unknown one raises a `ConfigError`.

    References:
        Gray (1988), "A class of K-sample tests for comparing the cumulative incidence of a competing risk",
        Annals of Statistics 16, 1141-1154. Geskus (2011), Biometrics 67, 39-49, for left truncation.

    Examples:
        >>> from sstorch import Surv
        >>> y = Surv([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 2, 1, 2, 2, 0, 1], causes=("relapse", "death"))
        >>> test = gray_test(y, ["a", "a", "a", "a", "b", "b", "b", "b"], "relapse")
        >>> round(test.statistic, 3), test.degrees_of_freedom, round(test.p_value, 3)
        (4.099, 1, 0.043)
    """
    others: dict[str, Any] = {"sample_weight": sample_weight, "group": group, "strata": strata}
    rows, number = read_scored(y, "Gray's test", cause, entry=True, weight=True, **others)
    rows = rows._replace(weight=check_weighting(rows.weight, rows.time.size).values)
    codes, n_groups, inside_strata = _groups_and_strata(group, strata, rows.weights)
    influence = np.zeros((rows.time.size, n_groups))
    for inside in inside_strata:
        influence[inside] = _influence(rows.take(inside), number, codes[inside], n_groups)
    return _score_test(rows.weights @ influence, covariance_of(rows.weights[:, None] * influence, rows.id))


def _groups_and_strata(
    group: npt.ArrayLike, strata: npt.ArrayLike | None, weight: FloatArray
) -> tuple[IntArray, int, list[BoolArray]]:
    """Number of each row's group, (n,), how many groups have weight, and the rows of each stratum."""
    n = len(weight)
    stratum, codes = (
        pd.factorize(row_labels(labels, n, name), sort=True)[0]
        for name, labels in (("strata", np.zeros(n) if strata is None else strata), ("group", group))
    )
    compared = np.bincount(codes[weight > 0], minlength=codes.max() + 1) > 0
    numbers = np.cumsum(compared) - 1
    inside = [stratum == number for number in range(stratum.max() + 1)]
    return numbers[codes].clip(min=0), int(compared.sum()), inside


def _score_test(score: FloatArray, covariance: FloatArray) -> LogrankTest:
    """Test of scores of groups that add up to zero, (n_groups,); 0, 0 and 1 without variance."""
    # A group that was never at risk together with another at an event has no variance but rounding.
    variance = covariance.diagonal()
    varies = variance > _NO_VARIANCE * variance.max(initial=0.0)
    return LogrankTest(*rank_test(score[varies], covariance[varies][:, varies]))


def _excess_events(table: RiskTable) -> tuple[FloatArray, FloatArray]:
    """Events of each group less those expected if groups do not differ, (n_groups,), and their covariance."""
    events, at_risk = table
    total, exposed = events.sum(axis=0), at_risk.sum(axis=0)
    share = at_risk / np.where(exposed > 0, exposed, 1.0)
    # Hypergeometric: of those at risk a fixed number has the event.
    ties = np.divide(exposed - total, exposed - 1.0, out=np.zeros_like(total), where=exposed > 1.0)
    pairs = (share * (total * ties)) @ share.T
    np.fill_diagonal(pairs, 0.0)  # rows of a covariance add up to zero: exactly where a group is alone
    return (events - share * total).sum(axis=1), np.diag(pairs.sum(axis=1)) - pairs


def _steps_of(rows: Observed, times: FloatArray) -> tuple[IntArray, IntArray]:
    """Number of times up to the entry and up to the end of each row, (n,) each."""
    end = np.searchsorted(times, rows.time, side="right")
    begin = np.zeros_like(end) if rows.entry is None else np.searchsorted(times, rows.entry, side="right")
    return np.minimum(begin, end), end


def _residuals(rows: Observed, group: IntArray, times: FloatArray, table: RiskTable) -> FloatArray:
    """Score residuals, (n, n_groups), of a Cox model without effects: weighted sums are excess events."""
    events, at_risk = table
    exposed = at_risk.sum(axis=0)
    risk = np.where(exposed > 0, exposed, 1.0)
    share, hazard = at_risk / risk, events.sum(axis=0) / risk
    member = (group[:, None] == np.arange(len(at_risk))).astype(np.float64)
    total = np.append(0.0, np.cumsum(hazard))
    shared = np.pad(np.cumsum(share * hazard, axis=1), ((0, 0), (1, 0)))
    begin, end = _steps_of(rows, times)
    expected = member * (total[end] - total[begin])[:, None] - (shared[:, end] - shared[:, begin]).T
    own = member - share[:, np.maximum(end - 1, 0)].T
    return np.asarray(rows.event[:, None] * own - expected)


def _influence(rows: Observed, cause: int, group: IntArray, n_groups: int) -> FloatArray:
    """Derivatives of Gray's score of each group with respect to the weights of the rows, (n, n_groups)."""
    # It is the sum over times of d_k - R_k D / R, with R_k = Y_k (1 - F_k-) / S_k- and sums D, R over groups.
    event, own = rows.event, rows.cause == cause
    times = np.unique(rows.time[event])
    if times.size == 0:
        return np.zeros((event.size, n_groups))
    ended, at_risk = risk_table(rows, group, n_groups, times)
    had = risk_table(rows._replace(cause=own), group, n_groups, times).events
    risk = np.where(at_risk > 0, at_risk, 1.0)
    left = at_risk - ended
    goes_on = left > NONE_LEFT * at_risk
    hazard, own_hazard = ended / risk, had / risk
    survival = np.cumprod(np.where(goes_on | (at_risk == 0), 1.0 - hazard, 0.0), axis=1)
    before = np.pad(survival, ((0, 0), (1, 0)), constant_values=1.0)[:, :-1]
    incidence = np.pad(np.cumsum(own_hazard * before, axis=1), ((0, 0), (1, 0)))[:, :-1]
    inverse = np.divide(1.0, before, out=np.zeros_like(before), where=before > 0)
    ratio = (1.0 - incidence) * inverse
    each = at_risk * ratio
    total = each.sum(axis=0)
    share = each / np.where(total > 0, total, 1.0)
    hazard_of_all = had.sum(axis=0) / np.where(total > 0, total, 1.0)
    begin, end = _steps_of(rows, times)
    last = np.maximum(end - 1, 0)
    found = np.empty((event.size, n_groups))
    for k in range(n_groups):
        # What a unit of R of each group costs the score of group k, by group and time.
        cost = hazard_of_all * ((np.arange(n_groups) == k)[:, None] - share[k])
        at_stake = _after(cost * at_risk * ratio)
        by_incidence = before * _after(cost * at_risk * inverse)
        # Derivatives of the cost by the hazards of the cause and of all causes at each time.
        later = _after(own_hazard * by_incidence)
        by_hazard = np.divide(at_stake + later, 1.0 - hazard, out=np.zeros_like(later), where=goes_on)
        # While at risk, and at the event.
        staying = cost * ratio + (by_incidence * own_hazard - by_hazard * hazard) / risk
        passed = np.pad(np.cumsum(staying, axis=1), ((0, 0), (1, 0)))
        found[:, k] = own * ((group == k) - share[k, last]) - (passed[group, end] - passed[group, begin])
        found[:, k] += own * (by_incidence / risk)[group, last] - event * (by_hazard / risk)[group, last]
    return found


def _after(values: FloatArray) -> FloatArray:
    """Sums over all later times, (n_groups, n_times)."""
    return np.asarray(np.cumsum(values[:, ::-1], axis=1)[:, ::-1] - values)
