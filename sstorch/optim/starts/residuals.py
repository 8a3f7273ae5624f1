"""Gates where a regression errs: a tree of lines on what a bag of trees finds in its score residuals.

The residual of a row is the Newton step its own likelihood would take from the regression. Trees of a bag are
grown on them, and each row is given the mean of those that have not seen it: what the regression misses, with
little of the noise. Gates are then those of a model tree: each side of a cut has a line of its own, so that a
slope that differs between groups is found, which a difference of means would not show.

References:
    Breiman (1996), Machine Learning 24, 123-140, bagging and out-of-bag estimates; Zeileis, Hothorn and
    Hornik (2008), Journal of Computational and Graphical Statistics 17, 492-514, trees of models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.design_matrix import DesignMatrix
from sstorch.optim.starts.regression_tree import (
    GateColumns,
    Split,
    column_values,
    deviations,
    in_order,
    split_at,
)

# Trees of a bag, their depth, the share of the subjects each sees and at most how many, rows in a leaf, share
# of the features that a node may use, intervals of a feature; rows times trees that are worked on at once.
_TREES, _DEPTH, _SHARE, _MOST, _ROWS, _COLUMNS, _BINS = 60, 6, 0.632, 4_000, 10, 0.5, 32
_ELEMENTS = 2**21
# Cuts of a column that are tried, and ridge of the lines, as a share of the weight of a side.
_CUTS, _RIDGE = 9, 0.02
_LEAST_GAIN = 1e-9
# Gains that differ by a smaller share are the same.
_SAME = 1e-12


def residual_bag(
    x: DesignMatrix, residual: FloatArray, weight: FloatArray, subject: IntArray, seed: int
) -> FloatArray:
    """What trees that have not seen a row's `subject` predict for its residual, (n,); 0 if all have."""
    rng = np.random.default_rng(seed)
    n_subjects = int(subject.max()) + 1
    n_seen = min(int(_SHARE * n_subjects), _MOST)
    binned = _binned(x)
    total, count = np.zeros(len(x)), np.zeros(len(x))
    size = max(1, _ELEMENTS // len(x))
    for begin in range(0, _TREES, size):
        seen = np.zeros((min(size, _TREES - begin), n_subjects), dtype=bool)
        for own in seen:
            own[rng.permutation(n_subjects)[:n_seen]] = True
        outside = ~seen[:, subject]
        predicted = _grow(binned, residual, weight, ~outside, rng)
        total += np.where(outside, predicted, 0.0).sum(0)
        count += outside.sum(0)
    return total / np.maximum(count, 1)


def _binned(x: DesignMatrix) -> DesignMatrix:
    """The rows as trees of a bag see them, with the interval of each number in its place."""
    numbers = x.numbers.numpy()
    bins = np.empty(numbers.shape, dtype=np.int8)
    for j, values in enumerate(numbers.T):
        bins[:, j] = np.searchsorted(_edges(values), values, side="left")
    return replace(x, numbers=torch.as_tensor(bins))


def _edges(column: FloatArray) -> FloatArray:
    """Where a column is cut for the trees of a bag: between few values, or at quantiles."""
    distinct = np.unique(column)
    if len(distinct) <= _BINS:
        return distinct[:-1]
    return np.unique(np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1]))


