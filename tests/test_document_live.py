"""Figures that answer to the pointer, in a real browser: what is read is what was drawn."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from sstorch.document import Cell, Document, Picture, Section, Table, to_html
from sstorch.metrics import KaplanMeierBand
from sstorch.plots.figures import of_group

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# Moves the slider, chooses a group, presses keys, and keeps what the page shows.
DRIVER = """
<script>
const texts = (box) => [...box.children].map((line) => line.textContent);
const read = () => [...document.querySelectorAll(".read")].map(texts);
const off = () => [...document.querySelectorAll("[data-group].off")].map((each) => each.dataset.group);
const seen = {};
slider.value = 2.5; slider.dispatchEvent(new Event("input")); seen.slider = read();
buttons[1].click(); seen.chosen = [read(), off(), buttons.map((each) => each.getAttribute("aria-pressed"))];
buttons[0].click();
const box = document.querySelectorAll(".live")[1], place = box.querySelector("svg").getBoundingClientRect();
const middle = { clientX: place.left + place.width / 2, clientY: place.top + place.height / 2 };
box.dispatchEvent(new PointerEvent("pointermove", middle)); seen.pointer = read();
box.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })); seen.key = read();
document.body.replaceChildren(make("pre", { id: "seen" }, JSON.stringify(seen)));
</script>
"""


def figures() -> tuple[Figure, Figure, KaplanMeierBand]:
    """Kaplan-Meier of one group and a line of another, and an effect as a logarithm."""
    band = KaplanMeierBand.fit((np.arange(1.0, 7.0), np.array([1, 1, 0, 1, 1, 0], dtype=bool)))
    curves, effect = Figure((4, 3)), Figure((4, 3))
    ax = curves.add_axes((0.2, 0.2, 0.7, 0.7), label="time", xlabel="years", xlim=(0, 5), ylim=(0, 1))
    at = np.array([0.0, 1.0, 2.0, 4.0, 5.0])
    survival, lower, upper = band.at(at)
    ax.fill_between(at, lower, upper, step="post", gid=of_group(1, band=True))
    ax.plot(at, survival, drawstyle="steps-post", label="Kaplan-Meier", gid=of_group(1))
    ax.plot([0, 5], [1, 0], label="model", gid=of_group(2))
    ax = effect.add_axes((0.25, 0.25, 0.5, 0.5), title="age", xlim=(0, 10), ylim=(-1, 1))
    ax.plot([0, 10], [-1, 1], gid=of_group(0))
    ax.fmt_ydata = lambda value: f"{np.exp(value):.4g}"
    return curves, effect, band


def page() -> str:
    curves, effect, _ = figures()
    pictures = [Picture("one", curves, "", "Curves", True), Picture("two", effect, "", "Effect", True)]
    rows = [[Cell(f"group {k}", group=k), Cell(str(k))] for k in (1, 2)]
    section = Section("S", [*pictures, Table("", ["", "n"], rows)])
    return to_html(Document("T", "s", [section], live=True))


def test_ids_are_unique_and_groups_are_marked() -> None:
    text = page()
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(ids)
    assert re.findall(r'data-group="(\d)"( class="band")?', text) == [
        ("1", ' class="band"'),
        ("1", ""),
        ("2", ""),
        ("0", ""),
        ("1", ""),
        ("2", ""),
    ]


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="neither chromium nor google-chrome is installed")
def test_values_are_those_of_the_curves(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page().replace("</body>", f"{DRIVER}</body>"))
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    seen = json.loads(html.unescape(found[1]))
    _, _, band = figures()
    value, lower, upper = (f"{float(each):.3f}"[1:] for each in band.at(2.5))
    first = f"group 1 Kaplan-Meier {value} ({lower} to {upper})"
    assert seen["slider"] == [[f"years 2.5: {first}group 2 model .500"], []]
    # The button of group 1: the other group is dimmed in the figure and in the table, and not read.
    assert seen["chosen"] == [[[f"years 2.5: {first}"], []], ["2", "2"], ["false", "true", "false"]]
    assert seen["pointer"][1] == ["age 5: 1"]
    assert seen["key"][1] == [f"age 5.1: {np.exp(0.02):.4g}"]
