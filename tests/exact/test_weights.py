"""Weights of exact survival trees: brute force, repeated rows, scale; rows of subjects split in parts."""

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    Surv,
    SurvivalData,
    load_dataset,
    metrics,
)
from sstorch.exact import (
    Binarizer,
    IntegratedBrier,
    LogLikelihood,
    check_task,
    solve,
)
from sstorch.exact.hazards import BaselineHazard
from sstorch.exact.rows import weighted_rows, whole_weights
from sstorch.exceptions import ConfigError, DataError
from sstorch.reading import export_text
from tests.exact import reference

TASKS = ["log_likelihood", "entry", "causes", "kaplan_meier", "ipcw"]


def problem(seed):
    """A random problem with weights, entry times and causes."""
    features, time, event = reference.random_problem(seed)
    rng = np.random.default_rng(seed + 2000)
    weight = rng.lognormal(sigma=1.5, size=len(time)) * 10.0 ** rng.integers(-3, 4)
    n_causes = 2 + seed % 2
    cause = np.where(event, rng.integers(1, n_causes + 1, len(time)), 0)
    cause[:n_causes] = np.arange(1, n_causes + 1)
    return features, time, cause, np.floor(rng.uniform(0, 0.9, len(time)) * time), weight


def make_task(name, time, cause, entry, weight):
    if name == "causes":
        return LogLikelihood(time, cause, n_causes=int(cause.max()), sample_weight=weight)
    if name == "entry":
        return LogLikelihood(time, cause > 0, entry=entry, sample_weight=weight)
    if name == "log_likelihood":
        return LogLikelihood(time, cause > 0, sample_weight=weight)
    return IntegratedBrier(time, cause > 0, leaf_curve=name, sample_weight=weight)


@pytest.mark.parametrize("name", TASKS)
def test_integer_weights_equal_repeated_rows(name):
    for seed in range(6):
        features, time, cause, entry, _ = problem(seed)
        weight = np.random.default_rng(seed).integers(1, 5, len(time))
        weight[-1] = 1
        again = np.repeat(np.arange(len(time)), weight)
        weighted = make_task(name, time, cause, entry, weight)
        repeated = make_task(name, time[again], cause[again], entry[again], None)
        one, many = solve(features, weighted, 2), solve(features[again], repeated, 2)
        np.testing.assert_allclose(one.table(), many.table(), rtol=1e-10, atol=1e-12)
        leaf, number = one.tree().apply(features), one.tree().n_leaves
        assert repeated.loss(leaf[again]) == pytest.approx(one.loss, rel=1e-10, abs=1e-12)
        np.testing.assert_allclose(
            weighted.decisions(leaf, number), repeated.decisions(leaf[again], number), rtol=1e-10
        )


@pytest.mark.parametrize("name", TASKS)
def test_scale_of_weights_scales_the_loss_alone(name):
    features, time, cause, entry, weight = problem(5)
    plain, scaled = (make_task(name, time, cause, entry, w) for w in (weight, 1e-7 * np.pi * weight))
    factor = 1.0 if name in ("kaplan_meier", "ipcw") else 1e-7 * np.pi
    one, other = (solve(features, task, 2) for task in (plain, scaled))
    np.testing.assert_allclose(other.table()["loss"], factor * one.table()["loss"], rtol=1e-10)
    leaf = one.tree().apply(features)
    # Of trees with the same leaves, or the same loss, either may be found.
    assert plain.loss(other.tree().apply(features)) == pytest.approx(one.loss, rel=1e-10)
    n = one.tree().n_leaves
    np.testing.assert_allclose(scaled.decisions(leaf, n), plain.decisions(leaf, n), rtol=1e-10)


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_weight_zero_do_not_count(name):
    features, time, cause, entry, weight = problem(7)
    weight[2:8] = entry[2:8] = 0.0
    time[2], cause[2], time[3] = 1e3, 1, 1e-3  # outside of the times of all others
    kept = weight > 0.0
    every = make_task(name, time, cause, entry, weight)
    part = make_task(name, time[kept], cause[kept], entry[kept], weight[kept])
    assert not every.event[~kept].any()
    check_task(every, features)
    np.testing.assert_allclose(
        solve(features, every, 2).table(), solve(features[kept], part, 2).table(), rtol=1e-10, atol=1e-12
    )


