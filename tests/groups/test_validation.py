"""Whether groups differ on rows that their gates were not placed on, and are those of trees of resamples."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.statistics import power_under_cph
from lifelines.utils import restricted_mean_survival_time
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from sstorch import OptimalSurvivalTree, OptimalSurvivalTreeCV, Surv, SurvivalData, metrics
from sstorch.data import folds_of, stratified_folds
from sstorch.exact.estimators.survival_tree import training_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.validation import (
    GroupDifference,
    GroupValidation,
    _matched,
    concordance_of_rows,
    held_out_groups,
    resamples,
)
from sstorch.validation import stability, validate_groups
from tests.conftest import nightly
from tests.groups.trees import CAUSES, TREES, fitted, refitted


@pytest.mark.parametrize(
    "kind", [nightly("soft"), "exact", nightly("soft causes"), nightly("exact causes"), "search"]
)
def test_groups_are_those_of_trees_outside_the_folds(kind: str, small_data: SurvivalData) -> None:
    search = OptimalSurvivalTreeCV(max_depth=1, min_leaf=20, n_folds=2)
    tree, data = (search, small_data) if kind == "search" else refitted(kind)
    n_folds = 2 if kind == "search" else 3
    found = validate_groups(tree.fit(data.frame, data.y), data.frame, data.y, n_folds, random_state=4)
    folds, groups = folds_of(data, n_folds, 4), []
    for fold in range(n_folds):
        rows = data.subset(folds != fold)
        groups.append(clone(tree).fit(rows.frame, rows.y).apply(data.frame))
    assert found == held_out_groups(data, folds, np.stack(groups))
    assert str(found) in tree.summary()
    pairs = [adjusted_rand_score(groups[j], groups[k]) for j in range(n_folds) for k in range(j)]
    assert found.ari == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("kind", ["exact", nightly("soft")])
def test_concordance_and_order_of_groups_come_from_the_training_rows(kind: str, tmp_path: Path) -> None:
    tree, data = refitted(kind)
    found = validate_groups(tree, data.frame, data.y, n_folds=3, random_state=4)
    folds, concordances, counts, order = stratified_folds(data.event, 3, 4), [], [], np.zeros(len(data))
    for fold in range(3):
        train, test = data.subset(folds != fold), data.subset(folds == fold)
        other = clone(tree).fit(train.frame, train.y)
        own, group = other.apply(train.frame), other.apply(test.frame)
        concordances.append(metrics.concordance_of_groups(test.y, group, train=(train.y, own)))
        counts.append(sum((group == k).mean() >= 0.05 for k in range(1, 5)))
        area = {
            k: restricted_mean_survival_time(
                KaplanMeierFitter().fit(train.time[own == k], train.event[own == k]), t=train.time.max()
            )
            for k in np.unique(own)
        }
        # Of fewer than four groups the extremes are those of the others.
        places = {4: [0, 1, 2, 3], 3: [0, 2, 3], 2: [0, 3]}[len(area)]
        place = dict(zip(sorted(area, key=lambda k: -area[k]), places, strict=True))
        order[folds == fold] = [place[k] for k in group]
    assert found.first.c_groups == pytest.approx(np.mean(concordances))
    assert found.n_groups == np.mean(counts)
    p_value = metrics.logrank_test(data.y, order, strata=folds).p_value
    assert found.first.p_value == pytest.approx(p_value, rel=1e-6)
    assert found.differ
    tree.save(tmp_path)
    assert type(tree).load(tmp_path).group_validation_ == found


@pytest.mark.parametrize("kind", ["exact causes", nightly("soft causes")])
def test_causes_have_their_own_hazard_and_incidence(kind: str) -> None:
    tree, data = refitted(kind)
    found = validate_groups(tree, data.frame, data.y, 3, random_state=4)
    folds, groups, places = folds_of(data, 3, 4), [], np.zeros(len(data))
    for fold in range(3):
        inside = folds == fold
        train = data.subset(~inside)
        leaf = clone(tree).fit(train.frame, train.y).apply(data.frame)
        groups.append(leaf)
        # Relapse: the order of the groups by the area under their incidence until its last event.
        times, area = np.unique(train.time[train.cause == 1]), {}
        for group in np.unique(leaf[~inside]):
            rows = train.subset(leaf[~inside] == group)
            steps = np.r_[0, metrics.aalen_johansen(rows.y, times)[0, :-1]]
            area[group] = float(np.diff(times, prepend=0.0) @ steps)
        assert len(area) == 2
        order = sorted(area, key=area.__getitem__)
        places[inside] = [order.index(group) for group in leaf[inside]]
    for cause in CAUSES:
        alone = held_out_groups(data.of_cause(cause), folds, np.stack(groups)).first
        assert replace(found.causes[cause], gray_p_value=None) == alone
    relapse = found.causes["relapse"]
    assert relapse.gray_p_value == metrics.gray_test(data.y, places, "relapse", strata=folds).p_value
    assert found.differ


def test_concordance_of_groups_is_the_mean_over_causes() -> None:
    tree, data = fitted("soft causes")
    group, times = tree.apply(data.frame), np.unique(data.time[data.event])
    found = concordance_of_rows(group, data, group, data)
    curves = np.empty((len(data), 2, len(times)))
    for number in np.unique(group):
        curves[group == number] = metrics.aalen_johansen(data.y[group == number], times)
    expected = [
        metrics.concordance_harrell((data.time, data.cause == k), 1 - curves[:, k - 1], times) for k in (1, 2)
    ]
    assert found == pytest.approx(np.mean(expected), rel=1e-12)
    assert 0.55 < found < tree.score(data.frame, data.y)


@pytest.mark.parametrize(
    ("p_value", "c_groups", "reason"),
    [
        (0.2, 0.6, "log-rank p above 0.05"),
        (0.001, 0.54, "concordance below 0.55"),
        (0.3, 0.5, "log-rank p above 0.05 and concordance below 0.55"),
        (0.05, 0.55, None),
    ],
)
def test_text_has_the_reasons(p_value: float, c_groups: float, reason: str | None) -> None:
    found = GroupValidation(5, 4, 0.5, {"": GroupDifference(c_groups, p_value, 40)})
    assert "trees that share 75% of their training rows" in str(found)
    assert found.differ == (reason is None)
    verdict = "No difference between the groups was shown"
    assert (f"{verdict}: {reason}. With 40 events the power" if reason else "") in str(found)
    assert (verdict in str(found)) == bool(reason)
    wide = replace(found.first, c_lower=0.49, c_upper=0.61)
    assert reason or "the confidence interval of the concordance holds 0.5" in wide.doubt


def test_power_is_that_of_lifelines() -> None:
    """Schoenfeld's formula with the number of events of two halves; lifelines has Freedman's."""
    ours = GroupDifference(0.5, 1.0, 40).power
    assert ours == pytest.approx(norm.cdf(np.sqrt(40) * np.log(2) / 2 - norm.ppf(0.975)), abs=1e-12)
    assert ours == pytest.approx(power_under_cph(20, 20, 1.0, 1.0, 2.0), abs=0.04)


def test_limits_of_the_concordance_are_those_of_its_folds(gbsg2: SurvivalData) -> None:
    """Of two groups the concordance of each fold, with its error, is that of `concordance_interval`."""
    folds = stratified_folds(gbsg2.event, 2, 0)
    group = (gbsg2.frame["pnodes"].to_numpy() > 3).astype(int)
    found = held_out_groups(gbsg2, folds, np.stack([group, group]))
    errors = []
    for fold in range(2):
        part, inside = gbsg2.subset(folds == fold), group[folds == fold]
        value, _, upper = metrics.measure(
            metrics.HorizonRows.of(part.y, 1.0 - inside, part.time.max()), "c_harrell_t"
        )
        errors.append((logit(upper) - logit(value)) * value * (1 - value) / norm.ppf(0.975))
    error = np.hypot(*errors) / 2 / (found.first.c_groups * (1 - found.first.c_groups))
    limits = expit(logit(found.first.c_groups) + np.array([-1, 1]) * norm.ppf(0.975) * error)
    np.testing.assert_allclose([found.first.c_lower, found.first.c_upper], limits, rtol=1e-9)


def test_weights_and_entry_times_are_read(small_data: SurvivalData) -> None:
    X, y = small_data.frame, small_data.y
    tree = OptimalSurvivalTree(1, min_leaf=20).fit(X, y)
    weight = np.where(np.arange(len(X)) % 2, 1.0, 3.0)
    late = Surv(y.time, y.event, entry=0.3 * y.time)
    found = [
        validate_groups(tree, X, outcome, 2, sample_weight=given).first
        for outcome, given in ((y, None), (y, weight), (late, None))
    ]
    assert len({each.p_value for each in found}) == len({each.c_groups for each in found}) == 3
    weight[:5] = 0  # as if they were not there
    some = validate_groups(tree, X, y, 2, sample_weight=weight)
    rest = small_data.subset(np.arange(5, len(X)))
    assert some == validate_groups(tree, rest.frame, rest.y, 2, sample_weight=weight[5:])


@pytest.mark.parametrize("kind", ["soft causes", "exact causes"])
def test_depth_0_and_few_events_raise(kind: str) -> None:
    tree, data = fitted(kind)
    X, y = data.frame, data.y
    late = (y.cause == 2) & (np.cumsum(y.cause == 2) > 3)
    with pytest.raises(DataError, match="cause death has 3 events in 400 rows, too few for 5 folds"):
        validate_groups(tree, X, Surv(y.time, np.where(late, 0, y.cause), causes=CAUSES))
    depth = {"depth": 0} if kind.startswith("soft") else {"max_depth": 0}
    with pytest.raises(ConfigError, match="depth 0 has one group"):
        validate_groups(clone(TREES[kind]).set_params(**depth).fit(X, y), X, y)


@pytest.mark.parametrize("kind", ["soft", "exact"])
def test_groups_are_those_of_trees_of_the_draws(kind: str) -> None:
    tree, data = refitted(kind)
    found = stability(tree, data.frame, data.y, n_resamples=3)
    groups, used = [found.groups, *found.resampled], []
    index = [[adjusted_rand_score(one, other) for one in groups] for other in groups]
    assert found.ari_of_tree == pytest.approx(np.mean(index[0][1:]))
    assert found.ari == pytest.approx(np.mean([index[i][j] for i in range(1, 4) for j in range(1, i)]))
    np.testing.assert_array_equal(found.groups, tree.apply(data.frame))
    np.testing.assert_allclose(found.moves, (found.resampled != found.groups).mean(axis=0))
    assert found.table()["rows"].sum() == len(data)
    first = found.columns.idxmax()
    assert f"{first} ({100 * found.columns[first]:.0f} %)" in str(found)
    if kind == "soft":
        return
    _, draws = resamples(training_rows(data.frame, data.y, None), 3, tree._seed)
    for drawn, leaf in zip(draws, found.resampled, strict=True):
        other = clone(TREES[kind]).fit(data.frame, data.y, sample_weight=drawn)
        assert adjusted_rand_score(other.apply(data.frame), leaf) == 1
        used.append({other.rules_[j].column for j in other.tree_.feature if j >= 0})
    for name in data.frame:
        assert found.columns[name] == sum(name in each for each in used) / 3


def test_resample_without_event_of_a_cause_raises() -> None:
    tree, data = fitted("exact causes")
    late = (data.cause == 2) & (np.cumsum(data.cause == 2) > 3)
    few = Surv(data.time, np.where(late, 0, data.cause), causes=CAUSES)
    with pytest.raises(DataError, match="3 events of cause death has none"):
        stability(tree, data.frame, few, 50)
    with pytest.raises(DataError, match="competing causes"):
        stability(tree, data.frame, (data.time, data.event))


def test_leaves_are_matched_as_well_as_any_numbering_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        group, leaf = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
        best = max((np.array(p)[leaf] == group).sum() for p in permutations(range(4)))
        assert (_matched(group, leaf, 4) == group).sum() == best
