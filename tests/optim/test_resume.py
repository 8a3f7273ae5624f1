"""Runs that are interrupted, and go on as if nothing had happened; kills are those of tests/bench."""

import json
from collections.abc import Sequence
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
from sstorch.optim import Joint, Nodec, NodecJoint, Trainer, minimize
from sstorch.optim.run import TrainingRun, kept, opened, plain_values
from sstorch.optim.starts.clusters import initialize_random, problem_seed
from sstorch.packing import Arrays, unpack
from tests.batches import blank_tree, random_sample, random_tree, watched_steps
from tests.flat import soft_tree

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
CASES: dict[str, Trainer] = {
    "nodec": Nodec(macro_iterations=5, patience=4),
    "nodec+joint": NodecJoint(Nodec(macro_iterations=3, patience=3)),
    "joint": Joint(),
}


def train(case: str, path: Path | None, callbacks: Sequence[Callback] = ()) -> tuple[SoftTree, History]:
    """Train eight trees from the same start, every time."""
    torch.set_num_threads(1)
    sample, tree = random_sample(8, n_splits=2, n_rows=120, seed=4), blank_tree(3, 2, "weibull", (8,))
    initialize_random(tree, sample, [problem_seed(1, 0, k) for k in range(8)])
    return tree, CASES[case].train(tree, OBJECTIVE, sample, callbacks, path)


@cache
def undisturbed(case: str) -> tuple[SoftTree, History]:
    return train(case, None)


def interrupt(number: int, position: int, run: TrainingRun, *_: object) -> None:
    """Ctrl-C in a pass, after so many steps."""
    if [block["macro_iteration"][0] for block in run.history._steps].count(number) == position:
        raise KeyboardInterrupt


class Stop(Callback):
    """Ctrl-C where the second pass is recorded."""

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        if macro_iteration == 2:
            raise KeyboardInterrupt


def n_passes(path: Path) -> int:
    parts: dict[str, Arrays] = {}
    for name, array in load_file(path).items():
        part, _, own = name.rpartition("/")
        parts.setdefault(part, {})[own] = array
    (state,) = (state for state in map(unpack, parts.values()) if "n_passes" in state)
    return int(state["n_passes"])


def assert_same(ours: tuple[SoftTree, History], theirs: tuple[SoftTree, History]) -> None:
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


# ------------------------------------------------------------------ interrupted and finished runs


@pytest.mark.parametrize(
    ("case", "moments"), [("nodec", {(1, 2): 0, (3, 3): 2}), ("nodec+joint", {(4, 1): 3})]
)
def test_run_ended_time_and_again_ends_as_one_that_was_not(
    case: str, moments: dict[tuple[int, int], int], tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    for moment, passes in moments.items():
        with pytest.raises(KeyboardInterrupt), watched_steps(partial(interrupt, *moment)):
            train(case, path)
        assert n_passes(path) == passes
    seen: list[tuple[int, int]] = []

    class Watch(Callback):
        def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
            seen.append((macro_iteration, len(history.macro_iterations)))

    resumed = train(case, path, [Watch()])
    assert_same(resumed, undisturbed(case))
    # Callbacks hear of every pass, with the history as it was then.
    last = resumed[1].macro_iterations["macro_iteration"]
    assert seen == [(number, (last <= number).sum()) for number in range(last.max() + 1)]
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]


