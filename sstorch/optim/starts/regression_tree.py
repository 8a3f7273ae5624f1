"""Gates of one raw column each: greedy trees that place them, gates distilled from curves, bags of trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.design_matrix import DesignMatrix, first_features
from sstorch.nn import GateParameters, SoftTree, Topology
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.nodec import Joint
from sstorch.optim.starts.clusters import start_leaves

# A gate goes from .12 to .88 within one standard deviation of its score's only column.
SHARPNESS = 4.0
# A gate that splits nothing: all rows go left.
_CLOSED = 20.0
# What a split must gain of the errors, and a difference or a standard deviation that counts as none.
_LEAST_GAIN, _CONSTANT = 1e-9, 1e-9
# Cuts of a column that are tried for lines, and ridge of the lines, as a share of the weight of a side.
_CUTS, _RIDGE = 9, 0.02


@dataclass(frozen=True)
class GateColumns:
    """Features of gates by raw column."""

    places: tuple[IntArray, ...]  # of the features of each column; a number precedes its curve
    categorical: tuple[bool, ...]  # with one feature per category


@dataclass(frozen=True)
class Split:
    """A gate on one raw column: left where slope . x + constant >= 0, x the features of gates."""

    column: int  # number of the raw column
    slope: FloatArray  # shape (q,)
    constant: float  # of the score


# Gain of the best cut of values (m,) of some rows (m,), and the cut; (0, 0) if there is none.
BestCut = Callable[[FloatArray, IntArray], tuple[float, float]]


def regression_tree(
    x: DesignMatrix,
    target: FloatArray,
    weight: FloatArray,
    columns: GateColumns,
    topology: Topology,
    min_leaf: float,
    given: Mapping[int, Split] | None = None,
) -> dict[int, Split]:
    """The greedy least-squares tree of targets (J, n), gains summed, in features of gates (n, q)."""
    # A number is cut halfway between two values, a column of categories into two sets by the means of the
    # target in each, of several targets by their first principal component (Breiman, Friedman, Olshen and
    # Stone 1984, Classification and Regression Trees, 8.4 and 9.4). Weights (n,) have the sum one, each side
    # at least `min_leaf`. Splits that are `given` stay.

    def best_cut(value: FloatArray, rows: IntArray) -> tuple[float, float]:
        return _best_cut(value, target[:, rows], weight[rows], min_leaf)

    return _grown(x, target, weight, columns, topology.depth, best_cut, given)


def model_tree(
    x: DesignMatrix,
    lines: FloatArray,
    target: FloatArray,
    precision: FloatArray,
    weight: FloatArray,
    columns: GateColumns,
    topology: Topology,
    min_leaf: float,
) -> dict[int, Split]:
    """The greedy tree of least-squares lines of targets: it finds slopes that differ between groups."""
    # Lines are of standardised `lines` (n, p), gates of features (n, q); errors of the targets (J, n) are
    # weighted by their precision (J, n) and summed; weights (n,) have the sum one (Zeileis, Hothorn and
    # Hornik 2008, Journal of Computational and Graphical Statistics 17, 492-514).
    design = np.column_stack([np.ones(len(x)), lines])

    def best_cut(value: FloatArray, rows: IntArray) -> tuple[float, float]:
        cuts = _cuts(value)
        side, w = np.searchsorted(cuts, value, side="left"), weight[rows]
        mass = np.bincount(side, w, len(cuts) + 1).cumsum()[:-1]
        allowed = np.minimum(mass, w.sum() - mass) >= min_leaf - _CONSTANT
        if not allowed.any():
            return 0.0, 0.0
        targets = zip(target[:, rows], precision[:, rows], strict=True)
        gain = sum(_gains(design[rows], *each, side, len(cuts)) for each in targets)
        gain = np.where(allowed, gain, -np.inf)
        return float(gain.max()), float(cuts[gain.argmax()])

    return _grown(x, target, weight, columns, topology.depth, best_cut)


def gates_of_splits(
    trees: Sequence[Mapping[int, Split]], topology: Topology, n_features: int, like: Tensor
) -> GateParameters:
    """Gates of K trees given by the splits of their nodes; a gate without a split sends all rows left."""
    slope = np.zeros((len(trees), len(topology.branches), n_features))
    constant = np.full(slope.shape[:-1], _CLOSED)
    for problem, splits in enumerate(trees):
        for node, own in splits.items():
            slope[problem, node - 1], constant[problem, node - 1] = own.slope, own.constant
    return GateParameters(torch.as_tensor(slope).to(like), torch.as_tensor(constant).to(like))


def _grown(
    x: DesignMatrix,
    target: FloatArray,
    weight: FloatArray,
    columns: GateColumns,
    depth: int,
    best_cut: BestCut,
    given: Mapping[int, Split] | None = None,
) -> dict[int, Split]:
    """Splits of a greedy tree by node, those that are given first, then those that gain most."""
    numbers, deviation = x.numbers.numpy(), np.zeros(x.shape[-1])
    variance = weight @ numbers**2 - (weight @ numbers) ** 2
    deviation[x.places.numpy()] = np.sqrt(np.maximum(variance, 0))

    def best_split(node: int, rows: IntArray) -> tuple[float, Split | None]:
        if given is not None and node in given:
            return np.inf, given[node]
        best, split, t, w = _LEAST_GAIN, None, target[:, rows], weight[rows]
        for column, (places, categorical) in enumerate(zip(columns.places, columns.categorical, strict=True)):
            level = _levels(x, places, rows) if categorical else None
            if level is None:
                value = x.columns(places[:1].tolist(), rows)[:, 0].numpy()
            else:
                value = _category_means(level, len(places), t, w)
            gain, cut = best_cut(value, rows)
            if gain > best:
                best, split = gain, _split_at(column, places, level, value, cut, w, deviation)
        return best, split

    splits: dict[int, Split] = {}
    rows_of = {1: np.flatnonzero(weight > 0)}
    found = {1: best_split(1, rows_of[1])} if depth else {}
    while found:
        node = max(found, key=lambda number: found[number][0])
        (_, split), rows = found.pop(node), rows_of.pop(node)
        if split is None:
            continue
        splits[node], used = split, np.flatnonzero(split.slope)
        left = x.columns(used.tolist(), rows).numpy() @ split.slope[used] + split.constant >= 0
        for child, own in ((2 * node, rows[left]), (2 * node + 1, rows[~left])):
            if child < 2**depth and len(own):
                rows_of[child], found[child] = own, best_split(child, own)
    return splits


def _levels(x: DesignMatrix, places: IntArray, rows: IntArray) -> IntArray:
    """Level of a category with indicators at some places, 0 ... L - 1, and L for none, (n,)."""
    for k, (first, _) in enumerate(x.blocks):
        if first == places[0] and x.codes is not None:
            return np.asarray(x.codes.numpy()[rows, k], dtype=np.int64)
    block = x.columns(places.tolist(), rows).numpy()
    return np.asarray(np.where(block.any(axis=1), block.argmax(axis=1), len(places)))


def _split_at(
    number: int,
    places: IntArray,
    level: IntArray | None,
    value: FloatArray,
    cut: float,
    weight: FloatArray,
    deviation: FloatArray,
) -> Split:
    """The gate that sends rows up to a cut of values left; `level` (n,) is that of a category, else None."""
    slope, side_of = np.zeros(len(deviation)), np.where(value <= cut, 1.0, -1.0)
    if level is None:
        sharpness = SHARPNESS / deviation[places[0]]
        slope[places[0]] = -sharpness
        return Split(number, slope, float(sharpness * cut))
    # A category that no row here has goes the way of most.
    side = np.full(len(places) + 1, np.sign(weight @ side_of) or 1.0)
    side[level] = side_of
    slope[places] = SHARPNESS * (side[:-1] - side[-1])
    return Split(number, slope, float(SHARPNESS * side[-1]))


def _category_means(which: IntArray, n_levels: int, target: FloatArray, weight: FloatArray) -> FloatArray:
    """Mean target (n,) of each row's category; of several the first principal component."""
    total = np.bincount(which, weight, n_levels + 1)
    sums = np.stack([np.bincount(which, weight * each, n_levels + 1) for each in target])
    means: FloatArray = sums / np.where(total > 0, total, 1.0)
    if len(means) > 1:
        centred = means - (means @ total / total.sum())[:, None]
        direction = np.linalg.svd(centred * np.sqrt(total))[0][:, 0]
        return np.asarray((direction @ centred)[which])
    return np.asarray(means[0][which])


