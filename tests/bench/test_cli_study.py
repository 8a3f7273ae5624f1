"""Studies on the command line: a first run, a second one, kill -9, and what is refused."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import pytest
import yaml

from sstorch import SoftSurvivalTree
from sstorch.bench import ResultStore
from sstorch.bench.study import study_models
from sstorch.exceptions import DataWarning
from sstorch.nn import make_family
from sstorch.optim import Nodec
from tests.app import compose, composed, sstorch
from tests.bench.conftest import App, Refused
from tests.conftest import nightly

PAPER_SETS = {
    "aids", "aids2", "aids_death", "churn", "credit", "dialysis", "employee", "flchain", "framingham",
    "gbsg2", "maintenance", "uissurv", "unempdur", "veterans", "whas500",
}  # fmt: skip
SMALL = [
    "cv=three_folds",
    *(
        f"+study.models.{name}={{_target_: sstorch.SoftSurvivalTree, leaf: {leaf}, depth: {depth}, "
        "init: random, n_starts: 2, trainer: joint, "
        "penalties: {_target_: sstorch.GatePenalties, gate_ridge: 1.0e-4}}"
        for name, leaf, depth in (("exp", "exponential", "[0, 1]"), ("po", "spline_po", 1))
    ),
    "study.only=[exp, po, kaplan_meier]",
]


@pytest.fixture(scope="module")
def options(cohort: Path) -> list[str]:
    """A small study of a file."""
    source = f"dataset=csv dataset.path={cohort} dataset.time=days dataset.event=died"
    return ["experiment=own", *source.split(), *SMALL]


@pytest.fixture(scope="module")
def undisturbed(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "run"
    with pytest.MonkeyPatch.context() as patch:
        assert sstorch(patch, *options, f"study.folder={folder}") == 0
    return folder


def test_a_study_continues_where_it_was(undisturbed: Path, options: list[str], app: App) -> None:
    before = ResultStore(undisturbed).table()
    assert yaml.safe_load((undisturbed / "config.yaml").read_text())["study"]["models"]["po"]["depth"] == 1
    code, out, _ = app(*options, f"study.folder={undisturbed}")
    assert code == 0
    assert "1 data sets x 4 models on 3 folds" in out
    assert "tasks    4, of which 4 are in" in out
    table = {line.rsplit(maxsplit=5)[0]: line.split()[-5:] for line in out.splitlines()[3:] if " ." in line}
    scores = before[before["part"] == "test"].groupby(["model", "depth", "metric"])["value"].mean()
    for name in ("exp", "po"):
        expected = scores[name, 1][["c_harrell", "ibs_graf", "c_groups", "n_groups", "ari"]].round(3)
        assert [float(text.rstrip("*")) for text in table[f"{name} D1"]] == expected.tolist()
    assert table["Kaplan-Meier"][2:] == table["exp D0"][2:] == ["\N{EN DASH}"] * 3
    assert ResultStore(undisturbed).table().equals(before)


@pytest.mark.nightly
def test_a_study_killed_three_times_ends_with_the_same_table(
    undisturbed: Path, options: list[str], tmp_path: Path, app: App
) -> None:
    folder = tmp_path / "run"
    store = ResultStore(folder)

    def n_results() -> int:
        return len(list(store.results.glob("*/*.parquet")))

    study = [f"study.folder={folder}", "study.n_jobs=2"]
    command = [sys.executable, "-m", "sstorch.bench.cli", *options, *study]
    for n_before in (0, 1, 2):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 120
            while n_results() <= n_before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
        assert n_results() > n_before
    assert app(*options, f"study.folder={folder}")[0] == 0
    assert store.table().equals(ResultStore(undisturbed).table())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("++study.models.kaplan_meier.name=random_walk", "random_walk"),
        ("++study.models.exp.deepth=3", "Did you mean 'study.models.exp.depth'?"),
        ("study.only=[coks]", "no model 'coks' in"),
        ("study.datasets=[gbsg3]", "no data set 'gbsg3'"),
        ("study.datasets=[gbsg2]", "dataset=csv dataset.path="),
        ("dataset.sensitive=ward", "leave dataset.sensitive out"),
        ("study.folder=FILE", "Not a directory"),
        ("++study.models.po.penalties.fairness=l2_relaxed", "studies have no sensitive groups"),
        (
            "++study.models.exp.columns={_target_: sstorch.Columns, numeric: {x: spline}}",
            "exp: numeric names 'x'; the columns are 'age', 'shock', 'ward'",
        ),
    ],
)
def test_invalid_studies_raise_in_one_line_before_any_work(
    change: str, message: str, options: list[str], tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "file").write_text("")
    place = [f"hydra.run.dir={tmp_path}", f"study.folder={tmp_path / 'run'}"]
    # Settings of a data set in addition to a list of them are not read, either.
    own = [text for text in options if not ("gbsg3" in change and text.startswith("dataset"))]
    change = change.replace("FILE", str(tmp_path / "file"))
    assert message in refused(*own, *place, change)
    assert not (tmp_path / "run" / "results").exists()


@pytest.mark.parametrize("experiment", [nightly("paper"), "paper_quick"])
def test_the_paper_studies_are_those_of_the_paper(experiment: str) -> None:
    pytest.importorskip("sksurv")
    config = compose(f"experiment={experiment}")
    assert config.study is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[rc].* is left out", DataWarning)  # without R
        models = {(model.name, model.depth): model for model in study_models(config, config.study)}
    trees = {"sst_exp", "sst_weibull", "sst_llog", "sst_llog_kmeans", "sst_po", "sst_ph"}
    assert {name for name, depth in models if depth in (1, 2)} >= trees
    assert {("sksurv", depth) for depth in (2, 3, 4, 5)} | {("cox", None), ("rsf", None)} <= set(models)
    quick = experiment == "paper_quick"
    for (name, depth), model in models.items():
        if name in trees:
            tree = model.estimator
            assert (tree.n_starts, tree.depth) == (4 if quick else 20, depth)
            assert dataclasses.replace(tree.trainer, engine="auto") == Nodec()
            assert tree.penalties == SoftSurvivalTree.paper().penalties
            expected = {"sst_llog_kmeans": "kmeans", "sst_po": "cox", "sst_ph": "cox"}.get(name, "random")
            assert tree.init == expected
            assert make_family(tree.leaf).name.startswith(
                {"sst_po": "spline", "sst_ph": "spline"}.get(name, "")
            )
    datasets = set(config.study.datasets or ())
    assert datasets < PAPER_SETS if quick else datasets == PAPER_SETS
    assert config.cv.n_folds == 5


@pytest.mark.parametrize(
    ("launcher", "kind"), [("joblib", "Joblib"), ("submitit_local", "Local"), ("slurm", "Slurm")]
)
def test_launchers_compose(launcher: str, kind: str) -> None:
    package = "joblib" if launcher == "joblib" else "submitit"
    pytest.importorskip(f"hydra_plugins.hydra_{package}_launcher", reason="comes with the extra cluster")
    whole = composed(f"hydra/launcher={launcher}", "experiment=paper", return_hydra_config=True)
    assert whole.hydra.launcher._target_.endswith(f"{kind}Launcher")


@pytest.mark.nightly  # processes of a launcher load torch once more; test_launchers_compose is daily
def test_runs_over_data_sets_by_the_joblib_launcher(tmp_path: Path, app: App) -> None:
    names, leaves = ["gbsg2", "whas500", "veterans"], ["exponential", "weibull"]
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="comes with the extra cluster")
    pytest.importorskip("sksurv")
    settings = ["experiment=quick", "model.n_starts=1", "cv.n_folds=2", "cv.peers=false", "logger=none"]
    launcher = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={tmp_path}"]
    swept = [f"dataset={','.join(names)}", f"model.leaf={','.join(leaves)}"]
    assert app(*launcher, *settings, *swept)[0] == 0
    for job, (name, leaf) in enumerate(itertools.product(names, leaves)):
        config = yaml.safe_load((tmp_path / str(job) / "config.yaml").read_text())
        assert (config["dataset"]["name"], config["model"]["leaf"]) == (name, leaf)
        assert (tmp_path / str(job) / "scores.csv").is_file()
    alone = [f"dataset={names[1]}", "model.leaf=exponential", f"hydra.run.dir={tmp_path / 'alone'}"]
    assert app(*settings, *alone)[0] == 0
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "alone" / "scores.csv"),
        pd.read_csv(tmp_path / str(len(leaves)) / "scores.csv"),
    )
