"""Tables of groups are the estimates of their rows, naive and corrected; model cards."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from sstorch import PrognosticTree, Surv, metrics, recalibrate
from sstorch.exceptions import ConfigError
from sstorch.groups.table import _over_places, groups_text, incidence_limits
from sstorch.metrics.incidence import aalen_johansen_error
from sstorch.validation import group_table, model_card, stability
from tests.conftest import nightly
from tests.groups.trees import CAUSES, fitted, refitted
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
    elsewhere = recalibrate(tree, data.frame[:300], data.y[:300])
    elsewhere.metrics_ = {"concordance": 0.68}
    card = model_card(elsewhere)
    assert "| recalibrated on | 300 rows" in card
    assert "Recalibrated (intercept) on 300 rows" in card
    assert "| concordance | .680 |" in card
