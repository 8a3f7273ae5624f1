import numpy as np
import pandas as pd
import pytest
import torch

from sstorch.exceptions import DataError
from sstorch.metrics import (
    KaplanMeier,
    brier_score,
    concordance_harrell,
    concordance_uno,
    cumulative_dynamic_auc,
    d_calibration,
    integrated_brier_score,
)
from sstorch.metrics.checks import check_probability, check_survival

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
            r"time must be one number per row, shape \(n,\), n > 0, got shape \(1, 3\)",
        ),
        ({"time": []}, r"time must be one number per row.*got shape \(0,\)"),
        ({"time": ["a", "b", "c"]}, "time must be an array of numbers"),
        ({"time": [1.0, np.nan, 3.0]}, "time: NaN in 1 row"),
        ({"time": [1.0, -2.0, -3.0]}, "time must be finite times >= 0, got -2 in 2 rows"),
        ({"time": [1.0, 2.0, np.inf]}, "time must be finite times >= 0, got inf in 1 row"),
        ({"event": [1, 0]}, "event must have 3 rows, as in the other arguments, got 2"),
        (
            {"event": TIME, "time": EVENT},
            r"event must be .*got 2 in 2 rows .* Are time and event in the order",
        ),
        (
            {"times": [1.0, 1.0]},
            "times must be strictly increasing times, got 1 then 1 at positions 0 and 1",
        ),
        ({"times": [-1.0, 1.0]}, "times must be finite times >= 0, got -1 at position 0"),
        ({"survival": CURVES.T}, r"must have shape .* = \(3, 2\), got \(2, 3\). It looks transposed"),
        ({"survival": CURVES[:, 0]}, r"must have shape .* = \(3, 2\), got \(3,\)\.$"),
        ({"survival": with_value(1, 1, np.nan)}, "survival: NaN in 1 row"),
        (
            {"survival": with_value(2, 0, 1.5)},
            r"got values from 0.8 to 1.5 in 1 row .* Pass survival, not risk",
        ),
        ({"survival": with_value(0, 1, -1e-8)}, "got values from -1e-08 to 0.5 in 1 row"),
        ({"survival": 1.0 - CURVES}, "they increase in 3 rows .* Pass survival, not risk"),
    ],
)
def test_refusals(changed, message):
    arguments = {"time": TIME, "event": EVENT, "survival": CURVES, "times": TIMES} | changed
    arguments["y"] = arguments.pop("time"), arguments.pop("event")
    given = arguments["y"], arguments["survival"], arguments["times"]
    with pytest.raises(DataError, match=message):
        concordance_harrell(*given)
    with pytest.raises(DataError, match=message):
        brier_score(*given, train=(TIME, EVENT))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (None, "train: a survival model requires y"),
        (np.ones((2, 2)), "train: y is a plain array"),
        ((TIME, EVENT, EVENT), "train: y is a tuple of length 3"),
        ((TIME, [1, 0]), "train event must have 3 rows"),
        ((EVENT, TIME), "train event must be True/1"),
        (([1.0, -1.0, 2.0], EVENT), "train time must be finite times >= 0, got -1 in 1 row"),
    ],
)
def test_train_refusals(train, message):
    with pytest.raises(DataError, match=message):
        brier_score((TIME, EVENT), CURVES, TIMES, train=train)


def test_risk_refusals():
    with pytest.raises(DataError, match="risk must have 3 rows, as in the other arguments, got 2"):
        concordance_harrell((TIME, EVENT), [1.0, 2.0])
    with pytest.raises(DataError, match="risk: NaN in 1 row"):
        concordance_harrell((TIME, EVENT), [np.nan, 1.0, 2.0])


def test_rounding_is_that_of_the_type():
    rising = np.array([[0.5, 0.5 + 5e-10]])
    check_survival(rising, 1, 2)
    rising = np.array([[0.5, 0.5 + 1e-7]])
    for single in (
        rising.astype(np.float32),
        pd.DataFrame(rising).astype(np.float32),
        pd.DataFrame(rising).astype("Float32"),
        torch.tensor(rising, dtype=torch.float32),
    ):
        check_survival(check_survival(single, 1, 2), 1, 2)
    for double in (rising, pd.DataFrame(rising), torch.tensor(rising)):
        with pytest.raises(DataError, match="they increase in 1 row"):
            check_survival(double, 1, 2)
    with pytest.raises(DataError, match="they increase in 1 row"):
        check_survival(np.array([[0.5, 0.501]], dtype=np.float32), 1, 2)


