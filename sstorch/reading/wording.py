"""Texts of rules in two lengths: with all categories, and with the first ones of long lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sstorch.data.schema import MISSING_LEVEL

# Categories, and thresholds, that a rule names in its short form.
MOST_WORDS = 8


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
