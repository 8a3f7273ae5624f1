"""The app as a user meets it: a whole run, bad input, Ctrl-C."""

import dataclasses
import errno
import json
import os
import platform
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalData, list_datasets
from sstorch.bench.cli import _Interruption
from sstorch.bench.config import REGISTERED, Config, DatasetConfig
from sstorch.bench.flat import soft_tree
from sstorch.bench.reporting import load_model
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.scores import SCORES
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.monitoring import History
from sstorch.nn import FAMILIES, HazardFamily, make_family
from sstorch.objective import L2Parity
from sstorch.optim import Joint, Nodec, NodecJoint, Thresholds, Trainer
from sstorch.optim.checkpoint import opened, plain_values
from sstorch.usage import install_extra
from tests.app import compose, sstorch

# Of a run whose results are not looked at: two folds and a tree each.
SMALL = ("cv.n_folds=2", "cv.n_starts=1", "cv.peers=false")


def _sstorch(monkeypatch: pytest.MonkeyPatch, folder: Path, *overrides: str) -> int:
    """Run the app with a folder for what it writes; the exit code."""
    return sstorch(monkeypatch, f"hydra.run.dir={folder}", *overrides)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """One quick run of the default data set: folder, what it printed, what it told on the way."""
    folder = tmp_path_factory.mktemp("app") / "run"
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "sstorch.bench.cli",
        "experiment=quick",
        f"hydra.run.dir={folder}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, done.stderr


def test_what_a_run_prints(run: tuple[Path, str, str]) -> None:
    folder, out, err = run
    assert "686 rows, 8 features" in out
    assert "8 trees: (3 folds + all rows) x 2 starts, float64 on cpu" in out
    for score in SCORES:
        assert score in out
    told = out[out.index("Compared with reference models") :].splitlines()[2:6]
    assert [line.split("  ")[0] for line in told] == [
        "Kaplan-Meier",
        "one leaf",
        "Cox",
        "tree",
    ]
    assert "\nSoft survival tree: 686 rows, 299 events\nGroup 1: " in out
    assert re.search(r"\nGroup \d: .*\b686 rows, \d+ events, Kaplan-Meier survival ", out)
    assert out.splitlines()[-1].startswith("done: 8 trees trained and scored in ")
    assert str(folder) in out.splitlines()[-1]
    assert "pass 2/2 of 8 trees: objective " in err
    assert "\r" not in err  # no terminal, so plain lines


def test_the_folder_of_a_run(run: tuple[Path, str, str], gbsg2: SurvivalData) -> None:
    folder = run[0]
    status = json.loads((folder / "status.json").read_text())
    assert status["status"] == "completed"
    assert status["trees"] == 8
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["tree"]["depth"] == 1
    assert config["cv"] == {"n_folds": 3, "n_starts": 2, "seed": 0, "peers": True}
    assert list(pd.read_csv(folder / "peers.csv")["model"].unique()) == [
        "Kaplan-Meier",
        "one leaf",
        "Cox",
        "tree",
    ]
    assert len(pd.read_csv(folder / "held_out.csv")) == 686

    scores = pd.read_csv(folder / "scores.csv")
    assert len(scores) == 3 * 2 * 2
    assert np.isfinite(scores[list(SCORES)]).all(axis=None)
    test = scores[scores["part"] == "test"]
    assert 0.55 < test["c_harrell"].mean() < 0.8
    assert test["chosen"].sum() == 3
    best = test.groupby("fold")["objective"].transform("min") == test["objective"]
    assert (best == test["chosen"]).all()

    folds = pd.read_csv(folder / "folds.csv")
    assert folds["fold"].value_counts().between(228, 229).all()
    steps = pd.read_parquet(folder / "history" / "steps.parquet")
    assert set(steps["problem"]) == set(range(8))
    assert (folder / "history" / "macro_iterations.parquet").exists()
    model = load_model(folder / "model")
    assert model.summary(details=True) == (folder / "tree.txt").read_text().rstrip("\n")
    assert model.predict(gbsg2.frame).shape == (686,)
    told = test.loc[test["chosen"], "c_harrell"].mean()
    assert model.metrics_["cross_validated_c_harrell"] == pytest.approx(told, rel=1e-9)
    figures = sorted(path.name for path in (folder / "figures").iterdir())
    assert figures == [f"survival_by_leaf_{name}.png" for name in ("all-rows", "fold-0", "fold-1", "fold-2")]


