"""A report as a tree of sections, tables and figures, written as HTML or as Markdown."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from itertools import accumulate
from typing import Any

import jinja2
import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from sstorch._types import FloatArray

FIGURES = "figures"
ABSENT = "\N{EN DASH}"
DIGITS = 3
# Inches: a figure up to here can be read at the width of a telephone, and of a page.
_NARROW, _BROAD = 5.0, 14.0


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    note: str = ""  # after the text in small print
    best: bool = False  # of its row
    best_of_family: bool = False  # among the models of this table, where a metric takes several tables


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    footer: Sequence[Sequence[Cell]] = ()  # rows of averages
    groups: Sequence[tuple[str, int]] = ()  # texts above the header with the columns each spans
    left: frozenset[int] = frozenset()  # columns after the first to be set flush left, as words are
    stacked: bool = False  # notes below their texts, which makes columns narrow

    @property
    def full_header(self) -> list[str]:
        """The header in one row, every text after that of its group."""
        if not self.groups:
            return list(self.header)
        above = [group for group, span in self.groups for _ in range(span)]
        return [f"{group} {text}".strip() for group, text in zip(above, self.header, strict=True)]

    @cached_property
    def edges(self) -> frozenset[int]:
        """Columns at which a group begins, the first column aside."""
        starts = accumulate(span for _, span in self.groups)
        return frozenset(list(starts)[:-1])


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Lines that stay as they are, in letters of one width."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A figure."""

    name: str  # of its file, without the ending
    figure: Figure
    caption: str
    alternative: str  # its content in words, for those who cannot see it

    @property
    def width(self) -> str:
        """``"wide"`` if it is too wide to be shrunk to a telephone, ``"broad"`` if to a page, else empty."""
        inches = self.figure.get_figwidth()
        return "broad wide" if inches > _BROAD else "wide" if inches > _NARROW else ""

    def png(self) -> bytes:
        """The figure as a PNG file, the same at every call."""
        return self._saved(format="png", dpi=144, metadata={"Software": None})

    def svg(self) -> bytes:
        """The figure as an SVG file, the same at every call."""
        # Ids inside an SVG file are hashes with this salt, and neither format keeps the time of drawing.
        with mpl.rc_context({"svg.hashsalt": "sstorch", "svg.fonttype": "path"}):
            return self._saved(format="svg", metadata={"Date": None, "Creator": None})

    def _saved(self, **options: Any) -> bytes:
        stream = io.BytesIO()
        self.figure.savefig(stream, **options)
        self.figure.set_layout_engine("none")  # the axes have their places: half the time of a second file
        return stream.getvalue()


@dataclass(frozen=True)
class Section:
    """A part with a title of its own; sections nest."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False  # shown by a page on demand only

    def pictures(self) -> Iterator[Picture]:
        """All figures, in order."""
        for block in self.blocks:
            if isinstance(block, Section):
                yield from block.pictures()
            elif isinstance(block, Picture):
                yield block


Block = Paragraph | Bullets | Code | Table | Picture | Section


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str  # of the whole
    subtitle: str  # one line below it
    sections: Sequence[Section]  # in order

    def pictures(self) -> Iterator[Picture]:
        """All figures, in order."""
        return (picture for section in self.sections for picture in section.pictures())

    def numbered(self) -> list[tuple[str, Section]]:
        """The sections, each with the name of its anchor."""
        return [(f"section-{number}", section) for number, section in enumerate(self.sections, 1)]


def number(value: float, digits: int = DIGITS) -> str:
    """A number without the leading zero, as in ".742"; NaN is a dash."""
    if math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    text = f"{abs(value):.{digits}f}"
    sign = "\N{MINUS SIGN}" if value < 0 and float(text) != 0.0 else ""
    return sign + (text[1:] if text.startswith("0.") else text)


def signed(value: float, digits: int = DIGITS) -> str:
    """As `number`, with a plus sign where it is above 0."""
    text = number(value, digits)
    return f"+{text}" if value > 0 and float(f"{value:.{digits}f}") != 0.0 else text


def digits_of(values: FloatArray) -> int:
    """Decimals to print: three for scores, one where finite values go into the hundreds."""
    return 1 if (np.abs(values[np.isfinite(values)]) >= 100.0).any() else DIGITS


def p_value(value: float) -> str:
    """A p-value with three decimals."""
    if math.isnan(value):
        return ABSENT
    return "< .001" if value < 0.0005 else number(value)


def seconds(value: float) -> str:
    """A time in seconds with three significant digits."""
    if math.isnan(value):
        return ABSENT
    if value >= 1000.0:
        return f"{value:,.0f}"
    if value == 0.0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{min(decimals, 4)}f}"


def listed(names: list[str]) -> str:
    """Names with commas and a final "and"."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def to_html(document: Document) -> str:
    """The report as one HTML page that needs no other file and no network."""
    return _render("report.html.jinja", document, escape)


def to_markdown(document: Document) -> str:
    """The report as Markdown; it refers to its figures as ``figures/NAME.png``."""

    def escaped(text: str) -> str:
        return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", " ".join(text.splitlines()))  # a row is one line

    return _render("report.md.jinja", document, escaped)


def _render(template: str, document: Document, escape_text: Callable[[str], str]) -> str:
    """Fill a template; every text that it prints is escaped, unless the template marks it as safe."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sstorch.document", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape_text(str(value))),
    )
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    for kind in (Paragraph, Bullets, Code, Table, Picture, Section):
        environment.tests[kind.__name__.lower()] = kind.__instancecheck__
    return environment.get_template(template).render(document=document)
