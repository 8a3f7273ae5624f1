"""Missing values as a level of their own: in fits, rules, files, new rows and every export."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import Columns, GroupPenalties, PrognosticTree, SurvivalRegression
from sstorch.data import Preprocessor, Schema
from sstorch.data.fingerprint import on_training_rows
from sstorch.deploy import export_calculator, export_program
from sstorch.exceptions import ConfigError, DataError
from sstorch.packing import pack, unpack
from sstorch.plots import plot_effects
from sstorch.reading import effects, export_text, importance
from sstorch.validation import stability, validate_groups
from tests.conftest import nightly
from tests.deploy.test_calculator import in_browser, needs_browser, typed
from tests.deploy.test_contract import TIMES, check, raw_features

N = 400
DRAWS = np.random.default_rng(0)
UNKNOWN, UNTESTED = DRAWS.random((2, N)) < 0.3
FRAME = pd.DataFrame(
    {
        "age": DRAWS.normal(60, 9, N),
        "marker": np.where(UNTESTED, np.nan, DRAWS.normal(5, 1, N)),
        "grade": pd.Series(DRAWS.choice(["I", "II"], N)).where(~UNKNOWN),
    }
)
TIME = np.ceil(300 * DRAWS.weibull(1.2, N) * np.exp(-1.5 * UNTESTED - 2.5 * UNKNOWN))
Y = TIME, DRAWS.random(N) < 0.8
LEVELS = Columns(numeric="linear", missing=("marker", "grade"))


@cache
def tree() -> PrognosticTree:
    model = PrognosticTree(leaf="weibull", penalties=GroupPenalties(ridge=0.01), columns=LEVELS)
    return model.fit(FRAME, Y)


def test_tables_figures_and_resamples_take_levels_of_missing_values() -> None:
    model = tree()
    assert on_training_rows(model, FRAME.iloc[::-1], (TIME[::-1], Y[1][::-1]))
    used = importance(model)
    assert list(used.index) == ["age", "marker", "grade"]
    np.testing.assert_allclose(used.sum(), 1.0)
    assert used.loc["marker", "gates"] > 0.1  # by its indicator
    assert "marker missing" in [axes.get_title() for axes in plot_effects(model, FRAME)]
    stable = stability(model, FRAME, Y, n_resamples=2)
    assert list(stable.columns) == ["age", "marker", "grade"]
    assert validate_groups(model, FRAME, Y, n_folds=2).first.c_groups > 0.6


def test_a_gate_and_an_effect_of_a_missing_value_are_found_and_saved(tmp_path: Path) -> None:
    model = tree()
    text = export_text(model)
    assert "grade is missing" in text
    assert "marker missing is" in text
    table = effects(model, FRAME)
    ratio = table[(table["column"] == "marker missing") & (table["value"] == 1.0)]["effect"]
    assert ratio.abs().max() > 0.5
    model.save(tmp_path)
    again = PrognosticTree.load(tmp_path)
    curves = model.predict_survival_function(FRAME, TIMES)
    np.testing.assert_array_equal(again.predict_survival_function(FRAME, TIMES), curves)
    assert again.columns.missing == ("marker", "grade")
    assert list(again.feature_names_in_) == ["age", "marker", "grade"]
    named = FRAME.assign(grade=FRAME["grade"].fillna("missing"))
    np.testing.assert_array_equal(again.predict_survival_function(named, TIMES), curves)
    assert "separate level: marker, grade" in (tmp_path / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize("language", ["python", nightly("javascript")])
def test_code_computes_the_level(language: str, tmp_path: Path) -> None:
    check(tree(), language, FRAME[:30], tmp_path)


@pytest.mark.nightly
def test_program_computes_the_level(tmp_path: Path) -> None:
    export_program(tree(), tmp_path / "tree.pt2")
    x = raw_features(tree(), FRAME[:30]).assign(marker=FRAME["marker"][:30])
    x.loc[FRAME["grade"][:30].isna(), [name for name in x if name.startswith("grade")]] = np.nan
    found = torch.export.load(tmp_path / "tree.pt2").module()(torch.tensor(x.to_numpy()), torch.tensor(TIMES))
    expected = tree().predict_survival_function(FRAME[:30], TIMES)
    np.testing.assert_allclose(found.detach(), expected, atol=1e-12)


@pytest.mark.nightly
@needs_browser
def test_page_computes_the_level(tmp_path: Path) -> None:
    export_calculator(tree(), tmp_path / "page.html", FRAME, Y)
    rows = FRAME[:10]
    seen = in_browser(tmp_path / "page.html", [typed(row, {"grade"}) for _, row in rows.iterrows()], tmp_path)
    expected = tree().predict_survival_function(rows, np.linspace(0, tree().event_times_[-1], 121))
    np.testing.assert_allclose([each["curves"][0] for each in seen], expected, atol=1e-9)


def test_schema_adds_level_indicator_and_median() -> None:
    schema = Schema.of(FRAME).with_missing(["marker", "grade"])
    assert schema.feature_names_out == [
        "age", "marker", "marker missing", "grade=I", "grade=II", "grade=missing",
    ]  # fmt: skip
    assert schema.inputs == ("age", "marker", "grade")
    fitted = Preprocessor(schema).fit(FRAME)
    assert fitted.fill_["marker"] == np.median(FRAME["marker"].dropna())
    z = fitted.transform(FRAME)
    np.testing.assert_array_equal(z[:, 2], UNTESTED)
    np.testing.assert_array_equal(z[:, 5], UNKNOWN)
    restored = unpack(pack(fitted))
    np.testing.assert_array_equal(restored.transform(FRAME[::-1]), z[::-1])


def test_unusable_names_raise() -> None:
    with pytest.raises(ConfigError, match="missing names 'stage'; the columns are 'age', 'marker', 'grade'"):
        SurvivalRegression(columns=Columns(missing=["stage"])).fit(FRAME, Y)
    with pytest.raises(ConfigError, match="missing must be a list of names of columns, got 'grade'"):
        SurvivalRegression(columns=Columns(missing="grade")).fit(FRAME, Y)
    with pytest.raises(DataError, match="two encoded features are called 'marker missing'"):
        Schema.of(FRAME.assign(**{"marker missing": 0.0})).with_missing(["marker"])
