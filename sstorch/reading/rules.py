"""Rules of gates: thresholds, lists of categories, sums, with as few digits as separate the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_integer
from sstorch.data import Preprocessor
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.fitted.tree import FittedTree
from sstorch.reading.scores import Score, terms_of, to_numbers
from sstorch.reading.wording import (
    MOST_WORDS,
    USUAL_DIGITS,
    Wording,
    down_to,
    fewest_digits,
    membership,
    number_text,
    threshold_text,
)

# Of categories of some columns that are looked at to write a rule as a list.
_MOST_COMBINATIONS = 256
# Indicators of categories of the rows that a rule is made of.
_MOST_ELEMENTS = 2**23
_SIDES = Wording.of("always"), Wording.of("never")


@dataclass(frozen=True)
class LinearRule:
    """The rule of a gate in original units: rows go left where the score is >= 0."""

    table: pd.DataFrame  # of its :class:`Score`, terms that are not zero
    constant: float  # value of the score where all original numbers are zero and no category applies
    middle: FloatArray  # middle of the training range of each feature of the table, in original units

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
        """Coefficients, with so many significant digits, and constant as they are written.

        What the rounding of a coefficient would change in the middle of its feature's range is made up for by
        the constant, which is written as finely as the largest effect: else a column far from zero, such as a
        year, would turn the rule into another.
        """
        values = self.table["coefficient"].to_numpy()
        numbers = [number_text(value, digits, "+") for value in values]
        change = values - np.array([float(number) for number in numbers])
        constant = self.constant + float(change @ self.middle)
        return numbers, down_to(constant, float(self.table["effect"].abs().max()) / 10**digits)


@dataclass(frozen=True)
class GateRule:
    """The rule of a gate as it is written: rows go left, the side of "yes", where it holds.

    It is a sum of terms that is compared with zero, or the threshold of one number, which may depend on a
    category, or lists of categories. A column of 0 and 1 is a category in the last two.
    """

    # the rule, of a sum its end: ``"-14.05 >= 0"``, ``"pnodes <= 5"``, ``"tgrade in {II, III}"``, ``"pnodes
    # <= 3 where horTh is no, <= 7 where horTh is yes"``
    holds: Wording
    fails: Wording  # the same of the other rows: ``"-14.05 < 0"``, ``"pnodes > 5"``, ``"tgrade is I"``
    # of a sum, the largest first: ``"+0.3 age"``, ``"-1.2 sex=female"``; of other rules none
    terms: tuple[str, ...] = ()
    threshold: float | None = None  # of a rule that has one for all

    @classmethod
    def of(
        cls,
        score: Score,
        x: FloatArray,
        left: BoolArray,
        switches: Mapping[str, float],
    ) -> GateRule:
        """The rule of a gate's score, with as few digits as send all rows the way they go.

        `x` are values of its terms for the rows that pass the gate, (n, T). Where these all go one way, or
        are none, numbers have three digits or more. Rounding may leave no such number of digits; it is then
        the smallest that misplaces the fewest rows.
        """
        rule, used = LinearRule.of(score), np.flatnonzero(score.weight * score.scale)
        least = 1 if left.any() and not left.all() else USUAL_DIGITS
        if len(used) == 0:
            return cls.ordered(_SIDES, swap=rule.constant < 0)
        if listed := _rule_of_categories(*_with_categories(score, x, switches), left):
            return listed
        terms = [score.terms[j] for j in used]
        if len(terms) == 1 and not terms[0].is_curve and len(terms[0].columns) == 1:
            (j,), slope = used, rule.table["coefficient"].iloc[0]
            values = x[:, j] / score.scale[j] + score.offset[j]
            below = ~left if slope > 0 else left
            threshold = threshold_text(-rule.constant / slope, values, below, least)
            sides = [Wording.of(f"{terms[0].name} {sign} {threshold}") for sign in ("<=", ">")]
            return cls.ordered(sides, slope > 0, float(threshold))
        order = used[np.argsort(-np.abs(score.weight[used]), kind="stable")]
        values = x[:, order] / score.scale[order] + score.offset[order]

        def misplaced(digits: int) -> int:
            numbers, constant = rule.rounded(digits)
            holds = values @ np.array(numbers, dtype=np.float64) + float(constant) >= 0
            return int(np.count_nonzero(holds != left))

        numbers, constant = rule.rounded(fewest_digits(misplaced, least)[0])
        written = [f"{text} {score.terms[j].name}" for text, j in zip(numbers, order, strict=True)]
        return cls(Wording.of(f"{constant} >= 0"), Wording.of(f"{constant} < 0"), tuple(written))

    @classmethod
    def ordered(cls, sides: Sequence[Wording], swap: bool, threshold: float | None = None) -> GateRule:
        """The rule of two sides; swapped if the second is that of "yes"."""
        first, second = sides
        return cls(*((second, first) if swap else (first, second)), threshold=threshold)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> GateRule:
        """The rule of a file."""
        threshold = None if state["threshold"] is None else float(state["threshold"])
        terms = tuple(map(str, state["terms"]))
        return cls(Wording(**state["holds"]), Wording(**state["fails"]), terms, threshold)

    def text(self, n_terms: int | None = None, right: bool = False) -> str:
        """The rule as ``+0.3 age -1.2 sex=female -14.05 >= 0``; with `right` that of the rows that go right.

        The `n_terms` largest terms are written out; the others are counted, as are the categories of a list
        beyond the eighth. None writes all.
        """
        shown = list(self.terms)
        if n_terms is not None and len(shown) > check_integer("n_terms", n_terms, 0):
            shown[n_terms:] = [f"({len(shown) - n_terms} smaller terms)"]
        side = self.fails if right else self.holds
        return " ".join([*shown, side.full if n_terms is None else side.brief])


def _rule_of_categories(score: Score, x: FloatArray, left: BoolArray) -> GateRule | None:
    """The rule of a gate on categories alone, or on a number and a category; None if it is a sum."""
    used = np.flatnonzero(score.weight * score.scale)
    numbers = [int(j) for j in used if score.terms[j].category is None]
    columns = list(dict.fromkeys(score.terms[j].columns[0] for j in used if j not in numbers))
    if not numbers:
        return (_category_rule if len(columns) == 1 else _joint_rule)(score, x, columns)
    if len(numbers) != 1 or len(columns) != 1:
        return None
    number = score.terms[numbers[0]]
    if number.is_curve or len(number.columns) > 1:
        return None
    return _threshold_by_category(score, x, left, numbers[0], columns[0])


def _with_categories(score: Score, x: FloatArray, switches: Mapping[str, float]) -> tuple[Score, FloatArray]:
    """Score and values of a gate in which columns of 0 and 1 are categorical."""
    terms, weight, bias, columns = list(score.terms), score.weight.copy(), score.bias, list(x.T)
    for j, term in enumerate(score.terms):
        if len(term.columns) > 1 or term.category is not None or term.columns[0] not in switches:
            continue
        # Of rows without a value the score is that of what represents them: zero of both categories.
        name, fill = term.columns[0], switches[term.columns[0]]
        terms[j] = replace(term, name=f"{name}=0", category="0")
        terms.append(replace(term, name=f"{name}=1", category="1"))
        weight = np.append(weight, weight[j] * (1 - fill))
        weight[j] *= -fill
        bias += score.weight[j] * fill
        columns[j] = (x[:, j] == 0).astype(np.float64)
        columns.append((x[:, j] == 1).astype(np.float64))
    added = len(terms) - len(score.terms)
    scale, offset = np.append(score.scale, np.ones(added)), np.append(score.offset, np.zeros(added))
    values = np.stack(columns, axis=1) if columns else x
    return replace(score, terms=terms, weight=weight, bias=bias, scale=scale, offset=offset), values


def switches(tree: FittedTree, x: RowFeatures) -> dict[str, float]:
    """Columns of 0 and 1 that gates see, each with the number that replaces its missing values."""
    preprocessor, found = tree.preprocessor, {}
    for term in terms_of(preprocessor, preprocessor.gate_features):
        name, base = term.columns[0], term.base[0]
        plain = term.category is None and not term.is_curve and len(term.columns) == 1
        if not plain or preprocessor.scale_[base] != 1 or preprocessor.offset_[base] != 0:
            continue
        values = DesignMatrix.of(x).columns([term.places[0]], torch.arange(len(x), device=x.device))
        if np.isin(to_numbers(values), (0.0, 1.0, preprocessor.fill_[name])).all():
            found[name] = preprocessor.fill_[name]
    return found


def _category_rule(score: Score, x: FloatArray, columns: Sequence[str]) -> GateRule:
    """The rule of a gate that looks at one categorical column alone: which categories go where."""
    (column,) = columns
    block = _block(score, column)
    sides: dict[bool, list[str]] = {True: [], False: []}
    for j in block:
        sides[bool(score.weight[j] + score.bias >= 0)].append(str(score.terms[j].category))
    # The side of rows whose category is missing, if there are any.
    missing = bool(score.bias >= 0) if (x[:, block].sum(axis=1) == 0).any() else None

    def text(side: bool) -> Wording:
        words, others = sides[side], sides[not side]
        if not others and missing in (None, side):
            return _SIDES[0]
        if not words and missing != side:
            return _SIDES[1]
        return membership(column, words, others, None if missing is None else missing == side)

    return GateRule(text(True), text(False))


def _threshold_by_category(
    score: Score, x: FloatArray, left: BoolArray, number: int, column: str
) -> GateRule:
    """The rule of a gate that looks at a number and a categorical column: a threshold for each category."""
    scale, offset, rule = score.scale[number], score.offset[number], LinearRule.of(score)
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
            least = 1 if below[rows].any() and not below[rows].all() else USUAL_DIGITS
            found.setdefault(threshold_text(exact, values[rows], below[rows], least), []).append(word)
        else:
            found.setdefault("never" if exact < offset else "always", []).append(word)
    if set(found) == {"never", "always"}:  # the number decides nothing within its range
        at_most_all, none = (
            membership(
                column,
                [word for word in found[side] if word is not None],
                [word for word in found[other] if word is not None],
                None if words[-1] else None in found[side],
            )
            for side, other in (("always", "never"), ("never", "always"))
        )
        return GateRule.ordered((at_most_all, none), slope > 0)
    at_most: list[Wording] = []
    above: list[Wording] = []
    most = max(MOST_WORDS // len(found), 1)
    for threshold in sorted(found, key=lambda text: text in ("never", "always")):
        inside = found[threshold]
        others = [str(word) for word in words if word not in inside and word is not None]
        own = [word for word in inside if word is not None]
        listed = membership(column, own, others, None if words[-1] else None in inside, most)
        opposite = {"never": "always", "always": "never"}.get(threshold)
        for sides, sign, side in ((at_most, "<= ", threshold), (above, "> ", opposite)):
            text = str(side) if opposite else sign + threshold
            sides.append(listed.after(f"{text} where ") if len(found) > 1 else Wording.of(text))
    if opposite and len(found) == 1:
        texts = [at_most[0], above[0]]
    else:
        texts = [
            Wording.joined(", ", sides, MOST_WORDS, " thresholds", compound=len(found) > 1).after(
                f"{score.terms[number].name} "
            )
            for sides in (at_most, above)
        ]
    value = float(threshold) if len(found) == 1 and not opposite else None
    return GateRule.ordered(texts, slope > 0, value)


def _joint_rule(score: Score, x: FloatArray, columns: Sequence[str]) -> GateRule | None:
    """The rule of a gate on some categorical columns alone, if "and" or "or" expresses it.

    One side then holds all combinations of some categories of each column, and the other side the rest.
    """
    blocks = [_block(score, column) for column in columns]
    n_combinations = math.prod(len(block) for block in blocks)
    if n_combinations > _MOST_COMBINATIONS or any((x[:, block].sum(axis=1) == 0).any() for block in blocks):
        return None
    combinations = np.array(list(product(*blocks)))
    left = score.weight[combinations].sum(axis=1) + score.bias >= 0
    if left.all() or not left.any():
        return GateRule.ordered(_SIDES, swap=not left.all())
    for side in (True, False):
        ours = [[j for j in block if (combinations[left == side] == j).any()] for block in blocks]
        if math.prod(len(block) for block in ours) != np.count_nonzero(left == side):
            continue
        inside, outside = [], []
        for column, block, chosen in zip(columns, blocks, ours, strict=True):
            words = [str(score.terms[j].category) for j in chosen]
            if others := [str(score.terms[j].category) for j in block if j not in chosen]:
                most = max(MOST_WORDS // len(columns), 1)
                inside.append(membership(column, words, others, None, most))
                outside.append(membership(column, others, words, None, most))
        sides = (
            Wording.joined(" and ", inside),
            Wording.joined(" or ", outside, compound=len(outside) > 1),
        )
        return GateRule.ordered(sides, swap=not side)
    return None


def _block(score: Score, column: str) -> list[int]:
    """Terms of the categories of a column that training rows had."""
    return [
        j
        for j, (term, scale) in enumerate(zip(score.terms, score.scale, strict=True))
        if term.columns == (column,) and term.category is not None and scale != 0
    ]


def gate_rules(tree: FittedTree, x: RowFeatures) -> dict[int, GateRule]:
    """The rules of all gates, by node.

    The most frequent category of a column among the rows at a gate is its reference, where none is missing:
    it is not written, and of two categories only one is. Numbers have as few digits as send all training
    rows `x`, (n, p), the way they go.
    """
    leaf = tree.leaf(x) + 2**tree.module.topology.depth
    rules, known = {}, switches(tree, x)
    for node, score, here, left in rows_of_gates(tree, leaf):
        rows = _rows_for_rule(score, DesignMatrix.of(x), np.flatnonzero(here))
        score, inside = values_of_gate(score, x, rows)
        score, inside = _in_original_unit(tree.preprocessor, score, inside)
        score = with_references(tree.preprocessor, inside, score)
        rules[node] = GateRule.of(score, inside, left[rows], known)
    return rules


def _rows_for_rule(score: Score, x: DesignMatrix, rows: IntArray) -> IntArray:
    """Rows at a gate that its rule is made of: of very many with categories one of each and a part.

    A rule needs to know of each category, of missing ones, and roughly where numbers lie.
    """
    categories = sum(term.category is not None for term in score.of_used_columns().terms)
    stride = len(rows) * categories // _MOST_ELEMENTS + 1
    if stride == 1:
        return rows
    firsts = [
        np.unique(codes[rows].cpu().numpy(), return_index=True)[1]
        for codes in (() if x.codes is None else x.codes.mT)
    ]
    return np.unique(np.concatenate([rows[::stride], *(rows[first] for first in firsts)]))


def values_of_gate(score: Score, x: RowFeatures, rows: IntArray) -> tuple[Score, FloatArray]:
    """The score of a gate by the columns that it looks at, and values of its terms in some rows, (n, T)."""
    used = score.of_used_columns()
    places = sorted({place for term in used.terms for place in term.places})
    features = DesignMatrix.of(x).columns(places, torch.as_tensor(rows, device=x.device))
    at = {place: k for k, place in enumerate(places)}
    terms = [replace(term, places=tuple(at[place] for place in term.places)) for term in used.terms]
    used = replace(used, terms=terms)
    return used, used.values(to_numbers(features))


def _in_original_unit(preprocessor: Preprocessor, score: Score, x: FloatArray) -> tuple[Score, FloatArray]:
    """Score and values of a gate on one logarithm as those of its column; of other gates unchanged."""
    basis = preprocessor.basis_
    if basis is None or len(score.terms) != 1 or not score.terms[0].name.startswith("log("):
        return score, x
    (term,), (base,) = score.terms, score.terms[0].base
    scale = float(basis.log_scale[basis.log_column == base][0])

    def original(value: FloatArray) -> FloatArray:
        scaled = scale * np.expm1(value * np.log1p(1 / scale))
        return np.asarray(scaled / preprocessor.scale_[base] + preprocessor.offset_[base])

    side, digits = np.sign(score.weight), 10 - math.ceil(-math.log10(preprocessor.scale_[base]))
    threshold = float(original(-score.bias / score.weight)[0])
    plain = replace(term, name=term.columns[0], is_curve=False)
    units = np.ones(1), np.zeros(1)
    # Values of rows are rounded to what they were before the logarithm.
    return Score([plain], side, -float(side[0]) * threshold, *units, {}), original(x).round(digits)


def conditions(
    way: Sequence[tuple[int, bool]], rules: Mapping[int, GateRule], n_terms: int | None = None
) -> str:
    """Rule of a path in the tree (gates and sides), joined by "and".

    Of thresholds that bound a number on the same side the tightest alone is written.
    """
    found: dict[str, tuple[str, float, bool]] = {}
    for node, left in way:
        rule, text = rules[node], rules[node].text(n_terms, right=not left)
        if rule.threshold is None:
            found[text] = text, 0.0, (rule.holds if left else rule.fails).compound
            continue
        bounded = text.rpartition(" ")[0]
        if bounded not in found or (rule.threshold < found[bounded][1]) == bounded.endswith("<="):
            found[bounded] = text, rule.threshold, False
    return " and ".join(
        f"({text})" if len(found) > 1 and compound else text for text, _, compound in found.values()
    )


def rows_of_gates(tree: FittedTree, leaf: IntArray) -> Iterator[tuple[int, Score, BoolArray, BoolArray]]:
    """Node and score of each gate, the rows that pass it, and whether they then go left; by end nodes."""
    topology, gates = tree.module.topology, tree.module.gate_parameters()
    for node, weight, bias in zip(
        topology.branches, to_numbers(gates.weight), to_numbers(gates.bias).tolist(), strict=True
    ):
        below = topology.depth - topology.level(node)
        here, left = leaf >> below == node, leaf >> (below - 1) == 2 * node
        yield node, Score.of_gate(tree.preprocessor, weight, bias), here, left


def with_references(preprocessor: Preprocessor, x: FloatArray, score: Score) -> Score:
    """The same score with each column's most frequent category as reference, where none is missing."""
    weight, bias = score.weight.copy(), score.bias
    for column in preprocessor.schema.categories:
        block = np.array([j for j, term in enumerate(score.terms) if term.columns == (column,)], dtype=int)
        if len(x) and len(block) and (x[:, block].sum(axis=1) == 1).all():
            reference = weight[block[x[:, block].sum(axis=0).argmax()]]
            weight[block] -= reference
            bias = bias + reference
    return replace(score, weight=weight, bias=bias)
