"""Texts of pages in the reader's language: a dictionary by key, and phrases whose words are keys.

The dictionary is ``languages.json``, in UTF-8: for each language a text for each key. Code compares keys and
values, never texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from sstorch.exceptions import ConfigError

Kind = Literal["text", "column", "number", "word"]


class Part(NamedTuple):
    """A piece of a phrase."""

    # ``"text"`` stands as it is, as do categories; ``"column"`` is a name that a page may replace by a
    # label; a ``"number"`` has the decimal mark of the language; a ``"word"`` is a key
    kind: Kind
    text: str  # the text, or the key
    # Names that the text of the key has in braces, with what takes their place
    values: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True)
class Phrase:
    """Parts that are read one after the other; as ``str`` in English."""

    parts: tuple[Part, ...] = ()

    @classmethod
    def column(cls, name: str) -> Phrase:
        """The name of a column."""
        return cls((Part("column", name),))

    @classmethod
    def number(cls, text: str) -> Phrase:
        """A number with a decimal point."""
        return cls((Part("number", text),))

    @classmethod
    def word(cls, key: str, **values: str | int) -> Phrase:
        """A text of the dictionary."""
        return cls((Part("word", key, tuple(values.items())),))

    @classmethod
    def joined(cls, separator: Phrase | str, phrases: Iterable[Phrase]) -> Phrase:
        """Phrases with a separator between them."""
        whole = cls()
        for k, phrase in enumerate(phrases):
            whole = whole + separator + phrase if k else phrase
        return whole

    @classmethod
    def from_list(cls, parts: Iterable[Sequence[Any]]) -> Phrase:
        """The phrase of a file."""
        return cls(tuple(Part(kind, text, tuple(map(tuple, values))) for kind, text, values in parts))

    def __add__(self, other: Phrase | str) -> Phrase:
        more = (Part("text", other),) if isinstance(other, str) else other.parts
        return Phrase(self.parts + more)

    def __radd__(self, other: str) -> Phrase:
        return Phrase((Part("text", other), *self.parts))

    def __str__(self) -> str:
        return Language.of("en").phrase(self)

    def has_word(self, *keys: str) -> bool:
        """Whether one of some words is in it."""
        return any(part.kind == "word" and part.text in keys for part in self.parts)


@dataclass(frozen=True)
class Language:
    """Texts by key."""

    # As in ``languages.json``; ``"code"`` is the language tag (BCP 47), ``"decimal"`` its decimal mark
    texts: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, language: str | Mapping[str, str]) -> Language:
        """A language of this package by its code, or a user's texts by key.

        These have all keys of :func:`language_texts`, with the same names in braces.
        """
        known = _shipped()
        if isinstance(language, str):
            if language not in known:
                raise ConfigError(
                    f"language must be one of {', '.join(known)}, or a dictionary of texts, got {language!r}"
                )
            return cls(known[language])
        english = known["en"]
        if wrong := sorted(english.keys() ^ language.keys()):
            raise ConfigError(
                f"language must have the keys of language_texts('en'); {wrong[0]!r} is "
                f"{'missing' if wrong[0] in english else 'none of them'} ({len(wrong)} keys differ)"
            )
        for key, text in language.items():
            if not isinstance(text, str) or _gaps(text) != _gaps(english[key]):
                gaps = ", ".join(sorted(_gaps(english[key]))) or "nothing"
                raise ConfigError(f"language[{key!r}] must be a text with {gaps} in braces, got {text!r}")
            if text.count("|") != english[key].count("|"):
                raise ConfigError(f"language[{key!r}] must have two forms with a bar between, got {text!r}")
        return cls(dict(language))

    def __call__(self, key: str, **values: str | int) -> str:
        """The text of a key with values in place of its names in braces."""
        return _GAP.sub(lambda found: str(values[found[1]]), self.texts[key])

    def number(self, text: str) -> str:
        """A number with the decimal mark of the language, from one with a point."""
        return text.replace(".", self.texts["decimal"])

    def unit(self, name: str | None) -> tuple[str, str]:
        """A unit of time, of one and of several; as it is where the dictionary does not have it."""
        name = name or ""
        if f"unit.{name}" not in self.texts:
            return name.removesuffix("s"), name
        one, several = self.texts[f"unit.{name}"].split("|")
        return one, several

    def duration(self, value: float, unit: str | None) -> str:
        """A time with its unit if that is known, of four digits."""
        digits = f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
        return f"{self.number(digits)} {self.unit(unit)[value != 1]}".rstrip()

    def counted(self, key: str, n: int) -> str:
        """A number of things: ``"1 row"``, ``"2 rows"``; the text has both, with a bar between them."""
        one, several = self.texts[key].split("|")
        return f"{n} {one if n == 1 else several}"

    def phrase(self, phrase: Phrase, labels: Mapping[str, str] | None = None) -> str:
        """A phrase in this language, with names of columns as the page calls them."""
        labels = labels or {}
        texts: dict[Kind, Callable[[Part], str]] = {
            "text": lambda part: part.text,
            "column": lambda part: labels.get(part.text, part.text),
            "number": lambda part: self.number(part.text),
            "word": lambda part: self(part.text, **dict(part.values)),
        }
        return "".join(texts[part.kind](part) for part in phrase.parts)


def language_texts(language: str = "en") -> dict[str, str]:
    """Return the texts of a language by key, as a basis for a translation.

    Args:
        language: ``"en"``, ``"de"``, ``"fr"`` or ``"es"``.

    Raises:
        ConfigError: there is no such language.
    """
    return dict(Language.of(language).texts)


_GAP = re.compile(r"\{(\w+)\}")


def _gaps(text: str) -> set[str]:
    return set(_GAP.findall(text))


@cache
def _shipped() -> dict[str, dict[str, str]]:
    texts = resources.files("sstorch").joinpath("languages.json").read_text("utf-8")
    languages: dict[str, dict[str, str]] = json.loads(texts)
    return languages
