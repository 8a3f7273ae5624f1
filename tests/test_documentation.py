"""The pages: links that lead somewhere, commands, the script that types one, and phrases that none has."""

import pydoc
import re
import shlex
from pathlib import Path

import pytest

from sstorch.bench.arguments import as_hydra_takes
from sstorch.bench.config import check_node, to_config
from tests.app import composed

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, *sorted(ROOT.glob("experiments/*/README.md"))]
LINK = re.compile(r"!?\[[^]\[]*\]\(([^)\s]+)\)")
NAME = re.compile(
    r"`(?:>>> )?((?:sstorch|metrics|inference|plots|reading|validation|deploy)(?:\.[A-Za-z]\w*)+)"
)
FILE = re.compile(r"`((?:scripts|tests|experiments|docs|configs|sstorch)/[\w./*-]+)")
of_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def _anchors(page: Path) -> set[str]:
    """Of the headings, as repositories and Sphinx make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _targets(page: Path) -> list[tuple[str, Path, str]]:
    """Links of a page to files here: text, file, anchor."""
    links = [link for link in LINK.findall(page.read_text()) if not link.startswith(("http://", "https://"))]
    parts = [(link, *link.partition("#")[::2]) for link in links]
    return [(link, (page.parent / path).resolve() if path else page, anchor) for link, path, anchor in parts]


@of_pages
def test_links_names_and_files_exist(page: Path) -> None:
    for link, target, anchor in _targets(page):
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link
    text = page.read_text()
    for name in NAME.findall(text):
        full = name if name.startswith("sstorch.") else f"sstorch.{name}"
        assert pydoc.locate(full) is not None, name
    for file in FILE.findall(text):
        assert list(ROOT.glob(file)), file


def _commands(page: Path) -> list[list[str]]:
    """Overrides of each `sstorch` command on a page, the first of the values of a sweep."""
    text = page.read_text()
    blocks = "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = [*blocks.splitlines(), *re.findall(r"`(sstorch [^`]*)`", text)]
    words = [
        shlex.split(line, comments=True) for line in lines if re.match(r"(\.venv/bin/)?sstorch\b[^-]", line)
    ]
    # What stands for the reader's own code, and what Hydra reads itself.
    other = re.compile(
        r"-|hydra|imports|.*=makeham|model=(mine|custom)|.*(my_module|choice\()|\w+\.OPTION|.*=NAME"
    )
    sweep = re.compile(r"(?<=\]),\[.*|(?<=\w),[^\[\]{}\"(]*$")
    return [
        [sweep.sub("", part) for part in command[1:] if "=" in part and not other.match(part)]
        for command in words
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=lambda page: page.stem)
def test_settings_of_commands_exist(page: Path) -> None:
    for overrides in _commands(page):
        check_node(to_config(composed(*as_hydra_takes(overrides))).model, "model")


def test_pages_are_short_listed_and_two_clicks_from_the_index() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    index = ROOT / "docs" / "index.md"
    first = {target for _, target, _ in _targets(index)} & set(DOCS)
    second = {target for page in first for _, target, _ in _targets(page)}
    assert set(DOCS) <= {index} | first | second
    listed = set(re.findall(r"^[\w/]+$", index.read_text(), flags=re.MULTILINE))
    names = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in DOCS}
    assert names - {"index"} == listed
    assert not names & {"search", "genindex", "modindex"}  # Sphinx writes pages of these names over ours


# ---------------------------------------------------------------------- terms of the field

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
