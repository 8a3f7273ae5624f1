"""Entry: what the registry states about a data set."""

from collections.abc import Callable
from dataclasses import dataclass

from sstorch.data.sources.package import Package
from sstorch.data.survival_data import SurvivalData


@dataclass(frozen=True)
class Entry:
    """A data set: how to load it, and what is known without loading it.

    Attributes:
        name: Name for `load_dataset`.
        loader: Loads it; its parameters are the options of `load_dataset`.
        n: Rows.
        p: Raw features, before any encoding.
        events: Observed events.
        time_unit: Unit of the times.
        source: Where it comes from: package and name there.
        licence: Of the package, and of the data where one is stated.
        notes: What is observed, and until which event.
        pitfalls: Leaks of the outcome into the features, zero times, ties, and what else to mind.
        packages: Optional packages it comes from.
        download: What is downloaded at the first use; empty if nothing is.
        optional: Features that are there only if the option of the same name asks for them; `p` leaves them
            out.
    """

    name: str
    loader: Callable[..., SurvivalData]
    n: int
    p: int
    events: int
    time_unit: str
    source: str
    licence: str
    notes: str
    pitfalls: str = ""
    packages: tuple[Package, ...] = ()
    download: str = ""
    optional: tuple[str, ...] = ()

    @property
    def needs(self) -> str:
        """What has to be there beside sstorch, empty if nothing has to."""
        return ", ".join(
            [*(package.distribution for package in self.packages), *filter(None, [self.download])]
        )
