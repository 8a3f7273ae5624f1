"""Starting values: random, clusters, Cox models, gates on predictions and on residuals."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter
from sklearn.metrics import davies_bouldin_score
from sklearn.tree import DecisionTreeRegressor

from sstorch import GatePenalties, PrognosticTree, SoftSurvivalTree
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import Topology
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import Joint, LBFGSOptions
from sstorch.optim.starts import regression_tree as trees
from sstorch.optim.starts.clusters import (
    _best_partitions,
    _PartialLikelihood,
    _partition,
    cox_cumulative_hazards,
    initialize_kmeans,
    initialize_random,
    problem_seed,
)
from sstorch.optim.starts.regression_tree import GateColumns, Split, model_tree, regression_tree, residual_bag
from sstorch.reading import gate_coefficients
from sstorch.soft.batch import TrainedBatch, train_batch
from tests.batches import blank_tree, random_sample
from tests.conftest import nightly

OBJECTIVE = TrainingObjective(1e-3)

# ------------------------------------------------------------------ random, and clusters


def test_problem_starts_alike_in_any_batch() -> None:
    sample = random_sample(6, n_splits=2)
    seeds = [problem_seed(5, split, start) for split in range(2) for start in range(3)]
    whole, alone = blank_tree(3, 2, batch_shape=(6,)), blank_tree(3, 2, batch_shape=(1,))
    initialize_random(whole, sample, seeds)
    initialize_random(alone, sample.select(torch.tensor([4])), [problem_seed(5, 1, 1)])
    for many, one in zip(whole.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(many[4], one[0], rtol=0, atol=1e-15)
    weights = whole.gate_parameters().weight.detach()
    assert len(torch.unique(weights)) == weights.numel()
    intercept, shape = whole.family.start(sample.log_time, sample.event, sample.weight)
    torch.testing.assert_close(whole.leaf(5).intercept.detach(), intercept)
    torch.testing.assert_close(whole.leaf(6).shape.detach(), shape)


def clusters() -> tuple[Sample, np.ndarray]:
    """Four well separated clusters of rows, with log times that depend on the cluster."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(4), 30)
    centre = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])[label]
    x, log_time = centre + 0.08 * rng.normal(size=(120, 2)), rng.normal(size=120) * 0.3 + label
    ones, design = torch.ones(2, 120, dtype=torch.float64), DesignMatrix(torch.as_tensor(x)[None], (2,))
    return Sample(design, torch.as_tensor(log_time).expand(2, -1), ones.clone(), ones.clone()), label


def test_kmeans_finds_separated_clusters_and_fits_their_leaves() -> None:
    sample, label = clusters()
    tree = blank_tree(2, 2, batch_shape=(2,))
    initialize_kmeans(tree, OBJECTIVE, sample, [problem_seed(0, 0, k) for k in range(2)])
    leaf = tree.apply_leaf(sample.x)
    for own in leaf.numpy():
        assert sorted(np.concatenate([np.unique(own[label == k]) for k in range(4)])) == [0, 1, 2, 3]
    medians = tree.leaf_parameters().linear_predictor(sample.x).detach().gather(1, leaf[:, None])[0, 0]
    for k in range(4):
        assert abs(float(medians[label == k].mean()) - k) < 0.2


