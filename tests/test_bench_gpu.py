"""The command that measures a GPU, as far as it can be tried without one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    loader = SourceFileLoader("bench_gpu", str(SCRIPTS / "bench_gpu"))
    spec = spec_from_loader("bench_gpu", loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_gpu", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_ends_with_one_line(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_gpu"])
    with pytest.raises(SystemExit, match="torch sees no CUDA device; --device cpu --quick") as ended:
        bench.main()
    assert "\n" not in str(ended.value)


@pytest.mark.nightly
def test_the_whole_path(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPTS / "bench_gpu", "--device", "cpu", "--quick", "--output", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (table,), (numbers,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    found = json.loads(numbers.read_text())
    assert found["torch"] == torch.__version__
    assert {row["part"] for row in found["rows"]} == {"tests", "training", "rows", "prediction"}
    assert not [row for row in found["rows"] if row["result"].startswith(("not measured", "left out"))]
    assert table.read_text().count("\n| ") == 1 + len(found["rows"])
