import numpy as np
import pandas as pd

from sstorch.bench.report import Results, build_report
from sstorch.bench.report.results import measure_of
from sstorch.bench.report.tables import as_text, average_table, averages_of, best_of_rows, score_tables
from sstorch.document import to_markdown

from .studies import facts, results_of, rows, study


def _table(results: Results, metric: str = "c_harrell") -> pd.DataFrame:
    (table,) = score_tables(results, measure_of(metric), results.cells(metric))
    return table


def _bold(table: pd.DataFrame) -> dict[str, list[str]]:
    names = table.columns.get_level_values(0)
    return {
        str(label): [name for name, cell in zip(names, row, strict=True) if cell.best]
        for label, row in zip(table.index, table.to_numpy(), strict=True)
    }


MEANS = {
    ("aids", "cox", None): 0.7004,
    ("aids", "rsf", None): 0.6996,
    ("aids", "deepsurv", None): 0.65,
    ("gbsg2", "cox", None): 0.6,
    ("gbsg2", "rsf", None): 0.8,
}
OWN = "average, own data sets"


def test_the_best_of_a_row_is_bold_with_ties_as_printed() -> None:
    found = _bold(_table(Results(*study(MEANS))))
    assert found == {
        "aids": ["Cox", "RSF"],
        "gbsg2": ["RSF"],
        OWN: [],
        "average, 1 in common": ["Cox", "RSF"],
    }
    lower = _bold(_table(Results(*study(MEANS, "ibs_graf")), "ibs_graf"))
    assert (lower["aids"], lower["gbsg2"]) == (["DeepSurv"], ["Cox"])
    values = pd.DataFrame({"a": [0.5, 0.6], "b": [0.4, np.nan]})
    assert not best_of_rows(values, None).to_numpy().any()
    assert best_of_rows(values, True).to_numpy().tolist() == [[True, False], [False, False]]


def test_absent_cells_are_dashes_and_averages_name_their_data_sets() -> None:
    table = _table(Results(*study(MEANS)))
    assert [cell.text for cell in table.loc["gbsg2"]] == [".600", ".800", "\N{EN DASH}"]
    assert [cell.note for cell in table.loc[OWN]] == ["of 2", "of 2", "of 1"]
    assert [cell.text for cell in table.loc["average, 1 in common"]] == [".700", ".700", ".650"]
    complete = {cell: value for cell, value in MEANS.items() if cell[1] != "deepsurv"}
    whole = _table(Results(*study(complete)))
    assert [cell.text for cell in whole.loc["average of 2 data sets"]] == [".650", ".750"]
    # A column without any value does not split the averages.
    (average,) = averages_of(pd.DataFrame({"a": [0.5, 0.6], "b": [np.nan, np.nan]})).to_numpy()
    np.testing.assert_allclose(average, [0.55, np.nan])


def test_scores_of_groups_are_shown_where_a_study_has_them() -> None:
    values = {"c_harrell": [[0.7], [0.7]], "c_groups": [[0.6], [0.7]], "ari": [[0.8], [0.6]]}
    table = pd.concat(
        [
            rows("aids", "sst_llog", 2, values),
            rows("gbsg2", "sst_llog", 2, {"c_harrell": [[0.6], [0.6]]}),  # stored before there were such
            rows("aids", "cox", None, {"c_harrell": [[0.8], [0.8]]}),
        ]
    )
    results, title = results_of(table), "Concordance of the groups alone"
    assert title in to_markdown(build_report(results))
    shown = _table(results, "c_groups")
    assert [shown.at[name, shown.columns[0]].text for name in ("aids", "gbsg2")] == [".650", "\N{EN DASH}"]
    assert title not in to_markdown(build_report(results_of(table[table["metric"] == "c_harrell"])))


def test_many_models_have_a_table_per_family() -> None:
    soft = {("aids", "sst_llog", d): 0.7 + 0.01 * d for d in range(7)}
    greedy = {("aids", "ctree", d): 0.6 + 0.01 * d for d in range(7)}
    results = Results(*study({**soft, **greedy}))
    tables = score_tables(results, measure_of("c_harrell"), results.cells("c_harrell"))
    assert [table.attrs["caption"] for table in tables] == ["Soft trees", "Greedy trees"]
    assert [cell.best for cell in tables[0].loc["aids"]] == [False] * 6 + [True]
    assert not any(cell.best for cell in tables[1].loc["aids"])
    assert [cell.best_of_family for cell in tables[1].loc["aids"]] == [False] * 6 + [True]


def test_report_names_versions_reasons_and_times() -> None:
    table = pd.concat([rows(name, "cox", None, {"c_harrell": [[0.6], [0.7]]}) for name in ("aids", "gbsg2")])
    undefined = rows("aids", "cox", None, {"c_uno": [[np.nan], [np.nan], [np.nan], [0.7]]})
    undefined["reason"] = ["row 7", "row 9", "row 9", ""]
    infinite = rows("aids", "cox", None, {"log_likelihood": [[-10.0], [-np.inf]]})
    seconds = {"fit": 3.0, "score": 1.0}, {"fit": 5.0, "score": 2.0}
    records = [
        facts(
            "aids",
            "cox",
            None,
            versions={"torch": "2.8"},
            finished="2026-01-01T00:00:00Z",
            seconds=seconds[0],
        ),
        facts("gbsg2", "cox", None, versions={"torch": "2.9"}, seconds=seconds[1]),
    ]
    text = to_markdown(build_report(Results(pd.concat([table, undefined, infinite]), records)))
    for said in (
        "tasks differ: 2.8 (1 task), 2.9 (1 task)",
        "2026-01-01T00:00:00Z to 2026-01-02T03:04:05Z",
        "| Cox | c\\_uno | test | 3 | aids | row 9 (2 times; 1 other reason) |",
        "| Cox | 2 | 4 | 8.00 | 4.00 | 5.00 | 2.00 | 3.00 | 1.50 |",
        "\N{MINUS SIGN}∞",
    ):
        assert said in text, said


def test_averages_over_all_starts_and_over_the_chosen_ones() -> None:
    results = results_of(rows("aids", "sst_llog", 2, {"c_harrell": [[0.6, 0.7], [0.7, 0.8]]}, chosen=1))
    for chosen, mean in ((False, ".700"), (True, ".750")):
        lines = as_text(average_table(results, chosen=chosen)).splitlines()
        assert lines[1].split() == ["Llog", "D2", mean]
    assert "Averages over the chosen start of each fold" in to_markdown(build_report(results))