def test_weights_that_cannot_be_used_raise():
    time, event = np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1])
    for task in (LogLikelihood, IntegratedBrier):
        for weight in ([1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, np.inf, 1.0], [1.0, 1.0]):
            with pytest.raises(DataError, match="sample_weight"):
                task(time, event, sample_weight=weight)
        with pytest.raises(DataError, match="has an event"):
            task(time, event, sample_weight=[0.0, 1.0, 0.0])


def test_whole_weights_have_exact_sums():
    weight = np.random.default_rng(0).lognormal(sigma=4.0, size=10_000)
    whole, unit = whole_weights(weight)
    assert (whole == np.rint(whole)).all()
    assert whole.sum() - whole[::-1].sum() == 0.0
    np.testing.assert_allclose(whole * unit, weight, rtol=0, atol=1e-12 * weight.sum())
    counts = np.array([3.0, 1.0, 0.0, 7.0])
    np.testing.assert_array_equal(whole_weights(counts)[0], counts)


def test_baseline_hazard_before_the_first_event_has_no_scale():
    time, event, weight = np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0]), np.array([2.0, 1.0, 3.0])
    for factor in (1.0, 1 / 6, 250.0):
        baseline = BaselineHazard.of(weighted_rows((time, event), factor * weight))
        np.testing.assert_allclose(baseline.at([0.5, 2.0]), [1 / 7, 1 / 4])


# ---------------------------------------------------------------------- estimators


def weights_of(data, seed=0):
    return np.random.default_rng(seed).integers(1, 4, len(data))


