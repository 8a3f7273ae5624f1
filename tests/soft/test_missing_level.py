"""Missing values as a level of their own: in fits, rules, files, new rows and every export."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch import Columns, GroupPenalties, PrognosticTree
from sstorch.data import Preprocessor, Schema
from sstorch.data.fingerprint import on_training_rows
from sstorch.packing import pack, unpack
from sstorch.plots import plot_effects
from sstorch.reading import effects, export_text
from sstorch.validation import stability, validate_groups
from tests.deploy.test_contract import TIMES

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
    return PrognosticTree(leaf="weibull", penalties=GroupPenalties(ridge=0.01), columns=LEVELS).fit(FRAME, Y)


def test_tables_figures_and_resamples_take_levels_of_missing_values() -> None:
    model = tree()
    assert on_training_rows(model, FRAME.iloc[::-1], (TIME[::-1], Y[1][::-1]))
    assert "marker missing" in [axes.get_title() for axes in plot_effects(model, FRAME)]
    stable = stability(model, FRAME, Y, n_resamples=2)
    assert list(stable.columns.index) == ["age", "marker", "grade"]
    assert stable.columns["marker"] > 0  # by its indicator
    assert validate_groups(model, FRAME, Y, n_folds=2).first.c_groups > 0.6


def test_a_gate_and_an_effect_of_a_missing_value_are_found_and_saved(tmp_path: Path) -> None:
    model = tree()
    text, table = export_text(model), effects(model, FRAME)
    assert "grade is missing" in text
    assert "marker missing is" in text
    assert table.query("column == 'marker missing' and value == 1.0")["effect"].abs().max() > 0.5
    model.save(tmp_path)
    again = PrognosticTree.load(tmp_path)
    curves = model.predict_survival_function(FRAME, TIMES)
    np.testing.assert_array_equal(again.predict_survival_function(FRAME, TIMES), curves)
    assert again.columns.missing == ("marker", "grade")
    assert list(again.feature_names_in_) == ["age", "marker", "grade"]
    named = FRAME.assign(grade=FRAME["grade"].fillna("missing"))
    np.testing.assert_array_equal(again.predict_survival_function(named, TIMES), curves)
    assert "separate level: marker, grade" in (tmp_path / "MODEL_CARD.md").read_text()


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
