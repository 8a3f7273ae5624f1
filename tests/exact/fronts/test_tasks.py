import numpy as np
import pytest

from sstorch.exact.fronts import (
    ConfusionFront,
    GroupFairness,
    check_front_task,
    disparity,
    solve_front,
)
from sstorch.exceptions import ConfigError, DataError


def rows(n=120, p=6, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.random((n, p)) < 0.4
    y = (features[:, 0] + features[:, 1] * features[:, 2] + rng.normal(0, 0.6, n) > 0.9).astype(int)
    group = (features[:, 3] ^ (rng.random(n) < 0.3)).astype(int)
    time = np.ceil(rng.exponential(10 * np.exp(-y))) + 1
    return rng, features, y, group, time, rng.random(n) < 0.7


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "accuracy"])
def test_tasks_keep_their_promises(metric):
    rng, _, y, group, *_ = rows()
    check_front_task(ConfusionFront(y, metric=metric, sample_weight=rng.integers(1, 99, len(y)) / 64))
    for parity in ("demographic_parity", "equal_opportunity"):
        check_front_task(GroupFairness(y, group, parity, max_disparity=1.0))


class Broken(ConfusionFront):
    def __init__(self, y, broken):
        super().__init__(y)
        self.broken = broken
        if broken == "score":
            self.score = lambda totals: totals[:, 0] - totals[:, 1]

    def row_points(self):
        points = super().row_points()
        kinds = {"type": points * 0.5, "shape": points[:, :, 1:], "large": points * 2**54}
        return kinds.get(self.broken, points)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("score", "score"),
        ("type", "row_points must be int64"),
        ("shape", "row_points must be"),
        ("large", "not exact"),
    ],
)
def test_broken_tasks_are_found(broken, message):
    _, features, y, *_ = rows()
    with pytest.raises(ConfigError, match=message):
        check_front_task(Broken(y, broken))
    if broken != "score":
        with pytest.raises(ConfigError, match=message):
            solve_front(features, Broken(y, broken), 1)


def test_measures_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    _, features, y, *_ = rows()
    peers = {
        "accuracy": metrics.accuracy_score,
        "balanced_accuracy": metrics.balanced_accuracy_score,
        "f1": metrics.f1_score,
        "mcc": metrics.matthews_corrcoef,
    }
    for metric, peer in peers.items():
        task = ConfusionFront(y, metric=metric)
        found = solve_front(features, task, 2)
        for number in range(len(found)):
            tree = found.tree(number)
            assert tree.score == pytest.approx(peer(y, tree.predict(features)), abs=1e-12)
        assert found.tree().score == max(task.score(found.totals))


def test_the_limit_is_exact():
    """A disparity of exactly 1 / 10 is within 0.1, which no binary fraction equals."""
    group = np.repeat([0, 1], 10)
    feature = np.zeros(20, dtype=int)
    feature[[0, 1, 10]] = 1
    task = GroupFairness(feature, group, max_disparity=0.1)
    assert task.limit == 10
    found = solve_front(feature[:, None], task, 1)
    assert found.values.tolist() == [[0, 0.1], [3, 0.0]]
    less = GroupFairness(feature, group, max_disparity=0.0999999)
    assert solve_front(feature[:, None], less, 1).values.tolist() == [[3, 0.0]]


def test_disparity_uses_the_groups_of_its_rows():
    predicted, group, y = [1, 1, 0, 0, 1], [0, 0, 0, 1, 1], [1, 0, 1, 1, 1]
    assert disparity(predicted, group) == pytest.approx(2 / 3 - 1 / 2)
    assert disparity(predicted, group, y=y) == pytest.approx(1 / 2 - 1 / 2)
    assert disparity(predicted, group, sample_weight=[1, 1, 2, 1, 3]) == pytest.approx(2 / 4 - 3 / 4)
    with pytest.raises(DataError, match="no row of group 1"):
        disparity([1, 0], [0, 1], y=[1, 0])
    with pytest.raises(DataError, match="group must be 0 and 1"):
        disparity([*predicted, 0], [*group, 2])
    with pytest.raises(DataError, match="group must be 2 numbers"):
        disparity([1, 0], [0, 1, 1])
    with pytest.raises(DataError, match="finite"):
        disparity([1, np.nan], [0, 1])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ConfusionFront([0, 2]), DataError, "y must be 0 and 1"),
        (lambda: ConfusionFront([1, 1]), DataError, "all rows are 1"),
        (lambda: ConfusionFront([[0, 1]]), DataError, "shape"),
        (lambda: ConfusionFront([0, 1], metric="g"), ConfigError, "got 'g'"),
        (lambda: ConfusionFront([0, 1], sample_weight=[1.0]), DataError, "sample_weight"),
        (lambda: ConfusionFront([0, 1], sample_weight=[1.0, -1.0]), DataError, "sample_weight"),
        (lambda: ConfusionFront([0, 1], sample_weight=[1.0, 0.1]), ConfigError, "multiples of 2"),
        (lambda: ConfusionFront([0, 1], sample_weight=[1.0, 0.0]), ConfigError, "weight 0"),
        (lambda: GroupFairness([0, 1], [0, 1], "parity"), ConfigError, "got 'parity'"),
        (
            lambda: GroupFairness([0, 1], [0, 1], max_disparity=1.5),
            ConfigError,
            "max_disparity must be .* got 1.5",
        ),
        (lambda: GroupFairness([0, 1], [0, 1, 1]), DataError, "group must be 2 numbers"),
        (lambda: GroupFairness([0, 1], [0, 1], "equal_opportunity"), DataError, "no row of group 0"),
        (lambda: GroupFairness([0, 1], [0, 2]), DataError, "group must be 0 and 1"),
    ],
)
def test_arguments_are_checked(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_scores_are_checked():
    task = ConfusionFront([0, 1])
    found = solve_front(np.eye(2), task, 1)
    task.score = lambda totals: np.full(len(totals), np.nan)
    with pytest.raises(ConfigError, match="1 not a number"):
        found.best()
