"""Rules of a tree in original units: in full, for one person with the reasons, and with few columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import product
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.data import Preprocessor
from sstorch.data.encodings import Feature
from sstorch.data.persons import CONSTANT_COVARIATES
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted.tree import FittedTree

# Terms of a rule that an explanation writes out.
_EXPLAINED_TERMS = 5
# Most digits of a number in a rule, and those where no row tells how many it takes.
_MOST_DIGITS, _USUAL_DIGITS = 15, 3
# Points in which the curve of a column is looked at.
_CURVE_POINTS = 201
_CONSTANT = "(constant)"
# Of categories of some columns that are looked at to write a rule as a list.
_MOST_COMBINATIONS = 256


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

    def with_modes(self, modes: Mapping[str, str]) -> Score:
        """The same score of rows without missing categories, with a reference in every categorical column.

        Args:
            modes: by column the category whose weight becomes zero; the bias takes it over.
        """
        weight, bias = self.weight.copy(), self.bias
        for column, mode in modes.items():
            block = [j for j, term in enumerate(self.terms) if term.columns == (column,)]
            reference = sum(weight[j] for j in block if self.terms[j].category == mode)
            weight[block] -= reference
            bias += float(reference)
        return replace(self, weight=weight, bias=bias)

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
        the constant, which is written as finely as the largest effect: else a column far from zero, such as a
        year, would turn the rule into another.

        Args:
            digits: significant digits of the coefficients; more of them make the constant finer, too.
        """
        values = self.table["coefficient"].to_numpy()
        numbers = [_number(value, digits, "+") for value in values]
        change = values - np.array([float(number) for number in numbers])
        constant = self.constant + float(change @ self.middle)
        return numbers, _down_to(constant, float(self.table["effect"].abs().max()) / 10**digits)


@dataclass(frozen=True)
class GateRule:
    """The rule of a gate as it is written: rows go left where it holds.

    It is a sum of terms that is compared with zero, or the threshold of one number, which may depend on a
    category, or lists of categories.

    Attributes:
        holds: the rule, of a sum its end: ``"-14.05 >= 0"``, ``"pnodes <= 5"``, ``"tgrade in {II, III}"``,
            ``"pnodes <= 3 where horTh is no, <= 7 where horTh is yes"``.
        fails: the same of who goes right: ``"-14.05 < 0"``, ``"pnodes > 5"``, ``"tgrade is I"``.
        terms: of a sum, the largest first: ``"+0.3 age"``, ``"-1.2 sex=female"``; of other rules none.
        threshold: of a rule that has one for all.
    """

    holds: str
    fails: str
    terms: tuple[str, ...] = ()
    threshold: float | None = None

    @classmethod
    def of(cls, score: Score, x: FloatArray, left: npt.NDArray[np.bool_]) -> GateRule:
        """The rule of a gate's score, with as few digits as send all rows the way they go.

        Rounding may leave no such number of digits; it is then the smallest that misplaces the fewest rows.

        Args:
            score: of the gate.
            x: values of its terms, of the rows that pass the gate, (n, T). Where these all go one way, or are
                none, numbers have three digits or more.
            left: whether each row goes left, (n,).
        """
        rule, used = LinearRule.of(score), np.flatnonzero(score.weight * score.scale)
        least = 1 if left.any() and not left.all() else _USUAL_DIGITS
        if len(used) == 0:
            return cls("always", "never") if rule.constant >= 0 else cls("never", "always")
        terms = [score.terms[j] for j in used]
        if all(term.category is not None for term in terms):
            columns = list(dict.fromkeys(term.columns[0] for term in terms))
            listed = (
                _category_rule(score, x, *columns) if len(columns) == 1 else _joint_rule(score, x, columns)
            )
            if listed is not None:
                return listed
        if len(terms) == 1 and not terms[0].is_curve and len(terms[0].columns) == 1:
            (j,), slope = used, rule.table["coefficient"].iloc[0]
            values = x[:, j] / score.scale[j] + score.offset[j]
            below = ~left if slope > 0 else left
            threshold = _threshold(-rule.constant / slope, values, below, least)
            sides = f"{terms[0].name} <= {threshold}", f"{terms[0].name} > {threshold}"
            return cls(*(sides[::-1] if slope > 0 else sides), threshold=float(threshold))
        straight = [j for j in used if score.terms[j].category is None]
        others = {term.columns for term in terms if term.category is not None}
        if len(straight) == 1 and len(others) == 1:
            (number,) = (score.terms[j] for j in straight)
            if not number.is_curve and len(number.columns) == 1:
                return _threshold_by_category(score, rule, x, left, int(straight[0]), *others.pop())
        order = used[np.argsort(-np.abs(score.weight[used]), kind="stable")]
        values = x[:, order] / score.scale[order] + score.offset[order]

        def misplaced(digits: int) -> int:
            numbers, constant = rule.rounded(digits)
            told = values @ np.array(numbers, dtype=np.float64) + float(constant) >= 0
            return int(np.count_nonzero(told != left))

        numbers, constant = rule.rounded(_fewest(misplaced, least)[0])
        written = (f"{number} {name}" for number, name in zip(numbers, rule.table.index, strict=True))
        return cls(f"{constant} >= 0", f"{constant} < 0", tuple(written))

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> GateRule:
        """The rule of a file."""
        threshold = None if state["threshold"] is None else float(state["threshold"])
        terms = tuple(str(term) for term in state["terms"])
        return cls(str(state["holds"]), str(state["fails"]), terms, threshold)

    def text(self, n_terms: int | None = None, right: bool = False) -> str:
        """The rule as ``+0.3 age -1.2 sex=female -14.05 >= 0``.

        Args:
            n_terms: how many terms are written out, the largest; the others are counted. None writes all.
            right: write what is so of the rows that go right.
        """
        shown = list(self.terms)
        if n_terms is not None and len(shown) > n_terms:
            shown[n_terms:] = [f"({len(shown) - n_terms} smaller terms)"]
        return " ".join([*shown, self.fails if right else self.holds])


