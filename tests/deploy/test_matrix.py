"""Every export of every family on every data set, loaded in processes that have the exported file alone."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    Columns,
    GroupPenalties,
    OptimalSurvivalTree,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalRegression,
)
from sstorch.data import SurvivalData, list_datasets, load_dataset
from sstorch.deploy import export_calculator, export_code, export_program
from sstorch.deploy.exports import Deployable
from sstorch.exceptions import ConfigError
from sstorch.nn.hazards import FAMILIES
from sstorch.optim import Nodec
from tests.deploy.test_calculator import drawn, in_browser, typed
from tests.deploy.test_code import raw_features

REFUSED = "generalized_gamma"
# Of each kind, what reads one file: groups (N), survival (N, T), incidences (N, T, K), empty for one event.
LOADERS = {
    ".py": """
def load(file):
    names = {}
    exec(file.read_text(), names)
    survival = [[names["survival"](row, t) for t in times] for row in rows]
    incidence = [[[*names["incidence"](row, t).values()] for t in times] for row in rows if causes]
    return [*map(names["group"], rows)], survival, incidence
""",
    ".pt2": """
import torch
def load(file):
    x, t = (torch.tensor(numbers(each), dtype=torch.float64) for each in (encoded, times))
    with torch.no_grad():
        curves = torch.export.load(file).module()(x, t)
    incidence, survival = curves if causes else (x[:0], curves)
    return None, survival.tolist(), incidence.transpose(-1, -2).tolist() if causes else []
""",
}
PYTHON = """
import json, pathlib, sys
for name in ("sstorch", "pandas"):
    sys.modules[name] = None  # an import would fail
def numbers(value):
    return [*map(numbers, value)] if isinstance(value, list) else float("nan") if value is None else value
