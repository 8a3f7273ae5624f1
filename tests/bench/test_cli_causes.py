"""The command on data whose causes compete."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import CompetingRisksTree, SoftSurvivalTree, SurvivalData
from sstorch.bench.competing_risks import cause_folds, competing_risks_tree, cross_validate_causes
from sstorch.exceptions import ConfigError, DataError
from tests.app import sstorch


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 2)).round(3), columns=["age", "size"])
    first, second = (rng.exponential(400 * np.exp(-frame[name])) for name in ("age", "size"))
    frame["days"] = np.ceil(np.minimum(np.minimum(first, second), 900))
    frame["status"] = np.select([first <= frame["days"], second <= frame["days"]], [1, 2], 0)
    return frame


def test_a_run_is_cross_validated_and_kept(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table.to_csv(tmp_path / "cohort.csv", index=False)
    typed = [
        "dataset=csv", f"dataset.path={tmp_path / 'cohort.csv'}", "dataset.time=days", "dataset.cause=status",
        "dataset.causes={1: relapse, 2: death}", "tree.depth=1", "leaf=exponential", "cv.n_folds=2",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]  # fmt: skip
    assert sstorch(monkeypatch, *typed) == 0
    out = capsys.readouterr().out
    for said in (
        "events (",
        "relapse, ",
        "Competing risks tree: depth 1, exponential leaves",
        "aalen_johansen",
    ):
        assert said in out
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "completed"
    model = CompetingRisksTree.load(tmp_path / "run" / "model")
    assert model.causes_ == ("relapse", "death")
    scores = pd.read_csv(tmp_path / "run" / "scores.csv")
    assert len(scores) == 2 * 2 * 2
    by_model = scores.groupby("model")["ibs"].mean()
    assert by_model["tree"] < by_model["aalen_johansen"]
    assert (tmp_path / "run" / "figures" / "incidence.png").stat().st_size > 5000
    assert sstorch(monkeypatch, *typed) == 0
    assert "holds this very run" in capsys.readouterr().out
    assert sstorch(monkeypatch, *typed[:-1], f"hydra.run.dir={tmp_path / 'b'}", "trainer=nodec") == 2
    assert "trainer is not used where causes compete" in capsys.readouterr().err
    study = [f"study.folder={tmp_path / 'study'}", "experiment=own", f"hydra.run.dir={tmp_path / 'c'}"]
    assert sstorch(monkeypatch, *typed[:5], *study) == 2
    assert "cohort has competing causes, and models of a study know one event" in capsys.readouterr().err


def test_folds_have_all_causes(table: pd.DataFrame) -> None:
    data = SurvivalData(table[["age", "size"]], (table["days"], table["status"]), causes="auto")
    fold = cause_folds(data, 4, 0)
    shares = pd.crosstab(fold, data.cause)
    assert (shares.max() - shares.min() <= 1).all()
    few = np.where((data.cause == 2) & (np.cumsum(data.cause == 2) > 3), 0, data.cause)
    rare = SurvivalData(table[["age", "size"]], (table["days"], few), causes="auto")
    with pytest.raises(DataError, match="cause 2 has 3 events, too few for 4 folds"):
        cause_folds(rare, 4, 0)
    with pytest.raises(ConfigError, match="at least 2"):
        cause_folds(data, 1, 0)


def test_scores_are_of_rows_left_out(table: pd.DataFrame) -> None:
    data = SurvivalData(table[["age", "size"]], (table["days"], table["status"]), causes="auto")
    result = cross_validate_causes(CompetingRisksTree(1, "exponential"), data, 2, 0)
    table_of_means = result.table()
    assert list(table_of_means.columns) == ["c_wolbers", "c_cause_specific", "ibs"]
    assert (table_of_means.xs("tree", level="model")["c_wolbers"] > 0.6).all()
    assert (table_of_means.xs("aalen_johansen", level="model")["c_wolbers"] == 0.5).all()


def test_parameters_go_from_one_tree_to_the_other() -> None:
    tree = competing_risks_tree(SoftSurvivalTree(3, ridge=0.5, gate_features=1, min_leaf=0.05), "weibull")
    found = (tree.depth, tree.leaf, tree.ridge, tree.gate_features, tree.min_leaf)
    assert found == (3, "weibull", 0.5, 1, 0.05)
    for name, value in {"trainer": "nodec", "holdout": 0.2, "fairness": "l2"}.items():
        with pytest.raises(ConfigError, match=f"{name} is not used where causes compete"):
            competing_risks_tree(SoftSurvivalTree(**{name: value}))
