"""Groups of a soft tree, the rows of its leaves: how they fare, and whether other rows make the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from sstorch._types import FloatArray, IntArray
from sstorch.base import check_times
from sstorch.checks import check_share
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.groups import (
    adjusted_rand_index,
    first_below,
    log_log_limits,
    risk_table,
    survival_and_error,
)
from sstorch.metrics.weights import Weighting, WeightKind, check_weighting
from sstorch.soft.fitted import FittedTree
from sstorch.soft.rules import Score, to_numbers
from sstorch.soft.tree_sample import TreeSample

# Share of the optimism that own rows and those left out by a resample differ by: a resample holds 63.2 % of
# the rows (Efron 1983).
_DIFFERENT = 0.632
# Columns that the text names for each gate.
_NAMED = 3


# ---------------------------------------------------------------------- how the groups fare


def group_table(
    tree: FittedTree,
    data: SurvivalData,
    horizons: npt.ArrayLike,
    confidence: float,
    sample: TreeSample | None = None,
    weights: WeightKind = "sampling",
) -> pd.DataFrame:
    """How the groups fare: see :meth:`~sstorch.SoftSurvivalTree.group_table`.

    Args:
        tree: trained.
        data: rows of positive weight with their times and events.
        horizons: times at which survival is given, increasing.
        confidence: of the intervals, in (0, 1).
        sample: resamples of these rows, for corrected estimates beside the naive ones.
        weights: what the weights of the rows are.

    Raises:
        DataError: horizons are no times, the rows have no event, or frequency weights are no integers.
        ConfigError: ``confidence`` is out of range, the sample is of other rows, or the kind of weights does
            not exist.
    """
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    at, x = check_times(horizons), tree.encode(data.frame)
    group, times = tree.apply(x), _event_times(data)
    n_groups, factor = len(tree.module.topology.leaves), float(norm.ppf(0.5 + 0.5 * confidence))
    weighting = check_weighting(data.sample_weight, len(data), weights)
    values, error = survival_and_error(
        data.time, data.event, group, n_groups, times, weighting, data.entry, data.person
    )
    bands = {"": np.stack([values, *log_log_limits(values, factor * error)])}
    if sample is not None:
        bands["corrected "] = _corrected(values, factor * error, group, data, times, sample, weighting)
    predicted, rows = tree.curves(x, at), []
    for number in np.unique(group):
        inside = group == number
        # Beyond the last row that was observed nothing is known.
        known = (at <= data.time[inside].max()) | (values[number, -1] <= 0)
        line: dict[tuple[str, str], float] = {
            ("rows", ""): int(inside.sum()),
            ("events", ""): int(data.event[inside].sum()),
        }
        for kind, band in bands.items():
            medians = first_below(times, band[:, number], 0.5)
            for part, median in zip(_parts(kind), medians, strict=True):
                line["median", part] = float(median)
        for k, t in enumerate(at):
            for kind, band in bands.items():
                steps = np.concatenate([np.ones((3, 1)), band[:, number]], axis=1)
                survival = steps[:, np.searchsorted(times, t, side="right")]
                for part, value in zip(_parts(kind), survival, strict=True):
                    line[f"S({t:g})", part] = float(value) if known[k] else np.nan
            weight = data.sample_weight[inside]
            line[f"S({t:g})", "model"] = float(np.average(predicted[inside, k], weights=weight))
        rows.append(line)
    columns = pd.MultiIndex.from_tuples(list(rows[0]), names=["quantity", "part"])
    values_by_row = [list(line.values()) for line in rows]
    return pd.DataFrame(values_by_row, index=pd.Index(np.unique(group), name="group"), columns=columns)


def groups_text(table: pd.DataFrame) -> str:
    """A :func:`group_table` for readers: a column a quantity, each number with its interval.

    Groups that live longest come first, by the mean of their predicted survival at the horizons.
    """
    kind = "corrected" if ("median", "corrected") in table else "estimate"
    low, high = (f"corrected {end}" if kind == "corrected" else end for end in ("lower", "upper"))
    survival = table.loc[:, table.columns.get_level_values(1) == "model"].mean(axis=1)
    table = table.loc[survival.sort_values(ascending=False, kind="stable").index]
    text = pd.DataFrame({"rows": table["rows", ""], "events": table["events", ""]}).astype(int).astype(str)
    for name in table.columns.get_level_values(0).unique():
        if name in ("rows", "events"):
            continue
        parts = table[name][[kind, low, high]].itertuples(index=False)
        text[name] = [interval_text(*part) for part in parts]
        if (name, "model") in table:
            text[f"model {name}"] = [_short(value) for value in table[name, "model"]]
    head = "corrected for optimism" if kind == "corrected" else "Kaplan-Meier of these rows"
    return f"Groups, {head}, with intervals\n{text.reset_index().to_string(index=False)}"


def interval_text(value: float, lower: float, upper: float) -> str:
    """An estimate and its limits with few digits; a dash for what is not known or not reached."""
    return f"{_short(value)} ({_short(lower)} to {_short(upper)})"


def _short(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parts(kind: str) -> tuple[str, str, str]:
    return kind.strip() or "estimate", f"{kind}lower", f"{kind}upper"


def _event_times(data: SurvivalData) -> FloatArray:
    if not data.event.any():
        raise DataError("no row has an event: there is nothing to tell of the groups; give more rows")
    return np.unique(data.time[data.event])


def _draws(sample: TreeSample, data: SurvivalData) -> IntArray:
    if sample.draws is None or sample.draws.shape[1] != len(data):
        raise ConfigError("sample must be what bootstrap_trees gives for the same rows")
    return sample.draws


def _corrected(
    values: FloatArray,
    half: FloatArray,
    group: IntArray,
    data: SurvivalData,
    times: FloatArray,
    sample: TreeSample,
    weighting: Weighting,
) -> FloatArray:
    """Curves less their optimism, with limits, (3, n_groups, n_times): see the method for the definition."""
    leaves, n_groups = sample.apply(data.frame), len(values)
    optimism, place = np.zeros((len(sample), *values.shape)), _places(values, group, data)
    for number, (leaf, drawn) in enumerate(zip(leaves, _draws(sample, data), strict=True)):
        own, other = (
            risk_table(data.time, data.event, leaf, n_groups, times, data.sample_weight * part, data.entry)
            for part in (drawn.astype(np.float64), (drawn == 0).astype(np.float64))
        )
        curves = own.survival()
        excess = np.where(other.at_risk.any(axis=1, keepdims=True), curves - other.survival(), 0.0)
        optimism[number] = _over_places(excess, _places(curves, leaf, data), place)
    centre = np.clip(values - _DIFFERENT * optimism.mean(axis=0), 0.0, 1.0)
    centre = np.minimum.accumulate(centre, axis=1)
    # No curve is nearer to 0 or 1 than half a subject, or no limit would ever leave it.
    least = 0.5 / np.maximum(weighting.counts(group, n_groups), 1)[:, None]
    shift = np.abs(_log_log(centre, least) - _log_log(values, least))
    lower, upper = log_log_limits(np.clip(centre, least, 1.0 - least), half + shift)
    limits = np.stack([np.minimum(lower, centre), np.maximum(upper, centre)])
    return np.concatenate([centre[None], np.minimum.accumulate(limits, axis=2)])


def _log_log(survival: FloatArray, least: FloatArray) -> FloatArray:
    return np.asarray(np.log(-np.log(np.clip(survival, least, 1.0 - least))), dtype=np.float64)


def _places(curves: FloatArray, group: IntArray, data: SurvivalData) -> FloatArray:
    """Begin and end of each group in the order of risk, (n_groups, 2), shares of the weight of all rows."""
    share = np.bincount(group, data.sample_weight, len(curves)) / data.sample_weight.sum()
    order = np.argsort(curves.mean(axis=1), kind="stable")
    ends = np.empty(len(curves))
    ends[order] = np.cumsum(share[order])
    return np.stack([ends - share, ends], axis=1)


def _over_places(values: FloatArray, place: FloatArray, wanted: FloatArray) -> FloatArray:
    """Means over the wanted places of values that are known for others, (n_groups, n_times)."""
    begin, end = wanted[:, None, :].transpose(2, 0, 1)
    shared = np.clip(np.minimum(end, place[:, 1]) - np.maximum(begin, place[:, 0]), 0.0, None)
    total = shared.sum(axis=1, keepdims=True)
    return np.asarray(shared @ values / np.where(total > 0, total, 1.0), dtype=np.float64)


# ---------------------------------------------------------------------- whether the groups stay


@dataclass(frozen=True, eq=False)
class Stability:
    """Whether trees of resampled rows make the same groups.

    Attributes:
        groups: group of each row in the tree, 0 .. L - 1, shape (n,).
        resampled: group of each row in each of the K trees of resamples, numbered as the groups of the tree
            that they share the most rows with, shape (K, n).
        ari: adjusted Rand index of the groups of two resamples, mean over their pairs: 1 if all trees make
            the same groups, 0 on average if they agree no more than by chance.
        ari_of_tree: the same of the tree and a resample, mean over resamples.
        moves: share of the resamples in which a row is in another group than in the tree, shape (n,).
        columns: share of the resamples in which the gate of a node uses a column, indexed by node, a column
            for each column of the rows. Gates of resamples are turned so that their sides are those of the
            tree.
    """

    groups: IntArray
    resampled: IntArray
    ari: float
    ari_of_tree: float
    moves: FloatArray
    columns: pd.DataFrame

    def table(self) -> pd.DataFrame:
        """One row for each group: how many rows it has, how often they move, and how many mostly stay.

        Returns:
            Indexed by group: ``rows``, ``moves`` (mean), and ``stay``, the share of the rows that more than
            half of the resamples leave in the group.
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
        for node, shares in self.columns.iterrows():
            lines.append(f"  gate [{node}] uses {_columns_text(shares)}")
        return "\n".join(lines)


