import re

import numpy as np
import pandas as pd
import pytest
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(0.7416), ".742"),
        (number(-0.0123), "\N{MINUS SIGN}.012"),
        (number(-0.0001), ".000"),
        (number(1.0), "1.000"),
        (number(float("nan")), "\N{EN DASH}"),
        (number(-np.inf), "\N{MINUS SIGN}∞"),
        (signed(0.0123), "+.012"),
        (signed(0.0001), ".000"),
        (signed(-0.5), "\N{MINUS SIGN}.500"),
        (p_value(0.0004), "< .001"),
        (p_value(0.0312), ".031"),
        (seconds(0.01234), "0.0123"),
        (seconds(12.345), "12.3"),
        (seconds(12345.0), "12,345"),
    ],
)
def test_numbers_as_text(text: str, expected: str) -> None:
    assert text == expected


def test_texts_are_escaped() -> None:
    table = as_table(["a", "b"], [[Cell("<x>|\n*"), Cell("R&D", best=True)]])
    report = Document("T $1", "s", [Section("A & B", [table, Code("a < b")])])
    assert "| \\<x\\>\\| \\* | **R&D** |" in to_markdown(report)
    html = to_html(report)
    assert '<th scope="row">&lt;x&gt;| *</th>' in html
    assert '<td><span class="left"><b>R&amp;D</b></span></td>' in html
    assert "<h2>A &amp; B</h2>" in html
    assert "<h1>T $1</h1>" in html
    assert '<pre tabindex="0">a &lt; b</pre>' in html


def test_every_kind_of_block_in_both_formats() -> None:
    table = as_table(
        ["model", "all", "some"],
        [["one", Cell("1", "note"), Cell("two", best_of_family=True)], ["mean", "3", "4"]],
        "A table.",
        groups=[("", 1), ("of both", 2)],
        n_averages=1,
    )
    inner = Section("Inner", [["x", "y"], table], folded=True)
    report = Document("T", "s", [Section("Outer", ["Text.", inner])])
    assert to_markdown(report) == (
        "# T\n\ns\n\n* [Outer](#section-1)\n\n"
        '<a id="section-1"></a>\n\n## Outer\n\nText.\n\n### Inner\n\n* x\n* y\n\n'
        "A table.\n\n| model | of both all | of both some |\n| --- | ---: | ---: |\n"
        "| one | 1 (note) | *two* |\n| *mean* | 3 | 4 |\n"
    )
    html = re.sub(r"\n *", "\n", to_html(report))
    assert (
        '<section id="section-1">\n<h2>Outer</h2>\n<p>Text.</p>\n<details>\n<summary>Inner</summary>\n'
        '<ul>\n<li>x</li>\n<li>y</li>\n</ul>\n<p class="caption">A table.</p>\n'
    ) in html
    assert '<th scope="colgroup" colspan="2" halign="left">of both</th>' in html
    assert (
        '<th scope="col">model</th>\n<th scope="col"><span class="edge">all</span></th>\n'
        '<th scope="col"><span class="left">some</span></th>\n'
    ) in html
    assert (
        '<th scope="row">one</th>\n<td><span class="edge">1<small>note</small></span></td>\n'
        '<td><span class="left"><u>two</u></span></td>\n'
    ) in html
    assert '<th scope="row"><span class="average">mean</span></th>\n' in html
    assert html.endswith("</table>\n</div>\n</details>\n</section>\n</main>\n</body>\n</html>\n")


def test_a_frame_and_a_figure_are_blocks() -> None:
    frame = pd.DataFrame({"score": [0.71234, np.nan]}, index=["a", "b"])
    picture = Picture("plot", Figure(figsize=(6, 2)), "Caption.", "In words")
    report = Document("T", "s", [Section("S", [frame, picture])])
    assert [one.name for one in report.pictures()] == ["plot"]
    text = to_markdown(report)
    assert "| a | .712 |\n| b | \N{EN DASH} |\n\n![In words](figures/plot.png)\n\nCaption.\n" in text
    html = to_html(report)
    assert '<figure class="wide" tabindex="0"><img alt="In words" src="data:image/svg+xml;base64,' in html
    assert html == to_html(report)
