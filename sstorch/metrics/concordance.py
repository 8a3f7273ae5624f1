"""Concordance of predictions and the order of the events, and the cumulative/dynamic AUC, under censoring.

Two forms of prediction, survival curves (compared at the earlier of the two times) and a risk score, and two
estimates of the same quantity: Harrell's counts every comparable pair alike, Uno's weights them so that the
censoring distribution drops out of the limit. Where rows entered late, Harrell's counts the pairs that were
at risk together: the later row had entered before the event of the earlier one.

The AUC at time t compares cases, the rows that had their event by t, with controls, those still at risk after
t:

    AUC(t) = sum_ij w_i 1(t_i <= t, c_i = 1) 1(t_j > t) [ 1(r_i > r_j) + 0.5 1(r_i = r_j) ]
             / ( sum_i w_i 1(t_i <= t, c_i = 1) . sum_j 1(t_j > t) ),      w_i = 1 / G at t_i,

where r is a risk score, or the survival curve at t turned over: r_i > r_j means S_i(t) < S_j(t). G comes from
the training rows. The mean over time weights AUC(t) by the density of the events, Kaplan-Meier of the test
rows.
"""

from typing import get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import blocks, check_choice, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import Ipcw, KaplanMeier, ipcw_weights
from sstorch.metrics.checks import BLOCK_ELEMENTS, check_survival, check_times
from sstorch.metrics.curves import CurvesInOrder
from sstorch.metrics.outcome import Observed, Outcome, read_rows, training
from sstorch.metrics.pairs import (
    ComparablePairs,
    ComparedCurves,
    TiedRisk,
    TiedTime,
    comparable_pairs,
    share_of_pairs,
    total_weight,
)

_HARRELL = "Harrell's concordance"
_UNO = "Uno's concordance"
_AUC = "the AUC"


