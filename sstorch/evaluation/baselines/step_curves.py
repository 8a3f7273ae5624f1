"""Curves that are step functions, or straight between the times at which a model knows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch.estimators.base import check_times
from sstorch.exceptions import TrainingError

FloatArray = npt.NDArray[np.float64]

# Largest rise of a curve that is taken for rounding; some packages predict in float32.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class StepCurves:
    """Right-continuous step functions: 1 before the first jump, the last value beyond the last one.

    Attributes:
        jumps: times at which the curves can jump, strictly increasing, shape (n_jumps,).
        values: gives S at the jumps, shape (n, n_jumps), from rows with the raw columns.
    """

    jumps: FloatArray
    values: Callable[[object], FloatArray]

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.evaluation.baselines.base.Curves`."""
        grid = check_times(times)
        curves = checked_curves(self.values(X))
        column = np.searchsorted(self.jumps, grid, side="right") - 1
        return np.where(column >= 0, curves[:, np.maximum(column, 0)], 1.0)


@dataclass(frozen=True)
class BrokenLineCurves:
    """Curves that are straight between knots, 1 at time zero, constant beyond the last knot.

    Attributes:
        knots: times > 0, strictly increasing, shape (n_knots,).
        values: gives S at the knots, shape (n, n_knots), from rows with the raw columns.
    """

    knots: FloatArray
    values: Callable[[object], FloatArray]

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.evaluation.baselines.base.Curves`."""
        grid = check_times(times)
        nodes = np.append(0.0, self.knots)
        curves = np.pad(checked_curves(self.values(X)), ((0, 0), (1, 0)), constant_values=1.0)
        right = np.clip(np.searchsorted(nodes, grid, side="right"), 1, len(nodes) - 1)
        share = np.minimum((grid - nodes[right - 1]) / (nodes[right] - nodes[right - 1]), 1.0)
        joined: FloatArray = curves[:, right - 1] * (1.0 - share) + curves[:, right] * share
        return joined


def checked_curves(curves: npt.ArrayLike) -> FloatArray:
    """Predicted survival as float64 in [0, 1], not rising, with rounding removed.

    Args:
        curves: shape (n, n_times).

    Raises:
        TrainingError: a model predicted NaN, or something that is no survival curve.
    """
    values = np.asarray(curves, dtype=np.float64)
    if np.isnan(values).any():
        raise TrainingError("the fitted model predicts NaN for some rows")
    falling: FloatArray = np.minimum.accumulate(np.clip(values, 0.0, 1.0), axis=1)
    if (np.abs(falling - values) > _ROUNDING).any():
        raise TrainingError("the fitted model predicts curves that rise or leave [0, 1]")
    return falling
