from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import OptimalSurvivalTree, OptimalSurvivalTreeCV, SurvivalData, metrics
from sstorch.data import stratified_folds
from sstorch.exact import LogLikelihood
from sstorch.exact.estimators import base
from sstorch.exceptions import ConfigError, DataError


def _y(data: SurvivalData) -> tuple[np.ndarray, np.ndarray]:
    return data.time, data.event


def test_the_tree_has_the_size_of_the_best_mean_score(small_data: SurvivalData) -> None:
    data = small_data
    tree = OptimalSurvivalTreeCV(max_depth=2, n_folds=3, random_state=5, min_leaf=8)
    tree.fit(data.frame, _y(data))
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
    assert tree.summary() == whole.fit(data.frame, _y(data)).summary()
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
    tree = OptimalSurvivalTreeCV(max_depth=2, n_folds=4, choose="budget").fit(data.frame, _y(data))
    assert [len(features) for features, _ in calls] == [*(120 - np.bincount(tree.folds_)), 120]
    for fold in range(4):
        np.testing.assert_array_equal(calls[fold][1].time, data.time[tree.folds_ != fold])
    # Other features in the held-out rows: the same questions, and the same search.
    held_out = tree.folds_ == 2
    other = data.frame.copy()
    other.loc[held_out] = other.loc[held_out] * 7 + 3
    before = calls[2][0]
    calls.clear()
    OptimalSurvivalTreeCV(max_depth=2, n_folds=4, choose="budget").fit(other, _y(data))
    pd.testing.assert_frame_equal(calls[2][0], before)
    assert list(calls[1][0].columns) != list(before.columns)


def test_brier_scores_of_folds(small_data: SurvivalData) -> None:
    data = small_data
    settings: dict[str, Any] = {"objective": "integrated_brier", "binarize": "osst"}
    tree = OptimalSurvivalTreeCV(1, **settings, n_folds=3).fit(data.frame, _y(data))
    for fold in range(3):
        train, test = data.subset(tree.folds_ != fold), data.subset(tree.folds_ == fold)
        alone = OptimalSurvivalTree(1, **settings).fit(train.frame, _y(train))
        grid = np.unique(test.time)
        curves = alone.predict_survival_function(test.frame, grid)
        value = metrics.integrated_brier_score(_y(test), curves, grid, train=_y(train), convention="osst")
        assert tree.cv_results_.loc[1, f"fold_{fold}"] == pytest.approx(-value, rel=1e-12)


def test_conventions_files_and_bad_settings(small_data: SurvivalData, tmp_path: Path) -> None:
    X, y = small_data.frame, _y(small_data)
    tree = clone(OptimalSurvivalTreeCV(max_depth=1, n_folds=2)).set_params(choose="budget").fit(X, y)
    tree.save(tmp_path / "tree")
    again = OptimalSurvivalTree.load(tmp_path / "tree")
    assert again.summary() == tree.summary()
    assert again.max_depth == tree.best_depth_
    np.testing.assert_array_equal(again.predict_survival_function(X), tree.predict_survival_function(X))
    values: dict[str, Any]
    for values, message in (
        ({"choose": "leaves"}, "choose must be one of nodes, budget"),
        ({"n_folds": 1}, "n_folds must be at least 2"),
        ({"random_state": None}, "random_state must be at least 0"),
        ({"max_depth": 6}, "max_depth must be 0 to 5, got 6"),
    ):
        with pytest.raises(ConfigError, match=message):
            OptimalSurvivalTreeCV(**values).fit(X, y)
    with pytest.raises(DataError, match="too few for 200 folds"):
        OptimalSurvivalTreeCV(n_folds=200).fit(X, y)
