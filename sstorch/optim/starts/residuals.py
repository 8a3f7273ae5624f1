"""Out-of-bag means of a bag of trees on the residuals of a regression: what it misses, with little noise.

The residual of a row is the Newton step its own likelihood would take from the regression (Breiman 1996,
Machine Learning 24, 123-140, bagging and out-of-bag estimates).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.design_matrix import DesignMatrix

# Trees of a bag, their depth, the share of the subjects each sees and at most how many, rows in a leaf, share
# of the features that a node may use, intervals of a feature; rows times trees that are worked on at once.
_TREES, _DEPTH, _SHARE, _MOST, _ROWS, _COLUMNS, _BINS = 60, 6, 0.632, 4_000, 10, 0.5, 32
_ELEMENTS = 2**21
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
