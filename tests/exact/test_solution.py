import numpy as np
import pandas as pd
import pytest

from sstorch.exact import LeastSquares, LogLikelihood, solve
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, DataError
from sstorch.reading import export_text


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    features = rng.random((120, 8)) < 0.4
    time = rng.exponential(np.where(features[:, 0] ^ features[:, 3], 1.0, 4.0))
    return features, time, rng.random(120) < 0.7


@pytest.mark.parametrize("n_rows", [4, 5, 9, 11])
def test_perfect_survival_tree_has_the_loss_zero(n_rows):
    features = np.arange(n_rows)[:, None] >> np.arange(4) & 1
    solution = solve(features, LogLikelihood(np.arange(1.0, n_rows + 1.0), np.ones(n_rows)), 4)
    assert min(solution.table().loss) == solution.loss == 0.0


def test_perfect_regression_tree_is_proved_optimal():
    # The mean of three times .1 is not .1.
    features = np.repeat([[0], [1]], 3, axis=0)
    for y, weight in (([0.1, 0.7], None), ([1.1, 3.3], [0.3, 0.1, 0.7, 0.3, 0.1, 0.7])):
        solution = solve(features, LeastSquares(np.repeat(y, 3), sample_weight=weight), 1)
        assert 0.0 <= solution.loss < 1e-31
        assert solution.certificate == "optimal"


def test_order_names_and_repeats_of_columns_do_not_matter(data):
    features, time, event = data
    task = LogLikelihood(time, event)
    expected = solve(features, task, 3).loss
    order = np.random.default_rng(0).permutation(8)
    messy = np.column_stack([features[:, order], ~features[:, :3], features[:, 1], np.ones(120, dtype=bool)])
    frame = pd.DataFrame(messy.astype(int), columns=[f"rule {j}" for j in range(messy.shape[1])])
    solution = solve(frame, task, 3)
    assert solution.loss == expected
    assert solution.tree().names[0] == "rule 0"


def test_without_nodes_there_is_a_single_leaf(data):
    features, time, event = data
    with pytest.raises(DataError, match="119 rows, but the task has 120"):
        solve(features[:-1], LogLikelihood(time, event))
    solution = solve(features, LogLikelihood(time, event), 4, 0)
    assert list(solution.optima) == [(0, 0)]
    assert solution.tree().n_leaves == 1


def test_other_columns_than_0_and_1_are_named(data):
    _, time, event = data
    frame = pd.DataFrame({"ok": np.zeros(120), "age": np.arange(120) + 7.0})
    with pytest.raises(DataError, match=r"column 'age' holds .*7.* in row 0.*Binarizer"):
        solve(frame, LogLikelihood(time, event))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"max_depth": 10}, ConfigError, "max_depth must be 0 to 9, got 10"),
        ({"max_depth": -1}, ConfigError, "max_depth must be .* got -1"),
        ({"max_nodes": -1}, ConfigError, "max_nodes must be .* got -1"),
        ({"leaf_penalty": -0.1}, ConfigError, "leaf_penalty must be .* got -0.1"),
        ({"leaf_penalty": float("nan")}, ConfigError, "leaf_penalty must be .* got nan"),
        ({"min_leaf": 0}, ConfigError, "min_leaf must be .* got 0"),
        ({"min_leaf": 121}, DataError, "there are 120"),
        ({"min_events": 121}, DataError, "not even a single leaf has that many events"),
        ({"time_limit": 0.0}, ConfigError, "time_limit must be .* got 0"),
    ],
)
def test_impossible_settings_are_refused(data, settings, error, message):
    features, time, event = data
    with pytest.raises(error, match=message):
        solve(features, LogLikelihood(time, event), **settings)


def test_the_solution_refuses_what_it_did_not_search(data):
    features, time, event = data
    solution = solve(features, LogLikelihood(time, event), 2, 2)
    for settings in ({"depth": 3}, {"nodes": 3}, {"nodes": -1}, {"leaf_penalty": -1.0}):
        with pytest.raises(ConfigError):
            solution.tree(**settings)


def test_a_tree_reads_as_rules():
    tree = BinaryTree.build((1, None, (0, None, None)), ["age > 50", "sex = m"])
    assert export_text(tree).splitlines() == [
        "if sex = m:",
        "  if age > 50:",
        "    leaf 2",
        "  else:",
        "    leaf 1",
        "else:",
        "  leaf 0",
    ]
    assert tree.apply([[0, 0], [1, 0], [0, 1], [1, 1]]).tolist() == [0, 0, 1, 2]
    assert tree.paths() == [((1, False),), ((1, True), (0, False)), ((1, True), (0, True))]
    assert (tree.depth, tree.n_nodes, tree.n_leaves) == (2, 2, 3)
    with pytest.raises(DataError, match="must have 2 columns"):
        tree.apply([[0, 0, 1]])
