"""Stability of the groups of a tree over resamples of the subjects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_integer, check_tree
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.groups.tree import Partition, SurvivalTree
from sstorch.metrics.groups import adjusted_rand_index

# Columns that the text names.
_NAMED = 3


def stability(
    tree: SurvivalTree, X: object, y: object, n_resamples: int = 50, sample_weight: object = None
) -> Stability:
    """Estimate the stability of groups and of their columns over resamples of the subjects.

    Each resample trains a tree with the parameters of the estimator; the weight of a subject is multiplied by
    the number of draws, and an exact search chooses the size again. ``print`` and ``tree.summary()`` show the
    result. A loaded soft tree uses the default trainer.

    ``min_leaf`` and ``min_events`` of an exact tree count the distinct rows of a resample, about 63 %.

    Args:
        tree: fitted.
        X: training rows.
        y: outcome of the rows, as in ``fit``.
        n_resamples: number of resamples.
        sample_weight: (n,), >= 0, as in ``fit``.

    Raises:
        DataError: the data are invalid, or a resample has no event, or no event of a cause.
        ConfigError: ``n_resamples`` is not an integer >= 1.

    References:
        Hubert and Arabie (1985), "Comparing partitions", Journal of Classification 2, 193-218. Philipp,
        Rusch, Hornik and Strobl (2018), "Measuring the stability of results from supervised statistical
        learning", Journal of Computational and Graphical Statistics 27, 685-700.
    """
    check_tree(tree, "_can_divide")
    data = tree._rows(X, y, sample_weight)
    splits, _ = resamples(data, n_resamples, tree._seed)
    others = [groups_of(data.frame) for groups_of in tree._trained(data, splits)]
    found = agreement(tree._partition(data.frame), others, list(data.frame.columns))
    tree._chosen.stability_ = found
    return found


@dataclass(frozen=True, eq=False)
class Stability:
    """Stability of groups over trees fitted to resamples.

    Attributes:
        groups: group of each row in the tree, shape (n,).
        resampled: group of each row in each of the K trees of resamples, shape (K, n). Groups have the number
            of the group of the tree with the most shared rows; additional groups have further numbers.
        ari: adjusted Rand index of the groups of two resamples, mean over pairs: 1 for identical groups, 0 on
            average for agreement by chance. Consecutive rows of a subject with equal covariates count as one.
        ari_of_tree: adjusted Rand index of the tree and a resample, mean over resamples.
        moves: share of the resamples in which the group of a row differs from the tree, shape (n,).
        columns: share of the resamples in which a gate uses a column (bootstrap inclusion frequency), by
            column.
    """

    groups: IntArray
    resampled: IntArray
    ari: float
    ari_of_tree: float
    moves: FloatArray
    columns: pd.Series

    def table(self) -> pd.DataFrame:
        """Summarise stability by group.

        Returns:
            Indexed by group: ``rows``, ``moves`` (mean), and ``stay``, the share of the rows that stay in the
            group in more than half of the resamples.
        """
        grouped = pd.DataFrame({"group": self.groups, "moves": self.moves}).groupby("group")["moves"]
        parts = {"rows": grouped.size(), "moves": grouped.mean()}
        return pd.DataFrame(parts | {"stay": grouped.apply(lambda moves: (moves < 0.5).mean())})

    def __str__(self) -> str:
        lines = [
            f"Stability of the groups over {len(self.resampled)} resamples",
            f"adjusted Rand index: {self.ari:.2f} between resamples, {self.ari_of_tree:.2f} with the tree",
            f"a row changes its group in {100 * self.moves.mean():.0f} % of the resamples",
        ]
        for group, row in self.table().iterrows():
            lines.append(
                f"  group {group}: {int(row['rows'])} rows, change in {100 * row['moves']:.0f} %; "
                f"{100 * row['stay']:.0f} % of them stay in most resamples"
            )
        used = self.columns[self.columns > 0].sort_values(ascending=False, kind="stable")
        named = ", ".join(f"{name} ({100 * share:.0f} %)" for name, share in used[:_NAMED].items())
        more = f" and {len(used) - _NAMED} more" if len(used) > _NAMED else ""
        return "\n".join([*lines, f"gates use {named or 'no column'}{more}"])


def agreement(own: Partition, others: Sequence[Partition], columns: Sequence[str]) -> Stability:
    """Compare the groups of a tree with those of trees of resamples, all of the same rows."""
    leaves = np.stack([other.leaf for other in others])
    # Numbers as positions, and back: a number that no tree has would be matched as a group without rows.
    numbers, place = np.unique([own.leaf, *leaves], return_inverse=True)
    place = place.reshape(len(leaves) + 1, -1)
    matched = numbers[np.stack([_matched(place[0], leaf, len(numbers)) for leaf in place[1:]])]
    between = adjusted_rand_index(np.concatenate([own.leaf[None], leaves]))
    pairs = between[1:, 1:][np.triu_indices(len(leaves), 1)]
    return Stability(
        groups=own.leaf,
        resampled=matched,
        ari=float(pairs.mean()) if len(pairs) else float("nan"),
        ari_of_tree=float(between[0, 1:].mean()),
        moves=(matched != own.leaf).mean(axis=0),
        columns=pd.Series({name: np.mean([name in other.columns for other in others]) for name in columns}),
    )


def _matched(group: IntArray, leaf: IntArray, n_groups: int) -> IntArray:
    """Leaves renumbered one to one, so that as many rows as possible have the number of their group."""
    shared = np.bincount(group * n_groups + leaf, minlength=n_groups**2).reshape(n_groups, n_groups)
    groups, leaves = linear_sum_assignment(shared, maximize=True)
    number = np.empty(n_groups, dtype=np.int64)
    number[leaves] = groups
    return number[leaf]


def resamples(data: SurvivalData, n_resamples: int, seed: int) -> tuple[list[SurvivalData], IntArray]:
    """Rows of positive weight drawn with replacement, by subject where a subject has several rows.

    Returns the rows of each resample, weighted by how often they were drawn, and these numbers, (K, n).
    Raises DataError if a resample has no event, or none of one of the causes.
    """
    count = check_integer("n_resamples", n_resamples, 1)
    generator = np.random.default_rng((seed, count))
    n_drawn = len(data) if data.subject is None else int(data.subject.max()) + 1
    shares = np.full(n_drawn, 1 / n_drawn)
    counts = np.stack([generator.multinomial(len(shares), shares) for _ in range(count)])
    if data.subject is not None:
        counts = counts[:, data.subject]
    splits = [data.reweighted(drawn) for drawn in counts]
    for number, name in enumerate(("",) if data.causes is None else data.cause_names, 1):
        if not all((split.cause == number).any() for split in splits):
            events = f"{(data.cause == number).sum()} events" + (f" of cause {name}" if name else "")
            raise DataError(
                f"a resample of {len(data)} rows with {events} has none: a bootstrap needs more events"
            )
    return splits, counts
