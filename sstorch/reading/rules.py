"""Rules of gates: thresholds, lists of categories, sums, with as few digits as separate the rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_integer
from sstorch.data import Preprocessor
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.fitted.tree import FittedTree
from sstorch.reading.scores import Score, terms_of, to_numbers

# Categories that a rule names in its short form.
_MOST_WORDS = 8
# Most digits of a number in a rule, and those of a number that no row constrains.
_MOST_DIGITS, _USUAL_DIGITS = 15, 3
# A list of categories, and marks of it.
_LIST, _MARKS = re.compile(r"\{([^{}]*)\}"), re.compile(r"[,{}]")
# Indicators of categories of the rows that a rule is made of.
_MOST_ELEMENTS = 2**23
_SIDES = "always", "never"


@dataclass(frozen=True)
class GateRule:
    """The rule of a gate as it is written: rows go left, the side of "yes", where it holds."""

    holds: str  # ``"pnodes <= 5"``, ``"tgrade in {II, III}"``, of a sum its end, ``"-14.05 >= 0"``
    fails: str  # the same of the other rows: ``"pnodes > 5"``, ``"tgrade is I"``, ``"-14.05 < 0"``
    # of a sum, the largest first: ``"+0.3 age"``, ``"-1.2 sex=female"``; of other rules none
    terms: tuple[str, ...] = ()
    threshold: float | None = None  # of a number

    @classmethod
    def of(cls, score: Score, x: FloatArray, left: BoolArray, switches: Mapping[str, float]) -> GateRule:
        """Rule of a score with the fewest digits that misplace the fewest rows at the gate, `x` (n, T)."""
        # Where these all go one way, or are none, numbers have three digits or more.
        used = np.flatnonzero(score.weight * score.scale)
        least = 1 if left.any() and not left.all() else _USUAL_DIGITS
        if len(used) == 0:
            return cls.ordered(_SIDES, swap=score.constant < 0)
        if written := _rule_of_column(*_with_categories(score, x, switches), left):
            return written
        order = used[np.argsort(-np.abs(score.weight[used]), kind="stable")]
        weight, scale, offset = score.weight[order], score.scale[order], score.offset[order]
        values, coefficients, middle = x[:, order] / scale + offset, weight * scale, offset + 0.5 / scale

        def rounded(digits: int) -> tuple[list[str], str]:
            """Coefficients and constant with so many digits."""
            # The constant makes up for what rounding changes in mid-range, and is as fine as the largest
            # effect: else a column far from zero, such as a year, would turn the rule into another.
            numbers = [number_text(value, digits, "+") for value in coefficients]
            change = coefficients - np.array(numbers, dtype=np.float64)
            constant = score.constant + float(change @ middle)
            return numbers, down_to(constant, float(np.abs(weight[0])) / 10**digits)

        def misplaced(digits: int) -> int:
            numbers, constant = rounded(digits)
            holds = values @ np.array(numbers, dtype=np.float64) + float(constant) >= 0
            return int(np.count_nonzero(holds != left))

        numbers, constant = rounded(fewest_digits(misplaced, least)[0])
        terms = [f"{text} {score.terms[j].name}" for text, j in zip(numbers, order, strict=True)]
        return cls(f"{constant} >= 0", f"{constant} < 0", tuple(terms))

    @classmethod
    def ordered(cls, sides: Sequence[str], swap: bool, threshold: float | None = None) -> GateRule:
        """The rule of two sides; swapped if the second is that of "yes"."""
        first, second = sides
        return cls(*((second, first) if swap else (first, second)), threshold=threshold)

    def text(self, n_terms: int | None = None, right: bool = False) -> str:
        """The rule of a side with its `n_terms` largest terms and eight categories; None writes all."""
        shown = list(self.terms)
        if n_terms is not None and len(shown) > check_integer("n_terms", n_terms, 0):
            shown[n_terms:] = [f"({len(shown) - n_terms} smaller terms)"]
        side = self.fails if right else self.holds
        return " ".join([*shown, side if n_terms is None else shortened(side)])


def _rule_of_column(score: Score, x: FloatArray, left: BoolArray) -> GateRule | None:
    """The rule of a gate on one number or on the categories of one column; None if it is a sum."""
    used = np.flatnonzero(score.weight * score.scale)
    columns = {score.terms[j].columns for j in used}
    (column, *others) = min(columns)
    if len(columns) > 1 or others or score.terms[used[0]].is_curve:
        return None
    if score.terms[used[0]].category is not None:
        return _rule_of_categories(score, x, column)
    (j,) = used
    slope, values = score.weight[j] * score.scale[j], x[:, j] / score.scale[j] + score.offset[j]
    below = ~left if slope > 0 else left
    least = 1 if left.any() and not left.all() else _USUAL_DIGITS
    text, name = threshold_text(-score.constant / slope, values, below, least), score.terms[j].name
    return GateRule.ordered((f"{name} <= {text}", f"{name} > {text}"), slope > 0, float(text))


def _rule_of_categories(score: Score, x: FloatArray, column: str) -> GateRule:
    """The rule of a gate on one categorical column: which categories, and missing values, go left."""
    # The categories that training rows had.
    block = [
        j
        for j, (term, scale) in enumerate(zip(score.terms, score.scale, strict=True))
        if term.columns == (column,) and term.category is not None and scale != 0
    ]
    sides: tuple[list[str], list[str]] = [], []
    for j in block:
        sides[int(score.constant + score.weight[j] < 0)].append(str(score.terms[j].category))
    none = [score.constant >= 0] if (x[:, block].sum(axis=1) == 0).any() else []  # side of missing values
    if not (sides[0] or True in none) or not (sides[1] or False in none):
        return GateRule.ordered(_SIDES, swap=not (sides[0] or True in none))
    left, right = (none[0], not none[0]) if none else (None, None)
    return GateRule(membership(column, *sides, left), membership(column, *sides[::-1], right))


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


def gate_rules(tree: FittedTree, x: RowFeatures) -> dict[int, GateRule]:
    """The rules of all gates, by node, with the numbers of digits that training rows `x`, (n, p), ask for."""
    # The most frequent category of a column among the rows at a gate is its reference, where none is missing.
    topology = tree.module.topology
    leaf, rules, known = tree.leaf(x) + 2**topology.depth, {}, switches(tree, x)
    for node in topology.branches:
        below = topology.depth - topology.level(node)
        score, left = Score.of_node(tree, node), leaf >> (below - 1) == 2 * node
        rows = _rows_for_rule(score, DesignMatrix.of(x), np.flatnonzero(leaf >> below == node))
        score, inside = values_of_gate(score, x, rows)
        score, inside = _in_original_unit(tree.preprocessor, score, inside)
        rules[node] = GateRule.of(_with_references(score, inside), inside, left[rows], known)
    return rules


def _rows_for_rule(score: Score, x: DesignMatrix, rows: IntArray) -> IntArray:
    """Rows at a gate that its rule is made of: of very many with categories one of each and a part."""
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
    """Rule of a path (gates and sides), joined by "and"; of bounds on one side only the tightest."""
    found: dict[str, tuple[str, float]] = {}
    for node, left in way:
        rule, text = rules[node], rules[node].text(n_terms, right=not left)
        if rule.threshold is None:
            found[text] = text, 0.0
            continue
        bounded = text.rpartition(" ")[0]
        if bounded not in found or (rule.threshold < found[bounded][1]) == bounded.endswith("<="):
            found[bounded] = text, rule.threshold
    several = len(found) > 1
    return " and ".join(f"({text})" if several and " or " in text else text for text, _ in found.values())


def _with_references(score: Score, x: FloatArray) -> Score:
    """The same score with each column's most frequent category as reference, where none is missing."""
    blocks: dict[str, list[int]] = {}
    for j, term in enumerate(score.terms):
        if term.category is not None:
            blocks.setdefault(term.columns[0], []).append(j)
    modes = {}
    for column, block in blocks.items():
        if len(x) and (x[:, block].sum(axis=1) == 1).all():
            modes[column] = str(score.terms[block[x[:, block].sum(axis=0).argmax()]].category)
    return score.with_modes(modes)


