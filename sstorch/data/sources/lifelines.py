"""Data sets inside the lifelines wheel, which is always installed."""

from sstorch.data.sources.entry import Entry
from sstorch.data.survival_data import SurvivalData


def _gbsg2() -> SurvivalData:
    # Imported here: lifelines takes seconds to import.
    from lifelines.datasets import load_gbsg2

    return SurvivalData.from_frame(load_gbsg2(), time="time", event="cens")


ENTRIES = (
    Entry(
        name="gbsg2",
        loader=_gbsg2,
        n=686,
        p=8,
        events=299,
        time_unit="days",
        source="lifelines: load_gbsg2",
        licence="MIT",
        notes="breast cancer, German Breast Cancer Study Group 2; recurrence or death",
    ),
)
