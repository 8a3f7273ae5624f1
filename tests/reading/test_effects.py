"""Effects of columns agree with coefficients and with predictions."""

import numpy as np
import pandas as pd
import pytest

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Nodec
from sstorch.reading import effects
from tests.flat import soft_tree

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
