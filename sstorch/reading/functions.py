"""Texts and tables of a fitted tree: rules, gates, groups, coefficients."""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.checks import check_tree
from sstorch.fitted.tree import FittedTree
from sstorch.inference.covariance import Inferable
from sstorch.reading.nodes import Reading
from sstorch.reading.scores import against_modes, leaf_slopes


class ReadableTree(Inferable, Protocol):
    """A fitted soft tree of an estimator."""

    feature_names_in_: npt.NDArray[np.object_]

    @property
    def _reading(self) -> Reading:
        """Tables and rules of the training rows."""


def fitted_tree(tree: ReadableTree) -> FittedTree:
    """The trained tree of a soft one; a ConfigError for anything else."""
    check_tree(tree, "_tree", "soft survival tree")
    return tree._tree


def export_text(tree: Any, n_terms: int | None = 4) -> str:
    """Export the tree as indented rules in original units, with rows, events and median of each group.

    See ``tree.summary()`` for further results, :func:`sstorch.plots.plot_tree` for a figure.

    Args:
        tree: fitted, soft or exact.
        n_terms: maximum number of terms of a rule, by size of the effect; None for all.
    """
    check_tree(tree, "_export_text")
    return str(tree._export_text(n_terms))


def export_graphviz(tree: Any) -> str:
    """Export the tree in the DOT language of Graphviz (``dot -Tsvg``).

    Args:
        tree: fitted, soft or exact; each edge has the condition under which a row takes it, each leaf its
            line of :func:`export_text`.
    """
    check_tree(tree, "_export_text")
    nodes, texts = tree._page_nodes(), tree._leaf_texts()
    lines = ["digraph tree {", '  node [shape=box, style=rounded, fontname="Helvetica"];']
    for place, node in enumerate(nodes):
        if node.group is None:
            lines.append(f"  {place} [shape=point];")
        else:
            label = "\n".join(texts[node.group - 1].replace(": ", ", ", 1).split(", "))
            lines.append(f"  {place} [label={json.dumps(label, ensure_ascii=False)}];")
        for child in node.children:
            rule = json.dumps(nodes[child].rule, ensure_ascii=False)
            lines.append(f"  {place} -> {child} [label={rule}];")
    return "\n".join([*lines, "}"]) + "\n"


def gate_table(tree: ReadableTree, n_terms: int | None = 4) -> pd.DataFrame:
    """One row for each gate.

    Args:
        tree: fitted.
        n_terms: maximum number of terms of a rule, by size of the effect; None for all, and for all
            categories of long lists.

    Returns:
        Indexed by node in heap order (root 1, children 2n and 2n + 1): ``rows`` and ``events`` of the
        training rows with a most probable path through the gate, ``yes`` (share of these rows for which the
        rule holds), ``rule`` in original units and ``features``, the ``n_terms`` encoded features with the
        largest effect. The complete rule assigns every training row at the gate to its side, with as few
        digits as possible. The reference of a categorical column, the most frequent category among these
        rows, is omitted. A rule on one number is a threshold (``pnodes <= 5``), a rule on one categorical
        column a list (``tgrade in {II, III}``).
    """
    fitted, nodes, rules = fitted_tree(tree), tree._reading.nodes, tree._reading.rules
    branches = list(fitted.module.topology.branches)
    rows = nodes["rows"][branches].to_numpy()
    left = nodes["rows"][[2 * node for node in branches]].to_numpy()
    effects = [against_modes(fitted, node)["effect"] for node in branches]
    columns = {
        "rows": rows,
        "events": nodes["events"][branches].to_numpy(),
        "yes": np.divide(left, rows, out=np.full(len(rows), np.nan), where=rows > 0),
        "rule": [rules[node].text(n_terms) for node in branches],
        "features": [list(effect.index[effect != 0][:n_terms]) for effect in effects],
    }
    return pd.DataFrame(columns, index=pd.Index(branches, name="node", dtype="int64"))


def gate_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the gates.

    Returns:
        Indexed by node and encoded feature, the largest effect first: raw ``column``, ``coefficient`` (change
        of the score per original unit, or compared with the omitted reference category, the most frequent in
        training), ``effect`` (change over the training range) and ``share`` of the effects of the gate.
    """
    fitted, names = fitted_tree(tree), ["column", "coefficient", "effect", "share"]
    tables = {node: against_modes(fitted, node) for node in fitted.module.topology.branches}
    if not tables:
        index = pd.MultiIndex.from_arrays([[], []], names=["node", "feature"])
        return pd.DataFrame(columns=names, index=index)
    table = pd.concat(tables, names=["node"])
    size = table["effect"].abs()
    return table.assign(share=(size / size.groupby(level="node").transform("sum")).fillna(0.0))


def leaf_table(tree: ReadableTree) -> pd.DataFrame:
    """Summarise each group: observed and predicted survival of its training rows.

    It is the :func:`~sstorch.validation.group_table` of the training rows at three times, of all groups, with
    more columns.

    Returns:
        Indexed by ``group``, 1 for the longest survival, with competing causes by ``group`` and ``cause``.
        Columns have two levels, quantity and statistic: training ``rows``, ``subjects`` if these have several
        rows, and ``events``; ``median`` with its Kaplan-Meier ``estimate``, 95 % confidence limits ``lower``
        and ``upper``, and ``model``, the time at which mean predicted survival is 1/2, each +inf if not
        reached up to the last event; ``S(t)``, or ``F(t)`` of each cause by Aalen-Johansen, with these;
        shares of sensitive groups; and shape parameters. Estimates are nan beyond the last observed time; for
        groups without rows all values except counts and parameters; interval-censored times have none.
        Estimates, limits and means are weighted, counts are not. With competing causes the predicted median
        and ``S(t)`` are event-free.

        The training rows placed the gates: differences between groups are too large;
        :func:`~sstorch.validation.group_table` corrects this. With time-varying covariates, predicted median
        and ``S(t)`` assume constant covariates from time zero.
    """
    fitted_tree(tree)
    return tree._reading.groups.copy()


def leaf_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the groups' regressions.

    Returns:
        Indexed by group and encoded feature, and by cause before them with competing causes, the largest
        effect first: raw ``column``, ``coefficient`` per original unit or compared with the omitted reference
        category (the most frequent in training), ``effect`` over the training range, and the exponential of
        the coefficient as ``hazard ratio``, ``time ratio`` or ``odds ratio``, depending on the family. The
        ridge penalty shrinks coefficients.
    """
    return leaf_slopes(fitted_tree(tree))
