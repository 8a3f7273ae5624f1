"""Groups: tables, naive and corrected; differences on held-out rows; stability; model cards."""

import copy
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter
from lifelines.statistics import power_under_cph
from lifelines.utils import restricted_mean_survival_time
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    PrognosticTree,
    Surv,
    SurvivalData,
    metrics,
    recalibrate,
)
from sstorch.data import folds_of, stratified_folds
from sstorch.exact.estimators.survival_tree import training_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.table import _over_places, groups_text, incidence_limits
from sstorch.groups.validation import (
    GroupDifference,
    GroupValidation,
    _matched,
    concordance_of_rows,
    held_out_groups,
    resamples,
)
from sstorch.metrics.incidence import aalen_johansen_error
from sstorch.validation import group_table, model_card, stability, validate_groups
from tests.conftest import nightly
from tests.groups.trees import CAUSES, TREES, fitted, refitted, rows_of
from tests.histories import halved

PARTS = ["estimate", "lower", "upper"]


@pytest.mark.parametrize("kind", ["soft", "exact"])
def test_row_of_one_event_is_kaplan_meier_of_the_group(kind: str) -> None:
    tree, data = fitted(kind)
    at, group = [365.0, 1000.0], tree.apply(data.frame)
    table = group_table(tree, data.frame, data.y, at)
    assert table.index.tolist() == np.unique(group).tolist()
    assert list(table.columns.unique(0)) == ["rows", "events", "median", "S(365)", "S(1000)"]
    curves = tree.predict_survival_function(data.frame, at)
    for number, row in table.iterrows():
        inside = group == number
        band = metrics.KaplanMeier.fit(data.y[inside])
        assert (row["rows", ""], row["events", ""]) == (inside.sum(), data.event[inside].sum())
        np.testing.assert_allclose(row["median"][PARTS], band.quantile())
        for k, t in enumerate(at):
            np.testing.assert_allclose(row[f"S({t:g})"][PARTS], band.limits(t))
            assert row[f"S({t:g})", "model"] == pytest.approx(curves[inside, k].mean())
            if kind == "exact":  # curves of leaves are Kaplan-Meier of their rows
                assert row[f"S({t:g})", "model"] == pytest.approx(row[f"S({t:g})", "estimate"], rel=1e-12)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["soft causes", "exact causes"])
def test_row_of_a_cause_is_aalen_johansen_of_the_group(kind: str, late: bool) -> None:
    tree, data = fitted(kind)
    y = Surv(data.time, data.cause, entry=0.3 * data.time * late, causes=CAUSES)
    table, group = group_table(tree, data.frame, y, [300.0, 1e5], level=0.9), tree.apply(data.frame)
    for number in table.index.unique("group"):
        own = y[group == number]
        expected, error = (
            estimate(own, [300.0]) for estimate in (metrics.aalen_johansen, aalen_johansen_error)
        )
        lower, upper = incidence_limits(expected, norm.ppf(0.95) * error)
        for k, cause in enumerate(CAUSES):
            row = table.loc[(number, cause)]
            np.testing.assert_allclose(row["F(300)"][PARTS], [expected[k, 0], lower[k, 0], upper[k, 0]])
            # Beyond follow-up incidences are known only where all rows of the group had an event.
            last = own.time == own.time.max()
            assert row["F(100000)"][PARTS].notna().any() == own.event[last].all()


@pytest.mark.parametrize("kind", ["exact", "soft causes"])
def test_integer_weights_are_repetitions_whatever_their_scale(kind: str) -> None:
    tree, data = fitted(kind)
    weight = np.random.default_rng(0).integers(1, 4, len(data))
    rows = np.repeat(np.arange(len(data)), weight)
    one = group_table(tree, data.frame, data.y, sample_weight=weight)
    many = group_table(tree, data.frame.iloc[rows].reset_index(drop=True), data.y[rows])
    shares = [name for name in one if name[1] in ("estimate", "model")]
    pd.testing.assert_frame_equal(one[shares], many[shares])
    pd.testing.assert_frame_equal(one, group_table(tree, data.frame, data.y, sample_weight=0.1 * weight))
    with pytest.raises(ConfigError, match="level"):
        group_table(tree, data.frame, data.y, level=1.0)


