"""Gray's test: whether the cumulative incidences of a cause differ between groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.metrics.groups import LogrankTest, groups_and_strata, risk_table, score_test
from sstorch.metrics.outcome import Observed, Outcome, read_scored
from sstorch.metrics.weights import NONE_LEFT, check_weighting, covariance_of


def gray_test(
    y: Outcome,
    group: npt.ArrayLike,
    cause: int | str = 1,
    *,
    sample_weight: npt.ArrayLike | None = None,
    strata: npt.ArrayLike | None = None,
) -> LogrankTest:
    """Gray's test of equal cumulative incidences of a cause in two or more groups, optionally stratified.

    The log-rank test of :func:`logrank_test` with other causes censored compares cause-specific hazards. This
    test compares subdistribution hazards; its null hypothesis is equality of the cumulative incidence
    functions. Scores are those of Gray with rho = 0: the number at risk of a group is Y(t) (1 - F(t-)) /
    S(t-), with F and S its Aalen-Johansen and Kaplan-Meier estimates. The variance is the sum over subjects
    of squared influences (infinitesimal jackknife) instead of Gray's formula under the null hypothesis:
    p-values differ slightly from R's ``cuminc``, but are valid for left truncation, sampling weights and
    several rows per subject.

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
    rows, number = read_scored(
        y,
        "Gray's test",
        cause,
        entry=True,
        weight=True,
        sample_weight=sample_weight,
        group=group,
        strata=strata,
    )
    n = rows.time.size
    given, _ = check_weighting(rows.weight, n)
    rows, weight = rows._replace(weight=given), np.ones(n) if given is None else given
    codes, n_groups, inside_strata = groups_and_strata(group, strata, weight)
    influence = np.zeros((n, n_groups))
    for inside in inside_strata:
        influence[inside] = _influence(rows.take(inside), number, codes[inside], n_groups)
    return score_test(weight @ influence, covariance_of(weight[:, None] * influence, rows.id))


def _influence(rows: Observed, cause: int, group: IntArray, n_groups: int) -> FloatArray:
    """Derivatives of the score of each group with respect to the weights of the rows, (n, n_groups).

    The score of group k is the sum over times of d_k - R_k D / R, with its events d_k of the cause, their
    sum D, its R_k = Y_k (1 - F_k-) / S_k-, and their sum R. It is homogeneous in the weights: weights times
    derivatives sum to the score.
    """
    time, event, entry, own = rows.time, rows.event, rows.entry, rows.cause == cause
    times = np.unique(time[event])
    if times.size == 0:
        return np.zeros((time.size, n_groups))
    ended, at_risk = risk_table(rows, group, n_groups, times)
    had = risk_table(rows.only(cause), group, n_groups, times).events
    risk = np.where(at_risk > 0, at_risk, 1.0)
    left = at_risk - ended
    goes_on = left > NONE_LEFT * at_risk
    hazard, own_hazard = ended / risk, had / risk
    survival = np.cumprod(np.where(goes_on | (at_risk == 0), 1.0 - hazard, 0.0), axis=1)
    before = np.pad(survival, ((0, 0), (1, 0)), constant_values=1.0)[:, :-1]
    incidence = np.pad(np.cumsum(own_hazard * before, axis=1), ((0, 0), (1, 0)))[:, :-1]
    alive = before > 0
    inverse = np.divide(1.0, before, out=np.zeros_like(before), where=alive)
    ratio = (1.0 - incidence) * inverse
    each = at_risk * ratio
    total = each.sum(axis=0)
    share = each / np.where(total > 0, total, 1.0)
    hazard_of_all = had.sum(axis=0) / np.where(total > 0, total, 1.0)
    end = np.searchsorted(times, time, side="right")
    begin = np.zeros_like(end) if entry is None else np.searchsorted(times, entry, side="right")
    begin = np.minimum(begin, end)
    last = np.maximum(end - 1, 0)
    found = np.empty((time.size, n_groups))
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
