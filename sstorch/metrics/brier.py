"""Brier score under censoring, in named conventions.

Each row is weighted by the inverse probability of not being censored, G from the TRAINING rows:

    BS(t) = (1/n) sum_i [ S_i(t)^2 1(t_i <= t, c_i = 1) / G_event + (1 - S_i(t))^2 1(t_i > t) / G(t) ].

Published values differ by convention, so each has a name:

* "graf" (default): G_event = G(t_i-), floored where G ends at 0.
* "sksurv": G_event = G(t_i); a term with G = 0 is excluded. The number of `sksurv.metrics.brier_score`.
* "surtree": as "sksurv"; they differ in `sstorch.metrics.integrated_brier_score`.
* "osst": as "sksurv", but G counts rows with an event at t as at risk of being censored at t. The number of
  `osst.model.metrics.brier_score`.
"""

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import blocks
from sstorch.metrics.censoring import KaplanMeier, censoring_distribution, floored
from sstorch.metrics.checks import (
    BLOCK_ELEMENTS,
    check_convention,
    check_grid_unit,
    check_survival,
    check_times,
)
from sstorch.metrics.curves import CurvesInOrder
from sstorch.metrics.outcome import Observed, Outcome, read_rows, training


def brier_score(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    convention: str = "graf",
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute the Brier score BS(t) at each of the given times.

    Args:
        y: outcome of the test rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `y`.
        train: outcome of the training rows, for the estimate of G. G is constant beyond them.
        convention: "graf", "sksurv", "surtree" or "osst", see the module's description. If G is 0, "graf"
            uses its last positive value; the others omit terms with G = 0.
        sample_weight: weights of the rows, shape (n,); None for the weights of `y`. They are not used in G.

    Returns:
        BS at `times`, shape (n_times,), dimensionless, 0 is best.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or times in different units.
        ConfigError: an unknown convention.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1], [0.8, 0.5], [0.9, 0.7]]
        >>> brier_score(rows, survival, times=[1.0, 2.0], train=rows).round(6).tolist()
        [0.07, 0.116667]
    """
    check_convention(convention)
    rows = read_rows(y, "the Brier score", weight=True, sample_weight=sample_weight, survival=survival)
    grid = check_times(times, rows.time)
    curves = check_survival(survival, rows.time.size, grid.size)
    known = training(train, rows.time)
    check_grid_unit(rows.time, rows.event, grid)
    censoring = convention_censoring(known, convention)
    return brier_curve(rows, curves, grid, censoring, convention)


def brier_curve(
    rows: Observed,
    curves: FloatArray,
    grid: FloatArray,
    censoring: KaplanMeier,
    convention: str,
) -> FloatArray:
    """BS at the grid times, for arguments that passed the checks of `brier_score`, shape (n_times,)."""
    time = rows.time
    at_event, at_risk = brier_weights(censoring, time, rows.event, grid, convention)
    row_weight = rows.weights
    # In the order of time the rows that failed by a time are the first, and those still at risk the others.
    order = np.argsort(time, kind="stable")
    first = np.searchsorted(time[order], grid, side="right")
    at_risk_weight, failed_weight = row_weight[order], (row_weight * at_event)[order]
    read = CurvesInOrder(curves, order)
    total: FloatArray = np.empty(grid.size)
    for some in blocks(grid.size, time.size, BLOCK_ELEMENTS):
        values, own = read[some], first[some]
        low, high = int(own[0]), int(own[-1])
        between, failed = values[:, low:high], np.arange(low, high) < own[:, None]
        event_term = values[:, :low] ** 2 @ failed_weight[:low]
        event_term += np.where(failed, between**2, 0.0) @ failed_weight[low:high]
        risk_term = (1.0 - values[:, high:]) ** 2 @ at_risk_weight[high:]
        risk_term += np.where(failed, 0.0, (1.0 - between) ** 2) @ at_risk_weight[low:high]
        total[some] = event_term + at_risk[some] * risk_term
    total /= row_weight.sum()
    return total


def kaplan_meier_curves(train: Outcome, times: npt.ArrayLike, n_rows: int) -> FloatArray:
    """Kaplan-Meier of the training rows as the prediction for every row, shape (n_rows, n_times)."""
    curve = KaplanMeier.fit(training(train)).at(check_times(times))
    return np.broadcast_to(curve, (n_rows, curve.size))


def convention_censoring(train: Observed, convention: str) -> KaplanMeier:
    """G as the convention estimates it."""
    return censoring_distribution(train, tied_events="at_risk" if convention == "osst" else "removed")


def brier_weights(
    censoring: KaplanMeier,
    time: FloatArray,
    event: BoolArray,
    grid: FloatArray,
    convention: str,
) -> tuple[FloatArray, FloatArray]:
    """1 / G of the rows with an event (0 for the others), (n,), and of those still at risk, (n_grid,)."""
    if convention == "graf":
        known = floored(censoring)
        at_event, at_risk = 1.0 / known.before(time), 1.0 / known.at(grid)
    else:
        at_event, at_risk = _inverse_or_zero(censoring.at(time)), _inverse_or_zero(censoring.at(grid))
    return np.where(event, at_event, 0.0), at_risk


def _inverse_or_zero(probability: FloatArray) -> FloatArray:
    return np.divide(1.0, probability, out=np.zeros_like(probability), where=probability > 0.0)
