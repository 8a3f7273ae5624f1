"""What cannot be scored raises, and names the argument; rounding passes."""

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch.exceptions import DataError
from sstorch.metrics import (
    KaplanMeier,
    brier_score,
    concordance_harrell,
    cumulative_dynamic_auc,
    d_calibration,
)
from sstorch.metrics.checks import check_probability, check_survival

TIME, EVENT, TIMES = [1.0, 2.0, 3.0], [1, 1, 0], [1.0, 2.0]
CURVES = np.array([[0.5, 0.2], [0.9, 0.4], [0.9, 0.8]])


def with_value(row, column, value):
    curves = CURVES.copy()
    curves[row, column] = value
    return curves


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"time": []}, "time must be one number per row"),
        ({"time": [1.0, np.nan, 3.0]}, "time: NaN in 1 row"),
        ({"time": [1.0, -2.0, -3.0]}, "time must be finite.* got -2 in 2 rows"),
        ({"time": ["1", "2", "3"]}, "got text"),
        ({"time": np.array([1, 2, 3], dtype="M8[D]")}, "got dates"),
        ({"time": np.ma.masked_array(TIME, mask=[0, 1, 0])}, "masked entries"),
        ({"time": torch.tensor(TIME, requires_grad=True)}, r"tensor\.detach"),
        ({"time": torch.ones(3, device="meta")}, "meta"),
        ({"event": [1, 0]}, "event must have 3 rows"),
        ({"event": TIME, "time": EVENT}, r"event must be .*in the order"),
        ({"times": [1.0, 1.0]}, "times must be strictly increasing"),
        ({"survival": CURVES.T}, "It looks transposed"),
        ({"survival": with_value(1, 1, np.nan)}, "survival: NaN in 1 row"),
        ({"survival": with_value(2, 0, 1.5)}, r"0.8 to 1.5 in 1 row .* not risk"),
        ({"survival": with_value(0, 1, -1e-8)}, "-1e-08 to 0.5 in 1 row"),
        ({"survival": 1.0 - CURVES}, "they increase in 3 rows .* not risk"),
    ],
)
def test_invalid_rows_and_curves_raise(changed, words):
    arguments = {"time": TIME, "event": EVENT, "survival": CURVES, "times": TIMES} | changed
    given = (arguments["time"], arguments["event"]), arguments["survival"], arguments["times"]
    with pytest.raises(DataError, match=words):
        concordance_harrell(*given)
    with pytest.raises(DataError, match=words):
        brier_score(*given, train=(TIME, EVENT))


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (None, "train: .* requires y to be passed"),
        (np.ones((2, 2)), "train: y .*plain array"),
        ((TIME, EVENT, EVENT), "train: y .*got tuple"),
        ((TIME, [1, 0]), "train: event must have 3 rows"),
        ((EVENT, TIME), "train: event must be True/1"),
        (([1.0, -1.0, 2.0], EVENT), "train: time must be finite"),
    ],
)
def test_invalid_training_rows_raise(train, words):
    with pytest.raises(DataError, match=words):
        brier_score((TIME, EVENT), CURVES, TIMES, train=train)


def test_rounding_is_that_of_the_type():
    check_survival(np.array([[0.5, 0.5 + 5e-10]]), 1, 2)
    rising = np.array([[0.5, 0.5 + 1e-7]])
    frame = pd.DataFrame(rising)
    single = torch.tensor(rising, dtype=torch.float32)
    for coarse in (rising.astype(np.float32), frame.astype(np.float32), single):
        check_survival(check_survival(coarse, 1, 2), 1, 2)
    steps = 0.5 + np.arange(5000)[None] * 9e-10  # each within the rounding
    for double in (rising, frame, torch.tensor(rising), steps, np.array([[0.5, 0.501]], dtype=np.float32)):
        with pytest.raises(DataError, match="they increase in 1 row"):
            check_survival(double, 1, np.shape(double)[1])
    for half in (CURVES.astype(np.float16), torch.tensor(CURVES).bfloat16(), torch.tensor(CURVES).half()):
        with pytest.raises(DataError, match="survival must be "):
            check_survival(half, 3, 2)
    got = check_probability(np.array([1.0 + 1e-7, -1e-7], dtype=np.float32), "survival", 2)
    assert got.tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="must be probabilities"):
        check_probability([1.0 + 1e-7, 0.0], "survival", 2)


def test_row_labels_in_another_order_raise():
    time, event = pd.Series(TIME, index=[7, 8, 9]), pd.Series(EVENT, index=[7, 8, 9])
    curves, weight = pd.DataFrame(CURVES, index=[9, 8, 7]), pd.Series([1.0, 1.0, 1.0], index=[8, 7, 9])
    y, train = (time, event), {"train": (TIME, EVENT)}
    for call in (
        lambda: brier_score(y, curves, TIMES, **train),
        lambda: concordance_harrell(y, curves, TIMES),
        lambda: concordance_harrell(y, TIME, sample_weight=weight),
        lambda: concordance_harrell((time, event[::-1]), TIME),
        lambda: cumulative_dynamic_auc(y, curves, TIMES, **train),
        lambda: d_calibration(y, curves, TIMES),
    ):
        with pytest.raises(DataError, match="the same row labels in a different order"):
            call()
    other = pd.DataFrame(CURVES, index=["a", "b", "c"])  # other labels say nothing about the order
    assert concordance_harrell(y, other, TIMES) == 1.0


@pytest.mark.parametrize("grid", [[40.0, 50.0], [0.1, 0.2]])
def test_grid_outside_the_observed_times_raises(grid):
    y = (TIME, EVENT)
    for function, options in ((brier_score, {"train": y}), (concordance_harrell, {}), (d_calibration, {})):
        with pytest.raises(DataError, match="where nothing was observed"):
            function(y, CURVES, grid, **options)
    with pytest.raises(DataError, match="t must not be NaN"):
        KaplanMeier.fit((TIME, EVENT)).at([1.0, np.nan])
