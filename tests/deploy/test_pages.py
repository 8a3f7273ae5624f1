"""The page of a tree in a real browser: what it shows is what the tree predicts."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

from sstorch import OptimalSurvivalTree, PrognosticTree, Surv, SurvivalRegression, metrics
from sstorch.data import SurvivalData, load_dataset
from sstorch.deploy import export_calculator, export_code
from sstorch.deploy.calculator import PAGE_TEXTS, PageGroup, labelled
from sstorch.deploy.exports import _group_curves
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import KaplanMeier
from tests.conftest import nightly
from tests.deploy.test_contract import drawn, fitted, patients, start_stop

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="neither chromium nor google-chrome is installed")
# Enters patients as a subject would, field by field, and keeps what the page shows of each.
DRIVER = """
<script>
const seen = [];
for (const patient of @PATIENTS@) {
  for (const [name, text] of Object.entries(patient)) {
    const entry = fields[model.columns.findIndex((column) => column.name === name)];
    entry.value = text;
    entry.dispatchEvent(new Event("input", { bubbles: true }));
  }
  seen.push({
    curves: JSON.parse(byId("curves").dataset.values), group: Number(byId("curves").dataset.group),
    horizons: [...document.querySelectorAll("#then td")].map((cell) => Number(cell.dataset.value)),
    lit: [...document.querySelectorAll("#tree li.lit > .box")].map((box) => box.textContent),
    warnings: [...document.querySelectorAll(".warn")].map((each) => each.textContent).filter((each) => each),
    shown: [...document.querySelectorAll("#fields .name")].map((each) => each.textContent),
    folded: byId("rest").hidden ? null : document.querySelectorAll("#rest .name").length,
    way: !byId("way").hidden,
    choices: [...document.querySelectorAll("#fields .switch input")].map((each) => each.value),
    next: byId("next").textContent, bands: document.querySelectorAll(".band[d^=M]").length,
    verdict: byId("verdict").textContent,
  });
}
document.body.replaceChildren(make("pre", { id: "seen" }, JSON.stringify(seen)));
</script>
"""


def in_browser(page: Path, patients: list[dict[str, str]], folder: Path) -> list[dict[str, Any]]:
    driven = folder / "driven.html"
    driver = DRIVER.replace("@PATIENTS@", json.dumps(patients).replace("</", "<\\/"))
    driven.write_text(page.read_text().replace("</body>", f"{driver}</body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", driven.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    seen: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
    return seen


def typed(row: pd.Series, categories: set[str]) -> dict[str, str]:
    return {
        str(name): ""
        if pd.isna(value)
        else f"={value}"
        if name in categories
        else repr(float(value)).removesuffix(".0")
        for name, value in row.items()
    }


def page_data(page: Path) -> dict[str, Any]:
    found = re.search(r"const model = (\{.*?\});\n", page.read_text())
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def entered(page: Path, frame: pd.DataFrame, like: pd.DataFrame) -> list[dict[str, Any]]:
    """What the page shows of the rows of a frame."""
    categories = {str(name) for name in like if not pd.api.types.is_numeric_dtype(like[name])}
    return in_browser(page, [typed(row, categories) for _, row in frame.iterrows()], page.parent)


@needs_browser
@pytest.mark.parametrize("kind", ["soft", nightly("exact")])
def test_page_shows_what_the_tree_predicts(kind: str, gbsg2: SurvivalData, tmp_path: Path) -> None:
    X, y = gbsg2.frame, gbsg2.y
    tree: PrognosticTree | OptimalSurvivalTree
    tree = PrognosticTree(time_unit="days") if kind == "soft" else OptimalSurvivalTree(3, time_unit="days")
    tree.fit(X, y)
    page, frame, horizons = tmp_path / "page.html", drawn(gbsg2, 25, 0), [365.0, 1826.0]
    export_calculator(tree, page, X, y, title="</script><b>", horizons=horizons, labels={"age": "</li>Age"})
    seen = entered(page, frame, X)
    frame = frame.astype({name: float for name in X if pd.api.types.is_numeric_dtype(X[name])})
    expected = tree.predict_survival_function(frame, np.linspace(0, tree.event_times_[-1], 121))
    np.testing.assert_allclose([each["curves"][0] for each in seen], expected, atol=1e-9)
    at = tree.predict_survival_function(frame, horizons)
    np.testing.assert_allclose([each["horizons"] for each in seen], at, atol=1e-9)
    group, with_events = tree.apply(frame), pd.Series(gbsg2.event).groupby(tree.apply(X)).any()
    assert [each["group"] for each in seen] == group.tolist()
    for each, number in zip(seen, group, strict=True):
        assert each["lit"][0] == "all patients"
        assert f"group {number}, " in each["lit"][-1]
        assert each["verdict"].startswith(f"Group {number}: ")
        assert each["bands"] == with_events[number]  # no limits without an event
        better = "No group has a better prognosis" if number == 1 else f"would be in group {number - 1}, "
        assert better in each["next"]
    assert page.stat().st_size < 300_000
    missing = frame.isna().any(axis=1)
    assert all(any("unknown" in text for text in seen[k]["warnings"]) for k in np.flatnonzero(missing))
    # What is not a number, what is outside, a comma, a comma that may stand for thousands.
    odd = [{"age": "old"}, {"age": "130"}, {"age": "45,5"}, {"age": "60", "progrec": "1,234"}]
    warnings = [each["warnings"] for each in in_browser(page, odd, tmp_path)]
    assert "outside the data" in warnings[1][0]
    assert warnings[2] == []
    assert all("not a number" in warnings[k][0] for k in (0, 3))


@needs_browser
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "name"), [nightly("auto", "mgus2"), ("exact", "pbc")])
def test_page_shows_the_incidence_of_each_cause(kind: str, name: str, tmp_path: Path) -> None:
    model, data, page = fitted(name, kind), load_dataset(name), tmp_path / "page.html"
    frame = patients(name)[:15].drop(index=[1, 2])  # a page has no field for a category that is unknown
    horizons = [60.0, 120.0] if name == "mgus2" else [365.0, 1825.0]
    export_calculator(model, page, data.frame, data.y, horizons=horizons)
    seen, group = entered(page, frame, data.frame), model.apply(frame)
    expected = model.predict_cumulative_incidence(frame, np.linspace(0, model.event_times_[-1], 121))
    np.testing.assert_allclose([each["curves"] for each in seen], expected, atol=1e-9)
    at = model.predict_cumulative_incidence(frame, horizons)
    free = model.predict_survival_function(frame, horizons)
    shown = np.concatenate([at, free[:, None]], axis=1).reshape(len(frame), -1)
    np.testing.assert_allclose([each["horizons"] for each in seen], shown, atol=1e-9)
    for k, each in enumerate(seen):
        assert each["group"] == group[k]
        last = ", ".join(
            f"{cause} {100 * at[k, j, 1]:.1f}\N{NO-BREAK SPACE}%" for j, cause in enumerate(model.causes_)
        )
        assert last in each["verdict"] or (at[k, :, 1] <= 0.001).any()


@pytest.mark.parametrize("after", [0.0, 12.5])
def test_page_has_kaplan_meier_of_the_rows_at_risk(after: float, tmp_path: Path) -> None:
    model, (X, y), page = fitted("start-stop", "exact"), start_stop(), tmp_path / "page.html"
    export_calculator(model, page, X, y, after=after)
    text, data = page.read_text(), page_data(page)
    assert ("times count from 12.5." if after else "Survival from time 0 of a subject") in text
    assert "median" not in "".join(each["text"] for each in [*data["groups"], *data["nodes"]])
    assert data["lastTime"] == pytest.approx(float(model.event_times_[-1]) - after)
    assert max(data["horizons"]) <= data["lastTime"]
    leaf = model.apply(X)
    assert {each["number"] for each in data["groups"]} >= {*leaf}
    for group in data["groups"]:
        inside = (leaf == group["number"]) & (y.time > after)  # type: ignore[operator]
        # From zero: lifelines counts a row as at risk at its entry, survival and sstorch after it.
        entry = np.maximum(y.entry[inside], after) + 1e-9  # type: ignore[index]
        peer = KaplanMeierFitter().fit(y.time[inside], y.event[inside], entry=entry)  # type: ignore[index]
        at = np.array(group["times"])
        expected = peer.survival_function_at_times(at + after + 1e-9).to_numpy()
        np.testing.assert_allclose(group["curves"][0], expected, atol=1e-6)


@pytest.mark.parametrize("after", [None, 24.0])
def test_page_has_aalen_johansen_of_the_groups(after: float | None, tmp_path: Path) -> None:
    model, data, page = fitted("mgus2", "auto"), load_dataset("mgus2"), tmp_path / "page.html"
    export_calculator(model, page, data.frame, data.y, after=after)
    shown, start, group = page_data(page), after or 0.0, model.apply(data.frame)
    assert shown["causes"] == ["progression", "death"]
    assert shown["outcome"] == "event-free survival"
    assert [each["number"] for each in shown["groups"]] == [1, 2, 3, 4]
    for each in shown["groups"]:
        if not (group == each["number"]).any():
            assert each["text"] == "no training rows"
            continue
        inside = (group == each["number"]) & (data.time > start)
        own = (data.time[inside] - start, data.cause[inside])
        np.testing.assert_allclose(each["curves"], metrics.aalen_johansen(own, each["times"]), atol=1e-6)


@needs_browser
@pytest.mark.nightly
def test_crossing_the_named_gates_leads_to_the_next_group(gbsg2: SurvivalData, tmp_path: Path) -> None:
    tree = PrognosticTree().fit(gbsg2.frame, gbsg2.y)
    page = tmp_path / "page.html"
    export_calculator(tree, page, gbsg2.frame, gbsg2.y)
    patient = {"pnodes": "9", "progrec": "12"}
    (seen,) = in_browser(page, [patient], tmp_path)
    target = seen["group"] - 1
    named = seen["next"].split("with: ")[1].split(". This describes")[0].split("; ")
    for condition in named:
        column, sign, threshold = condition.split()
        patient[column] = str(float(threshold) + (1 if sign == ">" else -1))
    (changed,) = in_browser(page, [patient], tmp_path)
    assert changed["group"] == target


def test_texts_translate_the_page(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, time = pd.DataFrame({"age": rng.normal(60, 9, 40)}), rng.exponential(9, 40)
    tree = OptimalSurvivalTree(1, time_unit="months").fit(X, (time, np.ones(40)))
    texts = {key: text.upper() for key, text in PAGE_TEXTS.items() if not re.search(r"[{|]", text)}
    texts |= {"code": "de", "decimal": ",", "time_unit": "Monat|Monate", "rows": "Zeile|Zeilen"}
    texts |= {"from_time": "ab {time}", "median": "Median {time}", "events": "Ereignis|Ereignisse"}
    export_calculator(tree, tmp_path / "page.html", X, texts=texts, after=0.5, horizons=[2.5])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in ('<html lang="de">', f"<h2>{PAGE_TEXTS['result'].upper()}</h2>", '["Monat", "Monate"]'):
        assert text in page
    assert re.search(r"leaves, 40 Zeilen, 40 Ereignisse\. ab 0,5<", page)
    assert '"decimal": ","' in page
    export_calculator(tree, tmp_path / "page.html", X, texts={"median": "Median {time}"})
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r"rows, \d+ events, Median [\d.]+ months", page)
    assert '["month", "months"]' in page


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"resutl": "Ergebnis"}, "texts has no key 'resutl'. Did you mean 'result'"),
        ({"folded": "{m} more"}, r"'folded'\] must be a text, in braces n, got '{m} more'"),
        ({"result": 1}, "'result'\\] must be a text, in braces none, got 1"),
        ({"rows": "rows"}, "'rows'\\] must have as many bars as 'row\\|rows'"),
    ],
)
def test_wrong_texts_raise(texts: dict[str, str], message: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tree = OptimalSurvivalTree(1).fit(rng.normal(size=(30, 1)), (rng.exponential(size=30), np.ones(30)))
    with pytest.raises(ConfigError, match=message):
        export_calculator(tree, tmp_path / "page.html", texts=texts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("age <= 50", "Age <= 50"),
        ("not (1.5 < age <= 2.5)", "not (1.5 < Age <= 2.5)"),
        ("grade not in {grade, age, sex}", "Grade not in {grade, age, sex}"),
        ("sex is f and grade is 1", "Sex is f and Grade is 1"),
        (
            "+3 age -2 sex=age +2 log(age) (1 term) -4 >= 0",
            "+3 Age -2 Sex=age +2 log(Age) (1 term) -4 >= 0",
        ),
        ("+1 age:sex=f -2 s(age) +1 age at entry <= 0", "+1 Age:Sex=f -2 s(Age) +1 Entry <= 0"),
        ("grade is missing or not 1", "Grade is missing or not 1"),
    ],
)
def test_labels_replace_columns_and_leave_categories(rule: str, expected: str) -> None:
    labels = {"age": "Age", "sex": "Sex", "grade": "Grade", "age at entry": "Entry"}
    assert labelled(rule, labels) == expected


@needs_browser
def test_columns_are_ordered_by_what_they_change_and_the_rest_is_folded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"noise {k}": rng.normal(size=300) for k in range(11)})
    frame["treated"] = rng.integers(0, 2, 300).astype(float)
    time = rng.exponential(np.exp(2.0 * frame["treated"]))
    model = SurvivalRegression("weibull").fit(frame, (time, np.ones(300, dtype=bool)))
    page = tmp_path / "page.html"
    export_calculator(model, page, frame, (time, np.ones(300, dtype=bool)), outcome="overall survival")
    assert "<title>Overall survival calculator</title>" in page.read_text()
    (seen,) = in_browser(page, [{"treated": "1"}], tmp_path)
    assert seen["shown"][0] == "treated"
    assert (len(seen["shown"]), seen["folded"]) == (8, 4)
    assert seen["choices"] == ["0", "1", ""]
    assert not seen["way"]
    assert seen["verdict"].startswith("Median of this patient: ")


def test_the_page_asks_for_nothing(gbsg2: SurvivalData, tmp_path: Path) -> None:
    rows = gbsg2.subset(np.arange(200))
    tree = OptimalSurvivalTree(2).fit(rows.frame, (rows.time, rows.event))
    page = tmp_path / "page.html"
    export_calculator(tree, page)
    text = page.read_text().replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//[a-z]|\ssrc=|\shref=|url\(|fetch\(|XMLHttp|import\(", text)
    assert "no medical device" in text
    assert not re.search("@[A-Z]+@", text)
    # The curve behind that of the patient is Kaplan-Meier of the rows, from their entry on.
    one = OptimalSurvivalTree(0).fit(rows.frame, (rows.time, rows.event))
    entry = np.where(np.arange(200) % 2, 0.5 * rows.time, 0.0)
    export_calculator(one, page, rows.frame, Surv(rows.time, rows.event, entry=entry))
    band = KaplanMeier.fit(Surv(rows.time, rows.event, entry=entry))
    text = page.read_text()
    assert all(repr(round(float(value), 6)) in text for value in band.values[:5])


def test_invalid_arguments_write_nothing(gbsg2: SurvivalData, tmp_path: Path) -> None:
    rows = gbsg2.subset(np.arange(200))
    tree = OptimalSurvivalTree(2).fit(rows.frame, (rows.time, rows.event))
    page = tmp_path / "page.html"
    counting, (X, y) = fitted("start-stop", "soft"), start_stop()
    few = rows.frame, (rows.time[:3], rows.event[:3])
    for model, given, options, words in (
        (tree, (), {"labels": {"agee": "Age"}}, "labels names 'agee'; the columns are horTh, age"),
        (tree, (), {"horizons": [1e6]}, "up to the last event"),
        (tree, (), {"horizons": "5y"}, "horizons must be an array of numbers"),
        (tree, (), {"y": (rows.time, rows.event)}, "give both"),
        (tree, few, {}, "X has 200 rows but y has 3; give one outcome for every row"),
        (counting, (X, (y.time, y.event)), {"after": 0}, "y has no entry and no id"),
        (counting, (), {"after": 1e6}, "not before the last training event"),
    ):
        with pytest.raises((ConfigError, DataError), match=words):
            export_calculator(model, page, *given, **options)
    with pytest.raises(ConfigError, match="choose another file"):
        export_calculator(tree, tmp_path / "no" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_weights_of_the_outcome_enter_the_curves_of_groups() -> None:
    rng = np.random.default_rng(0)
    time, event, leaf = rng.exponential(1, 60), rng.random(60) < 0.7, np.arange(60) % 2
    weight = np.where(rng.random(60) < 0.2, 0.0, rng.lognormal(0, 1, 60))
    groups = [PageGroup(0, 30, "one"), PageGroup(1, 30, "two")]
    for number, group in enumerate(_group_curves(groups, leaf, Surv(time, event, weight=weight), 9.0, 0.0)):
        inside = leaf == number
        band = KaplanMeier.fit((time[inside], event[inside]), sample_weight=weight[inside])
        np.testing.assert_allclose(group.curves[0], band.at(group.times), atol=1e-6)
        np.testing.assert_allclose(group.limits, band.limits(group.times)[1:], atol=1e-6)
    for number, group in enumerate(_group_curves(groups, leaf, Surv(time, leaf == 0), 9.0, 0.0)):
        assert (group.curves[0][-1] == 1.0, len(group.limits)) == ((False, 2), (True, 0))[number]


@pytest.mark.nightly
def test_files_have_no_values_of_rows_but_ranges_quantiles_and_event_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 150), "crp": rng.lognormal(1, 0.5, 150)})
    time, event = rng.exponential(5, 150), rng.random(150) < 0.6
    model = SurvivalRegression("weibull").fit(frame, (time, event))
    export_calculator(model, tmp_path / "page.html", frame, (time, event))
    for language in ("python", "javascript"):
        export_code(model, language, tmp_path / f"code.{language}")
    model.save(tmp_path / "model")
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    read = {path.name: path.read_text() for path in files}
    for name, text in read.items():
        values = {float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)}
        for column in frame:
            found = values & set(frame[column])
            if name == "model.json":  # tenths, and the quantiles between which effects are reported
                assert len(found) <= 9 + 3 + 2
            else:
                assert found <= {frame[column].min(), frame[column].max()}
        assert not values & set(time[~event]) - {time.max()}
        assert bool(values & set(time[event])) == (name in ("page.html", "model.json"))
