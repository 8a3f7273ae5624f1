import numpy as np
import pandas as pd
import pytest

from sstorch.bench.report import Results, published_means, published_tables
from sstorch.bench.report.results import Model, common_block, deepest
from sstorch.exceptions import ConfigError, DataError

from .studies import facts, results_of, rows, study, whole_study


def test_means_and_deviations_over_folds_and_starts() -> None:
    values = [[0.6, 0.7, 0.8], [0.5, 0.9, 0.4]]
    results = results_of(rows("aids", "sst_llog", 2, {"c_harrell": values}, chosen=1))
    mean, std, defined, runs = results.cells("c_harrell").at("aids", "sst_llog_d2")
    assert (mean, std) == (pytest.approx(0.65), pytest.approx(np.std(np.ravel(values), ddof=1)))
    assert (defined, runs) == (6, 6)
    mean, std, defined, runs = results.cells("c_harrell", chosen=True).at("aids", "sst_llog_d2")
    assert (mean, std) == (pytest.approx(0.8), pytest.approx(np.std([0.7, 0.9], ddof=1)))
    assert runs == 2


def test_nan_is_left_out_and_counted() -> None:
    values = {"c_uno": [[0.6, np.nan], [0.7, 0.8]]}
    results = results_of(rows("aids", "sst_llog", 2, values, reason="no pair"))
    mean, _, defined, runs = results.cells("c_uno").at("aids", "sst_llog_d2")
    assert (mean, defined, runs) == (pytest.approx(0.7), 3, 4)
    assert results.by_fold("c_uno")["aids", "sst_llog_d2"].isna().tolist() == [True, False]


def test_p_values_become_shares_of_rejections() -> None:
    results = results_of(rows("aids", "cox", None, {"d_calibration_p": [[0.01], [0.2], [0.049], [np.nan]]}))
    mean, _, defined, _ = results.cells("d_calibration_p").at("aids", "cox")
    assert (mean, defined) == (pytest.approx(2 / 3), 3)


def test_absent_cells_stay_absent() -> None:
    table, records = study(
        {("aids", "cox", None): 0.7, ("gbsg2", "cox", None): 0.6, ("aids", "rsf", None): 0.8}
    )
    cells = Results(table, records).cells("c_harrell")
    assert np.isnan(cells.mean.loc["gbsg2", "rsf"])
    assert cells.runs.loc["gbsg2", "rsf"] == 0


def test_of_several_configurations_the_last_is_reported_and_told() -> None:
    old = rows("aids", "cox", None, {"c_harrell": [[0.1], [0.1]]}, config="f" * 12)
    new = rows("aids", "cox", None, {"c_harrell": [[0.7], [0.7]]})
    records = [
        facts("aids", "cox", None),
        facts("aids", "cox", None, config="f" * 12, finished="2025-01-01T00:00:00Z"),
    ]
    results = Results(pd.concat([old, new]), records)
    assert results.cells("c_harrell").at("aids", "cox")[0] == pytest.approx(0.7)
    (note,) = results.notes
    assert "2 configurations" in note
    assert "0123456789ab" in note


def test_names_choose_models_at_all_depths_or_at_one() -> None:
    table, records = whole_study()
    both = Results(table, records, models=["ctree", "cox"])
    assert [model.key for model in both.models] == ["ctree_d2", "ctree_d3", "cox"]
    one = Results(table, records, models=["ctree_d3"], datasets=["gbsg2"], metrics=["c_uno"])
    assert ([m.key for m in one.models], one.datasets, one.metrics) == (["ctree_d3"], ("gbsg2",), ("c_uno",))


@pytest.mark.parametrize("option", ["metrics", "models", "datasets"])
def test_unknown_names_are_refused(option: str) -> None:
    table, records = whole_study()
    with pytest.raises(ConfigError, match=f"{option}: no results of nonsense; there are "):
        Results(table, records, **{option: ["nonsense"]})