rows, encoded, times, causes = json.loads(pathlib.Path("rows.json").read_text())
{loader}
files = sorted(pathlib.Path().glob("*{ending}"))
print(json.dumps({{file.stem: load(file) for file in files}}))
"""
JAVASCRIPT = """
const fs = require("fs");
const [rows, , times, causes] = JSON.parse(fs.readFileSync("rows.json"));
const found = {};
for (const file of fs.readdirSync(".").filter((name) => name.endsWith(".js"))) {
  const end = `; return { group, survival${causes ? ", incidence" : ""} };`;
  const code = new Function(`"use strict"; ${fs.readFileSync(file)}${end}`)();
  const incidence = causes ? rows.map((r) => times.map((t) => Object.values(code.incidence(r, t)))) : [];
  const survival = rows.map((r) => times.map((t) => code.survival(r, t)));
  found[file.slice(0, -3)] = [rows.map(code.group), survival, incidence];
}
console.log(JSON.stringify(found));
"""

# All families on two data sets; on the others three, in turn.
NAMES, EXPORTED = sorted(list_datasets()["name"]), [leaf for leaf in FAMILIES if leaf != REFUSED]
IN_TURN = {name: [EXPORTED[(k + step) % len(EXPORTED)] for step in (0, 4, 8)] for k, name in enumerate(NAMES)}
CELLS = IN_TURN | {"gbsg2": EXPORTED, "mgus2": EXPORTED}


def models(data: SurvivalData, families: Sequence[str]) -> dict[str, Deployable]:
    """A fitted tree of each of some families, an exact tree and a mixture."""
    few = GroupPenalties(ridge=0.1, roughness=0.1)
    found: dict[str, Deployable] = {
        leaf: PrognosticTree(leaf=leaf, depth=1, penalties=few) for leaf in families
    }
    if data.y.type == "right":
        found["exact"] = OptimalSurvivalTree(2)
        found["mixture"] = SoftSurvivalTree(
            leaf="weibull",
            prediction="mixture",
            init="random",
            n_starts=1,
            trainer=Nodec(macro_iterations=1),
            columns=Columns(missing_numbers="median", missing_categories="most_frequent"),
        )
    return {name: model.fit(data.frame, data.y) for name, model in found.items()}


def fresh(ending: str, folder: Path) -> dict[str, Any]:
    """Groups, survival and incidences by model, computed by a new process in the folder of the files."""
    if ending == ".js":
        command = ["node", "-e", JAVASCRIPT]
    else:
        command = [sys.executable, "-c", PYTHON.format(loader=LOADERS[ending], ending=ending)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_exports_in_fresh_processes_give_the_predictions(name: str, tmp_path: Path) -> None:
    data, draws = load_dataset(name), np.random.default_rng(0)
    if data.y.entry is None and len(data) > 400:
        data = data.subset(draws.choice(len(data), 400, replace=False))
    after = None if data.y.id is None else 0.0
    frame, fitted = drawn(data, 12, 0)[data.frame.columns], models(data, CELLS[name])
    times = np.quantile(fitted[CELLS[name][0]].event_times_, [0.1, 0.5, 0.9]).round(6)
    horizons = [0.0, *map(float, np.unique(times))]
    y = None if data.y.type == "interval" else data.y
    for label, model in fitted.items():
        export_code(model, "python", tmp_path / f"{label}.py", after=after)
        export_code(model, "javascript", tmp_path / f"{label}.js", after=after)
        export_calculator(model, tmp_path / f"{label}.html", data.frame, y, after=after)
        if label != "exact":
            export_program(model, tmp_path / f"{label}.pt2", after=after)
    _write_rows(
        tmp_path, frame, raw_features(fitted[CELLS[name][0]], frame), horizons, len(data.y.causes or ())
    )
    for ending in (*LOADERS, ".js"):
        found = fresh(ending, tmp_path)
        assert {*found} == {file.stem for file in tmp_path.glob(f"*{ending}")}
        for label, (group, survival, incidence) in found.items():
            model, tolerance = fitted[label], {"rtol": 0, "atol": 1e-9 if data.y.causes else 1e-12}
            if group is not None:
                np.testing.assert_array_equal(group, model.apply(frame), f"{label}{ending}")
            expected = model.predict_survival_function(frame, horizons, after=after)
            np.testing.assert_allclose(survival, expected, err_msg=f"{label}{ending}", **tolerance)
            if data.y.causes:
                curves = model.predict_cumulative_incidence(frame, horizons, after=after).transpose(0, 2, 1)
                np.testing.assert_allclose(incidence, curves, err_msg=f"{label}{ending}", **tolerance)
    _check_pages(fitted, data, frame, tmp_path, after)


def _write_rows(
    folder: Path, frame: pd.DataFrame, encoded: pd.DataFrame, times: list[float], causes: int
) -> None:
    """The rows for the new processes."""
    plain = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in frame.to_dict("records")]
    cells = encoded.astype(object).where(encoded.notna(), None).to_numpy().tolist()
    (folder / "rows.json").write_text(json.dumps([plain, cells, times, causes], default=float))


def _check_pages(
    fitted: dict[str, Deployable], data: SurvivalData, frame: pd.DataFrame, folder: Path, after: float | None
) -> None:
    """Each page in a browser of its own."""
    categories = {str(name) for name in frame if not pd.api.types.is_numeric_dtype(data.frame[name])}
    patients = [typed(row, categories) for _, row in frame[:3].iterrows()]
    for label, model in fitted.items():
        seen = in_browser(folder / f"{label}.html", patients, folder)
        times = np.linspace(0, model.event_times_[-1], 121)
        if data.y.causes:
            expected = model.predict_cumulative_incidence(frame[:3], times)
        else:
            expected = model.predict_survival_function(frame[:3], times, after=after)[:, None]
        np.testing.assert_allclose([each["curves"] for each in seen], expected, atol=1e-9, err_msg=label)
        assert [each["group"] for each in seen] == model.apply(frame[:3]).tolist()


def test_generalized_gamma_is_refused_by_every_export_and_writes_nothing(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    model = SurvivalRegression(leaf=REFUSED).fit(
        pd.DataFrame({"age": draws.normal(size=40)}), (draws.exponential(size=40), np.ones(40, dtype=bool))
    )
    exports = [
        *(partial(export_code, model, kind, tmp_path / "m") for kind in ("python", "javascript")),
        *(partial(each, model, tmp_path / "m") for each in (export_program, export_calculator)),
    ]
    for export in exports:
        with pytest.raises(ConfigError, match=f"{REFUSED} leaves cannot be (written|exported)"):
            export()
    assert list(tmp_path.iterdir()) == []
