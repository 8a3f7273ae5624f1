"""A report: a list of sections of text, lists, frames and figures, written as HTML or as Markdown."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from sstorch._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"
ABSENT = "\N{EN DASH}"
DIGITS = 3
# A column with any other word is set flush left.
_NUMERIC = re.compile(r"(?:[\W\d]|to|n\. d\.|not reached)*")


@dataclass(frozen=True)
class Cell:
    """A cell of a table with more than a text."""

    text: str
    note: str = ""  # after the text in small print
    best: bool = False  # of its row


class Code(str):
    """Lines that stay as they are, in letters of one width."""

    __slots__ = ()


class Picture(NamedTuple):
    """A figure."""

    name: str  # of its file, without the ending
    figure: Figure
    caption: str
    alternative: str  # its content in words, for those who cannot see it

    def saved(self, kind: Literal["png", "svg"]) -> bytes:
        """The figure as a file, the same at every call."""
        stream = io.BytesIO()
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        import matplotlib as mpl  # slow to load, and a table needs none

        # Ids inside an SVG file are hashes with this salt.
        with mpl.rc_context({"svg.hashsalt": "sstorch", "svg.fonttype": "path"}):
            self.figure.savefig(stream, format=kind, dpi=144, metadata=metadata)
        self.figure.set_layout_engine("none")  # the axes have their places: half the time of a second file
        return stream.getvalue()


class Section(NamedTuple):
    """A title with its blocks: a paragraph (str), a list of texts, a table, a figure, or a section."""

    title: str
    blocks: Sequence[Block]
    folded: bool = False  # shown by a page on demand only


Block = str | list[str] | pd.DataFrame | Picture | Section


class Document(NamedTuple):
    """A report."""

    title: str
    subtitle: str
    sections: Sequence[Section]

    def pictures(self) -> Iterator[Picture]:
        """All figures, in order."""
        blocks: list[Block] = list(self.sections)
        while blocks:
            block = blocks.pop(0)
            if isinstance(block, Section):
                blocks = [*block.blocks, *blocks]
            elif isinstance(block, Picture):
                yield block


def as_table(header: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> pd.DataFrame:
    """A frame of texts or cells; the first entry of the header and of each row is that of the labels."""
    frame = pd.DataFrame([list(row[1:]) for row in rows], columns=range(len(header) - 1), dtype=object)
    frame.index = pd.Index([row[0] for row in rows], dtype=object)
    frame.columns = pd.Index(header[1:], name=header[0])
    frame.attrs = {"caption": caption}
    return frame


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
    return "< .001" if value < 0.0005 else number(value)


def seconds(value: float) -> str:
    """A time in seconds with three significant digits."""
    if math.isnan(value) or value >= 1000.0:
        return ABSENT if math.isnan(value) else f"{value:,.0f}"
    decimals = max(0, 2 - math.floor(math.log10(value))) if value else 0
    return f"{value:.{min(decimals, 4)}f}"


def listed(names: list[str]) -> str:
    """Names with commas and a final "and"."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _table(frame: pd.DataFrame) -> tuple[list[str], list[list[Cell]]]:
    """Header and rows of a frame, each with its label; floats have three decimals."""
    columns: list[Any] = list(frame.columns)
    names = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in columns]
    rows = [
        [_cell(value) for value in (label, *row)]
        for label, row in zip(frame.index, frame.to_numpy(dtype=object), strict=True)
    ]
    return [str(frame.columns.names[-1] or ""), *(name.strip() for name in names)], rows


def _cell(value: object) -> Cell:
    cell = (
        value if isinstance(value, Cell) else Cell(number(value) if isinstance(value, float) else str(value))
    )
    return Cell(" ".join(cell.text.split()), cell.note, cell.best)


