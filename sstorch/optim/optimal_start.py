"""Exact optimal trees as initial solutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.hard_tree import (
    FloatArray,
    HardTree,
    IntArray,
    StartRows,
    grow_starts,
    initialize_hard,
)
from sstorch.optimal import Binarizer, BinaryTree, LogLikelihood, Rule, solve

# A leaf with fewer events would have nothing to estimate its hazard from; the same as in greedy trees.
_MIN_EVENTS = 3
MAX_DEPTH = 5


def exact_tree(
    x: FloatArray,
    time: FloatArray,
    event: npt.NDArray[np.bool_],
    depth: int,
    min_events: int = _MIN_EVENTS,
    features: IntArray | None = None,
) -> HardTree:
    """The tree of least deviance (`sstorch.optimal.LogLikelihood`) over ten thresholds of each feature.

    Thresholds are moved to the middle of the gap between the values on their two sides in the rows of the
    node. A node without a split sends all rows left.

    Args:
        x: features, shape (n, p).
        time: shape (n,).
        event: shape (n,).
        depth: D, at most 5.
        min_events: rows with an event that each leaf must have.
        features: columns that may split, all if None.

    Raises:
        ConfigError: too many features for the depth.
    """
    chosen = np.full(2**depth - 1, -1, dtype=np.int64)
    thresholds = np.zeros(2**depth - 1)
    columns = np.arange(x.shape[1]) if features is None else features
    columns = columns[np.ptp(x[:, columns], axis=0) > 0]
    if depth == 0 or len(columns) == 0 or event.sum() < 2 * min_events:
        return HardTree(chosen, thresholds)
    # All columns are numbers here: indicators of categories are split at 1/2.
    binarizer = Binarizer("quantiles").fit(x[:, columns])
    solution = solve(
        binarizer.transform(x[:, columns]), LogLikelihood(time, event), depth, min_events=min_events
    )
    position = {name: int(column) for name, column in zip(binarizer.feature_names_in_, columns, strict=True)}
    tree = solution.tree()
    _place(tree, 0, 1, np.arange(len(x)), x, binarizer.rules_, position, chosen, thresholds)
    return HardTree(chosen, thresholds)


def initialize_optimal(
    tree: SoftTree,
    objective: TrainingObjective,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
) -> None:
    """Exact trees: the first start of a split is that of its rows, the others are of bootstrap samples.

    Those others also see a random half of the features, as in `initialize_greedy`. Row weights decide which
    rows are seen (those above zero) and count as one otherwise; entry times do not enter the search.

    Args:
        tree: R problems, ordered by split; changed in place.
        objective: its penalties on leaves act in the maximum likelihood.
        sample: training rows.
        seeds: one per problem.

    Raises:
        ConfigError: the tree is too deep for exact search, or there are too many features for its depth.
    """
    depth = tree.topology.depth
    if depth > MAX_DEPTH:
        raise ConfigError(
            f"init='optimal' searches trees of depth 0 to {MAX_DEPTH}, got {depth}; use init='greedy'"
        )
    initialize_hard(tree, objective, sample, grow_starts(sample, seeds, lambda rows: _search(rows, depth)))


def _search(rows: StartRows, depth: int) -> HardTree:
    index = np.repeat(np.arange(len(rows.x)), rows.repeats)
    try:
        return exact_tree(rows.x[index], rows.time[index], rows.event[index], depth, features=rows.features)
    except ConfigError as error:
        raise ConfigError(f"init='optimal': {error}; or use init='greedy'") from error


def _place(
    tree: BinaryTree,
    node: int,
    heap: int,
    rows: IntArray,
    x: FloatArray,
    rules: Sequence[Rule],
    position: dict[str, int],
    chosen: IntArray,
    thresholds: FloatArray,
) -> None:
    """Write the subtree of a node at a place of the full tree, numbered as a heap."""
    feature = int(tree.feature[node])
    if feature < 0:
        return
    rule = rules[feature]
    column = position[rule.column]
    above = x[rows, column] > rule.low
    chosen[heap - 1] = column
    thresholds[heap - 1] = (x[rows[above], column].min() + x[rows[~above], column].max()) / 2
    for child, place, part in ((tree.absent, 2 * heap, ~above), (tree.present, 2 * heap + 1, above)):
        _place(tree, int(child[node]), place, rows[part], x, rules, position, chosen, thresholds)
