"""A report put together, and its files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sstorch.evaluation.report.averages import average_section
from sstorch.evaluation.report.beside_paper import paper_section
from sstorch.evaluation.report.boxes import box_section
from sstorch.evaluation.report.completeness import completeness_section, undefined_section
from sstorch.evaluation.report.document import Document, Paragraph, Section
from sstorch.evaluation.report.drawing import as_png
from sstorch.evaluation.report.fold_tests import fold_section
from sstorch.evaluation.report.html import to_html
from sstorch.evaluation.report.markdown import FIGURES, pictures, to_markdown
from sstorch.evaluation.report.overview import run_section
from sstorch.evaluation.report.rank_section import rank_section
from sstorch.evaluation.report.results import Results
from sstorch.evaluation.report.score_tables import score_section
from sstorch.evaluation.report.times import time_section
from sstorch.evaluation.report.wins import wins_section
from sstorch.exceptions import ConfigError
from sstorch.whole_file import write_whole


@dataclass(frozen=True)
class ReportFiles:
    """Where a report was written.

    Attributes:
        markdown: the text.
        html: the page.
        figures: the images that the text refers to.
    """

    markdown: Path
    html: Path
    figures: tuple[Path, ...]


def build_report(results: Results) -> Document:
    """The whole report; the same results give the same report."""
    optional = [
        average_section(results),
        paper_section(results),
        wins_section(results),
        rank_section(results),
        fold_section(results),
        box_section(results),
    ]
    scores = Section(
        "Scores",
        [
            Paragraph(
                "Mean, and standard deviation in small print, over the runs named. Bold: best of the row "
                "among all models, ties at the printed precision together; underlined (in Markdown, "
                "italic): best within its table, where a metric takes several. \N{EN DASH} is no result."
            ),
            *(score_section(results, name) for name in results.metrics),
        ],
    )
    sections = [run_section(results), completeness_section(results), *filter(None, optional)]
    sections += [scores, time_section(results), undefined_section(results)]
    n, k = len(results.datasets), len({model.name for model in results.models})
    subtitle = f"{k} model{'s' * (k != 1)} on {n} data set{'s' * (n != 1)}"
    return Document("Study of survival models", subtitle, sections)


def write_report(results: Results, folder: Path) -> ReportFiles:
    """Write ``report.md`` with its figures beside it, and ``report.html``, which stands alone.

    Every file appears complete or not at all; the texts come last.

    Args:
        results: of the study.
        folder: made if it is not there.

    Raises:
        ConfigError: the folder cannot be written.
    """
    folder = Path(folder)
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK) or not os.access(folder / FIGURES, os.W_OK):
            raise PermissionError("no permission to write")
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written to {folder}: {error}; choose another with --out"
        ) from error
    document = build_report(results)
    figures = []
    for picture in pictures(document):
        path = folder / FIGURES / f"{picture.name}.png"
        _write(path, as_png(picture.figure))
        figures.append(path)
    files = ReportFiles(folder / "report.md", folder / "report.html", tuple(figures))
    _write(files.markdown, to_markdown(document).encode())
    _write(files.html, to_html(document).encode())
    return files


def _write(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another folder with --out") from error
