"""Initial solutions: random ones, from clusters of rows, and from curves of Cox models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.optimize import lsq_linear
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.batched import SHARED, Batched
from sstorch.data.design_matrix import first_features, last_features
from sstorch.memory import at_once
from sstorch.nn import SoftTree, Spline, Topology
from sstorch.nn.routing import visits
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.batched_lbfgs import LBFGSOptions, minimize
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
    """Gates from N(0, 1), slopes from 0.1 N(0, 1), intercepts and shapes at the family's start, in place."""
    # A problem starts alike on every device. Features that are ``curved`` (q,) start at zero: their number
    # can depend on other splits of the batch.
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
    """Gates by top-down binary k-means, leaves by maximum likelihood on rows of each cluster, in place."""
    # Of ``repeats`` partitions (the paper gives no number) the one with the lowest Davies-Bouldin index stays
    # (Consolo, Amaldi and Carrizosa; Davies and Bouldin 1979). Gates are logistic regressions onto clusters.
    # A node that cannot be split sends its rows left; a leaf without events keeps the family's start, and so
    # do all leaves of a problem whose objective the fitted ones would make worse.
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


_COX_OPTIONS = LBFGSOptions(max_iterations=100, gradient_tolerance=1e-5, relative_tolerance=1e-8)


@dataclass(frozen=True)
class _PartialLikelihood(Batched):
    """Negative log partial likelihoods of K data sets, each the mean over its n rows; rows sorted by time."""

    x: Tensor  # (K, n, p), columns of mean zero and standard deviation one, or zero where constant
    weight: Tensor  # (K, n), 1, or 0 for rows that only pad; every row has an event
    first: Tensor  # (K, n), position of the first row with the time of each row
    last: Tensor  # (K, n), position of the last one, of those that count
    entry_order: Tensor  # (K, n), rows in the order of their entry
    entered_late: Tensor  # (K, n), how many in that order enter before each row's time
    before_entry: Tensor  # (K, n), how many rows have their event at or before the entry of each row
    ridge: float = field(metadata=SHARED)  # coefficient of (1/2) ||beta||^2

    @classmethod
    def of(cls, x: Tensor, time: Tensor, entry: Tensor, weight: Tensor, ridge: float) -> _PartialLikelihood:
        """Of rows in the order of their time (K, n); padding comes last."""
        entry_order, first = entry.argsort(dim=1), torch.searchsorted(time, time)
        last, before_entry = (torch.searchsorted(time, at, right=True) for at in (time, entry))
        entered_late = torch.searchsorted(entry.gather(1, entry_order), time)
        return cls(x, weight, first, last - 1, entry_order, entered_late, before_entry, ridge)

    def breslow(self, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log relative risks (K, n), scaled hazard steps up to each (K, n + 1), log risk sets."""
        score = torch.einsum("knp,kp->kn", self.x, beta).masked_fill(self.weight == 0, -torch.inf)
        score = score - score.amax(1, keepdim=True)
        relative = score.exp()
        at_risk = _sums_from(relative).gather(1, self.first)
        # Those not under observation yet at the time of an event.
        at_risk = at_risk - _sums_from(relative.gather(1, self.entry_order)).gather(1, self.entered_late)
        at_risk = at_risk.clamp_min(torch.finfo(at_risk.dtype).tiny)
        return score, torch.nn.functional.pad((self.weight / at_risk).cumsum(1), (1, 0)), at_risk.log()

    def value_and_gradient(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Values (K,) and gradients (K, p), which sum the martingale residuals."""
        score, steps, log_risk = self.breslow(beta)
        n = self.weight.sum(1)
        loss = torch.where(self.weight > 0, log_risk - score, 0.0).sum(1) / n
        observed = steps.gather(1, self.last + 1) - steps.gather(1, self.before_entry)
        residual = (score.exp() * observed - self.weight) / n[:, None]
        gradient = torch.einsum("kn,knp->kp", residual, self.x) + self.ridge * beta
        return loss + 0.5 * self.ridge * beta.square().sum(1), gradient


def _sums_from(values: Tensor) -> Tensor:
    """Sums from each position to the end, and zero after the end, (K, n + 1)."""
    return torch.nn.functional.pad(values.flip(1).cumsum(1).flip(1), (0, 1))


def cox_cumulative_hazards(x: Tensor, time: Tensor, entry: Tensor, weight: Tensor, ridge: float) -> Tensor:
    """Fit K Cox models to rows (K, n), all with an event; the cumulative hazard of each at its own time."""
    # Features (K, n, p) are standardised, as lifelines does; the ridge, (1/2) ||beta||^2, is added to the
    # mean negative log partial likelihood (Breslow 1974, Biometrics 30, 89-99). Rows of weight 0 only pad.
    order = time.masked_fill(weight == 0, torch.inf).argsort(dim=1, stable=True)
    inverse = order.argsort(dim=1)
    weight, entry = weight.gather(1, order), entry.gather(1, order)
    time = time.gather(1, order).masked_fill(weight == 0, torch.inf)
    x = x.gather(1, order[..., None].expand_as(x))
    n = weight.sum(1)[:, None, None]
    centred = (x - (weight[..., None] * x).sum(1, keepdim=True) / n) * weight[..., None]
    spread = (centred.square().sum(1, keepdim=True) / (n - 1).clamp_min(1.0)).sqrt()
    constant = spread <= 1e-12 * x.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1.0)
    scaled = centred / spread.masked_fill(constant, torch.inf)
    loss = _PartialLikelihood.of(scaled, time, entry, weight, ridge)
    score, steps, _ = loss.breslow(minimize(loss, x.new_zeros(x.shape[0], x.shape[2]), _COX_OPTIONS).x)
    return (score.exp() * steps.gather(1, loss.last + 1)).gather(1, inverse)


