"""The command that measures a GPU, as far as it can be tried without one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench_gpu"


@pytest.mark.nightly
def test_the_whole_path(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--device", "cpu", "--quick", "--output", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (table,), (numbers,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    found = json.loads(numbers.read_text())
    assert found["torch"] == torch.__version__
    assert {row["part"] for row in found["rows"]} == {"tests", "training", "rows", "prediction"}
    assert not [row for row in found["rows"] if row["result"].startswith(("not measured", "left out"))]
    assert table.read_text().count("\n| ") == 1 + len(found["rows"])
