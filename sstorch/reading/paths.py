"""Groups of a subject with time-varying covariates over time, and which change led to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sstorch.data.subjects import Paths
from sstorch.fitted.tree import FittedTree
from sstorch.reading.hooks import ReadableTree, fitted_tree
from sstorch.reading.rules import GateRule

# Terms of a rule that are written out.
_TERMS = 4


def path_table(tree: ReadableTree, X: object, *, entry: object, id: object) -> pd.DataFrame:
    """List the groups of subjects with time-varying covariates over time, with the reasons for changes.

    Args:
        tree: fitted.
        X: rows with the training columns.
        entry: start of each row, (n,). A row is valid until the next row of the subject, the last row without
            end.
        id: subject of each row, (n,).

    Returns:
        One row per stay of a subject in a group: ``id``, ``from``, ``until``, ``group``, and, except for the
        first stay, the ``gate`` that changed side, and ``why``: changes of its columns, and its rule.

    Raises:
        DataError: two rows of a subject start at the same time, a column is missing, or entry and id are not
            (n,).
    """
    fitted, rules, frame = fitted_tree(tree), tree._gate_rules, tree._cleaned(X)
    path = Paths.of(entry, id, len(frame))
    leaf, depth = fitted.leaf(fitted.encode(frame)), fitted.module.topology.depth
    columns = _columns_of_gates(fitted)
    stays: list[dict[str, object]] = []
    before = -1
    for row in np.lexsort((path.begin, path.subject)):
        same = before >= 0 and path.subject[row] == path.subject[before]
        if same and leaf[row] == leaf[before]:
            stays[-1]["until"] = path.end[row]
        else:
            gate, why = _turned(rules, columns, leaf, depth, frame, before, int(row)) if same else (0, "")
            stays.append(
                {
                    "id": path.ids[path.subject[row]],
                    "from": path.begin[row],
                    "until": path.end[row],
                    "group": int(fitted.group_numbers[leaf[row]]),
                    "gate": gate,
                    "why": why,
                }
            )
        before = int(row)
    return pd.DataFrame(stays, columns=["id", "from", "until", "group", "gate", "why"])


def _columns_of_gates(tree: FittedTree) -> dict[int, list[str]]:
    """Raw columns that each gate looks at."""
    features = tree.preprocessor.gate_features
    weight = tree.module.gate_parameters().weight.detach().cpu().numpy()
    return {
        node: list(dict.fromkeys(name for k in np.flatnonzero(weight[place]) for name in features[k].columns))
        for place, node in enumerate(tree.module.topology.branches)
    }


def _turned(
    rules: Mapping[int, GateRule],
    columns: Mapping[int, list[str]],
    leaf: np.ndarray,
    depth: int,
    frame: pd.DataFrame,
    before: int,
    row: int,
) -> tuple[int, str]:
    """The first gate that sends a row another way than the one before, and what is other there."""
    old, new = int(leaf[before]) + 2**depth, int(leaf[row]) + 2**depth
    while old >> 1 != new >> 1:
        old, new = old >> 1, new >> 1
    gate = new >> 1
    changes = [
        f"{name} {_text(frame[name].iloc[before])} -> {_text(frame[name].iloc[row])}"
        for name in columns[gate]
        if not _equal(frame[name].iloc[before], frame[name].iloc[row])
    ]
    return gate, f"{', '.join(changes)}: {rules[gate].text(_TERMS, right=bool(new % 2))}"


def _equal(one: Any, other: Any) -> bool:
    return one == other or bool(pd.isna(one) and pd.isna(other))


def _text(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    return f"{value:g}" if isinstance(value, float) else str(value)