@pytest.mark.filterwarnings("ignore:group [12] has no event")
@pytest.mark.parametrize("kind", ["exact", nightly("soft"), "exact causes", nightly("soft causes")])
def test_split_rows_have_the_estimates_of_whole_rows_and_texts_count_subjects(
    kind: str, tmp_path: Path
) -> None:
    tree, data = refitted(kind)
    X, n = pd.concat([data.frame] * 2, ignore_index=True), len(data)
    y, whole = halved(data.y), Surv(data.time, data.cause, id=np.arange(n), causes=data.y.causes)
    tree.fit(data.frame, whole)
    one, two = group_table(tree, data.frame, whole), group_table(tree, X, y)
    names = [name for name in one if name[1] in PARTS]
    pd.testing.assert_frame_equal(one[names], two[names])
    assert len(stability(tree, X, y, 2).moves) == 2 * n
    tree.fit(X.assign(later=np.repeat([0.0, 1.0], n)), y).save(tmp_path)
    group, text = tree.apply(X.assign(later=np.repeat([0.0, 1.0], n))), type(tree).load(tmp_path).summary()
    assert f"{2 * n} rows of {n} subjects, " in text
    for number in np.unique(group) if kind.startswith("exact") else ():
        inside = group == number
        assert f"group {number}: {inside.sum()} rows of {np.unique(y.id[inside]).size} subjects, " in text


@pytest.mark.parametrize("kind", ["exact", nightly("soft")])
def test_corrected_estimates_are_within_their_limits(kind: str) -> None:
    tree, data = refitted(kind)
    if kind == "exact":
        tree.set_params(max_depth=1).fit(data.frame, data.y)
    plain, found = tree.summary(), group_table(tree, data.frame, data.y, [500.0], n_resamples=8)
    naive = group_table(tree, data.frame, data.y, [500.0])
    pd.testing.assert_frame_equal(naive, found[list(naive.columns)])
    values = found["S(500)"]
    assert list(values)[3:6] == ["corrected", "corrected lower", "corrected upper"]
    assert values["corrected"].between(values["corrected lower"], values["corrected upper"]).all()
    widths = values["corrected upper"] - values["corrected lower"]
    assert (widths >= values["upper"] - values["lower"] - 1e-9).all()
    if kind == "exact":
        assert np.ptp(values["corrected"]) < np.ptp(values["estimate"])
    stable = stability(tree, data.frame, data.y, n_resamples=2)
    assert "corrected for optimism" in groups_text(found)
    assert groups_text(found) in tree.summary()
    assert str(stable) in tree.summary()
    assert tree.fit(data.frame, data.y).summary() == plain
    causes, rows = fitted(f"{kind} causes")
    with pytest.raises(ConfigError, match="n_resamples must be 0"):
        group_table(causes, rows.frame, rows.y, n_resamples=8)


def test_optimism_goes_to_the_same_place_in_the_order_of_risk() -> None:
    place = np.array([[0.0, 0.5], [0.5, 1.0]])
    wanted = np.array([[0.75, 1.0], [0.0, 0.25], [0.25, 0.75], [0.75, 0.75]])
    values = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_allclose(_over_places(values, place, wanted), [[3, 6], [1, 2], [2, 4], [0, 0]])


@pytest.mark.parametrize("kind", ["exact", "exact causes"])
def test_exact_groups_are_numbered_by_survival(kind: str) -> None:
    tree, data = fitted(kind)
    group, times = tree.apply(data.frame), np.arange(tree.event_times_[-1])
    assert set(group) == set(range(1, tree.tree_.n_leaves + 1))
    any_event = data.y.any_cause()
    means = [metrics.KaplanMeier.fit(any_event[group == k]).at(times).mean() for k in set(group)]
    assert (np.diff(means) < 0).all()


FACTS = {
    "soft": ["| trained on | 686 rows, 299 events |", "tgrade (I, II, III)", "curves are extrapolated"],
    "exact": ["| model | Optimal survival tree with 4 leaves |", "curves keep their value", "no scores"],
    "soft causes": ["predict_cumulative_incidence(rows, ["],
    "exact causes": ["cumulative incidences of relapse and death"],
}


@pytest.mark.parametrize("kind", FACTS)
def test_card_has_facts_summary_and_use(kind: str) -> None:
    tree = fitted(kind).tree
    card = model_card(tree)
    assert all(text in card for text in FACTS[kind])
    assert tree.summary() in card
    assert f'tree = sstorch.{type(tree).__name__}.load("MODEL")' in card
    with pytest.raises(ConfigError, match="format"):
        model_card(tree, "pdf")  # type: ignore[arg-type]