def _columns_text(shares: pd.Series) -> str:
    used = shares[shares > 0].sort_values(ascending=False, kind="stable")
    if len(used) > _NAMED and used.min() == 1:
        return f"{len(used)} columns, always"
    named = ", ".join(f"{name} ({100 * share:.0f} %)" for name, share in used[:_NAMED].items())
    return (named or "no column") + (f" and {len(used) - _NAMED} more" if len(used) > _NAMED else "")


def stability(tree: FittedTree, frame: pd.DataFrame, sample: TreeSample) -> Stability:
    """Compare the groups of a tree with those of resamples.

    Args:
        tree: trained.
        frame: rows, read.
        sample: trees of resamples, of the same depth.
    """
    topology, names = tree.module.topology, list(frame.columns)
    n_groups, index = len(topology.leaves), pd.Index(names)
    group = tree.apply(tree.encode(frame))
    leaves = np.empty((len(sample), len(frame)), dtype=np.int64)
    used = pd.DataFrame(0.0, index=pd.Index(topology.branches, name="node"), columns=index)
    for number, (other, x) in enumerate(sample.trees(frame)):
        leaves[number] = other.apply(x)
        for node, own in _turned(group, leaves[number], topology.depth).items():
            weight = to_numbers(other.module.gate(own).weight)
            effect = Score.of_gate(other.preprocessor, weight).effect_by_column(index)
            used.loc[node] += (effect != 0).to_numpy()
    matched = np.stack([_matched(group, leaf, n_groups) for leaf in leaves])
    between = adjusted_rand_index(np.concatenate([group[None], leaves]))
    pairs = between[1:, 1:][np.triu_indices(len(leaves), 1)]
    return Stability(
        groups=group,
        resampled=matched,
        ari=float(pairs.mean()) if len(pairs) else float("nan"),
        ari_of_tree=float(between[0, 1:].mean()),
        moves=(matched != group).mean(axis=0),
        columns=used / len(sample),
    )


