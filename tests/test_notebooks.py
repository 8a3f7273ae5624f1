"""The notebooks of the documentation run from beginning to end, and the gallery can be drawn anew."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _run(*command: str, folder: Path) -> str:
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, *command], check=False, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    cells = json.loads(notebook.read_text())["cells"]
    script.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
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
