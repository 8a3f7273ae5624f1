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
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sstorch._types import FloatArray

FIGURES = "figures"
ABSENT = "\N{EN DASH}"
DIGITS = 3
# Inches: a figure up to here can be read at the width of a telephone, and of a page.
_NARROW, _BROAD = 5.0, 14.0


@dataclass(frozen=True)
class Cell:
    """A cell of a table with more than a text."""

    text: str
    note: str = ""  # after the text in small print
    best: bool = False  # of its row
    best_of_family: bool = False  # among the models of this table, where a metric takes several tables


class Code(str):
    """Lines that stay as they are, in letters of one width."""

    __slots__ = ()


class Picture(NamedTuple):
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


class Section(NamedTuple):
    """A title with its blocks: a paragraph (str), a list of texts, a table, a figure, or a section."""

    title: str
    blocks: Sequence[Block]
    folded: bool = False  # shown by a page on demand only


Block = str | list[str] | pd.DataFrame | Picture | Section


def as_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str = "",
    *,
    groups: Sequence[tuple[str, int]] = (),
    n_averages: int = 0,
    stacked: bool = False,
) -> pd.DataFrame:
    """A frame of texts or cells; the first entry of each row is its label.

    Args:
        header: names of the columns, that of the labels first.
        rows: texts or cells.
        caption: text above the table, in ``attrs``.
        groups: texts above the header with the number of columns that each spans.
        n_averages: number of last rows that are averages of the others.
        stacked: whether notes are below their texts, which makes columns narrow.
    """
    frame = pd.DataFrame([list(row[1:]) for row in rows], columns=range(len(header) - 1), dtype=object)
    frame.index = pd.Index([row[0] for row in rows], dtype=object)
    above = [text for text, span in groups for _ in range(span)]
    levels = [above, list(header)] if groups else [list(header)]
    frame.columns = pd.MultiIndex.from_arrays([one[1:] for one in levels], names=[one[0] for one in levels])
    frame.attrs = {"caption": caption, "n_averages": n_averages, "stacked": stacked}
    return frame


class Document(NamedTuple):
    """A report."""

    title: str  # of the whole
    subtitle: str  # one line below it
    sections: Sequence[Section]  # in order

    def pictures(self) -> Iterator[Picture]:
        """All figures, in order."""
        return _pictures(self.sections)


def _pictures(blocks: Sequence[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Section):
            yield from _pictures(block.blocks)
        elif isinstance(block, Picture):
            yield block


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


# A column with any other word is set flush left.
_NUMERIC = re.compile(r"(?:[\W\d]|to|n\. d\.|not reached)*")


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
        start = f'<figure class="{block.width}" tabindex="0">' if block.width else "<figure>"
        source = f"data:image/svg+xml;base64,{base64.b64encode(block.svg()).decode()}"
        image = f'<img alt="{escape(block.alternative)}" src="{source}">'
        return f"{start}{image}\n<figcaption>{escape(block.caption)}</figcaption></figure>"
    return _html_table(block)


def _html_table(frame: pd.DataFrame) -> str:
    groups = list(frame.columns.get_level_values(0)) if frame.columns.nlevels > 1 else []
    classes = []
    for k, (_, column) in enumerate(frame.items()):
        words = any(not _NUMERIC.fullmatch(_cell(value).text) for value in column)
        begins = k < len(groups) and (k == 0 or groups[k] != groups[k - 1])
        classes.append(" ".join(["left"] * words + ["edge"] * bool(begins)))
    first_average = len(frame) - frame.attrs.get("n_averages", 0)
    # The style sheet finds the classes of a cell in a span inside it: pandas gives it none.
    cells = [list(map(_html_cell, row, classes)) for row in frame.to_numpy(dtype=object)]
    header = [list(map(_html_cell, frame.columns.get_level_values(-1), classes))]
    header = [list(map(_html_cell, groups)), *header] if groups else header
    shown = pd.DataFrame(
        cells,
        [_html_cell(label, "average" * (k >= first_average)) for k, label in enumerate(frame.index)],
        pd.MultiIndex.from_arrays(header, names=[escape(str(name or "")) for name in frame.columns.names]),
    )
    with pd.option_context("display.max_colwidth", None):
        text = shown.to_html(escape=False, border=0)
    head, body = text.replace(' style="text-align: right;"', "").split("<tbody>")
    head = head.replace("<th>", '<th scope="col">').replace("<th colspan", '<th scope="colgroup" colspan')
    body = body.replace("<th>", '<th scope="row">')
    caption = frame.attrs.get("caption")
    start = f'<p class="caption">{escape(caption)}</p>\n' if caption else ""
    stacked = " stacked" if frame.attrs.get("stacked") else ""
    box = f'<div class="table{stacked}" role="group" aria-label="table" tabindex="0">'
    return f"{start}{box}\n{head}<tbody>{body}\n</div>"


def _cell(value: object) -> Cell:
    """A cell as it is, a float with three decimals, anything else as its text."""
    if isinstance(value, Cell):
        return value
    return Cell(number(value) if isinstance(value, float) else str(value))


def _html_cell(value: object, classes: str = "") -> str:
    cell = _cell(value)
    text = escape(" ".join(cell.text.split()))  # pandas writes a line break as "\\n"
    text = f"<b>{text}</b>" if cell.best else f"<u>{text}</u>" if cell.best_of_family else text
    text = f"{text}<small>{escape(cell.note)}</small>" if cell.note else text
    return f'<span class="{classes}">{text}</span>' if classes else text


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
    header = [" ".join(map(str, names)).strip() for names in block.columns.to_flat_index()]
    first_average = len(block) - block.attrs.get("n_averages", 0)
    rows = [[_plain(str(block.columns.names[-1] or "")), *map(_plain, header)]]
    rows += [["---", *["---:"] * len(header)]]
    for k, (label, row) in enumerate(zip(block.index, block.to_numpy(dtype=object), strict=True)):
        rows.append([_markdown_cell(label, "*" * (k >= first_average)), *map(_markdown_cell, row)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    caption = block.attrs.get("caption")
    return "\n".join([_plain(caption), "", *lines] if caption else lines)


def _markdown_cell(value: object, mark: str = "") -> str:
    cell = _cell(value)
    mark = "**" if cell.best else "*" if cell.best_of_family else mark
    return f"{mark}{_plain(cell.text)}{mark}" + f" ({_plain(cell.note)})" * bool(cell.note)


def _plain(text: str) -> str:
    """A text on one line in which nothing is markup."""
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", " ".join(text.splitlines()))
