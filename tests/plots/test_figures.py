"""Figures of groups, effects, training, calibration and decisions, and how notebooks show them."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.exceptions import NotFittedError

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    OptimalTreeClassifier,
    PrognosticTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    metrics,
    recalibrate,
)
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Nodec
from sstorch.plots import (
    plot_calibration,
    plot_decision_curve,
    plot_effects,
    plot_groups,
    plot_objective,
    plot_survival_by_leaf,
)
from sstorch.reading import effects, leaf_coefficients
from tests.flat import soft_tree
from tests.groups.trees import CAUSES, TREES, fitted
from tests.histories import halved
from tests.reading.trees import QUICK


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


# ---------------------------------------------------------------------- effects, training, calibration


def test_effects_have_a_panel_a_column_on_one_scale_the_largest_first(gbsg2: SurvivalData) -> None:
    tree = SurvivalRegression("weibull", columns=Columns(numeric="spline")).fit(gbsg2.frame, gbsg2.y)
    axes = plot_effects(tree, gbsg2.frame, inner=1)
    assert {ax.get_title() for ax in axes} == set(gbsg2.frame)
    assert len({ax.get_ylim() for ax in axes}) == 1
    sizes = effects(tree, gbsg2.frame, n_points=400).groupby("column")["effect"].agg(np.ptp)
    assert [ax.get_title() for ax in axes] == list(sizes.sort_values(ascending=False).index)
    assert not axes[0].figure.legends
    assert "Time ratio" in axes[0].figure.get_suptitle()
    few = plot_effects(tree, gbsg2.frame, max_columns=3)
    assert len(few) == 3
    assert "3 of 8 columns" in few[0].figure.get_suptitle()
    own = Figure()
    (ax,) = plot_effects(tree, gbsg2.frame, ["age"], figure=own)
    assert ax.figure is own


def test_effects_of_groups_have_colours_where_they_differ(gbsg2: SurvivalData) -> None:
    tree = soft_tree(depth=1, leaf="weibull", **QUICK).fit(gbsg2.frame, gbsg2.y)
    axes, group = plot_effects(tree, gbsg2.frame, ["age", "pnodes"]), tree.apply(gbsg2.frame)
    texts = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert texts == [f"group {k}: {(group == k).sum()} rows" for k in np.unique(group)]


def test_effects_of_a_cause_are_those_of_its_hazard() -> None:
    tree, data = fitted("soft causes")
    axes = plot_effects(tree, data.frame, ["size"], cause="death")
    assert "(death)" in axes[0].figure.get_suptitle()
    slope = leaf_coefficients(tree).loc[("death", 1, "size"), "coefficient"]
    lines = [[np.asarray(part, dtype=float) for part in line.get_data()] for line in axes[0].lines]
    x, y = next((x, y) for x, y in lines if len(np.unique(y)) > 2)
    np.testing.assert_allclose(np.diff(y), slope * np.diff(x), atol=1e-9)
    with pytest.raises(ConfigError, match="cause"):
        plot_effects(tree, data.frame, cause="progression")


def test_columns_of_zeros_and_ones_are_points_with_intervals_and_titles_are_free(gbsg2: SurvivalData) -> None:
    frame = gbsg2.frame.assign(treated=(gbsg2.frame["horTh"] == "yes").astype(float)).drop(columns="horTh")
    model = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(frame, gbsg2.y)
    axes = plot_effects(model, frame, intervals=True)
    panel = next(ax for ax in axes if ax.get_title() == "treated")
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "1"]
    table = effects(model, frame, ["treated"], intervals=True)
    (at_one,) = table.loc[table["effect"] != 0, ["lower", "effect", "upper"]].to_numpy()
    (bars,) = panel.collections
    np.testing.assert_allclose(max(np.asarray(bars.get_segments())[:, :, 1], key=np.ptp), at_one[[0, 2]])
    axes[0].figure.canvas.draw()
    ticks = [t.get_window_extent() for ax in axes for t in ax.get_xticklabels() if t.get_text()]
    assert not any(ax.title.get_window_extent().overlaps(tick) for ax in axes for tick in ticks)


def test_objective_of_every_start(small_data: SurvivalData) -> None:
    tree = soft_tree(depth=1, trainer=Nodec(macro_iterations=3), init="random", n_starts=1)
    table = tree.fit(small_data.frame, small_data.y).history_.macro_iterations
    (line,) = plot_objective(table).get_lines()
    np.testing.assert_array_equal(line.get_xdata(), table["macro_iteration"])
    np.testing.assert_array_equal(line.get_ydata(), table["objective"])
    columns = {"problem": [0, 1, 2, 0, 1], "macro_iteration": [0, 0, 0, 1, 1]}
    batch, own = pd.DataFrame({**columns, "objective": [3.0, 2.5, 2.8, 1.0, 2.0]}), Figure().subplots()
    assert plot_objective(batch, own) is own
    best, worse, _ = own.get_lines()
    assert best.get_linewidth() > worse.get_linewidth()
    with pytest.raises(DataError, match="history"):
        plot_objective(batch[:0])


def test_calibration_curve_with_the_diagonal(gbsg2: SurvivalData) -> None:
    predicted = np.random.default_rng(0).uniform(0.3, 0.95, len(gbsg2))
    curve = metrics.calibration_curve(metrics.HorizonRows.of(gbsg2.y, predicted, 1000.0))
    ax = plot_calibration(curve, predicted, horizon="1000 days")
    assert ax.get_ylabel() == "observed survival at 1000 days"
    diagonal, observed = ax.get_lines()
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(observed.get_ydata(), curve["observed"])
    counts = np.histogram(predicted, bins=50, range=(0, 1))[0]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], 0.1 * counts / counts.max())
    ends = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == pytest.approx((curve["lower"].min(), curve["upper"].max()))
    _, mirrored = plot_calibration(curve, incidence=True).get_lines()
    np.testing.assert_array_equal(mirrored.get_ydata(), 1.0 - curve["observed"])
    with pytest.raises(ConfigError, match="lacks the columns"):
        plot_calibration(curve.drop(columns="lower"))


def test_decision_curve_ends_at_the_highest_risk(gbsg2: SurvivalData) -> None:
    survival = np.linspace(0.2, 0.9, len(gbsg2))
    table = metrics.net_benefit(gbsg2.y, survival, t=1000.0, thresholds=[0.1, 0.5, 0.79, 0.9])
    ax = plot_decision_curve(table, horizon="1000 days")
    assert ax.get_xlabel() == "threshold of the risk by 1000 days"
    assert ax.get_xlim() == (0.1, 0.79)  # the highest risk is 0.8
    assert [line.get_label() for line in ax.get_lines()] == ["treat all", "treat none", "treat by the model"]
    assert ax.get_ylim()[0] < 0 < table["net_benefit"].max() < ax.get_ylim()[1]
    with pytest.raises(ConfigError, match="lacks the columns"):
        plot_decision_curve(table.drop(columns="treat_all"))


def test_names_with_dollar_signs_are_no_formulas() -> None:
    """matplotlib reads text between two of them as a formula, and raises where it is none."""
    draws, odd = np.random.default_rng(0), "fee $_$"
    frame = pd.DataFrame({odd: draws.normal(size=80), "b": draws.choice([odd, "x"], 80)})
    y = Surv(draws.exponential(size=80) + 0.01, np.arange(80) % 3, causes=(odd, "death"))
    model = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(frame, y)
    for ax in (plot_effects(model, frame, cause=odd)[0], plot_groups(model, frame, y)[0]):
        named = [text for text in ax.figure.findobj(Text) if "fee" in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)
