"""Outcomes: the forms in which y is accepted, one object with a type, its rows, what a model keeps of it."""

import copy
import pickle
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sksurv.util import Surv as StructuredSurv

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    Penalties,
    Surv,
    SurvivalData,
    SurvivalRegression,
)
from sstorch.data.surv import OutcomeType, as_surv, outcome_of, recoded
from sstorch.data.target import parse_target
from sstorch.exceptions import DataError, DataWarning

TIME, EVENT = [5.0, 3.0, 0.0, 8.5], [True, False, True, False]
COUNTING = Surv([2, 7, 4, 9], [0, 1, 0, 1], entry=[0, 2, 0, 4], id=["a", "a", "b", "b"])
COMPETING = Surv([5, 3, 8, 2], [1, 0, 2, 1], causes=("relapse", "death"))
INTERVAL = Surv.interval([0, 2, 3, 5], pd.Series([4, 2, 7, np.inf], dtype=object))  # of object cells
X = np.array([[1.0], [4.0], [2.0], [8.0]])
REGRESSION = SurvivalRegression("weibull", Penalties(ridge=1e-3), Columns(numeric="linear"))


def assert_same(one: Surv, two: Surv) -> None:
    assert (repr(one), one.type, one.causes) == (repr(two), two.type, two.causes)
    for name in ("time", "cause", "entry", "id", "intervals", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


# ---------------------------------------------------------------------- forms of y


def fields(event: str, time: str = "<f8", names: tuple[str, str] = ("status", "months")) -> Any:
    return np.array(list(zip(EVENT, TIME, strict=True)), dtype=[(names[0], event), (names[1], time)])


FRAME = pd.DataFrame({"time": TIME, "event": EVENT})
FORMS: dict[str, Any] = {
    "lists": (TIME, EVENT),
    "arrays": (np.array(TIME), np.array(EVENT)),
    "small types, as pycox has them": (np.array(TIME, dtype=np.float32), np.array(EVENT, dtype=np.int8)),
    "series": (pd.Series(TIME, index=[9, 8, 7, 6]), pd.Series(EVENT, dtype="boolean")),
    "nullable": (pd.Series(TIME, dtype="Float64"), pd.Series([1, 0, 1, 0], dtype="Int64")),
    "objects": (pd.Series(TIME, dtype=object), pd.Series(EVENT, dtype=object)),
    "numbers": (TIME, [1.0, 0.0, 1.0, 0.0]),
    "frame": FRAME,
    "frame with more": FRAME.assign(other="x")[["event", "other", "time"]],
    "structured": fields("?"),
    "structured by name": fields("?", names=("time", "event")).view([("event", "?"), ("time", "<f8")]),
    "records": fields("?").view(np.recarray),
    "scikit-survival": StructuredSurv.from_arrays(EVENT, TIME, name_event="cens", name_time="months"),
    "narwhals series": tuple(nw.from_native(pl.Series(part), series_only=True) for part in (TIME, EVENT)),
    "narwhals polars": nw.from_native(pl.from_pandas(FRAME)),
    "narwhals pandas": nw.from_native(FRAME),
    "Surv": Surv(TIME, EVENT),
}


@pytest.mark.parametrize("form", FORMS)
def test_right_censored_forms_are_one_outcome(form: str) -> None:
    y = as_surv(FORMS[form])
    assert y.time is not None
    assert (y.time.dtype, y.time.tolist(), y.event.tolist()) == (np.float64, TIME, EVENT)
    again = y.to_structured()
    assert again.dtype.names == ("event", "time")
    np.testing.assert_array_equal(np.asarray(y), again)
    assert_same(as_surv(again), Surv(TIME, EVENT))


def test_a_result_shares_no_memory_with_what_was_given() -> None:
    given, events = np.array(TIME), np.array(EVENT)
    time, event = parse_target((given, events))
    time[0], event[0] = 99, not event[0]
    y = Surv(given, events)
    given[1] = 99.0
    assert y.time[:2].tolist() == TIME[:2]  # type: ignore[index]
    assert events.tolist() == EVENT


@pytest.mark.parametrize("kind", [object, "category", "string"])
def test_event_value_in_any_spelling_is_an_event(kind: Any) -> None:
    frame = pd.DataFrame({"time": [1, 2, 3], "state": pd.Series([" DEAD", "Dead ", "alive"], dtype=kind)})
    y = Surv.of(frame, time="time", event="state", event_value="dead")
    assert y.event.tolist() == [True, True, False]


CODES, TIMES = [0, 2, 1, 1, 0], [5.0, 3.0, 8.0, 2.0, 7.0]
WORDS = ["censored", "aspiration", "sepsis", "censored", "aspiration"]


@pytest.mark.parametrize(
    ("column", "causes", "names", "codes"),
    [
        (CODES, "auto", ("1", "2"), CODES),
        (np.array(CODES, dtype=float), {1: "relapse", 2: "death"}, ("relapse", "death"), CODES),
        (np.array(["Censored", "r", "d"])[CODES], "auto", ("d", "r"), [0, 1, 2, 2, 0]),
        (np.array(["alive", "r", "d"])[CODES], {"r": "R", "d": "D"}, ("R", "D"), CODES),
        (["Alive", "RELAPSE ", "death", "alive", "relapse"], {"relapse": "r", "Death": "d"}, ("r", "d"),
         [0, 1, 2, 0, 1]),
        (["0", "relapse", "death", "0", "relapse"], "auto", ("death", "relapse"), [0, 2, 1, 0, 2]),
        (pd.Categorical(["1", "0", "2", "0", "1"], ["1", "0", "2"], ordered=True), "auto", ("1", "2"),
         [1, 0, 2, 0, 1]),  # the first level was censored
    ],
)  # fmt: skip
def test_forms_of_causes(column: Any, causes: Any, names: tuple[str, ...], codes: list[int]) -> None:
    y = Surv(TIMES, column, causes=causes)
    assert (y.causes, y.cause.tolist(), y.time.tolist()) == (names, codes, TIMES)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(WORDS, dtype="category"),  # aspiration, the first level, was censored
        pd.Series([" Censored", "aspiration ", "Sepsis", "CENSORED", "Aspiration"], dtype="category"),
        pd.Series(WORDS, dtype="string"),
        pl.Series(WORDS, dtype=pl.Categorical),
        pl.Series(WORDS, dtype=pl.Enum(["sepsis", "censored", "aspiration"])),
        pa.chunked_array([pa.array(WORDS).dictionary_encode()]),
    ],
    ids=["category", "spellings", "string", "polars categories", "polars enum", "arrow"],
)
def test_the_word_censored_is_found_wherever_it_stands(column: object) -> None:
    y = Surv(TIMES, column, causes="auto")
    names = [None, *(name.lower() for name in y.causes or ())]
    assert [names[code] for code in y.cause] == [None, "aspiration", "sepsis", None, "aspiration"]


