"""A table as it was read, with the names that messages give to its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pandas as pd

from sstorch._types import IntArray
from sstorch.checks import wording
from sstorch.data.columns import set_missing


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Attributes:
        frame: The rows, (n, p).
        lines: Where each stands in the file, (n,), from 1.
        line: What messages call that: ``"line"`` of a text, ``"row"`` of a table.
        found: How a text file was read: ``encoding``, ``sep`` and ``decimal``.
    """

    frame: pd.DataFrame
    lines: IntArray
    line: str
    found: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def wording(self, options: str = "") -> Iterator[None]:
        """Let messages of the body call rows by their lines, and options as `wording` takes them."""
        with wording(lines=self.lines, line=self.line, options=options):
            yield

    def missing(self, values: Iterable[object]) -> Table:
        """The table with cells of some values missing."""
        return replace(self, frame=set_missing(self.frame, values))
