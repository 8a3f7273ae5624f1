"""Sentences, summaries and notebooks have the numbers of the groups."""

import html as html_module
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import KaplanMeierFitter

from sstorch import (
    Columns,
    GatePenalties,
    OptimalSurvivalTree,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    metrics,
)
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.inference import terms
from sstorch.metrics.incidence import aalen_johansen_error
from sstorch.plots import plot_groups
from sstorch.reading import export_graphviz, export_text, leaf_coefficients, leaf_table
from sstorch.reading.texts import _at_times
from tests.flat import soft_tree
from tests.groups.trees import CAUSES, TREES, Fitted, fitted, refitted
from tests.reading.trees import QUICK, THRESHOLDS, renumbered, with_gates


@pytest.fixture(scope="module")
def gated(gbsg2: SurvivalData) -> Fitted:
    """A tree with gates of one column each, and different slopes in its leaves."""
    tree = soft_tree(depth=2, leaf="weibull", **QUICK).fit(gbsg2.frame, gbsg2.y)
    tree.tree_ = replace(tree.tree_, time_unit="days")
    return Fitted(with_gates(tree, THRESHOLDS, gbsg2), gbsg2)


NUMBER = r"([\d.]+) \((?:95 % CI )?([\d.]+) to ([\d.]+)\)"


def test_sentences_have_kaplan_meier_of_lifelines(gated: Fitted) -> None:
    (tree, data), several = gated, 0
    group = tree.apply(data.frame)
    for k, line in enumerate(tree.describe().splitlines(), 1):
        inside = group == k
        curve = KaplanMeierFitter().fit(data.time[inside], data.event[inside])
        for value, lower, upper, time in re.findall(rf"{NUMBER} at (\d+) days", line):
            band = curve.confidence_interval_.loc[: float(time)].iloc[-1]
            expected = [curve.predict(float(time)), *band]
            np.testing.assert_allclose([float(value), float(lower), float(upper)], expected, atol=5.1e-4)
            several += 1
        median = curve.median_survival_time_
        assert ("median not reached" if np.isinf(median) else f"median {median:.4g} days (") in line
    assert several >= 4
    names = pd.MultiIndex.from_product([["S(1)", "S(2)"], ["estimate", "lower", "upper"]])
    text = "1.000 at 1 year and 0.800 (95 % CI 0.700 to 0.900) at 2 years"
    assert _at_times(pd.Series([1.0, 1.0, 1.0, 0.8, 0.7, 0.9], names), "years") == text


def test_sentences_have_aalen_johansen_of_each_cause(tmp_path: Path) -> None:
    tree, data = refitted("soft causes")
    group = tree.apply(data.frame)
    lines = [line for line in tree.describe().splitlines() if line.startswith("Group ")]
    for k, line in enumerate(lines, 1):
        rows = data.subset(group == k).y
        counts = ", ".join(f"{(rows.cause == j).sum()} events of {name}" for j, name in enumerate(CAUSES, 1))
        assert f": {len(rows)} of 400 rows, {counts}, cumulative incidence of {CAUSES[0]} " in line
        for text in (export_text(tree), tree.summary(details=True), tree._fitted_html()):
            assert f"group {k}: {len(rows)} rows, {counts}, predicted event-free median " in text
        for place, cause in enumerate(CAUSES):
            found = re.search(rf"incidence of {cause} .*?{NUMBER} at time (\d+)", line)
            assert found is not None
            time = float(found[4])
            value = metrics.aalen_johansen(rows, [time])[place, 0]
            step = 1.959964 * aalen_johansen_error(rows, [time])[place, 0] / (value * -np.log(value))
            expected = value, value ** np.exp(step), value ** np.exp(-step)
            np.testing.assert_allclose([float(found[j]) for j in (1, 2, 3)], expected, atol=5.1e-4)
    summary = tree.summary(details=True)
    assert all(f"Effects on the hazard of {name} " in summary for name in CAUSES)
    assert "Aalen-Johansen" in summary
    tree.save(tmp_path)
    again = PrognosticTree.load(tmp_path)
    for read in (PrognosticTree.describe, PrognosticTree.summary, export_text):
        assert read(again) == read(tree)


