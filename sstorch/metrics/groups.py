"""Groups of rows: Kaplan-Meier with its limits, log-rank test, concordance of groups alone, agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import as_numbers, check_share
from sstorch.data.columns import row_labels
from sstorch.data.target import steps_up_to
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.censoring import KaplanMeier
from sstorch.metrics.checks import half_width
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.weights import (
    check_weighting,
    covariance_of,
    exposed_weight,
    log_survival_variance,
    logrank_residuals,
    rank_test,
)

Number = TypeVar("Number", float, FloatArray)
# Products of shares miss a half, or each other, by rounding.
_ROUNDING = 1e-12
# Share of the largest variance of a score below which one is the square of a rounding error.
_NO_VARIANCE = 1e-20


class Estimate(NamedTuple, Generic[Number]):
    """A number with confidence limits, or arrays of these."""

    value: Number
    lower: Number
    upper: Number


class LogrankTest(NamedTuple):
    """Result of `logrank_test`.

    Attributes:
        statistic: chi squared.
        degrees_of_freedom: rank of the covariance of observed minus expected events: the number of groups
            minus one, less where groups are never at risk at an event together with others.
        p_value: p-value of the null hypothesis of no difference between the groups.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float


class RiskTable(NamedTuple):
    """Events and rows at risk by group and time, each (n_groups, n_times); sums of weights."""

    events: FloatArray
    at_risk: FloatArray

    def survival(self) -> FloatArray:
        """Kaplan-Meier of each group, (n_groups, n_times); where no row is at risk it keeps its value."""
        hazard = self.events / np.where(self.at_risk > 0, self.at_risk, 1.0)
        return np.cumprod(1.0 - hazard, axis=1, dtype=np.float64)


def risk_table(rows: Observed, group: IntArray, n_groups: int, times: FloatArray) -> RiskTable:
    """Count by group, 0 .. n_groups - 1, (n,): events at each time, and rows with entry < t <= time.

    Times (n_times,) are increasing, with all times of events among them.
    """
    time, event, entry = rows.time, rows.event, rows.entry
    each = rows.weights
    # One more column in front, for what ends before the first time.
    width = times.size + 1

    def by_time(at: FloatArray, weights: FloatArray) -> FloatArray:
        cell = group * width + np.searchsorted(times, at, side="right")
        counts: FloatArray = np.bincount(cell, weights, n_groups * width).astype(np.float64, copy=False)
        return counts.reshape(n_groups, width)[:, 1:]

    def from_time(at: FloatArray) -> FloatArray:
        return np.cumsum(by_time(at, each)[:, ::-1], axis=1)[:, ::-1]

    size = at_risk = from_time(time)
    if entry is not None:
        at_risk = at_risk - from_time(entry)
    events = by_time(time, event * each)
    return RiskTable(events, exposed_weight(events, at_risk, size))