def _grow(
    binned: DesignMatrix, target: FloatArray, weight: FloatArray, inside: BoolArray, rng: np.random.Generator
) -> FloatArray:
    """Predictions (T, n) of T least-squares trees of the rows `inside` (T, n), all trees level by level."""
    n_trees, n, q = len(inside), len(binned), binned.shape[-1]
    bins = binned.numbers.numpy()
    codes = None if binned.codes is None else binned.codes.numpy()
    # Of each feature the column of its interval, or of its block of codes, and its level, -1 of numbers.
    column, level_of = np.empty(q, dtype=np.int64), np.full(q, -1)
    column[binned.places.numpy()] = np.arange(bins.shape[1])
    for k, (first, size) in enumerate(binned.blocks):
        column[first : first + size], level_of[first : first + size] = k, np.arange(size)

    def goes_right(rows: IntArray, feature: IntArray, cut: IntArray) -> BoolArray:
        """Whether rows go right at nodes with a feature, -1 for none, and a cut."""
        at, own = column[feature], level_of[feature]
        if codes is None:
            return np.asarray((feature >= 0) & (bins[rows, at] > cut))
        number, right = own < 0, np.zeros(np.broadcast_shapes(rows.shape, feature.shape), dtype=bool)
        rows, at = np.broadcast_to(rows, right.shape), np.broadcast_to(at, right.shape)
        right[number] = bins[rows[number], at[number]] > cut[number]
        right[~number] = codes[rows[~number], at[~number]] == own[~number]
        return np.asarray((feature >= 0) & right)

    n_bins = np.maximum(2, bins.max(axis=0, initial=0).astype(np.int64) + 1)
    tried = max(1, int(np.ceil(_COLUMNS * q)))
    tree, row = np.nonzero(inside & (weight > 0))
    w, wt = weight[row], (weight * target)[row]
    node, at = np.zeros(len(row), dtype=np.int64), np.zeros((n_trees, n), dtype=np.int64)
    for level in range(_DEPTH):
        size = n_trees * 2**level
        place = tree * 2**level + node
        order = rng.random((size, q)).argsort(axis=1)
        allowed = np.zeros((size, q), dtype=bool)
        np.put_along_axis(allowed, order[:, :tried], True, axis=1)
        best, feature, cut = np.full(size, _LEAST_GAIN), np.full(size, -1), np.zeros(size, dtype=np.int64)
        for j, n_levels in in_order(binned):
            if n_levels is None:
                width, tried_here = int(n_bins[column[j]]), allowed[:, j : j + 1]
                key = place * width + bins[row, column[j]]
            else:
                assert codes is not None
                width, tried_here = n_levels + 1, allowed[:, j : j + n_levels]
                key = place * width + codes[row, column[j]]
            rows, mass, sums = (
                np.bincount(key, values, size * width).reshape(size, width) for values in (None, w, wt)
            )
            # Left of a cut are the bins up to it, or all rows but those of a level.
            all_rows, all_mass, total = (each.sum(axis=1, keepdims=True) for each in (rows, mass, sums))
            if n_levels is None:
                rows, mass, left = (each.cumsum(axis=1)[:, :-1] for each in (rows, mass, sums))
            else:
                rows, mass, left = all_rows - rows[:, :-1], all_mass - mass[:, :-1], total - sums[:, :-1]
            right = total - left
            fits = (rows >= _ROWS) & (all_rows - rows >= _ROWS) & tried_here
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = left**2 / mass + right**2 / (all_mass - mass)
                gain = np.where(fits, gain - total**2 / all_mass, -np.inf)
            most = gain.max(axis=1)
            # The first of cuts that gain the same but for rounding.
            k = (gain >= (most - _SAME * np.abs(most))[:, None]).argmax(axis=1)
            found = np.take_along_axis(gain, k[:, None], axis=1)[:, 0]
            better = found > best + _SAME * np.abs(best)
            best, feature, cut = (
                np.where(better, found, best),
                np.where(better, j if n_levels is None else j + k, feature),
                np.where(better, k, cut),
            )
        if (feature < 0).all():
            break
        node = 2 * node + goes_right(row, feature[place], cut[place])
        place = np.arange(n_trees)[:, None] * 2**level + at
        at = 2 * at + goes_right(np.arange(n), feature[place], cut[place])
    n_leaves = int(max(node.max(initial=0), at.max(initial=0))) + 1
    key = tree * n_leaves + node
    mass, sums = (np.bincount(key, values, n_trees * n_leaves) for values in (w, wt))
    means = np.divide(sums, mass, out=np.zeros(len(sums)), where=mass > 0).reshape(n_trees, n_leaves)
    return np.take_along_axis(means, at, axis=1)


