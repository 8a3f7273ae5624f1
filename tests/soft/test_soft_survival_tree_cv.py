"""The search for depth and penalties, and that nothing of held-out rows gets into it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import (
    Columns,
    Grid,
    OptimalSurvivalTreeCV,
    PrognosticTree,
    PrognosticTreeCV,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    metrics,
)
from sstorch.bench.flat import soft_search, soft_tree
from sstorch.data import Schema, stratified_folds
from sstorch.exceptions import ConfigError, DataError, FormatError, TrainingError
from sstorch.nn import Spline
from sstorch.optim import Joint, LBFGSOptions
from sstorch.reading import export_text, gate_terms
from sstorch.soft import search as search_module
from sstorch.soft.search import FoldSearch, rungs

# A few iterations of all parameters: alone and in a batch the same up to rounding.
SHORT = Joint(LBFGSOptions(max_iterations=8))
SMALL: dict[str, Any] = {
    "depth": (0, 1),
    "leaf": "log_logistic",
    "ridge": (1e-3, 0.1),
    "gate_ridge": 1e-3,
    "init": "kmeans",
    "n_starts": 2,
    "numeric": "linear",
    "cv": 3,
    "scoring": "log_likelihood",
    "search": "grid",
    "trainer": SHORT,
}


def _y(data: SurvivalData) -> tuple[np.ndarray, np.ndarray]:
    return data.time, data.event


def _fit(data: SurvivalData, **parameters: object) -> PrognosticTreeCV:
    return soft_search(**SMALL | parameters).fit(data.frame, _y(data))


@pytest.fixture(scope="module")
def searched(small_data: SurvivalData) -> PrognosticTreeCV:
    """The small search, fitted once."""
    return _fit(small_data)


@pytest.mark.parametrize("scoring", ["log_likelihood", "c_harrell", "ibs"])
def test_scores_are_those_of_trees_fitted_to_each_fold(small_data: SurvivalData, scoring: str) -> None:
    """The grid, one batch a depth, beside a loop of fits and the scores of the estimator."""
    data, found = small_data, _fit(small_data, scoring=scoring)
    folds = stratified_folds(data.event, 3, 0)
    np.testing.assert_array_equal(found.folds_, folds)
    table = found.cv_results_
    assert len(table) == 2 + 2
    names = ["depth", "init", "ridge", "gate_ridge", "fused", "n_starts"]
    settings = [dict(zip(names, values, strict=True)) for values in table[names].itertuples(index=False)]
    for fold in range(3):
        train, test = data.subset(folds != fold), data.subset(folds == fold)
        # Random numbers of a fold are those of its place in the batch: split 0 is any estimator's own.
        for number, parameters in enumerate(settings):
            tree = soft_tree(trainer=SHORT, **parameters)
            if fold > 0 and parameters["depth"] > 0:
                continue
            tree.fit(train.frame, _y(train))
            if scoring == "log_likelihood":
                value = tree.log_likelihood(test.frame, _y(test))
            elif scoring == "c_harrell":
                value = tree.score(test.frame, _y(test))
            else:
                grid = metrics.evaluation_times(test.time, train.time, "graf")
                curves = tree.falling_curves(test.frame, grid)
                value = -metrics.integrated_brier_score(_y(test), curves, grid, train=_y(train))
            assert table.loc[number, f"fold_{fold}"] == pytest.approx(value, abs=1e-6)
    columns = ["fold_0", "fold_1", "fold_2"]
    np.testing.assert_allclose(table["mean_score"], table[columns].mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(table["standard_error"], table[columns].sem(axis=1), rtol=1e-9)
    np.testing.assert_allclose(table["std_score"], table[columns].std(axis=1), rtol=1e-9)
    assert found.best_index_ == table["mean_score"].round(4).argmax() == table["rank"].argmin()
    assert found.best_score_ == table.loc[found.best_index_, "mean_score"]
    assert sorted(table["rank"]) == list(range(1, 5))
    assert (table["seconds"] > 0).all()


def test_the_chosen_tree_is_that_of_its_own_estimator_bit_for_bit(small_data: SurvivalData) -> None:
    data, found = small_data, _fit(small_data, depth=1)
    alone = soft_tree(trainer=SHORT, **found.best_params_).fit(data.frame, _y(data))
    tree = found.best_estimator_
    assert tree.objective_ == alone.objective_
    X = data.frame
    for method in (
        "predict",
        "predict_survival_function",
        "predict_cumulative_hazard_function",
        "predict_hazard_function",
        "predict_leaf_proba",
        "apply",
        "predict_quantile",
    ):
        np.testing.assert_array_equal(getattr(found, method)(X), getattr(alone, method)(X))
    np.testing.assert_array_equal(found.predict_rmst(X, 30.0), alone.predict_rmst(X, 30.0))
    assert found.predict_survival_function(X[:2], [4.0], as_frame=True).columns.tolist() == [4.0]  # type: ignore[union-attr]
    assert found.score(X, _y(data)) == alone.score(X, _y(data))
    assert tree.log_likelihood(X, _y(data)) == alone.log_likelihood(X, _y(data))
    assert gate_terms(tree) == gate_terms(alone)
    assert list(found.feature_names_in_) == list(X.columns)
    assert found.n_features_in_ == 3
    assert found.summary().endswith(tree.summary())
    assert tree.summary().startswith(alone.summary())
    assert "Chosen of 2 candidates by log_likelihood on 3 folds: depth=1" in found.summary()


def test_a_planted_leak_in_rows_held_out_changes_nothing(small_data: SurvivalData) -> None:
    """A feature that is the outcome in held-out rows alone: trees of the fold are the same, bit for bit."""
    rng = np.random.default_rng(3)
    folds = stratified_folds(small_data.event, 3, 0)
    clean = small_data.frame.assign(leak=rng.uniform(size=120), kind=rng.choice(["a", "b"], 120))
    found = []
    for planted in (False, True):
        frame, time, event = clean.copy(), small_data.time.copy(), small_data.event.copy()
        if planted:
            out = folds == 1
            frame.loc[out, "leak"] = 1e6 * event[out] - time[out]
            frame.loc[out, "x0"] = np.nan
            time[out] = rng.permutation(time[out])
        data = SurvivalData(frame, (time, event))
        search = FoldSearch(
            soft_search(**SMALL).estimator, data, folds, Schema.of(data.frame), "log_likelihood"
        )
        compared = [own for own in soft_search(**SMALL).candidates() if own.depth == 1]
        batch = search.train(compared)
        found.append((batch, search.grid(compared).folds))
    (before, scores), (after, others) = found
    n_fold = len(before.coefficients) * before.n_starts
    own = slice(n_fold, 2 * n_fold)
    for name, value in before.tree.state_dict().items():
        assert torch.equal(value[own], after.tree.state_dict()[name][own]), name
    assert torch.equal(before.criterion[own], after.criterion[own])
    assert not torch.equal(before.criterion[:n_fold], after.criterion[:n_fold])  # these were trained on it
    assert not np.allclose(scores[:, 1], others[:, 1])  # and this fold was scored on it


def test_fewer_starts_are_the_first_of_the_most(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    train = search_module.train_batch
    monkeypatch.setattr(
        search_module,
        "train_batch",
        lambda splits, settings, *a, **b: (
            trained.append(settings.n_starts),
            train(splits, settings, *a, **b),
        )[1],
    )
    several = _fit(small_data, depth=1, init="random", n_starts=(1, 3), trainer="nodec").cv_results_
    assert trained == [3]
    one = _fit(small_data, depth=1, init="random", n_starts=1, trainer="nodec").cv_results_
    columns = ["fold_0", "fold_1", "fold_2"]
    np.testing.assert_allclose(several.query("n_starts == 1")[columns], one[columns], atol=2e-3)
    assert not several.query("n_starts == 3")[columns].reset_index(drop=True).equals(one[columns])


@pytest.mark.nightly
def test_halving_ends_with_the_scores_of_the_grid_for_few(small_data: SurvivalData) -> None:
    grid = _fit(small_data, n_starts=3).cv_results_
    found = _fit(small_data, n_starts=3, search="halving")
    table = found.cv_results_
    assert rungs(9) == [1, 3, 9]
    assert rungs(5) == [1, 5]
    assert rungs(1) == [1]
    assert (table["rung"] == 1).sum() == 2  # a third of six
    assert set(table.loc[table["rung"] == 0, "starts"]) == {1}
    last = table["rung"] == 1
    np.testing.assert_allclose(table.loc[last, "fold_0"], grid.loc[last, "fold_0"], atol=1e-9)
    assert set(table.loc[last, "rank"]) == {1, 2}
    assert last[found.best_index_]
    first = table.loc[~last, "mean_score"].max()
    alone = _fit(small_data, n_starts=1).cv_results_["mean_score"]
    assert alone[last].min() >= first  # the others were worse with one start


def test_of_equal_scores_the_first_is_chosen() -> None:
    """A ridge that puts the gate to sleep leaves the single leaf, but for rounding."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2))
    y = rng.exponential(np.exp(X[:, 0])), rng.uniform(size=150) < 0.8
    found = soft_search(
        **SMALL | {"ridge": 0.1, "gate_ridge": 10.0, "fused": 0.0, "n_starts": 1, "trainer": "nodec"}
    ).fit(X, y)
    mean = found.cv_results_["mean_score"]
    assert mean[0] != mean[1]
    assert mean[0] == pytest.approx(mean[1], abs=3e-7)
    assert found.best_params_["depth"] == 0
    folds = np.array([[1.0, 2.0], [1.0, 2.0 + 1e-8], [2.0, 2.0], [-np.inf, 9.0]])
    none = np.zeros(4, dtype=np.int64)
    assert search_module.Scores([], folds, folds, folds, np.ones(4), none, none).rank.tolist() == [2, 3, 1, 4]
    last = np.array([1, 1, 0, 0])
    assert search_module.Scores([], folds, folds, folds, np.ones(4), last, none).rank.tolist() == [1, 2, 3, 4]