@pytest.mark.parametrize("exact", [False, True])
def test_graph_has_the_conditions_and_the_groups_of_the_tree(gbsg2: SurvivalData, exact: bool) -> None:
    data = gbsg2
    frame = data.frame.rename(columns={"pnodes": 'nodes "p"\n(number)'})
    model = OptimalSurvivalTree(max_depth=2, min_leaf=20) if exact else PrognosticTree()
    tree = model.fit(frame, data.y)
    graph = export_graphviz(tree)
    labels = {
        place: json.loads(label) for place, label in re.findall(r"^  (\d+) \[label=(.*)\];$", graph, re.M)
    }
    edges = re.findall(r"^  (\d+) -> (\d+) \[label=(.*)\];$", graph, re.M)
    assert len(edges) == 6
    assert all('"p"' in json.loads(rule) for parent, _, rule in edges if parent == "0")
    counts = np.bincount(tree.apply(frame))[1:]
    found = {int(n): int(rows) for n, rows in (re.findall(r"\d+", text)[:2] for text in labels.values())}
    assert found == dict(enumerate(counts.tolist(), 1))
    assert {child for _, child, _ in edges} == {str(place) for place in range(1, 7)}


def test_texts_are_the_same_under_any_names_of_causes() -> None:
    """Names that end as limits do, or as the name of another cause, or that hold a quantity."""
    data, found = fitted("soft causes").data, []
    frame = data.frame[["age", "size"]]
    for first, second in (("xx", "yy"), ("lower death (any) death upper", "death upper")):
        y = Surv(data.time, data.cause, causes=(first, second))
        model, exact = SurvivalRegression("weibull").fit(frame, y), OptimalSurvivalTree(1).fit(frame, y)
        texts = [model.describe(), leaf_table(model).to_csv(), model._fitted_html(), exact.summary()]
        text = "\n".join(texts).replace(first, "xx").replace(second, "yy")
        found.append(re.sub("[ -]+", " ", text))
    assert len(re.findall(r"yy [.\d]+ \(95 % CI [.\d]+ to", found[0])) == 1
    assert found[1] == found[0]
    assert model.describe().startswith("Group 1: all 400 rows, ")