@dataclass
class _Node:
    """A node of a tree that grows: its rows, and its best split with what it gains and who goes left."""

    number: int
    rows: IntArray
    gain: float
    split: Split | None
    left: BoolArray


def model_tree(
    x: DesignMatrix,
    lines: FloatArray,
    target: FloatArray,
    precision: FloatArray,
    weight: FloatArray,
    columns: GateColumns,
    depth: int,
    n_leaves: int,
    min_leaf: float,
) -> dict[int, Split]:
    """The greedy tree of least-squares lines of targets, the best split first; by node, in order of growth.

    Lines of each side are of standardised `lines` (n, p), gates of features (n, q). Errors of the targets (J,
    n) are weighted by their precision (J, n) and summed; rows weigh (n,), with sum one.
    """
    design, deviation = np.column_stack([np.ones(len(x)), lines]), deviations(x, weight)

    def with_split(number: int, rows: IntArray) -> _Node:
        """A node with its best split."""
        best = _Node(number, rows, _LEAST_GAIN, None, np.zeros(len(rows), dtype=bool))
        w, t, own, features = weight[rows], target[:, rows], precision[:, rows], design[rows]
        if w.sum() < 2 * min_leaf:
            return best
        for column, (places, categorical) in enumerate(zip(columns.places, columns.categorical, strict=True)):
            value, level = column_values(x, rows, places, categorical, t, w)
            cuts = _cuts(value)
            if len(cuts) == 0:
                continue
            side = np.searchsorted(cuts, value, side="left")
            mass = np.bincount(side, w, len(cuts) + 1).cumsum()[:-1]
            allowed = np.minimum(mass, w.sum() - mass) >= min_leaf - 1e-9
            if not allowed.any():
                continue
            gain = sum(_gains(features, *each, side, len(cuts)) for each in zip(t, own, strict=True))
            gain = np.where(allowed, gain, -np.inf)
            k = int(gain.argmax())
            if gain[k] > best.gain:
                split = split_at(column, places, level, value, float(cuts[k]), w, deviation)
                best = _Node(number, rows, float(gain[k]), split, side <= k)
        return best

    nodes = [with_split(1, np.flatnonzero(weight > 0))]
    splits: dict[int, Split] = {}
    while len(nodes) < n_leaves:
        open_nodes = [node for node in nodes if node.split is not None and node.number < 2**depth]
        if not open_nodes:
            break
        node = max(open_nodes, key=lambda node: node.gain)
        assert node.split is not None
        nodes.remove(node)
        splits[node.number] = node.split
        for number, rows in ((0, node.rows[node.left]), (1, node.rows[~node.left])):
            nodes.append(with_split(2 * node.number + number, rows))
    return splits


def _cuts(value: FloatArray) -> FloatArray:
    """Between all distinct values, or between quantiles where there are many."""
    distinct = np.unique(value)
    if len(distinct) <= _CUTS + 1:
        out: FloatArray = (distinct[:-1] + distinct[1:]) / 2
        return out[np.diff(distinct) > 1e-9 * (1 + np.abs(distinct[:-1]))]
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
    gram, moment, square = (np.cumsum(np.stack(each), axis=0) for each in (grams, moments, squares))
    whole = _errors(gram[-1:], moment[-1:], square[-1:])
    left = _errors(gram[:-1], moment[:-1], square[:-1])
    right = _errors(gram[-1] - gram[:-1], moment[-1] - moment[:-1], square[-1] - square[:-1])
    return whole - left - right


def _errors(gram: FloatArray, moment: FloatArray, square: FloatArray) -> FloatArray:
    """Least squared errors, penalised, of C lines: (C, p, p), (C, p), (C,) -> (C,)."""
    ridge = np.full(gram.shape[-1], _RIDGE)
    ridge[0] = 1e-6 * _RIDGE
    scale = np.maximum(gram[:, 0, 0], 1e-9)
    held = gram + scale[:, None, None] * np.diag(ridge)
    solution = np.linalg.solve(held, moment[..., None])[..., 0]
    out: FloatArray = square - (moment * solution).sum(-1)
    return out
