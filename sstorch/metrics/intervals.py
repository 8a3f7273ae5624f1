"""Limits of concordance, AUC and Brier score at one time, with censoring weights from the same rows.

The error of a score is the infinitesimal jackknife: the root of the sum of its squared derivatives with
respect to the weights of the rows, each times its weight. A row counts in the score itself and, through G,
Kaplan-Meier of censoring of these rows, in the weights 1 / G of all others; both are in the derivative. To
first order that is the influence function of Blanche et al., which timeROC and riskRegression use. Rows of
one subject are added up first. Limits do not depend on the scale of the weights. Those of scores in (0, 1)
are Wald limits on the logit scale, which near 0 and 1 hold the score more often than plain ones. Where no
variance can be estimated, as from a single event or for a concordance of 1, limits are NaN.
"""

from typing import Literal

import numpy as np
from scipy.special import expit, logit

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import KaplanMeier, censoring_distribution, floored, risk_sets
from sstorch.metrics.checks import half_width
from sstorch.metrics.concordance import concordance_harrell_risk, concordance_wolbers
from sstorch.metrics.groups import Estimate
from sstorch.metrics.horizon import HorizonRows, incidence_of
from sstorch.metrics.outcome import Observed
from sstorch.metrics.pairs import (
    ComparablePairs,
    comparable_pairs,
    rank_sums,
    share_of_pairs,
    total_weight,
)
from sstorch.metrics.weights import NO_ERROR, NONE_LEFT

_NO_PAIR = "no comparable pair among {} rows up to {:g}: too few events."
# Difference of sums of the same weights, as a share, that is none.
_ROUNDING = 1e-12
PairWeights = Literal["harrell", "uno"]


def concordance_interval(
    rows: HorizonRows, level: float = 0.95, weights: PairWeights = "harrell"
) -> Estimate[float]:
    """Compute the concordance of predicted survival with the order of events up to t, with confidence limits.

    A pair is comparable if the row with the earlier time has an event by t. A row censored at the time of an
    event, or followed up to t without an event, survives longer. With left truncation both rows must be at
    risk at the same time. With competing causes other causes are censored. The weight of a pair is the
    product of the weights of its rows. O(n log n) time.

    Args:
        rows: outcomes and predictions at the horizon t.
        level: level of the limits, in (0, 1).
        weights: weights of pairs: "harrell" 1, "uno" 1 / G(t_i-)^2 with weighted G from these rows.

    Returns:
        Concordance and its limits, floats; equal predictions count one half. Limits are NaN if the variance
        cannot be estimated: a single event, or a concordance of 0 or 1.

    Raises:
        DataError: no comparable pair, or late entry with "uno".
        ConfigError: unknown weights, or a level out of range.

    References:
        Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387; Uno et al. (2011), Statistics in
        Medicine 30, 1105-1117; Therneau and Atkinson, Concordance, vignette of the R package survival, for
        the infinitesimal jackknife, there with fixed Uno weights.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], 3.5)
        >>> [round(part, 3) for part in concordance_interval(rows)]
        [0.833, 0.322, 0.981]
    """
    value, influence = concordance_influence(rows, weights)
    return logit_limits(value, rows.error_of(influence), half_width(level))


