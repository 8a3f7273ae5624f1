"""Rules of a tree in original units: in full, for one person with the reasons, and with few columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor
from sstorch.exceptions import ConfigError, DataError
from sstorch.soft.fitted import FittedTree

# Terms of a rule that an explanation writes out.
_EXPLAINED_TERMS = 5
# Digits of numbers in simplified rules.
_LEAST_DIGITS, _MOST_DIGITS = 4, 15


# ---------------------------------------------------------------------- scores and rules


def coefficients(preprocessor: Preprocessor, weight: FloatArray) -> pd.DataFrame:
    """A linear score's slopes, largest effect first.

    Args:
        preprocessor: of the features the score is on.
        weight: slopes on the encoded features, shape (p,).

    Returns:
        Indexed by encoded feature: ``column`` (the raw column), ``coefficient`` (change of the score per
        original unit, or where the category applies) and ``effect`` (change over the training range of a
        number, or where the category applies). Features without information in the training rows are left
        out.
    """
    table = pd.DataFrame(
        {
            "column": [column for column, _ in preprocessor.schema.origins],
            "coefficient": weight * preprocessor.scale_,
            # After scaling every feature spans one unit, so the weight is the effect of the whole range.
            "effect": weight,
        },
        index=pd.Index(preprocessor.feature_names_out, name="feature"),
    )
    order = np.argsort(-np.abs(weight), kind="stable")
    informative: pd.DataFrame = table.iloc[order[preprocessor.scale_[order] != 0]]
    return informative


def effect_by_column(table: pd.DataFrame, columns: npt.ArrayLike) -> pd.Series:
    """Largest change of a score that each raw column can make within its training range.

    That of a number is its effect's size; that of a categorical column is the difference between its highest
    and lowest category, a missing one (effect 0) among them.

    Args:
        table: of :func:`coefficients`.
        columns: raw columns, all of them.
    """
    groups = table.groupby("column")["effect"]
    span = groups.max().clip(lower=0) - groups.min().clip(upper=0)
    return span.reindex(np.asarray(columns), fill_value=0.0)


@dataclass(frozen=True)
class LinearRule:
    """The rule of a gate in original units: rows go left where the score is >= 0.

    Attributes:
        table: its :func:`coefficients` that are not zero.
        constant: value of the score where all original numbers are zero and no category applies.
        middle: middle of the training range of each feature of the table, in original units.
    """

    table: pd.DataFrame
    constant: float
    middle: FloatArray

    @classmethod
    def of(cls, preprocessor: Preprocessor, weight: FloatArray, bias: float) -> LinearRule:
        """The rule of a score on encoded features with slopes (p,)."""
        scale, offset = preprocessor.scale_, preprocessor.offset_
        half = np.divide(0.5, scale, out=np.zeros_like(scale), where=scale != 0)
        middle = pd.Series(offset + half, index=preprocessor.feature_names_out)
        table = coefficients(preprocessor, weight)
        table = table[table["coefficient"] != 0.0]
        return cls(table, bias - float((weight * scale) @ offset), np.asarray(middle[table.index]))

    def rounded(self, digits: int) -> tuple[list[str], str]:
        """Coefficients and constant as they are written.

        What the rounding of a coefficient would change in the middle of its feature's range is made up for by
        the constant, which is written to a thousandth of the largest effect: else a column far from zero,
        such as a year, would turn the rule into another.

        Args:
            digits: significant digits of the coefficients; more of them make the constant finer, too.
        """
        values = self.table["coefficient"].to_numpy()
        numbers = [f"{value:+.{digits}g}" for value in values]
        change = values - np.array([float(number) for number in numbers])
        constant = self.constant + float(change @ self.middle)
        return numbers, _down_to(constant, float(self.table["effect"].abs().max()) / 10**digits)

    def text(self, n_terms: int | None = None, digits: int = 3) -> str:
        """The rule as ``+0.3 age -1.2 sex=female -14.05 >= 0``.

        Args:
            n_terms: how many terms are written out, the largest; the others are counted. None writes all.
            digits: significant digits of the coefficients.
        """
        if self.table.empty:
            return f"{self.constant:+.{digits}g} >= 0"
        numbers, constant = self.rounded(digits)
        terms = [f"{number} {name}" for number, name in zip(numbers, self.table.index, strict=True)]
        if n_terms is not None and len(terms) > n_terms:
            terms[n_terms:] = [f"({len(terms) - n_terms} smaller terms)"]
        return " ".join([*terms, constant, ">= 0"])


def _down_to(value: float, resolution: float) -> str:
    """A number with its sign and all digits down to a resolution, zeros at the end left out."""
    if value == 0:
        return "+0"
    decimals = max(math.ceil(-math.log10(resolution)), 0)
    return f"{value:+.{max(math.floor(math.log10(abs(value))) + 1 + decimals, 1)}g}"


def branch_index(tree: FittedTree) -> pd.Index:
    """The gates by heap number, as an index of tables."""
    return pd.Index(tree.module.topology.branches, name="node", dtype="int64")


def to_numbers(tensor: Tensor) -> FloatArray:
    """A tensor as an array of float64."""
    numbers: FloatArray = tensor.detach().cpu().double().numpy()
    return numbers


# ---------------------------------------------------------------------- explanation of one row


@dataclass(frozen=True)
class Explanation:
    """Path and contributions of one person.

    Attributes:
        leaf: of the most probable path, 0 .. L - 1 from left to right.
        path: a row for each gate on the path, indexed by node: ``score``, ``left`` (probability of going
            left), ``side`` taken, and ``reached``, the probability of everything up to and with this step.
        leaf_probability: of all leaves, shape (L,).
        contributions: what each encoded feature adds to the score of each gate on the path (columns
            ``"gate n"``) and to the linear predictor of the leaf (``"leaf k"``), with the last row
            ``(constant)``; a column sums to the score. Contributions count from the smallest training value
            of a number, and from the absence of a category: the constant is the score of who has these.
        values: the person's encoded features in original units, a category 1 where it applies; imputed where
            missing.
    """

    leaf: int
    path: pd.DataFrame
    leaf_probability: pd.Series
    contributions: pd.DataFrame
    values: pd.Series

    def __str__(self) -> str:
        lines = []
        for node, step in zip(self.path.index, self.path.to_dict("records"), strict=True):
            lines.append(
                f"[{node}] {step['side']}, probability of left {step['left']:.3f}, score {step['score']:+.3g}"
            )
            lines += self._terms(f"gate {node}")
        lines.append(f"leaf {self.leaf}, probability {self.leaf_probability[self.leaf]:.3f}")
        return "\n".join([*lines, *self._terms(f"leaf {self.leaf}")])

    def _terms(self, column: str) -> list[str]:
        table = pd.DataFrame({"term": self.contributions[column], "value": self.values}).loc[
            self.values.index
        ]
        table = table.iloc[np.argsort(-table["term"].abs().to_numpy(), kind="stable")][:_EXPLAINED_TERMS]
        terms = zip(table.index, table["term"], table["value"], strict=True)
        return [f"    {term:+.3g}  {name} = {value:.4g}" for name, term, value in terms if term]


def explain_row(tree: FittedTree, x: Tensor) -> Explanation:
    """Path and contributions of one encoded row, shape (1, p).

    Raises:
        DataError: it is not one row.
    """
    if len(x) != 1:
        raise DataError(f"x has {len(x)} rows; explain one at a time, such as X.iloc[[0]]")
    module, preprocessor = tree.module, tree.preprocessor
    topology = module.topology
    leaf, probability = int(tree.apply(x)[0]), tree.leaf_probability(x)[0]
    with torch.no_grad():
        node = leaf + 2**topology.depth
        columns, steps, reached = {}, [], 1.0
        for branch, goes_left in topology.ancestors(node):
            gate = module.gate(branch)
            columns[f"gate {branch}"] = _terms(x[0], gate.weight, gate.bias)
            score = float(columns[f"gate {branch}"].sum())
            left = float(torch.sigmoid(torch.tensor(score, dtype=torch.float64)))
            reached *= left if goes_left else 1 - left
            side = "left" if goes_left else "right"
            steps.append({"score": score, "left": left, "side": side, "reached": reached})
        regression = module.leaf(node)
        columns[f"leaf {leaf}"] = _terms(x[0], regression.slope, regression.intercept)
    names = preprocessor.feature_names_out
    scale = np.where(preprocessor.scale_ == 0, 1.0, preprocessor.scale_)
    values = to_numbers(x[0]) / scale + preprocessor.offset_
    index = pd.Index([step for step, _ in topology.ancestors(node)], name="node", dtype="int64")
    return Explanation(
        leaf,
        pd.DataFrame(steps, index=index, columns=["score", "left", "side", "reached"]),
        pd.Series(probability, index=pd.RangeIndex(len(probability), name="leaf"), name="probability"),
        pd.DataFrame(columns, index=pd.Index([*names, "(constant)"], name="feature")),
        pd.Series(values, index=pd.Index(names, name="feature"), name="value"),
    )


def _terms(x: Tensor, weight: Tensor, bias: Tensor) -> FloatArray:
    return to_numbers(torch.cat([weight * x, bias[None]]))


# ---------------------------------------------------------------------- shorter rules


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


def simplify(tree: FittedTree, x: Tensor, tolerance: float) -> SimplifiedRules:
    """Shorter rules that route nearly all rows as the gates do: see :meth:`ReadableTree.simplify`.

    Args:
        tree: trained.
        x: encoded rows, shape (n, p).
        tolerance: share of the rows at a gate that may change their side, in [0, 1).

    Raises:
        ConfigError: ``tolerance`` is no share.
    """
    given: object = tolerance
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= float(given) < 1:
        raise ConfigError(f"tolerance must be a share in [0, 1), got {tolerance!r}")
    topology, preprocessor = tree.module.topology, tree.preprocessor
    gates = tree.module.gate_parameters()
    weights, biases, features = to_numbers(gates.weight), to_numbers(gates.bias), to_numbers(x)
    leaf = tree.apply(x) + 2**topology.depth
    rows, short_weights, short_biases = [], weights.copy(), biases.copy()
    for node in topology.branches:
        inside = features[(leaf >> (topology.depth - topology.level(node))) == node]
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
    return SimplifiedRules(
        pd.DataFrame(rows, index=branch_index(tree), columns=["rule", "features", "n_dropped", "agreement"]),
        float((_route(features, short_weights, short_biases, topology.depth) == leaf).mean()),
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
    rule, left = LinearRule.of(preprocessor, weight, bias), x @ weight + bias >= 0
    used = np.flatnonzero(weight * preprocessor.scale_)
    if len(used) == 1:
        (j,), slope = used, rule.table["coefficient"].iloc[0]
        column, category = preprocessor.schema.origins[j]
        if category is None:
            values = x[:, j] / preprocessor.scale_[j] + preprocessor.offset_[j]
            return f"{column} {_threshold(-rule.constant / slope, values, left, rising=slope > 0)}"
        with_it, without = rule.constant + slope >= 0, rule.constant >= 0
        if with_it == without:
            return "always" if with_it else "never"
        return f"{column} {'is' if with_it else 'is not'} {category}"
    order = used[np.argsort(-np.abs(weight[used]), kind="stable")]
    values, digits = x[:, order] / preprocessor.scale_[order] + preprocessor.offset_[order], _LEAST_DIGITS
    while len(order) and digits < _MOST_DIGITS:
        numbers, constant = rule.rounded(digits)
        if ((values @ np.array(numbers, dtype=np.float64) + float(constant) >= 0) == left).all():
            break
        digits += 1
    return rule.text(digits=digits)


def _threshold(value: float, values: FloatArray, left: npt.NDArray[np.bool_], rising: bool) -> str:
    """A comparison with a threshold of as few digits as tell the same values from the others."""
    for digits in range(_LEAST_DIGITS, _MOST_DIGITS + 1):
        text = f"{value:.{digits}g}"
        holds = values >= float(text) if rising else values <= float(text)
        if (holds == left).all():
            break
    return f"{'>=' if rising else '<='} {text}"
