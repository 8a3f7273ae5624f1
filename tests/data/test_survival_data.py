"""The one gate."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from sstorch import SurvivalRegression
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError, DataWarning

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


def test_given_data_are_left_alone():
    X = features(grade=["II", "I", None, "II"])
    before = X.copy(deep=True)
    data = SurvivalData(X, Y)
    data.frame.iloc[0, 0] = -1.0
    pd.testing.assert_frame_equal(X, before)


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


def test_zero_times_from_frame_are_said_at_the_call():
    with pytest.warns(DataWarning, match="1 event at time zero") as caught:
        SurvivalData.from_frame(features(time=[0, 3, 4, 8], event=[1, 0, 1, 0]))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ((Y[0], [0, 0, 0, 0]), "all 4 rows are censored: no event to learn from"),
        (([0, 0, 0, 0], Y[1]), "all times are zero"),
        ((Y[0][:3], Y[1][:3]), "X has 4 rows but y has 3"),
    ],
)
def test_refused_targets(y, match):
    with pytest.raises(DataError, match=match):
        SurvivalData(features(), y)


def test_no_row_and_one_row():
    with pytest.raises(DataError, match="no rows"):
        SurvivalData(features().iloc[:0], ([], []))
    with pytest.raises(DataError, match="one row; at least two"):
        SurvivalData(features().iloc[:1], ([3.0], [1]))


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ([1, np.inf, 2, -np.inf], r"column 'c' is infinite .* in 2 rows \(0-based positions 1, 3\)"),
        ([1, 1e200, 2, 3], "column 'c' is infinite or larger than 1e.100 in 1 row"),
        (pd.Series([1, 10**400, 2, 3], dtype=object), "column 'c' is infinite"),
        ([None] * 4, "column 'c' is missing in every row; drop it"),
        (pd.Categorical([None] * 4), "column 'c' is missing in every row"),
        (pd.to_datetime(["2020-01-01"] * 4), "column 'c' holds dates.*days"),
        (pd.period_range("2020-01", periods=4, freq="M"), "column 'c' holds dates"),
        (pd.to_timedelta([1, 2, 3, 4], unit="D"), "column 'c' holds time differences"),
        ([dt.date(2020, 1, 1)] * 3 + [None], "objects of type date in 3 rows.*number of days"),
        ([[1], [2], [3], [4]], "objects of type list in 4 rows"),
        (np.ones(4) * 1j, "complex numbers"),
        (
            [1, "unknown", 2, 3],
            r"mixes numbers with text: text such as 'unknown' in 1 row \(0-based position 1\)",
        ),
        (["a", "b", "c", 3], r"mixes numbers with text: numbers such as 3 in 1 row \(0-based position 3\)"),
        ([True, "yes", False, None], "mixes numbers with text"),
    ],
)
def test_refused_columns(column, match):
    with pytest.raises(DataError, match=match):
        SurvivalData(features(c=column), Y)


def test_measurement_as_text_is_refused_and_codes_are_not():
    n = 30
    y = (np.arange(1.0, n + 1), np.arange(n) % 2)
    values = pd.Series([f"{i},5" for i in range(n)])
    with pytest.raises(DataError, match=r"30 different numbers written as text, such as '0,5'; convert"):
        SurvivalData(pd.DataFrame({"c": values}), y)
    values.iloc[7] = "unknown"
    with pytest.raises(DataError, match=r"29 different.*but 'unknown' in 1 row \(0-based position 7\)"):
        SurvivalData(pd.DataFrame({"c": values}), y)
    with pytest.warns(DataWarning, match="column 'c' has 30 different values in 30 rows, as an identifier"):
        assert len(SurvivalData(pd.DataFrame({"c": values.astype("category")}), y)) == n
    assert len(SurvivalData(pd.DataFrame({"stage": ["1", "2", "3+"] * 10}), y)) == n


def test_refused_forms_of_x():
    with pytest.raises(DataError, match="duplicate column name 'a'"):
        SurvivalData(pd.DataFrame(np.ones((4, 3)), columns=["a", "b", "a"]), Y)
    with pytest.raises(DataError, match="duplicate column name '1'"):
        SurvivalData(pd.DataFrame(np.ones((4, 2)), columns=[1, "1"]), Y)
    with pytest.raises(DataError, match=r"shape \(4,\).*reshape"):
        SurvivalData(np.ones(4), Y)
    with pytest.raises(DataError, match="X is a list that is no array"):
        SurvivalData([[1], [2, 3], [3], [4]], Y)
    with pytest.raises(DataError, match="X is a tuple"):
        SurvivalData(Y, Y)
    pd.testing.assert_frame_equal(
        SurvivalData([[1], [2], [3], [4]], Y).frame, SurvivalData(np.arange(1, 5)[:, None], Y).frame
    )
    sparse = scipy.sparse.csr_array(np.eye(4))
    pd.testing.assert_frame_equal(SurvivalData(sparse, Y).frame, SurvivalData(np.eye(4), Y).frame)
    with pytest.raises(DataError, match="X has no columns"):
        SurvivalData(features()[[]], Y)


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


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ([1, 1, 1], r"sample_weight has shape \(3,\)"),
        ([1, -1, 1, 1], r"sample_weight is negative, missing or infinite in 1 row \(0-based position 1\)"),
        ([1, np.nan, 1, np.inf], "in 2 rows"),
        ([0, 0, 0, 0], "zero in every row"),
        ([0, 1, 0, 1], "every row with an event has sample_weight 0"),
        (["a", "b", "c", "d"], "sample_weight must be an array of numbers"),
    ],
)
def test_refused_weights(weight, match):
    with pytest.raises(DataError, match=match):
        SurvivalData(features(), Y, sample_weight=weight)


def test_rows_without_weight_tell_nothing_of_time():
    with pytest.raises(DataError, match="all times are 5: a model of time cannot be fitted"):
        SurvivalData(features(), ([5, 5, 5, 9], [1, 0, 1, 1]), sample_weight=[1, 1, 1, 0])


def test_weights():
    given = np.array([1.0, 0.0, 2.0, 0.5])
    data = SurvivalData(features(), Y, sample_weight=given)
    given[0] = 7
    assert data.sample_weight.tolist() == [1.0, 0.0, 2.0, 0.5]


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


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "no rows"),
        ([False] * 4, "no rows"),
        ([True] * 3, r"mask has shape \(3,\); the data have 4"),
        ([4], "row 4 does not exist; n = 4"),
        ([-5], "row -5 does not exist"),
        ([0.5], "positions or a boolean mask"),
        ([[0, 1]], "positions or a boolean mask"),
    ],
)
def test_refused_subsets(rows, match):
    data = SurvivalData(features(), Y)
    with pytest.raises(DataError, match=match):
        data.subset(rows)


def test_from_frame():
    frame = features(id=list("abcd"), days=Y[0], dead=[2, 1, 2, 1])
    data = SurvivalData.from_frame(frame, "days", "dead", event_value=2, drop=["id"])
    assert data.feature_names == ["age"]
    assert data.n_events == 2
    assert SurvivalData.from_frame(frame, "days", "dead", event_value=2, drop="id").feature_names == ["age"]


def test_from_frame_refusals():
    frame = features(time=Y[0], event=Y[1])
    with pytest.raises(
        DataError, match=r"no column 'Event'; the columns are 'age', 'time', 'event'.*mean 'event'"
    ):
        SurvivalData.from_frame(frame, event="Event")
    with pytest.raises(DataError, match="no column 'id'"):
        SurvivalData.from_frame(frame, drop=["id"])
    with pytest.raises(DataError, match="no feature column is left"):
        SurvivalData.from_frame(frame, drop=["age"])
    with pytest.raises(DataError, match="duplicate column name 'age'"):
        SurvivalData.from_frame(frame.set_axis(["age", "time", "age"], axis=1))
    with pytest.raises(ConfigError, match="'time' is both the target and to be dropped"):
        SurvivalData.from_frame(frame, drop=["time"])


def test_na_of_r_gives_no_warning() -> None:
    signalling = np.array([0x7FF00000000007A2], dtype=np.uint64).view(np.float64)[0]
    draws = np.random.default_rng(3)
    values, outcome = draws.normal(60, 9, 60), (draws.integers(10, 2000, 60), draws.integers(0, 2, 60))
    values[::7] = signalling
    frame = pd.DataFrame({"age": values, "grade": draws.integers(0, 3, 60).astype(float)})
    tree = SurvivalRegression("weibull").fit(frame, outcome)  # warnings are errors
    quiet = frame.assign(age=np.where(np.isnan(values), np.nan, values))
    np.testing.assert_array_equal(
        tree.predict_survival_function(frame, [100.0]), tree.predict_survival_function(quiet, [100.0])
    )
