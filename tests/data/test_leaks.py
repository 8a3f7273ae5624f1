"""Columns that are known only with the outcome, and numbers that lie apart: named once, with their rows."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import NelsonAalenFitter
from sklearn.metrics import roc_auc_score

from sstorch import OptimalSurvivalTree, PrognosticTree, Surv, SurvivalRegression
from sstorch.data import SurvivalData, load_file
from sstorch.data.leaks import _area, leaks
from sstorch.data.strays import odd_values
from sstorch.exceptions import DataError, DataWarning
from sstorch.groups.without_events import groups_without_events
from tests.conftest import nightly

N = 400
RNG = np.random.default_rng(0)
TIME = RNG.exponential(400, N).round(1) + 1
EVENT = RNG.uniform(size=N) < 0.5
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(30, 85, N),
        "size": RNG.lognormal(3, 0.4, N).round(1),
        "sex": RNG.choice(["f", "m"], N),
    },
    index=[f"p{i}" for i in range(N)],
)
CAUSE = RNG.choice(["cancer", "heart", "other"], N)


def told(frame: pd.DataFrame, time: np.ndarray = TIME, event: np.ndarray = EVENT) -> list[str]:
    """What is said of training rows."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        SurvivalData(frame, (time, event))
    return [str(warning.message) for warning in said]


def altered(name: str, rows: object, value: object) -> pd.DataFrame:
    """The frame with other numbers in some rows of a column."""
    values = FRAME[name].to_numpy(dtype=float, copy=True)
    values[rows] = value if not callable(value) else value(values[rows])  # type: ignore[index]
    return FRAME.assign(**{name: values})


@pytest.mark.parametrize(
    ("name", "column", "words"),
    [
        ("status", 2 * EVENT + 1, "(area under the curve 1)"),
        ("dropout", EVENT.astype(int), "(area under the curve 1)"),
        ("vital", np.where(EVENT, "dead", "alive"), "known only afterwards: leave it out"),
        ("swapped", ~EVENT, "known only afterwards"),
        ("codes", np.where(EVENT, 1, RNG.choice([0, 2], N)), "known only afterwards"),
        ("last_state", np.where(EVENT, CAUSE, None), "known only afterwards"),
        ("death_day", np.where(EVENT, RNG.normal(size=N), np.nan), "known only afterwards"),
        # The name of an outcome, and values that are nearly those of the event.
        (
            "vital_status",
            np.where(EVENT ^ (np.arange(N) % 20 == 0), "dead", "alive"),
            "area under the curve 0.9",
        ),
        # Known of most events only.
        (
            "autopsy",
            np.where(EVENT & (np.arange(N) % 3 > 0), CAUSE, "none"),
            "'cancer' or 'heart' or 'other'",
        ),
        (
            "exit_form",
            np.where(EVENT & (np.arange(N) % 3 > 0), RNG.normal(size=N), np.nan),
            "is not missing in",
        ),
    ],
)
def test_a_column_that_tells_the_event_is_named_once(name: str, column: object, words: str) -> None:
    texts = [
        text for text in told(FRAME.assign(**{name: column})) if "missing in " not in text or "not" in text
    ]
    assert len(texts) == 1
    assert texts[0].startswith(f"column {name!r} ")
    assert words in texts[0]


def test_ordinary_columns_are_not_named() -> None:
    assert told(FRAME) == []
    hazard = np.exp(1.5 * RNG.normal(size=N))
    strong = pd.DataFrame(
        {
            "score": np.log(hazard),
            "stage": np.where(hazard > np.quantile(hazard, 0.9), "IV", "I-III"),
            "status": np.where(RNG.uniform(size=N) < 0.4, "menopausal", "not"),
        }
    )
    time = RNG.exponential(1 / hazard) * 500
    assert told(strong, np.minimum(time, 600) + 1, time < 600) == []


def test_the_area_is_that_of_scikit_learn() -> None:
    x = RNG.integers(0, 30, N).astype(float) + 5 * EVENT
    assert _area(pd.Series(x).rank().to_numpy(), EVENT) == pytest.approx(roc_auc_score(EVENT, x))


def test_few_rows_of_a_kind_say_nothing() -> None:
    event = np.arange(N) < 9
    assert leaks(FRAME.assign(status=event.astype(float))[["status"]], TIME, event) == []


@pytest.mark.parametrize("model", [nightly(PrognosticTree()), SurvivalRegression(), OptimalSurvivalTree(1)])
def test_fit_names_a_copied_status(model: PrognosticTree | SurvivalRegression | OptimalSurvivalTree) -> None:
    frame = FRAME.assign(event=EVENT.astype(int), status=1 + EVENT.astype(int), days=TIME)
    with pytest.warns(DataWarning) as said:
        model.fit(frame, Surv.of(frame, time="days", event="event"))
    texts = [str(warning.message) for warning in said]
    assert sum("column 'status' separates rows with events" in text for text in texts) == 1
    assert not any("'event'" in text for text in texts)  # the event itself is no feature
    n_named = sum("has no event in" in text for text in texts)
    groups = pd.Series(EVENT).groupby(model.apply(frame.drop(columns=["event", "days"]))).agg(["size", "sum"])
    assert n_named == ((groups["sum"] == 0) & (groups["size"] > 50)).sum()
    assert n_named or isinstance(model, SurvivalRegression)


