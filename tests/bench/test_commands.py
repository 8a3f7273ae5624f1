"""What is typed: texts that stay as they are, refusals in plain words, help, versions, Ctrl-C at once."""

import io
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

import sstorch as package
from sstorch.bench import reporting
from sstorch.bench.arguments import as_hydra_takes
from sstorch.commands import help_text
from tests.app import sstorch
from tests.bench.conftest import App

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("dataset.path=/home/größe (neu)/a~b, 2.csv", "/home/größe (neu)/a~b, 2.csv"),
        ("dataset.path=~/cohort.csv", os.path.expanduser("~/cohort.csv")),
        ("dataset.path=C:\\data\\", "C:\\data\\"),
        ('dataset.time=the "time"', 'the "time"'),
        ("dataset.time='in quotes'", "in quotes"),
        ("dataset.event=true", "true"),
        ("dataset.entry=null", None),
        ('dataset.read={sep: ";", decimal: ","}', {"sep": ";", "decimal": ","}),
        ("dataset.event_value=yes: relapse", "yes: relapse"),
        ('dataset.drop=[Patient Nr., größe (cm), "a, b"]', ["Patient Nr.", "größe (cm)", "a, b"]),
        ("dataset.drop=größe", ["größe"]),
        ("dataset.sensitive=größe", "größe"),
        ("hydra.run.dir=~/runs/é", os.path.expanduser("~/runs/é")),
        ("model.columns.numeric={age: spline:5}", {"age": "spline:5"}),
        ("model.penalties.ridge=1e-3", 1e-3),
    ],
)
def test_text_is_taken_as_it_was_typed(typed: str, meant: object) -> None:
    (argument,) = as_hydra_takes([typed])
    override = OverridesParser.create().parse_override(argument)
    value = override.value()
    read = [getattr(item, "text", item) for item in value] if isinstance(value, list) else value
    assert getattr(read, "text", read) == meant


def test_options_sweeps_and_deletions_are_passed_on(app: App) -> None:
    words = ["-m", "dataset.time=days,weeks", "--cfg", "job", "~study.models.sst_po", "model.depth=1"]
    assert as_hydra_takes(words) == as_hydra_takes([*words[1:], words[0]]) == words
    assert as_hydra_takes(["dataset.time=days,weeks"]) == ['dataset.time="days,weeks"']
    code, out, _ = app("experiment=own", "~study.models.sst_po", "--cfg", "job")
    assert code == 0
    assert "sst_po" not in yaml.safe_load(out)["study"]["models"]


def test_help_is_short_and_lists_the_choices(app: App) -> None:
    assert app("--help")[:2] == (0, help_text() + "\n")
    lines = help_text().splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 110
    for group in ("model", "cv", "logger", "experiment"):
        files = {path.stem for path in (ROOT / "configs" / group).glob("*.yaml")}
        (line,) = [line for line in lines if line.startswith(f"  {group}=")]
        assert set(line.split()[1:]) == files


def test_help_takes_less_than_a_second_without_torch() -> None:
    code = """
import atexit, sys, time
def end():
    assert not {"torch", "numpy"} & set(sys.modules)
    assert time.process_time() < 1
    sys.stdout.write("light")
atexit.register(end)
sys.argv = ["sstorch", "--help"]
from sstorch.commands import sstorch
sstorch()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (f"{help_text()}\nlight", "", 0)


def test_version(app: App) -> None:
    assert app("--version") == (0, f"sstorch {package.__version__}\n", "")


def test_commands_are_those_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"sstorch", "sstorch-report"}
    for place in scripts.values():
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(module), name))


def test_what_the_package_exports_is_there() -> None:
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="module 'sstorch' has no attribute 'SoftTrees'"):
        _ = package.SoftTrees


def test_ctrl_c_while_modules_load_ends_with_one_line() -> None:
    command = [sys.executable, "-X", "importtime", "-c", "from sstorch.commands import sstorch; sstorch()"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_default_sigint
    ) as process:
        assert process.stderr is not None
        told = []
        for line in process.stderr:  # modules of torch come one by one
            told.append(line)
            if re.search(r"\| +torch\.", line):
                process.send_signal(signal.SIGINT)
                break
        begin = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - begin < 30
    said = [line for line in [*told, *err.splitlines()] if line.strip() and "import time:" not in line]
    assert process.returncode == 130, said
    assert said == ["sstorch: interrupted before it began; nothing was written"]
    assert out == ""


def _default_sigint() -> None:
    """Where the suite runs in the background, its children would ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_output_is_redirected_in_any_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(2)
    table = pd.DataFrame({"größe ≥ ω": draws.normal(60, 9, 90), "time": draws.exponential(9, 90), "event": 1})
    table.to_csv(tmp_path / "rows ω.csv", index=False)
    place = tmp_path / "Läufe ω"
    own = [f"hydra.run.dir={place}", "dataset=csv", f"dataset.path={tmp_path / 'rows ω.csv'}", "logger=none"]
    for command in (
        lambda: sstorch(monkeypatch, *own, "model=regression", "cv.peers=false", "cv.n_folds=2"),
        lambda: reporting.main([str(place)]),
        lambda: sstorch(monkeypatch, *own, "--cfg", "job"),
    ):
        file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", file)
            assert not command()  # UnicodeEncodeError, after training
            file.flush()
        assert r"\u03c9" in file.buffer.getvalue().decode("ascii")
    assert "größe ≥ ω" in (place / "tree.txt").read_text("utf-8")
