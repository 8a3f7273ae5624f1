"""The notebooks of the documentation run from beginning to end, and the gallery can be drawn anew."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _code(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _run(*command: str, folder: Path) -> str:
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def test_there_is_one_for_each_reader() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["clinician", "data_scientist", "researcher"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_are_code_and_the_next_builds_on_those_before(notebook: Path) -> None:
    for number, code in enumerate(_code(notebook)):
        compile(code, f"{notebook.name}, cell {number}", "exec")


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(_code(notebook)))
    assert _run(str(script), folder=tmp_path)


@pytest.mark.nightly
def test_the_gallery_is_drawn_by_its_own_lines(tmp_path: Path) -> None:
    _run(str(ROOT / "scripts" / "figures.py"), str(tmp_path), folder=tmp_path)
    drawn, shown = (
        {path.name for path in folder.glob("*.png")} for folder in (tmp_path, ROOT / "docs" / "_static")
    )
    assert drawn == shown
    for path in tmp_path.glob("*.png"):
        assert 5_000 < path.stat().st_size < 150_000, path
