"""Figures appear in a notebook and with plt.show(), once."""

import struct

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
)
from sstorch.bench.report.figures import plot_critical_difference
from sstorch.plots import (
    plot_effects,
    plot_groups,
    plot_survival_by_leaf,
    plot_tree,
)
from sstorch.plots.figures import time_label


@pytest.fixture(scope="module")
def fitted(small_data: SurvivalData) -> SoftSurvivalTree:
    tree = PrognosticTree(depth=1, columns=Columns(numeric="linear"), time_unit="weeks")
    return tree.fit(small_data.frame, (small_data.time, small_data.event))


def test_figures_of_axes_are_those_of_pyplot(fitted: SoftSurvivalTree, small_data: SurvivalData) -> None:
    rows, y = small_data.frame, (small_data.time, small_data.event)
    drawn = [
        plot_tree(fitted, rows)[0],
        plot_groups(fitted, rows, y)[0],
        plot_effects(fitted, rows)[0],
        plot_survival_by_leaf(fitted, rows),
    ]
    figures = [ax.figure for ax in drawn]
    assert [plt.figure(number) for number in plt.get_fignums()] == figures
    assert [ax.get_xlabel() for ax in (drawn[1], drawn[3])] == ["time (weeks)"] * 2
    own = Figure()
    plot_survival_by_leaf(fitted, rows, own.subplots())
    plot_tree(fitted, rows, figure=Figure())
    assert len(plt.get_fignums()) == 4


def test_a_figure_that_is_returned_shows_itself_and_is_none_of_pyplot() -> None:
    figure = plot_critical_difference({"a": 1.2, "b": 1.8}, 0.4)
    assert not plt.get_fignums()
    png = figure._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")
    width, _ = struct.unpack(">II", png[16:24])
    assert width == 96 * 9


def test_the_label_of_time(fitted: SoftSurvivalTree) -> None:
    assert [time_label(fitted, unit) for unit in (None, "days")] == ["time (weeks)", "time (days)"]
    assert time_label(OptimalSurvivalTree(), None) == "time"


def test_names_with_dollar_signs_are_no_formulas() -> None:
    """matplotlib reads text between two of them as a formula, and raises where it is none."""
    draws, odd = np.random.default_rng(0), "fee $_$"
    frame = pd.DataFrame({odd: draws.normal(size=80), "b": draws.choice([odd, "x"], 80)})
    y = Surv(draws.exponential(size=80) + 0.01, np.arange(80) % 3, causes=(odd, "death"))
    model = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(frame, y)
    figures = [
        plot_effects(model, frame, cause=odd)[0].figure,
        plot_groups(model, frame, y)[0].figure,
    ]
    for figure in figures:
        named = [text for text in figure.findobj(Text) if "fee" in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)
