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

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.optim.starts.distilled import GateColumns, Split, column_values, deviations, split_at

# Trees of a bag, the share of the subjects each sees and at most how many, rows in a leaf, share of the
# columns that are tried at a cut.
_TREES, _SHARE, _MOST, _ROWS, _COLUMNS = 60, 0.632, 4_000, 10, 0.5
# Cuts of a column that are tried, and ridge of the lines, as a share of the weight of a side.
_CUTS, _RIDGE = 9, 0.02
_LEAST_GAIN = 1e-9


def residual_bag(
    x: FloatArray, residual: FloatArray, weight: FloatArray, subject: IntArray, seed: int
) -> FloatArray:
    """What trees that have not seen a row predict for its residual, (n,); 0 where all have seen it.

    Args:
        x: features of gates, (n, q).
        residual: shape (n,).
        weight: >= 0, shape (n,).
        subject: number of each row's subject, 0 ... P - 1, shape (n,); its rows are all seen or none.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    total, count = np.zeros(len(x)), np.zeros(len(x))
    n_subjects = int(subject.max()) + 1
    n_seen = min(int(_SHARE * n_subjects), _MOST)
    residual = np.ascontiguousarray(residual, dtype=np.float64)[:, None]
    narrow = np.ascontiguousarray(x, dtype=np.float32)
    for _ in range(_TREES):
        seen = np.zeros(n_subjects, dtype=bool)
        seen[rng.permutation(n_subjects)[:n_seen]] = True
        inside = seen[subject] & (weight > 0)
        outside = ~seen[subject]
        tree = DecisionTreeRegressor(
            min_samples_leaf=_ROWS, max_features=_COLUMNS, random_state=int(rng.integers(2**31))
        )
        if not inside.any() or not outside.any():
            continue
        tree.fit(narrow[inside], residual[inside], sample_weight=weight[inside], check_input=False)
        total[outside] += tree.predict(narrow[outside], check_input=False)
        count[outside] += 1
    out: FloatArray = total / np.maximum(count, 1)
    return out


@dataclass
class _Node:
    """A node of a tree that grows: its rows, and its best split with what it gains and who goes left."""

    number: int
    rows: IntArray
    gain: float
    split: Split | None
    left: BoolArray


def model_tree(
    x: FloatArray,
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

    Args:
        x: features of gates, (n, q).
        lines: what the lines of each side are of, standardised, (n, p).
        target: shape (J, n); errors of several targets are summed.
        precision: weights of the errors of each target, >= 0, (J, n).
        weight: of rows, >= 0, with sum one, (n,).
        columns: of the features.
        depth: of the tree.
        n_leaves: at most.
        min_leaf: least weight of a leaf.
    """
    grower = _Grower(
        x, np.column_stack([np.ones(len(x)), lines]), target, precision, weight, columns, min_leaf
    )
    nodes = [grower.node(1, np.flatnonzero(weight > 0))]
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
            nodes.append(grower.node(2 * node.number + number, rows))
    return splits


@dataclass
class _Grower:
    """Finds the best split of nodes."""

    x: FloatArray
    design: FloatArray
    target: FloatArray
    precision: FloatArray
    weight: FloatArray
    columns: GateColumns
    min_leaf: float

    def __post_init__(self) -> None:
        self._deviation = deviations(self.x, self.weight)

    def node(self, number: int, rows: IntArray) -> _Node:
        """A node with its best split."""
        best = _Node(number, rows, _LEAST_GAIN, None, np.zeros(len(rows), dtype=bool))
        weight = self.weight[rows]
        if weight.sum() < 2 * self.min_leaf:
            return best
        target, precision = self.target[:, rows], self.precision[:, rows]
        for column, (places, categorical) in enumerate(
            zip(self.columns.places, self.columns.categorical, strict=True)
        ):
            block = self.x[np.ix_(rows, places)]
            value = column_values(block, categorical, target, weight)
            cuts = _cuts(value)
            if len(cuts) == 0:
                continue
            side = np.searchsorted(cuts, value, side="left")
            mass = np.bincount(side, weight, len(cuts) + 1).cumsum()[:-1]
            allowed = np.minimum(mass, weight.sum() - mass) >= self.min_leaf - 1e-9
            if not allowed.any():
                continue
            gain = sum(
                _gains(self.design[rows], each, own, side, len(cuts))
                for each, own in zip(target, precision, strict=True)
            )
            gain = np.where(allowed, gain, -np.inf)
            k = int(gain.argmax())
            if gain[k] > best.gain:
                split = split_at(
                    column, places, categorical, block, value, float(cuts[k]), weight, self._deviation
                )
                best = _Node(number, rows, float(gain[k]), split, side <= k)
        return best


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
