"""Runs that are killed, and go on as if nothing had happened."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

from sstorch import SurvivalData
from sstorch.exceptions import ConfigError, FormatError
from sstorch.monitoring import Callback, History
from sstorch.nn import SoftTree, Spline
from sstorch.objective import Ridge, Sample, TrainingObjective
from sstorch.optim import Nodec, Trainer, minimize
from sstorch.optim.checkpoint import kept, opened, plain_values
from sstorch.packing import Arrays, unpack
from tests.batches import random_sample, random_tree
from tests.conftest import nightly
from tests.flat import soft_tree
from tests.optim.killed_run import CASES, Halt, train

ROOT = Path(__file__).parents[2]
OBJECTIVE = TrainingObjective(1e-3, 1e-3)


class _StopAt(Halt):
    """Ctrl-C at a moment."""

    def _halt(self) -> None:
        raise KeyboardInterrupt


def _stopped(case: str, moment: str, path: Path) -> None:
    """Train up to a moment, and be interrupted there."""
    with pytest.raises(KeyboardInterrupt):
        train(case, str(path), [_StopAt.at(moment)])


def _killed(case: str, moment: str, path: Path) -> None:
    """Let another process train up to a moment, and end it by SIGKILL there."""
    command = [sys.executable, "-m", "tests.optim.killed_run", case, moment, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "halted\n"
        assert path.exists()
        process.kill()
    assert process.wait(60) == -signal.SIGKILL


@cache
def _undisturbed(case: str) -> tuple[SoftTree, History]:
    return train(case, None)


def _n_passes(path: Path) -> int:
    parts: dict[str, Arrays] = {}
    for name, array in load_file(path).items():
        part, _, own = name.rpartition("/")
        parts.setdefault(part, {})[own] = array
    (state,) = (state for state in map(unpack, parts.values()) if "n_passes" in state)
    return int(state["n_passes"])


def _assert_same(ours: tuple[SoftTree, History], theirs: tuple[SoftTree, History]) -> None:
    """Bit for bit: parameters, and every column of every record."""
    states = ours[0].state_dict(), theirs[0].state_dict()
    assert list(states[0]) == list(states[1])
    for one, other in zip(states[0].values(), states[1].values(), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    for table in ("_steps", "_macro"):
        for block, other_block in zip(getattr(ours[1], table), getattr(theirs[1], table), strict=True):
            assert list(block) == list(other_block)
            for name, column in block.items():
                assert column.dtype == other_block[name].dtype
                assert column.tobytes() == other_block[name].tobytes(), name


# ------------------------------------------------------------------ Ctrl-C and kill -9

MOMENTS = {
    "nodec": {"1.2": 0, "3.3": 2},
    "nodec+joint": {"4.1": 3},
}


@pytest.mark.parametrize(
    ("end", "case", "moments"),
    [
        *((_stopped, case, moments) for case, moments in MOMENTS.items()),
        (_killed, "nodec", {"3.3": 2}),
        *(nightly(_killed, case, moments) for case, moments in MOMENTS.items()),
    ],
)
def test_a_run_ended_time_and_again_ends_as_one_that_was_not(
    end: Callable[[str, str, Path], None], case: str, moments: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    for moment, n_passes in moments.items():
        end(case, moment, path)
        assert _n_passes(path) == n_passes
    passes: list[int] = []
    lengths: list[int] = []

    class Watch(Callback):
        def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
            passes.append(macro_iteration)
            lengths.append(len(history.macro_iterations))

    resumed = train(case, str(path), [Watch()])
    _assert_same(resumed, _undisturbed(case))
    # Callbacks hear of every pass, with the history as it was then.
    last = resumed[1].macro_iterations["macro_iteration"]
    assert passes == list(range(last.max() + 1))
    assert lengths == [(last <= number).sum() for number in passes]
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]


@pytest.mark.parametrize("case", CASES)
def test_a_finished_run_returns_at_once(case: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.safetensors"
    first = train(case, str(path))
    _assert_same(first, _undisturbed(case))
    before = path.stat()

    class Refuse(Callback):
        def on_step(self, context: object) -> None:
            raise AssertionError("a finished run takes no step")

    again = train(case, str(path), [Refuse()])
    _assert_same(again, first)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert all(parameter.requires_grad for parameter in again[0].parameters())


# ------------------------------------------------------------------ other runs are refused


def _start(
    path: Path,
    trainer: Trainer | None = None,
    objective: TrainingObjective = OBJECTIVE,
    tree: SoftTree | None = None,
    sample: Sample | None = None,
) -> None:
    tree, sample = tree or random_tree(4, 1, seed=1), sample or random_sample(4, seed=1)
    (trainer or Nodec(macro_iterations=1)).train(tree, objective, sample, (), path)


def _with(name: str) -> Sample:
    sample = random_sample(4, seed=1)
    values = getattr(sample, name).clone()
    values[0, 0] += 0.25
    return replace(sample, **{name: values})


OTHERS: dict[str, dict[str, Any]] = {
    "macro iterations": {"trainer": Nodec(macro_iterations=2)},
    "trainer": {"trainer": CASES["joint"]},
    "a coefficient": {"objective": TrainingObjective(2e-3, 1e-3)},
    "a penalty": {"objective": TrainingObjective(1e-3, 1e-3, own=[Ridge(0.1)])},
    "times": {"sample": _with("log_time")},
    "weights": {"sample": _with("weight")},
    "features": {"sample": random_sample(4, seed=2)},
    "start": {"tree": random_tree(4, 1, seed=2)},
    "leaf": {"tree": random_tree(4, 1, "weibull", seed=1)},
}


def test_checkpoint_of_other_settings_or_data_raises_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "run"
    _start(path)
    content = path.read_bytes()
    for name, other in OTHERS.items():
        tree = other.get("tree", random_tree(4, 1, seed=1))
        before = {key: value.clone() for key, value in tree.state_dict().items()}
        with pytest.raises(ConfigError, match="delete the file to begin anew"):
            _start(path, **{**other, "tree": tree})
        assert path.read_bytes() == content, name
        assert all(torch.equal(value, before[key]) for key, value in tree.state_dict().items())


def test_plain_values_name_settings_and_tell_tensors_apart() -> None:
    value = {
        "a": (1, 2.5, None, True),
        "f": minimize,
        "inf": np.float64(np.inf),
        "leaf": Spline(knots=3),
        "t": torch.zeros(2),
    }
    ours = dict(plain_values(value, "v"))
    assert json.loads(json.dumps(ours, allow_nan=False)) == ours
    assert ours["v.f"] == "sstorch.optim.batched_lbfgs.minimize"
    assert (ours["v.a.count"], ours["v.a.1"], ours["v.inf"], ours["v.leaf.knots"]) == (4, 2.5, "inf", 3)
    for other in (torch.zeros(2, dtype=torch.float64), torch.tensor([0.0, -0.0]), np.zeros((2, 1), "f4")):
        assert ours["v.t"] != dict(plain_values(other, "v.t"))["v.t"]
    assert ours["v.t"] == dict(plain_values(np.zeros(2, np.float32), "v.t"))["v.t"]

    class Module(torch.nn.Module):
        def __init__(self, exact: bool, groups: torch.Tensor) -> None:
            super().__init__()
            self.exact, self.groups = exact, groups

    ours, exact, groups = (
        dict(plain_values(torch.nn.ModuleList([Module(exact, groups)]), "m"))
        for exact, groups in ((True, torch.ones(3)), (False, torch.ones(3)), (True, torch.zeros(3)))
    )
    assert {name for name in ours if ours[name] != exact[name]} == {"m.0.exact"}
    assert {name for name in ours if ours[name] != groups[name]} == {"m.0.groups"}


def test_kept_results_return_bit_for_bit_by_part(tmp_path: Path) -> None:
    made: list[str] = []

    def make(name: str) -> object:
        made.append(name)
        return values[name]

    values: dict[str, Any] = {
        "a": {"text": np.array([["CONVERGED"], ["x"]]), 3: (1.5, np.nan, [None, True])},
        "a/b": torch.tensor([-0.0, torch.nan, 1e-300], dtype=torch.float64),
        "history": _undisturbed("joint")[1],
    }
    for _ in range(2):
        with opened(tmp_path / "run", settings=1) as file:
            found: dict[str, Any] = {name: kept(file, name, partial(make, name)) for name in values}
        assert made == list(values)
        assert found["a"]["text"].tolist() == [["CONVERGED"], ["x"]]
        assert repr(found["a"][3]) == repr(values["a"][3])
        assert found["a/b"].numpy().tobytes() == values["a/b"].numpy().tobytes()
        tree = _undisturbed("joint")[0]
        _assert_same((tree, found["history"]), (tree, values["history"]))
    with opened(None) as nothing:
        assert kept(nothing, "a", lambda: 2) == 2


# ------------------------------------------------------------------ damaged files, full disks, other runs


def test_truncated_and_altered_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    _start(path)
    whole = path.read_bytes()
    for size in (0, 5, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="truncated or altered"):
            _start(path)
    for position in (len(whole) - 1, len(whole) - len(whole) // 4):
        altered = bytearray(whole)
        altered[position] ^= 1
        path.write_bytes(altered)
        with pytest.raises(FormatError, match="checksum does not fit"):
            _start(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(FormatError, match="no checkpoint"):
        _start(path)
    path.write_bytes(whole)
    _start(path)


def test_a_full_disk_stops_the_run_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Fill(Callback):
        """Files can no longer grow beyond a few bytes: what the system then says is like a full disk."""

        def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
            if macro_iteration == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))

    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            train("nodec", str(path), [Fill()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert _n_passes(path) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    _assert_same(train("nodec", str(path)), _undisturbed("nodec"))


def test_a_lock_whose_file_was_removed_by_the_one_before_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    path, before = tmp_path / ".run.lock", fcntl.flock

    def late(descriptor: int, kind: int) -> None:
        before(descriptor, kind)
        path.unlink()

    monkeypatch.setattr(fcntl, "flock", late)
    with (
        pytest.raises(ConfigError, match="another run is writing"),
        opened(tmp_path / "run"),
    ):
        raise AssertionError
    monkeypatch.undo()
    with opened(tmp_path / "run"):
        assert path.exists()
        with pytest.raises(ConfigError), opened(tmp_path / "run"):
            raise AssertionError
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the estimator

CURVES = {"numeric": "spline", "gate_numeric": {"x1": "piecewise"}, "interactions": [("x0", "x1")]}


def test_estimator_goes_on_from_its_checkpoint(
    small_data: SurvivalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, path = (small_data.time, small_data.event), tmp_path / "run"
    tree = soft_tree(depth=1, n_starts=3, trainer=Nodec(macro_iterations=3), **CURVES)
    plain = clone(tree).fit(small_data.frame, y)

    cut_short = clone(tree).set_params(verbose=1)
    with monkeypatch.context() as patch:
        patch.setattr("sstorch.soft.estimator.ProgressBar", lambda: _StopAt.at("2"))
        with pytest.raises(KeyboardInterrupt):
            cut_short.fit(small_data.frame, y, checkpoint=path)
    assert _n_passes(path) == 1
    resumed = clone(tree).fit(small_data.frame, y, checkpoint=path)
    _assert_same((resumed.module_, resumed.history_), (plain.module_, plain.history_))
    assert resumed.objective_ == plain.objective_

    monkeypatch.setattr("sstorch.soft.batch.initialize_random", None)  # raises before starts are made
    for changes in (
        {"random_state": 1},
        {"leaf": "weibull"},
        {"trainer": Nodec(macro_iterations=4)},
        {"columns__numeric": "piecewise(5)"},
    ):
        with pytest.raises(ConfigError, match="of another run"):
            clone(tree).set_params(**changes).fit(small_data.frame, y, checkpoint=path)
    with pytest.raises(ConfigError, match="of another run"):
        tree.fit(small_data.frame, (small_data.time, ~small_data.event), checkpoint=path)
