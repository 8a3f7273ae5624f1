"""Costs of rows by a reference model, assumed as lower bounds of the costs of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from sstorch._types import FloatArray
from sstorch.checks import blocks
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood
from sstorch.exact.task import Task
from sstorch.exceptions import ConfigError, DataError

# Rows whose curves are held at once.
_ROWS_AT_ONCE = 1000


def reference_costs(task: Task, model: Any, X: Any) -> FloatArray:
    """Cost of each row by the prediction of a reference model, (N,), for the `guess` of `solve`.

    With the log-likelihood it is w (H - d - d log(H / Λ)), H the cumulative hazard predicted for the row's
    own time (less that for its entry), at least 1 / (N + 1), and Λ the estimate of all rows, summed over
    causes; with the Brier score the row's part of it; with other tasks the cost of the predicted decision or
    mean.

    Args:
        task: the objective.
        model: fitted. For one event an estimator of this package, or of scikit-survival with `unique_times_`,
            whose methods return curves at these times by `return_array=True`; for causes with
            `predict_cumulative_incidence(X, times)`, (n, K, T); else with `predict`.
        X: the task's rows, as `model` takes them.

    Raises:
        ConfigError: a model without these, or a task without `costs_of_predictions`.
        DataError: other than N rows.

    References:
        Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS (Section 3).
    """
    if len(X) != task.n_rows:
        raise DataError(f"X: {len(X)} rows, but the task has {task.n_rows}")
    needed = "predict"
    if isinstance(task, LogLikelihood | IntegratedBrier):
        needed = "event_times_" if hasattr(model, "event_times_") else "unique_times_"
        needed = "predict_cumulative_incidence" if getattr(task, "n_causes", 1) > 1 else needed
    if isinstance(model, type) or not hasattr(model, needed):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"reference must be a fitted model with {needed}, got {kind}")
    if not isinstance(task, LogLikelihood | IntegratedBrier):
        if not hasattr(task, "costs_of_predictions"):
            raise ConfigError(
                f"{type(task).__name__} has no costs_of_predictions; give the guess of each row"
            )
        costs: FloatArray = task.costs_of_predictions(model.predict(X))
        return costs
    parts = list[FloatArray]()
    for at in blocks(task.n_rows, 1, _ROWS_AT_ONCE):
        rows = np.arange(task.n_rows)[at]
        part = _safe_indexing(X, rows)
        if isinstance(task, IntegratedBrier):
            # Before the first of the times no event is predicted.
            times, curves = _curves(model, part, "predict_survival_function")
            parts.append(task.row_costs(rows, times, np.pad(curves, ((0, 0), (1, 0)), constant_values=1.0)))
            continue
        if task.n_causes > 1:
            times = np.unique(task.time[task.event])
            incidence = np.asarray(model.predict_cumulative_incidence(part, times), dtype=np.float64)
            before = np.pad(incidence, ((0, 0), (0, 0), (1, 0)))
            alive = np.maximum(1.0 - before[..., :-1].sum(axis=1, keepdims=True), 1e-12)
            hazards = np.cumsum(np.diff(before, axis=2) / alive, axis=2)
        else:
            times, curves = _curves(model, part, "predict_cumulative_hazard_function")
            hazards = curves[:, None]
        parts.append(task.row_costs(rows, times, np.pad(hazards, ((0, 0), (0, 0), (1, 0)))))
    return np.concatenate(parts)


def _curves(model: Any, part: Any, method: str) -> tuple[FloatArray, FloatArray]:
    """Times (T,), and the curves (n, T) of a model at these."""
    ours, predict = hasattr(model, "event_times_"), getattr(model, method)
    times = np.asarray(model.event_times_ if ours else model.unique_times_)
    return times, np.asarray(predict(part, times) if ours else predict(part, return_array=True), dtype=float)
