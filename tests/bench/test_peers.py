"""Plain models beside a run: what they are, and that their scores are those of any model."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from sstorch import Columns, PrognosticTree, SoftSurvivalTree, Surv, SurvivalData, SurvivalRegression, metrics
from sstorch.bench import cross_validate
from sstorch.bench.baselines import make_baseline, ridge_cox
from sstorch.bench.baselines.ridge_cox import CodedRows, RidgeCox, fit_ridge_cox
from sstorch.bench.peers import COX, FOREST, KAPLAN_MEIER, ONE_LEAF, TREE, peer_table, peers_of, score_run
from sstorch.data import Schema
from sstorch.exceptions import ConfigError, TrainingError


def test_cox_is_that_of_scikit_survival(gbsg2: SurvivalData) -> None:
    linear_model, util = pytest.importorskip("sksurv.linear_model"), pytest.importorskip("sksurv.util")
    x = np.random.default_rng(0).random((len(gbsg2), 4))
    x[:, 0] += 0.001 * gbsg2.time
    time = np.ceil(gbsg2.time / 60)  # many ties
    for penalty in (1e-3, 1.0, 50.0):
        peer = linear_model.CoxPHSurvivalAnalysis(alpha=penalty, ties="breslow", tol=1e-14)
        peer.fit(x, util.Surv.from_arrays(gbsg2.event, time))
        found = fit_ridge_cox(x, (time, gbsg2.event), penalty)
        np.testing.assert_allclose(found, peer.coef_, rtol=1e-6, atol=1e-9)
    fitted = RidgeCox(50.0).fit(gbsg2, Schema.of(gbsg2.frame))
    # Breslow's baseline of the baselines, whose curves it has at any time.
    at = np.array([0.0, 100.0, 900.5, 1e5])
    jumps = fitted.baseline.jumps
    whole = fitted.baseline.survival(fitted.encoder(gbsg2.frame) @ fitted.coefficients)
    expected = np.column_stack([np.ones(len(gbsg2)), whole])[:, np.searchsorted(jumps, at, side="right")]
    np.testing.assert_array_equal(fitted.falling_curves(gbsg2.frame, at), expected)


def test_cox_with_entry_and_weights(small_data: SurvivalData) -> None:
    x, time, event = small_data.frame.to_numpy(), small_data.time, small_data.event
    plain = fit_ridge_cox(x, (time, event), 0.5)
    # Rows split at a time within their follow-up say the same.
    cut = 0.6 * time
    parts = np.r_[cut, time], np.r_[np.zeros(len(x), bool), event], np.r_[np.zeros(len(x)), cut]
    split = fit_ridge_cox(np.r_[x, x], Surv(parts[0], parts[1], entry=parts[2]), 0.5)
    np.testing.assert_allclose(split, plain, rtol=1e-8)
    # Integer weights are repeated rows.
    count = np.arange(len(x)) % 3 + 1
    repeated = fit_ridge_cox(np.repeat(x, count, 0), (np.repeat(time, count), np.repeat(event, count)), 0.5)
    weighted = fit_ridge_cox(x, Surv(time, event, weight=count), 0.5)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-8)
    # Late entry: lifelines, whose ties are Efron's, where there are none.
    lifelines = pytest.importorskip("lifelines")
    distinct = time + 1e-3 * np.arange(len(x))
    entry = np.where(np.arange(len(x)) % 2, 0.5 * distinct, 0.0)
    frame = pd.DataFrame(x).assign(time=distinct, event=event, entry=entry)
    peer = lifelines.CoxPHFitter().fit(frame, "time", "event", entry_col="entry")
    own = fit_ridge_cox(x, Surv(distinct, event, entry=entry), 1e-6)
    np.testing.assert_allclose(own, peer.params_, rtol=1e-4)
    # Breslow's baseline by its definition: those at risk have entered before, and end at or after.
    weight = count * 1.0
    rows = SurvivalData(small_data.frame, Surv(distinct, event, entry=entry, weight=weight))
    fitted = RidgeCox().fit(rows, Schema.of(rows.frame))
    risk = np.exp(fitted.encoder(rows.frame) @ fitted.coefficients)
    hazard = sum(
        weight[k] / (weight * risk)[(entry < distinct[k]) & (distinct >= distinct[k])].sum()
        for k in np.flatnonzero(event & (distinct <= 60.0))
    )
    found = fitted.falling_curves(rows.frame, [60.0])[:, 0]
    np.testing.assert_allclose(found, np.exp(-hazard * risk), rtol=1e-9)


def test_cox_of_coded_categories_and_runs_of_times_has_the_same_optimum(
    gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    level, x = random.integers(0, 20, len(gbsg2)), random.random((len(gbsg2), 2))
    dense = np.column_stack([x, level[:, None] == np.arange(20)]).astype(float)
    y = Surv(gbsg2.time, gbsg2.event, entry=0.3 * gbsg2.time * random.random(len(x)), weight=1 + level % 3)
    expected = fit_ridge_cox(dense, y, 0.5)
    coded = CodedRows(x, csr_array(dense[:, 2:]))
    np.testing.assert_allclose(fit_ridge_cox(coded, y, 0.5), expected, rtol=1e-8)
    monkeypatch.setattr(ridge_cox, "_RUNS", 4)
    np.testing.assert_allclose(fit_ridge_cox(coded, y, 0.5), expected, rtol=1e-5)


def test_cox_where_a_column_separates_all_events_and_where_newton_cannot() -> None:
    time = np.arange(1.0, 41.0)
    x = (time <= 20).astype(float)[:, None]
    beta = fit_ridge_cox(x, (time, time <= 20), 1e-6)
    gradient = 1e-6 * beta - _score(beta, x, time, time <= 20)
    assert 5 < beta[0] < 30
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    with pytest.raises(ConfigError, match="penalty"):
        RidgeCox(0.0)
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(TrainingError, match="larger penalty"):
        fit_ridge_cox(1e200 * x, (time, time <= 20), 1e-6)


def _score(beta: np.ndarray, x: np.ndarray, time: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Gradient of the log partial likelihood by its definition."""
    risk, total = np.exp(x @ beta), np.zeros(x.shape[1])
    for row in np.flatnonzero(event):
        at_risk = time >= time[row]
        total += x[row] - risk[at_risk] @ x[at_risk] / risk[at_risk].sum()
    return total


