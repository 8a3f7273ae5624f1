"""A report as a Word document (.docx), which journals ask for and authors edit."""

from __future__ import annotations

import io
from typing import Any

from sstorch.document import GAP, Bullets, Cell, Code, Document, Paragraph, Picture, Section, Table
from sstorch.exceptions import ConfigError

_FIGURE_WIDTH, _DPI = 6.3, 220
# Characters from which on a column of a table is no wider.
_LONGEST = 30
_TABLE_SIZE, _CODE_SIZE = 8.0, 7.5
# Rows of a table that is kept on one page.
_ROWS_TOGETHER = 10


def check_word() -> None:
    """Check that python-docx is installed."""
    try:
        import docx  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "a .docx needs python-docx: pip install 'sstorch[paper]', or leave it out with --format html"
        ) from error


def to_docx(document: Document) -> bytes:
    """The report as a Word document, with its styles for headings, captions, lists and tables."""
    check_word()
    import docx
    from docx.shared import Inches

    page: Any = docx.Document()
    for part in page.sections:
        part.page_width, part.page_height = Inches(8.27), Inches(11.69)
        part.left_margin = part.right_margin = Inches(0.98)
        part.top_margin = part.bottom_margin = Inches(0.9)
    page.core_properties.title = document.title
    page.core_properties.author = ""
    page.add_heading(document.title, level=0)
    page.add_paragraph(document.subtitle, style="Subtitle")
    for section in document.sections:
        _write_section(page, section, 1)
    stream = io.BytesIO()
    page.save(stream)
    return stream.getvalue()


def _write_section(page: Any, section: Section, level: int) -> None:
    page.add_heading(section.title, level=level)
    for block in section.blocks:
        if isinstance(block, Section):
            _write_section(page, block, level + 1)
        elif isinstance(block, Paragraph):
            _write_text(page.add_paragraph(), block.text)
        elif isinstance(block, Bullets):
            for item in block.items:
                _write_text(page.add_paragraph(style="List Bullet"), item)
        elif isinstance(block, Code):
            _write_code(page, block.text)
        elif isinstance(block, Picture):
            _write_picture(page, block)
        else:
            _write_table(page, block)


def _write_text(paragraph: Any, text: str, size: float | None = None, bold: bool = False) -> None:
    """Text of which gaps are highlighted."""
    from docx.enum.text import WD_COLOR_INDEX
    from docx.shared import Pt

    for part in filter(None, GAP.split(text)):
        run = paragraph.add_run(part)
        run.bold = bold or None
        if size is not None:
            run.font.size = Pt(size)
        if GAP.fullmatch(part):
            run.font.highlight_color = WD_COLOR_INDEX.YELLOW


def _write_code(page: Any, text: str) -> None:
    from docx.shared import Pt

    run = page.add_paragraph().add_run(text)
    run.font.name, run.font.size = "Courier New", Pt(_CODE_SIZE)


def _write_picture(page: Any, picture: Picture) -> None:
    from docx.shared import Inches

    width = min(_FIGURE_WIDTH, picture.figure.get_figwidth())
    shape = page.add_picture(io.BytesIO(picture.png(_DPI)), width=Inches(width))
    shape._inline.docPr.set("descr", picture.alternative)
    page.paragraphs[-1].paragraph_format.keep_with_next = True
    _write_text(page.add_paragraph(style="Caption"), picture.caption)


def _write_table(page: Any, table: Table) -> None:
    """A table with a header row that is repeated on every page; a short table is on one page."""
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.oxml import OxmlElement
    from docx.shared import Inches

    if table.caption:
        caption = page.add_paragraph(style="Caption")
        caption.paragraph_format.keep_with_next = True
        _write_text(caption, table.caption)
    lines = [[Cell(text) for text in table.full_header], *table.rows, *table.footer]
    grid = page.add_table(rows=len(lines), cols=len(table.header), style="Table Grid")
    texts = [[f"{line[k].text} {line[k].note}" for line in lines] for k in range(len(table.header))]
    words = [max(len(word) for text in own for word in text.split() or [""]) for own in texts]
    longest = [max(map(len, own)) for own in texts]
    sizes = [max(min(size, _LONGEST), word + 11) for size, word in zip(longest, words, strict=True)]
    for column, size in zip(grid.columns, sizes, strict=True):
        column.width = Inches(_FIGURE_WIDTH * size / sum(sizes))
        for place in column.cells:
            place.width = Inches(_FIGURE_WIDTH * size / sum(sizes))
    last = len(lines) - 1
    grid.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    for number, (row, line) in enumerate(zip(grid.rows, lines, strict=True)):
        row._tr.get_or_add_trPr().append(OxmlElement("w:cantSplit"))
        for column, (place, cell) in enumerate(zip(row.cells, line, strict=True)):
            paragraph = place.paragraphs[0]
            paragraph.paragraph_format.space_after = 0
            paragraph.paragraph_format.keep_with_next = number < (last if last < _ROWS_TOGETHER else 1)
            if column and column not in table.left:
                paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
            note = f" ({cell.note})" if cell.note else ""
            _write_text(paragraph, cell.text + note, _TABLE_SIZE, not number or cell.best)
    page.add_paragraph()
