"""Exact trees of left-truncated rows: brute force, lifelines, and rows that are split in two."""

import numpy as np
import pandas as pd
import pytest
from lifelines import NelsonAalenFitter

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    Surv,
    metrics,
)
from sstorch.exact import LogLikelihood
from sstorch.exceptions import ConfigError, DataError
from sstorch.reading import export_text
from tests.exact import reference


def cohort(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 3, n).astype(float)})
    time = rng.exponential(np.exp(-frame["a"] - 0.5 * (frame["b"] == 1)))
    entry = np.where(rng.random(n) < 0.5, time * rng.uniform(0, 0.9, n), 0.0)
    return frame, time, rng.random(n) < 0.7, entry


def test_without_late_entry_nothing_changes():
    frame, time, event, _ = cohort()
    zero, y = np.zeros(len(time)), (time, event)
    assert np.array_equal(LogLikelihood(*y, entry=zero).hazards, LogLikelihood(*y).hazards)
    plain = OptimalSurvivalTree(max_depth=2, leaf_curve="proportional_hazards").fit(frame, y)
    late = OptimalSurvivalTree(max_depth=2, leaf_curve="proportional_hazards").fit(
        frame, Surv(*y, entry=zero)
    )
    assert late.loss_ == plain.loss_
    assert export_text(late) == export_text(plain)
    pd.testing.assert_frame_equal(late.leaf_table_, plain.leaf_table_, check_exact=True)


def test_proportional_hazards_of_left_truncated_rows():
    frame, time, event, entry = cohort()
    tree = OptimalSurvivalTree(max_depth=1, min_leaf=50, leaf_curve="proportional_hazards")
    columns = frame.assign(start=entry, stop=time, died=event)
    tree.fit(columns, Surv.of(columns, "stop", "died", entry="start"))
    leaf = tree.apply(frame) - 1
    exposure = np.array(reference.exposures(time.tolist(), event.tolist(), entry.tolist()))
    ratio = [event[leaf == k].sum() / exposure[leaf == k].sum() for k in range(2)]
    np.testing.assert_allclose(tree.leaf_table_["hazard_ratio"], ratio, rtol=1e-12)
    whole = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event, entry=entry)
    baseline = whole.cumulative_hazard_at_times(tree.event_times_).to_numpy()
    np.testing.assert_allclose(tree.curves_.cumulative_hazard, np.outer(ratio, baseline), rtol=1e-10)


def test_sizes_are_chosen_by_the_deviance_of_rows_left_out():
    frame, time, event, entry = cohort()
    tree = OptimalSurvivalTreeCV(max_depth=1, n_folds=3, min_leaf=20)
    y = Surv(time, event, entry=entry)
    tree.fit(frame, y)
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
    boosted = OptimalSurvivalTree(max_depth=1, binarize="boosted").fit(frame, y)
    assert any(rule.column == "a" for rule in boosted.rules_)


def test_causes_with_late_entry():
    frame, time, event, entry = cohort()
    cause = np.where(event, 1 + (frame["b"] > 0), 0)
    task = LogLikelihood(time, cause, n_causes=2, entry=entry)
    singles = [LogLikelihood(time, cause == k, entry=entry) for k in (1, 2)]
    leaf = (frame["a"] > 0).to_numpy().astype(int)
    assert task.loss(leaf) == sum(single.loss(leaf) for single in singles)
    tree = OptimalSurvivalTree(max_depth=1, min_leaf=50).fit(
        frame, Surv(time, cause, causes="auto", entry=entry)
    )
    leaf = tree.apply(frame) - 1
    for number in range(2):
        rows = leaf == number
        expected = metrics.aalen_johansen(
            Surv(time[rows], cause[rows], causes="auto", entry=entry[rows]), tree.event_times_, n_causes=2
        )
        np.testing.assert_allclose(tree.incidence_[number], expected, rtol=1e-12, atol=1e-15)
        total = 1 - tree.curves_.survival[number] - expected.sum(axis=0)
        np.testing.assert_allclose(total, 0, atol=1e-12)


def test_a_leaf_that_no_event_passed_by_has_the_baseline():
    time, event = np.array([1.0, 3.0, 2.0, 4.0]), np.array([1, 1, 0, 0])
    task = LogLikelihood(time, event, entry=[0.0, 0.5, 1.5, 3.5])
    np.testing.assert_allclose(task.hazards[0], [1 / 2, 3 / 2, 0, 0])
    assert task.decisions(np.array([0, 0, 1, 1]), 2).tolist() == [1.0, 1.0]
    assert np.isfinite(task.loss(np.array([0, 0, 1, 1])))


def test_scorers_get_entry_and_weights_of_held_out_rows():
    frame, time, event, entry = cohort(60)
    weight, given = np.arange(1.0, 61.0), []

    def scorer(tree, X, y):
        given.append((y, tree.score(X, y)))
        return given[-1][1]

    tree = OptimalSurvivalTreeCV(max_depth=0, scoring=scorer, n_folds=2)
    tree.fit(frame, Surv(time, event, entry=entry), sample_weight=weight)
    for fold, (y, score) in enumerate(given):
        rows = tree.folds_ == fold
        np.testing.assert_array_equal(y.entry, entry[rows])
        np.testing.assert_array_equal(y.weight, weight[rows])
        assert score == tree.cv_results_.loc[0, f"fold_{fold}"]


def test_left_truncation_with_another_objective_raises():
    frame, time, event, entry = cohort(60)
    y = (time, event)
    with pytest.raises(ConfigError, match="does not support left truncation: its inverse probability"):
        OptimalSurvivalTree(objective="integrated_brier").fit(frame, Surv(*y, entry=entry))
    with pytest.raises(ConfigError, match="time_tolerance=1e-06: some rows entered late"):
        LogLikelihood(*y, entry=entry, time_tolerance=1e-6)
    with pytest.raises(DataError, match="is not before the time in 60 rows"):
        OptimalSurvivalTree().fit(frame, Surv(*y, entry=time))
    with pytest.raises(
        DataError, match=r"entry is not before the time in 60 rows .*such rows were never at risk"
    ):
        LogLikelihood(*y, entry=time)