def _category_rule(score: Score, x: FloatArray, column: str) -> GateRule:
    """The rule of a gate that looks at one categorical column alone: which categories go where."""
    block = _block(score, column)
    sides: dict[bool, list[str]] = {True: [], False: []}
    for j in block:
        sides[bool(score.weight[j] + score.bias >= 0)].append(str(score.terms[j].category))
    # The side of rows whose category is missing, if there are any.
    missing = bool(score.bias >= 0) if (x[:, block].sum(axis=1) == 0).any() else None

    def text(side: bool) -> str:
        words, others = sides[side], sides[not side]
        if not others and missing in (None, side):
            return "always"
        if not words and missing != side:
            return "never"
        return _membership(column, words, others, None if missing is None else missing == side)

    return GateRule(text(True), text(False))


def _threshold_by_category(
    score: Score, rule: LinearRule, x: FloatArray, left: npt.NDArray[np.bool_], number: int, column: str
) -> GateRule:
    """The rule of a gate that looks at a number and a categorical column: a threshold for each category."""
    scale, offset = score.scale[number], score.offset[number]
    slope, block = score.weight[number] * scale, _block(score, column)
    values, below = x[:, number] / scale + offset, (~left if slope > 0 else left)
    words: list[str | None] = [str(score.terms[j].category) for j in block]
    shifts, of_row = score.weight[block], x[:, block].argmax(axis=1)
    if (missing := x[:, block].sum(axis=1) == 0).any():
        words, shifts, of_row = [*words, None], np.append(shifts, 0.0), np.where(missing, len(words), of_row)
    # Categories by threshold: of one threshold they are one, and beyond the training range alone decisive.
    found: dict[str, list[str | None]] = {}
    for place, word in enumerate(words):
        exact, rows = -(rule.constant + shifts[place]) / slope, of_row == place
        if offset <= exact < offset + 1 / scale:
            least = 1 if below[rows].any() and not below[rows].all() else _USUAL_DIGITS
            found.setdefault(_threshold(exact, values[rows], below[rows], least), []).append(word)
        else:
            found.setdefault("never" if exact < offset else "always", []).append(word)
    if set(found) == {"never", "always"}:  # the number decides nothing within its range
        at_most_all, none = (
            _membership(
                column,
                [word for word in found[side] if word is not None],
                [word for word in found[other] if word is not None],
                None if words[-1] else None in found[side],
            )
            for side, other in (("always", "never"), ("never", "always"))
        )
        return GateRule(*((none, at_most_all) if slope > 0 else (at_most_all, none)))
    at_most, above = [], []
    for threshold in sorted(found, key=lambda text: text in ("never", "always")):
        inside = found[threshold]
        others = [str(word) for word in words if word not in inside and word is not None]
        listed = _membership(
            column,
            [word for word in inside if word is not None],
            others,
            None if words[-1] else None in inside,
        )
        where = f" where {listed}" if len(found) > 1 else ""
        opposite = {"never": "always", "always": "never"}.get(threshold)
        at_most.append(f"{threshold if opposite else f'<= {threshold}'}{where}")
        above.append(f"{opposite or f'> {threshold}'}{where}")
    if opposite and len(found) == 1:
        sides = at_most[0], above[0]
    else:
        name = score.terms[number].name
        sides = f"{name} {', '.join(at_most)}", f"{name} {', '.join(above)}"
    value = float(threshold) if len(found) == 1 and not opposite else None
    return GateRule(*(sides[::-1] if slope > 0 else sides), threshold=value)


