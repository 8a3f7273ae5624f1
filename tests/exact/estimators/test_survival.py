"""Survival trees and their size by cross-validation: what they find, predict, say and refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter, NelsonAalenFitter
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    Search,
    Surv,
    SurvivalData,
    metrics,
)
from sstorch.data import stratified_folds
from sstorch.exact import Binarizer, IntegratedBrier, LogLikelihood, solve
from sstorch.exact.estimators import base
from sstorch.exceptions import DataWarning
from sstorch.reading import export_text


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> OptimalSurvivalTree:
    return OptimalSurvivalTree(max_depth=2).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


# ---------------------------------------------------------------------- what is found


@pytest.mark.parametrize("preset", ["surtree", "osst"])
def test_tree_and_loss_are_those_of_the_engine(gbsg2: SurvivalData, preset: str) -> None:
    y = (gbsg2.time, gbsg2.event)
    tree = OptimalSurvivalTree(max_depth=2, max_nodes=2, min_leaf=20, binarize=preset).fit(gbsg2.frame, y)
    binarizer = Binarizer(preset).fit(gbsg2.frame)
    features = binarizer.transform(gbsg2.frame)
    task = LogLikelihood(*y)
    found = solve(features, task, 2, 2, min_leaf=20)
    assert tree.loss_ == found.loss
    assert tree.certified_
    assert [rule.name for rule in tree.rules_] == list(binarizer.get_feature_names_out())
    leaf = tree.apply(gbsg2.frame) - 1
    np.testing.assert_array_equal(leaf, tree.tree_.order[found.tree().apply(features)])
    assert task.loss(leaf) == pytest.approx(tree.loss_, rel=1e-10)
    assert np.bincount(leaf).min() >= 20
    assert tree.leaf_table_["rows"].tolist() == np.bincount(leaf).tolist()
    assert tree.leaf_table_["events"].tolist() == np.bincount(leaf, weights=gbsg2.event).tolist()


# ---------------------------------------------------------------------- curves


@pytest.mark.parametrize("kind", ["plain", "weighted", "truncated", "weighted and truncated"])
def test_curves_of_leaves_equal_lifelines(gbsg2: SurvivalData, kind: str) -> None:
    rng, n = np.random.default_rng(0), len(gbsg2)
    weight = rng.integers(1, 4, n) if "weighted" in kind else np.ones(n)
    entry = gbsg2.time * rng.uniform(0, 0.9, n) * (np.arange(n) > 80) if "truncated" in kind else np.zeros(n)
    y = Surv(gbsg2.time, gbsg2.event, entry=entry) if "truncated" in kind else gbsg2.y
    tree = OptimalSurvivalTree(max_depth=2, min_leaf=40).fit(gbsg2.frame, y, sample_weight=weight / 7)
    grid = np.array([0.0, 71.9, 72.0, 500.0, 1000.5, 2659.0, 9999.0])
    survival = tree.predict_survival_function(gbsg2.frame, grid)
    hazard = tree.predict_cumulative_hazard_function(gbsg2.frame, grid)
    median, leaf = tree.predict_quantile(gbsg2.frame), tree.apply(gbsg2.frame)
    assert set(leaf) == {1, 2, 3, 4}
    for number in range(1, 5):
        rows = leaf == number
        given = {"durations": gbsg2.time[rows], "event_observed": gbsg2.event[rows], "weights": weight[rows]}
        given |= {"entry": entry[rows]} if "truncated" in kind else {}
        peer = KaplanMeierFitter().fit(**given)
        np.testing.assert_allclose(survival[rows], np.tile(peer.predict(grid), (rows.sum(), 1)), atol=1e-10)
        assert (median[rows] == peer.median_survival_time_).all()
        other = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(**given).predict(grid)
        np.testing.assert_allclose(hazard[rows], np.tile(other, (rows.sum(), 1)), rtol=1e-10)


def test_buckets_coarsen_the_search_only(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    tree = OptimalSurvivalTree(1, objective="integrated_brier", search=Search(n_buckets=20))
    tree.fit(gbsg2.frame, y)
    found = solve(Binarizer().fit_transform(gbsg2.frame), IntegratedBrier(*y, n_buckets=20), max_depth=1)
    assert tree.loss_ == found.loss
    np.testing.assert_array_equal(tree.event_times_, np.unique(gbsg2.time[gbsg2.event]))
    np.testing.assert_array_equal(tree.curves_.times, tree.event_times_)


def test_risk_quantiles_and_restricted_means(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    X = gbsg2.frame[:40]
    hazard = np.asarray(fitted.predict_cumulative_hazard_function(X, "events"))
    np.testing.assert_allclose(fitted.predict(X), hazard.sum(axis=1), rtol=1e-12)
    fine = np.arange(0, 1500, 0.5)
    area = np.asarray(fitted.predict_survival_function(X, fine)).sum(axis=1) * 0.5
    np.testing.assert_allclose(fitted.predict_rmst(X, 1500.0), area, rtol=1e-12)  # times are whole days
    quarter = fitted.predict_quantile(X, 0.25)
    for value, curve in zip(quarter, np.asarray(fitted.predict_survival_function(X, fine)), strict=True):
        first = fine[curve <= 0.75][0] if (curve <= 0.75).any() else np.inf
        assert value == first or (value > fine[-1] and np.isinf(first))
    assert np.isinf(fitted.predict_rmst(X, np.inf)).any()


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
def test_a_mean_exists_where_the_curve_reaches_zero() -> None:
    x, time = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([1.0, 3.0, 10.0, 20.0])
    tree = OptimalSurvivalTree(max_depth=1, binarize="all").fit(x, (time, np.ones(4)))
    np.testing.assert_allclose(tree.predict_rmst(x, np.inf), [2, 2, 15, 15])
    np.testing.assert_allclose(tree.predict_rmst(x, 2.0), [1.5, 1.5, 2, 2])
    np.testing.assert_array_equal(tree.predict_quantile(x), [1, 1, 10, 10])


# ---------------------------------------------------------------------- text


def test_text_is_in_original_units(fitted: OptimalSurvivalTree, small_data: SurvivalData) -> None:
    text, summary = export_text(fitted), fitted.summary()
    assert text.startswith("if pnodes > 3:")
    assert sum(line.strip().startswith("group") for line in text.splitlines()) == 4
    assert "depth 2, 4 leaves, 686 rows, 299 events" in summary
    assert "optimal for depth 2 over 53 questions" in summary
    assert f"{text}\n\nGroups" in summary
    assert "\n\nCaution: The rules were chosen on the training rows" in summary
    tree = OptimalSurvivalTree(max_depth=0).fit(small_data.frame, small_data.y)
    assert export_text(tree).startswith("group 1: 120 rows")
    assert "Caution" not in tree.summary()


def test_the_tree_has_the_size_of_the_best_mean_score(small_data: SurvivalData) -> None:
    data = small_data
    tree = OptimalSurvivalTreeCV(max_depth=2, n_folds=3, random_state=5, min_leaf=8)
    tree.fit(data.frame, data.y)
    folds = stratified_folds(data.event, 3, 5)
    np.testing.assert_array_equal(tree.folds_, folds)
    table = tree.cv_results_
    assert table["nodes"].tolist() == [0, 1, 2, 3]
    columns = ["fold_0", "fold_1", "fold_2"]
    np.testing.assert_allclose(table["mean_score"], table[columns].mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(table["standard_error"], table[columns].sem(axis=1), rtol=1e-12)
    assert tree.best_nodes_ == table["mean_score"].argmax()
    assert tree.best_score_ == table["mean_score"].max()
    whole = OptimalSurvivalTree(max_depth=2, max_nodes=tree.best_nodes_, min_leaf=8)
    assert tree.summary() == whole.fit(data.frame, data.y).summary()
    np.testing.assert_array_equal(tree.predict(data.frame), whole.predict(data.frame))


def test_one_search_per_fold_none_of_which_sees_the_rows_left_out(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[pd.DataFrame, LogLikelihood]] = []
    solve = base.solve

    def counted(features: pd.DataFrame, task: LogLikelihood, *args: Any, **keywords: Any) -> Any:
        calls.append((features, task))
        return solve(features, task, *args, **keywords)

    monkeypatch.setattr(base, "solve", counted)
    data = small_data
    tree = OptimalSurvivalTreeCV(max_depth=2, n_folds=4, choose="budget").fit(data.frame, data.y)
    assert [len(features) for features, _ in calls] == [*(120 - np.bincount(tree.folds_)), 120]
    for fold in range(4):
        np.testing.assert_array_equal(calls[fold][1].time, data.time[tree.folds_ != fold])
    # Other features in the held-out rows: the same questions, and the same search.
    held_out = tree.folds_ == 2
    other = data.frame.copy()
    other.loc[held_out] = other.loc[held_out] * 7 + 3
    before = calls[2][0]
    calls.clear()
    OptimalSurvivalTreeCV(max_depth=2, n_folds=4, choose="budget").fit(other, data.y)
    pd.testing.assert_frame_equal(calls[2][0], before)
    assert list(calls[1][0].columns) != list(before.columns)


def test_brier_scores_of_folds(small_data: SurvivalData) -> None:
    data = small_data
    settings: dict[str, Any] = {"objective": "integrated_brier", "binarize": "osst"}
    tree = OptimalSurvivalTreeCV(1, **settings, n_folds=3).fit(data.frame, data.y)
    for fold in range(3):
        train, test = data.subset(tree.folds_ != fold), data.subset(tree.folds_ == fold)
        alone = OptimalSurvivalTree(1, **settings).fit(train.frame, train.y)
        grid = np.unique(test.time)
        curves = alone.predict_survival_function(test.frame, grid)
        value = metrics.integrated_brier_score(test.y, curves, grid, train=train.y, convention="osst")
        assert tree.cv_results_.loc[1, f"fold_{fold}"] == pytest.approx(-value, rel=1e-12)


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
    X, y = small_data.frame, small_data.y
    binarize = Binarizer("all", n_categories=4)
    tree = OptimalSurvivalTree(2, leaf_penalty=0.3, min_leaf=9, binarize=binarize).fit(X, y)
    text = tree.summary()
    tree.set_params(max_depth=5).save(tmp_path / "deep" / "tree")
    again = OptimalSurvivalTree.load(tmp_path / "deep" / "tree")
    assert again.summary() == text
    assert (again.max_depth, again.min_leaf) == (2, 9)
    pd.testing.assert_frame_equal(again.optima_, tree.optima_)
    assert clone(again).fit(X, y).summary() == text
    chosen = OptimalSurvivalTreeCV(max_depth=1, n_folds=2, choose="budget").fit(X, y)
    chosen.save(tmp_path / "chosen")
    again = OptimalSurvivalTree.load(tmp_path / "chosen")
    assert again.summary() == chosen.summary()
    assert again.max_depth == chosen.best_depth_