def test_tensorboard_is_read_back(run: tuple[Path, str, str]) -> None:
    folder = run[0]
    names = sorted(path.name for path in (folder / "tensorboard").iterdir())
    assert names == ["all-rows", "fold-0", "fold-1", "fold-2"]
    macro = pd.read_parquet(folder / "history" / "macro_iterations.parquet")
    steps = pd.read_parquet(folder / "history" / "steps.parquet")
    for fold, name in enumerate(["fold-0", "fold-1", "fold-2", "all-rows"]):
        board = EventAccumulator(str(folder / "tensorboard" / name)).Reload()
        tags = set(board.Tags()["scalars"])
        assert {"train/objective", "train/best_objective", "gate/1/left_share"} <= tags
        assert {"leaf/2/share", "leaf/3/share", "node/1/LN/objective"} <= tags
        own = macro[macro["problem"] // 2 == fold]
        at = ["macro_iteration", "problem"]  # a start that has stopped counts with its last value
        expected = own.set_index(at)["objective"].unstack().ffill().median(axis=1)
        read = board.Scalars("train/objective")
        assert [event.step for event in read] == [0, 1, 2]
        np.testing.assert_allclose([event.value for event in read], expected, rtol=1e-6)
        leaf_steps = steps[(steps["problem"] // 2 == fold) & (steps["step"] == "LN")]
        expected = leaf_steps.set_index(at)["objective_after"].unstack().ffill().median(axis=1)
        read = board.Scalars("node/1/LN/objective")
        np.testing.assert_allclose([event.value for event in read], expected, rtol=1e-6)
        assert "config/text_summary" in board.Tags()["tensors"]
        text = board.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
        assert "dataset:" in text
        assert "survival by leaf" in board.Tags()["images"]
        assert len(board.Images("survival by leaf")[0].encoded_image_string) > 5000
        if name != "all-rows":
            scores = pd.read_csv(folder / "scores.csv").query("part == 'test' and fold == @fold")
            value = board.Scalars("final/c_harrell")[0].value
            assert value == pytest.approx(scores["c_harrell"].mean(), rel=1e-6)


def test_run_with_estimated_penalties_keeps_and_shows_its_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = ("leaf=weibull", "tree=depth1", "cv.n_folds=2", "cv.peers=false", "tree.gate_charge=1")
    assert _sstorch(monkeypatch, folder, *options) == 0
    out = capsys.readouterr().out
    assert "model    depth 1, weibull leaves, distilled gates, penalties estimated\n" in out
    model = load_model(folder / "model")
    assert model.penalties.gate_charge == 1.0
    assert model.choice_.summary() in out
    assert f"evidence and penalties: tensorboard --logdir {folder / 'tensorboard'}" in out
    assert not (folder / "history").exists()  # nothing iterates over gates or leaves
    names, last = ["fold-0", "fold-1", "all-rows"], model.choice_
    evidence = pd.read_csv(folder / "evidence.csv", index_col="split")
    assert list(evidence.index) == names
    assert evidence.loc["all-rows", ["chosen", "n_groups"]].tolist() == [last.chosen, last.n_groups]
    assert evidence.loc["all-rows", "gain"] == pytest.approx(last.gain, rel=1e-4)
    penalties = pd.read_csv(folder / "penalties.csv", index_col=["split", "kind"])
    for split in names:
        board = EventAccumulator(str(folder / "tensorboard" / split)).Reload()
        own = penalties.loc[split]
        found = {tag: board.Scalars(tag)[0].value for tag in board.Tags()["scalars"] if "final/" not in tag}
        expected = {f"evidence/{name}": evidence.loc[split, name] for name in last.evidence}
        expected |= {f"edf/{kind}": own.loc[kind, "edf"] for kind in own.index}
        expected |= {f"sd/{kind}": own.loc[kind, "sd"] for kind in own.index}
        assert found == pytest.approx(expected, rel=1e-4)
        assert f"\n{split}" in out


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {"penalties__ridge": "estimated", "penalties__gate_charge": 3.0, "only_if_needed": False}),
        (["tree.ridge=1e-3"], {"penalties__ridge": 1e-3, "penalties__roughness": "estimated"}),
        (["tree.ridge=0.001", "tree.roughness=1"], {"penalties__ridge": 1e-3, "penalties__roughness": 1}),
        (["tree.ridge=estimated", "tree=depth0"], {"penalties__ridge": "estimated"}),
        (["trainer=joint"], {"penalties__ridge": 1e-3, "penalties__roughness": "estimated"}),
        (["tree.gate_charge=5", "tree.only_if_needed=true", "tree.gate_features=null"],
         {"penalties__gate_charge": 5, "only_if_needed": True, "gate_features": None}),
    ],
)  # fmt: skip
def test_penalties_not_given_are_those_of_the_class(overrides: list[str], expected: dict) -> None:
    found = compose(*overrides).estimator().get_params()
    assert {name: found[name] for name in expected} == expected


