"""Scores by group, paths over rho, and Pareto fronts."""

import numpy as np
import pytest

from sstorch import Penalties, PrognosticTree, SoftSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.bench import cross_validate, fairness_path, leaf_table, score_fairness
from sstorch.bench.fairness import FairnessPath
from sstorch.bench.scores import DISPARITIES
from sstorch.exceptions import ConfigError, DataError
from sstorch.objective import L2Parity
from sstorch.optim import Nodec

RHOS = (0.0, 0.05, 5.0)


@pytest.fixture(scope="module")
def data(gbsg2: SurvivalData) -> SurvivalData:
    return gbsg2.subset(range(300)).with_sensitive("menostat")


@pytest.fixture(scope="module")
def path(data: SurvivalData) -> FairnessPath:
    tree = SoftSurvivalTree(
        depth=1,
        trainer=Nodec(macro_iterations=2),
        init="random",
        n_starts=2,
        penalties=Penalties(fairness="l2"),
    )
    return fairness_path(tree, data, RHOS, n_folds=3)


def test_path_scores_its_own_trees(path: FairnessPath) -> None:
    row = path.scores.query("rho == 0.05 and fold == 2 and chosen and part == 'test'").iloc[0]
    tree, test, train = path.tree(0.05, 2), path.part(2, "test"), path.part(2, "train")
    assert len(test) + len(train) == 300
    assert tree.objective_ == row["objective"]
    assert score_fairness(tree, test, train)["parity"] == pytest.approx(row["parity"], rel=1e-12)
    assert tree.score(test.frame, (test.time, test.event)) == pytest.approx(row["c_harrell"], rel=1e-12)


def test_parity_against_pairs(path: FairnessPath) -> None:
    tree, test, train = path.tree(0.0, 0), path.part(0, "test"), path.part(0, "train")
    scores = score_fairness(tree, test, train)
    assert test.groups is not None
    grid = np.geomspace(train.time.min(), train.time.max(), 4001)
    curves = np.asarray(tree.predict_survival_function(test.frame, grid))
    first, second = (curves[test.groups.codes == g] for g in (0, 1))
    squares = np.mean((first[:, None] - second[None]) ** 2, axis=(0, 1))
    assert scores["parity"] == pytest.approx(np.trapezoid(squares, grid), rel=1e-5)
    for name in ("calibration", "c_harrell"):
        values = [scores[f"{name}:{label}"] for label in test.groups.labels]
        key = "c_gap" if name == "c_harrell" else "calibration_gap"
        assert scores[key] == pytest.approx(max(values) - min(values))


def test_leaf_table(path: FairnessPath, data: SurvivalData) -> None:
    tree, test = path.tree(0.0, 0), path.part(0, "test")
    table = leaf_table(tree, test)
    assert data.groups is not None
    names = [f"menostat={label}" for label in data.groups.labels]
    assert list(table.columns) == ["rows", "gini", *names]
    used = table[table["rows"] > 0]
    np.testing.assert_allclose(used[names].sum(axis=1), 1)
    np.testing.assert_allclose(used["gini"], 4 * used[names[0]] * used[names[1]])


def test_a_group_absent_from_the_rows_has_no_scores(path: FairnessPath) -> None:
    tree, test, train = path.tree(0.0, 0), path.part(0, "test"), path.part(0, "train")
    assert test.groups is not None
    first = test.subset(np.flatnonzero(test.groups.codes == 0))
    scores = score_fairness(tree, first, train)
    undefined = {name for name, value in scores.items() if np.isnan(value)}
    absent = test.groups.labels[1]
    assert undefined == {
        *("parity", "rmst_gap", "calibration_gap", "c_gap"),
        f"calibration:{absent}",
        f"c_harrell:{absent}",
    }
    assert scores["gini"] == 0
    with pytest.raises(ConfigError, match="`tau` must be above"):
        score_fairness(tree, test, train, tau=1e9)


def test_cross_validation_reports_disparities(data: SurvivalData) -> None:
    tree = SurvivalRegression(penalties=Penalties(fairness=L2Parity(), rho=0.1))
    result = cross_validate(tree, data, n_folds=2)
    assert set(DISPARITIES) <= set(result.scores)
    assert set(DISPARITIES) <= set(result.table().columns.get_level_values(0))
    plain = cross_validate(tree.set_params(penalties=Penalties()), data, n_folds=2)
    assert plain.scores["parity"].mean() > result.scores["parity"].mean()


def test_what_a_path_cannot_do_raises(gbsg2: SurvivalData, data: SurvivalData) -> None:
    tree = PrognosticTree(depth=1, penalties=Penalties(fairness="l2"))
    for estimator, rows, rhos, words in (
        (tree, gbsg2, RHOS, "sensitive groups are missing"),
        (PrognosticTree(depth=1), data, RHOS, "needs a penalty"),
        (tree, data, (0.0, 1.0, 1.0), "different numbers"),
        (tree, data, (-1.0, 1.0), "rho must be"),
    ):
        with pytest.raises(ConfigError, match=words):
            fairness_path(estimator, rows, rhos)
    rare = gbsg2.subset(range(60)).with_sensitive(["a"] + ["b"] * 59)
    with pytest.raises(DataError, match="all of one group, sensitive=b"):
        fairness_path(tree, rare, RHOS, n_folds=3)