def _best_cut(value: FloatArray, target: FloatArray, weight: FloatArray, least: float) -> tuple[float, float]:
    """Reduction of the weighted sums of squares by the best cut, and the cut; (0, 0) if there is none."""
    order = np.argsort(value, kind="stable")
    value, w, wt = value[order], weight[order].cumsum(), (weight * target)[:, order].cumsum(axis=1)
    whole = w[-1]
    # Differences that only rounding makes in means of categories are none.
    cuts = np.flatnonzero(np.diff(value) > _CONSTANT * (1 + np.abs(value[:-1])))
    cuts = cuts[(w[cuts] >= least - _CONSTANT) & (whole - w[cuts] >= least - _CONSTANT)]
    if len(cuts) == 0:
        return 0.0, 0.0
    left, all_rows = wt[:, cuts], wt[:, -1:]
    gains = left**2 / w[cuts] + (all_rows - left) ** 2 / (whole - w[cuts]) - all_rows**2 / whole
    gain = gains.sum(axis=0)
    best = cuts[gain.argmax()]
    return float(gain.max()), float(value[best] + value[best + 1]) / 2


def _cuts(value: FloatArray) -> FloatArray:
    """Between all distinct values, or between quantiles where there are many."""
    distinct = np.unique(value)
    if len(distinct) <= _CUTS + 1:
        out: FloatArray = (distinct[:-1] + distinct[1:]) / 2
        return out[np.diff(distinct) > _CONSTANT * (1 + np.abs(distinct[:-1]))]
    quantiles = np.unique(np.quantile(value, np.linspace(0, 1, _CUTS + 2)[1:-1], method="lower"))
    after = distinct[np.minimum(np.searchsorted(distinct, quantiles, side="right"), len(distinct) - 1)]
    return np.unique(((quantiles + after) / 2)[after > quantiles])


