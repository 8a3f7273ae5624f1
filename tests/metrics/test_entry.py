"""Scores of left-truncated rows and from a landmark, compared with R (entry.R), lifelines and plain loops."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from lifelines.utils import median_survival_times

from sstorch import Columns, OptimalSurvivalTree, PrognosticTree, Surv, SurvivalData, SurvivalRegression
from sstorch.exceptions import DataError
from sstorch.metrics import (
    KaplanMeier,
    censoring_distribution,
    concordance_harrell,
    concordance_of_groups,
    evaluate,
)
from sstorch.metrics.grids import incidence_times
from sstorch.metrics.groups import median_follow_up
from tests.histories import halved

from .cohorts import concordance_by_loops, or_no_pair, scored, step_value

IN_R = json.loads((Path(__file__).parent / "entry_in_r.json").read_text())
EXACT = 1e-12


def late_rows(n, seed=2):
    """A feature, times and events, and entries of half of the rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    time = rng.exponential(np.exp(-x))
    entry = np.where(np.arange(n) % 2, 0.0, time * rng.uniform(0.1, 0.9, n))
    return x, time, rng.random(n) < 0.7, entry


@pytest.mark.parametrize("name", IN_R)
def test_r_gives_the_same(name):
    start, stop, event, risk = (np.array(IN_R[name][key]) for key in ("start", "stop", "event", "risk"))
    expected, weight = IN_R[name], 1.0 + np.arange(1, stop.size + 1) % 3
    y = Surv(stop, event, entry=start)
    for key, own in (("survival", None), ("weighted_survival", weight)):
        found = KaplanMeier.fit(y, sample_weight=own).at(expected["times"])
        np.testing.assert_allclose(found, expected[key], rtol=1e-12, err_msg=key)
    for key, options in (
        ("concordance", {}),
        ("weighted_concordance", {"sample_weight": weight}),
        ("truncated_concordance", {"tau": np.nextafter(np.median(stop), np.inf)}),
    ):
        found = concordance_harrell(y, risk, tied_time="censored_later", **options)
        assert found == pytest.approx(expected[key][0], abs=EXACT), key


@given(scored(), st.data(), st.sampled_from(["exclude", "censored_later", "all"]))
def test_pairs_were_at_risk_together(rows, data, tied_time):
    n = rows.time.size
    shares = data.draw(st.lists(st.sampled_from([0.0, 0.5, 0.9]), min_size=n, max_size=n))
    entry = np.where(rows.time > 0, np.floor(2 * rows.time * np.array(shares)) / 2, 0.0)
    weight = np.array(data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=n, max_size=n)))
    y = Surv(rows.time, rows.event, entry=entry)
    for given_weight, own in ((None, np.ones(n)), (weight, weight)):
        options = {"tied_time": tied_time, "sample_weight": given_weight}
        got = or_no_pair(concordance_harrell, y, rows.survival, rows.times, **options)
        together = lambda i, j, w=own: w[i] * w[j] * (entry[j] < rows.time[i] or entry[j] == 0)  # noqa: E731
        value_at = step_value(rows.survival, rows.times)
        expected = concordance_by_loops(*rows[:2], value_at, tied_time=tied_time, pair_weight=together)
        assert got == (expected if expected is None else pytest.approx(expected, abs=EXACT))


def test_censoring_with_entry_equals_lifelines_and_its_formula():
    rng = np.random.default_rng(1)
    entry, time = np.round(rng.exponential(size=200), 1), np.round(rng.exponential(2, size=200), 1)
    entry, time = entry[entry < time], time[entry < time]
    event = rng.random(time.size) < 0.6
    entry[:20] = 0.0  # no time takes all rows at risk, after which curves would stay at 0
    y = Surv(time, event, entry=entry)
    found = censoring_distribution(y, tied_events="at_risk")
    peer = KaplanMeierFitter().fit(time, ~event, entry=entry)
    np.testing.assert_allclose(found.values, peer.survival_function_at_times(found.times), atol=1e-10)
    # Where events come first among ties, they are at risk of censoring no more.
    found, factors = censoring_distribution(y), []
    for t in found.times:
        at_risk = ((entry < t) | (entry == 0)) & (time >= t) & ~((time == t) & event)
        factors.append(1 - ((time == t) & ~event).sum() / max(at_risk.sum(), 1))
    np.testing.assert_allclose(found.values, np.cumprod(factors), rtol=1e-12)


