"""Subjects with several rows: likelihoods add up, resamples keep subjects, y has entry and id again."""

from collections.abc import Callable
from pathlib import Path
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
    plots,
    recalibrate,
)
from sstorch.data import SurvivalData
from sstorch.data.datasets import read_survset
from sstorch.deploy import export_calculator
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.groups.validation import resamples
from sstorch.reading import export_text
from sstorch.validation import group_table, model_card, validate_groups
from tests.flat import soft_tree
from tests.histories import halved


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


LIVES = {"id": list("aabbc"), "begin": [0.0, 2, 0, 5, 0], "end": [2.0, 5, 5, 9, 4], "event": [0, 1, 0, 0, 1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"begin": {1: 1.0}}, r"2 rows \(0-based positions 0, 1\) of id 'a' overlap"),
        ({"begin": {0: 2.0}}, "column 'begin' is not before the time in 1 row"),
        ({"begin": {1: -1.0}}, "'begin' is negative in 1 row"),
        ({"begin": {1: np.nan}}, "'begin' is missing in 1 row"),
        ({"event": {0: 1}}, r"positions 0, 1\) of id 'a': a row comes after an event.*recurrent events are"),
        ({"id": {4: None}}, r"id column 'id' is missing in 1 row \(0-based position 4\)"),
    ],
)
def test_histories_that_cannot_be_raise(changes: dict[str, dict[int, Any]], message: str) -> None:
    frame = pd.DataFrame(LIVES).assign(x=[1.0, 2, 1, 3, 2])
    for name, cells in changes.items():
        for row, value in cells.items():
            frame.loc[row, name] = value
    with pytest.raises(DataError, match=message):
        fit(SurvivalRegression(), frame)


@pytest.mark.filterwarnings("ignore:'late' separates")
def test_first_visits_without_events_leave_the_fit_to_the_second_ones(gbsg2: SurvivalData) -> None:
    """Rows of first and second visits alternate: a sample of every second row would be first visits only."""
    order = np.arange(2 * len(gbsg2)).reshape(2, -1).T.ravel()
    y, late = halved(gbsg2.y)[order], order // len(gbsg2)
    frame = gbsg2.frame.loc[order % len(gbsg2), ["age", "pnodes"]].reset_index(drop=True)
    settings = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}
    fit = SurvivalRegression("exponential", **settings).fit(frame.assign(late=late), y)
    second = SurvivalRegression("exponential", **settings).fit(frame[late == 1], y[late == 1])
    terms = ["age", "pnodes"]
    np.testing.assert_allclose(
        fit.coefficients().loc[terms, "estimate"], second.coefficients().loc[terms, "estimate"], atol=1e-5
    )


# ------------------------------------------------------------------ outcomes of a fitted tree

CONDITION = "from time zero if the covariates stay as in the row"


@pytest.fixture(scope="module")
def csl() -> tuple[pd.DataFrame, Surv]:
    """Cirrhosis of the liver: 2481 rows of 446 subjects, whose prothrombin was measured at visits."""
    pytest.importorskip("SurvSet", reason="the extra datasets is not installed")
    frame = read_survset("csl")
    y = Surv.of(frame, time="time2", event="event", entry="time", id="pid")
    return frame.drop(columns=["pid", "event", "time", "time2"]), y


@pytest.fixture(scope="module")
def tree(csl: tuple[pd.DataFrame, Surv]) -> PrognosticTree:
    return PrognosticTree(leaf="spline_ph", columns=Columns(numeric="spline")).fit(*csl)


CALLS: dict[str, Callable[[PrognosticTree, pd.DataFrame, object, Path], object]] = {
    "export_calculator": lambda tree, X, y, folder: export_calculator(tree, folder / "p.html", X, y, after=0),
    "recalibrate": lambda tree, X, y, folder: recalibrate(tree, X, y),
    "score": lambda tree, X, y, folder: tree.score(X, y),
    "plot_groups": lambda tree, X, y, folder: plots.plot_groups(tree, X, y),
    "validate_groups": lambda tree, X, y, folder: validate_groups(tree, X, y),
    "log_likelihood": lambda tree, X, y, folder: tree.log_likelihood(X, y),
}


