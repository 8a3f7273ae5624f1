"""The report as a whole: both formats."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch.evaluation.report import Results, build_report, write_report
from sstorch.evaluation.report.document import Cell, Document, Section, Table
from sstorch.evaluation.report.html import to_html
from sstorch.evaluation.report.markdown import to_markdown

from .studies import facts, rows, study, whole_study

VOID = {"meta", "img", "br", "link", "input", "hr"}


class _Page(HTMLParser):
    """Checks that tags nest, and collects what a page would load, its anchors, and its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.widths: list[set[int]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        own = dict(attributes)
        assert tag not in ("script", "link", "iframe", "object")
        self.loads += [str(own[name]) for name in ("src", "srcset", "data", "poster") if name in own]
        if "id" in own:
            self.ids.append(str(own["id"]))
        if tag == "a":
            self.links.append(str(own["href"]))
        if tag == "img":
            assert own["alt"]
        if tag == "table":
            self.widths.append(set())
        if tag == "tr":
            self.width = 0
        if tag in ("td", "th"):
            self.width += int(own.get("colspan") or 1)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "tr":
            self.widths[-1].add(self.width)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(*whole_study())


@pytest.fixture(scope="module")
def written(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(results, folder)
    return folder


def test_the_page_is_well_formed_and_stands_alone(written: Path) -> None:
    text = (written / "report.html").read_text(encoding="utf-8")
    page = _Page(text)
    assert page.open == []
    assert page.loads
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.loads)
    assert "@import" not in text
    assert "url(" not in text
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} == set(page.ids)
    assert all(len(widths) == 1 for widths in page.widths)  # every row of a table is as wide


def test_markdown_tables_are_rectangular_and_figures_are_there(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) > 20
    for table in tables:
        lines = table.splitlines()
        assert set(lines[1]) <= set("|-: ")
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    figures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert sorted(figures) == sorted(f"figures/{path.name}" for path in (written / "figures").iterdir())
    for name in figures:
        assert (written / name).read_bytes().startswith(b"\x89PNG")


def test_both_formats_have_the_same_sections(results: Results) -> None:
    report = build_report(results)
    titles = [section.title for section in report.sections]
    assert titles == [
        "What was run",
        "Completeness",
        "Averages",
        "Beside the paper",
        "Wins against CTree",
        "Ranks",
        "Soft trees against Cox and the random survival forest",
        "Distributions over folds and starts",
        "Scores",
        "Time",
        "Values that are not defined",
    ]
    assert re.findall(r"^## (.*)$", to_markdown(report), flags=re.MULTILINE) == titles


def test_the_same_table_gives_the_same_bytes_in_any_order(written: Path, tmp_path: Path) -> None:
    table, records = whole_study()
    write_report(Results(table.sample(frac=1, random_state=3), records[::-1]), tmp_path)
    files = sorted(path.relative_to(written) for path in written.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert all((written / name).read_bytes() == (tmp_path / name).read_bytes() for name in files)


def test_what_is_missing_is_told(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    assert "Cox has no results on whas500." in text
    assert "19 of 20 cells" in text
    assert "1 of 840 values are NaN" in text
    assert "no pair \\| up to \\<tau\\>" in text
    assert "8 of 9 runs" in text
    page = _Page((written / "report.html").read_text(encoding="utf-8"))
    assert "no pair | up to <tau>" in page.words


def test_texts_are_escaped() -> None:
    table = Table("", ["a", "b"], [[Cell("<x>|*"), Cell("R&D", best=True)]])
    report = Document("T", "s", [Section("A & B", [table])])
    assert "| \\<x\\>\\|\\* | **R&D** |" in to_markdown(report)
    html = to_html(report)
    assert '<th scope="row">&lt;x&gt;|*</th><td class="best">R&amp;D</td>' in html
    assert "<h2>A &amp; B</h2>" in html


def test_tasks_that_differ_in_versions_and_runs_are_told() -> None:
    table = pd.concat(
        [rows(name, "cox", None, {"c_harrell": [[0.6], [0.7]]}) for name in ("aids", "gbsg2", "veterans")]
    )
    records = [
        facts("aids", "cox", None, versions={"torch": "2.8"}, finished="2026-01-01T00:00:00Z"),
        facts("gbsg2", "cox", None, n_folds=5, versions={"torch": "2.9"}),
    ]
    text = to_markdown(build_report(Results(table, records)))
    assert "tasks differ: 2.8 (1 task), 2.9 (1 task)" in text
    assert "2026-01-01T00:00:00Z to 2026-01-02T03:04:05Z" in text
    assert "gbsg2, Cox: 2 of 5 runs." in text
    assert "No record of settings, versions and times of veterans cox." in text


def test_folds_without_one_chosen_start_are_told() -> None:
    table = rows("aids", "sst_llog", 2, {"c_harrell": [[0.6, 0.7], [0.7, 0.8]]})
    assert "exactly one chosen start" not in to_markdown(build_report(Results(table, [])))
    text = to_markdown(build_report(Results(table.assign(chosen=True), [])))
    assert "aids, Llog D2: folds without exactly one chosen start." in text


def test_reasons_that_differ_are_counted() -> None:
    table = rows("aids", "cox", None, {"c_uno": [[np.nan], [np.nan], [np.nan], [0.7]]})
    table["reason"] = ["row 7", "row 9", "row 9", ""]
    text = to_markdown(build_report(Results(table, [])))
    assert "| Cox | c\\_uno | test | 3 | all | row 9 (2 times; 1 other reason) |" in text


def test_times_by_model() -> None:
    table, _ = study({("aids", "cox", None): 0.6, ("gbsg2", "cox", None): 0.7})
    records = [
        facts("aids", "cox", None, seconds={"fit": 3.0, "score": 1.0}),
        facts("gbsg2", "cox", None, seconds={"fit": 5.0, "score": 2.0}),
    ]
    text = to_markdown(build_report(Results(table, records)))
    assert "| Cox | 2 | 4 | 8.00 | 4.00 | 5.00 | 2.00 | 3.00 | 1.50 |" in text


def test_a_single_model_on_a_single_data_set_is_enough(tmp_path: Path) -> None:
    files = write_report(Results(rows("mine", "my_model", None, {"my_metric": [[0.5]]}), []), tmp_path)
    assert files.figures == ()
    text = files.markdown.read_text(encoding="utf-8")
    assert "my\\_model" in text
    assert "Ranks" not in text


def test_infinite_values_are_shown_and_not_averaged(tmp_path: Path) -> None:
    values = {"log_likelihood": [[-10.0], [-np.inf]]}
    fine = {"log_likelihood": [[-11.0], [-12.0]]}
    table = pd.concat(
        [rows("aids", "cox", None, values), rows("gbsg2", "cox", None, fine)]
        + [rows(name, "rsf", None, fine) for name in ("aids", "gbsg2")]
    )
    text = to_markdown(build_report(Results(table, [])))
    assert "\N{MINUS SIGN}∞" in text


def test_averages_of_the_chosen_starts_stand_beside_those_of_all() -> None:
    table = rows("aids", "sst_llog", 2, {"c_harrell": [[0.6, 0.7], [0.7, 0.8]]}, chosen=1)
    text = to_markdown(build_report(Results(table, [])))
    over_all, over_chosen = text.split("### Averages over the chosen start of each fold")
    assert "| Llog D2 | .700 |" in over_all
    assert "| Llog D2 | .750 |" in over_chosen
