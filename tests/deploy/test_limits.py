"""Confidence limits in exported code are those of :func:`sstorch.inference.predict`."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, OptimalSurvivalTree, Penalties, PrognosticTree, SurvivalRegression, inference
from sstorch.deploy import export_calculator, export_code
from sstorch.deploy.derivative import derivative
from sstorch.deploy.expression import TIME, Formula, constant, maximum, minimum, number, unary, where
from sstorch.deploy.python import Python
from sstorch.exceptions import ConfigError
from sstorch.nn.hazards import Weibull
from tests.conftest import nightly_but
from tests.deploy.test_causes import FALLING, fitted, patients, rows
from tests.deploy.test_code import subjects

TIMES = [0.0, 3.0, 20.0, 61.5]


def exported(model: Any, language: str) -> str:
    return export_code(model, language, level=0.9, missing="typical")  # type: ignore[call-overload, no-any-return]


def limits_by(
    language: str, code: str, model: Any, frame: pd.DataFrame, what: str, folder: Path
) -> np.ndarray:
    """Limits by exported code, (n, [K,] T, 2), of level .9."""
    function = f"{what}_limits"
    patients = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in frame.to_dict("records")]
    if language == "python":
        names: dict[str, Any] = {}
        exec(code, names)
        found = [[names[function](row, time) for time in TIMES] for row in patients]
    elif language == "r":
        if shutil.which("Rscript") is None:
            pytest.skip("R is not installed")
        frame.to_csv(folder / "rows.csv", index=False)
        last = f'd <- read.csv("{folder}/rows.csv", check.names = FALSE, na.strings = "")\n'
        last += f"for (t in c({', '.join(map(repr, TIMES))})) {{ found <- {function}(d, t)\n"
        last += "  writeLines(format(unlist(found), digits = 17)) }"
        (folder / "model.R").write_text(f"{code}\n{last}")
        done = subprocess.run(["Rscript", folder / "model.R"], capture_output=True, text=True, check=True)
        values = np.array([*map(float, done.stdout.split())])  # times, causes, ends, rows
        shape = (len(TIMES), max(1, len(model.causes_)) if what == "incidence" else 1, 2, len(frame))
        pairs = values.reshape(shape).transpose(3, 1, 0, 2)
        return pairs[:, 0] if what == "survival" else pairs
    else:
        if shutil.which("node") is None:
            pytest.skip("node is not installed")
        last = f"{json.dumps(patients)}.map((row) => {TIMES}.map((time) => {function}(row, time)))"
        script = folder / "model.js"
        script.write_text(f'"use strict";\n{code}\nconsole.log(JSON.stringify({last}));')
        done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
    ends = [
        [[at] if what == "survival" else [at[cause] for cause in model.causes_] for at in row]
        for row in found
    ]
    pairs = np.array([[[[each["lower"], each["upper"]] for each in at] for at in row] for row in ends], float)
    return pairs[:, :, 0] if what == "survival" else pairs.swapaxes(1, 2)


def check(model: Any, frame: pd.DataFrame, folder: Path) -> None:
    for language in ("python", "javascript", "r"):
        code = exported(model, language)
        for what in ("survival", "incidence") if model.causes_ else ("survival",):
            expected = inference.predict(model, frame, what, TIMES, level=0.9)  # type: ignore[arg-type]
            assert (expected.lower <= expected.upper).all()
            found = limits_by(language, code, model, frame, what, folder)
            np.testing.assert_allclose(found[..., 0], expected.lower, atol=1e-9, rtol=0)
            np.testing.assert_allclose(found[..., 1], expected.upper, atol=1e-9, rtol=0)


@pytest.mark.parametrize("leaf", nightly_but({"spline_po"}, FALLING))
def test_limits_of_every_family(leaf: str, tmp_path: Path) -> None:
    data = subjects(150, 1)
    columns = Columns(numeric={"age": "spline:3", "class": "log"}, interactions=[("age", 'gr"ade')])
    model = SurvivalRegression(leaf, columns=columns).fit(data.frame, (data.time, data.event))
    check(model, data.frame[:30], tmp_path)


@pytest.mark.nightly
def test_limits_where_shapes_depend_on_covariates(tmp_path: Path) -> None:
    data = subjects(150, 1)
    model = SurvivalRegression(Weibull("linear")).fit(data.frame, (data.time, data.event))
    check(model, data.frame[:30], tmp_path)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_limits_of_groups_with_competing_causes(tmp_path: Path) -> None:
    model = fitted("soft", "mgus2")
    assert max(each.n_groups for each in model.covariance_.hazards.values()) > 1
    check(model, patients("mgus2")[:6], tmp_path)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_limits_that_the_data_do_not_determine_are_nan(tmp_path: Path) -> None:
    data = subjects(150, 1)
    frame = data.frame[["age", "class"]].fillna(50.0)
    frame = frame.assign(twice=2 * frame["age"])
    lines = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}
    model = SurvivalRegression("weibull", **lines).fit(frame, (data.time, data.event))
    apart = frame[:10].assign(twice=lambda rows: rows["twice"] + 3.0 * (np.arange(10) % 2))
    expected = inference.predict(model, apart, "survival", TIMES, level=0.9)
    assert np.isnan(expected.lower).any(axis=1).tolist() == [False, True] * 5
    for language in ("python", "javascript", "r"):
        code = exported(model, language)
        found = limits_by(language, code, model, apart, "survival", tmp_path)[:, 1:]
        np.testing.assert_allclose(found[..., 0], expected.lower[:, 1:], atol=1e-9, rtol=0)


def test_limits_that_a_model_has_not_raise(tmp_path: Path) -> None:
    data = subjects(150, 1)
    exact = OptimalSurvivalTree(2).fit(data.frame, (data.time, data.event))
    with pytest.raises(ConfigError, match="OptimalSurvivalTree estimates no covariance"):
        export_code(exact, "python", level=0.95)
    model = fitted("soft", "mgus2")
    with pytest.raises(ConfigError, match="level is for functions"):
        export_code(model, "sql", horizon=10.0, level=0.95, dialect="sqlite")
    with pytest.raises(ConfigError, match="from time zero, not after a later time"):
        export_code(model, "python", after=24.0, level=0.95)
    with pytest.raises(ConfigError, match="level must be a number"):
        export_code(model, "python", level=95)
    page = tmp_path / "page.html"
    export_calculator(model, page, after=24.0)
    assert "_limits(patient, time) {" not in page.read_text()
    export_calculator(model, page, level=None)
    assert "_limits(patient, time) {" not in page.read_text()
    export_calculator(model, page)
    assert "incidence_limits(patient, time) {" in page.read_text()


def test_derivative_of_every_operation() -> None:
    x = number("x", 0.0)
    curves = [
        unary("expm1", x) / (2.0 + x * x),
        unary("log1p", unary("exp", -unary("absolute", x))) - maximum(x, 0.25) * minimum(x, 0.5),
        where(x < 0.0, x * TIME, unary("log", 3.0 + x)),
        constant(2.0) + TIME,
    ]
    for curve in curves:
        names: dict[str, Any] = {}
        exec(Python().source(Formula({"x": None}, curve, derivative(curve, x)), "test"), names)
        exec(Python().source(Formula({"x": None}, constant(1.0), curve), "test"), values := {})
        for at in (-1.3, 0.1, 0.4, 2.0):
            ends = [values["survival"]({"x": at + step}, 1.5) for step in (-1e-6, 1e-6)]
            assert names["survival"]({"x": at}, 1.5) == pytest.approx((ends[1] - ends[0]) / 2e-6, abs=1e-8)


def test_groups_of_one_event_have_limits(tmp_path: Path) -> None:
    data = rows("melanoma")
    model = PrognosticTree(depth=1).fit(data.frame, (data.time, data.event))
    check(model, data.frame[:20], tmp_path)
