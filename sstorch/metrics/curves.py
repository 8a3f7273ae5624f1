"""Curves over time: of any model, read in order, summarised, and conditional on survival to a landmark.

Rows at risk at a landmark s, entry <= s < time, are scored from s on with S(s + t) / S(s) and training rows
that are chosen alike: van Houwelingen (2007), Scandinavian Journal of Statistics 34, 70-85; Schoop, Graf and
Schumacher (2008), Biometrics 64, 603-610.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks, rows_text
from sstorch.exceptions import DataError
from sstorch.memory import at_once

# What subtracting a landmark from a time and adding it again may lose, relative to the time.
_ROUNDING = 4 * np.finfo(np.float64).eps


def predict_curves(model: Any, X: Any, grid: FloatArray) -> Any:
    """Curves of X on a grid, (n, n_times), by an estimator of this package, lifelines or scikit-survival."""
    predict = model.predict_survival_function
    parameters = _parameters(predict)
    if "return_array" in parameters and "times" not in parameters:
        return np.array([_on_grid(function, grid) for function in predict(X, return_array=False)])
    by_name = "times" in parameters and parameters["times"].kind != inspect.Parameter.POSITIONAL_ONLY
    curves = predict(X, times=grid) if by_name else predict(X, grid)
    # lifelines: a frame with a row per time
    if isinstance(curves, pd.DataFrame) and curves.index.equals(pd.Index(grid)):
        return curves.to_numpy().T
    return curves


def _parameters(method: Any) -> Mapping[str, inspect.Parameter]:
    """Parameters of a method; none of compiled code without a signature."""
    try:
        return inspect.signature(method).parameters
    except (TypeError, ValueError):
        return {}


def check_takes_times(model: object, method: str, name: str = "model") -> None:
    """Raise DataError for a method of curves that has no place for the times."""
    parameters = _parameters(getattr(model, method))
    in_order = [each.kind for each in parameters.values() if each.kind <= inspect.Parameter.VAR_POSITIONAL]
    many = inspect.Parameter.VAR_POSITIONAL in in_order or len(in_order) > 1
    if parameters and "times" not in parameters and not many:
        raise DataError(
            f"{name} must have {method}(X, times), got {type(model).__name__} with "
            f"{method}({', '.join(parameters)}): add times, and return the curves at these times."
        )


def knows_after(model: Any, method: Any) -> bool:
    """Whether a method of a model predicts from a time at which rows are alive."""
    return hasattr(model, "outcome_type_") or "after" in _parameters(method)


def _on_grid(function: Any, grid: FloatArray) -> FloatArray:
    knots = np.asarray(function.x, dtype=np.float64)
    within = np.asarray(function(np.clip(grid, knots[0], knots[-1])), dtype=np.float64)
    return np.where(grid < knots[0], 1.0, within)


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
