"""The app as a user meets it: a whole run, bad input, Ctrl-C, a user's own classes."""

import io
import json
import re
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.bench.config import DatasetConfig, build
from sstorch.bench.cross_validation import held_out_score
from sstorch.bench.reporting import load_model
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.scores import SCORES
from sstorch.data import list_datasets
from sstorch.exceptions import ConfigError
from sstorch.nn import Spline
from sstorch.optim import Nodec
from sstorch.optim.run import opened
from tests.app import compose, sstorch
from tests.bench.conftest import App, Refused

# Of a run whose results are not looked at: two folds and a tree each.
SMALL = ("experiment=quick", "logger=none", "cv.n_folds=2", "model.n_starts=1", "cv.peers=false")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """One quick run of the default data set: folder, output, notes."""
    folder, out, err = tmp_path_factory.mktemp("app") / "run", io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        assert sstorch(patch, "experiment=quick", f"hydra.run.dir={folder}") == 0
    return folder, out.getvalue(), err.getvalue()


def test_what_a_run_prints(run: tuple[Path, str, str]) -> None:
    folder, out, err = run
    for said in ("686 rows, 8 features", "trees    8: (3 folds + all rows) x 2 starts, cpu", *SCORES):
        assert said in out
    table = out[out.index("Compared with reference models") :].splitlines()[2:5]
    assert [line.split("  ")[0] for line in table] == ["Kaplan-Meier", "Cox", "tree"]
    assert "\nSoft survival tree: 686 rows, 299 events\nGroup 1: " in out
    assert re.search(r"\nGroup \d: .*\b686 rows, \d+ events, Kaplan-Meier survival ", out)
    assert out.splitlines()[-1].startswith("done: 8 trees trained and scored in ")
    assert str(folder) in out.splitlines()[-1]
    assert f"training curves: tensorboard --logdir {folder / 'tensorboard'}" in out
    assert "pass 2/2 of 8 trees: objective " in err
    assert "\r" not in err  # no terminal, so plain lines


def test_the_folder_of_a_run(run: tuple[Path, str, str], gbsg2: SurvivalData) -> None:
    folder = run[0]
    status = RunFolder(folder).read_status()
    assert (status["status"], status["trees"]) == ("completed", 8)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["model"]["depth"], config["model"]["n_starts"]) == (1, 2)
    assert config["cv"] == {"n_folds": 3, "seed": 0, "peers": True, "score": None}
    assert list(pd.read_csv(folder / "peers.csv")["model"].unique()) == ["Kaplan-Meier", "Cox", "tree"]
    assert len(pd.read_csv(folder / "held_out.csv")) == 686
    assert pd.read_csv(folder / "folds.csv")["fold"].value_counts().between(228, 229).all()
    scores = pd.read_csv(folder / "scores.csv")
    assert len(scores) == 3 * 2 * 2
    assert np.isfinite(scores[list(SCORES)]).all(axis=None)
    test = scores[scores["part"] == "test"]
    best = test.groupby("fold")["objective"].transform("min") == test["objective"]
    assert (best == test["chosen"]).all()
    model = load_model(folder / "model")
    assert model.summary(details=True) == (folder / "tree.txt").read_text().rstrip("\n")
    assert model.predict(gbsg2.frame).shape == (686,)
    mean = test.loc[test["chosen"], "c_harrell"].mean()
    assert model.metrics_["cross_validated_c_harrell"] == pytest.approx(mean, rel=1e-9)
    assert (folder / "figures" / "groups.png").stat().st_size > 5000


def test_tensorboard_has_the_loss_of_every_node(run: tuple[Path, str, str]) -> None:
    folder = run[0]
    names = ["all-rows", "fold-0", "fold-1", "fold-2"]
    assert sorted(path.name for path in (folder / "tensorboard").iterdir()) == names
    scores = pd.read_csv(folder / "scores.csv").query("part == 'test'").groupby("fold")["c_harrell"].mean()
    for fold, name in enumerate(names, -1):
        board = EventAccumulator(str(folder / "tensorboard" / name)).Reload()
        tags = set(board.Tags()["scalars"])
        assert {"train/objective", "train/best_objective", "gate/1/left_share"} <= tags
        assert {"leaf/2/share", "leaf/3/share", "node/1/LN/objective"} <= tags
        assert [event.step for event in board.Scalars("train/objective")] == [0, 1, 2]
        best = [event.value for event in board.Scalars("train/best_objective")]
        assert best[2] <= best[0]
        if fold < 0:
            assert len(board.Images("groups")[0].encoded_image_string) > 5000
        if fold >= 0:
            assert board.Scalars("final/c_harrell")[0].value == pytest.approx(scores[fold], rel=1e-6)