HOSTILE = {
    "negative time": ("id,age,time,event\n1,40,5,1\n2,50,-3,0\n3,60,7,1\n", "negative", "time"),
    "text in time": ("age,time,event\n40,5,1\n50,long,0\n60,7,1\n", "time", "long"),
    "all censored": (
        "age,time,event\n" + "".join(f"{30 + k},{k + 1},0\n" for k in range(20)), "censored", "event"
    ),
    "one row": ("age,time,event\n40,5,1\n", "one row", "two"),
    "duplicate column": ("age,age,time,event\n40,1,5,1\n50,2,3,0\n", "age", "column"),
    "empty file": ("", "empty", ""),
    "header only": ("age,time,event\n", "no", "rows"),
    "infinite time": ("age,time,event\n40,inf,1\n50,3,0\n", "time", "infinite"),
    "events of 1 and 2": ("age,time,event\n40,4,1\n50,3,2\n41,7,2\n", "event", "1/2"),
    "a constant column": (
        "site,age,time,event\n" + "".join(f"1,{k},{k + 1},1\n" for k in range(20)), "'site'",
        "dataset.strict=false"
    ),
    "60 % missing": (
        "age,marker,time,event\n" + "".join(f"{k},{k if k % 5 < 2 else ''},{k + 1},1\n" for k in range(20)),
        "column 'marker' is missing in 60% of the rows", "drop",
    ),
    "few events for the folds": (
        "age,time,event\n" + "".join(f"{7 * k % 5},{k + 1},{int(k < 3)}\n" for k in range(30)),
        "event", "fewer folds"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_one_line_and_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, *words = HOSTILE[name]
    path = tmp_path / "cohort.csv"
    path.write_text(content)
    folder = tmp_path / "run"
    code = _sstorch(monkeypatch, folder, "dataset=csv", f"dataset.path={path}")
    told = capsys.readouterr()
    assert code == 2
    assert len(told.err.strip().splitlines()) == 1
    assert told.err.startswith("sstorch: error: ")
    for word in words:
        assert word in told.err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["dataset=csv"], "dataset=csv needs dataset.path"),
        (["dataset=csv", "dataset.path=/nowhere/x.csv"], "/nowhere/x.csv"),
        (["tree.depth=9"], "depth must be an integer from 0 to 6"),
        (["tree.prediction=best"], "prediction must be one of hbp, mixture"),
        (["leaf.name=gauss"], "unknown leaf"),
        (["trainer=nodec", "trainer.eps=mine"], "eps must be one of"),
        (["trainer.eps=eps_paper"], "trainer.eps belongs to a trainer: name one, such as trainer=nodec"),
        (["cv.n_folds=1"], "n_folds"),
        (["cv.seed=-1"], "seed of the folds"),
        (["seed=-1"], "random_state must be"),
        (["dataset.path=cohort.csv"], "dataset.path describes a file and is not used by dataset=gbsg2"),
        (["tree.depth=abc"], "tree.depth"),
        (["tree=depth9"], "depth9"),
        (["trainer=joint", "tree.ridge=estimated"], "penalties are estimated where gates stay"),
        (
            ["tree.roughness=0.1"],
            "roughness=0.1 and estimated penalties exclude each other: give ridge as a number, too",
        ),
        (["tree=depth0", "tree.only_if_needed=true"], "tree.only_if_needed=True is not used by Survival"),
        (["trainer=joint", "tree.gate_charge=1"], "tree.gate_charge=1 is not used by SoftSurvivalTree"),
        (["tree.numeric={age: spline, pnodes: loog}"], "numeric of 'pnodes' must be one of"),
        (["tree.numeric={agee: spline}"], "numeric names 'agee'; the columns are 'horTh', 'age', "),
        (["tree.interactions=[[age,horT]]"], "interactions name 'horT'; the columns are "),
        (
            ["tree.gate_ridge=1e-3"],
            "tree.gate_ridge=0.001 is not used by PrognosticTree: leave it out; init=",
        ),
        (["cv=paper"], "cv.n_starts=20 is not used by PrognosticTree: leave it out; init=random"),
        (
            ["tree=depth0", "tree.min_leaf=0.1"],
            "tree.min_leaf=0.1 is not used by SurvivalRegression: leave it",
        ),
        (
            ["init=random", "tree.gate_features=3"],
            "tree.gate_features=3 is not used by SoftSurvivalTree: leave it out; init=distilled uses it",
        ),
        (["device.threads=0"], "device.threads must be at least 1"),
        (["device.name=cpu:abc"], "device must be cpu, cuda"),
        (["leaf=spline_po", "leaf.options.knots=[30,20]"], "knots must be a number >= 0, or at least 2"),
        (["leaf=spline_po", "+leaf.options.order=3"], "leaf 'spline_po' has no option 'order'"),
        (["leaf=weibull", "init=cox"], "init='cox' is for spline leaves"),
        (
            ["trainer=joint", "trainer.zeta=0.5"],
            "trainer.zeta is not used by trainer=joint, which has holdout, max_it",
        ),
        (
            ["trainer=joint", "+trainer.zeta=0.5"],
            "trainer.zeta is not used by trainer=joint, which has holdout, max_it",
        ),
        (["trainer=nodec_joint", "trainer.epochs=5"], "trainer.epochs is not used by trainer=nodec+joint, "),
        (["trainer.name=joint"], "trainer.name=joint does not choose a trainer: write trainer=NAME"),
        (["tree.dept=3"], "there is no setting tree.dept. Did you mean 'tree.depth'?"),
        (["+tree.dept=3"], "there is no setting tree.dept. Did you mean 'tree.depth'?"),
        (["sede=1"], "there is no setting sede. Did you mean 'seed'?"),
        (["tree.depth=deep"], "tree.depth: Value 'deep' of type 'str' could not be converted to Integer"),
        pytest.param(
            ["device=cuda"],
            "torch sees no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device"),
        ),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    overrides: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _sstorch(monkeypatch, tmp_path / "run", *overrides) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sstorch: error: ")
    assert message in line
    assert not (tmp_path / "run").exists()


