"""The gate for y."""

import numpy as np
import pandas as pd
import pytest

from sstorch.data import Surv
from sstorch.data.target import parse_target

TIMES = [5.0, 3.0, 0.0, 8.5]
EVENTS = [True, False, True, False]


def frame(time=TIMES, event=EVENTS):
    return pd.DataFrame({"time": time, "event": event})


def structured(event_type="?", time_type="<f8", names=("status", "months")):
    return np.array(
        list(zip(EVENTS, TIMES, strict=True)), dtype=[(names[0], event_type), (names[1], time_type)]
    )


@pytest.mark.parametrize(
    "y",
    [
        (TIMES, EVENTS),
        (np.array(TIMES), np.array(EVENTS)),
        (np.array(TIMES, dtype=np.float32), np.array(EVENTS, dtype=np.int8)),
        (pd.Series(TIMES, index=[9, 8, 7, 6]), pd.Series(EVENTS, dtype="boolean")),
        (pd.Series(TIMES, dtype="Float64"), pd.Series([1, 0, 1, 0], dtype="Int64")),
        (pd.Series(TIMES, dtype=object), pd.Series(EVENTS, dtype=object)),
        (TIMES, [1.0, 0.0, 1.0, 0.0]),
        frame(),
        frame().assign(other="x")[["event", "other", "time"]],
        structured(),
        structured("<i4"),
        structured(names=("time", "event")).view([("event", "?"), ("time", "<f8")]),
        structured().view(np.recarray),
    ],
)
def test_accepted_forms(y):
    time, event = parse_target(y)
    assert time.dtype == np.float64
    assert event.dtype == np.bool_
    assert time.tolist() == TIMES
    assert event.tolist() == EVENTS


def test_structured_with_integer_times():
    y = np.array([(True, 4), (False, 2)], dtype=[("e", "?"), ("t", "<i8")])
    assert parse_target(y)[0].tolist() == [4.0, 2.0]


@pytest.mark.parametrize("events", [EVENTS, np.array(EVENTS)])
def test_result_shares_no_memory(events):
    given = np.array(TIMES)
    time, event = parse_target((given, events))
    time[0], event[0] = 99, not event[0]
    assert given[0] == 5.0
    assert list(events) == EVENTS


def test_event_value_in_any_spelling_is_an_event():
    # At the parent it was refused beside 'dead', and alone in no row.
    for words in (["dead", "Dead ", "alive"], [" DEAD", "Dead ", "alive"]):
        frame = pd.DataFrame({"time": [1, 2, 3], "state": words})
        for column in (frame, frame.astype({"state": "category"}), frame.astype({"state": "string"})):
            y = Surv.of(column, time="time", event="state", event_value="dead")
            assert y.event.tolist() == [True, True, False]
