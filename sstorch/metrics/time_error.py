"""Errors of predicted times under censoring.

An event time is known; a censoring time is only a lower bound and is replaced, or weighted, in one of three
ways. All errors are in the unit of time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import check_horizon, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import ipcw_weights, risk_sets
from sstorch.metrics.checks import check_grid_unit, check_observed_horizon, check_predicted_unit, check_times
from sstorch.metrics.curves import restricted_mean_survival_time
from sstorch.metrics.outcome import Observed, Outcome, read_rows, training

_NAME = "an error of predicted times"


class LineExtendedKaplanMeier:
    """Kaplan-Meier, beyond its last time continued along the line from (0, 1) through its last point to 0.

    Some event has to be at a time > 0, so that the line falls.
    """

    def __init__(self, rows: Observed) -> None:
        weight = rows.weight
        if weight is not None:  # of one more row the weight is 1: the mean of these
            weight = weight * (rows.time.size / weight.sum())
        distinct, _, n_events, _, at_risk = risk_sets(rows._replace(weight=weight))
        self.nodes: FloatArray = np.concatenate(([0.0], distinct))  # S is constant from each to the next
        self.steps: FloatArray = _product_limit(n_events, at_risk)
        self.steps_with_one_more: FloatArray = _product_limit(n_events, at_risk + 1)

    def at(self, t: FloatArray) -> FloatArray:
        """S(t), the shape of t."""
        step = self.steps[np.searchsorted(self.nodes, t, side="right") - 1]
        last, value = self.nodes[-1], self.steps[-1]
        line = np.maximum(1.0 - t * (1.0 - value) / last, 0.0)
        return np.where(t > last, line, step)

    def area_from(self, t: FloatArray) -> FloatArray:
        """Integral of S from t on."""
        last, value = self.nodes[-1], self.steps[-1]
        inner = np.minimum(t, last)
        whole = _step_area(self.nodes, self.steps, np.array([last]))[0]
        steps = whole - _step_area(self.nodes, self.steps, inner)
        triangle = _triangle(last, value)
        slope = (1.0 - value) / last
        area: FloatArray = np.where(t > last, self.at(t) ** 2 / (2.0 * slope), steps + triangle)
        return area

    def mean(self) -> float:
        """Area under the curve."""
        return float(self.area_from(np.zeros(1))[0])

    def mean_with_censored(self, c: FloatArray) -> FloatArray:
        """Mean of the curve of the same rows and one more that is censored at c, for each c."""
        position = np.searchsorted(self.nodes, c, side="right") - 1
        last = self.nodes[-1]
        before = _step_area(self.nodes, self.steps_with_one_more, c)
        at_c, without = self.steps_with_one_more[position], self.steps[position]
        lift = np.divide(at_c, without, out=np.zeros_like(without), where=without > 0.0)
        whole = _step_area(self.nodes, self.steps, np.array([last]))[0]
        after = np.maximum(whole - _step_area(self.nodes, self.steps, np.minimum(c, last)), 0.0)
        final = np.where(c >= last, at_c, lift * self.steps[-1])
        mean: FloatArray = before + lift * after + _triangle(np.maximum(c, last), final)
        return mean


def _product_limit(n_events: npt.NDArray[Any], at_risk: npt.NDArray[Any]) -> FloatArray:
    return np.cumprod(np.concatenate(([1.0], 1.0 - n_events / at_risk)), dtype=np.float64)


def _step_area(nodes: FloatArray, steps: FloatArray, t: FloatArray) -> FloatArray:
    """Integral from 0 to t of the step function that is steps[k] from nodes[k] on."""
    running = np.concatenate(([0.0], np.cumsum(np.diff(nodes) * steps[:-1])))
    position = np.searchsorted(nodes, t, side="right") - 1
    return running[position] + steps[position] * (t - nodes[position])


def _triangle(last: float | FloatArray, value: float | FloatArray) -> FloatArray:
    """Area under the line from (0, 1) through (last, value), from last on."""
    return np.asarray(value**2 * last / (2.0 * (1.0 - value)))


def mean_absolute_error_margin(
    y: Outcome,
    predicted_time: npt.ArrayLike,
    *,
    train: Outcome,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the mean absolute error with margin times in place of censored times.

    A row censored at c has the event time E[T | T > c] = c + int_c^inf S(t) dt / S(c) and the weight 1 -
    S(c), with S the Kaplan-Meier curve of the training rows. Beyond the last training time S is extrapolated
    to 0 along the line from (0, 1) through its last point.

    Args:
        y: outcome of the test rows, a `Surv` or the tuple (time, event), n of them.
        predicted_time: one predicted time per row, such as `median_survival_time`, shape (n,), in the unit of
            `y`, which is checked as far as possible. Infinite predictions give an infinite error.
        train: outcome of the training rows, for the estimate of S.
        sample_weight: weights of the rows, shape (n,); None for the weights of `y`. They are not used in S.

    Returns:
        The weighted mean error, in the unit of `y`.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), training rows without event, times in different
            units, or no row with weight.

    References:
        Haider, Hoehn, Davis and Greiner (2020), Journal of Machine Learning Research 21 (85), section 3.2.

    Examples:
        >>> mean_absolute_error_margin(([1.0, 2.0], [1, 1]), [2.0, 2.0], train=([1, 2, 3], [1, 1, 1]))
        0.5
    """
    rows, known, predicted = _checked(y, predicted_time, train, sample_weight)
    row_time, row_event = rows.time, rows.event
    survival = LineExtendedKaplanMeier(known)
    left = survival.at(row_time)
    beyond = np.divide(survival.area_from(row_time), left, out=np.zeros_like(left), where=left > 0.0)
    target = np.where(row_event, row_time, row_time + beyond)
    return _weighted_mean(np.abs(predicted - target), np.where(row_event, 1.0, 1.0 - left) * rows.weights)


