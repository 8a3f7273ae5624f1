"""Dictionaries of pages, and phrases whose words are keys of them."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict

import pytest

from sstorch.exact.binarize import Rule
from sstorch.exceptions import ConfigError
from sstorch.language import Language, Phrase, language_texts

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


def test_phrase_replaces_columns_by_labels_and_leaves_categories() -> None:
    rule = Rule("age", "between", low=1.5, high=2.5)
    other = Rule("grade", "is", values=("age is 1.5",))
    german = Language.of("de")
    assert rule.name == "1.5 < age <= 2.5"
    assert german.phrase(rule.phrase, {"age": "Alter"}) == "1,5 < Alter <= 2,5"
    assert german.phrase(other.phrase, {"age": "Alter", "grade": "Grad"}) == "Grad ist age is 1.5"
    assert german.phrase(Rule("x", "other").phrase) == "x ist eine andere Kategorie"
    state = json.loads(json.dumps(asdict(Phrase.word("more", n=3) + rule.phrase)))
    assert str(Phrase.from_list(state["parts"])) == "and 3 more1.5 < age <= 2.5"


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
        (lambda texts: texts.pop("is"), "'is' is missing"),
        (lambda texts: texts.update(iss="is"), "'iss' is none of them"),
        (lambda texts: texts.update(more="and more"), r"'more'\] must be a text with n in braces"),
        (lambda texts: texts.update(rows="rows"), "two forms with a bar"),
        (lambda texts: texts.update({"is": 1}), "got 1"),
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
