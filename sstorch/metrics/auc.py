"""Cumulative/dynamic AUC under censoring, at times and its mean.

The AUC at time t compares cases, the rows that had their event by t, with controls, those still at risk after
t:

    AUC(t) = sum_ij w_i 1(t_i <= t, event) w_j(t) [ 1(r_i > r_j) + 0.5 1(r_i = r_j) ]
             / ( sum_i w_i 1(t_i <= t, event) . sum_j w_j(t) ),      w_i = 1 / G(t_i-), w_j(t) = 1 / G(t),

where r is a risk score, or the survival curve at t turned over: r_i > r_j means S_i(t) < S_j(t). G comes from
the training rows. With competing causes the event is that of one cause, and rows that another cause has ended
by t are controls, too, of weight 1 / G at their time: the second definition of Blanche et al. The mean over
time weights AUC(t) by the density of the events, Kaplan-Meier of the test rows.
"""

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import blocks, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import censoring_distribution, floored, ipcw_weights
from sstorch.metrics.checks import BLOCK_ELEMENTS, check_survival, check_times
from sstorch.metrics.curves import CurvesInOrder
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.outcome import Outcome, read_rows, read_scored, training


def cumulative_dynamic_auc(
    y: Outcome,
    prediction: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute AUC(t) of survival curves, compared at t, or of a risk score, in O(n log n) per time.

    Without ties of events and censorings it equals scikit-survival's `cumulative_dynamic_auc`. Arguments are
    described in `sstorch.metrics`; `prediction` is survival (n, n_times) or a risk (n,), and `times` are from
    the first event time on and before the last observed time, since cases and controls are needed.

    Returns:
        AUC at `times`, shape (n_times,): 1 is perfect order, 0.5 no order.

    Raises:
        DataError: invalid arguments, times in different units, or a time without cases or without controls.

    References:
        Uno, Cai, Tian and Wei (2007), Journal of the American Statistical Association 102, 527-537;
        Hung and Chiang (2010), Canadian Journal of Statistics 38, 8-26; Blanche, Dartigues and Jacqmin-Gadda
        (2013), Statistics in Medicine 32, 5381-5397, for competing risks.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1], [0.8, 0.5], [0.9, 0.7]]
        >>> cumulative_dynamic_auc(rows, survival, [1.0, 2.0], train=rows).tolist()
        [1.0, 1.0]
        >>> cumulative_dynamic_auc(rows, [3.0, 1.0, 2.0], [1.0, 2.0], train=rows).tolist()
        [1.0, 0.5]
    """
    others = {"sample_weight": sample_weight, "prediction": prediction}
    rows, which = read_scored(y, "the AUC", cause, weight=True, **others)
    time, weight = rows.time, rows.weights
    grid = check_times(times, time)
    if np.ndim(prediction) == 1:
        risk = check_vector(prediction, "risk", time.size)
        curves: FloatArray = np.broadcast_to(-risk[:, None], (time.size, grid.size))
    else:
        curves = check_survival(prediction, time.size, grid.size)
    known = training(train, causes=cause is not None)
    interest = rows.cause == which
    at_event, seen = ipcw_weights(rows, train=known) * weight, weight > 0.0
    ended_otherwise = seen & rows.event & ~interest
    first = time[seen & interest].min(initial=np.inf)
    last = time[seen].max()
    if grid[0] < first or (grid[-1] >= last and not ended_otherwise.any()):
        raise DataError(
            f"times: AUC needs cases and controls, so times in [{first:g}, {last:g}), from the first event "
            f"time to before the last observed time; got {grid[0]:g} to {grid[-1]:g}."
        )
    result = np.empty(grid.size)
    order = np.argsort(time, kind="stable")
    in_order, control_weight = time[order], None if (weight == 1.0).all() else weight[order]
    cases = np.flatnonzero((at_event * interest)[order] > 0.0)
    case_weight = at_event[order][cases]
    # In the order of time those at risk after t are the last rows, and cases by t the first cases.
    n_cases = np.searchsorted(in_order[cases], grid, side="right").tolist()
    first_control = np.searchsorted(in_order, grid, side="right").tolist()
    others_ended = np.flatnonzero(ended_otherwise[order])
    n_others = np.searchsorted(in_order[others_ended], grid, side="right").tolist()
    if others_ended.size:  # relative to those at risk, which weigh 1 / G(t)
        control_weight = weight[order]
        other_weight = at_event[order][others_ended]
        at_risk = floored(censoring_distribution(known)).at(grid)
    read = CurvesInOrder(curves, order)
    for columns in blocks(grid.size, time.size, BLOCK_ELEMENTS):
        for k, values in enumerate(read[columns], columns.start):
            own, share = values[cases[: n_cases[k]]], case_weight[: n_cases[k]]
            controls = values[first_control[k] :]
            if control_weight is None:
                controls, mass = np.sort(controls), None
            else:
                each = control_weight[first_control[k] :]
                if n_others[k]:
                    controls = np.append(controls, values[others_ended[: n_others[k]]])
                    each = np.append(each, other_weight[: n_others[k]] * at_risk[k])
                by_value = np.argsort(controls)
                controls = controls[by_value]
                mass = np.append(0.0, np.cumsum(each[by_value]))
            below = np.searchsorted(controls, own)
            up_to, tied = below.copy(), controls[np.minimum(below, controls.size - 1)] == own
            up_to[tied] = np.searchsorted(controls, own[tied], side="right")
            # A case beats the controls with a higher S, and half of those with the same.
            total = controls.size if mass is None else mass[-1]
            lost = below + up_to if mass is None else mass[below] + mass[up_to]
            result[k] = share @ (total - 0.5 * lost) / (share.sum() * total)
    return result


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
    first time. It equals the mean of scikit-survival's `cumulative_dynamic_auc`. Arguments are described in
    `sstorch.metrics`; `auc` is that at `times`, (n_times,).

    Raises:
        DataError: invalid arguments, or no event up to the last of `times`.

    References:
        Lambert and Chevret (2016), Statistical Methods in Medical Research 25, 2088-2102.

    Examples:
        >>> mean_cumulative_dynamic_auc(([1.0, 2.0, 3.0], [1, 1, 0]), [1.0, 0.5], [1.0, 2.0])
        0.75
    """
    rows = read_rows(y, "the AUC", weight=True, sample_weight=sample_weight)
    grid = check_times(times)
    value = check_vector(auc, "auc", grid.size)
    survival = KaplanMeier.fit(rows, level=None).at(grid)
    mass = -np.diff(survival, prepend=1.0)
    if survival[-1] == 1.0:
        raise DataError(f"event: no row has an event up to {grid[-1]:g}, the last of times, to average over.")
    return float(np.dot(value, mass) / (1.0 - survival[-1]))