def _joint_rule(score: Score, x: FloatArray, columns: list[str]) -> GateRule | None:
    """The rule of a gate that looks at some categorical columns alone, if "and" or "or" can say it.

    One side then holds all combinations of some categories of each column, and the other side the rest.
    """
    blocks = [_block(score, column) for column in columns]
    n_combinations = math.prod(len(block) for block in blocks)
    if n_combinations > _MOST_COMBINATIONS or any((x[:, block].sum(axis=1) == 0).any() for block in blocks):
        return None
    combinations = np.array(list(product(*blocks)))
    left = score.weight[combinations].sum(axis=1) + score.bias >= 0
    if left.all() or not left.any():
        return GateRule("always", "never") if left.all() else GateRule("never", "always")
    for side in (True, False):
        ours = [[j for j in block if (combinations[left == side] == j).any()] for block in blocks]
        if math.prod(len(block) for block in ours) != np.count_nonzero(left == side):
            continue
        inside, outside = [], []
        for column, block, chosen in zip(columns, blocks, ours, strict=True):
            words = [str(score.terms[j].category) for j in chosen]
            if others := [str(score.terms[j].category) for j in block if j not in chosen]:
                inside.append(_membership(column, words, others))
                outside.append(_membership(column, others, words))
        sides = " and ".join(inside), " or ".join(outside)
        return GateRule(*(sides if side else sides[::-1]))
    return None


def _block(score: Score, column: str) -> list[int]:
    """Terms of the categories of a column that training rows had."""
    return [
        j
        for j, (term, scale) in enumerate(zip(score.terms, score.scale, strict=True))
        if term.columns == (column,) and term.category is not None and scale != 0
    ]


def _membership(column: str, words: list[str], others: list[str], missing: bool | None = None) -> str:
    """That a column is one of some words, none of the others, and ``missing`` or not, None where none is."""
    # Who has no category is none of any: the others are listed. So they are where they are far fewer.
    if missing or (missing is None and len(words) > len(others) + 1):
        return f"{column} {'is not' if len(others) == 1 else 'not in'} {_listed(others)}"
    return f"{column} {'is' if len(words) == 1 else 'in'} {_listed(words)}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{{{', '.join(words)}}}"


def _threshold(value: float, values: FloatArray, below: npt.NDArray[np.bool_], least: int) -> str:
    """The threshold of fewest digits that has the right values at or below it, near to a given one."""
    starts = [value]
    if below.any() and not below.all():
        # A value right at the threshold may have to be above it.
        starts.append(0.5 * float(values[below].max() + values[~below].min()))

    def misplaced(start: float) -> Callable[[int], int]:
        return lambda digits: int(np.count_nonzero((values <= float(_number(start, digits))) != below))

    found = [(*_fewest(misplaced(start), least), start) for start in starts]
    digits, _, start = min(found, key=lambda one: one[1])
    return _number(start, digits)


