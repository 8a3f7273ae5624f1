"""Classification trees for objectives on fronts: F1, MCC, AUC, and errors under a limit on disparity."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from sstorch import OptimalTreeClassifier, Search
from sstorch.exceptions import ConfigError, DataError

METRICS = {"f1": f1_score, "mcc": matthews_corrcoef}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Subjects with an outcome that depends on age, dose and, through the dose, on sex."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 400)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, 400).round(),
            "dose": rng.normal(5, 1, 400).round(1) + 1.5 * (sex == "m"),
            "sex": sex,
            "site": rng.choice(list("abc"), 400),
        }
    )
    risk = 0.05 * (frame.age - 62) + 0.8 * (frame.dose - 6.5) + rng.normal(0, 0.8, 400)
    return frame.assign(ill=np.where(risk > 0.6, "yes", "no"))


def disparity(predicted: Any, group: Any, y: Any = None, sample_weight: Any = None) -> float:
    """Weighted mean prediction of group 0 less that of group 1, of all rows or of those with y."""
    weight = np.ones(len(predicted)) if sample_weight is None else sample_weight
    weight = weight if y is None else weight * y
    means = np.bincount(group, weight * predicted) / np.bincount(group, weight)
    return float(means[0] - means[1])


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    return table.drop(columns="ill"), table.ill


@pytest.mark.parametrize("objective", METRICS)
def test_metrics_are_as_large_as_they_say(table: Any, objective: str) -> None:
    X, y = split(table)
    trees = [OptimalTreeClassifier(depth, objective=objective).fit(X, y) for depth in (1, 2, 3)]
    for tree in trees:
        predicted = tree.predict(X)
        extra = {"pos_label": "yes"} if objective == "f1" else {}
        assert 1 - METRICS[objective](y, predicted, **extra) == pytest.approx(tree.loss_, abs=1e-12)
        assert tree.certified_
        assert {"false negatives", "false positives", "score"} == set(tree.front_)
    assert trees[0].loss_ > trees[1].loss_ > trees[2].loss_
    greedy = OptimalTreeClassifier(2).fit(X, y)
    assert METRICS[objective](y == "yes", greedy.predict(X) == "yes") <= 1 - trees[1].loss_ + 1e-12


def test_auc_ranks_rows(table: Any) -> None:
    X, y = split(table)
    tree = OptimalTreeClassifier(2, objective="auc", min_leaf=5).fit(X, y)
    assert 1 - roc_auc_score(y, tree.predict_proba(X)[:, 1]) == pytest.approx(tree.loss_, abs=1e-12)
    assert tree.front_["nodes"].tolist() == [0, 1, 2, 3]
    most = np.bincount(tree.apply(X)) // 2
    wrong = np.bincount(tree.apply(X), tree.predict(X) != y)
    assert (wrong <= most).all()
    other = OptimalTreeClassifier(2, min_leaf=5).fit(X, y)
    assert roc_auc_score(y, other.predict_proba(X)[:, 1]) <= 1 - tree.loss_


@pytest.mark.parametrize("fairness", ["demographic_parity", "equal_opportunity"])
@pytest.mark.parametrize("depth", [2, 3])
def test_fair_trees_keep_the_limit(table: Any, fairness: str, depth: int) -> None:
    X, y = split(table)
    true = y == "yes" if fairness == "equal_opportunity" else None
    group = np.unique(X.sex, return_inverse=True)[1]
    losses = []
    for limit in (1.0, 0.1, 0.02):
        tree = OptimalTreeClassifier(depth, fairness=fairness, max_disparity=limit, min_leaf=5)
        tree.fit(X, y, sensitive="sex")
        predicted = tree.predict(X)
        assert tree.feature_names_in_.tolist() == ["age", "dose", "site"]
        assert tree.loss_ == pytest.approx((predicted != y).mean(), abs=1e-12)
        assert disparity(predicted == "yes", group, y=true) == pytest.approx(tree.disparity_, abs=1e-12)
        assert abs(tree.disparity_) <= limit
        assert tree.certified_
        assert f"{fairness} within {limit:g}" in tree.summary()
        losses.append(tree.loss_)
    assert losses == sorted(losses)
    assert losses[0] < losses[-1]
    assert tree.front_.columns.tolist() == ["errors", "disparity", "score"]
    free = OptimalTreeClassifier(depth, min_leaf=5).fit(X.drop(columns="sex"), y)
    assert losses[0] == pytest.approx(free.loss_, abs=1e-12)


def test_the_sensitive_column_can_be_given_apart(table: Any) -> None:
    X, y = split(table)
    model = OptimalTreeClassifier(2, fairness="demographic_parity")
    by_name = clone(model).fit(X, y, sensitive="sex")
    apart = clone(model).fit(X.drop(columns="sex"), y, sensitive=X["sex"])
    assert by_name.summary() == apart.summary()
    with_it = clone(model).fit(X, y, sensitive=X["sex"])
    assert "sex" in with_it.feature_names_in_
    assert with_it.loss_ <= apart.loss_
    weight = np.repeat([1.0, 0.0], [300, 100])
    assert not hasattr(with_it.set_params(fairness=None).fit(X, y), "disparity_")
    part = clone(model).fit(X, y, sensitive=X["sex"], sample_weight=weight)
    assert part.loss_ == clone(model).fit(X[:300], y[:300], sensitive=X["sex"][:300]).loss_
    without = clone(model).fit(X[:300], y[:300], sensitive="sex")
    known = X.assign(sex=X["sex"].astype(object).where(weight > 0, None))  # rows of weight 0 do not count
    assert clone(model).fit(known, y, weight, sensitive="sex").loss_ == without.loss_


def test_fairness_counts_by_weight(table: Any) -> None:
    X, y = split(table)
    weight = np.random.default_rng(1).integers(0, 5, 400)
    rows = np.repeat(np.arange(400), weight)
    group = (X.sex == "m").to_numpy().astype(int)
    model = OptimalTreeClassifier(3, fairness="equal_opportunity", max_disparity=0.03)
    model.fit(X, y, weight, sensitive="sex")
    again = clone(model).fit(X.iloc[rows], y.iloc[rows], sensitive="sex")
    assert model.loss_ == pytest.approx(again.loss_, abs=1e-12)
    assert model.loss_ == pytest.approx(np.average(model.predict(X) != y, weights=weight), abs=1e-12)
    value = disparity(model.predict(X) == "yes", group, y=y == "yes", sample_weight=weight)
    assert value == pytest.approx(model.disparity_, abs=1e-12)
    assert abs(value) <= 0.03


def test_a_time_limit_that_does_not_suffice_is_said(table: Any) -> None:
    X, y = split(table)
    for settings in ({"objective": "f1"}, {"fairness": "demographic_parity", "max_disparity": 0.01}):
        tree = OptimalTreeClassifier(3, search=Search(time_limit=1e-9), **settings)
        tree.fit(X, y, sensitive="sex" if "fairness" in settings else None)
        assert not tree.certified_
        assert 0 < tree.gap_ <= tree.loss_
        assert "above the optimum" in tree.summary()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"objective": "f1", "leaf_penalty": 0.1},
            ConfigError,
            "leaf_penalty does not go with objective='f1'",
        ),
        ({"objective": "mcc", "cost_matrix": [[0, 1], [1, 0]]}, ConfigError, "cost_matrix does not go with"),
        ({"objective": "auc", "max_depth": 3}, ConfigError, "max_depth must be 0 to 2"),
        (
            {"objective": "auc", "max_depth": 2, "search": Search(time_limit=1.0)},
            ConfigError,
            "time_limit is not for",
        ),
        ({"objective": "f1", "max_depth": 4}, ConfigError, "max_depth must be 0 to 3"),
        ({"fairness": "parity"}, ConfigError, "fairness must be one of"),
        ({"fairness": "demographic_parity", "objective": "f1"}, ConfigError, "needs objective='misclass"),
        ({"fairness": "demographic_parity"}, ConfigError, "sensitive=..."),
        ({"fairness": "demographic_parity", "max_disparity": -1.0}, ConfigError, "max_disparity must be"),
        ({"fairness": "equal_opportunity", "max_disparity": "0.1"}, ConfigError, "max_disparity must be"),
    ],
)
def test_settings_that_cannot_be(table: Any, change: Any, error: type[Exception], message: str) -> None:
    X, y = split(table)
    sensitive = "sex" if "max_disparity" in change else None
    with pytest.raises(error, match=message):
        OptimalTreeClassifier(**change).fit(X, y, sensitive=sensitive)


def test_rows_that_cannot_be(table: Any) -> None:
    X, y = split(table)
    fair = OptimalTreeClassifier(2, fairness="demographic_parity")
    late = OptimalTreeClassifier(2, fairness="equal_opportunity")
    two = X.assign(site=np.where(X.site == "a", "a", "other"))
    with pytest.raises(DataError, match="site=a: no row of the positive class with weight; merge"):
        late.fit(two, np.where(X.site == "a", "no", y), sensitive="site")
    with pytest.raises(DataError, match="fairness compares two groups, sex has 3; merge some"):
        fair.fit(X.assign(sex=np.arange(len(X)) % 3), y, sensitive="sex")
    with pytest.raises(ConfigError, match="whole numbers"):
        fair.fit(X, y, sensitive="sex", sample_weight=np.full(400, 0.3))
    with pytest.raises(DataError, match="needs two classes, y has 3"):
        OptimalTreeClassifier(2, objective="f1").fit(X, X.site)
    with pytest.raises(DataError, match="different order"):
        fair.fit(X, y, sensitive=X["sex"][::-1])
    with pytest.raises(DataError, match="no feature column is left"):
        fair.fit(X[["sex"]], y, sensitive="sex")
