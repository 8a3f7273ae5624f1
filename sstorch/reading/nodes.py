"""Training rows of the nodes and groups of a tree: counts, estimates, rules, fit late in follow-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq

from sstorch._types import FloatArray
from sstorch.checks import blocks
from sstorch.data import SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.survival_data import fingerprint
from sstorch.data.time_unit import duration, round_horizons
from sstorch.fitted.tree import PROGNOSIS_DIGITS, FittedTree
from sstorch.groups.table import group_estimates
from sstorch.metrics import KaplanMeier
from sstorch.reading.rules import GateRule, conditions, gate_rules

# Column of the node table that numbers groups.
MEAN_SURVIVAL = "mean survival"
# Counts of a table of groups, and statistics of its quantities, in order.
_COUNTS, _STATISTICS = ("rows", "subjects", "events"), ("", "estimate", "lower", "upper", "model")
# Share of the follow-up of rows at which they are compared, and the fewest events.
_UP_TO, _LEAST_EVENTS = 0.9, 10
# Survival to the first entry from which on what happens before is of no account.
_UNSEEN = 0.99


@dataclass(frozen=True)
class Reading:
    """What is read of a fitted tree from its training rows."""

    nodes: pd.DataFrame  # of :func:`node_table`
    groups: pd.DataFrame  # of :func:`sstorch.reading.leaf_table`
    rules: Mapping[int, GateRule]  # of the gates, by node
    late_fit: tuple[str, ...]  # of :func:`late_fit`
    training_rows: str  # their fingerprint

    @classmethod
    def of(cls, tree: FittedTree, x: RowFeatures, data: SurvivalData, event_times: FloatArray) -> Self:
        """Read a tree from the rows that it was trained on, encoded (n, p), and the times of their events."""
        nodes, groups = node_table(tree, x, data), table_of_groups(tree, x, data, event_times)
        return cls(nodes, groups, gate_rules(tree, x), late_fit(tree, x, data), fingerprint(data))

    @property
    def root(self) -> pd.Series:
        """Counts of all rows."""
        return self.nodes.iloc[0]

    def shown(self, node: int) -> int:
        """The node at a node's place in texts: a gate whose rows all go one way makes way for that child."""
        while 2 * node in self.nodes.index:
            children = [child for child in (2 * node, 2 * node + 1) if self.nodes["rows"][child]]
            if len(children) != 1:
                break
            (node,) = children
        return node

    @cached_property
    def leaves(self) -> dict[int, list[tuple[int, bool]]]:
        """The leaves that have rows, from left to right, each with the shown gates above and its sides."""
        leaves: dict[int, list[tuple[int, bool]]] = {}

        def walk(node: int, path: list[tuple[int, bool]]) -> None:
            node = self.shown(node)
            if 2 * node not in self.nodes.index:
                leaves[node] = path
                return
            walk(2 * node, [*path, (node, True)])
            walk(2 * node + 1, [*path, (node, False)])

        walk(1, [])
        return leaves

    @cached_property
    def longer(self) -> dict[int, str]:
        """For each gate that divides the rows: the side with the longer mean survival, "yes" or "no"."""
        survival = self.nodes[MEAN_SURVIVAL].round(PROGNOSIS_DIGITS)
        sides = {}
        for node in self.nodes.index[self.nodes.index < (self.nodes.index.max() + 1) // 2]:
            difference = survival[2 * node] - survival[2 * node + 1]
            if abs(difference) > 0:  # no side of nan
                sides[int(node)] = "yes" if difference > 0 else "no"
        return sides

    def in_order(self, tree: FittedTree) -> list[int]:
        """Leaves that have rows, by node, longest survival first."""
        return sorted(self.leaves, key=lambda leaf: group_of(tree, leaf))

    def group_rules(self, tree: FittedTree, n_terms: int | None) -> dict[int, str]:
        """Rule of each group with rows, by number; none of a tree that does not divide them."""
        return {
            group_of(tree, leaf): conditions(path, self.rules, n_terms)
            for leaf, path in self.leaves.items()
            if path
        }


def group_of(tree: FittedTree, leaf: int) -> int:
    """Number of the group that a leaf is, by node."""
    return int(tree.group_numbers[leaf - len(tree.group_numbers)])


def node_table(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> pd.DataFrame:
    """Rows, subjects where these have several, and events (of each cause) of each node, by heap number."""
    # ``mean survival`` is the weighted mean predicted (event-free) survival up to the end of follow-up, by
    # which groups are numbered, nan without rows.
    depth = tree.module.topology.depth
    # Node of each row at each level, (n, D + 1).
    path = (tree.leaf(x) + 2**depth)[:, None] >> np.arange(depth + 1)

    def total(values: npt.NDArray[Any]) -> FloatArray:
        sums = np.bincount(path.ravel(), np.repeat(values, depth + 1), 2 ** (depth + 1))[1:]
        return sums.astype(np.float64, copy=False)

    counts: dict[str, npt.NDArray[Any]] = {"rows": total(np.ones(len(x)))}
    if data.time_varying and data.subject is not None:
        n_subjects = int(data.subject.max()) + 1
        pairs = np.unique(path * n_subjects + data.subject[:, None])
        counts["subjects"] = np.bincount(pairs // n_subjects, minlength=2 ** (depth + 1))[1:]
    counts["events"] = total(data.event)
    if tree.competing:
        counts |= {f"events {cause}": total(data.cause == k) for k, cause in enumerate(tree.causes, 1)}
    index = pd.RangeIndex(1, 2 ** (depth + 1), name="node")
    table = pd.DataFrame(counts, index=index).astype(np.int64)
    weight = data.sample_weight / data.sample_weight.max()
    survival = tree.mean_survival(x, float(data.nominal_time.max()))
    with np.errstate(invalid="ignore"):  # 0 / 0 of nodes without rows
        return table.assign(**{MEAN_SURVIVAL: total(weight * survival) / total(weight)})


def table_of_groups(
    tree: FittedTree, x: RowFeatures, data: SurvivalData, event_times: FloatArray
) -> pd.DataFrame:
    """Table of :func:`sstorch.reading.leaf_table`: groups of the training rows, also those without rows."""
    times, group, last = round_horizons(event_times, tree.time_unit), tree.apply(x), float(event_times[-1])
    predicted = tree.incidence(x, times) if tree.competing else tree.curves(x, times)
    table = group_estimates(group, predicted, data, times)
    weight = data.sample_weight / data.sample_weight.max()
    by_group: dict[tuple[str, str], Any] = {("median", "model"): {}}
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        by_group["median", "model"][number] = _median(tree, x[rows], weight[rows], last)
        if tree.competing:  # survival free of any event, with the incidences
            for time, value in zip(times, _mean_curve(tree, x[rows], weight[rows], times), strict=True):
                by_group.setdefault((f"S({time:g})", "model"), {})[number] = value
    if data.time_varying:
        by_group["subjects", ""] = pd.Series(data.subject).groupby(group).nunique()
    if data.groups is not None:
        labels = np.array(data.groups.labels, dtype=object)[data.groups.codes]
        shares = pd.crosstab(group, labels, normalize="index").reindex(
            columns=data.groups.labels, fill_value=0.0
        )
        by_group |= {(f"{data.groups.name}={label}", ""): shares[label] for label in shares}
    numbers = pd.RangeIndex(1, len(tree.group_numbers) + 1, name="group")
    table = table.reindex(pd.MultiIndex.from_product([numbers, tree.causes]) if tree.competing else numbers)
    table.index.names = ["group", "cause"] if tree.competing else ["group"]
    for key, values in by_group.items():
        table[key] = pd.Series(values).reindex(table.index.get_level_values("group")).to_numpy()
    leaves = (tree.group_numbers.argsort() + len(numbers)).tolist()
    shapes = pd.DataFrame(
        [
            dict(zip(own.family.shape_names, own.leaf(node).shape.tolist(), strict=True))
            for node in leaves
            for own in tree.hazards.values()
        ]
    )
    for name in shapes:
        table[name, ""] = shapes[name].to_numpy()
    counts = [name for name in _COUNTS if (name, "") in table]
    table = table.fillna(dict.fromkeys(((name, "") for name in counts), 0))
    table = table.astype({(name, ""): np.int64 for name in counts})
    names: list[Any] = table.columns.to_list()
    quantities = list(dict.fromkeys([*counts, "median", *(name for name, _ in names)]))
    order = sorted(names, key=lambda name: (quantities.index(name[0]), _STATISTICS.index(name[1])))
    return table[order]


def _mean_curve(tree: FittedTree, x: RowFeatures, weight: FloatArray, times: FloatArray) -> FloatArray:
    """Weighted mean predicted survival of rows at some times, (n_times,)."""
    total = np.zeros(len(times))
    for some in blocks(len(x), len(times)):
        total += weight[some] @ tree.curves(x[some], times)
    return np.asarray(total / weight.sum())


def _median(tree: FittedTree, x: RowFeatures, weight: FloatArray, last: float) -> float:
    """Time at which the mean curve of rows is 1/2; +inf if that is later than the last time."""

    def above(time: float) -> float:
        return float(_mean_curve(tree, x, weight, np.array([time]))[0]) - 0.5

    return math.inf if above(last) > 0 else float(brentq(above, 0.0, last))


def late_fit(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence on each group whose mean curve is outside the 95 % limits at 90 % of its follow-up."""
    # Families and shared coefficients can bend curves where few events are, after the times of the tables.
    # With left truncation only the time before the first entry has a sentence; competing causes, intervals
    # and subjects of several rows have none.
    if data.entry.any():
        first = float(data.entry.min())
        before = np.average(tree.curves(x, np.array([first]))[:, 0], weights=data.sample_weight)
        about = (
            f"predicted survival to it, {before:.3f} on average, is extrapolated, and observed curves take "
        )
        return (_start_text(first, tree.time_unit, f"{about}it as 1"),) if before <= _UNSEEN else ()
    if tree.competing or data.intervals is not None or data.subject is not None:
        return ()
    group, found = tree.apply(x), []
    numbers, other = np.unique(group).tolist(), " (compare with leaf='spline_ph')"
    if tree.module.family.name == "spline_ph":
        other = ""
    for number in numbers:
        inside = np.flatnonzero(group == number)
        rows = data.subset(inside)
        if rows.n_events < _LEAST_EVENTS:
            continue
        end = _UP_TO * float(rows.time.max())
        curves = tree.curves(x[inside], np.array([end]))[:, 0]
        mean = float(np.average(curves, weights=rows.sample_weight / rows.sample_weight.max()))
        km, lower, upper = (float(part) for part in KaplanMeier.fit(rows.weighted_y).limits(end))
        if lower < upper and not lower <= mean <= upper:
            found.append(
                f"{f'Group {number}' if len(numbers) > 1 else 'All rows'}: mean predicted survival at "
                f"{duration(end, tree.time_unit)} is {mean:.3f}, outside the 95 % limits of Kaplan-Meier, "
                f"{km:.3f} ({lower:.3f} to {upper:.3f}). The family does not fit late times{other}, "
                "or censoring depends on covariates (see validate)"
            )
    return tuple(found)


def steps_from_entry(data: SurvivalData) -> str:
    """A sentence on steps that are 1 before a first entry; empty if few events are expected there."""
    first, weight = float(data.entry.min()), data.sample_weight
    rate = weight[data.event].sum() / (weight * (data.time - data.entry)).sum()
    if (survival := math.exp(-rate * first)) > _UNSEEN:
        return ""
    text = f"curves take survival to it as 1; at the mean hazard of all rows it is {survival:.3f}"
    return _start_text(first, data.time_unit, text)


def _start_text(first: float, unit: str | None, about: str) -> str:
    return (
        f"No row is at risk before the first entry at {duration(first, unit)}: {about}. Predict with "
        f"after={first:.6g}, or count times from a later origin"
    )
