"""The one gate."""

import numpy as np
import pandas as pd
import pytest

from sstorch.data import SurvivalData
from sstorch.exceptions import DataError, DataWarning

Y = ([5.0, 3.0, 7.0, 8.0], [1, 0, 1, 0])


def features(**columns):
    return pd.DataFrame({"age": [50, 60, 70, 40], **columns})


def test_frame_and_attributes():
    X = features(grade=["II", "I", None, "II"], smoker=[True, False, True, False]).set_index(
        pd.Index(list("dbca"))
    )
    data = SurvivalData(X, Y)
    assert data.feature_names == ["age", "grade", "smoker"]
    assert data.frame.index.tolist() == [0, 1, 2, 3]
    assert data.frame["age"].dtype == np.float64
    assert data.frame["smoker"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert list(data.frame["grade"].cat.categories) == ["I", "II"]
    assert data.time.tolist() == Y[0]
    assert data.event.tolist() == [True, False, True, False]
    assert data.sample_weight.tolist() == [1.0] * 4
    assert (len(data), data.n_events, data.n_moved) == (4, 2, 0)
    assert data.describe() == (
        "4 rows, 3 features (2 numeric, 1 categorical), 2 events (50.0 %), "
        "times 3 to 8, 8.3 % of cells missing"
    )
    assert repr(data).startswith("SurvivalData(4 rows")


def test_object_column_of_numbers_is_numeric():
    values = pd.Series([1, None, True, 2.5], dtype=object)
    assert SurvivalData(features(x=values), Y).frame["x"].tolist()[2:] == [1.0, 2.5]


def test_nullable_types_are_read():
    X = features(
        a=pd.array([1, None, 3, 4], dtype="Int64"),
        b=pd.array([True, None, False, True], dtype="boolean"),
        c=pd.array(["u", None, "v", "u"], dtype="string"),
        d=pd.array(["u", None, "v", "u"], dtype="string[pyarrow]"),
    )
    frame = SurvivalData(X, Y).frame
    assert [str(t) for t in frame.dtypes] == ["float64", "float64", "float64", "category", "category"]
    assert frame.isna().sum().tolist() == [0, 1, 1, 1, 1]


def test_numbers_of_another_byte_order_are_read():
    values = np.arange(8.0).reshape(4, 2)
    for X in (values.astype(">f8"), pd.DataFrame(values).astype(">f4")):
        np.testing.assert_array_equal(SurvivalData(X, Y).subset([2, 0]).frame, values[[2, 0]])


def test_zero_times_are_moved_and_said():
    with pytest.warns(
        DataWarning, match=r"2 events at time zero moved to 1\.5, half the smallest positive time"
    ) as caught:
        data = SurvivalData(features(), ([0, 3, 0, 8], [1, 0, 1, 0]))
    assert caught[0].filename == __file__
    assert data.time.tolist() == [1.5, 3.0, 1.5, 8.0]
    assert data.n_moved == 2
    assert "times 1.5 to 8 (2 moved from zero)" in data.describe()
    assert data.subset([1, 2]).n_moved == 1


def test_measurement_as_text_is_refused_and_codes_are_not():
    n = 30
    y = (np.arange(1.0, n + 1), np.arange(n) % 2)
    values = pd.Series([f"{i},5" for i in range(n)])
    with pytest.raises(DataError, match=r"30 different numbers .* written as text, such as '0,5'; convert"):
        SurvivalData(pd.DataFrame({"c": values}), y)
    values.iloc[7] = "unknown"
    with pytest.raises(DataError, match=r"29 different.*but 'unknown' in 1 row \(0-based position 7\)"):
        SurvivalData(pd.DataFrame({"c": values}), y)
    with pytest.warns(DataWarning, match="column 'c' has 30 different values in 30 rows, as an identifier"):
        assert len(SurvivalData(pd.DataFrame({"c": values.astype("category")}), y)) == n
    assert len(SurvivalData(pd.DataFrame({"stage": ["1", "2", "3+"] * 10}), y)) == n


def test_rows_in_another_order_are_refused():
    X = features()
    y = pd.DataFrame({"time": Y[0], "event": Y[1]})
    with pytest.raises(DataError, match="X and y: the same row labels in a different order"):
        SurvivalData(X, y.sort_values("time"))
    with pytest.raises(DataError, match="time and event: the same row labels"):
        SurvivalData(X, (y["time"], y["event"].iloc[::-1]))
    shuffled = [2, 0, 3, 1]
    assert len(SurvivalData(X.iloc[shuffled], y.iloc[shuffled])) == 4
    assert len(SurvivalData(X.iloc[shuffled], y.iloc[shuffled].set_index(pd.Index(list("abcd"))))) == 4


def test_data_that_are_only_scored():
    X = features(empty=[None] * 4)
    assert SurvivalData(X, (Y[0], [0] * 4), require_events=False).n_events == 0
    assert len(SurvivalData(X.iloc[:1], ([3.0], [0]), require_events=False)) == 1
    with pytest.raises(DataError, match="no rows"):
        SurvivalData(X.iloc[:0], ([], []), require_events=False)


def test_subset():
    data = SurvivalData(features(grade=["II", "I", None, "II"]), Y, sample_weight=[1, 2, 3, 4])
    part = data.subset([3, 1, 1])
    assert part.frame.index.tolist() == [0, 1, 2]
    assert part.frame["age"].tolist() == [40.0, 60.0, 60.0]
    assert list(part.frame["grade"].cat.categories) == ["I", "II"]
    assert (part.time.tolist(), part.n_events, part.sample_weight.tolist()) == (
        [8.0, 3.0, 3.0],
        0,
        [4.0, 2.0, 2.0],
    )
    assert data.subset(data.event).time.tolist() == [5.0, 7.0]
    assert data.subset([-1]).time.tolist() == [8.0]


def test_from_frame():
    frame = features(id=list("abcd"), days=Y[0], dead=[2, 1, 2, 1])
    data = SurvivalData.from_frame(frame, "days", "dead", event_value=2, drop=["id"])
    assert data.feature_names == ["age"]
    assert data.n_events == 2
    assert SurvivalData.from_frame(frame, "days", "dead", event_value=2, drop="id").feature_names == ["age"]
