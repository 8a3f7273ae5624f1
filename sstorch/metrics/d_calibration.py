"""Distribution calibration: are the predicted probabilities of surviving one's own time uniform?"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from sstorch.exceptions import ConfigError
from sstorch.metrics.checks import FloatArray, check_time_event, check_times
from sstorch.metrics.conversion import check_same_order
from sstorch.metrics.curves import survival_at
from sstorch.metrics.probabilities import check_survival
from sstorch.metrics.units import check_grid_unit


@dataclass(frozen=True, eq=False)
class DCalibration:
    """Result of `d_calibration`.

    Attributes:
        statistic: Pearson's chi-squared of the bins against equal shares.
        p_value: small where the predicted distributions are not calibrated.
        table: one row a bin of predicted probability: lower, upper, observed, expected numbers of rows.
    """

    statistic: float
    p_value: float
    table: pd.DataFrame


def d_calibration(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    n_bins: int = 10,
) -> DCalibration:
    """D-calibration test: S_i(t_i) of calibrated curves is uniform on [0, 1].

    A row with an event counts in the bin [lower, upper) that holds S_i(t_i), 1 in the topmost. A row censored
    at c is spread over the probabilities below s = S_i(c), where its event must still fall: (s - lower) / s
    in the bin of s and (upper - lower) / s in each bin below; s = 0 counts in the lowest bin.

    Spread rows vary less than rows in bins, so that the test is conservative under censoring: true curves of
    500 rows are rejected at 5 % in 4.8 % of 500 simulations without censoring, and in 0.2 % with half of the
    rows censored (censoring Exp(1)). A large p-value then says little.

    Args:
        time: observed times, shape (n,).
        event: True or 1 where the event was observed, shape (n,).
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid of the curves, strictly increasing, shape (n_times,), in the unit of `time`. Put every
            distinct observed time in it, as `evaluation_times(time, train_time)` does: elsewhere S is read as
            the right-continuous step function through the grid, and as 1 before the first.
        n_bins: number of equal bins of [0, 1].

    Returns:
        Statistic, p-value (chi-squared with n_bins - 1 degrees of freedom) and the table of the bins.

    Raises:
        DataError: arguments that `sstorch.metrics.checks` refuses, or a grid in another unit than `time`.
        ConfigError: fewer than two bins.

    References:
        Haider, Hoehn, Davis and Greiner (2020), Journal of Machine Learning Research 21 (85), section 3.5 and
        appendix B.

    Examples:
        >>> survival = [[0.9, 0.7, 0.4], [0.8, 0.2, 0.1]]
        >>> result = d_calibration([3.0, 2.0], [0, 1], survival, [1.0, 2.0, 3.0], n_bins=2)
        >>> result.table["observed"].tolist(), round(result.p_value, 4)
        ([2.0, 0.0], 0.1573)
    """
    check_bins(n_bins)
    row_time, row_event = check_time_event(time, event)
    grid = check_times(times)
    curves = check_survival(survival, row_time.size, grid.size)
    check_same_order(time=time, survival=survival)
    check_grid_unit(row_time, row_event, grid)
    own = np.clip(survival_at(curves, grid, row_time), 0.0, 1.0)
    edges = np.arange(n_bins + 1) / n_bins
    failed = np.bincount(_bin(own[row_event], edges), minlength=n_bins)
    observed = failed + _spread(own[~row_event], edges)
    expected = row_time.size / n_bins
    statistic = float(((observed - expected) ** 2).sum() / expected)
    table = pd.DataFrame(
        {"lower": edges[:-1], "upper": edges[1:], "observed": observed, "expected": np.full(n_bins, expected)}
    )
    return DCalibration(statistic, float(chi2.sf(statistic, n_bins - 1)), table)


def check_bins(n_bins: int) -> None:
    """Refuse a number of groups that is no integer >= 2.

    Raises:
        ConfigError: such a number.
    """
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 2:
        raise ConfigError(f"n_bins: expected an integer >= 2; got {n_bins!r}.")


def _bin(probability: FloatArray, edges: FloatArray) -> npt.NDArray[np.intp]:
    return np.minimum(np.searchsorted(edges, probability, side="right") - 1, edges.size - 2)


def _spread(probability: FloatArray, edges: FloatArray) -> FloatArray:
    """Sum over rows of the uniform distribution on [0, s], per bin."""
    certain = probability <= 0.0
    s = probability[~certain]
    position, n_bins = _bin(s, edges), edges.size - 1
    within = np.bincount(position, weights=(s - edges[position]) / s, minlength=n_bins)
    # A bin gets its width over s from every row whose s lies in a bin above it.
    inverse = np.bincount(position, weights=1.0 / s, minlength=n_bins)
    above = np.concatenate((np.cumsum(inverse[:0:-1])[::-1], [0.0]))
    spread: FloatArray = within + np.diff(edges) * above
    spread[0] += np.count_nonzero(certain)
    return spread
