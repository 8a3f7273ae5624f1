"""Scores of left-truncated rows, compared with R (entry.R), lifelines and plain loops."""

import itertools
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

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    PrognosticTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    load_dataset,
)
from sstorch.bench import cross_validate
from sstorch.exceptions import DataError, DataWarning
from sstorch.metrics import (
    KaplanMeier,
    censoring_distribution,
    concordance_harrell,
    concordance_of_groups,
    evaluate,
    group_scores,
)
from sstorch.metrics.grids import incidence_times
from sstorch.metrics.groups import median_follow_up
from tests.histories import halved

from .cohorts import scored
from .oracles import or_no_pair, step_value

IN_R = json.loads((Path(__file__).parent / "entry_in_r.json").read_text())
EXACT = 1e-12


def late(rows, data):
    """Times of entry: none, whole numbers or halves before the time of a row."""
    shares = data.draw(st.lists(st.sampled_from([0.0, 0.5, 0.9]), min_size=len(rows), max_size=len(rows)))
    return np.where(rows > 0, np.floor(2 * rows * np.array(shares)) / 2, 0.0)


def concordance_by_loops(rows, entry, weight, tied_time):
    value_at = step_value(rows.survival, rows.times)
    pairs = total = 0.0
    for i, j in itertools.permutations(range(rows.time.size), 2):
        t = rows.time[i]
        tie_counts = tied_time == "all" or (tied_time == "censored_later" and not rows.event[j])
        later = t < rows.time[j] or (t == rows.time[j] and tie_counts)
        if rows.event[i] and later and (entry[j] < t or entry[j] == 0.0):
            own, other = value_at(i, t), value_at(j, t)
            pairs += weight[i] * weight[j]
            total += weight[i] * weight[j] * (0.5 if own == other else own < other)
    return total / pairs if pairs else None


@pytest.mark.parametrize("name", IN_R)
def test_r_gives_the_same(name):
    start, stop, event, risk = (np.array(IN_R[name][key]) for key in ("start", "stop", "event", "risk"))
    expected, weight = IN_R[name], 1.0 + np.arange(1, stop.size + 1) % 3
    for key, own in (("survival", None), ("weighted_survival", weight)):
        km = KaplanMeier.fit(Surv(stop, event, entry=start), sample_weight=own)
        np.testing.assert_allclose(km.at(expected["times"]), expected[key], rtol=1e-12, err_msg=key)
    for key, options in (
        ("concordance", {}),
        ("weighted_concordance", {"sample_weight": weight}),
        ("truncated_concordance", {"tau": np.nextafter(np.median(stop), np.inf)}),
    ):
        found = concordance_harrell(
            Surv(stop, event, entry=start), risk, tied_time="censored_later", **options
        )
        assert found == pytest.approx(expected[key][0], abs=EXACT), key


@given(scored(), st.data(), st.sampled_from(["exclude", "censored_later", "all"]))
def test_pairs_were_at_risk_together(rows, data, tied_time):
    entry = late(rows.time, data)
    n = rows.time.size
    weight = np.array(data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=n, max_size=n)))
    for given_weight, own in ((None, np.ones(n)), (weight, weight)):
        options = {"tied_time": tied_time, "sample_weight": given_weight}
        y = Surv(rows.time, rows.event, entry=entry)
        got = or_no_pair(concordance_harrell, y, rows.survival, rows.times, **options)
        expected = concordance_by_loops(rows, entry, own, tied_time)
        assert got == (expected if expected is None else pytest.approx(expected, abs=EXACT))


