"""Cross-validation: its scores, its groups, its reference models, and what makes two data sets the same."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sksurv.metrics import integrated_brier_score as sksurv_ibs
from sksurv.util import Surv as Structured

from sstorch import Columns, SoftSurvivalTree, Surv, SurvivalData, SurvivalRegression, inference, metrics
from sstorch.bench import cross_validate
from sstorch.bench.baselines import make_baseline
from sstorch.bench.cross_validation import CrossValidation, data_checksum, make_folds
from sstorch.bench.models import SoftTreeModel
from sstorch.bench.report.run import Run, calibration
from sstorch.bench.run import COX, KAPLAN_MEIER, TREE, peer_table, score_run
from sstorch.bench.scores import GROUP_SCORES, SCORES
from sstorch.data import Preprocessor
from sstorch.document import number
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.optim import Nodec
from sstorch.optim.run import opened

ESTIMATOR = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=2), init="random", n_starts=2)


@pytest.fixture(scope="module")
def result(gbsg2: SurvivalData) -> CrossValidation:
    return cross_validate(ESTIMATOR, gbsg2, n_folds=3, seed=1)


def test_scores_are_those_of_the_metrics(result: CrossValidation, gbsg2: SurvivalData) -> None:
    fold = 1
    test, train = gbsg2.subset(result.folds == fold), gbsg2.subset(result.folds != fold)
    tree = result.trees[fold]
    row = result.scores.query("fold == 1 and part == 'test' and chosen").iloc[0]
    assert row["c_harrell"] == pytest.approx(tree.score(test.frame, (test.time, test.event)), rel=1e-12)
    times = metrics.evaluation_times(test.time, train.time, "sksurv")
    curves = np.asarray(tree.predict_survival_function(test.frame, times))
    peer = sksurv_ibs(
        *(Structured.from_arrays(part.event, part.time) for part in (train, test)), curves, times
    )
    assert row["ibs_sksurv"] == pytest.approx(peer, rel=1e-10)
    own = tree.log_likelihood(test.frame, (test.time, test.event))
    assert row["log_likelihood"] == pytest.approx(own, rel=1e-12)
    # Predictions of held-out rows are those of the tree of their fold.
    table = result.held_out(gbsg2).set_index("row")
    inside = table["fold"] == fold
    np.testing.assert_array_equal(table["group"][inside], tree.apply(test.frame))
    names = [name for name in table if name.startswith("S(")]
    expected = tree.predict_survival_function(test.frame, [float(name[2:-1]) for name in names])
    np.testing.assert_array_equal(table.loc[inside, names], expected)


def test_a_fold_is_trained_as_its_rows_alone_would_be(result: CrossValidation, gbsg2: SurvivalData) -> None:
    """Preprocessing, time scale and starts come from the fold's own training rows."""
    train = gbsg2.subset(result.folds != 0)
    alone = clone(ESTIMATOR).set_params(random_state=0)
    alone.fit(train.frame, (train.time, train.event))
    tree = result.trees[0]
    assert alone.objective_ == pytest.approx(tree.objective_, rel=1e-6)
    np.testing.assert_allclose(alone.preprocessor_.offset_, tree.preprocessor_.offset_)
    assert float(alone.module_.log_time_scale) == pytest.approx(np.log(train.time).mean(), rel=1e-12)
    np.testing.assert_allclose(alone.predict(train.frame), tree.predict(train.frame), rtol=1e-3)


def test_scores_are_weighted_and_rows_without_weight_are_left_out(small_data: SurvivalData) -> None:
    weight = np.arange(len(small_data)) % 3 / 2
    frame = small_data.frame.copy()
    frame.loc[weight == 0, frame.columns[0]] = 1e6
    y = small_data.y.weighted(weight)
    data = SurvivalData(frame, y)
    result, used = cross_validate(SurvivalRegression("weibull"), data, 2), data.subset(weight > 0)
    pd.testing.assert_frame_equal(
        result.scores, cross_validate(SurvivalRegression("weibull"), used, 2).scores
    )
    held_out = result.held_out(data)
    np.testing.assert_array_equal(held_out["row"], np.flatnonzero(weight))
    np.testing.assert_array_equal(held_out["fold"], result.folds)
    alone = SurvivalRegression("weibull").fit(frame, y)
    pd.testing.assert_frame_equal(inference.terms(result.model), inference.terms(alone), rtol=1e-8)
    tree, test, train = result.trees[0], used.subset(result.folds == 0), used.subset(result.folds != 0)
    names = ["c_harrell", "ibs_graf", "ibs_sksurv"]
    expected = [*metrics.evaluate(tree, train, test, metrics=names)["value"]]
    expected.append(tree.log_likelihood(test.frame, test.y, test.sample_weight))
    row = result.scores.query("fold == 0 and part == 'test'")[[*names, "log_likelihood"]]
    np.testing.assert_allclose(row.to_numpy(), [expected], rtol=1e-10)
    # Calibration in the report of the run has weighted means.
    table = calibration(Run("rows", data.counted(), result.model, held_out, None, {}, {}))[-1]
    names = [name for name in held_out if name.startswith("S(")]
    for name, (mean, observed, _) in zip(names, table.to_numpy(), strict=True):
        assert mean == number(np.average(held_out[name], weights=used.sample_weight))
        assert observed == number(float(metrics.KaplanMeier.fit(used.weighted_y).at(float(name[2:-1]))))
    few = Run("rows", used.subset(np.arange(3)), result.model, held_out[:3], None, {}, {})
    assert "no curve, " in calibration(few)[-1].attrs["caption"]  # with the reason