def test_automatic_leaves_know_grouped_times(small_data: SurvivalData) -> None:
    years = np.ceil(small_data.time / small_data.time.max() * 6)
    grouped = SurvivalData(small_data.frame, (years, small_data.event))
    search = PrognosticTreeCV(depth=0, grid=Grid(ridge=1e-2), columns=Columns(numeric="linear"), cv=2)
    assert [own.leaf for own in search.candidates(grouped)] == ["logistic_hazard"]
    smooth = [own.leaf for own in search.candidates(small_data)]
    assert smooth == ["log_logistic", "spline_ph", "spline_po"]
    # Events found at the end of a year, people lost on any day: free of the event till then, for the leaf.
    any_day = SurvivalData(
        small_data.frame, (np.where(small_data.event, years, years - 0.37), small_data.event)
    )
    assert [own.leaf for own in search.candidates(any_day)] == smooth
    # A few events at times of their own are not tied.
    few = small_data.subset(np.flatnonzero(small_data.event)[:8])
    assert len(np.unique(few.time)) > 4
    assert [own.leaf for own in search.candidates(few)] == smooth
    # Without data, as where the settings of a study are compared: all that it may be.
    assert [own.leaf for own in search.candidates()] == [*smooth, "logistic_hazard"]
    found = search.fit(grouped.frame, (grouped.time, grouped.event))
    assert found.best_params_["leaf"] == "logistic_hazard"
    with pytest.raises(ConfigError, match="leaf='auto' stands for several leaves"):
        PrognosticTreeCV(leaf=("auto", "weibull")).candidates()


