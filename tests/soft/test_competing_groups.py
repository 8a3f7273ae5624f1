"""Groups of a tree for competing causes: limits, validation, stability, recalibration."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from sstorch import (
    Columns,
    PrognosticTree,
    Surv,
    SurvivalData,
    metrics,
    recalibrate,
)
from sstorch.data import folds_of
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.groups.table import incidence_limits
from sstorch.groups.validation import held_out_groups
from sstorch.soft.recalibration import recalibrated
from sstorch.validation import (
    concordance_of_groups,
    group_table,
    stability,
    validate_groups,
)

CAUSES = ("relapse", "death")
TREE = PrognosticTree(leaf="weibull", columns=Columns(numeric="linear"))


def _data(n: int = 400) -> SurvivalData:
    """Relapse depends on size, death on age."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["age", "size", "marker"])
    relapse = np.exp(-0.7 * frame["size"]) * rng.weibull(1.3, n) * 1200
    death = np.exp(-0.7 * frame["age"]) * rng.weibull(1.8, n) * 1500
    censored = rng.uniform(100, 3000, n)
    time = np.ceil(np.minimum(np.minimum(relapse, death), censored)).to_numpy()
    cause = np.select([relapse <= np.minimum(death, censored), death <= censored], [1, 2], 0)
    return SurvivalData(frame, Surv(time, cause, causes=CAUSES))


@pytest.fixture(scope="module")
def data() -> SurvivalData:
    return _data()


@pytest.fixture(scope="module")
def tree(data: SurvivalData) -> PrognosticTree:
    return clone(TREE).fit(data.frame, data.y)


@pytest.fixture(scope="module")
def whole(data: SurvivalData) -> tuple[pd.DataFrame, Surv]:
    """Rows with subjects and left truncation."""
    entry = np.where(np.arange(len(data)) % 4 == 0, np.floor(0.3 * data.time), 0.0)
    id = np.arange(len(data))
    return data.frame, Surv(data.time, data.cause, entry=entry, id=id, causes=CAUSES)


@pytest.fixture(scope="module")
def split(data: SurvivalData, whole: tuple[pd.DataFrame, Surv]) -> tuple[pd.DataFrame, Surv]:
    """The same follow-up, half of it in two start-stop rows."""
    frame, y = whole
    rng, n = np.random.default_rng(1), len(frame)
    cut = y.entry + rng.uniform(0.2, 0.8, n) * (y.time - y.entry)
    two = np.flatnonzero(rng.random(n) < 0.5)
    begin, end, cause = y.entry.copy(), np.r_[y.time, cut[two]], np.r_[y.cause, np.zeros(len(two), int)]
    begin[two] = cut[two]
    entry, id = np.r_[begin, y.entry[two]], np.r_[np.arange(n), two]
    order = np.lexsort((entry, id))
    rows = Surv(end[order], cause[order], entry=entry[order], id=id[order], causes=CAUSES)
    return frame.iloc[id[order]].reset_index(drop=True), rows


# ---------------------------------------------------------------------- table


@pytest.mark.parametrize("late", [False, True])
def test_group_table_has_limits_of_aalen_johansen(
    tree: PrognosticTree, data: SurvivalData, late: bool
) -> None:
    entry = 0.3 * data.time * late
    y = Surv(data.time, data.cause, entry=entry, causes=CAUSES)
    table = group_table(tree, data.frame, y, [300.0, 1e5], level=0.9)
    leaf = tree.apply(data.frame)
    for group in table.index.unique("group"):
        inside = leaf == group
        expected = metrics.aalen_johansen(y[inside], [300.0])
        error = metrics.aalen_johansen_error(y[inside], [300.0])
        lower, upper = incidence_limits(expected, norm.ppf(0.95) * error)
        for k, cause in enumerate(CAUSES):
            values, parts = [expected[k, 0], lower[k, 0], upper[k, 0]], ["estimate", "lower", "upper"]
            row = table.loc[(group, cause)]
            np.testing.assert_allclose(row["F(300)"][parts], values)
            # Beyond follow-up incidences are known only where all rows of the group had an event.
            last = y[inside].time == y[inside].time.max()
            assert row["F(100000)"][parts].notna().any() == y[inside].event[last].all()


