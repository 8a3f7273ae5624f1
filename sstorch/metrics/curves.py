"""Curves over time: of any model, read in order, summarised, and conditional on survival to a landmark.

Rows at risk at a landmark s, entry <= s < time, are scored from s on with S(s + t) / S(s) and training rows
that are chosen alike: van Houwelingen (2007), Scandinavian Journal of Statistics 34, 70-85; Schoop, Graf and
Schumacher (2008), Biometrics 64, 603-610.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks, check_horizon, rows_text
from sstorch.exceptions import DataError
from sstorch.memory import at_once
from sstorch.metrics.checks import check_survival, check_times

# What subtracting a landmark from a time and adding it again may lose, relative to the time.
_ROUNDING = 4 * np.finfo(np.float64).eps


def predict_curves(model: Any, X: Any, grid: FloatArray) -> Any:
    """Ask an estimator for the curves of X on a grid, shape (n, n_times).

    It has ``predict_survival_function(X, times)`` of this package or of lifelines, a frame with a row per
    time, or that of scikit-survival, ``(X, return_array=False)``, with a step function per row.
    """
    predict = model.predict_survival_function
    parameters = _parameters(predict)
    if parameters is None:
        curves = predict(X, grid)
    elif "return_array" in parameters and "times" not in parameters:
        functions = predict(X, return_array=False)
        if not all(callable(f) and np.ndim(getattr(f, "x", 0.0)) == 1 for f in functions):
            raise DataError(_expected(model, f"{type(functions).__name__} without step functions"))
        return np.array([_on_grid(f, grid) for f in functions])
    elif "times" in parameters and parameters["times"].kind != inspect.Parameter.POSITIONAL_ONLY:
        curves = predict(X, times=grid)
    else:
        places = [p.kind for p in parameters.values() if p.kind < inspect.Parameter.KEYWORD_ONLY]
        if len(places) < 2 and inspect.Parameter.VAR_POSITIONAL not in places:
            raise DataError(_expected(model, f"a method that takes ({', '.join(parameters)})"))
        curves = predict(X, grid)
    if isinstance(curves, pd.DataFrame) and curves.index.equals(pd.Index(grid)):
        return curves.to_numpy().T
    return curves


def _parameters(method: Any) -> Mapping[str, inspect.Parameter] | None:
    """Parameters of a method; None for compiled code without a signature."""
    try:
        return inspect.signature(method).parameters
    except (TypeError, ValueError):
        return None


def knows_after(model: Any, method: Any) -> bool:
    """Whether a method of a model predicts from a time at which rows are alive."""
    return hasattr(model, "outcome_type_") or "after" in (_parameters(method) or {})


def _on_grid(function: Any, grid: FloatArray) -> FloatArray:
    knots = np.asarray(function.x, dtype=np.float64)
    within = np.asarray(function(np.clip(grid, knots[0], knots[-1])), dtype=np.float64)
    return np.where(grid < knots[0], 1.0, within)


def _expected(model: Any, got: str) -> str:
    return (
        f"model must have {type(model).__name__}.predict_survival_function(X, times) -> (n, n_times), or "
        f"that of scikit-survival, (X, return_array=False) -> a step function per row, got {got}."
    )


class CurvesInOrder:
    """Curves S_i(t_k), (n, n_times), read at some times in an order of rows, (n,), if possible uncopied."""

    def __init__(self, curves: FloatArray, order: IntArray) -> None:
        self._curves = curves
        whole = order.size == len(curves) and bool((np.diff(order) == 1).all())
        self._order = None if whole else order
        self._first, self._ahead = 0, np.empty((0, order.size))

    def __getitem__(self, times: slice | IntArray) -> FloatArray:
        """S of all rows at some of the times, shape (n_some, n), contiguous along the rows."""
        if self._order is None:
            return np.ascontiguousarray(self._curves[:, times].T)
        if not isinstance(times, slice):
            return self._in_order(self._order, times)
        start, stop, _ = times.indices(self._curves.shape[1])
        if start < self._first or stop > self._first + len(self._ahead):
            # One time of unordered rows costs as much as the times that lie next to it in memory.
            ahead = slice(start, max(stop, start + at_once(self._order.size, 2**22)))
            self._first, self._ahead = start, self._in_order(self._order, ahead)
        return self._ahead[start - self._first :][: stop - start]

    def _in_order(self, order: IntArray, times: slice | IntArray) -> FloatArray:
        some = self._curves[:, times]
        read = np.empty((some.shape[1], order.size))
        for rows in blocks(order.size, some.shape[1], 2**17):  # what is read and written fits the cache
            read[:, rows] = some[order[rows]].T
        return read

    def each(self, times: IntArray) -> list[FloatArray]:
        """S of all rows at each of some times, (n,) each, without a copy where none is needed."""
        in_place = self._order is None and self._curves.flags.f_contiguous
        return [self._curves[:, k] for k in times] if in_place else list(self[times])


def survival_at(curves: FloatArray, grid: FloatArray, time: FloatArray) -> FloatArray:
    """S_i(t_i) of each row at its own time, shape (n,), read as right-continuous steps from 1."""
    column = np.searchsorted(grid, time, side="right") - 1
    return np.where(column >= 0, curves[np.arange(time.size), np.maximum(column, 0)], 1.0)


def median_survival_time(survival: npt.ArrayLike, times: npt.ArrayLike) -> FloatArray:
    """Time at which each curve, (n, n_times), linear from S(0) = 1, reaches 1/2, (n,); infinite if never."""
    curves, nodes = _from_one(survival, times)
    reached = curves <= 0.5
    right = np.where(reached.any(axis=1), reached.argmax(axis=1), 0)  # 0: never reached, or at once
    left = np.maximum(right - 1, 0)
    rows = np.arange(len(curves))
    high, low = curves[rows, left], curves[rows, right]
    share = np.divide(high - 0.5, high - low, out=np.zeros_like(high), where=high > low)
    crossing = nodes[left] + share * (nodes[right] - nodes[left])
    return np.where(reached.any(axis=1), crossing, np.inf)


def restricted_mean_survival_time(survival: npt.ArrayLike, times: npt.ArrayLike, *, tau: float) -> FloatArray:
    """Compute the restricted mean survival time E[min(T, tau)] of each curve: the area up to tau.

    Curves (n, n_times) are linear between the `times`, (n_times,), strictly increasing and reaching `tau`,
    and from S(0) = 1; `tau` is in the unit of `times`.

    Returns:
        The means in the unit of `times`, shape (n,).

    Raises:
        DataError: invalid arguments, or a grid that ends before tau.
        ConfigError: tau is not > 0.

    References:
        Royston and Parmar (2013), BMC Medical Research Methodology 13, 152.

    Examples:
        >>> restricted_mean_survival_time([[0.5, 0.0]], [1.0, 2.0], tau=1.0).tolist()
        [0.75]
    """
    horizon = check_horizon(tau, "tau")
    curves, nodes = _from_one(survival, times)
    if nodes[-1] < horizon:
        raise DataError(f"times must be a grid that reaches tau = {horizon:g}; it ends at {nodes[-1]:g}.")
    last = int(np.searchsorted(nodes, horizon))  # tau is in the piece that ends there
    share = (horizon - nodes[last - 1]) / (nodes[last] - nodes[last - 1])
    at_tau = curves[:, last - 1] + share * (curves[:, last] - curves[:, last - 1])
    values = np.column_stack((curves[:, :last], at_tau))
    return np.asarray(np.trapezoid(values, np.append(nodes[:last], horizon), axis=1))


def _from_one(survival: npt.ArrayLike, times: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The curves and their grid, with S(0) = 1 put before a grid that begins later."""
    grid = check_times(times)
    if np.ndim(survival) != 2:
        raise DataError(
            f"survival must have shape (n_samples, n_times) = (n, {grid.size}), got {np.shape(survival)}."
        )
    curves = check_survival(survival, len(np.asarray(survival)), grid.size)
    if grid[0] > 0.0:
        grid = np.concatenate(([0.0], grid))
        curves = np.pad(curves, ((0, 0), (1, 0)), constant_values=1.0)
    return curves, grid


