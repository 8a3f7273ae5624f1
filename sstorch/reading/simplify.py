"""Shorter rules that route nearly all rows alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_part
from sstorch.data.coded import dense
from sstorch.nn.design_matrix import first_features
from sstorch.reading.hooks import ReadableTree, fitted_tree
from sstorch.reading.rules import GateRule, branch_index, rows_of_gates, switches, with_references
from sstorch.reading.scores import Score, terms_of, to_numbers


@dataclass(frozen=True)
class SimplifiedRules:
    """Rules with fewer features.

    Attributes:
        table: indexed by node: ``rule`` in original units (left if it holds), its ``features``,
            ``n_dropped``, and ``agreement``, the share of the rows at the gate that stay on their side; nan
            for gates without rows, which are unchanged.
        leaf_agreement: share of all rows that end in the same leaf if every gate is replaced.
        coefficients: coefficients of the gates in original units, shape (B, T), gates in heap order.
        constants: shape (B,); a row goes left if coefficients . values + constant >= 0.
    """

    table: pd.DataFrame
    leaf_agreement: float
    coefficients: FloatArray
    constants: FloatArray

    def __str__(self) -> str:
        lines = [
            f"[{node}] yes if {row['rule']}  ({100 * row['agreement']:.1f} % of rows alike)"
            for node, row in self.table.iterrows()
        ]
        return "\n".join([*lines, f"{100 * self.leaf_agreement:.1f} % of rows in the same leaf"])


def simplify(tree: ReadableTree, X: object, tolerance: float = 0.01) -> SimplifiedRules:
    """Shorten rules of gates while nearly all rows stay on their side.

    Features are dropped from a gate one after the other, those with the smallest variation first, and
    replaced by their mean among the rows at the gate, as long as at most a share ``tolerance`` of these rows
    changes side. The tree is unchanged.

    Args:
        tree: fitted.
        X: rows, preferably the training rows.
        tolerance: in [0, 1).

    Raises:
        ConfigError: ``tolerance`` is not in [0, 1).
    """
    fitted, x = fitted_tree(tree), tree._encode(X)
    tolerance = check_part("tolerance", tolerance)
    topology, preprocessor = fitted.module.topology, fitted.preprocessor
    features = to_numbers(dense(first_features(x, fitted.module.n_gate_features)))
    rows, short, goes_right = [], [], np.zeros((len(x), len(topology.branches)), dtype=bool)
    leaf, known = fitted.leaf(x) + 2**topology.depth, switches(fitted, x)
    for node, score, here, _ in rows_of_gates(fitted, leaf):
        values = score.values(features)
        inside = values[here]
        shorter = _shortened(inside, with_references(preprocessor, inside, score), tolerance)
        left = inside @ shorter.weight + shorter.bias >= 0
        alike = left == (inside @ score.weight + score.bias >= 0)
        goes_right[:, node - 1] = (shorter.weight * values).sum(axis=1) + shorter.bias < 0
        used = np.flatnonzero(shorter.weight * shorter.scale)
        rows.append(
            {
                "rule": GateRule.of(shorter, inside, left, known).text(),
                "features": [score.terms[j].name for j in used],
                "n_dropped": int(np.count_nonzero(score.weight * score.scale)) - len(used),
                "agreement": float(alike.mean()) if len(alike) else np.nan,
            }
        )
        short.append(shorter)
    end = np.ones(len(x), dtype=np.int64)
    for _ in range(topology.depth):
        end = 2 * end + goes_right[np.arange(len(x)), end - 1]
    n_terms = len(terms_of(preprocessor, preprocessor.gate_features))
    return SimplifiedRules(
        pd.DataFrame(
            rows, index=branch_index(fitted), columns=["rule", "features", "n_dropped", "agreement"]
        ),
        float((end == leaf).mean()),
        np.array([score.weight * score.scale for score in short]).reshape(-1, n_terms),
        np.array([score.bias - (score.weight * score.scale) @ score.offset for score in short]),
    )


def _shortened(x: FloatArray, score: Score, tolerance: float) -> Score:
    """A gate's score with as many zeros as few changes of side allow."""
    weight, bias = score.weight.copy(), score.bias
    if len(x) == 0:
        return score
    left = x @ weight + bias >= 0
    means = x.mean(axis=0)
    for j in np.argsort(np.abs(weight) * x.std(axis=0), kind="stable"):
        if weight[j] == 0 or np.count_nonzero(weight) == 1:
            continue
        shorter, moved = weight.copy(), bias + weight[j] * means[j]
        shorter[j] = 0.0
        if np.mean((x @ shorter + moved >= 0) != left) <= tolerance:
            weight, bias = shorter, moved
    return replace(score, weight=weight, bias=bias)
