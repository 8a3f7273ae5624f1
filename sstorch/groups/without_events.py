"""Groups without events among rows that should have had many."""

from __future__ import annotations

import numpy as np

from sstorch._types import IntArray
from sstorch.data import SurvivalData
from sstorch.data.oddities import Oddity
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed

# Expected events in a group without any: with a hazard of a tenth of the mean none has a probability of 14 %.
_EXPECTED = 20.0


def groups_without_events(group: IntArray, data: SurvivalData) -> list[Oddity]:
    """Name groups, (n,), without events in which the hazard of all rows would give 20 or more.

    A column that is known only with the outcome makes such groups, and their curves rest on no event.
    """
    entry = data.entry if data.entry.any() else None
    sets = risk_sets(Observed(data.nominal_time, data.event, entry))
    hazard = np.cumsum(
        np.divide(sets.n_events, sets.at_risk, where=sets.at_risk > 0, out=np.zeros(len(sets.times)))
    )
    levels = np.concatenate(([0.0], hazard))
    at_end, at_entry = (
        levels[np.searchsorted(sets.times, time, side="right")] for time in (data.nominal_time, data.entry)
    )
    expected = np.bincount(group, at_end - at_entry)
    events, rows = np.bincount(group, data.event), np.bincount(group)
    return [
        Oddity(
            f"group {k} has no event in {rows[k]} rows, where the hazard of all rows would give "
            f"{expected[k]:.0f}",
            "make sure that the columns that divide the rows are known at time zero",
        )
        for k in np.flatnonzero((events == 0) & (expected >= _EXPECTED))
    ]