@pytest.mark.parametrize("call", CALLS)
def test_outcome_without_entry_or_id_raises(
    call: str, tree: PrognosticTree, csl: tuple[pd.DataFrame, Surv], tmp_path: Path
) -> None:
    X, y = csl
    for given, message in (
        ((y.time, y.event), "y has no entry and no id, and the model was trained on counting data"),
        (Surv(y.time, y.event, entry=y.entry), "y has no id, and the model was trained on counting data"),
    ):
        with pytest.raises(DataError, match=message):
            CALLS[call](tree, X, given, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_texts_state_the_condition_or_have_no_survival(
    tree: PrognosticTree, csl: tuple[pd.DataFrame, Surv], tmp_path: Path
) -> None:
    X, _ = csl
    tree.save(tmp_path)
    for each in (tree, PrognosticTree.load(tmp_path)):
        assert f"predictions are {CONDITION}" in each.summary(details=True)
        assert str(each.explain(X.iloc[[0]])).endswith(f", {CONDITION}")
        for text in (each.describe(), export_text(each)):
            assert "median" not in text
            assert "S(" not in text
        html = each._repr_html_()
        assert f"predictions are {CONDITION}" in html
        card = model_card(each)
        assert "one row does not determine survival from time zero" in card
        assert "after=0" in card
        assert "median" not in card.split("## Groups")[1].split("## Limits")[0]


def test_competing_risks_of_start_stop_rows_ask_for_after(tmp_path: Path) -> None:
    data = load_dataset("mgus2").subset(np.arange(300))
    y, later = halved(data.y), data.frame.assign(age=data.frame["age"] + 1)
    X = pd.concat([data.frame, later], ignore_index=True)
    tree = PrognosticTree(depth=1, leaf="weibull", columns=Columns(numeric="linear")).fit(X, y)
    tree.save(tmp_path)
    times = [50.0, 100.0]
    for each in (tree, PrognosticTree.load(tmp_path)):
        assert each.time_varying_
        for predict in (each.predict_cumulative_incidence, each.predict_survival_function):
            with pytest.raises(ConfigError, match="one row does not determine survival from time zero"):
                predict(X[:3], times)
        found = each.predict_cumulative_incidence(X[:3], times, after=0.0)
        survival = each.predict_survival_function(X[:3], times, after=0.0)
        np.testing.assert_allclose(found.sum(axis=1) + survival, 1, atol=1e-9)
        assert CONDITION in each.summary(details=True)
        assert str(each.explain(X.iloc[[0]])).endswith(CONDITION)
        assert group_table(each, X, y).shape[0] > 0
        with pytest.raises(DataError, match="y has no entry and no id"):
            group_table(each, X, Surv(y.time, y.cause, causes=y.causes))
    assert plots.plot_groups(tree, X, y)[0].get_ylabel().endswith("if the covariates stay as in the row")


def test_time_before_the_first_entry_is_named() -> None:
    """Ages from 60 on: a Weibull regression predicts deaths before, of which the rows have nothing."""
    rng = np.random.default_rng(0)
    entry = rng.uniform(60, 75, 200)
    X = pd.DataFrame({"x": rng.normal(size=200)})
    y = Surv(entry + rng.exponential(9, 200), [True] * 200, entry=entry)
    with pytest.warns(DataWarning, match=r"No row is at risk before the first entry at 60.04 years"):
        model = SurvivalRegression("weibull", time_unit="years").fit(X, y)
    (text,) = model.late_fit_
    survival = model.predict_survival_function(X, [entry.min()]).mean()
    assert f"survival to it, {survival:.3f} on average" in text
    assert text in model.summary()
    entry[0] = 0.0
    assert not SurvivalRegression("weibull").fit(X, Surv(y.time, y.event, entry=entry)).late_fit_
