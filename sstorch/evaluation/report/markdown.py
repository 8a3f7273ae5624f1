"""A report as Markdown, with its figures as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sstorch.evaluation.report.document import (
    Block,
    Bullets,
    Cell,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
)

FIGURES = "figures"


def to_markdown(document: Document) -> str:
    """The text of the report; it refers to its figures as ``figures/NAME.png``."""
    lines = [f"# {_escape(document.title)}", "", _escape(document.subtitle), ""]
    for anchor, section in document.numbered():
        lines.append(f"* [{_escape(section.title)}](#{anchor})")
    for anchor, section in document.numbered():
        lines += ["", f'<a id="{anchor}"></a>']
        lines += _section(section, level=2)
    return "\n".join(lines) + "\n"


def pictures(document: Document) -> Iterator[Picture]:
    """All figures of the report, in order."""
    for section in document.sections:
        yield from _pictures(section)


def _pictures(section: Section) -> Iterator[Picture]:
    for block in section.blocks:
        if isinstance(block, Section):
            yield from _pictures(block)
        elif isinstance(block, Picture):
            yield block


def _section(section: Section, level: int) -> list[str]:
    lines = ["", f"{'#' * level} {_escape(section.title)}"]
    for block in section.blocks:
        lines += _section(block, level + 1) if isinstance(block, Section) else ["", *_block(block)]
    return lines


def _block(block: Block) -> list[str]:
    match block:
        case Paragraph(text):
            return [_escape(text)]
        case Bullets(items):
            return [f"* {_escape(item)}" for item in items]
        case Picture(name, _, caption, alternative):
            return [f"![{_escape(alternative)}]({FIGURES}/{name}.png)", "", _escape(caption)]
        case Table():
            return _table(block)
    raise TypeError(f"no Markdown for {type(block).__name__}")


def _table(table: Table) -> list[str]:
    lines = [_escape(table.caption), ""] if table.caption else []
    header = list(table.header)
    if table.groups:  # Markdown has no second row of headings
        above = [group for group, span in table.groups for _ in range(span)]
        header = [f"{group} {name}".strip() for group, name in zip(above, header, strict=True)]
    lines.append(_row(map(_escape, header)))
    lines.append(_row("---" if not k or k in table.left else "---:" for k in range(len(header))))
    for row in table.rows:
        lines.append(_row(map(_cell, row)))
    for row in table.footer:
        lines.append(_row(_cell(cell, name=not k) for k, cell in enumerate(row)))
    return lines


def _row(cells: Sequence[str] | Iterator[str] | map[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell, name: bool = False) -> str:
    text = _escape(cell.text)
    if cell.best:
        text = f"**{text}**"
    elif cell.best_of_family or name:
        text = f"*{text}*"
    return f"{text} ({_escape(cell.note)})" if cell.note else text


def _escape(text: str) -> str:
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", text)
