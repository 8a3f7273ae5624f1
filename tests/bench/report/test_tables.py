import numpy as np
import pandas as pd
import pytest

from sstorch.bench.report import Results, build_report
from sstorch.bench.report.results import measure_of
from sstorch.bench.report.tables import averages_of, best_of_rows, score_tables
from sstorch.document import Cell, to_markdown

from .studies import facts, results_of, rows, study


def _table(results: Results, metric: str = "c_harrell") -> pd.DataFrame:
    (table,) = score_tables(results, measure_of(metric), results.cells(metric))
    return table


def _parts(table: pd.DataFrame, part: str) -> list[list[object]]:
    """Texts, notes or marks of the cells, by row."""
    assert all(isinstance(cell, Cell) for cell in table.to_numpy().ravel())
    return [[getattr(cell, part) for cell in row] for row in table.to_numpy()]


def _bold(table: pd.DataFrame) -> dict[str, list[str]]:
    n_rows = len(table) - table.attrs["n_averages"]
    names = table.columns.get_level_values(-1)
    best = _parts(table, "best")[:n_rows]
    return {
        label: [name for name, is_best in zip(names, row, strict=True) if is_best]
        for label, row in zip(table.index, best, strict=False)
    }


MEANS = {
    ("aids", "cox", None): 0.7004,
    ("aids", "rsf", None): 0.6996,
    ("aids", "deepsurv", None): 0.65,
    ("gbsg2", "cox", None): 0.6,
    ("gbsg2", "rsf", None): 0.8,
}


def test_the_best_is_bold_with_ties_as_printed() -> None:
    assert _bold(_table(Results(*study(MEANS)))) == {"aids": ["Cox", "RSF"], "gbsg2": ["RSF"]}


def test_lower_is_better_for_brier_scores() -> None:
    assert _bold(_table(Results(*study(MEANS, "ibs_graf")), "ibs_graf")) == {
        "aids": ["DeepSurv"],
        "gbsg2": ["Cox"],
    }


def test_nothing_is_best_without_a_direction_or_a_choice() -> None:
    values = pd.DataFrame({"a": [0.5, 0.6], "b": [0.4, np.nan]})
    assert not best_of_rows(values, None).to_numpy().any()
    assert best_of_rows(values, True).to_numpy().tolist() == [[True, False], [False, False]]


def test_groups_are_shown_where_a_study_has_scored_them() -> None:
    values = {"c_harrell": [[0.7], [0.7]], "c_groups": [[0.6], [0.7]], "ari": [[0.8], [0.6]]}
    table = pd.concat(
        [
            rows("aids", "sst_llog", 2, values),
            # Stored before there were such scores.
            rows("gbsg2", "sst_llog", 2, {"c_harrell": [[0.6], [0.6]]}),
            rows("aids", "cox", None, {"c_harrell": [[0.8], [0.8]]}),
        ]
    )
    results = results_of(table)
    title = "Concordance of the groups alone"
    assert title in to_markdown(build_report(results))
    shown = _table(results, "c_groups")
    assert list(shown.index[:2]) == ["aids", "gbsg2"]
    assert _parts(shown, "text")[:2] == [[".650"], ["\N{EN DASH}"]]
    assert title not in to_markdown(build_report(results_of(table[table["metric"] == "c_harrell"])))


def test_an_absent_cell_is_a_dash_and_averages_say_over_what() -> None:
    table = _table(Results(*study(MEANS)))
    assert list(table.index) == ["aids", "gbsg2", "average, own data sets", "average, 1 in common"]
    assert _parts(table, "text")[1] == [".600", ".800", "\N{EN DASH}"]
    assert _parts(table, "note")[2] == ["of 2", "of 2", "of 1"]
    assert _parts(table, "text")[3] == [".700", ".700", ".650"]
    assert _parts(table, "best")[2:] == [[False] * 3, [True, True, False]]