def membership(column: str, words: Sequence[str], others: Sequence[str], missing: bool | None) -> str:
    """The statement that a column has one of some categories, or none of the `others` if these are fewer."""
    # `missing` is whether missing values are among them; None if no row has one.
    inside, outside = [_label(word) for word in words], [_label(word) for word in others]
    if missing is not None:
        (inside if missing else outside).append("missing")
    if len(inside) <= len(outside) + 1 or (missing and len(inside) <= _MOST_WORDS):
        return f"{column} is {inside[0]}" if len(inside) == 1 else f"{column} in {{{', '.join(inside)}}}"
    listed = f"not in {{{', '.join(outside)}}}"
    if len(outside) == 1:
        listed = f"not {outside[0]}" if missing else f"is not {outside[0]}"
    return f"{column} is missing or {listed}" if missing else f"{column} {listed}"


def _label(word: str) -> str:
    """A category in a rule; in quotation marks where it holds marks of lists."""
    return f'"{word}"' if _MARKS.search(word) else word


def shortened(rule: str) -> str:
    """A rule with at most eight categories in its list, the others counted."""

    def brief(found: re.Match[str]) -> str:
        words = re.findall(r'"[^"]*"|[^,\s][^,]*', found[1])
        hidden = len(words) - _MOST_WORDS
        return found[0] if hidden <= 0 else f"{{{', '.join(words[:_MOST_WORDS])} and {hidden} more}}"

    return _LIST.sub(brief, rule)


def threshold_text(value: float, values: FloatArray, below: BoolArray, least: int) -> str:
    """The threshold of fewest digits that has the right values at or below it, near to a given one."""
    starts = [value]
    if below.any() and not below.all():
        # A value right at the threshold may have to be above it.
        starts.append(0.5 * float(values[below].max() + values[~below].min()))

    def misplaced(start: float) -> Callable[[int], int]:
        return lambda digits: int(np.count_nonzero((values <= float(number_text(start, digits))) != below))

    found = [(*fewest_digits(misplaced(start), least), start) for start in starts]
    digits, _, start = min(found, key=lambda one: one[1])
    return number_text(start, digits)


def fewest_digits(misplaced: Callable[[int], int], least: int) -> tuple[int, int]:
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


def down_to(value: float, resolution: float) -> str:
    """A number with its sign and all digits down to a resolution, zeros at the end left out."""
    if value == 0:
        return "+0"
    decimals = max(math.ceil(-math.log10(resolution)), 0)
    return f"{value:+.{max(math.floor(math.log10(abs(value))) + 1 + decimals, 1)}g}"