# Penalty of the Cox model and of the least squares, smallest weight of a function of the spline basis, and
# numbers in the drawn rows of the Cox models that are fitted at a time.
_PENALTY, _SMALLEST, _ELEMENTS = 1e-3, 1e-3, 2**24


@torch.no_grad()
def initialize_cox(
    tree: SoftTree,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
    curved: BoolArray | None = None,
) -> None:
    """Random gates; spline leaves fitted by least squares to the curves of a Cox model, in place."""
    # Each leaf draws a share 1/L of the rows with an event, with replacement, for a Cox model. Its cumulative
    # hazard at each drawn row, on the scale of the spline, is regressed on the spline basis, with positive
    # weights, and x (Consolo, Amaldi and Carrizosa). A leaf without a Cox fit keeps its random start.
    family = tree.family
    assert isinstance(family, Spline)
    initialize_random(tree, sample, seeds, curved)
    design = family.basis(sample.log_time).chunk(2, -2)[0].mT.double().cpu().numpy()
    late = torch.full_like(sample.log_time, -torch.inf) if sample.log_entry is None else sample.log_entry
    given = sample.log_time, sample.event, sample.weight, late.exp()
    log_time, event, weight, entry = (part.double().cpu().numpy() for part in given)
    matrices = last_features(sample.x, tree.in_features).to_dense().double().cpu().numpy()
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    n_leaves = len(tree.topology.leaves)
    # The leaves of a few problems at a time: their drawn rows are copied.
    size = at_once(int(np.count_nonzero(event, axis=1).max()) * matrices.shape[-1], _ELEMENTS)
    for first in range(0, len(seeds), size):
        drawn: list[tuple[int, int, IntArray]] = []  # leaf, problem and rows
        for number in range(first, min(first + size, len(seeds))):
            draws, chance = np.random.default_rng(seeds[number].spawn(1)[0]), weight[number] * event[number]
            count, chance = max(1, round(np.count_nonzero(chance) / n_leaves)), chance / chance.sum()
            for node in tree.topology.leaves:
                drawn.append((node, number, draws.choice(len(chance), count, p=chance)))
        longest = max(len(rows) for _, _, rows in drawn)
        rows = np.stack([np.resize(rows, longest) for _, _, rows in drawn])
        counts = np.arange(longest) < np.array([[len(rows)] for _, _, rows in drawn])
        problem = np.array([[number] for _, number, _ in drawn])
        hazards = cox_cumulative_hazards(
            torch.as_tensor(matrices[split[problem], rows]),
            torch.as_tensor(np.exp(log_time[problem, rows])),
            torch.as_tensor(entry[problem, rows]),
            torch.as_tensor(counts, dtype=torch.float64),
            _PENALTY,
        )
        for (node, number, own), hazard in zip(drawn, hazards, strict=True):
            hazard = hazard[: len(own)]
            if bool((hazard.isfinite() & (hazard > 0)).all()):
                # An estimated theta has its starting value, 1.
                target = family.link(hazard.new_zeros(1)).inverse(hazard).numpy()
                fitted = _least_squares(design[number, own], matrices[split[number]][own], target)
                intercept, weights, slope = (torch.as_tensor(part).to(tree.log_time_scale) for part in fitted)
                leaf, shape = tree.leaf(node), weights.log()
                leaf.intercept[number], leaf.slope[number] = intercept, slope
                leaf.shape[number, : len(shape)] = shape


def _least_squares(design: FloatArray, x: FloatArray, target: FloatArray) -> tuple[FloatArray, ...]:
    """Intercept, weights of the spline basis and slopes of a leaf."""
    n_basis, n_features = design.shape[1], x.shape[1]
    usable = np.isfinite(target)
    matrix = np.column_stack([np.ones(len(target)), design, x])[usable]
    penalty = np.sqrt(_PENALTY * usable.sum()) * np.eye(matrix.shape[1])[1 + n_basis :]
    lower = np.r_[-np.inf, np.full(n_basis, _SMALLEST), np.full(n_features, -np.inf)]
    with np.errstate(invalid="ignore"):  # steps to bounds that are infinite
        fit = lsq_linear(
            np.vstack([matrix, penalty]), np.r_[target[usable], np.zeros(n_features)], (lower, np.inf)
        )
    return fit.x[0], fit.x[1 : 1 + n_basis], fit.x[1 + n_basis :]
