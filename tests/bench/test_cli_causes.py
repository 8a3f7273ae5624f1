"""The command and studies where causes compete: the road of any other outcome."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import PrognosticTree, SurvivalData, SurvivalRegression, metrics
from sstorch.bench import cross_validate
from sstorch.bench.cross_validation import make_folds
from sstorch.bench.reporting import main
from sstorch.bench.run import AALEN_JOHANSEN, CAUSE_COX, TREE, peer_table, score_run
from sstorch.validation import validate_groups
from tests.bench.conftest import App, Refused
from tests.causes import simulated


@pytest.fixture(scope="module")
def data() -> SurvivalData:
    return SurvivalData(*simulated(160))


def _typed(data: SurvivalData, folder: Path) -> list[str]:
    table = data.frame.assign(days=data.time, status=data.cause)
    table.to_csv(folder / "cohort.csv", index=False)
    return [
        "dataset=csv", f"dataset.path={folder / 'cohort.csv'}", "dataset.time=days", "dataset.cause=status",
        "dataset.causes={1: relapse, 2: death}", "cv.n_folds=2", "logger=none",
    ]  # fmt: skip


def test_run_of_causes_is_scored_kept_and_reported(
    data: SurvivalData, tmp_path: Path, app: App, refused: Refused
) -> None:
    run = tmp_path / "run"
    typed = [*_typed(data, tmp_path), "model=prognostic_tree", "model.leaf=exponential", "model.depth=1"]
    typed += ["model.penalties.gate_charge=1"]
    code, out, _ = app(*typed, f"hydra.run.dir={run}")
    assert code == 0
    assert json.loads((run / "status.json").read_text())["status"] == "completed"
    model = PrognosticTree.load(run / "model")
    assert (model.causes_, model.penalties.gate_charge) == (("relapse", "death"), 1.0)
    for said in ("96 relapse, 42 death", "model    PrognosticTree(", AALEN_JOHANSEN, model.choice_.summary()):
        assert said in out
    scores = pd.read_csv(run / "scores.csv")
    assert len(scores) == 2 * 2
    assert scores["chosen"].all()
    peers = peer_table(pd.read_csv(run / "peers.csv"))
    assert list(peers.index) == [AALEN_JOHANSEN, "regression", CAUSE_COX, TREE]
    assert peers.loc[TREE, "ibs:relapse"] < peers.loc[AALEN_JOHANSEN, "ibs:relapse"]
    held_out = pd.read_csv(run / "held_out.csv")
    assert len(held_out) == 160
    assert sum(name.endswith(":death") for name in held_out) == sum(
        name.endswith(":relapse") for name in held_out
    )
    assert (run / "figures" / "groups.png").stat().st_size > 5000
    assert "contains this run, already completed" in app(*typed, f"hydra.run.dir={run}")[1]
    main([str(run)])
    page = (run / "report" / "report.md").read_text()
    for said in ("Concordance (Wolbers)", "| this model |", "cause-specific Cox", ", death |"):
        assert said in page
    line = refused(*typed[:-1], f"hydra.run.dir={tmp_path / 'b'}", "model=soft_tree")
    assert "a trainer moves gates by the likelihood of one event" in line


def test_scores_of_causes_are_those_of_evaluate(data: SurvivalData) -> None:
    estimator = PrognosticTree(depth=1, leaf="exponential")
    result = cross_validate(estimator, data, 2, 0)
    assert list(result.score_names)[:3] == ["c_cause_specific:relapse", "c_wolbers:relapse", "ibs:relapse"]
    folds = make_folds(data, 2, 0)
    np.testing.assert_array_equal(folds, result.folds)
    train, test = data.subset(folds != 0), data.subset(folds == 0)
    tree = PrognosticTree(depth=1, leaf="exponential").fit(train.frame, train.y)
    expected = metrics.evaluate(tree, train, test)["value"]
    own = result.scores[(result.scores["fold"] == 0) & (result.scores["part"] == "test")].iloc[0]
    for cause in data.cause_names:
        for name in ("c_wolbers", "c_cause_specific", "ibs"):
            assert own[f"{name}:{cause}"] == pytest.approx(expected[cause, name], rel=1e-9)
    assert own["log_likelihood"] == pytest.approx(tree.log_likelihood(test.frame, test.y), rel=1e-9)
    validated = PrognosticTree(depth=1, leaf="exponential").fit(data.frame, data.y)
    assert result.model.group_validation_ == validate_groups(validated, data.frame, data.y, n_folds=2)
    peers = peer_table(score_run(result, data))
    constant = peers.loc[AALEN_JOHANSEN, ["c_wolbers:relapse", "c_wolbers:death"]].to_numpy(float)
    np.testing.assert_allclose(constant, 0.5, rtol=1e-12)
    table_of_rows = result.held_out(data)
    inside, times = folds == 0, [float(name[2:-7]) for name in table_of_rows if name.endswith(":death")]
    found = table_of_rows.loc[inside, [f"F({time:g}):death" for time in times]]
    np.testing.assert_allclose(found, tree.predict_cumulative_incidence(test.frame, times)[:, 1], rtol=1e-9)


def test_disparities_of_causes_are_of_any_event(data: SurvivalData) -> None:
    data = data.with_sensitive(np.where(np.arange(160) % 2, "f", "m"))
    result = cross_validate(SurvivalRegression(leaf="exponential"), data, 2, 0)
    test = result.scores[(result.scores["fold"] == 1) & (result.scores["part"] == "test")].iloc[0]
    inside, tree = data.subset(result.folds == 1), result.trees[1]
    tau = float(np.quantile(data.subset(result.folds != 1).time, 0.8))
    for label in ("f", "m"):
        rows = inside.subset(inside.groups.codes == inside.groups.labels.index(label))
        survival = tree.predict_survival_function(rows.frame, [tau]).mean()
        observed = metrics.KaplanMeier.fit((rows.time, rows.event)).at(tau)
        assert test[f"calibration:{label}"] == pytest.approx(survival - observed, abs=1e-9)
