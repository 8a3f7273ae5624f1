"""Warnings about training rows, with their rows and remedies, and none about ordinary columns."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import NelsonAalenFitter

from sstorch import OptimalSurvivalTree, PrognosticTree, Surv, SurvivalRegression
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.oddities import few_events, odd_columns
from sstorch.exceptions import DataWarning
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


def told(frame: pd.DataFrame) -> list[str]:
    """What is said of training rows."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        SurvivalData(frame, (TIME, EVENT))
    return [str(warning.message) for warning in said]


IDENTIFIER = "has a different whole number in every row, as an identifier has: leave it out"
AFTER = "known only afterwards: leave it out"
ODD: dict[str, tuple[Any, str]] = {
    "status": (2 * EVENT + 1, "separates rows with events from rows without"),
    "vital": (np.where(EVENT ^ (np.arange(N) == 7), "dead", "alive"), AFTER),
    "last_state": (np.where(EVENT, CAUSE, None), AFTER),
    "death_day": (np.where(EVENT, RNG.normal(size=N), np.nan), AFTER),
    "months": ((TIME / 30.4).round(2), "orders the rows as the follow-up time does"),
    "mostly": (np.where(np.arange(N) % 5 > 2, np.arange(N) ** 0.5, np.nan), "is missing in 60%"),
    "patient id": (np.arange(N), IDENTIFIER),
    "mrn": (RNG.choice(10**8, N, replace=False), IDENTIFIER),
    "many": ([f"c{k % 310}" for k in range(N)], "has 310 different values in 400 rows, as an identifier has"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_column_is_named_once(name: str) -> None:
    column, words = ODD[name]
    said = told(FRAME.assign(**{name: column}))
    (text,) = [text for text in said if "find out why" not in text or name == "mostly"]
    assert text.startswith(f"column {name!r} ")
    assert words in text


def test_ordinary_columns_are_not_named() -> None:
    draws = np.random.default_rng(0)
    time, event = draws.exponential(500, 500), draws.uniform(size=500) < 0.5
    risk = -np.log(time) + draws.normal(size=500)  # rank correlation about .7
    measured = pd.DataFrame(
        {
            "normal": draws.normal(size=500),
            "counts": draws.poisson(3, 500),
            "cells": (draws.lognormal(12, 0.5, 500) / 1000).round() * 1000,
            "year": draws.integers(1984, 2000, 500),
            "risk": risk,
            "mostly zero": np.where(draws.uniform(size=500) < 0.9, 0.0, draws.gamma(2, 50, 500)),
            "minus one": draws.choice([-1.0, 0.0, 1.0], 500),
        }
    ).astype(float)
    stage = np.where(risk > np.quantile(risk, 0.9), "IV", "I-III")
    words = {"stage": stage, "status": ["menopausal", "not"] * 250}
    assert told(FRAME) == []
    SurvivalData(measured.assign(**words), (time, event))  # a warning is an error here
    assert not odd_columns(measured.assign(one=1.0), time, event)
    few = np.arange(N) < 9  # rows of a kind say nothing
    assert odd_columns(FRAME.assign(status=few.astype(float))[["status"]], TIME, few) == []


@pytest.mark.parametrize("model", [nightly(PrognosticTree()), SurvivalRegression(), OptimalSurvivalTree(1)])
def test_fit_names_a_copied_status(model: PrognosticTree | SurvivalRegression | OptimalSurvivalTree) -> None:
    frame = FRAME.assign(event=EVENT.astype(int), status=1 + EVENT.astype(int), days=TIME)
    with pytest.warns(DataWarning) as said:
        model.fit(frame, Surv.of(frame, time="days", event="event"))
    text = "\n".join(str(warning.message) for warning in said)
    assert text.count("column 'status' separates rows with events") == 1
    assert "'event'" not in text  # the event itself is no feature
    n_named = text.count("has no event in")
    groups = pd.Series(EVENT).groupby(model.apply(frame.drop(columns=["event", "days"]))).agg(["size", "sum"])
    assert n_named == ((groups["sum"] == 0) & (groups["size"] > 50)).sum()
    assert n_named or isinstance(model, SurvivalRegression)


def test_expected_events_of_a_group_are_those_of_nelson_and_aalen() -> None:
    group = np.where(np.arange(N) % 3, 1, 2)
    event = EVENT & (group == 1)
    (text,) = groups_without_events(group, SurvivalData(FRAME, (TIME, event)))
    hazard = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(TIME, event).predict(TIME).to_numpy()
    assert f"{hazard[group == 2].sum():.0f}" == text.partition(":")[0].rpartition(" ")[2]
    assert text.startswith(f"group 2 has no event in {(group == 2).sum()} rows, where the hazard of ")


def test_few_events_count_the_columns_that_a_model_gets() -> None:
    frame = pd.DataFrame({"x": np.arange(30.0), "g": pd.Categorical(["a", "b", "c"] * 10, list("abcdefgh"))})
    event = np.arange(30) < 10
    assert not few_events(frame, event)  # 4 columns: categories without rows are none
    assert few_events(frame, event[::-1] & (np.arange(30) > 20))[0].startswith("9 events in 30 rows: ")


def test_values_far_outside_the_training_range() -> None:
    train = pd.DataFrame({"creatinine": [0.6, 1.0, 2.6], "constant": 1.0, "g": ["a", "b", "a"]})
    fitted = Preprocessor(Schema.of(train)).fit(train)
    fitted.warn_of_far_values(train.assign(creatinine=[4.5, np.nan, -1.3], constant=9.0))  # an error here
    with pytest.warns(DataWarning, match=r"'creatinine' is 88.4 in 2 rows .*positions 0, 2.* 0.6 to 2.6: "):
        fitted.warn_of_far_values(train.assign(creatinine=[88.4, 1.0, -2.0]))


def test_predictions_tell_of_far_values_and_scores_do_not(gbsg2: SurvivalData) -> None:
    tree = SurvivalRegression("weibull").fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    far = gbsg2.frame.assign(age=gbsg2.frame["age"].where(gbsg2.frame.index != 8, 999.0))
    for predict in (tree.predict, tree.apply, tree.predict_quantile, tree.predict_survival_function):
        with pytest.warns(DataWarning, match=r"'age' is 999 in 1 row \(0-based position 8\), far outside"):
            predict(far)
    assert tree.score(far, (gbsg2.time, gbsg2.event)) > 0.6  # warnings are errors here