@pytest.mark.filterwarnings("ignore:.* repeat others in every column")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"leaf_curve": "proportional_hazards"},
        {"objective": "integrated_brier"},
        {"objective": "integrated_brier", "leaf_curve": "ipcw"},
        {"binarize": "boosted"},
    ],
)
def test_survival_tree_with_integer_weights_equals_repeated_rows(settings, gbsg2: SurvivalData):
    frame, y, weight = gbsg2.frame, gbsg2.y, weights_of(gbsg2)
    again = np.repeat(np.arange(len(frame)), weight)
    tree = OptimalSurvivalTree(max_depth=2, **settings)
    one = tree.fit(frame, y, sample_weight=weight)
    many = OptimalSurvivalTree(max_depth=2, **settings).fit(frame.iloc[again], y[again])
    assert [rule.name for rule in one.rules_] == [rule.name for rule in many.rules_]
    assert export_text(one.tree_) == export_text(many.tree_)
    assert one.loss_ == pytest.approx(many.loss_, rel=1e-10)
    estimates = one.leaf_table_.columns[2:]
    np.testing.assert_allclose(one.leaf_table_[estimates], many.leaf_table_[estimates], rtol=1e-10)
    np.testing.assert_allclose(one.curves_.survival, many.curves_.survival, atol=1e-10)
    np.testing.assert_allclose(one.predict(frame), many.predict(frame), rtol=1e-10)
    # Rows are counted as they are.
    leaf = one.apply(frame) - 1
    np.testing.assert_array_equal(one.leaf_table_["rows"], np.bincount(leaf))
    np.testing.assert_array_equal(one.leaf_table_["events"], np.bincount(leaf, gbsg2.event))
    scaled = OptimalSurvivalTree(max_depth=2, **settings).fit(frame, y, sample_weight=weight / weight.sum())
    assert export_text(scaled.tree_) == export_text(one.tree_)
    np.testing.assert_allclose(scaled.curves_.survival, one.curves_.survival, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.* repeat others in every column")
def test_competing_risks_tree_with_integer_weights_equals_repeated_rows(gbsg2: SurvivalData):
    frame, weight = gbsg2.frame, weights_of(gbsg2)
    cause = np.where(gbsg2.event, np.random.default_rng(1).integers(1, 3, len(frame)), 0)
    y, again = Surv(gbsg2.time, cause, causes=("relapse", "death")), np.repeat(np.arange(len(frame)), weight)
    one = OptimalSurvivalTree(max_depth=2).fit(frame, y, sample_weight=weight)
    many = OptimalSurvivalTree(max_depth=2).fit(frame.iloc[again], y[again])
    assert export_text(one.tree_) == export_text(many.tree_)
    assert one.loss_ == pytest.approx(many.loss_, rel=1e-10)
    np.testing.assert_allclose(one.incidence_, many.incidence_, atol=1e-10)
    np.testing.assert_allclose(one.curves_.survival, many.curves_.survival, atol=1e-10)
    assert one.horizon_ == many.horizon_
    np.testing.assert_allclose(one.hazard_ratios_, many.hazard_ratios_, rtol=1e-10)
    assert one.group_table_["rows", ""].groupby("group").first().sum() == len(frame)
    scaled = OptimalSurvivalTree(max_depth=2).fit(frame, y, sample_weight=0.01 * weight)
    np.testing.assert_allclose(scaled.incidence_, one.incidence_, atol=1e-10)


def test_curve_ends_at_zero_where_the_last_row_has_an_event():
    """Sums of weights such as .1 leave nothing behind, so that the risk set of the last row is its weight."""
    time, weight = np.arange(1.0, 41.0), np.full(40, 0.1) + np.arange(40) / 30
    x = np.repeat([0.0, 1.0], 20)[:, None]
    tree = OptimalSurvivalTree(max_depth=1, binarize=False)
    tree.fit(x, Surv(time, np.ones(40), entry=np.maximum(time - 9.5, 0)), sample_weight=weight)
    assert (tree.curves_.survival[:, -1] == 0.0).all()
    assert (tree.curves_.survival >= 0.0).all()


def test_binarizer_thresholds_with_integer_weights_equal_repeated_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"few": rng.integers(0, 4, 60) * 1.0, "many": rng.normal(size=60).round(1)})
    frame["group"] = rng.choice([*"abcdefghijklmno"], 60)
    weight = rng.integers(1, 6, 60)
    again = np.repeat(np.arange(60), weight)
    for settings in ({}, {"n_thresholds": 3}, {"preset": "osst"}, {"preset": "all"}):
        binarizer = Binarizer(**settings)
        expected = binarizer.fit(frame.iloc[again]).rules_
        assert binarizer.fit(frame, sample_weight=weight).rules_ == expected
        assert binarizer.fit(frame, sample_weight=weight * 0.3).rules_ == expected
    with pytest.raises(DataError, match="sample_weight"):
        Binarizer().fit(frame, sample_weight=np.ones(59))


def test_cross_validation_scores_are_weighted(small_data: SurvivalData):
    frame, y, weight = (
        small_data.frame,
        small_data.y,
        np.random.default_rng(0).uniform(0.1, 5, len(small_data)),
    )
    tree = OptimalSurvivalTreeCV(max_depth=1, n_folds=3).fit(frame, y, sample_weight=weight)
    train, test = tree.folds_ != 0, tree.folds_ == 0
    alone = OptimalSurvivalTree(max_depth=1).fit(frame[train], y[train], sample_weight=weight[train])
    w = weight[train].tolist()
    at = np.concatenate([small_data.time[train], small_data.time[test]])
    steps = BaselineHazard.of(weighted_rows(y[train], weight[train]))
    loops = reference.hazards(small_data.time[train].tolist(), small_data.event[train].tolist(), w)
    np.testing.assert_allclose(steps.at(at[: train.sum()]), loops, rtol=1e-12)
    fitted = steps.at(small_data.time[test])
    ratio = alone.leaf_table_["hazard_ratio"].to_numpy()[alone.apply(frame[test]) - 1]
    rows = fitted * ratio - small_data.event[test] * (np.log(fitted) + np.log(ratio) + 1.0)
    value = -np.average(rows, weights=weight[test])
    assert tree.cv_results_.loc[1, "fold_0"] == pytest.approx(value, rel=1e-10)
    brier = OptimalSurvivalTreeCV(max_depth=1, n_folds=3, objective="integrated_brier", random_state=0)
    brier.fit(frame, y, sample_weight=weight)
    alone = OptimalSurvivalTree(max_depth=0, objective="integrated_brier")
    alone.fit(frame[train], y[train], sample_weight=weight[train])
    grid = np.unique(small_data.time[test])
    value = metrics.integrated_brier_score(
        (small_data.time[test], small_data.event[test]),
        alone.predict_survival_function(frame[test], grid),
        grid,
        train=(small_data.time[train], small_data.event[train]),
        convention="osst",
        sample_weight=weight[test],
    )
    assert brier.cv_results_.loc[0, "fold_0"] == pytest.approx(-value, rel=1e-10)


