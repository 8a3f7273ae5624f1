"""Concordance of predictions and the order of the events, under censoring and with competing causes.

Two forms of prediction, survival curves (compared at the earlier of the two times) and a risk score, and two
estimates of the same quantity: Harrell's counts every comparable pair alike, Uno's weights them so that the
censoring distribution drops out of the limit. Where rows entered late, Harrell's counts the pairs that were
at risk together: the later row had entered before the event of the earlier one. With competing causes
Harrell's censors the other causes; that of Wolbers et al. compares with rows that another cause has ended.
"""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_choice, check_horizon, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import Ipcw, ipcw_weights
from sstorch.metrics.outcome import Observed, Outcome, read_rows, read_scored, training
from sstorch.metrics.pairs import (
    ComparablePairs,
    ComparedCurves,
    TiedRisk,
    TiedTime,
    comparable_pairs,
    share_of_pairs,
    total_weight,
)


def concordance_harrell(
    y: Outcome,
    prediction: npt.ArrayLike,
    times: npt.ArrayLike | None = None,
    *,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the concordance C_H of survival curves or of a risk score, without censoring weights.

    Over pairs t_i < t_j with an event in i, the share in which row i has the higher risk, the mean of
    1[r_i > r_j] + 0.5 1[r_i = r_j], or the lower predicted survival at t_i: S_i(t_i) < S_j(t_i). Values are
    compared exactly. Curves that do not cross have the concordance of any risk score with the same order.
    Time is O(n log n) for a risk score and O(n n_events) for curves, memory is bounded.

    With entry times and `tied_time="censored_later"` that of a risk score equals R's
    `concordance(Surv(entry, time, event) ~ risk)`; of a cause it equals comprisk's ``concordance_index_cr``.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them. With entry times (left
            truncation) a pair counts only if j entered before t_i, so that both are at risk at t_i.
            Consecutive rows of one subject are never a pair.
        prediction: survival S_i(t_k) at `times`, shape (n, n_times); without `times` a risk score on any
            monotone scale, higher for an earlier event, shape (n,).
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
        cause: scored cause of several, by number or name, of a `Surv` with causes or the tuple (time, cause);
            other causes are censored, so that the ranking of cause-specific hazards is measured.
            :func:`concordance_wolbers` measures the ranking of probabilities. None for one event.
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
        >>> concordance_harrell(([1.0, 2.0, 3.0], [1, 1, 0]), [2.0, 2.0, 1.0])
        0.8333333333333334
        >>> concordance_harrell(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), [0.9, 0.7, 0.1, 0.4], cause=1)
        0.75
    """
    options: dict[str, Any] = {"entry": True, "weight": True, "sample_weight": sample_weight}
    rows, which = read_scored(y, "Harrell's concordance", cause, **options, prediction=prediction)
    rows = rows if rows.n_causes == 1 else rows.only(which)  # other causes are censored
    return _concordance(rows, prediction, times, tied_time, tied_risk, tau)


def concordance_uno(
    y: Outcome,
    prediction: npt.ArrayLike,
    times: npt.ArrayLike | None = None,
    *,
    train: Outcome,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    ipcw: Ipcw = "G(t-)",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the concordance C_U of survival curves or of a risk score, with pair weights G(t_i)^-2.

    As `concordance_harrell`, but a pair with an event at t_i has the weight 1 / G^2, the inverse probability
    that both rows are under observation. The limit does not depend on censoring. Choose tau with G well above
    0; otherwise a few late events dominate the estimate. That of a risk score with
    `tied_time="censored_later"` and `ipcw="G(t)"` equals `concordance_index_ipcw` of scikit-survival, if that
    does not raise.

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
    rows = read_rows(y, "Uno's concordance", weight=True, sample_weight=sample_weight, prediction=prediction)
    return _concordance(rows, prediction, times, tied_time, tied_risk, tau, uno_weights(rows, train, ipcw))


def uno_weights(rows: Observed, train: Outcome, ipcw: Ipcw = "G(t-)") -> FloatArray:
    """1 / G^2 of each row (n,), G from the training rows, see `concordance_uno`."""
    weight = ipcw_weights(rows, train=training(train, rows.time), ipcw=ipcw)
    return weight * weight


def _concordance(
    rows: Observed,
    prediction: npt.ArrayLike,
    times: npt.ArrayLike | None,
    tied_time: TiedTime,
    tied_risk: TiedRisk,
    tau: float | None,
    weight: FloatArray | None = None,
) -> float:
    """Share of concordant pairs, weighted by `weight` (n,) at events."""
    if times is not None:
        compared = ComparedCurves.of(rows, prediction, times, tied_time, tau)
        return compared.concordance(None, weight, tied_risk)
    pairs = comparable_pairs(rows, tied_time, tau, weight)
    check_choice(tied_risk, "tied_risk", get_args(TiedRisk))
    risk = check_vector(prediction, "risk", rows.time.size)
    total = total_weight(pairs)
    return share_of_pairs(*pairs.count_risk(risk), total, tied_risk)


def concordance_wolbers(
    y: Outcome,
    risk: npt.ArrayLike,
    cause: int | str = 1,
    *,
    train: Outcome | None = None,
    tau: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the concordance of Wolbers et al. of a risk with the events of a cause.

    The mean of 1[r_i > r_j] + 0.5 1[r_i = r_j] over pairs with the cause in i at t_i < tau, and in j no event
    until t_i (A: t_i < t_j, or censored at t_i) or another cause before (B: t_j <= t_i). With ``train`` pairs
    have weights 1 / G(t_i)^2 (A) and 1 / (G(t_i) G(t_j)) (B). It equals ``concordance_index_incidence`` of
    hazardous. For a single cause it is `concordance_uno` with ``tied_time="censored_later"``.

    Errors are as in :func:`concordance_harrell`.

    Args:
        y: outcome with causes, n rows.
        risk: such as the predicted incidence at ``tau``, shape (n,).
        cause: number of the cause, or its name.
        train: outcome of the training rows, for the estimate of G; None for equal weights of pairs.
        tau: only events before tau count; None for all.
        sample_weight: shape (n,); the weight of a pair is the product of its weights.

    Returns:
        C in [0, 1]: 1 is perfect order, 0.5 no order.

    References:
        Wolbers, Blanche, Koller, Witteman and Gerds (2014), "Concordance for prognostic models with competing
        risks", Biostatistics 15, 526-539.

    Examples:
        >>> concordance_wolbers(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), risk=[0.9, 0.7, 0.1, 0.4])
        0.6
    """
    rows, which = read_scored(
        y, "Wolbers' concordance", cause, weight=True, sample_weight=sample_weight, risk=risk
    )
    row_time, row_event = rows.time, rows.event
    horizon = None if tau is None else check_horizon(tau, "tau")
    values = check_vector(risk, "risk", row_time.size)
    weight = np.ones(row_time.size)
    if train is not None:
        weight = ipcw_weights(rows, train=training(train, row_time, causes=True))
    interest = rows.cause == which
    total, concordant, tied = wolbers_pairs(
        row_time, interest, row_event & ~interest, values, weight, rows.weight, horizon
    )
    if total == 0:
        raise DataError(
            f"no comparable pair among {row_time.size} rows, {int(interest.sum())} of them with cause {which}"
        )
    return share_of_pairs(concordant, tied, total, "half")


def wolbers_pairs(
    time: FloatArray,
    interest: BoolArray,
    other: BoolArray,
    risk: FloatArray,
    inverse: FloatArray,
    weight: FloatArray | None = None,
    horizon: float | None = None,
) -> tuple[float, float, float]:
    """Weight of the pairs of :func:`concordance_wolbers`, of the concordant and of the tied ones.

    Of rows, (n,) each: those with the cause of interest, those with another, and 1 / G at events. Events
    count before the horizon; None counts all.
    """
    own = np.ones(time.size) if weight is None else weight
    # Of an event at t_i another cause at the same time is not a later one.
    earlier = np.where(other, np.nextafter(time, -np.inf), time)
    later = ComparablePairs.of(earlier, interest, "censored_later", horizon, inverse * inverse, weight)
    # Rows with another cause at or before t_i: in reversed time those that follow.
    counted = interest if horizon is None else interest & (time < horizon)
    before = ComparablePairs.of(-time, counted, "censored_later", None, inverse * own)
    before = replace(before, row_weight=(inverse * own * other)[before.order])
    parts = np.array([pairs.count_risk(risk) for pairs in (later, before)]).sum(axis=0)
    return later.total() + before.total(), float(parts[0]), float(parts[1])
