"""Texts and tables of a fitted tree: rules, gates, groups and their coefficients."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from sstorch.fitted.tree import FittedTree
from sstorch.reading.hooks import HasText, ReadableTree, fitted_tree, readable
from sstorch.reading.rules import branch_index
from sstorch.reading.scores import Score, terms_of, to_numbers
from sstorch.reading.slopes import against_modes, leaf_rows, leaf_slopes, stacked

# Of a quantity, in the order of the columns of a table of groups.
_STATISTICS = ("", "estimate", "lower", "upper", "model")


def export_text(tree: HasText, n_terms: int | None = 4) -> str:
    """The tree as indented rules in original units, with rows, events and median of each group.

    ``tree.summary()`` has the rest.

    Args:
        tree: fitted.
        n_terms: terms of a rule that are written out, those with the largest effects; None for all.
    """
    return readable(tree)._export_text(n_terms)


def export_graphviz(tree: HasText, n_terms: int | None = 3) -> str:
    """The tree in the DOT language of Graphviz (``dot -Tsvg``); what is shown is as in ``tree.summary()``.

    Args:
        tree: fitted.
        n_terms: terms of a rule that are written out, those with the largest effects; None for all.
    """
    return readable(tree)._export_graphviz(n_terms)


def gate_table(tree: ReadableTree, n_terms: int | None = 4) -> pd.DataFrame:
    """One row for each gate.

    Args:
        tree: fitted.
        n_terms: terms of a rule that are written out, those with the largest effects; None for all, and for
            all categories of long lists.

    Returns:
        Indexed by node in heap order (root 1, children 2n and 2n + 1): ``rows`` and ``events`` of the
        training rows whose most probable path passes the gate, ``yes`` (share of them for which
        the rule holds), ``rule`` in original units and ``features``, the ``n_terms`` encoded
        features with the largest effect. All terms of a rule together send every training row that passes
        the gate to its side, with as few digits as that takes. Of a categorical column the most
        frequent category among these rows is the reference, which is not written. A rule of one number
        is a threshold (``pnodes <= 5``), one of one categorical column a list (``tgrade in {II, III}``).
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
    return pd.DataFrame(
        rows, index=branch_index(fitted), columns=["rows", "events", "yes", "rule", "features"]
    )


def gate_terms(tree: ReadableTree) -> list[str]:
    """Names of the encoded features that some gate uses."""
    fitted = fitted_tree(tree)
    if not fitted.module.topology.branches:
        return []
    used = (fitted.module.gate_parameters().weight != 0).any(dim=-2).cpu().numpy()
    terms = terms_of(fitted.preprocessor, fitted.preprocessor.gate_features)
    return [term.name for term in terms if used[list(term.places)].any()]


def gate_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the gates.

    Returns:
        Indexed by node and encoded feature, the largest effect first: raw ``column``, ``coefficient``
        (change of the gate's score per original unit, or against the reference of a categorical column,
        its most frequent category in training, which is left out), ``effect`` (change over the whole
        training range) and ``share`` of the gate's effects.
    """
    fitted = fitted_tree(tree)
    tables = {node: _gate(fitted, node) for node in fitted.module.topology.branches}
    for table in tables.values():
        size = table["effect"].abs()
        table["share"] = size / size.sum() if size.any() else 0.0
    return stacked(tables, "node", ["column", "coefficient", "effect", "share"])


def leaf_table(tree: ReadableTree) -> pd.DataFrame:
    """One row for each group: what its training rows had, and what is predicted for them.

    Returns:
        Indexed by ``group``, 1 for the longest survival; columns of two levels, quantity and statistic:
        training ``rows``, ``subjects`` where these have several rows, and ``events``; ``median`` with its
        Kaplan-Meier ``estimate``, 95 % confidence limits ``lower`` and ``upper``, and ``model``, the time at
        which the mean predicted survival of the rows is 1/2, nan if that is after the last training event;
        ``S(t)`` at three times with ``model``, the mean prediction, and at the first and the last with
        ``estimate`` (Turnbull's where times are intervals, without limits); and shape parameters. Estimates
        are nan where they are not reached or not known, all but the counts nan where a group has no rows.
        Estimates, limits and means are weighted, numbers of rows and events are not. Where causes compete
        there are ``events CAUSE`` instead of ``events``, ``F(t) CAUSE`` with Aalen-Johansen's ``estimate``
        and ``model``, and median and ``S(t)`` are free of any event.

        These rows have placed the gates, which makes groups look further apart than they are;
        :func:`~sstorch.validation.group_table` corrects that. With time-varying covariates
        predicted median and ``S(t)`` are from time zero if the covariates stay as in the row.
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
    estimated = re.match(r"(KM|NPMLE|AJ) (.*?)( lower| upper)?$", name)
    if estimated:
        return estimated[2], (estimated[3] or " estimate").strip()
    return name, "model" if re.match(r"median$|S\(|F\(", name) else ""


def leaf_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the groups' regressions.

    Returns:
        Indexed by group and encoded feature, and by cause before them where causes compete, the largest
        effect first: raw ``column``, ``coefficient`` per
        original unit or of a category against the reference of its column (the most frequent in training,
        which is left out), ``effect`` over the training range, and the exponential of the coefficient as
        ``hazard ratio``, ``time ratio`` or ``odds ratio``, whichever the family has. The ridge penalty
        shrinks them.
    """
    return leaf_slopes(fitted_tree(tree))


def importance(tree: ReadableTree) -> pd.DataFrame:
    """How much the raw columns move the gates and the leaves, within their training range.

    In a gate (a leaf) the importance of a column is the largest change of the score (linear predictor)
    that it can make within its training range, as a share of the sum over columns. Gates (leaves) are
    averaged with the number of training rows that pass them. This measures use, not what is lost without a
    column: for that see :func:`sklearn.inspection.permutation_importance`.

    Returns:
        Indexed by raw column: ``gates`` and ``leaves``, or ``leaves CAUSE`` of each cause where causes
        compete, each with sum one, or zero if no column has any effect there (no gates, or no slopes).
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
