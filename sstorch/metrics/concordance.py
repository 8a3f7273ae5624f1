"""Concordance between predictions and the order of the events.

Two forms of prediction, survival curves (compared at the earlier of the two times) and a risk score, and two
estimates of the same quantity: Harrell's counts every comparable pair alike, Uno's weights them so that the
censoring distribution drops out of the limit. Where rows entered late, Harrell's counts the pairs that were
at risk together: the later row had entered before the event of the earlier one.
"""

from typing import get_args

import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_vector
from sstorch.metrics.censoring import Ipcw, ipcw_weights
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
    """Time-dependent concordance C_H of survival curves, without weights for censoring.

    Over the pairs t_i < t_j with an event in i, the share in which the row that failed had the lower
    predicted survival at its own time: mean of 1[S_i(t_i) < S_j(t_i)] + 0.5 1[S_i(t_i) = S_j(t_i)]. Values
    are compared exactly. For curves that do not cross it equals Harrell's C of any risk score in their order.
    All pairs are compared, some at a time: O(n n_events) time, memory bounded.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them. With entry times (left
            truncation) a pair counts only if j had entered before the event of i, so that both were at risk
            at t_i. Rows of a subject in turn, each with its own predictions, never make a pair.
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `time`. Put every
            distinct event time in it: elsewhere S is read as the right-continuous step function through the
            grid, that is at the last grid time <= t_i, and as 1 before the first.
        tied_time: pairs with t_i = t_j. "exclude" leaves them out, by the strict t_i < t_j of the formula;
            "censored_later" adds those with an event in i and none in j, whose event must come later still
            (the rule of scikit-survival, lifelines and Antolini as pycox has it). Two events at the same time
            are no pair then; "all" adds these too, as two pairs, one in each order.
        tied_risk: pairs with equal predictions. "half" counts half of them as concordant (Harrell),
            "discordant" none (Antolini's strict inequality, pycox's "antolini"), "exclude" leaves them out
            (the gamma of Goodman and Kruskal, as a probability).
        tau: pairs count only if t_i < tau; None counts all. Unit of `time`.
        sample_weight: weights of the rows, shape (n,); a pair weighs the product. None takes those of `y`.

    Returns:
        C_H in [0, 1]: 1 is perfect order, 0.5 no order.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, times in another unit than the grid, or no
            comparable pair.
        ConfigError: an unknown `tied_time` or `tied_risk`, or a tau that is no time > 0.

    References:
        Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944: C^td. The half for
        equal predictions is that of Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387.

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
    """Time-dependent concordance C_U of survival curves, each pair weighted by G(t_i)^-2.

    As `concordance_harrell`, but pairs of an event at t_i weigh 1 / G^2, the inverse probability that both
    rows were still under observation. The limit then does not depend on the censoring; choose tau where G is
    still well above 0, or a few late events carry the estimate.

    Arguments and errors are those of `concordance_harrell`, and `train`, outcome of the training rows, in the
    same unit, which give G, constant beyond them; `ipcw`, G at the event, "G(t-)" or "G(t)", see
    `ipcw_weights`. Where G is 0 it keeps its last positive value, so that no row raises. Sample weights do
    not enter G.

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
    """Harrell's concordance C of one risk score per row, in O(n log n).

    Over the pairs t_i < t_j with an event in i, the mean of 1[r_i > r_j] + 0.5 1[r_i = r_j]. With entry times
    and `tied_time="censored_later"` it is that of R's `concordance(Surv(entry, time, event) ~ risk)`.

    Arguments and errors are those of `concordance_harrell`, but for `risk`, shape (n,), in place of the
    curves and their times: a score on any monotone scale, higher where the event is expected earlier.

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
    """Uno's concordance C in [0, 1] of one risk score per row, in O(n log n).

    As `concordance_harrell_risk`, each pair weighted by G(t_i)^-2. With `tied_time="censored_later"` and
    `ipcw="G(t)"` it is the number of scikit-survival's `concordance_index_ipcw`, where that does not raise.

    Arguments and errors are those of `concordance_uno`, but for `risk`, shape (n,), in place of the curves
    and their times: a score on any monotone scale, higher where the event is expected earlier.

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
