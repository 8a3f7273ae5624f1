import pandas as pd
import pytest

from sstorch.bench.report import Results, published_means
from sstorch.bench.report.paper import against_paper, paper_section
from sstorch.bench.report.results import Model
from sstorch.document import Cell, Section

from .studies import study

LLOG, PO = Model("sst_llog", 2), Model("sst_po", 2)


def test_ours_is_joined_to_theirs_by_data_set_model_and_depth() -> None:
    means = {("aids", "sst_llog", 2): 0.751, ("colon", "sst_llog", 2): 0.7, ("aids", "sst_llog", 1): 0.1}
    results = Results(*study(means))
    table = against_paper(results, "c_harrell", "test", LLOG)
    assert table.index.tolist() == ["aids"]  # the paper has no colon
    assert table.loc["aids"].tolist() == pytest.approx([0.751, 0.741, 0.010])
    assert against_paper(results, "c_harrell", "test", Model("cox")).empty


@pytest.mark.parametrize("kind", ["gated", "curved"])
def test_other_trees_are_compared_with_the_papers_plain_ones(kind: str) -> None:
    results = Results(*study({("aids", f"sst_llog_{kind}", 2): 0.751, ("aids", f"sst_po_{kind}", 2): 0.751}))
    tree = Model(f"sst_llog_{kind}", 2)
    assert against_paper(results, "c_harrell", "test", tree).loc["aids"].tolist() == pytest.approx(
        [0.751, 0.741, 0.01]
    )
    assert against_paper(results, "ibs_graf", "test", Model(f"sst_po_{kind}", 2))["difference"].isna().all()
    assert (tree.label, tree.family) == (f"Llog {kind} D2", "soft trees")


def test_brier_scores_of_odds_and_hazards_are_not_compared() -> None:
    table, records = study({("aids2", "sst_po", 2): 0.14, ("aids2", "sst_llog", 2): 0.5}, "ibs_graf")
    results = Results(table, records)
    assert against_paper(results, "ibs_graf", "test", PO)["difference"].isna().all()
    assert against_paper(results, "ibs_graf", "test", LLOG)["difference"].notna().all()


def test_averages_beside_the_paper_are_over_the_same_data_sets() -> None:
    published = published_means("c_harrell")["ctree_d2"]
    means = {(name, "ctree", 2): float(published[name]) + 0.01 for name in ("aids", "gbsg2", "whas500")}
    others = {("colon", "ctree", 2): 0.1, ("aids", "sst_llog", 2): 0.741}  # not of the paper; on one alone
    section = paper_section(Results(*study({**means, **others})))
    assert section is not None
    averages = next(block for block in section.blocks if isinstance(block, Section)).blocks[0]
    assert isinstance(averages, pd.DataFrame)
    assert "over 3 of the 15 data sets" in averages.attrs["caption"]
    (ours, paper, difference) = averages.loc["CTree D2"]
    assert [cell.note for cell in averages.iloc[0] if isinstance(cell, Cell)] == ["1 set", "", ""]
    expected = published[["aids", "gbsg2", "whas500"]].mean()
    assert (ours.note, difference.text) == ("", "+.010")
    assert [float(ours.text), float(paper.text)] == pytest.approx([expected + 0.01, expected], abs=6e-4)


def test_without_the_papers_models_there_is_nothing_beside() -> None:
    results = Results(*study({("aids", "cox", None): 0.7}))
    assert paper_section(results) is None
