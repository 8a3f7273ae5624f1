import numpy as np
import pandas as pd
import pytest

from sstorch.bench.report import Results
from sstorch.bench.report.paper import against_paper, paper_section
from sstorch.bench.report.results import common_block, deepest, model_of, published_means, published_tables
from sstorch.document import Section
from sstorch.exceptions import ConfigError

from .studies import facts, results_of, rows, study, whole_study


def test_cells_are_means_and_deviations_over_the_defined_runs() -> None:
    values = [[0.5, 0.7], [0.6, 0.9], [0.4, np.nan]]
    results = results_of(rows("aids", "sst_llog", 2, {"c_harrell": values}, chosen=1))
    cells = [frame.at["aids", "sst_llog_d2"] for frame in results.cells("c_harrell")]
    known = np.array([0.5, 0.7, 0.6, 0.9, 0.4])
    assert cells == [pytest.approx(known.mean()), pytest.approx(known.std(ddof=1)), 5, 6]
    chosen = [frame.at["aids", "sst_llog_d2"] for frame in results.cells("c_harrell", chosen=True)]
    assert chosen == [pytest.approx(0.8), pytest.approx(np.std([0.7, 0.9], ddof=1)), 2, 3]
    assert results.by_fold("c_harrell")["aids", "sst_llog_d2"].isna().tolist() == [False, False, True]


def test_p_values_become_shares_of_rejections() -> None:
    results = results_of(rows("aids", "cox", None, {"d_calibration_p": [[0.01], [0.2], [0.049], [np.nan]]}))
    mean, _, defined, _ = (frame.at["aids", "cox"] for frame in results.cells("d_calibration_p"))
    assert (mean, defined) == (pytest.approx(2 / 3), 3)


def test_absent_cells_stay_absent() -> None:
    means = {("aids", "cox", None): 0.7, ("gbsg2", "cox", None): 0.6, ("aids", "rsf", None): 0.8}
    cells = Results(*study(means)).cells("c_harrell")
    assert np.isnan(cells.mean.at["gbsg2", "rsf"])
    assert cells.runs.at["gbsg2", "rsf"] == 0


def test_of_several_configurations_the_last_is_reported_with_a_note() -> None:
    old = rows("aids", "cox", None, {"c_harrell": [[0.1], [0.1]]}, config="f" * 12)
    new = rows("aids", "cox", None, {"c_harrell": [[0.7], [0.7]]})
    records = [
        facts("aids", "cox", None),
        facts("aids", "cox", None, config="f" * 12, finished="2025-01-01T00:00:00Z"),
    ]
    results = Results(pd.concat([old, new]), records)
    assert results.cells("c_harrell").mean.at["aids", "cox"] == pytest.approx(0.7)
    (note,) = results.notes
    assert "2 configurations" in note
    assert "0123456789ab" in note


def test_names_choose_models_at_all_depths_or_at_one() -> None:
    table, records = whole_study()
    both = Results(table, records, models=["ctree", "cox"])
    assert [model.key for model in both.models] == ["ctree_d2", "ctree_d3", "cox"]
    one = Results(table, records, models=["ctree_d3"], datasets=["gbsg2"], metrics=["c_uno"])
    assert ([m.key for m in one.models], one.datasets, one.metrics) == (["ctree_d3"], ("gbsg2",), ("c_uno",))
    for option in ("metrics", "models", "datasets"):
        with pytest.raises(ConfigError, match=f"{option}: no results of nonsense; there are "):
            Results(table, records, **{option: ["nonsense"]})


def test_training_objective_is_shown_on_request_only() -> None:
    table = rows("aids", "sst_llog", 2, {"objective": [[3.0]], "c_harrell": [[0.7]]}, part="train")
    assert results_of(table).metrics == ("c_harrell",)
    assert results_of(table, metrics=["objective"]).metrics == ("objective",)


def test_common_block_excludes_sparse_models() -> None:
    few = [0.1] + [np.nan] * 3
    columns = {"full": [0.1, 0.2, 0.3, 0.4], "most": [0.1, 0.2, 0.3, np.nan], "few": few, "none": np.nan}
    block = common_block(pd.DataFrame(columns, index=list("abcd")))
    assert block == (["a", "b", "c"], ["full", "most"], ["few", "none"])


