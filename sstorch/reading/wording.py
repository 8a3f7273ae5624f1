"""Texts of rules in two lengths: with all categories, and with the first ones of long lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sstorch.data.schema import MISSING_LEVEL
from sstorch.language import Phrase

# Categories, and thresholds, that a rule names in its short form.
MOST_WORDS = 8


@dataclass(frozen=True)
class Wording:
    """A text, and the same text with at most some entries of each list."""

    full: Phrase  # with all entries
    brief: Phrase  # with the first ones, and the number of the others

    @classmethod
    def of(cls, text: Phrase) -> Self:
        """A text without lists."""
        return cls(text, text)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The wording of a file."""
        return cls(*(Phrase.from_list(state[length]["parts"]) for length in ("full", "brief")))

    @classmethod
    def joined(
        cls, separator: Phrase | str, parts: Sequence[Self], most: int | None = None, more: str = "more"
    ) -> Self:
        """Wordings with a separator between them; the short form has `most` of them and the text `more`."""
        hidden = 0 if most is None else max(len(parts) - most, 0)
        brief = Phrase.joined(separator, [part.brief for part in parts[: len(parts) - hidden]])
        if hidden:
            brief = brief + " " + Phrase.word(more, n=hidden)
        return cls(Phrase.joined(separator, [part.full for part in parts]), brief)

    def after(self, text: Phrase | str) -> Wording:
        """The wording behind a text."""
        return Wording(text + self.full, text + self.brief)


def membership(
    column: str, words: Sequence[str], others: Sequence[str], missing: bool | None, most: int = MOST_WORDS
) -> Wording:
    """The statement that a categorical column has one of some categories, of which `others` are the rest.

    Names the categories, or those that are excluded if these are fewer by more than one. Missing values are a
    category ``missing``; None if there are no rows without a category.
    """
    inside, outside = [_label(word) for word in words], [_label(word) for word in others]
    if missing is not None:
        (inside if missing else outside).append(Phrase.word("missing"))
    if len(inside) <= len(outside) + 1 or (missing and len(inside) <= most):
        return _listed(inside, most).after(_relation(column, "is" if len(inside) == 1 else "in"))
    which = "is_missing_or_not" if missing else "is_not"
    if len(outside) > 1:
        which = "is_missing_or_not_in" if missing else "not_in"
    return _listed(outside, most).after(_relation(column, which))


def _relation(column: str, key: str) -> Phrase:
    return Phrase.column(column) + " " + Phrase.word(key) + " "


def _label(word: str) -> Phrase:
    return Phrase.word("missing") if word == MISSING_LEVEL else Phrase() + word


def _listed(words: Sequence[Phrase], most: int) -> Wording:
    """Words in braces; a single one without."""
    if len(words) == 1:
        return Wording.of(words[0])
    inner = Wording.joined(", ", [Wording.of(word) for word in words], most)
    return Wording("{" + inner.full + "}", "{" + inner.brief + "}")