def concordance_influence(rows: HorizonRows, weights: PairWeights = "harrell") -> tuple[float, FloatArray]:
    """The concordance of `concordance_interval` and the influences of rows, (n,), NaN from a single event."""
    check_choice(weights, "weights", ("harrell", "uno"))
    cut, inverse = _counted(rows, weights)
    n, own_weight = len(cut), cut.weights
    pairs = ComparablePairs.of(cut.time, cut.interest, "censored_later")
    ahead, ahead_all = np.zeros(n), np.zeros(n)  # sums of an event over its partners, and of all of them
    behind, behind_all = np.zeros(n), np.zeros(n)  # of a partner over its events
    events, order = pairs.events, pairs.order
    rank = np.unique(cut.survival, return_inverse=True)[1].astype(np.int32)
    weight = inverse[events] ** 2 * own_weight[events]

    def tail(rows: IntArray, start: IntArray) -> tuple[FloatArray, FloatArray]:
        """Weight of the rows from a place on that survive each event, ties a half, and of all, (m,)."""
        risk, mass = rank.max() - rank, np.append(np.cumsum(own_weight[rows][::-1])[::-1], 0.0)
        lower, tied = rank_sums(risk[events], risk[rows], start, np.full_like(start, n), own_weight[rows])
        return lower + 0.5 * tied, mass[start]

    right, whole = tail(order, pairs.start)
    first = np.zeros(n, dtype=np.int64)
    if cut.entry is not None:  # without the rows that enter at an event or later
        by_entry = np.argsort(cut.entry, kind="stable")
        right_late, late = tail(by_entry, np.searchsorted(cut.entry[by_entry], cut.time[events]))
        right = right - right_late
        whole = np.where(whole - late > _ROUNDING * whole, whole - late, 0.0)
        first = np.searchsorted(cut.time[events], cut.entry[order], side="right")
    ahead[events], ahead_all[events] = weight * right, weight * whole
    last = np.searchsorted(pairs.start, np.arange(n), side="right")
    lower, tied = rank_sums(rank[order], rank[events], first, last, weight)
    behind[order] = own_weight[order] * (lower + 0.5 * tied)
    mass = np.append(0.0, np.cumsum(weight))
    behind_all[order] = own_weight[order] * (mass[last] - mass[first])
    total = ahead_all.sum()
    if total == 0.0:
        raise DataError(_NO_PAIR.format(len(rows), rows.t))
    value = float(ahead.sum() / total)
    excess = (ahead - value * ahead_all) / total
    influence = excess + (behind - value * behind_all) / total
    if weights == "uno":
        influence += _through_weights(rows, 2.0 * excess, 0.0)
    if np.count_nonzero(ahead_all) == 1:
        return value, np.full(len(rows), np.nan)
    if len(cut) == len(rows):
        return value, influence
    assert rows.entry is not None
    full = np.zeros(len(rows))
    full[rows.entry < rows.t] = influence
    return value, full


def concordance_value(rows: HorizonRows, weights: PairWeights = "harrell") -> float:
    """The concordance of :func:`concordance_interval` alone, in O(n log n)."""
    y = rows.up_to_horizon()
    if weights == "harrell":
        return concordance_harrell_risk(y.y.only(y.cause), -y.survival, tied_time="censored_later")
    rows.check_from_zero("Uno's concordance")
    inverse = censoring_weights(rows)[0]
    pairs = comparable_pairs(y.y.only(y.cause), "censored_later", None, inverse * inverse)
    return share_of_pairs(*pairs.count_risk(-y.survival), total_weight(pairs), "half")


def wolbers_value(rows: HorizonRows) -> float:
    """Concordance of the cause of interest by the horizon, weighted for censoring.

    :func:`~sstorch.metrics.concordance_wolbers` with G from these rows; an event at the horizon counts.
    """
    rows.check_from_zero("the concordance of Wolbers")
    tau = float(np.nextafter(rows.t, np.inf))
    return concordance_wolbers(rows.y, -rows.survival, rows.cause, train=rows.y, tau=tau)


def _counted(rows: HorizonRows, weights: PairWeights) -> tuple[HorizonRows, FloatArray]:
    """Rows followed up to the horizon, and 1 or 1 / G at their events, (n,)."""
    cut = rows.up_to_horizon()
    if weights == "harrell":
        return cut, np.ones(len(cut))
    rows.check_from_zero("Uno's concordance")
    return cut, censoring_weights(rows)[0]


