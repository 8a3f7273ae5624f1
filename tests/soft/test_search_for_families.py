"""The search among regressions, distilled groups and gates trained on outcomes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import (
    Columns,
    Grid,
    GroupPenalties,
    PrognosticTree,
    PrognosticTreeCV,
    Surv,
    SurvivalData,
)
from sstorch.bench.flat import soft_search
from sstorch.exceptions import ConfigError
from sstorch.reading import export_text, gate_table, leaf_coefficients
from sstorch.soft.candidates import Candidate
from sstorch.soft.search import FoldSearch
from sstorch.validation import concordance_of_groups, validate_groups
from tests.causes import simulated

GROUPS: dict[str, Any] = {
    "leaf": "weibull",
    "init": "distilled",
    "numeric": "linear",
    "ridge": 1e-2,
    "cv": 3,
    "random_state": 0,
}


def _y(data: SurvivalData) -> tuple[np.ndarray, np.ndarray, list[list[None]]]:
    return data.time, data.event


def _kinds(**parameters: object) -> dict[str, set[int]]:
    """Depths of each family among the candidates."""
    found: dict[str, set[int]] = {}
    few = {"leaf": "weibull", "numeric": "linear", "ridge": 1e-3, "gate_features": 2, "gate_ridge": 1e-4}
    for each in soft_search(**few | parameters).candidates():  # type: ignore[arg-type]
        found.setdefault(each.family, set()).add(each.depth)
    return found


def test_depths_of_the_families() -> None:
    assert _kinds() == {"regression": {0}, "groups": {2}, "gates": {1, 2, 3, 4}}
    assert _kinds(families=("regression", "gates")) == {"regression": {0}, "gates": {1, 2, 3, 4}}
    assert _kinds(depth=(0, 3)) == {"regression": {0}, "groups": {3}, "gates": {3}}
    assert _kinds(depth=1) == {"groups": {1}, "gates": {1}}
    with pytest.raises(ConfigError, match="families must be some of regression, groups, gates"):
        PrognosticTreeCV(families=("leaves",)).candidates()  # type: ignore[arg-type]


def test_gates_of_causes_are_not_trained_on_outcomes() -> None:
    data = SurvivalData(*simulated(60))
    assert {each.family for each in PrognosticTreeCV().candidates(data)} == {"regression", "groups"}


def test_search_of_causes_predicts_and_is_kept(tmp_path: Path) -> None:
    X, y = simulated(150)
    few = {"grid": Grid(ridge=1e-2, fused=math.inf, gate_features=2), "columns": Columns(numeric="linear")}
    found = PrognosticTreeCV((0, 1), "weibull", cv=2, **few).fit(X, y)  # type: ignore[arg-type]
    assert set(found.families_.index) == {"regression", "groups"}
    alone = clone(found.best_estimator_).fit(X, y)
    curves = found.predict_cumulative_incidence(X, [300.0, 900.0])
    np.testing.assert_array_equal(curves, alone.predict_cumulative_incidence(X, [300.0, 900.0]))
    found.save(tmp_path)
    again = PrognosticTreeCV.load(tmp_path)
    np.testing.assert_array_equal(again.predict_cumulative_incidence(X, [300.0, 900.0]), curves)
    assert again.summary() == found.summary()


def test_what_does_not_matter_makes_no_candidates() -> None:
    listed = PrognosticTreeCV(leaf="weibull", columns=Columns(numeric="linear")).candidates()
    by_family = {name: [own for own in listed if own.family == name] for name in ("groups", "gates")}
    choices = {(own.fused, own.gate_features) for own in by_family["groups"]}
    assert choices == {(fused, columns) for fused in (math.inf, 0.1, 0.01) for columns in (1, 2, 3)}
    assert len(by_family["groups"]) == 3 * len(choices)  # ridges
    assert {(own.n_starts, own.gate_ridge) for own in by_family["groups"]} == {(1, 0.0)}
    assert {(own.fused, own.gate_features, own.n_starts) for own in by_family["gates"]} == {(0.0, None, 10)}
    assert {own.gate_ridge for own in by_family["gates"]} == {1e-5, 1e-4}
    assert len([own for own in listed if own.depth == 0]) == 3
    assert len(set(listed)) == len(listed)
    # Slopes of all degrees are one batch; numbers of columns, which are other starts, are not.
    assert len({own.batch for own in by_family["groups"]}) == 3
    given = soft_search(**GROUPS | {"fused": (1.0, 2.0), "gate_features": (2, None), "depth": 2})
    assert {(own.fused, own.gate_features) for own in given.candidates()} == {
        (1.0, 2), (1.0, None), (2.0, 2), (2.0, None)
    }  # fmt: skip
    plain = [own for own in by_family["groups"] if (own.fused, own.ridge) == (math.inf, 1e-3)]
    assert [own.gate_features for own in sorted(plain, key=lambda own: own.simplicity)] == [1, 2, 3]


@pytest.mark.nightly
def test_groups_are_scored_as_trees_fitted_to_each_fold(small_data: SurvivalData) -> None:
    """Score and concordance of the groups alone, beside a loop of fits; slopes shared and not."""
    data = small_data
    lists = {"depth": (0, 2), "gate_features": (1, 2)}
    found = soft_search(search="grid", scoring="c_harrell", **GROUPS | lists)
    found.fit(data.frame, _y(data))
    table = found.cv_results_
    assert len(table) == 1 + 2 * 3
    assert table.loc[0, "family"] == "regression"
    assert np.isnan(table.loc[0, "c_groups"])
    for number in range(1, len(table)):
        row, alone = table.loc[number], []
        for fold in range(3):
            train, test = data.subset(found.folds_ != fold), data.subset(found.folds_ == fold)
            tree = PrognosticTree(
                leaf="weibull",
                gate_features=row["gate_features"],
                penalties=GroupPenalties(ridge=1e-2, fused=row["fused"]),
                columns=Columns(numeric="linear"),
            ).fit(train.frame, _y(train))
            assert row[f"fold_{fold}"] == pytest.approx(tree.score(test.frame, _y(test)), abs=1e-6)
            assert row["c_harrell"] == pytest.approx(row[["fold_0", "fold_1", "fold_2"]].mean())
            alone.append(concordance_of_groups(tree, test.frame, _y(test), (train.frame, _y(train))))
        assert row["c_groups"] == pytest.approx(np.mean(alone), abs=1e-12)


def _scripted(
    monkeypatch: pytest.MonkeyPatch, scores: dict[str, list[float]], columns: int = 2
) -> list[list[Candidate]]:
    """Scores by family instead of training; of groups, those with so many columns are better than others."""
    seen: list[list[Candidate]] = []

    def script(self: FoldSearch, level: list[Candidate]) -> tuple[np.ndarray, np.ndarray, list[list[None]]]:
        seen.append(level)
        worse = [own.family == "groups" and own.gate_features != columns for own in level]
        folds = np.array([scores[own.family] for own in level]) - 0.1 * np.array(worse)[:, None]
        groups = np.array([np.full(3, np.nan if own.depth == 0 else 0.7) for own in level])
        return np.stack([folds, folds, groups]), np.zeros(len(level)), [[]] * len(level)

    monkeypatch.setattr(FoldSearch, "_scores", script)
    monkeypatch.setattr(FoldSearch, "validate_groups", lambda *_: None)
    return seen


@pytest.mark.parametrize(
    ("groups", "prefer", "family"),
    [
        ([0.69, 0.71, 0.69], "groups", "groups"),  # less the best: -.01, .02, -.01
        ([0.695, 0.69, 0.699], "groups", "gates"),  # always a little worse
        ([0.69, 0.71, 0.69], "accuracy", "gates"),
        ([0.72, 0.71, 0.72], "accuracy", "groups"),
    ],
)
def test_groups_are_preferred_unless_they_are_clearly_worse(
    small_data: SurvivalData,
    monkeypatch: pytest.MonkeyPatch,
    groups: list[float],
    prefer: Any,
    family: str,
) -> None:
    scores = {"regression": [0.6, 0.65, 0.6], "groups": groups, "gates": [0.7, 0.7, 0.7]}
    _scripted(monkeypatch, scores)
    search = PrognosticTreeCV(
        depth=(0, 1),
        leaf="weibull",
        grid=Grid(ridge=1e-2, gate_ridge=1e-3, n_starts=1),
        columns=Columns(numeric="linear"),
        cv=3,
    )
    found = search.set_params(prefer=prefer).fit(small_data.frame, _y(small_data))
    table = found.families_
    assert table.index.tolist() == ["regression", "groups", "gates"]
    assert table.index[table["chosen"]].tolist() == [family]
    assert found.cv_results_.loc[found.best_index_, "family"] == family
    assert table.loc[family, "index"] == found.best_index_
    assert found.cv_results_.loc[table.loc["groups", "index"], "gate_features"] == 2
    best = scores["groups"] if np.mean(groups) > 0.7 else scores["gates"]
    for name, row in table.iterrows():
        difference = np.array(scores[str(name)]) - best
        assert row["mean_score"] == pytest.approx(np.mean(scores[str(name)]))
        assert row["less_best"] == pytest.approx(difference.mean(), abs=1e-12)
        standard_error = pd.Series(difference).sem()
        assert row["less_best_standard_error"] == pytest.approx(standard_error, abs=1e-12)
    first = found.summary().splitlines()
    assert first[1].split()[:4] == ["regression,", "one", "group", "0.6167"]
    assert first[1].split()[6:] == ["0.617", "-"]
    assert [line.endswith("<- chosen") for line in first[1:4]] == table["chosen"].tolist()
    assert " 0.700" in first[2]  # the groups alone


def test_one_standard_error_chooses_the_simplest_among_those_preferred(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {"regression": [0.695, 0.71, 0.7], "groups": [0.71, 0.7, 0.7], "gates": [0.6, 0.6, 0.6]}
    _scripted(monkeypatch, scores)
    search = PrognosticTreeCV(
        depth=(0, 2),
        leaf="weibull",
        grid=Grid(ridge=1e-2, gate_ridge=1e-3),
        columns=Columns(numeric="linear"),
        cv=3,
    )
    search.set_params(one_standard_error=True).fit(small_data.frame, _y(small_data))
    assert (search.best_params_["depth"], search.best_params_["gate_features"]) == (2, 2)
    search.set_params(prefer="accuracy").fit(small_data.frame, _y(small_data))
    assert search.best_params_["depth"] == 0
    assert search.families_.loc["regression", "chosen"]
    assert "No gate is better on rows left out: this is a regression, one group." in search.summary()


def test_groups_have_the_best_leaf_and_do_not_stop_gates(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {"regression": [0.6] * 3, "groups": [0.9] * 3, "gates": [0.8] * 3}
    seen = _scripted(monkeypatch, scores)
    leaves = ("weibull", "exponential", "log_logistic")
    PrognosticTreeCV(leaf=leaves, grid=Grid(ridge=1e-2), columns=Columns(numeric="linear"), cv=3).fit(
        small_data.frame, _y(small_data)
    )
    told = [(level[0].family, {own.depth for own in level}, {own.leaf for own in level}) for level in seen]
    assert told == [
        ("regression", {0}, set(leaves)),
        ("groups", {2}, {"weibull"}),
        ("gates", {1}, {"weibull", "exponential"}),
        ("gates", {2}, {"weibull", "exponential"}),  # no better than depth 1: the last
    ]


def test_chosen_groups_are_saved(small_data: SurvivalData, tmp_path: Path) -> None:
    search = soft_search(**GROUPS | {"depth": 2, "gate_features": 1, "fused": (math.inf, 0.1)})
    found = search.fit(small_data.frame, _y(small_data))
    found.save(tmp_path)
    again = PrognosticTreeCV.load(tmp_path)
    assert again.summary() == found.summary()
    X, tree, loaded = small_data.frame, found.best_estimator_, again.best_estimator_
    pd.testing.assert_frame_equal(gate_table(loaded), gate_table(tree))
    pd.testing.assert_frame_equal(leaf_coefficients(loaded), leaf_coefficients(tree))
    assert (export_text(loaded), loaded.describe()) == (export_text(tree), tree.describe())
    assert str(loaded.explain(X.iloc[[3]])) == str(tree.explain(X.iloc[[3]]))
    assert again.best_params_ | {"leaf": "weibull"} == found.best_params_
    pd.testing.assert_frame_equal(again.families_, found.families_)
    np.testing.assert_array_equal(again.apply(small_data.frame), found.apply(small_data.frame))


def test_group_validation_of_a_search_trains_nothing_again(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("trees of the folds are trained a second time")

    monkeypatch.setattr("sstorch.soft.estimator.train_batch", fail)
    lists = GROUPS | {"depth": 1, "gate_features": 1, "fused": math.inf}
    found = soft_search(**lists).fit(small_data.frame, _y(small_data))
    assert found.best_estimator_.group_validation_.n_folds == 3


def test_the_search_says_whether_the_groups_differ(small_data: SurvivalData, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    noise = pd.DataFrame(draws.normal(size=(150, 3)), columns=list("abc"))
    y = draws.exponential(size=150) + 0.01, draws.random(150) < 0.7
    lists = GROUPS | {"depth": 2, "gate_features": 1, "fused": math.inf}
    for X, target, differ in ((small_data.frame, _y(small_data), True), (noise, y, False)):
        found = soft_search(**lists).fit(X, target)
        alone = found.best_estimator_.group_validation_
        assert alone.differ == differ
        assert ("These groups do not differ" in found.summary()) != differ
        assert alone == validate_groups(clone(found.best_estimator_).fit(X, target), X, target, n_folds=3)
    late_y = Surv(*y, entry=np.where(np.arange(150) % 2, 0.5 * y[0], 0.0))
    late = soft_search(**lists).fit(noise, late_y)
    assert 0.3 < late.best_estimator_.group_validation_.c_groups < 0.7
    late.save(tmp_path)
    assert PrognosticTreeCV.load(tmp_path).summary() == late.summary()


def test_a_preference_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="prefer must be one of groups, accuracy, got 'leaves'"):
        PrognosticTreeCV(prefer="leaves").candidates()  # type: ignore[arg-type]
