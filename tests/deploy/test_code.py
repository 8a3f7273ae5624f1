"""Trees as code: what Python, JavaScript, SQL and ONNX compute is what the tree predicts."""

import importlib.util
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, OptimalSurvivalTree, Penalties, SoftSurvivalTree, SurvivalRegression
from sstorch.bench.flat import soft_tree
from sstorch.data import SurvivalData
from sstorch.data.columns import label
from sstorch.deploy import export_code, export_onnx
from sstorch.deploy.expression import Formula, constant, number
from sstorch.deploy.python import Python
from sstorch.deploy.tracing import log_normal_tail
from sstorch.exceptions import ConfigError
from tests.conftest import nightly_but

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


def by_sql(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    if "Stage (T)" in frame:  # categories that a database may hold as integers
        frame = frame.assign(**{"Stage (T)": frame["Stage (T)"].astype(int)})
    survival = np.full((len(frame), len(TIMES)), np.nan)
    incidence = np.full((len(frame), len(model.causes_), len(TIMES)), np.nan)
    asked = [0, 3]
    query = export_code(model, "sql", horizon=TIMES[asked].tolist(), after=after, dialect="sqlite")
    with closing(sqlite3.connect(":memory:")) as base:
        try:
            base.execute("SELECT EXP(1.0)")
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no mathematical functions")
        frame.to_sql("patients", base, index=False)
        table = pd.read_sql(query, base)
    for k in asked:
        survival[:, k] = table[f"predicted_survival_{TIMES[k]:g}"]
        names = [f"predicted_incidence_{cause}_{TIMES[k]:g}" for cause in model.causes_]
        incidence[:, :, k] = table[names]
    return Computed(table["predicted_group"], survival, incidence)


def by_r(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    script, data = folder / "model.R", folder / "rows.csv"
    code = export_code(model, "r", script, after=after, missing="typical")
    frame.to_csv(data, index=False)
    times = f"c({', '.join(map(repr, TIMES.tolist()))})"
    found = "c(group(d), sapply(times, function(t) survival(d, t))"
    found += ", sapply(times, function(t) unlist(incidence(d, t))))" if model.causes_ else ")"
    last = f'd <- read.csv("{data}", check.names = FALSE, na.strings = "", encoding = "UTF-8")\n'
    last += f"times <- {times}\nwriteLines(format({found}, digits = 17))"
    script.write_text(f"{code}\n{last}")
    done = subprocess.run(["Rscript", script], capture_output=True, text=True, check=True)
    values = np.array([*map(float, done.stdout.split())])
    n, after_survival = len(frame), len(frame) * (1 + len(TIMES))
    incidence = values[after_survival:].reshape(len(TIMES), len(model.causes_), n).transpose(2, 1, 0)
    survival = values[n:after_survival].reshape(len(TIMES), n).T
    return Computed(values[:n], survival, incidence if model.causes_ else None)


def by_onnx(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    pytest.importorskip("onnx", reason="the extra deploy is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra oracles is not installed")
    path = folder / "model.onnx"
    export_onnx(model, path, after=after)
    session = runtime.InferenceSession(path)
    feeds: dict[str, Any] = {"time": TIMES[None]}
    for name, column in frame.items():
        is_number = model._schema.categories.get(str(name)) is None
        feeds[str(name)] = (
            column.to_numpy(float)[:, None]
            if is_number
            else np.array([["" if pd.isna(value) else str(value)] for value in column], dtype=object)
        )
    outputs = ["group", "survival", *(["incidence"] if model.causes_ else [])]
    group, *curves = session.run(outputs, feeds)
    return Computed(group[:, 0], *curves)


LANGUAGES: dict[str, Callable[..., Computed]] = {
    "python": by_python,
    "javascript": by_javascript,
    "r": by_r,
    "sql": by_sql,
    "onnx": by_onnx,
}


def check(model: Tree, language: str, frame: pd.DataFrame, folder: Path) -> None:
    group, survival, _ = LANGUAGES[language](model, frame, folder)
    np.testing.assert_array_equal(group, model.apply(frame))
    asked = ~np.isnan(survival)  # a query is for one time
    expected = model.predict_survival_function(frame, TIMES)
    assert asked.any()
    np.testing.assert_allclose(np.array(survival)[asked], expected[asked], atol=1e-12, rtol=0)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("leaf", nightly_but({"weibull", "log_normal"}, FAMILIES))
def test_code_computes_what_a_soft_tree_predicts(leaf: str, language: str, tmp_path: Path) -> None:
    frame = subjects(40, 2).frame
    frame.iloc[:2, 0] = [-1e4, 1e4]  # far outside the training range
    with pytest.warns(UserWarning, match="far outside"):
        check(tree(leaf), language, frame, tmp_path)


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
    exec(Python().source(Formula({"x": None}, constant(1.0), tail), "a tail"), names)
    for value in x:
        with mpmath.workdps(200):
            expected = float(mpmath.log(mpmath.ncdf(value))) if value > -1e4 else None
        if expected is not None:
            assert names["survival"]({"x": value}, 0.0) == pytest.approx(expected, rel=1e-13, abs=1e-300)
        else:
            assert names["survival"]({"x": value}, 0.0) == pytest.approx(-value * value / 2, rel=1e-13)


def test_refusals_write_nothing(tmp_path: Path) -> None:
    model = tree("weibull")
    with pytest.raises(ConfigError, match="one of python, javascript, r, sql"):
        export_code(model, "fortran")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give horizon"):
        export_code(model, "sql", tmp_path / "q.sql", dialect="sqlite")
    with pytest.raises(ConfigError, match=r"time >= 0, got -1"):
        export_code(model, "sql", horizon=-1.0, dialect="sqlite")
    with pytest.raises(ConfigError, match=r"dialect must be one of postgresql, .*, got None"):
        export_code(model, "sql", horizon=1.0)
    with pytest.raises(ConfigError, match="distinct times"):
        export_code(model, "sql", horizon=[1.0, 1.0], dialect="sqlite")
    with pytest.raises(ConfigError, match="are of language='sql', got language='python'"):
        export_code(model, "python", key="id")
    with pytest.raises(ConfigError, match="choose another file"):
        export_code(model, "python", tmp_path / "no" / "model.py")
    data = subjects(30, 1)
    gamma = SurvivalRegression(leaf="generalized_gamma").fit(data.frame, (data.time, data.event))
    for export in (lambda: export_code(gamma, "python"), lambda: export_onnx(gamma, tmp_path / "m.onnx")):
        with pytest.raises(ConfigError, match="generalized_gamma leaves cannot be written as code"):
            export()
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


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="the extra deploy is not installed")
def test_columns_that_are_called_as_what_a_graph_gives(tmp_path: Path) -> None:
    data = subjects(60, 1)
    frame = data.frame.rename(columns={"age": "survival"})
    model = SurvivalRegression().fit(frame, (data.time, data.event))
    with pytest.raises(ConfigError, match="columns called survival"):
        export_onnx(model, tmp_path / "m.onnx")