def test_growing_scores_a_part_of_the_grid_depth_by_depth(small_data: SurvivalData) -> None:
    lists = {"depth": (0, 1, 2), "leaf": ("weibull", "exponential", "log_logistic"), "fused": 0.0}
    keys = ["leaf", "ridge", "depth"]
    whole = _fit(small_data, **lists).cv_results_.set_index(keys)["mean_score"]
    found = _fit(small_data, **lists, search="growing")
    table = found.cv_results_.set_index(keys)["mean_score"]
    first = table[table.index.get_level_values("depth") == 0]
    assert len(first) == 3 * 2
    np.testing.assert_allclose(first, whole[first.index], rtol=1e-6)
    ridge = first.groupby("leaf").idxmax().map(lambda key: key[1])
    best, families = first.max(), set(first.groupby("leaf").max().nlargest(2).index)
    for depth in (1, 2):
        level = table[table.index.get_level_values("depth") == depth]
        # The two best leaves of the depth before, each at the ridge that was its best at the first.
        assert {(leaf, own) for leaf, own, _ in level.index} == {(leaf, ridge[leaf]) for leaf in families}
        # Of the same batch or of another: the same but for rounding in a few iterations.
        np.testing.assert_allclose(level, whole[level.index], rtol=1e-4)
        families = set(level.groupby("leaf").max().nlargest(2).index)
        if not level.max() > best + 1e-4:
            break
        best = level.max()
    assert len(table) == len(first) + 2 * depth
    assert found.best_params_["depth"] == table.idxmax()[2]