def test_summary_has_contrasts_with_limits_and_details_on_request(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(time_unit="days").fit(gbsg2.frame, gbsg2.y)
    text, table, details = tree.summary(), terms(tree), tree.summary(details=True)
    assert text.startswith(f"Prognostic tree: 686 rows, 299 events\n{tree.describe()}\n")
    row = table.loc["pnodes"]
    limits = f"{row['odds ratio']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
    assert f"\n  pnodes {row['contrast']}: {limits}\n" in text
    assert "\nCautions\n* " in text
    technical = ("log_slope", "level", "nats", "degrees of freedom", "s(", "left", "right")
    assert not any(word in text for word in technical)
    assert export_text(tree) in details
    assert "effective degrees of freedom" in details
    with pytest.raises(ConfigError, match="n_terms"):
        tree.describe(-1)


def test_longer_side_of_crossing_curves_has_the_smaller_group_number() -> None:
    draws, arm = np.random.default_rng(0), np.repeat([0.0, 1.0], 100)
    time = np.where(arm == 1, draws.weibull(0.5, 200), 1.5 * draws.weibull(4, 200)).clip(0.01)
    y = np.append(time, 12.0), np.append(np.ones(200), 0.0)
    penalties = GatePenalties(gate_ridge=1e-4)
    tree = SoftSurvivalTree(1, "weibull", trainer="joint", n_starts=1, penalties=penalties)
    tree.fit(pd.DataFrame({"arm": np.append(arm, 1.0)}), y)
    predicted = leaf_table(tree).xs("model", axis=1, level="statistic").filter(regex=r"^S\(")
    survival, (yes, no) = predicted.mean(axis=1), tree.tree_.group_numbers
    # At the three times of the table it is the other side.
    assert (survival[yes] > survival[no]) != (yes < no)
    assert f"; longer survival if {'yes' if yes < no else 'no'}\n" in export_text(tree)


def test_notebooks_show_trees_and_explanations(gated: Fitted) -> None:
    tree, html = gated.tree, gated.tree._fitted_html()
    assert tree._repr_mimebundle_()["text/html"].startswith(html)
    assert tree._repr_html_().startswith(html)
    assert f"<pre>{html_module.escape(export_text(tree))}</pre>" in html
    rows = [re.findall("<td>(.*?)</td>", row)[:2] for row in html.split("<tr>")[1:]]
    assert rows == [[str(group), str(leaf_table(tree)["rows", ""][group])] for group in range(1, 5)]
    assert TREES["soft"]._fitted_html() == ""
    why = tree.explain(gated.data.frame[:1])
    assert html_module.unescape(why._repr_html_()) == f"<pre>{why}</pre>"


@pytest.mark.parametrize("shared", [False, True])
def test_slopes_are_written_once_or_group_by_group(shared: bool, gated: Fitted) -> None:
    tree, data = gated
    if shared:
        tree = with_gates(tree, THRESHOLDS, data)
        with torch.no_grad():
            for node in (5, 6, 7):
                tree.module_.leaf(node).slope.copy_(tree.module_.leaf(4).slope)
        tree = renumbered(tree, data)
    text = tree.summary(details=True)
    title = "Time ratio over the training range, largest first"
    assert text.count(title) == 1
    _, head, *section, last = text[text.index(title) :].split("\n\n")[0].splitlines()
    expected = np.exp(leaf_coefficients(tree)["effect"].unstack("group"))[[1] if shared else [1, 2, 3, 4]]
    if shared:
        assert head.split() == ["every", "group"]
        levels = [float(line.split()[-1]) for line in text[text.index("\n group ") :].splitlines()[2:6]]
        leaves = 4 + np.argsort(tree._tree.group_numbers)
        intercepts = np.array([float(tree.module_.leaf(leaf).intercept.detach()) for leaf in leaves])
        np.testing.assert_allclose(levels, intercepts - intercepts[0], atol=6e-4)
    else:
        assert head.split() == [word for group in expected for word in ("group", str(group))]
    largest = [float(np.log(expected.loc[line.split()[0]]).abs().max()) for line in section]
    assert largest == sorted(largest, reverse=True)
    for line in section:
        name, *numbers = line.split()
        assert [float(number) for number in numbers] == pytest.approx(list(expected.loc[name]), rel=1e-3)
    assert last == f"({len(expected) - len(section)} smaller)"


# ---------------------------------------------------------------------- curves outside the band


@pytest.mark.parametrize("groups", [False, True])
def test_weibull_curve_of_cured_rows_is_named_with_its_group(groups: bool, tmp_path: Path) -> None:
    # Most rows have the event between 2 and 3, the others never; follow-up ends at 5.
    rng = np.random.default_rng(0)
    time = np.where(rng.random(300) < 0.6, rng.uniform(2.0, 3.0, 300), np.inf)
    end = rng.uniform(3.0, 5.0, 300)
    X, y = pd.DataFrame({"x": rng.normal(size=300)}), Surv(np.minimum(time, end), time <= end)
    make = PrognosticTree if groups else SurvivalRegression
    tree = make(leaf="weibull", columns=Columns(numeric="linear"), time_unit="years")
    tree = tree.set_params(depth=1) if groups else tree
    tree.fit(X, y)
    group = tree.apply(X)
    for number, text in zip(np.unique(group), tree.late_fit_, strict=True):
        own = group == number
        end = 0.9 * y.time[own].max()
        km, lower, _ = (float(part) for part in metrics.KaplanMeier.fit(y[own]).limits(end))
        mean = float(tree.predict_survival_function(X[own], end).mean())
        assert mean < lower
        assert text.startswith(f"Group {number}: " if groups else "All rows: ")
        assert f"{mean:.3f}, outside the 95 % limits of Kaplan-Meier, {km:.3f} ({lower:.3f}" in text
        assert text in tree.summary()
    tree.save(tmp_path / "tree")
    assert make.load(tmp_path / "tree").late_fit_ == tree.late_fit_
    axes, _ = plot_groups(tree, X, y)
    assert "model outside the band" in [text.get_text() for text in axes.get_legend().get_texts()]
    late = Surv(y.time, y.event, entry=0.05 * y.time)  # has no comparable estimate
    assert tree.fit(X, late).late_fit_ == ()


def test_curve_within_the_band_is_not_named() -> None:
    rng = np.random.default_rng(1)
    x, end = rng.normal(size=300), rng.uniform(0.5, 3.0, 300)
    time = rng.weibull(1.5, 300) * np.exp(0.5 * x)
    X, y = pd.DataFrame({"x": x}), (np.minimum(time, end), time <= end)
    tree = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(X, y)
    assert tree.late_fit_ == ()
    axes, _ = plot_groups(tree, X, y)
    assert "model outside the band" not in [text.get_text() for text in axes.get_legend().get_texts()]


def test_exact_trees_name_the_time_before_the_first_entry(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, entry = pd.DataFrame({"x": rng.normal(size=200)}), rng.uniform(50.0, 60.0, 200)
    y = Surv(entry + rng.exponential(20.0, 200), np.ones(200, dtype=bool), entry=entry)
    tree = OptimalSurvivalTree(max_depth=1, min_leaf=50)
    with pytest.warns(DataWarning, match="curves take survival to it as 1"):
        tree.fit(X, y)
    tree.save(tmp_path / "tree")
    assert "No row is at risk before the first entry" in OptimalSurvivalTree.load(tmp_path / "tree").summary()
    after = Surv(y.time - 50.0, y.event, entry=entry - entry.min())
    assert "first entry" not in OptimalSurvivalTree(max_depth=1, min_leaf=50).fit(X, after).summary()
