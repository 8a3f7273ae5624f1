"""Tables, effects and explanations agree with parameters and predictions, also of competing causes."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import SoftSurvivalTree, Surv, SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Nodec
from sstorch.reading import effects, export_text, gate_coefficients, gate_table, leaf_coefficients, leaf_table
from sstorch.validation import group_table
from tests.flat import soft_tree
from tests.groups.trees import CAUSES, Fitted, fitted, refitted
from tests.reading.trees import QUICK, at_gates, in_original_units, leaf_of, sum_holds


@pytest.fixture(scope="module")
def dense(gbsg2: SurvivalData) -> Fitted:
    """A tree whose gates and leaves use all columns."""
    return Fitted(soft_tree(depth=2, leaf="weibull", **QUICK).fit(gbsg2.frame, gbsg2.y), gbsg2)


def test_gate_tables_hold_the_gates_in_original_units(dense: Fitted) -> None:
    tree, data = dense
    table, long, raw = gate_table(tree), gate_coefficients(tree), in_original_units(tree, data.frame)
    rules = gate_table(tree, None)["rule"]
    assert list(table.index) == [1, 2, 3]
    for node, here, left in at_gates(tree, data.frame):
        assert (table["rows"][node], table["events"][node]) == (here.sum(), data.event[here].sum())
        assert table["yes"][node] == pytest.approx(left.sum() / here.sum())
        np.testing.assert_array_equal(sum_holds(rules[node], raw[here]), left[here])
        own = long.loc[node]
        assert own["share"].sum() == pytest.approx(1.0)
        assert (np.diff(own["effect"].abs()) <= 0).all()
        assert table["features"][node] == list(own.index[:4])
        # Differences between subjects leave the constant out.
        score = raw[own.index] @ own["coefficient"]
        with torch.no_grad():
            expected = tree.module_.gate_logits(tree._encode(data.frame), [node])[0].numpy()
        np.testing.assert_allclose(score - score[0], expected - expected[0], atol=1e-9)


@pytest.mark.parametrize("kind", ["soft", "soft causes"])
def test_leaf_table_is_the_group_table_of_the_training_rows(kind: str) -> None:
    tree, data = refitted(kind)
    weight = 1.0 + np.arange(len(data)) % 2
    y = Surv(data.time, data.cause, entry=0.2 * data.time * (np.arange(len(data)) % 3), causes=data.y.causes)
    tree.fit(data.frame, y, sample_weight=weight)
    table, group = leaf_table(tree), tree.apply(data.frame)
    assert table.index.unique("group").tolist() == list(range(1, len(tree._tree.group_numbers) + 1))
    letter = "F(" if tree.causes_ else "S("
    times = [float(name[2:-1]) for name in table.columns.unique("quantity") if name.startswith(letter)]
    assert len(times) == 3
    expected = group_table(tree, data.frame, y, times, sample_weight=weight)
    pd.testing.assert_frame_equal(table.loc[expected.index, expected.columns], expected, rtol=1e-9)
    last = tree.event_times_[-1]
    for number in np.unique(group):
        rows, share = data.frame[group == number], weight[group == number]
        median = table.xs(number, level="group") if tree.causes_ else table.loc[[number]]
        (at,) = median["median", "model"].unique()
        mean = tree.predict_survival_function(rows, [min(at, last)])[:, 0]
        middle = np.average(mean, weights=share)
        assert middle == pytest.approx(0.5, abs=1e-6) if np.isfinite(at) else middle > 0.5
    if tree.causes_:
        free = table.groupby("group").first()[f"S({times[-1]:g})", "model"]
        total = table[f"F({times[-1]:g})", "model"].groupby("group").sum() + free
        np.testing.assert_allclose(total, 1.0, atol=1e-9)
    else:
        leaf = int(np.flatnonzero(tree._tree.group_numbers == 1)[0]) + len(tree._tree.group_numbers)
        assert table["log_a", ""][1] == float(tree.module_.leaf(leaf).shape.detach()[0])


RATIOS = {
    **dict.fromkeys(("weibull", "log_logistic"), "time ratio"),
    **dict.fromkeys(("gompertz", "spline_ph"), "hazard ratio"),
    **{"spline_po": "odds ratio", "spline_probit": None},
}


@pytest.mark.parametrize(("leaf", "kind"), RATIOS.items())
def test_ratios_are_those_of_predictions(small_data: SurvivalData, leaf: str, kind: str | None) -> None:
    tree = soft_tree(depth=0, leaf=leaf, **QUICK).fit(small_data.frame, (small_data.time, small_data.event))
    table = leaf_coefficients(tree).loc[1]
    assert list(table) == ["column", "coefficient", "effect", *([kind] if kind else [])]
    one = small_data.frame.iloc[[0]]
    more = one.assign(x1=one["x1"] + 1.0)
    times = np.array([10.0, 40.0])
    measures = {
        "hazard ratio": lambda rows: tree.predict_hazard_function(rows, times),
        "time ratio": lambda rows: tree.predict_quantile(rows, 0.3),
        "odds ratio": lambda rows: 1 / tree.predict_survival_function(rows, times) - 1,
    }
    if kind:
        ratio = measures[kind](more) / measures[kind](one)
        np.testing.assert_allclose(ratio, table[kind]["x1"], rtol=1e-9)
    else:  # also a tree without gates
        assert gate_table(tree).empty
        assert gate_coefficients(tree).empty
        assert export_text(tree).startswith("group 1: 120 rows, 80 events, predicted median ")
        assert tree.explain(one).path.empty


def test_categories_are_compared_with_the_most_frequent_one(dense: Fitted) -> None:
    tree, data = dense
    modes = {f"{name}={data.frame[name].mode()[0]}" for name in ("horTh", "menostat", "tgrade")}
    for table, number, part in (
        (gate_coefficients(tree), 1, tree.module_.gate(1).weight),
        (leaf_coefficients(tree), int(tree._tree.group_numbers[0]), tree.module_.leaf(4).slope),
    ):
        assert not modes & set(table.index.get_level_values("feature"))
        weight = dict(zip(tree.preprocessor_.feature_names_out, part.detach().numpy(), strict=True))
        coefficient = table.loc[number].loc["horTh=yes", "coefficient"]
        assert coefficient == pytest.approx(weight["horTh=yes"] - weight["horTh=no"])


def test_tables_of_causes_are_those_of_each_hazard() -> None:
    tree, data = fitted("soft causes")
    table, scale = leaf_coefficients(tree), tree.preprocessor_.scale_
    assert table.index.names == ["cause", "group", "feature"]
    moved = effects(tree, data.frame, ["size"], n_points=5)
    assert list(moved) == ["cause", "group", "column", "value", "effect", "time ratio"]
    for (cause, group), own in moved.groupby(["cause", "group"]):
        place = int(np.flatnonzero(tree._tree.group_numbers == group)[0])
        slope = tree._tree.hazards[cause].leaf_parameters().slope[place].detach().numpy()
        coefficient = table.loc[(cause, group, "size"), "coefficient"]
        assert coefficient == pytest.approx(slope[list(data.frame).index("size")] * scale[1])
        value = own["value"].astype(float)
        reference = value[own["effect"] == 0].iloc[0]
        np.testing.assert_allclose(own["effect"], coefficient * (value - reference), atol=1e-9)


# ---------------------------------------------------------------------- effects


PLAIN = {"depth": 0, "leaf": "exponential", "trainer": "joint", "init": "random", "n_starts": 1}


def _fit(data: SurvivalData, **parameters: object) -> SoftSurvivalTree:
    return soft_tree(**(PLAIN | parameters)).fit(data.frame, data.y)


def _reference(frame: pd.DataFrame, n_rows: int) -> pd.DataFrame:
    """The lower median of numbers and the most frequent category, as often as asked for."""
    middle = {
        name: column.mode()[0]
        if isinstance(column.dtype, pd.CategoricalDtype)
        else column.dropna().sort_values().iloc[(column.notna().sum() - 1) // 2]
        for name, column in frame.items()
    }
    return pd.concat([pd.DataFrame([middle])] * n_rows, ignore_index=True)


def _log_hazards(tree: SoftSurvivalTree, frame: pd.DataFrame, column: str, values: object) -> np.ndarray:
    """log H(t | x) less that of the reference: the effect in exponential leaves, whatever t."""
    rows = _reference(frame, len(values) + 1)
    rows[column] = [rows[column][0], *values]
    log_hazard = np.log(tree.predict_cumulative_hazard_function(rows, [700.0])[:, 0])
    return log_hazard[1:] - log_hazard[0]


PRODUCTS = {"numeric": {"age": "spline"}, "interactions": [("age", "horTh"), ("tsize", "pnodes")]}


@pytest.mark.parametrize(
    "columns", [{"numeric": "linear"}, {"numeric": "log"}, {"numeric": "spline"}, PRODUCTS]
)
def test_effects_are_those_of_predictions_at_the_reference(gbsg2: SurvivalData, columns: dict) -> None:
    tree = _fit(gbsg2, **columns)
    table, reference = effects(tree, gbsg2.frame, n_points=7), _reference(gbsg2.frame, 1).iloc[0]
    assert list(table) == ["group", "column", "value", "effect", "hazard ratio"]
    assert list(dict.fromkeys(table["column"])) == list(gbsg2.frame)
    for name, own in table.groupby("column"):
        column = gbsg2.frame[name]
        if isinstance(reference[name], str):
            assert list(own["value"]) == list(column.cat.categories)
        else:
            assert len(own) == (column.nunique() if column.nunique() <= 7 else 8)
            assert own["value"].agg(["min", "max"]).tolist() == column.agg(["min", "max"]).tolist()
        expected = _log_hazards(tree, gbsg2.frame, name, own["value"])
        np.testing.assert_allclose(own["effect"], expected, atol=1e-9)
        np.testing.assert_allclose(own["hazard ratio"], np.exp(expected), rtol=1e-8)
        assert (own.loc[own["value"] == reference[name], "effect"] == 0).all()
    other = effects(tree, gbsg2.frame.assign(horTh="yes"), ["age"], n_points=7)["effect"]
    moved = np.abs(other - table.loc[table["column"] == "age", "effect"].to_numpy()).max()
    assert (moved > 1e-3) == (columns is PRODUCTS)


@pytest.mark.filterwarnings("ignore:column .x0. is missing in 68")
def test_missing_cells_and_unseen_categories_are_no_reference(small_data: SurvivalData) -> None:
    frame = small_data.frame.copy()
    frame.loc[:80, "x0"] = np.nan
    words = pd.Series(np.where(np.arange(120) % 3 == 0, "b", "a"), dtype=object)
    words[:50] = None
    frame["word"] = pd.Categorical(words, categories=["a", "b", "never"])
    data = SurvivalData(frame, small_data.y)
    tree = _fit(data)
    table = effects(tree, data.frame, ["word", "x0"])
    assert list(table["value"][:2]) == ["a", "b"]
    assert table["effect"][0] == 0
    assert "never" not in set(table["value"])
    assert len(table) == 2 + frame["x0"].nunique()
    expected = _log_hazards(tree, data.frame, "x0", table["value"][2:])
    np.testing.assert_allclose(table["effect"][2:], expected, atol=1e-9)
    for name, nothing in (("x0", np.nan), ("word", None)):
        with pytest.raises(DataError, match=f"column '{name}' has no value known to the tree"):
            effects(tree, data.frame.assign(**{name: nothing}))


def test_every_leaf_has_its_own_effect(gbsg2: SurvivalData) -> None:
    tree = _fit(gbsg2, depth=1, numeric="piecewise(3)", trainer=Nodec(macro_iterations=1))
    table = effects(tree, gbsg2.frame, ["pnodes"])
    assert list(table["group"].unique()) == [1, 2]
    numbers = tree._tree.group_numbers
    first, second = (table.loc[table["group"] == group, "effect"].to_numpy() for group in numbers)
    assert np.abs(first - second).max() > 1e-2
    # The leaves alone, whichever of them the gate would choose.
    for leaf, effect in enumerate((first, second)):
        rows = _reference(gbsg2.frame, len(effect)).assign(pnodes=table["value"][: len(effect)])
        linear = tree.module_.leaf_parameters().linear_predictor(tree._encode(rows))[leaf].detach().numpy()
        at = np.flatnonzero(rows["pnodes"] == gbsg2.frame["pnodes"].median())[0]
        np.testing.assert_allclose(effect, linear - linear[at], atol=1e-12)


def test_invalid_arguments_raise(small_data: SurvivalData) -> None:
    for argument, value in (("level", 90), ("n_points", 1), ("columns", ["nothing"])):
        with pytest.raises((ConfigError, DataError), match="nothing" if argument == "columns" else argument):
            effects(_fit(small_data), small_data.frame, **{argument: value})  # type: ignore[arg-type]


# ---------------------------------------------------------------------- explanations


def _is_explained(tree: SoftSurvivalTree, x: pd.DataFrame, cause: str | None = None) -> None:
    """Contributions are those of the scores, and their text adds up."""
    found = tree.explain(x) if cause is None else tree.explain(x, cause)
    encoded, n_leaves = tree._encode(x), len(tree._tree.group_numbers)
    node = int(leaf_of(tree, x)[0]) + n_leaves
    assert found.group == tree.apply(x)[0]
    module = tree._tree.hazards[cause or tree._tree.causes[0]]
    with torch.no_grad():
        for branch in found.path.index:
            score = float(module.gate_logits(encoded, [branch])[0, 0])
            assert found.contributions[f"gate {branch}"].sum() == pytest.approx(score, rel=1e-12)
            assert found.path["score"][branch] == pytest.approx(score, rel=1e-12)
        linear = float(module.leaf_parameters([node]).linear_predictor(encoded)[0, 0])
    assert found.contributions[f"group {found.group}"].sum() == pytest.approx(linear, rel=1e-9)
    probability = tree.predict_leaf_proba(x)[0]
    np.testing.assert_allclose(found.group_probability, probability)
    assert found.path["reached"].iloc[-1] == pytest.approx(probability[found.group - 1])
    np.testing.assert_allclose(found.values, in_original_units(tree, x).iloc[0], rtol=1e-12)
    *lines, last = str(found).splitlines()
    parts = [part.split("\n    ")[1:] for part in re.split(r"\n(?!    )", "\n".join(lines))]
    for numbers, column in zip(parts, found.contributions, strict=True):
        *terms, total = (Decimal(line.split()[0]) for line in numbers)
        assert sum(terms) == total
        resolution = 10.0 ** int(total.as_tuple().exponent)
        assert float(total) == pytest.approx(found.contributions[column].sum(), abs=0.51 * resolution)
    times = found.survival.index.to_numpy(dtype=float)
    np.testing.assert_allclose(found.survival, tree.predict_survival_function(x, times)[0])
    assert found.median == float(tree.predict_quantile(x)[0])
    if cause is None:
        values = ", ".join(f"S({t:g}) = {s:.3f}" for t, s in found.survival.items())
        assert last.endswith(f"; {values}")
        return
    np.testing.assert_allclose(found.incidence, tree.predict_cumulative_incidence(x, times)[0], atol=1e-12)
    assert f"= linear predictor of {cause}" in str(found)
    first = f"F({times[0]:g}) = {found.incidence.iloc[0, 0]:.3f}"
    assert last.startswith(f"predicted incidence of relapse {first}, ")


def test_contributions_sum_to_the_scores(dense: Fitted) -> None:
    holes = dense.data.frame.copy()
    holes.loc[3, "age"] = np.nan
    for row in (0, 3, 7, 11):
        _is_explained(dense.tree, holes.iloc[[row]])
    words = str(dense.tree.explain(holes[:1]))
    named = {f"  {name}={word}\n" for name, word in holes.select_dtypes("category").iloc[0].items()}
    assert any(text in words for text in named)  # a category that applies is its name alone
    with pytest.raises(DataError, match="x has 2 rows"):
        dense.tree.explain(holes[:2])


@pytest.mark.parametrize("cause", CAUSES)
def test_explanation_of_a_cause_is_of_its_hazard(cause: str) -> None:
    tree, data = fitted("soft causes")
    _is_explained(tree, data.frame.iloc[[3]], cause)
    number = CAUSES.index(cause) + 1
    assert str(tree.explain(data.frame.iloc[[3]], number)) == str(tree.explain(data.frame.iloc[[3]], cause))
    with pytest.raises(ConfigError, match="cause"):
        tree.explain(data.frame.iloc[[3]], cause="progression")
