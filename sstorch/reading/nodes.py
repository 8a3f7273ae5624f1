"""Training rows of the nodes and groups of a tree, and groups whose curves do not fit late."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks
from sstorch.data import SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.fingerprint import fingerprint
from sstorch.data.time_unit import duration, round_horizons
from sstorch.fitted.tree import PROGNOSIS_DIGITS, FittedTree
from sstorch.groups.table import group_estimates
from sstorch.metrics import KaplanMeierBand
from sstorch.reading.rules import GateRule, conditions, gate_rules

# Column of the node table that numbers groups.
MEAN_SURVIVAL = "mean survival"
# Counts of a table of groups, and statistics of its quantities, in order.
_COUNTS, _STATISTICS = ("rows", "subjects", "events"), ("", "estimate", "lower", "upper", "model")
# Points at which a mean curve is looked at for its median, and how often those between two are: ten digits.
_MEDIAN_POINTS, _REFINEMENTS = 65, 4
# Share of the follow-up of rows up to which they are compared, and the fewest events.
_UP_TO, _LEAST_EVENTS = 0.9, 10
_MOST_TIMES = 64
# Mean predicted survival to the first entry from which on what happens before is of no account.
_UNSEEN = 0.99
_FOURTHS = ("lowest", "second", "third", "highest")


@dataclass(frozen=True)
class Reading:
    """What is read of a fitted tree from its training rows.

    Attributes:
        nodes: counts by node, see :func:`node_table`.
        groups: table of the groups, see :func:`sstorch.reading.leaf_table`.
        rules: of the gates, by node.
        late_fit: sentences of :func:`late_fit`.
        training_rows: fingerprint of the rows.
    """

    nodes: pd.DataFrame
    groups: pd.DataFrame
    rules: Mapping[int, GateRule]
    late_fit: tuple[str, ...]
    training_rows: str

    @classmethod
    def of(
        cls,
        tree: FittedTree,
        x: RowFeatures,
        data: SurvivalData,
        event_times: FloatArray,
        incidences: FloatArray | None = None,
    ) -> Self:
        """Read a tree; arguments are as in :func:`table_of_groups`."""
        groups = table_of_groups(tree, x, data, event_times, incidences)
        return cls(
            node_table(tree, x, data), groups, gate_rules(tree, x), late_fit(tree, x, data), fingerprint(data)
        )

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
        """For each gate that divides the rows: the side with the longer survival, ``"yes"`` or ``"no"``.

        That is the side with the higher mean survival, as groups are numbered.
        """
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
    """Counts of the training rows of each node, by heap number.

    Columns: ``rows``, where subjects have several also ``subjects``, and ``events``, unweighted, with
    competing causes also ``events CAUSE`` of each; and ``mean survival``, the weighted mean predicted
    (event-free) survival up to the end of follow-up, by which groups are numbered, nan without rows.

    Args:
        tree: trained on the rows.
        x: the training rows, encoded, shape (n, p).
        data: the same rows.
    """
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
    tree: FittedTree,
    x: RowFeatures,
    data: SurvivalData,
    event_times: FloatArray,
    incidences: FloatArray | None = None,
) -> pd.DataFrame:
    """Table of :func:`sstorch.reading.leaf_table`: groups of the training rows, also those without rows.

    Args:
        tree: trained on the rows.
        x: the training rows, encoded, shape (n, p).
        data: the same rows.
        event_times: distinct times of their events, increasing.
        incidences: of the rows at :func:`times_of_nodes`, (n, K, T), if they are available.
    """
    times, group, last = times_of_nodes(tree, event_times), tree.apply(x), float(event_times[-1])
    if tree.competing and incidences is None:
        incidences = tree.incidence(x, times)
    table = group_estimates(group, tree.curves(x, times) if incidences is None else incidences, data, times)
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


def times_of_nodes(tree: FittedTree, event_times: FloatArray) -> FloatArray:
    """Round times at which a table of groups has survival and incidences."""
    return round_horizons(event_times, tree.time_unit)


def _mean_curve(tree: FittedTree, x: RowFeatures, weight: FloatArray, times: FloatArray) -> FloatArray:
    """Weighted mean predicted survival of rows at some times, (n_times,)."""
    total = np.zeros(len(times))
    for some in blocks(len(x), len(times)):
        total += weight[some] @ tree.curves(x[some], times)
    return np.asarray(total / weight.sum())


def _median(tree: FittedTree, x: RowFeatures, weight: FloatArray, last: float) -> float:
    """Time at which the mean curve of rows is 1/2; +inf if that is later than the last time."""
    low, high = 0.0, last
    for _ in range(_REFINEMENTS):
        grid = np.linspace(low, high, _MEDIAN_POINTS)
        mean = _mean_curve(tree, x, weight, grid)
        if mean[-1] > 0.5:
            return math.inf
        place = max(int((mean <= 0.5).argmax()), 1)
        (low, high), (above, below) = grid[place - 1 : place + 1], mean[place - 1 : place + 1]
    share = (above - 0.5) / (above - below) if above > below else 1.0
    return float(low + min(max(share, 0.0), 1.0) * (high - low))


def late_fit(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence on each group whose mean curve is outside the 95 % limits at 90 % of its follow-up.

    Families and shared or shrunk coefficients can bend curves where few events are, after the times at which
    tables report survival. Of a regression all rows are compared and, where these agree, the fourths of its
    predicted risk.

    Where censoring depends on covariates Kaplan-Meier is not the mean of the curves, even of the true model.
    It then follows the mean hazard of the rows that are still at risk, and the sentence adds that where it
    curve is inside the limits.

    Args:
        tree: trained on the rows.
        x: the training rows, encoded, shape (n, p).
        data: the same rows; with left truncation only the time before the first entry has a sentence, and
            none is compared with competing causes, intervals or subjects of several rows.
    """
    if data.entry.any():
        return _unobserved_start(tree, x, data)
    if tree.competing or data.intervals is not None or data.subject is not None:
        return ()
    group = tree.apply(x)
    numbers = np.unique(group)
    if len(numbers) > 1:
        parts = {f"Group {number}": np.flatnonzero(group == number) for number in numbers}
        return _sentences(tree, x, data, parts)
    found = _sentences(tree, x, data, {"All rows": np.arange(len(data))})
    if found:
        return found
    survival = tree.curves(x, np.array([_UP_TO * float(data.time.max())]))[:, 0]
    fourth = np.searchsorted(-np.quantile(survival, [0.75, 0.5, 0.25]), -survival)
    parts = {
        f"Rows in the {name} fourth of predicted risk": np.flatnonzero(fourth == number)
        for number, name in enumerate(_FOURTHS)
        if (fourth == number).any()
    }
    return _sentences(tree, x, data, parts)


