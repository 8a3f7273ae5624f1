import numpy as np
import pandas as pd
import pytest

from sstorch.exceptions import DataError
from sstorch.metrics import brier_score, concordance_harrell, concordance_harrell_risk
from sstorch.metrics.checks import name_rows
from sstorch.metrics.probabilities import check_survival

TIME, EVENT, TIMES = [1.0, 2.0, 3.0], [1, 1, 0], [1.0, 2.0]
CURVES = np.array([[0.5, 0.2], [0.9, 0.4], [0.9, 0.8]])


def with_value(row, column, value):
    curves = CURVES.copy()
    curves[row, column] = value
    return curves


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"time": [[1.0, 2.0, 3.0]]},
            r"time: expected one number per row, shape \(n,\), n > 0; got shape \(1, 3\)",
        ),
        ({"time": []}, r"time: expected one number per row.*got shape \(0,\)"),
        ({"time": ["a", "b", "c"]}, "time: expected an array of numbers"),
        ({"time": [1.0, np.nan, 3.0]}, "time: NaN in row 1"),
        ({"time": [1.0, -2.0, -3.0]}, "time: expected finite times >= 0; got -2 in rows 1, 2"),
        ({"time": [1.0, 2.0, np.inf]}, "time: expected finite times >= 0; got inf in row 2"),
        ({"event": [1, 0]}, "event: expected 3 rows, as in the other arguments; got 2"),
        ({"event": TIME, "time": EVENT}, r"event: .*got 2 in rows 1, 2. Are time and event in the order"),
        (
            {"times": [1.0, 1.0]},
            "times: expected strictly increasing times; got 1 then 1 at positions 0 and 1",
        ),
        ({"times": [-1.0, 1.0]}, "times: expected finite times >= 0; got -1 at position 0"),
        ({"survival": CURVES.T}, r"expected shape .* = \(3, 2\); got \(2, 3\). It looks transposed"),
        ({"survival": CURVES[:, 0]}, r"expected shape .* = \(3, 2\); got \(3,\)\.$"),
        ({"survival": with_value(1, 1, np.nan)}, "survival: NaN in row 1"),
        (
            {"survival": with_value(2, 0, 1.5)},
            r"got values from 0.8 to 1.5 in row 2. Pass survival, not risk",
        ),
        ({"survival": with_value(0, 1, -1e-8)}, "got values from -1e-08 to 0.5 in row 0"),
        ({"survival": 1.0 - CURVES}, "they rise in rows 0, 1, 2. Pass survival, not risk"),
    ],
)
def test_refusals(changed, message):
    arguments = {"time": TIME, "event": EVENT, "survival": CURVES, "times": TIMES} | changed
    with pytest.raises(DataError, match=message):
        concordance_harrell(**arguments)
    with pytest.raises(DataError, match=message):
        brier_score(**arguments, train=(TIME, EVENT))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (None, r"train: expected the pair \(time, event\) of the training rows; got NoneType"),
        (np.ones((2, 2)), "train: expected the pair .*; got ndarray"),
        ((TIME, EVENT, EVENT), "train: expected the pair .*; got 3 items"),
        ((TIME, [1, 0]), "train event: expected 3 rows"),
        ((EVENT, TIME), "train event: expected True/1"),
        (([1.0, -1.0, 2.0], EVENT), "train time: expected finite times >= 0; got -1 in row 1"),
    ],
)
def test_train_refusals(train, message):
    with pytest.raises(DataError, match=message):
        brier_score(TIME, EVENT, CURVES, TIMES, train=train)


def test_risk_refusals():
    with pytest.raises(DataError, match="risk: expected 3 rows, as in the other arguments; got 2"):
        concordance_harrell_risk(TIME, EVENT, [1.0, 2.0])
    with pytest.raises(DataError, match="risk: NaN in row 0"):
        concordance_harrell_risk(TIME, EVENT, [np.nan, 1.0, 2.0])


def test_rounding_is_that_of_the_type():
    rising = np.array([[0.5, 0.5 + 5e-10]])
    check_survival(rising, 1, 2)
    rising = np.array([[0.5, 0.5 + 1e-7]])
    check_survival(rising.astype(np.float32), 1, 2)
    with pytest.raises(DataError, match="they rise in row 0"):
        check_survival(rising, 1, 2)
    with pytest.raises(DataError, match="they rise in row 0"):
        check_survival(np.array([[0.5, 0.501]], dtype=np.float32), 1, 2)


def test_frames_and_lists_are_welcome():
    frame = pd.DataFrame({"time": TIME, "event": [True, True, False]}, index=[7, 8, 9])
    got = concordance_harrell(frame["time"], frame["event"], pd.DataFrame(CURVES), TIMES)
    assert got == concordance_harrell(TIME, EVENT, CURVES.tolist(), TIMES) == 1.0


def test_long_lists_of_rows_are_cut():
    assert name_rows(np.ones(8, dtype=bool)) == "rows 0, 1, 2, 3, 4 and 3 more"
