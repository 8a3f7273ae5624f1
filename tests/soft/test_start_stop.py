"""Subjects with several rows: likelihoods add up, folds and resamples keep them together."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    Penalties,
    PrognosticTree,
    Surv,
    SurvivalRegression,
    load_dataset,
)
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.groups.validation import resamples
from tests.flat import soft_tree


def cut(data: SurvivalData, seed: int) -> pd.DataFrame:
    """The same lives in up to four rows each, cut at random times, in any order; columns stay as they are."""
    rng, rows = np.random.default_rng(seed), []
    for k in range(len(data)):
        ends = np.r_[np.sort(rng.uniform(0, data.time[k], rng.integers(0, 4))), data.time[k]]
        for begin, end in zip(np.r_[0, ends[:-1]], ends, strict=True):
            rows.append((f"p{k}", begin, end, data.event[k] and end == ends[-1]))
    frame = pd.DataFrame(rows, columns=["id", "begin", "end", "event"])
    frame = frame.join(data.frame.loc[frame["id"].str[1:].astype(int)].reset_index(drop=True))
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def outcome(frame: pd.DataFrame) -> Surv:
    return Surv.of(frame, time="end", event="event", entry="begin", id="id")


def fit(tree: Any, frame: pd.DataFrame) -> Any:
    return tree.fit(frame, outcome(frame))


@pytest.mark.parametrize(
    ("leaf", "trainer"), [("weibull", "joint"), ("log_logistic", "nodec"), ("spline_po", "joint")]
)
def test_cutting_rows_changes_nothing(leaf: str, trainer: Any, gbsg2: SurvivalData) -> None:
    frame = cut(gbsg2, 0)
    settings: dict[str, Any] = {"depth": 0, "leaf": leaf, "numeric": "linear", "ridge": 0.0}
    settings["trainer"] = trainer
    whole = soft_tree(**settings).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    parts = fit(soft_tree(**settings), frame)
    times = [300.0, 2000.0]
    mine = parts.predict_survival_function(gbsg2.frame, times, after=0.0)
    np.testing.assert_allclose(mine, whole.predict_survival_function(gbsg2.frame, times), atol=1e-4)
    own = parts.log_likelihood(frame, outcome(frame)) * len(frame)
    # One tree, both ways of writing the same lives.
    total = whole.log_likelihood(gbsg2.frame, (gbsg2.time, gbsg2.event)) * len(gbsg2)
    cut_total = whole.log_likelihood(frame, outcome(frame)) * len(frame)
    assert cut_total == pytest.approx(total, abs=1e-8)
    assert own == pytest.approx(total, abs=1e-5)  # the optimum is that of the same likelihood


@pytest.mark.parametrize("model", [SurvivalRegression(), PrognosticTree(), OptimalSurvivalTree(2)])
def test_rows_that_go_on_with_equal_covariates_are_merged(model: Any, gbsg2: SurvivalData) -> None:
    """686 subjects in 1,780 rows: the tree lost its gate, S was off by .27."""
    frame = cut(gbsg2, 0).sort_values("end", kind="stable").reset_index(drop=True)
    whole = gbsg2.subset(np.argsort(gbsg2.time, kind="stable"))
    assert len(frame) > 2 * len(whole)
    alone = model.fit(whole.frame, (whole.time, whole.event))
    expected = alone.predict_survival_function(whole.frame, [900.0])
    parts = fit(model, frame)
    assert not parts.time_varying_
    np.testing.assert_allclose(parts.predict_survival_function(whole.frame, [900.0]), expected, atol=1e-9)


def test_rows_that_do_not_go_on_are_not_merged() -> None:
    """A gap, an event, another value, weight or group; missing values are equal."""
    begin, end = [0.0, 2, 0, 2, 0, 3, 0, 2, 0, 2, 0, 2], [2.0, 4, 2, 4, 2, 5, 2, 4, 2, 4, 2, 4]
    frame = pd.DataFrame({"x": [1, 1, np.nan, np.nan, 3, 3, 4, 5, 6, 6, 7, 7], "z": [0.0, 1] * 6})
    y = Surv(end, [0, 1] * 6, entry=begin, id=np.repeat(np.arange(6), 2), weight=[1] * 8 + [1, 2, 1, 1])
    data = SurvivalData(frame[["x"]], y, sensitive=list("aaaaaaaaaaab"))
    merged = data.joined()
    assert merged.entry.tolist() == [0, 0, 0, 3, 0, 2, 0, 2, 0, 2]
    assert merged.nominal_time.tolist() == [4, 4, 2, 5, 2, 4, 2, 4, 2, 4]
    assert merged.event.sum() == 6
    assert len(SurvivalData(frame, y).joined()) == 12


def test_subjects_are_drawn_as_a_whole(gbsg2: SurvivalData) -> None:
    frame = cut(gbsg2.subset(np.arange(120)), 1).assign(later=lambda rows: rows["begin"] > 0)
    data = SurvivalData(frame, outcome(frame))
    assert data.subject is not None
    assert "of 120 subjects" in data.describe()
    draws = resamples(data, 3, 0)[1]
    counts = pd.DataFrame(draws.T).groupby(data.subject)
    assert (counts.nunique() == 1).all(axis=None)
    assert counts.first().sum().tolist() == [120, 120, 120]
    # Subjects keep their order and are numbered anew.
    some = data.subset(data.subject > 60)
    assert some.subject is not None
    assert sorted(set(some.subject.tolist())) == list(range(59))


LIVES = pd.DataFrame(
    {
        "id": ["a", "a", "b", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
        "begin": [0.0, 2, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
        "end": [2.0, 5, 5, 9, 4, 3, 6, 7, 8, 9, 10, 11],
        "event": [0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1],
        "x": [1.0, 2, 1, 3, 2, 1, 5, 2, 4, 1, 2, 3],
    }
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"begin": {1: 1.0}}, r"2 rows \(0-based positions 0, 1\) of id 'a' overlap"),
        ({"begin": {0: 2.0}}, "entry column 'begin' is not before the time in 1 row"),
        ({"begin": {0: 3.0}}, "entry column 'begin' is not before the time in 1 row"),
        ({"begin": {1: -1.0}}, "negative, missing or infinite"),
        ({"begin": {1: np.nan}}, "negative, missing or infinite"),
        (
            {"event": {0: 1}},
            r"positions 0, 1\) of id 'a': a row comes after an event.*recurrent events are not",
        ),
        ({"id": {4: None}}, r"id column 'id' is missing in 1 row \(0-based position 4\)"),
    ],
)
def test_lives_that_cannot_be(changes: dict[str, dict[int, Any]], message: str) -> None:
    frame = LIVES.copy()
    for name, cells in changes.items():
        for row, value in cells.items():
            frame.loc[row, name] = value
    with pytest.raises(DataError, match=message):
        fit(SurvivalRegression(), frame)


@pytest.mark.filterwarnings("ignore:'late' separates")
def test_first_visits_without_events_leave_the_fit_to_the_second_ones() -> None:
    """Rows of first and second visits alternate: a sample of every second row would be first visits only."""
    data = load_dataset("gbsg2")
    both = np.repeat(np.arange(len(data)), 2)
    late = np.arange(len(both)) % 2
    begin, end = late * data.time[both] / 2, (1 + late) * data.time[both] / 2
    frame = data.frame.loc[both, ["age", "pnodes"]].reset_index(drop=True)
    y = Surv(end, data.event[both] & (late == 1), entry=begin, id=both)
    settings = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}
    fit = SurvivalRegression("exponential", **settings).fit(frame.assign(late=late), y)
    second = SurvivalRegression("exponential", **settings).fit(frame[late == 1], y[late == 1])
    terms = ["age", "pnodes"]
    np.testing.assert_allclose(
        fit.coefficients().loc[terms, "estimate"], second.coefficients().loc[terms, "estimate"], atol=1e-5
    )
