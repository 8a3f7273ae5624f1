"""What one reads off a survival curve: its value at a time, its median, its restricted mean."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import DataError
from sstorch.metrics.checks import FloatArray, check_choice, check_horizon, check_times
from sstorch.metrics.probabilities import check_survival


def survival_at(curves: FloatArray, grid: FloatArray, time: FloatArray) -> FloatArray:
    """S_i(t_i) of each row at its own time, read as in `concordance_harrell`: right-continuous steps from 1.

    Args:
        curves: S on the grid, shape (n, n_times), checked.
        grid: shape (n_times,).
        time: a time per row, shape (n,).

    Returns:
        Shape (n,).
    """
    column = np.searchsorted(grid, time, side="right") - 1
    return np.where(column >= 0, curves[np.arange(time.size), np.maximum(column, 0)], 1.0)


def median_survival_time(
    survival: npt.ArrayLike, times: npt.ArrayLike, *, beyond: Literal["infinite", "line"] = "infinite"
) -> FloatArray:
    """Time at which each curve reaches 1/2, straight lines between grid times and from S(0) = 1.

    Args:
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,).
        beyond: for a curve that ends above 1/2, "infinite", or "line": where the line from (0, 1) through its
            last point reaches 1/2 (infinite still for a curve that ends at 1).

    Returns:
        The medians in the unit of `times`, shape (n,).

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses.
        ConfigError: an unknown `beyond`.

    Examples:
        >>> median_survival_time([[0.75, 0.25], [0.9, 0.8]], [1.0, 2.0]).tolist()
        [1.5, inf]
    """
    check_choice(beyond, "beyond", ("infinite", "line"))
    curves, nodes = _from_one(survival, times)
    reached = curves <= 0.5
    right = np.where(reached.any(axis=1), reached.argmax(axis=1), 0)  # 0: never reached, or at once
    left = np.maximum(right - 1, 0)
    rows = np.arange(len(curves))
    high, low = curves[rows, left], curves[rows, right]
    share = np.divide(high - 0.5, high - low, out=np.zeros_like(high), where=high > low)
    found = nodes[left] + share * (nodes[right] - nodes[left])
    otherwise = np.full(len(curves), np.inf)
    if beyond == "line":
        fall = 1.0 - curves[:, -1]
        np.divide(0.5 * nodes[-1], fall, out=otherwise, where=fall > 0.0)
    return np.where(reached.any(axis=1), found, otherwise)


def restricted_mean_survival_time(survival: npt.ArrayLike, times: npt.ArrayLike, *, tau: float) -> FloatArray:
    """Restricted mean survival time E[min(T, tau)] of each curve: its area up to tau.

    Args:
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), reaching tau. Between the times,
            and from S(0) = 1 to the first, the curves are taken to be straight.
        tau: the restriction, in the unit of `times`.

    Returns:
        The means in the unit of `times`, shape (n,).

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses, or a grid that ends before tau.
        ConfigError: tau is no time > 0.

    References:
        Royston and Parmar (2013), BMC Medical Research Methodology 13, 152.

    Examples:
        >>> restricted_mean_survival_time([[0.5, 0.0]], [1.0, 2.0], tau=1.0).tolist()
        [0.75]
    """
    horizon = check_horizon(tau, "tau")
    curves, nodes = _from_one(survival, times)
    if nodes[-1] < horizon:
        raise DataError(f"times: expected a grid that reaches tau = {horizon:g}; it ends at {nodes[-1]:g}.")
    last = int(np.searchsorted(nodes, horizon))  # tau is in the piece that ends there
    share = (horizon - nodes[last - 1]) / (nodes[last] - nodes[last - 1])
    at_tau = curves[:, last - 1] + share * (curves[:, last] - curves[:, last - 1])
    values = np.column_stack((curves[:, :last], at_tau))
    widths = np.diff(np.append(nodes[:last], horizon))
    area: FloatArray = (values[:, 1:] + values[:, :-1]) @ widths / 2.0
    return area


def _from_one(survival: npt.ArrayLike, times: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The curves and their grid, with S(0) = 1 put before a grid that begins later."""
    grid = check_times(times)
    if np.ndim(survival) != 2:
        raise DataError(
            f"survival: expected shape (n_samples, n_times) = (n, {grid.size}); got {np.shape(survival)}."
        )
    curves = check_survival(survival, len(np.asarray(survival)), grid.size)
    if grid[0] > 0.0:
        grid = np.concatenate(([0.0], grid))
        curves = np.pad(curves, ((0, 0), (1, 0)), constant_values=1.0)
    return curves, grid
