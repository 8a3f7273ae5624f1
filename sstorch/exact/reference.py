"""Costs of rows by a reference model, assumed as lower bounds of the costs of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from sstorch._types import FloatArray, IntArray
from sstorch.exact.survival_tasks import CompetingLogLikelihood, IntegratedBrier, LogLikelihood
from sstorch.exact.task import Task
from sstorch.exceptions import ConfigError, DataError

# Rows whose curves are held at once.
_ROWS_AT_ONCE = 1000


def reference_costs(task: Task, model: Any, X: Any) -> FloatArray:
    """Cost of each row by the prediction of a reference model, (N,), in the unit of the task.

    For the `guess` of :func:`~sstorch.exact.solve`. With the log-likelihood it is w (H - d - d log(H / Λ)), H
    the cumulative hazard predicted for the row's own time (less that for its entry), at least 1 / (N + 1),
    and Λ the estimate of all rows, summed over causes; with the Brier score the row's part of it; with other
    tasks the cost of the predicted decision or mean.

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
    causes = isinstance(task, CompetingLogLikelihood)
    if len(X) != task.n_rows:
        raise DataError(f"X: {len(X)} rows, but the task has {task.n_rows}")
    needed = "predict_cumulative_incidence" if causes else "predict"
    if isinstance(task, LogLikelihood | IntegratedBrier):
        needed = "event_times_" if hasattr(model, "event_times_") else "unique_times_"
    if isinstance(model, type) or not hasattr(model, needed):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"reference must be a fitted model with {needed}, got {kind}")
    if isinstance(task, LogLikelihood | IntegratedBrier | CompetingLogLikelihood):
        parts = [
            _costs_by_curves(task, model, X, np.arange(begin, min(begin + _ROWS_AT_ONCE, task.n_rows)))
            for begin in range(0, task.n_rows, _ROWS_AT_ONCE)
        ]
        return np.concatenate(parts)
    if not hasattr(task, "costs_of_predictions"):
        raise ConfigError(f"{type(task).__name__} has no costs_of_predictions; give the guess of each row")
    costs: FloatArray = task.costs_of_predictions(model.predict(X))
    return costs


def _costs_by_curves(
    task: LogLikelihood | IntegratedBrier | CompetingLogLikelihood, model: Any, X: Any, rows: IntArray
) -> FloatArray:
    part = _safe_indexing(X, rows)
    if isinstance(task, CompetingLogLikelihood):
        times = np.unique(task.causes[0].time[task.event])
        incidence = np.asarray(model.predict_cumulative_incidence(part, times), dtype=np.float64)
        before = np.pad(incidence, ((0, 0), (0, 0), (1, 0)))
        alive = np.maximum(1.0 - before[..., :-1].sum(axis=1, keepdims=True), 1e-12)
        hazards = np.pad(np.cumsum(np.diff(before, axis=2) / alive, axis=2), ((0, 0), (0, 0), (1, 0)))
        return sum(
            cause.row_costs(rows, times, hazards[:, k]) for k, cause in enumerate(task.causes)
        ) + np.zeros(len(rows))
    brier, ours = isinstance(task, IntegratedBrier), hasattr(model, "event_times_")
    predict = model.predict_survival_function if brier else model.predict_cumulative_hazard_function
    times = np.asarray(model.event_times_ if ours else model.unique_times_)
    curves = np.asarray(predict(part, times) if ours else predict(part, return_array=True), dtype=np.float64)
    # Before the first of the times no event is predicted.
    curves = np.hstack([np.full((len(rows), 1), 1.0 if brier else 0.0), curves])
    return task.row_costs(rows, times, curves)
