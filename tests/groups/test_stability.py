"""Stability compares the groups of a tree with those of trees of resamples."""

from itertools import permutations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from sstorch import Surv
from sstorch.exact.estimators.survival_tree import training_rows
from sstorch.exceptions import DataError
from sstorch.groups.stability import _matched, resamples
from sstorch.validation import stability
from tests.groups.trees import CAUSES, TREES, fitted, refitted


@pytest.mark.parametrize("kind", ["soft", "exact"])
def test_groups_are_those_of_trees_of_the_draws(kind: str) -> None:
    tree, data = refitted(kind)
    found = stability(tree, data.frame, data.y, n_resamples=3)
    groups = [found.groups, *found.resampled]
    index = [[adjusted_rand_score(one, other) for one in groups] for other in groups]
    assert found.ari_of_tree == pytest.approx(np.mean(index[0][1:]))
    assert found.ari == pytest.approx(np.mean([index[i][j] for i in range(1, 4) for j in range(1, i)]))
    np.testing.assert_array_equal(found.groups, tree.apply(data.frame))
    np.testing.assert_allclose(found.moves, (found.resampled != found.groups).mean(axis=0))
    assert found.table()["rows"].sum() == len(data)
    first = found.columns.idxmax()
    assert f"{first} ({100 * found.columns[first]:.0f} %)" in str(found)
    if kind == "soft":
        return
    used = []
    _, draws = resamples(training_rows(data.frame, data.y, None), 3, tree._seed)
    for drawn, leaf in zip(draws, found.resampled, strict=True):
        other = clone(TREES[kind]).fit(data.frame, data.y, sample_weight=drawn)
        assert adjusted_rand_score(other.apply(data.frame), leaf) == 1
        used.append({other.rules_[j].column for j in other.tree_.feature if j >= 0})
    for name in data.frame:
        assert found.columns[name] == sum(name in each for each in used) / 3


def test_resample_without_event_of_a_cause_raises() -> None:
    tree, data = fitted("exact causes")
    late = (data.cause == 2) & (np.cumsum(data.cause == 2) > 3)
    few = Surv(data.time, np.where(late, 0, data.cause), causes=CAUSES)
    with pytest.raises(DataError, match="3 events of cause death has none"):
        stability(tree, data.frame, few, 50)
    with pytest.raises(DataError, match="competing causes"):
        stability(tree, data.frame, (data.time, data.event))


def test_leaves_are_matched_as_well_as_any_numbering_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        group, leaf = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
        best = max((np.array(p)[leaf] == group).sum() for p in permutations(range(4)))
        assert (_matched(group, leaf, 4) == group).sum() == best