# ---------------------------------------------------------------------- refusals

FEW_EVENTS = "age,time,event\n" + "".join(f"{7 * k % 5},{k + 1},{int(k < 3)}\n" for k in range(30))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("age,time,event\n40,5,1\n50,long,0\n60,7,1\n", ["time", "long"]),
        ("", ["empty"]),
        ("age,time,event\n40,4,1\n50,3,2\n41,7,2\n", ["event", "event_value=2"]),
        (FEW_EVENTS, ["event", "fewer folds"]),
    ],
)
def test_hostile_files_raise_in_one_line(
    content: str, words: list[str], tmp_path: Path, refused: Refused
) -> None:
    file, folder = tmp_path / "cohort.csv", tmp_path / "run"
    file.write_text(content)
    line = refused(f"hydra.run.dir={folder}", "dataset=csv", f"dataset.path={file}")
    assert all(word in line for word in words)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["dataset=csv"], "dataset=csv needs dataset.path"),
        (["dataset=csv", "dataset.path=/no.csv"], "/no.csv: no such file"),
        (["dataset=gbsg"], "Could not find 'dataset/gbsg' Available options in 'dataset': aids"),
        (["model.depth=9"], "depth must be an integer from 0 to 6"),
        (["model.depth=1,2"], "Ambiguous value for argument 'model.depth=1,2'"),
        (["model.depth"], "missing EQUAL at '<EOF>': write NAME=VALUE"),
        (["model.leaf=gauss"], "unknown leaf"),
        (["dataset.path=cohort.csv"], "dataset.path describes a file and is not used by dataset=gbsg2"),
        (["threads=0"], "`threads` must be at least 1"),
        (["cv.n_folds=five"], "cv.n_folds: Value 'five'"),
        (["study.n_jobs=2"], "a setting of study was given, but no study"),
        (["model.leaf={_target_: sstorch.nn.Spline, knot: 3}"], "Did you mean 'model.leaf.knots'?"),
        (["model.dept=3"], "there is no setting model.dept. Did you mean 'model.depth'?"),
        (["deth=1"], "there is no setting deth. Did you mean 'model.depth'?"),
        (["+foo=1"], "there is no setting foo. --cfg job shows the settings."),
        (["model=paper", "model.penalties.ridge=1"], "model.penalties must have a _target_, such as sstorch"),
        (["model._target_=sstorch.SoftSurvivalTre"], "Did you mean 'SoftSurvivalTree'"),
        (["model=custom", "model._target_=builtins.dict"], "model must be an estimator with fit(X, y)"),
        (["imports=[no_such_module]"], "module 'no_such_module' cannot be imported"),
        (["model.penalties.fairness=l2"], "model.penalties.fairness needs dataset.sensitive=COLUMN"),
        pytest.param(
            ["device=cuda"],
            "torch sees no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device"),
        ),
    ],
)
def test_bad_settings_raise_before_anything_is_written(
    overrides: list[str], message: str, tmp_path: Path, refused: Refused
) -> None:
    assert message in refused(f"hydra.run.dir={tmp_path / 'run'}", *overrides)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_left_as_it_is(
    run: tuple[Path, str, str], app: App, refused: Refused
) -> None:
    files = {path: path.stat().st_mtime_ns for path in run[0].rglob("*")}
    place = f"hydra.run.dir={run[0]}"
    other = "of another configuration or other data: config.model.depth is 1 there"
    for override, message in (("model.depth=2", other), ("model.depth=9", "depth must be")):
        assert message in refused(place, "experiment=quick", override)
    code, out, _ = app(place, "experiment=quick", "logger=none", "cv.peers=false", "cv.score=ibs_graf")
    assert (code, out.count("\n")) == (0, 1)
    assert out.endswith("contains this run, already completed; its files stay as they are\n")
    assert {path: path.stat().st_mtime_ns for path in run[0].rglob("*")} == files