def test_a_run_is_beside_plain_models_on_its_folds(small_data: SurvivalData) -> None:
    estimator = SoftSurvivalTree(depth=1, trainer="joint", init="random", n_starts=2)
    result = cross_validate(estimator, small_data, 3)
    scores = score_run(result, estimator, small_data)
    table = peer_table(scores)
    assert list(table.index) == [KAPLAN_MEIER, ONE_LEAF, COX, FOREST, TREE]
    assert (table["folds"] == 3).all()
    assert table.loc[[ONE_LEAF, TREE], "log_likelihood"].notna().all()
    assert table.loc[[KAPLAN_MEIER, COX, FOREST], "log_likelihood"].isna().all()
    assert table.loc[KAPLAN_MEIER, "c_harrell"] == 0.5
    own = result.scores[result.scores["chosen"] & (result.scores["part"] == "test")].set_index("fold")
    tree = scores[scores["model"] == TREE].set_index("fold")
    for name in ("c_harrell", "ibs_graf", "log_likelihood"):
        np.testing.assert_allclose(tree[name], own[name], rtol=1e-12)
    # Kaplan-Meier of the other folds, scored as any model is.
    outside, inside = small_data.subset(result.folds != 1), small_data.subset(result.folds == 1)
    fitted = make_baseline("kaplan_meier").fit(outside, Schema.of(small_data.frame))
    grid = metrics.evaluation_times(inside.time, outside.time, "graf")
    curves = fitted.falling_curves(inside.frame, grid), grid
    value = metrics.evaluate(curves, outside, inside, metrics=["ibs_graf"])["value"].iloc[0]
    found = scores[(scores["model"] == KAPLAN_MEIER) & (scores["fold"] == 1)]["ibs_graf"].iloc[0]
    assert found == pytest.approx(value, rel=1e-12)


def test_which_models_can_stand_beside(small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, regression = PrognosticTree(depth=2), SurvivalRegression()
    assert peers_of(small_data, regression) == [KAPLAN_MEIER, COX, FOREST]
    late = SurvivalData(
        small_data.frame, Surv(small_data.time, small_data.event, entry=0.5 * small_data.time)
    )
    assert peers_of(late, tree) == [KAPLAN_MEIER, ONE_LEAF, COX]
    many = small_data.subset(np.arange(5001) % len(small_data))
    assert FOREST not in peers_of(many, tree)
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        assert peers_of(small_data, tree) == [KAPLAN_MEIER, ONE_LEAF, COX]
        patch.setattr("importlib.util.find_spec", lambda name: name)
        assert peers_of(small_data, tree) == [KAPLAN_MEIER, ONE_LEAF, COX, FOREST]


def test_predictions_of_rows_left_out(small_data: SurvivalData) -> None:
    result = cross_validate(PrognosticTree(depth=1, columns=Columns(numeric="linear")), small_data, 3)
    table = result.held_out(small_data)
    assert list(table["row"]) == list(range(len(small_data)))
    np.testing.assert_array_equal(table["fold"], result.folds)
    inside = result.folds == 2
    rows, tree = small_data.frame[inside], result.trees[2]
    np.testing.assert_array_equal(table["group"][inside], tree.apply(rows))
    names = [name for name in table if name.startswith("S(")]
    expected = tree.predict_survival_function(rows, [float(name[2:-1]) for name in names])
    np.testing.assert_array_equal(table.loc[inside, names], expected)
    assert isinstance(table, pd.DataFrame)