def test_expected_events_of_a_group_are_those_of_nelson_and_aalen() -> None:
    group = np.where(np.arange(N) % 3, 1, 2)
    event = EVENT & (group == 1)
    (oddity,) = groups_without_events(group, SurvivalData(FRAME, (TIME, event)))
    hazard = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(TIME, event).predict(TIME).to_numpy()
    assert f"{hazard[group == 2].sum():.0f}" == oddity.text.rpartition(" ")[2]
    assert oddity.text.startswith(f"group 2 has no event in {(group == 2).sum()} rows, where the hazard of ")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (altered("size", [7], 1e12), "column 'size' is 1e+12 in 1 row (index label p7), and "),
        (altered("size", [7, 9], [-1e9, 1e9]), "is -1e+09, 1e+09 in 2 rows (index labels p7, p9)"),
        (
            altered("age", slice(20), lambda x: 12 * x),
            " in 20 rows (index labels p0, p1, p2, p3, p4, ...) and 30 to",
        ),
        (altered("age", slice(0, N, 3), lambda x: x / 100), "as with two units (ratio of medians "),
        (
            FRAME.assign(half=np.where(np.arange(N) % 2, np.arange(N) ** 0.5, np.nan)),
            "'half' is missing in 50%",
        ),
    ],
    ids=["a stray", "strays on both sides", "months among years", "two units", "half missing"],
)
def test_odd_numbers_are_named_with_their_labels(frame: pd.DataFrame, words: str) -> None:
    (text,) = told(frame)
    assert words in text


def test_rows_without_weight_are_not_named() -> None:
    frame, weight = altered("size", [7, 9], 1e12), np.ones(N)
    weight[[0, 9]] = 0.0
    with pytest.warns(DataWarning, match=r"is 1e\+12 in 1 row \(index label p7\)"):
        SurvivalData(frame, (TIME, EVENT), sample_weight=weight)
    weight[7] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SurvivalData(frame, (TIME, EVENT), sample_weight=weight)


def test_times_of_another_unit_are_named() -> None:
    time = np.minimum(TIME / 365.25, 9.5)
    time[3] = 3000.0
    (text,) = told(FRAME, time)
    assert text.startswith("the time is 3000 in 1 row (index label p3), and ")
    assert told(FRAME, TIME / 365.25) == []


def test_rows_that_stand_three_times_are_named() -> None:
    frame = pd.concat([FRAME] * 3)
    (text,) = told(frame, np.tile(TIME, 3), np.tile(EVENT, 3))
    assert text.startswith("every row stands 3 times in the data: ")
    rows = np.append(np.arange(N), [4, 4])
    (text,) = told(FRAME.iloc[rows], TIME[rows], EVENT[rows])
    assert text.startswith("2 rows (index labels p4, p4) repeat others in every column")


@pytest.mark.parametrize("kind", ["normal", "lognormal", "zeros", "counts", "rare", "t", "doses"])
def test_long_tails_are_not_called_odd(kind: str) -> None:
    rng = np.random.default_rng(3)
    draw = {
        "normal": lambda: rng.normal(size=300),
        "lognormal": lambda: rng.lognormal(0, 2, 300),
        "zeros": lambda: np.where(rng.uniform(size=300) < 0.98, 0.0, rng.lognormal(5, 2, 300)),
        "counts": lambda: rng.poisson(0.1, 300).astype(float),
        "rare": lambda: (rng.uniform(size=300) < 0.01).astype(float),
        "t": lambda: rng.standard_t(2, 300),
        "doses": lambda: rng.choice([1.0, 10.0, 100.0], 300),
    }[kind]
    assert [oddity for _ in range(300) for oddity in odd_values(draw(), "x")] == []


def test_a_detection_limit_is_no_missing_value(tmp_path: Path) -> None:
    text = FRAME["size"].astype(str).astype(object)
    text.iloc[[3, 5]] = "<0.1"
    words = (
        r"'<0.1' in 2 rows \({}\) is a detection limit, not a missing value: {}write the limit, 0.1, into "
        "these cells, or half of it, and mark them in a separate 0/1 column"
    )
    with pytest.raises(DataError, match=words.format("index labels p3, p5", "")):
        SurvivalData(FRAME.assign(size=text), (TIME, EVENT))
    FRAME.assign(size=text, time=TIME, event=EVENT).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(DataError, match=words.format("lines 5, 7", "give limits='indicator', or ")):
        load_file(tmp_path / "c.csv")
