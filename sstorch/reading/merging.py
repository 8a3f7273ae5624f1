"""Groups that do not differ, or are too small, taken together: a reading of a tree, not a change of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_part
from sstorch.reading.hooks import ReadableTree, fitted_tree
from sstorch.reading.nodes import shown_leaves
from sstorch.reading.rules import GateRule, conditions

# Times, from zero to the last event, at which mean curves are compared.
_N_TIMES = 101

# Gates on the way to a leaf, and whether the way goes left there.
Path = tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class MergedLeaves:
    """Merged groups of a tree.

    Attributes:
        group: merged group, indexed by group of the tree; 1 for the longest (event-free) survival.
            ``merged.group[tree.apply(X)]`` are the merged groups of rows.
        table: one row per merged group: ``who`` (the rules), ``groups`` of the tree, ``rows``, and mean
            predicted survival ``S(t)`` at three times, or mean predicted incidence of each competing cause,
            ``F(t) CAUSE``.
        distance: largest difference of the mean predicted survival of two merged groups, or of the incidence
            of any cause, at any time up to the last event, shape (G, G).
    """

    group: pd.Series
    table: pd.DataFrame
    distance: FloatArray

    def __str__(self) -> str:
        total, lines = self.table["rows"].sum(), []
        for number, row in self.table.iterrows():
            groups = ", ".join(map(str, row["groups"]))
            name = f"Merged group {number} (group{'s' * (len(row['groups']) > 1)} {groups})"
            lines.append(f"{name}: {row['who']}: {row['rows']} of {total} rows")
        if len(self.table) > 1:
            least = self.distance[np.triu_indices(len(self.table), 1)].min()
            competing = any(str(name).startswith("F(") for name in self.table)
            lines.append(
                f"Mean predicted {'incidences' if competing else 'survival'} of any two merged groups "
                f"differ{'' if competing else 's'} by {least:.3f} or more at some time"
            )
        return "\n".join(lines)


@dataclass
class _Group:
    """Leaves in order, their rows, and the sum of the rows' curves, (K, n_times)."""

    leaves: list[int]
    rows: int
    curves: FloatArray

    def distance(self, other: _Group) -> float:
        """Largest difference of the mean curves; both have rows."""
        return float(np.abs(self.curves / self.rows - other.curves / other.rows).max())

    def __or__(self, other: _Group) -> _Group:
        return _Group(
            sorted([*self.leaves, *other.leaves]), self.rows + other.rows, self.curves + other.curves
        )


def merge_leaves(
    tree: ReadableTree, X: object, tolerance: float = 0.05, min_leaf: float = 0.0
) -> MergedLeaves:
    """Merge groups with similar survival; the tree is unchanged.

    First, every group with a share of rows below ``min_leaf`` is merged with a neighbour, the group with the
    most similar mean curve below the closest common gate. Then the two groups with the most similar mean
    curves are merged repeatedly, until all differ by ``tolerance`` or more. Curves are mean predicted
    survival from zero to the last training event, or predicted incidence of each competing cause; the
    distance is the largest difference at any time. Groups without rows are always merged.

    Args:
        tree: fitted.
        X: rows, preferably the training rows.
        tolerance: difference of probabilities, in [0, 1); with 0 only small groups are merged.
        min_leaf: in [0, 1).

    Raises:
        ConfigError: ``tolerance`` or ``min_leaf`` is not in [0, 1).
    """
    fitted, x, nodes, rules = fitted_tree(tree), tree._encode(X), tree.node_table_, tree._gate_rules
    event_times, n_leaves = tree.event_times_, len(fitted.module.topology.leaves)
    # To the leaves with training rows, by leaf: the gates that are shown, and the side taken.
    ways = {node - n_leaves: tuple(path) for node, path in shown_leaves(nodes).items()}
    tolerance, min_leaf = check_part("tolerance", tolerance), check_part("min_leaf", min_leaf)
    quartiles = np.quantile(event_times, [0.25, 0.5, 0.75])
    times = np.r_[np.linspace(0.0, event_times[-1], _N_TIMES), quartiles]
    leaf = fitted.leaf(x)
    curves = fitted.incidence(x, times) if fitted.competing else fitted.curves(x, times)[:, None]
    groups = [
        _Group([k], int(np.count_nonzero(leaf == k)), curves[leaf == k].sum(axis=0))
        for k in range(len(fitted.module.topology.leaves))
    ]
    while len(groups) > 1:
        small = min(groups, key=lambda group: group.rows)
        if small.rows and small.rows >= min_leaf * len(leaf):
            break
        near = _relatives(small, groups)
        # A leaf without rows has no curve: it goes with the larger group.
        other = min(near, key=small.distance) if small.rows else max(near, key=lambda group: group.rows)
        groups = _joined(groups, small, other)
    while len(groups) > 1:
        one, two = min(combinations(groups, 2), key=lambda pair: pair[0].distance(pair[1]))
        if one.distance(two) >= tolerance:
            break
        groups = _joined(groups, one, two)
    sign = 1 if fitted.competing else -1  # incidences sum to what survival lacks
    groups.sort(key=lambda group: sign * float(group.curves[:, :_N_TIMES].mean()) / max(group.rows, 1))
    merged = {int(fitted.group_numbers[k]): g for g, group in enumerate(groups, 1) for k in group.leaves}
    means = np.array([group.curves / max(group.rows, 1) for group in groups])
    table = pd.DataFrame(
        {
            "who": [_who({ways[k] for k in group.leaves if k in ways}, rules) for group in groups],
            "groups": [sorted(fitted.group_numbers[group.leaves].tolist()) for group in groups],
            "rows": [group.rows for group in groups],
        }
        | {
            (f"F({time:g}) {cause}" if fitted.competing else f"S({time:g})"): means[:, number, _N_TIMES + k]
            for number, cause in enumerate(fitted.causes)
            for k, time in enumerate(quartiles)
        },
        index=pd.RangeIndex(1, len(groups) + 1, name="group"),
    )
    return MergedLeaves(
        pd.Series(merged, name="merged").sort_index().rename_axis("group"),
        table,
        np.abs(means[:, None] - means[None]).max(axis=(-2, -1)),
    )


def _relatives(group: _Group, groups: list[_Group]) -> list[_Group]:
    """The other groups in the smallest subtree that holds a group and some other."""
    width = 1
    while True:
        width *= 2
        first = group.leaves[0] // width * width
        if group.leaves[-1] < first + width:
            others = [
                other
                for other in groups
                if other is not group and any(first <= k < first + width for k in other.leaves)
            ]
            if others:
                return others


def _joined(groups: list[_Group], one: _Group, two: _Group) -> list[_Group]:
    return [*(group for group in groups if group is not one and group is not two), one | two]


def _who(ways: set[Path], rules: Mapping[int, GateRule]) -> str:
    """The rules of some ways down the tree; two that part at their last gate are one."""

    def twin(way: Path) -> Path:
        return (*way[:-1], (way[-1][0], not way[-1][1]))

    while pair := next(({way, twin(way)} for way in ways if way and twin(way) in ways), None):
        ways = (ways - pair) | {next(iter(pair))[:-1]}
    texts = [conditions(way, rules) or "all" for way in sorted(ways, key=_order)]
    return "; or ".join(texts)


def _order(way: Path) -> list[bool]:
    """From left to right."""
    return [not left for _, left in way]