def test_growing_keeps_the_gate_ridge_that_is_best_at_depth_2(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths, gate_ridges = (0, 1, 2, 3, 4), (1e-5, 1e-4, 1e-3)
    search = PrognosticTreeCV(
        depth=depths,
        leaf="weibull",
        families=("regression", "gates"),
        grid=Grid(ridge=1e-3, gate_ridge=gate_ridges, trainer="nodec"),
        columns=Columns(numeric="linear"),
    )
    # The best at depths 1, 2, 3 and 4, were they all compared; each depth is better than the one before.
    favourite = {0: 1e-5, 1: 1e-5, 2: 1e-4, 3: 1e-3, 4: 1e-3}
    levels: dict[int, set[float]] = {}

    def scores(_: FoldSearch, level: list[Any]) -> tuple[Any, ...]:
        levels[level[0].depth] = {own.gate_ridge for own in level}
        values = [own.depth + 0.5 * (own.gate_ridge == favourite[own.depth]) for own in level]
        folds = np.repeat(np.array(values)[:, None], 2, axis=1)
        return np.stack([folds, folds, folds]), np.zeros(len(level)), [[]] * len(level)

    monkeypatch.setattr(FoldSearch, "_scores", scores)
    folds, schema = stratified_folds(small_data.event, 2, 0), Schema.of(small_data.frame)
    found = FoldSearch(PrognosticTree(), small_data, folds, schema, "c_harrell")
    found = found.growing(search.candidates())
    assert {depth: levels[depth] for depth in (1, 2, 3, 4)} == {
        1: {1e-5, 1e-4, 1e-3},
        2: {1e-5, 1e-4, 1e-3},
        3: {1e-4},
        4: {1e-4},
    }
    assert len(found.candidates) == 1 + 3 + 3 + 1 + 1


def test_growing_stops_where_depth_gains_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2))
    y = rng.exponential(np.exp(X[:, 0])), rng.uniform(size=150) < 0.8
    found = PrognosticTreeCV(
        leaf="exponential",
        families=("regression", "gates"),
        grid=Grid(gate_ridge=10.0, trainer="nodec"),
        columns=Columns(numeric="linear"),
        cv=3,
        scoring="log_likelihood",
    ).fit(X, y)
    assert found.cv_results_["depth"].tolist() == [0, 0, 0, 1]
    assert found.best_params_["depth"] == 0


