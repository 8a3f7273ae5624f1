"""A fitted tree as a notebook shows it: its rules as nested lists, and the table of its groups."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd

from sstorch.data.subjects import CONSTANT_COVARIATES
from sstorch.fitted.tree import FittedTree
from sstorch.reading.nodes import longer_sides, shown_node
from sstorch.reading.rules import GateRule
from sstorch.reading.texts import events_text, group_rows, leaf_texts, rows_text

_TERMS = 4


def tree_html(tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], title: str) -> str:
    """HTML of a tree, in the colours of the page around it, from its table of nodes and its rules."""
    leaves, longer = leaf_texts(tree, nodes), longer_sides(nodes)

    def item(node: int, lead: str) -> str:
        node = shown_node(nodes, node)
        if node in leaves:
            name, facts = leaves[node].split(": ", 1)
            return f"<li>{lead}<b>{escape(name)}</b>: {escape(facts)}</li>"
        parts = []
        for child, right in ((2 * node, False), (2 * node + 1, True)):
            answer = "no" if right else "yes"
            longest = ", longer survival" if longer.get(node) == answer else ""
            rule = escape(rules[node].text(_TERMS, right=right))
            parts.append(item(child, f"<code>{rule}</code> <small>({answer}{longest})</small> "))
        return f"<li>{lead}{nodes['rows'][node]} rows<ul>{''.join(parts)}</ul></li>"

    module = tree.module
    families = dict.fromkeys(own.family.name for own in tree.hazards.values())
    depth = f"depth {module.topology.depth}, " * (module.topology.depth > 0)
    root = nodes.iloc[0]
    counts = f"{rows_text(root)}, {escape(events_text(tree, root))}"
    head = f"{title}: {depth}{escape(' and '.join(families))} leaves, {counts}"
    table = group_rows(tree, nodes).to_html(index=False, border=0, float_format=_short, na_rep="-")
    unit = f", t in {escape(tree.time_unit)}" if tree.time_unit else ""
    note = f"S(t): mean predicted survival of the rows of a group{unit}; KM: Kaplan-Meier of the same rows"
    if tree.competing:
        note += "; both are of any event; F(t): mean predicted incidence of a cause; AJ: Aalen-Johansen"
    if tree.time_varying:
        note += f"; S(t) and median are from time zero {CONSTANT_COVARIATES}"
    return f"<p><b>{head}</b></p><ul>{item(1, '')}</ul>{table}<p><small>{note}</small></p>"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
