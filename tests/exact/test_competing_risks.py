"""Exact trees for competing causes: all trees by loops, leaves by Aalen and Johansen, kept and refused."""

import numpy as np
import pandas as pd
import pytest

from sstorch import OptimalSurvivalTree, OptimalSurvivalTreeCV, Surv, metrics
from sstorch.exact import LogLikelihood, check_task
from sstorch.exceptions import ConfigError, DataError
from sstorch.validation import group_table
from tests.exact import reference

CAUSES = {1: "relapse", 2: "death"}
TIMES = np.array([0.0, 30.0, 200.0, 500.0, 5000.0])


def random_causes(seed):
    features, time, event = reference.random_problem(seed)
    rng = np.random.default_rng(1000 + seed)
    n_causes = 2 + seed % 2
    cause = np.where(event, rng.integers(1, n_causes + 1, len(time)), 0)
    cause[:n_causes] = np.arange(1, n_causes + 1)  # every cause somewhere
    return features, time, cause, n_causes


def test_the_task_keeps_what_is_promised():
    features, time, cause, _ = random_causes(8)
    check_task(LogLikelihood(time, cause, n_causes=2), features)
    with pytest.raises(DataError, match="no row has cause 2"):
        LogLikelihood(time, np.where(cause == 2, 0, cause), n_causes=2)


@pytest.fixture(scope="module")
def cohort():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(30, 80, 300), "stage": rng.choice(["I", "II", "III"], 300)})
    relapse = rng.exponential(300 * np.exp(-(frame["stage"] == "III")))
    death = rng.exponential(500 * np.exp(-(frame["age"] > 60)))
    time = np.ceil(np.minimum(np.minimum(relapse, death), rng.uniform(50, 800, 300)))
    cause = np.select([relapse <= time, death <= time], [1, 2], 0)
    return frame, time, cause, Surv(time, cause, causes=CAUSES)


@pytest.fixture(scope="module")
def tree(cohort):
    frame, _, _, y = cohort
    return OptimalSurvivalTree(2, min_leaf=25, time_unit="days").fit(frame, y)


def test_both_causes_have_their_question(tree):
    assert tree.certified_
    assert {rule.column for j, rule in enumerate(tree.rules_) if j in tree.tree_.feature} == {"age", "stage"}
    assert tree.loss_ < tree.optima_.loc[tree.optima_["depth"] == 1, "loss"].min()


def test_leaves_are_those_of_aalen_and_johansen(tree, cohort):
    frame, time, cause, _ = cohort
    leaf, found = tree.apply(frame) - 1, tree.predict_cumulative_incidence(frame, TIMES)
    for number in range(tree.tree_.n_leaves):
        inside = leaf == number
        expected = metrics.aalen_johansen((time[inside], cause[inside]), TIMES, n_causes=2)
        np.testing.assert_allclose(
            found[inside], np.broadcast_to(expected, found[inside].shape), rtol=1e-12, atol=1e-15
        )
        row = tree.group_table_.loc[(number + 1, "death")]
        assert (row["rows", ""], row["events", ""]) == (inside.sum(), (cause[inside] == 2).sum())
    survival = tree.predict_survival_function(frame, TIMES)
    np.testing.assert_allclose(found.sum(axis=1) + survival, 1, atol=1e-12)
    at_horizon = tree.predict_cumulative_incidence(frame, [tree.horizon_])
    np.testing.assert_array_equal(tree.predict(frame, "death"), at_horizon[:, 1, 0])


def test_scores_texts_and_files(tree, cohort, tmp_path):
    frame, _, _, y = cohort
    assert tree.score(frame, y) > 0.55
    table = group_table(tree, frame, y, [200.0])
    np.testing.assert_allclose(table["F(200)", "model"], table["F(200)", "estimate"], atol=1e-12)
    tree.save(tmp_path)
    again = OptimalSurvivalTree.load(tmp_path)
    incidence = again.predict_cumulative_incidence(frame)
    np.testing.assert_array_equal(incidence, tree.predict_cumulative_incidence(frame))
    assert again.fit(frame, y).loss_ == tree.loss_
    text = tree.summary()
    assert OptimalSurvivalTree.load(tmp_path).summary() == text
    for part in ("Exact competing risks tree", "relapse", "t in days", "optimal for depth 2", "hazard ratio"):
        assert part in text
    assert "\n\nCaution: The rules were chosen on the training rows" in text


def test_what_is_refused(cohort):
    frame, time, cause, y = cohort
    with pytest.raises(DataError, match="competing causes"):
        OptimalSurvivalTree(1).fit(frame, (time, cause))
    with pytest.raises(ConfigError, match="objective='integrated_brier' is for one event"):
        OptimalSurvivalTree(1, objective="integrated_brier").fit(frame, y)
    with pytest.raises(ConfigError, match="leaf_curve='proportional_hazards' is for one event"):
        OptimalSurvivalTree(1, leaf_curve="proportional_hazards").fit(frame, y)
    with pytest.raises(ConfigError, match="there is one event"):
        OptimalSurvivalTree(1).fit(frame, (time, cause > 0)).predict(frame, cause="relapse")
    with pytest.raises(ConfigError, match="min_events"):
        OptimalSurvivalTree(min_events=-1).fit(frame, y)
    with pytest.raises(
        DataError, match="one value besides those named, for censored rows, got '0', '1', '2'"
    ):
        Surv(time, cause, causes={1: "relapse"})


def test_causes_of_the_search_by_cross_validation(cohort):
    frame, _, _, y = cohort
    search = OptimalSurvivalTreeCV(2, min_leaf=25, n_folds=3).fit(frame, y)
    again = OptimalSurvivalTree(2, search.best_nodes_, min_leaf=25).fit(frame, y)
    np.testing.assert_array_equal(
        search.predict_cumulative_incidence(frame, TIMES), again.predict_cumulative_incidence(frame, TIMES)
    )
    assert search.cv_results_["mean_score"].is_unique
    # With one cause the folds score as with one event.
    one = Surv(y.time, y.event.astype(int), causes={1: "any"})
    search, event = (
        OptimalSurvivalTreeCV(2, min_leaf=25, n_folds=3).fit(frame, outcome)
        for outcome in (one, Surv(y.time, y.event))
    )
    np.testing.assert_allclose(search.cv_results_["mean_score"], event.cv_results_["mean_score"], rtol=1e-10)
