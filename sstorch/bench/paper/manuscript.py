"""The draft put together: methods, results with tables and figures, checklist, references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from sstorch.bench.paper.methods import follow_up_text, gap, methods
from sstorch.bench.paper.references import references
from sstorch.bench.paper.tables import checklist_table, group_table
from sstorch.bench.performance import performance_lines, performance_tables, score_legend
from sstorch.bench.report.run import (
    NOTE_ON_COLUMNS,
    Run,
    calibration_section,
    characteristics,
    groups_section,
    kind_text,
    median_name,
    median_text,
    tree_section,
    verdict_of_groups,
)
from sstorch.document import Block, Bullets, Code, Document, Paragraph, Picture, Section, Table
from sstorch.validation.checklist import ITEMS

_ON_CHECKLIST = (
    "The items of TRIPOD+AI (Collins et al., 2024) in other words, where this draft has them, and what the "
    "authors have to add or to check. What counts is the wording of the statement."
)
_OF_OTHERS = "not applicable: development with internal validation"
# What authors have to report where it differs from an evaluation.
_LEFT = {
    "1": "name the population, the outcome, and that a model is developed and internally validated",
    "9a": "how candidate predictors were chosen",
}


def manuscript(run: Run) -> Document:
    """The draft of a paper; the same run gives the same draft."""
    data = run.data
    parts = _Numbered()
    subtitle = (
        f"Draft made from a run on {run.name}: {run.data.n_subjects} subjects, {data.n_events} events; "
        f"{kind_text(run.model)}"
    )
    note = Paragraph(
        "Every number comes from the files of the run, or from its model and data. What they do not know "
        "stands in "
        "brackets and is for the authors to write."
    )
    sections = [
        Section("About this draft", [note]),
        Section("Introduction", [Paragraph(gap("why this prediction, which models there are, and the aim"))]),
        methods(run),
        _results(run, parts),
        Section("Discussion", [Paragraph(gap("interpretation, limitations, use and next steps"))]),
        Section("TRIPOD+AI checklist", [Paragraph(_ON_CHECKLIST), _checklist(run, parts)]),
        Section("Supplement: the model", [Code(run.model.summary(details=True))]),
    ]
    title = f"Prognostic model of {run.name}: development and internal validation"
    return Document(title, subtitle, [*sections, references(sections)])


class _Numbered:
    """Numbers of tables and figures, and by name where they are."""

    def __init__(self) -> None:
        self._tables, self._figures = count(1), count(1)
        self.places: dict[str, str] = {}

    def table(self, name: str, table: Table) -> Table:
        self.places[name] = place = f"Table {next(self._tables)}"
        return replace(table, caption=f"{place}. {table.caption}")

    def figures(self, name: str, section: Section) -> Iterator[Picture]:
        for picture in section.pictures():
            self.places[name] = place = f"Figure {next(self._figures)}"
            yield replace(picture, caption=f"{place}. {picture.caption}")


def _results(run: Run, parts: _Numbered) -> Section:
    data = run.data
    median = f"median {median_name(data)} was {median_text(data, run.in_unit)}"
    text = f"{run.data.n_subjects} subjects had {data.n_events} events; {median}."
    first = parts.table("characteristics", characteristics(run))
    subjects: list[Block] = [
        Paragraph(f"{text} {follow_up_text(run)}".strip()),
        Paragraph(gap("flow of participants, from those approached to those analysed")),
        first,
        Paragraph(NOTE_ON_COLUMNS),
    ]
    tree = list(parts.figures("tree", tree_section(run)))
    shown = list(parts.figures("groups", groups_section(run)))
    table = parts.table("groups", group_table(run))
    groups: list[Block] = [Bullets(run.model.describe().splitlines()), *tree, table, *shown]
    groups.append(Paragraph(verdict_of_groups(run)))
    held_out = list[Block]()
    if run.peers is not None:
        head, *lines = performance_lines(run.peers)
        held_out += [Paragraph(f"{head}:"), Bullets([line.strip() for line in lines])]
        for name, each in zip(("performance", "differences"), performance_tables(run.peers), strict=False):
            held_out.append(parts.table(name, each))
        held_out.append(Bullets(score_legend(run.peers)))
    calibration = calibration_section(run)
    pictures = list(parts.figures("calibration", calibration))
    others = [block for block in calibration.blocks if not isinstance(block, Picture)]
    return Section(
        "Results",
        [
            Section("Participants", subjects),
            Section("The model and its groups" if len(table.rows) > 1 else "The model", groups),
            Section(
                "Performance in held-out rows",
                held_out or [Paragraph("No scores: the run had cv.peers=false.")],
            ),
            Section("Calibration in held-out rows", [*pictures, *others]),
        ],
    )


def _checklist(run: Run, parts: _Numbered) -> Table:
    places = parts.places
    reported = {
        "1": "Title",
        "4": "a model is developed and internally validated",
        "5a": "Methods, Source of data and participants",
        "5b": "Results, Participants: follow-up",
        "8a": "Methods, Outcome",
        "9a": "Methods, Predictors and missing values",
        "10": "Methods, Sample size",
        "11": "Methods, Predictors and missing values",
        "12a": "Methods, Validation: all rows for development, folds for internal validation",
        "12b": "Methods, Model and Predictors and missing values",
        "12c": "Methods, Model and Validation",
        "12e": "Methods, Performance measures",
        "12f": _OF_OTHERS,
        "12g": f"{type(run.model).__name__} of the software, saved in the folder of the run",
        "15": "survival at any time and group"
        if run.data.causes is None
        else "cumulative incidences and group",
        "16": _OF_OTHERS,
        "20b": f"{places['characteristics']}; by prognostic group",
        "20c": _OF_OTHERS,
        "21": f"Results, Participants; {places['groups']}",
        "22": f"{places['tree']}, {places['groups']}, Supplement; the saved model computes predictions",
        "24": _OF_OTHERS,
    }
    if "performance" in places:
        reported["23a"] = f"{places['performance']}"
    if run.data.groups is not None:
        reported["14"] = f"sensitive groups {run.data.groups.name}: leaf_groups.csv of the run"
    items = [(item, topic, _LEFT.get(item, left)) for item, topic, left in ITEMS]
    return checklist_table(items, reported)