def test_weights_are_repetitions_in_table_and_recalibration(tree: PrognosticTree, data: SurvivalData) -> None:
    weight = np.random.default_rng(0).integers(1, 4, len(data))
    rows = np.repeat(np.arange(len(data)), weight)
    frame, y = data.frame.iloc[rows].reset_index(drop=True), data.y[rows]
    one = group_table(tree, data.frame, data.y, sample_weight=weight)
    many = group_table(tree, frame, y)
    shares = [name for name in one if name[1] in ("estimate", "model")]
    pd.testing.assert_frame_equal(one[shares], many[shares])
    scaled = [group_table(tree, data.frame, data.y, sample_weight=w) for w in (weight, 0.1 * weight)]
    pd.testing.assert_frame_equal(*scaled)
    repeated = recalibrate(tree, frame, y, "slope").recalibration_
    weighted = recalibrate(tree, data.frame, data.y, "slope", weight).recalibration_
    for cause in CAUSES:
        assert weighted[cause].slope == pytest.approx(repeated[cause].slope, abs=1e-6)


@pytest.mark.nightly
def test_corrected_incidences_are_closer_than_naive_ones(tree: PrognosticTree, data: SurvivalData) -> None:
    table = group_table(clone(tree).fit(data.frame, data.y), data.frame, data.y, [300.0], n_resamples=15)
    for cause in CAUSES:
        found = table.xs(cause, level="cause")["F(300)"]
        assert list(found)[3:6] == ["corrected", "corrected lower", "corrected upper"]
        assert (found["corrected lower"] <= found["corrected"]).all()
        assert (found["corrected"] <= found["corrected upper"]).all()
        assert found["corrected"].between(0, 1).all()
    naive, corrected = (
        table["F(300)", kind].groupby("cause").agg(np.ptp).sum() for kind in ("estimate", "corrected")
    )
    assert corrected < naive


def test_concordance_of_groups_is_the_mean_over_causes(tree: PrognosticTree, data: SurvivalData) -> None:
    found = concordance_of_groups(tree, data.frame, data.y, (data.frame, data.y))
    group, times = tree.apply(data.frame), np.unique(data.time[data.event])
    curves = np.empty((len(data), 2, len(times)))
    for number in np.unique(group):
        inside = group == number
        curves[inside] = metrics.aalen_johansen(data.y[inside], times)
    expected = [
        metrics.concordance_harrell((data.time, data.cause == k), 1 - curves[:, k - 1], times) for k in (1, 2)
    ]
    assert found == pytest.approx(np.mean(expected), rel=1e-12)
    assert 0.55 < found < tree.score(data.frame, data.y)


# ---------------------------------------------------------------------- validation


@pytest.mark.nightly
def test_groups_are_validated_by_trees_of_the_folds(data: SurvivalData) -> None:
    wide = clone(TREE)
    found = validate_groups(clone(wide).fit(data.frame, data.y), data.frame, data.y, 3, random_state=4)
    folds = folds_of(data, 3, 4)
    for cause in (1, 2):
        assert np.ptp(np.bincount(folds, data.cause == cause)) <= 1
    groups, places, risks = [], np.zeros(len(data)), []
    for fold in range(3):
        inside = folds == fold
        other = clone(wide)._fit_data(data.subset(~inside))
        leaf = other.apply(data.frame)
        groups.append(leaf)
        # Relapse: the order of the groups by the area under their incidence until its last event.
        train = data.subset(~inside)
        times = np.unique(train.time[train.cause == 1])
        area = {}
        for group in np.unique(leaf[~inside]):
            rows = train.subset(leaf[~inside] == group)
            steps = np.r_[0, metrics.aalen_johansen(rows.y, times)[0, :-1]]
            area[group] = float(np.diff(times, prepend=0.0) @ steps)
        assert len(area) == 4
        order = sorted(area, key=area.__getitem__)
        places[inside] = [order.index(group) for group in leaf[inside]]
        test = data.subset(inside)
        risks.append(
            metrics.concordance_wolbers(
                test.y, [area[group] for group in leaf[inside]], train=train.y, tau=times[-1]
            )
        )
    for cause in CAUSES:
        alone = held_out_groups(data.of_cause(cause), folds, np.stack(groups)).first
        own = found.causes[cause]
        assert replace(own, gray_p_value=None, c_incidence=None) == alone
    relapse = found.causes["relapse"]
    assert relapse.c_incidence == pytest.approx(np.mean(risks))
    assert relapse.gray_p_value == metrics.gray_test(data.y, places, "relapse", strata=folds).p_value
    pairs = [adjusted_rand_score(groups[j], groups[k]) for j in range(3) for k in range(j)]
    assert found.ari == pytest.approx(np.mean(pairs))
    assert found.differ


