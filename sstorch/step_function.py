"""Step functions of time, compatible with scikit-survival."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.exceptions import DataError


@dataclass(frozen=True, eq=False)
class StepFunction:
    """Right-continuous step function of one row.

    Attributes:
        x: times of the jumps, strictly increasing, (n_jumps,).
        y: values from each jump on, (n_jumps,); constant after the last jump.
        start: value before the first jump: 1 for a survival curve, 0 for a cumulative hazard.

    >>> curve = StepFunction(np.array([1.0, 2.0]), np.array([0.5, 0.25]), start=1.0)
    >>> curve([0.0, 1.0, 3.0]).tolist(), float(curve(1.5))
    ([1.0, 0.5, 0.25], 0.5)
    """

    x: FloatArray
    y: FloatArray
    start: float

    @property
    def domain(self) -> tuple[float, float]:
        """Range of valid times."""
        return 0.0, np.inf

    def __call__(self, time: npt.ArrayLike) -> FloatArray:
        """Values at some times >= 0, of their shape.

        Raises:
            DataError: a time is negative or no number.
        """
        at = np.asarray(time, dtype=np.float64)
        if not (at >= 0).all():
            raise DataError("times must be numbers >= 0")
        jump = np.searchsorted(self.x, at, side="right") - 1
        return np.where(jump >= 0, self.y[np.maximum(jump, 0)], self.start)
