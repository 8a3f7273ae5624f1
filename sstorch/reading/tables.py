"""Tables of gates and leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.fitted.tree import FittedTree
from sstorch.reading.nodes import group_of, in_order
from sstorch.reading.rules import GateRule, branch_index
from sstorch.reading.scores import Score, terms_of, to_numbers

# Of a quantity, in the order of the columns of a table of groups.
_STATISTICS = ("", "estimate", "lower", "upper", "model")


def gate_table(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> pd.DataFrame:
    """One row for each gate: see :func:`sstorch.reading.gate_table`.

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
                "yes": nodes["rows"][2 * node] / passing if passing else np.nan,
                "rule": rules[node].text(n_terms),
                "features": list(table.index[table["effect"] != 0][:n_terms]),
            }
        )
    return pd.DataFrame(rows, index=branch_index(tree), columns=["rows", "events", "yes", "rule", "features"])


def gate_terms(tree: FittedTree) -> list[str]:
    """Names of the numbers, categories and curves that some gate uses."""
    if not tree.module.topology.branches:
        return []
    used = (tree.module.gate_parameters().weight != 0).any(dim=-2).cpu().numpy()
    terms = terms_of(tree.preprocessor, tree.preprocessor.gate_features)
    return [term.name for term in terms if used[list(term.places)].any()]


def gate_coefficients(tree: FittedTree) -> pd.DataFrame:
    """Coefficients of the gates by node and feature: see :func:`sstorch.reading.gate_coefficients`."""
    tables = {node: _gate(tree, node) for node in tree.module.topology.branches}
    for table in tables.values():
        size = table["effect"].abs()
        table["share"] = size / size.sum() if size.any() else 0.0
    return _stacked(tables, "node", ["column", "coefficient", "effect", "share"])


def leaf_rows(tree: FittedTree, nodes: pd.DataFrame) -> pd.DataFrame:
    """Rows of the groups in a :func:`~sstorch.reading.nodes.node_table`, with shape parameters, by group."""
    module = tree.module
    table = nodes.loc[list(module.topology.leaves)].copy()
    for cause, own in tree.hazards.items():
        for k, name in enumerate(own.family.shape_names):
            column = f"{name} {cause}" if tree.competing else name
            table[column] = [float(own.leaf(node).shape.detach()[k]) for node in module.topology.leaves]
    return table.set_index(pd.Index(tree.group_numbers, name="group")).sort_index()


def leaf_table(tree: FittedTree, nodes: pd.DataFrame) -> pd.DataFrame:
    """The same with columns of two levels: see :func:`sstorch.reading.leaf_table`."""
    table = leaf_rows(tree, nodes)
    if tree.competing:  # those of each cause are there
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


def leaf_coefficients(tree: FittedTree) -> pd.DataFrame:
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
        found[cause] = _stacked(tables, "group", [str(name) for name in next(iter(tables.values())).columns])
    return pd.concat(found, names=["cause"]) if tree.competing else found[tree.causes[0]]


def importance(tree: FittedTree, nodes: pd.DataFrame, columns: npt.NDArray[np.object_]) -> pd.DataFrame:
    """Shares of the raw columns in gates and leaves: see :func:`sstorch.reading.importance`."""
    module = tree.module

    def shares(scores: Mapping[int, Score]) -> pd.Series:
        total = pd.Series(0.0, index=pd.Index(columns, name="column"))
        for node, score in scores.items():
            effect = score.effect_by_column(total.index)
            if effect.any():
                total += int(nodes["rows"][node]) * effect / effect.sum()
        return total / total.sum() if total.any() else total

    preprocessor, topology = tree.preprocessor, module.topology
    own = tree.hazards
    gates = {n: Score.of_gate(preprocessor, to_numbers(module.gate(n).weight)) for n in topology.branches}
    leaves = {
        f"leaves {cause}" if tree.competing else "leaves": {
            n: Score.of_leaf(preprocessor, to_numbers(own[cause].leaf(n).slope)) for n in topology.leaves
        }
        for cause in tree.causes
    }
    return pd.DataFrame({"gates": shares(gates)} | {name: shares(each) for name, each in leaves.items()})


def _gate(tree: FittedTree, node: int) -> pd.DataFrame:
    return against_modes(tree, Score.of_gate(tree.preprocessor, to_numbers(tree.module.gate(node).weight)))


def against_modes(tree: FittedTree, score: Score) -> pd.DataFrame:
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
