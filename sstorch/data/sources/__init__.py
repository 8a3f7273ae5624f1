"""Sources of the named data sets: one module a source, each with the entries of its data sets."""

from sstorch.data.sources import lifelines, pysurvival, scikit_survival, survset, uis
from sstorch.data.sources.entry import Entry

_SOURCES = (lifelines, pysurvival, scikit_survival, survset, uis)

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in sorted((e for source in _SOURCES for e in source.ENTRIES), key=lambda e: e.name)
}

__all__ = ["ENTRIES", "Entry"]
