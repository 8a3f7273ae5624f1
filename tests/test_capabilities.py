"""Every estimator with every kind of outcome: what works is compared, what does not says why."""

import re
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from sstorch.exceptions import ConfigError, DataError
from tests.capabilities import (
    ESTIMATORS,
    KINDS,
    OPERATIONS,
    PAGE,
    forms,
    operations_of,
    page,
    reason_of,
    run,
)
from tests.conftest import nightly

# Of these estimators, whose cells are those of another one, the nightly run has all.
LIKE_OTHERS = ("PrognosticTreeCV", "OptimalSurvivalTreeCV")
# Operations that take seconds a cell, and those that do so by code which all estimators share.
SLOW = ("program", "stability")
SHARED = [
    "bench",
    "validate_groups",
    "validate",
    "javascript",
    "onnx",
    "recalibrate",
    "split_test",
    "workbook",
]
# Kinds of outcome of cross-validations of every run: the folds of the others are made alike.
BENCH = ("right", "interval", "competing start-stop")
CELLS = [
    nightly(*cell)
    if cell[0] in LIKE_OTHERS
    or cell[2] in SLOW
    or (cell[2] in SHARED and cell[0] != "PrognosticTree")
    or (cell[2] == "bench" and cell[1] not in BENCH)
    else cell
    for cell in product(ESTIMATORS, KINDS, OPERATIONS)
    if cell[2] in operations_of(cell[0])
]


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("estimator", "kind", "operation"), CELLS)
def test_cell_works_or_says_why(estimator: str, kind: str, operation: str) -> None:
    reason = reason_of(estimator, kind, operation)
    if reason is None:
        first, second = run(estimator, kind, operation)
        shared = first.keys() & second.keys()
        assert shared
        for name in shared:
            np.testing.assert_allclose(first[name], second[name], rtol=1e-6, atol=1e-8, err_msg=name)
    else:
        with pytest.raises((DataError, ConfigError), match=reason.message):
            run(estimator, kind, operation)


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")
@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name not in LIKE_OTHERS])
def test_model_of_one_event_scored_with_causes_raises(estimator: str) -> None:
    (right, _), (competing, _) = forms(estimator, "right", "fit"), forms(estimator, "competing", "fit")
    model = clone(ESTIMATORS[estimator]).fit(right.X, right.y)
    with pytest.raises(DataError, match="competing causes"):
        model.score(competing.X, competing.y)
    if reason_of(estimator, "competing", "fit") is None:
        model.fit(competing.X, competing.y)
        with pytest.raises(DataError, match="causes"):
            model.score(right.X, right.y)


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.capabilities"
    body = page().split("## Reasons")[0]
    assert not re.search(r"\| +\|", body.replace("| | ", "")), "a cell is blank"