# ---------------------------------------------------------------------- type, text, rows


@pytest.mark.parametrize(
    ("y", "kind", "text"),
    [
        (Surv(TIME, EVENT), "right", "5, 3+, 0, 8.5+], right, 2 events"),
        (COUNTING, "counting", "(0, 2+], (2, 7], (0, 4+], (4, 9]], counting, 2 events"),
        (Surv(TIME, EVENT, id=[1, 2, 3, 4]), "counting", "5, 3+, 0, 8.5+], counting, 2 events"),
        (INTERVAL, "interval", "4-, 2, (3, 7], 5+], interval, 3 events"),
        (COMPETING, "competing", "5:relapse, 3+, 8:death, 2:relapse], competing, 3 events"),
        (Surv([5, 3, 8, 2], [1, 0, 2, 1], entry=[0, 1, 0, 0], causes="auto"), "competing counting",
         "(0, 5]:1, (1, 3+], (0, 8]:2, (0, 2]:1], competing counting, 3 events"),
    ],
)  # fmt: skip
def test_type_text_rows_and_copies(y: Surv, kind: str, text: str) -> None:
    assert (y.type, y.outcome_type.name, y[1:3].type) == (kind, kind, kind)
    assert repr(y) == f"Surv([{text} in 4 rows)"
    y = y.weighted([1, 2, 3, 4])
    for rows in (slice(1, 3), [1, 2], np.array([False, True, True, False]), (np.array([1, 2]), ...)):
        part = y[rows]
        assert part.shape == (2,)
        assert part.cause.tolist() == y.cause[1:3].tolist()
        assert part.weight.tolist() == [2, 3]  # type: ignore[union-attr]
        assert_same(part, y[1:3])
    for same in (pickle.loads(pickle.dumps(y)), copy.copy(y), copy.deepcopy(y)):
        assert_same(same, y)
        with pytest.raises(ValueError, match="read-only"):
            same.cause[0] = 9
    if kind != "right":
        with pytest.raises(DataError, match=f"cannot hold {kind} outcomes"):
            y.to_structured()


