"""Costs of leaves with machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sstorch._types import FloatArray
from sstorch.exact.survival_tasks import CompetingLogLikelihood, IntegratedBrier, LogLikelihood
from sstorch.exact.task import OneStepTask, Task, has_branch_costs
from sstorch.exact.tasks import CostSensitive, DecisionCosts, LeastSquares

# What the channels of a leaf are: events and hazard of each cause; the cost of each decision; weight, first
# and second moment; rows that leave, events and what `part` of their last block these rows see, of each block
# of the time axis; rows at risk, costs being those of curves that follow the rows through time.
LOG_RATIO, LEAST, SQUARES, BLOCKS, FOLLOWED = range(5)


class Form(NamedTuple):
    """Costs of leaves and their inputs."""

    kind: int  # one of the costs
    scale: float = 1.0  # `LEAST` is divided by it, `SQUARES` multiplied
    least: FloatArray = np.empty(0)  # (L,), of each of the last channels, what a leaf needs
    # (3, M), the time axis of `BLOCKS`, see :class:`sstorch.exact.survival_tasks.Blocks`
    blocks: FloatArray = np.empty((3, 0))


# By the method, so that a class that overrides it is not taken for its parent.
_FORMS: dict[Callable[..., Any], Callable[[Any], Form | None]] = {
    LogLikelihood.cost: lambda task: Form(LOG_RATIO),
    CompetingLogLikelihood.cost: lambda task: Form(LOG_RATIO),
    DecisionCosts.cost: lambda task: Form(LEAST, task.total),
    LeastSquares.cost: lambda task: Form(SQUARES, task.cost_scale),
    IntegratedBrier.cost: lambda task: (
        Form(BLOCKS, blocks=np.stack(task.blocks)) if task.leaf_curve == "kaplan_meier" else None
    ),
}
_ACCUMULATE = (OneStepTask.accumulate, IntegratedBrier.accumulate)


def form_of(task: Task) -> Form | None:
    """The form of a task's cost, leaves without conditions; None if there is no machine code for it."""
    if has_branch_costs(task) and _function(task.branch_cost) is not CostSensitive.branch_cost:
        return None
    if _function(task.accumulate) not in _ACCUMULATE:
        return None
    make = _FORMS.get(_function(task.cost))
    return None if make is None else make(task.cost.__self__)  # type: ignore[attr-defined]


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    """What a method calls with its object, which need not be the task itself."""
    function: Callable[..., Any] = getattr(method, "__func__", method)
    return function
