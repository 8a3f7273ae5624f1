"""The gate for y."""

import numpy as np
import pandas as pd
import pytest

from sstorch.data import Surv, parse_target
from sstorch.exceptions import DataError

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


@pytest.mark.parametrize(
    ("times", "match"),
    [
        ([1.0, np.nan], "time is missing in 1 row"),
        ([1.0, -2.0], "time is negative in 1 row"),
        ([1.0, np.inf], "time is infinite"),
        ([1.0, 2.0, 3.0], "3 times but 2 events"),
    ],
)
def test_arrays_are_refused_as_lists_are(times, match):
    for kind in (list, np.array):
        with pytest.raises(DataError, match=match):
            parse_target((kind(times), kind([True, False])))


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.zeros((4, 2)), r"plain array of shape \(4, 2\).*give sstorch\.Surv\(time, event\), a pair"),
        (np.zeros(4), "plain array"),
        ([TIMES, EVENTS], "list of length 2; give sstorch.Surv"),
        ((TIMES, EVENTS, EVENTS), "tuple of length 3; give sstorch.Surv"),
        (None, "the target y is None"),
        ((np.zeros((4, 1)), EVENTS), r"time is an array of shape \(4, 1\)"),
        ((5.0, True), "time is a float"),
        ((TIMES, EVENTS[:3]), "4 times but 3 events"),
        ((EVENTS, TIMES), "time is boolean.*swapped"),
        ((TIMES, [0, 1, np.nan, 1]), r"event is missing in 1 row \(0-based position 2\)"),
        (
            (TIMES, ["dead", "alive", "dead", "alive"]),
            r"event holds 'dead', which is not a number.*event_value=VALUE",
        ),
        ((TIMES, [1, 2, 1, 2]), r"event is 2 in 2 rows.*never 0.*event_value=2"),
        ((TIMES, [2, 2, 2, 2]), "event_value=2"),
        ((TIMES, [0, 1, 2, 0]), r"event is 2 in 1 row \(0-based position 2\).*competing causes"),
        ((TIMES, [0, 1, -1, 0]), "event is -1 in 1 row"),
        ((TIMES, [0, 1, 0.5, 0]), "event is 0.5 in 1 row"),
        ((TIMES, [0, 1, np.inf, 0]), "event is inf in 1 row"),
        (
            ([1, np.nan, 3, None], EVENTS),
            r"time is missing in 2 rows \(0-based positions 1, 3\); correct or remove",
        ),
        (([1, np.inf, 3, 4], EVENTS), "time is infinite .* in 1 row"),
        (([1, -2, -3, 4], EVENTS), r"time is negative in 2 rows \(0-based positions 1, 2\)"),
        (
            (["1", "2", "3", "4"], EVENTS),
            r"time holds numbers written as text, such as '1', in 4 rows \(.*pd\.to_numeric",
        ),
        (
            ([1.0, "n/a", 3.0, 4.0], EVENTS),
            r"time holds 'n/a', which is not a number, in 1 row \(0-based position 1\)",
        ),
        ((pd.to_datetime(pd.Series(["2020-01-01"] * 4)), EVENTS), "time holds dates"),
        ((pd.to_timedelta(pd.Series([1] * 4), unit="D"), EVENTS), "time holds time differences.*dt.days"),
        ((pd.Series(TIMES, dtype="complex128"), EVENTS), "not a number"),
        (frame(time=pd.array([1, None, 3, 4], dtype="Int64")), "column 'time' is missing in 1 row"),
        (frame(event=pd.array([True, None, True, True], dtype="boolean")), "column 'event' is missing"),
        (frame().rename(columns={"time": "Time"}), "no column 'time'.*'Time'.*Did you mean 'Time'"),
        (frame().set_axis(["time", "time"], axis=1), "duplicate column name 'time'"),
        (structured("<f8"), "has the fields 'status' .float64., 'months' .float64."),
        (structured("<i4", "<i4"), "give two fields"),
    ],
)
def test_refusals(y, match):
    with pytest.raises(DataError, match=match):
        parse_target(y)


def test_first_rows_and_total_are_named():
    with pytest.raises(DataError, match=r"in 40 rows \(0-based positions 10, 11, 12, 13, 14, \.\.\.\)"):
        parse_target((np.r_[np.ones(10), -np.ones(40)], np.ones(50)))


def test_event_value_in_any_spelling_is_an_event():
    # At the parent it was refused beside 'dead', and alone in no row.
    for words in (["dead", "Dead ", "alive"], [" DEAD", "Dead ", "alive"]):
        frame = pd.DataFrame({"time": [1, 2, 3], "state": words})
        for column in (frame, frame.astype({"state": "category"}), frame.astype({"state": "string"})):
            y = Surv.of(column, time="time", event="state", event_value="dead")
            assert y.event.tolist() == [True, True, False]
