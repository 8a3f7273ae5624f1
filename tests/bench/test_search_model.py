"""A search as a model of a study: nested, and blind to the outer test rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import SurvivalData
from sstorch.bench import ResultStore, SoftTreeCVModel, make_folds, soft_search_models
from sstorch.bench.config import DatasetConfig
from sstorch.bench.engines import Serial
from sstorch.bench.flat import soft_search
from sstorch.bench.study import plan
from sstorch.bench.study import run_tasks as run
from sstorch.data import Schema
from sstorch.exceptions import ConfigError
from sstorch.optim import Joint, LBFGSOptions

SHORT = Joint(LBFGSOptions(max_iterations=6))
SHARED = {"depth": 4, "trainer": SHORT, "n_starts": 9, "random_state": 1}
ENTRY = {
    "depth": [0, 1],
    "leaf": "log_logistic",
    "ridge": [1e-3, 0.1],
    "gate_ridge": 1e-3,
    "fused": 0.1,
    "n_starts": 1,
    "numeric": "linear",
    "cv": 2,
    "search": "grid",
}


def _cohort() -> pd.DataFrame:
    draws = np.random.default_rng(5)
    x = draws.normal(size=(150, 2))
    time = draws.exponential(np.exp(-x[:, 0])).round(2) + 0.01
    return pd.DataFrame(x, columns=["a", "b"]).assign(
        c=draws.choice(["u", "v"], 150), days=time, died=draws.random(150) < 0.7
    )


def test_a_study_keeps_what_each_fold_has_chosen(tmp_path: Path) -> None:
    _cohort().to_csv(tmp_path / "cohort.csv", index=False)
    source, store = DatasetConfig("csv", str(tmp_path / "cohort.csv"), "days", "died"), ResultStore(tmp_path)
    models = soft_search_models(SHARED, {"sst_cv": ENTRY})
    told: list = []
    tasks = plan([source], models, 3, 0, store)
    assert run(tasks, store, Serial(), told.append) == []
    assert [str(outcome.task.key) for outcome in told] == ["cohort sst_cv"]
    (facts,) = store.facts()
    assert [own["fold"] for own in facts["fits"]] == [0, 1, 2]
    for own in facts["fits"]:
        assert (own["depth"], own["ridge"]) in {(0, 1e-3), (0, 0.1), (1, 1e-3), (1, 0.1)}
        assert (own["n_candidates"], own["n_starts"], own["leaf"]) == (4, 1, "log_logistic")
    table = store.table()
    assert table["chosen"].all()
    assert table["depth"].isna().all()
    assert (table["metric"] == "objective").sum() == 3
    # The search of a fold is that of its training rows alone.
    data = source.load()
    folds = make_folds(data, 3, 0)
    train, test = data.subset(folds != 0), data.subset(folds == 0)
    alone = soft_search(trainer=SHORT, random_state=1, **ENTRY)
    alone.fit(train.frame, (train.time, train.event))
    value = table.query("fold == 0 and part == 'test' and metric == 'c_harrell'")["value"].item()
    assert value == alone.score(test.frame, (test.time, test.event))


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
        splits = [data.subset(folds != 0)]
        model = SoftTreeCVModel("cv", soft_search(**ENTRY | {"trainer": SHORT}))
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
    def settings(**changes: object) -> dict:
        (model,) = soft_search_models(SHARED, {"cv": ENTRY | changes})
        return model.settings()

    before = settings()
    assert before == settings(device="cpu", verbose=1)
    for change in (
        {"ridge": [1e-3, 0.2]},
        {"scoring": "ibs"},
        {"one_standard_error": True},
        {"search": "halving"},
        {"cv": 3},
        {"holdout": 0.2},
        {"random_state": 3},
        {"trainer": "nodec"},
        {"leaf": ["log_logistic", "weibull"]},
        {"numeric": ["linear", "spline"]},
        {"numeric": "log"},
        {"gate_numeric": "spline"},
        {"interactions": [["a", "b"]]},
    ):
        assert settings(**change) != before, change
    curved = {"numeric": ["linear", "spline"], "roughness": 0.1}
    assert settings(**curved) != settings(**curved | {"roughness": 0.2})
    assert settings(**curved) != settings(**curved | {"gate_numeric": "spline"})
    with pytest.raises(ConfigError, match=r"study.searches.cv: a search has no parameter 'depths'.*depth"):
        settings(depths=[1])


def test_a_study_compares_encodings_on_request_alone() -> None:
    entry = {name: value for name, value in ENTRY.items() if name != "numeric"}

    def settings(shared: dict = SHARED, **changes: object) -> dict:
        (model,) = soft_search_models(shared, {"cv": entry | changes})
        return model.settings()

    assert not [name for name in settings() if "roughness" in name]
    assert settings() == settings(numeric="linear") == settings(numeric=["linear"], roughness=0.5)
    # Those of the study's trees are those of its searches.
    splines = SHARED | {"numeric": "spline"}
    assert settings(splines) == settings(numeric="spline")
    assert settings(splines, numeric="linear") == settings()
