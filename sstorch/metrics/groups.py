"""Kaplan-Meier estimates of groups with their confidence limits, and the agreement of partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import as_numbers, check_share
from sstorch.data.target import ROUNDING, steps_up_to
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.weights import NONE_LEFT, check_weighting, exposed_weight

Number = TypeVar("Number", float, FloatArray)
# Products of shares miss a half by rounding.
_ROUNDING = 1e-12


class Estimate(NamedTuple, Generic[Number]):
    """A number with confidence limits, or arrays of these."""

    value: Number
    lower: Number
    upper: Number


class RiskTable(NamedTuple):
    """Events and rows at risk by group and time, each (n_groups, n_times); sums of weights."""

    events: FloatArray
    at_risk: FloatArray


def risk_table(rows: Observed, group: IntArray, n_groups: int, times: FloatArray) -> RiskTable:
    """Events at each time, and rows with entry < t <= time, by group (n,); all event times are in `times`."""
    each, width = rows.weights, times.size + 1  # one more column in front, for what ends before them

    def by_time(at: FloatArray, weights: FloatArray) -> FloatArray:
        cell = group * width + np.searchsorted(times, at, side="right")
        counts: FloatArray = np.bincount(cell, weights, n_groups * width).astype(np.float64, copy=False)
        return counts.reshape(n_groups, width)[:, 1:]

    def from_time(at: FloatArray) -> FloatArray:
        return np.cumsum(by_time(at, each)[:, ::-1], axis=1)[:, ::-1]

    size = at_risk = from_time(rows.time)
    if rows.entry is not None:
        at_risk = at_risk - from_time(rows.entry)
    events = by_time(rows.time, rows.event * each)
    return RiskTable(events, exposed_weight(events, at_risk, size))


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """Kaplan-Meier estimate of a survival function with pointwise confidence limits.

    A right-continuous step function, 1 before the first time and constant beyond the last. With late entry,
    rows are at risk after their entry, and S is conditional on survival to the first entry. If all rows at
    risk have the event at an early time, S is 0 from this time on.

    Limits are on the scale of log(-log S). The variance is Greenwood's, or the infinitesimal jackknife by
    subject for unequal sampling weights, as in R's ``survfit(id=)``. At S = 1 both limits are 1, and NaN
    without an event; at S = 0 the lower limit is 0 and the upper limit keeps its value.

    Attributes:
        times: distinct times of events, increasing, shape (n_times,), in the unit of the data.
        values: S at these times, including the step, shape (n_times,).
        lower: lower limit, shape (n_times,).
        upper: upper limit, shape (n_times,).

    References:
        Kaplan and Meier (1958), Journal of the American Statistical Association 53, 457-481; Tsai, Jewell and
        Wang (1987), Biometrika 74, 883-886, for late entry; Kalbfleisch and Prentice (2002), The Statistical
        Analysis of Failure Time Data, 2nd edition, section 1.4, for the limits; Brookmeyer and Crowley
        (1982), Biometrics 38, 29-41, for those of quantiles.

    Examples:
        >>> km = KaplanMeier.fit(([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 0, 1, 1, 1, 1, 0]))
        >>> km.at([0.5, 2.0]).tolist(), km.before([2.0]).tolist()
        ([1.0, 0.75], [0.875])
        >>> [round(float(part), 3) for part in km.limits(2.5)]
        [0.75, 0.315, 0.931]
        >>> [float(part) for part in km.quantile(0.5)]
        [5.0, 1.0, 7.0]
    """

    times: FloatArray
    values: FloatArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def fit(
        cls, y: Outcome, *, level: float | None = 0.95, sample_weight: npt.ArrayLike | None = None
    ) -> KaplanMeier:
        """Estimate survival and its limits.

        Entry times (left truncation) of `y` count. `level` is that of the limits at each time, in (0, 1),
        None for none. With unequal sampling weights (n,), of any scale, influences are summed by subject.

        Raises:
            DataError: invalid arguments, or rows of a subject that overlap.
            ConfigError: a level out of range.
        """
        rows = read_rows(y, "Kaplan-Meier", entry=True, weight=True, sample_weight=sample_weight)
        weight, robust = check_weighting(rows.weight, rows.time.size)
        rows = rows._replace(weight=weight)
        times = np.unique(rows.time[rows.event & (rows.weights > 0)])
        one = np.zeros(rows.time.size, dtype=np.int64)
        if level is None:
            return cls.steps(times, _survival(risk_table(rows, one, 1, times))[0])
        (values,), (error,) = survival_and_error(rows, one, 1, times, robust)
        return cls(times, values, *log_log_limits(values, half_width(level) * error))

    @classmethod
    def steps(cls, times: FloatArray, values: FloatArray) -> KaplanMeier:
        """A step function without limits."""
        return cls(times, values, *np.full((2, times.size), np.nan))

    def at(self, t: npt.ArrayLike) -> FloatArray:
        """Evaluate S(t); the result has the shape of the input. NaN raises a `DataError`."""
        return np.asarray(np.append(1.0, self.values)[steps_up_to(self.times, _without_nan(t))])

    def before(self, t: npt.ArrayLike) -> FloatArray:
        """Evaluate S(t-), the limit from the left, as `at`."""
        position = np.searchsorted(self.times, _without_nan(t) * (1.0 - ROUNDING), side="left")
        return np.asarray(np.append(1.0, self.values)[position])

    def limits(self, t: npt.ArrayLike) -> Estimate[FloatArray]:
        """S(t) and its limits, each of the shape of ``t``."""
        return Estimate(*self._steps()[:, steps_up_to(self.times, _without_nan(t))])

    def quantile(self, q: float = 0.5) -> Estimate[FloatArray]:
        """Return the quantile ``q`` of the event time (default: the median), with limits.

        The interval contains the times at which the band contains 1 - q; a limit that is not reached is +inf,
        and both are NaN if there is no event. A ``q`` that is not in (0, 1) raises a `ConfigError`.
        """
        check_share(q, "q")
        return Estimate(*first_below(np.append(0.0, self.times), self._steps(), 1.0 - q))

    def _steps(self) -> FloatArray:
        """S and its limits from time 0 on, (3, 1 + n_times)."""
        start = 1.0 if (self.values < 1.0).any() else np.nan
        return np.column_stack([[1.0, start, start], np.stack([self.values, self.lower, self.upper])])


def _without_nan(t: npt.ArrayLike) -> FloatArray:
    at = as_numbers(t, "t")
    if np.isnan(at).any():
        raise DataError("t must not be NaN.")
    return at


def _survival(table: RiskTable) -> FloatArray:
    """Kaplan-Meier of each group, (n_groups, n_times); where no row is at risk it keeps its value."""
    hazard = table.events / np.where(table.at_risk > 0, table.at_risk, 1.0)
    return np.cumprod(1.0 - hazard, axis=1, dtype=np.float64)


def survival_and_error(
    rows: Observed, group: IntArray, n_groups: int, times: FloatArray, robust: bool
) -> tuple[FloatArray, FloatArray]:
    """Kaplan-Meier of each group and the standard error of log(-log S), each (n_groups, n_times)."""
    # The error is 0 at S = 1; at S = 0, where it has no value, it keeps its last one.
    events, at_risk = table = risk_table(rows, group, n_groups, times)
    survival = _survival(table)
    inner = (survival > 0.0) & (survival < 1.0)
    if robust:
        variance = _robust_variance(rows, group, times, table)
    else:
        counted = inner & (events > 0)
        terms = np.divide(events, at_risk * (at_risk - events), out=np.zeros_like(events), where=counted)
        variance = np.cumsum(terms, axis=1)
    error = np.sqrt(variance) / np.where(inner, -np.log(np.where(inner, survival, 0.5)), np.inf)
    last = np.maximum.accumulate(np.where(inner, np.arange(survival.shape[1]), 0), axis=1)
    return survival, np.take_along_axis(error, last, axis=1)


def _robust_variance(rows: Observed, group: IntArray, times: FloatArray, table: RiskTable) -> FloatArray:
    """Variance of log S by the infinitesimal jackknife, (n_groups, n_times), meaningless after S = 0."""
    # As R's ``survfit(robust=TRUE)``: Therneau and Grambsch (2000), Modeling Survival Data, section 7.
    time, event, entry, weight = rows.time, rows.event, rows.entry, rows.weights
    events, at_risk = table
    n_groups, width = at_risk.shape
    left = at_risk - events
    goes_on = left > NONE_LEFT * at_risk
    fall = np.divide(events, at_risk * left, out=np.zeros_like(events), where=goes_on & (events > 0))
    fallen = np.pad(np.cumsum(fall, axis=1), ((0, 0), (1, 0)))  # after 0 .. n_times steps
    end = np.searchsorted(times, time, side="right")
    begin = np.zeros_like(end) if entry is None else np.searchsorted(times, entry, side="right")
    # A row that is at risk at no time of an event has no influence: its interval is empty.
    begin = np.minimum(begin, end)
    own = np.pad(np.divide(1.0, left, out=np.zeros_like(left), where=goes_on), ((0, 0), (1, 0)))
    gone = weight * (fallen[group, end] - fallen[group, begin] - event * own[group, end])
    before, until = np.zeros(time.size), np.full(time.size, width + 1)
    if rows.id is not None:
        subject = np.unique(rows.id, return_inverse=True)[1]
        before, until = _histories(group, subject, begin, end, gone, width)
    # While a row is observed its subject has the influence a + w fallen, and a constant after it.
    constant = before - weight * fallen[group, begin]
    cells = (
        (begin, end, np.stack([constant**2, 2 * constant * weight, weight**2])),
        (end, until, np.stack([(before + gone) ** 2, np.zeros(time.size), np.zeros(time.size)])),
    )
    square = np.zeros((3, n_groups * (width + 2)))
    for start, stop, values in cells:
        for total, value in zip(square, values, strict=True):
            total += np.bincount(group * (width + 2) + start, value, total.size)
            total -= np.bincount(group * (width + 2) + stop, value, total.size)
    still, slope, curve = square.reshape(3, n_groups, width + 2).cumsum(axis=2)[:, :, 1 : width + 1]
    level = fallen[:, 1:]
    return np.asarray(np.maximum(still + slope * level + curve * level**2, 0.0))


def _histories(
    group: IntArray, subject: IntArray, begin: IntArray, end: IntArray, gone: FloatArray, width: int
) -> tuple[FloatArray, IntArray]:
    """Of each row the influence of the subject's earlier rows in the group, and the step of the next one."""
    order = np.lexsort((end, begin, subject, group))
    same = (np.diff(group[order]) == 0) & (np.diff(subject[order]) == 0)
    if (same & (begin[order][1:] < end[order][:-1])).any():
        raise DataError("id: rows of a subject overlap; give the entry of each row.")
    first = np.flatnonzero(np.append(True, ~same))
    total = np.cumsum(gone[order]) - gone[order]
    before, until = np.empty(gone.size), np.empty(gone.size, dtype=np.int64)
    before[order] = total - np.repeat(total[first], np.diff(np.append(first, gone.size)))
    until[order] = np.append(np.where(same, begin[order][1:], width + 1), width + 1)
    return before, until


