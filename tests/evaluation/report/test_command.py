import os
from pathlib import Path

import pytest

from sstorch.evaluation.report.command import main
from sstorch.evaluation.store import ResultStore, TaskKey

from .studies import whole_study


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    table, records = whole_study()
    store = ResultStore(path)
    for record in records:
        depth = record["depth"]
        own = table[(table["dataset"] == record["dataset"]) & (table["model"] == record["model"])]
        own = own[own["depth"].isna() if depth is None else own["depth"].eq(depth).fillna(False)]
        key = TaskKey(record["dataset"], record["model"], depth, record["config"])
        store.write(key, own[["fold", "start", "part", "chosen", "metric", "value", "reason"]], record)
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


def test_a_folder_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path)])
    assert stopped.value.code == 2
    assert "holds no results" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


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


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(SystemExit):
            main([str(run), "--out", str(tmp_path)])
    finally:
        tmp_path.chmod(0o755)
    assert "cannot be written" in capsys.readouterr().err