def test_card_is_saved_and_has_scores(tmp_path: Path) -> None:
    tree, data = fitted("soft")
    tree.save(tmp_path)
    assert (tmp_path / "MODEL_CARD.md").read_text() == model_card(PrognosticTree.load(tmp_path))
    scores = pd.DataFrame({"value": [0.7], "lower": [0.65], "upper": [float("nan")]}, index=["C"])
    page = model_card(tree, "html", validation=scores)
    assert "<td>.700</td>" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "intervals take the gates as given" in page
    trained = copy.copy(tree)  # leaves of a trainer have no covariance
    trained.covariance_ = replace(tree.covariance_, hazards={})
    assert "intervals take the gates as given" not in model_card(trained)
    elsewhere = recalibrate(tree, data.frame[:300], data.y[:300])
    elsewhere.metrics_ = {"concordance": 0.68}
    card = model_card(elsewhere)
    assert "| recalibrated on | 300 rows" in card
    assert "Recalibrated (intercept) on 300 rows" in card
    assert "| concordance | .680 |" in card


# ---------------------------------------------------------------------- validation and stability


@pytest.mark.parametrize(
    "kind", [nightly("soft"), "exact", nightly("soft causes"), nightly("exact causes"), "search"]
)
def test_groups_are_those_of_trees_outside_the_folds(
    kind: str, small_data: SurvivalData, tmp_path: Path
) -> None:
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
    tree._chosen.save(tmp_path)
    assert type(tree._chosen).load(tmp_path).group_validation_ == found


def test_concordance_and_order_of_groups_come_from_the_training_rows(gbsg2: SurvivalData) -> None:
    folds, concordances, order = stratified_folds(gbsg2.event, 3, 4), [], np.zeros(len(gbsg2))
    nodes, cuts = gbsg2.frame["pnodes"].to_numpy(), ([2, 5, 9], [2, 5], [4])
    groups = 4 - np.stack([np.digitize(nodes, each) for each in cuts])
    # Of fewer than four groups the extremes are those of the others.
    for fold, (group, places) in enumerate(zip(groups, ([0, 1, 2, 3], [0, 2, 3], [0, 3]), strict=True)):
        train, test = gbsg2.subset(folds != fold), gbsg2.subset(folds == fold)
        own, other = group[folds != fold], group[folds == fold]
        concordances.append(metrics.concordance_of_groups(test.y, other, train=(train.y, own)))
        area = {}
        for k in np.unique(own):
            curve = KaplanMeierFitter().fit(train.time[own == k], train.event[own == k])
            area[k] = restricted_mean_survival_time(curve, t=train.time.max())
        place = dict(zip(sorted(area, key=lambda k: -area[k]), places, strict=True))
        order[folds == fold] = [place[k] for k in other]
    found = held_out_groups(gbsg2, folds, groups)
    assert found.first.c_groups == pytest.approx(np.mean(concordances))
    counts = [
        (np.bincount(group[folds == k]) >= 0.05 * (folds == k).sum()).sum() for k, group in enumerate(groups)
    ]
    assert found.n_groups == np.mean(counts)
    p_value = metrics.logrank_test(gbsg2.y, order, strata=folds).p_value
    assert found.first.p_value == pytest.approx(p_value, rel=1e-6)
    assert found.differ


def test_causes_have_their_own_hazard_and_incidence() -> None:
    data = rows_of("exact causes")
    folds, size, places = folds_of(data, 3, 4), data.frame["size"].to_numpy(), np.zeros(len(data))
    groups = np.stack([size > np.quantile(size, share) for share in (0.4, 0.5, 0.6)]).astype(int)
    for fold, group in enumerate(groups):
        inside = folds == fold
        train = data.subset(~inside)
        # Relapse: the order of the groups by the area under their incidence until its last event.
        times, area = np.unique(train.time[train.cause == 1]), []
        for number in (0, 1):
            rows = train.subset(group[~inside] == number)
            steps = np.r_[0, metrics.aalen_johansen(rows.y, times)[0, :-1]]
            area.append(float(np.diff(times, prepend=0.0) @ steps))
        places[inside] = np.argsort(np.argsort(area))[group[inside]]
    found = held_out_groups(data, folds, groups)
    for cause in CAUSES:
        alone = held_out_groups(data.of_cause(cause), folds, groups).first
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
    few = Surv(y.time, np.where((y.cause == 2) & (np.cumsum(y.cause == 2) > 3), 0, y.cause), causes=CAUSES)
    for message, call in (
        ("cause death has 3 events in 400 rows, too few for 5 folds", lambda: validate_groups(tree, X, few)),
        ("3 events of cause death has none", lambda: stability(tree, X, few, 50)),
        ("competing causes", lambda: stability(tree, X, (data.time, data.event))),
    ):
        with pytest.raises(DataError, match=message):
            call()
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


def test_leaves_are_matched_as_well_as_any_numbering_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        group, leaf = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
        best = max((np.array(p)[leaf] == group).sum() for p in permutations(range(4)))
        assert (_matched(group, leaf, 4) == group).sum() == best
