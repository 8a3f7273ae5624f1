"""Rules of gates: thresholds, lists of categories, sums, with as few digits as separate the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sstorch._types import FloatArray, IntArray
from sstorch.data import Preprocessor
from sstorch.data.coded import CodedMatrix, RowFeatures
from sstorch.fitted.tree import FittedTree
from sstorch.reading.scores import Score, to_numbers

# Most digits of a number in a rule, and those where no row tells how many it takes.
_MOST_DIGITS, _USUAL_DIGITS = 15, 3
# Of categories of some columns that are looked at to write a rule as a list.
_MOST_COMBINATIONS = 256
# Indicators of categories of the rows that a rule is made of.
_MOST_ELEMENTS = 2**23


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
        numbers = [number_text(value, digits, "+") for value in values]
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
        return lambda digits: int(np.count_nonzero((values <= float(number_text(start, digits))) != below))

    found = [(*_fewest(misplaced(start), least), start) for start in starts]
    digits, _, start = min(found, key=lambda one: one[1])
    return number_text(start, digits)


def _fewest(misplaced: Callable[[int], int], least: int) -> tuple[int, int]:
    """The smallest number of digits with the fewest misplaced rows, and how many these are."""
    best = least, misplaced(least)
    for digits in range(least + 1, _MOST_DIGITS + 1):
        if best[1] == 0:
            break
        count = misplaced(digits)
        best = (digits, count) if count < best[1] else best
    return best


def number_text(value: float, digits: int, sign: str = "") -> str:
    """A number of some significant digits, ``70`` and not ``7e+01``."""
    return f"{float(f'{value:.{digits}g}') + 0.0:{sign}.{_MOST_DIGITS}g}"


def _down_to(value: float, resolution: float) -> str:
    """A number with its sign and all digits down to a resolution, zeros at the end left out."""
    if value == 0:
        return "+0"
    decimals = max(math.ceil(-math.log10(resolution)), 0)
    return f"{value:+.{max(math.floor(math.log10(abs(value))) + 1 + decimals, 1)}g}"


def gate_rules(tree: FittedTree, x: RowFeatures) -> dict[int, GateRule]:
    """The rules of all gates, by node.

    The most frequent category of a column among the rows at a gate is its reference, where none is missing:
    it is not written, and of two categories only one is.

    Args:
        tree: trained.
        x: encoded rows, (n, p), those of training: numbers have as few digits as send all of them the way
            they go.
    """
    leaf = tree.leaf(x) + 2**tree.module.topology.depth
    rules = {}
    for node, score, here, left in rows_of_gates(tree, leaf):
        rows = _rows_for_rule(score, CodedMatrix.of(x), np.flatnonzero(here))
        score, inside = values_of_gate(score, x, rows)
        rules[node] = GateRule.of(with_references(tree.preprocessor, inside, score), inside, left[rows])
    return rules


def _rows_for_rule(score: Score, x: CodedMatrix, rows: IntArray) -> IntArray:
    """Rows at a gate that its rule is made of: of very many with categories one of each and a part.

    A rule needs to know of each category, of missing ones, and roughly where numbers lie.
    """
    categories = sum(term.category is not None for term in score.of_used_columns().terms)
    stride = len(rows) * categories // _MOST_ELEMENTS + 1
    if stride == 1:
        return rows
    firsts = [np.unique(codes[rows].cpu().numpy(), return_index=True)[1] for codes in x.codes.mT]
    return np.unique(np.concatenate([rows[::stride], *(rows[first] for first in firsts)]))


def values_of_gate(score: Score, x: RowFeatures, rows: IntArray) -> tuple[Score, FloatArray]:
    """The score of a gate by the columns that it looks at, and values of its terms in some rows, (n, T)."""
    used = score.of_used_columns()
    places = sorted({place for term in used.terms for place in term.places})
    features = CodedMatrix.of(x).columns(places, torch.as_tensor(rows, device=x.device))
    at = {place: k for k, place in enumerate(places)}
    terms = [replace(term, places=tuple(at[place] for place in term.places)) for term in used.terms]
    used = replace(used, terms=terms)
    return used, used.values(to_numbers(features))


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


def rows_of_gates(
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


def branch_index(tree: FittedTree) -> pd.Index:
    """The gates by heap number, as an index of tables."""
    return pd.Index(tree.module.topology.branches, name="node", dtype="int64")
