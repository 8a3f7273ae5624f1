"""Scores of predicted cumulative incidences: one cause among several that compete.

A row is known to have had cause k by time t, or not to have had it: a row that another cause has ended can no
longer have it. Rows censored before t are excluded, and the others represent them, with weights 1 / G, G
being the censoring distribution of the TRAINING rows, whose observation every cause ends as an event does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import blocks, check_horizon, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import censoring_distribution, floored, ipcw_weights
from sstorch.metrics.checks import BLOCK_ELEMENTS, check_grid_unit, check_incidence, check_times
from sstorch.metrics.concordance import concordance_harrell_risk
from sstorch.metrics.outcome import ObservedCauses, Outcome, cause_number, read_causes, training
from sstorch.metrics.pairs import ComparablePairs, TiedTime, share_of_pairs


def concordance_cause_specific(
    y: Outcome,
    risk: npt.ArrayLike,
    cause: int | str = 1,
    *,
    tied_time: TiedTime = "exclude",
    tau: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute Harrell's concordance of a risk with the events of one cause; other causes are censored.

    Rows with another cause are compared only during their follow-up. It measures the ranking of
    cause-specific hazards; :func:`concordance_wolbers` measures the ranking of probabilities. It equals
    comprisk's ``concordance_index_cr``.

    Args:
        y: outcome of the rows, a `Surv` with causes or the tuple (time, cause) with 0 for censored rows and
            1 .. K for causes, n of them.
        risk: higher for an earlier event of the cause, shape (n,).
        cause: scored cause, by number or name.
        tied_time: as in :func:`concordance_harrell_risk`.
        tau: only pairs with an event before tau count.
        sample_weight: weights of the rows, shape (n,); None for the weights of `y`.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or no comparable pair.

    Examples:
        >>> concordance_cause_specific(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), risk=[0.9, 0.7, 0.1, 0.4])
        0.75
    """
    rows = read_causes(
        y, "concordance", entry=True, weight=True, sample_weight=sample_weight, risk=risk
    ).only(cause_number(y, cause))
    return concordance_harrell_risk(rows, risk, tied_time=tied_time, tau=tau)


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
    hazardous.

    Errors are as in :func:`concordance_cause_specific`.

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
    rows = read_causes(y, "Wolbers' concordance", weight=True, sample_weight=sample_weight, risk=risk)
    which = cause_number(y, cause)
    row_time, codes, row_event = rows.time, rows.cause, rows.cause > 0
    horizon = None if tau is None else check_horizon(tau, "tau")
    values = check_vector(risk, "risk", row_time.size)
    weight = np.ones(row_time.size)
    if train is not None:
        weight, _ = _weights(rows, train, row_time[:0])
    interest = codes == which
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