def test_a_data_set_whose_package_is_missing_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "sksurv"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "sksurv", None)
    assert _sstorch(monkeypatch, tmp_path / "run", "dataset=whas500") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "sstorch: error: data set 'whas500': the package scikit-survival is not installed; "
    )
    assert line.endswith(install_extra("datasets"))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_left_as_it_is(
    run: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {path: path.stat().st_mtime_ns for path in run[0].rglob("*")}
    for overrides, message in (
        (
            ["tree.depth=2"],
            "holds a run already, of another configuration: config.tree.depth is 1 there",
        ),
        (["tree.depth=9"], "depth must be"),
    ):
        assert _sstorch(monkeypatch, run[0], "experiment=quick", *overrides) == 2
        assert message in capsys.readouterr().err
    assert _sstorch(monkeypatch, run[0], "experiment=quick", "logger=none") == 0
    told = capsys.readouterr()
    assert told.out == f"done: {run[0]} contains this run, already completed\n"
    assert {path: path.stat().st_mtime_ns for path in run[0].rglob("*")} == files


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        (["tree.numeric=spline"], {"numeric": "spline"}),
        (
            ["tree.numeric=piecewise:8", "tree.ridge=1e-3", "tree.roughness=0.1"],
            {"numeric": "piecewise(8)", "ridge": 1e-3, "roughness": 0.1},
        ),
        (['tree.numeric="piecewise(8)"'], {"numeric": "piecewise(8)"}),
        (["tree.numeric={age: spline:5, pnodes: log}"], {"numeric": {"age": "spline(5)", "pnodes": "log"}}),
        (["tree.gate_numeric=log"], {"gate_numeric": "log"}),
        (["tree.interactions=[[age,horTh]]"], {"interactions": [("age", "horTh")]}),
        (["tree.interactions=all", "tree.numeric=smooth:6"], {"interactions": "all", "numeric": "smooth(6)"}),
        (["tree.monotone={pnodes: up}"], {"monotone": {"pnodes": "up"}}),
    ],
)
def test_curves_are_those_of_python(overrides: list[str], parameters: dict[str, object]) -> None:
    ours = compose(*overrides).estimator()
    assert ours._batch_settings().encodings == soft_tree(**parameters)._batch_settings().encodings  # type: ignore[arg-type]
    assert ours.penalties.ridge == parameters.get("ridge", "estimated")
    assert ours.penalties.roughness == parameters.get("roughness", "estimated")
    columns = ours.columns
    given = columns.numeric, columns.gate_numeric, columns.interactions, columns.monotone
    assert {type(value) for value in given} <= {str, dict, tuple, type(None)}


