from dataclasses import replace

import numpy as np
import pytest

from sstorch.exact.fronts import confusion_front, group_fairness, solve_front
from sstorch.exceptions import ConfigError, DataError


def rows(n=120, p=6, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.random((n, p)) < 0.4
    y = (features[:, 0] + features[:, 1] * features[:, 2] + rng.normal(0, 0.6, n) > 0.9).astype(int)
    group = (features[:, 3] ^ (rng.random(n) < 0.3)).astype(int)
    time = np.ceil(rng.exponential(10 * np.exp(-y))) + 1
    return rng, features, y, group, time, rng.random(n) < 0.7


@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy"])
def test_scores_never_fall_when_a_total_improves(metric):
    rng, _, y, *_ = rows()
    task = confusion_front(y, metric, sample_weight=rng.integers(1, 99, len(y)))
    most = task.points.max(axis=1).sum(axis=1)
    worse = rng.integers(0, most + 1, (400, 2))
    better = worse.copy()
    better[:, 0] = rng.integers(0, worse[:, 0] + 1)
    better[200:] = np.stack([worse[200:, 0], rng.integers(0, worse[200:, 1] + 1)], axis=1)
    assert (task.score(better) >= task.score(worse) - 1e-12).all()


@pytest.mark.parametrize("change", [lambda p: p * 0.5, lambda p: p[:1], lambda p: p * 2**54])
def test_points_that_cannot_be_added_exactly_raise(change):
    task = confusion_front(rows()[2])
    with pytest.raises(ConfigError, match="points"):
        replace(task, points=change(task.points))


def test_the_limit_is_exact():
    """A disparity of exactly 1 / 10 is within 0.1, which no binary fraction equals."""
    group = np.repeat([0, 1], 10)
    feature = np.zeros(20, dtype=int)
    feature[[0, 1, 10]] = 1
    task = group_fairness(feature, group, max_disparity=0.1)
    assert task.limit == 10
    found = solve_front(feature[:, None], task, 1)
    assert found.table().iloc[:, :2].to_numpy().tolist() == [[0, 0.1], [3, 0.0]]
    less = group_fairness(feature, group, max_disparity=0.0999999)
    assert solve_front(feature[:, None], less, 1).totals.tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: confusion_front([0, 2]), DataError, "y must be 0 and 1"),
        (lambda: confusion_front([1, 1]), DataError, "all rows are 1"),
        (lambda: confusion_front([[0, 1]]), DataError, "shape"),
        (lambda: confusion_front([0, 1], metric="g"), ConfigError, "got 'g'"),
        (lambda: confusion_front([0, 1], sample_weight=[1.0]), DataError, "sample_weight"),
        (lambda: confusion_front([0, 1], sample_weight=[1.0, -1.0]), DataError, "sample_weight"),
        (lambda: confusion_front([0, 1], sample_weight=[1.0, 0.1]), ConfigError, "whole numbers"),
        (lambda: confusion_front([0, 1], sample_weight=[1.0, 0.0]), ConfigError, "weight 0"),
        (lambda: group_fairness([0, 1], [0, 1], "parity"), ConfigError, "got 'parity'"),
        (
            lambda: group_fairness([0, 1], [0, 1], max_disparity=1.5),
            ConfigError,
            "max_disparity must be .* got 1.5",
        ),
        (lambda: group_fairness([0, 1], [0, 1, 1]), DataError, "group must have 2 rows"),
        (lambda: group_fairness([0, 1], [0, 1], "equal_opportunity"), DataError, "no row of group 0"),
        (lambda: group_fairness([0, 1], [0, 2]), DataError, "group must be 0 and 1"),
    ],
)
def test_arguments_are_checked(make, error, message):
    with pytest.raises(error, match=message):
        make()
