"""Leaves with too few of the rows: the penalty by plain loops, its gradients, and what it does to trees."""

import numpy as np
import pytest
import torch

from sstorch import SurvivalData
from sstorch.nn import SoftTree
from sstorch.objective import Sample, SmallLeaves, TrainingObjective
from sstorch.optim import Nodec
from tests.batches import random_sample, random_tree
from tests.conftest import nightly
from tests.flat import soft_tree


def _case(depth: int) -> tuple[SoftTree, Sample]:
    tree, sample = random_tree(3, depth, "weibull"), random_sample(3, n_rows=14)
    sample.weight[0, 3], sample.weight[1, :4] = 2.5, 0.0
    return tree, sample


def _mass(tree: SoftTree, sample: Sample) -> np.ndarray:
    """Share of the rows in each leaf, (R, L)."""
    mass = (sample.weight[:, None] * tree.log_leaf_probability(sample.x).exp()).sum(-1)
    return (mass / sample.weight.sum(-1, keepdim=True)).detach().numpy()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_it_is_the_square_of_what_leaves_lack(depth: int) -> None:
    tree, sample = _case(depth)
    expected = 7.0 * (np.maximum(0.3 - _mass(tree, sample), 0) ** 2).sum(axis=1)
    objective = TrainingObjective(row_penalties=[SmallLeaves(7.0, 0.3)])
    np.testing.assert_allclose(objective.row_penalty(tree, sample).detach(), expected, atol=1e-14)
    assert (expected > 0).any() == (depth > 0)
    each = SmallLeaves(torch.tensor([1.0, 0.0, 7.0], dtype=torch.float64), 0.3)
    some = torch.tensor([0, 2])
    chosen = TrainingObjective(row_penalties=[each]).select(some)
    found = chosen.row_penalty(tree.select(some), sample.select(some)).detach()
    np.testing.assert_allclose(found, expected[[0, 2]] * [1 / 7, 1], atol=1e-14)
    assert TrainingObjective(row_penalties=[each]).terms(tree, sample, 1, of_gates=False) == ()


@pytest.mark.parametrize("trainer", [nightly("nodec"), "joint"])
def test_a_tree_that_is_told_so_has_no_small_leaves(gbsg2: SurvivalData, trainer: str) -> None:
    parameters = {"trainer": Nodec(macro_iterations=3) if trainer == "nodec" else trainer, "init": "random"}
    least = []
    for min_leaf in (None, 0.0, 0.1):
        tree = soft_tree(n_starts=2, min_leaf=min_leaf, gate_ridge=1e-4, **parameters)
        tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
        hard = np.bincount(tree.apply(gbsg2.frame), minlength=5)[1:] / len(gbsg2)
        least.append((tree.predict_leaf_proba(gbsg2.frame).mean(axis=0).min(), hard.min(), tree.objective_))
    assert least[0] == least[1]  # off by default
    assert max(least[0][:2]) < 0.03
    assert min(least[2][:2]) > 0.07
    assert least[2][0] > 0.09
