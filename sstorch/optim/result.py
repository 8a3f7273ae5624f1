"""What a batched minimisation reports: one status and one point per problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor


class Status(IntEnum):
    """Why a problem left the minimiser.

    Attributes:
        RUNNING: Still being minimised; never found in a result.
        CONVERGED: The gradient is small, or the value no longer decreases measurably.
        MAX_ITER: The limit on iterations or on evaluations was reached first.
        STALLED: No decrease was found, not even along steepest descent.
        NON_FINITE: The start has no finite value or gradient, or every trial step around the
            returned point had none.
    """

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    STALLED = 3
    NON_FINITE = 4


@dataclass(frozen=True)
class OptimizationResult:
    """End points of R problems, on the device and in the dtype of the start.

    Attributes:
        x: (R, d), the end points.
        value: (R,), the value at `x`; never above the value at the start.
        gradient_norm: (R,), maximum norm of the gradient at `x`.
        status: (R,) int64, a `Status` per problem.
        n_evaluations: (R,) int64, evaluations a problem asked for, its start included.
        n_iterations: (R,) int64, line searches that moved the problem.
        n_batched_evaluations: Calls of the batched function, each of which served every problem
            still in the batch.
    """

    x: Tensor
    value: Tensor
    gradient_norm: Tensor
    status: Tensor
    n_evaluations: Tensor
    n_iterations: Tensor
    n_batched_evaluations: int
