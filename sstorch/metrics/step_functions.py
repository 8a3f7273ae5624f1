"""Curves of an estimator on a grid, in the calling forms that are in use."""

import inspect
from typing import Any

import numpy as np

from sstorch.exceptions import DataError
from sstorch.metrics.checks import FloatArray


def predict_curves(model: Any, X: Any, grid: FloatArray) -> Any:
    """Ask an estimator for the curves of X.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or with that
            of scikit-survival, ``(X, return_array=False)``, which gives a step function per row: it is 1
            before its first time and keeps its last value beyond its last one.
        X: features, as the estimator takes them.
        grid: strictly increasing times, shape (n_times,).

    Returns:
        What the estimator gave, or the step functions on the grid, shape (n, n_times).

    Raises:
        DataError: a method that takes neither times nor `return_array`, or gives no step functions.
    """
    predict = model.predict_survival_function
    try:
        parameters = inspect.signature(predict).parameters
    except (TypeError, ValueError):  # compiled code need not have a signature
        return predict(X, grid)
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind == p.VAR_POSITIONAL for p in parameters.values())
    if "return_array" not in parameters:
        if "times" in parameters and parameters["times"].kind == inspect.Parameter.KEYWORD_ONLY:
            return predict(X, times=grid)
        if takes_any or len(positional) > 1:
            return predict(X, grid)
        raise DataError(_expected(model, f"a method that takes ({', '.join(parameters)})"))
    if "times" in parameters:
        return predict(X, times=grid)
    functions = predict(X, return_array=False)
    if not all(callable(f) and np.ndim(getattr(f, "x", 0.0)) == 1 for f in functions):
        raise DataError(_expected(model, f"{type(functions).__name__} without step functions"))
    return np.array([_on_grid(f, grid) for f in functions])


def _on_grid(function: Any, grid: FloatArray) -> FloatArray:
    knots = np.asarray(function.x, dtype=np.float64)
    within = np.asarray(function(np.clip(grid, knots[0], knots[-1])), dtype=np.float64)
    curve: FloatArray = np.where(grid < knots[0], 1.0, within)
    return curve


def _expected(model: Any, got: str) -> str:
    return (
        f"model: expected {type(model).__name__}.predict_survival_function(X, times) -> (n, n_times), or "
        f"that of scikit-survival, (X, return_array=False) -> a step function per row; got {got}."
    )