def auc_interval(rows: HorizonRows, level: float = 0.95) -> Estimate[float]:
    """Compute the cumulative/dynamic AUC at t with limits: `cumulative_dynamic_auc` with G from these rows.

    With competing causes, cases have the cause of interest by t, and controls are all other rows with a known
    status at t: `cumulative_dynamic_auc` with `cause=`. Arguments are as in `concordance_interval`.

    Returns:
        AUC and its limits, floats. Limits are NaN if the variance cannot be estimated: one case, one control,
        or an AUC of 0 or 1.

    Raises:
        DataError: no cases, no controls, or late entry.
        ConfigError: a level out of range.

    References:
        Blanche, Dartigues and Jacqmin-Gadda (2013), Statistics in Medicine 32, 5381-5397.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], 2.5)
        >>> [round(part, 3) for part in auc_interval(rows)]
        [0.75, 0.18, 0.976]
    """
    value, influence = auc_influence(rows)
    return logit_limits(value, rows.error_of(influence), half_width(level))


def auc_influence(rows: HorizonRows) -> tuple[float, FloatArray]:
    """The AUC of `auc_interval` and the influences of rows, (n,), NaN from one case or one control."""
    rows.check_from_zero("the AUC")
    at_event, at_risk = censoring_weights(rows)
    ended = rows.time <= rows.t
    weight = rows.weights * np.where(ended, at_event, at_risk)
    case = ended & rows.interest
    control = ~case & (weight > 0.0)
    if not case.any() or not control.any():
        raise DataError(
            f"t: AUC needs cases and controls, so a time from the first event to before the last observed "
            f"time, {rows.time.max():g}; got {rows.t:g}."
        )
    mass, other = weight[case].sum(), weight[control].sum()
    beaten = _share_above(rows.survival[case], rows.survival[control], weight[control])
    beating = 1.0 - _share_above(rows.survival[control], rows.survival[case], weight[case])
    value = float(weight[case] @ beaten / mass)
    influence = np.zeros(len(rows))
    influence[case] = weight[case] * (beaten - value) / mass
    influence[control] = weight[control] * (beating - value) / other
    through = _through_weights(rows, np.where(ended, influence, 0.0), float(influence[~ended].sum()))
    several = min(np.count_nonzero(case), np.count_nonzero(control)) > 1
    return value, influence + through if several else np.full(len(rows), np.nan)


def brier_interval(rows: HorizonRows, level: float = 0.95, *, scaled: bool = False) -> Estimate[float]:
    """Compute the (scaled) Brier score at t with confidence limits: `brier_score` with G from these rows.

    With competing causes it is `brier_score` with `cause=`. Arguments are as in `concordance_interval`, and
    `scaled` selects 1 - BS / BS_0, with the Kaplan-Meier or Aalen-Johansen estimate of these rows as
    prediction for all rows in BS_0. This prediction has the lowest Brier score of all constant predictions;
    its error has no first-order effect.

    Returns:
        The score and its limits, floats, by Student's t with number of subjects minus one degrees of freedom;
        limits of the scaled score are on the scale of log(BS / BS_0).

    Raises:
        DataError: late entry, or a scaled score before the first event.
        ConfigError: a level out of range.

    References:
        Blanche, Proust-Lima, Loubere et al. (2015), Biometrics 71, 102-113.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], 2.5)
        >>> [round(part, 3) for part in brier_interval(rows)]
        [0.232, 0.049, 0.639]
    """
    value, influence = brier_influence(rows, scaled=scaled)
    error = rows.error_of(influence)
    # With few rows the error of a mean of squares is uncertain itself.
    half = half_width(level, max(rows.n_subjects - 1, 1))
    if not scaled:
        return logit_limits(value, error, half)
    ratio = 1.0 - value
    shift = half * error / ratio if error > NO_ERROR else np.nan
    return Estimate(value, 1.0 - ratio * float(np.exp(shift)), 1.0 - ratio * float(np.exp(-shift)))