def _unobserved_start(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence if no row is at risk before a first entry to which the model predicts a fall of survival."""
    first = float(data.entry.min())
    survival = np.average(tree.curves(x, np.array([first]))[:, 0], weights=data.sample_weight)
    if survival > _UNSEEN:
        return ()
    mean = f"predicted survival to it, {survival:.3f} on average, is extrapolated"
    text = f"{mean}, and observed curves take it as 1"
    return (start_text(first, tree.time_unit, text),)


def steps_from_entry(data: SurvivalData) -> str:
    """A sentence on steps that are 1 before a first entry; empty if few events are expected there."""
    first, weight = float(data.entry.min()), data.sample_weight
    rate = weight[data.event].sum() / (weight * (data.time - data.entry)).sum()
    if (survival := math.exp(-rate * first)) > _UNSEEN:
        return ""
    text = f"curves take survival to it as 1; at the mean hazard of all rows it is {survival:.3f}"
    return start_text(first, data.time_unit, text)


def start_text(first: float, unit: str | None, about: str) -> str:
    """A sentence on the time before the first entry, with the remedy."""
    return (
        f"No row is at risk before the first entry at {duration(first, unit)}: {about}. Predict with "
        f"after={first:.6g}, or count times from a later origin"
    )


def _sentences(
    tree: FittedTree, x: RowFeatures, data: SurvivalData, parts: dict[str, IntArray]
) -> tuple[str, ...]:
    """On each part of the rows whose mean curve is outside, by its name."""
    found = []
    for name, inside in parts.items():
        rows = data.subset(inside)
        if rows.n_events < _LEAST_EVENTS:
            continue
        band, end = KaplanMeierBand.fit(rows.weighted_y), _UP_TO * float(rows.time.max())
        times = np.append(band.times[band.times < end], end)[-_MOST_TIMES:]
        own, weight = x[inside], rows.sample_weight / rows.sample_weight.max()
        last = np.average(tree.curves(own, times[-1:]), axis=0, weights=weight)
        _, lower, upper = band.at(times[-1:])
        if not outside(last, lower, upper)[0]:
            continue
        mean = np.average(tree.curves(own, times), axis=0, weights=weight)
        km, lower, upper = band.at(times)
        side = np.sign(mean - km)
        marks = outside(mean, lower, upper) & (side == side[-1])
        since = int(np.append(-1, np.flatnonzero(~marks))[-1]) + 1
        at_end = f"{km[-1]:.3f} ({lower[-1]:.3f} to {upper[-1]:.3f})"
        start = duration(times[since], tree.time_unit)
        at_risk = _of_rows_at_risk(tree, own, rows.time, weight, end)
        other = "" if tree.module.family.name == "spline_ph" else "compare with leaf='spline_ph', or "
        reason = (
            f"{other}do not report later times"
            if outside(at_risk, lower[-1:], upper[-1:])[0]
            else f"the hazards of the rows still at risk agree with it, S = {at_risk[0]:.3f}. Censoring "
            "depends on covariates, which biases Kaplan-Meier: judge late calibration by oe_hazard (validate)"
        )
        found.append(
            f"{name}: from {start} on the mean curve is outside the 95 % confidence "
            f"band of Kaplan-Meier, S({end:.4g}) = {mean[-1]:.3f} by the model, {at_end} observed: {reason}"
        )
    return tuple(found)


def _of_rows_at_risk(
    tree: FittedTree, x: RowFeatures, time: FloatArray, weight: FloatArray, end: float
) -> FloatArray:
    """Survival to the end by the mean hazard of those at risk, which Kaplan-Meier estimates, (1,)."""
    ends = np.linspace(0.0, end, _MOST_TIMES + 1)
    hazard = tree.curves(x, ends[1:], "cumulative_hazard")
    steps = np.diff(np.minimum(hazard, np.finfo(float).max), axis=1, prepend=0.0)
    share = weight[:, None] * (time[:, None] > ends[:-1])
    steps = np.where(share > 0.0, steps, 0.0)
    total = ((share * steps).sum(axis=0) / share.sum(axis=0)).sum(keepdims=True)
    return np.asarray(np.exp(-total))


def outside(mean: FloatArray, lower: FloatArray, upper: FloatArray) -> BoolArray:
    """Where a curve is outside limits, which have no width before the first event; all of one shape."""
    return np.asarray((lower < upper) & ((mean < lower) | (mean > upper)))