def test_kmeans_partition_is_the_best_of_the_own_rows() -> None:
    sample, topology = random_sample(4, n_splits=2, n_rows=60), Topology(2)
    seeds = [problem_seed(0, s, k) for s in range(2) for k in range(2)]
    ours = _best_partitions(topology, sample, seeds, 10)
    for r, seed in enumerate(seeds):
        kept = sample.weight[r].numpy() > 0
        x = sample.x.to_dense()[r // 2].numpy()[kept]
        states = np.random.RandomState(seed.generate_state(1)[0])
        tried = [_partition(topology, x, states) for _ in range(10)]
        best = tried[int(np.argmin([davies_bouldin_score(x, p) for p in tried]))]
        np.testing.assert_array_equal(ours[r][kept], best)
    once = _best_partitions(topology, sample, seeds, 1)
    assert (once[0] != once[1]).any()


def test_kmeans_on_a_cluster_without_events_and_on_identical_rows() -> None:
    sample, label = clusters()
    sample.event[0, label == 3] = 0.0
    tree = blank_tree(2, 2, batch_shape=(2,))
    initialize_kmeans(tree, OBJECTIVE, sample, [problem_seed(0, 0, k) for k in range(2)], repeats=3)
    assert all(torch.isfinite(p).all() for p in tree.parameters())
    empty = 4 + int(tree.apply_leaf(sample.x)[0][label == 3][0])
    moved = [float(tree.leaf(leaf).slope[0].detach().abs().sum()) > 0 for leaf in tree.topology.leaves]
    assert moved == [leaf != empty for leaf in tree.topology.leaves]
    same = Sample(
        DesignMatrix(torch.full((1, 9, 2), 0.5, dtype=torch.float64), (1,)),
        sample.log_time[:1, :9], sample.event[1:, :9], sample.weight[:1, :9],
    )  # fmt: skip
    tree = blank_tree(2, 2, batch_shape=(1,))
    initialize_kmeans(tree, OBJECTIVE, same, [problem_seed(0, 0, 0)])
    assert all(torch.isfinite(p).all() for p in tree.parameters())
    assert torch.unique(tree.apply_leaf(same.x)).numel() == 1


# ------------------------------------------------------------------ Cox models


def cox_rows(seed: int, n: int, late: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    time = draws.exponential(np.exp(-0.8 * x[:, 0])) + 0.01
    return x, time, np.where(draws.random(n) < 0.4, 0.5 * time, 0.0) if late else np.zeros(n)


@pytest.mark.parametrize("late", [False, True])
def test_cumulative_hazards_are_breslows_at_the_coefficients_of_lifelines(late: bool) -> None:
    # Without ties Breslow's and Efron's likelihoods are the same.
    sizes, longest = (40, 61, 25), 61
    x, time = torch.zeros(3, longest, 4).double(), torch.ones(3, longest).double()
    entry, weight = torch.zeros_like(time), torch.zeros_like(time)
    expected = []
    for k, n in enumerate(sizes):
        own_x, own_time, own_entry = cox_rows(k, n, late)
        x[k, :n, :3], time[k, :n], entry[k, :n] = map(torch.as_tensor, (own_x, own_time, own_entry))
        weight[k, :n] = 1.0
        frame = pd.DataFrame(own_x).assign(time=own_time, **({"entry": own_entry} if late else {}))
        model = CoxPHFitter(penalizer=0.05).fit(frame, "time", entry_col="entry" if late else None)
        relative = np.exp(own_x @ model.params_.to_numpy())
        steps = [relative[(own_entry < t) & (own_time >= t)].sum() ** -1 for t in own_time]
        expected.append(np.array([np.sum(steps, where=own_time <= t) for t in own_time]) * relative)
    found = cox_cumulative_hazards(x, time, entry, weight, 0.05)
    for k, n in enumerate(sizes):
        np.testing.assert_allclose(found[k, :n], expected[k], rtol=2e-4)
        assert (found[k, n:] == 0).all()


def test_partial_likelihood_with_ties_and_late_entries_is_the_sum_over_pairs() -> None:
    x, time, entry = cox_rows(1, 20, late=True)
    time, entry = np.ceil(4 * time), np.floor(4 * entry)
    order = np.argsort(time, kind="stable")
    x, time, entry, beta = x[order], time[order], entry[order], np.array([0.5, 0.02, -1.0])
    score = x @ beta
    at_risk = [np.exp(score[(entry < t) & (time >= t)]).sum() for t in time]
    loss = _PartialLikelihood.of(
        *(torch.as_tensor(each)[None] for each in (x, time, entry, np.ones(20))), 0.0
    )
    at = torch.as_tensor(beta)[None]
    value, gradient = loss.value_and_gradient(at)
    assert float(value) == pytest.approx(np.mean(np.log(at_risk) - score), rel=1e-12)
    moves = 1e-6 * torch.eye(3).double()
    rise = [float(loss.value_and_gradient(at + m)[0] - loss.value_and_gradient(at - m)[0]) for m in moves]
    np.testing.assert_allclose(gradient[0], np.array(rise) / 2e-6, rtol=1e-5)


# ------------------------------------------------------------------ trees of means and of lines


def numbers(count: int) -> GateColumns:
    return GateColumns(tuple(np.array([j]) for j in range(count)), (False,) * count)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_regression_tree_is_that_of_scikit_learn(depth: int) -> None:
    rng = np.random.default_rng(depth)
    x = rng.normal(size=(300, 4)).round(1)
    target = x[:, 0] + np.sin(3 * x[:, 1]) + 0.1 * rng.normal(size=300)
    rows = DesignMatrix.of(x), target[None], np.full(300, 1 / 300)
    ours = regression_tree(*rows, numbers(4), Topology(depth), 0.08)
    peer = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=0.08, random_state=0).fit(x, target).tree_
    places, found = {0: 1}, {}
    for k in range(peer.node_count):
        if peer.children_left[k] >= 0:
            places[peer.children_left[k]], places[peer.children_right[k]] = 2 * places[k], 2 * places[k] + 1
            found[places[k]] = (peer.feature[k], peer.threshold[k])
    assert set(ours) == set(found)
    for node, split in ours.items():
        feature, threshold = found[node]
        assert split.column == feature
        assert -split.constant / split.slope[feature] == pytest.approx(threshold, abs=1e-6)
        assert split.slope[feature] < 0  # left is below


def test_categories_are_cut_into_the_best_two_sets() -> None:
    """Of all sets of six categories and rows without one, that with the least sum of squares."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, 7, 400)
    x = np.eye(7)[which][:, :6]
    target = np.array([0.3, -1.0, 2.0, 0.1, -0.9, 1.8, 0.2])[which] + rng.normal(size=400)
    weight = rng.uniform(0.5, 1.5, 400)
    weight /= weight.sum()
    rows, columns = (DesignMatrix.of(x), target[None], weight), GateColumns((np.arange(6),), (True,))
    (split,) = regression_tree(*rows, columns, Topology(1), 0.0).values()
    left = x @ split.slope + split.constant >= 0

    def within(side: np.ndarray) -> float:
        means = [np.average(target[part], weights=weight[part]) for part in (side, ~side)]
        return float((weight * (target - np.where(side, *means)) ** 2).sum())

    best = min(within(np.isin(which, own)) for k in range(1, 7) for own in combinations(range(7), k))
    assert within(left) == pytest.approx(best, rel=1e-12)
    assert all(len(np.unique(left[which == k])) == 1 for k in range(7))


def grown(x: np.ndarray, target: np.ndarray, min_leaf: float = 0.1) -> dict[int, Split]:
    n = len(x)
    given = (x - x.mean(0)) / x.std(0), target[None], np.ones((1, n)), np.full(n, 1 / n), numbers(x.shape[1])
    return model_tree(DesignMatrix.of(x), *given, Topology(1), min_leaf)


def test_best_split_by_lines_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 6, size=(90, 2)).astype(float)
    target = rng.normal(size=90) + (x[:, 1] > 3) * x[:, 0]
    lines = np.column_stack([np.ones(90), (x - x.mean(0)) / x.std(0)])

    def errors(rows: np.ndarray) -> float:
        gram, moment = lines[rows].T @ lines[rows], lines[rows].T @ target[rows]
        ridge = trees._RIDGE * rows.sum() * np.diag([1e-6, 1, 1])
        return float(target[rows] @ target[rows] - moment @ np.linalg.solve(gram + ridge, moment))

    gains = {}
    for column in range(2):
        for cut in np.arange(0.5, 5):
            left = x[:, column] <= cut
            if min(left.sum(), (~left).sum()) >= 9:
                gains[column, cut] = -errors(left) - errors(~left)
    column, cut = max(gains, key=lambda key: gains[key])
    split = grown(x, target)[1]
    assert split.column == column
    assert -split.constant / split.slope[column] == pytest.approx(cut)


# ------------------------------------------------------------------ the bag of trees


def test_bag_finds_the_step_without_the_noise() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(size=(600, 3)), rng.normal(size=600)
    truth = np.where(x[:, 0] > 0.5, 1.0, -1.0)
    found = residual_bag(DesignMatrix.of(x), truth + noise, np.ones(600), np.arange(600), 0)
    assert np.corrcoef(found, truth)[0, 1] > 0.9
    # Trees that have seen a row would know of its noise.
    assert abs(np.corrcoef(found - truth, noise)[0, 1]) < 0.15


def test_rows_of_a_subject_are_seen_together() -> None:
    # Features name the subject, whose rows have one residual: trees that had seen one of them would know it.
    rng = np.random.default_rng(2)
    subject = np.repeat(np.arange(24), 50)
    x, target = DesignMatrix.of(subject[:, None].astype(float)), rng.normal(size=24)[subject]
    apart, mixed = (residual_bag(x, target, np.ones(1200), own, 0) for own in (subject, np.arange(1200)))
    assert np.corrcoef(mixed, target)[0, 1] > 0.9
    assert np.corrcoef(apart, target)[0, 1] < 0.3


# ------------------------------------------------------------------ estimators that start so


@pytest.mark.parametrize(("depth", "min_leaf"), [(2, 0.2), nightly(3, 0.1), nightly(4, 0.05), (3, 0.0)])
def test_leaves_are_as_large_as_asked_for(gbsg2: SurvivalData, depth: int, min_leaf: float) -> None:
    tree = PrognosticTree(depth=depth, min_leaf=min_leaf).fit(gbsg2.frame, gbsg2.y)
    counts = np.bincount(tree.apply(gbsg2.frame), minlength=2**depth + 1)
    assert counts[counts > 0].min() >= min_leaf * len(gbsg2) - 1e-6
    columns = gate_coefficients(tree).query("coefficient != 0").groupby("node")["column"].nunique()
    assert columns.max() == 1


def test_constant_target_makes_no_gates() -> None:
    frame, time = pd.DataFrame({"x": np.ones(40)}), np.random.default_rng(0).exponential(size=40)
    tree = PrognosticTree().fit(frame, (time, np.ones(40, dtype=bool)))
    assert set(tree.apply(frame)) == {1}


def test_distilled_and_random_starts_are_those_of_each_kind(gbsg2: SurvivalData) -> None:
    rows = [gbsg2.subset(range(400)), gbsg2.subset(range(200, 600))]
    schema, trainer = Schema.of(gbsg2.frame), Joint(LBFGSOptions(max_iterations=1))

    def starts(init: Any, n_starts: int) -> TrainedBatch:
        penalties = GatePenalties(ridge=1e-3)
        tree = SoftSurvivalTree(
            init=init, n_starts=n_starts, trainer=trainer, min_leaf=0.1, penalties=penalties
        )
        return train_batch(rows, tree._batch_settings(), schema)

    both, one, other = starts("distilled+random", 3), starts("distilled", 1), starts("random", 3)
    for split in range(2):
        for start in range(3):
            source, place = (one, split) if start == 0 else (other, 3 * split + start)
            expected = source.tree.select(place).state_dict()
            found = both.tree.select(both.position(split, start)).state_dict()
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)
