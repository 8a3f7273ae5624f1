"""Texts and tables of a fitted tree: rules, gates, groups and their coefficients."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from sstorch.fitted.tree import FittedTree
from sstorch.reading.hooks import HasText, ReadableTree, fitted_tree, readable
from sstorch.reading.scores import Score, against_modes, leaf_rows, leaf_slopes, stacked, to_numbers

# Of a quantity, in the order of the columns of a table of groups.
_STATISTICS = ("", "estimate", "lower", "upper", "model")


def export_text(tree: HasText, n_terms: int | None = 4) -> str:
    """Export the tree as indented rules in original units, with rows, events and median of each group.

    See ``tree.summary()`` for further results.

    Args:
        tree: fitted.
        n_terms: maximum number of terms of a rule, by size of the effect; None for all.
    """
    return readable(tree)._export_text(n_terms)


def export_graphviz(tree: HasText, n_terms: int | None = 3) -> str:
    """Export the tree in the DOT language of Graphviz (``dot -Tsvg``), as in ``tree.summary()``.

    Args:
        tree: fitted.
        n_terms: maximum number of terms of a rule, by size of the effect; None for all.
    """
    return readable(tree)._export_graphviz(n_terms)


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
    fitted, nodes, rules = fitted_tree(tree), tree.node_table_, tree._gate_rules
    rows = []
    for node in fitted.module.topology.branches:
        table = _gate(fitted, node)
        passing = int(nodes["rows"][node])
        rows.append(
            {
                "rows": passing,
                "events": int(nodes["events"][node]),
                "yes": nodes["rows"][2 * node] / passing if passing else np.nan,
                "rule": rules[node].text(n_terms),
                "features": list(table.index[table["effect"] != 0][:n_terms]),
            }
        )
    index = pd.Index(fitted.module.topology.branches, name="node", dtype="int64")
    return pd.DataFrame(rows, index=index, columns=["rows", "events", "yes", "rule", "features"])


def gate_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the gates.

    Returns:
        Indexed by node and encoded feature, the largest effect first: raw ``column``, ``coefficient`` (change
        of the score per original unit, or compared with the omitted reference category, the most frequent in
        training), ``effect`` (change over the training range) and ``share`` of the effects of the gate.
    """
    fitted = fitted_tree(tree)
    tables = {node: _gate(fitted, node) for node in fitted.module.topology.branches}
    for table in tables.values():
        size = table["effect"].abs()
        table["share"] = size / size.sum() if size.any() else 0.0
    return stacked(tables, "node", ["column", "coefficient", "effect", "share"])


def leaf_table(tree: ReadableTree) -> pd.DataFrame:
    """Summarise each group: observed and predicted survival of its training rows.

    Returns:
        Indexed by ``group``, 1 for the longest survival. Columns have two levels, quantity and statistic:
        training ``rows``, ``subjects`` if these have several rows, and ``events``; ``median`` with its
        Kaplan-Meier ``estimate``, 95 % confidence limits ``lower`` and ``upper``, and ``model``, the time at
        which mean predicted survival is 1/2, nan after the last training event; ``S(t)`` at three times with
        ``model``, the mean prediction, and at the first and last time with ``estimate``; and shape
        parameters. Estimates are nan if not reached or undefined; for groups without rows all values except
        counts are nan; for interval-censored times there are no estimates. Estimates, limits and means are
        weighted, counts are not. With competing causes there are ``events CAUSE`` instead of ``events``,
        ``F(t) CAUSE`` with Aalen-Johansen ``estimate`` and ``model``; median and ``S(t)`` are event-free.

        The training rows placed the gates: differences between groups are too large;
        :func:`~sstorch.validation.group_table` corrects this. With time-varying covariates, predicted median
        and ``S(t)`` assume constant covariates from time zero.
    """
    fitted = fitted_tree(tree)
    table = leaf_rows(fitted, tree.node_table_)
    if fitted.competing:  # those of each cause are there
        table = table.drop(columns="events")
    names = [_two_levels(str(name)) for name in table]
    quantities = list(dict.fromkeys(quantity for quantity, _ in names))
    table.columns = pd.MultiIndex.from_tuples(names, names=["quantity", "statistic"])
    order = sorted(names, key=lambda name: (quantities.index(name[0]), _STATISTICS.index(name[1])))
    return table[order]


def _two_levels(name: str) -> tuple[str, str]:
    """Quantity and statistic of a column of a node table."""
    if estimated := re.match(r"KM (.*?)( lower| upper)?$", name):
        return estimated[1], (estimated[2] or " estimate").strip()
    if estimated := re.match(r"(?s)AJ (lower |upper |)(F\(.*)$", name):
        return estimated[2], (estimated[1] or "estimate ").strip()
    return name, "model" if re.match(r"median$|S\(|F\(", name) else ""


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


def importance(tree: ReadableTree) -> pd.DataFrame:
    """Importance of the raw columns in gates and leaves, within their training range.

    In a gate (a leaf) the importance of a column is the largest change of the score (linear predictor) over
    its training range, as a share of the sum over columns. Gates (leaves) are averaged, weighted by number of
    training rows. This measures use, not the loss of accuracy without a column; for that see
    :func:`sklearn.inspection.permutation_importance`.

    Returns:
        Indexed by raw column: ``gates`` and ``leaves``, or with competing causes ``leaves CAUSE``. Each
        column sums to one, or to zero if there are no effects (no gates, or no slopes).
    """
    fitted, nodes, columns = fitted_tree(tree), tree.node_table_, tree.feature_names_in_
    module = fitted.module

    def shares(scores: Mapping[int, Score]) -> pd.Series:
        total = pd.Series(0.0, index=pd.Index(columns, name="column"))
        for node, score in scores.items():
            effect = score.effect_by_column(fitted.preprocessor.schema)
            if effect.any():
                total += int(nodes["rows"][node]) * effect / effect.sum()
        return total / total.sum() if total.any() else total

    preprocessor, topology = fitted.preprocessor, module.topology
    own = fitted.hazards
    gates = {n: Score.of_gate(preprocessor, to_numbers(module.gate(n).weight)) for n in topology.branches}
    leaves = {
        f"leaves {cause}" if fitted.competing else "leaves": {
            n: Score.of_leaf(preprocessor, to_numbers(own[cause].leaf(n).slope)) for n in topology.leaves
        }
        for cause in fitted.causes
    }
    return pd.DataFrame({"gates": shares(gates)} | {name: shares(each) for name, each in leaves.items()})


def _gate(tree: FittedTree, node: int) -> pd.DataFrame:
    return against_modes(tree, Score.of_gate(tree.preprocessor, to_numbers(tree.module.gate(node).weight)))
