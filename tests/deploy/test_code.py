"""Trees as code: what Python and JavaScript compute is what the tree predicts."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalRegression,
)
from sstorch.data import SurvivalData
from sstorch.data.columns import label
from sstorch.deploy import export_code
from sstorch.deploy.expression import Formula, constant, number
from sstorch.deploy.script import PYTHON
from sstorch.deploy.tracing import log_normal_tail
from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily
from tests.conftest import nightly_but
from tests.flat import soft_tree

FAMILIES = [
    "exponential",
    "weibull",
    "log_logistic",
    "log_normal",
    "logistic_hazard",
    "gompertz",
    "piecewise_exponential",
    "spline_ph",
    "spline_po",
    "spline_probit",
    "spline",
]
RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
TIMES = np.array([0.0, 1e-3, 7.0, 30.0, 61.5, 1000.0])
Tree = SoftSurvivalTree | OptimalSurvivalTree


def subjects(n: int, seed: int) -> SurvivalData:
    """Numbers, some missing, and categories with quotes, keywords and integers for names."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "class": rng.exponential(5, n),
            'gr"ade': pd.Series(rng.choice(["I", "it's </b>", "III"], n)).where(rng.random(n) > 0.1),
            "Stage (T)": pd.Categorical(rng.choice([1, 2, 3], n)),
            "größe": rng.random(n) < 0.5,
        }
    )
    time = np.ceil(40 * rng.weibull(1.3, n) * np.exp(0.05 * (50 - age)))
    return SurvivalData(frame, (time, rng.random(n) < 0.7), require_events=False)


@cache
def tree(leaf: str, prediction: str = "hbp") -> SoftSurvivalTree:
    data = subjects(150, 1)
    more: dict[str, Any] = {"numeric": {"age": "spline:3", "class": "log"}} if leaf in FAMILIES[1:4] else {}
    if leaf == "log_normal":
        more = {"numeric": "smooth", "interactions": "all", "ridge": 0.1}
    if leaf == "gompertz":
        more = {"interactions": [("age", 'gr"ade')]}
    model = soft_tree(leaf=leaf, prediction=prediction, time_unit="days", **more)
    return model.fit(data.frame, (data.time, data.event))


@cache
def exact() -> OptimalSurvivalTree:
    data = subjects(150, 1)
    return OptimalSurvivalTree(3, time_unit="days").fit(data.frame, (data.time, data.event))


class Computed(NamedTuple):
    """What exported code computes of n rows: (n,), (n, T), and of competing causes (n, K, T)."""

    group: Any
    survival: Any
    incidence: Any = None


def raw_features(model: SoftSurvivalTree, frame: pd.DataFrame) -> pd.DataFrame:
    """Encoded features in original units, NaN where missing, as a program of torch takes them."""
    schema, columns = model.preprocessor_.schema, {}
    frame = schema.frame_of(frame)
    for name, (column, category) in zip(schema.feature_names_out, schema.origins, strict=True):
        values = frame[column]
        columns[name] = (values if category is None else values.map(label) == category).where(values.notna())
    return pd.DataFrame(columns).astype(float)


def by_python(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    names: dict[str, Any] = {}
    exec(export_code(model, "python", after=after, missing="typical"), names)
    rows, incidence = frame.to_dict("records"), None
    if model.causes_:
        incidence = [[names["incidence"](row, t) for t in TIMES] for row in rows]
        incidence = [[[at[cause] for at in row] for cause in model.causes_] for row in incidence]
    survival = [[names["survival"](row, t) for t in TIMES] for row in rows]
    return Computed([names["group"](row) for row in rows], survival, incidence)


def by_javascript(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    rows = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in frame.to_dict("records")]
    script = folder / "model.js"
    code = export_code(model, "javascript", script, after=after, missing="typical")
    last = f"const times = {TIMES.tolist()}; const rows = {json.dumps(rows)};\n"
    curves = "times.map((t) => survival(r, t))"
    causes = f"{json.dumps(model.causes_)}.map((k) => times.map((t) => incidence(r, t)[k]))"
    last += f"console.log(JSON.stringify(rows.map((r) => [group(r), {curves}, {causes}])));"
    script.write_text(f'"use strict";\n{code}\n{last}')
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    return Computed(*zip(*json.loads(done.stdout), strict=True))


LANGUAGES: dict[str, Callable[..., Computed]] = {
    "python": by_python,
    "javascript": by_javascript,
}


def check(model: Tree, language: str, frame: pd.DataFrame, folder: Path) -> None:
    group, survival, _ = LANGUAGES[language](model, frame, folder)
    np.testing.assert_array_equal(group, model.apply(frame))
    expected = model.predict_survival_function(frame, TIMES)
    np.testing.assert_allclose(survival, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("leaf", nightly_but({"weibull", "log_normal"}, FAMILIES))
def test_code_computes_what_a_soft_tree_predicts(leaf: str, language: str, tmp_path: Path) -> None:
    frame = subjects(40, 2).frame
    frame.iloc[:2, 0] = [-1e4, 1e4]  # far outside the training range
    with pytest.warns(UserWarning, match="far outside"):
        check(tree(leaf), language, frame, tmp_path)


class Odds(HazardFamily):
    """A family of a user, with functions that those of the package do without."""

    name, shape_names = "odds_of_a_user", ("log_a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return -torch.log(1 - torch.sigmoid(shape[..., 0].exp() * (log_time - linear)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_computes_what_a_family_of_a_user_predicts(language: str, tmp_path: Path) -> None:
    data = subjects(150, 1)
    columns, penalties = Columns(numeric="linear"), Penalties(ridge=1.0)
    model = SurvivalRegression(Odds(), columns=columns, penalties=penalties)
    model.fit(data.frame, (data.time, data.event))
    _, survival, _ = LANGUAGES[language](model, data.frame[:10], tmp_path)
    expected = model.predict_survival_function(data.frame[:10], TIMES)
    np.testing.assert_allclose(survival, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_computes_what_an_exact_tree_and_a_mixture_predict(language: str, tmp_path: Path) -> None:
    frame = subjects(60, 3).frame
    check(exact(), language, frame, tmp_path)
    check(tree("weibull", "mixture"), language, frame, tmp_path)


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
    data = subjects(30, 1)
    gamma = SurvivalRegression(leaf="generalized_gamma").fit(data.frame, (data.time, data.event))
    with pytest.raises(ConfigError, match="generalized_gamma leaves cannot be written as code"):
        export_code(gamma, "python")
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
