"""The report of a study put together, and the files of a report."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sstorch.bench.report.comparisons import box_section, fold_section, rank_section
from sstorch.bench.report.paper import paper_section
from sstorch.bench.report.results import Results
from sstorch.bench.report.tables import (
    average_section,
    completeness_section,
    run_section,
    score_section,
    time_section,
    undefined_section,
)
from sstorch.document import FIGURES, Document, Section, to_html, to_markdown
from sstorch.exceptions import ConfigError
from sstorch.files import write_whole


def build_report(results: Results) -> Document:
    """The whole report; the same results give the same report."""
    optional = (average_section, paper_section, rank_section, fold_section, box_section)
    text = (
        "Mean, and standard deviation in small print, over the runs named. Bold: best of the row among all "
        "models, ties at the printed precision together; underlined (in Markdown, italic): best within its "
        "table, where a metric takes several. \N{EN DASH} is no result."
    )
    sections = [
        run_section(results),
        completeness_section(results),
        *(section for make in optional if (section := make(results)) is not None),
        Section("Scores", [text, *(score_section(results, name) for name in results.metrics)]),
        time_section(results),
        undefined_section(results),
    ]
    n, k = len(results.datasets), len({model.name for model in results.models})
    subtitle = f"{k} model{'s' * (k != 1)} on {n} data set{'s' * (n != 1)}"
    return Document("Study of survival models", subtitle, sections)


def write_report(results: Results, folder: Path) -> Document:
    """Write the report of a study; see :func:`write_document`."""
    return write_document(lambda: build_report(results), folder)


def write_document(build: Callable[[], Document], folder: Path) -> Document:
    """Write ``report.md`` with its figures, and ``report.html``, which needs no other file.

    Every file appears complete or not at all; the texts come last. `build` makes the report once the folder
    is there and can be written, else a ConfigError is raised.
    """
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK) or not os.access(folder / FIGURES, os.W_OK):
            raise PermissionError("no permission to write")
        document = build()
        for picture in document.pictures():
            write_whole(folder / FIGURES / f"{picture.name}.png", picture.png())
        write_whole(folder / "report.md", to_markdown(document).encode())
        write_whole(folder / "report.html", to_html(document).encode())
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written to {folder}: {error}; choose another with --out"
        ) from error
    return document
