"""Which costs of leaves there is machine code for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sstorch.exact.survival_tasks import CompetingLogLikelihood, LogLikelihood
from sstorch.exact.task import OneStepTask, Task, has_branch_costs
from sstorch.exact.tasks import DecisionCosts, LeastSquares

# What the channels of a leaf are: events and hazard of each cause; the cost of each decision; weight, first
# and second moment.
LOG_RATIO, LEAST, SQUARES = range(3)


class Form(NamedTuple):
    """One of the costs, and its scale: `LEAST` is divided by it, `SQUARES` multiplied."""

    kind: int
    scale: float


# By the method, so that a class that overrides it is not taken for its parent.
_FORMS: dict[Callable[..., Any], Callable[[Any], Form]] = {
    LogLikelihood.cost: lambda task: Form(LOG_RATIO, 1.0),
    CompetingLogLikelihood.cost: lambda task: Form(LOG_RATIO, 1.0),
    DecisionCosts.cost: lambda task: Form(LEAST, task.total),
    LeastSquares.cost: lambda task: Form(SQUARES, task.cost_scale),
}


def form_of(task: Task) -> Form | None:
    """The form of a task's cost; None if there is no machine code for it."""
    if has_branch_costs(task) or _function(task.accumulate) is not OneStepTask.accumulate:
        return None
    make = _FORMS.get(_function(task.cost))
    return None if make is None else make(task.cost.__self__)  # type: ignore[attr-defined]


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    """What a method calls with its object, which need not be the task itself."""
    function: Callable[..., Any] = getattr(method, "__func__", method)
    return function
