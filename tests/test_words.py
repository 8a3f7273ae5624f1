"""Texts for readers keep to the terms of the field: phrases that docs, docstrings and messages do not use."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*(ROOT / "sstorch").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
)
# A phrase, and what to write in its place.
PHRASES = {
    r"persons?|people|somebody|nobody": "subject, row",
    r"columns that change|columns change": "time-varying covariates",
    r"rows that begin and end": "counting-process (start-stop) data",
    r"rows that entered late": "left-truncated rows",
    r"rows left out|rows that trees were not trained on": "held-out rows",
    r"limits of 95 %": "95 % confidence limits",
    r"lives? longer|those that live longest": "longer survival",
    r"rows at risk then,? who": "rows at risk",
    r"of one's own": "of your own, a user's",
    r"has no form|does not know entry": "is not supported",
    r"tells nothing": "has no comparable pairs, is not defined",
    r"takes up|forgets|meets": "reuses, drops, satisfies",
    r"beside": "compared with, with, next to",
    r"tells?|told|telling": "reports, states, computes",
}
# Words of others: items of TRIPOD+AI, readers, and times of human lives.
ALLOWED = (
    "between groups of people",
    "Colours that people",
    "as people read it",
    "times of people",
)


@pytest.mark.parametrize(("phrase", "better"), PHRASES.items())
def test_homemade_phrase_is_not_used(phrase: str, better: str) -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in TEXTS
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"\b(?:{phrase})\b", line, re.IGNORECASE)
        and not any(allowed in line for allowed in ALLOWED)
    ]
    assert not found, f"write {better}: {found}"