@pytest.mark.parametrize("case", ["nodec+joint", "joint"])
def test_finished_run_returns_at_once(case: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.safetensors"
    first = train(case, path)
    assert_same(first, undisturbed(case))
    before = path.stat().st_mtime_ns
    with watched_steps(partial(interrupt, 1, 1)):  # which no step calls
        again = train(case, path)
    assert_same(again, first)
    assert path.stat().st_mtime_ns == before
    assert all(parameter.requires_grad for parameter in again[0].parameters())


def test_estimator_goes_on_from_its_checkpoint(
    small_data: SurvivalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, path = (small_data.time, small_data.event), tmp_path / "run"
    curves = {"numeric": "spline", "gate_numeric": {"x1": "piecewise"}, "interactions": [("x0", "x1")]}
    tree = soft_tree(depth=1, n_starts=3, trainer=Nodec(macro_iterations=3), **curves)
    plain = clone(tree).fit(small_data.frame, y)
    with pytest.raises(KeyboardInterrupt):
        clone(tree).fit(small_data.frame, y, callbacks=[Stop()], checkpoint=path)
    assert n_passes(path) == 1
    resumed = clone(tree).fit(small_data.frame, y, checkpoint=path)
    assert_same((resumed.module_, resumed.history_), (plain.module_, plain.history_))
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


# ------------------------------------------------------------------ other runs, and identities


def start(
    path: Path,
    trainer: Trainer | None = None,
    objective: TrainingObjective = OBJECTIVE,
    tree: SoftTree | None = None,
    sample: Sample | None = None,
) -> None:
    tree, sample = tree or random_tree(4, 1, seed=1), sample or random_sample(4, seed=1)
    (trainer or Nodec(macro_iterations=1)).train(tree, objective, sample, (), path)


def changed(name: str) -> Sample:
    sample = random_sample(4, seed=1)
    values = getattr(sample, name).clone()
    values[0, 0] += 0.25
    return replace(sample, **{name: values})


OTHERS: dict[str, dict[str, Any]] = {
    "macro iterations": {"trainer": Nodec(macro_iterations=2)},
    "trainer": {"trainer": CASES["joint"]},
    "a coefficient": {"objective": TrainingObjective(2e-3, 1e-3)},
    "a penalty": {"objective": TrainingObjective(1e-3, 1e-3, own=[Ridge(0.1)])},
    "times": {"sample": changed("log_time")},
    "weights": {"sample": changed("weight")},
    "features": {"sample": random_sample(4, seed=2)},
    "start": {"tree": random_tree(4, 1, seed=2)},
    "leaf": {"tree": random_tree(4, 1, "weibull", seed=1)},
}


def test_checkpoint_of_other_settings_or_data_raises_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path)
    content = path.read_bytes()
    for name, other in OTHERS.items():
        tree = other.get("tree", random_tree(4, 1, seed=1))
        before = {key: value.clone() for key, value in tree.state_dict().items()}
        with pytest.raises(ConfigError, match="delete the file to begin anew"):
            start(path, **{**other, "tree": tree})
        assert path.read_bytes() == content, name
        assert all(torch.equal(value, before[key]) for key, value in tree.state_dict().items())


def test_plain_values_name_settings_and_tell_tensors_apart() -> None:
    numbers = {"a": (1, 2.5, None, True), "f": minimize, "inf": np.float64(np.inf)}
    ours = dict(plain_values({**numbers, "leaf": Spline(knots=3), "t": torch.zeros(2)}, "v"))
    assert json.loads(json.dumps(ours, allow_nan=False)) == ours
    assert ours["v.f"] == "sstorch.optim.batched_lbfgs.minimize"
    assert (ours["v.a.count"], ours["v.a.1"], ours["v.inf"], ours["v.leaf.knots"]) == (4, 2.5, "inf", 3)
    for other in (torch.zeros(2, dtype=torch.float64), torch.tensor([0.0, -0.0]), np.zeros((2, 1), "f4")):
        assert ours["v.t"] != dict(plain_values(other, "v.t"))["v.t"]
    assert ours["v.t"] == dict(plain_values(np.zeros(2, np.float32), "v.t"))["v.t"]


def test_kept_results_return_bit_for_bit_by_part(tmp_path: Path) -> None:
    tree, history = undisturbed("joint")
    values: dict[str, Any] = {
        "a": {"text": np.array([["CONVERGED"], ["x"]]), 3: (1.5, np.nan, [None, True])},
        "a/b": torch.tensor([-0.0, torch.nan, 1e-300], dtype=torch.float64),
        "history": history,
    }
    made: list[str] = []

    def make(name: str) -> object:
        made.append(name)
        return values[name]

    for _ in range(2):
        with opened(tmp_path / "run", settings=1) as file:
            found: dict[str, Any] = {name: kept(file, name, partial(make, name)) for name in values}
        assert made == list(values)
        assert found["a"]["text"].tolist() == [["CONVERGED"], ["x"]]
        assert repr(found["a"][3]) == repr(values["a"][3])
        assert found["a/b"].numpy().tobytes() == values["a/b"].numpy().tobytes()
        assert_same((tree, found["history"]), (tree, history))
    with opened(None) as nothing:
        assert kept(nothing, "a", lambda: 2) == 2
    with opened(tmp_path / "run", settings=1), pytest.raises(ConfigError, match="another run is writing"):
        start(tmp_path / "run")
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


# ------------------------------------------------------------------ damaged files, full disks, locks


def test_truncated_and_other_files_raise(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path)
    whole = path.read_bytes()
    for size in (0, 200, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="truncated"):
            start(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(FormatError, match="no checkpoint"):
        start(path)
    path.write_bytes(whole)
    start(path)
