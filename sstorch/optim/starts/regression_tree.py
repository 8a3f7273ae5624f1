"""Gates of one raw column: rows as gates are placed on them, and greedy least-squares trees of targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import Topology

# A gate goes from .12 to .88 within one standard deviation of its score's only column.
SHARPNESS = 4.0
# What a split must gain of the variance.
_LEAST_GAIN = 1e-9
# A difference, or a standard deviation, that counts as none.
CONSTANT = 1e-9


@dataclass(frozen=True)
class GateColumns:
    """Features of gates by raw column.

    Attributes:
        places: positions of the features of each column; a number precedes its curve.
        categorical: True for a categorical column, with one feature per category.
    """

    places: tuple[IntArray, ...]
    categorical: tuple[bool, ...]


@dataclass(frozen=True)
class Split:
    """A gate on one raw column: left where slope . x + constant >= 0, x the features of gates."""

    column: int  # number of the raw column
    slope: FloatArray  # shape (q,)
    constant: float  # of the score


def deviations(x: DesignMatrix, weight: FloatArray) -> FloatArray:
    """Standard deviations (q,) of the numbers of rows by weights (n,) with sum one; 0 for coded ones."""
    out, numbers = np.zeros(x.shape[-1]), x.numbers.numpy()
    variance = weight @ numbers**2 - (weight @ numbers) ** 2
    out[x.places.numpy()] = np.sqrt(np.maximum(variance, 0))
    return out


def scores(x: DesignMatrix, slope: FloatArray, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Slope . x of rows, (n,), by the features that it looks at."""
    used = np.flatnonzero(slope)
    out: FloatArray = x.columns(used.tolist(), rows).numpy() @ slope[used]
    return out


def levels(x: DesignMatrix, places: IntArray, rows: IntArray) -> IntArray:
    """Level of a category with indicators at some places, 0 ... L - 1, and L for none, (n,)."""
    for k, (first, _) in enumerate(x.blocks):
        if first == places[0] and x.codes is not None:
            return np.asarray(x.codes.numpy()[rows, k], dtype=np.int64)
    block = x.columns(places.tolist(), rows).numpy()
    return np.asarray(np.where(block.any(axis=1), block.argmax(axis=1), len(places)))


def in_order(x: DesignMatrix) -> Iterator[tuple[int, int | None]]:
    """Position and size of each block of indicators, and position and None of each number, in order."""
    numbers: list[tuple[int, int | None]] = [(place, None) for place in x.places.tolist()]
    return iter(sorted([*numbers, *x.blocks], key=lambda each: each[0]))


def regression_tree(
    x: DesignMatrix,
    target: FloatArray,
    weight: FloatArray,
    columns: GateColumns,
    topology: Topology,
    min_leaf: float,
    given: Mapping[int, Split] | None = None,
) -> dict[int, Split]:
    """The greedy least-squares tree of targets (J, n) in features of gates (n, q), by node.

    A number is cut halfway between two values, a column of categories into two sets by the means of the
    target in each, of several targets by their first principal component; rows without any category are one
    more. Gains of several targets are summed. Weights (n,) have the sum one, each side at least `min_leaf`.
    Splits that are `given` stay.

    References:
        Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, 8.4 and 9.4.
    """
    splits: dict[int, Split] = {}
    rows_of, deviation = {1: np.flatnonzero(weight > 0)}, deviations(x, weight)
    for node in topology.branches:
        rows = rows_of.pop(node, None)
        if rows is None or len(rows) == 0:
            continue
        best, found = _LEAST_GAIN, None if given is None else given.get(node)
        w, t = weight[rows], target[:, rows]
        tried = () if found is not None else zip(columns.places, columns.categorical, strict=True)
        for number, (places, categorical) in enumerate(tried):
            value, level = column_values(x, rows, places, categorical, t, w)
            gain, cut = _best_cut(value, t, w, min_leaf)
            if gain > best:
                best, found = gain, split_at(number, places, level, value, cut, w, deviation)
        if found is not None:
            splits[node] = found
            left = scores(x, found.slope, rows) + found.constant >= 0
            rows_of[2 * node], rows_of[2 * node + 1] = rows[left], rows[~left]
    return splits


def column_values(
    x: DesignMatrix,
    rows: IntArray,
    places: IntArray,
    categorical: bool,
    target: FloatArray,
    weight: FloatArray,
) -> tuple[FloatArray, IntArray | None]:
    """What a column is cut by, (n,): a number, or means of targets (J, n) by its level, None of a number."""
    if not categorical:
        return x.columns(places[:1].tolist(), rows)[:, 0].numpy(), None
    level = levels(x, places, rows)
    return _category_means(level, len(places), target, weight), level


def split_at(
    number: int,
    places: IntArray,
    level: IntArray | None,
    value: FloatArray,
    cut: float,
    weight: FloatArray,
    deviation: FloatArray,
) -> Split:
    """The gate on a raw column that sends left what is at most at a cut between two of its values (n,).

    `places` are those of its features among the q of gates, whose deviations are given; `level` (n,) is that
    of a category, None of a number.
    """
    slope = np.zeros(len(deviation))
    if level is None:
        sharpness = SHARPNESS / deviation[places[0]]
        slope[places[0]] = -sharpness
        return Split(number, slope, float(sharpness * cut))
    # A category that no row here has goes the way of most.
    side = np.full(len(places) + 1, np.sign(weight @ np.where(value <= cut, 1.0, -1.0)) or 1.0)
    side[level] = np.where(value <= cut, 1.0, -1.0)
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
    cuts = np.flatnonzero(np.diff(value) > CONSTANT * (1 + np.abs(value[:-1])))
    cuts = cuts[(w[cuts] >= least - CONSTANT) & (whole - w[cuts] >= least - CONSTANT)]
    if len(cuts) == 0:
        return 0.0, 0.0
    left, all_rows = wt[:, cuts], wt[:, -1:]
    gains = left**2 / w[cuts] + (all_rows - left) ** 2 / (whole - w[cuts]) - all_rows**2 / whole
    gain = gains.sum(axis=0)
    best = cuts[gain.argmax()]
    return float(gain.max()), float(value[best] + value[best + 1]) / 2
