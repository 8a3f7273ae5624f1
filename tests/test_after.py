"""What is left to those who are alive at a time: every prediction with ``after``."""

from typing import Any

import numpy as np
import pytest

from sstorch import OptimalSurvivalTree, PrognosticTree, SurvivalData, SurvivalRegression
from sstorch.exceptions import DataError, DataWarning
from tests.flat import soft_tree
from tests.groups.trees import fitted

AFTER = np.array([0.0, 200.0, 1000.0, 1900.0])
TIMES = np.array([0.0, 50.0, 400.0, 1500.0])
MIXTURE = soft_tree(
    depth=1, leaf="weibull", trainer="leaves", init="distilled", ridge=1e-3, prediction="mixture"
)
EXACT = OptimalSurvivalTree(max_depth=1, min_leaf=50)
KINDS: dict[str, Any] = {"soft": PrognosticTree(depth=1), "mixture": MIXTURE, "exact": EXACT}
of_kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def trees(gbsg2: SurvivalData) -> dict[str, Any]:
    return {kind: tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event)) for kind, tree in KINDS.items()}


@of_kinds
def test_curves_are_ratios(trees: dict[str, Any], kind: str, gbsg2: SurvivalData) -> None:
    tree, rows = trees[kind], gbsg2.frame[:4]
    at = np.concatenate([AFTER[:, None], AFTER[:, None] + TIMES], axis=1)
    whole = np.array([tree.predict_survival_function(rows[i : i + 1], at[i])[0] for i in range(4)])
    found = tree.predict_survival_function(rows, TIMES, after=AFTER)
    np.testing.assert_allclose(found, whole[:, 1:] / whole[:, :1], rtol=1e-12)
    if kind != "exact":
        hazard = tree.predict_cumulative_hazard_function(rows, TIMES, after=AFTER)
        np.testing.assert_allclose(hazard, -np.log(found), rtol=1e-9, atol=1e-12)
        of_a_time = [tree.predict_hazard_function(rows[i : i + 1], at[i, 1:])[0] for i in range(4)]
        np.testing.assert_allclose(tree.predict_hazard_function(rows, TIMES, after=AFTER), of_a_time)
    frame = tree.predict_survival_function(rows, TIMES, after=200, as_frame=True)
    np.testing.assert_array_equal(frame.to_numpy()[1], found[1])
    default = tree.predict_survival_function(rows, after=AFTER[1])
    assert default.shape[1] <= 100
    assert (np.diff(default, axis=1) <= 0).all()


@of_kinds
def test_quantiles_and_means_are_those_of_the_curves(
    trees: dict[str, Any], kind: str, gbsg2: SurvivalData
) -> None:
    tree, rows = trees[kind], gbsg2.frame[:4]
    quantile = tree.predict_quantile(rows, 0.25, after=AFTER)
    reached = np.flatnonzero(np.isfinite(quantile))
    assert reached.size
    for i in reached:
        near = [quantile[i] * (1 - 1e-8), quantile[i]]
        before, there = tree.predict_survival_function(rows[i : i + 1], near, after=AFTER[i])[0]
        assert before >= 0.75 - 1e-9 >= there - 2e-9
    fine = np.linspace(0, 1200.0, 60_001)
    curves = tree.predict_survival_function(rows, (fine[1:] + fine[:-1]) / 2, after=AFTER)
    means = tree.predict_rmst(rows, 1200.0, after=AFTER)
    np.testing.assert_allclose(means, curves.mean(axis=1) * 1200, rtol=2e-5)
    for method, value in ((tree.predict_quantile, 0.25), (tree.predict_rmst, 900.0)):
        np.testing.assert_allclose(method(rows, value, after=np.zeros(4)), method(rows, value), rtol=1e-8)


@pytest.mark.parametrize("kind", ["soft causes", "exact causes"])
def test_incidences_of_those_without_an_event(kind: str) -> None:
    tree, data = fitted(kind)
    rows, times = data.frame[:6], np.array([200.0, 900.0])
    found = tree.predict_cumulative_incidence(rows, times, after=240.0)
    alive = tree.predict_survival_function(rows, times, after=240.0)
    np.testing.assert_allclose(found.sum(axis=1) + alive, 1, atol=1e-12)
    whole = tree.predict_cumulative_incidence(rows, np.append(240.0, 240 + times))
    left = tree.predict_survival_function(rows, [240.0])[:, None]
    np.testing.assert_allclose(found, (whole[..., 1:] - whole[..., :1]) / left, atol=1e-12)
    at_horizon = tree.predict_cumulative_incidence(rows, [tree.horizon_])[..., 0]
    np.testing.assert_allclose(tree.predict(rows), at_horizon[:, 0], rtol=1e-12)
    np.testing.assert_allclose(tree.predict(rows, cause="death"), at_horizon[:, 1], rtol=1e-12)


def test_what_is_refused(trees: dict[str, Any], gbsg2: SurvivalData) -> None:
    rows, y = gbsg2.frame[:3], (gbsg2.time, gbsg2.event)
    for tree in (trees["soft"], trees["exact"]):
        for after, words in (
            (-1.0, "after must be finite and >= 0"),
            ([1.0, 2.0, np.nan], r"after must be finite and >= 0 in 1 row \(.* 2\)"),
            ([1.0, 2.0], r"after has shape \(2,\); give one time, or one for each of 3 rows"),
            (99999.0, "no training event is later than after=99999"),
        ):
            with pytest.raises(DataError, match=words):
                tree.predict_survival_function(rows, after=after)
    x = np.arange(12.0)[:, None]
    dead = OptimalSurvivalTree(max_depth=0).fit(x, (np.arange(1.0, 13.0), np.ones(12)))
    with pytest.raises(DataError, match=r"survival of 1 row \(.* 1\) at after=12 is 0"):
        dead.predict_survival_function(x[:2], [1.0], after=[7.0, 12.0])
    tiny = SurvivalRegression("weibull").fit(gbsg2.frame[["tsize"]], y)
    far = rows[["tsize"]].assign(tsize=[20.0, 20.0, 1e8])  # S(500) underflows
    with (
        pytest.warns(DataWarning, match="far outside"),
        pytest.raises(DataError, match=r"survival of 1 row \(.* 2\) at after=500 is 0"),
    ):
        tiny.predict_survival_function(far, TIMES, after=500.0)


def test_median_beyond_the_last_training_event_is_infinite(gbsg2: SurvivalData) -> None:
    """No Kaplan-Meier estimate gives it either; only `extrapolate` asks the family of the leaf."""
    tree = PrognosticTree(depth=1, leaf="weibull").fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    last = tree.event_times_[-1]
    whole = tree.predict_quantile(gbsg2.frame, extrapolate=True)
    beyond = whole > last
    assert 0 < beyond.sum() < len(beyond)
    np.testing.assert_array_equal(tree.predict_quantile(gbsg2.frame), np.where(beyond, np.inf, whole))
    late = int(np.argmax(whole))
    assert "predicted median not reached" in str(tree.explain(gbsg2.frame.iloc[[late]]))
    # The time that is left ends with the last event, too; at 1/2 of S(after) it comes later than from zero.
    left, free = (tree.predict_quantile(gbsg2.frame, after=1000.0, extrapolate=e) for e in (False, True))
    np.testing.assert_array_equal(left, np.where(1000.0 + free > last, np.inf, free))