@pytest.mark.nightly
def test_split_rows_give_the_tree_of_whole_rows(
    whole: tuple[pd.DataFrame, Surv], split: tuple[pd.DataFrame, Surv]
) -> None:
    one, other = clone(TREE).fit(*whole), clone(TREE).fit(*split)
    pd.testing.assert_frame_equal(group_table(one, *whole), group_table(other, *whole))
    first = np.r_[True, np.diff(split[1].id) > 0]
    drawn = stability(other, *split, 2).resampled[:, first]
    np.testing.assert_array_equal(stability(one, *whole, 2).resampled, drawn)


# ---------------------------------------------------------------------- stability


# ---------------------------------------------------------------------- recalibration


@pytest.mark.parametrize("depth", [0, 1])
def test_recalibration_is_that_of_the_hazard_of_each_cause(depth: int, data: SurvivalData) -> None:
    tree = clone(TREE).set_params(depth=depth).fit(data.frame, data.y)
    y = Surv(2 * data.time, data.cause, causes=CAUSES)
    new = recalibrate(tree, data.frame, y, "slope")
    for cause in CAUSES:
        rows = SurvivalData(data.frame, Surv(y.time, data.cause == CAUSES.index(cause) + 1))
        _, alone = recalibrated(tree.tree_.of_cause(cause), rows, "slope")
        assert new.recalibration_[cause] == alone
    np.testing.assert_array_equal(new.apply(data.frame), tree.apply(data.frame))
    assert new.log_likelihood(data.frame, y) > tree.log_likelihood(data.frame, y)
    assert "Recalibrated" not in tree.summary(details=True)


# ---------------------------------------------------------------------- keep, refuse


def test_what_is_not_defined_raises(tree: PrognosticTree, data: SurvivalData) -> None:
    X, y = data.frame, data.y
    with pytest.raises(ConfigError, match="depth 0 has one group"):
        validate_groups(clone(TREE).set_params(depth=0).fit(X, y), X, y)
    late = (data.cause == 2) & (np.cumsum(data.cause == 2) > 3)
    few = Surv(data.time, np.where(late, 0, data.cause), causes=CAUSES)
    with pytest.raises(DataError, match="cause death has 3 events in 400 rows, too few for 5 folds"):
        validate_groups(tree, X, few)
    with pytest.raises(DataError, match="3 events of cause death has none: a bootstrap needs more events"):
        stability(tree, X, few, 50)
    none = Surv(data.time, np.where(data.cause == 2, 0, data.cause), causes={1: "relapse"})
    with pytest.raises(DataError, match=r"cause death: how='intercept' needs at least .* 1, and 0 of 400"):
        recalibrate(tree, X, none)
    with pytest.raises(DataError, match="y has one event, and the model was trained on competing causes"):
        stability(tree, X, (data.time, data.event))
    with pytest.raises(ConfigError, match="level must be a number in"):
        group_table(tree, X, y, level=1.0)
    with pytest.warns(DataWarning, match="estimated from 3 events: 1"):
        recalibrate(tree, X, few)


def test_time_varying_covariates_need_after(split: tuple[pd.DataFrame, Surv], tmp_path: Path) -> None:
    frame, y = split
    frame = frame.assign(marker=y.entry / 1000 + 0.1 * frame["marker"])
    tree = clone(TREE).set_params(depth=1).fit(frame, y)
    tree.save(tmp_path)
    for model in (tree, PrognosticTree.load(tmp_path)):
        for call in (model.predict_cumulative_incidence, model.predict_survival_function, model.predict):
            with pytest.raises(ConfigError, match="after=0"):
                call(frame)
        assert model.predict_cumulative_incidence(frame, [500.0], after=0.0).shape == (len(frame), 2, 1)
        assert "from time zero if the covariates stay as in the row" in model.summary(details=True)
        assert "from time zero if the covariates stay as in the row" in str(model.explain(frame.iloc[[0]]))
        assert model.score(frame, y) > 0.6
