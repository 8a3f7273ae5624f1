"""What the tensor forms refuse or take that the array forms do not know: devices, padding, empty batches."""

import numpy as np
import pytest
import torch

import sstorch.metrics as arrays
from sstorch.exceptions import DataError
from sstorch.metrics import batched

TIME, EVENT = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 1, 0])
CURVES, GRID = (
    torch.tensor([[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]),
    torch.tensor([1.0, 2.0, 3.0]),
)


def test_empty_batches():
    time, event, curves = TIME.expand(0, 3), EVENT.expand(0, 3), CURVES.expand(0, 3, 3)
    train = (TIME, EVENT)
    assert batched.concordance_harrell(time, event, curves, GRID).shape == (0,)
    assert batched.concordance_uno(time, event, curves, GRID, train=train).shape == (0,)
    assert batched.concordance_harrell_risk(time, event, time).shape == (0,)
    assert batched.concordance_uno_risk(time, event, time, train=train).shape == (0,)
    assert batched.brier_score(time, event, curves, GRID, train=train).shape == (0, 3)
    assert batched.integrated_brier_score(time, event, curves, GRID, train=train).shape == (0,)


@pytest.mark.parametrize("convention", ["graf", "sksurv", "osst"])
def test_padded_training_rows(convention):
    rng = np.random.default_rng(0)
    time, event = rng.integers(1, 12, 30).astype(float), rng.random(30) < 0.5
    times = np.arange(1.0, 13.0)
    curves = np.exp(-np.outer(rng.gamma(2.0, 0.05, 30), times))
    trains = [(rng.integers(1, 8, n).astype(float), rng.random(n) < 0.5) for n in (9, 14)]
    for train in trains:  # G stays positive at the last training time, beyond which "sksurv" does not look
        train[1][train[0] == train[0].max()] = True
    padded = [torch.zeros(2, 20, dtype=torch.float64) for _ in range(3)]
    padded[0][:, 14:] = 40.0  # beyond all rows: it must not count as the last training time
    for k, train in enumerate(trains):
        n = train[0].size
        for part, values in zip(padded, (*train, np.ones(n)), strict=True):
            part[k, :n] = torch.as_tensor(values.astype(float))
    rows = [torch.as_tensor(part) for part in (time, event, curves, times)]
    got = batched.integrated_brier_score(*rows, train=tuple(padded), convention=convention)
    expected = [
        arrays.integrated_brier_score(time, event, curves, times, train=train, convention=convention)
        for train in trains
    ]
    assert got.tolist() == pytest.approx(expected, abs=1e-12)
    got = batched.concordance_uno(*rows, train=tuple(padded))
    expected = [arrays.concordance_uno(time, event, curves, times, train=train) for train in trains]
    assert got.tolist() == pytest.approx(expected, abs=1e-12)


def test_devices_and_types():
    meta = TIME.to("meta")
    with pytest.raises(DataError, match="time, event, risk: expected tensors on one device; got time on cpu"):
        batched.concordance_harrell_risk(TIME, EVENT, meta)
    with pytest.raises(DataError, match="time: expected a tensor with values; got one on the device meta"):
        batched.concordance_harrell_risk(meta, meta, meta)
    with pytest.raises(DataError, match="train on meta"):
        batched.brier_score(TIME, EVENT, CURVES, GRID, train=(meta, meta))
    for half in (CURVES.half(), CURVES.bfloat16()):
        with pytest.raises(DataError, match="survival: expected float32 or float64; got 16 bits"):
            batched.concordance_harrell(TIME, EVENT, half, GRID)


def test_messages_show_the_offending_value():
    wrong = CURVES.clone()
    wrong[1, 2] = -0.5
    with pytest.raises(DataError, match=r"got -0\.5 in problem 0, row 1, position 2\."):
        batched.concordance_harrell(TIME, EVENT, wrong, GRID)
    steps = (0.5 + torch.arange(5000, dtype=torch.float64) * 9e-10).expand(3, -1)
    with pytest.raises(DataError, match="do not rise with t"):
        batched.concordance_harrell(TIME, EVENT, steps, torch.linspace(0.5, 3.0, 5000, dtype=torch.float64))


def test_units():
    days = torch.linspace(30.0, 3000.0, 60, dtype=torch.float64)
    event, years = torch.ones(60), days / 365.25
    curves = torch.exp(-days / days[:, None])
    with pytest.raises(DataError, match=r"train time and time: expected times in one unit.*problem 0"):
        batched.concordance_uno_risk(days, event, -days, train=(years, event))
    with pytest.raises(DataError, match="time and train time: expected times in one unit"):
        batched.concordance_uno_risk(years, event, -days, train=(days, event))
    for score in (batched.brier_score, batched.integrated_brier_score):
        with pytest.raises(DataError, match="one unit"):
            score(years, event, curves, days, train=(years, event))
    with pytest.raises(DataError, match="one unit"):
        batched.concordance_harrell(days, event, curves, years / 40)
