"""The parts a report is made of, whatever it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what stands there.
        note: what stands beside it in small print.
        best: whether it is the best of its row.
        best_of_family: whether it is the best among the models of this table, in a report with several.
    """

    text: str
    note: str = ""
    best: bool = False
    best_of_family: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    Attributes:
        caption: one sentence or none.
        header: a text a column.
        rows: rows of the body.
        footer: rows of averages below it.
        groups: texts above the header with the columns each spans, or none.
        stacked: whether notes stand below their texts, which makes columns narrow.
        left: columns after the first to be set flush left, as words are.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    footer: Sequence[Sequence[Cell]] = ()
    groups: Sequence[tuple[str, int]] = ()
    left: frozenset[int] = frozenset()
    stacked: bool = False


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        name: of its file, without the ending.
        figure: what to draw.
        caption: below it.
        alternative: what it shows, for those who cannot see it.
    """

    name: str
    figure: Figure
    caption: str
    alternative: str


@dataclass(frozen=True)
class Section:
    """A part with a title of its own.

    Attributes:
        title: plain text.
        blocks: what it holds; sections nest.
        folded: whether a page shows it on demand only.
    """

    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False


Block = Paragraph | Bullets | Table | Picture | Section


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        title: of the whole.
        subtitle: one line below it.
        sections: in order.
    """

    title: str
    subtitle: str
    sections: Sequence[Section]

    def numbered(self) -> list[tuple[str, Section]]:
        """The sections, each with the name of its anchor."""
        return [(f"section-{number}", section) for number, section in enumerate(self.sections, 1)]
