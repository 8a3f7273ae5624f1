import numpy as np
import pandas as pd
import pytest

from sstorch.bench.report.plots import indistinguishable, plot_critical_difference, plot_scores_by_dataset


def test_runs_of_models_within_the_critical_difference() -> None:
    assert indistinguishable([1.0, 2.0, 3.0, 5.0], 1.0) == [(0, 1), (1, 2)]
    assert indistinguishable([1.0, 2.0, 3.0, 5.0], 9.0) == [(0, 3)]
    assert indistinguishable([1.0, 3.0], 1.0) == []
    assert indistinguishable([2.0, 2.0, 2.0], 0.5) == [(0, 2)]


def test_critical_difference_diagram() -> None:
    ranks = {"a": 3.2, "b": 1.1, "c": 2.0, "d": 3.7}
    figure = plot_critical_difference(ranks, 1.3)
    (ax,) = figure.axes
    (scale,) = [line for line in ax.lines if line.get_gid() == "critical-difference"]
    assert np.ptp(scale.get_xdata()) == pytest.approx(1.3)
    bars = [line.get_xdata() for line in ax.lines if line.get_gid() == "not-separated"]
    np.testing.assert_allclose(bars, [[1.1, 2.0], [2.0, 3.2], [3.2, 3.7]], atol=0.03)
    texts = [text.get_text().strip() for text in ax.texts]
    assert [text for text in texts if text[0] in "abcd0123" and "  " in text] == [
        "b  1.10",
        "c  2.00",
        "3.20  a",
        "3.70  d",
    ]


def test_box_plots_by_data_set() -> None:
    values = {("one", "m"): [0.1, 0.2, 0.3, 0.4, 0.5], ("one", "n"): [0.3], ("two", "m"): [0.5, 0.7]}
    table = pd.DataFrame([(*key, value) for key, each in values.items() for value in each])
    table = table.set_axis(["dataset", "label", "value"], axis=1)
    figure = plot_scores_by_dataset(table, {"m": "soft", "n": "other"}, "C")
    first, second = (ax for ax in figure.axes if ax.get_visible())
    assert [ax.get_title() for ax in (first, second)] == ["one", "two"]
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["m", "n"]
    box = first.patches[0].get_path().vertices[:, 0]
    np.testing.assert_allclose([box.min(), box.max()], [0.2, 0.4])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["soft", "other"]
