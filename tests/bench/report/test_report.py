"""The report as a whole, in both formats, and its command."""

import html
import io
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sstorch.bench.report import Results, build_report, write_report
from sstorch.bench.reporting import main
from sstorch.bench.store import ResultStore, TaskKey
from sstorch.document import to_markdown

from .studies import results_of, rows, whole_study

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


@pytest.mark.nightly
def test_both_formats_have_the_same_sections(results: Results) -> None:
    report = build_report(results)
    titles = [section.title for section in report.sections]
    assert titles == [
        "What was run",
        "Completeness",
        "Averages",
        "Compared with the paper",
        "Ranks",
        "Soft trees against Cox and the random survival forest",
        "Distributions over folds and starts",
        "Scores",
        "Time",
        "Values that are not defined",
    ]
    assert re.findall(r"^## (.*)$", to_markdown(report), flags=re.MULTILINE) == titles


def _shuffled() -> Results:
    table, records = whole_study()
    return Results(table.sample(frac=1, random_state=3), records[::-1])


def test_the_same_table_gives_the_same_text_in_any_order(written: Path) -> None:
    text = to_markdown(build_report(_shuffled()))
    assert text.encode() == (written / "report.md").read_bytes()


def test_what_is_missing_is_told(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    assert "Cox has no results on whas500." in text
    assert "19 of 20 cells" in text
    assert "1 of 840 values are NaN" in text
    assert "no pair \\| up to \\<tau\\>" in text
    assert "8 of 9 runs" in text
    page = _Page((written / "report.html").read_text(encoding="utf-8"))
    assert "no pair | up to <tau>" in page.words


def test_a_single_model_on_a_single_data_set_is_enough(tmp_path: Path) -> None:
    files = write_report(results_of(rows("mine", "my_model", None, {"my_metric": [[0.5]]})), tmp_path)
    assert files.figures == ()
    frame = files._repr_html_()  # what a notebook shows
    assert html.unescape(frame[frame.index('"') + 1 : frame.rindex('" style')]) == files.html.read_text(
        "utf-8"
    )
    text = files.markdown.read_text(encoding="utf-8")
    assert "paper" not in text
    assert "my\\_model" in text
    assert "Ranks" not in text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    table, records = whole_study()
    store = ResultStore(path)
    for record in records:
        depth = record["depth"]
        task = table[(table["dataset"] == record["dataset"]) & (table["model"] == record["model"])]
        task = task[task["depth"].isna() if depth is None else task["depth"].eq(depth).fillna(False)]
        key = TaskKey(record["dataset"], record["model"], depth, record["config"])
        store.write(key, task[["fold", "start", "part", "chosen", "metric", "value", "reason"]], record)
    return path


def test_prints_the_averages_and_where_the_report_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run), "--models", "sst_llog", "ctree_d2", "--metrics", "c_harrell"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "C_H", "↑", "(4)"]
    assert [line.split()[0] for line in lines[1:3]] == ["Llog", "CTree"]
    assert lines[-1].startswith("done: report of 4 data sets and 2 models")
    assert (run / "report" / "report.html").stat().st_size > 10_000
    assert str(run / "report" / "report.html") in lines[-1]


def test_out_is_the_folder_of_the_report(run: Path, tmp_path: Path) -> None:
    main([str(run), "--out", str(tmp_path / "deep" / "here"), "--datasets", "aids", "--metrics", "c_uno"])
    assert (tmp_path / "deep" / "here" / "report.md").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--metrics", "nonsense"], "metrics: no results of nonsense; there are c_harrell, c_uno"),
        (["--models", "ctree_d9"], "models: no results of ctree_d9"),
        (["--datasets", "moon"], "datasets: no results of moon"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_refusals_are_one_line(
    run: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(run), *arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith("sstorch-report: error: ")
    assert words in error
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stopped:
        main([str(run), "--out", str(tmp_path / "file")])
    assert stopped.value.code == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_disk_that_refuses_leaves_nothing_half_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SystemExit) as stopped:
        main([str(run), "--out", str(tmp_path), "--metrics", "c_uno"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_reader_who_stops_early_is_no_refusal(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return 1

    redirected: list[int] = []
    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr(os, "dup2", lambda _, target: redirected.append(target))
    with pytest.raises(SystemExit) as stopped:
        main([str(run), "--out", str(tmp_path), "--metrics", "c_uno"])
    assert stopped.value.code == 141
    assert redirected == [1]
    assert capsys.readouterr().err == ""
