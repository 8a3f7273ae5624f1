"""Weights, left truncation, start-stop rows and causes: tasks, leaves and sizes of survival trees."""

import numpy as np
import pandas as pd
import pytest

from sstorch import OptimalSurvivalTree, OptimalSurvivalTreeCV, Surv, SurvivalData, load_dataset, metrics
from sstorch.exact import IntegratedBrier, LogLikelihood, check_task, solve
from sstorch.exact.leaf_curves import BaselineHazard, hazard_ratios, leaf_curves
from sstorch.exact.rows import weighted_rows, whole_weights
from sstorch.exceptions import ConfigError, DataError
from tests.exact import reference
from tests.exact.problems import survival_rows
from tests.histories import halved

CAUSES = {1: "relapse", 2: "death"}
TIMES = np.array([0.0, 30.0, 200.0, 500.0, 5000.0])
TASKS = {
    "log_likelihood": lambda time, cause, entry, w: LogLikelihood(time, cause > 0, sample_weight=w),
    "entry": lambda time, cause, entry, w: LogLikelihood(time, cause > 0, entry=entry, sample_weight=w),
    "causes": lambda time, cause, entry, w: LogLikelihood(time, cause, n_causes=2, sample_weight=w),
    "integrated_brier": lambda time, cause, entry, w: IntegratedBrier(time, cause > 0, sample_weight=w),
}


def cohort(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 3, n).astype(float)})
    time = rng.exponential(np.exp(-frame["a"] - 0.5 * (frame["b"] == 1)))
    entry = np.where(rng.random(n) < 0.5, time * rng.uniform(0, 0.9, n), 0.0)
    return frame, time, rng.random(n) < 0.7, entry


# ---------------------------------------------------------------------- tasks


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_weight_zero_do_not_count(name):
    features, rng = reference.random_features(7, n_rows=(20, 24))
    time, cause, entry, weight = survival_rows(rng, len(features))
    weight[2:8] = entry[2:8] = 0.0
    time[2], cause[2], time[3] = 1e3, 1, 1e-3  # outside of the times of all others
    kept = weight > 0.0
    every = TASKS[name](time, cause, entry, weight)
    part = TASKS[name](time[kept], cause[kept], entry[kept], weight[kept])
    assert not every.event[~kept].any()
    check_task(every, features)
    np.testing.assert_allclose(
        solve(features, every, 2).table(), solve(features[kept], part, 2).table(), rtol=1e-10, atol=1e-12
    )


def test_whole_weights_have_exact_sums():
    weight = np.random.default_rng(0).lognormal(sigma=4.0, size=10_000)
    whole, unit = whole_weights(weight)
    assert (whole == np.rint(whole)).all()
    assert whole.sum() - whole[::-1].sum() == 0.0
    np.testing.assert_allclose(whole * unit, weight, rtol=0, atol=1e-12 * weight.sum())
    counts = np.array([3.0, 1.0, 0.0, 7.0])
    np.testing.assert_array_equal(whole_weights(counts)[0], counts)


def test_a_leaf_that_no_event_passed_by_has_the_baseline():
    time, event = np.array([1.0, 3.0, 2.0, 4.0]), np.array([1, 1, 0, 0])
    task = LogLikelihood(time, event, entry=[0.0, 0.5, 1.5, 3.5])
    np.testing.assert_allclose(task.hazards[0], [1 / 2, 3 / 2, 0, 0])
    assert task.decisions(np.array([0, 0, 1, 1]), 2).tolist() == [1.0, 1.0]
    assert np.isfinite(task.loss(np.array([0, 0, 1, 1])))


# ---------------------------------------------------------------------- estimators


def test_curve_ends_at_zero_where_the_last_row_has_an_event():
    """Sums of weights such as .1 leave nothing behind, so that the risk set of the last row is its weight."""
    time, weight = np.arange(1.0, 41.0), np.full(40, 0.1) + np.arange(40) / 30
    x = np.repeat([0.0, 1.0], 20)[:, None]
    tree = OptimalSurvivalTree(max_depth=1, binarize="all")
    tree.fit(x, Surv(time, np.ones(40), entry=np.maximum(time - 9.5, 0)), sample_weight=weight)
    assert (tree.curves_.survival[:, -1] == 0.0).all()
    assert (tree.curves_.survival >= 0.0).all()


