import numpy as np
import pytest
import torch
from lifelines.statistics import logrank_test
from sklearn.base import clone
from sksurv.tree import SurvivalTree
from sksurv.util import Surv

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective import TrainingObjective
from sstorch.optim import HardTree, Nodec, greedy_tree, initialize_greedy, initialize_hard, problem_seed
from sstorch.optim.starts.hard import log_rank
from tests.batches import random_sample


def _cohort(n: int = 150, p: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 4))
    time = np.ceil(20 * rng.exponential(size=n) * np.exp(2 * (x[:, 1] > 0.4) - (x[:, 2] > 0.7)))
    return x[:, 4 - p :], time, rng.uniform(size=n) < 0.7


def test_log_rank_equals_lifelines() -> None:
    x, time, event = _cohort()
    cuts = np.quantile(x[:, 1], [0.2, 0.5, 0.9])
    mine = log_rank(x[:, 1] <= cuts[:, None], time, event, np.ones(150))
    for value, cut in zip(mine, cuts, strict=True):
        left = x[:, 1] <= cut
        theirs = logrank_test(time[left], time[~left], event[left], event[~left])
        assert value == pytest.approx(theirs.test_statistic, rel=1e-10)


def test_weights_are_repeated_rows_and_bins_lose_little() -> None:
    x, time, event = _cohort()
    repeats = np.random.default_rng(1).integers(0, 4, 150)
    rows = np.repeat(np.arange(150), repeats)
    left = x[:, 1] <= 0.5
    once = log_rank(left[None], time, event, repeats.astype(float))
    again = log_rank(left[None][:, rows], time[rows], event[rows], np.ones(len(rows)))
    np.testing.assert_allclose(once, again, rtol=1e-10)
    x, _, event = _cohort(3000)
    time = np.random.default_rng(2).exponential(size=3000) * np.exp(0.3 * (x[:, 1] > 0.4))
    left = x[:, 1] <= 0.4
    theirs = logrank_test(time[left], time[~left], event[left], event[~left]).test_statistic
    assert log_rank(left[None], time, event, np.ones(3000))[0] == pytest.approx(theirs, rel=0.05)
    assert log_rank(left[None], time, np.zeros(3000, dtype=bool), np.ones(3000))[0] == 0.0


def test_the_first_split_is_that_of_scikit_survival() -> None:
    x, time, event = _cohort(60)
    peer = SurvivalTree(max_depth=1, min_samples_leaf=8).fit(x, Surv.from_arrays(event, time))
    mine = greedy_tree(x, time, event, np.ones(60), 1)
    assert mine.feature[0] == peer.tree_.feature[0]
    assert mine.threshold[0] == pytest.approx(peer.tree_.threshold[0], rel=1e-6)  # theirs is single precision


def test_each_split_is_the_best_of_its_node_and_respects_the_limit() -> None:
    x, time, event = _cohort(60, 2)
    tree = greedy_tree(x, time, event, np.ones(60), 2, min_events=4)
    leaf = tree.apply(x)
    for node, rows in ((1, np.arange(60)), (2, np.flatnonzero(leaf < 2)), (3, np.flatnonzero(leaf >= 2))):
        best = 0.0
        for j in range(2):
            for cut in np.unique(x[rows, j])[:-1]:
                left = x[rows, j] <= cut
                if min((left & event[rows]).sum(), (~left & event[rows]).sum()) < 4:
                    continue
                peer = logrank_test(
                    time[rows][left], time[rows][~left], event[rows][left], event[rows][~left]
                )
                best = max(best, peer.test_statistic)
        j, cut = tree.feature[node - 1], tree.threshold[node - 1]
        mine = log_rank((x[rows, j] <= cut)[None], time[rows], event[rows], np.ones(len(rows)))[0]
        assert mine == pytest.approx(best, rel=1e-10)
    for k in range(4):
        assert event[leaf == k].sum() >= 4


def test_nodes_that_cannot_be_split_send_all_rows_left() -> None:
    x, time, event = _cohort(12)
    tree = greedy_tree(np.zeros((12, 1)), time, event, np.ones(12), 2)
    assert (tree.feature == -1).all()
    assert (tree.apply(np.zeros((12, 1))) == 0).all()
    assert greedy_tree(x, time, event, np.ones(12), 0).depth == 0


def test_gates_follow_the_hard_tree() -> None:
    sample = random_sample(4, n_splits=2, n_rows=90)
    hard = [
        HardTree(np.array([0, 1, -1]), np.array([0.5, 0.3, 0.0])),
        HardTree(np.array([2, -1, 0]), np.array([0.7, 0.0, 0.2])),
        HardTree(np.array([1, 2, 2]), np.array([0.5, 0.5, 0.4])),
        HardTree(np.array([-1, 0, 0]), np.array([0.0, 0.5, 0.4])),
    ]
    tree, objective = SoftTree(3, 2, "weibull", (4,)), TrainingObjective(1e-3)
    initialize_hard(tree, objective, sample, hard)
    leaf = tree.apply_leaf(sample.x).numpy()
    for problem, own in enumerate(hard):
        np.testing.assert_array_equal(leaf[problem], own.apply(sample.x.matrices[problem // 2].numpy()))
    with torch.no_grad():
        assert objective(tree, sample).isfinite().all()


def test_greedy_starts_do_not_depend_on_the_batch_and_differ() -> None:
    sample = random_sample(6, n_splits=2, n_rows=120)
    seeds = [problem_seed(3, split, start) for split in range(2) for start in range(3)]
    batch, objective = SoftTree(3, 2, batch_shape=(6,)), TrainingObjective(1e-3)
    initialize_greedy(batch, objective, sample, seeds)
    own = sample.select(torch.tensor([3, 4]))
    alone = SoftTree(3, 2, batch_shape=(2,))
    initialize_greedy(alone, objective, own, seeds[3:5])
    gates = batch.gate_parameters().weight
    torch.testing.assert_close(gates[3:5], alone.gate_parameters().weight, rtol=0, atol=0)
    assert not torch.equal(gates[0], gates[1])


def test_greedy_start_in_the_estimator(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    short = Nodec(macro_iterations=2)
    tree = SoftSurvivalTree(2, n_starts=2, init="greedy", trainer=short).fit(gbsg2.frame, y)
    assert tree.score(gbsg2.frame, y) > 0.68
    part = gbsg2.subset(range(150))
    ends = {clone(tree).fit(part.frame, (part.time, part.event)).objective_ for _ in range(2)}
    assert len(ends) == 1


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match="a full binary tree has 2"):
        HardTree(np.array([0, 1]), np.array([0.5, 0.5]))
    hard = [HardTree(np.array([0]), np.array([0.5]))]
    with pytest.raises(ConfigError, match="hard tree of depth 1 for a tree of depth 2"):
        initialize_hard(SoftTree(3, 2, batch_shape=(1,)), TrainingObjective(), random_sample(1), hard)