def test_rows_that_do_not_exist_raise_and_parts_cannot_be_changed() -> None:
    for rows, words in (([7], "out of bounds"), ((0, 1), "rows alone"), ([[0, 1], [1, 2]], r"got \(2, 2\)")):
        with pytest.raises(IndexError, match=words):
            COUNTING[rows]
    assert len(COUNTING[[]]) == 0
    with pytest.raises(AttributeError, match="time"):
        COUNTING.time = np.zeros(4)  # type: ignore[misc]


def test_causes_go_with_their_rows_and_come_in_the_order_of_a_model() -> None:
    data = SurvivalData(np.arange(10.0).reshape(5, 2) ** 2, Surv(TIMES, CODES, causes=("relapse", "death")))
    part = data.subset([1, 4])
    assert (part.cause.tolist(), part.cause_names) == ([2, 0], ("relapse", "death"))
    assert "3 events (60.0 %: 2 relapse, 1 death)" in data.describe()
    assert data.of_cause("death").event.tolist() == [False, True, False, False, False]
    assert data.of_cause(1).y.event.tolist() == [False, False, True, True, False]

    class Model:
        outcome_type_ = OutcomeType("competing", causes=("Death", "relapse"))

    assert outcome_of(Model(), COMPETING).cause.tolist() == [2, 0, 1, 2]
    with pytest.raises(DataError, match="'cure'; the model has Death, relapse"):
        outcome_of(Model(), Surv([5, 3, 8, 2], [1, 0, 2, 1], causes=("relapse", "cure")))
    with pytest.raises(DataError, match="the data have one event"):
        recoded(data.of_cause(1).y, ("a", "b"))


# ---------------------------------------------------------------------- intervals


def test_the_four_kinds_of_interval_rows() -> None:
    data = SurvivalData(X, INTERVAL)
    assert data.intervals is not None
    assert data.intervals.censored.tolist() == [True, False, True, False]
    assert data.event.tolist() == [True, True, True, False]
    assert data.nominal_time.tolist() == [2, 2, 5, 5]
    assert "3 events (75.0 %: 2 within intervals)" in data.describe()
    assert [part.tolist() for part in data.subset([2, 0]).y.intervals or ()] == [[3, 0], [7, 4]]
    exact = SurvivalData(X, Surv.interval([1, 2, 3, 5], [1, 2, np.inf, 5]))
    assert exact.intervals is None
    assert (exact.time.tolist(), exact.event.tolist()) == ([1, 2, 3, 5], [True, True, False, True])
    late = SurvivalData(X, Surv.interval(*INTERVAL.intervals, entry=[0, 1, 3, 0]))  # type: ignore[misc]
    assert late.entry.tolist() == [0, 1, 3, 0]


def test_zeros_are_moved_where_they_are_times() -> None:
    with pytest.warns(DataWarning, match="1 event at time zero moved to 1"):
        data = SurvivalData(X, Surv.interval([0, 2, 0, 5], [0, 2, 9, np.inf]))
    # The third is censored from the left.
    assert [part.tolist() for part in data.intervals or ()] == [[1, 2, 0, 5], [1, 2, 9, np.inf]]


@pytest.mark.filterwarnings("ignore:3 events in 4 rows")
def test_what_does_not_support_intervals_raises() -> None:
    tree = SurvivalRegression("exponential", penalties=Penalties(ridge=0.1)).fit(X, INTERVAL)
    for call in (
        lambda: SurvivalData(X, INTERVAL).time,
        lambda: INTERVAL.right_censored("plot"),
        lambda: INTERVAL.from_landmark(1.0),
        lambda: OptimalSurvivalTree().fit(X, INTERVAL),
        lambda: tree.score(X, INTERVAL),
    ):
        with pytest.raises(DataError, match="does not support interval-censored outcomes; use log_l"):
            call()


# ---------------------------------------------------------------------- columns of a frame


@pytest.fixture
def frame(small_data: SurvivalData) -> pd.DataFrame:
    columns = {"days": small_data.time, "died": small_data.event}
    return small_data.frame.assign(**columns, w=1.0 + small_data.event, start=0.25, who=np.arange(120))


ROLES = {"time": "days", "event": "died", "entry": "start", "weight": "w", "id": "who"}


def test_columns_are_the_parts_of_the_outcome(frame: pd.DataFrame) -> None:
    for given in (frame, pl.from_pandas(frame)):
        y = Surv.of(given, **ROLES)
        for part, name in ROLES.items():
            assert getattr(y, part).tolist() == frame[name].tolist()
        assert {role: column.name for role, column in (y.source or {}).items()} == ROLES


