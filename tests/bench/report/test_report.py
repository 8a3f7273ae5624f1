"""The report as a whole, in both formats, and its command."""

import io
import os
import re
import sys
from pathlib import Path

import pytest

from sstorch.bench.report import Results, build_report, write_report
from sstorch.bench.reporting import main
from sstorch.bench.store import ResultStore, TaskKey
from sstorch.document import to_markdown

from .studies import results_of, rows, whole_study


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(*whole_study())


@pytest.fixture(scope="module")
def written(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(results, folder)
    return folder


def test_page_and_markdown_are_complete(written: Path) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script [^t]|<link|src=\"(?!data:)|url\((?!#)|@import", page)
    text = (written / "report.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) > 20
    for table in tables:  # rectangular
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    figures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert sorted(figures) == sorted(f"figures/{path.name}" for path in (written / "figures").iterdir())
    for name in figures:
        assert (written / name).read_bytes().startswith(b"\x89PNG")
    for said in (
        "Cox has no results on whas500.",
        "19 of 20 cells",
        "1 of 840 values are NaN",
        "no pair \\| up to \\<tau\\>",
        "8 of 9 runs",
    ):
        assert said in text


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


def test_the_same_table_gives_the_same_text_in_any_order(written: Path) -> None:
    table, records = whole_study()
    text = to_markdown(build_report(Results(table.sample(frac=1, random_state=3), records[::-1])))
    assert text.encode() == (written / "report.md").read_bytes()


def test_a_single_model_on_a_single_data_set_is_enough(tmp_path: Path) -> None:
    document = write_report(results_of(rows("mine", "my_model", None, {"my_metric": [[0.5]]})), tmp_path)
    assert list(document.pictures()) == []
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "ctree_d9"], "models: no results of ctree_d9"),
        (["--out", "/dev/null/x"], "cannot be written"),
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
