"""Subjects with several rows: likelihoods add up, folds and resamples keep them together, paths multiply."""

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
    PrognosticTreeCV,
    Surv,
    SurvivalRegression,
    load_dataset,
)
from sstorch.bench import cross_validate
from sstorch.bench.flat import soft_tree
from sstorch.data import SurvivalData, load_file, stratified_folds
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.soft import bootstrap_trees
from sstorch.validation import group_table, stability, validate_groups


def cut(data: SurvivalData, seed: int) -> pd.DataFrame:
    """The same lives in up to four rows each, cut at random times, in any order; columns stay as they are."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(len(data)):
        ends = np.r_[np.sort(rng.uniform(0, data.time[k], rng.integers(0, 4))), data.time[k]]
        for begin, end in zip(np.r_[0, ends[:-1]], ends, strict=True):
            rows.append(
                {"id": f"p{k}", "begin": begin, "end": end, "event": data.event[k] and end == ends[-1]}
            )
    frame = pd.DataFrame(rows)
    frame = frame.join(data.frame.loc[frame["id"].str[1:].astype(int)].reset_index(drop=True))
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def outcome(frame: pd.DataFrame, recurrent: bool = False) -> Surv:
    return Surv.of(frame, time="end", event="event", entry="begin", id="id", recurrent=recurrent)


def fit(tree: Any, frame: pd.DataFrame) -> Any:
    return tree.fit(frame, outcome(frame))


def test_split_rows_give_the_groups_of_whole_rows(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(np.arange(300))
    parts = cut(data, 3).assign(number=lambda rows: rows["id"].str[1:].astype(int))
    parts = parts.sort_values(["number", "begin"]).drop(columns="number").reset_index(drop=True)
    whole = data.frame, Surv(data.time, data.event, entry=np.zeros(300), id=np.arange(300))
    tree = PrognosticTree(depth=1, leaf="weibull", columns=Columns(numeric="linear"), gate_features=1).fit(
        *whole
    )
    one = validate_groups(tree, *whole, n_folds=3)
    other = validate_groups(tree, parts, outcome(parts), n_folds=3)
    for name in ("c_groups", "p_value", "ari", "n_groups"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), abs=1e-8), name
    table, again = group_table(tree, *whole), group_table(tree, parts, outcome(parts))
    pd.testing.assert_frame_equal(table, again)
    first, second = stability(tree, *whole, 2), stability(tree, parts, outcome(parts), 2)
    assert (second.ari, second.ari_of_tree) == pytest.approx((first.ari, first.ari_of_tree), abs=1e-12)
    assert len(second.moves) == len(parts)


def test_rows_are_joined_where_nothing_changes() -> None:
    frame = pd.DataFrame({"x": [1.0, 1.0, np.nan, np.nan, 2.0, 2.0, 2.0], "w": list("aaaabbb")})
    entry, time = np.array([0.0, 1, 2, 3, 0, 2, 5]), np.array([1.0, 2, 3, 4, 2, 4, 6])
    event, subject = np.array([0, 0, 0, 1, 0, 0, 1]), [1, 1, 1, 1, 2, 2, 2]
    shuffled = np.array([5, 2, 0, 6, 3, 1, 4])
    with pytest.warns(DataWarning, match="1 gap"):
        data = SurvivalData(
            frame.iloc[shuffled],
            Surv(time[shuffled], event[shuffled], entry=entry[shuffled], id=np.array(subject)[shuffled]),
            sample_weight=np.where(shuffled == 1, 2.0, 1.0),
        )
    joined = data.joined()
    # Subject 2 from 0 to 4 and, after a gap, from 5 to 6; subject 1's second row has another weight.
    rows = pd.DataFrame({"entry": joined.entry, "time": joined.time, "event": joined.event})
    assert rows.to_numpy().tolist() == [[0, 4, 0], [2, 4, 1], [0, 1, 0], [5, 6, 1], [1, 2, 0]]
    assert joined.subject is not None
    assert joined.subject.tolist() == [0, 1, 1, 0, 1]
    assert joined.frame["x"].fillna(9).tolist() == [2, 9, 1, 2, 1]


@pytest.mark.parametrize(
    ("leaf", "trainer"), [("weibull", "joint"), ("log_logistic", "nodec"), ("spline_po", "joint")]
)
def test_cutting_rows_changes_nothing(leaf: str, trainer: Any, gbsg2: SurvivalData) -> None:
    frame = cut(gbsg2, 0)
    settings: dict[str, Any] = {
        "depth": 0,
        "leaf": leaf,
        "trainer": trainer,
        "numeric": "linear",
        "ridge": 0.01,
    }
    whole = soft_tree(**settings).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    parts = fit(soft_tree(**settings), frame)
    assert parts.objective_ == pytest.approx(whole.objective_, abs=1e-10)
    times = [300.0, 2000.0]
    mine = parts.predict_survival_function(gbsg2.frame, times, after=0.0)
    np.testing.assert_allclose(mine, whole.predict_survival_function(gbsg2.frame, times), atol=1e-4)
    # One tree, both ways of writing the same lives.
    total = whole.log_likelihood(gbsg2.frame, (gbsg2.time, gbsg2.event)) * len(gbsg2)
    cut_total = whole.log_likelihood(frame, outcome(frame)) * len(frame)
    assert cut_total == pytest.approx(total, abs=1e-8)
    along = whole.predict_survival_function(frame, times, entry=frame["begin"], id=frame["id"], as_frame=True)
    expected = whole.predict_survival_function(gbsg2.frame, times)
    np.testing.assert_allclose(along.loc[[f"p{k}" for k in range(len(gbsg2))]], expected, atol=1e-12)


def test_a_path_is_the_product_of_its_rows(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree().fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    exact = OptimalSurvivalTree(2).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    path = gbsg2.frame.iloc[[0, 7, 300]].assign(pnodes=[1, 8, 20])
    begin, who = [0.0, 400.0, 100.0], ["a", "a", "b"]
    times = np.array([50.0, 100.0, 400.0, 900.0])
    for model in (tree, exact):

        def s(row: int, t: float, model: Any = model) -> float:
            return float(model.predict_survival_function(path[row : row + 1], t)[0, 0])

        a = [s(0, 50), s(0, 100), s(0, 400), s(0, 400) * s(1, 900) / s(1, 400)]
        b = [1, 1, s(2, 400) / s(2, 100), s(2, 900) / s(2, 100)]
        found = model.predict_survival_function(path, times, entry=begin, id=who)
        np.testing.assert_allclose(found, [a, b], atol=1e-12)
        hazard = model.predict_cumulative_hazard_function(path, times, entry=begin, id=who)
        if model is tree:
            np.testing.assert_allclose(hazard, -np.log(found), atol=1e-12)
        # Of those alive at 300, which is in another row than 300 + 600.
        left = model.predict_survival_function(path, [100.0, 600.0], entry=begin, id=who, after=300.0)
        expected = [[a[2] / s(0, 300), a[3] / s(0, 300)], [s(2, 400) / s(2, 300), s(2, 900) / s(2, 300)]]
        np.testing.assert_allclose(left, expected, atol=1e-12)


def test_persons_are_in_one_fold_and_drawn_as_a_whole(gbsg2: SurvivalData) -> None:
    frame = cut(gbsg2.subset(np.arange(120)), 1).assign(later=lambda rows: rows["begin"] > 0)
    data = SurvivalData(frame, outcome(frame))
    assert data.subject is not None
    assert "of 120 subjects" in data.describe()
    folds = stratified_folds(data.event, 4, 0, data.subject)
    assert pd.Series(folds).groupby(data.subject).nunique().max() == 1
    sizes = pd.Series(folds).groupby(data.subject).first().value_counts()
    assert sizes.max() - sizes.min() <= 2
    search = fit(PrognosticTreeCV({"one": SurvivalRegression()}, cv=3), frame)
    assert pd.Series(search.folds_).groupby(data.subject).nunique().max() == 1
    assert search.best_estimator_.time_varying_
    tree = SurvivalRegression()
    sample = bootstrap_trees(tree, frame, outcome(frame), 3)
    assert sample.draws is not None
    counts = pd.DataFrame(sample.draws.T).groupby(data.subject)
    assert (counts.nunique() == 1).all(axis=None)
    assert counts.first().sum().tolist() == [120, 120, 120]
    # Subjects keep their order and are numbered anew.
    some = data.subset(data.subject > 60)
    assert some.subject is not None
    assert sorted(set(some.subject.tolist())) == list(range(59))


def test_what_a_row_will_be_later_is_not_known(gbsg2: SurvivalData, tmp_path: Path) -> None:
    rows = gbsg2.subset(np.arange(150))
    frame = cut(rows, 2)
    assert not fit(SurvivalRegression(), frame).time_varying_  # nothing changes from row to row
    frame["later"] = frame["begin"] > 0
    rows.frame["later"] = False
    tree = fit(PrognosticTree(depth=1, columns=Columns(numeric="linear")), frame)
    tree.save(tmp_path)
    for each in (tree, PrognosticTree.load(tmp_path)):
        assert each.time_varying_
        for predict in (
            lambda each=each: each.predict_survival_function(rows.frame, [100.0]),
            lambda each=each: each.predict_quantile(rows.frame),
            lambda each=each: each.predict_rmst(rows.frame, 1000.0),
        ):
            with pytest.raises(ConfigError, match="time-varying covariates: one row does not"):
                predict()
        assert each.predict_quantile(rows.frame, after=0.0).shape == (150,)


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
        ({"event": {0: 1}}, r"positions 0, 1\) of id 'a': a row comes after an event"),
        ({"id": {4: None}}, r"id is missing in 1 row \(0-based position 4\)"),
    ],
)
def test_lives_that_cannot_be(changes: dict[str, dict[int, Any]], message: str) -> None:
    frame = LIVES.copy()
    for name, cells in changes.items():
        for row, value in cells.items():
            frame.loc[row, name] = value
    with pytest.raises(DataError, match=message):
        fit(SurvivalRegression(), frame)


@pytest.mark.filterwarnings("ignore:.*events")
def test_gaps_are_said_and_other_things_refused(tmp_path: Path) -> None:
    frame = LIVES.assign(begin=LIVES["begin"].where(LIVES.index != 1, 3.0))
    with pytest.warns(DataWarning, match="1 gap between rows of a subject, such as id 'a'"):
        tree = fit(SurvivalRegression(columns=Columns(numeric="linear")), frame)
    x = LIVES[["x"]]
    with pytest.raises(ConfigError, match="give both"):
        tree.predict_survival_function(x, 1.0, id=LIVES["id"])
    with pytest.raises(DataError, match="another row of the subject"):
        tree.predict_survival_function(x[:2], 1.0, entry=[0.0, 0.0], id=["a", "a"])
    with pytest.raises(DataError, match="id has 2 values"):
        Surv(LIVES["end"], LIVES["event"], entry=LIVES["begin"], id=["a", "b"])
    with pytest.raises(DataError, match="overlap"):
        tree.fit(x, Surv(LIVES["end"], LIVES["event"], id=LIVES["id"]))  # without entry
    with pytest.raises(ConfigError, match="column 'id' is named as entry and id"):
        Surv.of(LIVES, time="end", event="event", entry="id", id="id")
    file = tmp_path / "lives.csv"
    LIVES.to_csv(file, index=False)
    data = load_file(file, "end", "event", entry="begin", id="id")
    assert data.subject is not None
    assert data.feature_names == ["x"]
    assert data.subject.tolist() == [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    LIVES.assign(begin=0.0).to_csv(file, index=False)
    with pytest.raises(DataError, match=r"2 rows \(data rows 1, 2\) of id 'a'"):
        load_file(file, "end", "event", entry="begin", id="id")
    with pytest.raises(ConfigError, match="column 'end' is named as time and id"):
        load_file(file, "end", "event", id="end")


def test_cross_validation_joins_rows_too(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(np.arange(0, 686, 4))
    frame = cut(data, 3)
    order = frame["id"].unique()
    whole = data.subset([int(subject[1:]) for subject in order])  # subjects in the order in which they appear
    parts = SurvivalData(frame, outcome(frame))
    tree = SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear"))
    with pytest.warns(DataWarning, match="left-truncated rows"):
        cut_scores = cross_validate(tree, parts, 3).scores
    scores = cross_validate(tree, whole, 3).scores
    for name in ("objective", "c_harrell"):
        np.testing.assert_allclose(cut_scores[name], scores[name], atol=1e-9)


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
