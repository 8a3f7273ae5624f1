"""Survival trees: columns and parameters that cannot be used, pipelines."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from sstorch import (
    OptimalPolicyTree,
    OptimalSurvivalTree,
    OptimalTreeClassifier,
    OptimalTreeRegressor,
    Search,
    SurvivalData,
)
from sstorch.exact import Binarizer
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.reading import export_text


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"max_depth": 1.5}, ConfigError, "max_depth must be at least 0"),
        ({"objective": "cox"}, ConfigError, "objective must be one of"),
        ({"min_events": -1}, ConfigError, "min_events"),
        ({"binarize": "median"}, ConfigError, "binarize must be one of"),
        ({"search": Search(time_limit=0)}, ConfigError, "time_limit must be one finite time > 0"),
        ({"search": Search(n_buckets=10)}, ConfigError, "n_buckets is for objective='integrated_brier'"),
        ({"search": 60.0}, ConfigError, r"search must be Search\(...\), got 60.0"),
    ],
)
def test_parameters_that_cannot_be_raise(
    small_data: SurvivalData, values: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        OptimalSurvivalTree(**values).fit(small_data.frame, (small_data.time, small_data.event))  # type: ignore[arg-type]


def test_rows_that_cannot_be_used_raise(small_data: SurvivalData) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    with pytest.raises(DataError, match="no event to learn from"):
        OptimalSurvivalTree().fit(X, (y[0], np.zeros(120)))
    tree = OptimalSurvivalTree(max_depth=1).fit(X, y)
    with pytest.raises(DataError, match="X has 2 features, but Schema is expecting 3 features"):
        tree.predict(X.to_numpy()[:, :2])
    with pytest.raises(DataError, match="column 'x0' holds 'much'"):
        tree.predict(X[:1].astype(object).assign(x0="much"))
    with pytest.raises(DataError, match="no row has an event"):
        tree.score(X[:3], (y[0][:3], np.zeros(3)))
    for call in (OptimalSurvivalTree.summary, export_text):
        with pytest.raises(NotFittedError):
            call(OptimalSurvivalTree())
    for other in (OptimalTreeClassifier, OptimalTreeRegressor, OptimalPolicyTree):
        with pytest.raises(NotFittedError):
            other().summary()


def test_missing_values_unknown_categories_and_columns_that_are_not_used(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    frame = gbsg2.frame[["horTh", "tgrade"]].astype(object)
    tree = OptimalSurvivalTree(max_depth=1).fit(frame, y)
    assert export_text(tree).startswith("if tgrade is I:")
    with pytest.warns(DataWarning, match="tgrade.*unknown category 'IV'"):
        leaf = tree.apply(frame[:3].assign(tgrade="IV"))
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


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
def test_parameters_and_pipelines_of_scikit_learn(small_data: SurvivalData) -> None:
    tree = OptimalSurvivalTree(max_depth=2, binarize=Binarizer("quantiles", n_thresholds=3))
    copy = clone(tree)
    assert copy.binarize is not tree.binarize
    assert copy.set_params(binarize__n_thresholds=5, max_depth=1).get_params()["binarize__n_thresholds"] == 5
    other = OptimalSurvivalTree().set_params(search__time_limit=1.0)
    assert (other.search, tree.search) == (Search(time_limit=1.0), Search())
    X, t, e = small_data.frame, small_data.time, small_data.event
    assert len(copy.fit(X, (t, e)).rules_) == 15
    assert not hasattr(copy.binarize, "rules_")  # parameters stay as they were given
    y = np.array(list(zip(e, t, strict=True)), dtype=[("event", "?"), ("time", "f8")])
    pipe = Pipeline([("questions", Binarizer("all")), ("tree", OptimalSurvivalTree(2, binarize="all"))])
    pipe.set_output(transform="pandas").fit(X, y)
    alone = OptimalSurvivalTree(2, binarize="all").fit(X, y)
    assert pipe[-1].loss_ == alone.loss_
    np.testing.assert_array_equal(pipe.predict(X), alone.predict(X))


def test_loaded_trees_have_the_parameters_of_their_fit(small_data: SurvivalData, tmp_path: Path) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    binarize = Binarizer("all", n_categories=4)
    tree = OptimalSurvivalTree(2, leaf_penalty=0.3, min_leaf=9, binarize=binarize).fit(X, y)
    text = tree.summary()
    tree.set_params(max_depth=5).save(tmp_path / "deep" / "tree")
    again = OptimalSurvivalTree.load(tmp_path / "deep" / "tree")
    assert again.summary() == text
    assert (again.max_depth, again.min_leaf) == (2, 9)
    assert again.certified_
    pd.testing.assert_frame_equal(again.optima_, tree.optima_)
    assert clone(again).fit(X, y).summary() == text