def test_a_complete_table_has_one_average() -> None:
    means = {cell: value for cell, value in MEANS.items() if cell[1] != "deepsurv"}
    table = _table(Results(*study(means)))
    assert table.attrs["n_averages"] == 1
    assert table.index[-1] == "average of 2 data sets"
    assert _parts(table, "text")[-1] == [".650", ".750"]


def test_an_undefined_column_does_not_split_the_averages() -> None:
    (average,) = averages_of(pd.DataFrame({"a": [0.5, 0.6], "b": [np.nan, np.nan]}))
    assert average.values["a"] == pytest.approx(0.55)
    assert np.isnan(average.values["b"])


def test_many_models_are_told_by_family() -> None:
    soft = {("aids", "sst_llog", d): 0.7 + 0.01 * d for d in range(7)}
    greedy = {("aids", "ctree", d): 0.6 + 0.01 * d for d in range(7)}
    results = Results(*study({**soft, **greedy}))
    tables = score_tables(results, measure_of("c_harrell"), results.cells("c_harrell"))
    assert [table.attrs["caption"] for table in tables] == ["Soft trees", "Greedy trees"]
    assert list(tables[0].columns.get_level_values(0)) == ["Llog"] * 7
    assert _parts(tables[0], "best")[0] == [False] * 6 + [True]
    assert not any(_parts(tables[1], "best")[0])
    assert _parts(tables[1], "best_of_family")[0] == [False] * 6 + [True]


def test_tasks_that_differ_in_versions_are_told() -> None:
    table = pd.concat([rows(name, "cox", None, {"c_harrell": [[0.6], [0.7]]}) for name in ("aids", "gbsg2")])
    records = [
        facts("aids", "cox", None, versions={"torch": "2.8"}, finished="2026-01-01T00:00:00Z"),
        facts("gbsg2", "cox", None, versions={"torch": "2.9"}),
    ]
    text = to_markdown(build_report(Results(table, records)))
    assert "tasks differ: 2.8 (1 task), 2.9 (1 task)" in text
    assert "2026-01-01T00:00:00Z to 2026-01-02T03:04:05Z" in text


def test_reasons_that_differ_are_counted() -> None:
    table = rows("aids", "cox", None, {"c_uno": [[np.nan], [np.nan], [np.nan], [0.7]]})
    table["reason"] = ["row 7", "row 9", "row 9", ""]
    text = to_markdown(build_report(results_of(table)))
    assert "| Cox | c\\_uno | test | 3 | all | row 9 (2 times; 1 other reason) |" in text


def test_times_by_model() -> None:
    table, _ = study({("aids", "cox", None): 0.6, ("gbsg2", "cox", None): 0.7})
    records = [
        facts("aids", "cox", None, seconds={"fit": 3.0, "score": 1.0}),
        facts("gbsg2", "cox", None, seconds={"fit": 5.0, "score": 2.0}),
    ]
    text = to_markdown(build_report(Results(table, records)))
    assert "| Cox | 2 | 4 | 8.00 | 4.00 | 5.00 | 2.00 | 3.00 | 1.50 |" in text


def test_infinite_values_are_shown_and_not_averaged() -> None:
    values = {"log_likelihood": [[-10.0], [-np.inf]]}
    fine = {"log_likelihood": [[-11.0], [-12.0]]}
    table = pd.concat(
        [rows("aids", "cox", None, values), rows("gbsg2", "cox", None, fine)]
        + [rows(name, "rsf", None, fine) for name in ("aids", "gbsg2")]
    )
    text = to_markdown(build_report(results_of(table)))
    assert "\N{MINUS SIGN}∞" in text


def test_averages_of_the_chosen_starts_stand_beside_those_of_all() -> None:
    table = rows("aids", "sst_llog", 2, {"c_harrell": [[0.6, 0.7], [0.7, 0.8]]}, chosen=1)
    text = to_markdown(build_report(results_of(table)))
    over_all, over_chosen = text.split("### Averages over the chosen start of each fold")
    assert "| Llog D2 | .700 |" in over_all
    assert "| Llog D2 | .750 |" in over_chosen
