"""Reading a tree of competing causes: every number against predictions or estimates of the same rows."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import no_grad

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    PrognosticTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    load_dataset,
    metrics,
)
from sstorch.exceptions import ConfigError
from sstorch.metrics.incidence import aalen_johansen_error
from sstorch.plots import plot_effects, plot_tree
from sstorch.reading import (
    effects,
    export_graphviz,
    export_text,
    gate_table,
    importance,
    leaf_coefficients,
    leaf_table,
)

CAUSES = ("progression", "death")


@pytest.fixture(scope="module")
def data() -> SurvivalData:
    return load_dataset("mgus2").subset(np.arange(500))


@pytest.fixture(scope="module")
def tree(data: SurvivalData) -> PrognosticTree:
    linear = Columns(numeric="linear")
    tree = PrognosticTree(depth=2, leaf="weibull", columns=linear, time_unit="months")
    return tree.fit(data.frame, data.y)


def _counts(data: SurvivalData, inside: np.ndarray) -> str:
    counts = ((data.cause[inside] == k).sum() for k in (1, 2))
    events = ", ".join(f"{count} events of {name}" for count, name in zip(counts, CAUSES, strict=True))
    return f"{inside.sum()} rows, {events}"


def _slopes(tree: PrognosticTree, cause: str, group: int) -> pd.Series:
    """Coefficients of a group in original units, from its parameters."""
    fitted = tree._tree
    leaf = int(np.flatnonzero(fitted.group_numbers == group)[0])
    with no_grad():
        slope = fitted.hazards[cause].leaf_parameters().slope[leaf].numpy()
    return pd.Series(slope, [feature.name for feature in fitted.preprocessor.leaf_features])


def test_texts_have_the_events_of_each_cause_in_order_of_prognosis(
    tree: PrognosticTree, data: SurvivalData, tmp_path: Path
) -> None:
    group = tree.apply(data.frame)
    lines = [line for line in tree.describe().splitlines() if line.startswith("Group ")]
    assert [line.split(":")[0] for line in lines] == [f"Group {k}" for k in range(1, 5)]
    unit = tree._tree.time_unit
    for k, line in enumerate(lines, 1):
        counts = _counts(data, group == k)
        start = f": {counts.replace(' rows', ' of 500 rows')}, cumulative incidence of {CAUSES[0]} "
        assert start in line
        for text in (export_text(tree), tree.summary(details=True)):
            assert f"group {k}: {counts}, predicted event-free median " in text
        rows = data.subset(group == k).y
        number = r"([.\d]+) \(95 % CI ([.\d]+) to ([.\d]+)\)"
        for place, cause in enumerate(CAUSES):
            found = re.search(rf"incidence of {cause} {number} at (\d+) {unit}", line)
            assert found is not None
            time = float(found[4])
            value = metrics.aalen_johansen(rows, [time])[place, 0]
            step = 1.959964 * aalen_johansen_error(rows, [time])[place, 0] / (value * -np.log(value))
            expected = value, value ** np.exp(step), value ** np.exp(-step)
            np.testing.assert_allclose([float(found[j]) for j in (1, 2, 3)], expected, atol=5.1e-4)
        assert counts.split(", ")[2] in export_graphviz(tree)
    summary = tree.summary(details=True)
    assert summary.startswith(f"Prognostic tree: {_counts(data, group > 0)}\n{tree.describe()}\n")
    assert f"\nDetails: depth 2, weibull leaves, {_counts(data, group > 0)}\n[1] " in summary
    assert all(f"Effects on the hazard of {name} in groups 1 and 3: time ratio" in summary for name in CAUSES)
    assert "Aalen-Johansen of these rows" not in tree.summary()
    assert "Aalen-Johansen" in summary
    tree.save(tmp_path)
    again = PrognosticTree.load(tmp_path)
    for read in (PrognosticTree.describe, PrognosticTree.summary, export_text, export_graphviz):
        assert read(again) == read(tree)


def test_leaf_table_has_aalen_johansen_and_mean_incidences(tree: PrognosticTree, data: SurvivalData) -> None:
    table, group = leaf_table(tree), tree.apply(data.frame)
    assert table.columns.names == ["quantity", "statistic"]
    assert list(table.index) == [(group, cause) for group in range(1, 5) for cause in CAUSES]
    times = [float(name[2:-1]) for name in table.columns.unique("quantity") if name.startswith("F(")]
    assert len(times) == 3
    for (k, cause), row in table.iterrows():
        rows, place = data.subset(group == k), CAUSES.index(cause)
        assert (row["rows", ""], row["events", ""]) == (len(rows), (rows.cause == place + 1).sum())
        observed = metrics.aalen_johansen(rows.y, times)[place]
        for t, time in enumerate(times):
            mean = tree.predict_cumulative_incidence(rows.frame, [time])[:, place, 0].mean()
            assert row[f"F({time:g})", "model"] == pytest.approx(mean, abs=1e-9)
            assert row[f"F({time:g})", "estimate"] == pytest.approx(observed[t], abs=1e-12, nan_ok=True)
    last = f"({times[-1]:g})"
    total = (
        table["F" + last, "model"].groupby("group").sum()
        + table["S" + last, "model"].groupby("group").first()
    )
    np.testing.assert_allclose(total, 1.0, atol=1e-9)


def test_coefficients_importance_and_effects_are_of_each_cause(
    tree: PrognosticTree, data: SurvivalData
) -> None:
    table = leaf_coefficients(tree)
    assert table.index.names == ["cause", "group", "feature"]
    scale = dict(zip(tree.preprocessor_.feature_names_out, tree.preprocessor_.scale_, strict=True))
    for cause in CAUSES:
        for group in range(1, 5):
            slopes = _slopes(tree, cause, group)
            assert table.loc[(cause, group, "mspike"), "coefficient"] == pytest.approx(
                slopes["mspike"] * scale["mspike"]
            )
    shares = importance(tree)
    assert list(shares) == ["gates", *(f"leaves {name}" for name in CAUSES)]
    np.testing.assert_allclose(shares.sum(), 1.0)
    assert shares["leaves progression"]["mspike"] > shares["leaves death"]["mspike"]
    moved = effects(tree, data.frame, ["mspike"], n_points=5)
    assert list(moved) == ["cause", "group", "column", "value", "effect", "time ratio"]
    for (cause, group), own in moved.groupby(["cause", "group"]):
        value = own["value"].astype(float)
        slope = table.loc[(cause, group, "mspike"), "coefficient"]
        reference = value[own["effect"] == 0].iloc[0]
        np.testing.assert_allclose(own["effect"], slope * (value - reference), atol=1e-9)


def test_an_explanation_is_of_the_cause_asked_for(tree: PrognosticTree, data: SurvivalData) -> None:
    row = data.frame.iloc[[3]]
    for number, cause in enumerate(CAUSES, 1):
        why = tree.explain(row, cause=cause)
        assert str(why) == str(tree.explain(row, cause=number))
        assert (why.group, why.cause) == (tree.apply(row)[0], cause)
        with no_grad():
            linear = tree._tree.hazards[cause].linear_predictor(tree._encode(row))[:, 0].numpy()
        leaf = int(np.flatnonzero(tree._tree.group_numbers == why.group)[0])
        assert why.contributions[f"group {why.group}"].sum() == pytest.approx(linear[leaf], abs=1e-9)
        expected = tree.predict_cumulative_incidence(row, why.incidence.columns)[0]
        np.testing.assert_allclose(why.incidence, expected, atol=1e-12)
        np.testing.assert_allclose(why.incidence.sum() + why.survival, 1.0, atol=1e-9)
        assert f"= linear predictor of {cause}" in str(why)
    first = f"F({why.incidence.columns[0]:g}) = {expected[0, 0]:.3f}"
    assert str(why).splitlines()[-1].startswith(f"predicted incidence of progression {first}, ")
    with pytest.raises(ConfigError, match="cause"):
        tree.explain(row, cause="relapse")


def test_rules_do_not_depend_on_the_causes(tree: PrognosticTree, data: SurvivalData) -> None:
    assert list(gate_table(tree)["events"]) == [int(data.event[here].sum()) for here in _at_gates(tree, data)]


def test_texts_are_the_same_under_any_names_of_causes(data: SurvivalData) -> None:
    """Names that end as limits do, or as the name of another cause, or that hold a quantity."""
    rows, found = data.subset(np.arange(400)), []
    plain, odd = ("xx", "yy"), ("lower death (any) death upper", "death upper")
    for first, second in (plain, odd):
        y = Surv(rows.time, rows.cause, causes=(first, second))
        model = SurvivalRegression("weibull").fit(rows.frame[["age", "mspike"]], y)
        exact = OptimalSurvivalTree(1).fit(rows.frame[["age", "mspike"]], y)
        html = model._fitted_html()
        texts = [model.describe(), leaf_table(model).to_csv(), html, exact.summary()]
        text = "\n".join(texts).replace(first, "xx").replace(second, "yy")
        found.append(re.sub("[ -]+", " ", text))
    assert len(re.findall(r"yy [.\d]+ \(95 % CI [.\d]+ to", found[0])) == 1
    assert found[1] == found[0]


def _at_gates(tree: PrognosticTree, data: SurvivalData) -> list[np.ndarray]:
    leaf = tree._tree.leaf(tree._encode(data.frame))
    return [leaf >= 0, leaf < 2, leaf >= 2]


def test_notebooks_and_figures_show_causes(tree: PrognosticTree, data: SurvivalData) -> None:
    html, group = tree._fitted_html(), tree.apply(data.frame)
    assert f"<b>Prognostic tree: depth 2, weibull leaves, {_counts(data, group > 0)}</b>" in html
    assert f"<b>group 2</b>: {_counts(data, group == 2)}, predicted event-free median" in html
    assert "Aalen-Johansen incidences F(t) of the rows of each group" in html
    edges, *nodes = plot_tree(tree, data.frame, data.y)
    assert {f"Group {k}" for k in range(1, 5)} <= {text.get_text() for text in edges.texts}
    counts = [(data.cause[group == 1] == k).sum() for k in (1, 2)]
    shown = " ".join(text.get_text() for text in edges.texts)
    assert f"{counts[0]} progression, {counts[1]} death event-free survival at " in shown
    first = nodes[3].lines[-1]
    curves = tree.predict_survival_function(data.frame[group == 1], first.get_xdata())
    np.testing.assert_allclose(first.get_ydata(), curves.mean(axis=0), atol=1e-12)
    axes = plot_effects(tree, data.frame, ["mspike"], cause="death")
    assert "(death)" in axes[0].figure.get_suptitle()
    slope = leaf_coefficients(tree).loc[("death", 1, "mspike"), "coefficient"]
    lines = [[np.asarray(part, dtype=float) for part in line.get_data()] for line in axes[0].lines]
    x, y = next((x, y) for x, y in lines if len(np.unique(y)) > 2)
    np.testing.assert_allclose(np.diff(y), slope * np.diff(x), atol=1e-9)
    with pytest.raises(ConfigError, match="cause"):
        plot_effects(tree, data.frame, cause="relapse")


def test_causes_without_groups_are_read_as_one_group(data: SurvivalData) -> None:
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(size=(len(data), 2)), columns=["a", "b"])
    tree = PrognosticTree(leaf="weibull", only_if_needed=True).fit(noise, data.y)
    assert tree.choice_ is not None
    assert tree.choice_.n_groups == 1
    assert tree.describe().startswith(f"Group 1: all {_counts(data, np.ones(len(data), dtype=bool))}")
