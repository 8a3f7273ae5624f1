import numpy as np
import pandas as pd
import pytest

from sstorch import OptimalSurvivalTree, OptimalTreeRegressor
from sstorch.exact import Binarizer
from sstorch.exact.binarize import Rule


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, 300).astype(float),
            "grade": rng.choice(["I", "II", "III"], 300),
            "sex": rng.choice(["f", "m"], 300),
            "town": [f"t{k:02d}" for k in rng.geometric(0.12, 300)],
        }
    )


def test_surtree_takes_ten_quantiles_of_the_midpoints(frame):
    binarizer = Binarizer().fit(frame)
    values = np.sort(frame.age.to_numpy())
    midpoints = (values[1:] + values[:-1]) / 2
    expected = sorted({midpoints[round((j + 0.5) * (len(midpoints) - 1) / 10)] for j in range(10)})
    assert [rule.low for rule in binarizer.rules_ if rule.column == "age"] == expected
    answers = binarizer.transform(frame)
    shares = answers.mean(axis=0)
    assert ((shares > 0.01) & (shares < 0.99)).all()
    for j, rule in enumerate(binarizer.rules_):
        if rule.kind == "above":
            assert (answers[:, j] == (frame[rule.column] > rule.low)).all()
    assert [rule.name for rule in binarizer.rules_ if rule.column == "sex"] == ["sex is m"]
    assert sum(rule.column == "grade" for rule in binarizer.rules_) == 3


def test_rare_categories_become_another_category(frame):
    binarizer = Binarizer("quantiles", n_categories=4).fit(frame)
    rules = [rule for rule in binarizer.rules_ if rule.column == "town"]
    frequent = frame.town.value_counts().index[:3]
    assert [rule.kind for rule in rules] == ["is", "is", "is", "other"]
    assert {rule.values[0] for rule in rules[:3]} == set(frequent)
    answers = binarizer.transform(frame.assign(town="new"))
    assert answers[:, [r.kind == "other" for r in binarizer.rules_]].all()


def test_osst_takes_bins_of_equal_width_without_the_first(frame):
    binarizer = Binarizer("osst").fit(frame[["age", "sex"]])
    edges = np.linspace(frame.age.min(), frame.age.max(), 5)
    expected = pd.get_dummies(pd.cut(frame.age, 4, labels=False), drop_first=True).to_numpy()
    np.testing.assert_array_equal(binarizer.transform(frame)[:, :3], expected)
    assert binarizer.rules_[0].low == pytest.approx(edges[1])
    assert binarizer.get_feature_names_out()[-1] == "sex is m"


def test_duplicates_complements_and_constants_are_left_out(frame):
    more = frame.assign(copy=frame.sex, opposite=frame.sex.map({"f": "m", "m": "f"}), constant=1.0)
    assert len(Binarizer().fit(more).rules_) == len(Binarizer().fit(frame).rules_)


def test_missing_values_get_a_rule_and_answer_no(frame):
    holes = frame.copy()
    holes.loc[:49, "age"] = np.nan
    holes.loc[20:99, "sex"] = None
    binarizer = Binarizer().fit(holes)
    answers = pd.DataFrame(binarizer.transform(holes), columns=binarizer.get_feature_names_out())
    assert answers["age is missing"].to_numpy()[:50].all()
    assert not answers.filter(like="age >").to_numpy()[:50].any()
    assert not answers["sex is m"].to_numpy()[20:100].any()


def test_names_of_two_categories_do_not_matter_where_some_values_are_missing():
    outcome = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    for labels in (["f", "f", "m", "m", None, None], ["m", "m", "f", "f", None, None]):
        tree = OptimalTreeRegressor(max_depth=1, binarize="all").fit(pd.DataFrame({"sex": labels}), outcome)
        assert tree.loss_ == 0.0
    # Without missing values the rules are complements.
    assert len(Binarizer("all").fit(pd.DataFrame({"sex": labels[:4]})).rules_) == 1


@pytest.mark.parametrize("preset", ["surtree", "quantiles", "osst", "all"])
def test_constant_columns_alone_have_a_question_that_all_rows_answer_no(preset):
    frame = pd.DataFrame({"a": [1.5, 1.5, np.nan], "b": "x"})
    rare = frame.loc[np.repeat([0, 1, 2], [99, 100, 1])]  # too few missing values for "surtree"
    constant = frame.iloc[:2] if preset != "surtree" else rare
    answers = Binarizer(preset).fit_transform(constant)
    assert answers.shape == (len(constant), 1)
    assert not answers.any()


@pytest.mark.parametrize("depth", [0, 2])
def test_trees_of_constant_columns_have_one_leaf(depth):
    frame, time = pd.DataFrame({"a": [1.0] * 20, "b": ["x"] * 20}), np.arange(1.0, 21.0)
    tree = OptimalSurvivalTree(depth).fit(frame, (time, np.ones(20)))
    assert tree.certified_
    np.testing.assert_array_equal(tree.apply(frame), 1)
    np.testing.assert_allclose(tree.predict_survival_function(frame[:1], [10.0]), 0.5)
    regression = OptimalTreeRegressor(depth).fit(frame, time)
    np.testing.assert_allclose(regression.predict(frame), 10.5)


def test_integer_weights_equal_repeated_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"few": rng.integers(0, 4, 60) * 1.0, "many": rng.normal(size=60).round(1)})
    frame["group"] = rng.choice([*"abcdefghijklmno"], 60)
    weight = rng.integers(1, 6, 60)
    again = np.repeat(np.arange(60), weight)
    for settings in ({}, {"n_thresholds": 3}, {"preset": "osst"}, {"preset": "all"}):
        binarizer = Binarizer(**settings)
        expected = binarizer.fit(frame.iloc[again]).rules_
        assert binarizer.fit(frame, sample_weight=weight).rules_ == expected
        assert binarizer.fit(frame, sample_weight=weight * 0.3).rules_ == expected


def test_rule_of_a_column_of_zeros_and_ones_names_the_one() -> None:
    frame = pd.DataFrame({"finding": [0, 1, 1, 0, 1, 0], "grade": [1, 2, 3, 1, 2, 3]})
    for preset in ("surtree", "all", "quantiles"):
        binarizer = Binarizer(preset).fit(frame)
        assert "finding is 1" in binarizer.get_feature_names_out()
        assert not any("grade is" in name for name in binarizer.get_feature_names_out())
    assert Rule("site", "other", values=("a",)).name == "site is another category"


def test_printed_thresholds_divide_rows_as_rules_do() -> None:
    """Also of numbers that agree in ten digits, such as identifiers, and of neighbouring floats."""
    draws = np.random.default_rng(0)
    columns = {
        "id": 201900010000.0 + np.arange(60),
        "near": 1.0 + 2.0**-52 * np.arange(60),
        "tenths": draws.integers(0, 9, 60) / 10,
    }
    for preset in ("surtree", "all", "quantiles"):
        rules = Binarizer(preset, merge_columns=False).fit(pd.DataFrame(columns)).rules_
        assert {rule.column for rule in rules} == set(columns)
        for rule in rules:
            name, _, threshold = rule.name.split()
            values = columns[name]
            np.testing.assert_array_equal(values > float(threshold), rule(pd.Series(values)))
            assert name != "tenths" or len(threshold) < 5
