"""The report of a sweep."""

import json
from pathlib import Path

import pandas as pd
import pytest

from sstorch.bench.reporting import report_of_run, sweep_report
from sstorch.commands import report
from sstorch.document import to_markdown
from sstorch.exceptions import ConfigError
from tests.app import sstorch


def _run(folder: Path, depth: int, scores: list[float], status: str = "completed") -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"model:\n  depth: {depth}\ncv:\n  n_folds: {len(scores)}\n")
    (folder / "status.json").write_text(json.dumps({"status": status}))
    about = {"fold": range(len(scores)), "start": 0, "part": "test", "chosen": True, "objective": 1.0}
    table = pd.DataFrame({**about, "c_harrell": scores})
    pd.concat([table, table.assign(part="train", c_harrell=0.99)]).to_csv(folder / "scores.csv", index=False)


def test_sweep_shows_settings_scores_with_errors_and_the_best(tmp_path: Path) -> None:
    _run(tmp_path / "0", 1, [0.6, 0.7])
    _run(tmp_path / "1", 2, [0.7, 0.8])
    _run(tmp_path / "2", 3, [0.5, 0.5], status="running")
    build = report_of_run(tmp_path)
    assert build is not None
    text = to_markdown(build())
    assert "model.depth" in text
    assert "cv.n_folds" not in text  # it does not differ
    assert "0.6500 (0.0500)" in text
    assert "**0.7500 (0.0500)**" in text
    assert "run 1 has the best mean" in text
    assert "1 of the runs are not completed" in text


def test_sweep_without_completed_run_raises(tmp_path: Path) -> None:
    _run(tmp_path / "0", 1, [0.6, 0.7], status="failed")
    with pytest.raises(ConfigError, match="1 runs, none of them completed"):
        sweep_report(tmp_path)
    assert report_of_run(tmp_path / "0" / "model") is None


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_sweep_by_the_command_is_reported_with_its_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["experiment=quick", "cv.n_folds=3", "cv.peers=false", "logger=none", "model.depth=0,1"]
    assert sstorch(monkeypatch, "-m", f"hydra.sweep.dir={tmp_path / 'sweep'}", *words) == 0
    monkeypatch.setattr("sys.argv", ["sstorch-report", str(tmp_path / "sweep")])
    report()
    text = (tmp_path / "sweep" / "report" / "report.md").read_text()
    assert (tmp_path / "sweep" / "report" / "report.html").is_file()
    means = []
    for job, depth in (("0", 0), ("1", 1)):
        table = pd.read_csv(tmp_path / "sweep" / job / "scores.csv").query("part == 'test' and chosen")
        means.append(table["c_harrell"].mean())
        shown = f"{means[-1]:.4f} ({table['c_harrell'].std(ddof=1) / 3**0.5:.4f})"
        row = next(line for line in text.splitlines() if line.startswith(f"| {job} |"))
        assert row.startswith(f"| {job} | {depth} | ")
        assert shown in row
    assert f"run {means.index(max(means))} has the best mean" in text
