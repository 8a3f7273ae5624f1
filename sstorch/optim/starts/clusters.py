"""Random initial solutions, and initial solutions from clusters of rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.design_matrix import first_features
from sstorch.nn import SoftTree, Topology
from sstorch.nn.routing import visits
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.steps import Batch, lbfgs
from sstorch.optim.working_sets import leaf_step, logistic_step

SLOPE_SCALE = 0.1
OPTIONS = LBFGSOptions(max_iterations=100)


def problem_seed(seed: int, split: int, start: int) -> np.random.SeedSequence:
    """Source of randomness of one problem: it does not depend on the batch around it."""
    return np.random.SeedSequence((seed, split, start))


@torch.no_grad()
def initialize_random(
    tree: SoftTree,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
    curved: BoolArray | None = None,
) -> None:
    """Gates from N(0, 1), slopes from 0.1 N(0, 1), intercepts and shapes from the family's start, in place.

    A problem starts alike on every device. Features that are ``curved`` (q,) start at zero: their number can
    depend on other splits of the batch.
    """
    start_leaves(tree, sample)
    straight = np.ones(sample.x.shape[-1], dtype=bool) if curved is None else ~curved
    of_gates = torch.as_tensor(np.flatnonzero(straight[: tree.n_gate_features]))
    of_leaves = torch.as_tensor(np.flatnonzero(straight[len(straight) - tree.in_features :]))
    branches, leaves = tree.topology.branches, tree.topology.leaves
    sizes = [len(of_gates) + 1] * len(branches) + [len(of_leaves)] * len(leaves)
    draws = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(int(seed.generate_state(1, np.uint64)[0]) >> 1)
        draws.append(torch.randn(sum(sizes), generator=generator, dtype=torch.float64))
    values = torch.stack(draws).to(tree.log_time_scale).split(sizes, 1)
    for node, drawn in zip((*branches, *leaves), values, strict=True):
        if node in leaves:
            tree.leaf(node).slope[:, of_leaves] = SLOPE_SCALE * drawn
            continue
        gate = tree.gate(node)
        gate.weight.zero_()
        gate.weight[:, of_gates] = drawn[:, :-1]
        gate.bias.copy_(drawn[:, -1])


@torch.no_grad()
def start_leaves(tree: SoftTree, sample: Sample) -> None:
    """Make every leaf the maximum likelihood without covariates on its problem's rows, once a split."""
    counts = torch.tensor(sample.x.counts, device=sample.weight.device)
    first = (counts.cumsum(0) - counts)[counts > 0]
    rows = sample.select(first)
    starts = tree.family.select(first).start(rows.log_time, rows.event, rows.weight, rows.log_entry)
    intercept, shape = (part.repeat_interleave(counts[counts > 0], dim=0) for part in starts)
    for node in tree.topology.leaves:
        tree.leaf(node).reset(intercept, shape)


def initialize_kmeans(
    tree: SoftTree,
    objective: TrainingObjective,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
    repeats: int = 10,
) -> None:
    """Gates from top-down binary k-means, leaves by maximum likelihood on the rows of each cluster, in place.

    Of ``repeats`` partitions (the paper gives no number) the one with the lowest Davies-Bouldin index stays
    (Consolo, Amaldi and Carrizosa; Davies and Bouldin 1979). Gates are logistic regressions onto clusters.
    A node that cannot be split sends its rows left; a leaf without events keeps the family's start, and so do
    all leaves of a problem whose objective the fitted ones would make worse.
    """
    seen = replace(sample, x=first_features(sample.x, tree.n_gate_features))
    cluster = torch.as_tensor(_best_partitions(tree.topology, seen, seeds, repeats))
    cluster = cluster.to(sample.weight.device)
    for node in tree.topology.branches:
        inside = visits(tree.topology, cluster, node)
        left = visits(tree.topology, cluster, 2 * node)
        with torch.no_grad():
            tree.gate(node).weight.zero_()
            tree.gate(node).bias.zero_()
        step = logistic_step(Batch(tree, objective, sample), node, left, sample.weight * inside)
        step.write(lbfgs(step.objective, step.read(), OPTIONS).x)
    start_leaves(tree, sample)
    positions = torch.arange(len(tree.topology.leaves), device=cluster.device)
    assigned = (cluster[:, None, :] == positions[:, None]).to(sample.weight)
    n_events = (assigned * (sample.weight * sample.event)[:, None, :]).sum(-1, keepdim=True)
    leaves = leaf_step(Batch(tree, objective, sample), 1, assigned * (n_events > 0))
    start = leaves.read()
    fitted = lbfgs(leaves.objective, start, OPTIONS).x
    leaves.write(fitted)
    # A leaf fitted to its own cluster can be absurd at the rows of others, which soft gates send there too:
    # where it makes the objective worse than leaves without covariates do, it begins from those.
    with torch.no_grad():
        value = objective(tree, sample)
        leaves.write(start)
        worse = ~(value <= objective(tree, sample))
    leaves.write(torch.where(worse[:, None], start, fitted))


def _best_partitions(
    topology: Topology, sample: Sample, seeds: Sequence[np.random.SeedSequence], repeats: int
) -> IntArray:
    """Leaf cluster of each row, (R, M); padding rows are in cluster 0."""
    from sklearn.metrics import davies_bouldin_score  # as KMeans below

    weight = sample.weight.cpu().numpy()
    clusters = np.zeros(weight.shape, dtype=np.int64)
    matrices = sample.x.to_dense().cpu().numpy()
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    known: dict[tuple[int, str, bytes], IntArray] = {}
    for problem, seed in enumerate(seeds):
        kept = weight[problem] > 0
        # Seeds with the same random numbers share a start.
        key = int(split[problem]), f"{seed.entropy} {seed.spawn_key}", kept.tobytes()
        if key in known:
            clusters[problem, kept] = known[key]
            continue
        x = matrices[split[problem]][kept]
        states = np.random.RandomState(seed.generate_state(1)[0])
        best, best_index = np.zeros(len(x), dtype=np.int64), np.inf
        for _ in range(repeats if topology.depth > 0 else 0):
            partition = _partition(topology, x, states)
            n_clusters = len(np.unique(partition))
            if n_clusters < 2:
                continue
            # The index is not defined where every row is a cluster of its own, and no spread is left.
            index = davies_bouldin_score(x, partition) if n_clusters < len(x) else 0.0
            if index < best_index:
                best, best_index = partition, index
        clusters[problem, kept] = known[key] = best
    return clusters


def _partition(topology: Topology, x: FloatArray, states: np.random.RandomState) -> IntArray:
    from sklearn.cluster import KMeans  # takes as long to load as pandas, and only this start needs it

    node = np.ones(len(x), dtype=np.int64)
    for branch in topology.branches:
        rows = np.flatnonzero(node == branch)
        right = np.zeros(len(rows), dtype=np.int64)
        if len(rows) > 1:
            with warnings.catch_warnings():
                # Fewer distinct rows than clusters: the node then sends all rows left, which is defined.
                warnings.simplefilter("ignore", ConvergenceWarning)
                right = KMeans(2, n_init=1, random_state=states).fit_predict(x[rows]).astype(np.int64)
        node[rows] = 2 * branch + right
    node -= 2**topology.depth
    return node
