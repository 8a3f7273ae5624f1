"""The registry of metrics: one declaration a name, one table and one scorer for every type of outcome."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import sstorch
from sstorch import Columns, Surv, SurvivalData, SurvivalRegression, metrics, validate
from sstorch.bench.fairness import pareto_front
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import SurvivalScorer, evaluate
from sstorch.metrics.grids import incidence_times
from sstorch.metrics.registry import METRICS, declare, metric, names_of

from .cohorts import CauseRates, Rates, rows_of_causes

ROOT = Path(sstorch.__file__).parent


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ConfigError, match="'c_uno' is declared already"):
        declare("c_uno", title="", short="", higher_is_better=True)
    known = METRICS["c_uno"]
    assert (known.title, known.short, known.direction) == ("Concordance (Uno)", "C_U", "higher is better")
    assert known.source.startswith("Uno et al. (2011)")


def test_metric_of_a_notebook_is_declared_again_by_its_own_function_alone() -> None:
    def declared(score: float) -> None:
        @metric("own", True)
        def own(rows: object, tau: object) -> float:
            """A score of these tests."""
            return score

    try:
        declared(1.0)
        declared(2.0)
        value = METRICS["own"].value
        assert value is not None
        assert value(None, None) == 2.0
        with pytest.raises(ConfigError, match="'own' is declared already"):
            declare("own", title="", short="", higher_is_better=True, value=lambda rows, tau: 3.0)
    finally:
        del METRICS["own"]


def test_every_metric_of_evaluate_is_in_the_documentation() -> None:
    page = (ROOT.parent / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"`(\w+)`", page))
    assert {name for name, known in METRICS.items() if known.outcomes} <= documented


def test_selections_of_studies_and_reports_have_members() -> None:
    assert names_of("event", "tree") == ["c_harrell", "ibs_graf", "ibs_sksurv"]
    assert {"c_uno", "ici_pseudo", "d_calibration_p"} < set(names_of("event", "study"))
    assert [METRICS[name].published for name in names_of(tag="published")] == [
        "c_harrell",
        "c_harrell",  # with tied times
        "c_uno",
        "cd_auc",
        "ibs",
        "ibs",  # with the weights of the scored rows
    ]


@pytest.mark.parametrize(("name", "kept"), [("ici_pseudo", [0.1, 0.2]), ("ibs_surtree", [0.3, 0.2])])
def test_pareto_front_takes_directions_from_the_registry(name: str, kept: list[float]) -> None:
    # Less is better of an index of calibration, more of SurTree's share of Kaplan-Meier's score.
    table = pd.DataFrame({name: [0.1, 0.2, 0.3], "parity": [0.5, 0.4, 0.45]})
    assert pareto_front(table, name, "parity")[name].tolist() == sorted(
        kept, key=lambda value: float(table.loc[table[name] == value, "parity"].item())
    )
    with pytest.raises(ConfigError, match="has no direction"):
        pareto_front(table.rename(columns={name: "d_calibration_p"}), "d_calibration_p", "parity")


def rows(n: int, seed: int) -> tuple[np.ndarray, Surv]:
    rng = np.random.default_rng(seed)
    rate = rng.gamma(3.0, 0.02, n)
    life, censoring = rng.exponential(1 / rate), rng.uniform(5, 60, n)
    return rate[:, None], Surv(np.ceil(np.minimum(life, censoring)), life <= censoring)


def test_weights_equal_repeated_rows_or_the_metric_says_that_it_knows_none() -> None:
    (X, y), (train_X, train) = rows(80, 0), rows(120, 1)
    weight, own = np.arange(80) % 3 + 1, np.arange(120) % 2 + 1
    again, many = np.repeat(np.arange(80), weight), np.repeat(np.arange(120), own)
    table = evaluate(Rates(), (train_X, train.weighted(own)), (X, y.weighted(weight)))
    repeated = evaluate(Rates(), (train_X[many], train[many]), (X[again], y[again]))
    unsupported = {"d_calibration_p", "ici_pseudo"}
    known = [name for name in table.index if name not in unsupported]
    np.testing.assert_allclose(table.loc[known, "value"], repeated.loc[known, "value"], rtol=1e-10)
    for name in unsupported:
        assert np.isnan(table.loc[name, "value"])
        assert "y has weights, and" in table.loc[name, "reason"]
    scaled = evaluate(Rates(), (train_X, train.weighted(7 * own)), (X, y.weighted(weight / 9)))
    np.testing.assert_allclose(scaled["value"], table["value"], rtol=1e-10)


def test_weighted_causes_equal_repeated_rows() -> None:
    rng = np.random.default_rng(3)
    y = Surv(np.ceil(rng.exponential(20, 90)), rng.integers(0, 3, 90), causes=("relapse", "death"))
    weight, curves = np.arange(90) % 3 + 1, np.sort(rng.uniform(0, 0.5, (90, 2, 3)), axis=2)
    again, times = np.repeat(np.arange(90), weight), [5.0, 15.0, 25.0]
    table = evaluate((curves, times), (None, y.weighted(weight)), (None, y.weighted(weight)))
    repeated = evaluate((curves[again], times), (None, y[again]), (None, y[again]))
    assert table["value"].notna().all()
    np.testing.assert_allclose(table["value"], repeated["value"], rtol=1e-10)


def test_rows_of_zero_weight_do_not_move_the_times_of_incidences() -> None:
    rng = np.random.default_rng(5)
    time, cause, weight = rng.exponential(size=80), rng.integers(0, 3, 80), np.repeat([0.0, 1.0], [30, 50])
    y = Surv(time, cause, causes=("relapse", "death"), weight=weight)
    np.testing.assert_array_equal(incidence_times(y), incidence_times(y[30:]))


def test_no_rows_raise() -> None:
    X, y = rows(60, 0)
    tree = SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear")).fit(X, y)
    with pytest.raises(DataError, match="test: the data have no rows"):
        evaluate(tree, (X, y), (X[:0], y[:0]))
    with pytest.raises(DataError, match="the data have no rows"):
        validate(tree, X[:0], y[:0], horizon=1.0)


def test_wrong_type_of_outcome_raises() -> None:
    X, y = rows(60, 4)
    causes = Surv(y.time, y.event.astype(int), causes="auto")  # type: ignore[union-attr]
    with pytest.raises(DataError, match="c_harrell of 1: it is not defined for competing causes"):
        evaluate((np.zeros((60, 1, 2)), [5.0, 9.0]), (X, causes), (X, causes), metrics=["c_harrell"])
    with pytest.raises(DataError, match="train: y has no causes"):
        evaluate(Rates(), (X, y), (X, causes))
    with pytest.raises(DataError, match="y has competing causes, and Harrell's concordance is of one event"):
        metrics.concordance_harrell(causes, X[:, 0])
    with pytest.raises(
        DataError, match=r"y has entry times .* and the Brier score takes every row as at risk"
    ):
        metrics.brier_score(
            Surv([2.0, 3.0], [1, 1], entry=[1.0, 0.0]), [[0.5], [0.5]], [2.0], train=([1, 2], [1, 1])
        )
    late = Surv([2.0, 3.0], [1, 1], entry=[1.0, 0.0])
    with pytest.raises(DataError, match="train: y has entry times"):
        metrics.brier_score(([2.0, 3.0], [1, 1]), [[0.5], [0.5]], [2.0], train=late)


def test_a_scorer_splits_entry_subjects_and_weights_with_the_rows() -> None:
    rng = np.random.default_rng(5)
    X, y = rows(90, 5)
    entry = np.where(np.arange(90) % 2, 0.0, np.floor(0.5 * y.time))  # type: ignore[operator]
    weight = rng.integers(1, 4, 90).astype(float)
    late = Surv(y.time, y.event, entry=entry, id=np.arange(90), weight=weight)
    folds = KFold(3, shuffle=True, random_state=0)
    got = cross_val_score(Rates(), X, late, cv=folds, scoring=SurvivalScorer("c_harrell", all_rows=late))
    expected = [metrics.concordance_harrell(late[test], X[test, 0]) for _, test in folds.split(X)]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    with pytest.raises(DataError, match="ibs_graf: it takes every row as at risk from time zero"):
        SurvivalScorer("ibs_graf", train=late)(Rates(), X, late)
    weighted = y.weighted(weight)
    got = cross_val_score(Rates(), X, weighted, cv=folds, scoring=SurvivalScorer("c_uno", all_rows=weighted))
    expected = [
        evaluate(Rates(), (X[train], weighted[train]), (X[test], weighted[test]), metrics=["c_uno"]).loc[
            "c_uno", "value"
        ]
        for train, test in folds.split(X)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.nightly
def test_a_grid_search_over_trees_with_causes_takes_the_scorer() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(120, 1))
    y = Surv(rng.exponential(np.exp(-x[:, 0])), rng.integers(0, 3, 120), causes=("a", "b"))
    scorer = SurvivalScorer("ibs", all_rows=y, cause="b")
    search = GridSearchCV(SurvivalRegression(), {"leaf": ["weibull", "exponential"]}, scoring=scorer, cv=2)
    search.fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_causes_from_a_landmark_are_those_of_rows_at_risk_there() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(150, 1))
    y = Surv(rng.exponential(np.exp(-x[:, 0])), rng.integers(0, 3, 150), causes=("a", "b"))
    tree, s = SurvivalRegression().fit(x, y), 0.3
    table = evaluate(tree, (x, y), (x, y), metrics=["ibs", "c_cause_specific"], after=s)
    later = y.time > s  # type: ignore[operator]
    left = Surv(y.time[later] - s, y.cause[later], causes=("a", "b"))  # type: ignore[index]
    times = incidence_times(left)
    whole = tree.predict_cumulative_incidence(x[later], np.append(s, s + times))
    free = 1 - whole[:, :, 0].sum(axis=1)
    curves = (whole[:, :, 1:] - whole[:, :, :1]) / free[:, None, None]
    expected = evaluate((curves, times), (None, left), (None, left), metrics=["ibs", "c_cause_specific"])
    np.testing.assert_allclose(table["value"], expected["value"], rtol=1e-10)


def test_equal_names_of_evaluate_and_validate_are_equal_numbers_on_tied_rows() -> None:
    rate, (time, cause) = rows_of_causes(300, 9)
    y = Surv(time, cause, causes=("relapse", "death"))
    own = validate(CauseRates(), rate, y, horizon=15.0, n_resamples=0).to_frame()["value"]
    table = evaluate(CauseRates(), (rate, y), (rate, y), tau=15.0)["value"]
    both = own.index.intersection(table.index)
    assert {name for _, name in both} == {"c_cause_specific", "c_wolbers", "auc", "brier"}
    np.testing.assert_allclose(table[both], own[both], rtol=1e-12)
    X, y = rows(200, 10)
    alone = validate(Rates(), X, y, horizon=20.0, n_resamples=0).to_frame()
    assert not set(alone.index) & set(evaluate(Rates(), (X, y), (X, y)).index)


def test_a_fitted_model_checks_the_type_of_the_outcome() -> None:
    X, y = rows(60, 8)
    late = Surv(y.time, y.event, entry=np.floor(0.5 * y.time))  # type: ignore[operator]
    tree = SurvivalRegression()._fit_data(SurvivalData(X, late))
    with pytest.raises(DataError, match="test: y has no entry"):
        evaluate(tree, (X, late), (X, y))