def test_status_of_a_run_that_was_killed_is_stopped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin("a: 1")
    other = RunFolder(folder.path)
    with opened(folder.checkpoint):
        assert other.status == "running"
    assert other.status == "stopped"
    folder.write_status("completed", data="digest")
    assert other.status == "completed"
    assert not folder.end_early("failed")
    of_no_tree = "{a: 1, peers: {b: 1}, cv: {peers: true, score: c_uno}, dataset: {time_unit: days}}"
    for text in ("a: 1", of_no_tree):
        assert other.is_completed(text, "digest")
    seeded = "config.cv.seed is missing there and 1 here"
    for text, data, message in (
        ("a: 1", "other", "data have changed"),
        ("a: 2", "digest", "config.a is 1"),
        ("{a: 1, cv: {seed: 1, peers: true}}", "digest", seeded),
    ):
        with pytest.raises(ConfigError, match=message):
            other.is_completed(text, data)


# ---------------------------------------------------------------------- defects

BROKEN = Mock(side_effect=ZeroDivisionError("a defect"))


def test_a_defect_is_noted_in_the_folder_and_keeps_its_traceback(
    tmp_path: Path, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sstorch.bench.run.cross_validate", BROKEN)
    with pytest.raises(ZeroDivisionError):
        app(f"hydra.run.dir={tmp_path / 'run'}", "experiment=quick")
    status = RunFolder(tmp_path / "run").read_status()
    assert status == {"status": "failed", "error": "a defect"}


def test_an_interrupted_run_says_how_to_continue(
    tmp_path: Path, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sstorch.bench.run.cross_validate", Mock(side_effect=KeyboardInterrupt))
    code, _, err = app(f"hydra.run.dir={tmp_path / 'a run'}", "experiment=quick")
    assert code == 130
    assert f"the same command with 'hydra.run.dir={tmp_path / 'a run'}' continues from there" in err
    assert RunFolder(tmp_path / "a run").read_status() == {"status": "interrupted"}


def test_a_sweep_tells_of_every_defect(tmp_path: Path, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sstorch.bench.run.cross_validate", BROKEN)
    swept = ["experiment=quick", "logger=none", "model.depth=0,1", f"hydra.sweep.dir={tmp_path}"]
    code, _, err = app("-m", *swept)
    assert code == 1
    assert err.count("ZeroDivisionError: a defect") == 2
    for job in "01":
        assert f"sstorch: error: job {job} (experiment=quick logger=none model.depth={job}): failed" in err
        assert json.loads((tmp_path / job / "status.json").read_text())["status"] == "failed"


# ---------------------------------------------------------------------- data


@pytest.mark.filterwarnings("default::sstorch.exceptions.DataWarning")
def test_a_file_with_entry_times(tmp_path: Path, app: App, refused: Refused, gbsg2: SurvivalData) -> None:
    late, file = np.where(np.arange(len(gbsg2)) % 2 == 0, 0.5 * gbsg2.time, 0.0), tmp_path / "cohort.csv"
    table = gbsg2.frame[["age", "pnodes"]].assign(time=gbsg2.time, event=gbsg2.event.astype(int), start=late)
    table.to_csv(file, index=False)
    options = [*SMALL, "dataset=csv", f"dataset.path={file}", "model.leaf=gompertz", "dataset.entry=start"]
    code, out, err = app(*options, f"hydra.run.dir={tmp_path / 'late'}")
    assert code == 0
    assert "343 rows with late entry" in out
    assert "Brier scores do not and are nan" in err
    assert "nan (nan)" in out
    table.loc[3, "start"] = 1e6
    table.to_csv(file, index=False)
    message = f"{file}: entry column 'start' is not before the time in 1 row"
    assert message in refused(*options, f"hydra.run.dir={tmp_path / 'bad'}")


def test_every_data_set_is_an_option(all_night: bool) -> None:
    names = sorted({*list_datasets()["name"], "csv"})
    for name in names if all_night else names[::8]:
        assert compose(f"dataset={name}").dataset == DatasetConfig(name)


@pytest.mark.nightly
def test_a_run_with_a_sensitive_column(tmp_path: Path, app: App) -> None:
    folder = tmp_path / "run"
    fair = ["model.penalties.fairness=l2", "model.penalties.rho=0.01", "dataset.sensitive=menostat"]
    code, out, _ = app(*SMALL, *fair, "model.depth=0", f"hydra.run.dir={folder}")
    assert code == 0
    for said in ("686 rows, 7 features", "groups   menostat: 396 Post, 290 Pre", "parity"):
        assert said in out
    scores = pd.read_csv(folder / "scores.csv")
    assert {"parity", "gini_weighted", "c_gap", "c_harrell:Pre"} <= set(scores)
    kept = compose("dataset=gbsg2", *fair, "dataset.sensitive_feature=true").dataset.load()
    assert "menostat" in kept.feature_names


# ---------------------------------------------------------------------- nodes

OWN = """
import numpy as np
from sklearn.base import BaseEstimator

from sstorch.monitoring import Callback
from sstorch.nn import Weibull, register_family
from sstorch.objective import LeafPenalty
from sstorch.optim import Nodec


class Curve(BaseEstimator):
    def __init__(self, rate=1.0):
        self.rate = rate

    def fit(self, X, y):
        self.hazard_ = self.rate * y.event.sum() / y.time.sum()
        return self

    def predict_survival_function(self, X, times):
        return np.exp(-self.hazard_ * np.asarray(times))[None].repeat(len(X), axis=0)


class Rising(Curve):
    def predict_survival_function(self, X, times):
        return 2 - super().predict_survival_function(X, times)


class Timeless(Curve):
    def predict_survival_function(self, X):
        return np.ones((len(X), 1))


@register_family
class MyWeibull(Weibull):
    name = "my_weibull"


class MyTrainer(Nodec):
    pass


class MyPenalty(LeafPenalty):
    def forward(self, leaves):
        return self.at(leaves.intercept) * leaves.intercept.diff(dim=-1).square().sum(-1)


class Lines(Callback):
    def __init__(self, path):
        self.path = path

    def on_macro_iteration(self, macro_iteration, history):
        with open(self.path, "a") as file:
            print(macro_iteration, file=file)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a module of a user's classes and a configuration."""
    (tmp_path / "own_classes.py").write_text(OWN)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text("_target_: own_classes.Curve\nrate: 2.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_classes", raising=False)
    return tmp_path


def test_models_of_the_configuration_are_those_of_python() -> None:
    usual = {
        "soft_tree": SoftSurvivalTree(trainer=Nodec()),
        "prognostic_tree": PrognosticTree(),
        "regression": SurvivalRegression(),
        "paper": SoftSurvivalTree.paper(),
    }
    for name, plain in usual.items():
        made = build(compose(f"model={name}").model, "model")
        assert type(made) is type(plain)
        assert made._batch_settings() == plain._batch_settings(), name
    assert compose().model == compose("model=soft_tree").model
    files = {path.stem for path in (Path(__file__).parents[2] / "configs" / "model").glob("*.yaml")}
    assert files == {*usual, "custom"}


def test_parameters_of_a_node_are_objects() -> None:
    typed = ["model.leaf={_target_: sstorch.nn.Spline, scale: odds, knots: 3}", "model.trainer.zeta=0.9"]
    typed += ["model.columns.numeric={age: spline:5, pnodes: log}", "model.min_leaf=0.1"]
    made = build(compose(*typed, "model.penalties.ridge=1e-3").model, "model")
    assert isinstance(made.leaf, Spline)
    assert made.leaf.options()["knots"] == 3
    assert made.trainer == Nodec(zeta=0.9)
    assert (made.penalties.ridge, made.min_leaf) == (1e-3, 0.1)
    assert made.columns.numeric == {"age": "spline:5", "pnodes": "log"}


def test_family_trainer_penalty_and_callback_of_a_user(own: Path, app: App) -> None:
    typed = [
        "model.leaf={_target_: own_classes.MyWeibull}",
        "model.trainer._target_=own_classes.MyTrainer",
        "model.penalties.own=[{_target_: own_classes.MyPenalty, coefficient: 0.5}]",
        "callbacks.lines={_target_: own_classes.Lines, path: lines.txt}",
    ]
    code, out, err = app(*SMALL, "imports=[own_classes]", *typed, f"hydra.run.dir={own / 'run'}")
    assert code == 0, err
    assert "own=[MyPenalty(" in out
    assert "trainer=MyTrainer(" in out
    model = load_model(own / "run" / "model")
    assert [module.family.name for module in model.tree_.hazards.values()] == ["my_weibull"]
    assert (own / "lines.txt").read_text() == "0\n1\n2\n"
    assert (own / "run" / "scores.csv").is_file()


def test_estimator_of_a_user_is_scored_on_the_folds(own: Path, app: App) -> None:
    typed = ["model=custom", "model._target_=own_classes.Curve", "cv.n_folds=3", "peers=null", "logger=none"]
    code, out, err = app(*typed, f"hydra.run.dir={own / 'run'}")
    assert code == 0, err
    assert "model    Curve()" in out
    table = pd.read_csv(own / "run" / "peers.csv").groupby("model")["c_harrell"].mean()
    assert table["tree"] == table["Kaplan-Meier"] == 0.5
    assert len(pd.read_csv(own / "run" / "held_out.csv")) == 686
    for override, message in (
        ("model.rat=2", "there is no setting model.rat. Did you mean 'model.rate'?"),
        ("model._target_=own_classes.Rising", "must return probabilities in [0, 1], got 1"),
        ("model._target_=own_classes.Timeless", "predict_survival_function(X): add times"),
    ):
        code, _, err = app(*typed, override, f"hydra.run.dir={own / 'other'}")
        assert code == 2
        assert message in err


@pytest.mark.parametrize("searched", [["--config-dir", "conf"], ["hydra.searchpath=[file://conf]"]])
def test_folder_of_a_user_has_configurations(searched: list[str], own: Path, app: App) -> None:
    code, out, err = app(*searched, "model=mine", "--cfg", "job")
    assert code == 0, err
    assert yaml.safe_load(out)["model"] == {"_target_": "own_classes.Curve", "rate": 2.0}


# ---------------------------------------------------------------------- sweeps


def test_application_returns_the_mean_held_out_score(
    run: tuple[Path, str, str], app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, values = pd.read_csv(run[0] / "scores.csv"), []
    chosen = scores[scores["chosen"] & (scores["part"] == "test")]
    assert held_out_score(scores) == pytest.approx(chosen["c_harrell"].mean(), rel=1e-12)
    assert held_out_score(scores, "ibs_graf") == pytest.approx(chosen["ibs_graf"].mean(), rel=1e-12)
    causes = scores.rename(columns={"c_harrell": "ibs:relapse", "ibs_graf": "ibs:death"})
    both = chosen[["c_harrell", "ibs_graf"]].to_numpy().mean()
    assert held_out_score(causes, "ibs") == pytest.approx(both, rel=1e-12)
    with pytest.raises(ConfigError, match=r"`cv\.score` must be one of .*c_harrell"):
        held_out_score(scores, "accuracy")

    def ended(self: Callback, config: object, job_return: JobReturn, **_: object) -> None:
        values.append(job_return.return_value)

    monkeypatch.setattr(Callback, "on_job_end", ended)
    heard = "+hydra.callbacks.value={_target_: hydra.experimental.callback.Callback}"
    assert app(f"hydra.run.dir={run[0]}", "experiment=quick", heard)[0] == 0
    assert values == [pytest.approx(held_out_score(scores), rel=1e-12)]


@pytest.mark.nightly
def test_optuna_chooses_by_the_value_of_the_application(tmp_path: Path, app: App) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="comes with the extra cluster")
    sweep = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=5", "hydra.sweeper.direction=maximize"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a release of Optuna that its sweeper needs
        swept = ["model.depth=choice(0,1)", f"hydra.sweep.dir={tmp_path}"]
        assert app("-m", *SMALL, *sweep, *swept)[0] == 0
    found = yaml.safe_load((tmp_path / "optimization_results.yaml").read_text())
    values = [held_out_score(pd.read_csv(tmp_path / str(job) / "scores.csv")) for job in range(5)]
    assert found["best_value"] == pytest.approx(max(values), rel=1e-12)
    best = yaml.safe_load((tmp_path / str(int(np.argmax(values))) / "config.yaml").read_text())
    assert best["model"]["depth"] == found["best_params"]["model.depth"]