def test_concordance_of_groups_is_that_of_their_curves():
    x, time, event, entry = late_rows(120)
    group, weight = np.digitize(x, [-0.5, 0.5]), np.where(np.arange(120) % 3, 1.0, 2.0)
    half = np.arange(120) < 60
    group[-5:] = 9  # not there in training
    y = Surv(time, event, entry=entry, weight=weight)
    found = concordance_of_groups(y[~half], group[~half], train=(y[half], group[half]))
    times = np.unique(time[~half])
    curves = {g: KaplanMeier.fit(y[half & ((group == g) | (g == 9))]).at(times) for g in (0, 1, 2, 9)}
    expected = concordance_harrell(y[~half], np.array([curves[g] for g in group[~half]]), times)
    assert found == pytest.approx(expected, abs=EXACT)
    one = np.zeros(120)
    assert concordance_of_groups(y, one, train=(y, one)) == 0.5
    with pytest.raises(DataError, match="no two rows can be compared"):
        concordance_of_groups(([1, 2], [0, 0]), [0, 0], train=(y, one))


def test_evaluation_scores_what_supports_entry_and_names_it():
    x, time, event, entry = late_rows(80)
    frame, y = pd.DataFrame({"x": x}), Surv(time, event, entry=entry)
    data = SurvivalData(frame, y)
    tree = SurvivalRegression().fit(frame, y)
    table = evaluate(tree, data, data)
    known = {"c_harrell": tree.score(frame, y), "negative_log_likelihood": -tree.log_likelihood(frame, y)}
    assert table["value"].dropna().to_dict() == known
    assert table.drop(list(known))["reason"].str.contains("use 'c_harrell', 'negative_log").all()
    pd.testing.assert_frame_equal(evaluate(tree, (frame, y), (frame, y)), table)
    grid = np.unique(time)
    curves = tree.predict_survival_function(frame, grid), grid
    only = evaluate(curves, (frame, y), (frame, y), metrics=["c_harrell"])["value"]
    assert only.item() == known["c_harrell"]
    # Weights from training left-truncated rows are refused as well.
    with pytest.raises(DataError, match="c_uno: it takes every row as at risk from time zero"):
        evaluate(curves, data, (frame, (time, event)), metrics=["c_uno"])


def test_causes_are_compared_where_both_were_at_risk():
    x, time, event, entry = late_rows(150)
    y = Surv(time, np.where(event, 1 + (np.arange(150) % 2), 0), causes="auto", entry=entry)
    assert concordance_harrell(y, x, cause=2) == concordance_harrell(y.of_cause(2), x)
    tree, data = SurvivalRegression().fit(x[:, None], y), SurvivalData(x[:, None], y)
    table = evaluate(tree, data, data)
    known = {("1", "c_cause_specific"), ("2", "c_cause_specific"), ("all", "negative_log_likelihood")}
    assert set(table.index[table["value"].notna()]) == known
    tau = incidence_times(y)[-1]
    risk = tree.predict_cumulative_incidence(x[:, None], [tau])[:, 1, 0]
    options = {"cause": 2, "tau": np.nextafter(tau, np.inf), "tied_time": "censored_later"}
    assert table.loc[("2", "c_cause_specific"), "value"] == concordance_harrell(y, risk, **options)
    with pytest.raises(DataError, match=r"ibs of 1: it takes every row as at risk from time zero"):
        evaluate(tree, data, data, metrics=["ibs"])


@pytest.fixture(scope="module")
def truncated():
    """A tree, the frame, entries and outcome of its rows."""
    x, time, event, entry = late_rows(150)
    frame, y = pd.DataFrame({"x": x}), Surv(time, event, entry=entry)
    return PrognosticTree(depth=1, columns=Columns(numeric="linear")).fit(frame[:75], y[:75]), frame, y


def test_scores_from_a_landmark_are_those_of_rows_at_risk_there(truncated):
    (tree, frame, y), s = truncated, 0.2
    train, test = (frame[:75], y[:75]), (frame[75:], y[75:])
    found = evaluate(tree, train, test, after=s)
    assert found["value"].notna().all()

    def alive(part):
        rows = (part[1].entry <= s) & (part[1].time > s)
        return part[0][rows], (part[1].time[rows] - s, part[1].event[rows])

    from_there = SimpleNamespace(
        predict_survival_function=lambda X, times: tree.predict_survival_function(X, times, after=s)
    )
    names = found.index.drop("negative_log_likelihood")
    by_hand = evaluate(from_there, alive(train), alive(test), metrics=names)
    np.testing.assert_allclose(found.loc[names, "value"], by_hand["value"], rtol=1e-9)
    rows, (time, event) = alive(test)
    likelihood = tree.log_likelihood(rows, Surv(time + s, event, entry=np.full(len(rows), s)))
    assert found.loc["negative_log_likelihood", "value"] == pytest.approx(-likelihood, rel=1e-12)
    curves = tree.predict_survival_function(frame[75:], [s, 1.0]), [s, 1.0]
    with pytest.raises(DataError, match="after must be None where curves are given"):
        evaluate(curves, train, test, after=s)


