"""Every export of every kind of tree gives the predictions of the tree.

Estimators x families x causes x times of entry, in Python, in JavaScript and as a program of torch.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
    Surv,
    SurvivalRegression,
    load_dataset,
)
from sstorch.data import SurvivalData
from sstorch.data.columns import label
from sstorch.deploy import export_code, export_program
from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily
from tests.conftest import nightly
from tests.flat import soft_tree
from tests.histories import halved

CURVED = ("weibull", "log_logistic", "log_normal")  # of curves of numbers
OTHERS = ("logistic_hazard", "gompertz", "piecewise_exponential", "spline_ph", "spline_po", "spline_probit")
FAMILIES = ("exponential", *CURVED, *OTHERS, "spline")
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
    more: dict[str, Any] = {"numeric": {"age": "spline:3", "class": "log"}} if leaf in CURVED else {}
    if leaf == "log_normal":
        more = {"numeric": "smooth", "interactions": "all", "ridge": 0.1}
    if leaf == "gompertz":
        more = {"interactions": [("age", 'gr"ade')]}
    model = soft_tree(leaf=leaf, prediction=prediction, time_unit="days", **more)
    return model.fit(data.frame, (data.time, data.event))


class Odds(HazardFamily):
    """A family of a user, with functions that those of the package do without."""

    name, shape_names = "odds_of_a_user", ("log_a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return -torch.log(1 - torch.sigmoid(shape[..., 0].exp() * (log_time - linear)))


@cache
def start_stop() -> tuple[pd.DataFrame, Surv]:
    """Subjects in two rows each, in the second of which a number has changed."""
    data, rng = subjects(150, 1), np.random.default_rng(0)
    later = data.frame.assign(**{"class": rng.exponential(5, 150)})
    return pd.concat([data.frame, later], ignore_index=True), halved(data.y, rng.uniform(0.2, 0.8, 150))


def drawn(data: SurvivalData, n: int, seed: int) -> pd.DataFrame:
    """Patients with values of different rows, some of them missing, some far away."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {name: data.frame[name].sample(n, replace=True, random_state=rng).to_numpy() for name in data.frame}
    )
    for name in frame:
        frame[name] = frame[name].where(rng.random(n) > 0.1)
    frame.loc[0, "age"] = 30.0
    return frame


def patients(name: str, far: float = 110.0) -> pd.DataFrame:
    """Rows of the data with missing values, categories that are unknown, and an age far away."""
    frame = drawn(load_dataset(name), 40, 0)
    for column in frame:
        if not pd.api.types.is_numeric_dtype(load_dataset(name).frame[column]):
            frame.loc[[1, 2], column] = "never seen"
            frame[column] = frame[column].astype(object)
        else:
            frame[column] = frame[column].astype(float)
    frame.loc[3, "age"] = far
    return frame


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