def _gains(
    design: FloatArray, target: FloatArray, weight: FloatArray, side: IntArray, n_cuts: int
) -> FloatArray:
    """By how much lines on both sides of each cut lower the weighted squared errors of one, (n_cuts,)."""
    order = np.argsort(side, kind="stable")
    ends = np.searchsorted(side[order], np.arange(n_cuts + 2))
    grams, moments, squares = [], [], []
    for first, last in pairwise(ends):
        rows = order[first:last]
        weighted = design[rows] * weight[rows, None]
        grams.append(weighted.T @ design[rows])
        moments.append(weighted.T @ target[rows])
        squares.append(weight[rows] @ target[rows] ** 2)
    parts = [np.cumsum(np.stack(each), axis=0) for each in (grams, moments, squares)]
    whole = _errors(*(each[-1:] for each in parts))
    left = _errors(*(each[:-1] for each in parts))
    return whole - left - _errors(*(each[-1] - each[:-1] for each in parts))


def _errors(gram: FloatArray, moment: FloatArray, square: FloatArray) -> FloatArray:
    """Least squared errors, penalised, of C lines: (C, p, p), (C, p), (C,) -> (C,)."""
    ridge = np.full(gram.shape[-1], _RIDGE)
    ridge[0] = 1e-6 * _RIDGE
    scale = np.maximum(gram[:, 0, 0], 1e-9)
    held = gram + scale[:, None, None] * np.diag(ridge)
    solution = np.linalg.solve(held, moment[..., None])[..., 0]
    out: FloatArray = square - (moment * solution).sum(-1)
    return out


# Of rows whose hazard underflows.
_LEAST_HAZARD = 1e-12


def gates_of_targets(
    sample: Sample,
    targets: Tensor,
    n_gate_features: int,
    columns: GateColumns,
    topology: Topology,
    min_leaf: float,
) -> GateParameters:
    """Gates of one column each by a regression tree of predictions of teachers, (R, J, M)."""
    # Leaves have at least `min_leaf` of the weight (Hinton, Vinyals and Dean 2015, "Distilling the knowledge
    # in a neural network").
    stored = first_features(sample.x, n_gate_features).to("cpu", torch.float64)
    weight, values = sample.weight.double(), targets.double().cpu().numpy()
    share = (weight / weight.sum(-1, keepdim=True)).cpu().numpy()
    trees = [
        regression_tree(stored.of_split(split), values[k], share[k], columns, topology, min_leaf)
        for k, split in enumerate(stored.split.tolist())
    ]
    return gates_of_splits(trees, topology, n_gate_features, targets.double())


def single_leaf(tree: SoftTree) -> SoftTree:
    """A tree of depth 0 with the family, features and time scale of another, its parameters zero."""
    single = tree.blank(0, tree.family, tree.batch_shape)
    single.log_time_scale.copy_(tree.log_time_scale)
    return single


