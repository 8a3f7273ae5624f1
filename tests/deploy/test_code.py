"""Trees as code and programs: conditions, errors, and what they need to run."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    Penalties,
    PrognosticTree,
    Surv,
    SurvivalRegression,
    recalibrate,
)
from sstorch.data import SurvivalData, load_dataset
from sstorch.deploy import export_calculator, export_code, export_program
from sstorch.deploy.expression import Formula, constant, number
from sstorch.deploy.script import PYTHON
from sstorch.deploy.tracing import log_normal_tail
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference import coefficients
from sstorch.plots import plot_groups, plot_survival_by_leaf, plot_tree
from sstorch.reading import effects, export_text, gate_table
from sstorch.validation import group_table, model_card, residuals, stability
from tests.deploy.test_contract import TIMES, by_python, fitted, start_stop, subjects, tree

REMEDY = r"time-varying covariates: one row does not determine survival from time zero\. Pass after="
RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_misspelt_columns_and_categories_raise(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    data = subjects(150, 1)
    model = SurvivalRegression("exponential", Penalties(ridge=0.1)).fit(data.frame, (data.time, data.event))
    exec(export_code(model, "python"), names)
    given = {"age": 50.0, "class": 2, 'gr"ade': "I", "Stage (T)": 2.0, "größe": None}
    assert 0 < names["survival"](given, 30.0) < 1
    wrong = [{"Age" if k == "age" else k: value for k, value in given.items()}, given | {'gr"ade': "i"}]
    messages = ["has no column 'age', got 'Age', .*: correct", "must be one of .*, got 'i': correct"]
    for patient, message in zip(wrong, messages, strict=True):
        with pytest.raises(ValueError, match=message):
            names["survival"](patient, 30.0)
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    patients = json.dumps([given, *wrong, given | {"age": "old"}])
    told = f"{patients}.map((p) => {{ try {{ return survival(p, 30); }} catch (e) {{ return e.message; }} }})"
    script = tmp_path / "model.js"
    script.write_text(f"{export_code(model, 'javascript')}\nconsole.log(JSON.stringify({told}));")
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found[0] == pytest.approx(names["survival"](given, 30.0), abs=1e-12)
    assert found[1].startswith("the patient has no column age, got Age, class, ")
    assert ", got i: correct the category" in found[2]
    assert found[3] == "age must be a number, got old"


def test_the_normal_tail_is_exact_far_out() -> None:
    x = [-1e8, -300.0, -38.0, -5.0, -1.0, -1e-9, 0.0, 1e-9, 0.7, 5.0, 20.0, 1e8]
    tail = log_normal_tail(number("x", 0.0))
    names: dict[str, Any] = {}
    exec(PYTHON.source(Formula({"x": None}, constant(1.0), tail), "a tail"), names)
    for value in x:
        with mpmath.workdps(200):
            expected = float(mpmath.log(mpmath.ncdf(value))) if value > -1e4 else -value * value / 2
        assert names["survival"]({"x": value}, 0.0) == pytest.approx(expected, rel=1e-13, abs=1e-300)


def test_code_of_a_thousand_products_compiles() -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(60, 46)), columns=[f"x{k}" for k in range(46)])
    columns = Columns(numeric="linear", interactions="all")
    model = SurvivalRegression(leaf="weibull", penalties=Penalties(ridge=10.0), columns=columns)
    model.fit(frame, (rng.exponential(size=60), np.ones(60, dtype=bool)))
    assert len(model.preprocessor_.features) == 46 + 1035
    found = by_python(model, frame[:5], Path()).survival
    np.testing.assert_allclose(found, model.predict_survival_function(frame[:5], TIMES), atol=1e-12)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of the exporter of torch
@pytest.mark.parametrize("leaf", ["auto", "weibull", "spline"])
def test_recipe_of_onnx_computes_the_predictions(
    leaf: str, gbsg2: SurvivalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    monkeypatch.chdir(tmp_path)
    recipe = re.search(r"## ONNX\n.*?```python\n(.*?)```", RECIPES.read_text(encoding="utf-8"), re.DOTALL)
    assert recipe
    frame = gbsg2.frame.astype({"age": float})
    frame.loc[:4, "age"], frame.loc[3:9, "tgrade"] = np.nan, np.nan
    model = PrognosticTree(leaf=leaf, depth=1).fit(frame, gbsg2.y)
    names = {"tree": model, "frame": frame[:40]}
    exec(recipe[1], names)
    expected = model.predict_survival_function(frame[:40], [365.0, 1825.0])
    np.testing.assert_allclose(names["survival"], expected, atol=1e-12, rtol=0)


FRESH = """
import json, pathlib, sys
for name in ("sstorch", "pandas"):
    sys.modules[name] = None  # an import would fail
