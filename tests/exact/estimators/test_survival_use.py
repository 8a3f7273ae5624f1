import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline

from sstorch import OptimalSurvivalTree, Search, SurvivalData, metrics
from sstorch.exact import Binarizer
from sstorch.exceptions import ConfigError, DataError, DataWarning, FormatError
from sstorch.reading import export_text


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> OptimalSurvivalTree:
    return OptimalSurvivalTree(max_depth=2).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


# ---------------------------------------------------------------------- bad input


def test_columns_that_are_not_binary_are_named(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    frame = gbsg2.frame.assign(flag=gbsg2.frame["age"] > 50)
    with pytest.raises(
        DataError, match=r"'horTh', 'age'.*does not hold 0 and 1.*binarize='surtree'"
    ) as caught:
        OptimalSurvivalTree(binarize=False).fit(frame, y)
    assert "'flag'" not in str(caught.value)
    tree = OptimalSurvivalTree(max_depth=1, binarize=False).fit(frame[["flag"]], y)
    with pytest.raises(DataError, match="column 'flag' does not hold 0 and 1"):
        tree.predict(pd.DataFrame({"flag": [0.0, 2.0]}))
    with pytest.raises(DataError, match="column 'flag'"):
        tree.predict(pd.DataFrame({"flag": [0.0, np.nan]}))


def test_data_that_cannot_be_used(small_data: SurvivalData) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    with pytest.raises(DataError, match="no event to learn from"):
        OptimalSurvivalTree().fit(X, (y[0], np.zeros(120)))
    with pytest.raises(DataError, match=r"min_leaf=121: .*there are 120"):
        OptimalSurvivalTree(min_leaf=121).fit(X, y)
    with pytest.raises(DataError, match="min_events=121"):
        OptimalSurvivalTree(min_events=121).fit(X, y)
    with pytest.raises(ConfigError, match=r"too many for depth 5.*GiB.*fewer thresholds"):
        OptimalSurvivalTree(max_depth=5, binarize="all").fit(X, y)
    tree = OptimalSurvivalTree(max_depth=1).fit(X, y)
    with pytest.raises(DataError, match="no column 'x1'"):
        tree.predict(X.drop(columns="x1"))
    with pytest.raises(DataError, match="X has 2 features, but Schema is expecting 3 features"):
        tree.predict(X.to_numpy()[:, :2])
    named = OptimalSurvivalTree(max_depth=1).fit(X.set_axis(["a", "b", "c"], axis=1), y)
    with pytest.raises(DataError, match="X is an array, but the columns have names"):
        named.predict(X.to_numpy())
    with pytest.raises(DataError, match="column 'a' holds 'much'"):
        named.predict(pd.DataFrame({"a": ["much"], "b": [0.1], "c": [0.1]}))
    with pytest.raises(DataError, match="no row has an event"):
        tree.score(X[:3], (y[0][:3], np.zeros(3)))
    with pytest.raises(DataError, match="times must be finite"):
        tree.predict_survival_function(X, [-1.0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_depth": 10}, "max_depth must be 0 to 9, got 10"),
        ({"max_depth": 1.5}, "max_depth must be at least 0, an integer"),
        ({"max_nodes": -1}, "max_nodes must be at least 0"),
        ({"objective": "cox"}, "objective must be one of log_likelihood, integrated_brier"),
        ({"leaf_curve": "ipcw"}, "leaf_curve must be one of kaplan_meier, proportional_hazards with"),
        (
            {"objective": "integrated_brier", "leaf_curve": "proportional_hazards"},
            "leaf_curve must be one of kaplan_meier, ipcw with",
        ),
        ({"leaf_penalty": -0.1}, "leaf_penalty must be a finite number >= 0"),
        ({"min_leaf": 0}, "min_leaf must be at least 1"),
        ({"binarize": True}, "binarize must be one of surtree"),
        ({"binarize": "median"}, "binarize must be one of surtree"),
        ({"search": Search(time_limit=0)}, "time_limit must be seconds > 0"),
        ({"search": Search(n_buckets=10)}, "n_buckets is for objective='integrated_brier'"),
        ({"search": 60.0}, r"search must be Search\(...\), got 60.0"),
    ],
)
def test_bad_parameters_are_refused_at_fit(
    small_data: SurvivalData, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        OptimalSurvivalTree(**values).fit(small_data.frame, (small_data.time, small_data.event))  # type: ignore[arg-type]


def test_missing_values_unknown_categories_and_columns_that_are_not_used(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    frame = gbsg2.frame[["horTh", "tgrade"]].astype(object)
    tree = OptimalSurvivalTree(max_depth=1).fit(frame, y)
    assert export_text(tree).startswith("if tgrade is I:")
    other = frame[:3].assign(tgrade="IV")
    with pytest.warns(DataWarning, match="tgrade.*unknown category 'IV'"):
        leaf = tree.apply(other)
    assert (leaf == 2).all()
    odd = frame[:3].assign(tgrade=["I", None, "II"], horTh="perhaps", visit=pd.Timestamp("2020-01-01"))
    np.testing.assert_array_equal(tree.apply(odd), [1, 2, 2])
    with_gaps = gbsg2.frame.assign(pnodes=gbsg2.frame["pnodes"].where(gbsg2.frame["age"] < 60))
    tree = OptimalSurvivalTree(max_depth=2).fit(with_gaps, y)
    assert np.isfinite(tree.predict(with_gaps)).all()
    assert any(rule.name == "pnodes is missing" for rule in tree.rules_)


def test_times_of_zero_are_moved_as_in_training(small_data: SurvivalData) -> None:
    time = small_data.time.copy()
    time[0] = 0.0
    with pytest.warns(DataWarning, match="1 event at time zero"):
        tree = OptimalSurvivalTree(max_depth=1).fit(small_data.frame, (time, small_data.event))
    assert tree.zero_time_ == time[1:].min() / 2
    with pytest.warns(DataWarning, match="1 event at time zero moved to"):
        assert tree.score(small_data.frame, (time, small_data.event)) > 0.5


# ---------------------------------------------------------------------- scikit-learn


def test_scikit_learn_conventions(small_data: SurvivalData) -> None:
    tree = OptimalSurvivalTree(max_depth=2, binarize=Binarizer("quantiles", n_thresholds=3))
    copy = clone(tree)
    assert copy.binarize is not tree.binarize
    assert copy.set_params(binarize__n_thresholds=5, max_depth=1).get_params()["binarize__n_thresholds"] == 5
    for call in (tree.predict, tree.apply, tree.predict_quantile, tree.predict_survival_function):
        with pytest.raises(NotFittedError):
            call(small_data.frame)
    for call in (OptimalSurvivalTree.summary, export_text):
        with pytest.raises(NotFittedError):
            call(tree)
    other = OptimalSurvivalTree().set_params(search__time_limit=1.0)
    assert (other.search, tree.search) == (Search(time_limit=1.0), Search())
    X, y = small_data.frame, (small_data.time, small_data.event)
    copy.fit(X, y)
    assert len(copy.rules_) == 15
    assert not hasattr(copy.binarize, "rules_")  # parameters stay as they were given
    assert list(copy.feature_names_in_) == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(copy.fit(X.to_numpy(), y).predict(X), copy.predict(X.to_numpy()))
    again = pickle.loads(pickle.dumps(copy))
    np.testing.assert_array_equal(again.predict(X), copy.predict(X))


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
def test_pipelines_and_searches(small_data: SurvivalData) -> None:
    X, t, e = small_data.frame, small_data.time, small_data.event
    y = np.array(list(zip(e, t, strict=True)), dtype=[("event", "?"), ("time", "f8")])
    pipe = Pipeline([("questions", Binarizer("all")), ("tree", OptimalSurvivalTree(2, binarize=False))])
    pipe.set_output(transform="pandas").fit(X, y)
    alone = OptimalSurvivalTree(2, binarize="all").fit(X, y)
    assert pipe[-1].loss_ == alone.loss_
    assert export_text(pipe[-1]) == export_text(alone)
    np.testing.assert_array_equal(pipe.predict(X), alone.predict(X))
    scores = cross_val_score(OptimalSurvivalTree(2), X, y, cv=3)
    assert (scores > 0.4).all()
    search = GridSearchCV(OptimalSurvivalTree(), {"max_depth": [0, 1]}, cv=2).fit(X, y)
    assert search.best_params_["max_depth"] in (0, 1)
    scorer = metrics.SurvivalScorer("ibs_graf", all_rows=y)
    scores = cross_val_score(OptimalSurvivalTree(1), X, y, cv=3, scoring=scorer)
    assert ((scores < 0) & (scores > -1)).all()


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("binarize", ["osst", False, Binarizer("all", n_categories=4)])
def test_save_and_load(small_data: SurvivalData, tmp_path: Path, binarize: object) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    if binarize is False:
        X = (X > 0.4).astype(float)
    tree = OptimalSurvivalTree(2, leaf_penalty=0.3, min_leaf=9, binarize=binarize).fit(X, y)  # type: ignore[arg-type]
    text = tree.summary()
    tree.set_params(max_depth=5, leaf_curve="proportional_hazards").save(tmp_path / "deep" / "tree")
    again = OptimalSurvivalTree.load(tmp_path / "deep" / "tree")
    assert again.summary() == text
    assert again.get_params(deep=False).keys() == tree.get_params(deep=False).keys()
    assert (again.max_depth, again.min_leaf, again.leaf_curve) == (2, 9, "kaplan_meier")
    assert again.certified_
    for method in ("apply", "predict", "predict_survival_function", "predict_quantile"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(tree, method)(X))
    assert again.score(X, y) == tree.score(X, y)
    pd.testing.assert_frame_equal(again.optima_, tree.optima_)
    pd.testing.assert_frame_equal(again.leaf_table_, tree.leaf_table_)
    assert clone(again).fit(X, y).summary() == text
    assert {path.name for path in (tmp_path / "deep" / "tree").iterdir()} == {
        "model.json",
        "tensors.safetensors",
    }


def test_damaged_files_are_refused(fitted: OptimalSurvivalTree, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no saved tree"):
        OptimalSurvivalTree.load(tmp_path / "nothing")
    fitted.save(tmp_path / "good")
    text = (tmp_path / "good" / "model.json").read_text()
    blob = (tmp_path / "good" / "tensors.safetensors").read_bytes()

    def damaged(name: str, content: bytes) -> Path:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        (tmp_path / "bad" / name).write_bytes(content)
        return tmp_path / "bad"

    with pytest.raises(FormatError, match="truncated or altered"):
        OptimalSurvivalTree.load(damaged("tensors.safetensors", blob[:-8]))
    with pytest.raises(FormatError, match="incomplete or altered"):
        OptimalSurvivalTree.load(damaged("model.json", text[: len(text) // 2].encode()))
    assert '"low": 3.0' in text
    with pytest.raises(FormatError, match="altered: its checksum"):
        OptimalSurvivalTree.load(damaged("model.json", text.replace('"low": 3.0', '"low": 4.0').encode()))
    state = json.loads(text)
    for change, message in (
        ({"format_version": 99}, "version 99; this"),
        ({"format": "other"}, "format other"),
    ):
        with pytest.raises(FormatError, match=message):
            OptimalSurvivalTree.load(damaged("model.json", json.dumps({**state, **change}).encode()))


def test_codes_of_categories_may_be_text_in_new_rows() -> None:
    rng = np.random.default_rng(0)
    codes = pd.Series(rng.choice([f"{code}" for code in range(1000, 1015)], 300))
    frame = pd.DataFrame({"center": codes.astype("category"), "age": rng.normal(60, 9, 300)})
    time = rng.exponential(np.where(codes < "1007", 1.0, 5.0))
    tree = OptimalSurvivalTree(2, min_leaf=20).fit(frame, (time, np.ones(300)))
    as_text = frame.astype({"center": object})
    np.testing.assert_array_equal(tree.apply(as_text), tree.apply(frame))
    with pytest.raises(DataError, match="15 different numbers or dates written as text"):
        OptimalSurvivalTree(2).fit(as_text, (time, np.ones(300)))