def _fewest(misplaced: Callable[[int], int], least: int) -> tuple[int, int]:
    """The smallest number of digits with the fewest misplaced rows, and how many these are."""
    best = least, misplaced(least)
    for digits in range(least + 1, _MOST_DIGITS + 1):
        if best[1] == 0:
            break
        count = misplaced(digits)
        best = (digits, count) if count < best[1] else best
    return best


def _number(value: float, digits: int, sign: str = "") -> str:
    """A number of some significant digits, ``70`` and not ``7e+01``."""
    return f"{float(f'{value:.{digits}g}') + 0.0:{sign}.{_MOST_DIGITS}g}"


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


def gate_rules(tree: FittedTree, x: Tensor) -> dict[int, GateRule]:
    """The rules of all gates, by node.

    The most frequent category of a column among the rows at a gate is its reference, where none is missing:
    it is not written, and of two categories only one is.

    Args:
        tree: trained.
        x: encoded rows, (n, p), those of training: numbers have as few digits as send all of them the way
            they go.
    """
    features = to_numbers(x[:, : tree.module.n_gate_features])
    leaf = tree.leaf(x) + 2**tree.module.topology.depth
    rules = {}
    for node, score, here, left in _gates(tree, leaf):
        inside = score.values(features[here])
        rules[node] = GateRule.of(_with_references(tree.preprocessor, inside, score), inside, left[here])
    return rules


def conditions(
    way: Sequence[tuple[int, bool]], rules: Mapping[int, GateRule], n_terms: int | None = None
) -> str:
    """What holds of the rows that take a way down the tree, joined by "and".

    Of thresholds that bound a number on the same side the tightest alone is written.

    Args:
        way: gates, and whether the way goes left there.
        rules: of the gates.
        n_terms: terms of a rule that are written out; None for all.
    """
    texts: dict[str, tuple[str, float]] = {}
    for node, left in way:
        rule, text = rules[node], rules[node].text(n_terms, right=not left)
        if rule.threshold is None:
            texts[text] = text, 0.0
            continue
        bounded, _ = text.rsplit(" ", 1)
        if bounded not in texts or (rule.threshold < texts[bounded][1]) == bounded.endswith("<="):
            texts[bounded] = text, rule.threshold
    found = [text for text, _ in texts.values()]
    several = (" or ", " where ")
    return " and ".join(
        f"({text})" if len(found) > 1 and any(word in text for word in several) else text for text in found
    )


