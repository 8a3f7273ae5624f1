"""Limits of concordance, AUC and Brier score at one time, with censoring weights from the same rows.

The error of a score is the infinitesimal jackknife: the root of the sum of its squared derivatives with
respect to the weights of the rows. A row counts in the score itself and, through G, Kaplan-Meier of
censoring of these rows, in the weights 1 / G of all others; both are in the derivative. To first order that
is the influence function of Blanche et al., which timeROC and riskRegression use.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import blocks, check_choice, check_share
from sstorch.exceptions import DataError
from sstorch.metrics.auc import cumulative_dynamic_auc
from sstorch.metrics.brier import brier_weights, kaplan_meier_curves
from sstorch.metrics.calibration import rows_at_one_time
from sstorch.metrics.censoring import censoring_distribution, ipcw_weights, risk_sets
from sstorch.metrics.concordance import ComparablePairs
from sstorch.metrics.groups import Estimate
from sstorch.metrics.outcome import Outcome
from sstorch.metrics.weak_calibration import followed_up_to


def concordance_interval(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    weights: Literal["harrell", "uno"] = "harrell",
    confidence: float = 0.95,
) -> Estimate[float]:
    """Concordance of predicted survival with the order of the events up to t, and its limits.

    Pairs are those with an event by t in the row that failed first; a row censored at the time of an event,
    or followed up to t without one, outlived it. O(n n_events) time, memory bounded.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t), one probability per row, shape (n,).
        t: the time, in the unit of `y`.
        weights: of a pair, "harrell" 1, "uno" 1 / G(t_i-)^2 with G from these rows.
        confidence: of the limits, in (0, 1).

    Returns:
        Concordance and its limits, floats, cut to [0, 1]; equal predictions count one half.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, a time outside the observed ones, or no comparable
            pair.
        ConfigError: t no time > 0, unknown weights, or a confidence out of range.

    References:
        Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387; Uno et al. (2011), Statistics in
        Medicine 30, 1105-1117; Therneau and Atkinson, Concordance, vignette of the R package survival, for
        the infinitesimal jackknife, which there takes Uno's weights as known.

    Examples:
        >>> estimate = concordance_interval(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], t=3.5)
        >>> [round(part, 3) for part in estimate]
        [0.833, 0.507, 1.0]
    """
    check_choice(weights, "weights", ("harrell", "uno"))
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    cut_time, cut_event = followed_up_to(horizon, row_time, row_event)
    known = (row_time, row_event)
    inverse = (
        ipcw_weights((cut_time, cut_event), train=known) if weights == "uno" else cut_event.astype(np.float64)
    )
    pairs = ComparablePairs.of(cut_time, cut_event, "censored_later")
    ahead, behind = np.zeros(row_time.size), np.zeros(row_time.size)  # sums of a row over its pairs
    ahead_all, behind_all = np.zeros(row_time.size), np.zeros(row_time.size)
    sorted_survival, position = predicted[pairs.order], np.arange(row_time.size)
    for block in blocks(pairs.events.size, row_time.size):
        rows = pairs.events[block]
        is_pair = position >= pairs.start[block, None]
        weight = inverse[rows] ** 2
        own = predicted[rows, None]
        right = is_pair * ((sorted_survival > own) + 0.5 * (sorted_survival == own))
        ahead[rows], ahead_all[rows] = weight * right.sum(axis=1), weight * is_pair.sum(axis=1)
        behind[pairs.order] += weight @ right
        behind_all[pairs.order] += weight @ is_pair
    total = ahead_all.sum()
    if total == 0.0:
        raise DataError(f"no comparable pair among {row_time.size} rows up to {horizon:g}: too few events.")
    value = float(ahead.sum() / total)
    excess = (ahead - value * ahead_all) / total
    influence = excess + (behind - value * behind_all) / total
    if weights == "uno":
        influence += _through_weights(row_time, row_event, 2.0 * excess, 0.0, horizon)
    return _limits(value, influence, confidence)


def auc_interval(
    y: Outcome, survival: npt.ArrayLike, *, t: float, confidence: float = 0.95
) -> Estimate[float]:
    """Cumulative/dynamic AUC at t, and its limits: `cumulative_dynamic_auc` with G from these rows.

    Arguments and errors are those of `concordance_interval`; there must be cases and controls.

    Returns:
        AUC and its limits, floats, cut to [0, 1].

    References:
        Blanche, Dartigues and Jacqmin-Gadda (2013), Statistics in Medicine 32, 5381-5397.

    Examples:
        >>> estimate = auc_interval(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], t=2.5)
        >>> [round(part, 3) for part in estimate]
        [0.75, 0.26, 1.0]
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    known = (row_time, row_event)
    value = float(cumulative_dynamic_auc(known, predicted[:, None], [horizon], train=known)[0])
    failed = row_time <= horizon
    weight = np.where(failed, ipcw_weights(known, train=known), 0.0)
    case, control = weight > 0.0, ~failed
    mass = weight.sum()
    beaten = _share_above(predicted[case], predicted[control], np.ones(np.count_nonzero(control)))
    beating = 1.0 - _share_above(predicted[control], predicted[case], weight[case])
    influence = np.zeros(row_time.size)
    influence[case] = weight[case] * (beaten - value) / mass
    through = _through_weights(row_time, row_event, influence, 0.0, horizon)
    influence[control] = (beating - value) / np.count_nonzero(control)
    return _limits(value, influence + through, confidence)