def test_small_rises_do_not_add_up():
    steps = 0.5 + np.arange(5000)[None] * 9e-10  # each within the rounding
    with pytest.raises(DataError, match="they increase in 1 row"):
        check_survival(steps, 1, 5000)
    for half in (CURVES.astype(np.float16), torch.tensor(CURVES).bfloat16(), torch.tensor(CURVES).half()):
        with pytest.raises(DataError, match="survival must be "):
            check_survival(half, 3, 2)
    with pytest.raises(DataError, match="got 16 bits or less"):
        check_survival(CURVES.astype(np.float16), 3, 2)


def test_probabilities_may_be_rounded():
    got = check_probability(np.array([1.0 + 1e-7, -1e-7], dtype=np.float32), "survival", 2)
    assert got.tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="must be probabilities"):
        check_probability([1.0 + 1e-7, 0.0], "survival", 2)


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (["1", "2", "3"], "got text"),
        (pd.Series(["1", "2", "3"], dtype=object), "got text"),
        (np.array([1, 2, 3], dtype="m8[D]"), "got time spans; divide by one unit"),
        (pd.to_timedelta([1, 2, 3], unit="D"), "got time spans"),
        (np.array([1, 2, 3], dtype="M8[D]"), "got dates"),
        (np.array([1, 2, 3]) + 0j, "got complex numbers"),
        (np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0]), "masked entries"),
        (torch.tensor([1.0, 2.0, 3.0], requires_grad=True), r"requires grad; pass time\.detach"),
        (torch.ones(3, device="meta"), "got a tensor on meta"),
        (pd.Series([1.0, None, 3.0], dtype="Float64"), "NaN in 1 row|array of numbers"),
    ],
)
def test_what_is_no_number_is_refused(values, got):
    with pytest.raises(DataError, match=got) as caught:
        concordance_harrell((values, EVENT), [3.0, 2.0, 1.0])
    assert str(caught.value).count("must be an array") <= 1


def test_row_labels_in_another_order_are_refused():
    time, event = pd.Series(TIME, index=[7, 8, 9]), pd.Series(EVENT, index=[7, 8, 9])
    curves, weight = pd.DataFrame(CURVES, index=[9, 8, 7]), pd.Series([1.0, 1.0, 1.0], index=[8, 7, 9])
    train = (TIME, EVENT)
    match = "time and {}: the same row labels in a different order; bring"
    for call, name in (
        (lambda: brier_score((time, event), curves, TIMES, train=train), "survival"),
        (lambda: integrated_brier_score((time, event), curves, TIMES, train=train), "survival"),
        (lambda: concordance_harrell((time, event), curves, TIMES), "prediction"),
        (lambda: concordance_harrell((time, event), curves[0]), "prediction"),
        (lambda: concordance_harrell((time, event), TIME, sample_weight=weight), "sample_weight"),
        (lambda: concordance_harrell((time, event[::-1]), TIME), "event"),
        (lambda: cumulative_dynamic_auc((time, event), curves, TIMES, train=train), "prediction"),
        (lambda: cumulative_dynamic_auc((time, event), curves[0], TIMES, train=train), "prediction"),
        (lambda: d_calibration((time, event), curves, TIMES), "survival"),
    ):
        with pytest.raises(DataError, match=match.format(name)):
            call()
    other = pd.DataFrame(CURVES, index=["a", "b", "c"])  # other labels say nothing about the order
    assert concordance_harrell((time, event), other, TIMES) == 1.0


def test_units_of_grids_predictions_and_horizons():
    days = np.linspace(30.0, 3000.0, 60)
    years, event, train = days / 365.25, np.ones(60), (days, np.ones(60))
    curves = np.exp(-np.outer(1 / days, days))
    in_years = (years, event)
    for call in (
        lambda: brier_score((days, event), curves[:, ::2], years[::2] / 40, train=train),
        lambda: integrated_brier_score((days, event), curves, years / 40, train=train, convention="osst"),
        lambda: integrated_brier_score(in_years, curves, days, train=in_years),
        lambda: integrated_brier_score(in_years, curves, days, train=in_years, convention="osst"),
        lambda: d_calibration((days, event), curves, years / 40),
        lambda: brier_score((days, event), curves[:, :3], [1.0, 2.0, 3.0], train=train),
        lambda: concordance_uno((days, event), -days, train=in_years),
        lambda: concordance_harrell((days, event), curves[:, ::2], years[::2] / 40),
    ):
        with pytest.raises(DataError, match="in one unit"):
            call()
    rare = np.arange(60) < 20  # events are early; the grid may end before most rows leave
    late = np.where(rare, days, 3000.0)
    assert brier_score((late, rare), curves[:, :20], days[:20], train=(late, rare)).size == 20


def test_times_that_are_no_numbers():
    with pytest.raises(DataError, match="t must not be NaN"):
        KaplanMeier.fit((TIME, EVENT)).at([1.0, np.nan])
