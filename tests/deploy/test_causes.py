"""Exports of trees of competing causes: incidences are those that the tree predicts, in every language."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from sstorch import SurvivalRegression, metrics, recalibrate
from sstorch.deploy import export_calculator, export_code, export_program
from sstorch.exceptions import ConfigError
from sstorch.inference import coefficients
from sstorch.plots import plot_groups, plot_survival_by_leaf, plot_tree
from sstorch.reading import effects, export_text, gate_table
from sstorch.validation import group_table, model_card, residuals, stability
from tests.conftest import nightly
from tests.deploy.test_after import page_data
from tests.deploy.test_calculator import in_browser, needs_browser, typed
from tests.deploy.test_contract import fitted, patients, rows, subjects


@needs_browser
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "name"), [("auto", "mgus2"), nightly("exact", "pbc")])
def test_page_shows_the_incidence_of_each_cause(kind: str, name: str, tmp_path: Path) -> None:
    model, data, frame, page = fitted(name, kind), rows(name), patients(name), tmp_path / "page.html"
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
    model, data, page = fitted("mgus2", "auto"), rows("mgus2"), tmp_path / "page.html"
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
        export_program(fitted("pbc", "exact"), tmp_path / "tree.pt2")
    with pytest.raises(ConfigError, match="tree must be a fitted survival tree, got SurvivalData"):
        export_code(subjects(10, 0), "python")  # type: ignore[arg-type]


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