def brier_score_incidence(
    y: Outcome,
    incidence: npt.ArrayLike,
    times: npt.ArrayLike,
    cause: int | str = 1,
    *,
    train: Outcome,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute the Brier score of the incidence of a cause at each time.

    BS(t) = (1/n) sum_i w_i(t) (1[t_i <= t, cause k] - F_i(t))^2 with w_i(t) = 1 / G(t_i-) for rows with an
    event of any cause by t, 1 / G(t) for rows still under observation, and 0 for rows censored before.

    Args:
        y: outcome of the rows, a `Surv` with causes or the tuple (time, cause) with 0 for censored rows and
            1 .. K for causes, n of them.
        incidence: predicted F_i(t_k) of the cause, shape (n, n_times).
        times: strictly increasing, shape (n_times,), in the unit of ``time``.
        cause: scored cause, by number or name.
        train: outcome of the training rows, for the estimate of G.
        sample_weight: weights of the rows, shape (n,); None for the weights of `y`.

    Returns:
        shape (n_times,), >= 0, 0 is best.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`).

    References:
        Gerds and Schumacher (2006), Biometrical Journal 48, 1029-1040. Schoop, Beyersmann, Schumacher and
        Binder (2011), "Quantifying the predictive accuracy of time-to-event models in the presence of
        competing risks", Biometrical Journal 53, 88-112.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 2, 0])
        >>> brier_score_incidence(rows, [[0.5], [0.2], [0.1]], times=[2.5], train=rows).round(6).tolist()
        [0.1]
    """
    rows = read_causes(y, "the Brier score", weight=True, sample_weight=sample_weight, incidence=incidence)
    row_time, codes, which = rows.time, rows.cause, cause_number(y, cause)
    grid = check_times(times, row_time)
    curves = check_incidence(incidence, row_time.size, grid.size)
    check_grid_unit(row_time, codes > 0, grid)
    share = np.ones(row_time.size) if rows.weight is None else rows.weight
    at_event, at_risk = _weights(rows, train, grid)
    total = np.zeros(grid.size)
    for some in blocks(row_time.size, grid.size, BLOCK_ELEMENTS):
        ended = row_time[some, None] <= grid
        weight = np.where(ended, at_event[some, None], at_risk)
        happened = ended & (codes[some] == which)[:, None]
        total += share[some] @ (weight * (happened - curves[some]) ** 2)
    return np.asarray(total / share.sum())


def integrated_brier_score_incidence(
    y: Outcome,
    incidence: npt.ArrayLike,
    times: npt.ArrayLike,
    cause: int | str = 1,
    *,
    train: Outcome,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the mean of :func:`brier_score_incidence` from the first to the last time, by trapezoids.

    Arguments and errors are as in :func:`brier_score_incidence`; at least two times are needed.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 2, 0])
        >>> curves = [[0.5, 0.5], [0.2, 0.2], [0.1, 0.1]]
        >>> round(integrated_brier_score_incidence(rows, curves, times=[1.0, 2.5], train=rows), 6)
        0.1
    """
    grid = check_times(times)
    if grid.size < 2:
        raise DataError("times: an integral needs two of them")
    scores = brier_score_incidence(y, incidence, times, cause, train=train, sample_weight=sample_weight)
    return float((np.diff(grid) * (scores[1:] + scores[:-1]) / 2).sum() / (grid[-1] - grid[0]))


def cumulative_dynamic_auc_incidence(
    y: Outcome,
    incidence: npt.ArrayLike,
    times: npt.ArrayLike,
    cause: int | str = 1,
    *,
    train: Outcome,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute the area under the ROC curve for the event of a cause by each time.

    Cases have the cause by t; controls are all other rows with a known state at t, including rows with
    another cause: the second definition of Blanche, Dartigues and Jacqmin-Gadda, as in riskRegression.

    Arguments and errors are as in :func:`brier_score_incidence`; `incidence` can be another risk in [0, 1].

    Returns:
        shape (n_times,), in [0, 1]; nan at a time without cases or without controls.

    References:
        Blanche, Dartigues and Jacqmin-Gadda (2013), "Estimating and comparing time-dependent areas under
        receiver operating characteristic curves for censored event times with competing risks", Statistics in
        Medicine 32, 5381-5397.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0, 4.0], [1, 2, 0, 1])
        >>> risk = [[0.6], [0.2], [0.7], [0.1]]
        >>> cumulative_dynamic_auc_incidence(rows, risk, times=[2.5], train=rows).round(3).tolist()
        [0.667]
    """
    rows = read_causes(y, "the AUC", weight=True, sample_weight=sample_weight, incidence=incidence)
    row_time, codes, which = rows.time, rows.cause, cause_number(y, cause)
    grid = check_times(times, row_time)
    curves = check_incidence(incidence, row_time.size, grid.size, rising=False)
    at_event, at_risk = _weights(rows, train, grid)
    areas = np.full(grid.size, np.nan)
    for k, t in enumerate(grid):
        ended = row_time <= t
        weight = np.where(ended, at_event, at_risk[k])
        if rows.weight is not None:
            weight = weight * rows.weight
        case = ended & (codes == which)
        rank = np.unique(curves[:, k], return_inverse=True)[1]
        cases = np.bincount(rank, weight * case)
        controls = np.bincount(rank, weight * ~case)
        whole = cases.sum() * controls.sum()
        if whole > 0:
            areas[k] = (cases * (np.cumsum(controls) - 0.5 * controls)).sum() / whole
    return areas


def _weights(rows: ObservedCauses, train: Outcome, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """1 / G at the rows' own times (n,), 0 if they were censored, and at those of a grid (n_times,)."""
    known = training(train, rows.time, causes=True)
    at_event = ipcw_weights(rows.any_event, train=known)
    return at_event, 1.0 / floored(censoring_distribution(known)).at(grid)
