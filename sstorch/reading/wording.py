"""Texts of rules: lists of categories in two lengths, numbers with as few digits as separate the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.data.schema import MISSING_LEVEL

# Categories, and thresholds, that a rule names in its short form.
MOST_WORDS = 8
# Most digits of a number in a rule, and those of a number that no row constrains.
_MOST_DIGITS, USUAL_DIGITS = 15, 3


@dataclass(frozen=True)
class Wording:
    """A text, and the same text with at most some entries of each list."""

    full: str  # with all entries
    brief: str  # with the first ones, and the number of the others
    compound: bool = False  # whether it is in parentheses where another text follows with "and"

    @classmethod
    def of(cls, text: str) -> Self:
        """A text without lists."""
        return cls(text, text)

    @classmethod
    def joined(
        cls,
        separator: str,
        parts: Sequence[Self],
        most: int | None = None,
        what: str = "",
        compound: bool = False,
    ) -> Self:
        """Wordings with a separator between them; the short form has `most` of them and counts the others."""
        hidden = 0 if most is None else max(len(parts) - most, 0)
        brief = separator.join(part.brief for part in parts[: len(parts) - hidden])
        more = f" and {hidden} more{what}" if hidden else ""
        return cls(separator.join(part.full for part in parts), brief + more, compound)

    def after(self, text: str) -> Wording:
        """The wording behind a text."""
        return Wording(text + self.full, text + self.brief, self.compound)


def membership(
    column: str, words: Sequence[str], others: Sequence[str], missing: bool | None, most: int = MOST_WORDS
) -> Wording:
    """The statement that a categorical column has one of some categories, of which `others` are the rest.

    Names the categories, or those that are excluded if these are fewer by more than one. Missing values are a
    category ``missing``; None if there are no rows without a category.
    """
    inside, outside = [_label(word) for word in words], [_label(word) for word in others]
    if missing is not None:
        (inside if missing else outside).append("missing")
    if len(inside) <= len(outside) + 1 or (missing and len(inside) <= most):
        return _listed(inside, most).after(f"{column} {'is' if len(inside) == 1 else 'in'} ")
    which = "is missing or not" if missing else "is not"
    if len(outside) > 1:
        which = "is missing or not in" if missing else "not in"
    return _listed(outside, most).after(f"{column} {which} ")


def _label(word: str) -> str:
    return "missing" if word == MISSING_LEVEL else word


def _listed(words: Sequence[str], most: int) -> Wording:
    """Words in braces; a single one without."""
    if len(words) == 1:
        return Wording.of(words[0])
    inner = Wording.joined(", ", [Wording.of(word) for word in words], most)
    return Wording("{" + inner.full + "}", "{" + inner.brief + "}")


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