def concordance_harrell(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the time-dependent concordance C_H of survival curves, without censoring weights.

    Over pairs t_i < t_j with an event in i, the share in which row i has the lower predicted survival at t_i:
    the mean of 1[S_i(t_i) < S_j(t_i)] + 0.5 1[S_i(t_i) = S_j(t_i)]. Values are compared exactly. For curves
    that do not cross it equals Harrell's C of any risk score with the same order. All pairs are compared in
    blocks: O(n n_events) time, bounded memory.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them. With entry times (left
            truncation) a pair counts only if j entered before t_i, so that both are at risk at t_i.
            Consecutive rows of one subject are never a pair.
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `time`. Include
            every distinct event time: S at other times is the right-continuous step function through the
            grid, with the value at the last grid time <= t_i, and 1 before the first.
        tied_time: pairs with t_i = t_j. "exclude" omits them, as t_i < t_j in the formula; "censored_later"
            adds pairs with an event in i and none in j, since the event of j is later (scikit-survival,
            lifelines, and Antolini in pycox), but not two events at the same time; "all" also adds these, as
            two pairs, one in each order.
        tied_risk: pairs with equal predictions. "half" counts them as half concordant (Harrell), "discordant"
            as discordant (Antolini's strict inequality, "antolini" in pycox), "exclude" omits them (Goodman
            and Kruskal's gamma, as a probability).
        tau: only pairs with t_i < tau count; None for all. Unit of `time`.
        sample_weight: weights of the rows, shape (n,); the weight of a pair is the product. None for the
            weights of `y`.

    Returns:
        C_H in [0, 1]: 1 is perfect order, 0.5 no order.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), times in another unit than the grid, or no
            comparable pair.
        ConfigError: an unknown `tied_time` or `tied_risk`, or a tau that is not a time > 0.

    References:
        Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944: C^td. Harrell, Lee and
        Mark (1996), Statistics in Medicine 15, 361-387, for equal predictions.

    Examples:
        >>> survival = [[0.5, 0.2], [0.9, 0.4], [0.9, 0.8]]
        >>> concordance_harrell(([1.0, 2.0, 3.0], [1, 1, 0]), survival, times=[1.0, 2.0])
        1.0
    """
    rows = read_rows(y, _HARRELL, entry=True, weight=True, sample_weight=sample_weight, survival=survival)
    return ComparedCurves.of(rows, survival, times, tied_time, tau).concordance(tied_risk=tied_risk)


def concordance_uno(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    ipcw: Ipcw = "G(t-)",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the time-dependent concordance C_U of survival curves, with pair weights G(t_i)^-2.

    As `concordance_harrell`, but a pair with an event at t_i has the weight 1 / G^2, the inverse probability
    that both rows are under observation. The limit does not depend on censoring. Choose tau with G well above
    0; otherwise a few late events dominate the estimate.

    Arguments and errors are as in `concordance_harrell`, and `train`, outcome of the training rows, in the
    same unit, which give G, constant beyond them; `ipcw`, G at the event, "G(t-)" or "G(t)", see
    `ipcw_weights`. If G is 0, its last positive value is used. Sample weights are not used in G.

    Returns:
        C_U in [0, 1].

    References:
        Uno, Cai, Pencina, D'Agostino and Wei (2011), Statistics in Medicine 30, 1105-1117, whose pairs and
        weights are used here with the comparison of Antolini et al. (2005).

    Examples:
        >>> survival = [[0.5, 0.2], [0.9, 0.6], [0.9, 0.5]]
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> round(concordance_uno(rows, survival, [1.0, 2.0], train=([1.0, 1.5, 3.0], [1, 0, 1])), 6)
        0.333333
    """
    rows = read_rows(y, _UNO, weight=True, sample_weight=sample_weight, survival=survival)
    weight = uno_weights(rows, train, ipcw)
    return ComparedCurves.of(rows, survival, times, tied_time, tau).concordance(None, weight, tied_risk)


def concordance_harrell_risk(
    y: Outcome,
    risk: npt.ArrayLike,
    *,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute Harrell's concordance C of one risk score per row, in O(n log n).

    Over the pairs t_i < t_j with an event in i, the mean of 1[r_i > r_j] + 0.5 1[r_i = r_j]. With entry times
    and `tied_time="censored_later"` it equals R's `concordance(Surv(entry, time, event) ~ risk)`.

    Arguments and errors are as in `concordance_harrell`, but for `risk`, shape (n,), in place of the curves
    and their times: a score on any monotone scale, higher for an earlier event.

    Returns:
        C in [0, 1]: 1 is perfect order, 0.5 no order.

    References:
        Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387.

    Examples:
        >>> concordance_harrell_risk(([1.0, 2.0, 3.0], [1, 1, 0]), risk=[2.0, 2.0, 1.0])
        0.8333333333333334
    """
    rows = read_rows(y, _HARRELL, entry=True, weight=True, sample_weight=sample_weight, risk=risk)
    return _from_risk(comparable_pairs(rows, tied_time, tau), risk, tied_risk)


def concordance_uno_risk(
    y: Outcome,
    risk: npt.ArrayLike,
    *,
    train: Outcome,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    ipcw: Ipcw = "G(t-)",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute Uno's concordance C in [0, 1] of one risk score per row, in O(n log n).

    As `concordance_harrell_risk`, with pair weights G(t_i)^-2. With `tied_time="censored_later"` and
    `ipcw="G(t)"` it equals `concordance_index_ipcw` of scikit-survival, if that does not raise.

    Arguments and errors are as in `concordance_uno`, but for `risk`, shape (n,), in place of the curves and
    their times: a score on any monotone scale, higher for an earlier event.

    References:
        Uno, Cai, Pencina, D'Agostino and Wei (2011), Statistics in Medicine 30, 1105-1117, equation 6.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> round(concordance_uno_risk(rows, [3.0, 1.0, 2.0], train=([1.0, 1.5, 3.0], [1, 0, 1])), 6)
        0.333333
    """
    rows = read_rows(y, _UNO, weight=True, sample_weight=sample_weight, risk=risk)
    weight = uno_weights(rows, train, ipcw)
    return _from_risk(comparable_pairs(rows, tied_time, tau, weight), risk, tied_risk)


def uno_weights(rows: Observed, train: Outcome, ipcw: Ipcw = "G(t-)") -> FloatArray:
    """1 / G^2 of each row (n,), G from the training rows, see `concordance_uno`."""
    weight = ipcw_weights(rows, train=training(train, rows.time), ipcw=ipcw)
    return weight * weight


def _from_risk(pairs: ComparablePairs, risk: npt.ArrayLike, tied_risk: str) -> float:
    check_choice(tied_risk, "tied_risk", get_args(TiedRisk))
    values = check_vector(risk, "risk", pairs.order.size)
    total = total_weight(pairs)
    return share_of_pairs(*pairs.count_risk(values), total, tied_risk)


def cumulative_dynamic_auc(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    ipcw: Ipcw = "G(t-)",
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute AUC(t) of survival curves, compared at t, in O(n log n) per time.

    Args:
        y: outcome of the test rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `y`; from the
            first event time on and before the last observed time (cases and controls are needed).
        train: outcome of the training rows, for the estimate of G. G is constant beyond them; if it is 0, its
            last positive value is used.
        ipcw: G at the event, see `ipcw_weights`; "G(t)" equals scikit-survival.
        sample_weight: weights of the rows, shape (n,); None for the weights of `y`. They are not used in G.

    Returns:
        AUC at `times`, shape (n_times,): 1 is perfect order, 0.5 no order.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), times in different units, or a time without cases
            or without controls.
        ConfigError: an unknown `ipcw`.

    References:
        Uno, Cai, Tian and Wei (2007), Journal of the American Statistical Association 102, 527-537;
        Hung and Chiang (2010), Canadian Journal of Statistics 38, 8-26.

    Examples:
        >>> survival = [[0.4, 0.1], [0.8, 0.5], [0.9, 0.7]]
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> cumulative_dynamic_auc(rows, survival, [1.0, 2.0], train=rows).tolist()
        [1.0, 1.0]
    """
    rows = read_rows(y, _AUC, weight=True, sample_weight=sample_weight, survival=survival)
    grid = check_times(times, rows.time)
    curves = check_survival(survival, rows.time.size, grid.size)
    return _auc(rows, curves, grid, train, ipcw)


def cumulative_dynamic_auc_risk(
    y: Outcome,
    risk: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    ipcw: Ipcw = "G(t-)",
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute AUC(t) of one risk score per row, shape (n_times,).

    Arguments and errors are as in `cumulative_dynamic_auc`, but for `risk`, shape (n,), in place of the
    curves: a score on any monotone scale, higher for an earlier event.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> cumulative_dynamic_auc_risk(rows, [3.0, 1.0, 2.0], [1.0, 2.0], train=rows).tolist()
        [1.0, 0.5]
    """
    rows = read_rows(y, _AUC, weight=True, sample_weight=sample_weight, risk=risk)
    grid = check_times(times, rows.time)
    safety = -check_vector(risk, "risk", rows.time.size)
    curves = np.broadcast_to(safety[:, None], (rows.time.size, grid.size))
    return _auc(rows, curves, grid, train, ipcw)


def mean_cumulative_dynamic_auc(
    y: Outcome,
    auc: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the mean of AUC(t) over time with the weights of Lambert and Chevret (CD-AUC).

    The integral of AUC(t) with respect to the event distribution, -dS(t), divided by its mass: the sum of
    AUC(t_k) [S(t_k-1) - S(t_k)] over 1 - S(t_K), with S Kaplan-Meier of the test rows and S = 1 before the
    first time. It equals the mean of scikit-survival's `cumulative_dynamic_auc`.

    Args:
        y: outcome of the test rows, a `Surv` or the tuple (time, event), n of them.
        auc: AUC at `times`, from `cumulative_dynamic_auc` or its risk form, shape (n_times,).
        times: times of the AUC, strictly increasing, shape (n_times,), in the unit of `y`.
        sample_weight: weights of the rows, shape (n,), as given for `auc`; None for the weights of `y`.

    Returns:
        The mean, in [0, 1].

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or no event up to the last of `times`.

    References:
        Lambert and Chevret (2016), Statistical Methods in Medical Research 25, 2088-2102.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> mean_cumulative_dynamic_auc(rows, [1.0, 0.5], [1.0, 2.0])
        0.75
    """
    rows = read_rows(y, _AUC, weight=True, sample_weight=sample_weight)
    grid = check_times(times)
    value = check_vector(auc, "auc", grid.size)
    survival = KaplanMeier.fit(rows).at(grid)
    mass = -np.diff(survival, prepend=1.0)
    if survival[-1] == 1.0:
        raise DataError(f"event: no row has an event up to {grid[-1]:g}, the last of times, to average over.")
    return float(np.dot(value, mass) / (1.0 - survival[-1]))


def _auc(rows: Observed, curves: FloatArray, grid: FloatArray, train: Outcome, ipcw: Ipcw) -> FloatArray:
    time, event, weight = rows.time, rows.event, rows.weights
    at_event, seen = ipcw_weights(rows, train=training(train, time), ipcw=ipcw) * weight, weight > 0.0
    first = time[seen & event].min(initial=np.inf)
    last = time[seen].max()
    if grid[0] < first or grid[-1] >= last:
        raise DataError(
            f"times: AUC needs cases and controls, so times in [{first:g}, {last:g}), from the first event "
            f"time to before the last observed time; got {grid[0]:g} to {grid[-1]:g}."
        )
    result = np.empty(grid.size)
    order = np.argsort(time, kind="stable")
    in_order, control_weight = time[order], None if (weight == 1.0).all() else weight[order]
    cases = np.flatnonzero(at_event[order] > 0.0)
    case_weight = at_event[order][cases]
    # In the order of time those at risk after t are the last rows, and cases by t the first cases.
    n_cases = np.searchsorted(in_order[cases], grid, side="right").tolist()
    first_control = np.searchsorted(in_order, grid, side="right").tolist()
    read = CurvesInOrder(curves, order)
    for columns in blocks(grid.size, time.size, BLOCK_ELEMENTS):
        for k, values in enumerate(read[columns], columns.start):
            own, share = values[cases[: n_cases[k]]], case_weight[: n_cases[k]]
            controls = values[first_control[k] :]
            if control_weight is None:
                controls, mass = np.sort(controls), None
            else:
                by_value = np.argsort(controls)
                controls = controls[by_value]
                mass = np.append(0.0, np.cumsum(control_weight[first_control[k] :][by_value]))
            below = np.searchsorted(controls, own)
            up_to, tied = below.copy(), controls[np.minimum(below, controls.size - 1)] == own
            up_to[tied] = np.searchsorted(controls, own[tied], side="right")
            # A case beats the controls with a higher S, and half of those with the same.
            total = controls.size if mass is None else mass[-1]
            lost = below + up_to if mass is None else mass[below] + mass[up_to]
            result[k] = share @ (total - 0.5 * lost) / (share.sum() * total)
    return result
