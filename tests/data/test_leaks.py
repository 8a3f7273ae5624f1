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
from sstorch.data.oddities import _area, odd_columns
from sstorch.exceptions import DataError, DataWarning
from sstorch.groups.table import groups_without_events
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
    assert odd_columns(FRAME.assign(status=event.astype(float))[["status"]], TIME, event) == []


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


def test_a_column_that_is_half_missing_is_named() -> None:
    (text,) = told(FRAME.assign(half=np.where(np.arange(N) % 2, np.arange(N) ** 0.5, np.nan)))
    assert "'half' is missing in 50%" in text


def test_a_detection_limit_is_no_missing_value(tmp_path: Path) -> None:
    text = FRAME["size"].astype(str).astype(object)
    text.iloc[[3, 5]] = "<0.1"
    with pytest.raises(DataError, match=r"'size'.* but '<0.1' in 2 rows \(index labels p3, p5\); convert it"):
        SurvivalData(FRAME.assign(size=text), (TIME, EVENT))
    FRAME.assign(size=text, time=TIME, event=EVENT).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(DataError, match=r"'<0.1' in 2 rows \(data rows 4, 6\); write plain numbers"):
        load_file(tmp_path / "c.csv")
