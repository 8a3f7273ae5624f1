"""The draft of a paper: its numbers are those of the run, its gaps are marked, its formats open."""

import io
import re
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import Surv, SurvivalData, load_dataset
from sstorch.bench.paper.command import main
from sstorch.bench.paper.manuscript import manuscript
from sstorch.bench.paper.methods import methods
from sstorch.bench.paper.tables import hazard_ratios
from sstorch.bench.performance import performance
from sstorch.bench.report.characteristics import columns_table, standardised_difference
from sstorch.bench.report.run import Run, median_name, median_text
from sstorch.bench.reporting import read_run
from sstorch.data.sources import read_survset
from sstorch.document import Bullets, Document, Paragraph, Section, Table
from sstorch.document.word import to_docx
from sstorch.metrics.follow_up import median_follow_up
from sstorch.validation.checklist import ITEMS
from tests.app import sstorch
from tests.bench.draft_numbers import known, numbers, texts
from tests.histories import halved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on GBSG2 with holes in a number and in a category."""
    path = tmp_path_factory.mktemp("paper")
    data = load_dataset("gbsg2")
    frame = data.frame.assign(days=data.time, died=data.event.astype(int))
    frame.loc[2:8, "tsize"], frame.loc[5:15, "tgrade"] = np.nan, np.nan
    frame.to_csv(path / "cohort.csv", index=False)
    settings = f"""
        dataset=csv dataset.path={path / "cohort.csv"} dataset.time=days dataset.event=died
        dataset.time_unit=days cv.n_folds=3 logger=none hydra.run.dir={path / "run"}
    """
    with pytest.MonkeyPatch.context() as patch:
        assert sstorch(patch, *settings.split()) == 0
    return path / "run"


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    make = read_run(folder, "test")
    assert make is not None
    return make()


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    main([str(folder)])
    return (folder / "paper" / "paper.html").read_text(encoding="utf-8")


def _of_page(page: str) -> Counter[str]:
    """Numbers of a page, without those of its style and pictures."""
    body = re.sub(r"<style.*?</style>|<svg.*?</svg>|<title>.*?</title>", "", page, flags=re.DOTALL)
    return Counter(numbers(unescape(re.sub(r"<[^>]*>", " ", body))))


def _of_word(file: Path) -> Counter[str]:
    """Numbers of a Word document."""
    document = pytest.importorskip("docx").Document(str(file))
    cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
    return Counter(numbers("\n".join([*(each.text for each in document.paragraphs), *cells])))


def _check_numbers(run: Run, folder: Path) -> None:
    """Each number of the draft is one of the run, and most others would not pass; formats have the same."""
    draft = manuscript(run)
    results = next(section for section in draft.sections if section.title == "Results")
    sections = {each.title: each for each in [*draft.sections, *results.blocks] if isinstance(each, Section)}
    allowed, changed = known(run, folder), []
    for title, sources in allowed.items():
        found = [number for text in texts(sections[title]) for number in numbers(text)]
        assert found or run.data.entry.any(), title
        assert not [number for number in found if not sources.has(number)], title
        changed += [sources.has(one[:-1] + str((int(one[-1]) + by) % 10)) for one in found for by in (1, 9)]
    assert np.mean(changed) < 0.35
    facts = {str(run.data.n_subjects), str(run.data.n_events), str(run.config["tree"]["depth"])}
    assert set(numbers(f"{draft.title} {draft.subtitle}")) <= facts
    items = {number for item, *_ in ITEMS for number in numbers(item)}
    for title in sections.keys() - allowed.keys() - {"Results", "References"}:
        assert {number for text in texts(sections[title]) for number in numbers(text)} <= items, title
    whole = [draft.title, draft.subtitle, *(text for section in draft.sections for text in texts(section))]
    expected = Counter(number for text in whole for number in numbers(text))
    assert _of_page((folder / "paper" / "paper.html").read_text(encoding="utf-8")) == expected
    assert _of_word(folder / "paper" / "paper.docx") == expected


def test_each_number_of_the_draft_is_one_of_the_run(folder: Path, run: Run, page: str) -> None:
    assert "\n".join(texts(methods(run))).count("[to be completed: ") >= 7
    _check_numbers(run, folder)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:left-truncated rows")
@pytest.mark.parametrize("name", ["mgus2", "csl"])
def test_each_number_of_causes_and_start_stop_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["dataset=mgus2"]
    if name == "csl":
        pytest.importorskip("SurvSet", reason="the extra datasets is not installed")
        read_survset("csl").to_csv(tmp_path / "csl.csv", index=False)
        named = "path=csl.csv time=time2 event=event entry=time id=pid time_unit=years"
        settings = ["dataset=csv", *(f"dataset.{each}" for each in named.split())]
        monkeypatch.chdir(tmp_path)
    assert sstorch(monkeypatch, *settings, "logger=none", f"hydra.run.dir={tmp_path / 'run'}") == 0
    make = read_run(tmp_path / "run", "test")
    assert make is not None
    main([str(tmp_path / "run")])
    _check_numbers(make(), tmp_path / "run")


def test_follow_up_and_hazard_ratios_are_those_of_lifelines(run: Run) -> None:
    lifelines = pytest.importorskip("lifelines")
    from lifelines.utils import median_survival_times

    data = run.data
    fitter = lifelines.KaplanMeierFitter().fit(data.time, ~data.event)
    limits = median_survival_times(fitter.confidence_interval_).iloc[0].tolist()
    found = median_follow_up(data.weighted_y.any_cause())
    assert [found.value, found.lower, found.upper] == [fitter.median_survival_time_, *limits]
    group = run.model.apply(data.frame)
    dummies = pd.get_dummies(pd.Series(group), drop_first=True, dtype=float).rename(columns=str)
    frame = dummies.assign(time=data.time, event=data.event)
    peer = lifelines.CoxPHFitter().fit(frame, "time", "event").summary
    ratios = hazard_ratios(data, group)
    assert ratios is not None
    columns = ["exp(coef)", "exp(coef) lower 95%", "exp(coef) upper 95%"]
    np.testing.assert_allclose(ratios.iloc[1:], peer[columns], rtol=1e-5)
    # The same histories in two rows each.
    twice = pd.concat([data.frame, data.frame], ignore_index=True)
    cut = hazard_ratios(SurvivalData(twice, halved(Surv(data.time, data.event))), np.tile(group, 2))
    pd.testing.assert_frame_equal(cut, ratios, rtol=1e-9)
    # Robust limits, of weights.
    weight = 1.0 + np.arange(len(data)) % 3
    weighted = SurvivalData(data.frame, Surv(data.time, data.event, weight=weight))
    robust = lifelines.CoxPHFitter().fit(
        frame.assign(w=weight), "time", "event", weights_col="w", robust=True
    )
    ratios = hazard_ratios(weighted, group)
    assert ratios is not None
    np.testing.assert_allclose(ratios.iloc[1:], robust.summary[columns], rtol=2e-2)


def test_median_of_recurrent_events_is_to_the_first_one_as_in_r() -> None:
    """survfit(Surv(stop, status) ~ 1, cgd[start == 0, ], conf.type = "log-log"), survival 3.5-3."""
    data = load_dataset("cgd")
    assert (median_name(data), median_text(data)) == ("time to the first event", "373 (318 to -)")


def test_standardised_differences() -> None:
    draws = np.random.default_rng(0)
    a, b = pd.Series(draws.normal(size=50)), pd.Series(draws.normal(0.5, 2.0, size=70))
    expected = abs(a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2)
    assert standardised_difference(a, b) == pytest.approx(expected, rel=1e-12)
    words = pd.CategoricalDtype(["x", "y", "z"])
    one, two = (
        pd.Series(draws.choice(["x", "y"], n, p=[p, 1 - p])).astype(words) for n, p in ((80, 0.3), (90, 0.6))
    )
    p, q = (one == "x").mean(), (two == "x").mean()
    expected = abs(p - q) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert standardised_difference(one, two) == pytest.approx(expected, rel=1e-9)
    # Shares .5, .3, .2 and .2, .3, .5: the distance by an inverse of the mean covariance of two categories.
    one, two = (pd.Series(["x"] * i + ["y"] * 3 + ["z"] * k).astype(words) for i, k in ((5, 2), (2, 5)))
    covariance = np.array([[0.205, -0.105], [-0.105, 0.21]])
    gap = np.array([0.3, 0.0])
    expected = float(np.sqrt(gap @ np.linalg.inv(covariance) @ gap))
    assert standardised_difference(one, two) == pytest.approx(expected, rel=1e-9)
    assert standardised_difference(a, a) == 0
    assert standardised_difference(pd.Series([1.0, 1.0]), pd.Series([2.0, 2.0])) == np.inf
    assert np.isnan(standardised_difference(a, pd.Series([np.nan])))


def test_shares_of_categories_are_of_known_values_and_one_other_is_named() -> None:
    words = pd.Series([*"aabcdefg", None, None]).astype("category")
    table = columns_table(pd.DataFrame({"g": words}), np.zeros(10, dtype=int), ["g"], "")
    assert [row[1].text for row in table.rows] == ["2 (25 %)", *["1 (12 %)"] * 6]
    assert table.rows[-1][0].text == "g = g"


def test_tables_of_the_draft_are_those_of_the_run(folder: Path, run: Run, page: str) -> None:
    text = unescape(re.sub(r"<[^>]*>", " ", page))
    table = performance(pd.read_csv(folder / "peers.csv")).loc["c_harrell"]
    for model in ("tree", "Cox", "one leaf"):
        value, lower, upper = table.loc[model, ["value", "lower", "upper"]]
        assert f"{value:.3f} ({lower:.3f} to {upper:.3f})" in text
    for line in run.model.describe().splitlines():
        assert line in text
    for title in ("Table 1.", "Table 2.", "Table 3.", "Table 4.", "Figure 1.", "Figure 2.", "Figure 3."):
        assert text.count(title) == 1
    assert page.count("<mark>[to be completed: ") > 30
    assert "27c Next steps" in text
    assert "Nadeau C, Bengio Y (2003)" in text
    assert "Wolbers" not in text
    assert not re.search(r"<script|<link|src=\"(?!data:)", page)


def test_word_document_has_headings_tables_and_marked_gaps() -> None:
    docx = pytest.importorskip("docx")
    from sstorch.document import Cell

    table = Table("Table 1. A.", ["row", "value"], [[Cell("a"), Cell("1", "note")]])
    text = Paragraph("Known. [to be completed: unknown] Known again.")
    report = Document("T", "s", [Section("Outer", [text, Section("Inner", [Bullets(["x"]), table])])])
    found = docx.Document(io.BytesIO(to_docx(report)))
    styles = {each.text: each.style.name for each in found.paragraphs}
    assert (styles["Outer"], styles["Inner"], styles["x"]) == ("Heading 1", "Heading 2", "List Bullet")
    assert styles["Table 1. A."] == "Caption"
    (run,) = [run for each in found.paragraphs for run in each.runs if run.font.highlight_color]
    assert run.text == "[to be completed: unknown]"
    assert [[cell.text for cell in row.cells] for row in found.tables[0].rows] == [
        ["row", "value"],
        ["a", "1 (note)"],
    ]


def test_word_without_its_package_is_refused_before_any_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "docx", None)
    for words, told in (
        ([str(folder)], "pip install 'sstorch[paper]'"),
        ([str(tmp_path), "--format", "html"], "is not the folder of a run"),
        ([str(folder), "--format", "pdf"], "invalid choice: 'pdf'"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--out", str(tmp_path / "out")])
        assert stopped.value.code == 2
        assert told in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:left-truncated rows")
@pytest.mark.parametrize(
    "kind",
    ["causes", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("intervals", "start-stop"))],
)
def test_drafts_of_other_outcomes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 2)).round(3), columns=["age", "size"])
    time = np.ceil(rng.exponential(400 * np.exp(-frame["age"]))).clip(1, 900)
    if kind == "causes":
        frame["days"], frame["status"] = time, np.where(time < 900, rng.integers(1, 3, 160), 0)
        settings = "dataset.time=days dataset.cause=status dataset.causes={1: relapse, 2: death}"
        told, absent = ("competing events relapse and death", "Aalen-Johansen estimates"), "hazard ratio</th>"
    elif kind == "intervals":
        frame["low"], frame["high"] = 0.8 * time, np.where(time < 900, 1.2 * time, np.nan)
        settings = "dataset.lower=low dataset.upper=high"
        told, absent = ("known up to an interval", "Turnbull estimates"), "hazard ratio</th>"
    else:
        frame = frame.assign(subject=np.arange(160), start=0.0, stop=time, died=(time < 900) * 1)
        late = frame.assign(age=frame["age"] + 1, start=time, stop=time + 50)[:80]
        frame.loc[:79, "died"] = 0
        frame = pd.concat([frame, late], ignore_index=True)
        settings = "dataset.entry=start dataset.time=stop dataset.event=died dataset.id=subject"
        told, absent = (
            ("240 rows of 160 subjects", "First rows of subjects", "hazard ratio</th>"),
            "median survival</th>",
        )
    frame.to_csv(tmp_path / "own.csv", index=False)
    words = re.split(r" (?=dataset\.)", settings)
    fixed = ["tree.depth=1", "leaf=exponential", "cv.n_folds=2", "logger=none", "dataset=csv"]
    place = [f"dataset.path={tmp_path / 'own.csv'}", f"hydra.run.dir={tmp_path / 'run'}"]
    assert sstorch(monkeypatch, *words, *fixed, *place) == 0
    main([str(tmp_path / "run"), "--format", "html"])
    page = (tmp_path / "run" / "paper" / "paper.html").read_text()
    for text in told:
        assert text in page
    assert absent not in page
    assert capsys.readouterr().out.endswith(f"done: draft of a paper in {tmp_path / 'run' / 'paper'}\n")