import torch
rows, times = json.loads(pathlib.Path("rows.json").read_text())
code = {}
exec(pathlib.Path("m.py").read_text(), code)
program = torch.export.load("m.pt2").module()
x = torch.tensor([[*row.values()] for row in rows], dtype=torch.float64)
curves = program(x, torch.tensor(times, dtype=torch.float64))
print(json.dumps([[[code["survival"](row, t) for t in times] for row in rows], curves.tolist()]))
"""


def test_code_and_program_run_without_this_package(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    model = SurvivalRegression("weibull").fit(frame, (rng.exponential(size=60), np.ones(60, dtype=bool)))
    export_code(model, "python", tmp_path / "m.py")
    export_program(model, tmp_path / "m.pt2")
    (tmp_path / "rows.json").write_text(json.dumps([frame[:5].to_dict("records"), [0.5, 1.0, 2.0]]))
    command = [sys.executable, "-c", FRESH]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = model.predict_survival_function(frame[:5], [0.5, 1.0, 2.0])
    for found in json.loads(done.stdout):
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["soft", "exact"])
def test_exports_without_after_raise_and_write_nothing(kind: str, tmp_path: Path) -> None:
    model, (X, y) = fitted("start-stop", kind), start_stop()
    exports = [
        lambda: export_code(model, "python", tmp_path / "m.py"),
        lambda: export_code(model, "javascript", tmp_path / "m.js"),
        lambda: export_calculator(model, tmp_path / "m.html"),
        lambda: export_calculator(model, tmp_path / "m.html", X, y),
    ]
    if kind == "soft":
        exports.append(lambda: export_program(model, tmp_path / "m.pt2"))
    for export in exports:
        with pytest.raises(ConfigError, match=REMEDY):
            export()
    assert list(tmp_path.iterdir()) == []


def test_code_states_its_condition_in_one_line() -> None:
    model = fitted("start-stop", "soft")
    for language, mark in (("python", "# "), ("javascript", "// ")):
        code = export_code(model, language, after=12.5)
        line = "For a subject at risk at 12.5, whose covariates stay as entered: times count from 12.5."
        assert line in code.replace(mark, ""), code[:600]
        code = export_code(model, language, after=0)
        assert "Survival from time 0 of a subject whose covariates stay as entered." in code
    right = subjects(150, 1)
    plain = OptimalSurvivalTree(1).fit(right.frame, (right.time, right.event))
    assert "stay as entered" not in export_code(plain, "python")
    assert "at risk at 3" in export_code(plain, "python", after=3)


def test_invalid_arguments_and_families_without_a_formula_write_nothing(tmp_path: Path) -> None:
    model, counting, page = tree("weibull"), fitted("start-stop", "soft"), tmp_path / "m"
    with pytest.raises(ConfigError, match="one of python, javascript, got"):
        export_code(model, "fortran")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="choose another file"):
        export_code(model, "python", tmp_path / "no" / "model.py")
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="after must be a time"):
            export_code(counting, "python", after=wrong)
        with pytest.raises(DataError, match="after must be finite"):
            export_program(counting, page, after=wrong)
    with pytest.raises(ConfigError, match="export_program is for soft trees"):
        export_program(fitted("pbc", "exact"), page)
    causes = load_dataset("mgus2").subset(range(300))
    one = SurvivalRegression({"progression": "generalized_gamma", "death": "weibull"}, Penalties(ridge=1.0))
    one.fit(causes.frame[["age"]], causes.y)
    for each in (fitted("right", "generalized_gamma"), one):
        exports = [partial(export_code, each, kind, page) for kind in ("python", "javascript")]
        for export in (*exports, partial(export_calculator, each, page)):
            with pytest.raises(ConfigError, match="generalized_gamma leaves cannot be written as code"):
                export()
    assert list(tmp_path.iterdir()) == []


def test_survival_of_zero_at_after_gives_nan_and_left_truncation_needs_no_after() -> None:
    names: dict[str, Any] = {}
    x = np.arange(12.0)[:, None]
    model = OptimalSurvivalTree(0).fit(x, (np.arange(1.0, 13.0), np.ones(12)))
    exec(export_code(model, "python", after=12.0), names)
    assert np.isnan(names["survival"]({"x0": 1.0}, 1.0))
    data = subjects(150, 1)
    y = Surv(data.time, data.event, entry=0.3 * data.time * (np.arange(150) > 0))
    model = SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear")).fit(data.frame, y)
    exec(export_code(model, "python"), names)
    found = names["survival"](data.frame.iloc[5].to_dict(), 30.0)
    assert found == pytest.approx(model.predict_survival_function(data.frame.iloc[[5]], [30.0])[0, 0])


_NEEDS = [
    *((read, 1) for read in (export_text, gate_table, coefficients, model_card)),
    *((read, 2) for read in (effects, plot_tree, plot_survival_by_leaf)),
    *((read, 3) for read in (group_table, plot_groups, recalibrate, residuals, stability)),
]


@pytest.mark.parametrize(("read", "n_arguments"), _NEEDS)
def test_reading_a_pipeline_names_its_last_step(read: Callable[..., object], n_arguments: int) -> None:
    arguments = [make_pipeline(fitted("pbc", "exact")), pd.DataFrame(), None]
    with pytest.raises(ConfigError, match=r"got Pipeline; .* of a pipeline its last step"):
        read(*arguments[:n_arguments])
    with pytest.raises(ConfigError, match="got SurvivalData"):
        export_code(subjects(10, 0), "python")  # type: ignore[arg-type]
