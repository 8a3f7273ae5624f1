"""Exports of models with time-varying covariates: they ask for ``after``, keep to it, and say so."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    SoftSurvivalTree,
    Surv,
    SurvivalRegression,
)
from sstorch.deploy import export_calculator, export_code, export_program
from sstorch.exceptions import ConfigError, DataError
from tests.deploy.test_calculator import in_browser, needs_browser, typed
from tests.deploy.test_contract import STEPS, fitted, start_stop, subjects

REMEDY = r"time-varying covariates: one row does not determine survival from time zero\. Pass after="


@pytest.mark.parametrize("kind", STEPS)
def test_exports_without_after_raise_and_write_nothing(kind: str, tmp_path: Path) -> None:
    model, (X, y) = fitted("start-stop", kind), start_stop()
    exports = [
        lambda: export_code(model, "python", tmp_path / "m.py"),
        lambda: export_code(model, "javascript", tmp_path / "m.js"),
        lambda: export_calculator(model, tmp_path / "m.html"),
        lambda: export_calculator(model, tmp_path / "m.html", X, y),
    ]
    if isinstance(model, SoftSurvivalTree):
        exports.append(lambda: export_program(model, tmp_path / "m.pt2"))
    for export in exports:
        with pytest.raises(ConfigError, match=REMEDY):
            export()
    assert list(tmp_path.iterdir()) == []


def test_after_that_is_no_time_or_too_late_raises(tmp_path: Path) -> None:
    model = fitted("start-stop", "soft")
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="after must be a time >= 0"):
            export_code(model, "python", after=wrong)
        with pytest.raises(DataError, match="after must be finite and >= 0"):
            export_program(model, tmp_path / "m.pt2", after=wrong)
    with pytest.raises(ConfigError, match="after=1e\\+06 is not before the last training event"):
        export_calculator(model, tmp_path / "m.html", after=1e6)
    assert list(tmp_path.iterdir()) == []


def test_code_states_its_condition_in_one_line() -> None:
    model = fitted("start-stop", "soft")
    for language, mark in (("python", "# "), ("javascript", "// ")):
        code = export_code(model, language, horizon=7.0, after=12.5)
        line = "For a subject at risk at 12.5, whose covariates stay as entered: times count from 12.5."
        assert line in code.replace(mark, ""), code[:600]
        code = export_code(model, language, horizon=7.0, after=0)
        assert "Survival from time 0 of a subject whose covariates stay as entered." in code
    right = subjects(150, 1)
    plain = OptimalSurvivalTree(1).fit(right.frame, (right.time, right.event))
    assert "stay as entered" not in export_code(plain, "python")
    assert "at risk at 3" in export_code(plain, "python", after=3)


def test_survival_of_zero_at_after_gives_nan() -> None:
    x = np.arange(12.0)[:, None]
    model = OptimalSurvivalTree(0).fit(x, (np.arange(1.0, 13.0), np.ones(12)))
    names: dict[str, Any] = {}
    exec(export_code(model, "python", after=12.0), names)
    assert np.isnan(names["survival"]({"x0": 1.0}, 1.0))


def page_data(page: Path) -> dict[str, Any]:
    found = re.search(r"const model = (\{.*?\});\n", page.read_text())
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize("after", [0.0, 12.5])
def test_page_has_kaplan_meier_of_the_rows_at_risk(after: float, tmp_path: Path) -> None:
    model, (X, y), page = fitted("start-stop", "exact"), start_stop(), tmp_path / "page.html"
    export_calculator(model, page, X, y, after=after)
    text, data = page.read_text(), page_data(page)
    assert ("times count from 12.5." if after else "Survival from time 0 of a subject") in text
    assert "median" not in "".join(each["text"] for each in [*data["groups"], *data["nodes"]])
    assert data["lastTime"] == pytest.approx(float(model.event_times_[-1]) - after)
    assert max(data["horizons"]) <= data["lastTime"]
    leaf = model.apply(X)
    assert {each["number"] for each in data["groups"]} >= {*leaf}
    for group in data["groups"]:
        inside = (leaf == group["number"]) & (y.time > after)  # type: ignore[operator]
        # From zero: lifelines counts a row as at risk at its entry, survival and sstorch after it.
        entry = np.maximum(y.entry[inside], after) + 1e-9  # type: ignore[index]
        peer = KaplanMeierFitter().fit(y.time[inside], y.event[inside], entry=entry)  # type: ignore[index]
        at = np.array(group["times"])
        expected = peer.survival_function_at_times(at + after + 1e-9).to_numpy()
        np.testing.assert_allclose(group["curves"][0], expected, atol=1e-6)


@needs_browser
def test_page_with_after_shows_conditional_survival(tmp_path: Path) -> None:
    model, (X, y), page = fitted("start-stop", "soft"), start_stop(), tmp_path / "page.html"
    export_calculator(model, page, X, y, after=12.5, horizons=[10.0, 20.0])
    frame = X.iloc[:5]
    categories = {name for name in X if not pd.api.types.is_float_dtype(X[name])}
    seen = in_browser(page, [typed(row, categories) for _, row in frame.iterrows()], tmp_path)
    expected = model.predict_survival_function(frame, [10.0, 20.0], after=12.5)
    np.testing.assert_allclose([each["horizons"] for each in seen], expected, atol=1e-9)


def test_page_without_entry_or_id_raises(tmp_path: Path) -> None:
    model, (X, y) = fitted("start-stop", "soft"), start_stop()
    with pytest.raises(DataError, match="y has no entry and no id, and the model was trained on counting"):
        export_calculator(model, tmp_path / "page.html", X, (y.time, y.event), after=0)
    with pytest.raises(DataError, match="y has no id, and the model was trained"):
        export_calculator(model, tmp_path / "page.html", X, Surv(y.time, y.event, entry=y.entry), after=0)
    assert list(tmp_path.iterdir()) == []


def test_left_truncation_alone_needs_no_after() -> None:
    data = subjects(150, 1)
    y = Surv(data.time, data.event, entry=0.3 * data.time * (np.arange(150) > 0))
    model = SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear")).fit(data.frame, y)
    names: dict[str, Any] = {}
    exec(export_code(model, "python"), names)
    found = names["survival"](data.frame.iloc[5].to_dict(), 30.0)
    assert found == pytest.approx(model.predict_survival_function(data.frame.iloc[[5]], [30.0])[0, 0])