def to_html(document: Document) -> str:
    """The report as one HTML page that needs no other file and no network."""
    numbered = list(enumerate(document.sections, 1))
    contents = [f'<li><a href="#section-{k}">{escape(one.title)}</a></li>' for k, one in numbered]
    sections = [f'<section id="section-{k}">\n{_html(one, 1)}\n</section>' for k, one in numbered]
    page = Template((files("sstorch.document") / "page.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=escape(document.title),
        subtitle=escape(document.subtitle),
        contents="\n".join(contents),
        sections="\n".join(sections),
    )


def _html(block: Block, level: int) -> str:
    """A block inside a section with a heading of this level."""
    if isinstance(block, Section):
        title = escape(block.title)
        inner = "\n".join(_html(each, level + 1) for each in block.blocks)
        if block.folded:
            return f"<details>\n<summary>{title}</summary>\n{inner}\n</details>"
        return f"<h{level + 1}>{title}</h{level + 1}>\n{inner}"
    if isinstance(block, Code):
        return f'<pre tabindex="0">{escape(block)}</pre>'
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, list):
        return "\n".join(["<ul>", *(f"<li>{escape(item)}</li>" for item in block), "</ul>"])
    if isinstance(block, Picture):
        source = f"data:image/svg+xml;base64,{base64.b64encode(block.saved('svg')).decode()}"
        inches = f"--inches: {block.figure.get_figwidth():.1f}"
        image = f'<img alt="{escape(block.alternative)}" style="{inches}" src="{source}">'
        return f'<figure tabindex="0">{image}\n<figcaption>{escape(block.caption)}</figcaption></figure>'
    return _html_table(block)


def _html_table(frame: pd.DataFrame) -> str:
    (corner, *names), rows = _table(frame)
    words = [any(not _NUMERIC.fullmatch(row[k].text) for row in rows) for k in range(len(names) + 1)]
    kinds = [' class="left"' if word else "" for word in words[1:]]

    def inner(cell: Cell) -> str:
        text = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
        return f"{text}<small>{escape(cell.note)}</small>" if cell.note else text

    heads = [f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(names, kinds, strict=True)]
    lines = [f'<thead><tr><th scope="col">{escape(corner)}</th>', *heads, "</tr></thead>", "<tbody>"]
    for label, *row in rows:
        cells = [f"<td{kind}>{inner(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)]
        lines += [f'<tr><th scope="row">{inner(label)}</th>', *cells, "</tr>"]
    caption = frame.attrs.get("caption")
    above = [f'<p class="caption">{escape(caption)}</p>'] if caption else []
    box = '<div class="table" role="group" aria-label="table" tabindex="0">'
    return "\n".join([*above, box, "<table>", *lines, "</tbody></table>", "</div>"])


def to_markdown(document: Document) -> str:
    """The report as Markdown; it refers to its figures as ``figures/NAME.png``."""
    numbered = list(enumerate(document.sections, 1))
    contents = [f"* [{_plain(one.title)}](#section-{k})" for k, one in numbered]
    sections = [f'\n<a id="section-{k}"></a>\n\n{_markdown(one, 1)}' for k, one in numbered]
    lines = [f"# {_plain(document.title)}", "", _plain(document.subtitle), "", *contents, *sections]
    return "\n".join(lines) + "\n"


def _markdown(block: Block, level: int) -> str:
    """A block inside a section with a heading of this level."""
    if isinstance(block, Section):
        title = f"{'#' * (level + 1)} {_plain(block.title)}"
        return "\n\n".join([title, *(_markdown(each, level + 1) for each in block.blocks)])
    if isinstance(block, Code):
        return f"```text\n{block}\n```"
    if isinstance(block, str):
        return _plain(block)
    if isinstance(block, list):
        return "\n".join(f"* {_plain(item)}" for item in block)
    if isinstance(block, Picture):
        name = f"{FIGURES}/{block.name}.png"
        return f"![{_plain(block.alternative)}]({name})\n\n{_plain(block.caption)}"
    header, rows = _table(block)
    texts = [list(map(_plain, header)), ["---", *["---:"] * (len(header) - 1)]]
    for row in rows:
        marked = [f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text) for cell in row]
        notes = [f" ({_plain(cell.note)})" * bool(cell.note) for cell in row]
        texts.append([text + note for text, note in zip(marked, notes, strict=True)])
    lines = [f"| {' | '.join(row)} |" for row in texts]
    caption = block.attrs.get("caption")
    return "\n".join([_plain(caption), "", *lines] if caption else lines)


def _plain(text: str) -> str:
    """A text on one line in which nothing is markup."""
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", " ".join(text.splitlines()))
