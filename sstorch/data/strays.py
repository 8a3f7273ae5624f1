"""Numbers that lie apart from the others of their column: errors of entry, or a second unit."""

from collections.abc import Iterator

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.checks import rows_text
from sstorch.data.oddity import Oddity

# Rows from which a column has a range, and those from which units are looked for at most.
_MIN_ROWS, _MAX_ROWS = 20, 100_000
# At most so many values lie apart, by so many times the range of the others, and by more than their range on
# a scale that is logarithmic far from the median, which long tails do not reach. Others with few different
# values have hardly a range: then it takes more.
_MOST_STRAYS, _FAR, _FEW_VALUES, _VERY_FAR = 3, 20.0, 10, 1e5
# Rows and different values of the smaller of two clusters; how much larger than both their widths the ratio
# between them is, in logarithms; factors between units that are in use; how near the ratio of medians is.
_MIN_CLUSTER, _MIN_DIFFERENT, _APART = 3, 3, 1.0
_FACTORS = np.array(
    [7, 10, 12, 30.4, 52.2, 60, 100, 365.25, 1000, 1e4, 1e6, 2.54, 2.2046, 18.02, 38.67, 88.42]
)
_NEAR = 0.25


def odd_values(values: FloatArray, what: str) -> Iterator[Oddity]:
    """A few values far from all others, or two clusters of values (n,) that two units would make."""
    present = np.flatnonzero(~np.isnan(values))
    if len(present) < _MIN_ROWS:
        return
    x = values[present]
    stray = _strays(x)
    if len(stray):
        rows = np.zeros(len(values), dtype=np.bool_)
        rows[present[stray]] = True
        rest = np.delete(x, stray)
        shown = ", ".join(f"{value:g}" for value in np.unique(x[stray]))
        yield Oddity(
            f"{what} is {shown} in {rows_text(rows)}, and {rest.min():g} to {rest.max():g} in all others",
            "correct what is wrong, or leave it out",
        )
        return
    if (cut := _two_units(x)) is not None:
        upper = x >= cut
        few = upper if 2 * upper.sum() < len(x) else ~upper
        rows = np.zeros(len(values), dtype=np.bool_)
        rows[present[few]] = True
        own, other = (f"{part.min():g} to {part.max():g}" for part in (x[few], x[~few]))
        ratio = float(np.median(x[upper]) / np.median(x[~upper]))
        yield Oddity(
            f"{what} is {own} in {rows_text(rows)} and {other} in all others, as with two units "
            f"(ratio of medians {ratio:.3g})",
            "bring all rows to one unit",
        )


def _strays(x: FloatArray) -> IntArray:
    """Positions of at most three values that lie far above or far below all others."""
    k = _MOST_STRAYS
    order = np.argpartition(x, (*range(k + 1), *range(len(x) - k - 1, len(x))))
    ends = np.concatenate((order[: k + 1], order[-k - 1 :]))
    edge = x[ends]
    inner = edge[-k - 1] - edge[k]  # range without the outermost values of both sides
    if edge[-1] - edge[0] <= _FAR * inner:
        return np.empty(0, dtype=np.int64)
    part = x[:: max(len(x) // _MAX_ROWS, 1)]
    middle = float(np.median(part))
    spread = np.abs(part - middle)
    scale = float(np.median(spread[spread > 0])) if (spread > 0).any() else 1.0
    z = np.arcsinh((edge - middle) / scale)
    far = _FAR if len(np.unique(part)) > _FEW_VALUES + len(edge) else _VERY_FAR
    found = []
    for sign in (1, -1):
        value, log = sign * edge[::sign], sign * z[::sign]  # rising; the far side is the end
        opposite, opposite_log = value[k], log[k]  # the other side may have some, too
        for n in range(k, 0, -1):
            gap, rest = value[-n] - value[-n - 1], value[-n - 1] - opposite
            gap_log, rest_log = log[-n] - log[-n - 1], log[-n - 1] - opposite_log
            if rest > 0 and gap > far * rest and gap_log > rest_log:
                found.append(ends[::sign][-n:])
                break
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _two_units(x: FloatArray) -> float | None:
    """Smallest value of the upper one of two clusters of positive values, whose ratio is one of two units."""
    if x.min() <= 0.0:
        return None
    log = np.sort(np.log(x[:: max(len(x) // _MAX_ROWS, 1)]))
    gap = np.diff(log)
    at = int(gap.argmax())
    low, high = log[: at + 1], log[at + 1 :]
    widths = max(np.ptp(low), np.ptp(high))
    if min(len(low), len(high)) < _MIN_CLUSTER or gap[at] <= _APART * max(widths, np.log(1.5)):
        return None
    if min(len(np.unique(low)), len(np.unique(high))) < _MIN_DIFFERENT:
        return None
    ratio = float(np.exp(np.median(high) - np.median(low)))
    if np.abs(np.log(_FACTORS / ratio)).min() > _NEAR:
        return None
    return float(np.exp(high[0])) * (1.0 - 1e-9)