def test_names_families_and_depths_of_models() -> None:
    model = model_of("sst_llog,ridge=0.1", 2)
    assert (model.label, model.family) == ("Llog (ridge=0.1) D2", "soft trees")
    assert model_of("mine", None).family == "other models"
    gated = model_of("sst_po_gated", 1)
    assert (gated.label, gated.family, gated.plain) == ("PO gated D1", "soft trees", "sst_po")
    models = [model_of("ctree", 3), model_of("ctree", 5), model_of("sst_llog", 2), model_of("cox")]
    assert [model.key for model in deepest(models)] == ["sst_llog_d2", "ctree_d5", "cox"]
    table = pd.concat([rows("aids", name, 1, {"c_harrell": [[0.7], [0.6]]}) for name in ("mine", "other")])
    records = [
        facts("aids", "mine", 1) | {"settings": {"tree.depth": 1}},
        facts("aids", "other", 1) | {"settings": {"baseline": "x"}},
    ]
    families = {model.name: model.family for model in Results(table, records).models}
    assert families == {"mine": "soft trees", "other": "other models"}


@pytest.mark.parametrize(("name", "said"), [("data", "rows or columns"), ("seed", "other folds")])
def test_models_fitted_to_other_data_are_noted_and_not_compared(name: str, said: str) -> None:
    models = ("cox", "rsf", "kaplan_meier")
    table = pd.concat([rows("aids", model, None, {"c_harrell": [[0.7], [0.6]]}) for model in models])
    records = [facts("aids", model, None) | {name: 1 if model == "cox" else 2} for model in models]
    results = Results(table, records)
    assert [note for note in results.notes if note.startswith("aids: cox had other") and said in note]
    assert not results.have_same_folds("aids", "cox", "rsf")
    assert results.have_same_folds("aids", "kaplan_meier", "rsf")
    assert not Results(table, [record | {name: 2} for record in records]).notes


# ---------------------------------------------------------------------- published tables


def test_published_tables_are_complete() -> None:
    table = published_tables()
    assert not table.duplicated(["split", "metric", "model", "depth", "dataset"]).any()
    assert table["mean"].between(0, 1).all()
    assert table["dataset"].nunique() == 15
    llog = published_means("c_harrell")["sst_llog_d2"]
    assert (llog["aids"], len(llog)) == (0.741, 15)
    assert published_means("ibs_graf").loc["aids2", "sst_po_d2"] < 0.04
    assert published_means("ici").empty


def test_ours_is_joined_to_theirs_by_data_set_model_and_depth() -> None:
    means = {("aids", "sst_llog", 2): 0.751, ("colon", "sst_llog", 2): 0.7, ("aids", "sst_llog", 1): 0.1}
    means |= {("aids", "sst_llog_gated", 2): 0.751}
    results = Results(*study(means))
    for name in ("sst_llog", "sst_llog_gated"):
        table = against_paper(results, "c_harrell", "test", model_of(name, 2))
        assert table.index.tolist() == ["aids"]  # the paper has no colon
        assert table.loc["aids"].tolist() == pytest.approx([0.751, 0.741, 0.010])
    assert against_paper(results, "c_harrell", "test", model_of("cox")).empty


def test_brier_scores_of_odds_and_hazards_are_not_compared() -> None:
    means = {("aids2", "sst_po", 2): 0.14, ("aids2", "sst_po_curved", 2): 0.14, ("aids2", "sst_llog", 2): 0.5}
    results = Results(*study(means, "ibs_graf"))
    for name, compared in (("sst_po", False), ("sst_po_curved", False), ("sst_llog", True)):
        difference = against_paper(results, "ibs_graf", "test", model_of(name, 2))["difference"]
        assert difference.notna().all() == compared


def test_averages_of_the_paper_are_over_the_same_data_sets() -> None:
    means = {("aids", "sst_llog", 2): 0.751, ("gbsg2", "sst_llog", 2): 0.7, ("aids", "ctree", 2): 0.6}
    section = paper_section(Results(*study(means)))
    assert section is not None
    inner = section.blocks[1]
    assert isinstance(inner, Section)
    (table,) = inner.blocks
    published = published_means("c_harrell")["sst_llog_d2"]
    ours, paper, difference = table.loc["Llog D2"]
    assert (ours.text, ours.note) == (".726", "")
    assert paper.text == f"{published[['aids', 'gbsg2']].mean():.3f}"[1:]
    assert float(difference.text.replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        0.7255 - published[["aids", "gbsg2"]].mean(), abs=6e-4
    )
    assert table.loc["CTree D2"].iloc[0].note == "1 set"
    assert paper_section(Results(*study({("colon", "cox", None): 0.7}))) is None
