import pandas as pd
import pytest

from sstorch.bench.report import Results, published_means
from sstorch.bench.report.paper import (
    Wins,
    against_paper,
    count_wins,
    paper_section,
    shortfalls,
    wins_section,
)
from sstorch.bench.report.results import Model
from sstorch.document import Bullets, Section, Table

from .studies import study

LLOG, PO = Model("sst_llog", 2), Model("sst_po", 2)


def test_wins_of_the_published_tables() -> None:
    means = published_means("c_harrell")
    rivals = [f"ctree_d{depth}" for depth in (2, 3, 4, 5)]
    counts = {
        model: count_wins(means, model, rivals, higher_is_better=True)
        for model in ("sst_llog_d2", "sst_po_d2", "sst_ph_d2")
    }
    assert {model: wins.ahead for model, wins in counts.items()} == {
        "sst_llog_d2": 14,
        "sst_po_d2": 13,
        "sst_ph_d2": 13,
    }
    assert all(wins.ahead + wins.level + wins.behind == 15 for wins in counts.values())


def test_wins_by_hand() -> None:
    means = pd.DataFrame(
        {"one": [0.7, 0.6004, 0.5, None], "two": [0.6, 0.6, 0.4, 0.1], "three": [0.5, 0.5, 0.6, 0.1]}
    )
    assert count_wins(means, "one", ["two", "three"], higher_is_better=True) == Wins(1, 1, 1)
    assert count_wins(means, "one", ["two", "three"], higher_is_better=False) == Wins(0, 0, 3)


def test_ours_is_joined_to_theirs_by_data_set_model_and_depth() -> None:
    means = {("aids", "sst_llog", 2): 0.751, ("colon", "sst_llog", 2): 0.7, ("aids", "sst_llog", 1): 0.1}
    results = Results(*study(means))
    table = against_paper(results, "c_harrell", "test", LLOG)
    assert table.index.tolist() == ["aids"]  # the paper has no colon
    assert table.loc["aids"].tolist() == pytest.approx([0.751, 0.741, 0.010])
    assert against_paper(results, "c_harrell", "test", Model("cox")).empty


def test_gated_trees_are_compared_with_the_papers_trees_without_a_ridge() -> None:
    results = Results(*study({("aids", "sst_llog_gated", 2): 0.751, ("aids", "sst_po_gated", 2): 0.751}))
    gated = Model("sst_llog_gated", 2)
    assert against_paper(results, "c_harrell", "test", gated).loc["aids"].tolist() == pytest.approx(
        [0.751, 0.741, 0.01]
    )
    assert against_paper(results, "ibs_graf", "test", Model("sst_po_gated", 2))["difference"].isna().all()
    assert (gated.label, gated.family) == ("Llog gated D2", "soft trees")


def test_curved_trees_are_compared_with_the_papers_straight_ones() -> None:
    results = Results(*study({("aids", "sst_llog_curved", 2): 0.751, ("aids", "sst_po_curved", 2): 0.751}))
    curved = Model("sst_llog_curved", 2)
    assert against_paper(results, "c_harrell", "test", curved).loc["aids"].tolist() == pytest.approx(
        [0.751, 0.741, 0.01]
    )
    assert against_paper(results, "ibs_graf", "test", Model("sst_po_curved", 2))["difference"].isna().all()
    assert (curved.label, curved.family) == ("Llog curved D2", "soft trees")


def test_brier_scores_of_odds_and_hazards_are_not_compared() -> None:
    table, records = study({("aids2", "sst_po", 2): 0.14, ("aids2", "sst_llog", 2): 0.5}, "ibs_graf")
    results = Results(table, records)
    assert against_paper(results, "ibs_graf", "test", PO)["difference"].isna().all()
    assert shortfalls(results, "ibs_graf", PO) == {}
    assert shortfalls(results, "ibs_graf", LLOG).keys() == {"aids2"}


@pytest.mark.parametrize(("gap", "is_worse"), [(-0.020, False), (-0.021, True), (0.05, False)])
def test_shortfalls_begin_beyond_two_hundredths(gap: float, is_worse: bool) -> None:
    published = float(published_means("c_harrell").loc["gbsg2", "sst_llog_d2"])
    results = Results(*study({("gbsg2", "sst_llog", 2): published + gap}))
    assert bool(shortfalls(results, "c_harrell", LLOG)) == is_worse


def test_averages_beside_the_paper_are_over_the_same_data_sets() -> None:
    published = published_means("c_harrell")["ctree_d2"]
    means = {(name, "ctree", 2): float(published[name]) + 0.01 for name in ("aids", "gbsg2", "whas500")}
    others = {("colon", "ctree", 2): 0.1, ("aids", "sst_llog", 2): 0.741}  # not of the paper; on one alone
    section = paper_section(Results(*study({**means, **others})))
    assert section is not None
    averages = next(block for block in section.blocks if isinstance(block, Section)).blocks[0]
    assert isinstance(averages, Table)
    assert "over 3 of the 15 data sets" in averages.caption
    (name, ours, paper, difference) = averages.rows[1]
    assert [cell.note for cell in averages.rows[0]] == ["", "1 set", "", ""]
    expected = published[["aids", "gbsg2", "whas500"]].mean()
    assert (name.text, ours.note, difference.text) == ("CTree D2", "", "+.010")
    assert [float(ours.text), float(paper.text)] == pytest.approx([expected + 0.01, expected], abs=6e-4)


def test_without_the_papers_models_there_is_nothing_beside() -> None:
    results = Results(*study({("aids", "cox", None): 0.7}))
    assert paper_section(results) is None
    assert wins_section(results) is None


def test_every_soft_tree_is_told_even_with_none_worse() -> None:
    published = published_means("c_harrell")["sst_llog_d2"]
    section = paper_section(Results(*study({("aids", "sst_llog", 2): float(published["aids"])})))
    assert section is not None
    (bullets,) = [
        block
        for inner in section.blocks
        if isinstance(inner, Section)
        for block in inner.blocks
        if isinstance(block, Bullets)
    ]
    assert list(bullets.items) == ["Llog D2: none, in C_H."]


def test_wins_here_are_counted_on_the_papers_data_sets() -> None:
    means = {}
    for name, best in (("aids", 0.75), ("gbsg2", 0.6), ("colon", 0.1)):
        means |= {(name, "sst_llog", 2): 0.7, (name, "ctree", 2): 0.5, (name, "ctree", 3): best}
    section = wins_section(Results(*study(means)))
    assert section is not None
    table = section.blocks[1]
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]] == ["Llog D2", "1 of 2", "14 of 15", "2 of 2", "14 of 15"]


def test_sksurv_takes_the_place_of_ctree() -> None:
    section = wins_section(Results(*study({("aids", "sst_llog", 2): 0.7, ("aids", "sksurv", 2): 0.6})))
    assert section is not None
    assert section.title == "Wins against SkSurv"
    assert "CTree is not among these results" in section.blocks[0].text  # type: ignore[union-attr]
