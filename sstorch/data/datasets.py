"""Named data sets."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from sstorch.data.files import load_file
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wording import names_text, nearest_text
from sstorch.exceptions import ConfigError

Loader = Callable[..., SurvivalData]


@dataclass(frozen=True)
class _Entry:
    loader: Loader
    n: int | None
    p: int | None
    events: int | None
    source: str
    notes: str


_REGISTRY: dict[str, _Entry] = {}


def _register(
    name: str,
    *,
    n: int | None = None,
    p: int | None = None,
    events: int | None = None,
    source: str,
    notes: str,
) -> Callable[[Loader], Loader]:
    """Enter a loader; n, p and events are stated so that listing needs no loading."""

    def enter(loader: Loader) -> Loader:
        _REGISTRY[name] = _Entry(loader, n, p, events, source, notes)
        return loader

    return enter


def load_dataset(name: str, **options: object) -> SurvivalData:
    """Load a data set by name.

    Args:
        name: One of `list_datasets`.
        **options: Options of its loader; ``"csv"`` takes those of `load_file`.

    Raises:
        ConfigError: No such name, or an option its loader does not have.
        DataError: The data cannot be used.

    >>> len(load_dataset("gbsg2"))
    686
    """
    if name not in _REGISTRY:
        raise ConfigError(
            f"no data set {name!r}; there are {names_text(_REGISTRY)}.{nearest_text(name, list(_REGISTRY))}"
        )
    loader = _REGISTRY[name].loader
    try:
        inspect.signature(loader).bind(**options)
    except TypeError as error:
        choices = names_text(inspect.signature(loader).parameters) or "none"
        raise ConfigError(f"data set {name!r}: {error}; its options are {choices}") from error
    return loader(**options)


def list_datasets() -> pd.DataFrame:
    """List the data sets.

    Returns:
        One row a data set: name, N rows, p raw features, events, censoring (%), source, notes.
    """
    rows = [
        {
            "name": name,
            "N": entry.n,
            "p": entry.p,
            "events": entry.events,
            "censoring": None if not entry.n or not entry.events else 100 * (1 - entry.events / entry.n),
            "source": entry.source,
            "notes": entry.notes,
        }
        for name, entry in _REGISTRY.items()
    ]
    types = {"N": "Int64", "p": "Int64", "events": "Int64", "censoring": "Float64"}
    return pd.DataFrame(rows).astype(types)


@_register(
    "gbsg2",
    n=686,
    p=8,
    events=299,
    source="inside the lifelines wheel (MIT)",
    notes="German Breast Cancer Study Group 2: recurrence-free survival in days",
)
def _gbsg2() -> SurvivalData:
    # Imported here: lifelines takes seconds to import.
    from lifelines.datasets import load_gbsg2

    return SurvivalData.from_frame(load_gbsg2(), time="time", event="cens")


_register(
    "csv",
    source="a file of your own",
    notes="options path, time, event, event_coding, drop, sep, strict, entry",
)(load_file)
