"""Hard trees as initial solutions: axis-parallel splits, greedy or given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sstorch._types import FloatArray, IntArray
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree, Topology
from sstorch.nn.design_matrix import first_features
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.starts.clusters import fit_leaves, seed_key

# Features are scaled to [0, 1]: a gate of this slope goes from .1 to .9 over a fifth of a feature's range.
SHARPNESS = 20.0
# Candidates of a split and bins of the event times: beyond that a split gains nothing.
_MOST_THRESHOLDS, _MOST_TIMES = 64, 128


@dataclass(frozen=True)
class HardTree:
    """A full binary tree of splits x_j <= threshold, left if true.

    Attributes:
        feature: j of each branch node in heap order, shape (2^D - 1,); -1 where all rows go left.
        threshold: shape (2^D - 1,).

    Raises:
        ConfigError: the shapes are not those of a full binary tree.
    """

    feature: IntArray
    threshold: FloatArray

    def __post_init__(self) -> None:
        count = len(self.feature)
        if (count + 1) & count or self.threshold.shape != self.feature.shape:
            raise ConfigError(
                f"a full binary tree has 2^D - 1 features and thresholds, got {count} and "
                f"{len(self.threshold)}"
            )

    @property
    def depth(self) -> int:
        """D."""
        return len(self.feature).bit_length()

    def apply(self, x: FloatArray) -> IntArray:
        """Leaf of each row (n, p): 0 .. 2^D - 1 from left to right, shape (n,)."""
        node: IntArray = np.ones(len(x), dtype=np.int64)
        for _ in range(self.depth):
            feature, threshold = self.feature[node - 1], self.threshold[node - 1]
            right = (feature >= 0) & (x[np.arange(len(x)), np.maximum(feature, 0)] > threshold)
            node = 2 * node + right
        leaf: IntArray = node - 2**self.depth
        return leaf


def greedy_tree(
    x: FloatArray,
    time: FloatArray,
    event: npt.NDArray[np.bool_],
    weight: FloatArray,
    depth: int,
    min_events: int = 3,
    features: IntArray | None = None,
) -> HardTree:
    """Grow a tree top down: each split has the largest log-rank statistic of its node.

    Args:
        x: features, shape (n, p).
        time: shape (n,).
        event: shape (n,).
        weight: row weights >= 0, shape (n,).
        depth: most questions on a path.
        min_events: rows with an event that each side must have.
        features: columns that may split, all if None.

    References:
        Segal (1988), Biometrics 44, 35-47; LeBlanc and Crowley (1993), JASA 88, 457-467.
    """
    topology = Topology(depth)
    chosen = np.full(len(topology.branches), -1, dtype=np.int64)
    thresholds = np.zeros(len(topology.branches))
    rows_of = {1: np.flatnonzero(weight > 0)}
    for node in topology.branches:
        rows = rows_of[node]
        best = 0.0
        for j in np.arange(x.shape[1]) if features is None else features:
            candidates = _candidates(x[rows, j])
            if len(candidates) == 0:
                continue
            left = x[rows, j] <= candidates[:, None]
            statistic = log_rank(left, time[rows], event[rows], weight[rows])
            enough = np.minimum((left & event[rows]).sum(1), (~left & event[rows]).sum(1)) >= min_events
            statistic = np.where(enough, statistic, 0.0)
            if statistic.max() > best:
                best = float(statistic.max())
                chosen[node - 1], thresholds[node - 1] = j, candidates[statistic.argmax()]
        right = np.zeros(len(rows), dtype=bool)
        if chosen[node - 1] >= 0:
            right = x[rows, chosen[node - 1]] > thresholds[node - 1]
        rows_of[2 * node], rows_of[2 * node + 1] = rows[~right], rows[right]
    return HardTree(chosen, thresholds)


def log_rank(
    left: npt.NDArray[np.bool_], time: FloatArray, event: npt.NDArray[np.bool_], weight: FloatArray
) -> FloatArray:
    """Log-rank chi-squared statistics of K splits of the same n rows, (K,), 0 where no variance is left.

    ``left`` is (K, n); a weight >= 0 counts as so many rows. Event times are binned where there are more than
    128, which loses the order within a bin.
    """
    times = np.unique(time[event])
    if len(times) == 0:
        return np.zeros(len(left))
    first = times
    if len(times) > _MOST_TIMES:
        last = np.unique(np.quantile(times, np.linspace(0, 1, _MOST_TIMES), method="higher"))
        first = times[np.r_[0, np.searchsorted(times, last[:-1], side="right")]]
        times = last
    # A bin ends at its time and holds the events since the one before; at risk in it is who saw its first.
    own_bin = np.searchsorted(times, time)
    at_risk = weight[:, None] * (time[:, None] >= first)
    died = weight[:, None] * event[:, None] * (own_bin[:, None] == np.arange(len(times)))
    n, d = at_risk.sum(0), died.sum(0)
    n_left, d_left = left @ at_risk, left @ died
    share = n_left / np.maximum(n, 1e-300)
    surplus = (d_left - d * share).sum(1)
    variance = (d * share * (1 - share) * np.maximum(n - d, 0) / np.maximum(n - 1, 1e-300)).sum(1)
    return np.where(variance > 1e-12, surplus**2 / np.maximum(variance, 1e-300), 0.0)


def initialize_greedy(
    tree: SoftTree,
    objective: TrainingObjective,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
) -> None:
    """Greedy trees: the first start of a split is that of its rows, the others are of bootstrap samples.

    Those others also see a random half of the features, without which they would hardly differ.

    Args:
        tree: R problems, ordered by split; changed in place.
        objective: its penalties on leaves act in the maximum likelihood.
        sample: training rows.
        seeds: one per problem.
    """
    depth = tree.topology.depth
    matrices = first_features(sample.x, tree.n_gate_features).matrices.double().cpu().numpy()
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    time, event, weight = (
        part.double().cpu().numpy() for part in (sample.log_time.exp(), sample.event, sample.weight)
    )
    # One tree for those that share rows and seed.
    known: dict[tuple[int, str, bytes], HardTree] = {}
    hard = []
    for problem, draw in enumerate(draw_starts(matrices.shape[-1], weight, split, seeds)):
        x, row_weight = matrices[split[problem]], weight[problem]
        key = int(split[problem]), seed_key(seeds[problem]), row_weight.tobytes()
        if key not in known:
            drawn = row_weight * draw.repeats
            known[key] = greedy_tree(
                x, time[problem], event[problem] > 0, drawn, depth, features=draw.features
            )
        hard.append(known[key])
    initialize_hard(tree, objective, sample, hard)


@dataclass(frozen=True)
class StartDraw:
    """Rows and columns that the hard splits of one start see."""

    repeats: IntArray  # how often each row is drawn, (n,)
    features: IntArray | None  # columns that may split, all if None


def draw_starts(
    n_features: int, weight: FloatArray, split: IntArray, seeds: Sequence[np.random.SeedSequence]
) -> list[StartDraw]:
    """All rows for the first start of each split; a bootstrap sample and half of the features for the others.

    Of each problem are given the row weights (R, n), of which those of zero are not drawn, the split (R,) and
    the seed.
    """
    first: dict[int, str] = {}
    drawn = []
    for row_weight, number, seed in zip(weight, split.tolist(), seeds, strict=True):
        repeats, features = (row_weight > 0).astype(np.int64), None
        if first.setdefault(number, seed_key(seed)) != seed_key(seed):
            draws = np.random.default_rng(seed)
            # Padding has weight zero: what is drawn does not depend on the longest split of the batch.
            present = np.flatnonzero(repeats)
            repeats[present] = draws.multinomial(len(present), np.full(len(present), 1 / len(present)))
            features = draws.permutation(n_features)[: (n_features + 1) // 2]
        drawn.append(StartDraw(repeats, features))
    return drawn


def initialize_hard(
    tree: SoftTree,
    objective: TrainingObjective,
    sample: Sample,
    hard: Sequence[HardTree],
    sharpness: float = SHARPNESS,
) -> None:
    """Gates that follow hard trees, leaves by maximum likelihood on their rows.

    A split x_j <= threshold becomes the gate sigmoid(k (threshold - x_j)).

    Args:
        tree: R problems; changed in place.
        objective: its penalties on leaves act in the maximum likelihood.
        sample: training rows.
        hard: one tree per problem, of the depth of ``tree``, in the features of ``sample``.
        sharpness: k > 0.

    Raises:
        ConfigError: a tree has another depth.
    """
    for given in hard:
        if given.depth != tree.topology.depth:
            raise ConfigError(f"hard tree of depth {given.depth} for a tree of depth {tree.topology.depth}")
    like = tree.log_time_scale
    for node in tree.topology.branches:
        feature = torch.tensor([int(hard_tree.feature[node - 1]) for hard_tree in hard], device=like.device)
        threshold = torch.tensor([float(hard_tree.threshold[node - 1]) for hard_tree in hard]).to(like)
        splits = feature >= 0
        gate = tree.gate(node)
        with torch.no_grad():
            gate.weight.zero_()
            gate.weight[torch.arange(len(hard), device=like.device), feature.clamp(min=0)] = torch.where(
                splits, -sharpness, 0.0
            ).to(like)
            # Where there is no split all rows go left.
            gate.bias.copy_(torch.where(splits, sharpness * threshold, torch.full_like(threshold, sharpness)))
    fit_leaves(tree, objective, sample, tree.apply_leaf(sample.x))


def _candidates(values: FloatArray) -> FloatArray:
    """Midpoints between distinct values, or as many quantiles of them as are tried."""
    distinct = np.unique(values)
    middle: FloatArray = (distinct[1:] + distinct[:-1]) / 2
    if len(middle) <= _MOST_THRESHOLDS:
        return middle
    return np.unique(np.quantile(middle, np.linspace(0, 1, _MOST_THRESHOLDS + 2)[1:-1]))
