"""The one gate: features, outcome, weights and sensitive groups of rows; their folds."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstorch import PrognosticTree, Surv
from sstorch.data import Schema, SurvivalData, folds_of, stratified_folds
from sstorch.exceptions import ConfigError, DataError, DataWarning

Y = ([5.0, 3.0, 7.0, 8.0], [1, 0, 1, 0])


def features(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": [50, 60, 70, 40], **columns})


def test_frame_and_attributes() -> None:
    X = features(grade=["II", "I", None, "II"], smoker=[True, False, True, False]).set_index(
        pd.Index(list("dbca"))
    )
    data = SurvivalData(X, Y)
    assert data.feature_names == ["age", "grade", "smoker"]
    assert data.frame.index.tolist() == [0, 1, 2, 3]
    assert data.frame["age"].dtype == np.float64
    assert data.frame["smoker"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert list(data.frame["grade"].cat.categories) == ["I", "II"]
    assert (data.time.tolist(), data.event.tolist()) == (Y[0], [True, False, True, False])
    assert (len(data), data.n_events, data.sample_weight.tolist()) == (4, 2, [1.0] * 4)
    assert repr(data) == (
        "SurvivalData(4 rows, 3 features (2 numeric, 1 categorical), 2 events (50.0 %), "
        "times 3 to 8, 8.3 % of cells missing)"
    )


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pd.Series([1, None, True, 2.5], dtype=object), "float64", [1.0, np.nan, 1.0, 2.5]),
        (pd.array([1, None, 3, 4], dtype="Int64"), "float64", [1.0, np.nan, 3.0, 4.0]),
        (pd.array([True, None, False, True], dtype="boolean"), "float64", [1.0, np.nan, 0.0, 1.0]),
        (np.arange(4.0).astype(">f4"), "float64", [0.0, 1.0, 2.0, 3.0]),
        (pd.array(["u", None, "v", "u"], dtype="string"), "category", ["u", np.nan, "v", "u"]),
        (pd.array(["u", None, "v", "u"], dtype="string[pyarrow]"), "category", ["u", np.nan, "v", "u"]),
    ],
)
def test_types_of_columns_are_read(values: Any, kind: str, expected: list[Any]) -> None:
    column = SurvivalData(features(x=values), Y).subset([0, 1, 2, 3]).frame["x"]
    assert str(column.dtype) == kind
    pd.testing.assert_series_equal(column.astype(object), pd.Series(expected, dtype=object, name="x"))


def test_zero_times_are_moved_and_said() -> None:
    with pytest.warns(DataWarning, match=r"2 events at time zero moved to 1\.5, half the smallest") as caught:
        data = SurvivalData(features(), ([0, 3, 0, 8], [1, 0, 1, 0]))
    assert caught[0].filename == __file__
    assert data.time.tolist() == [1.5, 3.0, 1.5, 8.0]
    assert data.subset([1, 2]).zero_time == 1.5
    with pytest.warns(match="1 event at time zero moved to 1, half the smallest positive time"):
        data = SurvivalData(features(), ([0.0, 0.0, 2.0, 4.0], [1, 0, 1, 0]))  # the second has no follow-up
    assert data.y.time.tolist() == [1.0, 0.0, 2.0, 4.0]  # type: ignore[union-attr]
    assert len(data.followed()) == 3


def test_measurements_as_text_raise_and_codes_do_not() -> None:
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
    for codes in ("{}A", "{}B"), ("{}-1", "{}-2"):
        wards = [code.format(i) for i in range(15) for code in codes * 2]
        data = SurvivalData(pd.DataFrame({"code": wards}), (np.arange(1.0, 61.0), np.arange(60) % 2))
        assert data.frame["code"].nunique() == 30


@pytest.mark.parametrize(
    "cell", ["{} mg", "{}%", "1.{:03d},5", "-{}e3", "{:02d}.01.2020", "2020-01-{:02d} 08:15"]
)
def test_numbers_and_dates_as_text_raise(cell: str) -> None:
    y = (np.arange(1.0, 31.0), np.arange(30) % 2)
    with pytest.raises(DataError, match="'c' holds 28 different numbers or dates"):
        SurvivalData(pd.DataFrame({"c": [cell.format(i) for i in (1, 2, *range(1, 29))]}), y)


def test_warnings_point_at_the_line_of_the_caller() -> None:
    time, patient = np.arange(1.0, 61.0), [f"p{i}" for i in range(60)]
    frame = pd.DataFrame({"patient": patient, "later": (np.arange(60) > 30).astype(float)})
    with warnings.catch_warnings(record=True) as caught:  # found before and after the fit
        warnings.simplefilter("always")
        PrognosticTree(1, teacher="residuals").fit(frame, (time, frame["later"]))
    assert len({str(warning.message)[:20] for warning in caught}) > 2
    assert {warning.filename for warning in caught} == {__file__}


def test_data_that_are_only_scored() -> None:
    X = features(empty=[None] * 4)
    assert SurvivalData(X, (Y[0], [0] * 4), require_events=False).n_events == 0
    assert len(SurvivalData(X.iloc[:1], ([3.0], [0]), require_events=False)) == 1
    with pytest.raises(DataError, match="no rows"):
        SurvivalData(X.iloc[:0], ([], []), require_events=False)


def test_subset_and_from_frame() -> None:
    frame = features(id=list("abcd"), days=Y[0], dead=[2, 1, 2, 1])
    for drop in (["id"], "id"):
        data = SurvivalData.from_frame(frame, "days", "dead", event_value=2, drop=drop)
        assert (data.feature_names, data.n_events) == (["age"], 2)
    values = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(SurvivalData(values, Y).subset([2, 0]).frame, values[[2, 0]])
    foreign = pd.DataFrame(values.astype(">f8")).assign(word="u")  # pandas sorts no other byte order
    np.testing.assert_array_equal(Schema.of(foreign).clean(foreign)[["0", "1"]], values)
    data = SurvivalData(features(grade=["II", "I", None, "II"]), Y, sample_weight=[1, 2, 3, 4])
    part = data.subset([3, 1, 1])
    assert part.frame.index.tolist() == [0, 1, 2]
    assert part.frame["age"].tolist() == [40.0, 60.0, 60.0]
    assert list(part.frame["grade"].cat.categories) == ["I", "II"]
    assert (part.time.tolist(), part.n_events, part.sample_weight.tolist()) == ([8, 3, 3], 0, [4, 2, 2])
    assert data.subset(data.event).time.tolist() == [5.0, 7.0]
    assert data.subset([-1]).time.tolist() == [8.0]


def test_sensitive_groups_of_a_column_or_of_values() -> None:
    X = features(sex=["f", "m", "m", "f"], old=[0, 0, 1, 0])
    data = SurvivalData(X, Y, sensitive="sex")
    assert data.feature_names == ["age", "old"]
    for found in (data, SurvivalData(X, Y, sensitive=X["sex"])):
        groups, part = found.groups, found.subset([1, 2]).groups
        assert (groups.name, groups.labels, groups.codes.tolist()) == ("sex", ("f", "m"), [0, 1, 1, 0])  # type: ignore[union-attr]
        assert (part.labels, part.counts.tolist()) == (("f", "m"), [0, 2])  # type: ignore[union-attr]
    assert SurvivalData(X, Y, sensitive=X["sex"]).feature_names == ["age", "sex", "old"]
    for values, labels in (([True, False, True, True], ("False", "True")), ("old", ("0", "1"))):
        assert SurvivalData(X, Y).with_sensitive(values).groups.labels == labels  # type: ignore[union-attr]


@given(
    n_events=st.integers(5, 40),
    n_censored=st.integers(0, 40),
    n_folds=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_folds_share_rows_and_events_evenly(n_events: int, n_censored: int, n_folds: int, seed: int) -> None:
    event = np.random.default_rng(seed).permutation(
        np.r_[np.ones(n_events, bool), np.zeros(n_censored, bool)]
    )
    fold = stratified_folds(event, n_folds, seed)
    assert fold.shape == event.shape
    for kind in (event, ~event):
        counts = np.bincount(fold[kind], minlength=n_folds)
        assert len(counts) == n_folds
        assert np.ptp(counts) <= 1
    np.testing.assert_array_equal(fold, stratified_folds(event.astype(int), n_folds, seed))


def test_folds_that_cannot_be_raise() -> None:
    with pytest.raises(DataError, match=r"3 events in 10 rows are too few for 5 folds.*choose fewer folds"):
        stratified_folds(np.arange(10) < 3, 5, 0)
    with pytest.raises(DataError, match="3 events in 5 subjects are too few"):
        stratified_folds(np.arange(10) < 6, 5, 0, subject=np.arange(10) // 2)
    with pytest.raises(DataError, match="0 events in 0 rows"):
        stratified_folds([], 2, 0)
    with pytest.raises(ConfigError, match="n_folds must be at least 2"):
        stratified_folds([1, 0, 1], 1, 0)


def test_subjects_with_causes_stay_together() -> None:
    subject, draws = np.repeat(np.arange(60), 2), np.random.default_rng(1)
    start, stop = np.tile([0.0, 1.0], 60), np.tile([1.0, 2.0], 60) + 0.01 * np.arange(120)
    cause = np.where(np.arange(120) % 2, draws.integers(0, 3, 120), 0)
    start[1::2] = stop[::2]
    y = Surv(stop, cause, entry=start, id=subject, causes=("a", "b"))
    folds = folds_of(SurvivalData(draws.normal(size=(120, 1)), y), 3, 0)
    assert (folds[::2] == folds[1::2]).all()
    for k in (1, 2):
        assert np.ptp(np.bincount(folds[cause == k], minlength=3)) <= 1
