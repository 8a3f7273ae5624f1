"""Shorter rules in the place of a tree's gates, and how often they agree with it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.data import Preprocessor
from sstorch.estimators.rules import middles, rounded, rule_text
from sstorch.exceptions import ConfigError

if TYPE_CHECKING:
    from sstorch.estimators.readable import ReadableTree

FloatArray = npt.NDArray[np.float64]

# Digits of numbers in rules.
_LEAST_DIGITS, _MOST_DIGITS = 4, 15


@dataclass(frozen=True)
class SimplifiedRules:
    """Rules with fewer features.

    Attributes:
        table: indexed by node: ``rule`` in original units (left where it holds), ``features`` in it,
            ``n_dropped``, and ``agreement``, the share of the rows at the gate that go the same way; nan
            where no row passes, whose gates are left as they are.
        leaf_agreement: share of all rows that end in the same leaf if every gate is replaced.
        coefficients: of the encoded features in original units, shape (B, p), gates in heap order.
        constants: shape (B,); a row goes left where coefficients . x + constant >= 0.
    """

    table: pd.DataFrame
    leaf_agreement: float
    coefficients: FloatArray
    constants: FloatArray

    def __str__(self) -> str:
        lines = [
            f"[{node}] left if {row['rule']}  ({100 * row['agreement']:.1f} % of rows alike)"
            for node, row in self.table.iterrows()
        ]
        return "\n".join([*lines, f"{100 * self.leaf_agreement:.1f} % of rows in the same leaf"])


def simplify(tree: ReadableTree, X: object, tolerance: float) -> SimplifiedRules:
    """See :meth:`ReadableTree.simplify`."""
    given: object = tolerance
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= float(given) < 1:
        raise ConfigError(f"tolerance must be a share in [0, 1), got {tolerance!r}")
    module, preprocessor = tree.module_, tree.preprocessor_
    topology = module.topology
    x = tree._encode(X).cpu().double().numpy()
    gates = module.gate_parameters()
    weights, biases = (part.detach().cpu().double().numpy() for part in (gates.weight, gates.bias))
    leaf = tree.apply(X) + 2**topology.depth
    rows, short_weights, short_biases = [], weights.copy(), biases.copy()
    for node in topology.branches:
        inside = x[(leaf >> (topology.depth - topology.level(node))) == node]
        weight, bias = _with_references(preprocessor, inside, weights[node - 1], biases[node - 1])
        weight, bias = _shortened(inside, weight, bias, float(tolerance))
        short_weights[node - 1], short_biases[node - 1] = weight, bias
        alike = (inside @ weight + bias >= 0) == (inside @ weights[node - 1] + biases[node - 1] >= 0)
        used = np.flatnonzero(weight * preprocessor.scale_)
        rows.append(
            {
                "rule": _text(preprocessor, weight, bias, inside),
                "features": [preprocessor.feature_names_out[j] for j in used],
                "n_dropped": int(np.count_nonzero(weights[node - 1] * preprocessor.scale_)) - len(used),
                "agreement": float(alike.mean()) if len(alike) else np.nan,
            }
        )
    slopes = short_weights * preprocessor.scale_
    index = pd.Index(topology.branches, name="node", dtype="int64")
    return SimplifiedRules(
        pd.DataFrame(rows, index=index, columns=["rule", "features", "n_dropped", "agreement"]),
        float((_route(x, short_weights, short_biases, topology.depth) == leaf).mean()),
        slopes,
        short_biases - slopes @ preprocessor.offset_,
    )


def _with_references(
    preprocessor: Preprocessor, x: FloatArray, weight: FloatArray, bias: float
) -> tuple[FloatArray, float]:
    """The same score with each column's most frequent category as reference, where none is missing."""
    weight = weight.copy()
    columns = np.array([column for column, _ in preprocessor.schema.origins])
    for column in preprocessor.schema.categories:
        block = np.flatnonzero(columns == column)
        if len(x) and len(block) and (x[:, block].sum(axis=1) == 1).all():
            reference = weight[block[x[:, block].sum(axis=0).argmax()]]
            weight[block] -= reference
            bias = bias + reference
    return weight, bias


def _shortened(x: FloatArray, weight: FloatArray, bias: float, tolerance: float) -> tuple[FloatArray, float]:
    """Weights of one gate with as many zeros as few changes of side allow."""
    weight = weight.copy()
    if len(x) == 0:
        return weight, bias
    left = x @ weight + bias >= 0
    means = x.mean(axis=0)
    for j in np.argsort(np.abs(weight) * x.std(axis=0), kind="stable"):
        if weight[j] == 0 or np.count_nonzero(weight) == 1:
            continue
        shorter, moved = weight.copy(), bias + weight[j] * means[j]
        shorter[j] = 0.0
        if np.mean((x @ shorter + moved >= 0) != left) <= tolerance:
            weight, bias = shorter, moved
    return weight, bias


def _route(x: FloatArray, weights: FloatArray, biases: FloatArray, depth: int) -> npt.NDArray[np.int64]:
    node = np.ones(len(x), dtype=np.int64)
    for _ in range(depth):
        right = (weights[node - 1] * x).sum(axis=1) + biases[node - 1] < 0
        node = 2 * node + right
    return node


def _text(preprocessor: Preprocessor, weight: FloatArray, bias: float, x: FloatArray) -> str:
    """The rule, with as many digits as it takes to say the same of the rows (n, p).

    With one feature left it is a threshold, or a category.
    """
    slope = weight * preprocessor.scale_
    used = np.flatnonzero(slope)
    constant, left = bias - float(slope @ preprocessor.offset_), x @ weight + bias >= 0
    if len(used) == 1:
        (j,) = used
        column, category = preprocessor.schema.origins[j]
        if category is None:
            values = x[:, j] / preprocessor.scale_[j] + preprocessor.offset_[j]
            return f"{column} {_threshold(-constant / slope[j], values, left, rising=slope[j] > 0)}"
        with_it, without = constant + slope[j] >= 0, constant >= 0
        if with_it == without:
            return "always" if with_it else "never"
        return f"{column} {'is' if with_it else 'is not'} {category}"
    order = used[np.argsort(-np.abs(weight[used]), kind="stable")]
    names = np.asarray(preprocessor.feature_names_out)[order]
    table = pd.DataFrame({"coefficient": slope[order], "effect": weight[order]}, index=names)
    middle, digits = middles(preprocessor), _LEAST_DIGITS
    values = x[:, order] / preprocessor.scale_[order] + preprocessor.offset_[order]
    while len(order) and digits < _MOST_DIGITS:
        numbers, last = rounded(table, constant, middle, digits)
        if ((values @ np.array(numbers, dtype=np.float64) + float(last) >= 0) == left).all():
            break
        digits += 1
    return rule_text(table, constant, middle, digits=digits)


def _threshold(value: float, values: FloatArray, left: npt.NDArray[np.bool_], rising: bool) -> str:
    """A comparison with a threshold of as few digits as tell the same values from the others."""
    for digits in range(_LEAST_DIGITS, _MOST_DIGITS + 1):
        text = f"{value:.{digits}g}"
        told = values >= float(text) if rising else values <= float(text)
        if (told == left).all():
            break
    return f"{'>=' if rising else '<='} {text}"
