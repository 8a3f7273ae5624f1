"""Groups of a tree: how they fare, with and without correction, and whether they stay."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from sstorch import (
    GatePenalties,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
    metrics,
)
from sstorch.groups.stability import _matched, _turned
from sstorch.groups.table import _over_places, groups_text
from sstorch.validation import concordance_of_groups, group_table, stability

TREE = SoftSurvivalTree(
    depth=2,
    trainer="joint",
    init="kmeans",
    n_starts=1,
    penalties=GatePenalties(ridge=1e-2, gate_ridge=1e-4),
)


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    return TREE.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


def test_a_row_of_the_table_is_kaplan_meier_of_the_leaf(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    table = group_table(fitted, gbsg2.frame, gbsg2.y, horizons=[365, 1000.0])
    leaf = fitted.apply(gbsg2.frame)
    assert table.index.tolist() == np.unique(leaf).tolist()
    assert list(table.columns.get_level_values(0).unique()) == [
        "rows",
        "events",
        "median",
        "S(365)",
        "S(1000)",
    ]
    curves = fitted.predict_survival_function(gbsg2.frame, [365.0, 1000.0])
    for number, row in table.iterrows():
        inside = leaf == number
        band = metrics.KaplanMeierBand.fit((gbsg2.time[inside], gbsg2.event[inside]))
        parts = ["estimate", "lower", "upper"]
        assert row["rows", ""] == inside.sum()
        assert row["events", ""] == gbsg2.event[inside].sum()
        np.testing.assert_allclose(row["median"][parts], band.quantile())
        for k, t in enumerate((365.0, 1000.0)):
            np.testing.assert_allclose(row[f"S({t:g})"][parts], band.at(t))
            assert row[f"S({t:g})", "model"] == pytest.approx(curves[inside, k].mean())


@pytest.mark.nightly
def test_corrected_groups_are_nearer_to_each_other(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(2).fit(gbsg2.frame, gbsg2.y)
    table = group_table(tree, gbsg2.frame, gbsg2.y, [500.0], n_resamples=20)
    survival = table["S(500)"]
    assert np.ptp(survival["corrected"]) < np.ptp(survival["estimate"])
    assert (survival["corrected lower"] <= survival["corrected"]).all()
    assert (survival["corrected"] <= survival["corrected upper"]).all()
    widths = survival["corrected upper"] - survival["corrected lower"]
    assert (widths >= survival["upper"] - survival["lower"] - 1e-9).all()
    assert "corrected for optimism" in groups_text(table)
    plain = group_table(tree, gbsg2.frame, gbsg2.y, [500.0])
    pd.testing.assert_frame_equal(plain, table[list(plain.columns)])
    assert "Kaplan-Meier of these rows" in groups_text(plain)


def test_optimism_goes_to_the_same_place_in_the_order_of_risk() -> None:
    place = np.array([[0.0, 0.5], [0.5, 1.0]])
    wanted = np.array([[0.75, 1.0], [0.0, 0.25], [0.25, 0.75], [0.75, 0.75]])
    values = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_allclose(_over_places(values, place, wanted), [[3, 6], [1, 2], [2, 4], [0, 0]])


def test_concordance_of_the_leaves(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    train, test = gbsg2.subset(range(400)), gbsg2.subset(range(400, 686))
    value = concordance_of_groups(fitted, test.frame, test.y, (train.frame, train.y))
    given = (train.y, fitted.apply(train.frame))
    assert value == metrics.concordance_of_groups(test.y, fitted.apply(test.frame), train=given)


def test_stability(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    stable = stability(fitted, gbsg2.frame, gbsg2.y, n_resamples=3)
    groups = [stable.groups, *stable.resampled]
    index = [[adjusted_rand_score(one, other) for one in groups] for other in groups]
    assert stable.ari_of_tree == pytest.approx(np.mean(index[0][1:]))
    assert stable.ari == pytest.approx(np.mean([index[i][j] for i in range(1, 4) for j in range(1, i)]))
    np.testing.assert_array_equal(stable.groups, fitted.apply(gbsg2.frame))
    np.testing.assert_allclose(stable.moves, (stable.resampled != stable.groups).mean(axis=0))
    assert stable.columns.shape == (3, 8)
    assert (stable.columns == 1).all(axis=None)  # dense gates
    assert stable.table()["rows"].sum() == 686
    text = str(stable)
    assert f"adjusted Rand index: {stable.ari:.2f} between resamples" in text
    assert "node [1] uses 8 columns, always" in text


def test_leaves_are_matched_as_well_as_any_numbering_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        group, leaf = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
        best = max((np.array(p)[leaf] == group).sum() for p in permutations(range(4)))
        assert (_matched(group, leaf, 4) == group).sum() == best


def test_gates_are_turned_to_the_sides_of_the_tree() -> None:
    group = np.repeat(np.arange(8), 10)
    # Root and the gate of leaves 4 to 7 exchanged their sides.
    leaf = (np.array([4, 5, 6, 7, 2, 3, 0, 1]))[group]
    assert _turned(group, leaf, 3) == {1: 1, 2: 3, 3: 2, 4: 6, 5: 7, 6: 5, 7: 4}
    assert _turned(group, group, 3) == {node: node for node in range(1, 8)}
    assert _turned(np.zeros(3, dtype=int), np.zeros(3, dtype=int), 0) == {}
