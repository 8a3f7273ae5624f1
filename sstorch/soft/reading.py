"""Trees as people read them: tables and texts of a fitted tree, and the mixin that estimators read with."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import SurvivalData
from sstorch.data.persons import CONSTANT_COVARIATES, Paths
from sstorch.data.time_unit import round_horizons
from sstorch.fitted.tree import FittedTree
from sstorch.groups.table import interval_text
from sstorch.metrics import KaplanMeierBand, TurnbullCurve
from sstorch.soft.effects import effects
from sstorch.soft.merging import MergedLeaves, merge_leaves
from sstorch.soft.path_table import path_table
from sstorch.soft.rules import (
    Explanation,
    GateRule,
    Score,
    SimplifiedRules,
    branch_index,
    conditions,
    explain_row,
    gate_rules,
    median_text,
    simplify,
    terms_of,
    to_numbers,
)
from sstorch.soft.tree_sample import TreeSample

# Terms of a rule, and slopes that all groups share, that a summary writes out; the others are counted.
_SUMMARY_TERMS, _SUMMARY_SLOPES = 4, 8
# Kaplan-Meier's median of a node's rows and its limits in the node table, and Turnbull's.
_NPMLE_MEDIAN = "NPMLE median"
_KM_MEDIAN = ("KM median", "KM median lower", "KM median upper")
# Halvings of the follow-up in which a median is looked for: nine digits.
_HALVINGS = 32


# ---------------------------------------------------------------------- tables


def node_table(tree: FittedTree, x: Tensor, data: SurvivalData, event_times: FloatArray) -> pd.DataFrame:
    """Training rows and events by node, indexed by heap number, with predicted survival and Kaplan-Meier's.

    Columns: numbers of ``rows`` and ``events``, unweighted; ``median``, the time at which the weighted mean
    predicted survival of the node's rows is 1/2, nan if that is later than the last event; ``S(t)``, weighted
    mean predicted survival of these rows at round times t near the quartiles of the event times. Of the same
    rows by weighted Kaplan-Meier ``KM median`` with its 95 % confidence limits (weights are sampling weights:
    :class:`~sstorch.metrics.KaplanMeierBand`), nan where they are not reached, and ``KM S(t)`` at the first
    and the last of these times, nan beyond the last row. Where times are intervals ``NPMLE median`` and
    ``NPMLE S(t)`` are Turnbull's estimate instead, without limits. Of a node without rows all are nan. If
    sensitive groups are known, the share of each among the rows.

    Args:
        tree: trained on the rows.
        x: the training rows, encoded, shape (n, p).
        data: the same rows.
        event_times: distinct times of their events, increasing.
    """
    topology = tree.module.topology
    times = round_horizons(event_times, tree.time_unit)
    curves = tree.curves(x, times)
    leaf = tree.leaf(x) + 2**topology.depth
    # Node of each row at each level, (n, D + 1).
    path = leaf[:, None] >> np.arange(topology.depth, -1, -1)
    weight = data.sample_weight / data.sample_weight.max()
    medians = _medians(tree, x, path, weight, float(event_times[-1]))
    rows = []
    for node in (*topology.branches, *topology.leaves):
        inside = path[:, topology.level(node)] == node
        mean = (
            np.average(curves[inside], axis=0, weights=weight[inside])
            if inside.any()
            else np.full(len(times), np.nan)
        )
        rows.append(
            {"node": node, "rows": int(inside.sum()), "events": int(data.event[inside].sum())}
            | {"median": float(medians[node])}
            | {f"S({time:g})": float(value) for time, value in zip(times, mean, strict=True)}
            | _nonparametric(data, inside, np.unique(times[[0, -1]]))
            | _group_shares(data, inside)
        )
    return pd.DataFrame(rows).set_index("node")


def _medians(
    tree: FittedTree, x: Tensor, path: npt.NDArray[np.int64], weight: FloatArray, last: float
) -> FloatArray:
    """Time at which the mean curve of each node's rows is 1/2, by halving; nan where it is not reached."""
    n_nodes = 2 ** path.shape[1]
    counts = np.bincount(path.ravel(), np.repeat(weight, path.shape[1]), n_nodes)
    divisor = np.where(counts > 0, counts, 1.0)

    def mean_survival(times: FloatArray) -> FloatArray:
        survival = tree.curves(x, times[path])
        return np.bincount(path.ravel(), (weight[:, None] * survival).ravel(), n_nodes) / divisor

    low, high = np.zeros(n_nodes), np.full(n_nodes, last)
    unreached = (mean_survival(high) > 0.5) | (counts == 0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = mean_survival(middle) > 0.5
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(unreached, np.nan, high)


def _nonparametric(
    data: SurvivalData, inside: npt.NDArray[np.bool_], horizons: FloatArray
) -> dict[str, float]:
    """Kaplan-Meier of some rows, or Turnbull where times are intervals, by column of the node table."""
    if data.intervals is None:
        return _kaplan_meier(data, inside, horizons)
    names = [f"NPMLE S({time:g})" for time in horizons]
    if not inside.any() or data.entry[inside].any():  # which the estimate does not support
        return dict.fromkeys([_NPMLE_MEDIAN, *names], math.nan)
    bounds = data.intervals.subset(np.flatnonzero(inside))
    curve = TurnbullCurve.fit(data.y[inside], sample_weight=data.sample_weight[inside])
    median = curve.quantile()
    known = horizons <= np.concatenate([bounds.lower, bounds.upper[bounds.event]]).max()
    survival = np.where(known, curve.at(horizons), math.nan)
    return {
        _NPMLE_MEDIAN: median if math.isfinite(median) else math.nan,
        **dict(zip(names, survival.tolist(), strict=True)),
    }


def _kaplan_meier(
    data: SurvivalData, inside: npt.NDArray[np.bool_], horizons: FloatArray
) -> dict[str, float]:
    """Median with limits and survival of some rows, by column of the node table; nan if there are none."""
    survival_names = [f"KM S({time:g})" for time in horizons]
    if not inside.any():
        return dict.fromkeys([*_KM_MEDIAN, *survival_names], math.nan)
    rows = data.subset(inside)
    band = KaplanMeierBand.fit(rows.weighted_y.any_cause())
    medians = [float(part) for part in band.quantile()]
    survival = band.at(horizons).value
    # Beyond the last row that was observed nothing is known.
    known = (horizons <= rows.time.max()) | (survival <= 0)
    return {
        **{name: m if math.isfinite(m) else math.nan for name, m in zip(_KM_MEDIAN, medians, strict=True)},
        **dict(zip(survival_names, np.where(known, survival, math.nan).tolist(), strict=True)),
    }


def _group_shares(data: SurvivalData, inside: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Share of each sensitive group among some rows; nan if there are none."""
    if data.groups is None:
        return {}
    counts = data.groups.subset(np.flatnonzero(inside)).counts
    shares = counts / counts.sum() if counts.sum() else np.full(len(counts), np.nan)
    names = [f"{data.groups.name}={label}" for label in data.groups.labels]
    return dict(zip(names, shares.tolist(), strict=True))


def gate_table(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> pd.DataFrame:
    """One row for each gate: see :meth:`ReadableTree.gate_table`.

    Args:
        tree: trained.
        nodes: its :func:`node_table`.
        rules: of its gates.
        n_terms: terms of a rule that are written out; None for all.
    """
    rows = []
    for node in tree.module.topology.branches:
        table = _gate(tree, node)
        passing = int(nodes["rows"][node])
        rows.append(
            {
                "rows": passing,
                "events": int(nodes["events"][node]),
                "left": nodes["rows"][2 * node] / passing if passing else np.nan,
                "rule": rules[node].text(n_terms),
                "features": list(table.index[table["effect"] != 0][:n_terms]),
            }
        )
    return pd.DataFrame(
        rows, index=branch_index(tree), columns=["rows", "events", "left", "rule", "features"]
    )


def gate_terms(tree: FittedTree) -> list[str]:
    """Names of the numbers, categories and curves that some gate uses."""
    if not tree.module.topology.branches:
        return []
    used = (tree.module.gate_parameters().weight != 0).any(dim=-2).cpu().numpy()
    terms = terms_of(tree.preprocessor, tree.preprocessor.gate_features)
    return [term.name for term in terms if used[list(term.places)].any()]


def gate_coefficients(tree: FittedTree) -> pd.DataFrame:
    """Coefficients of the gates by node and feature: see :meth:`ReadableTree.gate_coefficients`."""
    tables = {node: _gate(tree, node) for node in tree.module.topology.branches}
    for table in tables.values():
        size = table["effect"].abs()
        table["share"] = size / size.sum() if size.any() else 0.0
    return _stacked(tables, "node", ["column", "coefficient", "effect", "share"])


def leaf_table(tree: FittedTree, nodes: pd.DataFrame) -> pd.DataFrame:
    """Rows of the leaves in a :func:`node_table`, with their node and shape parameters, by leaf."""
    module = tree.module
    table = nodes.loc[list(module.topology.leaves)].copy()
    for k, name in enumerate(module.family.shape_names):
        table[name] = [float(module.leaf(node).shape.detach()[k]) for node in module.topology.leaves]
    table.insert(0, "node", table.index)
    return table.set_index(pd.RangeIndex(len(table), name="leaf"))


def leaf_coefficients(tree: FittedTree) -> pd.DataFrame:
    """Coefficients of the leaves by leaf and feature: see :meth:`ReadableTree.leaf_coefficients`."""
    family = tree.module.family
    tables = {}
    for number, node in enumerate(tree.module.topology.leaves):
        score = Score.of_leaf(tree.preprocessor, to_numbers(tree.module.leaf(node).slope))
        table = _against_modes(tree, score)
        # With shapes that depend on x the ratio is another one at every time.
        if family.ratio is not None and family.ancillary == "constant":
            table[family.ratio] = np.exp(table["coefficient"])
        tables[number] = table
    return _stacked(tables, "leaf", [str(name) for name in tables[0].columns])


def importance(tree: FittedTree, nodes: pd.DataFrame, columns: npt.NDArray[np.object_]) -> pd.DataFrame:
    """Shares of the raw columns in gates and leaves: see :meth:`ReadableTree.importance`."""
    module = tree.module

    def shares(scores: Mapping[int, Score]) -> pd.Series:
        total = pd.Series(0.0, index=pd.Index(columns, name="column"))
        for node, score in scores.items():
            effect = score.effect_by_column(total.index)
            if effect.any():
                total += int(nodes["rows"][node]) * effect / effect.sum()
        return total / total.sum() if total.any() else total

    preprocessor, topology = tree.preprocessor, module.topology
    gates = {n: Score.of_gate(preprocessor, to_numbers(module.gate(n).weight)) for n in topology.branches}
    leaves = {n: Score.of_leaf(preprocessor, to_numbers(module.leaf(n).slope)) for n in topology.leaves}
    return pd.DataFrame({"gates": shares(gates), "leaves": shares(leaves)})


def _gate(tree: FittedTree, node: int) -> pd.DataFrame:
    return _against_modes(tree, Score.of_gate(tree.preprocessor, to_numbers(tree.module.gate(node).weight)))


def _against_modes(tree: FittedTree, score: Score) -> pd.DataFrame:
    """The table of a score in which every category is compared with the most frequent one of its column.

    That one, whose effect is none, is left out.
    """
    modes = {column: mode for column, mode in tree.preprocessor.mode_.items() if mode is not None}
    references = [
        term.name
        for term in score.terms
        if len(term.columns) == 1
        and term.category is not None
        and modes.get(term.columns[0]) == term.category
    ]
    return score.with_modes(modes).table().drop(index=references, errors="ignore")


def _stacked(tables: Mapping[int, pd.DataFrame], level: str, columns: list[str]) -> pd.DataFrame:
    if not tables:
        index = pd.MultiIndex.from_arrays([[], []], names=[level, "feature"])
        return pd.DataFrame(columns=columns, index=index)
    return pd.concat(tables, names=[level])


# ---------------------------------------------------------------------- text


def shown_node(nodes: pd.DataFrame, node: int) -> int:
    """The node that is shown at a node's place: a gate whose rows all go one way makes way for that child."""
    while 2 * node in nodes.index:
        children = [child for child in (2 * node, 2 * node + 1) if nodes["rows"][child]]
        if len(children) != 1:
            break
        (node,) = children
    return node


def longer_sides(nodes: pd.DataFrame) -> dict[int, str]:
    """By gate that divides the training rows the side, left or right, whose rows live longer.

    That is the side with the higher mean of its predicted survival at the times of the node table.
    """
    survival = _mean_survival(nodes)
    sides = {}
    for node in nodes.index[nodes.index < (nodes.index.max() + 1) // 2]:
        difference = survival[2 * node] - survival[2 * node + 1]
        if abs(difference) > 0:  # no side of nan
            sides[int(node)] = "left" if difference > 0 else "right"
    return sides


def _mean_survival(nodes: pd.DataFrame) -> pd.Series:
    """Predicted survival of the rows of each node, mean over the times of the node table; nan of no rows."""
    return nodes[[name for name in nodes if str(name).startswith("S(")]].mean(axis=1)


def _by_survival(nodes: pd.DataFrame, leaves: Iterable[int]) -> list[int]:
    """Leaves, by node, with those that live longest first."""
    survival = _mean_survival(nodes)
    return sorted(leaves, key=lambda node: -survival[node])


def shown_leaves(nodes: pd.DataFrame) -> dict[int, list[tuple[int, bool]]]:
    """The leaves that have rows, from left to right, each with the shown gates above and its sides there."""
    leaves: dict[int, list[tuple[int, bool]]] = {}

    def walk(node: int, path: list[tuple[int, bool]]) -> None:
        node = shown_node(nodes, node)
        if 2 * node not in nodes.index:
            leaves[node] = path
            return
        walk(2 * node, [*path, (node, True)])
        walk(2 * node + 1, [*path, (node, False)])

    walk(1, [])
    return leaves


def describe_tree(tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule]) -> str:
    """The rules of a tree, the slopes that all its leaves share, and a table of its leaves, as text.

    A gate sends a row left where its rule holds. Sums are in original units, largest terms first (by the
    effect of the feature's whole training range); a category counts 1 where it applies. Gates that send all
    training rows one way, and leaves without rows, are left out.
    """
    module = tree.module
    head = f"depth {module.topology.depth}, {module.family.name} leaves"
    lines = [f"Soft survival tree: {head}, {nodes['rows'].iloc[0]} rows, {nodes['events'].iloc[0]} events"]
    lines.append(as_text(tree, nodes, rules, _SUMMARY_TERMS))
    shown = _by_survival(nodes, shown_leaves(nodes))
    if len(shown) == 1 and module.topology.depth:
        lines.append("No gate divides the training rows: one leaf has them all")
    if share := tree.shares_slopes(shown):
        where = "Within every group" if len(shown) > 1 else "In the leaf"
        lines += [
            "",
            f"{where}, what changes most over the training range first",
            *slope_lines(tree, shown[0]),
        ]
    text = _groups(tree, nodes, shown, share).to_string(
        index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"
    )
    constants = module.family.describe(float(module.log_time_scale.exp()))
    where = "; shapes are those at x = 0" if module.family.ancillary == "linear" else ""
    where += "; level is the intercept less that of the first" if share and len(shown) > 1 else ""
    order = ", those that live longest first" if len(shown) > 1 else ""
    in_unit = f", t in {tree.time_unit}" if tree.time_unit else ""
    lines += ["", f"Leaves{order}; S(t) is the mean predicted survival of their rows{in_unit}{where}"]
    if tree.time_varying:
        lines.append(f"S(t) and median are from time zero {CONSTANT_COVARIATES}")
    if _KM_MEDIAN[0] in nodes:
        lines.append(
            "KM is Kaplan-Meier of these rows, which have placed the gates; limits are those of 95 %"
        )
    if _NPMLE_MEDIAN in nodes:
        lines.append("NPMLE is Turnbull's curve of these rows, which have placed the gates")
    lines.append(text)
    return "\n".join([*lines, constants] if constants else lines)


def group_rows(tree: FittedTree, nodes: pd.DataFrame) -> pd.DataFrame:
    """What a summary says of each leaf that has rows, a row each, those that live longest first."""
    shown = _by_survival(nodes, shown_leaves(nodes))
    return _groups(tree, nodes, shown, tree.shares_slopes(shown))


def _groups(tree: FittedTree, nodes: pd.DataFrame, shown: list[int], share: bool) -> pd.DataFrame:
    """What a summary says of each leaf that has rows.

    All columns of the node table are in it, in their order, Kaplan-Meier's median and its limits as one text.

    Args:
        tree: trained.
        nodes: its :func:`node_table`.
        shown: the leaves, by node.
        share: whether their slopes are the same, so that intercepts can be compared.
    """
    table = leaf_table(tree, nodes).reset_index().set_index("node").loc[shown].reset_index(drop=True)
    first = ["leaf", "rows", "events", *tree.module.family.shape_names]
    if share and len(shown) > 1:
        intercepts = to_numbers(tree.module.leaf_parameters(shown).intercept)
        table["level"] = intercepts - intercepts[0]
        first.insert(3, "level")
    if _KM_MEDIAN[0] in table:  # interval-censored rows have Turnbull's estimate instead
        limits = table[list(_KM_MEDIAN)].itertuples(index=False)
        table = table.drop(columns=list(_KM_MEDIAN[1:])).assign(
            **{_KM_MEDIAN[0]: [interval_text(*each) for each in limits]}
        )
    return table[[*first, *table.columns.difference(first, sort=False)]]


def slope_lines(tree: FittedTree, leaf: int) -> list[str]:
    """The slopes of a leaf, the largest effects first, as lines of text.

    The most frequent category of a column in the training rows is its reference.
    """
    family = tree.module.family
    table = _against_modes(tree, Score.of_leaf(tree.preprocessor, to_numbers(tree.module.leaf(leaf).slope)))
    table = table[table["effect"] != 0].drop(columns="column")
    if family.ratio is not None and family.ancillary == "constant":
        table[family.ratio] = np.exp(table["coefficient"])
        table["over its range"] = np.exp(table.pop("effect"))
    if table.empty:
        return ["nothing"]
    text = table[:_SUMMARY_SLOPES].to_string(float_format=lambda value: f"{value:.4g}")
    # pandas gives the name of the index a line of its own.
    names, _, *rows = text.splitlines()
    hidden = len(table) - _SUMMARY_SLOPES
    return [names, *rows, *([f"({hidden} smaller)"] if hidden > 0 else [])]


def as_text(tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None) -> str:
    """Rules, indented by level."""
    return rules_text(nodes, rules, n_terms, leaf_texts(tree, nodes), longer_sides(nodes))


def rules_text(
    nodes: pd.DataFrame,
    rules: Mapping[int, GateRule],
    n_terms: int | None,
    leaves: Mapping[int, str],
    longer: Mapping[int, str],
) -> str:
    """Rules, indented by level, above a text for each leaf that has rows.

    Args:
        nodes: table of the nodes, of which the rows are read.
        rules: of the gates.
        n_terms: terms of a rule that are written out; None for all.
        leaves: texts by node.
        longer: by gate the side that lives longer; empty where that is no question.
    """

    def lines(node: int, lead: str, indent: str) -> list[str]:
        node = shown_node(nodes, node)
        if node in leaves:
            return [lead + leaves[node]]
        head = f"{lead}[{node}] {nodes['rows'][node]} rows: left if {rules[node].text(n_terms)}"
        if node in longer:
            head += f"; {longer[node]} lives longer"
        left = lines(2 * node, f"{indent}|- left:  ", f"{indent}|  ")
        return [head, *left, *lines(2 * node + 1, f"{indent}`- right: ", f"{indent}   ")]

    return "\n".join(lines(1, "", ""))


def as_sentences(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> str:
    """A line on each leaf that has rows: see :meth:`ReadableTree.describe`."""
    total, texts = int(nodes["rows"].iloc[0]), leaf_texts(tree, nodes)
    lines = []
    ways = shown_leaves(nodes)
    for leaf in _by_survival(nodes, ways):
        path = ways[leaf]
        who = conditions(path, rules, n_terms)
        name, facts = texts[leaf].replace("leaf", "Group").split(": ")
        facts = facts.replace(" ", f" of {total} ", 1) if path else f"all {facts}"
        lines.append(": ".join([name, who, facts] if path else [name, facts]))
    return "\n".join(lines)


def as_graphviz(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> str:
    """A directed graph; the left child is where the rule holds."""
    leaves, longer = shown_leaves(nodes), longer_sides(nodes)
    gates = sorted({node for path in leaves.values() for node, _ in path})
    lines = ["digraph soft_survival_tree {", '  node [shape=box, style=rounded, fontname="Helvetica"];']
    for node in gates:
        size = f"{nodes['rows'][node]} rows"
        lines.append(f"  {node} [label={_quoted(rules[node].text(n_terms), size)}];")
    for node, text in leaf_texts(tree, nodes).items():
        lines.append(f"  {node} [label={_quoted(*text.replace(': ', ', ', 1).split(', '))}];")
    for node in gates:
        for child, answer, side in ((2 * node, "yes", "left"), (2 * node + 1, "no", "right")):
            label = f"{answer}, lives longer" if longer.get(node) == side else answer
            lines.append(f'  {node} -> {shown_node(nodes, child)} [label="{label}"];')
    return "\n".join([*lines, "}"]) + "\n"


def leaf_texts(tree: FittedTree, nodes: pd.DataFrame, medians: bool | None = None) -> dict[int, str]:
    """By node, a line on each leaf that has rows: its number, rows, events and median.

    Args:
        tree: trained.
        nodes: its :func:`node_table`.
        medians: whether the predicted median is in it; None unless covariates are time-varying.
    """
    medians, lines = not tree.time_varying if medians is None else medians, {}
    for leaf, row in leaf_table(tree, nodes).iterrows():
        rows, events, median = int(row["rows"]), int(row["events"]), float(row["median"])
        reached = f", {median_text(median, tree.time_unit)}" if medians else ""
        lines[int(row["node"])] = (
            f"leaf {leaf}: {rows} row{'s' * (rows != 1)}, {events} event{'s' * (events != 1)}{reached}"
        )
    return {node: lines[node] for node in shown_leaves(nodes)}


def _quoted(*lines: str) -> str:
    """Text of some lines as DOT takes it; names of columns may hold quotes and backslashes."""
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "\\n".join(escaped) + '"'


# ---------------------------------------------------------------------- methods of an estimator


class ReadableTree:
    """The methods of a fitted estimator that read its soft tree."""

    event_times_: FloatArray
    feature_names_in_: npt.NDArray[np.object_]
    _training_rows: SurvivalData

    @property
    @abstractmethod
    def _tree(self) -> FittedTree:
        """The trained tree; raises NotFittedError before there is one."""

    @abstractmethod
    def _encode(self, X: object) -> Tensor:
        """Encoded features of rows, (n, p)."""

    @abstractmethod
    def _refuse_unknown_future(self, after: object, path: bool = False) -> None:
        """Require ``after`` of a model with time-varying covariates."""

    @abstractmethod
    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read."""

    @cached_property
    def node_table_(self) -> pd.DataFrame:
        """Training rows, events and survival by node, predicted and by Kaplan-Meier, by heap number."""
        return self._make_node_table()

    @cached_property
    def _gate_rules(self) -> dict[int, GateRule]:
        """Rules of the gates, with as few digits as separate the training rows."""
        self._make_node_table()
        return self._gate_rules

    def _read_later(self, data: SurvivalData) -> None:
        """Hold the training rows until what is read of them is looked at: of most trees it never is."""
        self.__dict__.pop("node_table_", None)
        self.__dict__.pop("_gate_rules", None)
        self._training_rows = data

    def _make_node_table(self, x: Tensor | None = None) -> pd.DataFrame:
        """Make node table and rules, of the encoded training rows if they are at hand; let go of the rows."""
        tree, data = self._tree, self._training_rows
        x = tree.encode(data.frame) if x is None else x
        self.node_table_ = node_table(tree, x, data, self.event_times_)
        self._gate_rules = gate_rules(tree, x)
        del self._training_rows
        return self.node_table_

    def summary(self) -> str:
        """Rules at the gates, in original units, and a table of the leaves, as text.

        A gate that sends all training rows one way is not shown, its child takes its place; leaves without
        rows are not shown either. Numbers of nodes and leaves stay those of the tree and of ``apply``. Slopes
        that all leaves share, or those of a single leaf, are written once, with the most frequent category of
        a column as its reference. Gates say which side lives longer, and leaves are in that order, by the
        mean of the predicted survival in the table.
        """
        return describe_tree(self._tree, self.node_table_, self._gate_rules)

    def describe(self, n_terms: int | None = 4) -> str:
        """A sentence for each group: who is in it, how many they are, their events and median.

        Such as ``Group 0: pnodes <= 5 and progrec <= 67: 140 of 686 rows, 72 events, median 735``, without
        the median where covariates are time-varying. Groups are the leaves that have training rows, with the
        numbers of ``apply``, those that live longest first.

        Args:
            n_terms: terms of a rule that are written out, those with the largest effects; None for all.
        """
        return as_sentences(self._tree, self.node_table_, self._gate_rules, n_terms)

    def gate_terms(self) -> list[str]:
        """Names of the encoded features that some gate uses."""
        return gate_terms(self._tree)

    def gate_table(self, n_terms: int | None = 4) -> pd.DataFrame:
        """One row for each gate.

        Args:
            n_terms: terms of a rule that are written out, those with the largest effects; None for all.

        Returns:
            Indexed by node in heap order (root 1, children 2n and 2n + 1): ``rows`` and ``events`` of the
            training rows whose most probable path passes the gate, ``left`` (share of them that goes left),
            ``rule`` in original units (left where it holds) and ``features``, the ``n_terms`` encoded
            features with the largest effect. All terms of a rule together send every training row that passes
            the gate the way it goes, with as few digits as that takes. Of a categorical column the most
            frequent category among these rows is the reference, which is not written. A rule of one number
            is a threshold (``pnodes <= 5``), one of one categorical column a list (``tgrade in {II, III}``).
        """
        return gate_table(self._tree, self.node_table_, self._gate_rules, n_terms)

    def gate_coefficients(self) -> pd.DataFrame:
        """Coefficients of the gates.

        Returns:
            Indexed by node and encoded feature, the largest effect first: raw ``column``, ``coefficient``
            (change of the gate's score per original unit, or against the reference of a categorical column,
            its most frequent category in training, which is left out), ``effect`` (change over the whole
            training range) and ``share`` of the gate's effects.
        """
        return gate_coefficients(self._tree)

    def leaf_table(self) -> pd.DataFrame:
        """One row for each leaf.

        Returns:
            Indexed by leaf, left to right: ``node``, training ``rows`` and ``events``, ``median`` (time at
            which the mean predicted survival of these rows is 1/2, nan if that is after the last training
            event or the leaf has no rows), mean predicted survival ``S(t)`` at three times, ``KM median``
            with its 95 % confidence limits and ``KM S(t)``, Kaplan-Meier of the same rows (nan where it is
            not reached or not known; ``NPMLE``, Turnbull's estimate, where times are intervals), and shape
            parameters. Means, Kaplan-Meier and its limits are weighted, numbers of rows and events are not.
            These rows have placed the gates, which makes groups look further apart than they are;
            :func:`~sstorch.validation.group_table` corrects that. With time-varying covariates
            predicted median and ``S(t)`` are from time zero if the covariates stay as in the row.
        """
        return leaf_table(self._tree, self.node_table_)

    def leaf_coefficients(self) -> pd.DataFrame:
        """Coefficients of the leaves' regressions.

        Returns:
            Indexed by leaf and encoded feature, the largest effect first: raw ``column``, ``coefficient`` per
            original unit or of a category against the reference of its column (the most frequent in training,
            which is left out), ``effect`` over the training range, and the exponential of the coefficient as
            ``hazard ratio``, ``time ratio`` or ``odds ratio``, whichever the family has. The ridge penalty
            shrinks them.
        """
        return leaf_coefficients(self._tree)

    def importance(self) -> pd.DataFrame:
        """How much the raw columns move the gates and the leaves, within their training range.

        In a gate (a leaf) the importance of a column is the largest change of the score (linear predictor)
        that it can make within its training range, as a share of the sum over columns. Gates (leaves) are
        averaged with the number of training rows that pass them. It says what the tree looks at, not what is
        lost without a column: for that see :func:`sklearn.inspection.permutation_importance`.

        Returns:
            Indexed by raw column: ``gates`` and ``leaves``, each with sum one, or zero if no column has any
            effect there (no gates, or no slopes).
        """
        return importance(self._tree, self.node_table_, self.feature_names_in_)

    def effects(
        self,
        X: object,
        columns: Sequence[str] | None = None,
        n_points: int = 60,
        sample: TreeSample | None = None,
        level: float = 0.9,
    ) -> pd.DataFrame:
        """What each column does in the leaves: the change of the linear predictor as it alone varies.

        Everyone is compared with a reference: the median of every number in X (of an even number of rows the
        lower middle value), and the most frequent category of the other columns. A number goes through
        ``n_points`` evenly spaced values from its smallest to its largest in X, and its median; or through
        all that it has if there are no more. A category goes through all that the training rows had. With
        ``interactions`` the effect is that at the reference of the other columns.

        Args:
            X: rows with the training columns.
            columns: that vary; all if None.
            n_points: >= 2.
            sample: trees for a band, :func:`~sstorch.soft.bootstrap_trees` of the same parameters and rows.
            level: share of the sample's trees between lower and upper end at each value, in (0, 1).

        Returns:
            Columns ``leaf`` (left to right), ``column``, ``value`` (a number or a category), ``effect``
            (change of the leaf's linear predictor), and its exponential as ``hazard ratio``, ``time ratio``
            or ``odds ratio``, whichever the family has; with a sample ``lower`` and ``upper`` of the effect.

        Raises:
            DataError: columns are missing, or have no known value in any row.
            ConfigError: ``n_points`` or ``level`` is out of range; or a band is asked for, and the leaves of
                a tree have slopes of their own: leaves of different trees do not correspond.
        """
        return effects(self._tree, self._cleaned(X), columns, n_points, sample, level)

    def explain(self, x: object) -> Explanation:
        """Path, contributions, and predicted median and survival of one person.

        With ``prediction="mixture"`` the prediction averages all leaves by ``leaf_probability``, and the path
        is that of the most probable branches all the same.

        Args:
            x: one row: DataFrame or array (1, p).

        Raises:
            DataError: it is not one row, or columns are missing.
        """
        tree = self._tree
        horizons = round_horizons(self.event_times_, tree.time_unit)
        return explain_row(tree, self._cleaned(x), horizons, longer_sides(self.node_table_))

    def path_table(self, X: object, *, entry: object, id: object) -> pd.DataFrame:
        """When a person whose columns change is in which leaf, and what has moved her from one to the next.

        Args:
            X: rows with the training columns.
            entry: time from which each row holds, (n,): until the person's next row, the last one for ever.
            id: person of each row, (n,).

        Returns:
            One row for each stay of a person in a leaf: ``id``, ``from``, ``until``, ``leaf``, and of all but
            the first the ``gate`` that has turned, and ``why``: what is other in its columns, and its rule.

        Raises:
            DataError: two rows of a person begin at once, a column is missing, or entry and id are not (n,).
        """
        frame = self._cleaned(X)
        return path_table(self._tree, self._gate_rules, frame, Paths.of(entry, id, len(frame)))

    def simplify(self, X: object, tolerance: float = 0.01) -> SimplifiedRules:
        """Shorter rules that route nearly all rows as the gates do.

        Features are taken out of a gate one after the other, those that vary the least in it first, each
        replaced by its mean among the rows that pass the gate, as long as at most a share ``tolerance`` of
        these rows changes its side. The tree itself stays as it is.

        Args:
            X: rows, best those of training.
            tolerance: in [0, 1).

        Raises:
            ConfigError: ``tolerance`` is no share.
        """
        return simplify(self._tree, self._encode(X), tolerance)

    def merge_leaves(self, X: object, tolerance: float = 0.05, min_leaf: float = 0.0) -> MergedLeaves:
        """Groups of leaves that do not differ: a reading, the tree itself stays as it is.

        First every leaf with fewer than a share ``min_leaf`` of the rows joins a group beside it, below the
        lowest gate that parts them: that with the nearest mean curve. Then the two groups whose mean curves
        are nearest are joined, wherever they are, again and again, until any two differ by ``tolerance`` or
        more. Curves are the predicted survival of the groups' rows from zero to the last training event, and
        their distance is the largest difference at any time. Leaves without rows always join others.

        Args:
            X: rows, best those of training.
            tolerance: of survival probabilities, in [0, 1); with 0 only small leaves join others.
            min_leaf: in [0, 1).

        Raises:
            ConfigError: ``tolerance`` or ``min_leaf`` is no share.
        """
        nodes, n_leaves = self.node_table_, len(self._tree.module.topology.leaves)
        ways = {node - n_leaves: tuple(path) for node, path in shown_leaves(nodes).items()}
        return merge_leaves(
            self._tree, self._encode(X), self.event_times_, ways, self._gate_rules, tolerance, min_leaf
        )

    def export_text(self, n_terms: int | None = 4) -> str:
        """The tree as indented rules in original units, with rows, events and median of each leaf.

        What is not shown of it, :meth:`summary` says.

        Args:
            n_terms: terms of a rule that are written out, those with the largest effects; None for all.
        """
        return as_text(self._tree, self.node_table_, self._gate_rules, n_terms)

    def export_graphviz(self, n_terms: int | None = 3) -> str:
        """The tree in the DOT language of Graphviz (``dot -Tsvg``); what is shown is as in :meth:`summary`.

        Args:
            n_terms: terms of a rule that are written out, those with the largest effects; None for all.
        """
        return as_graphviz(self._tree, self.node_table_, self._gate_rules, n_terms)
