import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sstorch import SoftSurvivalTree, SurvivalData, metrics
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Nodec
from sstorch.plots import plot_calibration, plot_decision_curve, plot_objective


def test_objective_of_every_start(small_data: SurvivalData) -> None:
    tree = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=3), init="random", n_starts=1)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    table = tree.history_.macro_iterations
    (line,) = plot_objective(table).get_lines()
    np.testing.assert_array_equal(line.get_xdata(), table["macro_iteration"])
    np.testing.assert_array_equal(line.get_ydata(), table["objective"])
    batch = pd.DataFrame(
        {
            "problem": [0, 1, 2, 0, 1],
            "macro_iteration": [0, 0, 0, 1, 1],
            "objective": [3.0, 2.5, 2.8, 1.0, 2.0],
        }
    )
    own = Figure().subplots()
    assert plot_objective(batch, own) is own
    best, worse, _ = own.get_lines()
    assert best.get_linewidth() > worse.get_linewidth()
    with pytest.raises(DataError, match="a loaded tree has no history"):
        plot_objective(batch[:0])


def test_calibration_curve_beside_the_diagonal(gbsg2: SurvivalData) -> None:
    rng = np.random.default_rng(0)
    predicted = rng.uniform(0.3, 0.95, len(gbsg2))
    curve = metrics.calibration_curve(metrics.HorizonRows.of((gbsg2.time, gbsg2.event), predicted, 1000.0))
    ax = plot_calibration(curve, predicted, horizon="1000 days")
    assert ax.get_ylabel() == "observed survival at 1000 days"
    diagonal, observed = ax.get_lines()
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(observed.get_ydata(), curve["observed"])
    heights = np.array([bar.get_height() for bar in ax.patches])
    counts = np.histogram(predicted, bins=50, range=(0, 1))[0]
    np.testing.assert_allclose(heights, 0.1 * counts / counts.max())
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    assert vertices[:, 1].min() == pytest.approx(curve["lower"].min())
    assert vertices[:, 1].max() == pytest.approx(curve["upper"].max())
    with pytest.raises(ConfigError, match="lacks the columns"):
        plot_calibration(curve.drop(columns="lower"))


def test_a_decision_curve_needs_its_columns(gbsg2: SurvivalData) -> None:
    survival = np.linspace(0.2, 0.9, len(gbsg2))
    table = metrics.net_benefit((gbsg2.time, gbsg2.event), survival, t=1000.0, thresholds=[0.1, 0.5])
    ax = plot_decision_curve(table, horizon="1000 days")
    assert ax.get_xlabel() == "threshold of the risk by 1000 days"
    high = metrics.net_benefit(
        (gbsg2.time, gbsg2.event), survival, t=1000.0, thresholds=[0.1, 0.5, 0.79, 0.9]
    )
    assert plot_decision_curve(high).get_xlim() == (0.1, 0.79)  # the highest risk is 0.8
    assert [line.get_label() for line in ax.get_lines()] == [
        "treat all",
        "treat none",
        "treat by the model",
    ]
    assert ax.get_ylim()[0] < 0 < table["net_benefit"].max() < ax.get_ylim()[1]
    with pytest.raises(ConfigError, match="lacks the columns"):
        plot_decision_curve(table.drop(columns="treat_all"))
