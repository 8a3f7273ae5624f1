r"""Brier score and its integral under censoring.

Both weight each row by the inverse probability of not being censored, G from the TRAINING rows:

    BS(t) = (1/n) sum_i [ S_i(t)^2 1(t_i <= t, c_i = 1) / G_event + (1 - S_i(t))^2 1(t_i > t) / G(t) ].

Published values differ by convention, so each has a name:

* "graf" (default): G_event = G(t_i-); IBS = (1/tmax) integral of BS from 0 to tmax, the largest test time.
* "sksurv": G_event = G(t_i); trapezoids over the given times, divided by last minus first. The same number as
  `sksurv.metrics.integrated_brier_score`.
"""

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.checks import (
    BoolArray,
    FloatArray,
    check_convention,
    check_survival,
    check_time_event,
    check_times,
    check_train,
)
from sstorch.metrics.ipcw import KaplanMeier, censoring_distribution, censoring_floor

# Elements of one (rows x times) block: 4 MB of float64 an array.
_BLOCK = 2**19


def brier_score(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: tuple[npt.ArrayLike, npt.ArrayLike],
    convention: str = "graf",
    min_censoring_prob: float | None = None,
) -> FloatArray:
    """Brier score BS(t) at each of the given times.

    Args:
        time: observed times of the test rows, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `time`.
        train: the pair (time, event) of the training rows, which give G. G is constant beyond them.
        convention: "graf" or "sksurv", see the module's description.
        min_censoring_prob: floor under G for "graf"; None keeps the last positive value of G, see
            `sstorch.metrics.censoring_floor`, and `sstorch.metrics.count_floored` for the rows it touches.
            "sksurv" has no floor: a term with G = 0 is left out.

    Returns:
        BS at `times`, shape (n_times,), dimensionless, 0 is best.

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses.
        ConfigError: an unknown convention, a floor outside (0, 1], or a floor together with "sksurv".

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1], [0.8, 0.5], [0.9, 0.7]]
        >>> brier_score(*rows, survival, times=[1.0, 2.0], train=rows).round(6).tolist()
        [0.07, 0.116667]
    """
    check_convention(convention)
    row_time, row_event = check_time_event(time, event)
    grid = check_times(times)
    curves = check_survival(survival, row_time.size, grid.size)
    at_event, at_risk = _weights(
        censoring_distribution(*check_train(train)), row_time, row_event, grid, convention, min_censoring_prob
    )
    total = np.zeros(grid.size)
    for rows in _blocks(row_time.size, grid.size):
        failed = row_time[rows, None] <= grid
        event_term = curves[rows] ** 2 * at_event[rows, None]
        risk_term = (1.0 - curves[rows]) ** 2 * at_risk
        total += np.where(failed, event_term, risk_term).sum(axis=0)
    return total / row_time.size


def integrated_brier_score(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: tuple[npt.ArrayLike, npt.ArrayLike],
    convention: str = "graf",
    min_censoring_prob: float | None = None,
) -> float:
    """Brier score averaged over time.

    "graf": (1/tmax) integral of BS(t) from 0 to tmax, the largest test time. Between the given times, and
    from S(0) = 1 to the first, the curves are taken to be straight; for those curves the integral is exact,
    jumps of BS at test times and at training times included. The only error is that of straight pieces, so
    use a fine grid (`sstorch.metrics.evaluation_times`). Times beyond tmax serve the interpolation only.

    "sksurv": trapezoids over the given times, divided by (last - first). Times outside the range in which
    scikit-survival answers are cut off, instead of an error: those below the smallest test time, those at or
    beyond the largest, and those beyond the last training time if G is positive there.

    Args:
        time: observed times of the test rows, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `time`.
        train: the pair (time, event) of the training rows, which give G. G is constant beyond them.
        convention: "graf" or "sksurv".
        min_censoring_prob: as in `brier_score`.

    Returns:
        IBS, dimensionless, 0 is best.

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses; for "graf" a grid that ends before tmax or
            tmax = 0; for "sksurv" fewer than two times in the range.
        ConfigError: an unknown convention, a floor outside (0, 1], or a floor together with "sksurv".

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> round(integrated_brier_score(*rows, survival, times=[1.0, 2.0, 3.0], train=rows), 6)
        0.070741
    """
    check_convention(convention)
    row_time, row_event = check_time_event(time, event)
    grid = check_times(times)
    curves = check_survival(survival, row_time.size, grid.size)
    train_time, train_event = check_train(train)
    if convention == "graf":
        censoring = censoring_distribution(train_time, train_event)
        return _integral_graf(row_time, row_event, curves, grid, censoring, min_censoring_prob)

    inside = (grid >= row_time.min()) & (grid < row_time.max())
    if censoring_distribution(train_time, train_event).values[-1] > 0.0:
        inside &= grid <= train_time.max()
    kept = np.flatnonzero(inside)
    if kept.size < 2:
        raise DataError(
            f"times: convention 'sksurv' needs two times in [{row_time.min():g}, {row_time.max():g}), the "
            f"follow-up of the test rows, and within that of the training rows, which ends at "
            f"{train_time.max():g}; got {kept.size}. "
            "evaluation_times(time, train_time, 'sksurv') gives such a grid."
        )
    window = slice(kept[0], kept[-1] + 1)
    score = brier_score(
        row_time,
        row_event,
        curves[:, window],
        grid[window],
        train=(train_time, train_event),
        convention=convention,
        min_censoring_prob=min_censoring_prob,
    )
    widths = np.diff(grid[window])
    return float(np.dot(widths, (score[1:] + score[:-1]) / 2.0) / widths.sum())


