"""Exports of trees of competing causes: incidences are those that the tree predicts, in every language."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline

from sstorch import OptimalSurvivalTree, PrognosticTree, SurvivalRegression, load_dataset, metrics
from sstorch.data import SurvivalData
from sstorch.deploy import export_calculator, export_code, export_program
from sstorch.exceptions import ConfigError
from sstorch.inference import coefficients
from sstorch.plots import plot_groups, plot_survival_by_leaf, plot_tree
from sstorch.reading import effects, export_text, gate_table
from sstorch.validation import group_table, model_card, recalibrate, residuals, stability
from tests.conftest import covering, nightly, nightly_but
from tests.deploy.test_after import page_data
from tests.deploy.test_calculator import drawn, in_browser, needs_browser, typed
from tests.deploy.test_code import LANGUAGES, TIMES, Tree, subjects

FALLING = ["exponential", "weibull", "log_logistic", "log_normal", "logistic_hazard", "gompertz"]
FALLING += ["piecewise_exponential", "spline_ph", "spline_po", "spline_probit"]


@cache
def rows(name: str) -> SurvivalData:
    return load_dataset(name)


@cache
def fitted(kind: str, name: str = "mgus2", leaf: str = "auto") -> Tree:
    data = rows(name)
    model = PrognosticTree(leaf=leaf) if kind == "soft" else OptimalSurvivalTree(2, min_leaf=30)
    return model.fit(data.frame, data.y)


def patients(name: str, far: float = 110.0) -> pd.DataFrame:
    """Rows of the data with missing values, categories that are unknown, and an age far away."""
    frame = drawn(rows(name), 40, 0)
    for column in frame:
        if not pd.api.types.is_numeric_dtype(rows(name).frame[column]):
            frame.loc[[1, 2], column] = "never seen"
            frame[column] = frame[column].astype(object)
        else:
            frame[column] = frame[column].astype(float)
    frame.loc[3, "age"] = far
    return frame


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("model", "language", "after"),
    covering([("soft", "mgus2"), ("soft", "pbc"), ("exact", "pbc")], [*LANGUAGES], [None, 0.0, 24.0]),
)
def test_code_computes_the_incidence_of_each_cause(
    model: tuple[str, str], language: str, after: float | None, tmp_path: Path
) -> None:
    kind, name = model
    frame = patients(name, 1e4) if after is None else patients(name)
    check(fitted(kind, name), language, frame, tmp_path, after)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("leaf", nightly_but({"piecewise_exponential"}, FALLING))
def test_code_computes_the_incidences_of_every_family(leaf: str, language: str, tmp_path: Path) -> None:
    check(fitted("soft", "pbc", leaf), language, patients("pbc"), tmp_path, None)


def check(model: Tree, language: str, frame: pd.DataFrame, folder: Path, after: float | None) -> None:
    group, survival, incidence = LANGUAGES[language](model, frame, folder, after)
    np.testing.assert_array_equal(group, model.apply(frame))
    expected = model.predict_cumulative_incidence(frame, TIMES, after=after)
    free = model.predict_survival_function(frame, TIMES, after=after)
    np.testing.assert_allclose(incidence, expected, atol=1e-9, rtol=0)
    np.testing.assert_allclose(survival, free, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("leaf", "after"),
    [nightly("weibull", None), ("weibull", 24.0), nightly("auto", None), nightly("auto", 24.0)],
)
def test_torch_program_gives_incidences_and_survival(leaf: str, after: float | None, tmp_path: Path) -> None:
    model, frame = fitted("soft", leaf=leaf), rows("mgus2").frame[:40]
    export_program(model, tmp_path / "tree.pt2", after=after)
    kept = {"sstorch.json": ""}
    program = torch.export.load(tmp_path / "tree.pt2", extra_files=kept).module()
    columns = {}
    schema = model.preprocessor_.schema
    for name, (column, category) in zip(schema.feature_names_out, schema.origins, strict=True):
        values = frame[column]
        columns[name] = (values if category is None else (values == category)).where(values.notna())
    x = torch.as_tensor(pd.DataFrame(columns).to_numpy(dtype=np.float64))
    with torch.no_grad():
        incidence, survival = program(x, torch.as_tensor(TIMES))
    np.testing.assert_allclose(
        incidence, model.predict_cumulative_incidence(frame, TIMES, after=after), atol=1e-9
    )
    np.testing.assert_allclose(
        survival, model.predict_survival_function(frame, TIMES, after=after), atol=1e-9
    )
    assert json.loads(kept["sstorch.json"])["causes"] == ["progression", "death"]


@needs_browser
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "name"), [("soft", "mgus2"), nightly("exact", "pbc")])
def test_page_shows_the_incidence_of_each_cause(kind: str, name: str, tmp_path: Path) -> None:
    model, data, frame, page = fitted(kind, name), rows(name), patients(name), tmp_path / "page.html"
    frame = frame.drop(index=[1, 2])  # a page has no field for a category that is unknown
    horizons = [60.0, 120.0] if name == "mgus2" else [365.0, 1825.0]
    export_calculator(model, page, data.frame, data.y, horizons=horizons)
    categories = {column for column in frame if not pd.api.types.is_numeric_dtype(data.frame[column])}
    seen = in_browser(page, [typed(row, categories) for _, row in frame.iterrows()], tmp_path)
    times = np.linspace(0, model.event_times_[-1], 121)
    expected = model.predict_cumulative_incidence(frame, times)
    np.testing.assert_allclose([each["curves"] for each in seen], expected, atol=1e-9)
    at = model.predict_cumulative_incidence(frame, horizons)
    free = model.predict_survival_function(frame, horizons)
    shown = np.concatenate([at, free[:, None]], axis=1)
    np.testing.assert_allclose([each["horizons"] for each in seen], shown.reshape(len(frame), -1), atol=1e-9)
    group = model.apply(frame)
    for k, each in enumerate(seen):
        assert each["group"] == group[k]
        last = ", ".join(
            f"{cause} {100 * at[k, j, 1]:.1f}\N{NO-BREAK SPACE}%" for j, cause in enumerate(model.causes_)
        )
        if (at[k, :, 1] > 0.001).all():
            assert last in each["verdict"]


@pytest.mark.parametrize("after", [None, 24.0])
def test_page_has_aalen_johansen_of_the_groups(after: float | None, tmp_path: Path) -> None:
    model, data, page = fitted("soft"), rows("mgus2"), tmp_path / "page.html"
    export_calculator(model, page, data.frame, data.y, after=after)
    shown, start, group = page_data(page), after or 0.0, model.apply(data.frame)
    assert shown["causes"] == ["progression", "death"]
    assert shown["outcome"] == "event-free survival"
    assert [each["number"] for each in shown["groups"]] == [1, 2, 3, 4]
    for each in shown["groups"]:
        if not (group == each["number"]).any():
            assert each["text"] == "no training rows"
            continue
        inside = (group == each["number"]) & (data.time > start)
        own = (data.time[inside] - start, data.cause[inside])
        np.testing.assert_allclose(each["curves"], metrics.aalen_johansen(own, each["times"]), atol=1e-6)


def test_family_without_a_formula_in_one_cause_raises(tmp_path: Path) -> None:
    data = rows("mgus2").subset(range(300))
    model = SurvivalRegression(leaf={"progression": "generalized_gamma", "death": "weibull"})
    model.fit(data.frame[["age"]], data.y)
    with pytest.raises(ConfigError, match="generalized_gamma leaves cannot be written as code"):
        export_code(model, "python")
    with pytest.raises(ConfigError, match="generalized_gamma leaves cannot be exported"):
        export_program(model, tmp_path / "tree.pt2")


def test_exact_tree_as_a_torch_program_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="export_program is for soft trees"):
        export_program(fitted("exact", "pbc"), tmp_path / "tree.pt2")
    with pytest.raises(ConfigError, match="tree must be a fitted survival tree, got SurvivalData"):
        export_code(subjects(10, 0), "python")  # type: ignore[arg-type]


_NEEDS = [
    *((read, 1) for read in (export_text, gate_table, coefficients, model_card)),
    *((read, 2) for read in (effects, plot_tree, plot_survival_by_leaf)),
    *((read, 3) for read in (group_table, plot_groups, recalibrate, residuals, stability)),
]


@pytest.mark.parametrize(("read", "n_arguments"), _NEEDS)
def test_reading_a_pipeline_names_its_last_step(read: Callable[..., object], n_arguments: int) -> None:
    arguments = [make_pipeline(fitted("exact", "pbc")), pd.DataFrame(), None]
    with pytest.raises(ConfigError, match=r"got Pipeline; .* of a pipeline its last step"):
        read(*arguments[:n_arguments])
