"""Outcomes, features, weights, groups and rows that raise: the words that name column and rows."""

import datetime as dt
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from sstorch import Surv
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.surv import OutcomeType, as_surv, outcome_of
from sstorch.data.survival_data import parse_groups
from sstorch.data.target import parse_target
from sstorch.exceptions import ConfigError, DataError

TIME, EVENT = [5.0, 3.0, 7.0, 8.0], [1, 0, 1, 0]
Y = (TIME, EVENT)
NAMES = {1: "relapse", 2: "death"}
COMPETING = Surv(TIME, [1, 0, 2, 1], causes=("relapse", "death"))
FRAME = pd.DataFrame({"age": [50, 60, 70, 40], "sex": ["f", "m", "m", "f"]})
TABLE = FRAME.assign(days=TIME, died=EVENT)
X = FRAME[["age"]]
INF, Data = np.inf, SurvivalData


def read(**columns: Any) -> SurvivalData:
    return SurvivalData(X.assign(**columns), Y)


def structured(*types: str) -> np.ndarray:
    return np.zeros(4, dtype=[(f"f{k}", kind) for k, kind in enumerate(types)])


def of_times(time: Any, event: Any = EVENT) -> Any:
    return parse_target((time, event))


def of_events(event: Any) -> Any:
    return parse_target((TIME, event))


def of_causes(cause: Any, causes: Any = "auto") -> Any:
    return SurvivalData(np.arange(10.0).reshape(5, 2) ** 2, Surv([5, 3, 8, 2, 7], cause, causes=causes))


def of_model(trained: OutcomeType, y: Surv) -> Any:
    return outcome_of(SimpleNamespace(outcome_type_=trained), y)


def encode(frame: pd.DataFrame) -> Any:
    return Preprocessor(Schema.of(FRAME)).fit(FRAME).transform(frame)