def _overlap(first: IntArray, second: IntArray, n_groups: int) -> IntArray:
    """Rows by their groups in two partitions, (n_groups, n_groups)."""
    return np.bincount(first * n_groups + second, minlength=n_groups**2).reshape(n_groups, n_groups)


def _matched(group: IntArray, leaf: IntArray, n_groups: int) -> IntArray:
    """Leaves renumbered one to one, so that as many rows as possible have the number of their group."""
    groups, leaves = linear_sum_assignment(-_overlap(group, leaf, n_groups))
    number = np.empty(n_groups, dtype=np.int64)
    number[leaves] = groups
    return number[leaf]


def _turned(group: IntArray, leaf: IntArray, depth: int) -> dict[int, int]:
    """The node of another tree that stands for each branch of a tree, sides exchanged where that fits better.

    Both trees route the same rows; at each gate, from the root on, the sides are set against each other so
    that as many rows as possible agree.
    """
    own, nodes = {1: 1}, 2**depth
    for node in range(1, nodes // 2):
        shift = depth - node.bit_length()
        sides, others = (group + nodes) >> shift, (leaf + nodes) >> shift
        left, right = 2 * own[node], 2 * own[node] + 1
        agreement = np.count_nonzero((sides == 2 * node) & (others == left))
        agreement += np.count_nonzero((sides == 2 * node + 1) & (others == right))
        crossed = np.count_nonzero((sides == 2 * node) & (others == right))
        crossed += np.count_nonzero((sides == 2 * node + 1) & (others == left))
        own[2 * node], own[2 * node + 1] = (left, right) if agreement >= crossed else (right, left)
    return {node: own[node] for node in range(1, nodes)}
