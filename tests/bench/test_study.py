"""Studies: planned before any work, the same however and wherever they are carried out."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone

from sstorch import SoftSurvivalTree, Surv, SurvivalData, metrics
from sstorch.bench import ResultStore
from sstorch.bench.baselines import models as r_trees
from sstorch.bench.config import DatasetConfig
from sstorch.bench.cross_validation import make_folds
from sstorch.bench.models import StudyModel, models_of
from sstorch.bench.scores import CURVE_SCORES, GROUP_SCORES, TRAIN_SCORES, RowsToScore
from sstorch.bench.study import Outcome, devices_of, plan
from sstorch.bench.study import run_tasks as run
from sstorch.data import Schema
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.soft.batch import train_batch
from tests.flat import soft_tree_models

TREES = {"sst_exp": {"leaf": "exponential", "depth": [0, 1]}, "sst_po": {"leaf": "spline_po", "init": "cox"}}
SHARED = {"depth": 1, "trainer": "joint", "n_starts": 2, "gate_ridge": 1e-4}


@pytest.fixture
def source(cohort: Path, tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("csv", shutil.copy(cohort, tmp_path), time="days", event="died")


def baseline_models(entries: dict, seed: int) -> list[StudyModel]:
    target = "sstorch.bench.make_baseline"
    made = [models_of(k, {"_target_": target, "name": k, **v}, seed, k) for k, v in entries.items()]
    return [model for models in made for model in models]


def _models() -> list:
    return soft_tree_models(SHARED, TREES) + baseline_models({"kaplan_meier": {}}, seed=0)


def _run(source: DatasetConfig, folder: Path, n_jobs: int = 1) -> list[Outcome]:
    store, told = ResultStore(folder), []
    tasks = plan([source], _models(), 3, 0, store)
    assert run(tasks, store, ["cpu"] * n_jobs, told.append) == []
    return told


def test_a_study_stores_every_score_and_does_nothing_twice(source: DatasetConfig, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    told = _run(source, folder)
    assert [str(outcome.task.key) for outcome in told] == [
        "cohort sst_exp of depth 0",
        "cohort sst_exp of depth 1",
        "cohort sst_po of depth 1",
        "cohort kaplan_meier",
    ]
    table = ResultStore(folder).table()
    counts = table.groupby(["model", "part"])["metric"].agg(["size", "nunique"])
    n_own, n_train = len(CURVE_SCORES) + 1 + len(GROUP_SCORES), len(TRAIN_SCORES) + 1
    assert counts.loc[("sst_po", "test")].tolist() == [3 * 2 * n_own, n_own]
    assert set(table["model"][table["metric"].isin(GROUP_SCORES)]) == {"sst_exp", "sst_po"}
    assert (table["depth"][table["metric"].isin(GROUP_SCORES)] == 1).all()  # without gates there are none
    n_own = n_train + 1 + len(GROUP_SCORES)  # with the objective
    assert counts.loc[("sst_po", "train")].tolist() == [3 * 2 * n_own, n_own]
    assert counts.loc[("kaplan_meier", "train")].tolist() == [3 * n_train, n_train]
    undefined = table[table["value"].isna()]
    assert set(undefined["model"]) == {"kaplan_meier"}
    assert set(undefined["reason"]) == {"the model has no density"}
    chosen = table[(table["metric"] == "objective") & (table["model"] == "sst_exp")]
    best = chosen.groupby(["depth", "fold"])["value"].transform("min") == chosen["value"]
    assert (best == chosen["chosen"]).all()
    facts = ResultStore(folder).facts()[1]
    assert facts["settings"]["tree.leaf"] == "exponential"
    assert facts["seconds"]["fit"] > 0
    assert {"sstorch", "torch"} <= set(facts["versions"])
    folds = pd.read_csv(folder / "folds" / "cohort.csv")["fold"]
    np.testing.assert_array_equal(folds, make_folds(source.load(), 3, 0))
    assert _run(source, folder) == []
    assert ResultStore(folder).table().equals(table)


def test_study_leaves_rows_without_weight_out(source: DatasetConfig, tmp_path: Path) -> None:
    frame, tables = pd.read_csv(source.path), []
    used = np.arange(160) % 4 > 0
    for name, rows in (("all", frame.assign(w=1.0 * used)), ("some", frame[used].assign(w=1.0))):
        rows.loc[rows["w"] == 0, "age"] = 1e6
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        weighted = dataclasses.replace(source, path=str(tmp_path / f"{name}.csv"), weight="w")
        store = ResultStore(tmp_path / name)
        trees = soft_tree_models(SHARED, {"sst_exp": {"leaf": "exponential", "depth": 0}})
        assert run(plan([weighted], trees, 2, 0, store), store, ["cpu"], lambda outcome: None) == []
        tables.append(store.table()["value"])
    pd.testing.assert_series_equal(*tables)
    folds = pd.read_csv(tmp_path / "all" / "folds" / "all.csv")
    np.testing.assert_array_equal(folds["row"], np.flatnonzero(used))


def test_other_settings_or_data_are_other_tasks(source: DatasetConfig, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "study")

    def configs(**changes: object) -> set[str]:
        changed = SHARED | {k: v for k, v in changes.items() if k != "seed"}
        tasks = plan([source], soft_tree_models(changed, TREES), 3, int(str(changes.get("seed", 0))), store)
        return {task.key.config for task in tasks}

    before = configs()
    assert len(before) == 3
    assert configs() == before
    for change in (
        {"ridge": 0.5},
        {"n_starts": 3},
        {"seed": 1},
        {"trainer": "nodec"},
        {"prediction": "mixture"},
    ):
        assert not configs(**change) & before, change
    assert configs(device="cpu") == before
    file = Path(str(source.path))
    file.write_text(file.read_text().replace(",1\n", ",0\n", 1))
    assert not configs() & before


@pytest.mark.parametrize("prediction", ["hbp", "mixture"])
def test_scores_are_those_of_the_metrics_and_of_the_estimator(source: DatasetConfig, prediction: str) -> None:
    data = source.load()
    folds = make_folds(data, 3, 0)
    train, test = data.subset(folds != 0), data.subset(folds == 0)
    (model,) = soft_tree_models(SHARED | {"prediction": prediction}, {"tree": {"leaf": "weibull"}})
    splits = [data.subset(folds != fold) for fold in range(3)]
    fit = next(iter(model.fits(splits, Schema.of(data.frame), "cpu")))
    found = RowsToScore(test, train).scores(fit.predictor)
    tree = clone(model.estimator)
    tree._adopt(train_batch(splits, tree._batch_settings(), Schema.of(data.frame)), train, 0, 0)
    for name, value in RowsToScore(test, train).scores(tree).items():
        assert found[name].value == pytest.approx(value.value, rel=1e-9), name
    whole, thin = RowsToScore(train, train).scores(tree), RowsToScore(train, train, thin=True).scores(tree)
    assert thin["c_harrell"] == whole["c_harrell"]
    for name in ("ibs_graf", "ibs_sksurv", "cd_auc"):
        assert thin[name].value == pytest.approx(whole[name].value, abs=6e-3), name


def test_scores_of_rows_in_any_order_are_those_of_evaluate() -> None:
    rng = np.random.default_rng(0)
    risk, censored = rng.normal(size=160), rng.exponential(4.0, 160)
    event_time = rng.exponential(np.exp(-risk))
    time = np.ceil(20 * np.minimum(event_time, censored)) / 20  # many are tied
    data = SurvivalData(pd.DataFrame({"risk": risk}), Surv(time, event_time <= censored))
    train, test = data.subset(np.arange(100)), data.subset(np.arange(100, 160))

    class Exponential:
        def predict_survival_function(self, X: pd.DataFrame, times: np.ndarray) -> np.ndarray:
            return np.exp(-np.exp(X[["risk"]].to_numpy().round(1)) * times)

        falling_curves = predict_survival_function

    found = RowsToScore(test, train).scores(Exponential())
    assert found.keys() == {*CURVE_SCORES, "log_likelihood"}
    expected = metrics.evaluate(Exponential(), train, test, metrics=CURVE_SCORES)["value"]
    assert {name: found[name].value for name in CURVE_SCORES} == pytest.approx(dict(expected), abs=1e-12)


class Broken(BaseEstimator):
    """An estimator that fails until a file is there."""

    def __init__(self, file: str = "") -> None:
        self.file = file

    def fit(self, X: pd.DataFrame, y: Surv) -> SoftSurvivalTree:
        if not Path(self.file).exists():
            raise DataError("the file is not there yet")
        return SoftSurvivalTree(depth=0).fit(X, y)

    def predict_survival_function(self, X: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def test_a_task_that_fails_lets_the_others_go_on_and_is_tried_again(
    source: DatasetConfig, tmp_path: Path
) -> None:
    store, told = ResultStore(tmp_path / "study"), []
    models = [StudyModel("broken", Broken(str(tmp_path / "file"))), *baseline_models({"kaplan_meier": {}}, 0)]
    tasks = plan([source], models, 3, 0, store)
    (failed,) = run(tasks, store, ["cpu"], told.append)
    assert failed.error == "DataError: the file is not there yet"
    assert "in fit" in failed.traceback
    assert [store.holds(task.key) for task in tasks] == [False, True]
    (tmp_path / "file").touch()
    assert run(tasks, store, ["cpu"], told.append) == []
    assert [outcome.task.key.model for outcome in told] == ["broken", "kaplan_meier", "broken"]


def test_invalid_studies_raise_before_any_work(source: DatasetConfig, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "study")
    twice = soft_tree_models(SHARED, {"tree": {"depth": [1, 1]}})
    for models, folds, message in (
        (twice, 3, "two models"),
        ([], 3, "nothing to do"),
        (_models(), 200, "folds"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            plan([source], models, folds, 0, store)
    assert not store.path.exists()


def test_an_optional_baseline_is_left_out_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no Rscript
    # What another test has found out of this machine's R is not to be known here.
    monkeypatch.setattr(r_trees, "_r_found", r_trees._r_found.__wrapped__)
    with pytest.warns(DataWarning, match="rpart is left out: .*install R with"):
        assert baseline_models({"rpart": {"depth": 2, "optional": True}}, 0) == []
    with pytest.raises(ConfigError, match="install R with"):
        baseline_models({"rpart": {"depth": 2}}, 0)


def test_a_grid_names_its_models() -> None:
    node = {"_target_": "sstorch.PrognosticTree", "leaf": ["weibull", "exponential"], "depth": [1, 2]}
    models = models_of("tree", node, 3, "tree")
    assert [(model.name, model.depth) for model in models] == [
        ("tree,leaf=weibull", 1), ("tree,leaf=weibull", 2),
        ("tree,leaf=exponential", 1), ("tree,leaf=exponential", 2),
    ]  # fmt: skip
    assert {model.estimator.random_state for model in models} == {3}


def test_devices_of_concurrent_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices_of("cpu", 3) == ["cpu"] * 3
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigError, match="torch sees no CUDA device"):
        devices_of("cuda", 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert devices_of("cuda:1", 2) == ["cuda:1"] * 2
    assert devices_of("cuda", 3) == ["cuda:0", "cuda:1"]
