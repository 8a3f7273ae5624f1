"""Reports: of a run, from the command to the page, and of a sweep."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch.bench.reporting import load_model, main, report_of_run, sweep_report
from sstorch.data import SurvivalData, read_file
from sstorch.document import to_markdown
from sstorch.exceptions import ConfigError
from sstorch.metrics import KaplanMeier
from tests.app import sstorch


@pytest.fixture(scope="module")
def run(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "run"
    settings = f"""
        dataset=csv dataset.path={cohort} dataset.time=days dataset.event=died dataset.time_unit=days
        model=prognostic_tree model.depth=1 model.leaf=weibull model.columns.numeric=linear
        cv.n_folds=2 logger=none hydra.run.dir={folder}
    """
    with pytest.MonkeyPatch.context() as patch:
        assert sstorch(patch, *settings.split()) == 0
    return folder


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    main([str(run)])
    return (run / "report" / "report.html").read_text(encoding="utf-8")


def _rows(page: str, title: str) -> list[list[str]]:
    """Cells of the first table after a title, without their small print."""
    body = page[page.index(f"<h2>{title}</h2>") :]
    table = body[body.index("<tbody>") : body.index("</tbody>")]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in table.split("<tr>")[1:]]
    return [[re.sub(r"<small>.*?</small>|<[^>]*>|\s+$", "", cell) for cell in row] for row in rows]


def test_the_page_has_every_part_and_needs_nothing_else(run: Path, page: str) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "In short",
        "The rows",
        "The tree",
        "The groups",
        "The effects",
        "Scores of the tree and reference models",
        "Calibration on held-out rows",
        "Model card",
    ]
    assert page.count("data:image/svg+xml;base64,") == 4
    assert not re.search(r"<script [^t]|<link|src=\"(?!data:)|url\((?!#)|@import|fetch\(|XMLHttp", page)
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    assert "b&lt;2&gt;" in page
    assert "b<2>" not in page
    assert "prefers-color-scheme: dark" in page
    text = (run / "report" / "report.md").read_text(encoding="utf-8")
    figures = sorted(path.name for path in (run / "report" / "figures").iterdir())
    assert figures == ["calibration.png", "effects.png", "groups.png", "tree.png"]
    assert all(f"(figures/{name})" in text for name in figures)


def test_the_rows_are_those_of_the_file(run: Path, page: str, cohort: Path) -> None:
    data = SurvivalData.from_frame(read_file(cohort), time="days", event="died", time_unit="days")
    tree = load_model(run / "model")
    leaf = tree.apply(data.frame)
    facts = dict(_rows(page, "The rows"))
    assert facts["rows"] == "160"
    assert facts["events"] == f"{data.n_events} ({100 * data.n_events / 160:.1f} %)"
    follow_up = float(KaplanMeier.fit((data.time, ~data.event)).quantile().value)
    assert facts["median follow-up (reverse Kaplan-Meier)"] == f"{follow_up:.4g} days"
    body = page[page.index("and those of each group") :]
    columns = {row[0]: row[1:] for row in _rows("<h2>x</h2>" + body, "x")}
    assert set(columns) == {"age", "shock = 1", "ward = a", "ward = b&lt;2&gt;", "ward = c"}
    assert "<small>4 missing</small>" in body
    parts = [np.full(160, True), *(leaf == group for group in np.unique(leaf))]
    for title, has in (("ward = a", data.frame["ward"] == "a"), ("shock = 1", data.frame["shock"] == 1)):
        for part, cell in zip(parts, columns[title], strict=True):
            assert cell == f"{has[part].sum()} ({100 * has[part].mean():.0f} %)"


def test_groups_and_scores_are_those_of_the_run(run: Path, page: str, cohort: Path) -> None:
    data = SurvivalData.from_frame(read_file(cohort), time="days", event="died")
    leaf = load_model(run / "model").apply(data.frame)
    for name, rows, events, median, *_ in _rows(page, "The groups"):
        inside = leaf == int(name.split()[1])
        assert (rows, events) == (str(inside.sum()), str(data.event[inside].sum()))
        known = KaplanMeier.fit((data.time[inside], data.event[inside])).quantile().value
        assert median.startswith(f"{float(known):.0f} (" if np.isfinite(known) else "- (")
    scores = {row[0]: row[1:] for row in _rows(page, "Scores of the tree and reference models")}
    peers = pd.read_csv(run / "peers.csv").groupby("model")["c_harrell"].mean()
    shown = {"Kaplan-Meier": "Kaplan-Meier", "regression": "regression without groups", "Cox": "Cox"}
    for name, title in {**shown, "tree": "this model"}.items():
        assert scores[title][0] == f"{peers[name]:.3f}"[1:]
    assert list(scores)[-1] == "this model"


def test_what_is_no_completed_run_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_of_run(tmp_path) is None
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    status = json.loads((copy / "status.json").read_text())
    for change, message in (
        ({"data": "0" * 64}, "have changed since it ran"),
        ({"status": "interrupted"}, "is interrupted, not completed"),
        ({}, "has no held_out.csv: run it again"),
    ):
        (copy / "status.json").write_text(json.dumps(status | change))
        if not change:
            (copy / "held_out.csv").unlink()
        with pytest.raises(SystemExit) as stopped:
            main([str(copy)])
        error = capsys.readouterr().err
        assert (stopped.value.code, error.count("\n")) == (2, 1)
        assert message in error


def swept_run(folder: Path, depth: int, scores: list[float], status: str = "completed") -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"model:\n  depth: {depth}\ncv:\n  n_folds: {len(scores)}\n")
    (folder / "status.json").write_text(json.dumps({"status": status}))
    about = {"fold": range(len(scores)), "start": 0, "part": "test", "chosen": True, "objective": 1.0}
    table = pd.DataFrame({**about, "c_harrell": scores})
    pd.concat([table, table.assign(part="train", c_harrell=0.99)]).to_csv(folder / "scores.csv", index=False)


def test_sweep_shows_settings_scores_with_errors_and_the_best(tmp_path: Path) -> None:
    for name, scores, status in (
        ("0", [0.6, 0.7], "completed"),
        ("1", [0.7, 0.8], "completed"),
        ("2", [0.5, 0.5], "running"),
    ):
        swept_run(tmp_path / name, int(name) + 1, scores, status)
    text = to_markdown(report_of_run(tmp_path))
    for said in ("model.depth", "0.6500 (0.0500)", "**0.7500 (0.0500)**", "2 completed runs of 3"):
        assert said in text
    assert "cv.n_folds" not in text  # it does not differ


def test_sweep_without_completed_run_raises(tmp_path: Path) -> None:
    swept_run(tmp_path / "0", 1, [0.6, 0.7], status="failed")
    with pytest.raises(ConfigError, match="1 runs, none of them completed"):
        sweep_report(tmp_path)
    assert report_of_run(tmp_path / "0" / "model") is None