@pytest.mark.parametrize("late", [False, True])
def test_leaves_of_causes_are_estimates_of_aalen_and_johansen(late):
    frame, time, event, entry = cohort()
    cause = np.where(event, 1 + (frame["b"] > 0), 0)
    start = entry if late else np.zeros(len(time))
    kind = {"entry": entry} if late else {}
    task = LogLikelihood(time, cause, n_causes=2, **kind)
    singles = [LogLikelihood(time, cause == k, **kind) for k in (1, 2)]
    leaf = (frame["a"] > 0).to_numpy().astype(int)
    assert task.loss(leaf) == sum(single.loss(leaf) for single in singles)
    y = Surv(time, cause, causes=CAUSES, **kind)
    tree = OptimalSurvivalTree(max_depth=2, min_leaf=40).fit(frame, y)
    leaf, found = tree.apply(frame) - 1, tree.predict_cumulative_incidence(frame, TIMES / 100)
    for number in range(tree.tree_.n_leaves):
        rows = leaf == number
        own = Surv(time[rows], cause[rows], causes=CAUSES, entry=start[rows])
        expected = metrics.aalen_johansen(own, tree.event_times_, n_causes=2)
        np.testing.assert_allclose(tree.curves_.incidences[number], expected, rtol=1e-11, atol=1e-15)
        at = metrics.aalen_johansen(own, TIMES / 100, n_causes=2)
        np.testing.assert_allclose(found[rows], np.broadcast_to(at, found[rows].shape), atol=1e-12)
        row = tree.group_table_.loc[(number + 1, "death")]
        assert (row["rows", ""], row["events", ""]) == (rows.sum(), (cause[rows] == 2).sum())
    survival = tree.predict_survival_function(frame, TIMES / 100)
    np.testing.assert_allclose(found.sum(axis=1) + survival, 1, atol=1e-12)
    horizon = tree.predict_cumulative_incidence(frame, [tree.horizon_])
    np.testing.assert_array_equal(tree.predict(frame, "death"), horizon[:, 1, 0])
    text = tree.summary()
    for part in ("Exact competing risks tree", "relapse", "hazard ratio", "Caution: The rules were chosen"):
        assert part in text


# ---------------------------------------------------------------------- sizes by cross-validation


def test_scores_of_sizes_are_weighted_deviances(small_data: SurvivalData):
    frame, y = small_data.frame, small_data.y
    weight = np.random.default_rng(0).uniform(0.1, 5, len(small_data))
    tree = OptimalSurvivalTreeCV(max_depth=1, n_folds=3).fit(frame, y, sample_weight=weight)
    train, test = tree.folds_ != 0, tree.folds_ == 0
    alone = OptimalSurvivalTree(max_depth=1).fit(frame[train], y[train], sample_weight=weight[train])
    steps = BaselineHazard.of(weighted_rows(y[train], weight[train]))
    loops = reference.hazards(
        small_data.time[train].tolist(), small_data.event[train].tolist(), weight[train].tolist()
    )
    np.testing.assert_allclose(steps.at(small_data.time[train]), loops, rtol=1e-12)
    fitted = steps.at(small_data.time[test])
    ratio = alone.leaf_table_["hazard_ratio"].to_numpy()[alone.apply(frame[test]) - 1]
    rows = fitted * ratio - small_data.event[test] * (np.log(fitted) + np.log(ratio) + 1.0)
    value = -np.average(rows, weights=weight[test])
    assert tree.cv_results_.loc[1, "fold_0"] == pytest.approx(value, rel=1e-10)


def test_scores_of_sizes_take_off_the_hazard_before_entry():
    frame, time, event, entry = cohort()
    y = Surv(time, event, entry=entry)
    tree = OptimalSurvivalTreeCV(max_depth=1, n_folds=3, min_leaf=20).fit(frame, y)
    assert tree.best_nodes_ == 1
    train, rows = tree.folds_ != 0, tree.folds_ == 0
    single = OptimalSurvivalTree(max_depth=0).fit(frame[train], y[train])
    theta = single.leaf_table_["hazard_ratio"].item()
    assert theta == pytest.approx(1.0)  # as many events as the baseline expects
    at = single.curves_.cumulative_hazard_at(np.concatenate([time[rows], entry[rows]]))[0]
    exposure = at[: rows.sum()] - at[rows.sum() :]
    kept = np.where(exposure > 0, exposure, 1 / (train.sum() + 1))
    deviance = exposure - event[rows] * (np.log(kept) + 1)
    assert tree.cv_results_.loc[0, "fold_0"] == pytest.approx(-deviance.mean(), rel=1e-10)