@dataclass(frozen=True, eq=False)
class KaplanMeierBand:
    """Kaplan-Meier with pointwise confidence limits on the scale of log(-log S).

    The variance is Greenwood's, or the infinitesimal jackknife by subject for unequal sampling weights, as in
    R's ``survfit(id=)``. A step function, 1 before the first time. At S = 1 both limits are 1; at S = 0 the
    lower limit is 0 and the upper limit keeps its value.

    Attributes:
        times: distinct times of events, increasing, shape (n_times,).
        values: S at these times, including the step, shape (n_times,).
        lower: lower limit, shape (n_times,).
        upper: upper limit, shape (n_times,).

    References:
        Kalbfleisch and Prentice (2002), The Statistical Analysis of Failure Time Data, 2nd edition, section
        1.4, for the limits; Brookmeyer and Crowley (1982), Biometrics 38, 29-41, for those of quantiles.

    Examples:
        >>> band = KaplanMeierBand.fit(([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 0, 1, 1, 1, 1, 0]))
        >>> [round(float(part), 3) for part in band.at(2.5)]
        [0.75, 0.315, 0.931]
        >>> [float(part) for part in band.quantile(0.5)]
        [5.0, 1.0, 7.0]
    """

    times: FloatArray
    values: FloatArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def fit(
        cls,
        y: Outcome,
        *,
        level: float = 0.95,
        sample_weight: npt.ArrayLike | None = None,
    ) -> KaplanMeierBand:
        """Estimate survival and its limits.

        Args:
            y: outcome of the rows, a `Surv`, with its entry times (left truncation), or the tuple (time,
                event). With unequal sampling weights influences are summed by subject.
            level: level of the limits, at each time, in (0, 1).
            sample_weight: weights >= 0, shape (n,); None for the weights of `y`. Limits use the infinitesimal
                jackknife with w^2, as R's ``survfit(robust=TRUE)``, and do not depend on their scale.

        Raises:
            DataError: invalid arguments (see `sstorch.checks`), or rows of a subject that overlap.
            ConfigError: a level out of range.
        """
        rows = read_rows(y, "Kaplan-Meier", entry=True, weight=True, sample_weight=sample_weight)
        weight, robust = check_weighting(rows.weight, rows.time.size)
        rows = rows._replace(weight=weight)
        times = np.unique(rows.time[rows.event if weight is None else rows.event & (weight > 0)])
        one = np.zeros(rows.time.size, dtype=np.int64)
        (values,), (error,) = survival_and_error(rows, one, 1, times, robust)
        half = half_width(level) * error
        return cls(times, values, *log_log_limits(values, half))

    def at(self, t: npt.ArrayLike) -> Estimate[FloatArray]:
        """S(t) and its limits, each of the shape of ``t``.

        Raises:
            DataError: no numbers.
        """
        position = steps_up_to(self.times, as_numbers(t, "t"))
        return Estimate(*self._steps()[:, position])

    def quantile(self, q: float = 0.5) -> Estimate[FloatArray]:
        """Return the quantile ``q`` of the event time (default: the median), with limits.

        The interval contains the times at which the band contains 1 - q; a limit that is not reached is +inf,
        and both are NaN if there is no event.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
        """
        check_share(q, "q")
        return Estimate(*first_below(np.append(0.0, self.times), self._steps(), 1.0 - q))

    def _steps(self) -> FloatArray:
        """S and its limits from time 0 on, (3, 1 + n_times)."""
        start = 1.0 if (self.values < 1.0).any() else np.nan
        return np.column_stack([[1.0, start, start], np.stack([self.values, self.lower, self.upper])])


def survival_and_error(
    rows: Observed, group: IntArray, n_groups: int, times: FloatArray, robust: bool
) -> tuple[FloatArray, FloatArray]:
    """Kaplan-Meier of each group and the standard error of log(-log S), each (n_groups, n_times).

    Arguments are as in :func:`risk_table`; weights and ``robust`` are as in `Weighting`.
    """
    table = risk_table(rows, group, n_groups, times)
    variance = log_survival_variance(rows, group, times, *table) if robust else None
    return table.survival(), log_log_error(table, variance)


def log_log_error(table: RiskTable, variance: FloatArray | None = None) -> FloatArray:
    """Standard error of log(-log S), (n_groups, n_times); 0 at S = 1.

    At S = 0, where it has no value, it keeps its last one. `variance` is that of log S; Greenwood's if None.
    """
    events, at_risk = table
    survival = table.survival()
    inner = (survival > 0.0) & (survival < 1.0)
    if variance is None:
        counted = inner & (events > 0)
        terms = np.divide(events, at_risk * (at_risk - events), out=np.zeros_like(events), where=counted)
        variance = np.cumsum(terms, axis=1)
    spread = np.sqrt(variance)
    ended = np.where(inner, -np.log(np.where(inner, survival, 0.5)), np.inf)
    error = spread / ended
    last = np.maximum.accumulate(np.where(inner, np.arange(survival.shape[1]), 0), axis=1)
    return np.asarray(np.take_along_axis(error, last, axis=1), dtype=np.float64)