@pytest.mark.parametrize(
    "estimator", [REGRESSION, OptimalSurvivalTree(1), OptimalSurvivalTreeCV(1, n_folds=2)], ids=repr
)
def test_columns_of_the_outcome_are_no_features(estimator: Any, frame: pd.DataFrame) -> None:
    features = frame[["x0", "x1", "x2"]]
    expected = estimator.fit(features, (frame["days"], frame["died"])).predict(features)
    rows = frame.drop(columns=["w", "start", "who"])
    fitted = estimator.fit(rows, Surv.of(rows, time="days", event="died"))
    assert fitted.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(fitted.predict(frame), expected)
    with pytest.raises(DataError, match=r"give Surv\.of\(frame, time='days', event=\.\.\.\)"):
        estimator.fit(rows, "days")


@pytest.mark.parametrize("role", ["days", "died", "start", "w"])
def test_another_column_of_the_name_of_a_role_raises(frame: pd.DataFrame, role: str) -> None:
    # A feature called as the weights was dropped in silence; text called as the times ended in ValueError.
    y = Surv.of(frame, "days", "died", entry="start", weight="w")
    values = np.random.default_rng(0).normal(70, 10, len(frame))
    for other in (values, np.where(values > 70, "high", "low")):
        with pytest.raises(DataError, match=f"column {role!r} of X is not the column of the"):
            SurvivalData(frame[["x0"]].assign(**{role: other}), y)


def test_equal_columns_of_roles_are_dropped(frame: pd.DataFrame) -> None:
    words = frame.drop(columns=["died", "who"]).assign(state=np.where(frame["died"], "dead", "alive"))
    y = Surv.of(words, "days", "state", event_value="Dead", entry="start", weight="w")
    for X in (words, words.astype({"state": "category", "days": "float32"}), pl.from_pandas(words)):
        assert set(SurvivalData(X, y).feature_names) == {"x0", "x1", "x2"}
    assert set(SurvivalData(words.iloc[5:60], y[5:60]).feature_names) == {"x0", "x1", "x2"}


def test_subjects_and_entry_times_left_among_the_features_raise() -> None:
    rng = np.random.default_rng(3)
    stop = np.cumsum(rng.uniform(0.5, 2.0, (30, 3)), axis=1).ravel()
    start = np.where(np.arange(90) % 3, np.roll(stop, 1), 0.0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "pid": np.repeat(np.arange(30), 3), "start": start})
    event = (np.arange(90) % 3 == 2) & (rng.random(90) < 0.8)
    X, text, order = frame[["x", "pid"]], frame["pid"].map("p{}".format), rng.permutation(90)
    for given, id in ((X, frame["pid"]), (X.assign(pid=text), text), (X + 0.0, frame["pid"])):
        y = Surv(stop, event, entry=frame["start"], id=id)
        with pytest.raises(DataError, match="'pid' of X equals the subject in every row; drop it"):
            SurvivalData(given.iloc[order], y[order])
    with pytest.raises(DataError, match="'start' of X equals the entry time in every row; drop it"):
        SurvivalData(frame[["x", "start"]], Surv(stop, event, entry=frame["start"], id=frame["pid"]))
    fine = frame[["x"]].assign(sex=frame["pid"] % 2, one=1.0, bmi=20 + frame["pid"] / 7)
    for id in (None, frame["pid"]):
        assert len(SurvivalData(fine, Surv(stop, event, entry=frame["start"], id=id))) == 90


# ---------------------------------------------------------------------- tools and frames of others


@pytest.mark.parametrize("library", ["polars", "narwhals"])
def test_frames_of_other_libraries_are_fitted_and_predicted(library: str, small_data: SurvivalData) -> None:
    frame = small_data.frame.assign(arm=np.where(np.arange(len(small_data)) % 3, "drug", "control"))
    theirs: Any = pl.from_pandas(frame)
    theirs = nw.from_native(theirs) if library == "narwhals" else theirs
    ours = copy.deepcopy(REGRESSION).fit(frame, small_data.y)
    other = copy.deepcopy(REGRESSION).fit(theirs, small_data.y)
    np.testing.assert_allclose(other.predict(theirs), ours.predict(frame), rtol=1e-10)
    assert other.score(theirs, small_data.y) == pytest.approx(ours.score(frame, small_data.y))