def brier_influence(rows: HorizonRows, *, scaled: bool = False) -> tuple[float, FloatArray]:
    """The score of `brier_interval` and the influences of rows, (n,)."""
    rows.check_from_zero("the Brier score")
    value, influence = _brier(rows, rows.survival)
    if scaled:
        alike = float(KaplanMeier.fit(rows.y).at(rows.t))
        if rows.competing:
            alike = 1.0 - incidence_of(rows)[0]
        best, best_influence = _brier(rows, np.full(len(rows), alike))
        if best == 0.0:
            raise DataError(
                f"t: Kaplan-Meier makes no error at {rows.t:g}; give a time from the first event on."
            )
        ratio = value / best
        return 1.0 - ratio, (ratio * best_influence - influence) / best
    return value, influence


def _brier(rows: HorizonRows, survival: FloatArray) -> tuple[float, FloatArray]:
    """The Brier score at t and its weighted derivatives with respect to the weights of the rows, (n,)."""
    at_event, at_risk = censoring_weights(rows)
    alive = rows.time > rows.t
    happened = rows.interest & ~alive
    square = np.where(alive, at_risk, at_event) * np.where(happened, survival, 1.0 - survival) ** 2
    weight, total = rows.weights, float(rows.weights.sum())
    value = float(weight @ square) / total
    early = np.where(alive, 0.0, weight * square) / total
    through = _through_weights(rows, early, float((weight * square)[alive].sum()) / total)
    return value, weight * (square - value) / total + through


def censoring_weights(rows: HorizonRows) -> tuple[FloatArray, float]:
    """1 / G(t_i-) of rows with an event of any cause (0 for the others), (n,), and 1 / G at the horizon."""
    censoring = floored(censoring_distribution(rows.y))
    return np.where(rows.event, 1.0 / censoring.before(rows.time), 0.0), 1.0 / float(censoring.at(rows.t))


def _through_weights(rows: HorizonRows, at_event: FloatArray, at_risk: float) -> FloatArray:
    """How a sum of terms c_i / G moves with the weight of each row that G is estimated from, times it, (n,).

    `at_event` (n,) are its terms at events, which read G(t_i-), and `at_risk` is the sum of those that read
    G(t). One more row of weight w that is censored at u moves log G from there on by -w / (Y - N), and one at
    risk of it by w N / (Y (Y - N)), Y rows at risk of censoring at u and N censored there.
    """
    distinct, position, n_events, censored, at_or_after = risk_sets(
        Observed(rows.time, rows.event, weight=rows.weight)
    )
    exposed = at_or_after - n_events
    # Terms that feel a censoring at each time: events later than it, and those at risk at t.
    here = np.bincount(position, weights=at_event, minlength=distinct.size)
    later = here.sum() - np.cumsum(here) + np.where(distinct <= rows.t, at_risk, 0.0)
    left = exposed - censored
    counts = (censored > 0.0) & (left > NONE_LEFT * at_or_after)
    own = np.divide(later, left, out=np.zeros_like(later), where=counts)
    shared = np.divide(censored * own, exposed, out=np.zeros_like(later), where=counts)
    passed = np.cumsum(shared)
    moved: FloatArray = passed[position] - np.where(rows.event, shared[position], own[position])
    return -rows.weights * moved


def _share_above(low: FloatArray, high: FloatArray, weight: FloatArray) -> FloatArray:
    """Share of the weight of the values `high` (m,) that is above each of `low` (k,), ties a half; (k,)."""
    order = np.argsort(high, kind="stable")
    mass = np.concatenate(([0.0], np.cumsum(weight[order])))
    up_to = mass[np.searchsorted(high[order], low, side="right")]
    below = mass[np.searchsorted(high[order], low, side="left")]
    share: FloatArray = 1.0 - 0.5 * (up_to + below) / mass[-1]
    return share


def logit_limits(value: float, error: float | FloatArray, half: float) -> Estimate[float]:
    """Limits of a score in (0, 1), `half` errors of its logit to both sides; NaN without an error."""
    if not error > NO_ERROR or not 0.0 < value < 1.0:
        return Estimate(value, np.nan, np.nan)
    step = half * error / (value * (1.0 - value))
    return Estimate(value, *(float(expit(logit(value) + sign * step)) for sign in (-1.0, 1.0)))
