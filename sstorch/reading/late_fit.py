"""Late fit: where the mean curve of a group leaves the confidence band of Kaplan-Meier."""

from __future__ import annotations

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.data import SurvivalData
from sstorch.data.coded import RowFeatures
from sstorch.data.time_unit import duration
from sstorch.fitted.tree import FittedTree
from sstorch.metrics import KaplanMeierBand

# Share of a group's follow-up up to which it is compared, and the fewest events of a group.
_UP_TO, _LEAST_EVENTS = 0.9, 10
_MOST_TIMES = 64


def late_fit(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence on each group whose mean curve is outside the 95 % limits at 90 % of its follow-up.

    Families and shared or shrunk coefficients can bend curves where few events are, after the times at which
    tables report survival.

    Args:
        tree: trained on the rows, of one event.
        x: the training rows, encoded, shape (n, p).
        data: the same rows; none is compared with left truncation, intervals or subjects of several rows.
    """
    if tree.competing or data.intervals is not None or data.subject is not None or data.entry.any():
        return ()
    group, found = tree.apply(x), []
    for number in np.unique(group):
        inside = np.flatnonzero(group == number)
        rows = data.subset(inside)
        if rows.n_events < _LEAST_EVENTS:
            continue
        band, end = KaplanMeierBand.fit(rows.weighted_y), _UP_TO * float(rows.time.max())
        times = np.append(band.times[band.times < end], end)[-_MOST_TIMES:]
        own, weight = x[inside], rows.sample_weight / rows.sample_weight.max()
        last = np.average(tree.curves(own, times[-1:]), axis=0, weights=weight)
        _, lower, upper = band.at(times[-1:])
        if not outside(last, lower, upper)[0]:
            continue
        mean = np.average(tree.curves(own, times), axis=0, weights=weight)
        km, lower, upper = band.at(times)
        side = np.sign(mean - km)
        marks = outside(mean, lower, upper) & (side == side[-1])
        since = int(np.append(-1, np.flatnonzero(~marks))[-1]) + 1
        at_end = f"{km[-1]:.3f} ({lower[-1]:.3f} to {upper[-1]:.3f})"
        start = duration(times[since], tree.time_unit)
        found.append(
            f"Group {number}: from {start} on the mean curve is outside the 95 % confidence "
            f"band of Kaplan-Meier, S({end:.4g}) = {mean[-1]:.3f} by the model, {at_end} observed: "
            f"compare with {_remedy(tree)}, or do not report later times"
        )
    return tuple(found)


def outside(mean: FloatArray, lower: FloatArray, upper: FloatArray) -> BoolArray:
    """Where a curve is outside limits, which have no width before the first event; all of one shape."""
    return np.asarray((lower < upper) & ((mean < lower) | (mean > upper)))


def _remedy(tree: FittedTree) -> str:
    name = tree.module.family.name
    return "leaf='spline_po'" if name == "spline_ph" else "leaf='spline_ph'"