def _gates(
    tree: FittedTree, leaf: IntArray
) -> Iterator[tuple[int, Score, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Node and score of each gate, the rows that pass it, and whether they then go left; by end nodes."""
    topology, gates = tree.module.topology, tree.module.gate_parameters()
    for node, weight, bias in zip(
        topology.branches, to_numbers(gates.weight), to_numbers(gates.bias).tolist(), strict=True
    ):
        below = topology.depth - topology.level(node)
        here, left = leaf >> below == node, leaf >> (below - 1) == 2 * node
        yield node, Score.of_gate(tree.preprocessor, weight, bias), here, left


# ---------------------------------------------------------------------- explanation of one row


@dataclass(frozen=True)
class Explanation:
    """Path and contributions of one person.

    Attributes:
        leaf: of the most probable path, 0 .. L - 1 from left to right.
        path: a row for each gate on the path, indexed by node: ``score``, ``left`` (probability of going
            left), ``side`` taken, ``reached``, the probability of everything up to and with this step, and
            ``lives``, whether the training rows of that side live ``"longer"`` or ``"shorter"`` than those of
            the other (predicted survival at round times, their mean), ``""`` if one side has none.
        leaf_probability: of all leaves, shape (L,).
        contributions: what each number, category, curve or product adds to the score of each gate on the path
            (columns ``"gate n"``) and to the linear predictor of the leaf (``"leaf k"``), with the last row
            ``(constant)``; a column sums to the score. Contributions count from the smallest training value
            of a number, and from the absence of a category: the constant is the score of who has these.
        values: of these terms in original units, a category 1 where it applies, of a curve the number that it
            is of; imputed where missing.
        median: predicted, +inf if survival stays above 1/2.
        survival: predicted at some round times, which are its index.
        time_unit: of these times; None if not known.
        categories: names of the terms that are categories.
        time_varying: whether training subjects had several rows: median and survival then hold from time zero
            if the covariates stay as in the row, and the text says so.
    """

    leaf: int
    path: pd.DataFrame
    leaf_probability: pd.Series
    contributions: pd.DataFrame
    values: pd.Series
    median: float
    survival: pd.Series
    time_unit: str | None = None
    categories: frozenset[str] = frozenset()
    time_varying: bool = False

    def __str__(self) -> str:
        lines = []
        for node, step in zip(self.path.index, self.path.to_dict("records"), strict=True):
            lives = f", which lives {step['lives']}" if step["lives"] else ""
            lines.append(f"[{node}] {step['side']}{lives}; probability of left {step['left']:.3f}")
            lines += self._terms(f"gate {node}", "score, left if >= 0")
        lines.append(f"leaf {self.leaf}, probability {self.leaf_probability[self.leaf]:.3f}")
        lines += self._terms(f"leaf {self.leaf}", "linear predictor")
        return "\n".join([*lines, self._prediction()])

    def _prediction(self) -> str:
        at = ", ".join(f"S({time:g}) = {value:.3f}" for time, value in self.survival.items())
        return f"predicted {median_text(self.median, self.time_unit)}; {at}{self._condition}"

    @property
    def _condition(self) -> str:
        return f", from time zero {CONSTANT_COVARIATES}" if self.time_varying else ""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _terms(self, column: str, name: str) -> list[str]:
        """The largest terms, what the others add up to, and their sum, all to the same decimals."""
        terms = self.contributions[column]
        size = terms[self.values.index].abs()
        shown = size[size > 0].sort_values(ascending=False, kind="stable").index[:_EXPLAINED_TERMS]
        n_others = int(size.gt(0).sum()) - len(shown)
        total = float(terms.sum())
        # Three digits of the largest number; the constant takes what rounding leaves, so that columns add up.
        largest = max(float(terms.abs().max()), abs(total))
        decimals = max(2 - math.floor(math.log10(largest)), 0) if largest > 0 else 0
        rows = [
            (float(terms[term]), term if term in self.categories else f"{term} = {self.values[term]:.4g}")
            for term in shown
        ]
        if n_others:
            rest = float(terms[self.values.index].sum() - terms[shown].sum())
            rows.append((rest, f"({n_others} smaller)"))
        constant = round(total, decimals) - sum(round(value, decimals) for value, _ in rows)
        lines = [*rows, (constant, "constant"), (total, f"= {name}")]
        texts = [f"{value:+.{decimals}f}" for value, _ in lines]
        width = max(map(len, texts))
        return [f"    {text:>{width}}  {what}" for text, (_, what) in zip(texts, lines, strict=True)]


def median_text(median: float, unit: str | None) -> str:
    """A median in words, with its unit if that is known."""
    if not math.isfinite(median):
        return "median not reached"
    digits = f"{median:.4g}" if median < 10_000 else f"{median:.0f}"  # no power of ten
    return f"median {digits}" + (f" {unit}" if unit else "")


def explain_row(
    tree: FittedTree, frame: pd.DataFrame, horizons: FloatArray, longer: Mapping[int, str]
) -> Explanation:
    """Path and contributions of one row, of the columns of the preprocessing.

    Args:
        tree: trained.
        frame: the row.
        horizons: times at which its survival is predicted, increasing.
        longer: by gate the side that lives longer, ``"left"`` or ``"right"``; none where that is not known.

    Raises:
        DataError: it is not one row.
    """
    if len(frame) != 1:
        raise DataError(f"x has {len(frame)} rows; explain one at a time, such as X.iloc[[0]]")
    x, module, preprocessor = tree.encode(frame), tree.module, tree.preprocessor
    topology = module.topology
    leaf, probability = int(tree.leaf(x)[0]), tree.leaf_probability(x)[0]
    columns: dict[str, dict[str, float]] = {}
    values: dict[str, float] = {}
    categories: set[str] = set()
    scaled = preprocessor.scaled(frame)[0]
    scale = np.where(preprocessor.scale_ == 0, 1.0, preprocessor.scale_)
    original = scaled / scale + preprocessor.offset_

    def add(column: str, score: Score, features: FloatArray) -> float:
        """A score's terms as a column, and their sum."""
        parts = [*(score.weight * score.values(features)[0]).tolist(), score.bias]
        names = [*(term.name for term in score.terms), _CONSTANT]
        columns[column] = dict(zip(names, parts, strict=True))
        values.update((term.name, float(original[list(term.base)].prod())) for term in score.terms)
        categories.update(term.name for term in score.terms if term.category is not None)
        return float(np.sum(parts))

    node, steps, reached = leaf + 2**topology.depth, [], 1.0
    for branch, goes_left in topology.ancestors(node):
        gate = module.gate(branch)
        score = Score.of_gate(preprocessor, to_numbers(gate.weight), float(gate.bias.detach()))
        value = add(f"gate {branch}", score, to_numbers(x[:, : module.n_gate_features]))
        left = float(torch.sigmoid(torch.tensor(value, dtype=torch.float64)))
        reached *= left if goes_left else 1 - left
        side = "left" if goes_left else "right"
        lives = ("longer" if longer[branch] == side else "shorter") if branch in longer else ""
        steps.append({"score": value, "left": left, "side": side, "reached": reached, "lives": lives})
    regression = module.leaf(node)
    score = Score.of_leaf(preprocessor, to_numbers(regression.slope), float(regression.intercept.detach()))
    add(f"leaf {leaf}", score, to_numbers(x[:, x.shape[1] - module.n_features :]))
    index = pd.Index([step for step, _ in topology.ancestors(node)], name="node", dtype="int64")
    names = pd.Index([*values, _CONSTANT], name="feature")
    return Explanation(
        leaf,
        pd.DataFrame(steps, index=index, columns=["score", "left", "side", "reached", "lives"]),
        pd.Series(probability, index=pd.RangeIndex(len(probability), name="leaf"), name="probability"),
        # A gate and a leaf may see a column in two ways: what one of them does not see adds nothing to it.
        pd.DataFrame(columns, index=names).fillna(0.0),
        pd.Series(values, index=pd.Index(values, name="feature"), name="value"),
        float(tree.quantile(x, 0.5)[0]),
        pd.Series(tree.curves(x, horizons)[0], index=pd.Index(horizons, name="time"), name="survival"),
        tree.time_unit,
        frozenset(categories),
        tree.time_varying,
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


def check_part(name: str, value: object) -> float:
    """A share that may be none, in [0, 1).

    Raises:
        ConfigError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise ConfigError(f"{name} must be a share in [0, 1), got {value!r}")
    return float(value)


def simplify(tree: FittedTree, x: Tensor, tolerance: float) -> SimplifiedRules:
    """Shorter rules that route nearly all rows as the gates do: see :meth:`ReadableTree.simplify`.

    Args:
        tree: trained.
        x: encoded rows, shape (n, p).
        tolerance: share of the rows at a gate that may change their side, in [0, 1).

    Raises:
        ConfigError: ``tolerance`` is no share.
    """
    tolerance = check_part("tolerance", tolerance)
    topology, preprocessor = tree.module.topology, tree.preprocessor
    features = to_numbers(x[:, : tree.module.n_gate_features])
    rows, short, goes_right = [], [], np.zeros((len(x), len(topology.branches)), dtype=bool)
    leaf = tree.leaf(x) + 2**topology.depth
    for node, score, here, _ in _gates(tree, leaf):
        values = score.values(features)
        inside = values[here]
        shorter = _shortened(inside, _with_references(preprocessor, inside, score), tolerance)
        left = inside @ shorter.weight + shorter.bias >= 0
        alike = left == (inside @ score.weight + score.bias >= 0)
        goes_right[:, node - 1] = (shorter.weight * values).sum(axis=1) + shorter.bias < 0
        used = np.flatnonzero(shorter.weight * shorter.scale)
        rows.append(
            {
                "rule": GateRule.of(shorter, inside, left).text(),
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
