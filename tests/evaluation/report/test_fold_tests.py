import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sstorch.evaluation.report import Results
from sstorch.evaluation.report.document import Section, Table
from sstorch.evaluation.report.fold_tests import compare_folds, fold_section

from .studies import rows, study


def test_the_variance_is_corrected_for_shared_training_rows() -> None:
    one, two = pd.Series([0.70, 0.74, 0.69, 0.75, 0.71]), pd.Series([0.68, 0.70, 0.70, 0.71, 0.70])
    test = compare_folds({"aids": one}, {"aids": two})["aids"]
    difference = one - two
    t = difference.mean() / np.sqrt(difference.var(ddof=1) * (1 / 5 + 1 / 4))
    assert test.difference == pytest.approx(0.02)
    assert test.p_value == pytest.approx(2 * stats.t.sf(t, 4))


def test_only_the_same_folds_are_compared() -> None:
    score = pd.Series([0.7, 0.8, 0.6])
    other = {
        "fewer": score[:2],
        "undefined": pd.Series([0.7, np.nan, 0.6]),
        "infinite": pd.Series([0.7, -np.inf, 0.6]),
        "same": score,
    }
    assert list(compare_folds(dict.fromkeys([*other, "absent"], score), other)) == ["same"]


def test_wins_ties_and_losses() -> None:
    tables = []
    for dataset, gain in (("aids", 0.05), ("gbsg2", 0.0), ("veterans", -0.05)):
        # The start that is chosen, the second, is the better one.
        soft = [[0.70 + gain - 0.02, 0.70 + gain + 0.02], [0.72 + gain - 0.02, 0.72 + gain + 0.02]]
        tables += [
            rows(dataset, "sst_llog", 2, {"c_harrell": soft}, chosen=1),
            rows(dataset, "cox", None, {"c_harrell": [[0.70], [0.72]]}),
        ]
    section = fold_section(Results(pd.concat(tables), []))
    assert section is not None
    inner = section.blocks[1]
    assert isinstance(inner, Section)
    table = inner.blocks[0]
    assert isinstance(table, Table)
    # Folds that agree to the last bit leave no doubt.
    assert [cell.text for cell in table.rows[0]] == [
        "Llog D2",
        "1 / 1 / 1",
        "1 / 1 / 1",
        "2 / 0 / 1",
        "2 / 0 / 1",
    ]


def test_folds_of_other_seeds_are_not_compared() -> None:
    table, records = study({("aids", "sst_llog", 2): 0.7, ("aids", "cox", None): 0.6})
    assert fold_section(Results(table, [record | {"seed": 1} for record in records])) is not None
    differing = Results(table, [record | {"seed": k} for k, record in enumerate(records)])
    assert fold_section(differing) is None


def test_without_a_reference_there_is_no_section() -> None:
    assert fold_section(Results(*study({("aids", "sst_llog", 2): 0.7, ("aids", "ctree", 2): 0.6}))) is None
