"""Runs of the command that are killed in each phase: what the folder says, and what they are continued to."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sstorch.bench.reporting import report_of_run
from sstorch.bench.run_folder import RunFolder
from sstorch.exceptions import ConfigError
from tests.app import sstorch

ROOT = Path(__file__).parents[2]
# The command, which halts where a phase is reported for the first time.
PROGRAM = """
import signal, sys
from sstorch.bench.cli import main
from sstorch.threads import listening

halt = sys.argv.pop(1)

def halted(phase, done, total):
    if phase == halt:
        print("halted", flush=True)
        signal.pause()

with listening(halted):
    main()
"""
COMMON = ("dataset=gbsg2", "cv.n_folds=2", "model.leaf=weibull", "model.depth=1", "logger=none")
GROUPS = "model=prognostic_tree"
RUNS = {
    "groups": (*COMMON, GROUPS),
    "gates": (*COMMON[:-1], "experiment=quick", "model.n_starts=1", "logger.progress=false"),
    "causes": ("dataset=melanoma", *COMMON[1:], GROUPS),
}
PHASES = {
    "groups": ("reading", "encoding", "regressions", "leaves", "scoring", "reference models", "writing"),
    "gates": ("initial solutions", "training", "scoring"),
    "causes": ("regressions", "leaves", "scoring", "reference models"),
}
CASES = [f"{run}: {phase}" for run, phases in PHASES.items() for phase in phases]
# Files with times in them.
UNLIKE = (".hydra", "figures", "tensorboard")
WHOLE: dict[str, Path] = {}


def _whole(run: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that nothing disturbed."""
    if run not in WHOLE:
        assert sstorch(monkeypatch, f"hydra.run.dir={folder}", *RUNS[run]) == 0
        WHOLE[run] = folder
    return WHOLE[run]


@pytest.mark.nightly  # every day has tests/optim/test_resume.py
@pytest.mark.parametrize("case", CASES)
def test_run_killed_in_a_phase_continues_with_the_same_result(
    case: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, phase = case.split(": ")
    base = tmp_path_factory.mktemp("killed")
    whole, folder = _whole(run, base / "whole", monkeypatch), base / "run"
    command = [sys.executable, "-c", PROGRAM, phase, f"hydra.run.dir={folder}", *RUNS[run]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    assert process.stdout is not None
    with process.stdout:
        assert any(line == "halted\n" for line in process.stdout)
        process.kill()
    assert process.wait(60) == -signal.SIGKILL
    begun = phase != "reading"
    assert RunFolder(folder).is_taken is begun
    if begun:
        assert RunFolder(folder).status == "stopped"
        with pytest.raises(ConfigError, match="a run that is stopped, not completed"):
            report_of_run(folder)
    capsys.readouterr()
    assert sstorch(monkeypatch, f"hydra.run.dir={folder}", *RUNS[run]) == 0
    out = capsys.readouterr().out
    kept = begun and phase not in ("encoding", "regressions", "initial solutions")
    assert ("continues from" in out) is kept
    names = [str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()]
    assert names
    for name in names:
        if name not in ("status.json", "config.yaml") and not name.startswith(UNLIKE):
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert json.loads((folder / "status.json").read_text())["status"] == "completed"
    if run == "gates":
        boards = [EventAccumulator(str(path / "tensorboard" / "fold-1")).Reload() for path in (folder, whole)]
        ours, theirs = ([(e.step, e.value) for e in board.Scalars("train/objective")] for board in boards)
        assert ours == theirs