def _integral_graf(
    time: FloatArray,
    event: BoolArray,
    curves: FloatArray,
    times: FloatArray,
    censoring: KaplanMeier,
    min_censoring_prob: float | None,
) -> float:
    """(1/tmax) integral of BS over [0, tmax], exact for curves that are straight between `times`."""
    last = time.max()
    if last == 0.0:
        raise DataError("time: all test times are 0, there is no follow-up to integrate over.")
    if times[-1] < last:
        raise DataError(
            f"times: convention 'graf' integrates up to the largest test time, {last:g}; the grid ends at "
            f"{times[-1]:g}. evaluation_times(time, train_time) gives a grid that reaches it."
        )
    n_before = int(times[0] > 0.0)  # columns to put before the first: S(0) = 1
    times = np.concatenate((np.zeros(n_before), times))

    # Between neighbouring knots no indicator and no G changes, and every curve is straight.
    knots = np.unique(np.concatenate(([0.0], times, time, censoring.times)))
    knots = knots[knots <= last]
    widths = np.diff(knots)
    right = np.clip(np.searchsorted(times, knots), 1, times.size - 1)
    share = (knots - times[right - 1]) / (times[right] - times[right - 1])
    at_event, at_risk = _weights(censoring, time, event, knots[:-1], "graf", min_censoring_prob)

    total = 0.0
    for rows in _blocks(time.size, knots.size):
        block = np.pad(curves[rows], ((0, 0), (n_before, 0)), constant_values=1.0)
        values = block[:, right - 1] * (1.0 - share) + block[:, right] * share
        failed = time[rows, None] <= knots[:-1]
        event_term = _mean_square(values) * at_event[rows, None]
        risk_term = _mean_square(1.0 - values) * at_risk
        total += float((np.where(failed, event_term, risk_term) @ widths).sum())
    return total / (time.size * float(last))


def _mean_square(values: FloatArray) -> FloatArray:
    """Mean of the square of straight pieces, (n, n_knots) -> (n, n_knots - 1)."""
    left, right = values[:, :-1], values[:, 1:]
    return (left * left + left * right + right * right) / 3.0


def _weights(
    censoring: KaplanMeier,
    time: FloatArray,
    event: BoolArray,
    grid: FloatArray,
    convention: str,
    min_censoring_prob: float | None,
) -> tuple[FloatArray, FloatArray]:
    """1 / G of the rows with an event (0 for the others), (n,), and of those still at risk, (n_grid,)."""
    if convention == "graf":
        floor = censoring_floor(censoring, min_censoring_prob)
        at_event = 1.0 / np.maximum(censoring.before(time), floor)
        at_risk = 1.0 / np.maximum(censoring.at(grid), floor)
    elif min_censoring_prob is not None:
        raise ConfigError("min_censoring_prob: convention 'sksurv' has no floor under G; leave it None.")
    else:
        at_event, at_risk = _inverse_or_zero(censoring.at(time)), _inverse_or_zero(censoring.at(grid))
    return np.where(event, at_event, 0.0), at_risk


def _inverse_or_zero(probability: FloatArray) -> FloatArray:
    return np.divide(1.0, probability, out=np.zeros_like(probability), where=probability > 0.0)


def _blocks(n_rows: int, n_columns: int) -> list[slice]:
    """Consecutive slices of rows, each of at most `_BLOCK` elements (or one row)."""
    step = max(1, _BLOCK // n_columns)
    return [slice(start, start + step) for start in range(0, n_rows, step)]
