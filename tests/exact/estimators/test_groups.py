"""Groups of exact trees: tables, stability, validation on held-out rows, recalibration."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    Surv,
    SurvivalData,
    metrics,
    recalibrate,
)
from sstorch.data import folds_of
from sstorch.exact.estimators.outcome import training_rows
from sstorch.exact.recalibration import scaled_incidence
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.stability import resamples
from sstorch.groups.table import group_estimates
from sstorch.groups.validation import held_out_groups
from sstorch.reading import export_text
from sstorch.validation import group_table, stability, validate_groups
from tests.exact import reference

TREE = OptimalSurvivalTree(max_depth=2, min_leaf=40)
CAUSES = OptimalSurvivalTree(max_depth=1, min_leaf=40)
NAMES = ("relapse", "death")


def _causes(data: SurvivalData) -> np.ndarray:
    return np.where(data.event, np.random.default_rng(0).choice([1, 2], len(data), p=[0.6, 0.4]), 0)


def _split(data: SurvivalData, event: np.ndarray, seed: int = 0, **kind: Any) -> tuple[Any, Any]:
    """The rows as start-stop rows of subjects, whole and split at random times."""
    n = len(data)
    row, begin, end, last = reference.split_rows(data.time, np.zeros(n), seed)
    whole = Surv(data.time, event, entry=np.zeros(n), id=np.arange(n), **kind)
    parts = Surv(end, np.where(last, event[row], 0).astype(event.dtype), entry=begin, id=row, **kind)
    return (data.frame, whole), (data.frame.iloc[row].reset_index(drop=True), parts)


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> OptimalSurvivalTree:
    return clone(TREE).fit(gbsg2.frame, gbsg2.y)


@pytest.fixture(scope="module")
def competing(gbsg2: SurvivalData) -> OptimalSurvivalTree:
    return clone(CAUSES).fit(gbsg2.frame, Surv(gbsg2.time, _causes(gbsg2), causes=NAMES))


# ---------------------------------------------------------------------- tables


def test_group_table_is_kaplan_meier_of_the_leaves(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    at, leaf = np.array([365.0, 1000.0]), fitted.apply(gbsg2.frame)
    table = group_table(fitted, gbsg2.frame, gbsg2.y, at)
    curves = fitted.predict_survival_function(gbsg2.frame, at)
    shared = group_estimates(leaf, curves, gbsg2, at)
    pd.testing.assert_frame_equal(table, shared)
    for number, row in table.iterrows():
        band = metrics.KaplanMeierBand.fit(gbsg2.y[leaf == number])
        parts = ["estimate", "lower", "upper"]
        np.testing.assert_allclose(row["median"][parts], band.quantile())
        np.testing.assert_allclose(row["S(1000)"][parts], band.at(1000.0))
        # Kaplan-Meier curves of the leaves on their own rows.
        assert row["S(365)", "model"] == pytest.approx(row["S(365)", "estimate"], rel=1e-12)


@pytest.mark.filterwarnings("ignore:group 1 has no event")
@pytest.mark.parametrize("kind", ["one", "causes"])
def test_texts_count_subjects_of_start_stop_rows(kind: str, gbsg2: SurvivalData, tmp_path: Path) -> None:
    n, half = 200, gbsg2.time[:200] / 2
    event = _causes(gbsg2)[:n] if kind == "causes" else gbsg2.event[:n]
    more = {"causes": NAMES} if kind == "causes" else {}
    both, none = np.tile(np.arange(n), 2), np.zeros(n)
    rows = gbsg2.frame.iloc[both].assign(later=np.repeat([0.0, 1.0], n)).reset_index(drop=True)
    end, events = np.r_[half, 2 * half], np.r_[none.astype(event.dtype), event]
    y = Surv(end, events, entry=np.r_[none, half], id=both, **more)
    tree = OptimalSurvivalTree(2, min_leaf=20).fit(rows, y)
    tree.save(tmp_path / "tree")
    group, text = tree.apply(rows), OptimalSurvivalTree.load(tmp_path / "tree").summary()
    assert "400 rows of 200 subjects, " in text
    for number in np.unique(group):
        inside = group == number
        assert f"group {number}: {inside.sum()} rows of {np.unique(both[inside]).size} subjects, " in text


def test_corrected_table_is_nearer_to_one_curve(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = clone(TREE).set_params(max_depth=1).fit(gbsg2.frame, gbsg2.y)
    plain = tree.summary()
    table = group_table(tree, gbsg2.frame, gbsg2.y, [700.0], n_resamples=8)
    assert np.ptp(table["S(700)", "corrected"]) < np.ptp(table["S(700)", "estimate"])
    stable = stability(tree, gbsg2.frame, gbsg2.y, n_resamples=2)
    assert "corrected for optimism" in tree.summary()
    assert str(stable) in tree.summary()
    assert tree.fit(gbsg2.frame, gbsg2.y).summary() == plain


# ---------------------------------------------------------------------- stability


def test_stability_compares_with_trees_of_the_draws(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    X, y = gbsg2.frame, gbsg2.y
    found = stability(fitted, X, y, n_resamples=4)
    _, draws = resamples(training_rows(X, y, None), 4, TREE._seed)
    leaves, asked = [fitted.apply(X)], []
    for drawn in draws:
        other = clone(TREE).fit(X, y, sample_weight=drawn)
        leaves.append(other.apply(X))
        asked.append(other.rules_[other.tree_.feature[0]].column)
    agreement = metrics.adjusted_rand_index(np.stack(leaves))
    assert found.ari_of_tree == pytest.approx(agreement[0, 1:].mean())
    assert found.ari == pytest.approx(agreement[1:, 1:][np.triu_indices(4, 1)].mean())
    for name in X.columns:  # the root is the root of every tree
        assert found.columns.loc[1, name] == asked.count(name) / 4
    assert found.columns.index[0] == 1
    assert (found.columns.sum(axis=1) <= 1).all()
    assert "node [1] uses" in str(found)


# ---------------------------------------------------------------------- validation


def test_validation_is_that_of_trees_outside_the_folds(
    fitted: OptimalSurvivalTree, gbsg2: SurvivalData, tmp_path: Path
) -> None:
    found = validate_groups(fitted, gbsg2.frame, gbsg2.y, n_folds=3, random_state=2)
    folds = folds_of(gbsg2, 3, 2)
    groups = []
    for fold in range(3):
        rows = gbsg2.subset(folds != fold)
        groups.append(clone(TREE).fit(rows.frame, rows.y).apply(gbsg2.frame))
    assert found == held_out_groups(gbsg2, folds, np.stack(groups))
    assert found.differ
    assert str(found) in fitted.summary()
    fitted.save(tmp_path)
    assert OptimalSurvivalTree.load(tmp_path).group_validation_ == found


@pytest.mark.nightly
def test_groups_of_noise_do_not_differ() -> None:
    rng, tree = np.random.default_rng(5), OptimalSurvivalTree(max_depth=2, min_leaf=30)
    naive, p_values, differ = [], [], 0
    for _ in range(20):
        X, y = rng.normal(size=(200, 3)), Surv(rng.exponential(size=200), rng.random(200) < 0.7)
        naive.append(metrics.logrank_test(y, tree.fit(X, y).apply(X)).p_value)
        found = validate_groups(tree, X, y)
        p_values.append(found.first.p_value)
        differ += found.differ
    # On their own rows groups seem to differ.
    assert np.mean(np.array(naive) < 0.05) > 0.8
    assert np.median(p_values) > 0.3
    assert differ <= 1


def test_the_search_chooses_its_size_outside_the_folds(small_data: SurvivalData) -> None:
    X, y = small_data.frame, small_data.y
    search = OptimalSurvivalTreeCV(max_depth=1, min_leaf=20, n_folds=2).fit(X, y)
    found = validate_groups(search, X, y, n_folds=2)
    folds = folds_of(small_data, 2, 0)
    rows = [small_data.subset(folds != fold) for fold in range(2)]
    groups = np.stack([clone(search).fit(each.frame, each.y).apply(X) for each in rows])
    assert found == held_out_groups(small_data, folds, groups)
    assert stability(search, X, y, n_resamples=2).resampled.shape == (2, len(X))


# ---------------------------------------------------------------------- start-stop rows


def _close(one: Any, other: Any) -> None:
    for name, value in vars(one).items():
        if isinstance(value, float | int):
            assert getattr(other, name) == pytest.approx(value, abs=1e-8), name


def test_split_rows_give_the_results_of_whole_rows(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(range(300))
    whole, parts = _split(data, data.event)
    tree = clone(TREE).set_params(max_depth=1).fit(*whole)
    one, other = group_table(tree, *whole), group_table(tree, *parts)
    estimates = [name for name in one if name[1] in ("estimate", "lower", "upper")]
    pd.testing.assert_frame_equal(one[estimates], other[estimates])
    assert len(stability(tree, *parts, 3).moves) == len(parts[0])
    for how in ("intercept", "slope", "baseline"):
        new, again = recalibrate(tree, *whole, how), recalibrate(tree, *parts, how)
        for name in ("intercept", "slope", "intercept_error", "slope_error"):
            first, second = (getattr(each.recalibration_, name) for each in (new, again))
            assert first is None if second is None else first == pytest.approx(second, rel=1e-8)
        np.testing.assert_allclose(new.curves_.survival, again.curves_.survival, rtol=1e-10)


def test_split_rows_of_causes_give_the_results_of_whole_rows(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(range(300))
    whole, parts = _split(data, _causes(data), causes=NAMES)
    tree = clone(CAUSES).fit(*whole)
    for how in ("intercept", "baseline"):
        new, same = recalibrate(tree, *whole, how), recalibrate(tree, *parts, how)
        np.testing.assert_allclose(new.incidence_, same.incidence_, rtol=1e-9)


# ---------------------------------------------------------------------- recalibration


def test_intercept_is_observed_over_expected(
    fitted: OptimalSurvivalTree, gbsg2: SurvivalData, tmp_path: Path
) -> None:
    twice = (2 * gbsg2.time, gbsg2.event)
    leaf = fitted.apply(gbsg2.frame) - 1
    hazard = fitted.curves_.cumulative_hazard_at(2 * gbsg2.time[:, None], leaf)[:, 0]
    new = recalibrate(fitted, gbsg2.frame, twice)
    report = new.recalibration_
    assert report.observed_expected[0] == pytest.approx(gbsg2.event.sum() / hazard.sum())
    assert report.observed_expected[1] == pytest.approx(1.0, abs=1e-12)
    factor = np.exp(report.intercept)
    assert factor == pytest.approx(report.observed_expected[0])
    # sandwich: sum of squared residuals over the square of the events
    residuals = gbsg2.event - factor * hazard
    assert report.intercept_error == pytest.approx(np.sqrt((residuals**2).sum()) / gbsg2.event.sum())
    np.testing.assert_array_equal(new.apply(gbsg2.frame), leaf + 1)
    times = [500.0, 1500.0]
    old = fitted.predict_survival_function(gbsg2.frame, times)
    np.testing.assert_allclose(new.predict_survival_function(gbsg2.frame, times), old**factor)
    assert "recalibration_" not in vars(fitted)
    assert str(report) in new.summary()
    assert "linear predictor" in str(report)
    assert "686 rows, 299 events of the recalibration" in new.summary()
    assert "Groups, recalibrated kaplan_meier curves" in new.summary()
    new.save(tmp_path)
    again = OptimalSurvivalTree.load(tmp_path)
    assert again.recalibration_ == report
    np.testing.assert_array_equal(again.curves_.survival, new.curves_.survival)
    assert "recalibration_" not in vars(clone(new).fit(gbsg2.frame, gbsg2.y))


@pytest.mark.parametrize("curve", ["kaplan_meier", "proportional_hazards"])
def test_slope_is_poisson_regression_on_log_hazard_ratios(gbsg2: SurvivalData, curve: str) -> None:
    tree = clone(TREE).set_params(leaf_curve=curve).fit(gbsg2.frame, gbsg2.y)
    rng = np.random.default_rng(2)
    rows = rng.permutation(len(gbsg2))[:500]
    X, time, event = gbsg2.frame.iloc[rows], 1.5 * gbsg2.time[rows], gbsg2.event[rows]
    weight = rng.integers(1, 4, 500)
    leaf = tree.apply(X) - 1
    g = np.log(tree.leaf_table_["hazard_ratio"].to_numpy())[leaf]
    hazard = tree.curves_.cumulative_hazard_at(time[:, None], leaf)[:, 0]

    def loss(theta: np.ndarray) -> float:
        linear = theta[0] + (theta[1] - 1) * g
        return float(weight @ (np.exp(linear) * hazard - event * linear)) / weight.sum()

    best = minimize(loss, [0.0, 1.0], method="BFGS", options={"gtol": 1e-10}).x
    new = recalibrate(tree, X, (time, event), "slope", weight)
    report = new.recalibration_
    assert (report.intercept, report.slope) == pytest.approx(best, abs=1e-5)
    assert report.observed_expected[1] == pytest.approx(1.0)
    again = np.repeat(np.arange(500), weight)
    many = recalibrate(tree, X.iloc[again], (time[again], event[again]), "slope").recalibration_
    assert (many.intercept, many.slope) == pytest.approx((report.intercept, report.slope))
    np.testing.assert_allclose(
        new.leaf_table_["hazard_ratio"], tree.leaf_table_["hazard_ratio"] ** report.slope
    )
    if curve == "proportional_hazards":
        baseline = tree.curves_.cumulative_hazard / tree.leaf_table_["hazard_ratio"].to_numpy()[:, None]
        ratio = np.exp(report.intercept) * new.leaf_table_["hazard_ratio"].to_numpy()[:, None]
        np.testing.assert_allclose(new.curves_.cumulative_hazard, ratio * baseline)
    # A tree that was recalibrated on some rows is calibrated on them.
    second = recalibrate(new, X, (time, event), "slope", weight).recalibration_
    assert (second.intercept, second.slope) == pytest.approx((0.0, 1.0), abs=1e-9)


def test_scale_of_sampling_weights_means_nothing(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    weight = np.random.default_rng(0).lognormal(size=len(gbsg2))
    reports = [
        recalibrate(fitted, gbsg2.frame, gbsg2.y, "slope", scale * weight).recalibration_
        for scale in (1, 1e-3)
    ]
    _close(*reports)
    plain = recalibrate(fitted, gbsg2.frame, gbsg2.y, "slope").recalibration_
    assert reports[0].slope_error > plain.slope_error


def test_late_entry_takes_off_the_hazard_before(gbsg2: SurvivalData) -> None:
    y = Surv(gbsg2.time, gbsg2.event, entry=0.3 * gbsg2.time)
    tree = clone(TREE).set_params(max_depth=1).fit(gbsg2.frame, y)
    leaf = tree.apply(gbsg2.frame) - 1
    hazard = tree.curves_.cumulative_hazard_at(gbsg2.time[:, None] * [0.3, 1.0], leaf)
    found = recalibrate(tree, gbsg2.frame, y).recalibration_.observed_expected[0]
    assert found == pytest.approx(gbsg2.event.sum() / np.diff(hazard).sum())
    # Nelson-Aalen expects as many events as there were.
    assert found == pytest.approx(1.0)


def test_baseline_is_the_curve_of_the_new_rows(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    y = Surv(3 * gbsg2.time, gbsg2.event)
    new = recalibrate(fitted, gbsg2.frame, y, "baseline")
    leaf = fitted.apply(gbsg2.frame) - 1
    for number in range(fitted.tree_.n_leaves):
        band = metrics.KaplanMeierBand.fit(y[leaf == number])
        survival = new.curves_.survival_at(np.array([1500.0]))[number]
        np.testing.assert_allclose(survival, band.at(1500.0).value)
    assert new.recalibration_.observed_expected[1] == pytest.approx(1.0)
    assert new.recalibration_.intercept is None
    assert "curves of the leaves estimated from these rows" in new.summary()
    inside = leaf != 0
    with pytest.raises(DataError, match="group 1 has none"):
        recalibrate(fitted, gbsg2.frame[inside], y[inside], "baseline")


def test_what_recalibration_cannot_do_raises(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    X, y = gbsg2.frame, gbsg2.y
    with pytest.raises(ConfigError, match="how must be one of"):
        recalibrate(fitted, X, y, "shift")  # type: ignore[arg-type]
    brier = OptimalSurvivalTree(max_depth=1, objective="integrated_brier", min_leaf=40).fit(X, y)
    with pytest.raises(ConfigError, match="'integrated_brier' has none"):
        recalibrate(brier, X, y, "slope")
    assert recalibrate(brier, X, y).recalibration_.observed_expected[1] == pytest.approx(1.0)
    leaf = fitted.apply(X) - 1
    with pytest.raises(DataError, match="two hazard ratios"):
        recalibrate(fitted, X[leaf == 0], y[leaf == 0], "slope")


# ---------------------------------------------------------------------- competing causes


def test_cause_specific_hazards_are_multiplied(
    competing: OptimalSurvivalTree, gbsg2: SurvivalData, tmp_path: Path
) -> None:
    cause = _causes(gbsg2)
    same = recalibrate(competing, gbsg2.frame, Surv(gbsg2.time, cause, causes=NAMES))
    np.testing.assert_allclose(same.incidence_, competing.incidence_, rtol=1e-10)  # factors are one
    y = Surv(2 * gbsg2.time, np.where(cause == 1, 0, cause), causes={1: "relapse", 2: "death"})
    with pytest.raises(DataError, match="cause relapse"):
        recalibrate(competing, gbsg2.frame, y)
    y = Surv(2 * gbsg2.time, cause, causes=NAMES)
    new = recalibrate(competing, gbsg2.frame, y)
    for name, report in new.recalibration_.items():
        assert report.observed_expected[1] == pytest.approx(1.0)
        k = NAMES.index(name)
        factor = np.exp(report.intercept)
        np.testing.assert_allclose(new.hazards_[:, k], factor * competing.hazards_[:, k])
    total = new.incidence_.sum(axis=1) + new.curves_.survival
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    assert f"death: {new.recalibration_['death']}" in new.summary()
    new.save(tmp_path)
    again = OptimalSurvivalTree.load(tmp_path)
    assert again.recalibration_ == new.recalibration_
    np.testing.assert_array_equal(again.hazards_, new.hazards_)


def test_equal_factors_give_a_power_of_survival(competing: OptimalSurvivalTree) -> None:
    factors = np.full((competing.tree_.n_leaves, 2), 0.5)
    curves, incidence = scaled_incidence(competing.curves_, competing.hazards_, factors)
    np.testing.assert_allclose(curves.survival, competing.curves_.survival**0.5, rtol=1e-10)
    np.testing.assert_allclose(incidence.sum(axis=1), 1 - curves.survival, rtol=1e-10)
    np.testing.assert_allclose(
        competing.hazards_.sum(axis=1), competing.curves_.cumulative_hazard, rtol=1e-10
    )


def test_groups_of_causes_are_validated(competing: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    y = Surv(gbsg2.time, _causes(gbsg2), causes=NAMES)
    found = validate_groups(competing, gbsg2.frame, y, n_folds=3)
    assert found.causes["relapse"].gray_p_value < 0.05
    assert str(found) in competing.summary()
    stable = stability(competing, gbsg2.frame, y, n_resamples=3)
    assert stable.resampled.shape == (3, len(gbsg2))
    weight = 1 + np.arange(len(gbsg2)) % 2
    again = np.repeat(np.arange(len(gbsg2)), weight)
    for how in ("slope", "baseline"):
        one = recalibrate(competing, gbsg2.frame, y, how, weight)
        many = recalibrate(competing, gbsg2.frame.iloc[again], y[again], how)
        np.testing.assert_allclose(one.incidence_, many.incidence_, rtol=1e-9)
        if how == "slope":
            first, second = (each.recalibration_["death"] for each in (one, many))
            assert first.slope == pytest.approx(second.slope)


def test_groups_are_numbered_by_survival(
    fitted: OptimalSurvivalTree, competing: OptimalSurvivalTree, gbsg2: SurvivalData, tmp_path: Path
) -> None:
    for number, tree in enumerate((fitted, competing)):
        group, end = tree.apply(gbsg2.frame), tree.event_times_[-1]
        assert set(group) == set(range(1, tree.tree_.n_leaves + 1))
        means = [
            metrics.KaplanMeierBand.fit(Surv(gbsg2.time, gbsg2.event)[group == k])
            .at(np.arange(end))
            .value.mean()
            for k in sorted(set(group))
        ]
        assert (np.diff(means) < 0).all()
        tree.save(tmp_path / str(number))
        again = OptimalSurvivalTree.load(tmp_path / str(number))
        np.testing.assert_array_equal(again.apply(gbsg2.frame), group)
        np.testing.assert_array_equal(again.leaf_rows_, np.bincount(group)[1:])
        assert export_text(again) == export_text(tree)
    # Other rows do not change the numbers: here group 1 has the shorter survival.
    time = np.where(fitted.apply(gbsg2.frame) == 1, 0.1, 3) * gbsg2.time
    new = recalibrate(fitted, gbsg2.frame, Surv(time, gbsg2.event), "baseline")
    np.testing.assert_array_equal(new.apply(gbsg2.frame), fitted.apply(gbsg2.frame))
