"""Figures with confidence limits."""

import numpy as np
import pytest
from matplotlib import pyplot

from sstorch import SurvivalRegression, inference, load_dataset
from sstorch.exceptions import ConfigError
from sstorch.plots import plot_effects, plot_intervals
from sstorch.reading import effects

DATA = load_dataset("gbsg2")


@pytest.fixture(scope="module")
def model() -> SurvivalRegression:
    return SurvivalRegression().fit(DATA.frame, DATA.y)


def test_effects_have_the_limits_of_contrasts_with_the_reference(model: SurvivalRegression) -> None:
    table = effects(model, DATA.frame, ["pnodes", "tgrade"], level=0.95, intervals=True)
    row = table[table["value"] == 20.0].iloc[0]
    expected = inference.effect(
        model, "pnodes", 20, float(np.quantile(DATA.frame["pnodes"], 0.5, method="lower"))
    )
    assert np.exp([row["lower"], row["upper"]]) == pytest.approx([expected.lower, expected.upper])
    reference = table[(table["effect"] == 0) & (table["column"] == "tgrade")].iloc[0]
    assert (reference["lower"], reference["upper"]) == (0.0, 0.0)


def test_bands_are_drawn(model: SurvivalRegression) -> None:
    axes = plot_effects(model, DATA.frame, ["pnodes"], level=0.95, intervals=True)
    assert len(axes[0].collections) > 0
    assert "95 % confidence limits" in axes[0].get_figure().get_suptitle()
    found = inference.predict(model, DATA.frame[:2], times=[500.0, 100.0, 1000.0])
    ax = plot_intervals(found, ["first", "second"], time_unit="days")
    assert [line.get_label() for line in ax.lines] == ["first", "second"]
    assert list(ax.lines[0].get_xdata()) == [100.0, 500.0, 1000.0]
    assert list(ax.lines[0].get_ydata()) == found.estimate[0, [1, 0, 2]].tolist()
    with pytest.raises(ConfigError, match="predict with times"):
        plot_intervals(inference.predict(model, DATA.frame[:2], "quantile"))
    pyplot.close("all")
