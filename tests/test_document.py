import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sstorch.document import (
    Cell,
    Code,
    Document,
    Picture,
    Section,
    as_table,
    number,
    p_value,
    seconds,
    signed,
    to_html,
    to_markdown,
)


def test_numbers_as_text() -> None:
    minus, dash = "\N{MINUS SIGN}", "\N{EN DASH}"
    for form, texts in (
        (
            number,
            {0.7416: ".742", -0.0123: f"{minus}.012", -0.0001: ".000", 1.0: "1.000", -np.inf: f"{minus}∞"},
        ),
        (signed, {0.0123: "+.012", 0.0001: ".000", -0.5: f"{minus}.500"}),
        (p_value, {0.0004: "< .001", 0.0312: ".031", np.nan: dash}),
        (seconds, {0.01234: "0.0123", 12.345: "12.3", 12345.0: "12,345", 0.0: "0"}),
    ):
        assert {value: form(value) for value in texts} == texts
    assert (number(1.0), number(np.nan)) == ("1.000", dash)


def test_texts_are_escaped() -> None:
    table = as_table(["a", "b"], [[Cell("<x>|\n*"), Cell("R&D", best=True)]])
    report = Document("T $1", "s", [Section("A & B", [table, Code("a < b")])])
    assert "| \\<x\\>\\| \\* | **R&D** |" in to_markdown(report)
    html = to_html(report)
    for part in (
        '<th scope="row">&lt;x&gt;| *</th>',
        '<td class="left"><b>R&amp;D</b></td>',
        "<h2>A &amp; B</h2>",
        "<h1>T $1</h1>",
        '<pre tabindex="0">a &lt; b</pre>',
    ):
        assert part in html


def test_every_kind_of_block_in_both_formats() -> None:
    table = as_table(
        ["model", "all", "some"], [["one", Cell("1", "note"), "two"], ["mean", "3", "4"]], "A table."
    )
    frame = pd.DataFrame({"score": [0.71234, np.nan]}, index=["a", "b"])
    frame.columns = pd.MultiIndex.from_tuples([("S(1)", "estimate")])
    picture = Picture("plot", Figure(figsize=(16, 2)), "Caption.", "In words")
    inner = Section("Inner", [["x", "y"], table, frame, picture], folded=True)
    report = Document("T", "s", [Section("Outer", ["Text.", inner])])
    assert [one.name for one in report.pictures()] == ["plot"]
    assert to_markdown(report) == (
        "# T\n\ns\n\n* [Outer](#section-1)\n\n"
        '<a id="section-1"></a>\n\n## Outer\n\nText.\n\n### Inner\n\n* x\n* y\n\n'
        "A table.\n\n| model | all | some |\n| --- | ---: | ---: |\n"
        "| one | 1 (note) | two |\n| mean | 3 | 4 |\n\n"
        "|  | S(1) estimate |\n| --- | ---: |\n| a | .712 |\n| b | \N{EN DASH} |\n\n"
        "![In words](figures/plot.png)\n\nCaption.\n"
    )
    html = to_html(report)
    for part in (
        '<section id="section-1">\n<h2>Outer</h2>\n<p>Text.</p>\n<details>\n<summary>Inner</summary>\n<ul>',
        '<p class="caption">A table.</p>',
        '<tr><th scope="row">one</th>\n<td>1<small>note</small></td>\n<td class="left">two</td>\n</tr>',
        '<figure tabindex="0"><img alt="In words" style="--inches: 16.0" src="data:image/svg+xml;base64,',
    ):
        assert part in html
    assert html == to_html(report)
