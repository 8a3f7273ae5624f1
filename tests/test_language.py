"""Dictionaries of pages."""

import re
from collections.abc import Callable

import pytest

from sstorch.exceptions import ConfigError
from sstorch.language import Language, language_texts

CODES = ("en", "de", "fr", "es")


@pytest.mark.parametrize("code", CODES)
def test_every_language_has_every_key_with_the_same_names_in_braces(code: str) -> None:
    english, texts = language_texts("en"), language_texts(code)
    assert list(texts) == list(english)
    assert texts["code"] == code
    for key, text in english.items():
        assert sorted(re.findall(r"{\w+}", texts[key])) == sorted(re.findall(r"{\w+}", text)), key
        assert texts[key].count("|") == text.count("|"), key
        assert texts[key].strip(), key


def test_duration_and_counts() -> None:
    german = Language.of("de")
    assert german.duration(1.0, "years") == "1 Jahr"
    assert german.duration(2.5, "years") == "2,5 Jahre"
    assert german.duration(2.5, "Zyklen") == "2,5 Zyklen"
    assert german.duration(3.0, None) == "3"
    assert german.counted("rows", 1) == "1 Beobachtung"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda texts: texts.pop("until"), "'until' is missing"),
        (lambda texts: texts.update(untill="is"), "'untill' is none of them"),
        (lambda texts: texts.update(folded="and more"), r"'folded'\] must be a text with n in braces"),
        (lambda texts: texts.update(rows="rows"), "two forms with a bar"),
        (lambda texts: texts.update(until=1), "got 1"),
    ],
)
def test_language_of_wrong_texts_raises(change: Callable[[dict[str, str]], object], message: str) -> None:
    texts = language_texts("en")
    change(texts)
    with pytest.raises(ConfigError, match=message):
        Language.of(texts)


def test_unknown_language_raises() -> None:
    with pytest.raises(ConfigError, match="one of en, de, fr, es, or a dictionary of texts, got 'xx'"):
        Language.of("xx")