def test_the_training_objective_is_shown_on_request_only() -> None:
    table = rows("aids", "sst_llog", 2, {"objective": [[3.0]], "c_harrell": [[0.7]]}, part="train")
    assert results_of(table).metrics == ("c_harrell",)
    assert results_of(table, metrics=["objective"]).metrics == ("objective",)


def test_unusable_tables_are_refused() -> None:
    table, records = study({("aids", "cox", None): 0.7})
    with pytest.raises(DataError, match="4 rows are there twice"):
        Results(pd.concat([table, table]), records)
    with pytest.raises(DataError, match="part must be test or train, got 'valid'"):
        Results(table.assign(part="valid"), records)
    with pytest.raises(DataError, match="reason missing"):
        Results(table.drop(columns="reason"), records)
    with pytest.raises(DataError, match="aids cox 0123456789ab has none"):
        Results(table, [])
    with pytest.raises(DataError, match="no rows"):
        Results(table.iloc[:0], records)


def test_the_common_block_leaves_sparse_models_out() -> None:
    mean = pd.DataFrame(
        {
            "full": [0.1, 0.2, 0.3, 0.4],
            "most": [0.1, 0.2, 0.3, np.nan],
            "few": [0.1] + [np.nan] * 3,
            "none": np.nan,
        },
        index=list("abcd"),
    )
    block = common_block(mean)
    assert (block.datasets, block.models, block.left_out) == (
        ("a", "b", "c"),
        ("full", "most"),
        ("few", "none"),
    )


def test_names_with_settings_keep_their_family() -> None:
    model = Model("sst_llog,ridge=0.1", 2)
    assert (model.label, model.family) == ("Llog (ridge=0.1) D2", "soft trees")
    assert Model("mine", None).family == "other models"


def test_a_model_enters_once_at_its_largest_depth() -> None:
    models = [Model("ctree", 3), Model("ctree", 5), Model("sst_llog", 2), Model("cox")]
    assert [model.key for model in deepest(models)] == ["sst_llog_d2", "ctree_d5", "cox"]


def test_soft_trees_of_ones_own_names_are_soft_trees() -> None:
    table = pd.concat([rows("aids", name, 1, {"c_harrell": [[0.7], [0.6]]}) for name in ("mine", "other")])
    records = [
        facts("aids", "mine", 1) | {"settings": {"tree.depth": 1}},
        facts("aids", "other", 1) | {"settings": {"baseline": "x"}},
    ]
    results = Results(table, records)
    assert {model.name: model.is_soft_tree for model in results.models} == {"mine": True, "other": False}


@pytest.mark.parametrize(("name", "told"), [("data", "rows or columns"), ("seed", "other folds")])
def test_models_fitted_to_other_data_are_told_and_not_compared(name: str, told: str) -> None:
    models = ("cox", "rsf", "kaplan_meier")
    table = pd.concat([rows("aids", model, None, {"c_harrell": [[0.7], [0.6]]}) for model in models])
    records = [facts("aids", model, None) | {name: 1 if model == "cox" else 2} for model in models]
    results = Results(table, records)
    assert [note for note in results.notes if note.startswith("aids: cox had other") and told in note]
    assert not results.have_same_folds("aids", "cox", "rsf")
    assert results.have_same_folds("aids", "kaplan_meier", "rsf")
    assert not Results(table, [record | {name: 2} for record in records]).notes


def test_the_published_tables_are_whole() -> None:
    table = published_tables()
    assert not table.duplicated(["split", "metric", "model", "depth", "dataset"]).any()
    assert table["mean"].between(0, 1).all()
    assert table["dataset"].nunique() == 15
    llog = published_means("c_harrell")["sst_llog_d2"]
    assert (llog["aids"], len(llog)) == (0.741, 15)
    assert published_means("ibs_graf").loc["aids2", "sst_po_d2"] < 0.04
    assert published_means("ici").empty
    one = table.query("split == 'train' and metric == 'c_harrell' and depth == 5 and dataset == 'gbsg2'")
    expected = one.set_index("model").loc["ctree", "mean"]
    assert published_means("c_harrell", "train").loc["gbsg2", "ctree_d5"] == expected
