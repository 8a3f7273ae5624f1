"""Rows of groups and coefficients of leaves, for tables and texts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from sstorch.fitted.tree import FittedTree
from sstorch.reading.nodes import MEAN_SURVIVAL, group_of, in_order
from sstorch.reading.scores import Score, to_numbers


def leaf_rows(tree: FittedTree, nodes: pd.DataFrame) -> pd.DataFrame:
    """Rows of the groups in a :func:`~sstorch.reading.nodes.node_table`, with shape parameters, by group."""
    module = tree.module
    table = nodes.loc[list(module.topology.leaves)].drop(columns=MEAN_SURVIVAL)
    for cause, own in tree.hazards.items():
        for k, name in enumerate(own.family.shape_names):
            column = f"{name} {cause}" if tree.competing else name
            table[column] = [float(own.leaf(node).shape.detach()[k]) for node in module.topology.leaves]
    return table.set_index(pd.Index(tree.group_numbers, name="group")).sort_index()


def leaf_slopes(tree: FittedTree) -> pd.DataFrame:
    """Coefficients of the leaves by group and feature: see :func:`sstorch.reading.leaf_coefficients`."""
    found = {}
    for cause, module in tree.hazards.items():
        family, tables = module.family, {}
        for node in in_order(tree, module.topology.leaves):
            score = Score.of_leaf(tree.preprocessor, to_numbers(module.leaf(node).slope))
            table = against_modes(tree, score)
            if family.constant_ratio is not None:
                table[family.constant_ratio] = np.exp(table["coefficient"])
            tables[group_of(tree, node)] = table
        found[cause] = stacked(tables, "group", [str(name) for name in next(iter(tables.values())).columns])
    return pd.concat(found, names=["cause"]) if tree.competing else found[tree.causes[0]]


def against_modes(tree: FittedTree, score: Score) -> pd.DataFrame:
    """The table of a score in which every category is compared with the most frequent one of its column.

    That one, whose effect is none, is excluded.
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


def stacked(tables: Mapping[int, pd.DataFrame], level: str, columns: list[str]) -> pd.DataFrame:
    """Tables by number as one, with the columns of an empty one."""
    if not tables:
        index = pd.MultiIndex.from_arrays([[], []], names=[level, "feature"])
        return pd.DataFrame(columns=columns, index=index)
    return pd.concat(tables, names=[level])
