"""A report as one HTML page that needs no other file, no network and no script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files

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
from sstorch.evaluation.report.drawing import as_svg


def to_html(document: Document) -> str:
    """The text of the page."""
    style = (files("sstorch.evaluation.report") / "page.css").read_text(encoding="utf-8")
    contents = "".join(
        f'<li><a href="#{anchor}">{escape(section.title)}</a></li>\n'
        for anchor, section in document.numbered()
    )
    body = "".join(
        f'<section id="{anchor}">\n{_section(section, 2)}</section>\n'
        for anchor, section in document.numbered()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(document.title)}</h1>\n<p class="subtitle">{escape(document.subtitle)}</p>\n'
        f'<nav aria-label="Contents"><ol>\n{contents}</ol></nav>\n{body}</main>\n</body>\n</html>\n'
    )


def _section(section: Section, level: int) -> str:
    inside = "".join(
        _section(block, level + 1) if isinstance(block, Section) else _block(block)
        for block in section.blocks
    )
    if section.folded:
        return f"<details>\n<summary>{escape(section.title)}</summary>\n{inside}</details>\n"
    return f"<h{level}>{escape(section.title)}</h{level}>\n{inside}"


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{escape(text)}</p>\n"
        case Bullets(items):
            return "<ul>\n" + "".join(f"<li>{escape(item)}</li>\n" for item in items) + "</ul>\n"
        case Picture(_, figure, caption, alternative):
            data = base64.b64encode(as_svg(figure)).decode()
            return (
                f'<figure><img alt="{escape(alternative)}" src="data:image/svg+xml;base64,{data}">\n'
                f"<figcaption>{escape(caption)}</figcaption></figure>\n"
            )
        case Table():
            return _table(block)
    raise TypeError(f"no HTML for {type(block).__name__}")


def _table(table: Table) -> str:
    caption = f'<p class="caption">{escape(table.caption)}</p>\n' if table.caption else ""
    edges = set()
    head = ""
    if table.groups:
        spans, column = [], 0
        for text, span in table.groups:
            edges.add(column)
            column += span
            spans.append(f'<th colspan="{span}"{_scope("colgroup")}>{escape(text)}</th>')
        edges.discard(0)
        head = f'<tr class="groups">{"".join(spans)}</tr>\n'
    cells = "".join(
        f"<th{_scope('col')}{_class(_position(k, table, edges))}>{escape(text)}</th>"
        for k, text in enumerate(table.header)
    )
    head += f"<tr>{cells}</tr>\n"
    names = "table stacked" if table.stacked else "table"
    body = "".join(_row(row, table, edges) for row in table.rows)
    foot = "".join(_row(row, table, edges) for row in table.footer)
    return (
        f'{caption}<div class="{names}" role="region" aria-label="table" tabindex="0">\n<table>\n'
        f"<thead>\n{head}</thead>\n<tbody>\n{body}</tbody>\n"
        + (f"<tfoot>\n{foot}</tfoot>\n" if foot else "")
        + "</table>\n</div>\n"
    )


def _row(row: Sequence[Cell], table: Table, edges: set[int]) -> str:
    cells = [f"<th{_scope('row')}>{_text(row[0])}</th>"]
    for k, cell in enumerate(row[1:], 1):
        names = _position(k, table, edges)
        if cell.best:
            names.append("best")
        elif cell.best_of_family:
            names.append("family")
        cells.append(f"<td{_class(names)}>{_text(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>\n"


def _position(column: int, table: Table, edges: set[int]) -> list[str]:
    return ["left"] * (column in table.left) + ["edge"] * (column in edges)


def _text(cell: Cell) -> str:
    return escape(cell.text) + (f"<small>{escape(cell.note)}</small>" if cell.note else "")


def _scope(name: str) -> str:
    return f' scope="{name}"'


def _class(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""
