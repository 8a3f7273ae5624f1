"""A search as a model of a study: nested, and blind to the outer test rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import PrognosticTreeCV, SurvivalData, default_candidates
from sstorch.bench import ResultStore, make_folds
from sstorch.bench.config import DatasetConfig
from sstorch.bench.study import plan
from sstorch.bench.study import run_tasks as run
from sstorch.bench.study_model import SoftTreeCVModel, soft_search_models
from sstorch.data import Schema
from sstorch.exceptions import ConfigError
from sstorch.optim import Joint, LBFGSOptions

SHARED = {"leaf": "log_logistic", "numeric": "linear", "random_state": 1}
ENTRY: dict[str, Any] = {
    "candidates": {
        "one": {"depth": 0, "ridge": [1e-3, 0.1]},
        "two": {"depth": 1, "trainer": Joint(LBFGSOptions(max_iterations=6)), "n_starts": 1},
    },
    "cv": 2,
}
NAMES = ["one,ridge=0.001", "one,ridge=0.1", "two"]


def _model(**changes: object) -> SoftTreeCVModel:
    (model,) = soft_search_models(SHARED, {"cv": ENTRY | changes})
    assert isinstance(model, SoftTreeCVModel)
    return model


def _cohort() -> pd.DataFrame:
    draws = np.random.default_rng(5)
    x = draws.normal(size=(150, 2))
    time = draws.exponential(np.exp(-x[:, 0])).round(2) + 0.01
    return pd.DataFrame(x, columns=["a", "b"]).assign(
        c=draws.choice(["u", "v"], 150), days=time, died=draws.random(150) < 0.7
    )


@pytest.mark.nightly
def test_a_study_keeps_what_each_fold_has_chosen(tmp_path: Path) -> None:
    _cohort().to_csv(tmp_path / "cohort.csv", index=False)
    source, store = (
        DatasetConfig("csv", str(tmp_path / "cohort.csv"), time="days", event="died"),
        ResultStore(tmp_path),
    )
    told: list = []
    model = _model()
    assert list(model.estimator.candidates) == NAMES
    tasks = plan([source], [model], 3, 0, store)
    assert run(tasks, store, ["cpu"], told.append) == []
    assert [str(outcome.task.key) for outcome in told] == ["cohort cv"]
    (facts,) = store.facts()
    assert [own["fold"] for own in facts["fits"]] == [0, 1, 2]
    for own in facts["fits"]:
        assert own["candidate"] in NAMES
        assert own["family"] == ("gates" if own["candidate"] == "two" else "regression")
        assert own["n_candidates"] == 3
    table = store.table()
    assert table["chosen"].all()
    assert table["depth"].isna().all()
    assert (table["metric"] == "objective").sum() == 3
    # The search of a fold is that of its training rows alone.
    data = source.load()
    folds = make_folds(data, 3, 0)
    train, test = data.subset(folds != 0), data.subset(folds == 0)
    alone = clone(model.estimator).fit(train.frame, (train.time, train.event))
    value = table.query("fold == 0 and part == 'test' and metric == 'c_harrell'")["value"].item()
    assert value == alone.score(test.frame, (test.time, test.event))


@pytest.mark.nightly
def test_outer_test_rows_reach_neither_the_choice_nor_the_tree() -> None:
    """A feature that is the outcome in the outer test rows alone: choice and tree the same, bit for bit."""
    cohort = _cohort().assign(leak=np.random.default_rng(1).uniform(size=150))
    clean = SurvivalData.from_frame(cohort, "days", "died")
    folds = make_folds(clean, 3, 0)
    found = []
    for planted in (False, True):
        table = cohort.copy()
        if planted:
            out = folds == 0
            table.loc[out, "leak"] = np.where(table["died"], 1e6, -1e6)[out] / table.loc[out, "days"]
            table.loc[out, "a"] = np.nan
        data = SurvivalData.from_frame(table, "days", "died")
        splits, model = [data.subset(folds != 0)], _model()
        (fit,) = model.fits(splits, Schema.of(data.frame), "cpu")
        search = clone(model.estimator)._fit_data(splits[0], Schema.of(data.frame))
        found.append((fit, search.cv_results_, data))
    (before, table_before, _), (after, table_after, data) = found
    assert before.facts == after.facts
    assert before.objective == after.objective
    X = data.subset(folds != 0).frame
    for method in ("predict", "predict_survival_function"):
        np.testing.assert_array_equal(
            getattr(before.predictor, method)(X), getattr(after.predictor, method)(X)
        )
    pd.testing.assert_frame_equal(table_before.drop(columns="seconds"), table_after.drop(columns="seconds"))


def test_settings_tell_searches_apart() -> None:
    before = _model().settings()
    assert before == _model(device="cpu", verbose=1).settings()
    one = {"depth": 0, "ridge": 1e-3}
    for change in (
        {"candidates": {"one": one}},
        {"candidates": ENTRY["candidates"] | {"three": {"depth": 1}}},
        {"candidates": None},
        {"scoring": "ibs"},
        {"prefer": "accuracy"},
        {"cv": 3},
        {"random_state": 3},
    ):
        assert _model(**change).settings() != before, change
    for setting in ({"numeric": "spline"}, {"leaf": "weibull"}, {"interactions": [["a", "b"]]}):
        changed = _model(candidates={"one": one | setting}).settings()
        assert changed != _model(candidates={"one": one}).settings(), setting


def test_search_without_candidates_is_that_by_default() -> None:
    (model,) = soft_search_models(SHARED, {"cv": {}})
    assert model.settings() == SoftTreeCVModel("cv", PrognosticTreeCV(random_state=1)).settings()
    every = PrognosticTreeCV(default_candidates(random_state=1), random_state=1)
    assert model.settings() == SoftTreeCVModel("cv", every).settings()


def test_unknown_setting_raises_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"study.searches.cv: a search has no parameter 'prefers'.*prefer"):
        _model(prefers="groups")
    with pytest.raises(ConfigError, match=r"study.searches.cv.candidates.one: .*'depths'.*depth"):
        _model(candidates={"one": {"depths": 1}})


def test_candidates_of_several_depths_have_names_of_their_own() -> None:
    found = _model(candidates={"tree": {"depth": [0, 1]}}).estimator.candidates
    assert list(found) == ["tree,depth=0", "tree,depth=1"]