def log_log_limits(values: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Limits of curves, (..., n_times), ``half`` to both sides of log(-log S); NaN if S stays at 1."""
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


def median_follow_up(y: Outcome) -> Estimate[float]:
    """Median follow-up by reverse Kaplan-Meier with limits; infinite if not reached."""
    # Schemper and Smith (1996), Controlled Clinical Trials 17. Rows that a later one continues do not end it.
    rows = read_rows(y, "the median follow-up", entry=True, weight=True)
    lost = rows.ends & ~rows.event
    return Estimate(*(float(part) for part in KaplanMeier.fit(rows._replace(cause=lost)).quantile()))


def adjusted_rand_index(groups: IntArray) -> FloatArray:
    """Adjusted Rand index of every two of K partitions of n rows, group numbers >= 0, (K, n); (K, K)."""
    (count, n), n_groups = groups.shape, int(groups.max(initial=0)) + 1
    whole = np.zeros((count, n_groups, n))
    np.put_along_axis(whole, groups[:, None], 1.0, axis=1)
    member = whole.reshape(count * n_groups, n)
    sizes, shared = member.sum(axis=1).reshape(count, n_groups), member @ member.T
    together = (shared * (shared - 1) / 2).reshape(count, n_groups, count, n_groups).sum(axis=(1, 3))
    alone = (sizes * (sizes - 1) / 2).sum(axis=1)
    expected, most = np.outer(alone, alone) / max(n * (n - 1) / 2, 1.0), (alone[:, None] + alone) / 2
    index = np.ones((count, count))
    np.divide(together - expected, most - expected, out=index, where=most - expected > 1e-12 * (1 + most))
    return index
