"""Rules of a tree in original units: in full, for one person with the reasons, and with few columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor
from sstorch.data.encodings import Feature
from sstorch.exceptions import ConfigError, DataError
from sstorch.soft.fitted import FittedTree

# Terms of a rule that an explanation writes out.
_EXPLAINED_TERMS = 5
# Digits of numbers in simplified rules.
_LEAST_DIGITS, _MOST_DIGITS = 4, 15
# Points in which the curve of a column is looked at.
_CURVE_POINTS = 201
_CONSTANT = "(constant)"


# ---------------------------------------------------------------------- scores and rules


@dataclass(frozen=True)
class Term:
    """A part of a linear score as people read it: a number, a category, a curve of a number, or a product.

    Attributes:
        name: such as ``"age"``, ``"grade=II"``, ``"s(age)"``, ``"log(size)"`` or ``"age:grade=II"``.
        columns: the raw column; of a product both.
        category: None unless it is one.
        base: positions of its columns among the scaled columns and categories.
        places: of its features among those of the score.
        is_curve: whether it is one.
    """

    name: str
    columns: tuple[str, ...]
    category: str | None
    base: tuple[int, ...]
    places: tuple[int, ...]
    is_curve: bool = False


def terms_of(preprocessor: Preprocessor, features: Sequence[Feature]) -> list[Term]:
    """The terms of scores on the features of gates or of leaves, in order; those of a curve are one term."""
    curves = {feature.columns for feature in features if feature.kind == "curve"}
    terms: dict[tuple[object, ...], Term] = {}
    for place, feature in enumerate(features):
        known = terms.get(feature.columns)
        if feature.columns not in curves or feature.kind == "product":
            category = preprocessor.schema.origins[feature.base[0]][1] if feature.kind == "column" else None
            terms[feature.columns, place] = Term(
                feature.name, feature.columns, category, feature.base, (place,)
            )
        elif known is None:
            terms[feature.columns] = Term(
                feature.name, feature.columns, None, feature.base, (place,), is_curve=True
            )
        else:
            name = f"s({feature.columns[0]})"
            terms[feature.columns] = replace(known, name=name, places=(*known.places, place))
    return list(terms.values())


@dataclass(frozen=True)
class Score:
    """A linear score on encoded features, term by term.

    The score of a row is the sum of weight x value over the terms, plus the bias. Values are the encoded
    features themselves, except that a curve is one value, which spans one unit over the training range.

    Attributes:
        terms: T of them.
        weight: shape (T,); of a curve the most that it changes the score within the training range, negative
            where it ends lower than it begins.
        bias: of the score.
        scale: units of a term's value in an original unit, shape (T,); of a curve 1; 0 of a term without
            information in the training rows.
        offset: the original number where the value is zero, shape (T,).
        curves: of each curve, by its position, the weights of its features, and what they sum to at the
            smallest training value.
    """

    terms: list[Term]
    weight: FloatArray
    bias: float
    scale: FloatArray
    offset: FloatArray
    curves: Mapping[int, tuple[FloatArray, float]]

    @classmethod
    def of_gate(cls, preprocessor: Preprocessor, weight: FloatArray, bias: float = 0.0) -> Score:
        """Of weights on the features that gates see."""
        return cls._of(preprocessor, preprocessor.gate_features, 0, weight, bias)

    @classmethod
    def of_leaf(cls, preprocessor: Preprocessor, weight: FloatArray, bias: float = 0.0) -> Score:
        """Of weights on the features that leaves see."""
        features = preprocessor.leaf_features
        first = len(preprocessor.features) - len(features)
        return cls._of(preprocessor, features, first, weight, bias)

    @classmethod
    def _of(
        cls,
        preprocessor: Preprocessor,
        features: Sequence[Feature],
        first: int,
        weight: FloatArray,
        bias: float,
    ) -> Score:
        terms, curves = terms_of(preprocessor, features), {}
        weights, scale, offset = np.zeros((3, len(terms)))
        for k, term in enumerate(terms):
            weights[k] = weight[term.places[0]]
            scale[k] = preprocessor.scale_[list(term.base)].prod()
            if term.is_curve:
                part, scale[k] = weight[list(term.places)], float(scale[k] != 0)
                curve = _curve(preprocessor, [first + place for place in term.places], term.base[0]) @ part
                curves[k] = part, float(curve[0])
                bias += float(curve[0])
                weights[k] = np.ptp(curve) if curve.argmax() > curve.argmin() else -np.ptp(curve)
            elif len(term.base) == 1:
                offset[k] = preprocessor.offset_[term.base[0]]
        return cls(terms, weights, bias, scale, offset, curves)

    def values(self, x: FloatArray) -> FloatArray:
        """Values of the terms, (n, T), from the features that the gate or leaf sees, (n, q)."""
        if not self.curves:
            return x
        columns = [x[:, term.places[0]] for term in self.terms]
        for k, (part, low) in self.curves.items():
            curve = x[:, list(self.terms[k].places)] @ part - low
            columns[k] = np.divide(curve, self.weight[k], out=np.zeros(len(x)), where=self.weight[k] != 0)
        return np.stack(columns, axis=1)

    def table(self) -> pd.DataFrame:
        """The terms, largest effect first.

        Returns:
            Indexed by name: ``column`` (the raw column, or two with a colon between), ``coefficient`` (change
            of the score per original unit, or where the category applies) and ``effect`` (change over the
            training range of a number, or where the category applies). A curve has its effect as its
            coefficient, too. Terms without information in the training rows are left out.
        """
        table = pd.DataFrame(
            {
                "column": [":".join(term.columns) for term in self.terms],
                "coefficient": self.weight * self.scale,
                # After scaling every feature spans one unit, so the weight is the effect of the whole range.
                "effect": self.weight,
            },
            index=pd.Index([term.name for term in self.terms], name="feature"),
        )
        order = np.argsort(-np.abs(self.weight), kind="stable")
        informative: pd.DataFrame = table.iloc[order[self.scale[order] != 0]]
        return informative

    def effect_by_column(self, columns: npt.ArrayLike) -> pd.Series:
        """Largest change of the score that each raw column can make within its training range.

        That of a number is its effect's size; that of a categorical column is the difference between its
        highest and lowest category, a missing one (effect 0) among them. A product counts for both columns.

        Args:
            columns: raw columns, all of them.
        """
        names = np.asarray(columns)
        high, low = pd.Series(0.0, index=names), pd.Series(0.0, index=names)
        products = pd.Series(0.0, index=names)
        for term, weight, scale in zip(self.terms, self.weight.tolist(), self.scale, strict=True):
            if scale == 0:
                continue
            if len(term.columns) == 1:
                (column,) = term.columns
                high[column], low[column] = max(high[column], weight), min(low[column], weight)
            else:
                products[list(term.columns)] += abs(weight)
        return high - low + products


def _curve(preprocessor: Preprocessor, places: list[int], base: int) -> FloatArray:
    """Some features, those of a curve, over the training range of its column, (k, their number)."""
    if preprocessor.basis_ is None:
        raise ValueError("curves of columns that stay as they are")
    z = np.zeros((_CURVE_POINTS, len(preprocessor.scale_)))
    z[:, base] = np.linspace(0, 1, len(z))
    return preprocessor.basis_.transform(z)[:, places]


@dataclass(frozen=True)
class LinearRule:
    """The rule of a gate in original units: rows go left where the score is >= 0.

    Attributes:
        table: of its :class:`Score`, terms that are not zero.
        constant: value of the score where all original numbers are zero and no category applies.
        middle: middle of the training range of each feature of the table, in original units.
    """

    table: pd.DataFrame
    constant: float
    middle: FloatArray

    @classmethod
    def of(cls, score: Score) -> LinearRule:
        """The rule of a gate's score."""
        scale, offset = score.scale, score.offset
        half = np.divide(0.5, scale, out=np.zeros_like(scale), where=scale != 0)
        middle = pd.Series(offset + half, index=[term.name for term in score.terms])
        table = score.table()
        table = table[table["coefficient"] != 0.0]
        constant = score.bias - float((score.weight * scale) @ offset)
        return cls(table, constant, np.asarray(middle[table.index]))

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
        contributions: what each number, category, curve or product adds to the score of each gate on the path
            (columns ``"gate n"``) and to the linear predictor of the leaf (``"leaf k"``), with the last row
            ``(constant)``; a column sums to the score. Contributions count from the smallest training value
            of a number, and from the absence of a category: the constant is the score of who has these.
        values: of these terms in original units, a category 1 where it applies, of a curve the number that it
            is of; imputed where missing.
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