def test_a_sweep_tells_of_every_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("sstorch.bench.cli.cross_validate", broken)
    swept = ["experiment=quick", "logger=none", "tree.depth=0,1", f"hydra.sweep.dir={tmp_path}"]
    assert sstorch(monkeypatch, "-m", *swept) == 1
    err = capsys.readouterr().err
    assert err.count("RuntimeError: out of memory") == 2
    for job in "01":
        assert f"sstorch: error: job {job} (experiment=quick logger=none tree.depth={job}): failed" in err
        assert json.loads((tmp_path / job / "status.json").read_text())["status"] == "failed"


def test_a_completed_run_is_not_taken_for_one_of_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = np.random.default_rng(0)
    frame = pd.DataFrame({"x": draws.normal(size=90), "days": draws.exponential(size=90) + 0.1, "died": 1})
    file = tmp_path / "cohort.csv"
    frame.to_csv(file, index=False)
    own = ["dataset=csv", f"dataset.path={file}", "dataset.time=days", "dataset.event=died", "tree.depth=0"]
    own += ["experiment=quick", "logger=none", *SMALL]
    assert _sstorch(monkeypatch, tmp_path / "run", *own) == 0
    capsys.readouterr()
    assert _sstorch(monkeypatch, tmp_path / "run", *own) == 0
    assert "already completed" in capsys.readouterr().out
    frame.iloc[:80].to_csv(file, index=False)
    assert _sstorch(monkeypatch, tmp_path / "run", *own) == 2
    assert "on other data: they have changed" in capsys.readouterr().err


def test_a_run_that_was_killed_is_told_from_one_that_runs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin("a: 1", "checksum")
    other = RunFolder(folder.path)
    with opened(folder.checkpoint):
        assert other.status.startswith("running (last sign of life ")
    assert other.status.startswith("stopped (last sign of life ")
    told = other.killed()
    assert told is not None
    assert told.startswith(f"process {os.getpid()} on {platform.node()}, last sign of life ")
    folder.write_status("completed")
    assert other.status == "completed"
    assert other.killed() is None


