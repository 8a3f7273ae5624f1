"""Kaplan-Meier with limits, log-rank test and concordance of groups, against lifelines and plain loops."""

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import median_survival_times
from scipy.stats import chi2
from sklearn.metrics import adjusted_rand_score

from sstorch import Surv
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.table import group_estimates
from sstorch.metrics import (
    KaplanMeier,
    KaplanMeierBand,
    concordance_harrell,
    concordance_of_groups,
    logrank_test,
)
from sstorch.metrics.groups import adjusted_rand_index


def _rows(data: SurvivalData, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn with replacement, times in months: many ties."""
    rows = np.random.default_rng(seed).choice(len(data), n)
    return np.ceil(data.time[rows] / 30), data.event[rows]


@pytest.mark.parametrize("n", [12, 40, 686])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_limits_are_those_of_lifelines(gbsg2: SurvivalData, n: int, level: float) -> None:
    for seed in range(5):
        time, event = _rows(gbsg2, n, seed)
        # lifelines takes both limits for 0 once S is.
        time, event = np.append(time, time.max() + 1), np.append(event, False)
        band = KaplanMeierBand.fit((time, event), level=level)
        peer = KaplanMeierFitter(alpha=1 - level).fit(time, event)
        limits = peer.confidence_interval_
        at = limits.index.to_numpy()
        expected = np.column_stack([peer.survival_function_, limits]).T
        np.testing.assert_allclose(np.stack(band.at(at)), expected, atol=1e-9)
        medians = [peer.median_survival_time_, *median_survival_times(limits).to_numpy()[0]]
        assert [float(value) for value in band.quantile()] == medians


def test_where_everybody_has_failed_the_upper_limit_stays() -> None:
    band = KaplanMeierBand.fit(([1, 2, 3, 4], [1, 1, 1, 1]))
    assert band.values[-1] == band.lower[-1] == 0
    assert band.upper[-1] == band.upper[-2] > 0
    one = KaplanMeierBand.fit(([1], [1]))
    assert [float(part) for part in one.at(2)] == [0, 0, 1]


@pytest.mark.filterwarnings("error")
def test_weights_of_very_different_sizes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        time, event = rng.integers(1, 30, 100), rng.random(100) < 0.7
        entry = time * rng.choice([0, 0.5, 0.999], 100)
        weight = 10.0 ** rng.integers(-8, 3, 100)
        band = KaplanMeierBand.fit(Surv(time, event, entry=entry), sample_weight=weight)
        for curve in (band.lower, band.values, band.upper):
            assert ((curve >= 0) & (curve <= 1)).all()


@pytest.mark.parametrize("weight", [None, [0.5, 2.0, 1.0]])
def test_rows_without_events_have_survival_one_without_limits(weight: list[float] | None) -> None:
    rows = Surv([1.0, 2.0, 3.0], [False, False, False], weight=weight)
    band = KaplanMeierBand.fit(rows)
    for found, value in ((band.at(9.0), 1.0), (band.at(0.5), 1.0), (band.quantile(), np.inf)):
        assert found.value == value
        assert np.isnan([found.lower, found.upper]).all()  # they were the value, as if it were certain


def test_group_without_events_has_no_limits_in_tables() -> None:
    time, group = np.arange(1.0, 13.0), np.repeat([0, 1], 6)
    event, frame = group == 1, pd.DataFrame({"x": group})
    data = SurvivalData(frame, (time, event))
    table = group_estimates(group, np.full((12, 2), 0.9), data, np.array([3.0, 5.0]))
    limits = table.loc[0].unstack()[["lower", "upper"]].drop(["rows", "events"])
    assert limits.isna().all(axis=None)  # S(5) was 1 (1 to 1), the median inf (inf to inf)
    assert table.loc[0, ("S(5)", "estimate")] == 1.0


@pytest.mark.parametrize("n_groups", [2, 3, 6])
def test_logrank_is_that_of_lifelines(gbsg2: SurvivalData, n_groups: int) -> None:
    for seed, n in enumerate((30, 200, 686)):
        time, event = _rows(gbsg2, n, seed)
        group = np.random.default_rng(seed).integers(0, n_groups, n)
        test = logrank_test((time, event), [f"group {k}" for k in group])
        peer = multivariate_logrank_test(time, group, event)
        assert test.statistic == pytest.approx(peer.test_statistic, rel=1e-8)
        assert test.p_value == pytest.approx(peer.p_value, rel=1e-6)
        assert test.degrees_of_freedom == n_groups - 1


def test_logrank_with_entry_times_by_a_plain_loop(gbsg2: SurvivalData) -> None:
    time, event = _rows(gbsg2, 80, 3)
    rng = np.random.default_rng(4)
    entry, group = rng.uniform(0, 0.9, 80) * time, rng.integers(0, 2, 80)
    excess = variance = 0.0
    for t in np.unique(time[event]):
        at_risk = (entry < t) & (t <= time)
        dead = event & (time == t)
        n, d, share = at_risk.sum(), dead.sum(), at_risk[group == 1].sum() / at_risk.sum()
        excess += dead[group == 1].sum() - d * share
        if n > 1:
            variance += d * share * (1 - share) * (n - d) / (n - 1)
    test = logrank_test(Surv(time, event, entry=entry), group)
    assert test.statistic == pytest.approx(excess**2 / variance)


def test_logrank_stratum_without_events_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    time, weight, group = rng.exponential(size=80), rng.uniform(0.5, 2.0, 80), rng.integers(0, 2, 80)
    strata = np.repeat([0, 1], 40)
    event, inside = strata == 0, slice(40)
    found = logrank_test((time, event), group, sample_weight=weight, strata=strata)
    expected = logrank_test((time[inside], event[inside]), group[inside], sample_weight=weight[inside])
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-10)


def test_logrank_within_strata_by_a_plain_loop(gbsg2: SurvivalData) -> None:
    time, event = _rows(gbsg2, 200, 7)
    rng = np.random.default_rng(8)
    group, strata = rng.integers(0, 2, 200), rng.choice(["one", "two", "three"], 200)
    excess = variance = 0.0
    for stratum in np.unique(strata):
        for t in np.unique(time[event & (strata == stratum)]):
            at_risk = (t <= time) & (strata == stratum)
            dead = at_risk & event & (time == t)
            n, d, share = at_risk.sum(), dead.sum(), at_risk[group == 1].sum() / at_risk.sum()
            excess += dead[group == 1].sum() - d * share
            if n > 1:
                variance += d * share * (1 - share) * (n - d) / (n - 1)
    test = logrank_test((time, event), group, strata=strata)
    assert test.statistic == pytest.approx(excess**2 / variance)
    alone = logrank_test((time, event), group)
    assert logrank_test((time, event), group, strata=np.ones(200)) == alone
    # Where a group is all there is of a stratum, it is compared with nobody.
    twice = np.r_[time, time], np.r_[event, event], np.r_[group, np.zeros(200)], np.repeat([0, 1], 200)
    assert logrank_test(twice[:2], twice[2], strata=twice[3]).statistic == pytest.approx(alone.statistic)
    with pytest.raises(DataError, match="strata must have one label for each of 200 rows"):
        logrank_test((time, event), group, strata=[1])


# Rows of group "c" are censored before the first event.
_EARLY = Surv(np.r_[4.0:14.0, 1.0, 2.0], [1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0])
_EARLY_GROUPS = np.array(list("aaaaabbbbbcc"))


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
    found = logrank_test(_EARLY, _EARLY_GROUPS, **options)
    assert found.statistic == pytest.approx(statistic, rel=1e-6)
    assert found.degrees_of_freedom == 1  # as in R; it was 2, and p .0265 instead of .0070
    assert found.p_value == pytest.approx(chi2.sf(statistic, 1), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_logrank_groups_of_separate_strata_have_the_rank_of_both(weighted: bool, gbsg2: SurvivalData) -> None:
    time, event = _rows(gbsg2, 90, 9)
    group, entry = np.arange(90) % 3, np.r_[np.zeros(90), np.full(90, time.max() + 1.0)]
    weight = np.random.default_rng(9).uniform(0.5, 2.0, 90) if weighted else np.ones(90)
    alone = logrank_test((time, event), group, sample_weight=weight)
    twice, groups = (np.tile(event, 2), np.tile(weight, 2)), np.r_[group, 3 + group]
    strata = np.repeat([0, 1], 90)
    within = logrank_test((np.tile(time, 2), twice[0]), groups, sample_weight=twice[1], strata=strata)
    later = Surv(np.r_[time, time + time.max() + 1.0], twice[0], entry=entry)
    truncated = logrank_test(later, groups, sample_weight=twice[1])
    for found in (within, truncated):
        assert found.degrees_of_freedom == 4  # it was 5
        assert found.statistic == pytest.approx(2 * alone.statistic, rel=1e-8)


def test_adjusted_rand_index_is_that_of_scikit_learn() -> None:
    draws = np.random.default_rng(9)
    some = np.concatenate([draws.integers(0, 4, (3, 50)), np.zeros((1, 50), int), np.arange(50)[None]])
    degenerate = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 2, 3]])
    for groups in (some, degenerate):
        expected = [[adjusted_rand_score(one, other) for one in groups] for other in groups]
        np.testing.assert_allclose(adjusted_rand_index(groups), expected)


def test_one_group_differs_from_nobody(gbsg2: SurvivalData) -> None:
    assert logrank_test(([1, 2], [1, 1]), [0, 0]) == (0.0, 0, 1.0)
    assert logrank_test(([1, 2], [0, 0]), [0, 1]) == (0.0, 0, 1.0)
    with pytest.raises(DataError, match="must have one label for each of 2 rows"):
        logrank_test(([1, 2], [1, 1]), [0])
    with pytest.raises(ConfigError, match="level"):
        KaplanMeierBand.fit(([1, 2], [1, 1]), level=95)


def test_groups_alone_predict_their_kaplan_meier(gbsg2: SurvivalData) -> None:
    time, event = _rows(gbsg2, 300, 5)
    group = np.random.default_rng(6).integers(0, 4, 300)
    group[200:][group[200:] == 3] = 4  # one that was not there in training
    train, test = slice(None, 200), slice(200, None)
    times = np.unique(time[test][event[test]])
    curves = []
    for k in group[test]:
        rows = (group[train] == k) | (k == 4)
        curves.append(KaplanMeier.fit((time[train][rows], event[train][rows])).at(times))
    expected = concordance_harrell((time[test], event[test]), np.array(curves), times)
    given = (time[train], event[train]), group[train]
    assert concordance_of_groups((time[test], event[test]), group[test], train=given) == expected
    one = np.zeros(300)
    assert concordance_of_groups((time, event), one, train=((time, event), one)) == 0.5
    with pytest.raises(DataError, match="no two rows can be compared"):
        concordance_of_groups(([1, 2], [0, 0]), [0, 0], train=given)


def test_groups_of_equal_survival_are_tied_whatever_the_rounding() -> None:
    """Half of 12 training rows of a group fail, one by one, and one of 2 of the other: C was .4 or .6."""
    for half in (6, 12, 17):
        time = np.concatenate([np.arange(1, half + 1), np.full(half, 50), [1, 50]])
        train = (time, time < 50), np.repeat([0, 1], [2 * half, 2])
        assert concordance_of_groups(([40, 41, 42, 43], [1, 1, 0, 0]), [0, 1, 0, 1], train=train) == 0.5
