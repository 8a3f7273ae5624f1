"""Step functions of time, as scikit-survival gives them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.exceptions import DataError


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A curve of one row that jumps at some times and is flat between them, right-continuous.

    Attributes:
        x: times of the jumps, strictly increasing, (n_jumps,).
        y: the values from each jump on, (n_jumps,); the last one holds for ever.
        start: the value before the first jump: 1 of a survival curve, 0 of a cumulative hazard.

    >>> curve = StepFunction(np.array([1.0, 2.0]), np.array([0.5, 0.25]), start=1.0)
    >>> curve([0.0, 1.0, 3.0]).tolist(), float(curve(1.5))
    ([1.0, 0.5, 0.25], 0.5)
    """

    x: FloatArray
    y: FloatArray
    start: float

    @property
    def domain(self) -> tuple[float, float]:
        """Times at which the function may be asked."""
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