def initialize_regression(tree: SoftTree, objective: TrainingObjective, sample: Sample) -> SoftTree:
    """Leaves that are all the regression without gates, in place; it is returned as a tree of depth 0."""
    teacher = single_leaf(tree)
    start_leaves(teacher, sample)
    Joint().train(teacher, objective, sample)
    for node in tree.topology.leaves:
        tree.leaf(node).load_state_dict(teacher.leaf(1).state_dict())
    return teacher


@torch.no_grad()
def log_hazard_targets(tree: SoftTree, sample: Sample, log_time: Tensor) -> Tensor:
    """Log cumulative hazard of each row's leaf at a time (R,) x the root of the number of events, (R, M)."""
    at = (log_time.to(tree.log_time_scale) - tree.log_time_scale)[:, None, None]
    hazard = _hazards(tree, sample, at).gather(1, tree.apply_leaf(sample.x)[:, None]).squeeze(1)
    n_events = (sample.weight * sample.event).sum(-1, keepdim=True)
    return n_events.sqrt() * hazard.clamp(min=_LEAST_HAZARD).log()


@torch.no_grad()
def predicted_log_time(teacher: SoftTree, sample: Sample) -> Tensor:
    """A log time that orders rows by risk, (R, M): the linear predictor, negated unless it is of times."""
    # With linear shapes: minus the log cumulative hazard at the geometric mean of the training times.
    family = teacher.family
    if family.ancillary == "constant" and family.ratio is not None:
        linear = teacher.leaf_parameters().linear_predictor(sample.x).squeeze(1)
        return linear if family.ratio == "time ratio" else -linear
    hazard = _hazards(teacher, sample, torch.zeros_like(teacher.log_time_scale)[:, None, None]).squeeze(1)
    least = torch.finfo(hazard.dtype).tiny
    return -hazard.clamp(min=least, max=1 / least).log()


def _hazards(tree: SoftTree, sample: Sample, log_time: Tensor) -> Tensor:
    """Cumulative hazards of rows in all leaves at log times in model units (R, 1, 1), (R, L, M)."""
    leaves = tree.leaf_parameters()
    linear = leaves.linear_predictor(sample.x)[..., None]
    shape = leaves.shape_parameters(sample.x)[..., None, :]
    at = log_time[..., None].expand_as(linear)
    return tree.family.cumulative_hazard(at, linear, shape).squeeze(-1)


# Trees of a bag, their depth, the share of the subjects each sees and at most how many, rows in a leaf, share
# of the features that a node may use, intervals of a feature; rows times trees that are worked on at once.
_TREES, _DEPTH, _SHARE, _MOST, _ROWS, _COLUMNS, _BINS = 60, 6, 0.632, 4_000, 10, 0.5, 32
_ELEMENTS = 2**21
# Gains that differ by a smaller share are the same.
_SAME = 1e-12