def mean_absolute_error_pseudo(
    y: Outcome,
    predicted_time: npt.ArrayLike,
    *,
    train: Outcome,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the mean absolute error with pseudo-observations in place of censored times.

    A row censored at c has the event time (n + 1) m(train and the row) - n m(train), with m the mean of the
    Kaplan-Meier curve of n training rows, without and with this row, and the weight 1 - S(c). Both curves are
    extrapolated as in `mean_absolute_error_margin`, with the same arguments and errors.

    Returns:
        The weighted mean error, in the unit of `y`.

    References:
        Qi, Kumar, Farrokh, Sun, Kuan, Ranganath, Henao and Greiner (2023), ICML, section 3.6.

    Examples:
        >>> mean_absolute_error_pseudo(([1.0, 2.0], [1, 1]), [2.0, 2.0], train=([1, 2, 3], [1, 1, 1]))
        0.5
    """
    rows, known, predicted = _checked(y, predicted_time, train, sample_weight)
    row_time, row_event = rows.time, rows.event
    survival = LineExtendedKaplanMeier(known)
    n = float(known.time.size)
    pseudo = (n + 1.0) * survival.mean_with_censored(row_time) - n * survival.mean()
    target = np.where(row_event, row_time, pseudo)
    known_share = np.where(row_event, 1.0, 1.0 - survival.at(row_time))
    return _weighted_mean(np.abs(predicted - target), known_share * rows.weights)


def rmst_error(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
    tau: float,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the mean absolute error of predicted restricted mean survival times compared with min(T, tau).

    min(T, tau) is known for rows with an event or follow-up to tau. The result is their mean, weighted by 1 /
    G at this time.

    Args:
        y: outcome of the test rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t_k), shape (n, n_times), read as in `restricted_mean_survival_time`.
        times: the grid of the curves, strictly increasing, shape (n_times,), reaching tau.
        train: outcome of the training rows, for the estimate of G. G is constant beyond them.
        tau: the restriction, in the unit of `y`.
        sample_weight: weights of the rows, shape (n,); None for the weights of `y`. They are not used in G.

    Returns:
        The weighted mean error, in the unit of time.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), times in different units, a tau outside the
            observed times, a grid that ends before tau, or no row with known min(T, tau).
        ConfigError: tau is not > 0.

    References:
        Tian, Zhao and Wei (2014), Biostatistics 15, 222-233.

    Examples:
        >>> rows = ([1.0, 3.0], [1, 0])
        >>> rmst_error(rows, [[0.5, 0.0], [1.0, 1.0]], [1.0, 2.0], train=rows, tau=2.0)
        0.0
    """
    rows = read_rows(y, _NAME, weight=True, sample_weight=sample_weight, survival=survival)
    horizon = check_horizon(tau, "tau")
    check_observed_horizon(horizon, rows.time[rows.weights > 0.0], "tau")
    row_time, row_event, known_rows = rows.time, rows.event, training(train, rows.time)
    predicted = restricted_mean_survival_time(survival, times, tau=horizon)
    check_vector(predicted, "survival", row_time.size)
    check_grid_unit(row_time, row_event, check_times(times))
    target = np.minimum(row_time, horizon)
    known = row_event | (row_time >= horizon)
    weight = ipcw_weights((target, known), train=known_rows)
    return _weighted_mean(np.abs(predicted - target), weight * rows.weights)


def _checked(
    y: Outcome, predicted_time: npt.ArrayLike, train: Outcome, sample_weight: npt.ArrayLike | None
) -> tuple[Observed, Observed, FloatArray]:
    """Rows, training rows and predicted times."""
    rows = read_rows(y, _NAME, weight=True, sample_weight=sample_weight, predicted_time=predicted_time)
    predicted = check_vector(predicted_time, "predicted_time", rows.time.size)
    if (predicted < 0.0).any():
        raise DataError(
            f"predicted_time must be times >= 0, got {predicted.min():g}. Pass times, not risk scores."
        )
    check_predicted_unit(rows.time, predicted)
    known = training(train, rows.time)
    if not (known.event & (known.time > 0.0)).any():
        raise DataError(
            "train event: no training row has an event at a time > 0; no mean time can be estimated."
        )
    return rows, known, predicted


def _weighted_mean(error: FloatArray, weight: FloatArray) -> float:
    counted = weight > 0.0  # an infinite error of a row that does not count must not make NaN
    if not counted.any():
        raise DataError("event: no row has a known time: none has an event that counts.")
    return float(np.dot(weight[counted], error[counted]) / weight[counted].sum())