# ---------------------------------------------------------------------- start-stop rows


def test_rows_split_at_random_times_give_the_same_tree(gbsg2: SurvivalData):
    n, rng = len(gbsg2), np.random.default_rng(0)
    entry = gbsg2.time * rng.uniform(0, 0.5, n) * (rng.random(n) < 0.4)
    weight = rng.uniform(0.5, 3.0, n)
    row, begin, end, last = reference.split_rows(gbsg2.time, entry)
    frame, cut = gbsg2.frame, gbsg2.frame.iloc[row]
    cause = np.where(gbsg2.event, rng.integers(1, 3, n), 0)
    for event in (gbsg2.event.astype(int), cause):
        kind = {"causes": "auto"} if event.max() > 1 else {}
        whole = Surv(gbsg2.time, event, entry=entry, id=np.arange(n), **kind)
        parts = Surv(end, np.where(last, event[row], 0), entry=begin, id=row, **kind)
        one = OptimalSurvivalTree(max_depth=1).fit(frame, whole, sample_weight=weight)
        many = OptimalSurvivalTree(max_depth=1).fit(cut, parts, sample_weight=weight[row])
        # Losses differ by the likelihood of a model that knows every row.
        curves = [tree.predict_survival_function(frame, [400.0, 1500.0], after=0.0) for tree in (one, many)]
        np.testing.assert_allclose(curves[1], curves[0], rtol=1e-10)
        np.testing.assert_array_equal(many.apply(frame), one.apply(frame))
        score = one.score(frame, whole, sample_weight=weight)
        assert many.score(cut, parts, sample_weight=weight[row]) == pytest.approx(score, abs=1e-10)


def test_covariates_that_change_ask_for_a_time(tmp_path):
    data = load_dataset("heart")
    tree = OptimalSurvivalTree(max_depth=2, min_leaf=20).fit(data.frame, data.y)
    assert tree.time_varying_
    assert tree.n_samples_fit_ == 172
    tree.save(tmp_path / "tree")
    tree = OptimalSurvivalTree.load(tmp_path / "tree")
    first = data.frame[:4]
    for call in (
        lambda: tree.predict_survival_function(first, [100.0]),
        lambda: tree.predict_quantile(first),
        lambda: tree.predict_rmst(first, 100.0),
    ):
        with pytest.raises(ConfigError, match="Pass after="):
            call()
    stays = tree.predict_survival_function(first, [100.0], after=0.0)
    alone = tree.curves_.survival_at([100.0])[tree.apply(first) - 1, 0]
    np.testing.assert_allclose(stays[:, 0], alone, rtol=1e-12)
    with pytest.raises(DataError, match="y has no entry and no id"):
        tree.score(data.frame, (data.time, data.event))
    y = Surv(data.time, 1 * data.event + (data.event & (data.frame["age"] > 0)), causes="auto",
             entry=data.entry, id=data.subject)  # fmt: skip
    causes = OptimalSurvivalTree(max_depth=1, min_leaf=20).fit(data.frame, y)
    with pytest.raises(ConfigError, match="after="):
        causes.predict_cumulative_incidence(first, [100.0])
    assert causes.predict_cumulative_incidence(first, [100.0], after=0.0).shape == (4, 2, 1)
    assert 0.5 < causes.score(data.frame, y) <= 1.0
