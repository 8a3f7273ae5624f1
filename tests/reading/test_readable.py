"""What a fitted tree tells about itself agrees with what it computes."""

import copy
import html as html_module
import re
import shutil
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import KaplanMeierFitter

from sstorch import Columns, GatePenalties, PrognosticTree, SoftSurvivalTree, Surv, SurvivalData
from sstorch.data.columns import label
from sstorch.data.time_unit import round_horizons
from sstorch.exceptions import DataError
from sstorch.groups.table import interval_text
from sstorch.inference import terms
from sstorch.metrics import KaplanMeierBand
from sstorch.optim import Nodec
from sstorch.reading import (
    export_graphviz,
    export_text,
    gate_coefficients,
    gate_table,
    importance,
    leaf_coefficients,
    leaf_table,
)
from sstorch.reading.texts import _at_times
from tests.conftest import nightly_but
from tests.flat import soft_tree

QUICK = {"gate_ridge": 1e-4, "n_starts": 2, "init": "random", "trainer": Nodec(macro_iterations=2)}


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    tree = soft_tree(depth=2, leaf="weibull", **QUICK)
    return tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


def _leaf(tree: SoftSurvivalTree, X: pd.DataFrame) -> np.ndarray:
    """Leaf of each row, 0 .. L - 1 from left to right, whatever the number of its group."""
    return tree._tree.leaf(tree._encode(X))


def _raw(tree: SoftSurvivalTree, X: pd.DataFrame) -> pd.DataFrame:
    """Encoded features in original units."""
    p = tree.preprocessor_
    return pd.DataFrame(
        p.transform(X) / np.where(p.scale_ == 0, 1, p.scale_) + p.offset_, columns=p.feature_names_out
    )


def _holds(rule: str, raw: pd.DataFrame) -> np.ndarray:
    """Whether a rule that is written out as a sum holds of rows in original units."""
    *words, constant, relation, zero = rule.split()
    assert (relation, zero) == (">=", "0")
    terms = zip(words[::2], words[1::2], strict=True)
    total = sum((float(number) * raw[name].to_numpy() for number, name in terms), np.zeros(len(raw)))
    held: np.ndarray = total + float(constant) >= 0
    return held


