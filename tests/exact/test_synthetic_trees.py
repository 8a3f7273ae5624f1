"""The synthetic data and the heuristic trees of experiments/exact_papers."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from sstorch.exact import Binarizer, LogLikelihood, solve

FOLDER = Path(__file__).parents[2] / "experiments" / "exact_papers"


@pytest.fixture
def sets_and_heuristics(monkeypatch):
    """Modules of the study, forgotten afterwards: other studies have modules of the same names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("synthetic_sets", "heuristics")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield [importlib.import_module(name) for name in names]
    for name in names:
        del sys.modules[name]


def test_sample_has_the_censored_share_and_depends_on_the_seed_alone(sets_and_heuristics):
    sets, _ = sets_and_heuristics
    data, leaf = sets.sample(0, 3000, 0.8, copies=2)
    again, other = sets.sample(0, 3000, 0.8, copies=2)[0], sets.sample(1, 3000, 0.8, copies=2)[0]
    assert data.event.sum() == 600
    assert data.frame.shape == (3000, 12)
    # One split of one column divides the leaves below the root's two children.
    columns, right = pd.get_dummies(data.frame), leaf >= 2 ** (sets.DEPTH - 1)
    assert DecisionTreeClassifier(max_depth=1).fit(columns, right).score(columns, right) == 1.0
    assert len(np.unique(leaf)) == 2**sets.DEPTH
    assert sum(len(values) for values in sets.DISTRIBUTIONS.values()) == 8 * (1 + 2 + 2 + 2)
    np.testing.assert_array_equal(data.time, again.time)
    assert not np.array_equal(data.time, other.time)


def test_local_search_is_between_the_greedy_and_the_optimal_tree(sets_and_heuristics):
    sets, heuristics = sets_and_heuristics
    data, _ = sets.sample(2, 400, 0.5)
    features = np.asarray(Binarizer("surtree").fit_transform(data.frame))
    task = LogLikelihood(data.time, data.event)
    losses = []
    for grown in (heuristics.greedy, heuristics.local_search):
        tree = grown(features, task, 3)
        loss = task.loss(np.unique(tree.apply(features), return_inverse=True)[1])
        assert task.constant + tree.cost == pytest.approx(loss, rel=1e-12)
        losses.append(loss)
    optimum = solve(features, task, 3).loss
    assert optimum - 1e-9 <= losses[1] < losses[0]
