"""Every estimator with every kind of outcome: what works is compared, what does not says why."""

import re
from itertools import product

import numpy as np
import pytest
import torch
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
    run_once,
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


# Left out on a GPU: what draws rows, and what reads a fitted model as on the CPU.
ON_CUDA = [
    name for name in OPERATIONS if name not in (*SLOW, *SHARED, "texts", "calculator", "sql", "simpler")
]
ON_CUDA += ["split_test", "program"]
# Pairs that together run what is computed on the device; all others only at night.
CUDA_DAILY = (
    ("PrognosticTree", "right"),
    ("PrognosticTree", "competing start-stop"),
    ("SoftSurvivalTree", "weights"),
    ("OptimalSurvivalTree", "right"),
)
ON_DEVICES = [
    pair if pair in CUDA_DAILY else nightly(*pair)
    for pair in product(ESTIMATORS, KINDS)
    if reason_of(*pair, "fit") is None
]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("estimator", "kind"), ON_DEVICES)
def test_cells_on_cuda_equal_those_on_the_cpu(estimator: str, kind: str) -> None:
    for operation in ON_CUDA:
        if operation in operations_of(estimator) and reason_of(estimator, kind, operation) is None:
            cpu, cuda = (run_once(estimator, kind, operation, device) for device in ("cpu", "cuda"))
            assert cpu.keys() == cuda.keys()
            for name, value in cpu.items():
                # Minima are reached to the tolerance of the minimiser.
                np.testing.assert_allclose(
                    cuda[name], value, rtol=1e-5, atol=1e-7, err_msg=f"{operation}: {name}"
                )


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