def test_one_standard_error_takes_the_simplest_candidate_near_the_best(
    small_data: SurvivalData, searched: PrognosticTreeCV
) -> None:
    table = searched.cv_results_
    found = _fit(small_data, one_standard_error=True)
    best = table.loc[table["mean_score"].argmax()]
    near = table[table["mean_score"] >= best["mean_score"] - best["standard_error"]]
    order = near.assign(loose=-near["fused"], free=-near["ridge"]).sort_values(["depth", "loose", "free"])
    assert found.best_index_ == order.index[0]
    assert found.best_score_ == table.loc[order.index[0], "mean_score"]


def test_a_leaf_that_cannot_be_trained_loses(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = search_module.train_batch

    def spoilt(*args: Any, **options: Any) -> Any:
        batch = train(*args, **options)
        batch.criterion[: batch.n_starts] = torch.nan
        return batch

    monkeypatch.setattr(search_module, "train_batch", spoilt)
    found = _fit(small_data, depth=1, ridge=(1e-3, 1e-2))
    assert found.cv_results_["fold_0"].tolist()[0] == -np.inf
    assert found.cv_results_["rank"].tolist() == [2, 1]
    assert np.isnan(found.cv_results_.loc[0, "std_score"])
    with pytest.raises(TrainingError, match="no candidate has a finite score on every fold"):
        _fit(small_data, depth=1, ridge=1e-3)


def test_scorers_weights_entry_and_leaves(small_data: SurvivalData, searched: PrognosticTreeCV) -> None:
    X, y = small_data.frame, _y(small_data)

    def minus_depth(tree: SoftSurvivalTree, X: pd.DataFrame, y: object) -> float:
        assert len(X) == 40
        return -float(tree.module_.topology.depth)

    found = _fit(small_data, scoring=minus_depth)
    assert found.best_params_["depth"] == 0
    weight = np.where(np.arange(120) < 90, 1.0, 0.0)
    weighted = soft_search(**SMALL).fit(X, y, sample_weight=weight)
    part = soft_search(**SMALL).fit(X[:90], (y[0][:90], y[1][:90]))
    assert len(weighted.folds_) == 90
    pd.testing.assert_frame_equal(
        weighted.cv_results_.drop(columns="seconds"), part.cv_results_.drop(columns="seconds")
    )
    entry = np.where(np.arange(120) % 3 == 0, 0.5 * y[0], 0.0)
    late_y = Surv(*y, entry=entry)
    late = soft_search(**SMALL).fit(X, late_y)
    assert not np.allclose(late.cv_results_["mean_score"], searched.cv_results_["mean_score"])
    for scoring in ("ibs", minus_depth):
        with pytest.raises(DataError, match="use scoring='log_likelihood' or 'c_harrell'"):
            soft_search(**SMALL | {"scoring": scoring}).fit(X, late_y)
    ranked = soft_search(**SMALL | {"scoring": "c_harrell", "depth": 0}).fit(X, late_y)
    fold, outside = ranked.folds_ == 0, ranked.folds_ != 0
    leaf = clone(ranked.best_estimator_).fit(X[outside], late_y[outside])
    score = leaf.score(X[fold], late_y[fold])
    assert ranked.cv_results_.loc[ranked.best_index_, "fold_0"] == pytest.approx(score, rel=1e-9)
    assert score != leaf.score(X[fold], Surv(y[0][fold], y[1][fold], entry=0 * entry[fold]))
    leaves = ("exponential", Spline("odds", knots=1), Spline("odds", knots=2))
    several = _fit(small_data, leaf=leaves, depth=0, init=("random", "kmeans"))
    assert len(several.cv_results_) == 3 * 2
    assert several.cv_results_["leaf"].nunique() == 3


def _mean_risk(tree: SoftSurvivalTree, X: object, y: object) -> float:
    return float(tree.predict(X).mean())


def test_saved_search_tells_by_what_it_has_chosen(small_data: SurvivalData, tmp_path: Path) -> None:
    search = soft_search(**SMALL).set_params(depth=0, scoring=_mean_risk)
    found = search.fit(small_data.frame, _y(small_data))
    found.save(tmp_path / "search")
    assert PrognosticTreeCV.load(tmp_path / "search").summary() == found.summary()
    assert "candidates by score on" in found.summary()


def test_saved_search_is_the_same_and_two_are_not_mixed(small_data: SurvivalData, tmp_path: Path) -> None:
    found = clone(soft_search(**SMALL)).set_params(scoring="c_harrell").fit(small_data.frame, _y(small_data))
    found.save(tmp_path / "search")
    again = PrognosticTreeCV.load(tmp_path / "search")
    pd.testing.assert_frame_equal(again.cv_results_, found.cv_results_)
    assert again.summary() == found.summary()
    np.testing.assert_array_equal(again.predict(small_data.frame), found.predict(small_data.frame))
    np.testing.assert_array_equal(again.folds_, found.folds_)
    assert again.best_score_ == found.best_score_
    assert again.best_params_ | {"leaf": "log_logistic"} == found.best_params_
    assert again.score(small_data.frame, _y(small_data)) == found.score(small_data.frame, _y(small_data))
    _fit(small_data, depth=0, ridge=0.7).best_estimator_.save(tmp_path / "search" / "tree")
    with pytest.raises(FormatError, match="is the tree of another search"):
        PrognosticTreeCV.load(tmp_path / "search")
    with pytest.raises(FormatError, match=r"of format sstorch.survival_regression version"):
        PrognosticTreeCV.load(tmp_path / "search" / "tree")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"search": "random"}, "search must be one of growing, grid, halving"),
        ({"scoring": "auc"}, "scoring must be one of log_likelihood, c_harrell, ibs, or a scorer"),
        ({"cv": 1}, "cv must be at least 2"),
        ({"random_state": None}, "random_state must be at least 0"),
        ({"ridge": ()}, "ridge must be a value, or different ones"),
        ({"ridge": "small"}, "ridge must be a finite number >= 0, got 'small'"),
        ({"ridge": ([0.1], [0.2])}, "ridge must be a finite number >= 0"),
        ({"fused": (0.1, 0.1)}, "fused must be a value, or different ones"),
        ({"depth": (0, 9)}, "depth"),
        ({"gate_ridge": (0.1, -1.0)}, "gate_ridge must be a finite number >= 0"),
        ({"init": ("kmeans", "cox")}, "init='cox' is for spline leaves"),
        ({"search": "halving", "n_starts": (1, 2)}, "give one number of n_starts"),
    ],
)
def test_what_does_not_exist_is_refused_before_any_work(
    small_data: SurvivalData, values: dict[str, Any], message: str
) -> None:
    search = soft_search(**SMALL | {name: value for name, value in values.items() if value is not None})
    given = {name: value for name, value in values.items() if value is None}
    with pytest.raises(ConfigError, match=message):
        search.set_params(**given).fit(small_data.frame, _y(small_data))


def test_too_few_events_are_refused(small_data: SurvivalData) -> None:
    with pytest.raises(DataError, match="too few for 200 folds"):
        _fit(small_data, cv=200)


@pytest.mark.filterwarnings("ignore:.*time.* of zero moved")
def test_scorers_are_handed_the_times_that_were_given(small_data: SurvivalData) -> None:
    """Zeros are moved for training; a scorer that knows all rows would not find the moved ones."""
    y = (np.where(np.arange(120) % 40 == 3, 0.0, small_data.time), small_data.event)
    scorer = metrics.SurvivalScorer("ibs_graf", all_rows=y)
    soft = PrognosticTreeCV(depth=0, leaf="weibull", grid=Grid(ridge=(1e-3, 1e-1)), cv=2, scoring=scorer).fit(
        small_data.frame, y
    )
    exact = OptimalSurvivalTreeCV(1, n_folds=2, scoring=scorer).fit(small_data.frame, y)
    assert -1 < soft.best_score_ < 0
    assert -1 < exact.best_score_ < 0


def test_functions_of_a_tree_ask_a_search_for_its_estimator() -> None:
    with pytest.raises(AttributeError, match="best_estimator_"):
        export_text(PrognosticTreeCV())  # type: ignore[arg-type]