def test_an_unwritable_place_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert _sstorch(monkeypatch, tmp_path / "file", "experiment=quick") == 2
    err = capsys.readouterr().err
    assert err.startswith("sstorch: error: ")
    assert len(err.strip().splitlines()) == 1


def test_on_a_full_disk_the_first_error_is_reported_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        monkeypatch.setattr(os, "fsync", full)  # from now on for the status, too
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sstorch.bench.cli.cross_validate", full)
    assert _sstorch(monkeypatch, tmp_path / "run", "experiment=quick") == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert err == f"sstorch: error: {tmp_path / 'run'}: [Errno 28] No space left on device"


def test_a_defect_is_noted_in_the_folder_and_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("sstorch.bench.cli.cross_validate", broken)
    with pytest.raises(ZeroDivisionError):
        _sstorch(monkeypatch, tmp_path / "run", "experiment=quick")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status == {"status": "failed", "error": "a defect", "phase": "reading"}


@pytest.mark.nightly
def test_a_sweep_given_again_trains_only_what_was_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    sweep = [place, "experiment=quick", *SMALL, "tree.depth=0,1", "logger=none", "--multirun"]
    assert _sstorch(monkeypatch, tmp_path, *sweep) == 0
    statuses = [tmp_path / "sweep" / job / "status.json" for job in "01"]
    completed = statuses[0].read_text()
    statuses[1].write_text('{"status": "interrupted"}')
    scores = (tmp_path / "sweep" / "1" / "scores.csv").read_bytes()
    capsys.readouterr()
    assert _sstorch(monkeypatch, tmp_path, *sweep) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"done: {tmp_path / 'sweep' / '0'} contains this run, already completed")
    assert told.count("trees trained and scored") == 1
    assert statuses[0].read_text() == completed
    assert json.loads(statuses[1].read_text())["status"] == "completed"
    assert (tmp_path / "sweep" / "1" / "scores.csv").read_bytes() == scores


def test_an_interruption_that_was_lost_is_raised_again_at_the_end_of_the_pass() -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored where the suite runs in the background
    with _Interruption() as interruption:
        interruption.on_macro_iteration(1, History())
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)  # and now something swallows it
        with pytest.raises(KeyboardInterrupt):
            interruption.on_macro_iteration(2, History())
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.filterwarnings("default::sstorch.exceptions.DataWarning")
def test_a_file_with_entry_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gbsg2: SurvivalData
) -> None:
    late = np.where(np.arange(len(gbsg2)) % 2 == 0, 0.5 * gbsg2.time, 0.0)
    table = gbsg2.frame[["age", "pnodes"]].assign(time=gbsg2.time, event=gbsg2.event.astype(int), start=late)
    table.to_csv(tmp_path / "cohort.csv", index=False)
    options = ["experiment=quick", *SMALL, "dataset=csv", f"dataset.path={tmp_path / 'cohort.csv'}"]
    options += ["leaf=gompertz", "logger=none"]
    assert _sstorch(monkeypatch, tmp_path / "late", *options, "dataset.entry=start") == 0
    told = capsys.readouterr()
    assert "343 rows with late entry" in told.out
    assert "Brier scores do not and are nan" in told.err
    assert "nan (nan)" in told.out
    table.loc[3, "start"] = 1e6
    table.to_csv(tmp_path / "cohort.csv", index=False)
    assert _sstorch(monkeypatch, tmp_path / "bad", *options, "dataset.entry=start") == 2
    assert "entry column 'start' is not before the time in 1 row" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


# ---------------------------------------------------------------------- configuration


def test_yaml_defaults_equal_the_schemas() -> None:
    config = compose()
    for group in dataclasses.fields(Config):
        ours = getattr(config, group.name)
        if not dataclasses.is_dataclass(ours):
            continue
        for item in dataclasses.fields(ours):
            if item.name not in ("name", "options"):
                default = item.default if item.default is not dataclasses.MISSING else item.default_factory()  # type: ignore[misc]
                assert getattr(ours, item.name) == default, (group.name, item.name)


