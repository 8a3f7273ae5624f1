"""Classification, regression and policy trees: what they find, say, refuse and keep, also on fronts."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sstorch import (
    OptimalPolicyTree,
    OptimalSurvivalTree,
    OptimalTreeClassifier,
    OptimalTreeRegressor,
    Search,
)
from sstorch.exact import Binarizer, Classification, LeastSquares, solve
from sstorch.exceptions import ConfigError, FormatError


@pytest.fixture(scope="module")
def iris() -> tuple[pd.DataFrame, pd.Series]:
    bunch = load_iris(as_frame=True)
    return bunch.data, bunch.target.map(dict(enumerate(bunch.target_names)))


@pytest.fixture(scope="module")
def diabetes() -> tuple[pd.DataFrame, pd.Series]:
    return load_diabetes(return_X_y=True, as_frame=True, scaled=False)


@pytest.fixture(scope="module")
def scores(diabetes: tuple[pd.DataFrame, pd.Series]) -> pd.DataFrame:
    y = diabetes[1].to_numpy()
    return pd.DataFrame({"diet": y, "drug": 150.0 + 0.1 * y, "none": np.full(len(y), 140.0)})


# ---------------------------------------------------------------------- what is found


def test_the_class_tree_is_that_of_the_engine(iris: Any) -> None:
    X, y = iris
    tree = OptimalTreeClassifier(2, min_leaf=5).fit(X, y)
    binarizer = Binarizer("surtree").fit(X)
    features = binarizer.transform(X)
    found = solve(features, Classification(y), 2, min_leaf=5)
    assert tree.loss_ == found.loss
    assert tree.certified_
    leaf = tree.apply(X)
    np.testing.assert_array_equal(leaf, found.tree().apply(features))
    assert tree.loss_ == pytest.approx((tree.predict(X) != y).mean(), abs=1e-15)
    assert tree.score(X, y) == pytest.approx(1 - tree.loss_)
    shares = pd.crosstab(leaf, y, normalize="index")[tree.classes_.tolist()].to_numpy()
    np.testing.assert_allclose(tree.predict_proba(X), shares[leaf])
    assert tree.leaf_table_["rows"].tolist() == np.bincount(leaf).tolist()
    greedy = DecisionTreeClassifier(max_depth=2, min_samples_leaf=5).fit(features, y)
    assert tree.score(X, y) >= greedy.score(features, y)


def test_the_regression_tree_is_at_least_as_good_as_a_greedy_one(diabetes: Any) -> None:
    X, y = diabetes
    tree = OptimalTreeRegressor(3, min_leaf=10).fit(X, y)
    features = Binarizer("surtree").fit_transform(X)
    greedy = DecisionTreeRegressor(max_depth=3, min_samples_leaf=10).fit(features, y)
    assert tree.score(X, y) > greedy.score(features, y) + 0.01
    assert tree.loss_ == pytest.approx(((tree.predict(X) - y) ** 2).mean(), rel=1e-10)
    leaf = tree.apply(X)
    np.testing.assert_allclose(tree.leaf_value_, pd.Series(y).groupby(leaf).mean(), rtol=1e-12)


def test_leaf_penalty_of_regression_is_the_ccp_alpha_of_scikit_learn() -> None:
    """On one binary column both have one choice: to split where the gain in mean squared error exceeds it."""
    X, y = np.array([[0], [0], [1], [1], [1]]), np.array([1.0, 2.0, 4.0, 4.0, 5.0])
    gain = y.var() - LeastSquares(y).loss(X[:, 0])
    for factor, n_leaves in ((0.999, 2), (1.001, 1)):
        peer = DecisionTreeRegressor(ccp_alpha=factor * gain).fit(X, y)
        tree = OptimalTreeRegressor(1, leaf_penalty=factor * gain, binarize="all").fit(X, y)
        assert tree.tree_.n_leaves == peer.get_n_leaves() == n_leaves


def test_the_policy_is_worth_what_it_says(diabetes: Any, scores: pd.DataFrame) -> None:
    X, _ = diabetes
    tree = OptimalPolicyTree(2, min_leaf=20).fit(X, scores)
    given = tree.predict(X)
    value = np.mean([scores[name].iloc[i] for i, name in enumerate(given)])
    assert -tree.loss_ == pytest.approx(value, rel=1e-12)
    assert tree.score(X, scores[scores.columns[::-1]]) == pytest.approx(value, rel=1e-12)
    assert value > scores.to_numpy().mean(axis=0).max() + 1.0
    np.testing.assert_allclose(
        tree.leaf_value_, scores.groupby(tree.apply(X)).mean()[tree.treatments_.tolist()], rtol=1e-12
    )
    plain = OptimalPolicyTree(2, min_leaf=20).fit(X, scores.to_numpy())
    assert plain.treatments_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(tree.treatments_[plain.predict(X)], given)


def test_costs_of_errors_and_of_columns_change_the_tree(iris: Any) -> None:
    X, y = iris
    free = OptimalTreeClassifier(2).fit(X, y)
    used = {free.rules_[j].column for j in free.tree_.feature if j >= 0}
    prices = dict.fromkeys(used, 0.5)
    priced = OptimalTreeClassifier(2, feature_costs=prices).fit(X, y)
    paid = {priced.rules_[j].column for j in priced.tree_.feature if j >= 0}
    assert not paid & used
    assert free.loss_ < priced.loss_ < free.loss_ + 0.5
    twice = OptimalTreeClassifier(2, feature_costs=dict.fromkeys(X, 0.05)).fit(X, y)
    asked = [{twice.rules_[j].column for j, _ in path} for path in twice.tree_.paths()]
    leaf = twice.apply(X)
    own = np.mean([0.05 * len(asked[number]) for number in leaf])
    assert twice.loss_ == pytest.approx((twice.predict(X) != y).mean() + own, rel=1e-12)
    dear = 1.0 - np.eye(3)
    dear[0, 1:] = 50.0  # never take setosa for another
    careful = OptimalTreeClassifier(1, cost_matrix=dear).fit(X, y)
    assert (careful.predict(X)[y == "setosa"] == "setosa").all()


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_column_is_paid_once_on_a_path(depth: int) -> None:
    X, y = pd.DataFrame({"age": np.arange(2**depth)}), np.arange(2**depth) % 2
    tree = OptimalTreeClassifier(depth, binarize="all", feature_costs={"age": 0.1}).fit(X, y)
    assert (tree.predict(X) == y).all()
    assert tree.loss_ == pytest.approx(0.1)


@pytest.mark.parametrize("order", [["mri", "cough", "age"], ["cough", "mri", "age"]])
def test_of_two_columns_that_tell_the_same_the_cheap_one_is_asked(order: list[str]) -> None:
    draws = np.random.default_rng(0)
    ill = draws.random(200) < 0.4
    y = np.where(draws.random(200) < 0.05, ~ill, ill).astype(int)
    table = {"mri": np.where(ill, "lesion", "clear"), "cough": np.where(ill, "yes", "no")}
    X = pd.DataFrame(table | {"age": draws.normal(60, 9, 200)})[order]
    tree = OptimalTreeClassifier(1, feature_costs={"mri": 0.2}).fit(X, y)
    assert tree.loss_ == pytest.approx((y != ill).mean())
    assert [tree.rules_[j].column for j in tree.tree_.feature if j >= 0] == ["cough"]
    # A column that is constant here, as it may be in a fold, needs no price; one that is unknown is an error.
    constant = X.assign(mri="clear")
    assert OptimalTreeClassifier(1, feature_costs={"mri": 0.2}).fit(constant, y).loss_ == tree.loss_
    with pytest.raises(ConfigError, match="'ct' is no attribute"):
        OptimalTreeClassifier(1, feature_costs={"ct": 0.2}).fit(X, y)


def test_an_outlier_that_hides_all_else_is_not_certified() -> None:
    a = np.arange(80) % 2
    X = pd.DataFrame({"out": (np.arange(80) == 0) * 1, "a": a})
    y = a.astype(float)
    near = OptimalTreeRegressor(max_depth=2, binarize="all").fit(X, y)
    assert near.certified_
    assert near.loss_ == 0.0
    y[0] = 1e7
    far = OptimalTreeRegressor(max_depth=2, binarize="all").fit(X, y)
    assert far.loss_ == pytest.approx(np.mean((far.predict(X) - y) ** 2))
    assert far.certified_ == (far.loss_ == 0.0)
    assert far.gap_ <= far.loss_


# ---------------------------------------------------------------------- what is said, refused and kept


def two_classes(iris: Any) -> Any:
    X, y = iris
    return X.assign(group=np.arange(150) % 2), np.where(y == "virginica", "yes", "no")


TREES = {
    "classes": (OptimalTreeClassifier(2), "no, share 1 of "),
    "f1": (OptimalTreeClassifier(3, max_nodes=5, objective="f1"), "leaf 0: no, share "),
    "auc": (OptimalTreeClassifier(2, objective="auc"), "leaf 0: no, share "),
    "fair": (OptimalTreeClassifier(3, fairness="equal_opportunity", max_disparity=0.1), "within 0.1"),
}


@pytest.mark.parametrize("name", TREES)
def test_trees_are_kept(name: str, iris: Any, tmp_path: Any) -> None:
    (tree, text), (X, y) = TREES[name], two_classes(iris)
    tree = clone(tree).fit(X, y, sensitive="group" if name == "fair" else None)
    tree.save(tmp_path / "tree")
    assert text in tree.summary()
    again = OptimalTreeClassifier.load(tmp_path / "tree")
    assert again.summary() == tree.summary()
    assert again.certified_
    assert (again.max_depth, again.max_nodes) == (tree.max_depth, tree.max_nodes)
    pd.testing.assert_frame_equal(again.optima_, tree.optima_)
    if name != "classes":
        pd.testing.assert_frame_equal(again.front_, tree.front_)
    assert again.score(X, y) == tree.score(X, y)
    assert not hasattr(clone(again).set_params(fairness=None).fit(X, y), "disparity_")
    with pytest.raises(FormatError, match="format"):
        OptimalSurvivalTree.load(tmp_path / "tree")


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
    for settings in ({"objective": "f1"}, {"fairness": "demographic_parity", "max_disparity": 0.01}, {}):
        tree = OptimalTreeClassifier(3, search=Search(time_limit=1e-9), **settings)
        tree.fit(X, y, sensitive="sex" if "fairness" in settings else None)
        assert not tree.certified_
        assert 0 < tree.gap_ <= tree.loss_
        assert "above the optimum" in tree.summary()