def log_log_limits(values: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Limits of survival curves, (..., n_times), ``half`` to both sides of log(-log S).

    NaN for a curve that stays at 1; where S is 0 the lower limit is 0 and the upper one keeps its last value.
    """
    with np.errstate(over="ignore"):
        lower, upper = (np.asarray(values ** np.exp(sign * half), dtype=np.float64) for sign in (1.0, -1.0))
    ended = values <= 0.0
    lower[ended] = 0.0
    unknown = (values >= 1.0).all(axis=-1)
    lower[unknown], upper[unknown] = np.nan, np.nan
    last = np.maximum.accumulate(np.where(ended, -1, np.arange(values.shape[-1])), axis=-1)
    kept = np.take_along_axis(upper, np.maximum(last, 0), axis=-1)
    return lower, np.where(ended, np.where(last < 0, 1.0, kept), upper)


def first_below(times: FloatArray, curves: FloatArray, level: float) -> FloatArray:
    """First time at which each curve, (..., n_times), is at ``level`` or below; +inf if never, NaN of NaN."""
    below = curves <= level + _ROUNDING
    # One more column, so that there is always a first.
    below = np.concatenate([below, np.ones((*below.shape[:-1], 1), dtype=bool)], axis=-1)
    found = np.append(times, np.inf)[below.argmax(axis=-1)]
    return np.where(np.isnan(curves).any(axis=-1), np.nan, found)


def logrank_test(
    y: Outcome,
    group: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
    strata: npt.ArrayLike | None = None,
) -> LogrankTest:
    """Log-rank test of no difference between two or more groups, optionally stratified.

    With unequal sampling weights it is the robust score test of the weighted Cox model, as in R's
    ``coxph(..., ties="breslow", robust=TRUE)``. The variance of observed minus expected events is the sum
    over subjects of squared weighted score residuals; the result does not depend on the scale of the weights.
    Equal weights give the unweighted test.

    Groups defined on the same rows, such as leaves of a tree on its training rows, differ by construction:
    the p-value is valid only on other rows.

    Args:
        y: outcome of the rows, a `Surv`, with its entry times (left truncation), or the tuple (time, event).
            With unequal sampling weights residuals are summed by its subjects.
        group: a number or a label for each row, shape (n,).
        sample_weight: weights >= 0, shape (n,); None for the weights of `y`.
        strata: a number or a label for each row, shape (n,): rows are compared within strata; differences and
            variances are summed. None for one stratum.

    Returns:
        Chi squared, degrees of freedom, and p; 0, 0 and 1 where no two groups are compared.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or labels whose number is wrong or that are
            missing; the message names the rows.

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
    rows = read_rows(
        y,
        "the log-rank test",
        entry=True,
        weight=True,
        sample_weight=sample_weight,
        group=group,
        strata=strata,
    )
    n = rows.time.size
    codes, n_groups, inside_strata = groups_and_strata(group, strata, rows.weights)
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
            residuals[inside] = logrank_residuals(part, codes[inside], times, *table)
    if robust:
        covariance = covariance_of(rows.weights[:, None] * residuals, rows.id)
    return score_test(excess, covariance)


def score_test(score: FloatArray, covariance: FloatArray) -> LogrankTest:
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


def concordance_of_groups(y: Outcome, group: npt.ArrayLike, *, train: tuple[Outcome, npt.ArrayLike]) -> float:
    """Compute the concordance of a model with the group as only covariate.

    The prediction is the Kaplan-Meier curve of the training rows of the group, or of all training rows for a
    group without training rows. Pairs within a group count half: 0.5 means no separation.

    Args:
        y: outcome of the rows, a `Surv`, with its weights and entry times (left truncation), or the tuple
            (time, event). Pairs must be at risk at the same time.
        group: a number or a label for each row, shape (n,).
        train: outcome and group of the training rows.

    Returns:
        The concordance of :func:`~sstorch.metrics.concordance_harrell`, in [0, 1].

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or no two rows are comparable.

    Examples:
        >>> train = ([1, 2, 8], [1, 1, 1]), [0, 0, 1]
        >>> concordance_of_groups(([1, 2, 3, 4], [1, 1, 1, 1]), [0, 0, 1, 1], train=train)
        0.8333333333333334
    """
    rows = read_rows(y, "concordance", entry=True, weight=True, group=group)
    row_time, row_event, late, row_weight = rows.time, rows.event, rows.entry, rows.weight
    if len(train) != 2:
        raise ConfigError("train must be the outcome and the groups of the training rows.")
    known = read_rows(train[0], "concordance", entry=True, weight=True, prefix="train ", train_group=train[1])
    both = row_labels(group, row_time.size, "group"), row_labels(train[1], known.time.size, "train group")
    labels, given = np.split(pd.factorize(pd.concat(both))[0], [row_time.size])
    times = np.unique(row_time[row_event])
    if times.size == 0:
        raise DataError("event: no row has one, so no two rows can be compared.")
    overall = KaplanMeier.fit(known).at(times)
    names, codes = np.unique(labels, return_inverse=True)
    curves = np.tile(overall, (len(names), 1))
    for curve, label in zip(curves, names, strict=True):
        inside = given == label
        if inside.any():
            curve[:] = KaplanMeier.fit(known.take(inside)).at(times)
    # Rows of a group are alike: pairs are counted by group and time of the event, those observed longer with
    # each event then.
    events = risk_table(rows._replace(entry=None), codes, len(names), times).events
    width = times.size + 1

    def after(place: IntArray) -> FloatArray:
        """Weight by group and time of the rows whose place among the times is behind it."""
        counts = np.bincount(codes * width + place, row_weight, len(names) * width).astype(np.float64)
        return np.cumsum(counts.reshape(-1, width)[:, :0:-1], axis=1)[:, ::-1]

    longer = after(np.searchsorted(times, rows.survived))
    if late is not None:
        longer = np.maximum(longer - after(np.searchsorted(times, late, side="right")), 0.0)
    concordant = pairs = 0.0
    for curve, own in zip(curves, events, strict=True):
        above = (curves > curve + _ROUNDING) + 0.5 * (np.abs(curves - curve) <= _ROUNDING)
        concordant += float((own * longer * above).sum())
        pairs += float((own * longer).sum())
    if pairs == 0:
        raise DataError(
            "time: no two rows can be compared: no row is observed longer than one with an event."
        )
    return concordant / pairs


def adjusted_rand_index(groups: npt.ArrayLike) -> FloatArray:
    """Agreement of every two of some partitions of the same rows.

    1 if two make the same groups, whatever their numbers, and 0 on average where they agree no more than by
    chance. Two partitions into one group each agree.

    Args:
        groups: group of each row in each partition, integers >= 0, shape (K, n).

    Returns:
        Symmetric, shape (K, K).

    Raises:
        DataError: not integers >= 0 of two dimensions.

    References:
        Hubert and Arabie (1985), "Comparing partitions", Journal of Classification 2, 193-218.

    Examples:
        >>> adjusted_rand_index([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]]).round(2).tolist()
        [[1.0, 1.0, -0.5], [1.0, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    partitions = np.asarray(groups)
    if (
        partitions.ndim != 2
        or partitions.dtype.kind not in "iu"
        or (partitions.size and partitions.min() < 0)
    ):
        raise DataError("groups must be integers >= 0, a row for each partition and a column for each row.")
    count, n = partitions.shape
    n_groups = int(partitions.max(initial=0)) + 1
    member = np.zeros((count * n_groups, n))
    member[(partitions + n_groups * np.arange(count)[:, None]).ravel(), np.tile(np.arange(n), count)] = 1.0
    # All tables of two partitions are one product.
    shared = (member @ member.T).reshape(count, n_groups, count, n_groups)

    def pairs(counts: FloatArray) -> FloatArray:
        return np.asarray(counts * (counts - 1) / 2)

    together: FloatArray = pairs(shared).sum(axis=(1, 3))
    alone = pairs(member.sum(axis=1).reshape(count, n_groups)).sum(axis=1)
    expected = np.outer(alone, alone) / max(n * (n - 1) / 2, 1.0)
    most = (alone[:, None] + alone) / 2
    room = most - expected
    index = np.ones((count, count))
    np.divide(together - expected, room, out=index, where=room > 1e-12 * (1 + most))
    return index


def group_codes(group: npt.ArrayLike, n_rows: int, name: str = "group") -> tuple[IntArray, int]:
    """Number of each row's group, (n,), 0 .. G - 1 in the order of the labels, and G."""
    codes, labels = pd.factorize(row_labels(group, n_rows, name), sort=True)
    return codes.astype(np.int64), len(labels)


def groups_and_strata(
    group: npt.ArrayLike, strata: npt.ArrayLike | None, weight: FloatArray
) -> tuple[IntArray, int, list[BoolArray]]:
    """Number of each row's group, (n,), how many groups have weight, and the rows of each stratum.

    A row without weight may have any number.
    """
    n_rows = len(weight)
    stratum, n_strata = group_codes(np.zeros(n_rows) if strata is None else strata, n_rows, "strata")
    codes, _ = group_codes(group, n_rows)
    compared = np.bincount(codes[weight > 0], minlength=codes.max() + 1) > 0
    numbers = np.cumsum(compared) - 1
    codes = numbers[codes].clip(min=0)
    return codes, int(compared.sum()), [stratum == number for number in range(n_strata)]


def median_follow_up(y: Outcome) -> Estimate[float]:
    """Median follow-up by reverse Kaplan-Meier with 95 % confidence limits.

    Args:
        y: outcome of the rows, of any cause, with weights and entry times (left truncation). A start-stop row
            that a later one of its subject continues does not end the follow-up.

    Returns:
        The median and its limits in the unit of `y`, infinite if not reached; no limits (NaN) if no row was
        censored.

    Raises:
        DataError: an invalid outcome.

    References:
        Schemper and Smith (1996), Controlled Clinical Trials 17, 343-346.

    Examples:
        >>> median_follow_up(([1, 2, 3, 4, 5, 6], [1, 0, 0, 1, 0, 0])).value
        5.0
    """
    rows = read_rows(y, "the median follow-up", entry=True, weight=True)
    lost = rows.ends & ~rows.event
    return Estimate(*(float(part) for part in KaplanMeierBand.fit(rows._replace(cause=lost)).quantile()))