def test_command_line_and_python_begin_with_the_same_tree() -> None:
    trees = [compose().estimator(), PrognosticTree()]
    ours, plain = (tree._batch_settings() for tree in trees)
    assert type(trees[0]) is PrognosticTree
    assert (ours.trainer, ours.prediction) == (plain.trainer, plain.prediction)
    assert dict(plain_values(ours.facts(), "tree")) == dict(plain_values(plain.facts(), "tree"))


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        (["trainer=nodec"], Nodec),
        (["trainer=joint", "trainer.max_iterations=7"], Joint),
        (["trainer=nodec_joint", "trainer.zeta=0.9"], NodecJoint),
    ],
)
def test_every_trainer_is_built_from_its_configuration(overrides: list[str], kind: type[Trainer]) -> None:
    trainer = compose(*overrides).trainer.build()
    assert type(trainer) is kind
    if isinstance(trainer, Joint):
        assert trainer.lbfgs.max_iterations == 7
    if isinstance(trainer, NodecJoint):
        assert trainer.nodec.zeta == 0.9


def test_every_leaf_is_an_option_with_all_its_options() -> None:
    assert set(REGISTERED["leaf"]) == {"auto", *FAMILIES}
    for name, family in FAMILIES.items():
        leaf = REGISTERED["leaf"][name].build()
        assert isinstance(leaf, HazardFamily)
        assert (leaf.name, leaf.options()) == (name, family().options())
    assert compose("leaf=weibull").leaf == REGISTERED["leaf"]["weibull"]
    config = compose("leaf=spline_po", "leaf.options.knots=3", "leaf.options.ancillary=linear")
    assert config.estimator().leaf.options() == {"knots": 3, "monotone": True, "ancillary": "linear"}


def test_every_data_set_is_an_option(all_night: bool) -> None:
    names = sorted(REGISTERED["dataset"])
    assert set(names) == {*list_datasets()["name"], "csv"}
    for name in names if all_night else names[::8]:
        assert compose(f"dataset={name}").dataset == DatasetConfig(name)


def test_options_of_pandas_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cohort.csv"
    file.write_text("crp;time;event\n0,5;5;1\n12,25;3;0\n1.970,5;7;1\n")
    own = ["dataset=csv", f"dataset.path={file}"]
    with pytest.raises(DataError, match=r"give 'dataset\.read={thousands:\"\.\",decimal:\",\"}'"):
        compose(*own).dataset.load()
    read = 'dataset.read={sep: ";", decimal: ",", thousands: "."}'
    assert compose(*own, read).dataset.load().frame["crp"].tolist() == [0.5, 12.25, 1970.5]
    file.write_text("crp;time;event\n1.970;5;1\n658;3;0\n")
    with pytest.raises(DataError, match=r"dataset\.read={thousands:\"\.\"}.* .dataset\.read={decimal:"):
        compose(*own).dataset.load()


@pytest.mark.parametrize("group", ["tree", "leaf", "trainer", "init", "cv", "device", "logger", "fairness"])
def test_every_option_of_every_group_fits_its_schema(group: str, all_night: bool) -> None:
    options = Path(__file__).parents[2] / "configs" / group
    names = sorted({path.stem for path in options.glob("*.yaml")} | set(REGISTERED.get(group, ())))
    assert names
    for name in names if all_night else names[::4]:
        assert isinstance(compose(f"{group}={name}"), Config)


