import numpy as np
import pandas as pd
import pytest

from sstorch.evaluation.report.document import Table
from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.numbers import number, p_value, seconds, signed
from sstorch.evaluation.report.results import Results
from sstorch.evaluation.report.score_tables import averages_of, best_of_rows, score_tables

from .studies import study


def _table(results: Results, metric: str = "c_harrell") -> Table:
    (table,) = score_tables(results, measure(metric), results.cells(metric))
    return table


def _bold(table: Table) -> dict[str, list[str]]:
    return {
        row[0].text: [name for name, cell in zip(table.header, row, strict=True) if cell.best]
        for row in table.rows
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


def test_an_absent_cell_is_a_dash_and_averages_say_over_what() -> None:
    table = _table(Results(*study(MEANS)))
    assert [cell.text for cell in table.rows[1]] == ["gbsg2", ".600", ".800", "\N{EN DASH}"]
    own, common = table.footer
    assert [cell.note for cell in own[1:]] == ["of 2", "of 2", "of 1"]
    assert [cell.text for cell in common] == ["average, 1 in common", ".700", ".700", ".650"]
    assert [cell.best for cell in common[1:]] == [True, True, False]
    assert not any(cell.best for cell in own)


def test_a_complete_table_has_one_average() -> None:
    means = {cell: value for cell, value in MEANS.items() if cell[1] != "deepsurv"}
    (average,) = _table(Results(*study(means))).footer
    assert [cell.text for cell in average] == ["average of 2 data sets", ".650", ".750"]


def test_an_undefined_column_does_not_split_the_averages() -> None:
    (average,) = averages_of(pd.DataFrame({"a": [0.5, 0.6], "b": [np.nan, np.nan]}))
    assert average.values["a"] == pytest.approx(0.55)
    assert np.isnan(average.values["b"])


def test_many_models_are_told_by_family() -> None:
    soft = {("aids", "sst_llog", d): 0.7 + 0.01 * d for d in range(7)}
    greedy = {("aids", "ctree", d): 0.6 + 0.01 * d for d in range(7)}
    results = Results(*study({**soft, **greedy}))
    tables = score_tables(results, measure("c_harrell"), results.cells("c_harrell"))
    assert [table.caption for table in tables] == ["Soft trees", "Greedy trees"]
    assert tables[0].groups == [("", 1), ("Llog", 7)]
    assert [cell.best for cell in tables[0].rows[0][1:]] == [False] * 6 + [True]
    assert not any(cell.best for cell in tables[1].rows[0])
    assert [cell.best_of_family for cell in tables[1].rows[0][1:]] == [False] * 6 + [True]


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
