"""The report of a sweep."""

import json
from pathlib import Path

import pandas as pd
import pytest

from sstorch.bench.reporting import report_of_run, sweep_report
from sstorch.document import to_markdown
from sstorch.exceptions import ConfigError


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
    document = report_of_run(tmp_path)
    assert document is not None
    text = to_markdown(document)
    assert "model.depth" in text
    assert "cv.n_folds" not in text  # it does not differ
    assert "0.6500 (0.0500)" in text
    assert "**0.7500 (0.0500)**" in text
    assert "2 completed runs of 3" in text


def test_sweep_without_completed_run_raises(tmp_path: Path) -> None:
    _run(tmp_path / "0", 1, [0.6, 0.7], status="failed")
    with pytest.raises(ConfigError, match="1 runs, none of them completed"):
        sweep_report(tmp_path)
    assert report_of_run(tmp_path / "0" / "model") is None
