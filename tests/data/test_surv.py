"""Surv: one outcome with a type, split by rows by the tools of scikit-learn."""

import copy
import pickle
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sstorch import Columns, Surv, SurvivalData, SurvivalRegression
from sstorch.data import as_surv, outcome_of
from sstorch.data.surv import OutcomeType
from sstorch.exceptions import DataError

TIME, EVENT = [5.0, 3.0, 8.0, 2.0], [1, 0, 1, 1]
COUNTING = Surv([2, 7, 4, 9], [0, 1, 0, 1], entry=[0, 2, 0, 4], id=["a", "a", "b", "b"])
COMPETING = Surv(TIME, [1, 0, 2, 1], causes=("relapse", "death"))
INTERVAL = Surv.interval([0, 2, 3, 5], [4, 2, 7, np.inf])


def rows(n: int = 120) -> tuple[pd.DataFrame, Surv]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=n)
    time = rng.exponential(np.exp(-x)) + 0.01
    return pd.DataFrame({"x": x, "z": rng.normal(size=n)}), Surv(time, rng.random(n) < 0.7)


def assert_same(one: Surv, two: Surv) -> None:
    assert one.type == two.type
    assert repr(one) == repr(two)
    for name in ("time", "event", "entry", "id", "cause", "weight"):
        mine, other = getattr(one, name), getattr(two, name)
        assert (mine is None) == (other is None), name
        if mine is not None:
            assert np.array_equal(mine, other), name


# ---------------------------------------------------------------------- types and parts


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (Surv(TIME, EVENT), "right"),
        (Surv(TIME, EVENT, entry=[0, 0, 0, 0]), "counting"),
        (Surv(TIME, EVENT, id=[1, 2, 3, 4]), "counting"),
        (INTERVAL, "interval"),
        (COMPETING, "competing"),
        (Surv(TIME, [1, 0, 2, 1], entry=[0, 1, 0, 0], causes="auto"), "competing counting"),
    ],
)
def test_type_follows_from_the_parts(y: Surv, kind: str) -> None:
    assert y.type == kind
    assert y.outcome_type.name == kind
    assert y[1:3].type == kind


def test_a_cause_that_no_row_has_is_kept_and_refused_only_by_training() -> None:
    y = Surv(TIME, [1, 0, 1, 1], causes=("relapse", "death"))
    assert y.causes == ("relapse", "death")
    X = np.arange(4.0)[:, None] % 3
    with pytest.raises(DataError, match="event of each cause, got none of 'death': give more rows"):
        SurvivalData(X, y)


def test_it_cannot_be_changed() -> None:
    y = Surv(TIME, EVENT)
    with pytest.raises(AttributeError, match="time"):
        y.time = np.zeros(4)
    with pytest.raises(AttributeError, match="event"):
        del y.event
    with pytest.raises(ValueError, match="read-only"):
        y.time[0] = 1.0  # type: ignore[index]
    given = np.array(TIME)
    y = Surv(given, np.array(EVENT, dtype=bool))
    given[0] = 99.0
    assert y.time[0] == 5.0  # type: ignore[index]


# ---------------------------------------------------------------------- columns of a frame

FRAME = pd.DataFrame(
    {
        "age": [61, 54, 70, 48],
        "days": TIME,
        "died": EVENT,
        "start": [0, 1, 0, 0],
        "who": list("abcd"),
        "w": 2.0,
    }
)


def test_of_a_frame_is_the_same_as_of_its_columns() -> None:
    y = Surv.of(FRAME, time="days", event="died", entry="start", id="who", weight="w")
    assert_same(y, Surv(TIME, EVENT, entry=[0, 1, 0, 0], id=list("abcd"), weight=[2.0] * 4))
    assert y.source is not None
    names = {role: column.name for role, column in y.source.items()}
    assert names == {"time": "days", "event": "died", "entry": "start", "id": "who", "weight": "w"}


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("y", [Surv(TIME, EVENT, weight=[1, 2, 3, 4]), COUNTING, COMPETING, INTERVAL])
@pytest.mark.parametrize(
    "rows_of",
    [slice(1, 3), [1, 2], np.array([1, 2]), np.array([False, True, True, False]), (np.array([1, 2]), ...)],
)
def test_rows_by_slice_mask_and_positions(y: Surv, rows_of: Any) -> None:
    part = y[rows_of]
    assert len(part) == 2
    assert part.shape == (2,)
    assert_same(part, y[1:3])
    for name in ("time", "event", "entry", "id", "cause", "weight"):
        whole: npt.NDArray[Any] | None = getattr(y, name)
        if whole is not None:
            assert np.array_equal(getattr(part, name), whole[1:3])


def test_rows_that_do_not_exist_raise() -> None:
    with pytest.raises(IndexError):
        COUNTING[[7]]
    with pytest.raises(IndexError, match="rows alone"):
        COUNTING[0, 1]
    with pytest.raises(IndexError, match=r"indexed by .* got \(2, 2\)"):
        COUNTING[[[0, 1], [1, 2]]]
    assert len(COUNTING[[]]) == 0


def test_copies_and_pickles_are_the_same() -> None:
    for y in (COUNTING, COMPETING, INTERVAL):
        assert_same(pickle.loads(pickle.dumps(y)), y)
        assert_same(copy.deepcopy(y), y)


# ---------------------------------------------------------------------- text and other forms


