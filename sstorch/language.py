"""Texts of pages in the reader's language: a dictionary by key.

The dictionary is ``languages.json``, in UTF-8: for each language a text for each key. Code compares keys and
values, never texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from sstorch.exceptions import ConfigError


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