def test_gate_tables_hold_the_gates_in_original_units(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    table, long, raw = gate_table(fitted), gate_coefficients(fitted), _raw(fitted, gbsg2.frame)
    leaf = _leaf(fitted, gbsg2.frame)
    assert list(table.index) == [1, 2, 3]
    assert table["rows"][1] == 686
    assert table["yes"][1] == pytest.approx((leaf < 2).mean())
    assert table["events"][2] == gbsg2.event[leaf < 2].sum()
    for node in (1, 2, 3):
        own = long.loc[node]
        assert own["share"].sum() == pytest.approx(1.0)
        assert (np.diff(own["effect"].abs()) <= 0).all()
        assert table["features"][node] == list(own.index[:4])
        # Differences between subjects leave the constant out.
        score = raw[own.index] @ own["coefficient"]
        with torch.no_grad():
            expected = fitted.module_.gate_logits(fitted._encode(gbsg2.frame), [node])[0].numpy()
        np.testing.assert_allclose(score - score[0], expected - expected[0], atol=1e-9)


def test_leaf_table_has_a_row_per_group_in_order_of_prognosis(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    table, group = leaf_table(fitted), fitted.apply(gbsg2.frame)
    assert list(table.index) == [1, 2, 3, 4]
    assert (table.index.name, table.columns.names) == ("group", ["quantity", "statistic"])
    np.testing.assert_array_equal(table["rows", ""], np.bincount(group, minlength=5)[1:])
    statistics = table.columns.to_frame(index=False).groupby("quantity", sort=False)["statistic"].agg(list)
    assert statistics.to_dict() == {
        "rows": [""],
        "events": [""],
        **{
            name: ["estimate", "lower", "upper", "model"]
            for name in ("median", "S(500)", "S(700)", "S(2000)")
        },
        "log_a": [""],
    }
    last, leaf = fitted.event_times_[-1], _leaf(fitted, gbsg2.frame)
    reached = 0
    for k in np.unique(group):
        rows, median = gbsg2.frame[group == k], table["median", "model"][k]
        (node,) = np.unique(leaf[group == k]) + 4
        if np.isfinite(median):
            reached += 1
            assert 0 < median <= last
            assert fitted.predict_survival_function(rows, [median]).mean() == pytest.approx(0.5, abs=1e-6)
        else:
            assert fitted.predict_survival_function(rows, [last]).mean() > 0.5
        early = fitted.predict_survival_function(rows, [500.0]).mean()
        assert table["S(500)", "model"][k] == pytest.approx(early, rel=1e-12)
        assert table["log_a", ""][k] == float(fitted.module_.leaf(node).shape.detach()[0])
    assert reached >= 2


def test_groups_have_kaplan_meier_of_their_rows(gbsg2: SurvivalData) -> None:
    weight, entry = 1.0 + np.arange(len(gbsg2)) % 2, 0.2 * gbsg2.time
    tree = PrognosticTree(depth=2, leaf="weibull", columns=Columns(numeric="linear"))
    tree.fit(gbsg2.frame, Surv(gbsg2.time, gbsg2.event, entry=entry), sample_weight=weight)
    table, group = leaf_table(tree), tree.apply(gbsg2.frame)
    for number in np.unique(group):
        inside, row = group == number, table.loc[number]
        band = KaplanMeierBand.fit(
            Surv(gbsg2.time[inside], gbsg2.event[inside], entry=entry[inside]), sample_weight=weight[inside]
        )
        np.testing.assert_array_equal(row["median"][["estimate", "lower", "upper"]], band.quantile())
        for time in round_horizons(tree.event_times_):
            found = row[f"S({time:g})"][["estimate", "lower", "upper"]]
            np.testing.assert_allclose(found, band.at(time), rtol=1e-12)
    assert interval_text(*table["median"].loc[4, ["estimate", "lower", "upper"]]) in tree.summary(
        details=True
    )


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [("weibull", "time ratio"), ("log_logistic", "time ratio"), ("gompertz", "hazard ratio"),
     ("spline_ph", "hazard ratio"), ("spline_po", "odds ratio")],
)  # fmt: skip
def test_ratios_are_what_they_say(small_data: SurvivalData, leaf: str, kind: str) -> None:
    tree = soft_tree(depth=0, leaf=leaf, **QUICK).fit(small_data.frame, (small_data.time, small_data.event))
    ratio = leaf_coefficients(tree).loc[1][kind]["x1"]
    one = small_data.frame.iloc[[0]]
    more = one.assign(x1=one["x1"] + 1.0)
    times = np.array([10.0, 40.0])
    if kind == "hazard ratio":
        found = tree.predict_hazard_function(more, times) / tree.predict_hazard_function(one, times)
    elif kind == "time ratio":
        found = tree.predict_quantile(more, 0.3) / tree.predict_quantile(one, 0.3)
    else:
        survival = [tree.predict_survival_function(rows, times) for rows in (more, one)]
        found = np.divide(*[(1 - s) / s for s in survival])
    np.testing.assert_allclose(found, ratio, rtol=1e-9)


def test_families_without_one_ratio_give_none(small_data: SurvivalData) -> None:
    tree = soft_tree(depth=0, leaf="spline_probit", **QUICK)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    assert list(leaf_coefficients(tree)) == ["column", "coefficient", "effect"]
    assert gate_table(tree).empty
    assert gate_coefficients(tree).empty
    assert (importance(tree)["gates"] == 0).all()
    assert export_text(tree).startswith("group 1: 120 rows, 80 events, predicted median ")
    assert tree.explain(small_data.frame.iloc[[5]]).path.empty


def test_contributions_sum_to_the_scores(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    holes = gbsg2.frame.copy()
    holes.loc[3, "age"] = np.nan
    for row in range(0, 60, 3):
        x = holes.iloc[[row]]
        found, encoded = fitted.explain(x), fitted._encode(x)
        node = int(_leaf(fitted, x)[0]) + 4
        assert found.group == fitted.apply(x)[0]
        assert list(found.path.index) == [1, 2 if node < 6 else 3]
        with torch.no_grad():
            for branch in found.path.index:
                score = float(fitted.module_.gate_logits(encoded, [branch])[0, 0])
                assert found.contributions[f"gate {branch}"].sum() == pytest.approx(score, rel=1e-12)
                assert found.path["score"][branch] == pytest.approx(score, rel=1e-12)
            linear = float(fitted.module_.linear_predictor(encoded, [node])[0, 0])
        assert found.contributions[f"group {found.group}"].sum() == pytest.approx(linear, rel=1e-12)
        proba = fitted.predict_leaf_proba(x)[0]
        np.testing.assert_allclose(found.group_probability, proba)
        assert list(found.group_probability.index) == [1, 2, 3, 4]
        assert found.path["reached"].iloc[-1] == pytest.approx(proba[found.group - 1])
        np.testing.assert_allclose(found.values, _raw(fitted, x).iloc[0], rtol=1e-12)
    text = str(found)
    first = found.path.iloc[0]
    survival = f", {first['survival']} survival" if first["survival"] else ""
    assert text.startswith(f"[1] {first['answer']}{survival}; probability of yes 0.")
    assert f"group {found.group}, probability" in text
    with pytest.raises(DataError, match="x has 2 rows; explain one at a time"):
        fitted.explain(gbsg2.frame[:2])


def test_the_terms_of_an_explanation_add_up_and_it_ends_with_a_prediction(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    years = copy.deepcopy(fitted)
    years.tree_ = replace(years.tree_, time_unit="days")
    for row in (0, 7, 11):
        x = gbsg2.frame.iloc[[row]]
        found = years.explain(x)
        *lines, last = str(found).splitlines()
        parts: list[list[str]] = []
        for line in lines:
            if line.startswith("    "):
                parts[-1].append(line.split()[0])
            else:
                parts.append([])
        assert len(parts) == 3
        for numbers, column in zip(parts, found.contributions, strict=True):
            *terms, total = map(Decimal, numbers)
            assert len(terms) == 7  # five, the others, and the constant
            assert sum(terms) == total
            resolution = 10.0 ** int(total.as_tuple().exponent)
            assert float(total) == pytest.approx(found.contributions[column].sum(), abs=0.51 * resolution)
        survival = fitted.predict_survival_function(x, [365.0, 730.0, 1825.0])[0]
        np.testing.assert_allclose(found.survival, survival)
        median = float(fitted.predict_quantile(x)[0])
        assert found.median == median
        told = ", ".join(f"S({t}) = {s:.3f}" for t, s in zip((365, 730, 1825), survival, strict=True))
        assert last == f"predicted median {median:.4g} days; {told}"
        # A category that applies is its name alone.
        words = {line.split("  ")[-1] for line in lines if line.startswith("    ")}
        named = {f"{name}={word}" for name, word in x.select_dtypes("category").iloc[0].items()}
        assert named & words
        assert not any("= 1" in word for word in words if "=" in word.split(" ")[0])


def test_texts_name_the_side_of_longer_survival_first(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = _set_gates(fitted, THRESHOLDS, gbsg2)
    times = round_horizons(tree.event_times_)
    survival, leaf = tree.predict_survival_function(gbsg2.frame, times).mean(axis=1), _leaf(tree, gbsg2.frame)
    text = tree.summary(details=True)
    table = text[text.index("\n group ") :].splitlines()[2:6]
    assert [int(line.split()[0]) for line in table] == [1, 2, 3, 4]
    assert [int(line.split()[1][:-1]) for line in tree.describe().splitlines()] == [1, 2, 3, 4]
    whole = tree.predict_survival_function(gbsg2.frame, np.linspace(0, gbsg2.time.max(), 500)).mean(axis=1)
    group = tree.apply(gbsg2.frame)
    assert (np.diff([whole[group == k].mean() for k in range(1, 5)]) < 0).all()
    for node, (left, right) in {1: (leaf < 2, leaf > 1), 2: (leaf == 0, leaf == 1)}.items():
        answer = "yes" if survival[left].mean() > survival[right].mean() else "no"
        (line,) = (line for line in export_text(tree).splitlines() if f"[{node}] " in line)
        assert line.endswith(f"; longer survival if {answer}")
        assert f'{node} -> {2 * node + (answer == "no")} [label="{answer}, longer survival"]' in (
            export_graphviz(tree)
        )


def test_longer_side_of_crossing_curves_has_the_smaller_group_number() -> None:
    draws, arm = np.random.default_rng(0), np.repeat([0.0, 1.0], 100)
    time = np.where(arm == 1, draws.weibull(0.5, 200), 1.5 * draws.weibull(4, 200)).clip(0.01)
    y = np.append(time, 12.0), np.append(np.ones(200), 0.0)
    tree = SoftSurvivalTree(
        1, "weibull", trainer="joint", n_starts=1, penalties=GatePenalties(gate_ridge=1e-4)
    )
    tree.fit(pd.DataFrame({"arm": np.append(arm, 1.0)}), y)
    predicted = leaf_table(tree).xs("model", axis=1, level="statistic").filter(regex=r"^S\(")
    survival, (yes, no) = predicted.mean(axis=1), tree.tree_.group_numbers
    assert (survival[yes] > survival[no]) != (
        yes < no
    )  # at the three times of the table it is the other side
    assert f"; longer survival if {'yes' if yes < no else 'no'}\n" in export_text(tree)


def test_a_category_is_told_against_the_most_frequent_one(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    modes = {f"{name}={gbsg2.frame[name].mode()[0]}" for name in ("horTh", "menostat", "tgrade")}
    scores = (
        (gate_coefficients(fitted), 1, "weight"),
        (leaf_coefficients(fitted), int(fitted._tree.group_numbers[0]), "slope"),
    )
    for table, number, name in scores:
        assert not modes & set(table.index.get_level_values("feature"))
        part = fitted.module_.gate(1) if name == "weight" else fitted.module_.leaf(4)
        names, values = fitted.preprocessor_.feature_names_out, getattr(part, name).detach().numpy()
        weight = dict(zip(names, values, strict=True))
        told = table.loc[number].loc["horTh=yes", "coefficient"]
        assert told == pytest.approx(weight["horTh=yes"] - weight["horTh=no"])


def test_a_notebook_shows_trees_and_explanations(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = _set_gates(fitted, {**THRESHOLDS, 3: ({}, 9.0)}, gbsg2)
    html = tree._repr_mimebundle_()["text/html"]
    assert html.startswith(tree._fitted_html())
    assert tree._repr_html_().startswith(tree._fitted_html())
    assert "<code>pnodes &lt;= 5.5</code> <small>(yes, longer survival)</small> " in html
    assert html.count("<li>") == 5  # root, gate 2 and three leaves
    rows = [re.findall("<td>(.*?)</td>", row)[:2] for row in tree._fitted_html().split("<tr>")[1:]]
    assert rows == [[str(group), str(leaf_table(tree)["rows", ""][group])] for group in (1, 2, 3)]
    assert PrognosticTree()._fitted_html() == ""
    why = tree.explain(gbsg2.frame[:1])
    assert html_module.unescape(why._repr_html_()) == f"<pre>{why}</pre>"


def test_importance_follows_its_definition(fitted: SoftSurvivalTree) -> None:
    table, long = importance(fitted), gate_coefficients(fitted)
    assert list(table.index) == list(fitted.feature_names_in_)
    np.testing.assert_allclose(table.sum(), 1.0)
    assert (table >= 0).all(axis=None)
    total = dict.fromkeys(table.index, 0.0)
    for node in (1, 2, 3):
        span = {}
        for column, own in long.loc[node].groupby("column"):
            values = [0.0, *own["effect"]]
            span[column] = max(values) - min(values)
        for column, value in span.items():
            total[column] += fitted.node_table_["rows"][node] * value / sum(span.values())
    expected = pd.Series(total) / sum(total.values())
    np.testing.assert_allclose(table["gates"], expected[table.index], rtol=1e-12)


def test_diagram_in_dot(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    odd = gbsg2.frame.rename(columns={"age": 'the "age" \\ of a patient'})
    tree = soft_tree(depth=1, **QUICK).fit(odd, (gbsg2.time, gbsg2.event))
    text = export_graphviz(tree, n_terms=None)
    assert '\\"age\\" \\\\ of' in text
    for part in ("1 -> 2", "1 -> 3", "group 1", "group 2"):
        assert part in text
    assert "3 -> 7" in export_graphviz(fitted)
    if shutil.which("dot") is None:
        pytest.skip("the program dot of Graphviz is not installed")
    done = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert sum(line.startswith("node ") for line in lines) == 3
    assert sum(line.startswith("edge ") for line in lines) == 2
    assert done.stderr == ""


@pytest.mark.parametrize("seed", nightly_but({0}, range(3)))
def test_rules_as_they_are_written_send_rows_where_the_gates_do(seed: int) -> None:
    """Also where a column, such as a year, is far from zero compared with its range."""
    draws = np.random.default_rng(seed)
    frame = pd.DataFrame({"year": draws.integers(1995, 2016, 300) * 1.0, "age": draws.uniform(40, 80, 300)})
    early = (frame["year"] < 2005) ^ (frame["age"] > 60 + 5 * seed)
    y = draws.exponential(np.where(early, 1.0, 9.0)) + 0.01, draws.random(300) < 0.8
    tree = SoftSurvivalTree(
        depth=2,
        leaf="weibull",
        trainer="joint",
        init="kmeans",
        n_starts=2,
        penalties=GatePenalties(gate_ridge=1e-4),
        random_state=seed,
    ).fit(frame, y)
    leaf = _leaf(tree, frame) + 4
    for node, level in ((1, 0), (2, 1), (3, 1)):
        inside = leaf >> (2 - level) == node
        rows, left = frame[inside], (leaf[inside] >> (1 - level)) % 2 == 0
        if not inside.any():
            continue
        np.testing.assert_array_equal(_holds(gate_table(tree, None).loc[node, "rule"], rows), left)


# ---------------------------------------------------------------------- what is printed


def _set_gates(
    tree: SoftSurvivalTree, gates: dict[int, tuple[dict[str, float], float]], data: SurvivalData
) -> SoftSurvivalTree:
    """A copy with gates of some weights per original unit and a constant, as if it had been trained so."""
    tree = copy.deepcopy(tree)
    p, names = tree.preprocessor_, tree.preprocessor_.feature_names_out
    for node, (weights, constant) in gates.items():
        gate = tree.module_.gate(node)
        with torch.no_grad():
            gate.weight.zero_()
            gate.bias.fill_(constant)
            for name, value in weights.items():
                place = names.index(name)
                gate.weight[place] = value / p.scale_[place]
                gate.bias += value * p.offset_[place]
    return _renumbered(tree, data)


def _renumbered(tree: SoftSurvivalTree, data: SurvivalData) -> SoftSurvivalTree:
    """The tree as if its parameters, which were changed, had been trained."""
    tree.tree_ = replace(tree.tree_, groups=None)
    tree._read_later(data)
    return tree


THRESHOLDS = {
    1: ({"pnodes": -2.0}, 11.0),
    2: ({"progrec": 1.0}, -67.5),
    3: ({"tgrade=II": 3.0, "tgrade=III": 2.0}, -1.0),
}


def test_gates_of_one_column_are_thresholds_and_lists(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = _set_gates(fitted, THRESHOLDS, gbsg2)
    assert list(gate_table(tree)["rule"]) == ["pnodes <= 5.5", "progrec > 68", "tgrade in {II, III}"]
    rows, few = gbsg2.frame, (gbsg2.frame["pnodes"] <= 5.5)
    assert not ((rows["progrec"] > 67.5) != (rows["progrec"] > 68))[few].any()
    leaf, numbers = _leaf(tree, rows), tree._tree.group_numbers
    who = (
        "pnodes <= 5.5 and progrec > 68",
        "pnodes <= 5.5 and progrec <= 68",
        "pnodes > 5.5 and tgrade in {II, III}",
        "pnodes > 5.5 and tgrade is I",
    )
    told = sorted(line.split(", Kaplan-Meier")[0] for line in tree.describe().splitlines())
    assert told == sorted(
        f"Group {number}: {text}: {(leaf == k).sum()} of 686 rows, {gbsg2.event[leaf == k].sum()} events"
        for k, (number, text) in enumerate(zip(numbers, who, strict=True))
    )


def test_describe_has_kaplan_meier_of_lifelines(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = _set_gates(fitted, THRESHOLDS, gbsg2)
    tree.tree_ = replace(tree.tree_, time_unit="days")
    group = tree.apply(gbsg2.frame)
    number = r"([\d.]+) \((?:95 % CI )?([\d.]+) to ([\d.]+)\)"
    several = 0
    for k, line in enumerate(tree.describe().splitlines(), 1):
        inside = group == k
        curve = KaplanMeierFitter().fit(gbsg2.time[inside], gbsg2.event[inside])
        for value, lower, upper, time in re.findall(rf"{number} at (\d+) days", line):
            band = curve.confidence_interval_.loc[: float(time)].iloc[-1]
            expected = [curve.predict(float(time)), *band]
            np.testing.assert_allclose([float(value), float(lower), float(upper)], expected, atol=5.1e-4)
            several += 1
        median = curve.median_survival_time_
        told = "median not reached" if np.isinf(median) else f"median {median:.4g} days ("
        assert told in line
    assert several >= 4


def test_summary_has_contrasts_with_limits_and_details_on_request(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(time_unit="days").fit(gbsg2.frame, gbsg2.y)
    text, table = tree.summary(), terms(tree)
    assert text.startswith(f"Prognostic tree: 686 rows, 299 events\n{tree.describe()}\n")
    row = table.loc["pnodes"]
    limits = f"{row['odds ratio']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
    assert f"\n  pnodes {row['contrast']}: {limits}\n" in text
    assert "\nCautions\n* " in text
    technical = ("log_slope", "level", "nats", "degrees of freedom", "s(", "left", "right")
    assert not any(word in text for word in technical)
    details = tree.summary(details=True)
    assert export_text(tree) in details
    assert "effective degrees of freedom" in details
    assert "nats" in details


def test_first_interval_of_a_sentence_has_its_level() -> None:
    parts = {"S(1)": (1.0, 1.0, 1.0), "S(2)": (0.8, 0.7, 0.9)}
    row = pd.Series(
        {(name, part): v for name, values in parts.items()
         for part, v in zip(("estimate", "lower", "upper"), values, strict=True)}
    )  # fmt: skip
    text = "1.000 at 1 year and 0.800 (95 % CI 0.700 to 0.900) at 2 years"
    assert _at_times(row, "years") == text


def test_of_two_bounds_on_a_number_the_tighter_is_said(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    bounds = {1: 50.5, 2: 40.5, 3: 60.5}
    tree = _set_gates(fitted, {node: ({"age": -1.0}, bound) for node, bound in bounds.items()}, gbsg2)
    assert {line.split(": ")[1] for line in tree.describe().splitlines()} == {
        "age <= 40",
        "age <= 50 and age > 40",
        "age > 50 and age <= 60",
        "age > 60",
    }


RULES: list[tuple[str, dict[str, float], float, str, str]] = [
    ("gbsg2", {"tgrade=I": 1.0}, -0.5, "tgrade is I", "tgrade in {II, III}"),
    ("gbsg2", {"tgrade=I": -1.0}, 0.5, "tgrade in {II, III}", "tgrade is I"),
    ("gbsg2", {"horTh=yes": 2.0, "horTh=no": -2.0}, 0.0, "horTh is yes", "horTh is no"),
    ("gbsg2", {}, -1.0, "never", "always"),
    (
        "gbsg2",
        {"horTh=yes": 2.0, "menostat=Pre": 2.0, "tgrade=I": 0.1},
        -1.0,
        "horTh is yes or menostat is Pre",
        "horTh is no and menostat is Post",
    ),
    (
        "gbsg2",
        {"horTh=yes": 2.0, "tgrade=III": -9.0},
        -1.0,
        "horTh is yes and tgrade in {I, II}",
        "horTh is no or tgrade is III",
    ),
    (
        "gbsg2",
        {"pnodes": -1.0, "horTh=yes": 4.0},
        3.4,
        "pnodes <= 3 where horTh is no, <= 7 where horTh is yes",
        "pnodes > 3 where horTh is no, > 7 where horTh is yes",
    ),
    (
        "gbsg2",
        {"age": 0.2, "tgrade=I": -99.0, "tgrade=III": 1.6},
        -10.06,
        "age > 50 where tgrade is II, > 42 where tgrade is III, never where tgrade is I",
        "age <= 50 where tgrade is II, <= 42 where tgrade is III, always where tgrade is I",
    ),
    ("gbsg2", {"age": -1.0, "tgrade=II": 0.1, "tgrade=I": -0.1}, 40.5, "age <= 40", "age > 40"),
    ("gbsg2", {"age": 1.0, "horTh=yes": 2.0}, 5.0, "always", "never"),
    # The category decides alone, whichever way the number goes.
    ("gbsg2", {"age": 1.0, "horTh=yes": 900.0}, -500.0, "horTh is yes", "horTh is no"),
    ("gbsg2", {"age": -1.0, "tgrade=I": 900.0}, -500.0, "tgrade is I", "tgrade in {II, III}"),
    ("missing", {"kind=a": 1.0, "kind=b": 1.0, "kind=c": -1.0}, 0.5, "kind in {a, b, missing}", "kind is c"),
    (
        "missing",
        {"kind=a": 1.0, "kind=b": 1.0, "kind=c": -1.0},
        -0.5,
        "kind in {a, b}",
        "kind in {c, missing}",
    ),
    (
        "missing",
        {"size": -1.0, "kind=a": 20.0, "kind=b": -20.0},
        50.2,
        "size <= 70 where kind is a, <= 30 where kind is b, <= 50 where kind in {c, missing}",
        "size > 70 where kind is a, > 30 where kind is b, > 50 where kind in {c, missing}",
    ),
    ("missing", {"size": -1.0, "kind=a": 900.0}, -400.0, "kind is a", "kind in {b, c, missing}"),
    ("switch", {"aaa": -1.0}, 0.4, "aaa is 0", "aaa is 1"),
    (
        "switch",
        {"age": -1.0, "aaa": -20.0},
        66.2,
        "age <= 66 where aaa is 0, <= 46 where aaa is 1",
        "age > 66 where aaa is 0, > 46 where aaa is 1",
    ),
    ("switch", {"aaa": 1.0, "kind=b": 1.0}, -1.5, "aaa is 1 and kind is b", "aaa is 0 or kind is a"),
    ("switch", {"bbb": 1.0}, -0.5, "bbb in {1, missing}", "bbb is 0"),
]


@pytest.fixture(scope="module")
def gated(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> dict[str, tuple[SoftSurvivalTree, SurvivalData]]:
    """Trees whose gates are set, with their rows: also of missing categories, and of columns of 0 and 1."""
    n = np.arange(120)
    frames = {
        "missing": pd.DataFrame({"size": n + 1.25, "kind": ["a", "b", "c", None] * 30}),
        "switch": pd.DataFrame(
            {
                "age": 20.5 + n % 80,
                "aaa": n % 2,
                "kind": ["a", "a", "b", "b"] * 30,
                "bbb": [0.0, 1.0, 1.0, 1.0, np.nan] * 24,
            }
        ),
    }
    found, y = {"gbsg2": (fitted, gbsg2)}, (np.random.default_rng(0).exponential(size=120) + 0.1, n >= 0)
    for name, frame in frames.items():
        found[name] = soft_tree(depth=1, **QUICK).fit(frame, y), SurvivalData(frame, y)
    return found


def _satisfies(rule: str, X: pd.DataFrame) -> np.ndarray:
    """Whether a rule holds of rows, as one reads it."""
    for word, joined in ((" or ", np.any), (" and ", np.all)):
        if word in rule:
            return np.asarray(joined([_satisfies(part, X) for part in rule.split(word)], axis=0))
    if " where " in rule:
        name, rest = rule.split(" ", 1)
        parts = [part.split(" where ") for part in re.split(r", (?=<=|>|always|never)", rest)]
        texts = [text if text in ("always", "never") else f"{name} {text}" for text, _ in parts]
        return np.any(
            [_satisfies(t, X) & _satisfies(who, X) for t, (_, who) in zip(texts, parts, strict=True)], 0
        )
    if rule in ("always", "never"):
        return np.full(len(X), rule == "always")
    name, sign, value = rule.split(" ", 2)
    if sign in ("<=", ">"):
        return ((X[name] <= float(value)) == (sign == "<=")).to_numpy()
    words = X[name].map(lambda cell: "missing" if pd.isna(cell) else label(cell))
    return words.isin(value.strip("{}").split(", ")).to_numpy()


@pytest.mark.parametrize(("rows", "weights", "constant", "left", "right"), RULES)
def test_rule_of_a_gate(
    rows: str,
    weights: dict[str, float],
    constant: float,
    left: str,
    right: str,
    gated: dict[str, tuple[SoftSurvivalTree, SurvivalData]],
) -> None:
    """It is written in few words, and sends every row where the gate does."""
    tree, data = gated[rows]
    tree = _set_gates(tree, {1: (weights, constant)}, data)
    rule, goes_left = tree._reading.rules[1], _leaf(tree, data.frame) < tree.tree_.group_numbers.size // 2
    assert (rule.text(), rule.text(right=True)) == (left, right)
    np.testing.assert_array_equal(_satisfies(left, data.frame), goes_left)
    np.testing.assert_array_equal(_satisfies(right, data.frame), ~goes_left)


def test_categories_that_are_no_block_are_a_sum(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    gate = {1: ({"menostat=Pre": 2.0, "tgrade=II": 2.0, "tgrade=I": 4.0}, -3.0)}
    tree = _set_gates(fitted, gate, gbsg2)
    held = _holds(tree._reading.rules[1].text(), _raw(tree, gbsg2.frame))
    np.testing.assert_array_equal(held, _leaf(tree, gbsg2.frame) < 2)


def test_a_rule_with_or_is_in_brackets_in_a_sentence(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    either = {1: ({"pnodes": -2.0}, 11.0), 2: ({"horTh=yes": 2.0, "menostat=Pre": 2.0}, -1.0)}
    tree = _set_gates(fitted, either, gbsg2)
    assert ": pnodes <= 5.5 and (horTh is yes or menostat is Pre): " in tree.describe()
    by_kind = {1: ({"pnodes": -1.0, "horTh=yes": 4.0}, 3.4), 2: ({"age": -1.0}, 50.5)}
    tree = _set_gates(fitted, by_kind, gbsg2)
    assert ": (pnodes <= 3 where horTh is no, <= 7 where horTh is yes) and age <= 50: " in tree.describe()


def test_logarithm_reads_as_threshold_of_the_column(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(columns=Columns(gate_numeric="log")).fit(gbsg2.frame, gbsg2.y)
    leaf = _leaf(tree, gbsg2.frame)
    for node, here, left in ((1, leaf >= 0, leaf < 2), (2, leaf < 2, leaf == 0), (3, leaf >= 2, leaf == 2)):
        name, sign, threshold = tree._reading.rules[node].text().split()
        assert sign == "<="
        held = gbsg2.frame[name].to_numpy() <= float(threshold)
        np.testing.assert_array_equal(held[here], left[here])


def test_long_lists_name_eight_categories(tmp_path: Path) -> None:
    words = [f"site {k:02d}" for k in range(40)]
    frame = pd.DataFrame({"site": words * 4})
    y = np.random.default_rng(5).exponential(size=160) + 0.1, np.ones(160, dtype=bool)
    tree = soft_tree(depth=1, **QUICK).fit(frame, y)
    gate = {1: ({f"site={word}": 1.0 for word in words[:18]}, -0.5)}
    tree = _set_gates(tree, gate, SurvivalData(frame, y))
    brief = f"site in {{{', '.join(words[:8])} and 10 more}}"
    tree.save(tmp_path / "tree")
    for each in (tree, SoftSurvivalTree.load(tmp_path / "tree")):
        assert gate_table(each).loc[1, "rule"] == brief
        assert export_text(each).startswith(f"[1] 160 rows: {brief}; longer survival if ")
        assert gate_table(each, n_terms=None).loc[1, "rule"] == f"site in {{{', '.join(words[:18])}}}"
    tree = _set_gates(tree, {1: ({f"site={word}": 1.0 for word in words[:30]}, -0.5)}, SurvivalData(frame, y))
    rule = tree._reading.rules[1]
    assert rule.text(4) == f"site not in {{{', '.join(words[30:38])} and 2 more}}"
    assert rule.text(None, right=True) == f"site in {{{', '.join(words[30:])}}}"


def test_rules_send_every_training_row_as_the_gates_do_with_as_few_digits(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    leaf, raw = _leaf(fitted, gbsg2.frame), _raw(fitted, gbsg2.frame)
    for node, here, left in ((1, leaf >= 0, leaf < 2), (2, leaf < 2, leaf == 0), (3, leaf >= 2, leaf == 2)):
        rule = gate_table(fitted, None).loc[node, "rule"]
        np.testing.assert_array_equal(_holds(rule, raw[here]), left[here])
    two = _set_gates(fitted, {1: ({"pnodes": -0.123456, "progrec": 0.00456789}, 0.7)}, gbsg2)
    first = gate_table(two, None).loc[1, "rule"]
    np.testing.assert_array_equal(_holds(first, raw), _leaf(two, gbsg2.frame) < 2)
    assert max(len(word.strip("+-.0").replace(".", "")) for word in first.split()[:4:2]) < 6


def test_gates_that_all_rows_pass_alike_are_not_shown(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = _set_gates(fitted, THRESHOLDS | {3: ({}, 9.0)}, gbsg2)
    text, lines = export_text(tree), sorted(tree.describe().splitlines())
    assert [line.split(":")[0] for line in lines] == ["Group 1", "Group 2", "Group 3"]
    numbers = tree._tree.group_numbers
    assert numbers[3] == 4  # a group without rows comes last
    assert lines[numbers[2] - 1].startswith(f"Group {numbers[2]}: pnodes > 5.5: 212 of 686 rows, ")
    assert "[3]" not in text
    assert text.splitlines()[-1].startswith(f"`- no:  group {numbers[2]}: 212 rows, ")
    assert "group 4" not in text
    diagram = export_graphviz(tree)
    assert "1 -> 6" in diagram
    assert "3 ->" not in diagram
    # Tables stay whole.
    assert list(gate_table(tree).index) == [1, 2, 3]
    assert list(leaf_table(tree)["rows", ""] > 0) == [True, True, True, False]
    alone = _set_gates(fitted, {1: ({}, -9.0), 3: ({}, 9.0)}, gbsg2)
    assert alone.describe().startswith("Group 1: all 686 rows, 299 events, Kaplan-Meier survival ")
    assert export_text(alone).startswith("group 1: 686 rows, 299 events, ")
    assert "\nNo gate divides the training rows: one group has them all\n" in alone.summary(details=True)
    assert "\nIn the group, what changes most over the training range first\n" in alone.summary(details=True)
    assert "level" not in alone.summary(details=True)


def test_slopes_that_differ_are_written_group_by_group(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = _renumbered(_set_gates(fitted, THRESHOLDS, gbsg2), gbsg2)
    text = tree.summary(details=True)
    section = text[text.index("Group by group, ") :].split("\n\n")[0].splitlines()
    assert section[1] == "time ratio over its range"
    table = np.exp(leaf_coefficients(tree)["effect"].astype(float)).unstack("group")
    assert section[2].split() == [word for group in table for word in ("group", str(group))]
    largest = [float(np.abs(np.log(table.loc[line.split()[0]])).max()) for line in section[3:-1]]
    assert largest == sorted(largest, reverse=True)
    for line in section[3:-1]:
        name, *ratios = line.split()
        assert [float(ratio) for ratio in ratios] == pytest.approx(list(table.loc[name]), rel=1e-3)
    assert section[-1] == f"({len(table) - len(largest)} smaller)"


def test_slopes_that_all_leaves_share_are_written_once(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    assert "Within every group" not in fitted.summary(details=True)
    tree = _set_gates(fitted, THRESHOLDS, gbsg2)
    with torch.no_grad():
        for node in (5, 6, 7):
            tree.module_.leaf(node).slope.copy_(tree.module_.leaf(4).slope)
    tree = _renumbered(tree, gbsg2)
    text = tree.summary(details=True)
    assert text.count("Within every group") == 1
    section = text[text.index("Within") :].split("\n\n")[0].splitlines()
    assert section[1].split() == ["coefficient", "time", "ratio", "over", "its", "range"]
    table = leaf_coefficients(tree).loc[1]
    for line in section[2:-1]:
        name, *numbers = line.split()
        coefficient, ratio, whole = map(float, numbers)
        expected = table.loc[name, ["coefficient", "effect"]].astype(float)
        assert coefficient == pytest.approx(expected["coefficient"], rel=1e-3)
        assert ratio == pytest.approx(np.exp(expected["coefficient"]), rel=1e-3)
        assert whole == pytest.approx(np.exp(expected["effect"]), rel=1e-3)
    table = text[text.index("\n group ") :].split("\n\n")[0].splitlines()[1:6]
    assert table[0].split()[-1] == "level"
    levels = [float(line.split()[-1]) for line in table[1:]]
    order = np.argsort(tree._tree.group_numbers)
    intercepts = np.array([float(tree.module_.leaf(4 + leaf).intercept.detach()) for leaf in order])
    np.testing.assert_allclose(levels, intercepts - intercepts[0], atol=6e-4)
