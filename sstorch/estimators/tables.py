"""Fitted soft trees as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import Tensor

from sstorch.estimators.rules import coefficients, constant, effect_by_column, middles, rule_text

if TYPE_CHECKING:
    from sstorch.estimators.readable import ReadableTree


def gate_table(tree: ReadableTree, n_terms: int | None) -> pd.DataFrame:
    """See :meth:`ReadableTree.gate_table`."""
    counts, rows = tree.node_table_, []
    for node in tree.module_.topology.branches:
        table = _gate(tree, node)
        passing = int(counts["rows"][node])
        rows.append(
            {
                "rows": passing,
                "events": int(counts["events"][node]),
                "left": counts["rows"][2 * node] / passing if passing else np.nan,
                "rule": gate_rule(tree, node, n_terms),
                "features": list(table.index[table["effect"] != 0][:n_terms]),
            }
        )
    index = pd.Index(tree.module_.topology.branches, name="node", dtype="int64")
    return pd.DataFrame(rows, index=index, columns=["rows", "events", "left", "rule", "features"])


def gate_rule(tree: ReadableTree, node: int, n_terms: int | None) -> str:
    """The rule of one gate in original units."""
    gate = tree.module_.gate(node)
    intercept = constant(tree.preprocessor_, gate.weight, gate.bias)
    return rule_text(_gate(tree, node), intercept, middles(tree.preprocessor_), n_terms)


def gate_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """See :meth:`ReadableTree.gate_coefficients`."""
    tables = {node: _gate(tree, node) for node in tree.module_.topology.branches}
    for table in tables.values():
        size = table["effect"].abs()
        table["share"] = size / size.sum() if size.any() else 0.0
    return _stacked(tables, "node", ["column", "coefficient", "effect", "share"])


def leaf_table(tree: ReadableTree) -> pd.DataFrame:
    """See :meth:`ReadableTree.leaf_table`."""
    module = tree.module_
    table = tree.node_table_.loc[list(module.topology.leaves)].copy()
    for k, name in enumerate(module.family.shape_names):
        table[name] = [float(module.leaf(node).shape.detach()[k]) for node in module.topology.leaves]
    table.insert(0, "node", table.index)
    return table.set_index(pd.RangeIndex(len(table), name="leaf"))


def leaf_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """See :meth:`ReadableTree.leaf_coefficients`."""
    family = tree.module_.family
    tables = {}
    for number, node in enumerate(tree.module_.topology.leaves):
        table = coefficients(tree.preprocessor_, tree.module_.leaf(node).slope)
        # With shapes that depend on x the ratio is another one at every time.
        if family.ratio is not None and family.ancillary == "constant":
            table[family.ratio] = np.exp(table["coefficient"])
        tables[number] = table
    return _stacked(tables, "leaf", [str(name) for name in tables[0].columns])


def importance(tree: ReadableTree) -> pd.DataFrame:
    """See :meth:`ReadableTree.importance`."""
    module = tree.module_
    gates = {node: module.gate(node).weight for node in module.topology.branches}
    leaves = {node: module.leaf(node).slope for node in module.topology.leaves}
    return pd.DataFrame({"gates": _shares(tree, gates), "leaves": _shares(tree, leaves)})


def _shares(tree: ReadableTree, weights: Mapping[int, Tensor]) -> pd.Series:
    total = pd.Series(0.0, index=pd.Index(tree.feature_names_in_, name="column"))
    for node, weight in weights.items():
        effect = effect_by_column(coefficients(tree.preprocessor_, weight), total.index)
        if effect.any():
            total += int(tree.node_table_["rows"][node]) * effect / effect.sum()
    return total / total.sum() if total.any() else total


def _gate(tree: ReadableTree, node: int) -> pd.DataFrame:
    return coefficients(tree.preprocessor_, tree.module_.gate(node).weight)


def _stacked(tables: Mapping[int, pd.DataFrame], level: str, columns: list[str]) -> pd.DataFrame:
    if not tables:
        index = pd.MultiIndex.from_arrays([[], []], names=[level, "feature"])
        return pd.DataFrame(columns=columns, index=index)
    return pd.concat(tables, names=[level])