@pytest.mark.parametrize(("leaf", "init"), [("log_logistic", "random"), ("spline_po", "cox")])
def test_the_paper_preset_is_the_same_on_the_command_line_and_in_python(leaf: str, init: str) -> None:
    config = compose("experiment=paper", f"leaf={leaf}", f"init={init}", "tree=depth1")
    ours, theirs = config.estimator().get_params(), SoftSurvivalTree.paper(1, leaf).get_params()
    for tree in (ours, theirs):
        tree["penalties"], tree["columns"] = (tree[name].get_params() for name in ("penalties", "columns"))
        tree["leaf"] = (make_family(tree["leaf"]).name, make_family(tree["leaf"]).options())
    assert ours["trainer"].engine == "compiled"  # where the study is computed, no part of the method
    ours["trainer"] = replace(ours["trainer"], engine="auto")
    assert ours == theirs
    trainer = ours["trainer"]
    assert trainer == Nodec.paper()
    assert trainer.thresholds == Thresholds(0.1, 0.3, 0.4)
    assert (trainer.macro_iterations, trainer.patience, trainer.zeta) == (10, None, 0.8)
    penalties = [ours[f"penalties__{name}"] for name in ("ridge", "gate_ridge", "fused", "gate_sparsity")]
    assert penalties == [1e-3, 1e-3, 0.0, 0.0]
    assert (config.cv.n_folds, config.cv.n_starts, trainer.holdout) == (5, 20, 0.0)
    # What the user says wins.
    config = compose(
        "experiment=paper", "cv=three_folds", "tree.gate_ridge=0.5", "trainer.macro_iterations=2"
    )
    assert (config.cv.n_folds, config.tree.gate_ridge, config.trainer.macro_iterations) == (3, 0.5, 2)
    assert config.estimator().penalties.gate_ridge == 0.5


def test_three_folds_leave_the_model_as_it_is() -> None:
    default, chosen = compose(), compose("cv=three_folds")
    assert (chosen.cv.n_folds, str(chosen.estimator())) == (3, str(default.estimator()))


@pytest.mark.nightly
def test_a_run_with_a_sensitive_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = ("fairness=l2", "fairness.sensitive=menostat", "fairness.rho=0.01", *SMALL)
    assert _sstorch(monkeypatch, folder, "experiment=quick", "logger=none", "tree=depth0", *options) == 0
    out = capsys.readouterr().out
    assert "686 rows, 7 features" in out
    assert "groups   menostat: 396 Post, 290 Pre" in out
    assert "parity" in out
    scores = pd.read_csv(folder / "scores.csv")
    assert {"parity", "gini_weighted", "c_gap", "c_harrell:Pre"} <= set(scores)
    leaves = pd.read_csv(folder / "leaf_groups.csv", index_col=[0, 1, 2])
    assert leaves.loc[("all-rows", "train", 1), "rows"] == 686
    assert leaves.loc[("all-rows", "train", 1), "menostat=Pre"] == pytest.approx(290 / 686, rel=1e-4)
    kept = compose("dataset=gbsg2", *options, "fairness.feature=true").load()
    assert "menostat" in kept.feature_names


def test_fairness_is_built_from_its_configuration() -> None:
    assert compose().fairness.build() is None
    config = compose("fairness=l2_relaxed", "fairness.sensitive=sex", "fairness.rule=observed_times")
    assert config.fairness.build() == L2Parity(gates="relaxed", rule="observed_times")
    assert config.estimator().penalties.rho == 1.0
    with pytest.raises(ConfigError, match=r"fairness=l2 needs fairness\.sensitive=COLUMN"):
        compose("fairness=l2").estimator()
    with pytest.raises(ConfigError, match=r"fairness\.rho is not used by fairness=none"):
        compose("fairness.rho=3").estimator()
    with pytest.raises((ConfigError, DataError), match="gender"):
        compose("fairness=l2", "fairness.sensitive=gender").load()


def test_unemployment_has_its_sensitive_column_when_asked() -> None:
    pytest.importorskip("SurvSet", reason="Unemployment comes with SurvSet")
    with pytest.warns(DataWarning, match="2 events at time zero"):
        data = compose("dataset=unemployment", "fairness=l2", "fairness.sensitive=sex").load()
    assert data.groups is not None
    assert dict(zip(data.groups.labels, data.groups.counts, strict=True)) == {"male": 242, "female": 210}
    assert "sex" not in data.feature_names