def test_categories_that_a_fold_does_not_see(small_data: SurvivalData) -> None:
    frame = small_data.frame.assign(kind=np.where(np.arange(len(small_data)) == 5, "rare", "common"))
    data = SurvivalData(frame, (small_data.time, small_data.event))
    result = cross_validate(ESTIMATOR, data, n_folds=3)
    widths = {len(p.feature_names_out) for p in result.batch.preprocessors}
    assert widths == {5}
    assert isinstance(result.batch.preprocessors[0], Preprocessor)
    assert np.isfinite(result.scores["log_likelihood"]).all()


def test_groups_are_scored_and_validated(result: CrossValidation, gbsg2: SurvivalData) -> None:
    leaves = [tree.apply(gbsg2.frame) for tree in result.trees]
    pairs = [adjusted_rand_score(leaves[j], leaves[k]) for j in range(len(leaves)) for k in range(j)]
    found = result.model.group_validation_
    chosen = result.scores[result.scores["chosen"]].groupby("part")[list(GROUP_SCORES)].mean()
    assert found.ari == pytest.approx(np.mean(pairs))
    np.testing.assert_allclose(chosen.loc["test"], [found.first.c_groups, found.n_groups, found.ari])
    assert chosen.loc["train", "ari"] == chosen.loc["test", "ari"]
    assert not result.scores[list(GROUP_SCORES)].isna().any(axis=None)
    assert list(result.table().columns.get_level_values(0).unique()) == [*SCORES, *GROUP_SCORES]
    assert str(found) in result.model.summary()


def test_folds_too_small_to_score_are_refused_before_training() -> None:
    data = SurvivalData(pd.DataFrame({"x": range(9)}), (np.arange(1.0, 10.0), np.ones(9, bool)))
    with pytest.raises(DataError, match=r"fold \d of 9 cannot be scored, choose fewer folds"):
        make_folds(data, 9, 0)


def test_checkpoint_of_other_rows_raises(small_data: SurvivalData, tmp_path: Path) -> None:
    path, model = tmp_path / "run.safetensors", SurvivalRegression("weibull")
    first, again = (cross_validate(model, small_data, 2, checkpoint=path) for _ in range(2))
    pd.testing.assert_frame_equal(again.scores, first.scores)
    with pytest.raises(ConfigError, match="`checkpoint` must be a file of a run with the same settings"):
        cross_validate(model, small_data.subset(range(1, 120)), 2, checkpoint=path)


def test_everything_that_a_model_sees_counts() -> None:
    time, event = np.arange(1.0, 7.0), np.array([1, 0, 1, 1, 0, 1])
    frame = pd.DataFrame({"site": [3.0, 4.0, np.nan, 3.0, 4.0, 3.0], "x": np.arange(6.0)})
    base = data_checksum(SurvivalData(frame, (time, event)))
    assert data_checksum(SurvivalData(frame.copy(), (time, event))) == base
    others = [
        SurvivalData(frame.assign(x=frame["x"] + 1e-12), (time, event)),
        SurvivalData(frame[["x", "site"]], (time, event)),
        SurvivalData(frame, (time, 1 - event)),
        SurvivalData(frame, (time, event), sample_weight=[1, 1, 1, 1, 1, 2]),
        SurvivalData(frame, Surv(time, event, entry=time / 2)),
        SurvivalData(frame, Surv(time, event, entry=[0, 1, 0, 3, 0, 5], id=list("abcdef"))),
        SurvivalData(frame, Surv(time, [1, 0, 2, 1, 0, 2], causes="auto")),
        # The same in text, but a category.
        SurvivalData(frame.assign(site=frame["site"].astype("string")), (time, event)),
    ]
    sums = [data_checksum(own) for own in others]
    assert len({base, *sums}) == len(others) + 1


def test_reference_models_are_scored_on_the_folds_of_a_run(small_data: SurvivalData, tmp_path: Path) -> None:
    estimator = SoftSurvivalTree(depth=1, trainer="joint", init="random", n_starts=2)
    result = cross_validate(estimator, small_data, 3)
    with opened(tmp_path / "checkpoint") as checkpoint:  # which keeps scores of a model, not of a name
        for leaf in ("exponential", "weibull"):
            peers = [SoftTreeModel("regression", SurvivalRegression(leaf))]
            scores = score_run(result, small_data, checkpoint, peers)
    assert scores.equals(score_run(result, small_data, peers=peers))
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


def test_reference_models_are_those_that_the_rows_allow(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
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
