"""Workbooks: what LibreOffice computes from their cells is what the tree predicts."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from sstorch.deploy import export_workbook
from sstorch.exceptions import ConfigError
from tests.deploy.test_causes import patients
from tests.deploy.test_code import Tree, subjects
from tests.deploy.test_sql import MODELS, TIMES

OFFICE = shutil.which("soffice")


def written(model: Tree, folder: Path, rows: list[dict[str, Any]], **more: Any) -> list[Path]:
    """A workbook of each patient, whose values are in the cells next to the names of columns."""
    export_workbook(model, folder / "empty.xlsx", horizons=TIMES, **more)
    paths = []
    for k, row in enumerate(rows):
        book = openpyxl.load_workbook(folder / "empty.xlsx")
        sheet = book["Calculator"]
        for cell in sheet["A"][5:]:
            if cell.value in row:
                value = row[cell.value]
                sheet.cell(cell.row, 2).value = None if pd.isna(value) else value
        paths.append(folder / f"patient_{k:03}.xlsx")
        book.save(paths[-1])
    return paths


def computed(paths: list[Path], folder: Path) -> list[dict[str, list[Any]]]:
    """Rows of the first sheet by their first cell, after LibreOffice has computed all cells."""
    out = folder / "computed"
    command = [OFFICE, f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", "xlsx"]
    subprocess.run([*command, "--outdir", out, *paths], check=True, capture_output=True, timeout=500)
    found = []
    for path in paths:
        sheet = openpyxl.load_workbook(out / path.name, data_only=True)["Calculator"]
        found.append({row[0].value: [cell.value for cell in row[1:]] for row in sheet.iter_rows()})
    return found


@pytest.mark.nightly
@pytest.mark.skipif(OFFICE is None, reason="LibreOffice is not installed")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("soft", None),
        ("mixture", None),
        ("exact", 1.0),
        ("causes", None),
        ("causes", 24.0),
        ("exact causes", None),
    ],
)
def test_recalculated_cells_are_predictions(name: str, after: float | None, tmp_path: Path) -> None:
    model = MODELS[name]()
    frame = patients("mgus2" if name == "causes" else "pbc") if model.causes_ else subjects(30, 3).frame
    frame = frame[: 8 if name == "causes" else 30]
    if name == "causes" and after is None:  # two hazards become infinite, and so does their sum
        frame = frame.assign(creat=frame["creat"].where(frame.index != 5, -1e6))
    paths = written(model, tmp_path, frame.to_dict("records"), after=after, missing="typical")
    found = computed(paths, tmp_path)
    assert [each["Group"][0] for each in found] == model.apply(frame).tolist()
    outcome = "event-free survival" if model.causes_ else "survival"
    values = [each[outcome][: len(TIMES)] for each in found]
    expected = model.predict_survival_function(frame, TIMES, after=after)
    np.testing.assert_allclose(np.array(values, dtype=float), expected, atol=1e-9)
    if model.causes_:
        curves = model.predict_cumulative_incidence(frame, TIMES, after=after)
        for k, cause in enumerate(model.causes_):
            values = [each[cause][: len(TIMES)] for each in found]
            np.testing.assert_allclose(np.array(values, dtype=float), curves[:, k], atol=1e-9)


@pytest.mark.nightly
@pytest.mark.skipif(OFFICE is None, reason="LibreOffice is not installed")
def test_wrong_inputs_have_texts_in_place_of_results(tmp_path: Path) -> None:
    model, data = MODELS["soft"](), subjects(150, 1)
    typed = {"age": 50, "class": 2.0, 'gr"ade': "III", "Stage (T)": "2", "größe": True}
    rows = [typed | {'gr"ade': "iii"}, typed | {"age": "fifty"}, typed | {"age": 500}, typed | {"age": None}]
    found = computed(written(model, tmp_path, rows, X=data.frame, language="de"), tmp_path)
    for each in found[:2]:
        assert each["Gruppe"][0] == "Eingaben mit Hinweis korrigieren"
        assert each["Überleben"][:2] == ["Eingaben mit Hinweis korrigieren"] * 2
    assert found[0]['gr"ade'][3].startswith('gr"ade muss eines von I, ')
    assert found[1]["age"][3].startswith("age muss eine Zahl sein")
    assert found[2]["age"][3] == "außerhalb der Trainingsdaten: nicht verlässlich"
    assert found[3]["age"][3].startswith("unbekannt")
    assert not any(isinstance(each["Überleben"][0], str) for each in found[2:])
    (kept,) = computed(written(model, tmp_path, rows[:1], missing="typical"), tmp_path)
    frame = pd.DataFrame([typed | {'gr"ade': None}])
    expected = model.predict_survival_function(frame, TIMES)[0]
    np.testing.assert_allclose(kept["survival"][:2], expected, atol=1e-9)


def test_sheet_has_fields_with_ranges_and_no_text_as_formula(tmp_path: Path) -> None:
    model, data = MODELS["exact"](), subjects(150, 1)
    path = tmp_path / "model.xlsx"
    labels = {"Stage (T)": "=1+1"}
    export_workbook(model, path, data.frame, labels=labels, units={"age": "years"}, horizons=[10, 20])
    sheet = openpyxl.load_workbook(path)["Calculator"]
    cells = {row[0].value: row for row in sheet.iter_rows(min_row=6)}
    assert cells["=1+1"][0].data_type == "s"
    low, high = data.frame["age"].min(), data.frame["age"].max()
    assert [cell.value for cell in cells["age"][2:4]] == ["years", f"{low:.4g} to {high:.4g}"]
    assert [cell.value for cell in cells["time in days"][1:3]] == [10, 20]
    assert not cells["age"][1].protection.locked
    assert cells["Group"][1].value.startswith("=IF(SUM(")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing must be one of raise, typical, got 'no'"):
        export_workbook(MODELS["exact"](), tmp_path / "a.xlsx", missing="no")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="language must be one of"):
        export_workbook(MODELS["exact"](), tmp_path / "a.xlsx", language="xx")
    assert not list(tmp_path.iterdir())