def brier_interval(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    scaled: bool = False,
    confidence: float = 0.95,
) -> Estimate[float]:
    """Brier score at t, or the scaled one, and its limits: `brier_score` with G from these rows.

    Arguments and errors are those of `concordance_interval`; `scaled` asks for 1 - BS / BS_KM, with
    Kaplan-Meier of these rows. No other prediction that is the same for all has a lower Brier score than
    Kaplan-Meier at t, so that its own error does not count to first order.

    Returns:
        The score and its limits, floats.

    References:
        Blanche, Proust-Lima, Loubere et al. (2015), Biometrics 71, 102-113.

    Examples:
        >>> estimate = brier_interval(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], t=2.5)
        >>> [round(part, 3) for part in estimate]
        [0.232, 0.039, 0.426]
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    known = (row_time, row_event)
    value, influence = _brier(*known, predicted, horizon)
    if scaled:
        reference = kaplan_meier_curves(known, [horizon], row_time.size)[:, 0]
        best, best_influence = _brier(*known, reference, horizon)
        if best == 0.0:
            raise DataError(
                f"t: Kaplan-Meier makes no error at {horizon:g}; give a time from the first event on."
            )
        influence = (value * best_influence / best - influence) / best
        value = 1.0 - value / best
    return _limits(value, influence, confidence, cut=False)


def _brier(time: FloatArray, event: BoolArray, predicted: FloatArray, t: float) -> tuple[float, FloatArray]:
    """The Brier score at t and its derivatives with respect to the weights of the rows, (n,)."""
    censoring = censoring_distribution((time, event))
    at_event, at_risk = brier_weights(censoring, time, event, np.array([t]), "graf", None)
    alive = time > t
    square = np.where(alive, at_risk[0] * (1.0 - predicted) ** 2, at_event * predicted**2)
    value, n = float(square.mean()), time.size
    early = np.where(alive, 0.0, square) / n
    through = _through_weights(time, event, early, float(square[alive].sum()) / n, t)
    return value, (square - value) / n + through


def _through_weights(
    time: FloatArray, event: BoolArray, at_event: FloatArray, at_risk: float, t: float
) -> FloatArray:
    """How a sum of terms c_i / G moves with the weight of each row that G is estimated from, (n,).

    `at_event` (n,) are its terms at events, which read G(t_i-), and `at_risk` is the sum of those that read
    G(t). One more row of weight w that is censored at u moves log G from there on by -w / (Y - N), and one at
    risk of it by w N / (Y (Y - N)), Y rows at risk of censoring at u and N censored there.
    """
    distinct, position, n_events, censored, at_or_after = risk_sets(time, event)
    exposed = at_or_after - n_events
    # Terms that feel a censoring at each time: events later than it, and those at risk at t.
    here = np.bincount(position, weights=at_event, minlength=distinct.size)
    later = here.sum() - np.cumsum(here) + np.where(distinct <= t, at_risk, 0.0)
    left = exposed - censored
    counts = (censored > 0.0) & (left > 0.0)
    own = np.divide(later, left, out=np.zeros_like(later), where=counts)
    shared = np.divide(censored * own, exposed, out=np.zeros_like(later), where=counts)
    passed = np.cumsum(shared)
    moved: FloatArray = np.where(event, passed[position] - shared[position], passed[position] - own[position])
    return -moved


def _share_above(low: FloatArray, high: FloatArray, weight: FloatArray) -> FloatArray:
    """Share of the weight of the values `high` (m,) that is above each of `low` (k,), ties a half; (k,)."""
    order = np.argsort(high, kind="stable")
    mass = np.concatenate(([0.0], np.cumsum(weight[order])))
    up_to = mass[np.searchsorted(high[order], low, side="right")]
    below = mass[np.searchsorted(high[order], low, side="left")]
    share: FloatArray = 1.0 - 0.5 * (up_to + below) / mass[-1]
    return share


def _limits(value: float, influence: FloatArray, confidence: float, *, cut: bool = True) -> Estimate[float]:
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    half = float(norm.ppf(0.5 + 0.5 * confidence) * np.sqrt((influence**2).sum()))
    low, high = value - half, value + half
    return Estimate(value, max(low, 0.0), min(high, 1.0)) if cut else Estimate(value, low, high)
