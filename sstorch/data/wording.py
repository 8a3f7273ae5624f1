"""Wording shared by the messages of this package: rows, names, nearest name."""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import DataError

_ROWS_SHOWN = 5
_NAMES_SHOWN = 30


def rows_text(bad: npt.NDArray[np.bool_]) -> str:
    """Say how many rows a mask marks, and which come first.

    Args:
        bad: (n,) mask with at least one True.

    Returns:
        For instance ``"2 rows (0-based positions 3, 8)"``.
    """
    where = np.flatnonzero(bad)
    shown = ", ".join(str(i) for i in where[:_ROWS_SHOWN])
    if len(where) == 1:
        return f"1 row (0-based position {shown})"
    more = ", ..." if len(where) > _ROWS_SHOWN else ""
    return f"{len(where)} rows (0-based positions {shown}{more})"


def names_text(names: Iterable[object]) -> str:
    """Join names for a message, at most 30 of them."""
    quoted = [repr(str(n)) for n in names]
    more = f", ... ({len(quoted)} in all)" if len(quoted) > _NAMES_SHOWN else ""
    return ", ".join(quoted[:_NAMES_SHOWN]) + more


def nearest_text(name: str, names: Sequence[str]) -> str:
    """Return ``" Did you mean 'age'?"`` for the name most like `name`, else an empty text."""
    folded = {n.casefold(): n for n in names}
    hits = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    return f" Did you mean {folded[hits[0]]!r}?" if hits else ""


def check_columns_exist(wanted: Iterable[str], present: Sequence[str]) -> None:
    """Refuse names that are no column.

    Args:
        wanted: Names that must be there.
        present: Names that are there.

    Raises:
        DataError: A wanted name is missing; the message lists the columns and the nearest name.
    """
    for name in wanted:
        if name not in present:
            raise DataError(
                f"no column {name!r}; the columns are {names_text(present)}.{nearest_text(name, present)}"
            )


def check_unique(names: Sequence[str]) -> None:
    """Refuse repeated column names.

    Raises:
        DataError: A name stands more than once; the message names all such.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"duplicate column name {names_text(twice)}; rename or remove one of them")