def explain_row(tree: FittedTree, frame: pd.DataFrame) -> Explanation:
    """Path and contributions of one row, of the columns of the preprocessing.

    Raises:
        DataError: it is not one row.
    """
    if len(frame) != 1:
        raise DataError(f"x has {len(frame)} rows; explain one at a time, such as X.iloc[[0]]")
    x, module, preprocessor = tree.encode(frame), tree.module, tree.preprocessor
    topology = module.topology
    leaf, probability = int(tree.apply(x)[0]), tree.leaf_probability(x)[0]
    columns: dict[str, dict[str, float]] = {}
    values: dict[str, float] = {}
    scaled = preprocessor.scaled(frame)[0]
    scale = np.where(preprocessor.scale_ == 0, 1.0, preprocessor.scale_)
    original = scaled / scale + preprocessor.offset_

    def add(column: str, score: Score, features: FloatArray) -> float:
        """A score's terms as a column, and their sum."""
        parts = [*(score.weight * score.values(features)[0]).tolist(), score.bias]
        names = [*(term.name for term in score.terms), _CONSTANT]
        columns[column] = dict(zip(names, parts, strict=True))
        values.update((term.name, float(original[list(term.base)].prod())) for term in score.terms)
        return float(np.sum(parts))

    node, steps, reached = leaf + 2**topology.depth, [], 1.0
    for branch, goes_left in topology.ancestors(node):
        gate = module.gate(branch)
        score = Score.of_gate(preprocessor, to_numbers(gate.weight), float(gate.bias.detach()))
        value = add(f"gate {branch}", score, to_numbers(x[:, : module.n_gate_features]))
        left = float(torch.sigmoid(torch.tensor(value, dtype=torch.float64)))
        reached *= left if goes_left else 1 - left
        side = "left" if goes_left else "right"
        steps.append({"score": value, "left": left, "side": side, "reached": reached})
    regression = module.leaf(node)
    score = Score.of_leaf(preprocessor, to_numbers(regression.slope), float(regression.intercept.detach()))
    add(f"leaf {leaf}", score, to_numbers(x[:, x.shape[1] - module.n_features :]))
    index = pd.Index([step for step, _ in topology.ancestors(node)], name="node", dtype="int64")
    names = pd.Index([*values, _CONSTANT], name="feature")
    return Explanation(
        leaf,
        pd.DataFrame(steps, index=index, columns=["score", "left", "side", "reached"]),
        pd.Series(probability, index=pd.RangeIndex(len(probability), name="leaf"), name="probability"),
        # A gate and a leaf may see a column in two ways: what one of them does not see adds nothing to it.
        pd.DataFrame(columns, index=names).fillna(0.0),
        pd.Series(values, index=pd.Index(values, name="feature"), name="value"),
    )


