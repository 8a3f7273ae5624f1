"""Fitted soft trees as indented text and in the DOT language."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sstorch.estimators.tables import gate_rule, leaf_table

if TYPE_CHECKING:
    from sstorch.estimators.readable import ReadableTree


def as_text(tree: ReadableTree, n_terms: int | None) -> str:
    """Rules, indented by level."""
    return "\n".join(_lines(tree, 1, "", "", n_terms, leaf_texts(tree)))


def as_graphviz(tree: ReadableTree, n_terms: int | None) -> str:
    """A directed graph; the left child is where the rule holds."""
    topology, counts = tree.module_.topology, tree.node_table_
    lines = ["digraph soft_survival_tree {", '  node [shape=box, style=rounded, fontname="Helvetica"];']
    for node in topology.branches:
        rule = gate_rule(tree, node, n_terms)
        size = f"{counts['rows'][node]} rows"
        lines.append(f"  {node} [label={_quoted(rule, size)}];")
    for text, node in zip(leaf_texts(tree), topology.leaves, strict=True):
        lines.append(f"  {node} [label={_quoted(*text.replace(': ', ', ', 1).split(', '))}];")
    for node in topology.branches:
        lines.append(f'  {node} -> {2 * node} [label="yes"];')
        lines.append(f'  {node} -> {2 * node + 1} [label="no"];')
    return "\n".join([*lines, "}"]) + "\n"


def leaf_texts(tree: ReadableTree) -> list[str]:
    """A line on each leaf: its number, rows, events and median."""
    lines = []
    for leaf, row in leaf_table(tree).iterrows():
        rows, events, median = int(row["rows"]), int(row["events"]), float(row.get("median", math.nan))
        reached = f"median {median:.4g}" if math.isfinite(median) else "median not reached"
        lines.append(
            f"leaf {leaf}: {rows} row{'s' * (rows != 1)}, {events} event{'s' * (events != 1)}, {reached}"
        )
    return lines


def _lines(
    tree: ReadableTree, node: int, lead: str, indent: str, n_terms: int | None, leaves: list[str]
) -> list[str]:
    topology = tree.module_.topology
    if node in topology.leaves:
        return [lead + leaves[node - 2**topology.depth]]
    size = f"{tree.node_table_['rows'][node]} rows"
    lines = [f"{lead}[{node}] {size}: left if {gate_rule(tree, node, n_terms)}"]
    lines += _lines(tree, 2 * node, f"{indent}|- left:  ", f"{indent}|  ", n_terms, leaves)
    right = _lines(tree, 2 * node + 1, f"{indent}`- right: ", f"{indent}   ", n_terms, leaves)
    return lines + right


def _quoted(*lines: str) -> str:
    """Text of some lines as DOT takes it; names of columns may hold quotes and backslashes."""
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "\\n".join(escaped) + '"'