def test_rows_split_at_events_of_others_leave_pairs_alike():
    """A subject whose row ends at an event of another and goes on survives it; these pairs were lost."""
    rng = np.random.default_rng(0)
    time, event, group = rng.integers(2, 9, 40), rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    grid = np.arange(1.0, 9.0)
    survival = np.exp(-rng.uniform(0.01, 0.3, 40).round(2)[:, None] * grid)
    whole = Surv(time, event, entry=np.zeros(40))
    cut = np.floor(rng.uniform(1, time))

    def scores(y, rows):
        ties, names = ("exclude", "censored_later", "all"), ("c_harrell", "c_harrell_ties")
        curves, groups, train = survival[rows], group[rows], (whole, group)
        scored = evaluate((curves, grid), (None, whole), (None, y), metrics=names)["value"]
        of_groups = group_scores(y, curves, grid, groups, tau=4.0, n_groups=2)["c_harrell"]
        return [
            *(concordance_harrell(y, curves, grid, tied_time=tied) for tied in ties),
            *(concordance_harrell(y, -curves[:, 0], tied_time=tied) for tied in ties),
            concordance_of_groups(y, groups, train=train),
            *scored,
            *of_groups,
        ]

    found = scores(halved(whole, cut / time), np.tile(np.arange(40), 2))
    assert found == pytest.approx(scores(whole, np.arange(40)), abs=EXACT)


def test_lifelines_gives_the_same_curves():
    rng = np.random.default_rng(1)
    entry, time = np.round(rng.exponential(size=200), 1), np.round(rng.exponential(2, size=200), 1)
    entry, time = entry[entry < time], time[entry < time]
    event = rng.random(time.size) < 0.6
    # Nobody can take all who are at risk early on: there curves end at 0.
    entry[:20] = 0.0
    for estimate, of in (
        (KaplanMeier.fit(Surv(time, event, entry=entry)), event),
        (censoring_distribution(Surv(time, event, entry=entry), tied_events="at_risk"), ~event),
    ):
        peer = KaplanMeierFitter().fit(time, of, entry=entry)
        np.testing.assert_allclose(
            estimate.values, peer.survival_function_at_times(estimate.times), atol=1e-10
        )
    # Where events come first among ties, they are at risk of censoring no more.
    g, sizes = 1.0, []
    found = censoring_distribution(Surv(time, event, entry=entry))
    for t in found.times:
        at_risk = ((entry < t) | (entry == 0)) & (time >= t) & ~((time == t) & event)
        g *= 1 - ((time == t) & ~event).sum() / max(at_risk.sum(), 1)
        sizes.append(g)
    np.testing.assert_allclose(found.values, sizes, rtol=1e-12)


def test_rows_that_were_never_at_risk_together_make_no_pair():
    with pytest.raises(DataError, match="at risk together"):
        concordance_harrell(Surv([1.0, 2.0], [1, 1], entry=[0.0, 1.0]), [2.0, 1.0], sample_weight=[0.1, 0.7])


