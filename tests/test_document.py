import numpy as np
import pytest

from sstorch.document import (
    Bullets,
    Cell,
    Document,
    Paragraph,
    Section,
    Table,
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
    table = Table("", ["a", "b"], [[Cell("<x>|\n*"), Cell("R&D", best=True)]])
    report = Document("T", "s", [Section("A & B", [table])])
    assert "| \\<x\\>\\| \\* | **R&D** |" in to_markdown(report)
    html = to_html(report)
    assert '<th scope="row">&lt;x&gt;|\n*</th><td class="best">R&amp;D</td>' in html
    assert "<h2>A &amp; B</h2>" in html


def test_every_kind_of_block_in_both_formats() -> None:
    table = Table(
        "A table.",
        ["model", "all", "some"],
        [[Cell("one"), Cell("1", "note"), Cell("2", best_of_family=True)]],
        [[Cell("mean"), Cell("3"), Cell("4")]],
        groups=[("", 1), ("of both", 2)],
        left=frozenset({2}),
    )
    inner = Section("Inner", [Bullets(["x", "y"]), table], folded=True)
    report = Document("T", "s", [Section("Outer", [Paragraph("Text."), inner])])
    assert to_markdown(report) == (
        "# T\n\ns\n\n* [Outer](#section-1)\n\n"
        '<a id="section-1"></a>\n\n## Outer\n\nText.\n\n### Inner\n\n* x\n* y\n\n'
        "A table.\n\n| model | of both all | of both some |\n| --- | ---: | --- |\n"
        "| one | 1 (note) | *2* |\n| *mean* | 3 | 4 |\n"
    )
    html = to_html(report)
    assert (
        '<section id="section-1">\n<h2>Outer</h2>\n<p>Text.</p>\n<details>\n<summary>Inner</summary>\n'
        '<ul>\n<li>x</li>\n<li>y</li>\n</ul>\n<p class="caption">A table.</p>\n'
    ) in html
    assert (
        '<tr class="groups"><th colspan="1" scope="colgroup"></th>'
        '<th colspan="2" scope="colgroup">of both</th></tr>\n'
        '<tr><th scope="col">model</th><th scope="col" class="edge">all</th>'
        '<th scope="col" class="left">some</th></tr>\n</thead>\n<tbody>\n'
        '<tr><th scope="row">one</th><td class="edge">1<small>note</small></td>'
        '<td class="left family">2</td></tr>\n</tbody>\n<tfoot>\n'
        '<tr><th scope="row">mean</th><td class="edge">3</td><td class="left">4</td></tr>\n</tfoot>\n'
    ) in html
    assert html.endswith("</table>\n</div>\n</details>\n</section>\n</main>\n</body>\n</html>\n")
