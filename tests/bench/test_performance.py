"""Scores of held-out rows with intervals, and what a summary says of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sstorch import SurvivalData, SurvivalRegression
from sstorch.bench.peers import COX, KAPLAN_MEIER, ONE_LEAF, TREE
from sstorch.bench.performance import performance, performance_lines
from sstorch.reading.texts import held_out_text


@pytest.fixture
def peers() -> pd.DataFrame:
    rng, names = np.random.default_rng(0), [KAPLAN_MEIER, ONE_LEAF, COX, TREE]
    rows = [(name, fold) for name in names for fold in range(5)]
    table = pd.DataFrame(rows, columns=["model", "fold"])
    table["c_harrell"] = np.where(table["model"] == KAPLAN_MEIER, 0.5, rng.uniform(0.6, 0.7, len(table)))
    table["ibs_graf"] = rng.uniform(0.1, 0.2, len(table))
    table.loc[(table["model"] == COX) & (table["fold"] == 2), "ibs_graf"] = np.nan
    return table


def test_intervals_are_those_of_the_corrected_t_test(peers: pd.DataFrame) -> None:
    table = performance(peers)
    scores = {name: own["c_harrell"].to_numpy() for name, own in peers.groupby("model")}
    quantile = stats.t.ppf(0.975, 4)
    for name in (ONE_LEAF, COX, TREE):
        own = scores[name]
        half = quantile * np.std(own, ddof=1) * np.sqrt(1 / 5 + 1 / 4)
        expected = [own.mean(), own.mean() - half, own.mean() + half, 5]
        found = table.loc[("c_harrell", name), ["value", "lower", "upper", "folds"]]
        np.testing.assert_allclose(found.to_numpy(float), expected, rtol=1e-12)
    paired = scores[TREE] - scores[COX]
    half = quantile * np.std(paired, ddof=1) * np.sqrt(1 / 5 + 1 / 4)
    found = table.loc[("c_harrell", COX), ["difference", "difference lower", "difference upper"]]
    expected = [paired.mean(), paired.mean() - half, paired.mean() + half]
    np.testing.assert_allclose(found.to_numpy(float), expected, rtol=1e-12)
    assert np.isnan(table.loc[("c_harrell", KAPLAN_MEIER), "lower"])
    assert table.loc[("ibs_graf", COX), "folds"] == 4
    own = peers[peers["model"] != COX].pivot(index="fold", columns="model", values="ibs_graf")
    cox = peers[peers["model"] == COX].set_index("fold")["ibs_graf"]
    gap = (own[TREE] - cox).dropna()
    assert table.loc[("ibs_graf", COX), "difference"] == pytest.approx(gap.mean(), rel=1e-12)


def test_limits_are_not_better_than_perfect_predictions(peers: pd.DataFrame) -> None:
    peers["c_harrell"] = np.tile([0.4, 0.9, 0.8, 0.7, 1.0], 4)
    peers["ibs_graf"] = np.tile([0.0, 0.3, 0.1, 0.0, 0.3], 4)
    table = performance(peers).loc[pd.IndexSlice[:, TREE], ["value", "lower", "upper"]].round(3)
    assert table.to_numpy().tolist() == [[0.76, 0.331, 1.0], [0.14, 0.0, 0.422]]


def test_equal_scores_have_no_interval_of_their_difference(peers: pd.DataFrame) -> None:
    same = peers[peers["model"] == TREE].assign(model=ONE_LEAF)
    same["c_harrell"] += 1e-16
    equal = pd.concat([peers[peers["model"] != ONE_LEAF], same])
    found = performance(equal).loc[("c_harrell", ONE_LEAF)]
    assert found["difference"] == 0
    assert np.isnan(found["difference lower"])
    assert performance_lines(equal)[2].endswith("regression without groups +0.000")


def test_lines_name_the_models_and_their_numbers(peers: pd.DataFrame) -> None:
    head, scores, gains = performance_lines(peers)
    table = performance(peers).loc["c_harrell"]
    assert head.startswith("Held-out rows, mean of 5 folds")
    for name, shown in ((TREE, "this model"), (ONE_LEAF, "regression without groups"), (COX, "Cox")):
        value, lower, upper = table.loc[name, ["value", "lower", "upper"]]
        assert f"{shown} {value:.3f} ({lower:.3f} to {upper:.3f})" in scores
    assert KAPLAN_MEIER not in scores
    value, lower, upper = table.loc[COX, ["difference", "difference lower", "difference upper"]]
    assert f"Cox {value:+.3f} ({lower:+.3f} to {upper:+.3f})" in gains


def test_summary_has_the_held_out_scores_after_the_groups_and_keeps_them(
    small_data: SurvivalData, tmp_path: Path, peers: pd.DataFrame
) -> None:
    model = SurvivalRegression(leaf="weibull").fit(small_data.frame, small_data.y)
    assert f"\n\n{held_out_text(())}\n" in model.summary()
    model.held_out_ = tuple(performance_lines(peers))
    model.save(tmp_path / "model")
    loaded = SurvivalRegression.load(tmp_path / "model")
    text = loaded.summary()
    assert held_out_text(()) not in text
    assert text.split("\n\n")[1] == "\n".join(performance_lines(peers))
    model.fit(small_data.frame, small_data.y)
    assert held_out_text(()) in model.summary()