def entered(model: Tree, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without unknown categories, of which code has no guess: to the tree they are missing values."""
    frame = frame.copy()
    for name, words in model._formula().columns.items():
        if words is not None:
            frame[name] = frame[name].astype(object).where(frame[name].map(label).isin(words), None)
    return frame


def by_python(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    names: dict[str, Any] = {}
    exec(export_code(model, "python", after=after), names)
    rows, incidence = entered(model, frame).to_dict("records"), None
    if model.causes_:
        incidence = [[names["incidence"](row, t) for t in TIMES] for row in rows]
        incidence = [[[at[cause] for at in row] for cause in model.causes_] for row in incidence]
    survival = [[names["survival"](row, t) for t in TIMES] for row in rows]
    return Computed([names["group"](row) for row in rows], survival, incidence)


def by_javascript(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    rows = entered(model, frame).to_dict("records")
    rows = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in rows]
    script = folder / "model.js"
    code = export_code(model, "javascript", script, after=after)
    last = f"const times = {TIMES.tolist()}; const rows = {json.dumps(rows)};\n"
    curves = "times.map((t) => survival(r, t))"
    causes = f"{json.dumps(model.causes_)}.map((k) => times.map((t) => incidence(r, t)[k]))"
    last += f"console.log(JSON.stringify(rows.map((r) => [group(r), {curves}, {causes}])));"
    script.write_text(f'"use strict";\n{code}\n{last}')
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    return Computed(*zip(*json.loads(done.stdout), strict=True))


def by_program(model: Tree, frame: pd.DataFrame, folder: Path, after: float | None = None) -> Computed:
    export_program(model, folder / "m.pt2", after=after)
    kept = {"sstorch.json": ""}
    program = torch.export.load(folder / "m.pt2", extra_files=kept).module()
    with torch.no_grad():
        found = program(torch.tensor(raw_features(model, frame).to_numpy()), torch.tensor(TIMES))
    facts = json.loads(kept["sstorch.json"])
    assert (facts["after"], tuple(facts["causes"])) == (after, model.causes_)
    incidence, survival = found if model.causes_ else (None, found)
    return Computed(None, survival, incidence)


EXPORTS = {"python": by_python, "javascript": by_javascript, "program": by_program}
STEPS: dict[str, Callable[[], Tree]] = {
    "soft": lambda: PrognosticTree(leaf="weibull", time_unit="days"),
    "mixture": lambda: soft_tree(
        depth=1, leaf="log_normal", trainer="leaves", init="distilled", ridge=1e-3, prediction="mixture"
    ),
    "exact": lambda: OptimalSurvivalTree(2, min_leaf=15, time_unit="days"),
}


@cache
def fitted(outcome: str, kind: str) -> Tree:
    """A tree of an outcome, ``"right"``, ``"start-stop"`` or the name of a data set with causes."""
    data = subjects(150, 1)
    if outcome == "start-stop":
        return STEPS[kind]().fit(*start_stop())
    if outcome == "right":
        if kind in ("user", "generalized_gamma"):
            leaf = Odds() if kind == "user" else kind
            user = SurvivalRegression(leaf, Penalties(ridge=1.0), Columns(numeric="linear"))
            return user.fit(data.frame, data.y)
        if kind == "exact":
            return OptimalSurvivalTree(3, time_unit="days").fit(data.frame, data.y)
        return tree("weibull", kind) if kind == "mixture" else tree(kind)
    model = OptimalSurvivalTree(2, min_leaf=30) if kind == "exact" else PrognosticTree(leaf=kind)
    return model.fit(load_dataset(outcome).frame, load_dataset(outcome).y)


CELLS = [("right", kind, None) for kind in (*FAMILIES, "exact", "mixture", "user")]
CELLS += [("start-stop", kind, after) for kind in STEPS for after in (0.0, 12.5)]
CELLS += [
    (name, kind, after) for name, kind in (("mgus2", "auto"), ("pbc", "exact")) for after in (None, 24.0)
]
CELLS += [("pbc", kind, None) for kind in FAMILIES if kind != "spline"]
# By day a part: each kind of tree and of outcome, in each language.
DAILY = {
    *(("right", "log_normal", None, export) for export in EXPORTS),
    *(("right", kind, None, "python") for kind in ("weibull", "exact", "user")),
    *(("right", kind, None, "javascript") for kind in ("exact", "user")),
    *(
        ("start-stop", kind, 12.5, export)
        for kind in ("soft", "exact")
        for export in ("python", "javascript")
    ),
    ("start-stop", "mixture", 12.5, "program"),
    ("start-stop", "soft", 0.0, "python"),
    ("mgus2", "auto", 24.0, "python"),
    ("pbc", "exact", None, "javascript"),
    ("pbc", "exact", 24.0, "python"),
    ("mgus2", "auto", 24.0, "program"),
    ("right", "piecewise_exponential", None, "program"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("outcome", "kind", "after", "export"),
    [
        ("right", "generalized_gamma", None, "program"),  # which has no code
        *(
            each if each in DAILY else nightly(*each)
            for each in ((*cell, export) for cell in CELLS for export in EXPORTS)
            if each[1] not in ("exact", "mixture") or (each[1] == "mixture") == (each[3] == "program")
        ),
    ],
)
def test_exports_give_the_predictions(
    outcome: str, kind: str, after: float | None, export: str, tmp_path: Path
) -> None:
    model = fitted(outcome, kind)
    if outcome in ("mgus2", "pbc"):
        frame = patients(outcome, 110.0 if after else 1e4)
    else:
        frame = subjects(40, 2).frame
        if outcome == "right":
            frame.iloc[:2, 0] = [-1e4, 1e4]  # far outside the training range
    group, survival, incidence = EXPORTS[export](model, frame, tmp_path, after)
    if group is not None:
        np.testing.assert_array_equal(group, model.apply(frame))
    within = {"rtol": 0, "atol": 1e-9 if model.causes_ or after is not None else 1e-12}
    np.testing.assert_allclose(survival, model.predict_survival_function(frame, TIMES, after=after), **within)
    if model.causes_:
        expected = model.predict_cumulative_incidence(frame, TIMES, after=after)
        np.testing.assert_allclose(incidence, expected, **within)


def test_code_of_averaged_leaves_raises() -> None:
    with pytest.raises(ConfigError, match="prediction='mixture'"):
        export_code(fitted("right", "mixture"), "python")
