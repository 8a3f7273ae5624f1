"""Trees as code: what Python and JavaScript compute is what the tree predicts."""

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest

from sstorch import (
    Columns,
    Penalties,
    PrognosticTree,
    SurvivalRegression,
)
from sstorch.data import SurvivalData
from sstorch.deploy import export_calculator, export_code, export_program
from sstorch.deploy.expression import Formula, constant, number
from sstorch.deploy.script import PYTHON
from sstorch.deploy.tracing import log_normal_tail
from sstorch.exceptions import ConfigError
from tests.deploy.test_contract import TIMES, by_python, subjects, tree

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_unknown_categories_and_absent_columns_count_as_training_rows_say() -> None:
    names: dict[str, Any] = {}
    model = tree("weibull")
    exec(export_code(model, "python", horizon=30.0, missing="typical"), names)
    frame = pd.DataFrame(
        {"age": [np.nan], "class": [2.0], 'gr"ade': ["new"], "Stage (T)": [2], "größe": [None]}
    )
    with pytest.warns(UserWarning, match="unknown category"):
        expected = model.predict_survival_function(frame, [30.0])[0, 0]
    given = {"class": 2, 'gr"ade': "new", "Stage (T)": 2.0}
    assert names["survival"](given) == pytest.approx(expected, abs=1e-12)


def test_misspelt_columns_and_categories_raise(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    data = subjects(150, 1)
    model = SurvivalRegression("exponential", penalties=Penalties(ridge=0.1)).fit(
        data.frame, (data.time, data.event)
    )
    exec(export_code(model, "python"), names)
    given = {"age": 50.0, "class": 2, 'gr"ade': "I", "Stage (T)": 2.0, "größe": None}
    assert 0 < names["survival"](given, 30.0) < 1
    wrong = [{"Age" if k == "age" else k: value for k, value in given.items()}, given | {'gr"ade': "i"}]
    messages = [
        "has no column 'age', got 'Age', .*: correct the name",
        "must be one of .*, got 'i': correct the",
    ]
    for patient, message in zip(wrong, messages, strict=True):
        with pytest.raises(ValueError, match=message):
            names["survival"](patient, 30.0)
    with pytest.raises(ConfigError, match="missing must be one of raise, typical, got 'none'"):
        export_code(model, "python", missing="none")  # type: ignore[arg-type]
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
            expected = float(mpmath.log(mpmath.ncdf(value))) if value > -1e4 else None
        if expected is not None:
            assert names["survival"]({"x": value}, 0.0) == pytest.approx(expected, rel=1e-13, abs=1e-300)
        else:
            assert names["survival"]({"x": value}, 0.0) == pytest.approx(-value * value / 2, rel=1e-13)


def test_refusals_write_nothing(tmp_path: Path) -> None:
    model = tree("weibull")
    with pytest.raises(ConfigError, match="one of python, javascript, got"):
        export_code(model, "fortran")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="horizon must be a time >= 0, got -1"):
        export_code(model, "python", horizon=-1.0)
    with pytest.raises(ConfigError, match="choose another file"):
        export_code(model, "python", tmp_path / "no" / "model.py")
    assert list(tmp_path.iterdir()) == []


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


def test_family_without_a_formula_is_refused_by_every_export(tmp_path: Path) -> None:
    data, page = subjects(40, 1), tmp_path / "m"
    model = SurvivalRegression("generalized_gamma").fit(data.frame[["class"]], (data.time, data.event))
    for export in (
        *(partial(export_code, model, kind, page) for kind in ("python", "javascript")),
        *(partial(each, model, page) for each in (export_program, export_calculator)),
    ):
        with pytest.raises(ConfigError, match=r"generalized_gamma leaves cannot be (written|exported)"):
            export()
    assert list(tmp_path.iterdir()) == []