def test_with_one_cause_the_folds_score_as_with_one_event():
    frame, time, event, _ = cohort()
    outcomes = Surv(time, event.astype(int), causes={1: "any"}), Surv(time, event)
    one, other = (OptimalSurvivalTreeCV(2, min_leaf=25, n_folds=3).fit(frame, y) for y in outcomes)
    np.testing.assert_allclose(one.cv_results_["mean_score"], other.cv_results_["mean_score"], rtol=1e-10)


# ---------------------------------------------------------------------- start-stop rows


@pytest.mark.parametrize("causes", [False, True])
def test_rows_split_at_random_times_give_the_same_tree(gbsg2: SurvivalData, causes):
    n, rng = len(gbsg2), np.random.default_rng(0)
    entry = gbsg2.time * rng.uniform(0, 0.5, n) * (rng.random(n) < 0.4)
    weight = rng.uniform(0.5, 3.0, n)
    event = np.where(gbsg2.event, rng.integers(1, 3, n) if causes else 1, 0)
    kind = {"causes": ("relapse", "death")} if causes else {}
    whole = Surv(gbsg2.time, event, entry=entry, id=np.arange(n), weight=weight, **kind)
    frame, parts = gbsg2.frame, halved(whole, rng.uniform(0.1, 0.9, n))
    cut = pd.concat([frame, frame])
    one, many = (OptimalSurvivalTree(max_depth=1).fit(*rows) for rows in ((frame, whole), (cut, parts)))
    # Losses differ by the likelihood of a model that knows every row.
    curves = [tree.predict_survival_function(frame, [400.0, 1500.0], after=0.0) for tree in (one, many)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-10)
    np.testing.assert_array_equal(many.apply(frame), one.apply(frame))
    assert many.score(cut, parts) == pytest.approx(one.score(frame, whole), abs=1e-10)


def test_covariates_that_change_ask_for_a_time():
    data = load_dataset("heart")
    tree = OptimalSurvivalTree(max_depth=2, min_leaf=20).fit(data.frame, data.y)
    assert tree.time_varying_
    assert tree.n_samples_fit_ == 172
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


def test_steps_are_right_continuous_and_begin_at_one_and_zero() -> None:
    y = np.array([2.0, 4.0, 3.0, 5.0]), np.array([1, 0, 1, 1], dtype=bool)
    curves = leaf_curves(np.array([0, 0, 1, 1]), 2, weighted_rows(y))
    assert curves.times.tolist() == [2, 3, 5]
    grid = np.array([0.0, 1.9, 2.0, 3.0, 4.9, 5.0, 50.0])
    assert curves.survival_at(grid).tolist() == [[1, 1, 0.5, 0.5, 0.5, 0.5, 0.5], [1, 1, 1, 0.5, 0.5, 0, 0]]
    assert curves.cumulative_hazard_at(grid)[1].tolist() == [0, 0, 0, 0.5, 0.5, 1.5, 1.5]
    assert curves.quantile(None, 0.5).tolist() == [2, 3]
    assert curves.restricted_mean(None, 4.0).tolist() == [3.0, 3.5]


def test_leaves_without_events_count_half_an_event() -> None:
    leaf, time, event = np.array([0, 0, 1]), np.array([1.0, 2.0, 2.0]), np.array([True, True, False])
    rows = weighted_rows((time, event))
    baseline = BaselineHazard.of(rows)
    np.testing.assert_allclose(baseline.at([0.5, 1.0, 1.5, 9.0]), [0.25, 1 / 3, 1 / 3, 1 / 3 + 1 / 2])
    ratios = hazard_ratios(leaf, 2, rows, baseline.exposure(rows))
    np.testing.assert_allclose(ratios, [2 / (1 / 3 + 5 / 6), 0.5 / (5 / 6)])
