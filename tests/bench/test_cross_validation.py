from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sksurv.metrics import integrated_brier_score as sksurv_ibs
from sksurv.util import Surv

from sstorch import (
    Columns,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
    SurvivalRegression,
    inference,
    metrics,
)
from sstorch.bench import cross_validate
from sstorch.bench.cross_validation import CrossValidation, make_folds
from sstorch.bench.report.run import Run, calibration
from sstorch.bench.scores import GROUP_SCORES, SCORES
from sstorch.data import Preprocessor
from sstorch.document import number
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Nodec

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
        Surv.from_arrays(train.event, train.time), Surv.from_arrays(test.event, test.time), curves, times
    )
    assert row["ibs_sksurv"] == pytest.approx(peer, rel=1e-10)
    own = tree.log_likelihood(test.frame, (test.time, test.event))
    assert row["log_likelihood"] == pytest.approx(own, rel=1e-12)


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
    result, used = cross_validate(SurvivalRegression(), data, 2), data.subset(weight > 0)
    pd.testing.assert_frame_equal(result.scores, cross_validate(SurvivalRegression(), used, 2).scores)
    held_out = result.held_out(data)
    np.testing.assert_array_equal(held_out["row"], np.flatnonzero(weight))
    np.testing.assert_array_equal(held_out["fold"], result.folds)
    alone = SurvivalRegression().fit(frame, y)
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


def test_predictions_of_held_out_rows(small_data: SurvivalData) -> None:
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
