"""Mean curves outside the band of Kaplan-Meier late in follow-up, and curves before first entries."""

from __future__ import annotations

import math

import numpy as np

from sstorch.data import SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.time_unit import duration
from sstorch.fitted.tree import FittedTree
from sstorch.metrics import KaplanMeier

# Share of the follow-up of rows at which they are compared, and the fewest events.
_UP_TO, _LEAST_EVENTS = 0.9, 10
# Survival to the first entry from which on what happens before is of no account.
_UNSEEN = 0.99


def late_fit(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence on each group whose mean curve is outside the 95 % limits at 90 % of its follow-up."""
    # Families and shared coefficients can bend curves where few events are, after the times of the tables.
    # With left truncation only the time before the first entry has a sentence; competing causes, intervals
    # and subjects of several rows have none.
    if data.entry.any():
        first = float(data.entry.min())
        before = np.average(tree.curves(x, np.array([first]))[:, 0], weights=data.sample_weight)
        about = (
            f"predicted survival to it, {before:.3f} on average, is extrapolated, and observed curves take "
        )
        return (_start_text(first, tree.time_unit, f"{about}it as 1"),) if before <= _UNSEEN else ()
    if tree.competing or data.intervals is not None or data.subject is not None:
        return ()
    group, found = tree.apply(x), []
    numbers, other = np.unique(group).tolist(), " (compare with leaf='spline_ph')"
    if tree.module.family.name == "spline_ph":
        other = ""
    for number in numbers:
        inside = np.flatnonzero(group == number)
        rows = data.subset(inside)
        if rows.n_events < _LEAST_EVENTS:
            continue
        end = _UP_TO * float(rows.time.max())
        curves = tree.curves(x[inside], np.array([end]))[:, 0]
        mean = float(np.average(curves, weights=rows.sample_weight / rows.sample_weight.max()))
        km, lower, upper = (float(part) for part in KaplanMeier.fit(rows.weighted_y).limits(end))
        if lower < upper and not lower <= mean <= upper:
            found.append(
                f"{f'Group {number}' if len(numbers) > 1 else 'All rows'}: mean predicted survival at "
                f"{duration(end, tree.time_unit)} is {mean:.3f}, outside the 95 % limits of Kaplan-Meier, "
                f"{km:.3f} ({lower:.3f} to {upper:.3f}). The family does not fit late times{other}, "
                "or censoring depends on covariates (see validate)"
            )
    return tuple(found)


def steps_from_entry(data: SurvivalData) -> str:
    """A sentence on steps that are 1 before a first entry; empty if few events are expected there."""
    first, weight = float(data.entry.min()), data.sample_weight
    rate = weight[data.event].sum() / (weight * (data.time - data.entry)).sum()
    if (survival := math.exp(-rate * first)) > _UNSEEN:
        return ""
    text = f"curves take survival to it as 1; at the mean hazard of all rows it is {survival:.3f}"
    return _start_text(first, data.time_unit, text)


def _start_text(first: float, unit: str | None, about: str) -> str:
    return (
        f"No row is at risk before the first entry at {duration(first, unit)}: {about}. Predict with "
        f"after={first:.6g}, or count times from a later origin"
    )
