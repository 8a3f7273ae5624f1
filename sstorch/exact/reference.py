"""Costs of rows by a reference model, assumed as lower bounds of the costs of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from sstorch._types import FloatArray
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood
from sstorch.exact.task import Task
from sstorch.exceptions import ConfigError, DataError

# Rows whose curves are held at once.
_ROWS_AT_ONCE = 1000


def reference_costs(task: Task, model: Any, X: Any) -> FloatArray:
    """Cost of each row by the predicted curve of a reference model, (N,), in the unit of the task.

    For the `guess` of :func:`~sstorch.exact.solve`. With the log-likelihood it is w (H - d - d log(H / Λ)), H
    the cumulative hazard predicted for the row's own time (less that for its entry), at least 1 / (N + 1),
    and Λ the estimate of all rows; with the Brier score the row's part of it.

    Args:
        task: the objective.
        model: fitted, with `unique_times_`, `predict_survival_function` and
            `predict_cumulative_hazard_function`, whose `return_array=True` asks for curves at these times, as
            of the estimators of this package and of scikit-survival.
        X: the task's rows, as `model` takes them.

    Raises:
        ConfigError: another task, or a model without these.
        DataError: other than N rows.

    References:
        Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS (Section 3).
    """
    if not isinstance(task, LogLikelihood | IntegratedBrier):
        raise ConfigError(f"a reference model has costs of one event, not those of {type(task).__name__}")
    if len(X) != task.n_rows:
        raise DataError(f"X: {len(X)} rows, but the task has {task.n_rows}")
    if isinstance(model, type) or not hasattr(model, "unique_times_"):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"reference must be a fitted survival model with unique_times_, got {kind}")
    brier, times = isinstance(task, IntegratedBrier), np.asarray(model.unique_times_)
    predict = model.predict_survival_function if brier else model.predict_cumulative_hazard_function
    costs = []
    for begin in range(0, task.n_rows, _ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + _ROWS_AT_ONCE, task.n_rows))
        curves = np.asarray(predict(_safe_indexing(X, rows), return_array=True), dtype=np.float64)
        # Before the first of the times no event is predicted.
        curves = np.hstack([np.full((len(rows), 1), 1.0 if brier else 0.0), curves])
        costs.append(task.row_costs(rows, times, curves))
    return np.concatenate(costs)
