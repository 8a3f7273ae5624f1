"""Texts of rules in two lengths: with all categories, and with the first ones of long lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

# Categories, and thresholds, that a rule names in its short form.
MOST_WORDS = 8
MISSING = "missing"


@dataclass(frozen=True)
class Wording:
    """A text, and the same text with at most some entries of each list.

    Attributes:
        full: with all entries.
        brief: with the first ones, and the number of the others.
    """

    full: str
    brief: str

    @classmethod
    def of(cls, text: str) -> Self:
        """A text without lists."""
        return cls(text, text)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The wording of a file."""
        return cls(str(state["full"]), str(state["brief"]))

    @classmethod
    def joined(cls, separator: str, parts: Sequence[Self], most: int | None = None, of: str = "") -> Self:
        """Wordings with a separator between them.

        Args:
            separator: text between them.
            parts: at least one.
            most: how many the short form has; None for all.
            of: what the others are called after ``"and 3 more"``.
        """
        hidden = 0 if most is None else max(len(parts) - most, 0)
        brief = separator.join(part.brief for part in parts[: len(parts) - hidden])
        more = f" and {hidden} more{of}" if hidden else ""
        return cls(separator.join(part.full for part in parts), brief + more)

    def after(self, text: str) -> Wording:
        """The wording behind a text."""
        return Wording(text + self.full, text + self.brief)


def membership(
    column: str, words: Sequence[str], others: Sequence[str], missing: bool | None, most: int = MOST_WORDS
) -> Wording:
    """The statement that a categorical column has one of some categories.

    Names the categories, or those that are excluded if these are fewer by more than one. Missing values are a
    category ``missing``.

    Args:
        column: its name.
        words: the categories.
        others: all other categories.
        missing: whether rows without a category are among these; None where there are no such rows.
        most: categories of the short form.
    """
    inside, outside = [*words, *[MISSING] * (missing is True)], [*others, *[MISSING] * (missing is False)]
    if len(inside) <= len(outside) + 1 or (missing and len(inside) <= most):
        return _listed(inside, most).after(f"{column} {'is' if len(inside) == 1 else 'in'} ")
    which = f"{MISSING} or not" if missing else "not"
    if len(outside) == 1:
        return Wording.of(f"{column} is {which} {outside[0]}")
    return _listed(outside, most).after(f"{column} {f'is {which}' if missing else which} in ")


def _listed(words: Sequence[str], most: int) -> Wording:
    """Words in braces; a single one without."""
    if len(words) == 1:
        return Wording.of(words[0])
    inner = Wording.joined(", ", [Wording.of(word) for word in words], most)
    return Wording(f"{{{inner.full}}}", f"{{{inner.brief}}}")
