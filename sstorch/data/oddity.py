"""An oddity of the rows of a table: what was found, and what to do about it."""

import warnings
from dataclasses import dataclass
from typing import Self

from sstorch.checks import option_text
from sstorch.exceptions import DataError, DataWarning


@dataclass(frozen=True)
class Oddity:
    """A finding and its remedy."""

    text: str  # names column, rows and values
    remedy: str  # what to do
    accident: bool = False  # true if it is hardly ever meant: such a column is refused in strict mode
    drop: tuple[str, ...] = ()  # columns that would be left out for it
    missing: tuple[float | str, ...] = ()  # codes that would be set to missing for it

    @classmethod
    def of_columns(cls, text: str, names: list[str], accident: bool = True, before: str = "") -> Self:
        """Columns that are best left out; the remedy is how that is done, with other words before it."""
        return cls(text, before + drop_text(names), accident, tuple(names))


def report(oddities: list[Oddity], strict: bool, stacklevel: int) -> None:
    """Warn of oddities, each in a line; refuse accidents if ``strict``.

    `stacklevel` is that of :func:`warnings.warn` called in place of this function.
    """
    accidents = [oddity for oddity in oddities if oddity.accident]
    if strict and accidents:
        said = "; ".join(f"{oddity.text}: {oddity.remedy}" for oddity in accidents)
        keep = option_text("strict", False, "strict=False")
        raise DataError(f"{said}. If this is intended, keep it with {keep}")
    for oddity in oddities:
        warnings.warn(f"{oddity.text}: {oddity.remedy}", DataWarning, stacklevel=stacklevel + 1)


def drop_text(names: list[str]) -> str:
    """Instruction for dropping columns, depending on the source of the table."""
    it = "it" if len(names) == 1 else "them"
    option = option_text("drop", names, "")
    return f"drop {it} with {option}" if option else f"leave {it} out"