def check_alive(alive: BoolArray, after: float | FloatArray) -> None:
    """Refuse rows, (n,), whose predicted survival at a time, of all rows or of each, is not above 0."""
    if (dead := ~alive).any():
        at = np.broadcast_to(after, dead.shape)[dead][0]
        raise DataError(
            f"predicted survival of {rows_text(dead)} at after={at:g} is 0, so that conditional survival is "
            "undefined; choose an earlier time"
        )


def conditional_curves(alive: FloatArray, curves: FloatArray, after: float) -> FloatArray:
    """S(t) / S(after), (n, n_times), from S(after), (n,), and S(t)."""
    check_alive(alive > 0.0, after)
    return np.asarray(curves / alive[:, None])


def conditional_incidences(incidence: FloatArray, after: float) -> FloatArray:
    """(F_k(s + t) - F_k(s)) / S(s), (n, K, n_times), from F_k at s and at s + t, (n, K, 1 + n_times)."""
    alive = 1.0 - incidence[..., 0].sum(axis=1)
    check_alive(alive > 0.0, after)
    return np.asarray((incidence[..., 1:] - incidence[..., :1]) / alive[:, None, None])


def times_from_zero(times: FloatArray, after: float, observed: FloatArray) -> FloatArray:
    """Times plus `after`, or the observed ones (increasing) that rounding keeps apart: curves step there."""
    at = after + times
    next_one = observed[np.minimum(np.searchsorted(observed, at), observed.size - 1)]
    return np.where(np.abs(next_one - at) <= _ROUNDING * at, next_one, at)