# ---------------------------------------------------------------------- shorter rules


@dataclass(frozen=True)
class SimplifiedRules:
    """Rules with fewer features.

    Attributes:
        table: indexed by node: ``rule`` in original units (left where it holds), ``features`` in it,
            ``n_dropped``, and ``agreement``, the share of the rows at the gate that go the same way; nan
            where no row passes, whose gates are left as they are.
        leaf_agreement: share of all rows that end in the same leaf if every gate is replaced.
        coefficients: of the terms of the gates in original units, shape (B, T), gates in heap order.
        constants: shape (B,); a row goes left where coefficients . values + constant >= 0.
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
    features = to_numbers(x[:, : tree.module.n_gate_features])
    leaf = tree.apply(x) + 2**topology.depth
    rows, short, goes_right = [], [], np.zeros((len(x), len(topology.branches)), dtype=bool)
    for node, weight, bias in zip(
        topology.branches, to_numbers(gates.weight), to_numbers(gates.bias).tolist(), strict=True
    ):
        score = Score.of_gate(preprocessor, weight, bias)
        values, here = score.values(features), (leaf >> (topology.depth - topology.level(node))) == node
        inside = values[here]
        shorter = _shortened(inside, _with_references(preprocessor, inside, score), float(tolerance))
        alike = (inside @ shorter.weight + shorter.bias >= 0) == (inside @ score.weight + score.bias >= 0)
        goes_right[:, node - 1] = (shorter.weight * values).sum(axis=1) + shorter.bias < 0
        used = np.flatnonzero(shorter.weight * shorter.scale)
        rows.append(
            {
                "rule": _text(shorter, inside),
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
        pd.DataFrame(rows, index=branch_index(tree), columns=["rule", "features", "n_dropped", "agreement"]),
        float((end == leaf).mean()),
        np.array([score.weight * score.scale for score in short]).reshape(-1, n_terms),
        np.array([score.bias - (score.weight * score.scale) @ score.offset for score in short]),
    )


def _with_references(preprocessor: Preprocessor, x: FloatArray, score: Score) -> Score:
    """The same score with each column's most frequent category as reference, where none is missing."""
    weight, bias = score.weight.copy(), score.bias
    for column in preprocessor.schema.categories:
        block = np.array([j for j, term in enumerate(score.terms) if term.columns == (column,)], dtype=int)
        if len(x) and len(block) and (x[:, block].sum(axis=1) == 1).all():
            reference = weight[block[x[:, block].sum(axis=0).argmax()]]
            weight[block] -= reference
            bias = bias + reference
    return replace(score, weight=weight, bias=bias)


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


def _text(score: Score, x: FloatArray) -> str:
    """The rule, with as many digits as it takes to say the same of the rows' values (n, T).

    With one term left it is a threshold, or a category.
    """
    rule, left = LinearRule.of(score), x @ score.weight + score.bias >= 0
    used = np.flatnonzero(score.weight * score.scale)
    if len(used) == 1 and not score.terms[used[0]].is_curve:
        (j,), slope = used, rule.table["coefficient"].iloc[0]
        (column,), category = score.terms[j].columns, score.terms[j].category
        if category is None:
            values = x[:, j] / score.scale[j] + score.offset[j]
            return f"{column} {_threshold(-rule.constant / slope, values, left, rising=slope > 0)}"
        with_it, without = rule.constant + slope >= 0, rule.constant >= 0
        if with_it == without:
            return "always" if with_it else "never"
        return f"{column} {'is' if with_it else 'is not'} {category}"
    order = used[np.argsort(-np.abs(score.weight[used]), kind="stable")]
    values, digits = x[:, order] / score.scale[order] + score.offset[order], _LEAST_DIGITS
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