def test_it_prints_as_r_does() -> None:
    assert repr(Surv(TIME, EVENT)) == "Surv([5, 3+, 8, 2], right, 3 events in 4 rows)"
    assert repr(COUNTING) == "Surv([(0, 2+], (2, 7], (0, 4+], (4, 9]], counting, 2 events in 4 rows)"
    assert repr(COMPETING) == "Surv([5:relapse, 3+, 8:death, 2:relapse], competing, 3 events in 4 rows)"
    assert repr(INTERVAL) == "Surv([4-, 2, (3, 7], 5+], interval, 3 events in 4 rows)"
    assert repr(Surv(np.arange(9.0))).startswith("Surv([0, 1, 2, 3, 4, 5, ...], right, 9 events")


def test_structured_arrays_there_and_back() -> None:
    y = Surv(TIME, EVENT)
    array = y.to_structured()
    assert array.dtype.names == ("event", "time")
    assert_same(as_surv(array), y)
    assert np.array_equal(np.asarray(y), array)
    with pytest.raises(DataError, match="cannot hold counting outcomes"):
        COUNTING.to_structured()


def test_other_forms_are_read_as_right_censored() -> None:
    expected = Surv(TIME, EVENT)
    frame = pd.DataFrame({"time": TIME, "event": EVENT})
    forms = [(TIME, EVENT), (pd.Series(TIME), np.array(EVENT, bool)), frame, expected]
    for form in forms:
        assert_same(as_surv(form), expected)


# ---------------------------------------------------------------------- tools of scikit-learn


@pytest.mark.nightly
def test_grid_search_pipeline_and_joblib_take_it() -> None:
    X, y = rows()
    pipeline = make_pipeline(StandardScaler(), SurvivalRegression(columns=Columns(numeric="linear")))
    search = GridSearchCV(
        pipeline, {"survivalregression__penalties__ridge": [1e-3, 1.0]}, cv=2, error_score="raise"
    )
    search.fit(X, y)
    assert search.best_params_.keys() == {"survivalregression__penalties__ridge"}
    fit = joblib.delayed(SurvivalRegression(columns=Columns(numeric="linear")).fit)
    (tree,) = joblib.Parallel(n_jobs=1)([fit(X, y)])
    assert tree.score(X, y) > 0.6


def test_train_test_split_keeps_the_parts_together() -> None:
    X = np.arange(4)
    _, X_test, train, test = train_test_split(X, COUNTING, test_size=2, random_state=0)
    assert_same(test, COUNTING[X_test])
    assert len(train) == 2


# ---------------------------------------------------------------------- a model keeps the type


def test_causes_come_in_the_order_of_the_model() -> None:
    class Model:
        outcome_type_ = OutcomeType("competing", causes=("death", "relapse"))

    assert outcome_of(Model(), COMPETING).cause.tolist() == [2, 0, 1, 2]  # type: ignore[union-attr]
    other = Surv(TIME, [1, 0, 2, 1], causes=("relapse", "cure"))
    with pytest.raises(DataError, match="'cure'; the model has death, relapse"):
        outcome_of(Model(), other)


# ---------------------------------------------------------------------- roles left among the features


def start_stop() -> tuple[pd.DataFrame, npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(3)
    subject = np.repeat(np.arange(30), 3)
    stop = (np.cumsum(rng.uniform(0.5, 2.0, (30, 3)), axis=1)).ravel()
    start = np.where(np.arange(90) % 3, np.roll(stop, 1), 0.0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "pid": subject, "start": start})
    return frame, stop, (np.arange(90) % 3 == 2) & (rng.random(90) < 0.8)


def test_a_column_that_identifies_subjects_raises() -> None:
    frame, stop, event = start_stop()
    X = frame[["x", "pid"]]
    with pytest.raises(DataError, match="'pid' of X identifies the subjects of start-stop rows; drop it"):
        SurvivalData(X, Surv(stop, event, entry=frame["start"], id=frame["pid"]))
    text, order = X.assign(pid=X["pid"].map("p{}".format)), np.random.default_rng(0).permutation(90)
    for given, id in ((text, text["pid"]), (X + 0.0, frame["pid"])):
        y = Surv(stop, event, entry=frame["start"], id=id)
        with pytest.raises(DataError, match="'pid' of X identifies the subjects"):
            SurvivalData(given.iloc[order], y[order])


def test_a_column_of_entry_times_raises() -> None:
    frame, stop, event = start_stop()
    with pytest.raises(DataError, match="'start' of X holds the entry times; drop it"):
        SurvivalData(frame[["x", "start"]], Surv(stop, event, entry=frame["start"], id=frame["pid"]))


def test_covariates_of_start_stop_rows_are_not_taken_for_subjects() -> None:
    frame, stop, event = start_stop()
    X = frame[["x"]].assign(sex=frame["pid"] % 2, one=1.0)
    assert len(SurvivalData(X, Surv(stop, event, entry=frame["start"], id=frame["pid"]))) == 90
    assert len(SurvivalData(X, Surv(stop, event, entry=frame["start"]))) == 90
    measured = X.assign(bmi=20 + frame["pid"] / 7)  # another one for each subject
    assert len(SurvivalData(measured, Surv(stop, event, entry=frame["start"]))) == 90
    assert len(SurvivalData(measured, Surv(stop, event, entry=frame["start"], id=frame["pid"]))) == 90
