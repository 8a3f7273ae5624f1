"""Plain models beside a run: what they are, and that their scores are those of any model."""

import numpy as np
import pytest

from sstorch import Columns, SoftSurvivalTree, Surv, SurvivalData, SurvivalRegression, metrics
from sstorch.bench import cross_validate
from sstorch.bench.baselines import make_baseline
from sstorch.bench.models import SoftTreeModel
from sstorch.bench.run import COX, KAPLAN_MEIER, TREE, peer_table, score_run
from sstorch.exceptions import DataWarning


def test_a_run_is_beside_plain_models_on_its_folds(small_data: SurvivalData) -> None:
    estimator = SoftSurvivalTree(depth=1, trainer="joint", init="random", n_starts=2)
    result = cross_validate(estimator, small_data, 3)
    peers = [SoftTreeModel("regression", SurvivalRegression("weibull"))]
    scores = score_run(result, small_data, peers=peers)
    table = peer_table(scores)
    assert list(table.index) == [KAPLAN_MEIER, "regression", COX, TREE]
    assert (table["folds"] == 3).all()
    assert table.loc[["regression", TREE], "log_likelihood"].notna().all()
    assert table.loc[[KAPLAN_MEIER, COX], "log_likelihood"].isna().all()
    assert table.loc[KAPLAN_MEIER, "c_harrell"] == 0.5
    own = result.scores[result.scores["chosen"] & (result.scores["part"] == "test")].set_index("fold")
    tree = scores[scores["model"] == TREE].set_index("fold")
    for name in ("c_harrell", "ibs_graf", "log_likelihood"):
        np.testing.assert_allclose(tree[name], own[name], rtol=1e-12)
    # Kaplan-Meier of the other folds, scored as any model is.
    outside, inside = small_data.subset(result.folds != 1), small_data.subset(result.folds == 1)
    fitted = make_baseline("kaplan_meier").fit(outside.frame, outside.y)
    grid = metrics.evaluation_times(inside.time, outside.time, "graf")
    curves = fitted.falling_curves(inside.frame, grid), grid
    value = metrics.evaluate(curves, outside, inside, metrics=["ibs_graf"])["value"].iloc[0]
    found = scores[(scores["model"] == KAPLAN_MEIER) & (scores["fold"] == 1)]["ibs_graf"].iloc[0]
    assert found == pytest.approx(value, rel=1e-12)


def test_which_models_stand_beside_a_run(small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch) -> None:
    regression = SurvivalRegression("weibull", columns=Columns(numeric="linear"))
    late = SurvivalData(
        small_data.frame,
        Surv(small_data.time, small_data.event, entry=0.5 * small_data.time * (np.arange(120) % 2)),
    )
    with pytest.warns(DataWarning, match="left-truncated"):
        result = cross_validate(regression, late, 2)
    assert list(peer_table(score_run(result, late)).index) == [KAPLAN_MEIER, COX, TREE]
    monkeypatch.setattr("sstorch.bench.run.MOST_NUMBERS", 100)
    assert list(peer_table(score_run(result, late)).index) == [KAPLAN_MEIER, TREE]
    monkeypatch.undo()
    still = SurvivalData(0 * small_data.frame + 1, small_data.y)
    with pytest.warns(DataWarning, match="Cox could not be fitted outside fold"):
        scores = score_run(result, still)
    assert COX not in set(scores["model"])