def _late_rows(n: int, seed: int = 2):
    """Rows with a feature, their times and events, and entries of half of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    time = rng.exponential(np.exp(-x))
    entry = np.where(np.arange(n) % 2, 0.0, time * rng.uniform(0.1, 0.9, n))
    return x, time, rng.random(n) < 0.7, entry


def test_groups_alone_are_compared_where_both_were_at_risk():
    x, time, event, entry = _late_rows(120)
    group, weight = np.digitize(x, [-0.5, 0.5]), np.where(np.arange(120) % 3, 1.0, 2.0)
    half = np.arange(120) < 60
    y = Surv(time, event, entry=entry, weight=weight)
    found = concordance_of_groups(y[~half], group[~half], train=(y[half], group[half]))
    curves = [
        KaplanMeier.fit(
            Surv(*(part[half & (group == g)] for part in (time, event)), entry=entry[half & (group == g)]),
            sample_weight=weight[half & (group == g)],
        )
        for g in range(3)
    ]
    times = np.unique(time[~half])
    survival = np.array([curve.at(times) for curve in curves])[group[~half]]
    expected = concordance_harrell(
        Surv(time[~half], event[~half], entry=entry[~half]), survival, times, sample_weight=weight[~half]
    )
    assert found == pytest.approx(expected, abs=EXACT)
    plain = Surv(time, event)
    assert found != concordance_of_groups(plain[~half], group[~half], train=(plain[half], group[half]))


def test_evaluation_scores_what_knows_entry_and_refuses_the_rest():
    x, time, event, entry = _late_rows(80)
    frame = pd.DataFrame({"x": x})
    data = SurvivalData(frame, Surv(time, event, entry=entry))
    tree = SurvivalRegression()._fit_data(data)
    table = evaluate(tree, data, data)
    scored = {"c_harrell", "negative_log_likelihood"}
    assert set(table.index[table["value"].notna()]) == scored
    told = table.loc[~table.index.isin(scored), "reason"]
    assert told.str.contains("use 'c_harrell', 'negative_log").all()
    y = Surv(time, event, entry=entry)
    assert table.loc["c_harrell", "value"] == tree.score(frame, y)
    likelihood = tree.log_likelihood(frame, y)
    assert table.loc["negative_log_likelihood", "value"] == -likelihood
    pair = (frame, y)
    pd.testing.assert_frame_equal(evaluate(tree, pair, pair), table)
    curves = tree.predict_survival_function(frame, np.unique(time)), np.unique(time)
    only = evaluate(curves, pair, pair, metrics=["c_harrell"])["value"]
    assert only.item() == table.loc["c_harrell", "value"]
    # Weights from training left-truncated rows are refused as well.
    with pytest.raises(DataError, match="c_uno: it takes every row as at risk from time zero"):
        evaluate(curves, data, (frame, (time, event)), metrics=["c_uno"])
    with pytest.raises(DataError, match="test: y has no entry, and the model was trained on counting data"):
        evaluate(tree, data, (frame, (time, event)))


def test_groups_of_fairness_are_scored_with_entry():
    x, time, event, entry = _late_rows(60)
    group, grid = (np.arange(60) % 3 == 0).astype(int), np.unique(time)
    survival = np.exp(-np.outer(np.exp(x), grid))
    tau = float(np.median(time))
    table = group_scores(Surv(time, event, entry=entry), survival, grid, group, tau=tau, n_groups=2)
    for number in (0, 1):
        inside = group == number
        own = time[inside], event[inside]
        observed = KaplanMeier.fit(Surv(*own, entry=entry[inside])).at(tau)
        predicted = survival[inside][:, np.searchsorted(grid, tau, side="right") - 1].mean()
        assert table.loc[number, "calibration"] == pytest.approx(predicted - float(observed), abs=EXACT)
        expected = concordance_harrell(Surv(*own, entry=entry[inside]), survival[inside], grid)
        assert table.loc[number, "c_harrell"] == expected
    # Two rows of which one came after the event of the other cannot be compared.
    curves = np.ones((2, 2))
    apart = group_scores(
        Surv([1.0, 2.0], [1, 1], entry=[0, 1.5]), curves, [1.0, 2.0], [0, 0], tau=1.5, n_groups=1
    )
    assert np.isnan(apart.loc[0, "c_harrell"])


def test_causes_are_compared_where_both_were_at_risk():
    x, time, event, entry = _late_rows(150)
    cause = np.where(event, 1 + (np.arange(150) % 2), 0)
    found = concordance_harrell(Surv(time, cause, causes="auto", entry=entry), x, cause=2)
    assert found == concordance_harrell(Surv(time, cause == 2, entry=entry), x)
    y = Surv(time, cause, causes="auto", entry=entry)
    tree = SurvivalRegression().fit(x[:, None], y)
    data = SurvivalData(x[:, None], y)
    table = evaluate(tree, data, data)
    scored = {("1", "c_cause_specific"), ("2", "c_cause_specific"), ("all", "negative_log_likelihood")}
    assert set(table.index[table["value"].notna()]) == scored
    tau = incidence_times(y)[-1]
    risk = tree.predict_cumulative_incidence(x[:, None], [tau])[:, 1, 0]
    found = concordance_harrell(
        Surv(time, cause, causes="auto", entry=entry),
        risk,
        cause=2,
        tau=np.nextafter(tau, np.inf),
        tied_time="censored_later",
    )
    assert table.loc[("2", "c_cause_specific"), "value"] == found
    with pytest.raises(DataError, match=r"ibs of 1: it takes every row as at risk from time zero"):
        evaluate(tree, data, data, metrics=["ibs"])


def test_from_a_landmark_every_score_is_that_of_rows_at_risk_there():
    x, time, event, entry = _late_rows(150)
    frame, s = pd.DataFrame({"x": x}), 0.2
    data = SurvivalData(frame, Surv(time, event, entry=entry))
    half = np.arange(150) < 75
    train, test = data.subset(half), data.subset(~half)
    tree = PrognosticTree(depth=1, columns=Columns(numeric="linear"))._fit_data(train)
    found = evaluate(tree, train, test, after=s)
    assert found["value"].notna().all()

    def alive(part):
        rows = (part.entry <= s) & (part.time > s)
        return part.frame[rows], (part.time[rows] - s, part.event[rows])

    rows, known = alive(test), alive(train)

    class FromThere:
        """As if the landmark were the beginning."""

        def predict_survival_function(self, X, times):
            return tree.predict_survival_function(X, times, after=s)

    names = [name for name in found.index if name != "negative_log_likelihood"]
    by_hand = evaluate(FromThere(), known, rows, metrics=names)
    np.testing.assert_allclose(found.loc[names, "value"], by_hand["value"], rtol=1e-9)
    at = np.full(len(rows[0]), s)
    likelihood = tree.log_likelihood(rows[0], Surv(rows[1][0] + s, rows[1][1], entry=at))
    assert found.loc["negative_log_likelihood", "value"] == pytest.approx(-likelihood, rel=1e-12)
    curves = tree.predict_survival_function(test.frame, test.time[:1]), test.time[:1]
    with pytest.raises(DataError, match="after must be None where curves are given"):
        evaluate(curves, train, test, after=s)


class Falls:
    """Survival .5 up to 2 and 0 from there on."""

    def predict_survival_function(self, X, times):
        return np.tile(np.where(np.asarray(times) < 2.0, 0.5, 0.0), (3, 1))


def test_landmarks_without_rows_or_survival_raise():
    rows = (np.zeros((3, 1)), ([1.0, 2.0, 3.0], [1, 1, 0]))
    for after, message in (
        (3.0, "train: no row is at risk at after=3: all entered later"),
        (-1.0, "after must be finite and >= 0"),
        (2.0, r"predicted survival of 3 rows .* at after=2 is 0"),
    ):
        with pytest.raises(DataError, match=message):
            evaluate(Falls(), rows, (rows[0], ([2.5, 3.0, 4.0], [1, 1, 0])), after=after)


def test_steps_are_where_they_were_before_the_landmark_was_subtracted():
    """Where t - s + s rounds to less than t, a curve that falls at t must not be read before."""
    time, s = np.random.default_rng(3).uniform(0.2, 4, 200), 2 / 3
    assert (time - s + s < time)[time > s].any()
    frame, event = pd.DataFrame({"x": np.arange(200) % 2}), np.ones(200, dtype=bool)
    tree = OptimalSurvivalTree(max_depth=1, binarize=False).fit(frame, (time, event))
    rows, later = (frame, (time, event)), time > s
    grid = np.unique(time[later])
    curves = tree.predict_survival_function(frame[later], np.append(s, grid))
    left = (frame[later], (time[later] - s, event[later]))
    names = ["ibs_osst", "c_harrell"]
    given = evaluate((curves[:, 1:] / curves[:, :1], grid - s), left, left, metrics=names)["value"]
    for model in (
        tree,
        SimpleNamespace(predict_survival_function=lambda X, times: tree.predict_survival_function(X, times)),
    ):
        found = evaluate(model, rows, rows, metrics=names, after=s)["value"]
        np.testing.assert_allclose(found, given, rtol=1e-12)


def test_cross_validation_of_causes_leaves_out_what_knows_no_entry():
    x, time, event, entry = _late_rows(150)
    cause = np.where(event, 1 + (np.arange(150) % 2), 0)
    data = SurvivalData(x[:, None], Surv(time, cause, entry=entry, causes="auto"))
    with pytest.warns(DataWarning, match="left-truncated rows: likelihood and concordance"):
        scores = cross_validate(SurvivalRegression(), data, n_folds=2).scores
    assert scores[["c_cause_specific:1", "c_cause_specific:2", "log_likelihood"]].notna().all(axis=None)
    assert scores[["ibs:1", "ibs:2", "c_wolbers:1", "c_wolbers:2"]].isna().all(axis=None)


def test_from_a_landmark_split_histories_are_followed_to_their_end():
    """The end of a start-stop row is no censoring: scores are those of the rows before they were split."""
    x, time, event, entry = _late_rows(150)
    rng, s = np.random.default_rng(8), 0.2
    frame, whole = pd.DataFrame({"x": x}), Surv(time, event, entry=entry)
    tree = PrognosticTree(depth=1, columns=Columns(numeric="linear")).fit(frame, whole)
    share, order = rng.uniform(0.1, 0.9, 150), rng.permutation(300)
    rows, halves = np.tile(np.arange(150), 2)[order], halved(whole, share)[order]
    expected = evaluate(tree, (frame, whole), (frame, whole), after=s)
    known = expected["value"].notna()
    assert known.all()
    split = (frame.iloc[rows], halves)
    found = evaluate(tree, split, split, after=s)
    np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-9)
    positions, later = halves.followed_from(s)
    by_subject = np.argsort(rows[positions])
    _, expected = whole.followed_from(s)
    np.testing.assert_allclose(later.time[by_subject], expected.time, rtol=1e-12)
    assert (later.event[by_subject] == expected.event).all()


def test_rows_that_go_on_in_another_row_are_not_lost_to_follow_up():
    """Ends of start-stop rows were counted as censored: G of split rows was off by .6."""
    _, time, event, entry = _late_rows(150)
    whole = Surv(time, event, entry=entry)
    halves = halved(whole)[np.random.default_rng(4).permutation(300)]
    for ties in ("removed", "at_risk"):
        expected, found = (censoring_distribution(y, tied_events=ties).at(time) for y in (whole, halves))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(median_follow_up(halves), median_follow_up(whole), rtol=1e-12)
    # Rows of a cluster that are observed side by side end one by one.
    clusters = Surv(time, event, id=np.arange(150) // 2)
    assert median_follow_up(clusters).value == median_follow_up((time, event)).value


def test_median_follow_up_is_that_of_lifelines():
    data = load_dataset("gbsg2")
    fitter = KaplanMeierFitter().fit(data.time, ~data.event)
    limits = median_survival_times(fitter.confidence_interval_).iloc[0].tolist()
    found = median_follow_up((data.time, data.event))
    assert [found.value, found.lower, found.upper] == [fitter.median_survival_time_, *limits]


class TwoCauses:
    """F_k = .4 (1 - exp(-rate_k t)), with the rates in two columns."""

    def predict_cumulative_incidence(self, X, times):
        return 0.4 * -np.expm1(-np.asarray(X)[:, :, None] * np.asarray(times))


def test_from_a_landmark_split_histories_with_causes_are_followed_to_their_end():
    rng, s, names = np.random.default_rng(9), 0.3, ("relapse", "death")
    x, time, cause = rng.uniform(0.5, 2, (200, 2)), rng.exponential(size=200), rng.integers(0, 3, 200)
    whole, rows = Surv(time, cause, causes=names), np.tile(np.arange(200), 2)
    halves = halved(whole, rng.uniform(0.1, 0.9, 200))
    metrics = ["c_wolbers", "brier", "ibs"]
    expected = evaluate(TwoCauses(), (x, whole), (x, whole), metrics=metrics, after=s)["value"]
    found = evaluate(TwoCauses(), (x[rows], halves), (x[rows], halves), metrics=metrics, after=s)["value"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