def residual_bag(
    x: DesignMatrix, residual: FloatArray, weight: FloatArray, subject: IntArray, seed: int
) -> FloatArray:
    """What trees that have not seen a row's `subject` predict for its residual, (n,); 0 if all have."""
    rng = np.random.default_rng(seed)
    n_subjects = int(subject.max()) + 1
    n_seen = min(int(_SHARE * n_subjects), _MOST)
    bins = _Bins.of(x)
    total, count = np.zeros(len(x)), np.zeros(len(x))
    size = max(1, _ELEMENTS // len(x))
    for begin in range(0, _TREES, size):
        seen = np.zeros((min(size, _TREES - begin), n_subjects), dtype=bool)
        for own in seen:
            own[rng.permutation(n_subjects)[:n_seen]] = True
        outside = ~seen[:, subject]
        predicted = bins.grow(residual, weight, ~outside, rng)
        total += np.where(outside, predicted, 0.0).sum(0)
        count += outside.sum(0)
    return total / np.maximum(count, 1)


@dataclass(frozen=True)
class _Bins:
    """Rows as trees of a bag see them: the interval of each number, and the level of each category."""

    bins: npt.NDArray[Any]  # of rows, (n, C)
    n_bins: IntArray  # of each column; levels of a category with one for none, (C,)
    # first feature of each column in the order of features, its number, and whether it is a category
    columns: tuple[tuple[int, int, bool], ...]
    n_features: int

    @classmethod
    def of(cls, x: DesignMatrix) -> Self:
        """Numbers are cut between few values, or at quantiles."""
        parts: list[npt.NDArray[Any]] = []
        columns: list[tuple[int, int, bool]] = []
        for place, values in zip(x.places.tolist(), x.numbers.numpy().T, strict=True):
            edges = np.unique(values)[:-1]
            if len(edges) >= _BINS:
                edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
            columns.append((place, len(parts), False))
            parts.append(np.searchsorted(edges, values, side="left"))
        n_bins = [max(2, int(each.max(initial=0)) + 1) for each in parts]
        for k, (place, size) in enumerate(x.blocks):
            assert x.codes is not None
            columns.append((place, len(parts), True))
            parts.append(x.codes[:, k].numpy())
            n_bins.append(size + 1)
        bins = np.stack(parts, 1).astype(np.int16 if max(n_bins) < 2**15 else np.int64)
        return cls(bins, np.array(n_bins), tuple(sorted(columns)), x.shape[-1])

    def grow(
        self, target: FloatArray, weight: FloatArray, inside: BoolArray, rng: np.random.Generator
    ) -> FloatArray:
        """Predictions (T, n) of T least-squares trees of the rows `inside` (T, n), level by level."""
        (n_trees, n), q = inside.shape, self.n_features
        tried = max(1, int(np.ceil(_COLUMNS * q)))
        of_level = np.array([categorical for _, _, categorical in sorted(self.columns, key=lambda c: c[1])])
        tree, row = np.nonzero(inside & (weight > 0))
        w, wt = weight[row], (weight * target)[row]

        def goes_right(rows: IntArray, column: IntArray, cut: IntArray) -> BoolArray:
            """Whether rows go right at nodes with a column, -1 for none, and a cut or a level."""
            value = self.bins[rows, column]
            return np.asarray((column >= 0) & np.where(of_level[column], value == cut, value > cut))

        node, at = np.zeros(len(row), dtype=np.int64), np.zeros((n_trees, n), dtype=np.int64)
        for level in range(_DEPTH):
            size = n_trees * 2**level
            place = tree * 2**level + node
            order = rng.random((size, q)).argsort(axis=1)
            allowed = np.zeros((size, q), dtype=bool)
            np.put_along_axis(allowed, order[:, :tried], True, axis=1)
            best, column, cut = np.full(size, _LEAST_GAIN), np.full(size, -1), np.zeros(size, dtype=np.int64)
            for feature, number, categorical in self.columns:
                width = int(self.n_bins[number])
                key = place * width + self.bins[row, number]
                rows, mass, left = (
                    np.bincount(key, values, size * width).reshape(size, width) for values in (None, w, wt)
                )
                all_rows, all_mass, total = (each.sum(axis=1, keepdims=True) for each in (rows, mass, left))
                if categorical:
                    rows, mass, left = all_rows - rows, all_mass - mass, total - left
                else:
                    rows, mass, left = (each.cumsum(axis=1) for each in (rows, mass, left))
                rows, mass, left = (each[:, :-1] for each in (rows, mass, left))
                fits = (rows >= _ROWS) & (all_rows - rows >= _ROWS)
                fits &= allowed[:, feature : feature + (width - 1 if categorical else 1)]
                with np.errstate(divide="ignore", invalid="ignore"):
                    gain = left**2 / mass + (total - left) ** 2 / (all_mass - mass)
                    gain = np.where(fits, gain - total**2 / all_mass, -np.inf)
                most = gain.max(axis=1)
                # The first of cuts that gain the same but for rounding.
                k = (gain >= (most - _SAME * np.abs(most))[:, None]).argmax(axis=1)
                found = np.take_along_axis(gain, k[:, None], axis=1)[:, 0]
                better = found > best + _SAME * np.abs(best)
                best, column = np.where(better, found, best), np.where(better, number, column)
                cut = np.where(better, k, cut)
            if (column < 0).all():
                break
            node = 2 * node + goes_right(row, column[place], cut[place])
            place = np.arange(n_trees)[:, None] * 2**level + at
            at = 2 * at + goes_right(np.arange(n), column[place], cut[place])
        n_leaves = int(max(node.max(initial=0), at.max(initial=0))) + 1
        key = tree * n_leaves + node
        mass, sums = (np.bincount(key, values, n_trees * n_leaves) for values in (w, wt))
        means = np.divide(sums, mass, out=np.zeros(len(sums)), where=mass > 0).reshape(n_trees, n_leaves)
        return np.take_along_axis(means, at, axis=1)
