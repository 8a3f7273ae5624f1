"""Whether groups differ on rows that their gates were not placed on."""

from dataclasses import replace

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.statistics import power_under_cph
from lifelines.utils import restricted_mean_survival_time
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from sstorch import (
    Columns,
    PrognosticTree,
    Surv,
    SurvivalData,
    load_dataset,
    metrics,
)
from sstorch.data import stratified_folds
from sstorch.exceptions import DataError
from sstorch.groups import GroupDifference, GroupValidation
from sstorch.groups.validation import held_out_groups
from sstorch.validation import concordance_of_groups, validate_groups

VERDICT = "No difference between the groups was shown"
TREE = PrognosticTree(depth=1, columns=Columns(numeric="linear"))


@pytest.mark.nightly
def test_it_is_what_trees_of_the_folds_say_one_by_one(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(depth=2, leaf="weibull", columns=Columns(numeric="linear")).fit(
        gbsg2.frame, gbsg2.y
    )
    found = validate_groups(tree, gbsg2.frame, gbsg2.y, n_folds=3, random_state=4)
    folds = stratified_folds(gbsg2.event, 3, 4)
    leaves, concordances, counts, order = [], [], [], np.zeros(len(gbsg2))
    for fold in range(3):
        train, test = gbsg2.subset(folds != fold), gbsg2.subset(folds == fold)
        other = clone(tree).fit(train.frame, train.y)
        concordances.append(concordance_of_groups(other, test.frame, test.y, (train.frame, train.y)))
        leaves.append(other.apply(gbsg2.frame))
        leaf = other.apply(test.frame)
        counts.append(sum((leaf == k).mean() >= 0.05 for k in range(1, 5)))
        own = other.apply(train.frame)
        area = {
            k: restricted_mean_survival_time(
                KaplanMeierFitter().fit(train.time[own == k], train.event[own == k]), t=train.time.max()
            )
            for k in np.unique(own)
        }
        # Of fewer than four groups the extremes are those of the others.
        places = {4: [0, 1, 2, 3], 3: [0, 2, 3], 2: [0, 3]}[len(area)]
        place = dict(zip(sorted(area, key=lambda k: -area[k]), places, strict=True))
        order[folds == fold] = [place[k] for k in leaf]
    assert found.first.c_groups == pytest.approx(np.mean(concordances))
    assert found.n_groups == np.mean(counts)
    assert found.ari == pytest.approx(
        np.mean([adjusted_rand_score(leaves[j], leaves[k]) for j in range(3) for k in range(j)])
    )
    assert found.first.p_value == pytest.approx(
        metrics.logrank_test(gbsg2.y, order, strata=folds).p_value, rel=1e-6
    )
    assert found.differ


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:28 events at time zero moved:sstorch.exceptions.DataWarning")
def test_the_verdict_on_data_with_and_without_effects() -> None:
    for name, differ in (("gbsg2", True), ("aids2", False)):
        data = load_dataset(name)
        tree = PrognosticTree().fit(data.frame, data.y)
        plain = tree.summary()
        found = validate_groups(tree, data.frame, data.y)
        assert found.differ == differ
        assert tree.summary() == f"{plain}\n\n{found}"
        assert (VERDICT in tree.summary()) != differ
        assert tree.fit(data.frame, data.y).summary() == plain
    draws = np.random.default_rng(3)
    x, time = draws.normal(size=(200, 3)), draws.weibull(1.5, 200)
    tree = PrognosticTree().fit(x, (time, draws.random(200) < 0.7))
    validate_groups(tree, x, (time, draws.random(200) < 0.7))
    assert VERDICT in tree.summary()


@pytest.mark.parametrize(
    ("p_value", "c_groups", "reason"),
    [
        (0.2, 0.6, "log-rank p above 0.05"),
        (0.001, 0.54, "concordance below 0.55"),
        (0.3, 0.5, "log-rank p above 0.05 and concordance below 0.55"),
        (0.05, 0.55, None),
    ],
)
def test_the_verdict_says_why(p_value: float, c_groups: float, reason: str | None) -> None:
    found = GroupValidation(5, 4, 0.5, {"": GroupDifference(c_groups, p_value, 40)})
    assert "adjusted Rand index 0.50, of all rows by trees that share 75% of their training rows" in str(
        found
    )
    assert found.differ == (reason is None)
    if reason:
        assert f"{VERDICT}: {reason}. With 40 events the power to see a hazard ratio of 2" in str(found)
    else:
        assert VERDICT not in str(found)
        wide = replace(found.first, c_lower=0.49, c_upper=0.61)
        assert wide.reasons == "the confidence interval of the concordance holds 0.5"
        assert replace(wide, n_permutations=99, permutation_p_value=0.01).differ


def test_power_is_that_of_lifelines() -> None:
    """Between two halves, half of the events in all: with a probability of an event of 1 and n = 40."""
    ours = GroupDifference(0.5, 1.0, 40).power
    # Schoenfeld's formula with the number of events; lifelines has Freedman's, with (HR - 1) / (HR + 1).
    freedman = power_under_cph(20, 20, 1.0, 1.0, 2.0)
    assert freedman == pytest.approx(norm.cdf(np.sqrt(40) / 3 - norm.ppf(0.975)), abs=1e-12)
    assert ours == pytest.approx(norm.cdf(np.sqrt(40) * np.log(2) / 2 - norm.ppf(0.975)), abs=1e-12)
    assert ours == pytest.approx(freedman, abs=0.04)


@pytest.mark.nightly
def test_permutations_calibrate_the_p_value(small_data: SurvivalData) -> None:
    """The p-value is the rank of the concordance among those of trees on permuted covariates."""
    tree = clone(TREE).fit(small_data.frame, small_data.y)
    plain = validate_groups(tree, small_data.frame, small_data.y, 2)
    found = validate_groups(tree, small_data.frame, small_data.y, 2, n_permutations=4)
    assert (found.first.c_groups, found.first.p_value, found.ari) == (
        plain.first.c_groups,
        plain.first.p_value,
        plain.ari,
    )
    assert plain.first.permutation_p_value is None
    rng, folds, null = np.random.default_rng((0, 9)), stratified_folds(small_data.event, 2, 0), []
    for _ in range(4):
        frame = small_data.frame.iloc[rng.permutation(len(small_data))].reset_index(drop=True)
        mixed = SurvivalData(frame, small_data.y)
        leaves = [
            clone(tree).fit(part.frame, part.y).apply(frame)
            for part in (mixed.subset(folds != fold) for fold in range(2))
        ]
        null.append(held_out_groups(mixed, folds, np.stack(leaves)).first.c_groups)
    assert found.first.permutation_p_value == (1 + sum(c >= found.first.c_groups for c in null)) / 5
    assert "by 4 permutations" in str(found)
    assert "log-rank" not in str(found)
    second = np.arange(len(small_data)) % 2 == 1
    rows = Surv(
        np.where(second, 1.0 + small_data.time, 1.0),
        second & small_data.event,
        entry=second * 1.0,
        id=np.arange(len(small_data)) // 2,
    )
    tree = clone(TREE).fit(small_data.frame, rows)
    with pytest.raises(DataError, match="subjects with several rows cannot be exchanged"):
        validate_groups(tree, small_data.frame, rows, n_permutations=9)


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


@pytest.mark.nightly
def test_weights_and_entry_times_are_read(small_data: SurvivalData) -> None:
    tree = clone(TREE).fit(small_data.frame, small_data.y)
    plain = validate_groups(tree, small_data.frame, small_data.y, 2)
    weight = np.where(np.arange(len(small_data)) % 2, 1.0, 3.0)
    weighted = validate_groups(tree, small_data.frame, small_data.y, 2, sample_weight=weight)
    late = validate_groups(
        tree, small_data.frame, Surv(small_data.time, small_data.event, entry=0.3 * small_data.time), 2
    )
    assert len({plain.first.p_value, weighted.first.p_value, late.first.p_value}) == 3
    assert len({plain.first.c_groups, weighted.first.c_groups, late.first.c_groups}) == 3
    weight[:5] = 0  # as if they were not there
    some = validate_groups(tree, small_data.frame, small_data.y, 2, sample_weight=weight)
    rest = small_data.subset(np.arange(5, len(small_data)))
    assert some == validate_groups(tree, rest.frame, rest.y, 2, sample_weight=weight[5:])
