from dataclasses import replace

import numpy as np
import pytest
import torch

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.estimators import train_batch
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective import TrainingObjective
from sstorch.optim import Nodec, exact_tree, initialize_optimal, problem_seed
from sstorch.optimal import Binarizer, LogLikelihood, solve
from tests.batches import random_sample
from tests.conftest import devices

SHORT = Nodec(macro_iterations=1)


def _cohort(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 4))
    x[:, 3] = np.round(x[:, 3])
    hazard = np.exp(2 * ((x[:, 1] > 0.4) ^ (x[:, 3] > 0)) - (x[:, 2] > 0.7))
    return x, np.ceil(20 * rng.exponential(size=n) / hazard), rng.uniform(size=n) < 0.7


def test_the_hard_tree_parts_the_rows_as_the_exact_tree_does() -> None:
    x, time, event = _cohort()
    binarizer = Binarizer("quantiles").fit(x)
    features, task = binarizer.transform(x), LogLikelihood(time, event)
    for depth in (1, 2, 3):
        hard = exact_tree(x, time, event, depth, min_events=4)
        found = solve(features, task, depth, min_events=4)
        leaf = hard.apply(x)
        assert hard.depth == depth
        assert len(np.unique(leaf)) == found.tree().n_leaves
        assert task.loss(np.unique(leaf, return_inverse=True)[1]) == pytest.approx(found.loss, rel=1e-10)
        assert min(event[leaf == k].sum() for k in np.unique(leaf)) >= 4
    # A threshold of the root lies in the middle of the gap; that of an indicator at 1/2.
    split = exact_tree(x, time, event, 1)
    column = np.sort(x[:, split.feature[0]])
    after = np.searchsorted(column, split.threshold[0])
    assert split.threshold[0] == pytest.approx((column[after - 1] + column[after]) / 2)
    only = exact_tree(x, time, event, 2, features=np.array([3]))
    assert only.feature.tolist() == [3, -1, -1]
    assert only.threshold[0] == 0.5


def test_an_exact_tree_is_at_least_as_good_as_a_greedy_one_where_splits_interact() -> None:
    x, time, event = _cohort(400)
    # The first feature of an interaction shows nothing by itself; the search finds it all the same.
    hard = exact_tree(x, time, event, 2)
    assert set(hard.feature) == {1, 3}


def test_nodes_that_cannot_be_split_send_all_rows_left() -> None:
    x, time, event = _cohort(20)
    for tree in (
        exact_tree(np.zeros((20, 2)), time, event, 2),
        exact_tree(x, time, np.zeros(20, dtype=bool), 2),
        exact_tree(x, time, event, 2, min_events=1000),
    ):
        assert (tree.feature == -1).all()
        assert (tree.apply(x) == 0).all()
    assert exact_tree(x, time, event, 0).depth == 0


def test_starts_of_a_batch_are_their_own_and_differ_between_splits() -> None:
    sample = random_sample(6, n_splits=2, n_rows=120)
    seeds = [problem_seed(3, split, start) for split in range(2) for start in range(3)]
    batch, objective = SoftTree(3, 2, batch_shape=(6,)), TrainingObjective(1e-3)
    initialize_optimal(batch, objective, sample, seeds)
    own = sample.select(torch.tensor([3, 4]))
    alone = SoftTree(3, 2, batch_shape=(2,))
    initialize_optimal(alone, objective, own, seeds[3:5])
    for node in (1, 2, 3):
        assert torch.equal(batch.gate(node).weight[3:5], alone.gate(node).weight)
        assert torch.equal(batch.gate(node).bias[3:5], alone.gate(node).bias)
    gates = torch.cat([batch.gate(1).weight, batch.gate(1).bias[:, None]], dim=1)
    assert len({tuple(row.tolist()) for row in gates.detach()}) > 2
    time, event = sample.log_time.exp().numpy(), sample.event.numpy() > 0
    leaf = batch.apply_leaf(sample.x).numpy()
    for split, problem in ((0, 0), (1, 3)):
        x, kept = sample.x.matrices[split].numpy(), sample.weight[problem].numpy() > 0
        hard = exact_tree(x[kept], time[problem][kept], event[problem][kept], 2)
        np.testing.assert_array_equal(leaf[problem], hard.apply(x))
    with torch.no_grad():
        assert objective(batch, sample).isfinite().all()


def test_rows_that_are_held_out_are_not_seen() -> None:
    sample = random_sample(2, n_splits=1, n_rows=100)
    weight = sample.weight.clone()
    weight[:, 60:] = 0.0
    seeds = [problem_seed(0, 0, start) for start in range(2)]
    trees = []
    for shift in (0.0, 3.0):
        changed = sample.log_time.clone()
        changed[:, 60:] += shift * torch.arange(40)
        part = replace(sample, log_time=changed, weight=weight)
        tree = SoftTree(3, 2, batch_shape=(2,))
        initialize_optimal(tree, TrainingObjective(1e-3), part, seeds)
        trees.append(tree)
    for node in (1, 2, 3):
        assert torch.equal(trees[0].gate(node).weight, trees[1].gate(node).weight)
        assert torch.equal(trees[0].gate(node).bias, trees[1].gate(node).bias)


def test_optimal_start_in_the_estimator(small_data: SurvivalData) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    tree = SoftSurvivalTree(2, n_starts=2, init="optimal", trainer=SHORT).fit(X, y)
    assert tree.score(X, y) > 0.6
    again = SoftSurvivalTree(2, n_starts=2, init="optimal", trainer=SHORT).fit(X, y)
    assert again.objective_ == tree.objective_
    held = SoftSurvivalTree(1, n_starts=1, init="optimal", trainer=SHORT, holdout=0.3).fit(X, y)
    assert np.isfinite(held.objective_)
    alone = SoftSurvivalTree(0, n_starts=1, init="optimal", trainer=SHORT).fit(X, y)
    assert np.isfinite(alone.objective_)


def test_splits_of_different_size_start_from_their_own_rows(gbsg2: SurvivalData) -> None:
    splits = [gbsg2.subset(np.arange(300)), gbsg2.subset(np.arange(250, 686))]
    settings = SoftSurvivalTree(1, n_starts=1, init="optimal", trainer=SHORT).settings()
    batch = train_batch(splits, settings)
    started = batch.history.macro_iterations.query("macro_iteration == 0")
    assert started["objective"].notna().all()
    assert len(started) == 2
    assert batch.objective.isfinite().all()


def test_what_cannot_be_searched_says_what_would_do(small_data: SurvivalData) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    with pytest.raises(
        ConfigError, match="init='optimal' searches trees of depth 0 to 5, got 6; use init='gre"
    ):
        SoftSurvivalTree(6, n_starts=1, init="optimal").fit(X, y)
    wide = np.random.default_rng(0).uniform(size=(120, 60))
    with pytest.raises(ConfigError, match=r"init='optimal': .*too many for depth 5.*use init='greedy'"):
        SoftSurvivalTree(5, n_starts=1, init="optimal").fit(wide, y)


@devices
def test_optimal_start_on_each_device(small_data: SurvivalData, device: str) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    settings = {"depth": 2, "n_starts": 2, "init": "optimal", "trainer": SHORT}
    tree = SoftSurvivalTree(**settings, device=device).fit(X, y)  # type: ignore[arg-type]
    reference = SoftSurvivalTree(**settings).fit(X, y)  # type: ignore[arg-type]
    assert tree.objective_ == pytest.approx(reference.objective_, rel=1e-3)
