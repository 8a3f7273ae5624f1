import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import davies_bouldin_score

from sstorch.nn import DesignMatrix, Topology
from sstorch.nn.routing import visits
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.starts.clusters import (
    _best_partitions,
    _partition,
    initialize_kmeans,
    initialize_random,
    problem_seed,
)
from tests.batches import blank_tree, random_sample

OBJECTIVE = TrainingObjective(1e-3)


def test_a_problem_starts_alike_in_any_batch() -> None:
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


def _clusters(p: int = 2) -> tuple[Sample, np.ndarray]:
    """Four well separated clusters of rows, with log times that depend on the cluster."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(4), 30)
    centre = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])[label]
    x = centre + 0.08 * rng.normal(size=(120, 2))
    log_time = torch.as_tensor(rng.normal(size=120) * 0.3 + label)
    ones = torch.ones(2, 120, dtype=torch.float64)
    design = DesignMatrix(torch.as_tensor(x)[None], (2,))
    return Sample(design, log_time.expand(2, -1), ones.clone(), ones.clone()), label


def test_kmeans_finds_separated_clusters_and_fits_their_leaves() -> None:
    sample, label = _clusters()
    tree = blank_tree(2, 2, batch_shape=(2,))
    initialize_kmeans(tree, OBJECTIVE, sample, [problem_seed(0, 0, k) for k in range(2)])
    leaf = tree.apply_leaf(sample.x).numpy()
    for r in range(2):
        groups = {tuple(np.unique(leaf[r][label == k])) for k in range(4)}
        assert len(groups) == 4
        assert all(len(group) == 1 for group in groups)
    with torch.no_grad():
        medians = (tree.linear_predictor(sample.x)).gather(1, tree.apply_leaf(sample.x)[:, None]).squeeze(1)
    for k in range(4):
        assert abs(float(medians[0][label == k].mean()) - k) < 0.2


def test_kmeans_partition_is_the_best_of_the_own_rows() -> None:
    sample = random_sample(4, n_splits=2, n_rows=60)
    seeds = [problem_seed(0, s, k) for s in range(2) for k in range(2)]
    topology = Topology(2)
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


def test_kmeans_gates_are_regressions_on_the_rows_of_their_node() -> None:
    sample = random_sample(1, n_rows=120)
    tree, seeds = blank_tree(3, 2, batch_shape=(1,)), [problem_seed(0, 0, 0)]
    initialize_kmeans(tree, OBJECTIVE, sample, seeds)
    cluster = torch.as_tensor(_best_partitions(tree.topology, sample, seeds, 10))[0]
    for node in (1, 2, 3):
        inside, left = visits(tree.topology, cluster, node), visits(tree.topology, cluster, 2 * node)
        peer = LogisticRegression(tol=1e-10, max_iter=5000)
        peer.fit(sample.x.to_dense()[0][inside].numpy(), left[inside].numpy())
        np.testing.assert_allclose(tree.gate(node).weight[0].detach(), peer.coef_[0], atol=1e-3)


def test_kmeans_on_identical_rows_and_on_a_cluster_without_events() -> None:
    sample, label = _clusters()
    sample.event[0, label == 3] = 0.0
    tree = blank_tree(2, 2, batch_shape=(2,))
    initialize_kmeans(tree, OBJECTIVE, sample, [problem_seed(0, 0, k) for k in range(2)], repeats=3)
    assert all(torch.isfinite(p).all() for p in tree.parameters())
    empty = int(tree.apply_leaf(sample.x)[0][label == 3][0])
    assert float(tree.leaf(4 + empty).slope[0].detach().abs().sum()) == 0.0
    intercept, _ = tree.family.start(sample.log_time, sample.event, sample.weight)
    assert float(tree.leaf(4 + empty).intercept[0].detach()) == pytest.approx(float(intercept[0]), rel=1e-12)
    others = [leaf for leaf in (4, 5, 6, 7) if leaf != 4 + empty]
    assert all(float(tree.leaf(leaf).slope[0].detach().abs().sum()) > 0 for leaf in others)
    same = Sample(
        DesignMatrix(torch.full((1, 9, 2), 0.5, dtype=torch.float64), (1,)),
        sample.log_time[:1, :9], sample.event[1:, :9], sample.weight[:1, :9],
    )  # fmt: skip
    tree = blank_tree(2, 2, batch_shape=(1,))
    initialize_kmeans(tree, OBJECTIVE, same, [problem_seed(0, 0, 0)])
    assert all(torch.isfinite(p).all() for p in tree.parameters())
    assert torch.unique(tree.apply_leaf(same.x)).numel() == 1
