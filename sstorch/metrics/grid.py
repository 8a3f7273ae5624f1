"""Number of times for curves of many rows."""

import numpy as np

from sstorch._types import FloatArray
from sstorch.memory import set_limit

# Curves are read at every time of a grid while rows x times are no more: a GiB of float64.
WHOLE_ELEMENTS = 2**27
# Beyond, a thinned grid has so many times, and so many values for all rows: half a GiB.
MOST_TIMES = 512
MOST_ELEMENTS = 2**26
LEAST_TIMES = 32


def thinned(times: FloatArray, n_rows: int) -> FloatArray:
    """Thin a grid of times so that curves of many rows need bounded memory.

    Up to 2^27 values (rows x times), such as 10 000 rows at 13 000 times, the grid is unchanged. Beyond, it
    has at most 512 of its times, fewer if 512 would exceed 2^26 values, but at least 32. One half are
    quantiles of the grid, including its ends; the other half are the first times at or after equal steps,
    since late times can be far apart. The grid depends on rows, times and a lower memory limit
    (:func:`sstorch.memory.memory`), never on the free memory of the machine.

    Args:
        times: the grid, increasing, shape (n_times,).
        n_rows: number of rows with curves on the grid.

    Returns:
        a subset of the times, increasing.

    Examples:
        >>> from sstorch.metrics import thinned
        >>> times = np.arange(300_000.0)
        >>> [thinned(times, n).size for n in (400, 100_000, 1_000_000, 100_000_000)]
        [300000, 512, 67, 32]
    """
    limit = set_limit()
    whole, most = (
        elements if limit is None else min(elements, limit // 8)
        for elements in (WHOLE_ELEMENTS, MOST_ELEMENTS)
    )
    if n_rows * times.size <= whole:
        return times
    count = min(times.size, max(LEAST_TIMES, min(MOST_TIMES, most // n_rows)))
    quantiles = np.linspace(0, times.size - 1, count - count // 2).round().astype(np.int64)
    steps = np.searchsorted(times, np.linspace(times[0], times[-1], count // 2 + 2)[1:-1])
    return times[np.union1d(quantiles, steps)]


def thinned_together(grids: dict[str, FloatArray], n_rows: int) -> dict[str, FloatArray]:
    """Grids that are read off the same curves, as they are or :func:`thinned` together.

    Each then has the times of the thinned union within its own range, and its own ends; one without times
    stays so.
    """
    union = np.unique(np.concatenate([[], *grids.values()]))
    some = thinned(union, n_rows)
    if some.size == union.size:
        return grids
    ends = {name: (grid[0], grid[-1]) if grid.size else (np.inf, -np.inf) for name, grid in grids.items()}
    some = np.union1d(some, [end for pair in ends.values() for end in pair if np.isfinite(end)])
    return {name: some[(some >= first) & (some <= last)] for name, (first, last) in ends.items()}