FORMS = pd.DataFrame({"time": TIME, "event": EVENT})
CASES: dict[str, list[tuple[Callable[[], object], str]]] = {
    "forms of y": [
        (lambda: parse_target(np.zeros((4, 2))), r"sstorch\.Surv\(time.*plain array of shape \(4, 2\)"),
        (lambda: as_surv((TIME, EVENT, TIME)), "must be sstorch.Surv.*tuple of length 3"),
        (lambda: parse_target(FORMS.rename(columns={"time": "Time"})), "no column 'time'.*mean 'Time'"),
        (lambda: parse_target(FORMS.set_axis(["time", "time"], axis=1)), "duplicate column name 'time'"),
        (lambda: parse_target(structured("<f8", "<f8")), "array with the fields 'f0' .float64."),
        (lambda: Surv.of(FRAME, time="dayz"), "no column 'dayz'"),
    ],
    "times": [
        (lambda: of_times(np.zeros((4, 1))), r"time is an array of shape \(4, 1\)"),
        (lambda: of_times(5.0, True), "time is a float"),
        (lambda: of_times(np.array(TIME), np.array(EVENT[:3], bool)), "4 times but 3 events"),
        (lambda: of_times(np.array([1, np.nan, 3, 4.0])), "missing in 1 row"),
        (lambda: of_times([1, INF, 3, 4]), "time is infinite .* in 1 row"),
        (lambda: of_times(pd.Series([1.5, 10**400, 3, 4], dtype=object)), r"time is infinite .*position 1"),
        (lambda: of_times([1.5, 10**400, 3, 4]), r"time is infinite .*position 1.; correct these"),
        (lambda: of_times([True, False], [1.0, 2.0]), "time is boolean.*swapped"),
        (lambda: of_times([1, np.nan, 3, None]), r"missing in 2 rows .*positions 1, 3.; correct"),
        (lambda: of_times([1, -2, -3, 4]), r"negative in 2 rows \(0-based positions 1, 2\)"),
        (lambda: of_times(list("1234")), "numbers written as text, such as '1', in 4 rows"),
        (lambda: of_times([1.0, "n/a", 3.0, 4.0]), "'n/a', which is not a number, .*position 1"),
        (lambda: of_times(pd.to_datetime(pd.Series(["2020-01-01"] * 4))), "time holds dates"),
        (lambda: of_times(pd.to_timedelta(pd.Series([1] * 4), unit="D")), "time differences.*dt.days"),
        (lambda: of_times(np.r_[1.0, -np.ones(9)], np.ones(10)), r"9 rows .*1, 2, 3, 4, 5, \.\.\.\)"),
        (lambda: of_times([0] * 4) and SurvivalData(X, ([0] * 4, EVENT)), "all times are zero"),
    ],
    "events": [
        (lambda: of_events([0, 1, np.nan, 1]), r"event is missing in 1 row \(0-based position 2\)"),
        (lambda: of_events(["dead", "alive"] * 2), "event holds 'dead', which is not a number.*event_value"),
        (lambda: of_events([1, 2, 1, 2]), "event is 2 in 2 rows.*never 0.*event_value=2"),
        (lambda: of_events([0, 1, 2, 0]), r"event is 2 in 1 row .*Surv\(time, cause, causes=\.\.\.\)"),
        (lambda: of_events([0, 1, 0.5, INF]), "event is 0.5 in 2 rows"),
        (lambda: Data(X, (TIME, [0] * 4)), "all 4 rows are censored: no event to learn from"),
    ],
    "entry, id": [
        (lambda: Surv(*Y, entry=[1.0, 2.0]), "entry has 2 rows"),
        (lambda: Surv(*Y, entry=[0, -1, np.nan, 0]), r"missing in 1 row .*2.; give 0 for no delay"),
        (lambda: Surv(*Y, entry=pd.Series([0, INF, 0, 0], dtype=object)), "entry is infinite .*position 1"),
        (lambda: Surv(*Y, entry=[6, 0, 0, 0]), "not before the time .*position 0.*never at risk"),
        (lambda: Surv(*Y, entry=pd.Series([0, 0, 0, 8], name="start")), "entry column 'start' is not before"),
        (lambda: Surv(*Y, id=[1, None, 2, 3]), "id is missing in 1 row"),
        (lambda: of_model(OutcomeType("counting", entry=True, id=True), Surv(*Y)), "no entry and no id"),
        (lambda: of_model(OutcomeType(), COMPETING), "trained on one event"),
        (lambda: of_model(COMPETING.outcome_type, Surv(*Y)), "trained on competing causes"),
    ],
    "intervals": [
        (lambda: Surv.interval([0, 5, 3, 5], [4, 2, 7, 6]), "lower is above upper .*position 1"),
        (lambda: Surv.interval([0, -1, 3, 5], [4, 2, 7, 6]), "lower is negative .*position 1"),
        (lambda: Surv.interval([0, -INF, 3, 5], [4, 2, 7, 6]), "lower is infinite .*position 1"),
        (lambda: Surv.interval([0, 1, 3, 5], [4, 2, np.nan, 6]), "upper is missing .*2.; a bound that is"),
        (lambda: Surv.interval([0, INF, 3, 5], [4, INF, 7, 6]), "lower is infinite .*position 1"),
        (lambda: Surv.interval([0, 1, 3], [4, 2, 7, 6]), "3 lower but 4 upper bounds"),
        (lambda: Surv.interval(list("a123"), [4, 2, 7, 6]), "'a', which is not a number, .*position 0"),
        (lambda: Surv.interval([0, 1, 3, 5], [INF, 2, 7, 1e200]), "upper is infinite or larger .*position 3"),
        (lambda: Surv.interval([0, 2, 3], [4, 2, 7], entry=[0, 0, 4]), "entry is after .*position 2"),
        (lambda: Data(X, Surv.interval(TIME, [INF] * 4)), "all 4 rows are censored"),
        (lambda: Data(X, Surv.interval([0, 1, 2, 2], [4, 3, 2, INF])), "all times are 2"),
        (lambda: Data(X, Surv.interval([0] * 4, TIME)), "got left-censored ones alone"),
    ],
    "causes": [
        (lambda: of_causes([True, False, True, True, False]), "boolean and names no cause"),
        (lambda: of_causes([0, 3, 1, 1, 0]), "got none of '2'.*codes of causes are consecutive"),
        (lambda: of_causes([0, 2.5, 1, 1, 0]), r"event is 2.5 in 1 row \(0-based position 1\)"),
        (lambda: of_causes([0, np.nan, 1, 1, 0]), "event is missing in 1 row"),
        (lambda: of_causes(list("abcaa")), "'a', 'b', 'c', of which none stands for 'censored'"),
        (lambda: of_causes([0, 2, 1, 3, 0], NAMES), "one value besides those named, .* got '0', '1'"),
        (lambda: of_causes([0, 2, 1, 1, 0], {1: "death", 2: "death"}), "have one name"),
        (lambda: of_causes([0] * 5), "has no cause"),
        (lambda: of_causes([0, 2, 1, 1, 0], "codes"), "causes must be 'auto'"),
        (lambda: of_causes([3, 1, 2, 3, 1], ("a", "b")), r"no value besides 1 \.\. 2 but 0"),
        (lambda: of_causes(["Alive", "R ", "d", "alive", "r"], ("r", "d")), r"causes=\{'R': 'R', 'd': 'd'\}"),
        (lambda: Surv([5, 3, 8], ["relapse", "none", "death"]), "'relapse'.*competing causes, give Surv"),
        (lambda: Surv(*Y, causes="auto", event_value=1), "leave event_value out"),
        (lambda: Data(X, COMPETING, sample_weight=[1, 1, 0, 1]), "cause 'death' has sample_weight 0"),
        (lambda: COMPETING.of_cause("infection"), r"'infection'; the causes are 1 \(relapse\), 2 \(death\)"),
        (lambda: Surv(*Y).of_cause(1), "the data have one event; for causes give Surv"),
    ],
    "rows of X and y": [
        (lambda: Data(X, (TIME[:3], EVENT[:3])), "X has 4 rows but y has 3"),
        (lambda: Data(X[:0], ([], [])), "no rows"),
        (lambda: Data(X[:1], ([3.0], [1])), "one row; at least two"),
        (lambda: Data(X, FORMS.sort_values("time")), "the same row labels in a different order"),
        (lambda: Data(np.arange(20.0)[:, None], (np.arange(20.0), np.ones(20))), "equals the follow-up"),
        (lambda: Data(TABLE[["age"]].assign(days=1.0), Surv.of(TABLE, "days")), "'days' of X is not the"),
        (lambda: Data(TABLE[["days"]], Surv.of(TABLE, "days")), "no feature column is left apart"),
        (lambda: Surv.of(TABLE, time="days", event="days"), "'days' is named as time and event"),
    ],
    "columns": [
        (lambda: read(c=[1, INF, 2, -INF]), r"column 'c' is infinite .* in 2 rows .*positions 1, 3"),
        (lambda: read(c=pd.Series([1, 10**400, 2, 3], dtype=object)), "column 'c' is infinite"),
        (lambda: read(c=[None] * 4), "column 'c' is missing in every row; drop it"),
        (lambda: read(c=pd.to_datetime(["2020-01-01"] * 4)), "column 'c' holds dates.*days"),
        (lambda: read(c=pd.to_timedelta([1, 2, 3, 4], unit="D")), "column 'c' holds .* time differences"),
        (lambda: read(c=[dt.date(2020, 1, 1)] * 3 + [None]), "type date in 3 rows.*number of days"),
        (lambda: read(c=[[1], [2], [3], [4]]), "objects of type list in 4 rows"),
        (lambda: read(c=np.ones(4) * 1j), "complex numbers"),
        (lambda: read(c=[1, "unknown", 2, 3]), "mixes .* text such as 'unknown' .*position 1"),
        (lambda: read(c=["a", "b", "c", 3]), "mixes .*: numbers such as 3 .*position 3"),
        (lambda: Data(np.ones(4), Y), r"shape \(4,\).*reshape"),
        (lambda: Data([[1], [2, 3], [3], [4]], Y), "X is a list that is no array"),
        (lambda: Data(Y, Y), "got tuple"),
        (lambda: Data(X[[]], Y), "X has no columns"),
        (lambda: Data(pd.DataFrame(np.ones((4, 2)), columns=[1, "1"]), Y), "duplicate column name '1'"),
        (lambda: Data(FRAME, Y).subset([]), "no rows"),
    ],
    "frames": [
        (lambda: Data.from_frame(TABLE, "days", "Died"), "no column 'Died'; .*mean 'died'"),
        (lambda: Data.from_frame(TABLE, "days", "died", drop=["id"]), "no column 'id'"),
        (lambda: Data.from_frame(TABLE, "days", "died", drop=["age", "sex"]), "no feature column is left"),
    ],
    "weights": [
        (lambda: Data(X, Y, sample_weight=[1, 1, 1]), r"sample_weight has shape \(3,\)"),
        (lambda: Data(X, Y, sample_weight=[1, -1, 1, INF]), r"in 2 rows .*positions 1, 3"),
        (lambda: Data(X, Y, sample_weight=[0] * 4), "zero in every row"),
        (lambda: Data(X, Y, sample_weight=[0, 1, 0, 1]), "row with an event has sample_weight 0"),
        (lambda: Data(X, Y, sample_weight=list("abcd")), "sample_weight must be an array of numbers"),
        (lambda: Data(X, Y, sample_weight=[1, 10**400, 1, 1]), "sample_weight must be .* too large"),
        (lambda: Data(X, ([5, 5, 5, 9], EVENT), sample_weight=[1, 1, 1, 0]), "all times are 5"),
        (lambda: Data(X, Surv(*Y, weight=[1] * 4), sample_weight=[1] * 4), "both have weights"),
    ],
    "groups": [
        (lambda: Data(X, Y, sensitive=["f", None, "m", None]), r"missing in 2 rows \(.*1, 3\); drop these"),
        (lambda: Data(X, Y, sensitive=["f"] * 4), "is f in every row; two groups"),
        (lambda: Data(X, Y, sensitive=["f", "m"]), "one label for each of 4 rows, got 2"),
        (lambda: Data(X, Y, sensitive="gender"), "no column 'gender'"),
        (lambda: Data(FRAME[["sex"]], Y, sensitive="sex"), "apart from the sensitive"),
        (lambda: Data(X, Y, sensitive=FRAME["sex"].iloc[::-1]), "different order"),
        (lambda: parse_groups(np.arange(21.0), 21, "age"), r"21 different values; .*pd\.cut"),
    ],
    "new rows": [
        (lambda: encode(FRAME.drop(columns="age")), "no column 'age'; the columns are 'sex'"),
        (lambda: encode(FRAME.assign(age=["20", "old", "3", "4"])), "'old'.*position 1.*in the schema"),
        (lambda: encode(FRAME.assign(age=[1, 2, INF, 3])), "column .age. is infinite"),
        (lambda: encode(FRAME.to_numpy()), "the columns have names; give a DataFrame with the columns 'age'"),
        (lambda: Preprocessor(Schema.of(np.eye(2))).fit(np.eye(3)), "X has 3 features"),
        (lambda: Preprocessor(Schema.of(FRAME)).fit(FRAME[:0]), "no rows to fit"),
        (lambda: Preprocessor(Schema.of(FRAME)).transform(FRAME), "call fit first"),
        (lambda: Schema.of(pd.DataFrame({"c": ["u", "v"], "c=u": [1, 2]})), "features are called 'c=u'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, k) for kind, each in CASES.items() for k in range(len(each))]
)
def test_what_cannot_be_read_raises(kind: str, number: int) -> None:
    call, words = CASES[kind][number]
    with pytest.raises((DataError, ConfigError, NotFittedError), match=words):
        call()
