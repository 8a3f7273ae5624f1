"""Figures of groups: estimates of their rows, predictions, numbers at risk, changes of group."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

from sstorch import (
    OptimalSurvivalTree,
    OptimalTreeClassifier,
    PrognosticTree,
    Surv,
    SurvivalData,
    metrics,
    recalibrate,
)
from sstorch.exceptions import ConfigError, DataError
from sstorch.plots import plot_groups, plot_survival_by_leaf
from tests.groups.trees import CAUSES, TREES, fitted
from tests.histories import halved


def legend(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def of(outcome: str, data: SurvivalData) -> tuple[Surv, np.ndarray | None, np.ndarray]:
    """An outcome and weights as they are given, and the weights of its rows."""
    n, weight = np.arange(len(data)), np.ones(len(data))
    if "weight" in outcome:
        weight = np.random.default_rng(0).lognormal(0, 1, len(data)) * (n % 5 > 0)
    entry = 0.4 * data.time * (n % 2) if outcome == "entry" else None
    y = Surv(data.time, data.cause, entry=entry, causes=data.y.causes)
    if outcome == "weighted outcome":
        return y.weighted(weight / weight.sum()), None, weight
    return y, weight if outcome == "weights" else None, weight


outcomes = pytest.mark.parametrize("outcome", ["plain", "entry", "weights", "weighted outcome"])


@outcomes
def test_groups_of_one_event_are_steps_with_the_model_over_them(outcome: str) -> None:
    tree, data = fitted("soft")
    y, given, share = of(outcome, data)
    ax, below = plot_groups(tree, data.frame, y, sample_weight=given, time_unit="days")
    group, known = tree.apply(data.frame), y.weighted(share)
    numbers = np.unique(group)
    steps = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    model = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert len(steps) == len(model) == len(ax.collections) == len(numbers)
    for number, observed, predicted, limits in zip(numbers, steps, model, ax.collections, strict=True):
        inside = (group == number) & (share > 0)
        band = metrics.KaplanMeier.fit(known[inside])
        times, values = observed.get_data()
        np.testing.assert_allclose(values, band.at(times))
        assert times[-1] == data.time[inside].max()
        drawn = np.concatenate([path.vertices[:, 1] for path in limits.get_paths()])
        for part in band.limits(times)[1:]:
            assert np.abs(drawn[:, None] - part).min(axis=0).max() < 1e-12
        at, mean = (np.asarray(part) for part in predicted.get_data())
        curves = tree.predict_survival_function(data.frame[inside], at)
        np.testing.assert_allclose(mean, np.average(curves, axis=0, weights=share[inside]))
    rows = [((group == k) & (share > 0)).sum() for k in numbers]
    labels = sorted(text.get_text().split(",")[0] for text in ax.texts)
    assert labels == [f"group {k}: {n} rows" for k, n in zip(numbers, rows, strict=True)]
    assert min(np.diff(sorted(text.get_position()[1] for text in ax.texts))) > 0.09
    counts = [text.get_text() for text in below.texts]
    entered = (group == 1) & (share > 0) & ((y.entry is None) or (y.entry == 0))
    assert counts[: counts.index("group 2")][1] == str(entered.sum())
    assert ax.get_xlabel() == "time (days)"


@outcomes
def test_groups_of_causes_are_stacked_incidences(outcome: str) -> None:
    tree, data = fitted("soft causes")
    y, given, share = of(outcome, data)
    axes = plot_groups(tree, data.frame, y, sample_weight=given)
    group = tree.apply(data.frame)
    assert [ax.get_title().split(":")[0] for ax in axes] == ["group 1", "group 2"]
    for number, ax in enumerate(axes, 1):
        inside = (group == number) & (share > 0)
        seen, top = ax.lines[-1].get_data()
        observed = metrics.aalen_johansen(y[inside], seen, sample_weight=share[inside])
        np.testing.assert_allclose(top, observed.sum(axis=0), rtol=1e-10)
        end = ax.get_xlim()[1]
        predicted = tree.predict_cumulative_incidence(data.frame[inside], [end]).sum(axis=1)[:, 0]
        highest = max(part.get_datalim(ax.transData).y1 for part in ax.collections)
        assert highest == pytest.approx(np.average(predicted, weights=share[inside]), rel=1e-9)
        counts = [f"{(data.cause[inside] == k).sum()} {name}" for k, name in enumerate(CAUSES, 1)]
        assert ax.get_title().endswith(", ".join(counts))


def test_legend_has_a_test_of_other_rows_and_labels_have_rules(gbsg2: SurvivalData) -> None:
    train, test = gbsg2.subset(np.arange(400)), gbsg2.subset(np.arange(400, 686))
    soft = PrognosticTree(**TREES["soft"].get_params(deep=False)).fit(train.frame, train.y)
    for tree in (soft, OptimalSurvivalTree(1).fit(train.frame, train.y)):
        ax, _ = plot_groups(tree, test.frame, test.y, rules=True)
        p = metrics.logrank_test(test.y, tree.apply(test.frame)).p_value
        shown = "log-rank p < .001" if p < 0.001 else f"log-rank p = {p:.3f}".replace("0.", ".")
        assert legend(ax)[-1] == shown
        labels = " ".join(text.get_text().replace("\n", " ") for text in ax.texts)
        assert all(rule in labels for rule in tree._group_rules(4).values())
        # The training rows placed the gates: a log-rank test of them means nothing.
        ax, _ = plot_groups(tree, train.frame, train.y)
        assert legend(ax)[-1] == "no log-rank test: training rows"
    ax, _ = plot_groups(soft, train.frame, train.y, p_value=0.0123)
    assert legend(ax)[-1] == "p = .012"
    with pytest.raises(ConfigError, match="p_value must be a probability"):
        plot_groups(soft, train.frame, train.y, p_value=1.2)
    for call in (plot_groups, recalibrate):
        with pytest.raises(ConfigError, match="tree must be a fitted"):
            call(OptimalTreeClassifier(1), train.frame, train.y)


def test_one_row_a_given_figure_and_start_stop_rows() -> None:
    (tree, data), figure = fitted("soft"), Figure(figsize=(5, 4))
    row = np.flatnonzero(~data.event)[:1]
    ax, _ = plot_groups(tree, data.frame.iloc[row], data.y[row], figure)
    assert ax.figure is figure
    assert len(ax.texts) == 1
    for kind in ("soft", "soft causes"):
        with pytest.raises(DataError, match="one target for every row"):
            plot_groups(fitted(kind).tree, fitted(kind).data.frame[:5], fitted(kind).data.y)
    rows = pd.concat([data.frame.assign(visit=visit) for visit in (0, 1)], ignore_index=True)
    y = halved(data.y)
    labels = plot_groups(OptimalSurvivalTree(0).fit(rows, y), rows, y)[0].texts
    assert [text.get_text() for text in labels] == ["group 1: 1372 rows, 299 events"]  # no median


def test_curves_of_rows_have_the_colour_and_shade_of_their_leaf() -> None:
    tree, data = fitted("soft")
    own = Figure().subplots()
    assert plot_survival_by_leaf(tree, data.frame, own, max_curves=50) is own
    group, lines = tree.apply(data.frame), own.get_lines()
    assert legend(own) == [f"group {k}: {(group == k).sum()} rows" for k in np.unique(group)]
    means = [line for line in lines if line.get_linewidth() > 2]
    assert (len(means), len(lines)) == (4, 54)
    assert len({line.get_color() for line in means}) == 4
    times, values = means[0].get_data()
    curves = tree.predict_survival_function(data.frame[group == 1], np.asarray(times))
    np.testing.assert_allclose(values, curves.mean(axis=0))
    # Within a leaf a longer predicted survival is lighter.
    leaf = sorted(lines[: lines.index(means[0])], key=lambda line: np.mean(line.get_ydata()))
    assert (np.diff([sum(line.get_color()) for line in leaf]) > 0).all()
    with pytest.raises(NotFittedError):
        plot_survival_by_leaf(PrognosticTree(), data.frame)
