from functools import partial

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

from sstorch import (
    Columns,
    GatePenalties,
    OptimalSurvivalTree,
    OptimalTreeClassifier,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    metrics,
)
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.stability import Stability
from sstorch.plots import (
    plot_groups,
    plot_stability,
    plot_survival_by_leaf,
    plot_tree,
)
from sstorch.plots.figures import COLOURS
from sstorch.validation import concordance_of_groups
from tests.histories import halved


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    tree = SoftSurvivalTree(
        depth=2,
        trainer="joint",
        init="kmeans",
        n_starts=1,
        penalties=GatePenalties(ridge=1e-2, gate_ridge=1e-4),
        min_leaf=0.1,
    )
    return tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


def test_groups_of_start_stop_rows_have_no_median(gbsg2: SurvivalData) -> None:
    y = halved(gbsg2.y)
    rows = pd.concat([gbsg2.frame.assign(visit=visit) for visit in (0, 1)], ignore_index=True)
    tree = OptimalSurvivalTree(0).fit(rows, y)
    labels = [text.get_text() for text in plot_groups(tree, rows, y)[0].texts]
    assert labels == ["group 1: 1372 rows, 299 events"]


def test_groups_are_steps_with_the_model_over_them(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    ax, below = plot_groups(fitted, gbsg2.frame, (gbsg2.time, gbsg2.event), time_unit="days")
    leaf = fitted.apply(gbsg2.frame)
    numbers = np.unique(leaf)
    steps = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    model = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert len(steps) == len(model) == len(ax.collections) == len(numbers)
    for number, observed, predicted in zip(numbers, steps, model, strict=True):
        inside = leaf == number
        band = metrics.KaplanMeierBand.fit((gbsg2.time[inside], gbsg2.event[inside]))
        times, values = observed.get_data()
        np.testing.assert_allclose(values, band.at(times).value)
        assert times[-1] == gbsg2.time[inside].max()
        at, mean = (np.asarray(part) for part in predicted.get_data())
        curves = fitted.predict_survival_function(gbsg2.frame[inside], at)
        np.testing.assert_allclose(mean, curves.mean(axis=0))
    labels = [text.get_text() for text in ax.texts]
    assert sorted(label.split(",")[0] for label in labels) == [
        f"group {k}: {(leaf == k).sum()} rows" for k in numbers
    ]
    heights = sorted(text.get_position()[1] for text in ax.texts)
    assert min(np.diff(heights)) > 0.09
    counts = [text.get_text() for text in below.texts]
    assert counts[: counts.index("group 2")][1] == str((leaf == 1).sum())
    assert ax.get_xlabel() == "time (days)"
    start = np.where(np.arange(len(gbsg2)) % 2, 0.4 * gbsg2.time, 0.0)
    ax, below = plot_groups(fitted, gbsg2.frame, Surv(gbsg2.time, gbsg2.event, entry=start))
    steps = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    band = metrics.KaplanMeierBand.fit(
        Surv(*(part[leaf == 1] for part in (gbsg2.time, gbsg2.event)), entry=start[leaf == 1])
    )
    times, values = steps[0].get_data()
    np.testing.assert_allclose(values, band.at(times).value)
    counts = [text.get_text() for text in below.texts]
    assert counts[: counts.index("group 2")][1] == str(((leaf == 1) & (start == 0)).sum())
    with pytest.raises(DataError, match="one target for every row"):
        plot_groups(fitted, gbsg2.frame[:5], (gbsg2.time, gbsg2.event))


def test_weights_enter_steps_and_model(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    weight, leaf = np.random.default_rng(0).lognormal(0, 1, len(gbsg2)), fitted.apply(gbsg2.frame)
    weight[::5] = 0
    inside = (leaf == leaf.min()) & (weight > 0)
    y = np.where(weight > 0, gbsg2.time, 9000.0), gbsg2.event
    band = metrics.KaplanMeierBand.fit(tuple(part[inside] for part in y), sample_weight=weight[inside])
    for ax, _ in (
        plot_groups(fitted, gbsg2.frame, y, sample_weight=weight),
        plot_groups(fitted, gbsg2.frame, Surv(*y, weight=weight / weight.sum())),
    ):
        assert ax.get_xlim()[1] == gbsg2.time[weight > 0].max()
        observed = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
        predicted = next(line for line in ax.lines if line.get_linestyle() == "--")
        times, values = observed.get_data()
        np.testing.assert_allclose(values, band.at(times).value)
        limits = np.concatenate([path.vertices[:, 1] for path in ax.collections[0].get_paths()])
        for part in band.at(times)[1:]:
            assert np.abs(limits[:, None] - part).min(axis=0).max() < 1e-12
        at, mean = (np.asarray(part) for part in predicted.get_data())
        curves = fitted.predict_survival_function(gbsg2.frame[inside], at)
        np.testing.assert_allclose(mean, np.average(curves, axis=0, weights=weight[inside]))


def test_a_group_of_one_row_and_a_figure_of_ones_own(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    figure = Figure(figsize=(5, 4))
    rows = np.flatnonzero(~gbsg2.event)[:1]
    ax, _ = plot_groups(fitted, gbsg2.frame.iloc[rows], (gbsg2.time[rows], gbsg2.event[rows]), figure)
    assert ax.figure is figure
    assert len(ax.texts) == 1


def test_who_changes_group() -> None:
    groups = np.array([2, 1, 2, 1, 2])
    resampled = np.array([[2, 1, 1, 1, 2], [2, 1, 2, 1, 2], [2, 1, 1, 2, 2]])
    moves = (resampled != groups).mean(axis=0)
    stable = Stability(groups, resampled, 0.5, 0.6, moves, pd.DataFrame())
    strip, heat, shares = plot_stability(stable)
    first, second = (np.array(to_rgb(colour)) for colour in COLOURS[:2])
    (image,) = strip.get_images()
    np.testing.assert_allclose(image.get_array()[:, 0], [first, first, second, second, second])
    shown = np.asarray(heat.get_images()[0].get_array())
    assert shown.shape == (5, 3, 3)
    light = 0.28 * np.array([first, first, second, second, second]) + 0.72
    np.testing.assert_allclose(shown[:, 0], light)  # the resample that agrees in all
    np.testing.assert_allclose(shown[4, 1:], [first, first])  # row 2 moves most of its group
    np.testing.assert_allclose(shown[1, 2], second)
    assert [label.get_text() for label in strip.get_yticklabels()] == ["group 1\n2 rows", "group 2\n3 rows"]
    assert heat.get_title(loc="left") == "a row changes group in 20 %; adjusted Rand index 0.50"
    assert shares.get_xlim() == (0, 100)


def test_test_of_other_rows_and_rules_in_words(gbsg2: SurvivalData) -> None:
    train, test = gbsg2.subset(np.arange(400)), gbsg2.subset(np.arange(400, 686))
    tree = PrognosticTree(columns=Columns(numeric="linear")).fit(train.frame, train.y)
    ax, _ = plot_groups(tree, test.frame, test.y, rules=True)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    p = metrics.logrank_test((test.time, test.event), tree.apply(test.frame)).p_value
    assert labels[-1] == ("log-rank p < .001" if p < 0.001 else f"log-rank p = {p:.3f}".replace("0.", "."))
    shown = " ".join(text.get_text().replace("\n", " ") for text in ax.texts)
    for line in tree.describe().splitlines():
        assert not line.startswith("Group ") or line.split(": ")[1] in shown
    # The training rows placed the gates: a log-rank test of them means nothing.
    ax, _ = plot_groups(tree, train.frame, train.y)
    assert ax.get_legend().get_texts()[-1].get_text() == "no log-rank test: training rows"
    ax, _ = plot_groups(tree, train.frame, train.y, p_value=0.0123)
    assert ax.get_legend().get_texts()[-1].get_text() == "p = .012"
    with pytest.raises(ConfigError, match=r"p_value must be a probability, got 1\.2"):
        plot_groups(tree, train.frame, train.y, p_value=1.2)
    exact = OptimalSurvivalTree(1).fit(train.frame, train.y)
    ax, _ = plot_groups(exact, train.frame, train.y, rules=True)
    shown = " ".join(text.get_text().replace("\n", " ") for text in ax.texts)
    assert all(rule in shown for rule in exact._group_rules(None).values())
    for call in (plot_groups, partial(concordance_of_groups, train=(train.frame, train.y))):
        with pytest.raises(ConfigError, match="tree must be a fitted"):
            call(OptimalTreeClassifier(1), train.frame, train.y)
    with pytest.raises(ConfigError, match="n_terms must be at least 0"):
        tree.describe(-1)
    with pytest.raises(NotFittedError):
        plot_survival_by_leaf(PrognosticTree(), train.frame)
    with pytest.raises(NotFittedError):
        plot_tree(OptimalSurvivalTree())
