"""The search among a few models: scores of folds, the choice, and that nothing of test rows gets into it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import (
    Columns,
    GatePenalties,
    OptimalSurvivalTreeCV,
    Penalties,
    PrognosticTree,
    PrognosticTreeCV,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    default_candidates,
    metrics,
)
from sstorch.data import Schema, stratified_folds
from sstorch.exceptions import ConfigError, DataError, FormatError, TrainingError
from sstorch.optim import Joint, LBFGSOptions
from sstorch.reading import export_text, gate_coefficients, gate_table
from sstorch.soft import search as search_module
from sstorch.soft import tree_cv
from sstorch.soft.search import FoldScores
from sstorch.validation import concordance_of_groups, validate_groups
from tests.causes import simulated
from tests.conftest import nightly

LINEAR = Columns(numeric="linear")
REGRESSION = SurvivalRegression("weibull", Penalties(ridge=1e-2), LINEAR)
GROUPS = PrognosticTree(1, "weibull", columns=LINEAR)
# A few iterations of all parameters: alone and in a batch the same up to rounding.
GATES = SoftSurvivalTree(
    1, "weibull", Joint(LBFGSOptions(max_iterations=8)), "kmeans", 2, GatePenalties(gate_ridge=1e-3)
)
SMALL = {"one": REGRESSION, "two": GROUPS, "trained": GATES}


def _search(**parameters: Any) -> PrognosticTreeCV:
    return PrognosticTreeCV(**{"candidates": SMALL, "cv": 3} | parameters)


def _fit(data: SurvivalData, **parameters: Any) -> PrognosticTreeCV:
    return _search(**parameters).fit(data.frame, data.y)


@pytest.fixture(scope="module")
def searched(small_data: SurvivalData) -> PrognosticTreeCV:
    """The small search, fitted once."""
    return _fit(small_data)


# ---------------------------------------------------------------------- scores


@pytest.mark.parametrize("scoring", ["log_likelihood", nightly("c_harrell"), "ibs"])
def test_scores_are_those_of_models_fitted_to_each_fold(small_data: SurvivalData, scoring: str) -> None:
    """All folds as one batch compared with a loop of fits and the scores of the estimator."""
    data, found = small_data, _fit(small_data, scoring=scoring)
    folds, table = stratified_folds(data.event, 3, 0), found.cv_results_
    np.testing.assert_array_equal(found.folds_, folds)
    assert table.index.tolist() == list(SMALL)
    assert table["family"].tolist() == ["regression", "groups", "gates"]
    for name, candidate in SMALL.items():
        concordances, alone = [], []
        for fold in range(3):
            if fold and name == "trained":
                continue  # random numbers of a fold are those of its place in the batch
            train, test = data.subset(folds != fold), data.subset(folds == fold)
            model = clone(candidate).fit(train.frame, train.y)
            if scoring == "log_likelihood":
                value = model.log_likelihood(test.frame, test.y)
            elif scoring == "c_harrell":
                value = model.score(test.frame, test.y)
            else:
                grid = metrics.evaluation_times(test.time, train.time, "graf")
                curves = model.falling_curves(test.frame, grid)
                value = -metrics.integrated_brier_score(test.y, curves, grid, train=train.y)
            assert table.loc[name, f"fold_{fold}"] == pytest.approx(value, abs=1e-6)
            concordances.append(model.score(test.frame, test.y))
            if name == "two":
                alone.append(concordance_of_groups(model, test.frame, test.y, (train.frame, train.y)))
        if name != "trained":
            assert table.loc[name, "c_harrell"] == pytest.approx(np.mean(concordances), abs=1e-9)
        if name == "two":
            assert table.loc[name, "c_groups"] == pytest.approx(np.mean(alone), abs=1e-12)
    assert np.isnan(table.loc["one", "c_groups"])
    columns = ["fold_0", "fold_1", "fold_2"]
    best = table[columns].loc[table["rank"].idxmin()]
    np.testing.assert_allclose(table["mean_score"], table[columns].mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(table["standard_error"], table[columns].sem(axis=1), rtol=1e-9)
    difference = table[columns] - best
    np.testing.assert_allclose(table["less_best"], difference.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(table["less_best_standard_error"], difference.sem(axis=1), atol=1e-12)
    assert found.best_score_ == table.loc[found.best_name_, "mean_score"]
    assert table.index[table["chosen"]].tolist() == [found.best_name_]
    assert (table["seconds"] > 0).all()


def test_chosen_model_is_that_of_its_own_estimator_bit_for_bit(small_data: SurvivalData) -> None:
    data, found = small_data, _fit(small_data, candidates={"trained": GATES})
    alone = clone(GATES).fit(data.frame, data.y)
    model = found.best_estimator_
    assert model.objective_ == alone.objective_
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
    assert found.score(X, data.y) == alone.score(X, data.y)
    pd.testing.assert_frame_equal(gate_coefficients(model), gate_coefficients(alone))
    assert list(found.feature_names_in_) == list(X.columns)
    assert found.n_features_in_ == 3
    assert found.summary().endswith(model.summary())
    assert model.summary().startswith(alone.summary())


def test_candidates_are_not_changed_and_have_the_device_and_time_unit_of_the_search(
    small_data: SurvivalData,
) -> None:
    before = {name: each.get_params() for name, each in SMALL.items()}
    search = _search(time_unit="days", device="cpu").fit(small_data.frame, small_data.y)
    assert search.best_estimator_.time_unit_ == "days"
    assert {name: each.get_params() for name, each in SMALL.items()} == before
    assert not any(hasattr(each, "tree_") for each in SMALL.values())
    assert clone(search).get_params()["candidates"].keys() == SMALL.keys()


def test_test_rows_of_a_fold_change_nothing_in_its_models(small_data: SurvivalData) -> None:
    """A covariate that is the outcome in the test rows of a fold alone: its models are the same."""
    rng = np.random.default_rng(3)
    folds = stratified_folds(small_data.event, 3, 0)
    clean = small_data.frame.assign(leak=rng.uniform(size=120), kind=rng.choice(["a", "b"], 120))
    predicted: list[np.ndarray] = []

    def record(model: Any, X: object, y: object) -> float:
        predicted.append(model.predict_survival_function(clean, [10.0, 40.0]))
        return 0.0

    candidates = {**SMALL, "curved": SurvivalRegression()}
    for planted in (False, True):
        frame, time = clean.copy(), small_data.time.copy()
        if planted:
            out = folds == 1
            frame.loc[out, "leak"] = 1e6 * small_data.event[out] - time[out]
            frame.loc[out, "x0"] = np.nan
            time[out] = rng.permutation(time[out])
        _search(candidates=candidates, scoring=record).fit(frame, (time, small_data.event))
    before, after = np.array(predicted).reshape(2, 4, 3, 120, 2)
    np.testing.assert_array_equal(before[:3, 1], after[:3, 1])
    # Newton's method ends for all folds at once.
    np.testing.assert_allclose(before[3, 1], after[3, 1], rtol=1e-6)
    assert not np.allclose(before[:, 0], after[:, 0])  # these were trained on the rows


@pytest.mark.nightly
def test_nested_scores_are_those_of_searches_without_the_test_rows(small_data: SurvivalData) -> None:
    data, found = small_data, _fit(small_data, nested=True)
    nested, schema = found.nested_scores_, Schema.of(small_data.frame)
    assert nested is not None
    assert nested.index.tolist() == [0, 1, 2]
    for fold, row in nested.iterrows():
        inner = _search()._fit_data(data.subset(found.folds_ != fold), schema)
        assert row["candidate"] == inner.best_name_
        assert row["score"] == found.cv_results_.loc[inner.best_name_, f"fold_{fold}"]
        test = data.subset(found.folds_ == fold)
        if row["candidate"] != "trained":
            score = inner.score(test.frame, test.y)
            assert row["c_harrell"] == pytest.approx(score, abs=1e-9)
    assert "repeated without the test rows of each fold, scores" in found.summary()
    assert "nested=True" not in found.summary()
    assert "nested=True scores the choice itself." in _fit(data).summary()
    assert _fit(data).nested_scores_ is None


def test_scorers_weights_and_entry(small_data: SurvivalData, searched: PrognosticTreeCV) -> None:
    X, y = small_data.frame, small_data.y

    def minus_depth(model: SoftSurvivalTree, X: pd.DataFrame, y: object) -> float:
        assert len(X) == 40
        return -float(model.module_.topology.depth)

    found = _fit(small_data, scoring=minus_depth, prefer="accuracy")
    assert (found.best_name_, found.best_score_, found.score_name_) == ("one", 0.0, "score")
    weight = np.where(np.arange(120) < 90, 1.0, 0.0)
    few = {"one": REGRESSION, "two": GROUPS}
    weighted = _search(candidates=few).fit(X, y, sample_weight=weight)
    part = _search(candidates=few).fit(X[:90], y[:90])
    assert len(weighted.folds_) == 90
    pd.testing.assert_frame_equal(
        weighted.cv_results_.drop(columns="seconds"), part.cv_results_.drop(columns="seconds")
    )
    entry = np.where(np.arange(120) % 3 == 0, 0.5 * y.time, 0.0)
    late_y = Surv(y.time, y.event, entry=entry)
    late = _search(candidates=few).fit(X, late_y)
    assert not np.allclose(late.cv_results_["mean_score"], searched.cv_results_["mean_score"][:2])
    with pytest.raises(DataError, match="left truncation"):
        _search(scoring="ibs").fit(X, late_y)
    ranked = _search(candidates={"one": REGRESSION}, scoring="c_harrell").fit(X, late_y)
    fold, outside = ranked.folds_ == 0, ranked.folds_ != 0
    model = clone(REGRESSION).fit(X[outside], late_y[outside])
    score = model.score(X[fold], late_y[fold])
    assert ranked.cv_results_.loc["one", "fold_0"] == pytest.approx(score, rel=1e-9)
    assert score != model.score(X[fold], Surv(y.time[fold], y.event[fold], entry=0 * entry[fold]))


@pytest.mark.filterwarnings("ignore:.*at time zero moved")
def test_scorers_are_handed_the_times_that_were_given(small_data: SurvivalData) -> None:
    """Zeros are moved for training; a scorer that knows all rows would not find the moved ones."""
    y = (np.where(np.arange(120) % 40 == 3, 0.0, small_data.time), small_data.event)
    scorer = metrics.SurvivalScorer("ibs_graf", all_rows=y)
    soft = _search(candidates={"one": REGRESSION}, scoring=scorer).fit(small_data.frame, y)
    exact = OptimalSurvivalTreeCV(1, n_folds=2, scoring=scorer).fit(small_data.frame, y)
    assert -1 < soft.best_score_ < 0
    assert -1 < exact.best_score_ < 0


def test_candidate_that_cannot_be_trained_on_a_fold_loses(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = search_module.train_encoded

    def spoilt(splits: Any, settings: Any, *args: Any) -> Any:
        batch, x = train(splits, settings, *args)
        if settings.depth:
            batch.criterion[: batch.n_starts] = torch.nan
        return batch, x

    monkeypatch.setattr(search_module, "train_encoded", spoilt)
    found = _fit(small_data, candidates={"trained": GATES, "one": REGRESSION})
    assert found.cv_results_.loc["trained", "fold_0"] == -np.inf
    assert found.cv_results_["rank"].tolist() == [2, 1]
    assert np.isnan(found.cv_results_.loc["trained", "standard_error"])
    assert found.best_name_ == "one"
    with pytest.raises(TrainingError, match="no candidate has a finite score on every fold"):
        _fit(small_data, candidates={"trained": GATES})


# ---------------------------------------------------------------------- choice


def _scripted(monkeypatch: pytest.MonkeyPatch, scores: dict[str, list[float]]) -> None:
    """Scores by family instead of training."""

    def script(estimator: Any, data: SurvivalData, place: np.ndarray, *_: Any) -> FoldScores:
        own = np.array(scores[tree_cv.family_of(estimator)])
        alone = np.full(3, np.nan if isinstance(estimator, SurvivalRegression) else 0.7)
        return FoldScores(own, own, alone, np.tile(1 + np.arange(len(data)) % 2, (3, 1)), 0.5)

    monkeypatch.setattr(tree_cv, "score_on_folds", script)


@pytest.mark.parametrize(
    ("groups", "prefer", "chosen"),
    [
        ([0.69, 0.71, 0.69], "groups", "two"),  # less the best: -.01, .02, -.01
        ([0.695, 0.69, 0.699], "groups", "trained"),  # always a little worse
        ([0.69, 0.71, 0.69], "accuracy", "trained"),
        ([0.72, 0.71, 0.72], "accuracy", "two"),
    ],
)
def test_preferred_candidate_is_chosen_unless_it_is_clearly_worse(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch, groups: list[float], prefer: Any, chosen: str
) -> None:
    scores = {"regression": [0.6, 0.65, 0.6], "groups": groups, "gates": [0.7, 0.7, 0.7]}
    _scripted(monkeypatch, scores)
    found = _fit(small_data, prefer=prefer)
    assert found.best_name_ == chosen
    best = groups if np.mean(groups) > 0.7 else scores["gates"]
    difference = np.array(groups) - best
    assert found.cv_results_.loc["two", "less_best"] == pytest.approx(difference.mean(), abs=1e-12)
    lines = found.summary().splitlines()
    assert lines[2].split() == ["one", "0.6167", *lines[2].split()[2:4], "0.617", "-"]
    assert [line.endswith("<- chosen") for line in lines[2:5]] == found.cv_results_["chosen"].tolist()
    assert " 0.700" in lines[3]  # of the groups alone


def test_first_of_equal_scores_is_the_best(small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch) -> None:
    close = [0.5, 0.6, 0.7 + 3e-6]
    _scripted(monkeypatch, {"regression": [0.5, 0.6, 0.7], "groups": close, "gates": close})
    found = _fit(small_data, prefer="accuracy")
    assert found.cv_results_["rank"].tolist() == [1, 2, 3]
    assert found.best_name_ == "one"
    assert "No gate is better on held-out rows: this is a regression, one group." in found.summary()


# ---------------------------------------------------------------------- candidates


def test_default_candidates_are_few_and_suit_the_outcome(small_data: SurvivalData) -> None:
    every = default_candidates()
    assert len(every) <= 10
    assert {type(each).__name__ for each in every.values()} == {
        "SurvivalRegression",
        "PrognosticTree",
        "SoftSurvivalTree",
    }
    grouped = [name for name, each in every.items() if each.get_params()["leaf"] == "logistic_hazard"]
    assert len(grouped) == 2
    data = small_data.subset(np.r_[np.arange(120), np.arange(120)])  # of 160 events
    assert list(default_candidates(data.y)) == [name for name in every if name not in grouped]
    years = np.ceil(data.time / data.time.max() * 6)
    assert list(default_candidates((years, data.event))) == list(every)
    # Rows that are censored on any day are not at the times of events.
    any_day = np.where(data.event, years, years - 0.37)
    assert list(default_candidates((any_day, data.event))) == list(default_candidates(data.y))
    untrained = [name for name, each in every.items() if not isinstance(each, SoftSurvivalTree)]
    assert list(default_candidates(small_data.y)) == untrained  # of 80 events
    assert list(default_candidates(simulated(400)[1])) == untrained
    named = default_candidates(data.y, leaf="weibull", columns=LINEAR, random_state=4)
    for each in named.values():
        values = each.get_params()
        assert (values["leaf"], values["columns"], values["random_state"]) == ("weibull", LINEAR, 4)


def test_automatic_scoring_is_the_brier_score_where_times_are_grouped(small_data: SurvivalData) -> None:
    assert _fit(small_data, candidates={"one": REGRESSION}).score_name_ == "log_likelihood"
    years = np.ceil(small_data.time / small_data.time.max() * 6)
    grouped = SurvivalData(small_data.frame, (years, small_data.event))
    found = _fit(grouped, candidates={"one": REGRESSION})
    assert found.score_name_ == "ibs"
    assert -1 < found.best_score_ < 0
    named = _fit(grouped, candidates={"one": REGRESSION}, scoring="log_likelihood")
    assert named.score_name_ == "log_likelihood"
    late = _search(candidates={"one": REGRESSION}).fit(
        grouped.frame, Surv(years, small_data.event, entry=np.where(years > 1, 0.5, 0.0))
    )
    assert late.score_name_ == "log_likelihood"  # Brier scores do not support left truncation


@pytest.mark.nightly
def test_default_search_of_causes_predicts_and_is_kept(tmp_path: Path) -> None:
    X, y = simulated(150)
    found = PrognosticTreeCV(cv=2).fit(X, y)
    assert set(found.cv_results_["family"]) == {"regression", "groups"}
    alone = clone(found.best_estimator_).fit(X, y)
    curves = found.predict_cumulative_incidence(X, [300.0, 900.0])
    np.testing.assert_array_equal(curves, alone.predict_cumulative_incidence(X, [300.0, 900.0]))
    found.save(tmp_path)
    again = PrognosticTreeCV.load(tmp_path)
    np.testing.assert_array_equal(again.predict_cumulative_incidence(X, [300.0, 900.0]), curves)
    assert again.summary() == found.summary()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prefer": "leaves"}, "prefer must be one of groups, accuracy, got 'leaves'"),
        ({"scoring": "auc"}, "scoring must be one of auto, log_likelihood, c_harrell, ibs, or a scorer"),
        ({"cv": 1}, "cv must be at least 2"),
        ({"random_state": None}, "random_state must be at least 0"),
        ({"candidates": {}}, "candidates must be estimators by name, got {}"),
        ({"candidates": [REGRESSION]}, "candidates must be estimators by name"),
        ({"candidates": {"cox": "cox"}}, "candidate 'cox' must be one of SurvivalRegression"),
        (
            {"candidates": {"deep": PrognosticTree(9)}},
            "candidate 'deep': depth",
        ),
        (
            {"candidates": {"a": SurvivalRegression(columns=Columns(numeric={"size": "log"}))}},
            "candidate 'a': .*'size'",
        ),
        ({"device": "nowhere"}, "device"),
    ],
)
def test_what_does_not_exist_raises_before_any_work(
    small_data: SurvivalData, values: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "train_encoded", None)
    with pytest.raises(ConfigError, match=message):
        _fit(small_data, **values)


def test_gates_trained_on_causes_raise_by_their_name() -> None:
    X, y = simulated(60)
    with pytest.raises(ConfigError, match="candidate 'trained': gates that are trained on the outcomes"):
        _search().fit(X, y)


def test_too_few_events_for_the_folds_raise(small_data: SurvivalData) -> None:
    with pytest.raises(DataError, match="too few for 200 folds"):
        _fit(small_data, cv=200)


@pytest.mark.filterwarnings("ignore:3 events in 120 rows")
def test_folds_without_comparable_pairs_have_likelihoods(small_data: SurvivalData) -> None:
    event = small_data.time >= np.sort(small_data.time)[-3]  # the last rows alone
    candidates = {"one": clone(REGRESSION).set_params(leaf="exponential")}
    data = SurvivalData(small_data.frame, (small_data.time, event))
    search = _fit(data, candidates=candidates)
    assert np.isfinite(search.cv_results_["mean_score"]).all()
    assert search.cv_results_["c_harrell"].isna().all()
    for scoring in ("c_harrell", lambda model, X, y: float("nan")):
        with pytest.raises(DataError, match="fold 0 of 3 cannot be scored"):
            _fit(data, candidates=candidates, scoring=scoring)


def test_functions_of_a_tree_ask_a_search_for_its_estimator() -> None:
    with pytest.raises(ConfigError, match="best_estimator_"):
        export_text(PrognosticTreeCV())  # type: ignore[arg-type]


# ---------------------------------------------------------------------- groups, files


def test_validation_of_groups_is_that_of_the_folds_and_trains_nothing_again(
    small_data: SurvivalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = np.random.default_rng(0)
    noise = pd.DataFrame(draws.normal(size=(150, 3)), columns=list("abc"))
    y = draws.exponential(size=150) + 0.01, draws.random(150) < 0.7
    for X, target, differ in ((small_data.frame, small_data.y, True), (noise, y, False)):
        with monkeypatch.context() as patch:
            patch.setattr("sstorch.soft.estimator.train_batch", None)
            found = _search(candidates={"two": GROUPS}).fit(X, target)
        alone = found.best_estimator_.group_validation_
        assert alone.differ == differ
        assert ("No difference between the groups" in found.summary()) != differ
        assert alone == validate_groups(clone(GROUPS).fit(X, target), X, target, n_folds=3)
    late_y = Surv(*y, entry=np.where(np.arange(150) % 2, 0.5 * y[0], 0.0))
    late = _search(candidates={"two": GROUPS}).fit(noise, late_y)
    assert 0.3 < late.best_estimator_.group_validation_.first.c_groups < 0.7
    late.save(tmp_path)
    assert PrognosticTreeCV.load(tmp_path).summary() == late.summary()


@pytest.mark.nightly
def test_loaded_search_is_the_same_and_two_are_not_mixed(small_data: SurvivalData, tmp_path: Path) -> None:
    found = _fit(small_data, scoring="c_harrell", nested=True)
    found.save(tmp_path / "search")
    again = PrognosticTreeCV.load(tmp_path / "search")
    pd.testing.assert_frame_equal(again.cv_results_, found.cv_results_)
    pd.testing.assert_frame_equal(again.nested_scores_, found.nested_scores_)
    assert again.summary() == found.summary()
    X, y = small_data.frame, small_data.y
    for method in ("predict", "apply"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(found, method)(X))
    np.testing.assert_array_equal(again.folds_, found.folds_)
    assert (again.best_score_, again.best_name_) == (found.best_score_, found.best_name_)
    assert again.score(X, y) == found.score(X, y)
    pd.testing.assert_frame_equal(gate_table(again.best_estimator_), gate_table(found.best_estimator_))
    clone(REGRESSION).fit(X, y).save(tmp_path / "search" / "tree")
    with pytest.raises(FormatError, match="is the tree of another search"):
        PrognosticTreeCV.load(tmp_path / "search")
    with pytest.raises(FormatError, match=r"of format sstorch.survival_regression version"):
        PrognosticTreeCV.load(tmp_path / "search" / "tree")


def test_saved_search_keeps_infinite_scores_and_the_name_of_a_scorer(
    small_data: SurvivalData, tmp_path: Path
) -> None:
    def scorer(model: Any, X: object, y: object) -> float:
        return 1.0 if isinstance(model, SurvivalRegression) else -np.inf

    found = _fit(small_data, scoring=scorer)
    found.save(tmp_path)
    again = PrognosticTreeCV.load(tmp_path)
    pd.testing.assert_frame_equal(again.cv_results_, found.cv_results_)
    assert again.cv_results_.loc["two", "fold_0"] == -np.inf
    assert (again.score_name_, again.best_name_) == ("score", "one")