def test_split_histories_are_followed_to_their_end(truncated):
    """The end of a start-stop row is no censoring: scores are those of the rows before they were split."""
    (tree, frame, whole), rng, s = truncated, np.random.default_rng(8), 0.2
    share, order = rng.uniform(0.1, 0.9, 150), rng.permutation(300)
    rows, halves = np.tile(np.arange(150), 2)[order], halved(whole, share)[order]
    expected = evaluate(tree, (frame, whole), (frame, whole), after=s)["value"]
    assert expected.notna().all()
    split = (frame.iloc[rows], halves)
    np.testing.assert_allclose(evaluate(tree, split, split, after=s)["value"], expected, rtol=1e-9)
    positions, later = halves.followed_from(s)
    by_subject = np.argsort(rows[positions])
    _, expected = whole.followed_from(s)
    np.testing.assert_allclose(later.time[by_subject], expected.time, rtol=1e-12)
    assert (later.event[by_subject] == expected.event).all()


def test_steps_are_where_they_were_before_the_landmark_was_subtracted():
    """Where t - s + s rounds to less than t, a curve that falls at t must not be read before."""
    time, s = np.random.default_rng(3).uniform(0.2, 4, 200), 2 / 3
    assert (time - s + s < time)[time > s].any()
    frame, event, later = pd.DataFrame({"x": np.arange(200) % 2}), np.ones(200, dtype=bool), time > s
    tree = OptimalSurvivalTree(max_depth=1, binarize="all").fit(frame, (time, event))
    grid = np.unique(time[later])
    curves = tree.predict_survival_function(frame[later], np.append(s, grid))
    left, names = (frame[later], (time[later] - s, event[later])), ["ibs_osst", "c_harrell"]
    expected = evaluate((curves[:, 1:] / curves[:, :1], grid - s), left, left, metrics=names)["value"]
    plain = SimpleNamespace(
        predict_survival_function=lambda X, times: tree.predict_survival_function(X, times)
    )
    for model in (tree, plain):
        rows = (frame, (time, event))
        found = evaluate(model, rows, rows, metrics=names, after=s)["value"]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


class Falls:
    """Survival .5 up to 2 and 0 from there on."""

    def predict_survival_function(self, X, times):
        return np.tile(np.where(np.asarray(times) < 2.0, 0.5, 0.0), (3, 1))


@pytest.mark.parametrize(
    ("after", "words"), [(3.0, "no row is at risk"), (-1.0, "after must be"), (2.0, "at after=2 is 0")]
)
def test_landmarks_without_rows_or_survival_raise(after, words):
    rows, later = (np.zeros((3, 1)), ([1.0, 2.0, 3.0], [1, 1, 0])), ([2.5, 3.0, 4.0], [1, 1, 0])
    with pytest.raises(DataError, match=words):
        evaluate(Falls(), rows, (rows[0], later), after=after)


class TwoCauses:
    """F_k = .4 (1 - exp(-rate_k t)), with the rates in two columns."""

    def predict_cumulative_incidence(self, X, times):
        return 0.4 * -np.expm1(-np.asarray(X)[:, :, None] * np.asarray(times))


def test_causes_from_a_landmark():
    rng, s, names = np.random.default_rng(9), 0.3, ["c_wolbers", "brier", "ibs", "c_cause_specific"]
    x, time, cause = rng.uniform(0.5, 2, (200, 2)), rng.exponential(size=200), rng.integers(0, 3, 200)
    whole, rows = Surv(time, cause, causes=("a", "b")), np.tile(np.arange(200), 2)
    found = evaluate(TwoCauses(), (x, whole), (x, whole), metrics=names, after=s)["value"]
    later = time > s
    left = Surv(time[later] - s, cause[later], causes=("a", "b"))
    times = incidence_times(left)
    incidence = TwoCauses().predict_cumulative_incidence(x[later], np.append(s, s + times))
    curves = (incidence[:, :, 1:] - incidence[:, :, :1]) / (1 - incidence[:, :, 0].sum(axis=1))[:, None, None]
    expected = evaluate((curves, times), (None, left), (None, left), metrics=names)["value"]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    split = x[rows], halved(whole, rng.uniform(0.1, 0.9, 200))
    halves = evaluate(TwoCauses(), split, split, metrics=names, after=s)["value"]
    np.testing.assert_allclose(halves, found, rtol=1e-9)


def test_rows_of_a_cluster_that_are_observed_side_by_side_end_one_by_one():
    _, time, event, _ = late_rows(150)
    found, fitter = median_follow_up((time, event)), KaplanMeierFitter().fit(time, ~event)
    assert median_follow_up(Surv(time, event, id=np.arange(150) // 2)).value == found.value
    limits = median_survival_times(fitter.confidence_interval_).iloc[0].tolist()
    assert list(found) == [fitter.median_survival_time_, *limits]
